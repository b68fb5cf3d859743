"""Groups in virtual time: sharing, failing, coming back, order, offsets."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from roquette import StartFrom, by_config
from roquette.client import calls
from roquette.client.calls import Call
from roquette.client.client import Client
from roquette.client.consumer import Consumer
from roquette.client.consumer_options import subscription
from roquette.errors import BrokerError, ConfigError
from roquette.message.message import MessageQueue, ReceivedMessage
from roquette.wire.codes import RequestCode
from roquette.wire.headers import UpdateConsumerOffsetRequestHeader
from roquette_testing.cluster import SimCluster, simulate

NAMESRV = "10.0.0.1"
A, B = "10.0.1.1", "10.0.1.2"


async def small(cluster: SimCluster, topic: str = "orders", **settings: Any) -> Client:
    """One name server, one broker, and a client that has made the topic."""
    await cluster.add_namesrv(NAMESRV)
    await cluster.add_broker(A, "broker-a", **settings)
    mq = await cluster.client("10.0.2.1")
    await mq.send(topic, b"0")
    return mq


async def until(condition: Callable[[], bool], limit_s: float = 120.0) -> float:
    """Virtual seconds until a condition holds."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    while not condition():
        assert loop.time() - started < limit_s, "waited in vain"
        await asyncio.sleep(0.02)
    return loop.time() - started


def mine(consumer: Consumer, topic: str = "orders") -> set[int]:
    return {queue.queue_id for queue in consumer.queues if queue.topic == topic}


GoOn = Callable[[], Awaitable[Any]]


def intercept(
    mq: Client, code: RequestCode, step: Callable[[GoOn, Call[Any]], Awaitable[Any]]
) -> None:
    """Let `step` run the client's calls of one code."""
    real = mq.session.api.call

    async def run(address: str, call: Call[Any], **options: Any) -> Any:
        if call.code != code:
            return await real(address, call, **options)
        return await step(lambda: real(address, call, **options), call)

    mq.session.api.call = run  # type: ignore[method-assign]


async def committed(mq: Client, queue: MessageQueue, address: str = f"{A}:10911") -> int | None:
    """Where group g goes on."""
    return await mq.session.api.call(address, calls.committed_offset("g", queue))


class Inbox:
    """A handler that keeps what it got; bodies in `fails` are refused so many times."""

    def __init__(self, **fails: int) -> None:
        self.messages: list[ReceivedMessage] = []
        self.fails = {body.encode(): count for body, count in fails.items()}

    def __call__(self, message: ReceivedMessage) -> bool:
        self.messages.append(message)
        return message.reconsume_times >= self.fails.get(message.body, 0)

    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("*", []),
        ("", []),
        (" * ", []),
        ("a", ["a"]),
        ("a || b", ["a", "b"]),
        ("a||||b ", ["a", "b"]),
    ],
)
def test_subscriptions_are_what_brokers_want(text: str, tags: list[str]) -> None:
    data = subscription("t", text, 5)

    assert data.tags_set == tags
    assert data.code_set == [ord(tag) for tag in tags]
    assert (data.sub_string == "*") == (not tags)
    assert data.sub_version == 5


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_member_that_dies_is_replaced_at_once(seed: int) -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        one, two = Inbox(), Inbox()
        first = await cluster.client("10.0.3.1")
        second = await cluster.client("10.0.3.2")
        kept = await first.subscribe("orders", group="g", handler=one, start_from=StartFrom.FIRST)
        join = second.subscribe("orders", group="g", handler=two, start_from=StartFrom.FIRST)
        await cluster.run_on("10.0.3.2", join.start())
        await until(lambda: len(mine(kept)) == 2)
        for n in range(1, 41):
            await mq.send("orders", f"{n}")
        await until(lambda: len(set(one.bodies() + two.bodies())) == 41)
        assert one.messages
        assert two.messages
        cluster.kill("10.0.3.2")
        assert await until(lambda: len(mine(kept)) == 4) < 5
        for n in range(41, 61):
            await mq.send("orders", f"{n}")
        await until(lambda: len(set(one.bodies() + two.bodies())) == 61)

    simulate(scenario, seed)


