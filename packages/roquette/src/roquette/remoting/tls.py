"""TLS on a connection, of either end. The contexts come from `remoting/certificates.py` and `remoting/tls_options.py`.

`TlsStream` is the protocol of a connection and the transport of what is spoken inside: it works on any loop's
connections, those of the simulation too. Which connections of a port get one is `door.py`'s.
"""

import asyncio
import contextlib
import enum
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from roquette.base.logs import RateLimited
from roquette.errors import RoquetteError
from roquette.remoting.address import open_connection

log = logging.getLogger("roquette.remoting")

P = TypeVar("P", bound=asyncio.Protocol)

RECORD: Final = 16_384  # the most one record holds
SLICE: Final = 32_768  # bytes at once into a BIO, whose memory grows with them and stays
WRITE: Final = 65_536  # the same, out of one
FRAME: Final = 22  # bytes of a record that are no data (RFC 8446, section 5.2)
FRAME_BEFORE: Final = 96  # the most of TLS 1.2
MOST_HANDSHAKE: Final = 131_072  # bytes a peer may send before its handshake is over
# What is no data (changes of keys) costs 27 us a message: bytes a peer may send of it, and make us answer.
MOST_EXCESS: Final = 24_576  # a record that is not whole is among them
MOST_FORCED: Final = 8_192
# A quarter of the data may come beside it as well: Java's client (Netty) sends an empty record, 22 bytes, for each flush
# that finds nothing more to send; with many threads that is nearly one a message, and no message is below 88 bytes.
ALLOWED: Final = 2
HANG_UP_S: Final = 3.0  # to take what was written before a connection is closed


class TlsMode(enum.Enum):
    """Mode of TLS on a listening port (tls.server.mode)."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


@dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS of a listening port.

    Attributes:
        context: for the next connection; raises ConfigError: there is no certificate, with what to do.
    """

    mode: TlsMode
    context: Callable[[], Awaitable[ssl.SSLContext]]


@dataclass(frozen=True, slots=True)
class ClientTls:
    """TLS of connections that we open.

    Attributes:
        context: for the next connection.
        check_host: the certificate must name the host or address that is called.
    """

    context: Callable[[], ssl.SSLContext]
    check_host: bool


class TlsRefused(ConnectionError):
    """There is no TLS with this peer, or none any more: the words say why."""


_ALERTS: Final = {
    "CERTIFICATE_REQUIRED": "it asks for a client certificate, and none was shown",
    "UNKNOWN_CA": "it does not trust the authority of our certificate",
    "BAD_CERTIFICATE": "it does not accept our certificate",
    "CERTIFICATE_UNKNOWN": "it does not accept our certificate",
    "DECRYPT_ERROR": "it does not accept our certificate",
    "UNSUPPORTED_CERTIFICATE": "it does not accept our certificate: it is not one for clients",
    "CERTIFICATE_EXPIRED": "our certificate has expired",
    "CERTIFICATE_REVOKED": "our certificate was revoked",
    "PROTOCOL_VERSION": "it does not speak this version of TLS (1.2 and 1.3 are spoken here)",
    "HANDSHAKE_FAILURE": "no version and cipher in common, or it asks for a client certificate",
}
_FAULTS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate, and has to",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "HTTP_REQUEST": "it does not speak TLS",
    "PACKET_LENGTH_TOO_LONG": "it does not speak TLS",
    "UNSUPPORTED_PROTOCOL": "it does not speak TLS 1.2 or 1.3",
    "NO_SHARED_CIPHER": "no cipher in common",
}


