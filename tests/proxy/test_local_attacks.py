"""What mallory tries over gRPC at a closed broker that has alice's messages (`tests/access/attackers.py`)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.access.attackers import ALICE, GROUP, MALLORY, SECRET_BODY, TOPIC, Closed
from tests.access.attacks import OWN, OWN_GROUP, _timed
from tests.broker.pop_frames import pop_ext, popped
from tests.proxy.test_access import signed

from roquette.apps.local_proxy import LocalProxy
from roquette.proxy.service import SERVICE, Asks, Caller, RpcCall
from roquette.proxy.statuses import RpcError
from roquette.remoting.request import Peer
from roquette.remoting.transport import InnerWire
from roquette.wire.codes import RequestCode as R
from roquette.wire.proto import definition_pb2 as d
from roquette.wire.proto import service_pb2 as s
from roquette.wire.proto.definition_pb2 import Code
from roquette.wire.signature import Credentials
from roquette_testing.cluster import SimCluster, simulate

CLOSED_TO = (Code.FORBIDDEN, Code.UNAUTHORIZED)


class Client:
    """A v5 client of somebody, at the broker's proxy, without HTTP/2 between them."""

    def __init__(self, closed: Closed, who: Credentials | None, client_id: str) -> None:
        broker = closed.broker
        found = broker.feature(LocalProxy).sessions(broker._listeners._main)
        self.sessions = found
        self.who = who
        asks = Asks()
        wire = InnerWire(asks.answered, lambda *asked: self.asked.append(asked[1]), list)
        self.peer = Peer(
            found.dispatcher, asyncio.Transport(), id(self), bytes(8), "10.0.9.9:99", wire
        )
        self.caller = Caller(self.peer, client_id, asks)
        self.asked: list[int] = []
        self.got: list[Any] = []

    def respond(self, stream_id: int, message: bytes) -> None:
        self.got.append(message)

    def send(self, stream_id: int, messages: list[bytes]) -> None:
        self.got += messages

    def finish(self, stream_id: int, status: int, text: str) -> None:
        self.got.append((status, text))

    async def call(self, name: str, request: Any) -> int:
        """The status code; what streams: that of its first message, or gRPC's status."""
        self.got.clear()
        path, rpc = f"{SERVICE}{name}", self.sessions.proxy.rpcs[f"{SERVICE}{name}"]
        fields = {} if self.who is None else signed(self.who.access_key, self.who.secret_key)
        assert self.sessions.prove is not None
        try:
            self.sessions.prove(self.caller, {b":path": path.encode(), **fields})
        except RpcError as error:
            return error.code
        call = RpcCall(self.caller, rpc, self, 1)
        call.now_ms = 1
        self.sessions.proxy.begin(call, request.SerializeToString())
        await asyncio.sleep(1)
        if isinstance(self.got[0], tuple):
            return int(Code.FORBIDDEN) if self.got[0][0] == 3 else int(Code.INTERNAL_SERVER_ERROR)
        reply: Any = rpc.reply
        return int(reply.FromString(self.got[0]).status.code)


def run(scenario: Callable[[Closed], Awaitable[None]]) -> None:
    async def main(cluster: SimCluster) -> None:
        closed = Closed(cluster)
        await closed.build()
        await scenario(closed)

    simulate(main, seed=5)


def message(topic: str) -> s.SendMessageRequest:
    properties = d.SystemProperties(
        message_id="m1", message_type="NORMAL", body_encoding="IDENTITY", born_host="h"
    )
    return s.SendMessageRequest(
        messages=[d.Message(topic=d.Resource(name=topic), body=b"x", system_properties=properties)]
    )


def consumer(group: str, topic: str) -> s.TelemetryCommand:
    entry = d.SubscriptionEntry(topic=d.Resource(name=topic))
    wanted = d.Subscription(group=d.Resource(name=group), subscriptions=[entry])
    return s.TelemetryCommand(
        settings=d.Settings(client_type=d.ClientType.PUSH_CONSUMER, subscription=wanted)
    )


def producer(topic: str) -> s.TelemetryCommand:
    published = d.Publishing(topics=[d.Resource(name=topic)])
    return s.TelemetryCommand(
        settings=d.Settings(client_type=d.ClientType.PRODUCER, publishing=published)
    )


@pytest.mark.parametrize("who", [MALLORY, None, Credentials("alice", "guessed")])
def test_anothers_topic_is_not_written_and_none_is_made(who: Credentials | None) -> None:
    async def scenario(closed: Closed) -> None:
        client, before = Client(closed, who, "m"), await closed.count()
        for topic in (TOPIC, "alice-fresh"):
            assert await client.call("SendMessage", message(topic)) in CLOSED_TO
        assert await closed.count() == before
        assert closed.broker.tables.topics.find("alice-fresh") is None

    run(scenario)