def test_more_members_than_queues_leave_some_without_work() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await small(cluster)
        members = []
        for n in range(6):
            mq = await cluster.client(f"10.0.3.{n}")
            members.append(await mq.subscribe("orders", group="g", handler=Inbox()))
        await asyncio.sleep(25)
        shares = [mine(member) for member in members]
        assert sorted(len(share) for share in shares) == [0, 0, 1, 1, 1, 1]
        assert set().union(*shares) == {0, 1, 2, 3}

    simulate(scenario)


def test_every_group_gets_every_message() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        inboxes = [Inbox() for _ in range(3)]
        for n, inbox in enumerate(inboxes):
            await mq.subscribe("orders", group=f"g{n}", handler=inbox, start_from=StartFrom.FIRST)
        await mq.send_batch("orders", [f"{n}" for n in range(10)])
        await until(lambda: all(len(inbox.messages) == 11 for inbox in inboxes))

    simulate(scenario)


def test_a_group_may_begin_before_its_topic_exists() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        inbox = Inbox()
        await mq.subscribe("later", group="g", handler=inbox, start_from=StartFrom.FIRST)
        await asyncio.sleep(5)
        await mq.send("later", b"x")
        await until(lambda: inbox.bodies() == [b"x"], 40)

    simulate(scenario)


def test_failed_messages_return_then_end_among_the_dead_letters() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        inbox = Inbox(once=1, never=99)
        await mq.subscribe(
            "orders", group="g", handler=inbox, start_from=StartFrom.FIRST, max_reconsume_times=2
        )
        for body in ("once", "never", "fine"):
            await mq.send("orders", body, key=body)
        await until(lambda: inbox.bodies().count(b"never") == 3, 300)
        await asyncio.sleep(5)
        assert inbox.bodies().count(b"once") == 2
        assert inbox.bodies().count(b"fine") == 1
        dead = (await mq.queues("%DLQ%g"))[0]
        puller = mq.reader(group="reader")
        puller.seek(dead, 0)
        (letter,) = await puller.poll(timeout=5)
        assert (letter.body, letter.keys) == (b"never", ("never",))
        assert {m.topic for m in inbox.messages} == {"orders"}

    simulate(scenario)


def test_a_message_that_cannot_be_sent_back_goes_to_the_retry_topic() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        inbox = Inbox(bad=1)
        await mq.subscribe("orders", group="g", handler=inbox, start_from=StartFrom.FIRST)
        refuse = ConnectErrorOnce()
        intercept(mq, RequestCode.CONSUMER_SEND_MSG_BACK, refuse)
        await mq.send("orders", "bad", key="k", tag="t")
        await until(lambda: inbox.bodies().count(b"bad") == 2)
        again = [m for m in inbox.messages if m.body == b"bad"][1]
        assert refuse.calls == 1
        assert (again.reconsume_times, again.keys, again.tag) == (1, ("k",), "t")
        assert again.topic == "orders"

    class ConnectErrorOnce:
        calls = 0

        async def __call__(self, *_: object) -> None:
            from roquette.errors import ConnectError

            self.calls += 1
            raise ConnectError("cut")

    simulate(scenario)


def test_only_finished_messages_are_committed() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        gate, seen = asyncio.Event(), []
        queue = MessageQueue("orders", "broker-a", 1)

        async def handler(message: ReceivedMessage) -> None:
            seen.append(message.body)
            if message.body == b"slow":
                await gate.wait()

        worker = await cluster.client("10.0.3.1")
        await worker.subscribe("orders", group="g", handler=handler, start_from=StartFrom.FIRST)
        base = await mq.max_offset(queue)
        for body in ("a", "slow", "b", "c"):
            await mq.send("orders", body, queue=queue)
        await until(lambda: b"c" in seen)
        await asyncio.sleep(20)
        offset = await committed(mq, queue)
        assert offset == base + 1, "the slow one holds the offset back"
        gate.set()
        await asyncio.sleep(20)
        offset = await committed(mq, queue)
        assert offset == base + 4

    simulate(scenario)


