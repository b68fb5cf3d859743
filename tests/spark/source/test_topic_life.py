"""A topic of another life is never read on in silence: what happened to it x how it is read x when."""

import itertools
import json
from collections.abc import Callable

import pytest
from tests.spark.fake_query import Checkpoint, FakeQuery
from tests.spark.records import ListReader, make_record

from roquette.message.message import MessageQueue
from roquette_spark.source import batch_reader, stream_reader
from roquette_spark.source.queues import lives_before
from roquette_spark.values.offsets import DataLoss, decode_offsets, decode_seen, encode_offsets

A0, A1 = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)
LATER_MS = 1_000_000


def life(queue: MessageQueue, numbers: range, name: str) -> list[bytes]:
    """Records of one life: another one is stored later, elsewhere in the log."""
    late = 0 if name == "one" else LATER_MS
    return [
        make_record(
            i,
            f"{name} {queue.queue_id}/{i}".encode(),
            queue_id=queue.queue_id,
            topic=queue.topic,
            later_ms=late,
            physical_offset=10_000 * queue.queue_id + 100 * i + late,
        )
        for i in numbers
    ]


def remade(count: int) -> Callable[[ListReader], None]:
    def change(cluster: ListReader) -> None:
        for queue in cluster.records:
            cluster.records[queue] = life(queue, range(count), "two")

    return change


def restored(kept: int, more: int) -> Callable[[ListReader], None]:
    """An old copy of the store with so many messages, and what came since then."""

    def change(cluster: ListReader) -> None:
        for queue, records in cluster.records.items():
            new = life(queue, range(kept, kept + more), "two")
            cluster.records[queue] = records[:kept] + new

    return change


def grown(cluster: ListReader) -> None:
    restored(10, 15)(cluster)


def expired(cluster: ListReader) -> None:
    grown(cluster)
    cluster.oldest = 10


def emptied(cluster: ListReader) -> None:
    remade(0)(cluster)


def one_queue_more(cluster: ListReader) -> None:
    cluster.records[MessageQueue("T", "a", 2)] = []
    remade(15)(cluster)


def one_queue_less(cluster: ListReader) -> None:
    del cluster.records[A1]
    remade(15)(cluster)


LIVES_ON: dict[str, Callable[[ListReader], None]] = {
    "nothing": lambda cluster: None,
    "grown": grown,
    "expired": expired,
    "restored whole": restored(10, 0),
    "restored and grown": restored(10, 7),
}
LIVES_ANEW: dict[str, Callable[[ListReader], None]] = {
    "fewer": remade(6),
    "equal": remade(10),
    "more": remade(15),
    "many more": remade(40),
    "emptied": emptied,
    "queues more": one_queue_more,
    "queues less": one_queue_less,
    "restored older": restored(6, 0),
    "restored older, shorter": restored(6, 2),
    "restored older, equal": restored(6, 4),
    "restored older, longer": restored(6, 12),
}
KINDS: dict[str, dict[str, str]] = {
    "stream": {"subscribe": "T"},
    "by messages": {"subscribe": "T", "maxOffsetsPerTrigger": "7"},
    "by bytes": {"subscribe": "T", "maxBytesPerTrigger": "900"},
    "at least": {"subscribe": "T", "minOffsetsPerTrigger": "1", "maxTriggerDelay": "0s"},
    "pattern": {"subscribePattern": "T.*"},
    "assigned": {"assign": '{"T":{"a":[0,1]}}'},
    "available now": {"subscribe": "T"},
}
MOMENTS = ("restart", "running", "planned")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ListReader:
    queues = {queue: life(queue, range(10), "one") for queue in (A0, A1)}
    source = ListReader(queues, per_pull=100, tells_lives=True)
    monkeypatch.setattr(batch_reader, "open_reader", lambda _: source)
    monkeypatch.setattr(stream_reader, "open_reader", lambda _: source)
    return source


def query(kind: str, kept: Checkpoint, *, strict: bool) -> FakeQuery:
    options = {
        "namesrvAddr": "x:1",
        "startingOffsets": "earliest",
        "failOnDataLoss": str(strict).lower(),
        **KINDS[kind],
    }
    return FakeQuery(options, kept, available_now=kind == "available now")


def bodies(cluster: ListReader) -> set[str]:
    """What can be read now, as make_record's bodies."""
    found = set()
    for queue, records in cluster.records.items():
        for i, record in enumerate(records):
            if i >= cluster.oldest:
                name = "two" if record in life(queue, range(len(records)), "two") else "one"
                found.add(f"{name} {queue.queue_id}/{i}")
    return found


def told(rows: list[dict[str, object]]) -> list[str]:
    return [bytes(row["body"]).decode() for row in rows]  # type: ignore[call-overload]


def before_and_after(
    cluster: ListReader,
    change: Callable[[ListReader], None],
    kind: str,
    moment: str,
    *,
    strict: bool,
) -> tuple[list[str], list[str], bool]:
    """(bodies read before the change, after it, whether data loss was told)."""
    kept = Checkpoint()
    running = query(kind, kept, strict=strict)
    first = told(running.drain())
    if moment == "planned":  # one batch more is planned, and the query ends before it counts
        for queue in cluster.records:
            cluster.records[queue] += life(queue, range(10, 12), "one")
        running = query(kind, kept, strict=strict)
        running.batch(crash=True)
    change(cluster)
    second: list[str] = []
    if moment != "running" or kind == "available now":
        running = query(kind, kept, strict=strict)
    try:
        while (rows := running.batch()) is not None:
            second += told(rows)
        if moment == "running":  # it grows a little more: by now every change has shown
            second += told(query(kind, kept, strict=strict).drain())
    except DataLoss:
        return first, second, True
    return first, second, False


