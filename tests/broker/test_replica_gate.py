"""A SYNC_MASTER's answers wait until the replicas have what they speak of."""

import asyncio

from tests.broker.conftest import send_ext
from tests.broker.test_transactions import COMMIT, end, prepare

from roquette.store.format.config import FlushDiskType
from roquette.wire.codes import ResponseCode

SYNC_MASTER = {"broker_role": "SYNC_MASTER", "in_sync_replicas": 2, "slave_timeout": 400}


def test_an_answer_leaves_when_replicas_have_it(run_broker):
    async def scenario(case):
        client = await case.client()
        core = case.broker.core
        sent = asyncio.ensure_future(client.produce())
        await asyncio.sleep(0.2)
        assert not sent.done()
        core.log_sync.replicated(core.store.max_physical_offset - 1)
        await asyncio.sleep(0.1)
        assert not sent.done()
        core.log_sync.replicated(core.store.max_physical_offset)
        assert (await sent).code == 0

    run_broker(scenario, broker=SYNC_MASTER)


def test_without_replicas_in_time_it_says_so_and_keeps_the_message(run_broker):
    async def scenario(case):
        client = await case.client()
        began = case.loop.time()
        reply = await client.produce()
        assert reply.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert case.ext(reply)["queueOffset"] == "0"
        assert 0.4 <= case.loop.time() - began < 0.7
        assert (await client.produce(properties={"WAIT": "false"})).code == 0
        assert (await client.pull()).code == 0

    run_broker(scenario, broker=SYNC_MASTER)


def test_what_may_wait_for_a_replica_that_stands_still_is_bounded(run_broker):
    async def scenario(case):
        client, core = await case.client(), case.broker.core
        core.tables.topics.ensure("T", queues=4, perm=6, now_ms=0)
        for _ in range(8):
            client.send(310, send_ext("T"), bytes(200_000))
        refused = [await client.receive() for _ in range(2)]
        assert {reply.code for reply in refused} == {ResponseCode.SYSTEM_BUSY}
        assert "maxWaitingSendBytes" in refused[0].remark
        assert refused[0].remark.startswith("[REJECTREQUEST]system busy, start flow control")
        batch = await client.call(320, send_ext("T", m="true"), bytes(100))
        assert batch.code == ResponseCode.SYSTEM_BUSY
        core.log_sync.replicated(core.store.max_physical_offset)
        assert {(await client.receive()).code for _ in range(6)} == {0}
        core.log_sync.replicated(1 << 40)
        assert (await client.produce()).code == 0
        client.send(310, send_ext("T"), bytes(200_000))
        assert not core.log_sync.full

    run_broker(
        scenario, broker=SYNC_MASTER | {"max_waiting_send_bytes": 1 << 20, "slave_timeout": 9_000}
    )


def test_first_sends_to_topics_count_while_they_wait(run_broker):
    async def scenario(case):
        client, core = await case.client(), case.broker.core
        for number in range(6):
            client.send(310, send_ext(f"first-{number}"), bytes(200_000))
        while not core.log_sync.full:
            await asyncio.sleep(0.1)
        assert (await client.produce()).code == ResponseCode.SYSTEM_BUSY
        core.log_sync.replicated(1 << 40)
        assert {(await client.receive()).code for _ in range(6)} == {0}
        assert not core.log_sync.full and not core.log_sync.in_flight

    run_broker(
        scenario, broker=SYNC_MASTER | {"max_waiting_send_bytes": 1 << 20, "slave_timeout": 9_000}
    )


def test_disk_and_replicas_are_both_waited_for(run_broker):
    async def scenario(case):
        client = await case.client()
        core = case.broker.core
        core.log_sync.replicated(1 << 40)
        assert (await client.produce()).code == 0
        assert core.store.synced_offset == core.store.max_physical_offset

    run_broker(scenario, broker=SYNC_MASTER, store={"flush_disk_type": FlushDiskType.SYNC_FLUSH})


def test_the_end_of_a_transaction_waits_too(run_broker):
    async def scenario(case):
        client = await case.client()
        core = case.broker.core
        prepared = asyncio.ensure_future(prepare(case, client))
        await asyncio.sleep(0.1)
        core.log_sync.replicated(core.store.max_physical_offset)
        half = await prepared
        ended = asyncio.ensure_future(end(client, half, COMMIT))
        await asyncio.sleep(0.2)
        assert not ended.done()
        core.log_sync.replicated(core.store.max_physical_offset)
        assert (await ended).code == 0

    run_broker(scenario, broker=SYNC_MASTER)


def test_with_too_few_replicas_messages_are_refused_or_say_so(run_broker):
    async def scenario(case):
        client = await case.client()
        core = case.broker.core
        core.replicas.refusal = "in-sync replicas not enough"
        reply = await client.produce()
        assert (reply.code, reply.remark) == (1, "in-sync replicas not enough")
        assert core.store.max_physical_offset == 0
        core.replicas.refusal = None
        core.replicas.receipt = ResponseCode.SLAVE_NOT_AVAILABLE
        core.log_sync.replicated(1 << 40)
        reply = await client.produce()
        assert reply.code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert core.store.max_physical_offset > 0

    run_broker(scenario, broker=SYNC_MASTER)