@pytest.mark.parametrize("refusals", [0, 1, 5])
def test_closing_commits_what_is_done_and_no_more(refusals: int) -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        first, second = Inbox(), Inbox()
        worker = await cluster.client("10.0.3.1")
        consumer = await worker.subscribe(
            "orders", group="g", handler=first, start_from=StartFrom.FIRST
        )
        await mq.send_batch("orders", [f"{n}" for n in range(50)])
        await until(lambda: len(first.messages) == 51)
        left = refusals

        async def unsteady(commit: GoOn, call: Call[Any]) -> None:
            nonlocal left
            if left > 0:
                left -= 1
                raise BrokerError(2, "busy", address=A)
            await commit()

        intercept(worker, RequestCode.UPDATE_CONSUMER_OFFSET, unsteady)
        await consumer.close()
        assert left == 0
        await worker.subscribe("orders", group="g", handler=second, start_from=StartFrom.FIRST)
        await asyncio.sleep(20)
        assert second.messages == []

    simulate(scenario)


def slow_commits(mq: Client, topic: str) -> list[int]:
    """Let each commit take a second; how many of the topic's were on their way when each began."""
    running, crowds = 0, list[int]()

    async def slow(commit: GoOn, call: Call[Any]) -> None:
        nonlocal running
        assert isinstance(call.header, UpdateConsumerOffsetRequestHeader)
        ours = call.header.topic == topic
        running += ours
        crowds.extend([running] * ours)
        await asyncio.sleep(1)
        await commit()
        running -= ours

    intercept(mq, RequestCode.UPDATE_CONSUMER_OFFSET, slow)
    return crowds


def test_a_later_offset_never_overtakes_an_earlier_one_on_its_way() -> None:
    """Apache's brokers work on the requests of one connection in several threads."""

    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        inbox = Inbox()
        consumer = await mq.subscribe(
            "orders", group="g", handler=inbox, start_from=StartFrom.FIRST
        )
        await until(lambda: len(inbox.messages) == 1)
        crowds = slow_commits(mq, "orders")
        queue = inbox.messages[0].queue
        saving = asyncio.create_task(consumer._joined().persist())
        await mq.send("orders", b"1", queue=queue)
        await until(lambda: len(inbox.messages) == 2)
        assert not saving.done()
        await consumer.close()
        assert await committed(mq, queue) == 2
        assert max(crowds) <= 4, "one commit a queue"

    simulate(scenario)


def test_offsets_a_broker_lost_are_saved_again_by_who_leaves() -> None:
    """Apache's broker answers two first commits of a group and keeps one of them."""

    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        first, second = Inbox(), Inbox()
        consumer = await mq.subscribe(
            "orders", group="g", handler=first, start_from=StartFrom.FIRST
        )
        queues = await mq.queues("orders")
        for queue in queues:
            await mq.send("orders", b"x", queue=queue)
        await until(lambda: len(first.messages) >= len(queues))
        await consumer._joined().persist()
        for queue in queues:
            await mq.session.api.call(f"{A}:10911", calls.commit("g", queue, 0))
        await consumer.close()
        await mq.subscribe("orders", group="g", handler=second, start_from=StartFrom.FIRST)
        await asyncio.sleep(20)
        assert second.messages == []

    simulate(scenario)


def test_the_first_commit_of_a_topic_is_stored_before_the_others_are_sent() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        inbox = Inbox()
        consumer = await mq.subscribe(
            "orders", group="g", handler=inbox, start_from=StartFrom.FIRST
        )
        queues = await mq.queues("orders")
        for queue in queues:
            await mq.send("orders", b"x", queue=queue)
        await until(lambda: len(inbox.messages) >= len(queues))
        crowds = slow_commits(mq, "orders")
        await consumer.close()
        assert crowds == [1, *range(1, len(queues))]

    simulate(scenario)


