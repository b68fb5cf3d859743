"""Consumers of the v5 protocol over a real broker: receive, ack, change, dead letters, renewals, cancel."""

import asyncio
from typing import Any

import pytest
from tests.broker.conftest import Case, run_broker
from tests.proxy.inside import Consumers, receive, received

from roquette.broker.pop.feature import PopFeature
from roquette.broker.pop.hand_out import GiveBack
from roquette.proxy import renewals
from roquette.store.format.config import FlushDiskType
from roquette.wire.bodies.tables import SubscriptionGroupConfig
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.proto import definition_pb2 as d
from roquette.wire.proto import service_pb2 as s

__all__ = ["run_broker"]


async def made(case: Case, count: int = 3, **settings: Any) -> Consumers:
    """Consumers of a group that has begun, and messages for it."""
    consumers = Consumers(case, **settings)
    client = await case.client()
    await client.produce("T", body=b"first")
    first = await consumers.receive(invisible_ms=10_000)
    if first.messages:
        await consumers.ack(*first.messages)
    for n in range(count):
        await produce(case, b"m%d" % n)
    return consumers


async def produce(case: Case, body: bytes, topic: str = "T", **named: str) -> None:
    client = await case.client()
    properties = {"UNIQ_KEY": f"ID{body.hex()}"} | named
    assert (await client.produce(topic, body=body, properties=properties)).code == 0


def configure(case: Case, **changes: Any) -> None:
    config = SubscriptionGroupConfig(group_name="g", **changes)
    case.broker.core.tables.groups.put(config, case.clock.now_ms())


def waiting(case: Case) -> int:
    return case.broker.feature(PopFeature).pop.waiting


def names(reply: Any) -> str:
    return d.Code.Name(reply.status.code)


def test_received_messages_are_invisible_until_they_are_acknowledged(run_broker: Any) -> None:
    async def scenario(case: Case) -> None:
        consumers = await made(case)
        found = await consumers.receive()
        system = found.messages[0].system_properties
        again = await consumers.receive()
        done = await consumers.ack(*found.messages[:2])
        await asyncio.sleep(13)
        third = await consumers.receive()

        assert (found.code, sorted(found.bodies)) == ("OK", [b"m0", b"m1", b"m2"])
        assert found.messages[0].topic.name == "T"
        assert len(system.receipt_handle.split(" ")) == 9
        assert system.delivery_attempt == 1
        assert again.code == "MESSAGE_NOT_FOUND"
        assert names(done) == "OK"
        assert [d.Code.Name(entry.status.code) for entry in done.entries] == ["OK", "OK"]
        assert third.bodies == [found.bodies[2]]
        assert third.messages[0].system_properties.delivery_attempt == 2
        assert third.messages[0].topic.name == "T"
        assert names(await consumers.ack(*third.messages)) == "OK"

    run_broker(scenario)


def test_acks_of_one_turn_are_one_request_and_each_is_answered(run_broker: Any) -> None:
    async def scenario(case: Case) -> None:
        consumers = await made(case, 6)
        found = await consumers.receive()
        handles = [message.system_properties.receipt_handle for message in found.messages]
        assert len({handle.rsplit(" ", 2)[0] for handle in handles}) == 1
        consumers.backend.asked.clear()

        def ack(message: Any) -> Any:
            request = s.AckMessageRequest()
            request.group.name, request.topic.name = "g", "T"
            entry = request.entries.add()
            entry.message_id = message.system_properties.message_id
            entry.receipt_handle = message.system_properties.receipt_handle
            return consumers.start("AckMessage", request)

        replies = [ack(message) for message in found.messages[:5]]
        for reply in replies:
            await reply.done.wait()
        said = [s.AckMessageResponse.FromString(reply.messages[0]) for reply in replies]
        assert [names(one) for one in said] == ["OK"] * 5
        assert [one.entries[0].receipt_handle for one in said] == handles[:5]
        assert consumers.backend.asked == [RequestCode.BATCH_ACK_MESSAGE]
        await asyncio.sleep(13)
        again = await consumers.receive()
        assert again.bodies == [found.bodies[5]]
        consumers.backend.asked.clear()
        await ack(again.messages[0]).done.wait()
        assert consumers.backend.asked == [RequestCode.ACK_MESSAGE]  # alone: its refusals say more
        consumers.backend.refuse[RequestCode.BATCH_ACK_MESSAGE] = ResponseCode.SYSTEM_BUSY
        await produce(case, b"x")
        await produce(case, b"y")
        more = await consumers.receive()
        refused = [ack(message) for message in more.messages]
        for reply in refused:
            await reply.done.wait()
        codes = [s.AckMessageResponse.FromString(one.messages[0]).status.code for one in refused]
        assert codes == [d.Code.TOO_MANY_REQUESTS] * 2

    run_broker(scenario)


