"""TLS settings of servers and options of clients: what they make, and what they refuse."""

import asyncio
import contextlib
import logging
import os
import ssl
from pathlib import Path

import pytest
from tests.certificates import Authority, Pair, issue, make_ca

from roquette.apps.broker import broker_settings
from roquette.apps.namesrv import namesrv_settings
from roquette.base.clock import SystemClock
from roquette.base.config import Sources, env_key
from roquette.base.foreign_keys import BROKER, NAMESRV
from roquette.base.options import options_of
from roquette.broker.floor.config import BrokerConfig, LiveConfig
from roquette.errors import ConfigError
from roquette.remoting.certificates import TlsSettings, client_tls, own_pair, server_tls
from roquette.remoting.tls import TlsMode
from roquette.remoting.tls_options import TlsOptions
from roquette.store.format.config import StoreConfig

CLOCK = SystemClock()


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_ca(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def pair(ca: Authority) -> Pair:
    return issue(ca, ["localhost"])


def server(settings: TlsSettings, directory: Path = Path("/nowhere")) -> ssl.SSLContext:
    """The context of the first connection."""
    made = server_tls(settings, str(directory), ["localhost"], CLOCK)
    assert made is not None
    return asyncio.run(made.context())  # type: ignore[arg-type]


def read(text: str = "", **more: object) -> TlsSettings:
    from roquette.apps.running import load_settings

    return load_settings((TlsSettings,), NAMESRV, Sources(file_text=text, **more))[0]  # type: ignore[arg-type]


def test_all_of_apaches_keys_are_there_and_the_ports_are_permissive() -> None:
    assert [key for key in options_of(TlsSettings) if key != "tls.client.verifyHost"] == [
        "tls.enable",
        "tls.config.file",
        "tls.test.mode.enable",
        "tls.server.mode",
        *(f"tls.server.{key}" for key in ("certPath", "keyPath", "keyPassword", "trustCertPath")),
        *(f"tls.server.{key}" for key in ("authClient", "need.client.auth")),
        *(f"tls.client.{key}" for key in ("certPath", "keyPath", "keyPassword", "trustCertPath")),
        "tls.client.authServer",
    ]
    assert read().mode == "permissive" and not read().calls
    assert read("tls.server.mode=enforcing").calls
    assert not read("tls.server.mode=enforcing\ntls.enable=false").calls
    assert server_tls(read("tls.server.mode=disabled"), "", [], CLOCK) is None
    assert client_tls(read(), CLOCK) is None


def test_settings_come_from_the_file_the_tls_file_the_environment_and_flags(tmp_path: Path) -> None:
    more = tmp_path / "tls.properties"
    more.write_text("tls.server.certPath=b\ntls.server.keyPath=b\ntls.server.keyPassword= b \n")
    text = f"tls.config.file={more}\ntls.server.mode=Enforcing\n" + "".join(
        f"tls.server.{key}=a\n" for key in ("certPath", "keyPath", "trustCertPath")
    )
    found = read(
        text,
        environ={"ROQUETTE_TLS_SERVER_KEY_PATH": "c", "ROQUETTE_TLS_SERVER_TRUST_CERT_PATH": "c"},
        overrides={"tls.server.trustCertPath": "d"},
    )
    assert (found.mode, found.certificate, found.key, found.trusted) == ("enforcing", "b", "c", "d")
    assert found.key_password == "b "  # java.util.Properties keeps blanks at the end
    assert env_key("tls.server.need.client.auth") == "ROQUETTE_TLS_SERVER_NEED_CLIENT_AUTH"
    with pytest.raises(ConfigError, match=r"tls\.config\.file=/nowhere/x cannot be read"):
        read("tls.config.file=/nowhere/x")
    more.write_text("tls.server.mode=enforce")
    with pytest.raises(ConfigError, match=f"tls.server.mode in {more} must be"):
        read(text)


@pytest.mark.promise(
    "Security",
    "no setting that a request can change names a path, a command, a class or an address, or opens a server",
)
@pytest.mark.parametrize("key", list(options_of(TlsSettings)))
def test_no_request_changes_a_setting_or_shows_one(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} cannot be changed while the process runs"):
        LiveConfig(BrokerConfig(), StoreConfig(), 1).update({key: "x"})
    for keys in (BROKER, NAMESRV):
        with pytest.raises(ConfigError, match="cannot be changed"):
            keys.refuse_change(key, "the request")
    assert not options_of(TlsSettings)[key].mutable
    assert key not in options_of(BrokerConfig)


@pytest.mark.promise(
    "Security",
    "users, rules and their copies are readable by the server's user alone; passwords of keys are shown nowhere",
)
@pytest.mark.parametrize("key", ["tls.server.keyPassword", "tls.client.keyPassword"])
@pytest.mark.parametrize("load", [broker_settings, namesrv_settings])
def test_a_password_is_no_flag_and_is_shown_nowhere(key: str, load: object) -> None:
    with pytest.raises(ConfigError) as caught:
        load(Sources(overrides={key: "geheim"}))  # type: ignore[operator]
    text = str(caught.value)
    assert f"{key} is secret" in text and env_key(key) in text and "geheim" not in text
    assert "geheim" not in repr(read(f"{key}=geheim"))
    assert "geheim" not in repr(TlsOptions(key_password="geheim"))


def test_what_apache_calls_by_other_names_is_told_the_key() -> None:
    with pytest.raises(ConfigError, match=r"useTLS=true in .*: say tls\.enable instead"):
        broker_settings(Sources(file_text="useTLS=true"))


@pytest.mark.promise(
    "Security",
    "what cannot be read on the way, is no certificate of the authority, or shows none where one is demanded, ends the connection",
)
@pytest.mark.parametrize(
    ("lines", "mode"),
    [
        ("", ssl.CERT_NONE),
        ("authClient=true", ssl.CERT_REQUIRED),
        ("authClient=true need.client.auth=require", ssl.CERT_REQUIRED),
        ("authClient=true need.client.auth=OPTIONAL", ssl.CERT_OPTIONAL),
        ("need.client.auth=require", ssl.CERT_REQUIRED),
        ("need.client.auth=optional", ssl.CERT_OPTIONAL),
        ("need.client.auth=optional authClient=false", ssl.CERT_NONE),
        ("need.client.auth=none", ssl.CERT_NONE),
    ],
)
def test_who_must_show_a_certificate(
    lines: str, mode: ssl.VerifyMode, ca: Authority, pair: Pair
) -> None:
    given = f"certPath={pair.cert} keyPath={pair.key} trustCertPath={ca.cert} {lines}"

    context = server(read("".join(f"tls.server.{each}\n" for each in given.split())))

    assert context.verify_mode is mode
    assert bool(context.get_ca_certs()) == (mode is not ssl.CERT_NONE)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("tls.server.authClient=true tls.server.need.client.auth=none", "what no client shows"),
        (
            "tls.server.authClient=false tls.server.need.client.auth=require",
            "nobody checks proves nothing",
        ),
        ("tls.server.authClient=true", "trustCertPath does not say"),
        ("tls.server.need.client.auth=require", "trustCertPath does not say"),
        ("tls.server.need.client.auth=required", "must be none, optional or require"),
        ("tls.server.mode=enforce", "must be disabled, permissive or enforcing"),
        ("tls.server.certPath=/nowhere/a.pem", "/nowhere/a.pem cannot be read"),
        ("tls.server.keyPath=/nowhere/a.key", "without its certificate"),
    ],
)
def test_what_cannot_hold_ends_the_start(lines: str, words: str, tmp_path: Path) -> None:
    text = "\n".join([*lines.split(), f"storePathRootDir={tmp_path}"])
    with pytest.raises(ConfigError) as caught:
        broker_settings(Sources(file_text=text))
    assert words in str(caught.value)


