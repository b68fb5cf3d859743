"""gRPC over HTTP/2, without any I/O: messages in bodies, metadata, timeouts, statuses.

Source: the protocol's description, doc/PROTOCOL-HTTP2.md of grpc/grpc.
"""

import zlib
from typing import Final
from urllib.parse import quote

from librt.strings import read_i32_be

from roquette.errors import RemoteProtocolError
from roquette.wire.http2 import Fields

Metadata = dict[bytes, bytes]

RESPONSE: Final[Fields] = (
    (b":status", b"200"),
    (b"content-type", b"application/grpc"),
    (b"grpc-accept-encoding", b"identity,gzip"),
)
TRAILERS: Final[Fields] = ((b"grpc-status", b"0"),)
NOT_GRPC: Final = b"This port speaks gRPC (apache.rocketmq.v2), and RocketMQ's remoting protocol.\n"
MAX_TEXT: Final = 1_024  # characters of a grpc-message
MAX_PIECES: Final = 512  # of an unfinished message
MAX_RATIO: Final = (
    50  # a connection's messages may be so much larger, decompressed, in the long run
)
_PLAIN: Final = "".join(chr(code) for code in range(0x20, 0x7F) if code != ord("%"))
_MS_OF_UNIT: Final = {
    ord("H"): 3_600_000.0, ord("M"): 60_000.0, ord("S"): 1_000.0, ord("m"): 1.0, ord("u"): 1e-3, ord("n"): 1e-6,
}  # fmt: skip


class MessageTooLarge(RemoteProtocolError):
    """A message is larger than may be."""


class NotCompressible(RemoteProtocolError):
    """A message is compressed in a way that is not understood."""


def prefixed(message: bytes) -> bytes:
    """A message with its prefix: not compressed, length 4."""
    return b"\0%b%b" % (len(message).to_bytes(4, "big"), message)


def whole(data: bytes, limit: int) -> bool:
    """Return True if `data` is exactly one message, of at most `limit` bytes, that is not compressed."""
    size = len(data) - 5
    return 0 <= size <= limit and not data[0] and read_i32_be(data, 1) == size


class Unpacked:
    """Limit of what the messages of one connection may be, decompressed: `limit` bytes, and `MAX_RATIO` times what came.

    So a few bytes are one large message at most, and not one after the other.
    """

    __slots__ = ("_left", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = limit

    def gzip(self, message: bytes) -> bytes:
        """A message decompressed. Raises MessageTooLarge, RemoteProtocolError."""
        most = min(self._limit, self._left + MAX_RATIO * len(message))
        self._left = 0  # what is unpacked in vain counts, too
        unpack = zlib.decompressobj(31)
        try:
            plain = unpack.decompress(message, most + 1)
        except zlib.error as error:
            raise RemoteProtocolError(f"a message is not gzip: {error}") from None
        if len(plain) > most:
            raise MessageTooLarge(
                f"a message of {len(message)} bytes decompresses to more than {most}, the most there may be now"
            )
        if not unpack.eof:
            raise RemoteProtocolError("a message's gzip data ends too early")
        self._left = most - len(plain)
        return plain


class Messages:
    """The messages of one request body, whatever pieces they come in.

    Args:
        limit: bytes of a message, decompressed.
        encoding: how compressed ones are (grpc-encoding). unpacked: bounds what they are decompressed.

    Attributes:
        pending: bytes that are kept of an unfinished message.
        first: a whole message that its holder keeps until the request ends.
    """

    __slots__ = ("_encoding", "_limit", "_needs", "_pieces", "_unpacked", "first", "pending")

    def __init__(self, limit: int, encoding: bytes = b"", unpacked: Unpacked | None = None) -> None:
        self._limit = limit
        self._unpacked = unpacked or Unpacked(limit)
        self._encoding = encoding
        self._pieces: list[bytes] = []
        self._needs = 5
        self.pending = 0
        self.first: bytes | None = None

    @property
    def held(self) -> int:
        """Bytes that are kept."""
        return self.pending + len(self.first or b"")

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that `data` completes, in order.

        Raises:
            MessageTooLarge, NotCompressible: the call cannot go on.
            RemoteProtocolError: this is not gRPC.
        """
        if self.pending:
            self._pieces.append(data)
            self.pending += len(data)
            if self.pending < self._needs:
                if len(self._pieces) >= MAX_PIECES:
                    self._pieces = [b"".join(self._pieces)]
                return []
            data = b"".join(self._pieces)
        found: list[bytes] = []
        pos, size = 0, len(data)
        self._needs = 5
        while size - pos >= 5:
            length = int.from_bytes(data[pos + 1 : pos + 5], "big")
            if data[pos] > 1:
                raise RemoteProtocolError(f"a message begins with {data[pos]} instead of 0 or 1")
            # Judged by the length alone, before the bytes of such a message are kept.
            if length > self._limit:
                raise MessageTooLarge(
                    f"a message of {length} bytes, {self._limit} are the most there may be"
                )
            end = pos + 5 + length
            if end > size:
                self._needs = end - pos
                break
            message = data[pos + 5 : end]
            found.append(self._decompressed(message) if data[pos] else message)
            pos = end
        self._pieces = [data[pos:]] if pos < size else []
        self.pending = size - pos
        return found

    def _decompressed(self, message: bytes) -> bytes:
        if self._encoding != b"gzip":
            name = self._encoding.decode("latin-1") or "no"
            raise NotCompressible(f"grpc-encoding {name} is not supported")
        return self._unpacked.gzip(message)


def timeout_ms(value: bytes) -> int:
    """A grpc-timeout in ms, rounded up; raises RemoteProtocolError."""
    scale = _MS_OF_UNIT.get(value[-1]) if value else None
    digits = value[:-1]
    if scale is None or not digits.isdigit() or len(digits) > 8:
        raise RemoteProtocolError(f"grpc-timeout {value[:20]!r} is not one")
    return -int(-int(digits) * scale // 1)


def ending(status: int, text: str) -> Fields:
    """The trailers of a call."""
    if not text:
        return ((b"grpc-status", b"%d" % status),)
    safe = quote(text[:MAX_TEXT].encode("utf-8", "replace"), safe=_PLAIN)
    return ((b"grpc-status", b"%d" % status), (b"grpc-message", safe.encode()))


def trailers_only(status: int, text: str) -> Fields:
    """The whole reply of a call that ends before it has said anything."""
    return RESPONSE + ending(status, text)


def not_grpc(method: bytes) -> Fields:
    """Return the head of the reply to a request that is not gRPC's; its body is `NOT_GRPC`."""
    status = b"415" if method == b"POST" else b"404"
    return ((b":status", status), (b"content-type", b"text/plain; charset=utf-8"))
