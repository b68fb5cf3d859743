"""Telemetry, Heartbeat, NotifyClientTermination, and what brokers ask of clients."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from tests.proxy.worlds import Talk, World

from roquette.message.message_id import host_bytes
from roquette.message.record import encode_record
from roquette.message.record_layout import Draft, Place
from roquette.proxy import clients as bounds
from roquette.proxy import telemetry as command_bounds
from roquette.proxy.transactions import half_of
from roquette.wire.bodies.tables import (
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    SubscriptionGroupConfig,
)
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.proto import definition_pb2 as d
from roquette.wire.proto import service_pb2 as s

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "grpc" / "replies.json").read_text())
PUSH, SIMPLE = d.ClientType.PUSH_CONSUMER, d.ClientType.SIMPLE_CONSUMER
Code = d.Code


@pytest.fixture
def world() -> World:
    made = World()
    for name, ordered in (("V_group", False), ("V_ordered", True)):
        made.backend.groups[name] = SubscriptionGroupConfig(
            group_name=name, consume_message_orderly=ordered, retry_max_times=5
        )
    return made


def resource(name: str) -> d.Resource:
    return d.Resource(name=name)


def agent() -> d.UA:
    return d.UA(language=d.Language.JAVA, version="5.2.0", platform="linux", hostname="golden")


def publisher(*topics: str) -> d.Settings:
    publishing = d.Publishing(topics=[resource(topic) for topic in topics])
    return d.Settings(client_type=d.ClientType.PRODUCER, user_agent=agent(), publishing=publishing)


def subscriber(kind: Any, group: str, topic: str, expression: str = "*") -> d.Settings:
    entry = d.SubscriptionEntry(
        topic=resource(topic),
        expression=d.FilterExpression(type=d.FilterType.TAG, expression=expression),
    )
    subscription = d.Subscription(group=resource(group), subscriptions=[entry])
    return d.Settings(client_type=kind, user_agent=agent(), subscription=subscription)


def beat(world: World, caller: Any, group: str, kind: Any) -> tuple[int, str]:
    request = s.HeartbeatRequest(group=resource(group), client_type=kind)
    found = world.call(caller, "Heartbeat", request).status
    return found.code, found.message


def leave(world: World, caller: Any, group: str) -> tuple[int, str]:
    request = s.NotifyClientTerminationRequest(group=resource(group))
    found = world.call(caller, "NotifyClientTermination", request).status
    return found.code, found.message


def bad_sql() -> d.Settings:
    made = subscriber(PUSH, "V_group", "V_normal", "a >")
    made.subscription.subscriptions[0].expression.type = d.FilterType.SQL
    return made


def full() -> d.Settings:
    made = subscriber(SIMPLE, "V_group", "V_normal")
    made.backoff_policy.max_attempts = 99
    made.request_timeout.seconds = 7
    made.subscription.long_polling_timeout.seconds = 3
    made.subscription.receive_batch_size = 99
    made.client_properties["colour"] = "red"
    return made


@pytest.mark.parametrize(
    "name, settings",
    [
        ("producer", publisher("V_normal", "V_transaction")),
        ("producer without topics", publisher()),
        ("producer of an unknown topic", publisher("V_unknown")),
        ("producer of a bad topic", publisher("a b")),
        ("push consumer", subscriber(PUSH, "V_group", "V_normal")),
        ("push consumer, fifo", subscriber(PUSH, "V_ordered", "V_fifo")),
        ("push consumer, unknown group", subscriber(PUSH, "V_nobody", "V_normal")),
        ("push consumer, bad group", subscriber(PUSH, "a b", "V_normal")),
        ("push consumer, bad topic", subscriber(PUSH, "V_group", "a b")),
        ("push consumer, system group", subscriber(PUSH, "CID_RMQ_SYS_x", "V_normal")),
        ("push consumer, bad SQL", bad_sql()),
        ("simple consumer", subscriber(SIMPLE, "V_group", "V_normal")),
        ("simple consumer, everything set", full()),
        ("neither publishing nor subscription", d.Settings(user_agent=agent())),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_settings_are_negotiated_as_by_apaches_proxy(
    world: World, name: str, settings: d.Settings
) -> None:
    talk = world.tell(world.caller("c", world.peer(1)), settings)
    golden = GOLDEN[f"clients: {name}"]
    replies = [MessageToDict(one, preserving_proto_field_name=True) for one in talk.heard()]
    for wanted in golden["replies"]:
        wanted["settings"].pop("access_point", None)
    assert replies == golden["replies"]
    if golden["grpc"] == "OK":
        assert talk.end is None
    else:
        assert talk.end == (3, golden["text"])
        assert len(world.clients) == 0


def test_settings_with_an_expression_too_long_are_refused(world: World) -> None:
    for sql in (False, True):
        settings = subscriber(PUSH, "V_group", "V_normal", "ab||" * 4_097)
        if sql:
            settings.subscription.subscriptions[0].expression.type = d.FilterType.SQL
        talk = world.tell(world.caller("c", world.peer(1)), settings)
        said = "process client telemetryCommand failed. the expression has 16388 characters, 16384 are allowed"
        assert talk.end == (3, said)
        assert len(world.clients) == 0


def test_heartbeats_and_goodbyes_are_answered_as_by_apaches_proxy(world: World) -> None:
    peer = world.peer(1)
    push, producer = world.caller("push", peer), world.caller("producer", peer)
    push2 = world.caller("push2", peer)
    stranger, nobody = world.caller("stranger", peer), world.caller("", peer)
    world.tell(push, subscriber(PUSH, "V_group", "V_normal"))
    world.tell(push2, subscriber(PUSH, "V_ordered", "V_fifo"))
    world.tell(producer, publisher("V_normal"))
    steps = {
        "heartbeat of a producer": beat(world, producer, "", d.ClientType.PRODUCER),
        "heartbeat of a push consumer": beat(world, push, "V_group", PUSH),
        "heartbeat without a type": beat(world, push, "V_group", 0),
        "heartbeat of a bad group": beat(world, push, "a b", PUSH),
        "heartbeat of another group": beat(world, push, "V_ordered", PUSH),
        "heartbeat without a client id": beat(world, nobody, "V_group", PUSH),
        "termination of nobody": leave(world, stranger, "V_group"),
        "termination of a producer": leave(world, producer, ""),
        "termination of a push consumer": leave(world, push2, "V_ordered"),
        "termination of a bad group": leave(world, push, "a b"),
    }
    for name, (code, text) in steps.items():
        wanted = GOLDEN[f"clients: {name}"]["replies"][0]["status"]
        assert (Code.Name(code), text) == (wanted["code"], wanted["message"]), name


def test_an_unknown_consumer_is_registered_by_its_heartbeat_and_an_unknown_producer_is_not(
    world: World,
) -> None:
    peer = world.peer(1)
    assert beat(world, world.caller("c", peer), "V_group", SIMPLE) == (Code.OK, "OK")
    (data,) = world.backend.beats
    assert data.without_sub and data.heartbeat_fingerprint
    assert data.consumer_data_set[0].consume_type == "CONSUME_ACTIVELY"
    for name, group, kind in (
        ("p", "", d.ClientType.PRODUCER),
        ("q", "", PUSH),
        ("r", "V_group", 0),
    ):
        code, text = beat(world, world.caller(name, peer), group, kind)
        assert code == Code.UNRECOGNIZED_CLIENT_TYPE
        assert text == "cannot find client settings for this client"
    world.tell(world.caller("c", peer), subscriber(SIMPLE, "V_group", "t"))
    assert not world.backend.beats[-1].without_sub


def test_waits_of_a_group_that_grow_are_told(world: World) -> None:
    config = world.backend.groups["V_group"]
    config.group_retry_policy = GroupRetryPolicy(
        type="EXPONENTIAL", exponential_retry_policy=ExponentialRetryPolicy(1_500, 60_000, 3)
    )
    (reply,) = world.tell(
        world.caller("c", world.peer(1)), subscriber(PUSH, "V_group", "t")
    ).heard()
    waits = reply.settings.backoff_policy.exponential_backoff
    assert (waits.initial.ToMilliseconds(), waits.max.ToMilliseconds()) == (1_500, 60_000)
    assert waits.multiplier == 3


def test_what_is_registered(world: World) -> None:
    peer = world.peer(1)
    talk = world.tell(world.caller("c", peer), subscriber(PUSH, "V_group", "t", "a||b"))
    (data,) = world.backend.beats
    (consumer,) = data.consumer_data_set
    assert consumer.consume_type == "CONSUME_PASSIVELY"
    assert consumer.message_model == "CLUSTERING"
    assert consumer.consume_from_where == "CONSUME_FROM_LAST_OFFSET"
    (wanted,) = consumer.subscription_data_set
    assert (wanted.topic, wanted.expression_type, wanted.tags_set) == ("t", "TAG", ["a", "b"])
    world.clock.advance(1_000)
    talk.say(subscriber(PUSH, "V_group", "t", "a||b"))
    again = world.backend.beats[-1].consumer_data_set[0].subscription_data_set[0]
    assert again.sub_version == wanted.sub_version
    talk.say(subscriber(PUSH, "V_group", "t", "c"))
    other = world.backend.beats[-1].consumer_data_set[0].subscription_data_set[0]
    assert other.sub_version > wanted.sub_version
    assert len(talk.heard()) == 3 and talk.end is None


def test_a_stream_that_works_is_not_ended(world: World) -> None:
    caller = world.caller("c", world.peer(1))
    talk = world.tell(caller, s.TelemetryCommand())
    trace = s.TelemetryCommand(thread_stack_trace=s.ThreadStackTrace(nonce="guessed"))
    talk.say(trace)
    talk.say(subscriber(PUSH, "V_group", "t"))
    del world.backend.groups["V_group"]  # its broker cannot be asked now
    talk.say(subscriber(PUSH, "V_group", "t"))
    assert len(talk.heard()) == 2
    world.pass_time(600)
    assert talk.end is None
    assert world.clients.find("c") is None  # no heartbeat came
    world.proxy.stop()
    assert talk.end == (14, "the server is going away")


@pytest.mark.parametrize(
    "kind", [d.ClientType.LITE_PUSH_CONSUMER, d.ClientType.LITE_SIMPLE_CONSUMER]
)
def test_lite_consumers_are_refused_in_words(world: World, kind: Any) -> None:
    talk = world.tell(world.caller("c", world.peer(1)), subscriber(kind, "V_group", "t"))
    assert talk.end is not None and talk.end[0] == 3
    assert "lite topics are not served here" in talk.end[1]


@pytest.mark.parametrize("kind", [0, 4, 99])
def test_other_kinds_of_clients_are_served(world: World, kind: int) -> None:
    settings = subscriber(kind, "V_group", "t")
    caller = world.caller("c", world.peer(1))
    caller.language = caller.protocol = "any"
    assert len(world.tell(caller, settings).heard()) == 1


@pytest.mark.parametrize(
    "name", ["PullMessage", "UpdateOffset", "GetOffset", "QueryOffset", "SyncLiteSubscription"]
)
def test_rpcs_that_are_not_served_say_so(world: World, name: str) -> None:
    call = world.begin(world.caller("c", world.peer(1)), name, getattr(s, f"{name}Request")())
    code, text = world.stream.ends[call.stream_id]
    assert code == 12
    assert text.startswith(f"{name} is not served")


def test_settings_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = world.peer(1)
    large = publisher("t")
    large.user_agent.hostname = "x" * (64 << 10)
    many = publisher(*(f"t{number}" for number in range(1_001)))
    for settings in (large, many):
        talk = world.tell(world.caller("c", peer), settings)
        assert talk.end is not None and talk.end[0] == 3
    monkeypatch.setattr(bounds, "MOST_BYTES", 3 * bounds.WEIGHT)
    for number in range(3):
        talk = world.tell(world.caller(f"c{number}", peer), publisher("t"))
    assert talk.end is not None and "too many clients" in talk.end[1]
    again = world.tell(world.caller("c0", peer), publisher(*(f"{n}" for n in range(900))))
    assert again.end is not None and "too many clients" in again.end[1]
    assert len(world.clients) == 2


@pytest.mark.promise(
    "Security",
    "who may not ask takes no place of others; what one brings at once delays nobody for long; who fills v5's table of clients is the one refused",
)
def test_who_fills_the_table_is_refused_and_nobody_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, one connection with 5.6 MB of heartbeats filled the table for everybody."""
    monkeypatch.setattr(bounds, "MOST_BYTES", 200 * bounds.WEIGHT)
    flood = world.peer(1)

    def fills(peer: Any, account: str | None, first: int, count: int) -> list[int]:
        said = []
        for number in range(first, first + count):
            caller = world.caller(f"flood{number}", peer)
            caller.account = account
            said.append(beat(world, caller, "V_group", PUSH)[0])
        return said

    assert fills(flood, None, 0, 300) == [Code.OK] * 200 + [Code.TOO_MANY_REQUESTS] * 100
    honest = [world.caller(f"honest{number}", world.peer(number)) for number in range(2, 52)]
    for _ in range(3):
        for caller in honest:
            assert beat(world, caller, "V_group", PUSH)[0] == Code.OK
        assert set(fills(flood, None, 300, 20)) == {Code.TOO_MANY_REQUESTS}
    assert all(world.clients.find(one.client_id) for one in honest)
    assert len(world.clients) == 200

    # The same account by many connections is one; a connection that is lost gives first.
    world.lose(flood)
    fills(world.peer(60), "mallory", 400, 150)
    assert fills(world.peer(61), "mallory", 600, 100).count(Code.OK) == 0
    assert world.clients.find("flood0") is None
    alice = [world.caller(f"alice{number}", world.peer(70 + number)) for number in range(60)]
    for caller in alice:
        caller.account = "alice"
        assert beat(world, caller, "V_group", PUSH)[0] == Code.OK
    assert all(world.clients.find(one.client_id) for one in honest + alice)
    held = sum(share.size for share in world.clients._shares.values())
    assert held == world.clients._bytes <= bounds.MOST_BYTES

    world.pass_time(121)
    assert len(world.clients) == world.clients._bytes == 0 and not world.clients._shares


