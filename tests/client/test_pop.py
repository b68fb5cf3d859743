"""Popped messages: what is acknowledged never comes again, everything else does."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from roquette import (
    ClientError,
    ConfigError,
    MessageExpired,
    MessageSettled,
    StartFrom,
    sql,
)
from roquette.client.client import Client
from roquette.client.interceptors import Handled
from roquette.client.pop_requests import Receipt, batch_ack, kind_of, read_receipt
from roquette.errors import RemoteProtocolError
from roquette.message.message import MessageQueue, ReceivedMessage
from roquette.message.names import dlq_topic
from roquette.wire.codes import RequestCode
from roquette_testing.cluster import SimCluster, simulate

NAMESRV, A, B, CLIENT = "10.0.0.1", "10.0.1.1", "10.0.1.2", "10.0.2.1"
BOTH = {"start_from": StartFrom.FIRST, "group": "g"}


async def started(cluster: SimCluster, count: int = 10, **settings: Any) -> Client:
    await cluster.add_namesrv(NAMESRV)
    await cluster.add_broker(A, "broker-a", **settings)
    mq = await cluster.client(CLIENT)
    await mq.session.route("TBW102")
    for n in range(count):
        await mq.send(
            "orders", f"{n}", tag="even" if n % 2 == 0 else "odd", properties={"n": f"{n}"}
        )
    return mq


async def taken(jobs: Any, count: int, within_s: float = 120.0) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    async with asyncio.timeout(within_s):
        while len(found) < count:
            found.append(await anext(jobs))
    return found


async def nothing_comes(jobs: Any, for_s: float) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(for_s):
            await anext(jobs)


def bodies(jobs: list[ReceivedMessage]) -> list[bytes]:
    return sorted(job.body for job in jobs)


ALL = [f"{n}".encode() for n in range(10)]


def test_what_is_acknowledged_never_comes_again_and_the_rest_does() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await started(cluster)
        async with mq.pop("orders", **BOTH, invisible=20.0) as jobs:
            first = await taken(jobs, 10)
            assert bodies(first) == ALL
            assert all(0 < job.expires_in <= 20 for job in first)
            kept = first[:4]
            await asyncio.gather(*[job.ack() for job in first[4:]])
            assert [job.settled for job in first] == [False] * 4 + [True] * 6
            again = await taken(jobs, 4)
            assert bodies(again) == bodies(kept)
            assert {job.reconsume_times for job in again} == {1}
            assert {job.topic for job in again} == {"orders"}
            for job in kept:
                with pytest.raises(MessageExpired, match="is over"):
                    await job.ack()
            await asyncio.gather(*[job.ack() for job in again])
            await nothing_comes(jobs, 60)

    simulate(scenario)


def test_settling_twice() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await started(cluster, 2)
        async with mq.pop("orders", **BOTH) as jobs:
            one, two = await taken(jobs, 2)
            await one.ack()
            await one.ack()
            with pytest.raises(MessageSettled):
                await one.retry()
            await two.retry(after=5)
            with pytest.raises(MessageSettled):
                await two.ack()

    simulate(scenario)


def test_retry_comes_after_its_time_and_extend_delays() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await started(cluster, 2)
        loop = asyncio.get_running_loop()
        async with mq.pop("orders", **BOTH, invisible=10.0) as jobs:
            one, two = await taken(jobs, 2)
            began = loop.time()
            await one.retry(after=3)
            await two.extend(40)
            assert two.expires_in == pytest.approx(40, abs=1)
            (again,) = await taken(jobs, 1)
            assert again.body == one.body
            assert 2.5 < loop.time() - began < 12
            await again.ack()
            await nothing_comes(jobs, 20)
            await two.ack()
            await nothing_comes(jobs, 60)

    simulate(scenario)


def test_renewed_jobs_stay_and_dropped_ones_come_again() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await started(cluster, 2)
        async with mq.pop("orders", **BOTH, invisible=10.0, renew=True) as jobs:
            held, dropped = await taken(jobs, 2)
            lost = dropped.body
            del dropped
            (again,) = await taken(jobs, 1)
            assert again.body == lost
            await again.ack()
            await nothing_comes(jobs, 60)
            await held.ack()

    simulate(scenario)


def test_dead_letters_after_as_many_failures_and_by_wish() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await started(cluster, 2)
        async with mq.pop("orders", **BOTH, invisible=10.0, max_reconsume_times=1) as jobs:
            one, two = await taken(jobs, 2)
            await one.dead_letter()
            await two.retry()
            (again,) = await taken(jobs, 1)
            await again.retry()
            await nothing_comes(jobs, 60)
        dead = mq.reader(group="look")
        await mq.session.route(dlq_topic("g"))
        dead.seek(MessageQueue(dlq_topic("g"), "broker-a", 0), 0)
        found = await dead.poll() + await dead.poll()
        assert sorted(m.body for m in found) == [b"0", b"1"]
        assert {m.origin_topic for m in found} <= {"orders", "%RETRY%g_orders", "%RETRY%g+orders"}

    simulate(scenario)


@pytest.mark.parametrize("chosen", [{"tag": "even"}, {"filter": sql("n in ('0','2','4','6','8')")}])
def test_what_is_not_wanted_is_not_seen(chosen: dict[str, Any]) -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await started(cluster, enable_property_filter=True)
        async with mq.pop("orders", **BOTH, **chosen) as jobs:
            found = await taken(jobs, 5)
            assert bodies(found) == [b"0", b"2", b"4", b"6", b"8"]
            await asyncio.gather(*[job.ack() for job in found])
            await nothing_comes(jobs, 100)

    simulate(scenario)


def test_in_order_a_queue_waits_for_what_it_gave() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await started(cluster, 0)
        queue = MessageQueue("orders", "broker-a", 0)
        for n in range(6):
            await mq.send("orders", f"{n}", queue=queue)
        async with mq.pop("orders", **BOTH, invisible=20.0, batch=2, orderly=True) as jobs:
            one, two = await taken(jobs, 2)
            await one.ack()
            await nothing_comes(jobs, 10)
            await two.retry(after=1)
            seen = []
            while len(seen) < 5:
                (job,) = await taken(jobs, 1)
                seen.append(job.body)
                await job.ack()
            assert seen == [b"1", b"2", b"3", b"4", b"5"]

    simulate(scenario)


def test_what_was_not_handed_out_goes_back_at_once() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await started(cluster)
        async with mq.pop("orders", **BOTH, invisible=600.0, batch=32) as jobs:
            (first,) = await taken(jobs, 1)
        with pytest.raises(StopAsyncIteration):
            await anext(jobs)
        async with mq.pop("orders", **BOTH) as jobs:
            found = await taken(jobs, 9, within_s=40)
            assert first.body not in bodies(found)
            assert {job.reconsume_times for job in found} == {0}
            await first.ack()  # jobs live as long as their time and their client

    simulate(scenario)


def test_interceptors_hear_of_begin_and_end() -> None:
    class Told:
        def __init__(self) -> None:
            self.seen: list[tuple[bytes, bool, str]] = []

        def on_send(self, message: object, group: str) -> None:
            return None

        def on_receive(self, message: ReceivedMessage, group: str) -> Handled:
            def ended(ok: bool, error: BaseException | None) -> None:
                self.seen.append((message.body, ok, type(error).__name__))

            return ended

    async def scenario(cluster: SimCluster) -> None:
        mq = await started(cluster, 4)
        told = Told()
        mq.intercept(told)
        async with mq.pop("orders", **BOTH, invisible=5.0) as jobs:
            one, two, three, four = await taken(jobs, 4)
            await one.ack()
            await two.retry(after=100)
            await asyncio.sleep(10)
            with pytest.raises(MessageExpired):
                await three.ack()
        assert told.seen == [
            (one.body, True, "NoneType"),
            (two.body, False, "NoneType"),
            (three.body, False, "MessageExpired"),
            (four.body, False, "NoneType"),
        ]

    simulate(scenario)


class Cruel:
    """A broker that is killed, a network that eats answers, workers that are cancelled anywhere."""

    def __init__(self, messages: int) -> None:
        self.messages = messages
        self.handled: Counter[bytes] = Counter()
        self.sent: set[bytes] = set()

    async def __call__(self, cluster: SimCluster) -> None:
        rng = cluster.loop.random
        mq = await started(cluster, 0)
        for n in range(self.messages):
            await mq.send("orders", f"{n}")
            self.sent.add(f"{n}".encode())
        ips = [f"10.0.3.{n}" for n in range(1, 4)]
        lives = [cluster.loop.create_task(self.live(cluster, ip)) for ip in ips]
        for _ in range(3):
            await asyncio.sleep(rng.uniform(5, 15))
            if rng.random() < 0.5:
                cluster.kill(A)
                await asyncio.sleep(rng.uniform(0, 3))
                await cluster.restart(A)
            else:  # answers are lost on the way
                ip = rng.choice(ips)
                cluster.cut_way(A, ip)
                await asyncio.sleep(rng.uniform(1, 8))
                cluster.heal()
        for _ in range(600):
            if set(self.handled) >= self.sent:
                break
            await asyncio.sleep(1)
        assert self.sent <= set(self.handled), sorted(self.sent - set(self.handled))[:5]
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)

    async def live(self, cluster: SimCluster, ip: str) -> None:
        rng = cluster.loop.random
        mq = await cluster.client(ip)
        while True:
            async with mq.pop(
                "orders", **BOTH, invisible=8.0, batch=rng.randint(1, 8), max_reconsume_times=1_000
            ) as jobs:
                workers = [cluster.loop.create_task(self.work(cluster, jobs)) for _ in range(3)]
                for _ in range(20):
                    await asyncio.sleep(rng.uniform(0, 0.4))
                    n = rng.randrange(3)
                    workers[n].cancel()  # at whatever it awaits
                    await asyncio.gather(workers[n], return_exceptions=True)
                    workers[n] = cluster.loop.create_task(self.work(cluster, jobs))
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)

    async def work(self, cluster: SimCluster, jobs: Any) -> None:
        rng = cluster.loop.random
        async for job in jobs:
            await asyncio.sleep(rng.uniform(0, 0.05))
            try:
                match rng.randrange(6):
                    case 0:
                        await job.retry(after=rng.uniform(0, 2))
                    case 1:
                        await job.extend(rng.uniform(2, 6))
                    case _:
                        self.handled[job.body] += 1
                        await job.ack()
            except ClientError:
                pass


@pytest.mark.simulation
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_whatever_happens(seed: int) -> None:
    cruel = Cruel(200)
    simulate(cruel, seed)
    assert sum(cruel.handled.values()) >= 200


def test_receipts_read_and_written() -> None:
    text = "5 1700000000000 60000 3 2 broker-a 1 9"
    receipt = read_receipt(text)
    assert receipt.text == text
    assert read_receipt(f"{text} 4711") == receipt
    assert receipt.topic("t", "g") == "%RETRY%g+t"
    assert [kind_of(t) for t in ("t", "%RETRY%g_t", "%RETRY%g+t")] == ["0", "1", "2"]
    assert receipt.batched
    assert not receipt._replace(revive_queue=999).batched
    assert not receipt._replace(offset=5_000).batched
    for bad in ("", "1 2 3", "a 1 1 1 0 b 1 1"):
        with pytest.raises(RemoteProtocolError, match="is no receipt"):
            read_receipt(bad)
    call = batch_ack(
        "g", "t", [receipt, receipt._replace(offset=5), Receipt(0, 1, 1, 0, "0", "b", 0, 0)]
    )
    assert call.code == RequestCode.BATCH_ACK_MESSAGE
    assert call.body.count(b'"so"') == 2


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"batch": 33}, "batch=33 is not 1 to 32"),
        ({"batch": 0}, "batch=0"),
        ({"invisible": 0}, "invisible=0"),
        ({"group": "a b"}, "group"),
        ({"tag": "a > 3"}, "roquette.sql"),
        ({"start_from": 5}, "StartFrom"),
    ],
)
def test_wrong_options(words: dict[str, Any], text: str) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMESRV)
        mq = await cluster.client(CLIENT)
        with pytest.raises(ConfigError, match=text):
            mq.pop("orders", **({"group": "g"} | words))

    simulate(scenario)
