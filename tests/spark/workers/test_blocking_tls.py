"""The blocking connection over TLS: what is refused says why, and what is sent comes back."""

import contextlib
import re
import selectors
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.certificates import Authority, Pair, issue, make_ca

from roquette.client.calls import Call, topic_names
from roquette.errors import ConnectError, RemoteProtocolError, RequestTimeout
from roquette.remoting.pem import PemFiles, server_context
from roquette.remoting.security import Security
from roquette.remoting.tls_options import TlsOptions
from roquette.wire.bodies import TopicList
from roquette.wire.connection import WireConnection
from roquette.wire.json_body import encode_body
from roquette.wire.signature import Credentials, ext_fields
from roquette_spark.workers.connection import BlockingConnection


class Echo:
    """A name server that knows one topic, for plain or encrypted connections; its name is what it is called by."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.context = context
        self.signed: list[dict[str, str]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError, RemoteProtocolError), connection:
                connection.settimeout(10)
                if self.context is None:
                    self._answer(connection)
                else:
                    with self.context.wrap_socket(connection, server_side=True) as stream:
                        self._answer(stream)

    def _answer(self, stream: socket.socket) -> None:
        wire = WireConnection()
        body = encode_body(TopicList(topic_list=["topic" * 1000]))
        while data := stream.recv(65536):
            commands = wire.receive_data(data)  # a TLS hello is no frame: raises, and closes
            for command in commands:
                self.signed.append(ext_fields(command.ext))
                wire.send_reply(command.opaque, 0, None, b"", body)
            stream.sendall(b"".join(wire.data_to_send()))

    def close(self) -> None:
        self._listener.close()


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_ca(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def other_ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_ca(tmp_path_factory.mktemp("other"), "another-ca")


@contextlib.contextmanager
def serving(pair: Pair | None, *, clients: Authority | None = None) -> Iterator[Echo]:
    context = None
    if pair is not None:
        files = PemFiles(
            owner="s",
            certificate=str(pair.cert),
            key=str(pair.key),
            trusted=str(clients.cert) if clients else "",
        )
        context = server_context(files, ssl.CERT_REQUIRED if clients else ssl.CERT_NONE)
    server = Echo(context)
    try:
        yield server
    finally:
        server.close()


def ask(server: Echo, options: TlsOptions | None, keys: Credentials | None = None) -> list[str]:
    tls = None if options is None else options._client_tls
    connection = BlockingConnection(
        server.address, timeout_ms=10_000, security=Security(tls=tls, credentials=keys)
    )
    try:
        call: Call[list[str]] = topic_names()
        return [connection.call(call)[0][:5] for _ in range(3)][:1]
    finally:
        connection.close()


def test_requests_are_encrypted_and_signed(ca: Authority) -> None:
    with serving(issue(ca, ["127.0.0.1"])) as server:
        assert ask(server, TlsOptions(ca=ca.cert), Credentials("alice", "s")) == ["topic"]
        assert [fields["AccessKey"] for fields in server.signed] == ["alice"] * 3
        assert ask(server, TlsOptions(ca=ca.cert, verify_host=False)) == ["topic"]
        assert ask(server, TlsOptions(verify=False)) == ["topic"]


def test_a_server_that_should_not_be_believed_is_not(ca: Authority, other_ca: Authority) -> None:
    trusting = TlsOptions(ca=ca.cert)
    cases = [
        (issue(other_ca, ["127.0.0.1"]), trusting, "unable to get local issuer certificate"),
        (issue(ca, ["127.0.0.1"]), TlsOptions(), "unable to get local issuer certificate"),
        (issue(ca, ["localhost", "127.0.0.2"]), trusting, "not valid for '127.0.0.1'"),
        (issue(ca, ["127.0.0.1"], days=-1), trusting, "has expired"),
        (issue(ca, ["127.0.0.1"], starts_in_days=2), trusting, "not yet valid"),
        (issue(ca, ["127.0.0.1"], client=True), trusting, "unsuitable certificate purpose"),
    ]
    for pair, options, words in cases:
        with serving(pair) as server:
            with pytest.raises(ConnectError) as caught:
                ask(server, options)
            assert f"TLS with {server.address} failed" in str(caught.value)
            assert words in str(caught.value), caught.value


def test_a_client_that_should_not_be_served_is_told_why(ca: Authority, other_ca: Authority) -> None:
    pair, good = issue(ca, ["127.0.0.1"]), issue(ca, ["app"], client=True)
    cases = [
        (TlsOptions(ca=ca.cert), "asks for a client certificate"),
        (_shown(ca, issue(other_ca, ["app"], client=True)), "does not trust the authority"),
        (_shown(ca, issue(ca, ["app"], days=-1, client=True)), "our certificate has expired"),
        (_shown(ca, issue(ca, ["app"])), "does not accept our certificate"),
    ]
    with serving(pair, clients=ca) as server:
        assert ask(server, _shown(ca, good)) == ["topic"]
        for options, words in cases:
            with pytest.raises(ConnectError) as caught:
                ask(server, options)
            # A reset may overtake the alert that says which.
            assert re.search(f"{words}|perhaps it wants another", str(caught.value))


def _shown(ca: Authority, pair: Pair) -> TlsOptions:
    return TlsOptions(ca=ca.cert, certificate=pair.cert, key=pair.key)


def test_plain_and_encrypted_ends_do_not_meet_and_say_so(ca: Authority) -> None:
    with (
        serving(None) as server,
        pytest.raises(ConnectError, match=r"perhaps TLS is disabled|no TLS"),
    ):
        ask(server, TlsOptions(ca=ca.cert))
    with (
        serving(issue(ca, ["127.0.0.1"])) as server,
        pytest.raises(ConnectError, match=r"perhaps it takes TLS only|reset"),
    ):
        ask(server, None)


def test_records_of_tls_itself_hold_up_no_answer(ca: Authority, tmp_path: Path) -> None:
    """Tickets come after the handshake, as from Apache's servers: a selector wakes, and there is no answer yet."""
    pair = issue(ca, ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    context.num_tickets = 2
    with contextlib.closing(Echo(context)) as server:
        security = Security(tls=TlsOptions(ca=ca.cert)._client_tls)
        connection = BlockingConnection(server.address, timeout_ms=60_000, security=security)
        with contextlib.closing(connection), selectors.DefaultSelector() as selector:
            selector.register(connection.fileno(), selectors.EVENT_READ)
            assert selector.select(10)
            assert connection.arrived() == []
            opaque = connection.send(topic_names())
            while not (found := connection.arrived()):
                selector.select(10)
            assert [command.opaque for command in found] == [opaque]


def test_a_silent_server_is_given_up_in_time(ca: Authority) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises((ConnectError, RequestTimeout), match="timed out"):
            BlockingConnection(
                address,
                timeout_ms=60_000,
                connect_timeout_ms=300,
                security=Security(tls=TlsOptions(ca=ca.cert)._client_tls),
            )
