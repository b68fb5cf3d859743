"""Message ids: the broker's (an address and an offset) and the client's (UNIQ_KEY); host bytes.

    offset id  address 4|16 | port 4 | physical offset 8                                32 or 56 digits
    unique id  address 4|16 | pid 2 | instance 4 | ms in the month 4 | counter 2        32 or 56 digits

Both are written as upper-case hexadecimal. Apache: MessageDecoder.createMessageId and decodeMessageId,
MessageClientIDSetter. HOT.
"""

import base64
import binascii
import ipaddress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple

from roquette.errors import CorruptRecord


def host_bytes(host: str, port: int) -> bytes:
    """A record's host: the address (4 or 16 bytes), then the port as int32.

    An IPv4 address mapped into IPv6 is taken as the IPv4 address, as Java's InetAddress does.

    Raises:
        ValueError: the text is not an IP address, or the port is not within 0..65535.
    """
    if not 0 <= port <= 0xFFFF:
        raise ValueError(f"port {port} is not within 0..65535")
    address = ipaddress.ip_address(host.strip("[]"))
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.packed + port.to_bytes(4, "big")


@lru_cache(1024)
def host_text(host: bytes) -> str:
    """`1.2.3.4:10911`, or `[::1]:10911` for a 20-byte host.

    Raises:
        CorruptRecord: the host has neither 8 nor 20 bytes.
    """
    port = int.from_bytes(host[-4:], "big", signed=True)
    if len(host) == 8:
        return f"{host[0]}.{host[1]}.{host[2]}.{host[3]}:{port}"
    if len(host) == 20:
        return f"[{ipaddress.IPv6Address(host[:16])}]:{port}"
    raise CorruptRecord(f"a host has 8 or 20 bytes, not {len(host)}")


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    """The id by which a broker finds a record: where it is, and at which physical offset."""
    return (store_host + physical_offset.to_bytes(8, "big", signed=True)).hex().upper()


def decode_offset_message_id(text: str) -> tuple[bytes, int]:
    """The store host (8 or 20 bytes) and the physical offset of an offset message id.

    Raises:
        ValueError: the text is not such an id.
    """
    if len(text) not in {32, 56} or not text.isalnum():
        raise ValueError(f"{text[:60]!r} is not an offset message id: 32 or 56 hex digits")
    data = bytes.fromhex(text)
    return data[:-8], int.from_bytes(data[-8:], "big", signed=True)


_BYTES: Final = [f"{number:02X}" for number in range(256)]


class UniqueIds:
    """Draws the ids a client gives its messages.

    The month starts in UTC (Java: in the local zone; readers allow for any zone).

    Args:
        host_ip: this machine's address, 4 or 16 bytes.
        pid: the process id; its low 16 bits are used.
        instance: tells apart clients of one process and restarts with one pid, where Java puts its class
            loader's hash: a random number; its low 32 bits are used.
    """

    def __init__(self, host_ip: bytes, pid: int, instance: int) -> None:
        if len(host_ip) not in {4, 16}:
            raise ValueError(f"an address has 4 or 16 bytes, not {len(host_ip)}")
        fixed = host_ip + (pid & 0xFFFF).to_bytes(2, "big")
        self._prefix = (fixed + (instance & 0xFFFFFFFF).to_bytes(4, "big")).hex().upper()
        self._counter = 0
        self._month_start_ms = 0
        self._month_end_ms = 0

    def next_id(self, now_ms: int) -> str:
        """A fresh id. Unique while fewer than 65,536 are drawn in one millisecond."""
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._month_start_ms, self._month_end_ms = _month_of(now_ms)
        ms = now_ms - self._month_start_ms
        counter = self._counter
        self._counter = (counter + 1) & 0xFFFF
        return (
            f"{self._prefix}{_BYTES[ms >> 24 & 0xFF]}{_BYTES[ms >> 16 & 0xFF]}{_BYTES[ms >> 8 & 0xFF]}{_BYTES[ms & 0xFF]}"
            f"{_BYTES[counter >> 8]}{_BYTES[counter & 0xFF]}"
        )

    def next_ids(self, now_ms: int, count: int) -> list[str]:
        """Fresh ids of one millisecond, at most 65,536, at a tenth of the cost each."""
        if not 0 <= count <= 0x10000:
            raise ValueError(f"{count} ids of one millisecond: there are 65,536")
        if not count:
            return []
        head = self.next_id(now_ms)[:-4]
        first = self._counter - 1
        self._counter = (first + count) & 0xFFFF
        return [f"{head}{(first + number) & 0xFFFF:04X}" for number in range(count)]


def _month_of(now_ms: int) -> tuple[int, int]:
    """Start and end of the month `now_ms` is in, UTC."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    following = (now.year + 1, 1) if now.month == 12 else (now.year, now.month + 1)
    start = datetime(now.year, now.month, 1, tzinfo=UTC)
    end = datetime(*following, 1, tzinfo=UTC)
    return int(start.timestamp()) * 1000, int(end.timestamp()) * 1000


# Handle of one waiting timer message, for the one who may recall it (Apache: RecallMessageHandle).


_VERSION: Final = "v1"


class RecallHandle(NamedTuple):
    """Name of one waiting timer message."""

    topic: str
    broker_name: str
    timestamp: str  # epoch ms within the message's slot
    uniq_key: str

    def encode(self) -> str:
        """The text clients keep: url-safe base64 of five words."""
        words = (_VERSION, self.topic, self.broker_name, self.timestamp, self.uniq_key)
        return base64.urlsafe_b64encode(" ".join(words).encode()).decode()


def decode_handle(text: str) -> RecallHandle | None:
    """The handle a client sent; None if it is invalid (RecallMessageHandle.decodeHandle)."""
    try:
        raw = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), b"-_", validate=True)
        words = raw.decode().split(" ")
    except (binascii.Error, ValueError):
        return None
    if len(words) < 5 or words[0] != _VERSION:
        return None
    return RecallHandle(topic=words[1], broker_name=words[2], timestamp=words[3], uniq_key=words[4])
