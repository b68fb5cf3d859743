"""What producers do over the v5 protocol at a broker, in virtual time: what is sent is in the broker, and what is not is not."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from roquette.apps.local_proxy import LocalProxy
from roquette.message.message import ReceivedMessage
from roquette.message.message_id import host_bytes
from roquette.proxy.service import SERVICE, Asks, BrokerAnswer, Caller, RpcCall
from roquette.remoting.request import Peer
from roquette.remoting.transport import InnerWire
from roquette.wire.proto import definition_pb2 as d
from roquette.wire.proto import service_pb2 as s
from roquette_testing.cluster import SimCluster, simulate

pytestmark = pytest.mark.simulation

Code = d.Code
BROKER, PRODUCER, READER = "10.0.1.1", "10.0.2.1", "10.0.3.1"
ids = itertools.count(1)


class Inside:
    """A v5 producer without a network: its calls go to the broker's proxy as a session passes them on.

    Attributes:
        commands: what the broker asks over Telemetry.
    """

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.commands: asyncio.Queue[s.TelemetryCommand] = asyncio.Queue()
        broker = cluster.hosts[BROKER].service
        sessions = broker.feature(LocalProxy).sessions(broker._listeners._main)
        self.proxy = sessions.proxy
        asks = Asks()
        wire = InnerWire(asks.answered, self._asked, list)
        self.peer = Peer(
            sessions.dispatcher,
            asyncio.Transport(),
            -7,
            host_bytes(PRODUCER, 4567),
            f"{PRODUCER}:4567",
            wire,
        )
        self.caller = Caller(self.peer, "producer", asks)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    def _asked(self, opaque: int, code: int, ext: bytes, body: bytes, oneway: bool) -> None:
        def answer(said: BrokerAnswer) -> None:
            assert oneway, said

        assert self.proxy.asked(self.peer, code, ext, body, answer)

    def begin(self, rpc: str, request: Any) -> RpcCall:
        row = self.proxy.rpcs[SERVICE + rpc]
        call = RpcCall(self.caller, row, self, next(ids))
        call.now_ms = self.cluster.clock.now_ms()
        self._waiting[call.stream_id] = asyncio.get_running_loop().create_future()
        self.proxy.begin(call, request.SerializeToString())
        return call

    async def call(self, rpc: str, request: Any) -> Any:
        call = self.begin(rpc, request)
        message = await asyncio.wait_for(self._waiting[call.stream_id], 10)
        return getattr(s, f"{rpc}Response").FromString(message)

    async def sent(self, message: d.Message) -> Any:
        """The entry of a message that is sent."""
        reply = await self.call("SendMessage", s.SendMessageRequest(messages=[message]))
        assert Code.Name(reply.status.code) == "OK", reply
        return reply.entries[0]

    # What a session is for a call.

    def respond(self, stream_id: int, message: bytes) -> None:
        self._waiting[stream_id].set_result(message)

    def send(self, stream_id: int, messages: list[bytes]) -> None:
        for message in messages:
            self.commands.put_nowait(s.TelemetryCommand.FromString(message))

    def finish(self, stream_id: int, status: int, text: str) -> None:
        raise AssertionError(text)


class World:
    """A broker, a v5 producer, and a reader of ours."""

    def __init__(self, cluster: SimCluster, v5: Inside, reader: Any) -> None:
        self.cluster = cluster
        self.v5 = v5
        self.reader = reader

    async def read(self, topic: str, seconds: float = 0) -> list[ReceivedMessage]:
        """All messages of a topic, by queue and offset."""
        await asyncio.sleep(seconds)
        found: list[ReceivedMessage] = []
        consumer = self.reader.reader(group=f"g{self.cluster.loop.time()}".replace(".", "_"))
        queues = await self.reader.queues(topic)
        await consumer.assign(queues)
        for queue in queues:
            consumer.seek(queue, 0)
        while some := await consumer.poll(timeout=0.5):
            found += some
        await consumer.close()
        return sorted(found, key=lambda one: (one.queue.queue_id, one.queue_offset))

    def message(self, topic: str, body: bytes, **system: Any) -> d.Message:
        fields = {"message_id": f"01{next(ids):032X}", **system}
        properties = d.SystemProperties(**fields)
        return d.Message(topic=d.Resource(name=topic), body=body, system_properties=properties)

    async def send(self, topic: str, body: bytes, **system: Any) -> Any:
        """The entry of a message that is sent."""
        return await self.v5.sent(self.message(topic, body, **system))

    def later(self, seconds: float) -> dict[str, int]:
        return {"seconds": int(self.cluster.clock.now_ms() / 1000 + seconds)}

    async def end(self, topic: str, entry: Any, resolution: Any) -> tuple[str, str]:
        request = s.EndTransactionRequest(
            topic=d.Resource(name=topic),
            message_id=entry.message_id,
            transaction_id=entry.transaction_id,
            resolution=resolution,
            source=d.TransactionSource.SOURCE_CLIENT,
        )
        reply = await self.v5.call("EndTransaction", request)
        return Code.Name(reply.status.code), reply.status.message


def at_a_broker(work: Callable[[World], Awaitable[None]], **settings: Any) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv("10.0.0.1")
        await cluster.add_broker(BROKER, "broker-a", **settings)
        reader = await cluster.client(READER)
        await work(World(cluster, Inside(cluster), reader))

    simulate(scenario, seed=3)


def test_messages_of_each_kind() -> None:
    async def work(world: World) -> None:
        for number in range(16):
            entry = await world.send("plain", b"%d" % number, tag="t", keys=["k1", "k2"])
        assert entry.offset == 1
        got = await world.read("plain")
        assert [one.queue.queue_id for one in got] == [i // 2 for i in range(16)]  # in turns
        assert (got[0].tag, got[0].keys) == ("t", ("k1", "k2"))
        assert got[0].born_host.startswith(f"{PRODUCER}:")
        assert entry.message_id in {one.message_id for one in got}

        for number in range(6):
            await world.send("ordered", b"%d" % number, message_group="order1")
        got = await world.read("ordered")
        assert [(one.queue.queue_id, one.body) for one in got] == [(1, b"%d" % i) for i in range(6)]

        entry = await world.send("late", b"late", delivery_timestamp=world.later(20))
        assert entry.recall_handle
        assert await world.read("late", 10) == []
        assert [one.body for one in await world.read("late", 15)] == [b"late"]

        entry = await world.send("urgent", b"urgent", priority=3)
        (one,) = await world.read("urgent")
        assert one.properties["_SYS_MSG_PRIORITY_"] == "3"

    at_a_broker(work)


def test_a_batch_and_what_a_batch_may_not_hold() -> None:
    async def work(world: World) -> None:
        kinds: list[dict[str, Any]] = [{}, {}, {"delivery_timestamp": world.later(20)}, {}, {}]
        sent = [world.message("many", b"%d" % i, **kind) for i, kind in enumerate(kinds)]
        reply = await world.v5.call("SendMessage", s.SendMessageRequest(messages=sent))
        assert Code.Name(reply.status.code) == "OK"
        ids = [one.system_properties.message_id for one in sent]
        assert [entry.message_id for entry in reply.entries] == ids
        got = await world.read("many")
        assert [one.body for one in got] == [b"0", b"1", b"3", b"4"]
        assert [one.queue_offset for one in got] == [reply.entries[i].offset for i in (0, 1, 3, 4)]
        assert [one.message_id for one in got] == [ids[i] for i in (0, 1, 3, 4)]
        assert {one.body for one in await world.read("many", 25)} == {b"0", b"1", b"2", b"3", b"4"}

    at_a_broker(work)


def test_a_recalled_message_is_not_delivered() -> None:
    async def work(world: World) -> None:
        entries = [
            await world.send("late", body, delivery_timestamp=world.later(30))
            for body in (b"kept", b"recalled")
        ]
        request = s.RecallMessageRequest(
            topic=d.Resource(name="late"), recall_handle=entries[1].recall_handle
        )
        reply = await world.v5.call("RecallMessage", request)
        assert (Code.Name(reply.status.code), reply.message_id) == ("OK", entries[1].message_id)
        assert [one.body for one in await world.read("late", 40)] == [b"kept"]

    at_a_broker(work, recall_message_enable=True)


def test_transactions_end_once_and_after_a_restart() -> None:
    async def work(world: World) -> None:
        half = {"message_type": d.MessageType.TRANSACTION}
        commit, rollback = d.TransactionResolution.COMMIT, d.TransactionResolution.ROLLBACK
        names = (b"committed", b"rolled back", b"nobody knows", b"another's", b"after a restart")
        entries = [await world.send("halves", body, **half) for body in names]
        assert await world.read("halves") == []
        assert await world.end("halves", entries[0], commit) == ("OK", "OK")
        assert (await world.end("halves", entries[0], commit))[0] == "INTERNAL_SERVER_ERROR"
        assert await world.end("halves", entries[1], rollback) == ("OK", "OK")
        assert (await world.end("halves", entries[1], commit))[0] == "INTERNAL_SERVER_ERROR"
        assert await world.end("halves", entries[2], 0) == ("OK", "OK")
        await world.send("others", b"x")
        assert (await world.end("others", entries[3], commit))[0] == "INTERNAL_SERVER_ERROR"
        await world.cluster.stop(BROKER)
        await world.cluster.restart(BROKER)
        world.v5 = Inside(world.cluster)
        assert await world.end("halves", entries[4], commit) == ("OK", "OK")
        got = await world.read("halves")
        assert {one.body for one in got} == {b"committed", b"after a restart"}

    at_a_broker(work)


def test_topics_that_may_not_be_made() -> None:
    async def work(world: World) -> None:
        for topic, code in (("missing", "TOPIC_NOT_FOUND"), ("TBW102", "ILLEGAL_TOPIC")):
            request = s.SendMessageRequest(messages=[world.message(topic, b"x")])
            reply = await world.v5.call("SendMessage", request)
            assert Code.Name(reply.status.code) == code

    at_a_broker(work, auto_create_topic_enable=False)


def test_a_half_message_that_nobody_ends_is_asked_about() -> None:
    async def work(world: World) -> None:
        publishing = d.Publishing(topics=[d.Resource(name="halves")])
        settings = d.Settings(client_type=d.ClientType.PRODUCER, publishing=publishing)
        world.v5.begin("Telemetry", s.TelemetryCommand(settings=settings))
        assert (await world.v5.commands.get()).HasField("settings")
        await world.send("halves", b"asked", message_type=d.MessageType.TRANSACTION)
        command = await asyncio.wait_for(world.v5.commands.get(), 120)
        asked = command.recover_orphaned_transaction_command
        assert asked.message.body == b"asked"
        entry = s.SendResultEntry(message_id="ID", transaction_id=asked.transaction_id)
        assert await world.end("halves", entry, d.TransactionResolution.COMMIT) == ("OK", "OK")
        assert [one.body for one in await world.read("halves")] == [b"asked"]

    at_a_broker(work)