def test_a_broker_restart_is_survived() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        inbox = Inbox()
        await mq.subscribe("orders", group="g", handler=inbox, start_from=StartFrom.FIRST)
        await until(lambda: len(inbox.messages) == 1)
        await cluster.stop(A)
        await asyncio.sleep(3)
        await cluster.restart(A)
        await asyncio.sleep(5)
        await mq.send("orders", b"after")
        await until(lambda: b"after" in inbox.bodies(), 60)

    simulate(scenario)


def test_offsets_beyond_the_queue_are_corrected() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        queue = (await mq.queues("orders"))[0]
        await mq.send("orders", b"x", queue=queue)
        with pytest.raises(BrokerError, match="Group g not exist!"):
            await mq.session.api.call(f"{A}:10911", calls.commit("g", queue, 5_000))
        first = await mq.subscribe("orders", group="g", handler=Inbox(), start_from=StartFrom.FIRST)
        await asyncio.sleep(1)
        await first.close()
        await mq.session.api.call(f"{A}:10911", calls.commit("g", queue, 5_000))
        inbox = Inbox()
        await mq.subscribe("orders", group="g", handler=inbox, start_from=StartFrom.FIRST)
        await asyncio.sleep(2)
        await mq.send("orders", b"new", queue=queue)
        await until(lambda: b"new" in inbox.bodies(), 30)

    simulate(scenario)


def test_a_slow_handler_bounds_what_is_pulled() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await small(cluster)
        mq = await cluster.client("10.0.3.1", pull_threshold_count=40)
        await mq.send_batch("orders", ["x" * 10] * 500)
        gate = asyncio.Event()
        done: list[int] = []

        async def handler(message: ReceivedMessage) -> None:
            await gate.wait()
            done.append(message.queue_offset)

        consumer = await mq.subscribe(
            "orders", group="g", handler=handler, start_from=StartFrom.FIRST
        )
        await asyncio.sleep(10)
        assert all(state.count <= 40 + 32 for state in consumer._joined().queues.values())
        gate.set()
        await until(lambda: len(done) == 501)

    simulate(scenario)


def test_what_a_topic_may_have_is_divided_among_its_queues() -> None:
    async def scenario(cluster: SimCluster) -> None:
        maker = await small(cluster, default_topic_queue_nums=4)
        for number in range(4):
            queue = MessageQueue("orders", "broker-a", number)
            await maker.send_batch("orders", ["x" * 10] * 200, queue=queue)
        gate = asyncio.Event()

        async def handler(message: ReceivedMessage) -> None:
            await gate.wait()

        async def member(ip: str) -> Consumer:
            mq = await cluster.client(ip, pull_threshold_topic_count=40, pull_batch=4)
            return await mq.subscribe(
                "orders", group="g", handler=handler, start_from=StartFrom.FIRST
            )

        def counts(consumer: Consumer) -> list[int]:
            return [s.count for q, s in consumer._joined().queues.items() if q.topic == "orders"]

        one = await member("10.0.3.1")
        await asyncio.sleep(10)
        assert len(counts(one)) == 4 and all(10 < count <= 10 + 4 for count in counts(one))
        two = await member("10.0.3.2")
        await until(lambda: len(counts(two)) == 2 and len(counts(one)) == 2)
        await asyncio.sleep(10)
        for consumer in (one, two):
            assert all(20 < count <= 20 + 4 for count in counts(consumer))
        gate.set()

    simulate(scenario)