def words_of(error: Exception) -> str:
    """Say what went wrong, in a sentence that begins with the peer."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    reason = getattr(error, "reason", None) or str(error) or type(error).__name__
    _, is_alert, alert = reason.partition("_ALERT_")
    if is_alert:
        return f"it ended the connection: {_ALERTS.get(alert, alert.lower().replace('_', ' '))}"
    return _FAULTS.get(reason, reason.lower().replace("_", " "))


def hardened(context: ssl.SSLContext) -> ssl.SSLContext:
    """The same context, at least TLS 1.2 and without renegotiation whoever made it."""
    context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_2)
    if not context.options & ssl.OP_NO_RENEGOTIATION:
        context.options |= ssl.OP_NO_RENEGOTIATION
    return context


class TlsStream(asyncio.Transport, asyncio.Protocol):
    """One connection under TLS. What is written is encrypted at once: what waits, waits in the transport below.

    Args:
        inner: makes the protocol inside, when the handshake is over.
        server_name: whom we call; None: we are the server.
        done: called once: None when the handshake is over, else why there is no connection.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        inner: Callable[[], asyncio.Protocol],
        server_name: str | None,
        noise: RateLimited,
        done: Callable[[Exception | None], None],
    ) -> None:
        super().__init__()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = hardened(context).wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_name is None,
            server_hostname=server_name,
        )
        self._make_inner = inner
        self._inner: asyncio.Protocol | None = None  # None until the handshake is over
        self._raw: asyncio.Transport
        self._remote = ""
        self._noise = noise
        self._done: Callable[[Exception | None], None] | None = done
        self._error: Exception | None = None
        self._shaken = 0  # bytes of the handshake
        self._frame = FRAME
        self._excess = 0  # bytes that arrived and were no data, nor around data
        self._forced = 0  # bytes we had to send because of what we read
        self._rest = b""  # arrived while reading was paused
        self._closing = False
        self._paused = False
        self._close_notify_sent = self._close_notify_received = False

    # The protocol of the connection.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        there = transport.get_extra_info("peername") or ("", 0)
        self._remote = f"{there[0]}:{there[1]}"
        self._shake()

    def data_received(self, data: bytes) -> None:
        if self._inner is None:
            view = memoryview(data)
            at = 0
            while self._inner is None and at < len(data) and not self._closing:
                part = view[at : at + SLICE]
                at += len(part)
                self._shaken += len(part)
                self._incoming.write(part)
                self._shake()
            data = data[at:]
        if self._inner is not None and (data or self._incoming.pending):
            self._read(data)

    def _shake(self) -> None:
        """Take the handshake as far as what has arrived allows."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            if self._shaken > MOST_HANDSHAKE:
                self._break(TlsRefused(f"its handshake does not end after {self._shaken} bytes"))
            return
        except ssl.SSLError as error:
            self._flush()  # the alert: the other end shall know as well
            self._break(TlsRefused(words_of(error)))
            return
        self._flush()
        self._frame = FRAME if self._tls.version() == "TLSv1.3" else FRAME_BEFORE
        self._excess = self._incoming.pending
        inner = self._inner = self._make_inner()
        self._settle(None)
        inner.connection_made(self)

    def _read(self, data: bytes) -> None:
        """Hand over what has arrived, in one call."""
        if self._paused or self._closing:
            self._rest += data
            return
        read, incoming, inner = self._tls.read, self._incoming, self._inner
        assert inner is not None
        parts: list[bytes] = []
        failure: ssl.SSLError | None = None
        size = len(data)
        for at in range(0, size or 1, SLICE):
            incoming.write(data if size <= SLICE else memoryview(data)[at : at + SLICE])
            count = len(parts)
            try:
                # A record is read whole: to ask again when nothing is there costs an exception.
                while incoming.pending:
                    part = read(RECORD)
                    if not part:
                        self._close_notify_received = True
                        break
                    parts.append(part)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                failure = error
            # What came beside data (empty records, changes of keys) costs us work: a peer may not send it without end.
            self._excess += min(SLICE, size - at)
            for number in range(count, len(parts)):
                taken = len(parts[number])
                self._excess -= taken + self._frame + (taken >> ALLOWED)
            self._excess = max(self._excess, incoming.pending)
            if self._outgoing.pending:
                self._forced += self._flush()
            if self._excess > MOST_EXCESS or self._forced > MOST_FORCED:
                failure = failure or ssl.SSLError(1, "it sends records without data")
            if failure is not None or self._close_notify_received:
                break
        if parts:  # before a failure is told: these records were whole and authentic
            inner.data_received(parts[0] if len(parts) == 1 else b"".join(parts))
        if failure is not None:
            self._break(TlsRefused(words_of(failure)))
        elif self._close_notify_received and not self._closing and not inner.eof_received():
            self.close()

    def _flush(self) -> int:
        """Hand what TLS wants to say to the transport; return its bytes."""
        data = self._outgoing.read()
        if data:
            self._raw.write(data)
        return len(data)

    def _settle(self, error: Exception | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(error)

    def _break(self, error: TlsRefused) -> None:
        """TLS itself has failed: the connection ends, after the alert that says so."""
        if self._error is None:
            self._error = error
            what = "TLS handshake failed" if self._inner is None else "TLS connection ended"
            self._noise.warning("tls", f"{what} peer=%s reason=%s", self._remote, str(error))
        self._closing = True
        self._raw.close()
        if self._raw.get_write_buffer_size():
            asyncio.get_running_loop().call_later(HANG_UP_S, self._raw.abort)
        self._settle(error)

    def eof_received(self) -> bool:
        if not (self._closing or self._close_notify_received or self._close_notify_sent):
            if self._inner is None:
                self._break(TlsRefused("it closed the connection in the handshake"))
            else:  # whoever asks for the end of the bytes learns that it is none
                self._error = TlsRefused("the connection was cut: TLS did not end before it")
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        inner = self._inner
        if inner is not None:
            inner.connection_lost(self._error or error)
        elif self._done is not None:
            words = f"the connection was lost in the handshake{f': {error}' if error else ''}"
            self._noise.warning(
                "tls", "TLS handshake failed peer=%s reason=%s", self._remote, words
            )
            self._settle(TlsRefused(words))

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    # The transport of the protocol inside.

    def write(self, data: Any) -> None:
        """Encrypt and send."""
        if self._closing or self._close_notify_sent or not data:
            return
        try:
            if len(data) <= WRITE:
                self._tls.write(data)
                self._raw.write(self._outgoing.read())
                return
            view = memoryview(data)
            for at in range(0, len(data), WRITE):
                self._tls.write(view[at : at + WRITE])
                self._raw.write(self._outgoing.read())
        except ssl.SSLError as error:
            self._break(TlsRefused(words_of(error)))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Encrypt and send several pieces: small ones joined, large ones as they are."""
        small: list[Any] = []
        size = 0
        for part in list_of_data:
            if len(part) >= RECORD:
                if small:
                    self.write(b"".join(small))
                    small, size = [], 0
                self.write(part)
                continue
            small.append(part)
            size += len(part)
            if size >= RECORD:
                self.write(b"".join(small))
                small, size = [], 0
        if small:
            self.write(small[0] if len(small) == 1 else b"".join(small))

    def _send_close_notify(self) -> None:
        """Say that nothing more comes (close_notify)."""
        if not self._close_notify_sent and self._inner is not None:
            self._close_notify_sent = True
            with contextlib.suppress(ssl.SSLError):  # it asks for the other end's, too
                self._tls.unwrap()
            self._flush()

    def write_eof(self) -> None:
        """End the writing: what was written is all; the other end may go on."""
        if not (self._closing or self._close_notify_sent):
            self._send_close_notify()
            self._raw.write_eof()

    def can_write_eof(self) -> bool:
        """Yes."""
        return True

    def close(self) -> None:
        """Send what was written and the end of TLS; read no more."""
        if not self._closing:
            self._send_close_notify()
            self._closing = True
            self._raw.close()

    def abort(self) -> None:
        """End at once, whatever waits."""
        self._closing = True
        self._raw.abort()

    def is_closing(self) -> bool:
        """Return True when it has ended, or is about to."""
        return self._closing or self._raw.is_closing()

    def pause_reading(self) -> None:
        """Hand nothing over; the other end's bytes wait with it."""
        if not self._paused:
            self._paused = True
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Hand over again."""
        if self._paused:
            self._paused = False
            self._raw.resume_reading()
            if self._incoming.pending or self._rest:
                asyncio.get_running_loop().call_soon(self._read_rest)

    def _read_rest(self) -> None:
        rest, self._rest = self._rest, b""
        if (rest or self._incoming.pending) and not self._closing:
            self._read(rest)

    def is_reading(self) -> bool:
        """Return True while bytes are handed over."""
        return not (self._paused or self._closing)

    def get_write_buffer_size(self) -> int:
        """Bytes that wait for the other end, as TLS makes them."""
        return self._raw.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Low and high mark."""
        return self._raw.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Marks of the transport below."""
        self._raw.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the transport below says; `ssl_object`, `peercert` (of a verified peer), `cipher`."""
        if name == "ssl_object":
            return self._tls
        if name == "peercert":
            return self._tls.getpeercert()
        if name == "cipher":
            return self._tls.cipher()
        return self._raw.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Another protocol speaks inside from now on."""
        self._inner = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that speaks inside."""
        assert self._inner is not None
        return self._inner


async def connect(
    inner: Callable[[], asyncio.Protocol],
    host: str,
    port: int,
    tls: ClientTls | None,
    noise: RateLimited,
    **options: Any,
) -> None:
    """Open a connection and, with `tls`, shake hands; `inner` is called when it is ready.

    Raises:
        OSError: nobody answers there; TlsRefused: no TLS with who answers, and why.
    """
    loop = asyncio.get_running_loop()
    if tls is None:
        await open_connection(inner, host, port, **options)
        return
    done: asyncio.Future[Exception | None] = loop.create_future()

    def settle(error: Exception | None) -> None:
        if not done.done():
            done.set_result(error)

    try:
        stream = TlsStream(tls.context(), inner, host, noise, settle)
    except (RoquetteError, OSError, ValueError) as error:
        raise TlsRefused(f"TLS cannot begin: {error}") from None
    raw = await open_connection(lambda: stream, host, port, **options)
    try:
        failure = await done
    finally:
        if not done.done() or done.cancelled():
            raw.abort()
    if failure is not None:
        raise failure
