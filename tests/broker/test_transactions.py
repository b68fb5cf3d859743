"""Transactions as frames: half messages, their ends, checks, and every refusal with its code and text."""

import asyncio
from pathlib import Path

import pytest

from roquette.broker.transactions.feature import TransactionFeature
from roquette.message.properties import decode_properties
from roquette.message.record import decode_record, decode_records
from roquette.store.format.config import FlushDiskType

HALF, OP, LOST = (
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
)
SYSTEM_ERROR = 1
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
QUICK = {
    "transaction_time_out": 2000,
    "transaction_check_interval": 1000,
    "transaction_check_max": 3,
}


class Half:
    """A half message as its producer knows it."""

    def __init__(self, ext, key):
        self.key = key
        self.queue_offset = int(ext["queueOffset"])
        self.physical = int(ext["msgId"][-16:], 16)
        self.queue_id = int(ext["queueId"])


async def prepare(case, client, key="k1", *, body=b"hello", group="pg", properties=None, **header):
    named = {"UNIQ_KEY": key, "TRAN_MSG": "true", "PGROUP": group, "WAIT": "true"}
    header = {"g": case.clock.now_ms(), "f": 4, "e": 1} | header
    reply = await client.produce(properties=named | (properties or {}), body=body, **header)
    assert reply.code == 0, reply.remark
    return Half(case.ext(reply), key)


def end_ext(half, kind, **changes):
    return {
        "producerGroup": "pg",
        "tranStateTableOffset": half.queue_offset,
        "commitLogOffset": half.physical,
        "commitOrRollback": kind,
        "fromTransactionCheck": "false",
        "msgId": half.key,
        "transactionId": half.key,
    } | changes


async def end(client, half, kind, **changes):
    return await client.call(37, end_ext(half, kind, **changes))


async def register(client, group="pg", client_id="c1"):
    body = b'{"clientID":"%b","producerDataSet":[{"groupName":"%b"}],"consumerDataSet":[]}'
    reply = await client.call(34, {}, body % (client_id.encode(), group.encode()))
    assert reply.code == 0


async def stored(client, topic="T", queue_id=0):
    reply = await client.pull(topic, queue_id, suspendTimeoutMillis=0, sysFlag=4)
    return decode_records(reply.body, True) if reply.code == 0 else []


async def checks(client):
    """The CHECK_TRANSACTION_STATE requests that have come."""
    found = []
    while True:
        try:
            command = await asyncio.wait_for(client.receive(), 0.01)
        except TimeoutError:
            return found
        if not command.is_response and command.code == 39:
            found.append(command)


def test_a_half_message_is_hidden_until_it_is_committed(run_broker):
    async def scenario(case):
        client = await case.client()
        half = await prepare(case, client, properties={"TAGS": "A", "KEYS": "order"}, d=4)
        assert half.queue_id == 1 and half.queue_offset == 0
        assert await stored(client, "T", 1) == []
        [kept] = await stored(client, HALF)
        named = decode_properties(kept.properties)
        assert (named["REAL_TOPIC"], named["REAL_QID"]) == ("T", "1")
        assert named["__transactionId__"] == "k1"
        assert kept.sys_flag & 0xC == 0

        reply = await end(client, half, COMMIT)

        assert (reply.code, reply.remark) == (0, None)
        [message] = await stored(client, "T", 1)
        assert message.body == b"hello"
        assert message.sys_flag & 0xC == 8
        assert message.prepared_offset == half.physical
        assert message.born_timestamp_ms == kept.born_timestamp_ms
        del named["REAL_TOPIC"], named["REAL_QID"]
        assert decode_properties(message.properties) == named  # as Apache: TRAN_MSG stays
        [op] = await stored(client, OP)
        assert op.body == b"0," and decode_properties(op.properties)["TAGS"] == "d"
        assert op.physical_offset == message.physical_offset + message.size

    run_broker(scenario)


