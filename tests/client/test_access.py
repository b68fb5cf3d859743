"""Who a client is and how it connects: arguments, files, the environment."""

from pathlib import Path

import pytest

import roquette
from roquette import sync
from roquette.client.client import Client
from roquette.client.config import (
    ClientConfig,
    access_from,
    access_of,
    credentials_from,
    read_keys,
    tls_from,
)
from roquette.errors import ConfigError
from roquette.remoting.security import OPEN
from roquette.remoting.tls_options import TlsOptions
from roquette.wire.signature import Credentials
from roquette_spark.workers.reader import ReaderConfig
from roquette_spark.workers.sender import SenderConfig

SECRET = "geheim-7"
KEYS = Credentials("alice", SECRET)


def test_a_client_takes_keys_or_credentials_and_tls() -> None:
    assert Client("a:1").config.security is OPEN
    assert Client("a:1", access_key="alice", secret_key=SECRET).config.credentials == KEYS
    given = Client("a:1", credentials=KEYS, tls=True).config
    assert given.credentials == KEYS and given.tls == TlsOptions()
    options = TlsOptions(ca="x.pem", verify_host=False)
    assert Client("a:1", tls=options).config.tls == options
    assert sync.Client("a:1", access_key="alice", secret_key=SECRET)._client.config.credentials
    assert roquette.TlsOptions is TlsOptions and roquette.Credentials is Credentials


def test_arguments_that_do_not_go_together_are_refused_without_a_secret() -> None:
    for words in (
        {"access_key": "alice"},
        {"secret_key": SECRET},
        {"credentials": KEYS, "secret_key": SECRET},
    ):
        with pytest.raises(ConfigError) as caught:
            Client("a:1", **words)  # type: ignore[arg-type]
        assert SECRET not in str(caught.value)
    with pytest.raises(TypeError, match="secretKey"):
        Client("a:1", secretKey=SECRET)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"x\.pem cannot be read"):
        _ = Client("a:1", tls=TlsOptions(ca="/nowhere/x.pem")).config.security


def test_no_repr_has_a_secret() -> None:
    keys = Credentials("alice", SECRET, SECRET)
    tls = TlsOptions(key_password=SECRET)
    shown: list[object] = [
        keys,
        tls,
        ClientConfig(name_servers="a:1", credentials=keys, tls=tls),
        ReaderConfig(namesrv_addr="a:1", group="g", credentials=keys, tls=tls),
        SenderConfig(namesrv_addr="a:1", credentials=keys, tls=tls),
        Client("a:1", credentials=keys, tls=TlsOptions()).config.security,
        access_of({"credentials": keys, "tls": tls}),
    ]
    for each in shown:
        assert SECRET not in repr(each) + str(each), each


@pytest.mark.parametrize(
    "text",
    [
        f"accessKey=alice\nsecretKey={SECRET}\nsecurityToken=t\n",
        f'accessKey: alice\nsecretKey: "{SECRET}"\nsecurityToken: t\n',
    ],
)
def test_keys_come_from_a_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)

    assert read_keys(str(path)) == Credentials("alice", SECRET, "t")
    assert read_keys(str(path), "bob") == Credentials("bob", SECRET, "t")
    assert credentials_from({"ROQUETTE_ACCESS_KEY_FILE": str(path)}) == read_keys(str(path))


def test_a_file_may_hold_the_secret_alone(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\n")

    assert read_keys(str(path), "alice") == KEYS
    given = {"ROQUETTE_ACCESS_KEY_FILE": str(path), "ROQUETTE_ACCESS_KEY": "alice"}
    assert credentials_from(given) == KEYS
    for data in (b"", b"two words", SECRET.encode() + b"\xff"):
        path.write_bytes(data)
        with pytest.raises(ConfigError) as caught:
            read_keys(str(path), "alice")
        assert str(path) in str(caught.value) and SECRET not in str(caught.value)
    path.write_text(SECRET)
    with pytest.raises(ConfigError, match="needs the lines accessKey"):
        read_keys(str(path))
    with pytest.raises(ConfigError, match="No such file"):
        read_keys(str(tmp_path / "absent"))


def test_the_environment_says_it_all() -> None:
    given = {
        "ROQUETTE_ACCESS_KEY": "alice",
        "ROQUETTE_SECRET_KEY": SECRET,
        "ROQUETTE_TLS_CA": "ca.pem",
        "ROQUETTE_TLS_VERIFY_HOST": "false",
        "ROQUETTE_TLS_KEY_PASSWORD": "p",
    }
    assert access_from(given) == {
        "credentials": KEYS,
        "tls": TlsOptions(ca="ca.pem", verify_host=False, key_password="p"),
    }
    assert access_from({}) == {"credentials": None}
    assert tls_from({"ROQUETTE_TLS": "true"}) == TlsOptions()
    assert tls_from(given | {"ROQUETTE_TLS": "false"}) is None
    with pytest.raises(ConfigError, match="ROQUETTE_TLS must be true or false"):
        tls_from({"ROQUETTE_TLS": "yes"})
    for name in ("ROQUETTE_ACCESS_KEY", "ROQUETTE_SECRET_KEY"):
        with pytest.raises(ConfigError, match=f"{name} is not") as caught:
            credentials_from({k: v for k, v in given.items() if k != name})
        assert SECRET not in str(caught.value)