def test_clients_of_a_group_on_one_connection_have_one_place_there(world: World) -> None:
    peer = world.peer(1)
    settings = subscriber(PUSH, "V_group", "t")
    one, two, three = (world.caller(name, peer) for name in ("one", "two", "three"))
    for caller in (one, two, three):
        world.tell(caller, settings)
    assert beat(world, two, "V_group", PUSH)[0] == Code.OK
    assert world.backend.take() == [("in", 1, "one", "V_group")] * 4
    leave(world, three, "V_group")
    assert world.backend.take() == []
    leave(world, one, "V_group")
    assert world.backend.take() == [("out", 1, "one", "V_group"), ("in", 1, "two", "V_group")]
    leave(world, two, "V_group")
    assert world.backend.take() == [("out", 1, "two", "V_group")]
    assert not world.clients._places and not world.clients._of_peer


def test_producers_of_a_topic_on_one_connection_leave_it_with_the_last(world: World) -> None:
    peer = world.peer(1)
    one, two = world.caller("one", peer), world.caller("two", peer)
    world.tell(one, publisher("t", "u"))
    talk = world.tell(two, publisher("t"))
    world.backend.take()
    leave(world, one, "")
    assert world.backend.take() == [("out", 1, "one", "u")]
    talk.say(publisher("v"))
    assert world.backend.take() == [("out", 1, "two", "t"), ("in", 1, "two", "v")]
    assert list(world.clients._producers) == ["v"]