def test_rolled_back_means_never_seen(run_broker):
    async def scenario(case):
        client = await case.client()
        await register(client)
        half = await prepare(case, client)
        assert (await end(client, half, ROLLBACK)).code == 0
        await asyncio.sleep(20)
        assert await checks(client) == []
        assert await stored(client, "T", 1) == []
        assert [op.body for op in await stored(client, OP)] == [b"0,"]

    run_broker(scenario, broker=QUICK)


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"commitLogOffset": 1 << 40}, "Find prepared transaction message failed"),
        ({"commitLogOffset": -1}, "Find prepared transaction message failed"),
        ({"commitLogOffset": 17}, "Find prepared transaction message failed"),
        ({"producerGroup": "other"}, "The producer group wrong"),
        ({"tranStateTableOffset": 3}, "The transaction state table offset wrong"),
    ],
)
@pytest.mark.parametrize("kind", [COMMIT, ROLLBACK])
def test_an_end_that_names_another_message_is_refused(run_broker, changes, remark, kind):
    async def scenario(case):
        client = await case.client()
        half = await prepare(case, client)
        size = case.broker.store.max_physical_offset
        reply = await end(client, half, kind, **changes)
        assert (reply.code, reply.remark) == (SYSTEM_ERROR, remark)
        assert case.broker.store.max_physical_offset == size
        assert (await end(client, half, COMMIT)).code == 0

    run_broker(scenario)


def test_an_end_needs_its_fields(run_broker):
    async def scenario(case):
        client = await case.client()
        half = await prepare(case, client)
        for field in ("producerGroup", "tranStateTableOffset", "commitOrRollback", "msgId"):
            ext = end_ext(half, COMMIT)
            del ext[field]
            assert (await client.call(37, ext)).code == SYSTEM_ERROR
        assert await stored(client, "T", 1) == []

    run_broker(scenario)


def test_a_committed_message_is_no_half_message(run_broker):
    """Apache takes any record that carries the group, and commits the committed one again."""

    async def scenario(case):
        client = await case.client()
        half = await prepare(case, client)
        await end(client, half, COMMIT)
        [message] = await stored(client, "T", 1)
        changes = {"commitLogOffset": message.physical_offset, "tranStateTableOffset": 0}
        reply = await end(client, half, COMMIT, **changes)
        assert reply.remark == "Find prepared transaction message failed"
        assert len(await stored(client, "T", 1)) == 1

    run_broker(scenario)


def test_a_half_message_ends_once(run_broker):
    async def scenario(case):
        client = await case.client()
        half = await prepare(case, client)
        assert (await end(client, half, COMMIT)).code == 0
        for kind in (COMMIT, ROLLBACK):
            reply = await end(client, half, kind)
            assert reply.code == SYSTEM_ERROR
            assert reply.remark == "The half message has been committed already"
        assert len(await stored(client, "T", 1)) == 1
        assert len(await stored(client, OP)) == 1
        half = await prepare(case, client, "k2")
        assert (await end(client, half, ROLLBACK)).code == 0
        reply = await end(client, half, COMMIT)
        assert reply.remark == "The half message has been rolled back or discarded already"

    run_broker(scenario)


def test_whoever_does_not_know_gets_no_answer(run_broker):
    async def scenario(case):
        client = await case.client()
        half = await prepare(case, client)
        for kind in (UNKNOWN, 4, 99):
            client.send(37, end_ext(half, kind))
        opaque = client.send(37, end_ext(half, COMMIT))
        reply = await client.receive()
        assert reply.opaque == opaque

    run_broker(scenario)


def test_an_old_half_message_is_checked_until_its_producer_knows(run_broker):
    async def scenario(case):
        client = await case.client()
        await register(client)
        half = await prepare(case, client, properties={"TAGS": "A"}, h=0, d=4)
        await asyncio.sleep(1.9)
        assert await checks(client) == []
        await asyncio.sleep(1.3)
        [check] = await checks(client)
        ext = case.ext(check)
        assert check.flag & 2  # one way
        assert (ext["topic"], ext["msgId"], ext["transactionId"]) == ("T", "k1", "k1")
        assert ext["bname"] == "broker-a"
        again = Half(
            {
                "queueOffset": ext["tranStateTableOffset"],
                "msgId": ext["offsetMsgId"],
                "queueId": "1",
            },
            "k1",
        )
        assert again.physical == int(ext["commitLogOffset"])
        assert (again.queue_offset, again.physical) != (half.queue_offset, half.physical)
        message = decode_record(check.body, 0, True)
        assert (message.topic, message.queue_id, message.body) == ("T", 1, b"hello")
        named = decode_properties(message.properties)
        assert named["TRANSACTION_CHECK_TIMES"] == "1" and named["PGROUP"] == "pg"

        client.send(37, end_ext(again, COMMIT, fromTransactionCheck="true"), oneway=True)
        await asyncio.sleep(10)

        assert await checks(client) == []
        assert [m.body for m in await stored(client, "T", 1)] == [b"hello"]
        # What the producer says of the first copy now comes too late to count again.
        assert "already" in (await end(client, half, COMMIT)).remark

    run_broker(scenario, broker=QUICK)