def test_a_receive_waits_and_is_woken_by_a_message(run_broker: Any) -> None:
    async def scenario(case: Case) -> None:
        consumers = await made(case, 0)
        reply = consumers.start("ReceiveMessage", receive(polling_ms=15_000))
        consumers.backend.asked.clear()
        begun = case.clock.steady_ms()
        await asyncio.sleep(2)
        assert not reply.done.is_set()
        assert waiting(case) == 1
        await produce(case, b"late")
        found = await received(reply)
        assert found.bodies == [b"late"]
        assert case.clock.steady_ms() - begun < 3_000
        await consumers.ack(*found.messages)
        consumers.backend.asked.clear()
        begun = case.clock.steady_ms()
        nothing = await consumers.receive(polling_ms=60_000)
        assert (nothing.code, nothing.text) == ("MESSAGE_NOT_FOUND", "no new message")
        assert 19_000 <= case.clock.steady_ms() - begun <= 20_500

    run_broker(scenario)


@pytest.mark.parametrize("wait_s", [0, 0.001, 1.0])
def test_a_cancelled_receive_leaves_its_table_and_takes_nothing(
    run_broker: Any, wait_s: float
) -> None:
    async def scenario(case: Case) -> None:
        consumers = await made(case, 0)
        reply = consumers.start("ReceiveMessage", receive(polling_ms=15_000))
        await asyncio.sleep(wait_s)
        assert reply.call is not None
        reply.call.cancelled()
        await asyncio.sleep(0)
        assert waiting(case) == 0
        assert not consumers.receiving._of_client
        assert not consumers.receiving._of_group
        await produce(case, b"m")
        found = await consumers.receive()
        assert found.bodies == [b"m"]
        assert not reply.messages
        assert consumers.caller.peer.asked == 0

    run_broker(scenario)


@pytest.mark.parametrize(
    ("more", "code", "text"),
    [
        ({"invisible_ms": 9_000}, "ILLEGAL_INVISIBLE_TIME", "the invisibleTime is too small. min is 10000"),
        ({"invisible_ms": 43_201_000}, "ILLEGAL_INVISIBLE_TIME", "the invisibleTime is too large. max is 43200000"),
        ({"topic": "a b"}, "ILLEGAL_TOPIC", None),
        ({"group": "a b"}, "ILLEGAL_CONSUMER_GROUP", None),
        ({"topic": "unknown"}, "TOPIC_NOT_FOUND", None),
        ({"sql": ""}, "ILLEGAL_FILTER_EXPRESSION", "Expression can't be null! SQL92"),
        ({"sql": "a >"}, "ILLEGAL_FILTER_EXPRESSION", None),
        ({"sql": "a" * 16_385}, "ILLEGAL_FILTER_EXPRESSION", "the expression has 16385 characters, 16384 are allowed"),
        ({"deadline_ms": 3_000}, "ILLEGAL_POLLING_TIME", None),
        ({"broker": "another", "batch": 1}, "OK", "OK"),
        ({"batch": 1_000}, "OK", "OK"),
    ],
)  # fmt: skip
def test_what_a_receive_is_refused_for(
    run_broker: Any, more: dict[str, Any], code: str, text: str | None
) -> None:
    async def scenario(case: Case) -> None:
        consumers = await made(case, 1)
        found = await consumers.receive(**more)
        assert found.code == code
        assert text is None or found.text == text
        assert not consumers.receiving._of_client

    run_broker(scenario, broker={"enable_property_filter": True})


