"""gRPC's own framing: messages in pieces, timeouts, statuses."""

import contextlib
import gzip
from random import Random

import pytest

from roquette.errors import RemoteProtocolError
from roquette.wire.grpc import (
    MAX_RATIO,
    Messages,
    MessageTooLarge,
    NotCompressible,
    Unpacked,
    ending,
    prefixed,
    timeout_ms,
    trailers_only,
    whole,
)


def test_messages_come_in_any_pieces() -> None:
    random = Random(1)
    said = [random.randbytes(random.choice((0, 1, 4, 5, 300, 70_000))) for _ in range(60)]
    stream = b"".join(prefixed(one) for one in said)
    for _ in range(30):
        reader, heard, rest = Messages(1 << 20), [], stream
        while rest:
            size = random.choice((1, 4, 5, 6, 1_000, 100_000))
            heard += reader.feed(rest[:size])
            rest = rest[size:]
        assert heard == said and reader.held == 0


def test_a_message_of_single_bytes_costs_no_more_than_its_bytes() -> None:
    reader = Messages(1 << 20)
    data = prefixed(bytes(20_000))
    for at in range(len(data) - 1):
        assert reader.feed(data[at : at + 1]) == []
        assert reader.held == at + 1
    assert len(reader._pieces) <= 512
    assert reader.feed(b"\0") == [bytes(20_000)]


def test_a_length_beyond_the_limit_is_refused_before_it_comes() -> None:
    with pytest.raises(MessageTooLarge, match="11 bytes, 10 are the most"):
        Messages(10).feed(b"\0\0\0\0\x0b")
    assert Messages(10).feed(b"\0\0\0\0\x0a") == []


def test_compressed_messages() -> None:
    packed = gzip.compress(bytes(1_000))
    data = b"\1" + len(packed).to_bytes(4, "big") + packed
    assert Messages(1_000, b"gzip").feed(data) == [bytes(1_000)]
    with pytest.raises(MessageTooLarge):
        Messages(999, b"gzip").feed(data)
    with pytest.raises(NotCompressible, match="grpc-encoding snappy is not supported"):
        Messages(1_000, b"snappy").feed(data)
    with pytest.raises(NotCompressible, match="no is not"):
        Messages(1_000).feed(data)
    with pytest.raises(RemoteProtocolError, match="not gzip"):
        Messages(1_000, b"gzip").feed(b"\1\0\0\0\4abcd")
    cut = packed[:-3]
    with pytest.raises(RemoteProtocolError, match="too early"):
        Messages(1_000, b"gzip").feed(b"\1" + len(cut).to_bytes(4, "big") + cut)


def test_a_gzip_bomb_is_cut_at_the_limit() -> None:
    packed = gzip.compress(bytes(50 << 20))
    assert len(packed) < 60_000
    with pytest.raises(MessageTooLarge, match="decompresses to more"):
        Messages(5 << 20, b"gzip").feed(b"\1" + len(packed).to_bytes(4, "big") + packed)


def test_few_bytes_are_one_large_message_and_not_many() -> None:
    unpacked = Unpacked(4 << 20)
    packed = gzip.compress(bytes(4 << 20))

    def made(times: int) -> int:
        done = 0
        for _ in range(times):
            with contextlib.suppress(MessageTooLarge):
                done += len(unpacked.gzip(packed))
        return done

    assert made(1) == 4 << 20
    assert made(100) <= 100 * len(packed) * MAX_RATIO, "before: 400 MiB"
    honest = gzip.compress(b"".join(b'{"id":%d,"kind":"order"},' % n for n in range(20_000)))
    assert [len(unpacked.gzip(honest)) for _ in range(50)]


@pytest.mark.parametrize("broken", ["cut off", "another sum", "too large"])
def test_what_was_unpacked_in_vain_counts_as_well(broken: str) -> None:
    packed = gzip.compress(bytes(4 << 20))
    wrong = {
        "cut off": packed[:-9],
        "another sum": packed[:-8] + bytes(8),
        "too large": gzip.compress(bytes(5 << 20)),
    }[broken]
    unpacked = Unpacked(4 << 20)
    for _ in range(3):
        with pytest.raises(RemoteProtocolError):
            unpacked.gzip(wrong)
        with pytest.raises(MessageTooLarge):  # before: 8 MiB, each time
            unpacked.gzip(packed)
    assert unpacked.gzip(gzip.compress(b"a message"))


def test_other_flags_are_no_grpc() -> None:
    with pytest.raises(RemoteProtocolError, match="begins with 2"):
        Messages(10).feed(b"\2\0\0\0\0")


@pytest.mark.parametrize(
    "data, limit, is_whole",
    [
        (b"\0\0\0\0\0", 10, True),
        (b"\0\0\0\0\1a", 10, True),
        (b"\0\0\0\0\1a", 0, False),
        (b"\1\0\0\0\1a", 10, False),
        (b"\0\0\0\0\1ab", 10, False),
        (b"\0\0\0\0", 10, False),
        (b"", 10, False),
    ],
)
def test_what_is_one_whole_message(data: bytes, limit: int, is_whole: bool) -> None:
    assert whole(data, limit) is is_whole


@pytest.mark.parametrize(
    "value, ms",
    [(b"1H", 3_600_000), (b"2M", 120_000), (b"3S", 3_000), (b"4m", 4), (b"2999870u", 3_000),
     (b"1n", 1), (b"0n", 0), (b"0S", 0), (b"99999999H", 359_999_996_400_000)],
)  # fmt: skip
def test_timeouts(value: bytes, ms: int) -> None:
    assert timeout_ms(value) == ms


@pytest.mark.parametrize("value", [b"", b"S", b"1", b"1x", b"-1S", b"999999999S", b"1.5S", b" 1S"])
def test_what_is_no_timeout(value: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="grpc-timeout"):
        timeout_ms(value)


def test_statuses() -> None:
    assert ending(0, "") == ((b"grpc-status", b"0"),)
    assert ending(3, "50 % von \u00fc\n")[1] == (b"grpc-message", b"50 %25 von %C3%BC%0A")
    assert ending(3, "\ud800")[1] == (b"grpc-message", b"?")
    assert len(ending(3, "\u20ac" * 5_000)[1][1]) == 9 * 1_024
    head = dict(trailers_only(12, "no"))
    assert head[b":status"] == b"200" and head[b"grpc-status"] == b"12"
    assert head[b"content-type"] == b"application/grpc"