def test_an_end_that_names_a_message_put_again_ends_its_copy(run_broker):
    """Apache commits it, and after the next check a second time."""

    async def scenario(case):
        client = await case.client()
        await register(client)
        half = await prepare(case, client)
        await asyncio.sleep(4.5)
        assert len(await checks(client)) == 2
        assert (await end(client, half, COMMIT)).code == 0
        await asyncio.sleep(10)
        assert await checks(client) == []
        assert len(await stored(client, "T", 1)) == 1

    run_broker(scenario, broker=QUICK)


@pytest.mark.parametrize("online", [True, False])
def test_one_that_nobody_ends_becomes_visible(run_broker, online):
    async def scenario(case):
        client = await case.client()
        if online:
            await register(client)
        await prepare(case, client, properties={"TAGS": "A"}, h=7)
        await asyncio.sleep(10)
        assert len(await checks(client)) == (3 if online else 0)
        [record] = await stored(client, LOST)
        named = decode_properties(record.properties)
        assert record.body == b"hello" and record.flag == 7
        assert (named["REAL_TOPIC"], named["TRANSACTION_CHECK_TIMES"]) == ("T", "3")
        half_end = case.broker.store.max_offset(HALF, 0)
        await asyncio.sleep(10)
        assert case.broker.store.max_offset(HALF, 0) == half_end == 4
        route = await client.call(351, {"topic": LOST})
        assert route.code == 0

    run_broker(scenario, broker=QUICK)


def test_one_older_than_the_log_keeps_is_discarded_unasked(run_broker):
    async def scenario(case):
        client = await case.client()
        await register(client)
        await prepare(case, client)
        case.loop.stall(3_590)  # at once: a broker's hour of virtual time is 8 CPU seconds
        await asyncio.sleep(1)
        client = await case.client()
        assert await stored(client, LOST) == []
        await asyncio.sleep(15)
        assert await checks(client) == []
        assert len(await stored(client, LOST)) == 1

    slow = {"transaction_time_out": 3_700_000}
    run_broker(scenario, broker=QUICK | slow, store={"file_reserved_hours": 1})


def test_its_own_immunity_delays_the_check_and_then_only_a_check_ends_it(run_broker):
    async def scenario(case):
        client = await case.client()
        await register(client)
        own = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "8"}
        slow = await prepare(case, client, "slow", properties=own)
        quick = await prepare(case, client, "quick")
        await asyncio.sleep(5)
        assert {case.ext(c)["msgId"] for c in await checks(client)} == {"quick"}
        assert (await end(client, quick, COMMIT)).code == 0
        await asyncio.sleep(3.5)
        reply = await end(client, slow, COMMIT)
        assert (reply.code, reply.remark) == (604, None)
        await asyncio.sleep(1)
        [check] = await checks(client)
        ext = case.ext(check)
        last = Half(
            {
                "queueOffset": ext["tranStateTableOffset"],
                "msgId": ext["offsetMsgId"],
                "queueId": "1",
            },
            "slow",
        )
        assert (await end(client, last, COMMIT, fromTransactionCheck="true")).code == 0
        assert len(await stored(client, "T", 1)) == 2

    run_broker(scenario, broker=QUICK)


def test_checks_go_round_the_connections_of_the_group(run_broker):
    async def scenario(case):
        clients = [await case.client() for _ in range(3)]
        for number, client in enumerate(clients):
            await register(client, client_id=f"c{number}")
        other = await case.client()
        await register(other, group="another", client_id="c9")
        for number in range(9):
            await prepare(case, other, f"k{number}")
        clients[2].writer.close()
        await asyncio.sleep(3.5)
        counts = [len(await checks(client)) for client in clients[:2]]
        assert sum(counts) == 9 and min(counts) >= 4
        assert await checks(other) == []

    run_broker(scenario, broker=QUICK)


