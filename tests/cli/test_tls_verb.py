"""`roquette tls init`: what it makes is what TLS takes, and nothing that is there is replaced."""

import json
import ssl
from pathlib import Path

import pytest
from tests.cli.conftest import Roquette

from roquette.errors import ConfigError


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """The client's end after a whole handshake in memory; raises ssl.SSLError."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(down, up, server_hostname=host)
    theirs = server.wrap_bio(up, down, server_side=True)
    for _ in range(4):
        for end in (ours, theirs):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    ours.do_handshake()
    return ours


def test_what_init_makes_is_trusted_for_its_hosts_and_no_other(tmp_path: Path) -> None:
    made = tmp_path / "tls"
    words = ("tls", "init", str(made), "--host", "mq.example", "--host", "10.0.0.5", "-o", "json")
    told = json.loads(Roquette()(*words).stdout)

    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(
        told["server"]["tls.server.certPath"], told["server"]["tls.server.keyPath"]
    )
    server.load_verify_locations(told["server"]["tls.server.trustCertPath"])
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=told["client"]["tls.client.trustCertPath"])
    client.load_cert_chain(
        told["client"]["tls.client.certPath"], told["client"]["tls.client.keyPath"]
    )
    for host in ("mq.example", "10.0.0.5"):
        assert handshake(server, client, host).getpeercert()
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, client, "other.example")


def test_keys_are_their_owners_alone_and_nothing_is_replaced(tmp_path: Path) -> None:
    roquette = Roquette()
    assert roquette("tls", "init", str(tmp_path), "--dry-run").exit_code == 0
    assert list(tmp_path.iterdir()) == []

    assert roquette("tls", "init", str(tmp_path)).exit_code == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = roquette("tls", "init", str(tmp_path))

    assert {name: (tmp_path / name).stat().st_mode & 0o077 for name in before if "key" in name} == {
        "ca.key": 0, "server.key": 0, "client.key": 0,
    }  # fmt: skip
    assert isinstance(again.exception, ConfigError)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_host_that_is_none_is_refused(tmp_path: Path) -> None:
    failed = Roquette()("tls", "init", str(tmp_path), "--host", "bücher.example")
    assert isinstance(failed.exception, ConfigError)
    assert list(tmp_path.iterdir()) == []