def test_a_pair_of_our_own_is_made_once_and_said_loudly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = TlsSettings()
    made = server_tls(settings, str(tmp_path / "tls"), ["localhost", "192.0.2.7"], CLOCK)
    assert made is not None and made.mode is TlsMode.PERMISSIVE
    assert not (tmp_path / "tls").exists()  # a start costs nothing

    async def at_once() -> list[ssl.SSLContext]:
        return list(await asyncio.gather(*[made.context() for _ in range(5)]))

    assert len(set(asyncio.run(at_once()))) == 1
    key = tmp_path / "tls" / "server.key"
    assert os.stat(key).st_mode & 0o777 == 0o600
    (told,) = (r for r in caplog.records if "made here" in r.getMessage())
    assert told.levelno == logging.WARNING and str(tmp_path / "tls" / "ca.pem") in told.getMessage()

    before = key.read_bytes(), (tmp_path / "tls" / "server.pem").read_bytes()
    server(settings, tmp_path / "tls")
    assert before == (key.read_bytes(), (tmp_path / "tls" / "server.pem").read_bytes())
    trusting = TlsOptions(ca=tmp_path / "tls" / "ca.pem")._client_tls
    assert greet(server(settings, tmp_path / "tls"), trusting.context(), "192.0.2.7") == "TLSv1.3"
    # An attempt that ended between its files is made again.
    (tmp_path / "tls" / "server.pem").unlink()
    own_pair(str(tmp_path / "tls"), ["localhost"], CLOCK)
    assert key.read_bytes() != before[0]