def test_a_paused_consumer_pulls_nothing_and_keeps_its_queues() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        inbox = Inbox()
        consumer = await mq.subscribe(
            "orders", group="g", handler=inbox, start_from=StartFrom.FIRST
        )
        await until(lambda: inbox.bodies() == [b"0"])
        consumer.pause()
        await asyncio.sleep(60)  # what a broker held back has come
        queues = set(consumer.queues)
        for number in range(20):
            await mq.send("orders", b"%d" % number)
        await asyncio.sleep(60)
        assert inbox.bodies() == [b"0"]
        assert set(consumer.queues) == queues
        consumer.resume()
        await until(lambda: len(inbox.messages) == 21)

    simulate(scenario)


def test_handlers_run_at_most_so_many_at_a_time() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        busy, most, done = 0, 0, 0

        async def handler(message: ReceivedMessage) -> None:
            nonlocal busy, most, done
            busy += 1
            most = max(most, busy)
            await asyncio.sleep(0.1)
            busy -= 1
            done += 1

        await mq.send_batch("orders", ["x"] * 100)
        await mq.subscribe(
            "orders", group="g", handler=handler, start_from=StartFrom.FIRST, concurrency=7
        )
        await until(lambda: done == 101)
        assert most == 7

    simulate(scenario)


def test_broadcasting_members_get_all_and_do_not_share() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        inboxes = [Inbox(), Inbox(bad=9)]
        for n, inbox in enumerate(inboxes):
            member = await cluster.client(f"10.0.3.{n}", instance_name=f"m{n}")
            await member.subscribe(
                "orders", group="g", handler=inbox, model="broadcasting", start_from=StartFrom.FIRST
            )
        await mq.send_batch("orders", [*(f"{n}" for n in range(10)), "bad"])
        await until(lambda: all(len(inbox.messages) == 12 for inbox in inboxes))
        await asyncio.sleep(30)
        assert inboxes[1].bodies().count(b"bad") == 1, "broadcasting does not retry"
        await cluster.stop("10.0.3.0")
        again = Inbox()
        member = await cluster.restart("10.0.3.0")
        await member.subscribe(
            "orders", group="g", handler=again, model="broadcasting", start_from=StartFrom.FIRST
        )
        await mq.send("orders", b"later")
        await until(lambda: again.bodies() == [b"later"])

    simulate(scenario)


def test_one_client_joins_a_group_once() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        await mq.subscribe("orders", group="g", handler=Inbox())
        with pytest.raises(ConfigError, match="already has a consumer of group g"):
            await mq.subscribe("orders", group="g", handler=Inbox())

    simulate(scenario)


