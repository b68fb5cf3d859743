"""Half messages that Apache's broker has put again: one transaction, whichever of them is ended, and how often."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.promise_cases import BROKER, World
from tests.broker.test_transactions import COMMIT, HALF, ROLLBACK, end, prepare

from roquette.broker.transactions.feature import TransactionFeature
from roquette.message.properties import decode_properties
from roquette.message.record_layout import draft_of
from roquette_testing.cluster import SimCluster, simulate

ORIGINAL, FIRST, SECOND = 0, 1, 2


def put_again(w: World, half: Any, times: int) -> Any:
    """What TransactionalMessageServiceImpl.putBackHalfMsgQueue does: no word of where it came from."""
    transactions = w.broker.feature(TransactionFeature).transactions
    record = transactions.find(half.physical)
    named = decode_properties(record.properties) | {"TRANSACTION_CHECK_TIMES": str(times)}
    draft = draft_of(record)
    draft.prepared_offset = 0
    done = transactions._append(draft, named, w.clock.now_ms())
    return SimpleNamespace(
        key=half.key, physical=done.physical_offset, queue_offset=done.queue_offset
    )


@pytest.mark.promise(
    "Answers", "a half message ends once, also after Apache's broker has put it again"
)
@pytest.mark.parametrize("delay", [{}, {"DELAY": "1"}])
@pytest.mark.parametrize("passed", [False, True])
@pytest.mark.parametrize("kind", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("first", [ORIGINAL, FIRST, SECOND])
def test_a_transaction_ends_once(
    first: int, kind: int, passed: bool, delay: dict[str, str]
) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_broker(
            BROKER, "broker-a", name_servers="", transaction_check_interval=3_600_000
        )
        w = World(cluster)
        await w.connect()
        half = await prepare(w, w.client, properties=delay)
        other = await prepare(w, w.client, "k2")
        halves = [half, put_again(w, half, 1), put_again(w, half, 2)]
        if passed:  # the progress that Apache's broker leaves
            w.broker.tables.offsets.commit("CID_RMQ_SYS_TRANS", HALF, 0, 3, w.clock.now_ms())
        await asyncio.sleep(0.2)

        async def restart() -> None:
            await cluster.stop(BROKER)
            await cluster.restart(BROKER)
            await w.connect()

        await restart()
        assert (await end(w.client, halves[first], kind)).code == 0
        for each in halves:
            assert (await end(w.client, each, COMMIT)).code == 1
        await restart()
        for each in halves:
            assert (await end(w.client, each, COMMIT)).code == 1
        await asyncio.sleep(3)
        assert await w.bodies("T", 1) == ([b"hello"] if kind == COMMIT else [])
        if not passed:
            assert (await end(w.client, other, COMMIT)).code == 0

    simulate(scenario)


def test_a_commit_that_a_crash_parted_from_the_ends_of_the_copies_is_not_repeated() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_broker(
            BROKER, "broker-a", name_servers="", transaction_check_interval=3_600_000
        )
        w = World(cluster)
        await w.connect()
        half = await prepare(w, w.client)
        copy = put_again(w, half, 1)
        assert (await end(w.client, half, COMMIT)).code == 0  # it knows nothing of the copy
        cluster.kill(BROKER)
        await cluster.restart(BROKER)
        await w.connect()
        assert (await end(w.client, copy, COMMIT)).code == 1
        assert await w.bodies("T", 1) == [b"hello"]

    simulate(scenario)