def test_without_the_right_to_write_it_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"no certificate could be made in .*file/tls"):
        server(TlsSettings(), tmp_path / "file" / "tls")
    with pytest.raises(ConfigError, match=r"set tls\.server\.certPath and tls\.server\.keyPath"):
        server(TlsSettings(test_mode=False), tmp_path)


@pytest.mark.promise(
    "Security", "our servers and clients verify whom they call, unless they are told not to"
)
def test_calls_of_servers_verify_unless_told_not_to(
    ca: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    made = client_tls(TlsSettings(enable=True, client_trusted=str(ca.cert)), CLOCK)
    assert made is not None and made.check_host
    assert made.context().verify_mode is ssl.CERT_REQUIRED and made.context().check_hostname
    assert not caplog.records

    made = client_tls(TlsSettings(enable=True, verify_servers=False), CLOCK)
    assert made is not None and not made.check_host
    assert made.context().verify_mode is ssl.CERT_NONE
    assert "NOT verified" in caplog.text
    made = client_tls(TlsSettings(enable=True, verify_hosts=False), CLOCK)
    assert made is not None and not made.check_host
    assert made.context().verify_mode is ssl.CERT_REQUIRED


def greet(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> str | None:
    """The handshake of two contexts, without a network; the version they agree on."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(
            to_client, to_server, server_hostname=host if client.check_hostname else None
        ),
    ]
    for _ in range(4):
        for end in ends[::-1]:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return ends[1].version()


def test_chains_through_authorities_between_are_verified(tmp_path: Path, ca: Authority) -> None:
    between = make_ca(tmp_path, "between", issuer=ca)
    below = make_ca(tmp_path, "below", issuer=between)
    pair = issue(below, ["localhost"])
    chain = tmp_path / "chain.pem"
    chain.write_bytes(b"".join(p.read_bytes() for p in (pair.cert, below.cert, between.cert)))

    whole = server(TlsSettings(certificate=str(chain), key=str(pair.key)))
    short = server(TlsSettings(certificate=str(pair.cert), key=str(pair.key)))
    trusting = TlsOptions(ca=ca.cert)._client_tls.context()

    assert greet(whole, trusting, "localhost") == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        greet(short, trusting, "localhost")