def test_a_client_comes_again_by_another_connection(world: World) -> None:
    old, new = world.peer(1), world.peer(2)
    settings = publisher("t")
    first = world.tell(world.caller("c", old), settings)
    second = world.tell(world.caller("c", new), settings)
    world.lose(old, first)
    client = world.clients.find("c")
    assert client is not None and client.caller.peer is new and client.call is second.call
    assert world.clients.producer_of("t", new, "t") is client
    world.lose(new, second)
    assert client.call is None and not world.clients._producers
    third = world.peer(3)
    assert beat(world, world.caller("c", third), "", d.ClientType.PRODUCER)[0] == Code.OK
    assert world.backend.take()[-1] == ("in", 3, "c", "t")
    world.pass_time(121)
    assert len(world.clients) == 0


def test_who_is_not_heard_is_dropped_but_a_producer_with_a_stream(world: World) -> None:
    peer = world.peer(1)
    world.tell(world.caller("consumer", peer), subscriber(PUSH, "V_group", "t"))
    talk = world.tell(world.caller("producer", peer), publisher("t"))
    world.pass_time(121)
    assert world.clients.find("consumer") is None
    assert world.clients.find("producer") is not None
    talk.call.on_end()  # type: ignore[misc]
    assert talk.end == (0, "")
    world.pass_time(1)
    assert len(world.clients) == 0