def test_clients_before_5_0_3_do_not_know_the_code_for_too_little_time(run_broker: Any) -> None:
    async def scenario(case: Case) -> None:
        consumers = await made(case, 0)
        consumers.caller.version = "5.0.2"
        assert (await consumers.receive(deadline_ms=3_000)).code == "BAD_REQUEST"

    run_broker(scenario)


def test_tags_and_sql_choose(run_broker: Any) -> None:
    async def scenario(case: Case) -> None:
        consumers = await made(case, 0)
        await produce(case, b"a", TAGS="a", n="1")
        await produce(case, b"b", TAGS="b", n="5")
        await produce(case, b"c", n="7")
        assert (await consumers.receive(tag="b || x")).bodies == [b"b"]
        await produce(case, b"d", n="3")
        await produce(case, b"e", n="9")
        assert (await consumers.receive(sql="n > 5")).bodies == [b"e"]

    run_broker(scenario, broker={"enable_property_filter": True})


async def beats(consumers: Consumers, seconds: int) -> None:
    for _ in range(seconds):
        await asyncio.sleep(1)
        consumers.receiving.expire()
        consumers.renewals.step()


@pytest.mark.promise(
    "Security", "receives and receipts beyond a bound wait or are not renewed; nobody is refused"
)
@pytest.mark.parametrize("full", ["client", "group", "broker"])
def test_receives_beyond_a_bound_wait_and_none_is_refused(run_broker: Any, full: str) -> None:
    """A consumer of ordered messages has a receive for each queue: refused ones came again every 20 ms."""

    async def scenario(case: Case) -> None:
        most = {"client": "grpc_max_polls_per_client", "group": "grpc_max_polls_per_group"}
        consumers = await made(case, 0, **({most[full]: 3} if full in most else {}))
        consumers.backend.asked.clear()
        begun = case.clock.steady_ms()
        replies = [consumers.start("ReceiveMessage", receive()) for _ in range(9)]
        await beats(consumers, 1)
        asked = len(consumers.backend.asked)
        assert asked == (9 if full == "broker" else 3)
        assert not any(reply.done.is_set() for reply in replies), "none is answered at once"
        await beats(consumers, 5)
        said = [await received(reply) for reply in replies]
        assert {(one.code, one.text) for one in said} == {("MESSAGE_NOT_FOUND", "no new message")}
        assert case.clock.steady_ms() - begun >= 5_000
        assert len(consumers.backend.asked) <= asked + 6
        assert not consumers.receiving._of_client and not consumers.receiving._parked

    run_broker(scenario, broker={"pop_polling_size": 2} if full == "broker" else {})


def test_a_receive_that_waits_for_a_place_gets_what_comes(run_broker: Any) -> None:
    async def scenario(case: Case) -> None:
        consumers = await made(case, 0, grpc_max_polls_per_client=2)
        replies = [consumers.start("ReceiveMessage", receive(batch=1)) for _ in range(5)]
        assert replies[4].call is not None
        replies[3].call.cancelled()  # type: ignore[union-attr]
        for number in range(4):
            await produce(case, b"m%d" % number)
            await beats(consumers, 1)
        said = [(await received(reply)).bodies for reply in replies[:3] + replies[4:]]
        assert sorted(said) == [[b"m0"], [b"m1"], [b"m2"], [b"m3"]]
        other = consumers.start("ReceiveMessage", receive())
        more = [consumers.start("ReceiveMessage", receive()) for _ in range(3)]
        consumers.proxy.stop()
        for reply in more[1:]:
            assert (await received(reply)).code == "MESSAGE_NOT_FOUND"
        await other.done.wait()
        assert not consumers.receiving._of_client

    run_broker(scenario)


