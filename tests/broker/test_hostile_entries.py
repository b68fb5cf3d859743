"""No entry stops the ones behind it: hostile entries in every queue the broker itself reads, then work that must go on.

Each case is one message: a queue, a property the broker reads from its own messages, a hostile value. All cases of a
queue stand in one store; then a message goes each of the broker's ways, and again after a restart.
"""

import asyncio
import json
import shutil
from typing import Any

import pytest
from tests.broker.pop_frames import pop, pop_ext
from tests.broker.test_transactions import COMMIT, QUICK, end, prepare, register
from tests.records import append_message, read_queue

from roquette.broker.floor.set_aside import FILE, LIMIT, SetAside, SetAsideEntry, SetAsideFile
from roquette.errors import RefusedForNow, StoreFull
from roquette.message.properties import decode_properties, encode_properties
from roquette.message.record import decode_records
from roquette.message.record_layout import MAX_PROPERTIES, StoredRecord

TIMER, LEVELS = "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"
REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TOPICS = (TIMER, LEVELS, REVIVE, HALF, OP, "%RETRY%g", "RMQ_SYS_TRACE_TOPIC", "T")
NAMES = (
    "DELAY", "REAL_TOPIC", "REAL_QID", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "ORIGIN_GROUP", "UNIQ_KEY",
    "KEYS", "TAGS", "WAIT", "TRAN_MSG", "PGROUP", "TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET",
    "CHECK_IMMUNITY_TIME_IN_SECONDS", "1ST_POP_TIME", "POP_CK", "INNER_NUM", "MAX_RECONSUME_TIMES",
    "TIMER_OUT_MS", "TIMER_ROLL_TIMES", "TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC",
    "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_DEL_UNIQKEY",
)  # fmt: skip
HOSTILE = (
    None, "", "x", "9" * 5000, "-1", str(2**31), str(2**63 - 1), str(2**63), "-" + str(2**63), "１２",
    "²", "1_0", " 5", "../..", "é" * 300,
)  # fmt: skip
NUMBERS = (-1, 0, 2**31, 2**62, 2**63 - 1, 2**63, 2**64, 10**400, -(2**63), "x", None, [], 1.5)
LEVEL_TEXT = " ".join(["1s"] * 18)
SETTINGS: dict[str, Any] = {"broker": QUICK, "store": {"delay_levels": LEVEL_TEXT}}


def base(topic: str, now_ms: int) -> dict[str, str]:
    """Properties with which an entry of a queue is a sound one, so that each hostile value gets far."""
    named = {"UNIQ_KEY": "0A01", "WAIT": "true", "TAGS": "d", "PGROUP": "pg"}
    if topic in (TIMER, LEVELS, HALF):
        named |= {"REAL_TOPIC": "Elsewhere", "REAL_QID": "0"}
    if topic == TIMER:
        named["TIMER_OUT_MS"] = str(now_ms + 1000)
    if topic == LEVELS:
        named["DELAY"] = "1"
    if topic == HALF:
        named["TRAN_MSG"] = "true"
    return named


def put(case: Any, topic: str, named: dict[str, str], body: bytes = b"x", queue: int = 0) -> int:
    """Append past every check; returns the physical offset."""
    now_ms = case.clock.now_ms()
    text = encode_properties(named)
    store = case.broker.store
    done = append_message(store, topic, queue, 0, 0, now_ms, bytes(8), 0, text, 0, body, now_ms)
    return int(done.physical_offset)


def hostile_properties(case: Any, topic: str) -> int:
    """Every case of one queue; returns how many."""
    count = 0
    for name in NAMES:
        for value in HOSTILE:
            named = base(topic, case.clock.now_ms())
            named.pop(name, None)
            if value is not None:
                named[name] = value
            put(case, topic, named, b"%d," % count)
            count += 1
    return count