def test_a_discarded_message_can_be_checked_again_once(run_broker):
    async def scenario(case):
        client = await case.client()
        half = await prepare(case, client)
        await asyncio.sleep(10)
        [lost] = await stored(client, LOST)
        await register(client)
        message_id = lost.store_host.hex().upper() + f"{lost.physical_offset:016X}"

        reply = await client.call(323, {"topic": LOST, "msgId": message_id})
        assert reply.code == 0
        again = await client.call(323, {"topic": LOST, "msgId": message_id})
        assert (again.code, again.remark) == (
            1,
            "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed.",
        )

        await asyncio.sleep(3)
        [check] = await checks(client)
        ext = case.ext(check)
        assert (
            decode_properties(decode_record(check.body, 0, True).properties)[
                "TRANSACTION_CHECK_TIMES"
            ]
            == "1"
        )
        last = Half(
            {
                "queueOffset": ext["tranStateTableOffset"],
                "msgId": ext["offsetMsgId"],
                "queueId": "1",
            },
            half.key,
        )
        assert (await end(client, last, COMMIT, fromTransactionCheck="true")).code == 0
        assert len(await stored(client, "T", 1)) == 1

    run_broker(scenario, broker=QUICK)


def test_only_half_messages_can_be_checked_again(run_broker):
    async def scenario(case):
        client = await case.client()
        reply = await client.produce()
        texts = [case.ext(reply)["msgId"], "", "xyz", "0A00000100002A9F" + "7" * 16, "/" * 32]
        for text in texts:
            reply = await client.call(323, {"topic": "T", "msgId": text})
            assert reply.code == 1
            assert reply.remark == (
                "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."
            )
        assert case.broker.store.max_offset(HALF, 0) == 0

    run_broker(scenario)


def test_a_delay_begins_when_it_is_committed(run_broker):
    """Apache delays the half message itself, and then cannot find where it belongs."""

    async def scenario(case):
        client = await case.client()
        half = await prepare(case, client, properties={"DELAY": "1"})
        await asyncio.sleep(3)
        assert (await end(client, half, COMMIT)).code == 0
        assert await stored(client, "T", 1) == []
        await asyncio.sleep(1.5)
        [message] = await stored(client, "T", 1)
        named = decode_properties(message.properties)
        assert message.body == b"hello" and "TRAN_MSG" not in named
        assert (await end(client, half, COMMIT)).code == 1

    run_broker(scenario)


def test_a_timer_begins_when_it_is_committed(run_broker):
    async def scenario(case):
        client = await case.client()
        half = await prepare(case, client, properties={"TIMER_DELAY_SEC": "3"})
        await asyncio.sleep(4)
        assert (await end(client, half, COMMIT)).code == 0
        await asyncio.sleep(2)
        assert await stored(client, "T", 1) == []
        await asyncio.sleep(2.5)
        assert [m.body for m in await stored(client, "T", 1)] == [b"hello"]

    run_broker(scenario)


def test_half_messages_can_be_refused(run_broker):
    async def scenario(case):
        client = await case.client()
        named = {"UNIQ_KEY": "k", "TRAN_MSG": "true", "PGROUP": "pg"}
        reply = await client.produce(properties=named)
        assert (reply.code, reply.remark) == (
            16,
            "the broker[10.0.0.1] sending transaction message is forbidden",
        )
        assert case.broker.store.max_physical_offset == 0

    run_broker(scenario, broker={"reject_transaction_message": True})


@pytest.mark.parametrize("topic", [HALF, OP, LOST])
def test_nobody_sends_to_the_transaction_topics(run_broker, topic):
    async def scenario(case):
        client = await case.client()
        reply = await client.produce(topic, properties={"TRAN_MSG": "true", "PGROUP": "pg"})
        assert (reply.code, reply.remark) == (
            16,
            f"Sending message to topic[{topic}] is forbidden.",
        )

    run_broker(scenario)


def test_a_half_message_waits_for_the_disk_and_is_checked_only_from_it(run_broker):
    async def scenario(case):
        client = await case.client()
        await register(client)
        half = await prepare(case, client)
        assert case.broker.store.synced_offset > half.physical
        await asyncio.sleep(3.5)
        assert len(await checks(client)) == 1

    run_broker(scenario, broker=QUICK, store={"flush_disk_type": FlushDiskType.SYNC_FLUSH})


