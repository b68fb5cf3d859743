"""Both replication protocols: what is sent is read, however it is split, and what is none of them is refused in words."""

import random
import struct

import pytest

from roquette.errors import RemoteProtocolError
from roquette.wire.ha import (
    MAX_UNIT,
    Hello,
    MasterWire,
    Piece,
    SlaveWire,
    Welcome,
    classic_head,
    epoch_head,
    hello,
    report,
    welcome,
)

SEGMENT = 1 << 20
EPOCHS = ((1, 0), (3, 5000), (4, 5000))


def pieces_of(data: bytes, rng: random.Random) -> list[bytes]:
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(8)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def joined(found: list[Welcome | Piece]) -> list[Welcome | Piece]:
    """Pieces of one unit as one."""
    whole: list[Welcome | Piece] = []
    for one in found:
        last = whole[-1] if whole else None
        follows = (
            isinstance(one, Piece)
            and isinstance(last, Piece)
            and bool(one.data and last.data)
            and one.offset == last.offset + len(last.data)
        )
        if follows:
            whole[-1] = last._replace(data=last.data + one.data)
        else:
            whole.append(one)
    return whole


@pytest.mark.parametrize("handshake", [False, True])
def test_a_master_hears_the_greeting_and_the_newest_report_however_they_are_split(
    handshake: bool,
) -> None:
    rng = random.Random(1)
    for _ in range(300):
        ends = sorted(rng.choice((0, 1, 77, 1 << 32, (1 << 32) + 1, 1 << 40)) for _ in range(4))
        data = (hello(7) if handshake else b"") + b"".join(
            report(end, handshake=handshake) for end in ends
        )
        wire = MasterWire()
        greetings, reports = [], []
        for part in pieces_of(data, rng):
            greeting, end = wire.receive(part)
            greetings += [greeting] if greeting else []
            reports += [] if end is None else [end]

        assert wire.handshake is handshake
        assert greetings == ([Hello(7)] if handshake else [])
        assert reports[-1] == ends[-1] and set(reports) <= set(ends)


@pytest.mark.parametrize("offset", [1 << 32, (1 << 32) + 0x10001])
def test_a_classic_report_that_looks_like_a_greeting_is_known_by_the_next(offset: int) -> None:
    wire = MasterWire()

    assert wire.receive(report(offset, handshake=False)) == (None, None)
    assert wire.receive(report(offset, handshake=False)) == (None, offset)
    assert wire.handshake is False


def test_a_greeting_carries_apaches_flags() -> None:
    assert MasterWire().receive(struct.pack(">ihhq", 1, 1, 1, 3))[0] == Hello(3, True, True)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (struct.pack(">q", -1), "reports the offset -1"),
        (hello(1) + struct.pack(">iq", 2, -5), "reports the offset -5"),
        (hello(1) + struct.pack(">iq", 3, 5), "state 3"),
        (hello(1) + struct.pack(">ihhq", 1, 0, 0, -1), "broker id is -1"),
    ],
)
def test_a_master_refuses_in_words(data: bytes, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        MasterWire().receive(data)


@pytest.mark.parametrize("handshake", [False, True])
def test_a_slave_gets_all_units_however_they_are_split(handshake: bool) -> None:
    rng = random.Random(2)
    for _ in range(200):
        sent: list[Welcome | Piece] = [Welcome(9000, 4, EPOCHS)] if handshake else []
        data = welcome(9000, EPOCHS) if handshake else b""
        at = 100
        for _ in range(rng.randrange(1, 6)):
            body = rng.randbytes(rng.choice((0, 1, 40, 3000)))
            if handshake:
                data += epoch_head(at, len(body), 4, 5000, at) + body
                sent.append(Piece(at, body, 4, 5000, at))
            else:
                data += classic_head(at, len(body)) + body
                sent.append(Piece(at, body))
            at += len(body) + 7  # so that no two units are one in `joined`
        wire = SlaveWire(handshake, SEGMENT)
        found = [one for part in pieces_of(data, rng) for one in wire.receive(part)]

        assert joined(found) == sent


@pytest.mark.parametrize(
    ("handshake", "data", "words"),
    [
        (False, classic_head(0, -1), "a unit of -1 bytes"),
        (False, classic_head(0, MAX_UNIT + 1), "a unit of 4194305 bytes"),
        (False, classic_head(-8, 8), "8 bytes at -8"),
        (False, classic_head(SEGMENT - 1, 2), "mappedFileSizeCommitLog"),
        (True, struct.pack(">iiqi", 2, 0, 0, 1), "the state 2"),
        (True, struct.pack(">iiqi", 1, 13, 0, 1), "13 bytes of epochs"),
        (True, struct.pack(">iiqi", 1, -12, 0, 1), "-12 bytes of epochs"),
        (True, struct.pack(">iiqi", 1, 12 << 20, 0, 1), "bytes of epochs"),
        (True, welcome(-1, EPOCHS), "ends at -1"),
        (True, welcome(9, ((2, 0), (1, 5))), "out of order"),
        (True, welcome(9, EPOCHS) + struct.pack(">iiqiqq", 1, 0, 0, 1, 0, 0), "the state 1"),
    ],
)
def test_a_slave_refuses_in_words(handshake: bool, data: bytes, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        SlaveWire(handshake, SEGMENT).receive(data)


def test_twenty_thousand_mutated_frames_are_read_or_refused_and_nothing_piles_up() -> None:
    rng = random.Random(3)
    kinds = [
        hello(2) + report(77, handshake=True),
        report(77, handshake=False),
        welcome(9000, EPOCHS) + epoch_head(64, 40, 4, 5000, 9) + bytes(40),
        classic_head(64, 40) + bytes(40),
    ]
    refused = 0
    for number in range(20_000):
        data = bytearray(kinds[number % 4])
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 2, 127, 128, 255))
        wire = MasterWire() if number % 4 < 2 else SlaveWire(number % 4 == 2, SEGMENT)
        try:
            for part in pieces_of(bytes(data), rng):
                for one in wire.receive(part):
                    assert not isinstance(one, Piece) or len(one.data) <= len(part)
        except RemoteProtocolError:
            refused += 1
        held = wire._held if isinstance(wire, MasterWire) else wire._head
        assert len(held) <= len(data)
    assert 2_000 < refused < 18_000