def hostile_entries(case: Any) -> int:
    """Check-points, acknowledgements and orderly states with hostile numbers in each field."""
    sound: dict[str, dict[str, Any]] = {
        "ck": {"t": "T", "c": "g", "so": 0, "pt": 1, "it": 1, "n": 1, "q": 0, "d": [0], "bn": "b"},
        "ack": {"t": "T", "c": "g", "ao": 0, "so": 0, "pt": 1, "q": 0},
        "bAck": {"t": "T", "c": "g", "aol": [0], "so": 0, "pt": 1, "q": 0},
        "order": {"t": "T", "c": "g", "q": 0, "i": {"o": [0], "popTime": 1}},
    }
    count = 0
    for tag, fields in sound.items():
        for field in fields:
            for value in [*NUMBERS, [2**63 - 1], {"o": [2**63 - 1, 2**63]}]:
                body = json.dumps(fields | {field: value}).encode()
                put(case, REVIVE, {"TAGS": tag, "UNIQ_KEY": "k"}, body, queue=count % 8)
                count += 1
    return count


async def everything_goes_on(case: Any, client: Any, mark: str) -> None:
    """A message each of the broker's own ways: timer, all delay levels, POP, a commit, a check, a return."""
    for level in range(1, 19):
        named = {"UNIQ_KEY": f"{mark}L{level}", "DELAY": str(level)}
        assert (await client.produce("Levels", properties=named, body=mark.encode())).code == 0
    later = {"UNIQ_KEY": f"{mark}t", "TIMER_DELAY_MS": "3000"}
    assert (await client.produce("Timed", properties=later, body=mark.encode())).code == 0
    assert (await client.produce("Popped", body=mark.encode())).code == 0
    assert (await client.produce("Back", body=mark.encode())).code == 0
    await register(client)
    half = await prepare(case, client, f"{mark}h", body=mark.encode())
    unended = await prepare(case, client, f"{mark}u", body=mark.encode())
    assert [m.body for m in await pop(case, client, topic="Popped", consumerGroup="p")] == [
        mark.encode()
    ]
    [sent] = await some(case, "Back", mark)
    ext = {"offset": sent.physical_offset, "group": "back", "delayLevel": 0, "originTopic": "Back"}
    assert (await client.call(36, ext)).code == 0
    assert (await end(client, half, COMMIT)).code == 0
    await asyncio.sleep(20)

    assert len(await some(case, "Levels", mark)) == 18
    assert len(await some(case, "Timed", mark)) == 1
    assert len(await some(case, "%RETRY%back", mark)) == 1
    assert [m.body for m in await some(case, "T", mark, queue=1)] == [mark.encode()]
    [again] = await pop(case, client, topic="Popped", consumerGroup="p")
    assert again.body == mark.encode()
    assert again.reconsume_times == 1
    await client.call(200051, again.ack_ext("p"))
    checked = [command for command in client.unread if command.code == 39]
    assert any(f"{mark}u".encode() in command.body for command in checked) or unended.key in str(
        [m.properties for m in await some(case, "TRANS_CHECK_MAX_TIME_TOPIC", mark)]
    )
    client.unread.clear()


async def some(case: Any, topic: str, mark: str, queue: int | None = None) -> list[StoredRecord]:
    """The messages of a topic with this body."""
    store = case.broker.store
    found: list[StoredRecord] = []
    for number in store.queues_of(topic) if queue is None else [queue]:
        offset = store.min_offset(topic, number)
        while offset < store.max_offset(topic, number):
            read = read_queue(store, topic, number, offset, 32, 1 << 20, None)
            found += decode_records(b"".join(read.runs))
            offset = read.next_begin_offset
    return [record for record in found if record.body == mark.encode()]


async def runtime(client: Any) -> dict[str, str]:
    table = json.loads((await client.call(28, {})).body)["table"]
    assert all(isinstance(value, str) for value in table.values())
    return dict(table)


