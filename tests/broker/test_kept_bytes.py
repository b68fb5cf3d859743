"""What peers make a broker keep: each holder of bytes driven by a hostile peer, in virtual time.

The account (`remoting/account.py`) says what is kept, tracemalloc what is allocated: neither is beyond the stated bound, and
nothing is kept that the account does not know.
"""

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.broker.conftest import HOST, PORT, pull_ext, send_ext
from tests.broker.pop_frames import pop_ext
from tests.proxy.test_session import Client

from roquette.remoting.account import LITTLE
from roquette.remoting.request import BYTES
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.grpc import prefixed
from roquette.wire.proto import definition_pb2 as d
from roquette.wire.proto import service_pb2 as s

MIB = 1 << 20
LARGE = bytes(4 * MIB)  # one object: what the test itself keeps is the same before and after
KEPT = 128 * MIB  # maxKeptBytes of these brokers
OF_PEER = KEPT // 4
SYNC = {"broker_role": "SYNC_MASTER", "in_sync_replicas": 2, "slave_timeout": 60_000}


class World:
    """A broker and what it keeps."""

    def __init__(self, case: Any) -> None:
        self.case = case
        self.limits = case.broker._listeners.limits
        self.clients: list[Any] = []  # they stay connected

    async def raw(self) -> Any:
        client = await self.case.client()
        self.clients.append(client)
        return client

    async def grpc(self, **options: Any) -> Client:
        _, client = await self.case.loop.create_connection(lambda: Client(**options), HOST, PORT)
        self.clients.append(client)
        return client

    @property
    def peers(self) -> list[Any]:
        return list(self.case.broker.peers())

    @property
    def unread(self) -> list[Any]:
        return [peer for peer in self.peers if peer.unread & BYTES]


async def swallow(client: Any) -> None:
    """Read, and answer nothing."""
    while await client.reader.read(1 << 16):
        pass


async def half_frames(world: World) -> None:
    for _ in range(3):
        client = await world.raw()
        client.writer.write((15 * MIB).to_bytes(4, "big") + LARGE + LARGE)


async def bodies_of_pulls(world: World) -> None:
    """Before: 60 MiB."""
    client = await world.raw()
    for _ in range(15):
        client.send(11, pull_ext(offset=1, sysFlag=6), LARGE)


async def fields_of_pulls(world: World) -> None:
    """Before: 43 MiB."""
    client = await world.raw()
    for _ in range(100):
        client.send(11, pull_ext(offset=1, sysFlag=6, more="x" * 450_000))


async def bodies_of_pops(world: World) -> None:
    """Before: 116 MiB."""
    client = await world.raw()
    now_ms = world.case.clock.now_ms()
    for _ in range(15):
        client.send(200050, pop_ext(now_ms, topic="U", pollTime=15_000), LARGE)
        ext = {
            "consumerGroup": "g",
            "topic": "U",
            "queueId": -1,
            "pollTime": 15_000,
            "bornTime": now_ms,
        }
        client.send(RequestCode.NOTIFICATION, ext, LARGE)


async def tags_of_pulls_and_pops(world: World) -> None:
    """Before: six times what was sent."""
    client = await world.raw()
    tags = "||".join(f"t{number}" for number in range(60_000))
    pull = await client.call(11, pull_ext(offset=1, sysFlag=6, subscription=tags))
    assert pull.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "16384 are allowed" in pull.remark
    pop = await client.call(200050, pop_ext(world.case.clock.now_ms(), pollTime=9_000, exp=tags))
    assert pop.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "16384 are allowed" in pop.remark


async def bodies_of_tasks(world: World) -> None:
    """Questions that the broker passes on to a client that does not answer. Before: 80 MiB, and on to 256 bodies."""
    member = await world.raw()
    beat = (
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
        b'"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":[]}]}'
    )
    assert (await member.call(34, {}, beat)).code == 0
    answered = asyncio.ensure_future(swallow(member))
    client = await world.raw()
    for _ in range(20):
        client.send(307, {"consumerGroup": "g", "clientId": "c", "jstackEnable": False}, LARGE)
        await asyncio.sleep(0.01)
        if world.unread:
            break
    await asyncio.sleep(0.5)
    (asker,) = [peer for peer in world.unread if peer.running]
    assert OF_PEER < asker.kept < OF_PEER + 2 * len(LARGE)
    answered.cancel()


