"""What is cut off, closed from inside or answered with nonsense leaves nothing half done."""

import asyncio
import contextlib
import time
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.client.test_push_consumer import A, GoOn, Inbox, intercept, small, until

from roquette import StartFrom
from roquette.base.options import options_of
from roquette.client.calls import Call
from roquette.client.concurrent import ConcurrentQueues
from roquette.client.config import ClientConfig
from roquette.client.core.process_queue import Prefetch, ProcessQueue
from roquette.client.orderly import Membership, OrderlyQueues, QueueLocks
from roquette.client.receipt import SendReceipt
from roquette.client.send_request import SendRequest
from roquette.errors import (
    BrokerError,
    ClientClosed,
    ClientError,
    ConfigError,
    MessageIllegal,
    NotSent,
)
from roquette.message.message import Message, MessageQueue, ReceivedMessage
from roquette.message.properties import SYSTEM
from roquette.message.sysflag import COMPRESSED
from roquette.wire.codes import RequestCode
from roquette.wire.command import Command
from roquette_testing.cluster import SimCluster, simulate

MESSAGES = 12


@types.coroutine
def cut(work: Coroutine[Any, Any, Any], at: int) -> Generator[Any, Any, bool]:
    """Run a call and cancel it at its suspension number `at`; whether it got that far."""
    task = asyncio.current_task()
    assert task is not None
    count, thrown, reached = 0, None, False
    while True:
        try:
            waits_for = work.send(None) if thrown is None else work.throw(thrown)
        except StopIteration:
            return reached
        except asyncio.CancelledError:
            while task.uncancel():
                pass
            return True
        if count == at:
            task.cancel()
            reached = True
        count += 1
        thrown = None
        try:
            yield waits_for
        except BaseException as error:  # noqa: BLE001 - it goes on into the call
            thrown = error


async def at_every_await(call: Callable[[int], Coroutine[Any, Any, Any]]) -> int:
    """Make a call as often as it has suspensions, cancelled at one after the other; returns their number."""
    for at in range(10_000):
        if not await cut(call(at), at):
            return at
    raise AssertionError("it never ends")


def members(cluster: SimCluster, group: str) -> list[str]:
    found = cluster.host(A).service.tables.consumers.find(group)
    return [] if found is None else sorted(found.client_ids())