@pytest.mark.promise(
    "Background work", "an entry that cannot be worked off is set aside and stops none behind it"
)
@pytest.mark.parametrize("topic", TOPICS)
def test_hostile_properties_stop_nothing(run_broker: Any, tmp_path: Any, topic: str) -> None:
    """405 cases a topic: all of them put past every check, as older versions and Apache's broker let them in."""

    async def scenario(case: Any) -> None:
        client = await case.client()
        assert (await client.produce("T")).code == 0
        assert hostile_properties(case, topic) == len(NAMES) * len(HOSTILE)
        if topic in ("T", "%RETRY%g"):
            await popped_and_returned(case, client, topic)
        await everything_goes_on(case, client, "first")
        table = await runtime(client)
        if topic in (TIMER, LEVELS):
            assert 5 < int(table["setAside"]) < 100
            assert topic in table["setAsideLast"]
        assert all("failures=0" in v for k, v in table.items() if k.startswith("task_")), table

    async def again(case: Any) -> None:
        client = await case.client()
        before = case.broker.core.writer.aside.to_file()
        await everything_goes_on(case, client, "second")
        after = case.broker.core.writer.aside.to_file()
        assert after.counts == before.counts
        assert all("failures=0" in v for k, v in (await runtime(client)).items() if "task_" in k)

    async def once_more(case: Any) -> None:
        await everything_goes_on(case, await case.client(), "third")

    run_broker(scenario, **SETTINGS)
    run_broker(again, **SETTINGS)
    for name in ("consumequeue", "index"):  # after a crash all is made anew out of the log
        shutil.rmtree(tmp_path / "store" / name)
    (tmp_path / "store" / "abort").touch()
    run_broker(once_more, **SETTINGS)


async def popped_and_returned(case: Any, client: Any, topic: str) -> None:
    """Every hostile message is popped and not acknowledged, and returned by a consumer."""
    offsets = []
    for queue in case.broker.store.queues_of(topic):
        for offset in range(case.broker.store.max_offset(topic, queue)):
            read = read_queue(case.broker.store, topic, queue, offset, 1, 1 << 20, None)
            offsets += [record.physical_offset for record in decode_records(b"".join(read.runs))]
    for offset in offsets:
        ext = {"offset": offset, "group": "back", "delayLevel": 1, "originTopic": "T"}
        assert (await client.call(36, ext)).code == 0
    if topic == "T":
        count = await drained(case, client)
        assert count == len(offsets)
        await asyncio.sleep(30)
        assert await drained(case, client) == count
    else:
        await asyncio.sleep(5)


async def drained(case: Any, client: Any) -> int:
    """How many messages the group is handed out now."""
    count = 0
    while True:
        ext = pop_ext(case.clock.now_ms(), consumerGroup="hostile")
        reply = await client.call(200050, ext)
        if reply.code != 0:
            return count
        count += len(decode_records(reply.body))


@pytest.mark.promise(
    "Background work", "an entry that cannot be worked off is set aside and stops none behind it"
)
@pytest.mark.parametrize("way", ["put", "sent"])
def test_hostile_check_points_stop_nothing(run_broker: Any, way: str) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        assert (await client.produce("T")).code == 0
        if way == "put":
            assert hostile_entries(case) > 300
        else:
            for body in (b'{"t":"T","c":"g","so":9223372036854775807,"n":1,"pt":1,"it":1}', b"{"):
                named = {"TAGS": "ck", "UNIQ_KEY": "k"}
                await client.produce(REVIVE, properties=named, body=body)
        await everything_goes_on(case, client, "first")
        table = await runtime(client)
        assert int(table["setAside"]) > 0
        assert "failures=0" in table["task_revive"], table["task_revive"]

    async def again(case: Any) -> None:
        client = await case.client()
        await everything_goes_on(case, client, "second")

    run_broker(scenario, **SETTINGS)
    run_broker(again, **SETTINGS)