def test_settings_that_are_looked_up_for_long_are_answered_once_each(world: World) -> None:
    world.backend.later = later = []
    peer = world.peer(1)
    talk = world.tell(world.caller("c", peer), subscriber(PUSH, "V_group", "t"))
    gone = world.tell(world.caller("d", peer), subscriber(PUSH, "V_group", "t"))
    missing = world.tell(world.caller("e", peer), subscriber(PUSH, "V_nobody", "t"))
    gone.call.cancelled()
    for then in later:
        then()
    assert len(talk.heard()) == 1 and gone.heard() == []
    assert missing.end == (3, "process client telemetryCommand failed. group not found: V_nobody")
    assert world.clients.find("d") is None


# What brokers ask


def record(topic: str = "t", group: str | None = None) -> bytes:
    host = host_bytes("10.0.0.1", 10911)
    named = {"UNIQ_KEY": "ID"} | ({"PGROUP": group} if group else {})
    properties = "".join(f"{key}\x01{value}\x02" for key, value in named.items())
    draft = Draft(topic, 0, properties.encode(), b"body", 1, host)
    return encode_record(draft, Place(topic.encode(), host))


def info(client: str, jstack: bool = True, group: str = "V_group") -> bytes:
    fields = {"consumerGroup": group, "clientId": client, "jstackEnable": str(jstack).lower()}
    return json.dumps(fields).encode()