@pytest.mark.promise(
    "Spark and pipelines", "a topic that lives on is read without loss or repetition"
)
@pytest.mark.parametrize(
    ("name", "kind", "moment"),
    [  # what was planned is what the other changes replace
        case
        for case in itertools.product(LIVES_ON, KINDS, MOMENTS)
        if case[0] == "nothing" or case[2] != "planned"
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_a_topic_that_lives_on_is_read_without_loss_or_repetition(
    cluster: ListReader, name: str, kind: str, moment: str, strict: bool
) -> None:
    first, second, lost = before_and_after(cluster, LIVES_ON[name], kind, moment, strict=strict)

    assert not lost
    assert sorted(first) == sorted(f"one {q}/{i}" for q in range(2) for i in range(10))
    assert len(second) == len(set(second))
    assert not set(first) & set(second)
    if name != "expired":
        assert set(first) | set(second) >= bodies(cluster)
    else:
        assert set(second) == {each for each in bodies(cluster) if each.startswith("two")}


@pytest.mark.promise(
    "Spark and pipelines", "a topic that was deleted and made again is an error, or is read whole"
)
@pytest.mark.parametrize(("kind", "moment"), list(itertools.product(KINDS, MOMENTS)))
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", LIVES_ANEW)
def test_a_topic_made_anew_is_an_error_or_is_read_whole(
    cluster: ListReader,
    caplog: pytest.LogCaptureFixture,
    name: str,
    kind: str,
    moment: str,
    strict: bool,
) -> None:
    first, second, lost = before_and_after(cluster, LIVES_ANEW[name], kind, moment, strict=strict)

    there = bodies(cluster)
    if strict:
        assert lost or name == "emptied"
        assert not [each for each in second if each.startswith("two")]
    else:
        assert not lost
        reachable = {
            each for each in there if kind != "assigned" or int(each.split()[1].split("/")[0]) < 2
        }
        assert reachable <= set(first) | set(second)
        assert caplog.records


@pytest.mark.parametrize("name", [each for each in LIVES_ANEW if each.startswith("restored")])
@pytest.mark.parametrize("moment", ["restart", "running"])
def test_after_a_lost_tail_nothing_is_read_again(
    cluster: ListReader, name: str, moment: str
) -> None:
    first, second, _ = before_and_after(cluster, LIVES_ANEW[name], "stream", moment, strict=False)

    new = {each for each in bodies(cluster) if each.startswith("two")}
    assert sorted(second) == sorted(new)
    assert len(first) == 20


def test_a_restart_looks_once_and_an_idle_stream_not_at_all(cluster: ListReader) -> None:
    kept = Checkpoint()
    query("stream", kept, strict=True).drain()
    before = cluster.looks

    again = query("stream", kept, strict=True)
    for _ in range(5):
        assert again.batch() is None
    assert cluster.looks == before + 1

    cluster.records[A0] += life(A0, range(10, 12), "one")
    assert len(again.batch() or ()) == 2
    assert cluster.looks == before + 3  # what was seen before, what is seen now


def test_what_is_not_known_is_no_error(cluster: ListReader) -> None:
    assert set(lives_before(cluster, {A0: 10, A1: 0})) == {A0}
    cluster.replicas = {A0}
    assert lives_before(cluster, {A0: 10, A1: 4}).keys() == {A1}
    cluster.records[A1][3] = cluster.records[A1][3][:40]
    assert lives_before(cluster, {A1: 4}) == {}


def test_a_checkpoint_of_1b94d96_is_gone_on_with_and_remembers_from_then_on(
    cluster: ListReader,
) -> None:
    old = encode_offsets({A0: 4, A1: 10})
    assert json.dumps(old) == '{"v": 1, "offsets": {"T": {"a": {"0": 4, "1": 10}}}}'
    kept = Checkpoint(offsets=[json.dumps(old)], done=1, initial=json.dumps(old))

    rows = query("stream", kept, strict=True).drain()

    assert told(rows) == [f"one 0/{i}" for i in range(4, 10)]
    newest = json.loads(kept.offsets[-1])
    assert decode_offsets(newest) == {A0: 10, A1: 10}
    assert decode_seen(newest).keys() == {A0}
    assert decode_offsets({"v": 1, "offsets": newest["offsets"]}) == {A0: 10, A1: 10}


def test_an_error_says_what_and_what_to_do(cluster: ListReader) -> None:
    kept = Checkpoint()
    query("stream", kept, strict=True).drain()
    remade(15)(cluster)

    with pytest.raises(DataLoss) as error:
        query("stream", kept, strict=True).drain()

    assert str(error.value) == (
        "rocketmq: T a queue 0 was made anew since its offset 10 was read (the message before it is another "
        "one); failOnDataLoss=false reads it from its beginning"
    )
