"""Sessions in virtual time: what time, lost connections and peers that do not read do to calls."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import ngh2
import pytest
from tests.proxy.toy_proxy import Code, World
from tests.wire.http2_h2 import H2Connection

from roquette.base.clock import LoopClock
from roquette.errors import Refused
from roquette.proxy.settings import ProxySettings
from roquette.remoting.transport import cut_stalled
from roquette.wire.codes import ResponseCode
from roquette.wire.grpc import prefixed
from roquette.wire.http2 import Http2Limits
from roquette.wire.proto import service_pb2 as s
from roquette_testing.sim_loop import SimLoop, run

HOST, PORT = "10.0.0.1", 8081
SERVICE = b"/apache.rocketmq.v2.MessagingService/"
libraries = pytest.mark.parametrize("library", ["ngh2", "h2"])


class Client(asyncio.Protocol):
    """A client of libnghttp2's, by hand."""

    def __init__(self, window: int = 1 << 20) -> None:
        self.http = ngh2.Connection(ngh2.Role.CLIENT, ngh2.Configuration())
        self.http.initiate_connection({ngh2.Setting.INITIAL_WINDOW_SIZE: window})
        self.heard: dict[int, bytes] = {}
        self.status: dict[int, int] = {}
        self.http_status: dict[int, bytes] = {}
        self.kinds: dict[int, bytes] = {}
        self.resets: dict[int, int] = {}
        self.goaways: list[int] = []
        self.pings = 0
        self.lost = False
        self.deaf = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.write()

    def write(self) -> None:
        data = self.http.data_to_send()
        if data and not self.transport.is_closing():
            self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        if self.deaf:
            return
        with contextlib.suppress(ngh2.ConnectionStateError):  # the end was said before
            self.http.receive_data(data)
            for event in self.http.events():
                self.take(event)
            self.write()

    def take(self, event: Any) -> None:
        if isinstance(event, (ngh2.ResponseReceived, ngh2.TrailersReceived)):
            fields = dict(event.headers)
            if b":status" in fields:
                self.http_status[event.stream_id] = fields[b":status"]
                self.kinds[event.stream_id] = fields.get(b"content-type", b"")
            if b"grpc-status" in fields:
                assert event.stream_id not in self.status, "answered twice"
                self.status[event.stream_id] = int(fields[b"grpc-status"])
        elif isinstance(event, ngh2.DataReceived):
            self.heard[event.stream_id] = self.heard.get(event.stream_id, b"") + event.data
        elif isinstance(event, ngh2.StreamReset):
            self.resets[event.stream_id] = event.error_code
        elif isinstance(event, ngh2.GoAwayReceived):
            self.goaways.append(event.last_stream_id)
        elif isinstance(event, ngh2.PingReceived):
            self.pings += 1

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True

    def ask(
        self,
        name: str,
        message: Any,
        *,
        end: bool = True,
        timeout: str = "",
        cut: int | None = None,
        **fields: str,
    ) -> int:
        head = {
            b":method": b"POST", b":scheme": b"http", b":path": SERVICE + name.encode(),
            b":authority": b"door:8081", b"te": b"trailers", b"content-type": b"application/grpc",
            b"x-mq-client-id": b"c1",
        }  # fmt: skip
        if timeout:
            head[b"grpc-timeout"] = timeout.encode()
        head |= {
            (b":" if key == "method" else b"") + key.replace("_", "-").encode(): value.encode()
            for key, value in fields.items()
        }
        stream: int = self.http.send_request(tuple(head.items()))
        data = message if isinstance(message, bytes) else prefixed(message.SerializeToString())
        if data or end:
            self.http.send_data(stream, data[:cut], end_stream=end)
        self.write()
        return stream

    def cancel(self, stream: int) -> None:
        self.http.reset_stream(stream, 8)
        self.write()


def send(topic: str, body: bytes = b"x") -> Any:
    request = s.SendMessageRequest()
    message = request.messages.add()
    message.topic.name = topic
    message.body = body
    return request


def settings() -> Any:
    command = s.TelemetryCommand()
    command.settings.access_point.scheme = 1
    return command


