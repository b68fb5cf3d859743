"""grpcio's client, which is gRPC's own C core, at a session: every kind of call."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from tests.proxy.toy_proxy import World

from roquette.base.clock import SystemClock
from roquette.proxy.settings import ProxySettings
from roquette.wire.proto import definition_pb2 as d
from roquette.wire.proto import service_pb2 as s

SERVICE = "/apache.rocketmq.v2.MessagingService/"
META = (("x-mq-client-id", "c1"), ("x-mq-namespace", "ns"), ("x-mq-language", "KLINGON"))
Code = d.Code


class Client:
    """A channel; its calls block, so they run in a thread."""

    def __init__(self, port: int, world: World) -> None:
        options = (("grpc.max_receive_message_length", -1),)
        self.world = world
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", options)

    def send(self, topic: str, body: bytes = b"x", **kw: Any) -> Any:
        request = s.SendMessageRequest()
        message = request.messages.add()
        message.topic.name = topic
        message.body = body
        kw.setdefault("timeout", 10)
        kw.setdefault("metadata", META)
        return self.unary("SendMessage")(request, **kw)

    def unary(self, name: str) -> Any:
        return self.channel.unary_unary(
            SERVICE + name, lambda m: m.SerializeToString(), s.SendMessageResponse.FromString
        )

    def receive(self, size: int, **kw: Any) -> Any:
        call = self.channel.unary_stream(
            f"{SERVICE}ReceiveMessage",
            lambda m: m.SerializeToString(),
            s.ReceiveMessageResponse.FromString,
        )
        kw.setdefault("timeout", 10)
        return call(s.ReceiveMessageRequest(batch_size=size), metadata=META, **kw)

    def talk(self, commands: Iterator[Any]) -> Any:
        call = self.channel.stream_stream(
            f"{SERVICE}Telemetry",
            lambda m: m.SerializeToString(),
            s.TelemetryCommand.FromString,
        )
        return call(commands, metadata=META, timeout=10)


def served(work: Callable[[Client], None], **options: Any) -> World:
    """Run `work` in a thread, against a session on a real port."""

    async def scenario() -> World:
        loop = asyncio.get_running_loop()
        world = World(loop, SystemClock(), **options)
        listener = await loop.create_server(world.accept, "127.0.0.1", 0)
        client = Client(listener.sockets[0].getsockname()[1], world)
        try:
            await asyncio.to_thread(work, client)
        finally:
            await asyncio.to_thread(client.channel.close)
            listener.close()
            await world.sessions.close()
        return world

    return asyncio.run(scenario())


def test_a_unary_call_and_who_makes_it() -> None:
    def work(client: Client) -> None:
        reply = client.send("orders", b"12345")
        assert (reply.status.code, reply.entries[0].offset) == (Code.OK, 5)
        call = client.world.toy.calls[0]
        caller = call.caller
        assert (caller.client_id, caller.namespace, caller.language) == ("c1", "ns", "KLINGON")
        assert caller.authority.startswith("127.0.0.1:")
        assert call.deadline_ms is not None and 0 < call.deadline_ms - call.arrived_ms <= 10_001
        client.send("orders")
        assert client.world.toy.calls[0].caller is caller, "one for all its calls"

    world = served(work)
    assert not world.sessions.open_now and not world.peers and len(world.toy.lost) == 1


def test_errors_travel_in_the_reply() -> None:
    def work(client: Client) -> None:
        assert client.send("refuse").status.code == Code.TOPIC_NOT_FOUND
        assert client.send("crash").status.code == Code.INTERNAL_SERVER_ERROR
        assert client.send("o", metadata=()).status.code == Code.CLIENT_ID_REQUIRED

    assert served(work).proxy.crashed == 1


def test_a_message_of_4_mib_passes_and_one_of_6_does_not() -> None:
    def work(client: Client) -> None:
        assert client.send("o", bytes(4 << 20)).entries[0].offset == 4 << 20
        reply = client.send("o", bytes(6 << 20))
        assert reply.status.code == Code.PAYLOAD_TOO_LARGE
        codes = [
            client.send("o", bytes(1 << 20), compression=grpc.Compression.Gzip).status.code
            for _ in range(20)
        ]
        assert codes.count(Code.OK) < 8, "a few bytes are not message after message of many"
        assert codes[-1] == Code.PAYLOAD_TOO_LARGE
        assert "5242880 are the most" in reply.status.message
        assert client.send("o").status.code == Code.OK

    served(work)


def test_a_reply_of_3_mib_comes_through_the_clients_windows() -> None:
    def work(client: Client) -> None:
        assert len(client.send(f"big{3 << 20}").status.message) == 3 << 20

    served(work)


def test_gzip_is_understood() -> None:
    def work(client: Client) -> None:
        reply = client.send("o", bytes(100_000), compression=grpc.Compression.Gzip)
        assert reply.entries[0].offset == 100_000
        reply = client.send("o", bytes(6 << 20), compression=grpc.Compression.Gzip)
        assert reply.status.code == Code.PAYLOAD_TOO_LARGE
        with pytest.raises(grpc.RpcError) as error:
            client.send("o", bytes(100_000), compression=grpc.Compression.Deflate)
        assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert error.value.details() == "grpc-encoding deflate is not supported"

    served(work)


def test_a_method_that_does_not_exist() -> None:
    def work(client: Client) -> None:
        with pytest.raises(grpc.RpcError) as error:
            client.unary("PullÄll")(s.SendMessageRequest(), timeout=10)
        assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED

    served(work)


def test_a_reply_of_several_messages() -> None:
    def work(client: Client) -> None:
        got = list(client.receive(1_000))
        assert got[0].status.code == Code.OK and len(got) == 1_001
        assert {len(one.message.body) for one in got[1:]} == {100}

    served(work)


def test_a_conversation() -> None:
    def commands() -> Iterator[Any]:
        first = s.TelemetryCommand()
        first.settings.user_agent.language = d.Language.PYTHON
        yield first
        for number in range(3):
            further = s.TelemetryCommand()
            further.thread_stack_trace.nonce = str(number)
            yield further

    def work(client: Client) -> None:
        said = list(client.talk(commands()))
        assert [one.thread_stack_trace.nonce for one in said] == ["", "0", "1", "2"]
        with pytest.raises(grpc.RpcError) as error:
            list(client.talk(iter([s.TelemetryCommand()])))
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert error.value.details() == "settings come first"

    assert served(work).toy.ended == ["end"]


def test_a_cancelled_call_and_one_whose_deadline_passes_are_cancelled_here() -> None:
    def work(client: Client) -> None:
        held = client.receive(0)
        while not client.world.toy.held:
            time.sleep(0.005)
        held.cancel()
        while client.world.toy.held:
            time.sleep(0.005)
        with pytest.raises(grpc.RpcError) as error:
            client.send("hold", timeout=0.3)
        assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        while client.world.toy.held:
            time.sleep(0.005)

    assert served(work).toy.cancelled == 2


def test_a_lost_connection_cancels_what_it_asked() -> None:
    def work(client: Client) -> None:
        polls = [client.receive(0), client.receive(0)]
        while len(client.world.toy.held) < 2:
            time.sleep(0.005)
        client.channel.close()
        while client.world.toy.lost == []:
            time.sleep(0.005)
        assert len(polls) == 2

    world = served(work)
    assert world.toy.cancelled == 2 and not world.toy.held


def test_the_end_lets_calls_finish_and_tells_streams() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        world = World(loop, SystemClock(), settings=ProxySettings(grpc_shutdown_time_seconds=5))
        listener = await loop.create_server(world.accept, "127.0.0.1", 0)
        client = Client(listener.sockets[0].getsockname()[1], world)
        first = s.TelemetryCommand()
        first.settings.user_agent.language = d.Language.PYTHON
        more = asyncio.Event()

        def commands() -> Iterator[Any]:
            yield first
            asyncio.run_coroutine_threadsafe(more.wait(), loop).result()

        talk = client.talk(commands())
        await asyncio.to_thread(next, talk)
        poll = asyncio.create_task(asyncio.to_thread(lambda: list(client.receive(0))))
        while len(world.toy.held) < 2:
            await asyncio.sleep(0.01)
        began = loop.time()
        await world.sessions.close()
        assert loop.time() - began < 4
        assert [one.status.code for one in await poll] == [Code.MESSAGE_NOT_FOUND]
        assert talk.code() is grpc.StatusCode.UNAVAILABLE
        more.set()
        listener.close()
        await asyncio.to_thread(client.channel.close)
        assert world.toy.stopped and not world.peers

    asyncio.run(scenario())
