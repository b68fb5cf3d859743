"""SYNC_FLUSH: whoever appends asks for the sync, and an answer that promises a record waits for it."""

import asyncio

import pytest
from tests.broker.pop_frames import pop
from tests.broker.test_reply import answer_one, register, reply_ext
from tests.broker.test_transactions import COMMIT, ROLLBACK, end, end_ext, prepare

from roquette.store.format.config import FlushDiskType

LONGEST_S = 0.02  # four times what a sync of the simulation takes at most
SYNC = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}


async def watch(case, longest):
    """How long the end of the log waits for its sync, at most."""
    store = case.broker.store
    while True:
        wanted, began = store.max_physical_offset, case.loop.time()
        while store.synced_offset < wanted:
            await asyncio.sleep(0.0005)
            longest[0] = max(longest[0], case.loop.time() - began)
        await asyncio.sleep(0.0005)


async def committed(case, client):
    half = await prepare(case, client)
    await client.call(37, end_ext(half, COMMIT))


async def committed_one_way(case, client):
    half = await prepare(case, client)
    client.send(37, end_ext(half, COMMIT), oneway=True)


async def rolled_back(case, client):
    half = await prepare(case, client)
    client.send(37, end_ext(half, ROLLBACK), oneway=True)


async def checked(case, client):
    await register(client)
    await prepare(case, client)
    await asyncio.sleep(5)


async def discarded(case, client):
    await prepare(case, client)
    await asyncio.sleep(20)


async def delayed(case, client):
    await client.produce(properties={"DELAY": "1"})
    await asyncio.sleep(3)


async def timed(case, client):
    await client.produce(properties={"TIMER_DELAY_MS": "1500"})
    await asyncio.sleep(4)


async def sent_back(case, client):
    reply = await client.produce()
    offset = int(case.ext(reply)["msgId"][-16:], 16)
    ext = {"offset": offset, "group": "g", "delayLevel": 1, "originMsgId": "x", "originTopic": "T"}
    client.send(36, ext, oneway=True)
    await asyncio.sleep(3)


async def not_waited_for(case, client):
    await client.produce(properties={"WAIT": "false"})


async def one_way(case, client):
    client.send(310, case.send_ext("T"), b"1", oneway=True)


async def replied(case, client):
    await register(client)
    client.send(325, reply_ext(), b"yes")
    await answer_one(client)


async def revived(case, client):
    await client.produce()
    assert await pop(case, client, invisibleTime=1000)
    await asyncio.sleep(6)


async def acknowledged(case, client):
    await client.produce()
    [message] = await pop(case, client)
    client.send(200051, message.ack_ext(), oneway=True)


WRITERS = (
    committed, committed_one_way, rolled_back, checked, discarded, delayed, timed, sent_back, not_waited_for, one_way,
    replied, revived, acknowledged,
)  # fmt: skip


@pytest.mark.promise("Answers", "under SYNC_FLUSH whatever appends asks for the sync")
@pytest.mark.parametrize("write", WRITERS)
def test_whoever_appends_asks_for_the_sync(run_broker, write):
    longest = [0.0]

    async def scenario(case):
        client = await case.client()
        watcher = asyncio.ensure_future(watch(case, longest))
        await write(case, client)
        await asyncio.sleep(1)
        watcher.cancel()
        assert case.broker.store.synced_offset == case.broker.store.max_physical_offset

    quick = {
        "transaction_time_out": 500, "transaction_check_interval": 1000, "transaction_check_max": 2
    }  # fmt: skip
    run_broker(scenario, broker=quick, store=SYNC | {"flush_interval_ms": 100_000})
    assert 0 < longest[0] <= LONGEST_S


@pytest.mark.parametrize("kind", [COMMIT, ROLLBACK])
def test_an_end_is_answered_when_it_is_on_the_disk(run_broker, kind):
    async def scenario(case):
        client = await case.client()
        half = await prepare(case, client)
        assert (await end(client, half, kind)).code == 0
        assert case.broker.store.synced_offset == case.broker.store.max_physical_offset

    run_broker(scenario, store=SYNC)