CHECK = json.dumps(
    {"commitLogOffset": "31", "tranStateTableOffset": "7", "bname": "b-1", "msgId": "ID"}
).encode()


def consumer(world: World, name: str = "c", peer: Any = None) -> Talk:
    talk = world.tell(world.caller(name, peer or world.peer(1)), subscriber(PUSH, "V_group", "t"))
    talk.heard()
    return talk


def test_a_half_message_is_asked_about_on_one_stream(world: World) -> None:
    near, far = world.peer(1), world.peer(2)
    other = world.tell(world.caller("far", far), publisher("t"))
    talk = world.tell(world.caller("near", near), publisher("t"))
    talk.heard()
    other.heard()
    code = RequestCode.CHECK_TRANSACTION_STATE
    assert world.ask(near, code, CHECK, record()) == []
    (command,) = talk.heard()
    asked = command.recover_orphaned_transaction_command
    half = half_of(asked.transaction_id)
    assert half is not None and tuple(half) == ("b-1", 31, 7)
    assert asked.message.body == b"body" and asked.message.system_properties.message_id == "ID"
    third = world.tell(world.caller("third", near), publisher("t"))
    third.heard()
    for _ in range(4):
        world.ask(near, code, CHECK, record())
    assert (len(talk.heard()), len(third.heard()), len(other.heard())) == (2, 2, 0)
    world.lose(near, talk, third)
    world.ask(None, code, CHECK, record("renamed", group="t"))
    assert len(other.heard()) == 1
    far.paused = True  # it does not take what is written
    assert world.ask(far, code, CHECK, record())[0].code == 3
    assert other.heard() == []


def test_threads_of_a_consumer(world: World) -> None:
    talk = consumer(world)
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    (answer,) = world.ask(None, code, info("c", jstack=False))
    assert answer.code == 0 and b"subscriptionSet" in answer.body
    answers = world.ask(None, code, info("c"))
    (command,) = talk.heard()
    nonce = command.print_thread_stack_trace_command.nonce
    reply = s.TelemetryCommand(
        thread_stack_trace=s.ThreadStackTrace(nonce=nonce, thread_stack_trace="at main")
    )
    reply.status.code = Code.OK
    stranger = consumer(world, "stranger", world.peer(2))
    stranger.say(reply)
    assert answers == []
    talk.say(reply)
    talk.say(reply)
    (answer,) = answers
    assert answer.code == 0 and json.loads(answer.body)["jstack"] == "at main"
    assert world.ask(None, code, info("nobody"))[0].code == ResponseCode.SYSTEM_ERROR
    assert "not online" in world.ask(None, code, info("c", group="other"))[0].remark
    assert world.ask(None, code, b"[")[0].code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    "code, result",
    [
        (Code.OK, "CR_SUCCESS"),
        (Code.FAILED_TO_CONSUME_MESSAGE, "CR_LATER"),
        (Code.MESSAGE_CORRUPTED, "CR_RETURN_NULL"),
        (Code.VERIFY_FIFO_MESSAGE_UNSUPPORTED, None),
    ],
)
def test_a_consumer_verifies_a_message(world: World, code: Any, result: str | None) -> None:
    talk = consumer(world)
    answers = world.ask(None, RequestCode.CONSUME_MESSAGE_DIRECTLY, info("c"), record())
    (command,) = talk.heard()
    assert command.verify_message_command.message.topic.name == "t"
    reply = s.TelemetryCommand(
        verify_message_result=s.VerifyMessageResult(nonce=command.verify_message_command.nonce)
    )
    reply.status.code = code
    talk.say(reply)
    found = json.loads(answers[0].body)
    assert found.get("consumeResult") == result and found["remark"] == "from gRPC client"