@pytest.mark.promise("The client", "a call that is cut off at any await leaves nothing half done")
@pytest.mark.parametrize(
    "options", [{}, {"orderly": True}, {"model": "broadcasting"}], ids=["shared", "ordered", "all"]
)
def test_a_join_cut_off_anywhere_leaves_no_member(options: dict[str, Any]) -> None:
    async def main(cluster: SimCluster) -> None:
        mq = await small(cluster)
        for at in range(MESSAGES - 1):
            await mq.send("orders", b"%d" % (at + 1))
        joining = await cluster.client("10.0.2.9")
        before = len(joining.session.tasks)

        inboxes: dict[int, Inbox] = {}

        async def join(at: int) -> None:
            inbox = inboxes.setdefault(at, Inbox())
            await joining.subscribe(
                "orders", group=f"g{at}", handler=inbox, start_from=StartFrom.FIRST, **options
            )

        awaits = await at_every_await(join)
        assert awaits > 2
        await asyncio.sleep(60)
        whole = f"g{awaits}"
        assert [g for g in (f"g{at}" for at in range(awaits)) if members(cluster, g)] == []
        assert members(cluster, whole) == [joining.session.client_id]
        await joining._consumers[-1].close()
        await asyncio.sleep(30)  # pulls that are held at the broker end with it
        assert len(joining.session.tasks) == before
        for at in (0, awaits // 2, awaits - 1):
            await join(at)  # the same client may join the same group, and gets what is left
            await until(lambda inbox=inboxes[at]: len(inbox.messages) == MESSAGES)
            await joining._consumers[-1].close()

    simulate(main)


def test_a_stream_whose_first_message_is_not_waited_for_can_be_asked_again() -> None:
    async def main(cluster: SimCluster) -> None:
        mq = await small(cluster)
        client = await cluster.client("10.0.2.9")
        stream = client.consume("orders", group="g", start_from=StartFrom.FIRST)
        got = []
        for tenths in range(1, 40):
            try:
                message = await asyncio.wait_for(anext(stream), tenths / 1000)
            except TimeoutError:
                continue
            got.append(message.body)
            break
        else:
            got.append((await anext(stream)).body)
        await mq.send("orders", b"1")
        got.append((await asyncio.wait_for(anext(stream), 60)).body)
        await stream.close()

        assert got == [b"0", b"1"]
        assert members(cluster, "g") == []

    simulate(main)


def test_a_leave_cut_off_anywhere_goes_on() -> None:
    async def main(cluster: SimCluster) -> None:
        await small(cluster)
        client = await cluster.client("10.0.2.9")
        before = len(client.session.tasks)

        async def leave(at: int) -> None:
            inbox = Inbox()
            consumer = await client.subscribe(
                "orders", group=f"g{at}", handler=inbox, start_from=StartFrom.FIRST
            )
            await until(lambda: len(inbox.messages) == 1)
            assert await cut(consumer.close(), at) or at > 0
            await asyncio.sleep(30)
            assert members(cluster, f"g{at}") == []
            assert len(client.session.tasks) == before

        for at in range(4):
            await leave(at)

    simulate(main)


def test_a_client_whose_close_is_cut_off_closes_all_the_same() -> None:
    async def main(cluster: SimCluster) -> None:
        await small(cluster)
        for at in range(3):
            client = await cluster.client(f"10.0.2.{10 + at}")
            await client.subscribe("orders", group="g", handler=Inbox(), start_from=StartFrom.FIRST)
            session = client.session
            await cut(client.close(), at)
            await asyncio.sleep(30)
            assert members(cluster, "g") == []
            assert len(session.tasks) == 0
            await client.close()

    simulate(main)


@pytest.mark.promise("The client", "a call that is cut off at any await leaves nothing half done")
def test_a_send_cut_off_anywhere_sends_once_or_not_at_all_and_holds_no_slot() -> None:
    async def main(cluster: SimCluster) -> None:
        mq = await small(cluster)

        async def count() -> int:
            return sum([await mq.max_offset(queue) for queue in await mq.queues("orders")])

        hosts = list(range(10, 60))
        for send in (mq.send, mq.send_nowait, mq.send_oneway):
            before = await count()

            async def once(at: int, send: Any = send) -> None:
                client = await cluster.client(f"10.0.{hosts.pop()}.1")
                await cut(getattr(client, send.__name__)("orders", b"x"), at)
                await asyncio.sleep(5)
                for _ in range(3):
                    await client.send("orders", b"after")
                assert client._sender._pipeline._places.free == client.config.max_in_flight
                await client.close()

            for at in range(8):
                await once(at)
            sent = await count() - before - 24
            assert 0 <= sent <= 8, send.__name__

    simulate(main)


# closing from inside


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("whom", ["consumer", "client", "child task"])
def test_a_handler_closes_its_own_consumer(whom: str, orderly: bool) -> None:
    async def main(cluster: SimCluster) -> None:
        await small(cluster)
        client = await cluster.client("10.0.2.9")
        session = client.session
        handled = asyncio.Event()

        async def handler(message: ReceivedMessage) -> None:
            if whom == "client":
                await client.close()
            elif whom == "child task":
                await asyncio.gather(consumer.close())
            else:
                await consumer.close()
            handled.set()

        with contextlib.suppress(ClientClosed):  # the first message may come while it still joins
            consumer = await client.subscribe(
                "orders", group="g", handler=handler, start_from=StartFrom.FIRST, orderly=orderly
            )
        async with asyncio.timeout(5):
            await handled.wait()
        await client.close()

        assert members(cluster, "g") == []
        assert len(session.tasks) == 0
        other = await cluster.client("10.0.2.10")
        inbox = Inbox()  # the message was handled and is not repeated
        await other.subscribe("orders", group="g", handler=inbox, start_from=StartFrom.FIRST)
        await asyncio.sleep(30)
        assert inbox.bodies() == []

    simulate(main)


# answers and bodies that are none


def test_answers_that_cannot_be_decoded_are_errors_and_end_nothing() -> None:
    async def main(cluster: SimCluster) -> None:
        mq = await small(cluster)
        client = await cluster.client("10.0.2.9")
        inbox = Inbox()
        await client.subscribe("orders", group="g", handler=inbox, start_from=StartFrom.FIRST)
        await until(lambda: len(inbox.messages) == 1)
        real = client.session.remoting.invoke

        async def nonsense(address: str, code: int, *rest: Any, **settings: Any) -> Command:
            answer = await real(address, code, *rest, **settings)
            if answer.code == 0:
                answer.body, answer.ext = b"\xff{[", b'{"nextBeginOffset": "x"}'
            return answer

        client.session.remoting.invoke = nonsense  # type: ignore[method-assign]
        for call in (
            lambda: client.queues("orders"),
            lambda: client.send("orders", b"x"),
            lambda: client.session.route("other"),
        ):
            with pytest.raises(ClientError):
                async with asyncio.timeout(60):
                    await call()
        await asyncio.sleep(100)  # routes, heartbeats, rebalances and pulls meet nonsense, too
        client.session.remoting.invoke = real  # type: ignore[method-assign]
        await mq.send("orders", b"1")

        await until(lambda: b"1" in inbox.bodies())
        assert len(await client.queues("orders")) == 4

    simulate(main)


@pytest.mark.parametrize("model", ["clustering", "broadcasting"])
def test_a_body_that_cannot_be_decompressed_stops_nobody(model: str) -> None:
    async def main(cluster: SimCluster) -> None:
        mq = await small(cluster)
        queue = (await mq.queues("orders"))[0]
        await mq.send("orders", b"before", queue=queue)
        request = SendRequest("orders", b"no zlib stream", "UNIQ_KEY\x01bad\x02", ["bad"])
        request.sys_flag = COMPRESSED
        await mq._sender._attempts(request, lambda queues, avoid: queue)
        await mq.send("orders", b"after", queue=queue)
        client = await cluster.client("10.0.2.9")
        inbox = Inbox()
        consumer = await client.subscribe(
            "orders", group="g", handler=inbox, start_from=StartFrom.FIRST, model=model
        )
        await until(lambda: len(inbox.messages) == 3)
        await asyncio.sleep(10)

        assert sorted(inbox.bodies()) == [b"0", b"after", b"before"]
        assert consumer._joined().offsets_of("orders")[queue] == await mq.max_offset(queue)
        assert consumer._joined()._unreadable == 1
        if model == "clustering":
            (dead,) = await mq.queues("%DLQ%g")
            assert await mq.max_offset(dead) == 1

    simulate(main)


def test_a_puller_skips_a_body_that_cannot_be_decompressed() -> None:
    async def main(cluster: SimCluster) -> None:
        mq = await small(cluster)
        queue = (await mq.queues("orders"))[0]
        request = SendRequest("orders", b"no zlib stream", "UNIQ_KEY\x01bad\x02", ["bad"])
        request.sys_flag = COMPRESSED
        await mq._sender._attempts(request, lambda queues, avoid: queue)
        await mq.send("orders", b"after", queue=queue)
        puller = mq.reader(group="g")
        puller.seek(queue, 0)
        bodies = [message.body for message in await puller.poll(timeout=5)]

        assert bodies == [b"0", b"after"][-len(bodies) :]
        assert puller.unreadable == 1
        assert puller.position(queue) == await mq.max_offset(queue)

    simulate(main)


# what is asked of one call


def test_arguments_are_not_lost_in_silence() -> None:
    async def main(cluster: SimCluster) -> None:
        mq = await small(cluster)
        words: list[tuple[type[Exception], str, Callable[[], Awaitable[Any]]]] = [
            (TypeError, "not int", lambda: mq.send("orders", 5)),  # type: ignore[arg-type]
            (TypeError, "its own", lambda: mq.send(Message("orders", b"x"), key="k")),
            (TypeError, "its own", lambda: mq.send_nowait(Message("orders", b"x"), b"y")),
            (MessageIllegal, "messages to b", lambda: mq.send_batch("a", [Message("b", b"x")])),
            (
                ConfigError,
                "at least 1",
                lambda: mq.subscribe("orders", group="g", handler=Inbox(), concurrency=0),
            ),
        ]
        for level in (-1, 19, 100):
            words.append(
                (
                    MessageIllegal,
                    f"delay level {level}",
                    lambda level=level: mq.send("orders", b"x", delay_level=level),
                )
            )
        for kind, text, call in words:
            with pytest.raises(kind, match=text):
                await call()
        assert sum([await mq.max_offset(q) for q in await mq.queues("orders")]) == 1

    simulate(main)


def test_a_batch_whose_later_part_fails_tells_what_was_stored() -> None:
    async def main(cluster: SimCluster) -> None:
        mq = await small(cluster)
        real, calls = mq.session.remoting.invoke, []

        async def second_fails(address: str, code: int, *rest: Any, **settings: Any) -> Command:
            if code == 320:
                calls.append(code)
                if len(calls) == 2:
                    raise BrokerError(14, "no")
            return await real(address, code, *rest, **settings)

        mq.session.remoting.invoke = second_fails  # type: ignore[method-assign]
        with pytest.raises(BrokerError) as failed:
            await mq.send_batch("orders", [b"x" * 600_000] * 3)
        first, second, third = failed.value.outcomes
        assert isinstance(first, SendReceipt)
        assert second is failed.value
        assert isinstance(third, SendReceipt), "parts behind the one that failed are tried"
        assert failed.value.receipts == (first, third)
        assert failed.value.__notes__ == [
            "of 3 messages of the batch 2 were stored, 1 failed and 0 were not sent"
        ]
        with pytest.raises(MessageIllegal):  # nothing is sent when any of them is wrong
            await mq.send_batch("orders", [b"x" * 600_000, b"y" * 600_000, b""])
        assert len(calls) == 3

    simulate(main)


@pytest.mark.parametrize(("to_a_queue", "tried"), [(False, 2), (True, 1)])
def test_of_a_batch_nobody_takes_the_rest_is_not_sent(to_a_queue: bool, tried: int) -> None:
    async def main(cluster: SimCluster) -> None:
        mq = await small(cluster)
        (queue, *_) = await mq.queues("orders")
        calls = []

        async def fails(address: str, code: int, *rest: Any, **settings: Any) -> Command:
            calls.append(code)
            raise BrokerError(13, "no")

        seen: list[str] = []

        class Noted:
            def on_send(self, message: Message, group: str) -> Any:
                return lambda receipt, error: seen.append(type(error).__name__)

            def on_receive(self, message: ReceivedMessage, group: str) -> None:
                return None

        mq.intercept(Noted())
        mq.session.remoting.invoke = fails  # type: ignore[method-assign]
        with pytest.raises(BrokerError) as failed:
            await mq.send_batch("orders", [b"x" * 600_000] * 4, queue=queue if to_a_queue else None)
        assert len(calls) == tried
        assert [type(each) for each in failed.value.outcomes] == [BrokerError] * tried + [
            NotSent
        ] * (4 - tried)
        assert failed.value.receipts == ()
        assert len(seen) == 4

    simulate(main)


# what one client holds


def test_prefetch_is_bounded_for_the_whole_client() -> None:
    prefetch = Prefetch(100)
    queues = [ProcessQueue(MessageQueue("t", "b", at), 0, prefetch) for at in range(3)]

    def message(at: int, size: int) -> ReceivedMessage:
        return types.SimpleNamespace(queue_offset=at, body=bytes(size))  # type: ignore[return-value]

    queues[0].take([message(0, 80), message(1, 30)], 2)
    assert prefetch.used == 110
    assert queues[0].must_wait()
    assert not queues[1].must_wait()  # it has nothing: no queue starves behind another's handler
    queues[1].take([message(0, 1)], 1)
    assert queues[1].must_wait()
    queues[0].finish(message(0, 80))
    assert not queues[1].must_wait()
    queues[0].drop()
    queues[0].drop()
    queues[0].finish(message(1, 30))
    assert prefetch.used == 1


def test_a_slow_handler_does_not_fill_the_memory() -> None:
    async def main(cluster: SimCluster) -> None:
        mq = await small(cluster)
        for _ in range(8):
            await mq.send_batch("orders", [b"x" * 60_000] * 16)
        client = await cluster.client("10.0.2.9", prefetch_bytes=200_000)

        async def slow(message: ReceivedMessage) -> None:
            await asyncio.sleep(5)

        await client.subscribe(
            "orders", group="g", handler=slow, start_from=StartFrom.FIRST, concurrency=1
        )
        most = 0
        for _ in range(100):
            await asyncio.sleep(0.5)
            most = max(most, client.session.prefetch.used)
        # a broker answers a pull with 256 KiB at most: each of four queues may have one such answer beyond it
        assert 0 < most <= 200_000 + 4 * 320_000

    simulate(main)


def test_a_queue_locked_while_locks_are_renewed_stays_locked() -> None:
    queues = [MessageQueue("t", "b", at) for at in range(2)]
    states = {queues[0]: ProcessQueue(queues[0], 0)}

    class Api:
        async def call(self, *_: Any) -> list[MessageQueue]:
            states[queues[1]] = ProcessQueue(queues[1], 0)  # taken up meanwhile
            states[queues[1]].locked = True
            return [queues[0]]

    session: Any = types.SimpleNamespace(
        api=Api(), master_of=lambda queue: "b:1", client_id="c", tasks=None
    )
    nothing: Any = None

    async def renew() -> None:
        member = Membership(
            session=session,
            producer=nothing,
            group="g",
            max_reconsume_times=-1,
            shares=True,
            handle=nothing,
            rates=nothing,
            revoked=nothing,
            handlers_s=0.0,
            retry_levels=(),
            save=nothing,
            changed=nothing,
            idle=nothing,
        )
        locks = QueueLocks(member, orderly=True)
        await OrderlyQueues(member, locks).renew(states)

    asyncio.run(renew())

    assert [state.locked for state in states.values()] == [True, True]


def test_a_first_commit_that_is_refused_holds_the_others_of_its_topic_back() -> None:
    async def main(cluster: SimCluster) -> None:
        mq = await small(cluster)
        client = await cluster.client("10.0.2.9")
        asked: list[Call[Any]] = []

        async def busy(commit: GoOn, call: Call[Any]) -> None:
            asked.append(call)
            if len(asked) <= 2:
                raise BrokerError(2, "busy", retriable=True)
            await commit()

        intercept(client, RequestCode.UPDATE_CONSUMER_OFFSET, busy)
        for _ in range(8):
            await mq.send("orders", b"x")
        inbox = Inbox()
        consumer = await client.subscribe(
            "orders", group="g", handler=inbox, start_from=StartFrom.FIRST
        )
        await until(lambda: len(inbox.messages) == 9)
        states = [
            state for queue, state in consumer._joined().queues.items() if queue.topic == "orders"
        ]
        for alone in range(2):
            assert not await consumer._joined().offsets.save(states)
            assert len(asked) == alone + 1
        assert await consumer._joined().offsets.save(states)
        assert len(asked) == 2 + len(states)

    simulate(main)


NUMBERS = [known.field for known in options_of(ClientConfig).values() if known.type is int]
MAY_BE_ZERO = {known.field for known in options_of(ClientConfig).values() if known.least == 0}


@pytest.mark.parametrize("name", NUMBERS)
def test_settings_that_would_stop_something_in_silence_are_refused(name: str) -> None:
    values = [-1, True, "5", 1.5, None, *([] if name in MAY_BE_ZERO else [0])]
    for value in values:
        with pytest.raises(ConfigError, match=f"{name} must be a whole number (of at least|from)"):
            ClientConfig(name_servers="a:1", **{name: value})
    if name in MAY_BE_ZERO:
        ClientConfig(name_servers="a:1", **{name: 0})


def test_settings_without_waits_and_room_work_all_the_same() -> None:
    async def main(cluster: SimCluster) -> None:
        await small(cluster)
        assert len(MAY_BE_ZERO) == 14
        for at, name in enumerate(sorted(MAY_BE_ZERO)):
            client = await cluster.client(f"10.0.2.{10 + at}", **{name.removesuffix("_ms"): 0})
            inbox = Inbox()
            await client.subscribe(
                "orders", group=f"g{at}", handler=inbox, start_from=StartFrom.FIRST
            )
            await until(lambda inbox=inbox, at=at: len(inbox.messages) == at + 1)
            await (await client.send_nowait("orders", b"x"))
            await client.close()

    simulate(main)


TAKEN = SYSTEM - {"UNIQ_KEY", "__LITE_TOPIC"}
NAIVE = datetime(2026, 1, 1)
NO_MOMENTS: list[Any] = [NAIVE, -5, 5, int(time.time()), datetime(1969, 1, 1, tzinfo=UTC)]


def test_words_of_wrong_types_are_refused_in_words() -> None:
    """One value after the other of each call: an error of ours or TypeError that names it, and nothing is done."""
    message: dict[str, list[Any]] = {
        "topic": [None, 5, b"orders", "", "a b"],
        "body": [None, 5, [b"x"], ""],
        "key": [5, [5], b"k", "", " ", "a b", "a\tb", ["a", ""], ["a b", "c"]],
        "tag": [5, b"t", True, "", "*", "a || b", "a||b", " a", "a "],
        "properties": [["a"], {"a": 1}, {1: "a"}, {"a": b"1"}, 7, {"a": ""}, {"": "a"}]
        + [{name: "1"} for name in sorted(TAKEN)],
        "shard_key": [5, b"k", ""],
        "deliver_at": [5, NAIVE, timedelta(days=-40_000), datetime(1969, 1, 1, tzinfo=UTC)],
        "delay_level": ["3", 2.5, True, -1, 19],
        "priority": ["3", 2.5, True, -1, 2**31],
        "queue": [MessageQueue("other", "broker-a", 0)],
        "timeout": [0, -1, "5"],
    }
    subscribe: dict[str, list[Any]] = {
        "topic": [None, 5, "", {}, "a b", {"orders": None}, {5: "*"}],
        "group": [None, 5, "", "a b"],
        "handler": [None, 5],
        "tag": [None, 5],
        "concurrency": [0, -1, 1.5, "5", True, None],
        "start_from": [None, True, "middle", "timestamp:5", *NO_MOMENTS],
        "model": [None, 5, "both"],
        "orderly": ["no", 1, None],
        "max_reconsume_times": [-2, "a", 1.5, None],
        "strategy": [None, 5, "BEST"],
    }
    puller: dict[str, list[Any]] = {
        "group": [None, "", 5],
        "tag": [None, 5],
        "batch": [0, -1, "5"],
        "start_from": [None, "middle", *NO_MOMENTS],
    }
    refusals = (TypeError, ConfigError, MessageIllegal)

    async def main(cluster: SimCluster) -> None:
        mq = await small(cluster)
        good: dict[str, Any] = {"topic": "orders", "body": b"x"}
        calls = [(mq.send, name, value) for name, values in message.items() for value in values]
        for call, name, value in calls:
            with pytest.raises(refusals, match=r"\w+ \w+"):
                await call(**{**good, name: value})
        good = {"topic": "orders", "group": "g", "handler": Inbox()}
        for name, values in subscribe.items():
            for value in values:
                with pytest.raises(ConfigError, match=r"\w+ \w+"):
                    await mq.subscribe(**{**good, name: value})
        for name, values in puller.items():
            for value in values:
                with pytest.raises(ConfigError):
                    mq.reader(**{"group": "g", name: value})
        fields = [
            {"keys": "abc"},
            {"keys": ("a b",)},
            {"tag": "a || b"},
            {"properties": {"DELAY": "3"}},
            {"properties": {"a": ""}},
            {"shard_key": ""},
            {"deliver_at": int(time.time())},
            {"deliver_at": NAIVE},
        ]
        for field in fields:
            wrong = Message("orders", b"x", **field)  # type: ignore[arg-type]
            for sends in (mq.send, mq.send_nowait, mq.send_oneway, mq.request):
                with pytest.raises(refusals, match=r"\w+ \w+"):
                    await sends(wrong)  # type: ignore[operator]
            with pytest.raises(refusals, match=r"\w+ \w+"):
                await mq.send_batch("orders", [wrong])
        (queue, *_) = await mq.queues("orders")
        reader = mq.reader(group="reader")
        for when in NO_MOMENTS:
            with pytest.raises(ConfigError, match="when="):
                await mq.offset_by_time(queue, when)
            with pytest.raises(ConfigError, match="when="):
                await reader.seek_to_time(queue, when)
            with pytest.raises(ConfigError, match="since="):
                await mq.find("orders", "k", since=when)
            with pytest.raises(ConfigError, match="until="):
                await mq.find("orders", "k", until=when)
        for part in ("abc", b"abc", [5], [Message("orders", "text")]):  # type: ignore[arg-type]
            with pytest.raises(TypeError):
                await mq.send_batch("orders", part)  # type: ignore[arg-type]
        assert members(cluster, "g") == []
        assert sum([await mq.max_offset(q) for q in await mq.queues("orders")]) == 1
        await mq.subscribe("orders", group="g", handler=Inbox())

    simulate(main)


def test_a_join_that_fails_at_its_end_leaves_no_member(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(cluster: SimCluster) -> None:
        mq = await small(cluster)
        with monkeypatch.context() as patched:
            patched.setattr(ConcurrentQueues, "start", fail)
            with pytest.raises(RuntimeError, match="at the end"):
                await mq.subscribe("orders", group="g", handler=Inbox())
        assert members(cluster, "g") == []
        inbox = Inbox()
        await mq.subscribe("orders", group="g", handler=inbox, start_from=StartFrom.FIRST)
        await until(lambda: len(inbox.messages) == 1)

    def fail(*_: Any) -> None:
        raise RuntimeError("at the end")

    simulate(main)


def test_a_queue_whose_offset_comes_while_its_member_leaves_is_not_taken_up() -> None:
    async def main(cluster: SimCluster) -> None:
        await small(cluster)
        client = await cluster.client("10.0.2.9")

        async def slow(ask: GoOn, call: Call[Any]) -> Any:
            await asyncio.sleep(1)
            return await ask()

        intercept(client, RequestCode.QUERY_CONSUMER_OFFSET, slow)
        joining = asyncio.create_task(
            client.subscribe("orders", Inbox(), group="g", start_from=StartFrom.FIRST).start()
        )
        await asyncio.sleep(2.5)
        (consumer,) = client._consumers
        await consumer.left()
        with pytest.raises(ClientClosed):
            await joining

        assert consumer.queues
        assert all(state.dropped for state in consumer.queues.values())

    simulate(main)


@pytest.mark.parametrize("how", ["subscribe", "first anext", "reader"])
def test_joining_that_is_cancelled_ends_at_once_though_the_broker_is_silent(how: str) -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        client = await cluster.client("10.0.3.1")
        await client.session.route("orders")
        await client.session.remoting.connect(f"{A}:10911")
        stream = client.consume("orders", group="g", start_from=StartFrom.FIRST)
        reader = client.reader(group="g")
        joins: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
            "subscribe": client.subscribe("orders", Inbox(), group="g").start,
            "first anext": stream.__anext__,
            "reader": lambda: reader.subscribe("orders"),
        }
        cluster.partition("10.0.3.1", A)
        joining = asyncio.create_task(joins[how]())
        await asyncio.sleep(0.5)
        loop = asyncio.get_running_loop()
        began = loop.time()
        joining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await joining
        assert loop.time() - began < 0.2
        cluster.heal()
        await asyncio.sleep(20)
        inbox = Inbox()
        await client.subscribe("orders", group="g", handler=inbox, start_from=StartFrom.FIRST)
        await mq.send("orders", b"1")
        await until(lambda: sorted(inbox.bodies()) == [b"0", b"1"])

    simulate(scenario)


def test_what_is_closed_leaves_the_clients_lists() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        for _ in range(3):
            consumer = await mq.subscribe("orders", group="g", handler=Inbox())
            await consumer.close()
            stream = mq.consume("orders", group="g", start_from=StartFrom.FIRST)
            await anext(stream)
            await stream.close()
            reader = mq.reader(group="g")
            await reader.subscribe("orders")
            await reader.close()
        assert (mq._consumers, mq._readers, mq._first_closed) == ([], [], [])

    simulate(scenario)


def test_two_that_wait_for_the_first_message_join_once() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        await mq.send("orders", b"1")
        stream = mq.consume("orders", group="g", start_from=StartFrom.FIRST)
        got: list[ReceivedMessage] = []

        async def take() -> None:
            got.append(await anext(stream))

        waiting = [asyncio.create_task(take()) for _ in range(2)]
        await until(lambda: len(got) == 1)
        got[0].ack()
        await asyncio.gather(*waiting)
        assert sorted(message.body for message in got) == [b"0", b"1"]

    simulate(scenario)
