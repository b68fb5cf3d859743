"""Messages with an arbitrary time of delivery, in virtual time."""

import asyncio
import base64
import json
import struct
from typing import Any

import pytest
from tests.records import read_queue

from roquette.broker.timers.feature import TimerFeature
from roquette.message.properties import decode_properties
from roquette.message.record import decode_records
from roquette.message.record_layout import StoredRecord
from roquette.store.message_store import MessageStore

TIMER_TOPIC = "rmq_sys_wheel_timer"
DAY_MS = 86_400_000


def timed(**named: object) -> dict[str, str]:
    return {"UNIQ_KEY": "0A01", "WAIT": "true"} | {k: str(v) for k, v in named.items()}


def stored(store: MessageStore, topic: str, queue_id: int = 0) -> list[StoredRecord]:
    """Everything a queue holds."""
    found: list[StoredRecord] = []
    offset = store.min_offset(topic, queue_id)
    while offset < store.max_offset(topic, queue_id):
        read = read_queue(store, topic, queue_id, offset, 32, 1 << 20, None)
        found += decode_records(b"".join(read.runs))
        offset = read.next_begin_offset
    return found


@pytest.mark.parametrize("name", ["TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"])
def test_a_message_comes_when_it_is_due_and_not_before(run_broker: Any, name: str) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        sent_ms = case.clock.now_ms()
        wanted_ms = sent_ms + 5000
        value = {"TIMER_DELIVER_MS": wanted_ms, "TIMER_DELAY_MS": 5000, "TIMER_DELAY_SEC": 5}[name]
        reply = await client.produce(properties=timed(**{name: value}, TAGS="a"), body=b"later")
        assert reply.code == 0
        assert "recallHandle" in case.ext(reply)
        wanted_ms = case.clock.now_ms() + 5000 if name != "TIMER_DELIVER_MS" else wanted_ms
        answer = await client.pull(offset=0, suspendTimeoutMillis=20_000, sysFlag=6)
        assert answer.code == 0
        assert wanted_ms - 10 <= case.clock.now_ms() <= wanted_ms + 150
        (record,) = decode_records(answer.body)
        assert (record.topic, record.queue_id, record.body) == ("T", 0, b"later")
        named = decode_properties(record.properties)
        assert named["REAL_TOPIC"] == "T"
        assert named["REAL_QID"] == "0"
        assert int(named["TIMER_DEQUEUE_MS"]) >= sent_ms + 5000
        assert int(named["TIMER_ENQUEUE_MS"]) <= case.clock.now_ms()
        assert named[name] == str(value)

    run_broker(scenario)


ILLEGAL = (
    "timer message illegal, the delay time should not be bigger than the max delay 259200000ms; or if set "
    "del msg, the delay time should be bigger than the current time"
)
MAX = 2**63 - 1


@pytest.mark.parametrize(
    "named",
    [
        {"TIMER_DELAY_SEC": 3 * 86_400 + 1},
        {"TIMER_DELAY_MS": 3 * DAY_MS + 1},
        {"TIMER_DELIVER_MS": MAX},
        {"TIMER_DELAY_MS": MAX},
        {"TIMER_DELAY_SEC": MAX},
        {"TIMER_DELAY_SEC": 2**62},
        {"TIMER_DELAY_MS": MAX + 1},
        {"TIMER_DELIVER_MS": "tomorrow"},
        {"TIMER_DELIVER_MS": "1.5"},
        {"TIMER_DELIVER_MS": "１"},
        {"TIMER_DELIVER_MS": 5, "TIMER_DEL_UNIQKEY": "T+0A01"},
    ],
)
def test_what_the_timer_does_not_take_is_refused_and_not_stored(
    run_broker: Any, named: dict[str, object]
) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        end = case.broker.store.max_physical_offset
        reply = await client.produce(properties=timed(**named))
        assert (reply.code, reply.remark) == (13, ILLEGAL)
        assert case.broker.store.max_physical_offset == end

    run_broker(scenario)


@pytest.mark.parametrize(
    "named",
    [
        {"TIMER_DELIVER_MS": 5},
        {"TIMER_DELAY_MS": 0},
        {"TIMER_DELAY_MS": -1},
        {"TIMER_DELAY_SEC": -MAX - 1},
        {"TIMER_DELIVER_MS": -MAX - 1},
    ],
)
def test_a_time_that_has_passed_is_now(run_broker: Any, named: dict[str, object]) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        reply = await client.produce(properties=timed(**named))
        assert reply.code == 0
        assert "recallHandle" not in case.ext(reply)
        assert case.broker.store.max_offset("T", 0) == 1

    run_broker(scenario)