def test_commands_that_are_not_answered_end(world: World) -> None:
    talk = consumer(world)
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    asked = [world.ask(None, code, info("c")) for _ in range(20)]
    assert [len(one) for one in asked] == [0] * 16 + [1] * 4
    assert asked[-1][0].code == ResponseCode.SYSTEM_BUSY
    world.pass_time(5)
    assert all(one[0].code == ResponseCode.SYSTEM_BUSY for one in asked)
    assert len(world.commands) == 0
    lost = world.ask(None, code, info("c"))
    world.lose(talk.call.caller.peer, talk)
    world.pass_time(1)
    assert lost[0].remark == "call remote timeout"
    again = consumer(world)
    stopped = world.ask(None, code, info("c"))
    world.proxy.stop()
    assert stopped[0].remark == "the server is going away" and again.end is not None


def test_notices_end_here_and_others_are_not_supported(world: World, monkeypatch: Any) -> None:
    assert world.ask(None, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, b"") == []
    assert world.ask(None, RequestCode.RESET_CONSUMER_CLIENT_OFFSET, b"")[0].code == 3
    code = RequestCode.CONSUME_MESSAGE_DIRECTLY
    consumer(world)
    for body in (b"", b"\0" * 50):
        assert world.ask(None, code, info("c"), body)[0].code == ResponseCode.SYSTEM_ERROR
    monkeypatch.setattr(command_bounds, "MOST", 0)
    assert world.ask(None, code, info("c"), record())[0].code == ResponseCode.SYSTEM_BUSY


@pytest.mark.parametrize("seed", range(20))
def test_after_any_story_of_connections_and_clients_the_tables_agree(
    world: World, seed: int
) -> None:
    """Breaks at every step: what the broker was told last is what is known, and nothing is left over."""
    rng = random.Random(seed)
    peers = {number: world.peer(number) for number in range(3)}
    talks: list[Talk] = []
    number = 3
    for _ in range(150):
        peer = rng.choice(list(peers.values()))
        caller = world.caller(f"c{rng.randrange(5)}", peer)
        topics = rng.sample(["t", "u", "v"], rng.randrange(3))
        kind = rng.randrange(8)
        if kind < 2:
            settings = publisher(*topics) if kind else subscriber(PUSH, "V_group", "t")
            talks.append(world.tell(caller, settings))
        elif kind == 2 and talks:
            rng.choice(talks).say(publisher(*topics))
        elif kind == 3:
            beat(world, caller, "V_group", PUSH)
        elif kind == 4:
            leave(world, caller, "V_group")
        elif kind == 5:
            mine = [one for one in talks if one.call.caller.peer is peer]
            world.lose(peer, *mine)
            del peers[peer.id]
            peers[number] = world.peer(number)
            number += 1
            talks = [one for one in talks if one not in mine]
        elif kind == 6 and talks:
            talks.pop(rng.randrange(len(talks))).call.cancelled()
        else:
            world.pass_time(rng.choice([1, 50]))
        check(world)
    for peer in peers.values():
        world.lose(peer, *(one for one in talks if one.call.caller.peer is peer))
    check(world)
    world.pass_time(121)
    table = world.clients
    assert not (table._clients or table._places or table._producers or table._of_peer)
    assert table._bytes == 0 and not world.telemetry._calls and world.proxy.crashed == 0


def check(world: World) -> None:
    table = world.clients
    assert table._bytes == sum(bounds.WEIGHT + one.wanted.size for one in table._clients.values())
    assert table._bytes == sum(share.size for share in table._shares.values())
    for client in table._clients.values():
        assert client.call is None or not client.call.over
    for (peer, producer, name), members in table._places.items():
        for one in members.values():
            assert table._clients[one.id] is one and one.caller.peer.id == peer
            assert not one.caller.peer.closed
            assert name in (one.wanted.topics if producer else (one.wanted.group,))
    for topic, members in table._producers.items():
        assert members and all(topic in one.wanted.topics for one in members.values())
