"""The PROXY protocol, versions 1 and 2: a load balancer says on whose behalf it connects. Pure.

Source: HAProxy's proxy-protocol.txt, sections 2.1 and 2.2.
"""

import ipaddress
from typing import Final, NamedTuple

from roquette.errors import RemoteProtocolError

TEXT: Final = b"PROXY "
BINARY: Final = b"\r\n\r\n\x00\r\nQUIT\n"
MOST_TEXT: Final = 107  # bytes of a header of version 1, its end included
MOST_BINARY: Final = 4_096  # bytes behind the 16 of version 2: addresses, and TLVs that are skipped

_SIZES: Final = {0x11: 4, 0x21: 16}  # TCP over IPv4 and IPv6 -> bytes of an address


class Header(NamedTuple):
    """Contents of a header.

    Attributes:
        source: the client's address and port; None: the connection speaks for itself.
        size: bytes of the header.
    """

    source: tuple[str, int] | None
    size: int


def read_header(data: bytes) -> Header | None:
    """The header that `data` begins with, which is known to begin as one; None: it is not whole.

    Raises:
        RemoteProtocolError: it is none, in words.
    """
    return _read_text(data) if data[:1] == TEXT[:1] else _read_binary(data)


def _read_text(data: bytes) -> Header | None:
    end = data.find(b"\r\n", 0, MOST_TEXT)
    if end < 0:
        if len(data) >= MOST_TEXT:
            raise RemoteProtocolError(f"a PROXY line does not end after {MOST_TEXT} bytes")
        return None
    words = data[:end].split(b" ")
    if words[1] == b"UNKNOWN":
        return Header(None, end + 2)
    family = {b"TCP4": 4, b"TCP6": 6}.get(words[1])
    try:
        if family is None or len(words) != 6:
            raise ValueError
        host, _ = (ipaddress.ip_address(word.decode("ascii")) for word in words[2:4])
        port, _ = (_port(word) for word in words[4:6])
        if host.version != family:
            raise ValueError
    except ValueError:
        raise RemoteProtocolError("a PROXY line is not of the form of version 1") from None
    return Header((str(host), port), end + 2)


def _port(word: bytes) -> int:
    if not word.isdigit() or len(word) > 5 or int(word) > 65_535:
        raise ValueError
    return int(word)


def _read_binary(data: bytes) -> Header | None:
    if len(data) < 16:
        return None
    version, kind = data[12], data[13]
    size = int.from_bytes(data[14:16], "big")
    if version not in (0x20, 0x21):
        raise RemoteProtocolError(f"a PROXY header of version and command {version:#x}")
    if size > MOST_BINARY:
        raise RemoteProtocolError(f"a PROXY header of {size} bytes, more than {MOST_BINARY}")
    if len(data) < 16 + size:
        return None
    width = _SIZES.get(kind)
    if version == 0x20 or width is None:  # LOCAL, or no TCP
        return Header(None, 16 + size)
    if size < 2 * width + 4:
        raise RemoteProtocolError("a PROXY header is too short for its addresses")
    host = ipaddress.ip_address(data[16 : 16 + width])
    at = 16 + 2 * width
    return Header((str(host), int.from_bytes(data[at : at + 2], "big")), 16 + size)
