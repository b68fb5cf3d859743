"""A broker and a name server without descriptors or memory for one call, whichever: told, tried again, nothing lost."""

import asyncio
import errno

import pytest

from roquette.base.descriptors import SHORTAGE
from roquette.store.format.config import FlushDiskType
from roquette_testing.faulty_files import FaultyFiles

CALLS = ("open", "map", "open_to_sync", "allocate", "pread", "read", "list")
ROUNDS = 24


def judge(reply) -> bool:
    """Was it taken? Else the words must be those of a shortage."""
    if reply.code in (0, 10):  # FLUSH_DISK_TIMEOUT: its topic is not on the disk yet
        return reply.code == 0
    remark = reply.remark or ""
    assert "disk is full" not in remark, remark
    assert "OSError" not in remark, remark
    assert "out of" in remark or "Errno" in remark, remark
    return False


async def work(case, client, taken):
    """Sends to new and old queues, commits, a delayed and a timer message, a pop."""
    for number in range(ROUNDS):
        topic, queue_id = f"T{number % 3}", number // 3 % 4
        properties = {"UNIQ_KEY": f"K{number}", "KEYS": f"k{number}"}
        if number % 8 == 5:
            properties["DELAY"] = "1"
        elif number % 8 == 7:
            properties["TIMER_DELAY_MS"] = "1500"
        body = b"%d" % number
        if judge(await client.produce(topic, body, properties=properties, e=queue_id)):
            taken.append((topic, queue_id, body))
        if number % 5 == 4:
            commit = {"consumerGroup": "g", "topic": "T0", "queueId": 0, "commitOffset": 1}
            judge(await client.call(15, commit))
        if number % 6 == 3:
            await asyncio.sleep(1.2)  # beats: queues, offsets, tables
    reply = await client.call(11, case.pull_ext("T0", 0, 0))
    assert reply.code in (0, 19) or not judge(reply)


async def everything(case, client, taken):
    """Every message taken is in its queue."""
    seen = []
    for topic in ("T0", "T1", "T2"):
        for queue_id in range(4):
            offset = 0
            while (reply := await client.pull(topic, queue_id, offset)).code == 0:
                fields = case.ext(reply)
                offset = int(fields["nextBeginOffset"])
                seen.append(reply.body)
    everywhere = b"".join(seen)
    for topic, _, body in taken:
        assert topic.encode() in everywhere
        assert body in everywhere


@pytest.mark.promise(
    "Bounds", "EMFILE, ENFILE and ENOMEM are told as such, and nothing is given up for them"
)
@pytest.mark.parametrize("error", sorted(SHORTAGE), ids=lambda number: errno.errorcode[number])
@pytest.mark.parametrize("call", CALLS)
def test_a_broker_goes_on(run_broker, call, error):
    sync = {"flush_disk_type": FlushDiskType.SYNC_FLUSH, "segment_size": 1 << 12}
    counts = {}

    def once(nth):
        files = FaultyFiles()
        taken = []

        async def scenario(case):
            client = await case.client()
            assert (await client.produce("T0", b"first")).code == 0
            assert (await client.pull("T0")).code == 0
            before = files.calls.get(call, 0)
            if nth:
                files.fail(call, nth, error)
            await work(case, client, taken)
            await asyncio.sleep(8)
            counts[nth] = files.calls.get(call, 0) - before
            assert judge(await client.produce("T0", b"again"))
            assert case.broker.store.failure is None
            assert files.sync_error is None
            await everything(case, client, taken)

        async def later(case):
            await everything(case, await case.client(), taken)

        run_broker(scenario, store=sync, files=files)
        assert len(taken) >= ROUNDS - 2
        run_broker(later, store=sync, files=files)

    once(0)
    count = counts[0]
    shift = sorted(SHORTAGE).index(error)
    for nth in range(1 + shift, count + 1, max(1, count // 3)):
        once(nth)


def test_a_shortage_that_lasts(run_broker, caplog):
    """Nothing can be opened for 20 s: what needs no file goes on, what waits for the disk is told so, then all is well."""
    files = FaultyFiles()
    taken = []

    async def scenario(case):
        client = await case.client()
        assert (await client.produce("T0", b"first")).code == 0
        assert (await client.pull("T0")).code == 0
        for call in ("open", "open_to_sync", "map", "read", "list"):
            for nth in range(1, 3000):
                files.fail(call, nth, errno.EMFILE)
        ends = case.loop.time() + 20
        while case.loop.time() < ends:
            body = b"m%d" % len(taken)
            if judge(await client.produce("T0", body)):
                taken.append(("T0", 0, body))
            judge(await client.produce("fresh", b"x"))
            assert (await client.pull("T0")).code == 0
            await asyncio.sleep(0.5)
        files.work_again()
        assert case.broker.store.failure is None
        await asyncio.sleep(11)
        assert judge(await client.produce("fresh", b"y"))
        assert case.broker.store.synced_offset == case.broker.store.max_physical_offset
        await everything(case, client, taken)

    run_broker(scenario, store={"flush_disk_type": FlushDiskType.SYNC_FLUSH}, files=files)
    put_off = [r for r in caplog.records if "put off" in r.getMessage()]
    assert len(put_off) <= 4, "told once, not at every try"