@pytest.mark.promise(
    "Security", "receives and receipts beyond a bound wait or are not renewed; nobody is refused"
)
def test_beyond_the_bound_receipts_are_not_renewed_and_nobody_is_refused(
    run_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, 25 slow Java consumers (4,096 messages each) stopped all others of the broker."""
    if not str(renewals.__file__).endswith(".py"):
        pytest.skip("the bounds are constants of the compiled form")
    monkeypatch.setattr(renewals, "MOST", 3)
    monkeypatch.setattr(renewals, "LITTLE", 2)

    async def scenario(case: Case) -> None:
        consumers = await made(case, 12)

        async def got(client: str, batch: int) -> list[d.Message]:
            request = receive(renews=True, invisible_ms=0, batch=batch)
            caller = consumers.backend.caller(client)
            found = await received(consumers.start("ReceiveMessage", request, caller=caller))
            assert found.code == "OK" and len(found.messages) == batch
            return found.messages

        first = await got("slow", 4)
        over = await got("slow", 3)
        others = await got("quick", 1)
        last = [await got(name, 1) for name in "abcd"]
        assert len(consumers.renewals) <= 2 * renewals.MOST
        await beats(consumers, 600)  # handlers take ten minutes: nothing comes to anybody twice
        assert (await consumers.receive()).code == "MESSAGE_NOT_FOUND"
        assert names(await consumers.ack(*over)) == "OK"
        assert len(consumers.renewals) <= 2 * renewals.MOST
        assert first and others and last

    run_broker(scenario)


def test_a_fifo_group_gets_its_messages_in_order_and_again_by_attempt_id(run_broker: Any) -> None:
    async def scenario(case: Case) -> None:
        consumers = await made(case, 0)
        configure(case, consume_message_orderly=True)
        for n in range(4):
            await produce(case, b"m%d" % n, __SHARDINGKEY="g")
        first = await consumers.receive(batch=2, attempt="one", invisible_ms=30_000)
        other = await consumers.receive(batch=2, attempt="two", invisible_ms=30_000)
        retry = await consumers.receive(batch=2, attempt="one", invisible_ms=30_000)
        done = await consumers.ack(*retry.messages)
        following = await consumers.receive(batch=2, attempt="three", invisible_ms=30_000)
        assert first.bodies == retry.bodies == [b"m0", b"m1"]
        assert first.messages[0].system_properties.message_type == d.MessageType.FIFO
        assert other.code == "MESSAGE_NOT_FOUND"
        assert names(done) == "OK"
        assert following.bodies == [b"m2", b"m3"]

    run_broker(scenario)


def test_a_change_gives_a_new_handle_and_acks_with_either_count(run_broker: Any) -> None:
    async def scenario(case: Case) -> None:
        consumers = await made(case, 2)
        found = await consumers.receive()
        handles = [one.system_properties.receipt_handle for one in found.messages]
        changed = [await consumers.change(handle, 30_000) for handle in handles]
        await asyncio.sleep(13)
        early = await consumers.receive()
        found.messages[0].system_properties.receipt_handle = changed[0].receipt_handle
        done = await consumers.ack(*found.messages)  # the second with its old handle
        await asyncio.sleep(25)
        later = await consumers.receive()
        assert all(names(reply) == "OK" for reply in changed)
        assert all(len(reply.receipt_handle.split(" ")) == 9 for reply in changed)
        assert early.code == "MESSAGE_NOT_FOUND"
        assert names(done) == "OK"
        assert later.code == "MESSAGE_NOT_FOUND"

    run_broker(scenario)


def test_bad_handles_and_times_are_refused(run_broker: Any) -> None:
    async def scenario(case: Case) -> None:
        consumers = await made(case, 2)
        found = await consumers.receive(invisible_ms=12_000)
        first, second = found.messages
        handle = first.system_properties.receipt_handle
        first.system_properties.receipt_handle = "garbage"
        mixed = await consumers.ack(first, second)
        codes = [d.Code.Name(entry.status.code) for entry in mixed.entries]
        assert (names(mixed), codes) == ("MULTIPLE_RESULTS", ["INVALID_RECEIPT_HANDLE", "OK"])
        assert names(await consumers.ack()) == "INTERNAL_SERVER_ERROR"
        assert names(await consumers.change(handle, -1_000)) == "ILLEGAL_INVISIBLE_TIME"
        assert names(await consumers.change(handle, 43_201_000)) == "ILLEGAL_INVISIBLE_TIME"
        assert names(await consumers.change("1 2 3", 1_000)) == "INVALID_RECEIPT_HANDLE"
        consumers.backend.refuse[RequestCode.CHANGE_MESSAGE_INVISIBLETIME] = ResponseCode.NO_MESSAGE
        refused = await consumers.change(handle, 20_000)
        assert (names(refused), refused.receipt_handle) == ("INTERNAL_SERVER_ERROR", handle)
        await asyncio.sleep(13)
        first.system_properties.receipt_handle = handle
        expired = await consumers.ack(first)
        assert names(expired) == "INVALID_RECEIPT_HANDLE"
        assert expired.entries[0].status.message == "receipt handle is expired"

    run_broker(scenario)


def test_dead_letters(run_broker: Any) -> None:
    async def scenario(case: Case) -> None:
        consumers = await made(case, 1)
        (message,) = (await consumers.receive()).messages
        handle = message.system_properties.receipt_handle
        group, topic = {"name": "g"}, {"name": "T"}

        async def forward(handle: str) -> Any:
            request = s.ForwardMessageToDeadLetterQueueRequest(
                group=group, topic=topic, receipt_handle=handle, message_id="ID"
            )
            return await consumers.unary("ForwardMessageToDeadLetterQueue", request)

        eight = await forward(handle.rpartition(" ")[0])
        done = await forward(handle)
        await asyncio.sleep(15)
        again = await consumers.receive()
        assert names(eight) == "INVALID_RECEIPT_HANDLE"
        assert names(done) == "OK"
        assert case.broker.core.store.max_offset("%DLQ%g", 0) == 1
        assert again.code == "MESSAGE_NOT_FOUND"

    run_broker(scenario)


def test_a_message_with_too_many_attempts_becomes_a_dead_letter(run_broker: Any) -> None:
    async def scenario(case: Case) -> None:
        consumers = await made(case, 1)
        configure(case, retry_max_times=0)
        first = await consumers.receive()
        await asyncio.sleep(13)
        second = await consumers.receive()
        await asyncio.sleep(1)
        assert first.bodies == [b"m0"]
        assert (second.code, second.text) == ("MESSAGE_NOT_FOUND", "no match message")
        assert case.broker.core.store.max_offset("%DLQ%g", 0) == 1

    run_broker(scenario)


def test_renewed_messages_stay_away_and_are_acknowledged_with_their_first_handle(
    run_broker: Any,
) -> None:
    async def scenario(case: Case) -> None:
        consumers = await made(case, 2)
        found = await consumers.receive(renews=True, invisible_ms=0)
        assert len(consumers.renewals) == 2
        for _ in range(600):
            await asyncio.sleep(1)
            consumers.renewals.step()
        assert (await consumers.receive()).code == "MESSAGE_NOT_FOUND"
        assert names(await consumers.ack(*found.messages)) == "OK"
        assert len(consumers.renewals) == 0
        assert not consumers.renewals._clients
        await asyncio.sleep(700)
        assert (await consumers.receive()).code == "MESSAGE_NOT_FOUND"

    run_broker(scenario)


@pytest.mark.parametrize(
    "how", ["lost", "gone", "stop", "bounded", pytest.param("long", marks=pytest.mark.long)]
)
@pytest.mark.timeout(600)
def test_messages_of_a_client_that_is_gone_come_again(
    run_broker: Any, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`long` lives for the three hours that a message is renewed; `bounded` has another bound, which is not compiled in."""
    if how == "bounded":
        if not str(renewals.__file__).endswith(".py"):
            pytest.skip("the bound is a constant of the compiled form")
        monkeypatch.setattr(renewals, "LONGEST_MS", 240_000)

    async def scenario(case: Case) -> None:
        consumers = await made(case, 2)
        found = await consumers.receive(renews=True, invisible_ms=0)
        if how == "lost":
            consumers.caller.peer.closed = True
        elif how == "gone":
            consumers.renewals.client_gone("client", "g")
        elif how == "stop":
            consumers.proxy.stop()
        for _ in range({"long": 11_000, "bounded": 300}.get(how, 60)):
            await asyncio.sleep(1)
            consumers.renewals.step()
        assert len(consumers.renewals) == 0
        if how in ("long", "bounded"):  # as after a failure: its retry policy's time
            await asyncio.sleep(15)
        other = consumers.backend.caller("other")
        reply = consumers.start("ReceiveMessage", receive(), caller=other)
        assert sorted((await received(reply)).bodies) == sorted(found.bodies)

    run_broker(scenario)


def test_an_answer_that_nobody_reads_is_given_back(run_broker: Any) -> None:
    """CLUSTER cannot take a pop back: its answer comes, and its messages go back."""

    async def scenario(case: Case) -> None:
        consumers = await made(case, 2)
        reply = consumers.start("ReceiveMessage", receive())
        assert reply.call is not None
        reply.call.over = True
        await asyncio.sleep(5)
        assert len((await consumers.receive()).bodies) == 2

    run_broker(scenario)


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("steps", range(0, 40, 2))
def test_a_cancel_at_every_step_takes_no_message(run_broker: Any, steps: int, order: bool) -> None:
    """The pop waits for a message, is run, and its answer waits for the disk: somewhere there it is cancelled."""

    async def scenario(case: Case) -> None:
        consumers = await made(case, 0)
        configure(case, consume_message_orderly=order)
        reply = consumers.start("ReceiveMessage", receive(polling_ms=15_000, invisible_ms=600_000))
        await asyncio.sleep(0.5)
        sent = asyncio.ensure_future(produce(case, b"m"))
        for _ in range(steps):
            await asyncio.sleep(0)
        assert reply.call is not None
        reply.call.cancelled()
        await sent
        if reply.done.is_set():  # its answer was faster
            assert (await received(reply)).bodies == [b"m"]
            return
        await asyncio.sleep(8)
        found = await consumers.receive()
        assert found.bodies == [b"m"]
        assert found.messages[0].system_properties.delivery_attempt <= 1 + order
        assert waiting(case) == 0

    run_broker(scenario, store={"flush_disk_type": FlushDiskType.SYNC_FLUSH})


@pytest.mark.parametrize("order", [False, True])
def test_what_waits_for_the_disk_when_its_client_goes_comes_again_as_not_tried(
    run_broker: Any, order: bool
) -> None:
    async def scenario(case: Case) -> None:
        consumers = await made(case, 1)
        configure(case, consume_message_orderly=order)
        reply = consumers.start("ReceiveMessage", receive(invisible_ms=600_000))
        job = consumers.backend.last.job
        for _ in range(1_000):
            if isinstance(job.hold, GiveBack) or reply.done.is_set():
                break
            await asyncio.sleep(0)
        assert isinstance(job.hold, GiveBack)
        assert reply.call is not None
        reply.call.cancelled()
        await asyncio.sleep(8)
        found = await consumers.receive()
        assert not reply.messages
        assert found.bodies == [b"m0"]
        assert order or found.messages[0].system_properties.delivery_attempt == 1

    run_broker(scenario, store={"flush_disk_type": FlushDiskType.SYNC_FLUSH})
