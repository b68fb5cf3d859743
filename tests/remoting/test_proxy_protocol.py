"""The PROXY protocol: who a load balancer says is there, and what is no header."""

import random
import socket

import pytest

from roquette.errors import RemoteProtocolError
from roquette.remoting.door import BINARY, MOST_BINARY, Header, read_header


def binary(kind: int, body: bytes, version: int = 0x21) -> bytes:
    return BINARY + bytes((version, kind)) + len(body).to_bytes(2, "big") + body


def four(source: str = "192.0.2.7", port: int = 4711) -> bytes:
    there = socket.inet_aton("198.51.100.1")
    return socket.inet_aton(source) + there + port.to_bytes(2, "big") + b"\x00\x50"


def six(source: str = "2001:db8::7", port: int = 4711) -> bytes:
    there = socket.inet_pton(socket.AF_INET6, "2001:db8::1")
    here = socket.inet_pton(socket.AF_INET6, source)
    return here + there + port.to_bytes(2, "big") + b"\x00\x50"


HEADERS = [
    (b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 80\r\n", ("192.0.2.7", 4711)),
    (b"PROXY TCP6 2001:db8::7 2001:db8::1 4711 80\r\n", ("2001:db8::7", 4711)),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", None),
    (binary(0x11, four()), ("192.0.2.7", 4711)),
    (binary(0x21, six()), ("2001:db8::7", 4711)),
    (binary(0x11, four() + b"\x04\x00\x03abc"), ("192.0.2.7", 4711)),
    (binary(0x00, b"", 0x20), None),
    (binary(0x11, four(), 0x20), None),  # LOCAL: a health check of the balancer
    (binary(0x31, b"\0" * 216), None),  # a UNIX socket
]


@pytest.mark.parametrize(("data", "source"), HEADERS)
def test_a_header_is_read_when_it_is_whole(data: bytes, source: tuple[str, int] | None) -> None:
    for size in range(len(BINARY) if data[:1] == b"\r" else 6, len(data)):
        assert read_header(data[:size]) is None
    assert read_header(data + b"\x00\x00\x00\x10rest") == Header(source, len(data))


@pytest.mark.parametrize(
    "data",
    [
        b"PROXY TCP4 192.0.2.7 198.51.100.1 4711\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 65536 80\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 -1 80\r\n",
        b"PROXY TCP4 2001:db8::7 2001:db8::1 4711 80\r\n",
        b"PROXY TCP6 192.0.2.7 198.51.100.1 4711 80\r\n",
        b"PROXY TCP4 host.example 198.51.100.1 4711 80\r\n",
        b"PROXY UDP4 192.0.2.7 198.51.100.1 4711 80\r\n",
        b"PROXY  TCP4 192.0.2.7 198.51.100.1 4711 80\r\n",
        b"PROXY \r\n",
        b"PROXY TCP4 " + b"1" * 96,
        b"PROXY " + b"\xff" * 101,
        binary(0x11, four()[:-1]),
        binary(0x21, six()[:-1]),
        binary(0x11, four(), 0x11),
        binary(0x11, four(), 0x22),
        binary(0x11, b"")[:14] + (MOST_BINARY + 1).to_bytes(2, "big"),
    ],
)
def test_what_is_no_header_is_refused_in_words(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="PROXY"):
        read_header(data)


def fuzz(seed: int, count: int) -> None:
    """Anything behind a beginning: a header, a wish for more, or a refusal, and nothing else."""
    chance = random.Random(seed)
    seeds = [data for data, _ in HEADERS]
    for _ in range(count):
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.randrange(4)):
            data[chance.randrange(6, len(data))] = chance.randrange(256)
        whole = bytes(data[: chance.randrange(6, len(data) + 1)]) + chance.randbytes(
            chance.randrange(3)
        )
        if whole[:1] == b"\r" and not whole.startswith(BINARY):
            continue
        try:
            header = read_header(whole)
        except RemoteProtocolError:
            continue
        if header is None:
            assert len(whole) < MOST_BINARY + 16
        else:
            assert header.size <= len(whole)
            if header.source is not None:
                socket.getaddrinfo(*header.source, flags=socket.AI_NUMERICHOST)


def test_any_bytes() -> None:
    fuzz(1, 10_000)


@pytest.mark.long
def test_many_bytes() -> None:
    fuzz(2, 200_000)