@pytest.mark.parametrize(
    "options",
    [
        {"group": ""},
        {"group": "a b"},
        {"group": "g", "start_from": "middle"},
        {"group": "g", "start_from": "timestamp:5"},
        {"group": "g", "model": "both"},
        {"group": "g", "strategy": "BEST"},
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await cluster.client("10.0.2.1", name_servers="10.0.0.1:9876")
        with pytest.raises(ConfigError):
            await mq.subscribe("orders", handler=Inbox(), **options)

    simulate(scenario)


def test_orderly_consumption_tries_again_before_it_goes_on() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        seen: list[bytes] = []

        async def handler(message: ReceivedMessage) -> bool:
            seen.append(message.body)
            await asyncio.sleep(0.05)
            return not (message.body == b"2" and seen.count(b"2") < 3)

        queue = MessageQueue("orders", "broker-a", 2)
        for n in range(1, 5):
            await mq.send("orders", f"{n}", queue=queue)
        await mq.subscribe(
            "orders", group="g", handler=handler, start_from=StartFrom.FIRST, orderly=True
        )
        await until(lambda: b"4" in seen)
        assert [body for body in seen if body != b"0"] == [b"1", b"2", b"2", b"2", b"3", b"4"]

    simulate(scenario)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_orderly_members_never_work_on_one_queue_together(seed: int) -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        working: dict[int, str] = {}
        clashes: list[str] = []
        order: dict[int, list[int]] = {}

        def handler_of(name: str) -> Callable[[ReceivedMessage], Any]:
            async def handler(message: ReceivedMessage) -> None:
                number = message.queue.queue_id
                if number in working:
                    clashes.append(f"{working[number]} and {name} on {number}")
                working[number] = name
                await asyncio.sleep(2.0)
                working.pop(number, None)
                order.setdefault(number, []).append(message.queue_offset)

            return handler

        await mq.send_batch("orders", [f"{n}" for n in range(60)])
        await mq.send_batch("orders", [f"{n}" for n in range(60)])
        members = []
        for n in range(3):
            member = await cluster.client(f"10.0.3.{n}")
            members.append(
                await member.subscribe(
                    "orders",
                    group="g",
                    handler=handler_of(f"m{n}"),
                    start_from=StartFrom.FIRST,
                    orderly=True,
                )
            )
            await asyncio.sleep(7)
        await asyncio.sleep(30)
        await members[0].close()
        await asyncio.sleep(200)
        assert not clashes
        for offsets in order.values():
            assert offsets == sorted(offsets)
            assert len(offsets) == len(set(offsets))

    simulate(scenario, seed)


def test_orderly_messages_that_fail_too_often_become_dead_letters() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        seen: list[bytes] = []

        def handler(message: ReceivedMessage) -> bool:
            seen.append(message.body)
            return message.body != b"never"

        queue = MessageQueue("orders", "broker-a", 2)
        for body in ("never", "next"):
            await mq.send("orders", body, queue=queue)
        await mq.subscribe(
            "orders",
            group="g",
            handler=handler,
            start_from=StartFrom.FIRST,
            orderly=True,
            max_reconsume_times=3,
        )
        await until(lambda: b"next" in seen)
        await asyncio.sleep(120)
        assert seen.count(b"never") == 4
        assert await mq.max_offset((await mq.queues("%DLQ%g"))[0]) == 1

    simulate(scenario)


@pytest.mark.parametrize("orderly", [False, True])
def test_queues_are_told_before_another_member_gets_them(orderly: bool) -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        events: list[tuple[str, Any]] = []

        async def revoked(queues: list[MessageQueue]) -> None:
            await asyncio.sleep(0.2)
            events.append(("revoked", sorted(queues)))

        async def handle(message: ReceivedMessage) -> None:
            await asyncio.sleep(0.3)
            events.append(("handled", message.queue))

        async def handle_there(message: ReceivedMessage) -> None:
            events.append(("there", message.queue))

        first = await mq.subscribe(
            "orders", group="g", handler=handle, orderly=orderly, on_revoke=revoked, start_from=0
        )
        for n in range(20):
            await mq.send("orders", f"{n}")
        other = await cluster.client("10.0.2.7")
        await other.subscribe(
            "orders", group="g", handler=handle_there, orderly=orderly, start_from=0
        )
        await asyncio.sleep(10)
        for n in range(20):
            await mq.send("orders", f"{n}")
        await asyncio.sleep(10)
        given = [queue for kind, queues in events if kind == "revoked" for queue in queues]
        assert len(given) == len(set(given)) == 2
        for at, (kind, queues) in enumerate(events):
            if kind == "revoked":
                assert all(queue not in queues for k, queue in events[:at] if k == "there")
                assert all(queue not in queues for k, queue in events[at:] if k == "handled")
        assert {queue for kind, queue in events if kind == "there"} == set(given)
        kept = sorted(first.queues)
        await first.close()
        assert events[-1] == ("revoked", [queue for queue in kept if queue.topic == "orders"])

    simulate(scenario, 1)


def test_nobody_has_a_queue_before_an_on_revoke_ends_however_long_handlers_take() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        told: dict[MessageQueue, float] = {}
        there: dict[MessageQueue, float] = {}
        at_work: list[ReceivedMessage] = []
        loop = asyncio.get_running_loop()

        async def revoked(queues: list[MessageQueue]) -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                told.update(dict.fromkeys(queues, loop.time()))

        async def handle(message: ReceivedMessage) -> None:
            at_work.append(message)
            await asyncio.sleep(20)

        async def handle_there(message: ReceivedMessage) -> None:
            there.setdefault(message.queue, loop.time())

        for n in range(40):
            await mq.send("orders", f"{n}")
        await mq.subscribe(
            "orders", group="g", handler=handle, on_revoke=revoked, start_from=0, concurrency=41
        )
        await until(lambda: len(at_work) == 41)
        other = await cluster.client("10.0.2.7")
        await other.subscribe("orders", group="g", handler=handle_there, start_from=0)
        await until(lambda: len(there) == 2)
        assert told.keys() == there.keys()
        assert all(told[queue] < there[queue] for queue in told)

    simulate(scenario, 1)


def test_an_on_revoke_that_fails_or_hangs_holds_nobody_up() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        for number, tell in enumerate((lambda queues: 1 / 0, lambda queues: asyncio.sleep(3600))):
            inbox = Inbox()
            consumer = await mq.subscribe(
                "orders",
                group=f"g{number}",
                handler=inbox,
                on_revoke=tell,
                start_from=0,  # type: ignore[arg-type]
            )
            began = asyncio.get_running_loop().time()
            await consumer.close()
            assert asyncio.get_running_loop().time() - began < 3
        with pytest.raises(ConfigError, match="on_revoke=3 cannot be called"):
            await mq.subscribe("orders", group="h", handler=inbox, on_revoke=3)  # type: ignore[arg-type]
        for wrong in ([0], 5, "12"):
            with pytest.raises(ConfigError, match="retry_levels"):
                await mq.subscribe("orders", group="h", handler=inbox, retry_levels=wrong)  # type: ignore[arg-type]

    simulate(scenario, 1)


def test_failures_come_again_after_the_levels_that_are_given() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        times: list[float] = []

        def fail(message: ReceivedMessage) -> bool:
            times.append(asyncio.get_running_loop().time())
            return len(times) == 4

        await mq.subscribe("orders", group="g", handler=fail, start_from=0, retry_levels=[1, 2])
        await asyncio.sleep(60)
        pauses = [later - sooner for sooner, later in itertools.pairwise(times)]
        assert len(pauses) == 3
        assert 1 <= pauses[0] < 3
        assert all(5 <= pause < 7 for pause in pauses[1:])

    simulate(scenario, 1)


def test_an_on_revoke_whose_own_task_was_cancelled_leaves_no_member_behind() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)

        async def tell(queues: list[MessageQueue]) -> None:
            worker = asyncio.get_running_loop().create_task(asyncio.sleep(3600))
            await asyncio.sleep(0)
            worker.cancel()
            await worker

        consumer = await mq.subscribe(
            "orders", group="g", handler=Inbox(), on_revoke=tell, start_from=0
        )
        await consumer.close()
        with pytest.raises(BrokerError, match="no consumer for this group"):
            await mq.session.api.call(f"{A}:10911", calls.members("g"))
        assert not [
            task
            for task in asyncio.all_tasks()
            if not task.done() and task.get_name().startswith("consumer-g-")
        ]

    simulate(scenario, 1)


def test_failed_messages_come_again_to_members_whose_queues_are_written_down() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        inbox = Inbox(bad=1)
        share = by_config(await mq.queues("orders"))
        await mq.subscribe("orders", group="g", handler=inbox, strategy=share, start_from=0)
        await mq.send("orders", b"bad")
        await until(lambda: [m.body for m in inbox.messages].count(b"bad") == 2)

    simulate(scenario, 1)


def test_levels_hold_also_when_the_broker_takes_nothing_back() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        times: list[float] = []

        def fail(message: ReceivedMessage) -> bool:
            times.append(asyncio.get_running_loop().time())
            return len(times) == 2

        async def refuse(go_on: GoOn, call: Call[Any]) -> None:
            raise BrokerError(1, "not now", address=A)

        intercept(mq, RequestCode.CONSUMER_SEND_MSG_BACK, refuse)
        await mq.subscribe("orders", group="g", handler=fail, start_from=0, retry_levels=[1])
        await until(lambda: len(times) == 2)
        assert 1 <= times[1] - times[0] < 3

    simulate(scenario, 1)


def test_a_commit_does_not_take_back_what_a_pull_has_committed_meanwhile() -> None:
    """The first queue's commit takes a while; the others' offsets are read when it is there, not when it began."""

    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        client = await cluster.client("10.0.3.1")
        inbox = Inbox()
        consumer = await client.subscribe(
            "orders", group="g", handler=inbox, start_from=StartFrom.FIRST
        )
        queues = sorted(queue for queue in consumer.queues if queue.topic == "orders")
        await until(lambda: len(inbox.messages) == 1)
        await asyncio.sleep(10)
        held, go_on = asyncio.Event(), asyncio.Event()

        async def slowly(run: GoOn, call: Call[Any]) -> Any:
            if not held.is_set():
                held.set()
                await go_on.wait()
            return await run()

        intercept(client, RequestCode.UPDATE_CONSUMER_OFFSET, slowly)
        saving = asyncio.create_task(
            consumer._joined().offsets.save(consumer._joined().queues.values())
        )
        await held.wait()
        for n in range(40):
            await mq.send("orders", f"{n}", queue=queues[n % 4])
        await until(lambda: len(inbox.messages) == 41)
        async with asyncio.timeout(60):
            while min([await committed(client, q) or 0 for q in queues[:3]]) < 9:  # pulls say it
                await asyncio.sleep(0.1)
        at = [await committed(client, queue) for queue in queues[:3]]
        go_on.set()
        assert await saving
        after = [await committed(client, queue) for queue in queues[:3]]
        assert all((now or 0) >= (before or 0) for now, before in zip(after, at, strict=True))

    simulate(scenario)


@pytest.mark.parametrize("orderly", [False, True])
def test_a_pull_that_comes_late_does_not_take_back_what_its_sender_leaves(orderly: bool) -> None:
    """Apache's brokers work on pulls and on commits in different threads, in any order."""

    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        client = await cluster.client("10.0.3.1")
        inbox = Inbox()
        consumer = await client.subscribe(
            "orders", group="g", handler=inbox, start_from=StartFrom.FIRST, orderly=orderly
        )
        await until(lambda: len(inbox.messages) == 1)
        await asyncio.sleep(20)  # offset 1 is committed: pulls tell it

        async def late(pull: GoOn, call: Call[Any]) -> Any:
            await asyncio.sleep(0.2)
            return await pull()

        intercept(client, RequestCode.PULL_MESSAGE, late)
        queue = inbox.messages[0].queue
        await mq.send("orders", b"1", queue=queue)
        await until(lambda: len(inbox.messages) == 2)
        await consumer.close()
        await asyncio.sleep(1)
        assert await committed(mq, queue) == 2

    simulate(scenario)


def test_a_group_that_is_left_while_its_broker_is_connected_is_not_joined_again() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        client = await cluster.client("10.0.3.1")
        consumer = await client.subscribe("orders", group="g", handler=Inbox())
        await client.subscribe("orders", group="stays", handler=Inbox())
        session = client.session
        address = f"{A}:10911"
        connect = session.remoting.connect
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def slowly(to: str) -> Any:
            asked.set()
            await go_on.wait()
            return await connect(to)

        session.remoting.connect = slowly  # type: ignore[method-assign]
        session.remoting.drop(address)
        beat = asyncio.create_task(session.heartbeat())
        await asked.wait()
        leaving = asyncio.create_task(session.remove_consumer(consumer._joined()))
        await asyncio.sleep(0.1)
        go_on.set()
        await asyncio.gather(beat, leaving)
        assert await mq.session.api.call(address, calls.members("stays"))
        with pytest.raises(BrokerError, match="no consumer for this group"):
            await mq.session.api.call(address, calls.members("g"))

    simulate(scenario)
