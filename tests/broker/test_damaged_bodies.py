"""A body that the disk has changed is not copied with a fresh CRC, whichever way the broker copies messages."""

import asyncio

import pytest
from tests.broker.pop_frames import pop_ext
from tests.broker.test_transactions import end, prepare, stored

from roquette.message.record import decode_records

BODY = b"a body that the disk changes"


def spoil(case, physical_offset: int) -> None:
    """One bit of the body behind an offset of the log is another."""
    log = case.broker.store._log
    log.write_pending()
    segment = log.find_segment(physical_offset)
    at = physical_offset - segment.base_offset
    place = at + segment.pread(400, at).index(BODY)
    segment.file.pwrite(bytes([BODY[0] ^ 1]), place)


async def bodies(client, topic, **more):
    reply = await client.pull(topic, **more)
    return [record.body for record in decode_records(reply.body)] if reply.code == 0 else []


@pytest.mark.promise("Damage", "the broker copies no body that does not match its CRC")
def test_a_returned_message(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce(body=BODY)
        [record] = decode_records((await client.pull("T")).body)
        spoil(case, record.physical_offset)
        header = {
            "offset": record.physical_offset,
            "group": "g",
            "delayLevel": -1,
            "originTopic": "T",
        }
        reply = await client.call(36, header)
        assert (reply.code, "damaged" in reply.remark) == (1, True)
        assert await bodies(client, "%DLQ%g") == []

    run_broker(scenario)


def test_a_delayed_message_stops_nobody_behind_it(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce(body=BODY, properties={"DELAY": "1"})
        place = case.broker.store.queue_units("SCHEDULE_TOPIC_XXXX", 0, 0, 1)[0][0]
        spoil(case, place)
        await client.produce(body=b"next", properties={"DELAY": "1"})
        await asyncio.sleep(3)
        assert await bodies(client, "T") == [b"next"]

    run_broker(scenario)


def test_a_delayed_message_with_another_size_stops_nobody_behind_it(run_broker):
    """Its neighbours are read together with it."""

    async def scenario(case):
        client = await case.client()
        for body in (b"first", BODY, b"next", b"last"):
            await client.produce(body=body, properties={"DELAY": "1"})
        store = case.broker.store
        place = store.queue_units("SCHEDULE_TOPIC_XXXX", 0, 1, 1)[0][0]
        store._log.write_pending()
        store._log.find_segment(place).file.pwrite(b"X", place + 3)
        await asyncio.sleep(3)
        assert await bodies(client, "T") == [b"first", b"next", b"last"]

    run_broker(scenario)


@pytest.mark.promise("Damage", "the broker copies no body that does not match its CRC")
def test_a_half_message_is_not_committed(run_broker):
    async def scenario(case):
        client = await case.client()
        half = await prepare(case, client, body=BODY)
        spoil(case, half.physical)
        reply = await end(client, half, 8)
        assert reply.code != 0
        assert await stored(client) == []

    run_broker(scenario)


def test_a_popped_message_that_is_not_acknowledged(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce(body=BODY)
        await client.produce(body=b"next")
        [first, _] = decode_records((await client.pull("T", queue_id=0)).body)
        await client.call(200050, pop_ext(case.clock.now_ms(), queueId=0))
        spoil(case, first.physical_offset)
        await asyncio.sleep(15)
        reply = await client.call(200050, pop_ext(case.clock.now_ms(), queueId=0))
        assert [record.body for record in decode_records(reply.body)] == [b"next"]

    run_broker(scenario)