def test_who_may_does() -> None:
    async def scenario(closed: Closed) -> None:
        alice, before = Client(closed, ALICE, "a"), await closed.count("alice-fresh")
        for _ in range(8):
            assert await alice.call("SendMessage", message("alice-fresh")) == Code.OK
        assert await closed.count("alice-fresh") > before
        assert await Client(closed, MALLORY, "m").call("SendMessage", message(OWN)) == Code.OK

    run(scenario)


@pytest.mark.promise("Security", "a client's id is its account's, in each protocol")
def test_another_clients_id_is_not_taken() -> None:
    async def scenario(closed: Closed) -> None:
        alice, mallory = Client(closed, ALICE, "same"), Client(closed, MALLORY, "same")
        assert await alice.call("Telemetry", consumer(GROUP, TOPIC)) in (0, Code.OK)
        for request in (consumer(GROUP, TOPIC), consumer(OWN_GROUP, OWN), producer(OWN)):
            assert await mallory.call("Telemetry", request) == Code.FORBIDDEN
        for group in (GROUP, OWN_GROUP):
            named = d.Resource(name=group)
            assert await mallory.call("Heartbeat", s.HeartbeatRequest(group=named)) in CLOSED_TO
            left = s.NotifyClientTerminationRequest(group=named)
            assert await mallory.call("NotifyClientTermination", left) in CLOSED_TO
        assert closed.broker.tables.consumers.find(GROUP).client_ids() == ["same"]

    run(scenario)


def test_anothers_transactions_are_not_checked_with_her_nor_ended_by_her() -> None:
    async def scenario(closed: Closed) -> None:
        mallory = Client(closed, MALLORY, "m")
        assert await mallory.call("Telemetry", producer(TOPIC)) == Code.FORBIDDEN
        half, before = await closed.half(), await closed.count()
        for topic in (TOPIC, OWN):
            for resolution in (1, 2):
                request = s.EndTransactionRequest(
                    topic=d.Resource(name=topic), message_id=half["msgId"],
                    transaction_id=half["transactionId"], resolution=resolution, source=1,
                )  # fmt: skip
                assert await mallory.call("EndTransaction", request) != Code.OK
        await asyncio.sleep(10)
        assert await closed.count() == before
        assert mallory.asked == []
        ended = await closed.alice.ask(
            R.END_TRANSACTION, half | {"commitOrRollback": 8, "topic": TOPIC}
        )
        assert ended.code == 0

    run(scenario)


def test_anothers_timer_is_not_recalled() -> None:
    async def scenario(closed: Closed) -> None:
        before, mallory = await closed.count(), Client(closed, MALLORY, "m")
        handle, _ = await _timed(closed)
        for topic in (TOPIC, OWN):
            request = s.RecallMessageRequest(topic=d.Resource(name=topic), recall_handle=handle)
            assert await mallory.call("RecallMessage", request) != Code.OK
        await asyncio.sleep(40)
        assert await closed.count() == before + 1

    run(scenario)


def test_anothers_receipts_are_not_used() -> None:
    """A receipt of alice's, under her names and under mallory's own."""

    async def scenario(closed: Closed) -> None:
        fields = pop_ext(closed.now_ms()) | {
            "topic": TOPIC, "consumerGroup": GROUP, "queueId": 0, "invisibleTime": 10_000,
        }  # fmt: skip
        (held,) = popped(await closed.alice.ask(R.POP_MESSAGE, fields))
        handle, mallory = held.ack_ext(GROUP)["extraInfo"], Client(closed, MALLORY, "m")
        for group in (GROUP, OWN_GROUP):
            for topic in (TOPIC, OWN):
                names = {"group": d.Resource(name=group), "topic": d.Resource(name=topic)}
                entry = s.AckMessageEntry(message_id="alice-1", receipt_handle=handle)
                ack = s.AckMessageRequest(**names, entries=[entry])
                hers = (group, topic) == (OWN_GROUP, OWN)  # it is none of those: nothing happens
                assert await mallory.call("AckMessage", ack) in CLOSED_TO or hers
                longer = s.ChangeInvisibleDurationRequest(
                    **names, message_id="alice-1", receipt_handle=handle
                )
                longer.invisible_duration.seconds = 3600
                said = await mallory.call("ChangeInvisibleDuration", longer)
                assert said in CLOSED_TO or hers
                buried = s.ForwardMessageToDeadLetterQueueRequest(
                    **names, message_id="alice-1", receipt_handle=handle, max_delivery_attempts=1
                )
                said = await mallory.call("ForwardMessageToDeadLetterQueue", buried)
                assert said in (*CLOSED_TO, Code.INVALID_RECEIPT_HANDLE)
        await asyncio.sleep(60)
        again = await closed.alice.ask(
            R.POP_MESSAGE, fields | {"bornTime": closed.now_ms(), "queueId": -1}
        )
        assert [message.record.body for message in popped(again)] == [SECRET_BODY]

    run(scenario)