def test_the_messages_of_the_issue_by_ordinary_requests(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        out = str(case.clock.now_ms() + 1000)
        for named in (
            {"TIMER_OUT_MS": "9" * 5000, "REAL_TOPIC": "T", "REAL_QID": "0"},
            {"TIMER_OUT_MS": out, "TIMER_ROLL_TIMES": "9" * 5000, "REAL_TOPIC": "T", "REAL_QID": "0"},
            {"TIMER_OUT_MS": out, "REAL_TOPIC": "T", "REAL_QID": "9" * 5000},
        ):  # fmt: skip
            reply = await client.produce(TIMER, properties={"UNIQ_KEY": "k"} | named)
            assert reply.code == 0
        named = {"UNIQ_KEY": "k", "REAL_QID": "9" * 5000, "TIMER_DELAY_MS": "1000", "DELAY": "1"}
        assert (await client.produce("T", properties=named)).code == 0
        await everything_goes_on(case, client, "first")
        file = case.broker.core.files.load(FILE, SetAsideFile)
        assert file.counts == {"timer": 2}
        assert [(e.topic, e.queue_offset) for e in file.entries] == [(TIMER, 0), (TIMER, 2)]

    run_broker(scenario, **SETTINGS)


# Limits are for clients.

WAYS = ("level", "timer", "revive", "commit", "back", "dead")


@pytest.mark.promise("Background work", "what was taken is delivered, whatever the limits are now")
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("kind", ["body", "properties"])
def test_what_was_taken_is_delivered_whatever_the_limits_are_now(
    run_broker: Any, kind: str, restart: bool
) -> None:
    """Bodies above a maxMessageSize lowered since; properties that leave no room for those of a delivery."""
    body = b"b" * 60_000 if kind == "body" else b"b"
    kept: dict[str, Any] = {}

    def full(case: Any, topic: str, named: dict[str, str], spare: int) -> dict[str, str]:
        """Properties that fill the record to `spare` bytes below the limit, with what the broker adds."""
        used = sum(len(k) + len(v) + 2 for k, v in named.items())
        return named | {"f": "f" * (MAX_PROPERTIES - used - spare - 3)} if kind != "body" else named

    async def take(case: Any) -> None:
        client = await case.client()
        store = case.broker.store
        for way in WAYS:
            assert (await client.produce(f"To-{way}", d=1)).code == 0
        for spare in range(0, 130, 1 if kind == "properties" else 130):
            named = {"UNIQ_KEY": f"k{spare}"}
            now_ms = case.clock.now_ms()
            own = {"REAL_TOPIC": "To-level", "REAL_QID": "0", "DELAY": "2"}
            put(case, LEVELS, full(case, LEVELS, named | own, spare), body, queue=1)
            own = {"REAL_TOPIC": "To-timer", "REAL_QID": "0", "TIMER_OUT_MS": str(now_ms + 2000)}
            put(case, TIMER, full(case, TIMER, named | own, spare), body)
            for way in ("revive", "back", "dead"):
                put(case, f"To-{way}", full(case, way, named, spare), body)
            own = {"REAL_TOPIC": "To-commit", "REAL_QID": "0", "PGROUP": "pg", "TRAN_MSG": "true"}
            place = put(case, HALF, full(case, HALF, named | own, spare), body)
            kept.setdefault("halves", []).append((store.max_offset(HALF, 0) - 1, place))
        kept["count"] = len(kept["halves"])
        popped = 0
        while messages := await pop(
            case, client, topic="To-revive", consumerGroup="p", invisibleTime=10_000
        ):
            popped += len(messages)
        assert popped == kept["count"] + 1
        if not restart:
            case.broker.live.update({"maxMessageSize": "1024"})
            await deliver(case)

    async def deliver(case: Any) -> None:
        client = await case.client()
        store = case.broker.store
        for queue_offset, place in kept["halves"]:
            ext = {
                "producerGroup": "pg", "tranStateTableOffset": queue_offset, "commitLogOffset": place,
                "commitOrRollback": COMMIT, "fromTransactionCheck": "false", "msgId": "k",
                "transactionId": "k",
            }  # fmt: skip
            reply = await client.call(37, ext)
            assert reply.code == 0, reply.remark
        for way, level in (("back", 1), ("dead", -1)):
            for offset in range(1, kept["count"] + 1):
                read = read_queue(store, f"To-{way}", 0, offset, 1, 1 << 20, None)
                [record] = decode_records(b"".join(read.runs))
                ext = {"offset": record.physical_offset, "group": way, "delayLevel": level}
                reply = await client.call(36, ext | {"originTopic": f"To-{way}"})
                assert reply.code == 0, reply.remark
        await asyncio.sleep(30)
        for topic in ("To-level", "To-timer", "To-commit", "%RETRY%back", "%DLQ%dead"):
            found = await some(case, topic, body.decode())
            assert len(found) == kept["count"], topic
            assert {decode_properties(r.properties)["UNIQ_KEY"] for r in found} == {
                f"k{spare}" for spare in range(0, 130, 1 if kind == "properties" else 130)
            }
        assert len(await some(case, "%RETRY%p_To-revive", body.decode())) == kept["count"]
        assert (await client.produce("T", body=b"b" * 2000)).code == 13
        assert (await runtime(client))["setAside"] == "0"

    settings = {
        "broker": QUICK | {"transaction_time_out": 100_000},
        "store": {"delay_levels": LEVEL_TEXT},
    }
    run_broker(take, **settings)
    if restart:
        settings["store"] = settings["store"] | {"max_message_size": 1024}
        run_broker(deliver, **settings)


# What the book of entries set aside promises.


def record(offset: int = 0, topic: str = "T") -> StoredRecord:
    found = StoredRecord(topic, "", b"")
    found.queue_id, found.queue_offset, found.physical_offset = 3, offset, offset * 100
    return found


@pytest.mark.parametrize(
    "error", [RefusedForNow(14, "full"), StoreFull("full"), OSError(28, "full"), MemoryError()]
)
def test_what_is_of_the_moment_sets_nothing_aside(error: Exception) -> None:
    aside = SetAside()

    def fails() -> None:
        raise error

    with pytest.raises(type(error)):
        aside.again("t", record(), error, lambda: None, 1)
    with pytest.raises(type(error)):
        aside.again("t", record(), ValueError("first"), fails, 1)
    assert aside.counts == {}


def test_a_second_failure_sets_aside_and_the_book_is_bounded() -> None:
    aside = SetAside()
    marks: list[int] = []
    aside.changed.append(lambda: marks.append(1))

    def fails() -> None:
        raise ValueError("x" * 10_000)

    assert aside.again("t", record(), KeyError("first"), lambda: 7, 1) == 7
    assert aside.counts == {}
    for number in range(LIMIT + 50):
        aside.again("t", record(number), KeyError("first"), fails, number)
    assert aside.counts == {"t": LIMIT + 50}
    assert len(aside.entries) == LIMIT == len(aside.to_file().entries)
    assert aside.entries[-1] == SetAsideEntry(
        task="t", topic="T", queue_id=3, queue_offset=LIMIT + 49, physical_offset=(LIMIT + 49) * 100,
        reason=("ValueError('" + "x" * 200)[:200], time=LIMIT + 49,
    )  # fmt: skip
    aside.put("t", record(LIMIT + 49), "again after a crash", 1)
    assert len(marks) == LIMIT + 50


@pytest.mark.promise(
    "Background work", "an entry that cannot be worked off is set aside and stops none behind it"
)
@pytest.mark.parametrize("topic", [LEVELS, TIMER])
def test_a_damaged_entry_is_noted_and_passed_over(
    run_broker: Any, tmp_path: Any, topic: str
) -> None:
    places: list[int] = []

    async def take(case: Any) -> None:
        client = await case.client()
        for number in range(3):
            named = {"UNIQ_KEY": f"k{number}"}
            named["DELAY" if topic == LEVELS else "TIMER_DELAY_MS"] = (
                "3" if topic == LEVELS else "10000"
            )
            assert (await client.produce("T", properties=named, body=b"b" * 50)).code == 0
        await asyncio.sleep(2)
        for offset in range(3):
            queue = 2 if topic == LEVELS else 0
            read = read_queue(case.broker.store, topic, queue, offset, 1, 1 << 20, None)
            places.append(decode_records(b"".join(read.runs))[0].physical_offset)

    async def again(case: Any) -> None:
        await asyncio.sleep(20)
        assert len(await some(case, "T", "b" * 50)) == 2
        table = await runtime(await case.client())
        assert table["setAside"] == "1"
        assert table["setAsideLast"].startswith(f"{topic}/")
        assert "damaged" in table["setAsideLast"]

    delays = {"delay_levels": " ".join(["10s"] * 18)}
    run_broker(take, store=delays)
    log = next((tmp_path / "store" / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    at = data.index(b"b" * 50, places[1])
    data[at] ^= 1
    log.write_bytes(data)
    run_broker(again, store=delays)