POLL = s.ReceiveMessageRequest()


class Case:
    """A server and its clients on a simulated network."""

    def __init__(self, loop: SimLoop, library: str, **options: Any) -> None:
        self.loop = loop
        self.world = World(loop, LoopClock(loop), **options)
        self.toy = self.world.toy
        self.sessions = self.world.sessions
        if library == "h2":
            self.sessions.connect = H2Connection

    async def client(self, **options: Any) -> Client:
        _, client = await self.loop.create_connection(lambda: Client(**options), HOST, PORT)
        return client

    def reply(self, client: Client, stream: int) -> Any:
        return s.SendMessageResponse.FromString(client.heard[stream][5:])

    async def beats(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.sessions.beat()


def go(
    work: Callable[[Case], Awaitable[None]], library: str = "ngh2", seed: int = 1, **options: Any
) -> SimLoop:
    async def main(loop: SimLoop) -> None:
        case = Case(loop, library, **options)
        await loop.create_server(case.world.accept, HOST, PORT)
        beats = asyncio.create_task(case.beats())
        try:
            await work(case)
        finally:
            beats.cancel()
        await case.sessions.close()
        await asyncio.sleep(5)
        assert not case.world.peers and not case.sessions.open_now and not case.toy.held
        assert case.world.proxy.crashed == 0 and case.world.dispatcher.crashed == 0

    return run(main, seed)


def clean(session: Any) -> bool:
    """Nothing is left of any call."""
    return not (
        session.calls or session._reading or session._speaking or session._unfinished
        or len(session._asks)
    )  # fmt: skip


@libraries
def test_answers_of_the_dispatcher_find_their_calls(library: str) -> None:
    async def work(case: Case) -> None:
        client = await case.client()
        streams = [client.ask("SendMessage", send("ask", bytes(size))) for size in range(50)]
        await asyncio.sleep(1)
        said = [case.reply(client, stream).status.message for stream in streams]
        assert said == [f"0 {size}" for size in range(50)]
        (session,) = case.sessions.open_now.values()
        assert clean(session)

    go(work, library)


def test_a_peer_can_be_asked() -> None:
    async def work(case: Case) -> None:
        await case.client()
        await asyncio.sleep(1)
        (peer,) = case.world.peers.values()
        assert (await peer.invoke(1, b"", b"abc", 3_000)).body == b"cba"
        answer = await peer.invoke(2, b"", b"", 3_000)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        peer.notify(1)
        peer.notify(2)

    go(work)


@libraries
def test_a_message_in_pieces_and_an_end_of_its_own(library: str) -> None:
    async def work(case: Case) -> None:
        client = await case.client()
        data = prefixed(send("orders", b"12345").SerializeToString())
        stream = client.ask("SendMessage", data, end=False, cut=3)
        for piece in (data[3:7], data[7:]):
            await asyncio.sleep(0.1)
            client.http.send_data(stream, piece)
            client.write()
        await asyncio.sleep(0.1)
        assert stream not in client.status, "the request has not ended"
        client.http.end_stream(stream)
        client.write()
        await asyncio.sleep(0.1)
        assert case.reply(client, stream).entries[0].offset == 5
        (session,) = case.sessions.open_now.values()
        assert clean(session)

    go(work, library)


@pytest.mark.parametrize(
    "message, fields, status",
    [
        (b"", {}, 13),
        (b"\0\0\0\0\5abc", {}, 13),
        (prefixed(b"") * 2, {}, 13),
        (b"\7\0\0\0\0", {}, 13),
        (prefixed(b"\xff\xff"), {}, 13),
        (prefixed(b""), {"timeout": "soon"}, 13),
        (b"\1\0\0\0\1a", {"grpc_encoding": "snappy"}, 12),
        (prefixed(b""), {}, 12),
    ],
)
@libraries
def test_bad_calls_end_alone(library: str, message: bytes, fields: Any, status: int) -> None:
    async def work(case: Case) -> None:
        client = await case.client()
        stream = client.ask("SendMessage" if status != 12 or fields else "..", message, **fields)
        good = client.ask("SendMessage", send("orders"))
        await asyncio.sleep(1)
        assert client.status[stream] == status
        assert case.reply(client, good).status.code == Code.OK
        (session,) = case.sessions.open_now.values()
        assert clean(session) and not client.lost

    go(work, library)


@pytest.mark.parametrize("further", [prefixed(b"\xff\xff"), b"\7\0\0\0\0", b"\0\0\x60\0\0"])
@libraries
def test_a_conversation_that_breaks_is_over_for_who_serves_it(library: str, further: bytes) -> None:
    async def work(case: Case) -> None:
        client = await case.client()
        talk = client.ask("Telemetry", settings(), end=False)
        await asyncio.sleep(1)
        assert len(case.toy.held) == 1
        client.http.send_data(talk, further)
        client.write()
        await asyncio.sleep(1)
        assert client.status[talk] in (3, 13) and client.resets[talk] == 0
        assert not case.toy.held and case.toy.cancelled == 1

    go(work, library)


@libraries
def test_what_is_not_grpc_gets_a_readable_word(library: str) -> None:
    async def work(case: Case) -> None:
        client = await case.client()
        post = client.ask("SendMessage", b"{}", content_type="application/json")
        get = client.ask("SendMessage", b"", content_type="text/html", method="GET")
        head = client.ask("SendMessage", b"", content_type="text/html", method="HEAD")
        await asyncio.sleep(1)
        assert [client.http_status[one] for one in (post, get, head)] == [b"415", b"404", b"404"]
        assert b"speaks gRPC" in client.heard[get] and head not in client.heard

    go(work, library)


@libraries
def test_a_refused_caller_learns_why_before_it_has_said_all(library: str) -> None:
    async def work(case: Case) -> None:
        client = await case.client()
        stream = client.ask("SendMessage", b"", end=False)
        await asyncio.sleep(1)
        assert case.reply(client, stream).status.code == Code.FORBIDDEN
        assert client.resets[stream] == 0, "it need not go on"
        poll = client.ask("ReceiveMessage", POLL)
        talk = client.ask("Telemetry", settings(), end=False)
        await asyncio.sleep(1)
        assert client.status[poll] == 0 and client.status[talk] == 3
        assert case.toy.served == 0

    def who(caller: Any, fields: Any) -> None:
        raise Refused(ResponseCode.NO_PERMISSION, "not you")

    go(work, library, who=who)


def test_defects_of_parts_end_their_calls_alone() -> None:
    def who(caller: Any, fields: Any) -> None:
        if b"x-mq-language" in fields:
            raise ValueError("a defect")

    async def main(loop: SimLoop) -> None:
        case = Case(loop, "ngh2", who=who)
        await loop.create_server(case.world.accept, HOST, PORT)
        client = await case.client()
        bad = client.ask("SendMessage", send("o"), x_mq_language="JAVA")
        polls = [client.ask("ReceiveMessage", POLL) for _ in range(3)]
        await asyncio.sleep(1)
        assert case.reply(client, bad).status.code == Code.INTERNAL_SERVER_ERROR

        def fail() -> None:
            raise ValueError("a defect")

        first, *others = case.toy.held
        first.on_cancel = fail
        client.transport.abort()
        await asyncio.sleep(1)
        assert case.world.proxy.crashed == 2 and len(polls) == 3
        assert case.toy.held == [first] and all(call.over for call in (first, *others))
        assert not case.world.peers and not case.sessions.open_now

    run(main)


def test_a_caller_for_each_access_key_and_not_more_than_may_be() -> None:
    async def work(case: Case) -> None:
        client = await case.client()
        for _ in range(2):
            for key in ("a", "b"):
                client.ask(
                    "SendMessage", send("hold"), authorization=f"MQv2 Credential={key}, Signature=x"
                )
        await asyncio.sleep(1)
        callers = [call.caller for call in case.toy.held]
        assert callers[0] is callers[2] and callers[1] is callers[3]
        assert [one.account for one in callers[:2]] == ["a", "b"]
        for number in range(200):
            client.ask("SendMessage", send("o"), x_mq_client_id=f"c{number}")
        await asyncio.sleep(1)
        (session,) = case.sessions.open_now.values()
        assert len(session._callers._known) == 64

    def who(caller: Any, fields: Any) -> None:
        said = fields.get(b"authorization", b"=,")
        caller.account = said.split(b"=")[1].split(b",")[0].decode()

    go(work, who=who)


@libraries
def test_a_deadline_cancels_what_waits(library: str) -> None:
    async def work(case: Case) -> None:
        client = await case.client()
        one = client.ask("SendMessage", send("hold"), timeout="2S")
        two = client.ask("SendMessage", send("hold"), timeout="9S")
        for_ever = client.ask("SendMessage", send("hold"))
        await asyncio.sleep(1.5)
        assert len(case.toy.held) == 3
        await asyncio.sleep(2)
        assert len(case.toy.held) == 2 and client.resets == {one: 8}
        await asyncio.sleep(7)
        assert client.resets == {one: 8, two: 8}
        case.toy.release()
        await asyncio.sleep(1)
        assert client.status == {for_ever: 0}

    go(work, library)


@libraries
def test_silence_with_open_calls_is_asked_about_and_ends(library: str) -> None:
    async def work(case: Case) -> None:
        client, deaf = await case.client(), await case.client()
        for one in (client, deaf):
            one.ask("ReceiveMessage", POLL)
        await asyncio.sleep(50)
        deaf.deaf = True
        await asyncio.sleep(25)
        assert client.pings == 1 and not deaf.lost and len(case.toy.held) == 2
        await asyncio.sleep(20)
        assert deaf.lost and not client.lost
        assert len(case.toy.held) == 1 and case.toy.cancelled == 1
        await asyncio.sleep(600)
        assert not client.lost and client.pings >= 9

    go(work, library)


@libraries
def test_a_connection_without_a_call_is_told_to_go(library: str) -> None:
    async def work(case: Case) -> None:
        client = await case.client()
        client.ask("SendMessage", send("o"))
        await asyncio.sleep(115)
        assert client.goaways == []
        client.ask("SendMessage", send("o"))
        await asyncio.sleep(115)
        assert client.goaways == []
        await asyncio.sleep(10)
        assert client.goaways == [2**31 - 1] and client.lost, "libnghttp2 stops to listen then"

    go(work, library)


def test_ports_with_numbers_of_their_own_share_the_sessions() -> None:
    async def work(case: Case) -> None:
        for port in (1, 2):
            await case.loop.create_server(
                lambda: case.sessions.open(1, lambda peer: None, lambda peer, error: None),
                HOST,
                port,
            )
            await case.loop.create_connection(Client, HOST, port)
        await asyncio.sleep(1)
        assert len(case.sessions) == 2

    go(work)


@libraries
def test_a_call_that_crosses_the_notice_is_served(library: str) -> None:
    async def work(case: Case) -> None:
        client = await case.client()
        held = client.ask("SendMessage", send("hold"))
        await asyncio.sleep(1)
        (session,) = case.sessions.open_now.values()
        session.leave(case.loop.time())
        crossing = client.ask("SendMessage", send("o"))
        await asyncio.sleep(3)
        assert client.status == {crossing: 0} and not client.lost
        assert client.goaways == [2**31 - 1, crossing]
        case.toy.release()
        await asyncio.sleep(2)
        assert client.status[held] == 0 and client.lost

    go(work, library)


@libraries
def test_the_end_of_a_server(library: str) -> None:
    async def work(case: Case) -> None:
        client = await case.client()
        poll = client.ask("ReceiveMessage", POLL)
        talk = client.ask("Telemetry", settings(), end=False)
        await asyncio.sleep(1)
        began = case.loop.time()
        await case.sessions.close()
        assert case.loop.time() - began < 3
        await asyncio.sleep(1)
        assert client.status == {poll: 0, talk: 14} and client.lost
        assert case.toy.stopped

    go(work, library)


def test_the_end_does_not_wait_for_ever() -> None:
    async def work(case: Case) -> None:
        client = await case.client()
        client.ask("SendMessage", send("hold"))
        await asyncio.sleep(1)
        case.toy.release = lambda: None  # type: ignore[method-assign]
        began = case.loop.time()
        await case.sessions.close()
        assert 5 <= case.loop.time() - began < 6
        await asyncio.sleep(5)
        assert client.lost and case.toy.cancelled == 1
        late = await case.client()
        await asyncio.sleep(3)
        assert late.lost and late.goaways == [0]

    go(work, settings=ProxySettings(grpc_shutdown_time_seconds=5))


@libraries
def test_a_peer_that_leaves_its_window_shut_is_not_served_further_and_then_cut(
    library: str,
) -> None:
    async def work(case: Case) -> None:
        client = await case.client(window=0)
        for _ in range(20):
            client.ask("SendMessage", send("big200000"))
        await asyncio.sleep(1)
        (peer,) = case.world.peers.values()
        assert peer.paused
        asked = client.ask("SendMessage", send("ask"))
        await asyncio.sleep(30)
        assert peer.parked and asked not in client.status
        await asyncio.sleep(40)
        assert client.lost

    go(work, library)


@pytest.mark.promise(
    "Security",
    "limits of a gRPC connection: resets, fields, continuations, pings, SETTINGS, gzip, shut windows",
)
@pytest.mark.parametrize("trick", ["pings", "drops", "settings"])
def test_a_shut_window_is_one_whatever_else_the_peer_sends(trick: str) -> None:
    """Before: pings kept a connection with 64 MiB of answers for ever."""

    async def work(case: Case) -> None:
        client = await case.client(window=0)
        streams = [client.ask("SendMessage", send("big200000")) for _ in range(20)]
        for _ in range(100):
            await asyncio.sleep(1)
            if client.lost:
                break
            if trick == "pings":
                client.http.ping(b"12345678")
            elif trick == "drops":  # ten bytes a second, by hand
                client.deaf = True
                stream = streams[0].to_bytes(4, "big")
                client.transport.write(b"\0\0\4\x08\0" + stream + (10).to_bytes(4, "big"))
            elif trick == "settings":
                client.http.update_settings({ngh2.Setting.INITIAL_WINDOW_SIZE: 0})
            client.write()
        assert client.lost and 60 <= case.loop.time() < 70

    go(work)


@pytest.mark.promise(
    "Security",
    "limits of a gRPC connection: resets, fields, continuations, pings, SETTINGS, gzip, shut windows",
)
def test_settings_over_many_calls_are_bounded() -> None:
    """Before: 10,000 of them over 4,000 calls took the loop 0.7 s, and so on for ever."""

    async def work(case: Case) -> None:
        client = await case.client()
        for _ in range(4_000):
            client.ask("SendMessage", b"", end=False)
        await asyncio.sleep(1)
        for number in range(90):
            client.http.update_settings({ngh2.Setting.INITIAL_WINDOW_SIZE: 65_535 + number % 2})
        client.write()
        for number in range(20):  # a client that measures its line
            await asyncio.sleep(0.2)
            client.http.update_settings({ngh2.Setting.INITIAL_WINDOW_SIZE: 65_535 + number % 2})
            client.write()
        assert not client.lost
        for number in range(200):
            client.http.update_settings({ngh2.Setting.INITIAL_WINDOW_SIZE: 65_535 + number % 2})
        client.write()
        await asyncio.sleep(0.1)
        client.http.ping(b"12345678")
        client.write()
        await asyncio.sleep(1)
        assert client.lost and case.sessions.floods == 1

    go(work)


def test_where_all_keep_too_much_those_go_that_leave_it_unread() -> None:
    async def work(case: Case) -> None:
        account = case.world.dispatcher.limits.account
        account.most = 4 << 20
        hoarders = [await case.client(window=0) for _ in range(3)]
        reader = await case.client()
        for hoarder in hoarders:
            for _ in range(10):
                hoarder.ask("SendMessage", send("big200000"))
        asked = reader.ask("SendMessage", send("big200000"))
        await asyncio.sleep(5)
        assert any(hoarder.lost for hoarder in hoarders)
        assert not reader.lost and reader.status[asked] == 0
        assert account.total <= account.most

    go(work)


@libraries
def test_a_peer_that_opens_its_window_again_goes_on(library: str) -> None:
    async def work(case: Case) -> None:
        client = await case.client(window=0)
        for _ in range(20):
            client.ask("SendMessage", send("big200000"))
        asked = client.ask("SendMessage", send("ask"))
        await asyncio.sleep(30)
        assert not client.status
        client.http.update_settings({ngh2.Setting.INITIAL_WINDOW_SIZE: 1 << 20})
        client.write()
        await asyncio.sleep(5)
        assert len(client.status) == 21 and client.status[asked] == 0
        (peer,) = case.world.peers.values()
        assert not peer.paused

    go(work, library)


def test_answers_without_end_for_a_shut_window_cut_the_peer() -> None:
    async def work(case: Case) -> None:
        client = await case.client(window=0)
        for _ in range(30):
            client.ask("SendMessage", send("big200000"))
        await asyncio.sleep(1)
        assert client.lost

    go(work, limits=Http2Limits(queued=1 << 20, queued_most=4 << 20))


def test_two_reasons_to_end_are_one_end(caplog: pytest.LogCaptureFixture) -> None:
    """Before: each of them cut the connection and wrote a line."""

    class Over(H2Connection):
        @property
        def over(self) -> bool:
            return self.queued() > 4 << 20 or super().over

        def ended_by(self) -> str:
            return "it has ended"

    async def work(case: Case) -> None:
        case.sessions.connect = Over
        for _ in range(2):
            client = await case.client(window=0)
            for _ in range(30):
                client.ask("SendMessage", send("big200000"))
            await asyncio.sleep(20)
            assert client.lost

    go(work, limits=Http2Limits(queued=1 << 20, queued_most=4 << 20))
    said = [record.getMessage() for record in caplog.records if "closed peer" in record.message]
    assert len(said) == 2
    assert all(line.endswith("error=it does not take its answers") for line in said), said


def test_unfinished_messages_are_bounded_together() -> None:
    async def work(case: Case) -> None:
        client = await case.client()
        data = prefixed(send("o", bytes(1 << 20)).SerializeToString())
        streams = [client.ask("SendMessage", data, end=False, cut=-1) for _ in range(6)]
        await asyncio.sleep(5)
        refused = [stream for stream in streams if stream in client.heard]
        assert len(refused) == 2
        assert case.reply(client, refused[0]).status.code == Code.PAYLOAD_TOO_LARGE
        for stream in set(streams) - set(refused):
            client.http.send_data(stream, data[-1:], end_stream=True)
        client.write()
        await asyncio.sleep(5)
        assert set(client.status) == set(streams)
        (session,) = case.sessions.open_now.values()
        assert clean(session)

    go(work, limits=Http2Limits(unfinished=9 << 19))


def test_unfinished_messages_of_all_peers_are_bounded_with_the_frames_of_remoting() -> None:
    async def work(case: Case) -> None:
        frames = case.world.dispatcher.limits.frames
        frames.limit = 3 << 20
        data = prefixed(send("o", bytes(1 << 20)).SerializeToString())
        clients = [await case.client() for _ in range(4)]
        streams = []
        for client in clients:
            streams.append(client.ask("SendMessage", data, end=False, cut=-1))
            await asyncio.sleep(2)
        assert [client.lost for client in clients] == [True, True, False, False], "who began first"
        assert frames.total == pytest.approx(2 << 20, rel=0.01) and len(frames) == 2
        for client, stream in list(zip(clients, streams))[2:]:
            client.http.send_data(stream, data[-1:], end_stream=True)
            client.write()
        await asyncio.sleep(1)
        assert frames.total == 0 and len(frames) == 0
        assert clients[3].status == {streams[3]: 0}

    go(work)


def test_a_message_that_does_not_come_on_is_cut_by_the_servers_beat() -> None:
    async def work(case: Case) -> None:
        client = await case.client()
        data = prefixed(send("o", bytes(1 << 20)).SerializeToString())
        client.ask("SendMessage", data, end=False, cut=50_000)
        limits, noise = case.world.dispatcher.limits, case.sessions.noise
        for _ in range(10):
            await asyncio.sleep(5)
            cut_stalled(limits, case.loop.time(), noise)
        await asyncio.sleep(40)
        cut_stalled(limits, case.loop.time(), noise)
        await asyncio.sleep(1)
        assert client.lost and len(limits.frames) == 0

    go(work)


def test_what_breaks_http2_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def work(case: Case) -> None:
        for _ in range(3):
            client = await case.client()
            client.ask("ReceiveMessage", POLL)
            await asyncio.sleep(1)
            client.transport.write(b"\0\0\1\0\0\0\0\0\0a")
            await asyncio.sleep(1)
            assert client.lost and not case.toy.held

    go(work)
    said = [record.getMessage() for record in caplog.records if "closed peer" in record.message]
    assert len(said) == 1 and "DATA: stream_id == 0 (HTTP/2 error 1)" in said[0]


def test_streams_opened_too_fast_end_the_connection() -> None:
    async def work(case: Case) -> None:
        client, calm = await case.client(), await case.client()
        for number in range(40):
            if not client.lost:
                with contextlib.suppress(ngh2.ConnectionClosingError):
                    client.ask("SendMessage", send("o"))
            if number % 4 == 0:
                calm.ask("SendMessage", send("o"))
                await asyncio.sleep(0.2)
        await asyncio.sleep(2)
        assert client.lost and not calm.lost
        assert case.sessions.floods == 1

    go(work, limits=Http2Limits(opened=20, opened_per_s=5))


def test_resets_too_fast_end_the_connection_over_h2_too() -> None:
    async def work(case: Case) -> None:
        client = await case.client()
        for _ in range(60):
            client.cancel(client.ask("ReceiveMessage", POLL))
        await asyncio.sleep(2)
        assert client.lost and case.sessions.floods == 1 and not case.toy.held

    go(work, "h2", limits=Http2Limits(resets=20, resets_per_s=1))


@pytest.mark.simulation
@libraries
@pytest.mark.parametrize("seed", range(25))
def test_cancels_deadlines_and_lost_connections_at_random(library: str, seed: int) -> None:
    """No call is answered twice, none stays behind, and whoever waits is answered or knows that it is not."""

    async def work(case: Case) -> None:
        random = Random(seed)
        clients = [await case.client() for _ in range(4)]
        asked: dict[Client, set[int]] = {client: set() for client in clients}
        gone: dict[Client, set[int]] = {client: set() for client in clients}
        for _ in range(150):
            client = random.choice(clients)
            act = random.randrange(10)
            if act < 5 and not client.lost:
                name = random.choice(("ReceiveMessage", "SendMessage", "Telemetry"))
                message = {
                    "ReceiveMessage": POLL,
                    "SendMessage": send("hold"),
                    "Telemetry": settings(),
                }[name]
                timeout = random.choice(("", "", "1S", "900m", "30S"))
                asked[client].add(
                    client.ask(name, message, timeout=timeout, end=name != "Telemetry")
                )
            elif act == 5 and asked[client] and not client.lost:
                stream = random.choice(sorted(asked[client]))
                client.cancel(stream)
                gone[client].add(stream)
            elif act == 6:
                case.toy.release()
            elif act == 7:
                await asyncio.sleep(random.random() * 2)
            elif act == 8:
                await asyncio.sleep(0)
            elif random.random() < 0.15:
                client.transport.abort()
                clients[clients.index(client)] = fresh = await case.client()
                asked[fresh], gone[fresh] = set(), set()
        await asyncio.sleep(2)
        case.toy.release()
        await asyncio.sleep(2)
        assert all(not call.over for call in case.toy.held)
        alive = {
            id(call)
            for session in case.sessions.open_now.values()
            for call in session.calls.values()
        }
        assert alive == {id(call) for call in case.toy.held}
        for client in clients:
            talks = len(asked[client]) - len(
                client.status.keys() | client.resets.keys() | gone[client]
            )
            assert talks >= 0
        for client in clients:
            client.transport.abort()
        await asyncio.sleep(1)
        assert not case.toy.held and not case.sessions.open_now

    go(work, library, seed)
