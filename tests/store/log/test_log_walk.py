"""The walk over the log judges as the decoder does, and passes over exactly what is dispatched."""

import random

import pytest
from tests.records import append_message, encode_record
from tests.store.crash_model import BORN, HOST, START_MS, small_config
from tests.store.stores import log_of

from roquette.errors import CorruptRecord
from roquette.message.record import decode_record
from roquette.message.record_layout import names_directory
from roquette.store.log_walk import Dispatched, LogWalk, Torn, find_torn
from roquette.store.message_store import MessageStore
from roquette_testing.faulty_files import FaultyFiles

V6 = bytes(range(16)) + (10911).to_bytes(4, "big")
BASE = 4096 * 7


def row(rng: random.Random, count: int) -> bytes:
    """Records of every shape, one after the other, as they would stand at BASE."""
    data = b""
    for n in range(count):
        topic = rng.choice((b"T", b"topic", b"%RETRY%" + b"g" * 200, "thème".encode()))
        body = rng.randbytes(rng.choice((0, 1, 50, 400)))
        named = rng.choice((b"", b"A\x01b\x02", "KEYS\x01ü€\x02".encode() * 3))
        hosts = (rng.choice((BORN, V6)), rng.choice((HOST, V6)))
        kind = rng.choice((0, 4, 8, 12))
        data += encode_record(
            topic, n % 5, 7, n, BASE + len(data), kind, 1, hosts[0], 1000 + n, hosts[1], 0, -1, body, named
        )  # fmt: skip
    return data


def careful(data: bytes, check_crc: bool) -> tuple[int, int, int, int]:
    """What the decoder makes of it: end, records, place and store time of the last."""
    data = data.ljust(BASE, b"\0")
    position = count = last_ms = 0
    last = -1
    while True:
        try:
            record = decode_record(data, position, check_crc)
        except CorruptRecord:
            return position, count, last, last_ms
        odd = not names_directory(record.topic.encode())
        if record.physical_offset != BASE + position or odd:
            return position, count, last, last_ms
        last, last_ms = BASE + position, record.store_timestamp_ms
        position += record.size
        count += 1


def walked(data: bytes, check_crc: bool) -> tuple[int, int, int, int]:
    """What the walk makes of a log of one file, none of which a crash has torn."""
    walk = LogWalk(log_of(data, BASE), BASE, check_crc, 1 << 62)
    end = walk.to_end()
    return end - BASE, walk.records, walk.last_offset, walk.last_ms


@pytest.mark.parametrize("check_crc", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_it_stops_where_the_decoder_does(seed: int, check_crc: bool) -> None:
    rng = random.Random(seed)
    data = row(rng, 12)
    assert walked(data, check_crc) == careful(data, check_crc)
    assert walked(data, check_crc)[:2] == (len(data), 12)
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(rng.choice((1, 1, 4))):
            place = rng.randrange(len(data))
            damaged[place] = rng.choice(
                (0, 0xFF, 0x7F, 0x80, damaged[place] ^ 1 << rng.randrange(8))
            )
        piece = bytes(damaged[: rng.choice((len(data), rng.randrange(len(data))))])
        assert walked(piece, check_crc) == careful(piece, check_crc)


def test_it_passes_over_what_queues_and_index_know() -> None:
    files = FaultyFiles()
    store = MessageStore(small_config(segment_size=1 << 16), files, HOST)
    store.open(START_MS)
    places = []
    for n in range(30):
        kind = (0, 4, 8, 12)[n % 4]
        topic = "long" * 40 if n % 5 == 0 else "T"
        done = append_message(store, topic, n % 3, 0, kind, 0, V6, 0, "", 0, b"x" * n, START_MS)
        places.append(done.physical_offset)
    store.write_pending()
    queues = store._queues

    def first_unknown(index_from: int = 1 << 62) -> int:
        walk = LogWalk(store._log, 0, True, 1 << 62, None, Dispatched(queues, index_from))
        return walk.last_offset if walk.advance() else walk.offset

    assert first_unknown() == store.max_physical_offset
    assert first_unknown(places[11]) == places[12], "a rollback has no keys"
    assert first_unknown(places[12]) == places[12]
    queue = queues.find("T", 14 % 3)
    assert queue is not None
    at = next(n for n in range(queue.next_offset) if queue.physical_at(n) == places[14])
    queue.truncate(at)
    assert first_unknown() == places[14]
    queues.drop_topic("T")
    first = next(n for n in range(30) if n % 5 and n % 4 in (0, 2))
    assert first_unknown() == places[first]


@pytest.mark.parametrize(
    "properties, end, torn",
    [
        (b"A\x01b\x02", 700, None),
        (b"A\x01\0\x02", 1024, None),  # one zero, as an application may send it
        (b"A" + bytes(600), 1024 + 88, Torn.SURELY),
        (b"A" * 88 + bytes(20), 1024 + 20, Torn.PERHAPS),
        (b"A" * 100 + bytes(20), 1024 + 10, Torn.PERHAPS),
    ],
)
def test_a_sector_of_zeros_in_the_properties_was_never_written(
    properties: bytes, end: int, torn: Torn | None
) -> None:
    assert find_torn(properties, end) is torn
