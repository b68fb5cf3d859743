"""Any split points give every record exactly once; what is no record is told once, and nothing sound is lost to it."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.records import make_log, make_record

from roquette.message.message_id import host_bytes
from roquette.message.record import decode_record, encode_blank
from roquette_spark.commitlog.plan import Gap, Split, Walk, store_time
from roquette_spark.source.columns import leading_records

V6_HOST = bytes(range(16)) + (10911).to_bytes(4, "big")
Found = tuple[list[int], list[tuple[str, int, int]]]


def walk(
    data: bytes,
    cuts: Sequence[int] = (),
    *,
    base: int = 0,
    last: bool = True,
    crc: bool = True,
    read_bytes: int = 700,
    rows: int = 4,
) -> Found:
    """Physical offsets of all records and (kind, offset, size) of all stretches, over all splits."""
    records: list[int] = []
    stretches: list[tuple[str, int, int]] = []
    edges = sorted({0, *cuts, len(data)})
    for start, end in itertools.pairwise(edges):
        split = Split(path="f", base=base, size=len(data), start=start, end=end, last=last)
        for found in Walk(
            split, lambda at, n: data[at : at + n], read_bytes=read_bytes, rows=rows, check_crc=crc
        ):
            if isinstance(found, Gap):
                stretches.append((found.kind, found.physical_offset, found.size))
            else:
                assert 0 < found.count <= rows
                records += found.physical_offsets.tolist()
    return records, stretches


records = st.tuples(
    st.binary(max_size=600),
    st.dictionaries(st.sampled_from(["TAGS", "KEYS", "a"]), st.text("xy", min_size=1, max_size=5)),
    st.sampled_from([host_bytes("1.2.3.4", 5), V6_HOST]),
    st.sampled_from([host_bytes("5.6.7.8", 9), V6_HOST]),
    st.sampled_from(["T", "L" * 200]),
)
# Bodies that hold whole records, as a backup of a log sent as messages does: none must count as one.
copies = st.integers(100_000, 200_000).map(
    lambda at: (make_record(at, b"inner", physical_offset=at), {}, V6_HOST, V6_HOST, "T")
)
logs = st.lists(records | copies, max_size=14)
ends = st.sampled_from(["blank", "zeros", "nothing"])


def build(parts: list[tuple], end: str, base: int) -> tuple[bytes, list[int]]:
    data, places = make_log(
        [
            {"body": body, "properties": p, "born_host": born, "store_host": store, "topic": topic}
            for body, p, born, store, topic in parts
        ],
        base=base,
    )
    if end == "blank":
        data += encode_blank(500) + b"\xda\xa3\x20\xa7" * 20 + bytes(412)
    elif end == "zeros":
        data += bytes(500)
    return data, places


@given(logs, ends, st.lists(st.integers(0, 6000), max_size=6), st.sampled_from([0, 1 << 30]))
@settings(deadline=None, max_examples=100)
def test_any_splits_give_every_record_exactly_once(
    parts: list[tuple], end: str, cuts: list[int], base: int
) -> None:
    data, places = build(parts, end, base)

    found, stretches = walk(data, [cut for cut in cuts if cut < len(data)], base=base)

    assert found == places
    kind = {"blank": "blank", "zeros": "empty"}
    assert stretches == ([(kind[end], base + len(data) - 500, 500)] if end in kind else [])


@given(
    logs.filter(bool),
    ends,
    st.lists(st.integers(0, 6000), max_size=6),
    st.integers(0, 6000),
    st.binary(min_size=1, max_size=300),
    st.booleans(),
)
@settings(deadline=None, max_examples=100)
def test_damage_costs_only_the_records_it_touches_and_is_told_once(
    parts: list[tuple], end: str, cuts: list[int], at: int, junk: bytes, last: bool
) -> None:
    data, places = build(parts, end, 0)
    log_end = len(data) - (500 if end != "nothing" else 0)
    at %= log_end
    damaged = data[:at] + junk[: log_end - at] + data[at + len(junk[: log_end - at]) :]
    touched = {i for i in range(len(data)) if data[i] != damaged[i]}
    sizes = [b - a for a, b in itertools.pairwise([*places, log_end])]
    whole = [p for p, n in zip(places, sizes) if not touched & set(range(p, p + n))]
    hit = [p for p in places if p not in whole]
    cuts = [cut for cut in cuts if cut < len(data)]

    found, stretches = walk(damaged, cuts, last=last)

    assert set(whole) <= set(found) <= set(places)  # what only a property suffered is still read
    assert found == sorted(set(found))
    told = [s for s in stretches if s[0] != "blank"]
    covered = {i for _, start, size in told for i in range(start, start + size)}
    assert all(p in found or p in covered for p in hit)
    assert not covered & set(whole)
    assert (found, stretches) == walk(damaged, [], last=last)  # and the same for any splits


@given(logs.filter(bool), st.integers(1, 10_000), st.lists(st.integers(0, 6000), max_size=4))
@settings(deadline=None, max_examples=100)
def test_a_torn_tail_ends_the_log_quietly(parts: list[tuple], cut: int, cuts: list[int]) -> None:
    data, places = build(parts, "nothing", 0)
    last = decode_record(data, places[-1], True)
    unchecked = len(last.topic) + len(last.properties) + 2  # by no CRC; but the topic's length is
    cut = places[-1] + cut % (last.size - unchecked)
    torn = data[:cut] + bytes(400)

    found, stretches = walk(torn, [c for c in cuts if c < len(torn)])

    kind = "torn" if any(data[places[-1] : cut]) else "empty"
    assert found == places[:-1]
    assert stretches == [(kind, places[-1], len(torn) - places[-1])]


def test_a_file_cut_short_within_a_record_is_a_torn_tail() -> None:
    data, places = make_log([{"body": b"x" * 100}] * 3)

    assert walk(data[:-1]) == (places[:2], [("torn", places[2], len(data) - places[2] - 1)])


def test_the_same_tail_in_a_file_that_is_not_the_last_is_damage() -> None:
    data, places = make_log([{"body": b"x" * 100}] * 3)

    assert walk(data[:-1] + bytes(9), last=False)[1][0][0] == "damaged"
    assert walk(data + bytes(9), last=False) == (places, [("damaged", len(data), 9)])


def test_records_behind_zeros_are_found_and_the_zeros_are_damage() -> None:
    data, places = make_log([{"body": b"x" * 100}] * 9)
    gap = slice(places[3], places[5])
    data = data[: gap.start] + bytes(gap.stop - gap.start) + data[gap.stop :]

    for cuts in ([], [places[4]], [places[3] + 1], [places[5]], range(0, len(data), 50)):
        found, stretches = walk(data, list(cuts))
        assert found == places[:3] + places[5:]
        assert stretches == [("damaged", places[3], places[5] - places[3])]


def test_a_wrong_crc_is_damage_only_when_it_is_checked() -> None:
    data, places = make_log([{"body": b"x" * 100}] * 3)
    data = data[: places[1] + 90] + b"!" + data[places[1] + 91 :]

    found, stretches = walk(data)
    assert (found, stretches) == (
        [places[0], places[2]],
        [("damaged", places[1], places[2] - places[1])],
    )
    assert walk(data, [places[1]], crc=False) == (places, [])


def test_a_record_larger_than_a_read_is_read_whole() -> None:
    data, places = make_log([{"body": b"a"}, {"body": b"b" * 5000}, {"body": b"c"}])

    assert walk(data, [places[1] + 300], read_bytes=200) == (places, [])


def test_a_record_of_another_place_is_not_taken_for_one_of_this_log() -> None:
    data, _ = make_log([{"body": b"x"}] * 2)

    found, stretches = walk(data, base=4096)

    assert found == []
    assert [kind for kind, _, _ in stretches] == ["torn"]


def test_sizes_that_lead_nowhere_end_a_run() -> None:
    record = make_record(0)

    def run(data: bytes, stop: int) -> tuple[list[int], int]:
        starts, end = leading_records(data, stop)
        return starts.tolist(), end

    assert run(record + record, 1000) == ([0, len(record)], 2 * len(record))
    assert run(record + record, 1) == ([0], len(record))
    assert run(record + record[:50], 1000) == ([0], len(record))
    assert run(record + bytes(200), 1000) == ([0], len(record))
    assert run(b"\xff" * 200, 1000) == ([], 0)
    assert run(b"", 1000) == ([], 0)


@pytest.mark.parametrize("born", [host_bytes("1.2.3.4", 5), V6_HOST])
def test_the_store_time_of_a_head(born: bytes) -> None:
    assert store_time(make_record(5, born_host=born)) == 1_700_000_000_105
    assert store_time(bytes(128)) is None
    assert store_time(b"") is None