def test_a_delay_level_wins_over_the_timer(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        named = timed(DELAY=1, TIMER_DELAY_MS=60_000, TIMER_DELIVER_MS=5, TIMER_DELAY_SEC=1)
        assert (await client.produce(properties=named)).code == 0
        (record,) = stored(case.broker.store, "SCHEDULE_TOPIC_XXXX", 0)
        assert "TIMER_" not in record.properties

    run_broker(scenario)


def test_without_a_wheel_timer_messages_are_refused(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        reply = await client.produce(properties=timed(TIMER_DELAY_MS=5))
        wanted = "accurate timer message is not enabled, timerWheelEnable is false"
        assert (reply.code, reply.remark) == (1, wanted)
        assert (await client.call(60, {})).remark == "The checkpoint is null"
        assert (await client.call(61, {})).remark == "The timer message store is null"

    run_broker(scenario, store={"timer_wheel_enable": False})


def test_a_crowded_slot_refuses_some_and_then_all(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        at = case.clock.now_ms() + 60_000
        codes: list[int] = []
        for _ in range(60):
            reply = await client.produce(properties=timed(TIMER_DELIVER_MS=at))
            codes.append(reply.code)
            await asyncio.sleep(0.2)  # into the wheel
        assert codes[:6] == [0] * 6
        assert codes.count(0) <= 10
        assert "max num limit is 10 or the current value is greater than 5" in reply.remark

    run_broker(scenario, store={"timer_congest_num_each_slot": 5})


def test_messages_of_one_slot_come_when_each_is_due(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        base = case.clock.now_ms() // 1000 * 1000 + 5000
        wanted = [base, base + 1, base + 500, base + 999, base + 1000]
        for queue, at in enumerate(wanted[:4]):
            assert (await client.produce(properties=timed(TIMER_DELIVER_MS=at), e=queue)).code == 0
        for queue, at in enumerate(wanted[:4]):
            while not case.broker.store.max_offset("T", queue):
                await asyncio.sleep(0.01)
            now = case.clock.now_ms()
            assert at <= now <= at + 60, (at, now)

    run_broker(scenario)


def test_a_recalled_message_never_comes_and_others_of_its_slot_do(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        at = case.clock.now_ms() // 1000 * 1000 + 5000
        replies = [
            await client.produce(
                properties=timed(TIMER_DELIVER_MS=at) | {"UNIQ_KEY": f"K{i}"}, body=b"%d" % i
            )
            for i in range(3)
        ]
        handle = case.ext(replies[1])["recallHandle"]
        words = base64.urlsafe_b64decode(handle).decode().split(" ")
        assert words == ["v1", "T", "broker-a", str(at - 1000 + 1), "K1"]
        reply = await client.call(
            370, {"producerGroup": "pg", "topic": "T", "recallHandle": handle}
        )
        assert (reply.code, case.ext(reply)["msgId"]) == (0, "K1")
        await asyncio.sleep(8)
        assert [record.body for record in stored(case.broker.store, "T")] == [b"0", b"2"]
        assert case.broker.feature(TimerFeature).timer.timers.storage.wheel.pending == 0

    run_broker(scenario, broker={"recall_message_enable": True})


def test_a_recall_of_one_topic_takes_no_message_of_another(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        at = case.clock.now_ms() // 1000 * 1000 + 5000
        await client.produce(properties=timed(TIMER_DELIVER_MS=at) | {"UNIQ_KEY": "K"}, body=b"x")
        recall = timed(TIMER_DELIVER_MS=at) | {"UNIQ_KEY": "L", "TIMER_DEL_UNIQKEY": "T+K"}
        await client.produce("Other", properties=recall, body=b"0")
        await asyncio.sleep(8)
        assert [record.body for record in stored(case.broker.store, "T")] == [b"x"]

    run_broker(scenario)


def handle_of(*words: object) -> str:
    return base64.urlsafe_b64encode(" ".join(map(str, words)).encode()).decode()


def test_bad_recalls_are_refused_with_apaches_words(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        await client.produce()
        now = case.clock.now_ms()
        end = case.broker.store.max_physical_offset

        async def refusal(handle: str, topic: str = "T") -> tuple[int, str]:
            reply = await client.call(370, {"topic": topic, "recallHandle": handle})
            return reply.code, reply.remark

        for bad in ("x", "!!", handle_of("v1 T"), handle_of("v2", "T", "broker-a", now, "K"), "é"):
            assert await refusal(bad) == (604, "recall handle is invalid"), bad
        soon = now + 60_000
        good = handle_of("v1", "T", "broker-a", soon, "K")
        assert await refusal(good, "none") == (17, "recall failed, the topic[none] not exist")
        wrong = handle_of("v1", "U", "broker-a", soon, "K")
        assert await refusal(wrong) == (604, "recall failed, topic not match")
        wrong = handle_of("v1", "T", "broker-b", soon, "K")
        assert await refusal(wrong) == (604, "recall failed, broker service not available")
        for when in (now - 1, now + 4 * DAY_MS, "soon", 2**63, -1):
            wrong = handle_of("v1", "T", "broker-a", when, "K")
            assert await refusal(wrong) == (604, "recall failed, timestamp invalid")
        assert case.broker.store.max_physical_offset == end
        case.broker.live.update({"recallMessageEnable": "false"})
        assert await refusal(good) == (16, "recall failed, operation is forbidden")

    run_broker(scenario, broker={"recall_message_enable": True})


def test_a_long_delay_rolls_on_the_way_and_is_still_on_time(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        at = case.clock.now_ms() + 95_500
        await client.produce(properties=timed(TIMER_DELIVER_MS=at), body=b"far")
        await asyncio.sleep(94)
        assert case.broker.store.max_offset("T", 0) == 0
        await asyncio.sleep(3)
        (record,) = stored(case.broker.store, "T")
        named = decode_properties(record.properties)
        assert int(named["TIMER_ROLL_TIMES"]) >= 3
        assert record.properties.count("TIMER_DEQUEUE_MS") == 1
        assert record.body == b"far"
        assert case.broker.store.max_offset(TIMER_TOPIC, 0) == int(named["TIMER_ROLL_TIMES"]) + 1

    run_broker(scenario, store={"timer_roll_window_slots": 30})


def test_pending_messages_survive_restarts(run_broker: Any) -> None:
    state: dict[str, int] = {}

    async def first(case: Any) -> None:
        client = await case.client()
        for number in range(20):
            named = timed(TIMER_DELAY_MS=3000 + 1000 * number) | {"UNIQ_KEY": f"K{number}"}
            await client.produce(properties=named, body=b"%d" % number)
        await asyncio.sleep(10)
        state["seen"] = case.broker.store.max_offset("T", 0)
        assert 0 < state["seen"] < 20

    async def second(case: Any) -> None:  # its clock begins where the first one's began
        assert (
            case.broker.feature(TimerFeature).timer.timers.storage.wheel.pending
            == 20 - state["seen"]
        )
        await asyncio.sleep(30)
        bodies = [record.body for record in stored(case.broker.store, "T")]
        assert sorted(bodies) == sorted(b"%d" % n for n in range(20))

    run_broker(first)
    run_broker(second)


def test_operators_see_the_timer(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        for _ in range(3):
            await client.produce(properties=timed(TIMER_DELAY_SEC=60))
        await asyncio.sleep(12)
        table = json.loads((await client.call(28, {})).body)["table"]
        assert table["timerCongestNum"] == "3"
        assert table["timerOffsetBehind"] == "0"
        assert table["timerReadBehind"] in ("0", "1")
        metrics = json.loads((await client.call(61, {})).body)
        assert metrics["timingCount"]["T"]["count"] == 3
        reply = await client.call(60, {})
        values = struct.unpack(">7q", reply.body)
        assert values[2:4] == (3, 3)
        assert values[1] == 3 * 52

    run_broker(scenario)


@pytest.mark.parametrize(
    "named",
    [
        {},
        {"TIMER_OUT_MS": 1},
        {"TIMER_OUT_MS": "x", "REAL_TOPIC": "T", "REAL_QID": 0},
        {"TIMER_OUT_MS": 2**63, "REAL_TOPIC": "T", "REAL_QID": 0},
        {"TIMER_OUT_MS": 1, "REAL_TOPIC": "../../T", "REAL_QID": 0},
        {"TIMER_OUT_MS": 1, "REAL_TOPIC": TIMER_TOPIC, "REAL_QID": 0},
        {"TIMER_OUT_MS": 1, "REAL_TOPIC": "SCHEDULE_TOPIC_XXXX", "REAL_QID": 0},
        {"TIMER_OUT_MS": 1, "REAL_TOPIC": "T", "REAL_QID": "x"},
    ],
)
def test_junk_sent_to_the_timer_topic_itself_stops_nothing(
    run_broker: Any, named: dict[str, object]
) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        assert (await client.produce(TIMER_TOPIC, properties=timed(**named))).code == 0
        assert (await client.produce(properties=timed(TIMER_DELAY_MS=2000))).code == 0
        await asyncio.sleep(5)
        assert case.broker.store.max_offset("T", 0) == 1
        assert case.broker.store.max_offset(TIMER_TOPIC, 0) == 2
        assert case.broker.feature(TimerFeature).timer.timers.dropped == 1

    run_broker(scenario)