def test_progress_and_what_has_ended_survive_a_restart(run_broker):
    halves = []

    async def first(case):
        client = await case.client()
        for number in range(40):
            halves.append(await prepare(case, client, f"k{number}"))
        for half in halves[::2]:
            await end(client, half, COMMIT)
        await asyncio.sleep(1.5)
        offsets = case.broker.tables.offsets
        assert offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) == 1

    async def second(case):
        client = await case.client()
        await register(client)
        assert "already" in (await end(client, halves[0], COMMIT)).remark
        assert "already" in (await end(client, halves[2], ROLLBACK)).remark
        assert (await end(client, halves[1], ROLLBACK)).code == 0
        await asyncio.sleep(4.5)
        keys = [case.ext(c)["msgId"] for c in await checks(client)]
        assert sorted(set(keys)) == sorted(half.key for half in halves[3::2])

    run_broker(first, broker=QUICK)
    run_broker(second, broker=QUICK)


def test_a_discarded_topic_that_the_tables_forgot_is_there_again(run_broker):
    async def first(case):
        client = await case.client()
        await prepare(case, client)
        await asyncio.sleep(10)
        case.broker.tables.topics.changed.clear()  # forgotten, not deleted
        case.broker.tables.topics.delete(LOST, 0)

    async def second(case):
        client = await case.client()
        assert len(await stored(client, LOST)) == 1

    run_broker(first, broker=QUICK)
    run_broker(second, broker=QUICK)


def cut_after(case, end_offset):
    """What a kill in the middle of a write leaves: the log ends at a record's end, no clean stop."""
    store = case.broker.store
    segment = store._log.active
    path = segment.file.path
    return path, end_offset - segment.base_offset, Path(store.layout.root)


def make_crash(path, position, root):
    with open(path, "r+b") as file:
        size = file.seek(0, 2)
        file.seek(position)
        file.write(bytes(size - position))
    (root / "abort").touch()
    (root / "checkpoint").unlink()  # it would say that the log was longer
    for file in (root / "config").glob("consumerOffset.json*"):
        file.unlink()  # progress is never ahead of the log, here it would be


@pytest.mark.parametrize("kind", ["commit", "copy", "discard"])
def test_an_op_message_that_a_crash_cut_off_is_written_again(run_broker, kind):
    """The log ends between what goes on and its op message: the half message must not end twice."""
    cut = []
    settings = QUICK | {"transaction_check_max": 1}

    async def first(case):
        client = await case.client()
        await prepare(case, client, "before")
        half = await prepare(case, client)
        if kind == "commit":
            await end(client, half, COMMIT)
        else:
            await asyncio.sleep(3.2 if kind == "copy" else 4.5)
        ops = await stored(client, OP)
        topic, queue = {"commit": ("T", 1), "copy": (HALF, 0), "discard": (LOST, 0)}[kind]
        last = (await stored(client, topic, queue))[-1]
        [op] = [op for op in ops if op.physical_offset == last.physical_offset + last.size]
        cut.extend(cut_after(case, op.physical_offset))

    async def second(case):
        client = await case.client()
        op = (await stored(client, OP))[-1]
        last = case.broker.feature(TransactionFeature).transactions.record_at(op.physical_offset)
        assert last.physical_offset + last.size == case.broker.store.max_physical_offset
        await asyncio.sleep(10)
        ended = await stored(client, LOST)
        assert len(await stored(client, "T", 1)) == (1 if kind == "commit" else 0)
        keys = sorted(decode_properties(r.properties)["UNIQ_KEY"] for r in ended)
        assert keys == (["before"] if kind == "commit" else ["before", "k1"])

    run_broker(first, broker=settings)
    make_crash(*cut)
    run_broker(second, broker=settings)


def test_a_crash_after_the_half_message_itself_changes_nothing(run_broker):
    cut = []

    async def first(case):
        client = await case.client()
        await prepare(case, client, "k0")
        await prepare(case, client, "k1")
        cut.extend(cut_after(case, case.broker.store.max_physical_offset))

    async def second(case):
        assert case.broker.store.max_offset(OP, 0) == 0
        assert case.broker.feature(TransactionFeature).transactions.state.next_open(0, 2) == 0

    run_broker(first)
    make_crash(*cut)
    run_broker(second)