async def waiting_sends(world: World) -> None:
    """A replica stands still. Before: 60 MiB."""
    client = await world.raw()
    for _ in range(60):
        client.send(310, send_ext("T"), LARGE[:MIB])


async def never_begun_calls(world: World) -> None:
    """Calls of which only the fields come, each of another client that says much of itself. Before: 15 MB for 130 KB, and as many times
    as there are connections."""
    client = await world.grpc()
    for number in range(3_000):
        client.ask(
            "SendMessage", b"", end=False, x_mq_client_id=str(number), x_mq_language="L" * 3_900
        )
    await asyncio.sleep(0.5)


async def unfinished_messages(world: World) -> None:
    client = await world.grpc()
    whole = prefixed(LARGE)
    for _ in range(8):
        client.ask("SendMessage", whole, cut=3 * MIB, end=False)
        await asyncio.sleep(0.2)


async def tags_of_receives(world: World) -> None:
    """Before: 50 MB for each."""
    client = await world.grpc()
    request = s.ReceiveMessageRequest()
    request.group.name, request.message_queue.topic.name = "g", "T"
    request.batch_size, request.auto_renew = 1, True
    request.filter_expression.expression = "||".join(f"t{number}" for number in range(250_000))
    streams = [client.ask("ReceiveMessage", request) for _ in range(2)]
    await asyncio.sleep(1)
    for stream in streams:
        reply = s.ReceiveMessageResponse.FromString(
            client.heard[stream][5 : 5 + int.from_bytes(client.heard[stream][1:5], "big")]
        )
        assert reply.status.code == d.Code.ILLEGAL_FILTER_EXPRESSION
        assert "16384 are allowed" in reply.status.message


async def ask_until_unread(world: World, client: Any, rpc: str, request: Any, most: int) -> None:
    """At a quarter of all the connection is not read any more."""
    for _ in range(most):
        client.ask(rpc, request)
        await asyncio.sleep(0.05)
        if world.unread:
            break
    assert world.unread[0].kept > OF_PEER


async def what_receives_name(world: World) -> None:
    """Receives that wait, with long names of attempts: they count, and at a quarter of all the connection is not read."""
    client = await world.grpc()
    request = s.ReceiveMessageRequest()
    request.group.name, request.message_queue.topic.name = "g", "U"
    request.batch_size, request.auto_renew = 1, True
    request.attempt_id = "a" * MIB
    await ask_until_unread(world, client, "ReceiveMessage", request, 45)


async def sends_behind_a_shut_window(world: World) -> None:
    """Nobody takes the answers, so the requests wait. Before: 92 MiB, and on."""
    producer = await world.raw()
    assert (await producer.produce("V", body=LARGE[: 2 * MIB])).code == 0
    client = await world.grpc(window=0)
    poll = s.ReceiveMessageRequest()
    poll.group.name, poll.message_queue.topic.name = "g", "V"
    poll.batch_size, poll.auto_renew = 32, True
    client.ask("ReceiveMessage", poll)
    await asyncio.sleep(0.5)
    request = s.SendMessageRequest()
    message = request.messages.add()
    message.topic.name, message.body = "T", LARGE[: 3 * MIB]
    message.system_properties.message_id = "1"
    message.system_properties.message_type = d.MessageType.NORMAL
    await ask_until_unread(world, client, "SendMessage", request, 30)


async def answers_for_a_shut_window(world: World) -> None:
    """Small ones, many: each costs more than its bytes."""
    client = await world.grpc(window=0)
    question = s.QueryRouteRequest()
    question.topic.name = "T"
    for _ in range(4_000):
        client.ask("QueryRoute", question)


HOLDERS: list[tuple[Callable[[World], Awaitable[None]], int, dict[str, Any]]] = [
    (half_frames, 26 * MIB, {}),
    (bodies_of_pulls, MIB, {}),
    (fields_of_pulls, MIB, {}),
    (bodies_of_pops, MIB, {}),
    (tags_of_pulls_and_pops, MIB, {}),
    (bodies_of_tasks, 2 * OF_PEER + 18 * MIB, {}),
    (waiting_sends, 2 * MIB, SYNC),
    (never_begun_calls, 7 * MIB, {}),
    (unfinished_messages, 26 * MIB, {}),
    (tags_of_receives, MIB, {}),
    (what_receives_name, OF_PEER + 6 * MIB, {}),
    (sends_behind_a_shut_window, OF_PEER + 12 * MIB, {}),
    (answers_for_a_shut_window, 10 * MIB, {}),
]
"""Each holder, with the bytes it may keep of what its peer does."""


@pytest.mark.promise("Bounds", "the bytes that are kept for peers are counted and bounded")
@pytest.mark.promise(
    "Security", "all that is kept for a connection is counted and bounded, whoever keeps it"
)
@pytest.mark.parametrize(
    ("holder", "bound", "broker"), HOLDERS, ids=[row[0].__name__ for row in HOLDERS]
)
def test_what_is_kept_is_counted_and_bounded(
    run_broker: Any, holder: Any, bound: int, broker: dict[str, Any]
) -> None:
    async def scenario(case: Any) -> None:
        world = World(case)
        if not broker:
            client = await case.client()
            for topic in "TU":
                assert (await client.produce(topic, body=b"first")).code == 0
            client.writer.close()
        account = world.limits.account
        await asyncio.sleep(1)
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        await holder(world)
        await asyncio.sleep(2)
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        print(
            f"\n{holder.__name__}: kept {kept / MIB:.1f} MiB, account {account.total / MIB:.1f} MiB"
        )
        assert account.total <= bound
        assert kept <= bound + 4 * MIB
        assert kept <= account.total + 4 * MIB, "something is kept that is not counted"
        assert account.total == sum(peer.kept for peer in world.peers)
        # A peer that keeps little is read and served, whoever keeps how much.
        other = await case.client()
        assert (await other.call(11, pull_ext(offset=0))).code is not None
        for one in world.clients:
            transport = one.transport if isinstance(one, Client) else one.writer.transport
            transport.abort()
        for _ in range(620):
            await asyncio.sleep(1)
            kept_by = [peer.kept for peer in world.peers]
            if account.total == sum(kept_by) and all(kept <= LITTLE for kept in kept_by):
                break
        else:
            raise AssertionError(f"not all is given back: {account.total} of {kept_by}")

    run_broker(
        scenario,
        broker={"max_kept_bytes": KEPT} | broker,
        store={"segment_size": 64 * MIB},
    )


@pytest.mark.promise("Bounds", "of large answers one is made at a time")
@pytest.mark.parametrize("code", [202, 208, 303])
def test_large_answers_take_the_memory_of_one(run_broker: Any, code: int) -> None:
    """A topic may have 65,536 queues, and a connection 256 requests in tasks. Before: 22 MiB for each of them."""
    ext = {"topic": "W", "group": "g", "consumerGroup": "g"}

    async def scenario(case: Any) -> None:
        client = await case.client()
        made = {"topic": "W", "readQueueNums": 1_500, "writeQueueNums": 1_500, "perm": 6}
        made |= {
            "defaultTopic": "TBW102",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
        }
        assert (await client.call(17, made)).code == 0
        size = len((await client.call(code, ext)).body)
        assert size > 150_000
        reading = asyncio.ensure_future(swallow(client))

        async def peak(count: int) -> int:
            gc.collect()
            tracemalloc.start()
            for _ in range(count):
                client.send(code, ext)
            await asyncio.sleep(0.1)
            while any(peer.running for peer in case.broker.peers()):
                await asyncio.sleep(0.01)
            found = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            return found

        one = await peak(1)
        assert await peak(10) < one + 4 * size
        reading.cancel()

    run_broker(scenario)
