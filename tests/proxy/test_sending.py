"""SendMessage, RecallMessage and EndTransaction over a backend that remembers what it is asked."""

import asyncio
import json
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from roquette.message.message_id import RecallHandle, host_bytes, offset_message_id
from roquette.message.properties import SYSTEM, decode_properties
from roquette.message.record import BatchCursor
from roquette.message.record_layout import StoredRecord
from roquette.proxy.backend import Backend, TopicFacts
from roquette.proxy.delivered import to_message
from roquette.proxy.sending import MOST_TOPICS, QueueChoice, Sending, bucket, delay_level
from roquette.proxy.service import SERVICE, Asks, BrokerAnswer, Caller, Proxy, RpcCall
from roquette.proxy.settings import ProxySettings
from roquette.proxy.transactions import Half, Transactions, half_of
from roquette.remoting.request import Peer
from roquette.wire.bodies.route import QueueData, TopicRouteData
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.proto import definition_pb2 as d
from roquette.wire.proto import service_pb2 as s
from roquette_testing.embedded import ManualClock

NOW_MS = 1_800_000_000_000
HOST = host_bytes("10.0.0.1", 10911)
TOPICS = {
    "normal": "NORMAL",
    "fifo": "FIFO",
    "delay": "DELAY",
    "half": "TRANSACTION",
    "mixed": "MIXED",
    "priority": "PRIORITY",
    "lite": "LITE",
    "closed": "NORMAL",
}


class FakeBackend:
    in_process = False

    """Answers each send as a broker would; `code` is what it answers with."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.code = 0
        self.offset = 0
        self.said = b""

    def topic(self, caller: Caller, name: str, then: Callable[[TopicFacts | None], None]) -> None:
        if name not in TOPICS:
            then(None)
            return
        perm = 4 if name == "closed" else 6
        queues = [QueueData("b", 4, 4, perm), QueueData("a", 4, 4, perm)]
        then(TopicFacts(name, TOPICS[name], TopicRouteData(queue_datas=queues)))

    def ask(
        self, caller: Caller, broker: str, code: int, header: Any, body: bytes,
        then: Callable[[BrokerAnswer], None], timeout_ms: int = 3000,
    ) -> None:  # fmt: skip
        self.asked.append(SimpleNamespace(broker=broker, code=code, header=header, body=body))
        ext = {
            "msgId": offset_message_id(HOST, 0x1F),
            "queueId": "0",
            "queueOffset": str(self.offset),
            "transactionId": "of the broker",
        }
        self.offset += 1
        said = self.said or json.dumps(ext).encode()
        then(BrokerAnswer(self.code, "" if self.code == 0 else "why", said, b""))


class World:
    """A proxy with the parts of producers, and one caller."""

    def __init__(self, **settings: Any) -> None:
        self.backend = FakeBackend()
        backend = cast(Backend, self.backend)
        parts = [Sending(backend, ProxySettings(**settings)), Transactions(backend)]
        self.proxy = Proxy(parts, ManualClock())
        peer = Peer(cast(Any, None), asyncio.Transport(), 1, bytes(8), "10.1.2.3:4567")
        self.caller = Caller(peer, "client", Asks())
        self.replies: list[bytes] = []

    def respond(self, stream_id: int, message: bytes) -> None:
        self.replies.append(message)

    def call(self, rpc: str, request: Any) -> Any:
        row = self.proxy.rpcs[SERVICE + rpc]
        call = RpcCall(self.caller, row, cast(Any, self), 1)
        call.now_ms = NOW_MS
        self.proxy.begin(call, request.SerializeToString())
        return getattr(s, f"{rpc}Response").FromString(self.replies.pop())

    def send(self, *messages: d.Message) -> s.SendMessageResponse:
        reply = self.call("SendMessage", s.SendMessageRequest(messages=messages))
        assert isinstance(reply, s.SendMessageResponse)
        return reply

    def said(self, *messages: d.Message) -> tuple[str, str]:
        reply = self.send(*messages)
        return d.Code.Name(reply.status.code), reply.status.message


def message(topic: str = "normal", body: bytes = b"body", **system: Any) -> d.Message:
    user = system.pop("user", {})
    system.setdefault("message_id", "ID")
    system.setdefault("born_host", "host")
    properties = d.SystemProperties(**system)
    properties.born_timestamp.FromMilliseconds(NOW_MS - 5)
    return d.Message(
        topic=d.Resource(name=topic), body=body, user_properties=user, system_properties=properties
    )


def at(ms: int) -> dict[str, int]:
    return {"seconds": ms // 1000, "nanos": ms % 1000 * 1_000_000}


OK = ("OK", "OK")
DAY_MS = 86_400_000
CHECKS = [
    (message(body=b""), "MESSAGE_BODY_EMPTY", "message body cannot be empty"),
    (message(body=b"x" * (4 << 20)), *OK),
    (
        message(body=b"x" * ((4 << 20) + 1)),
        "MESSAGE_BODY_TOO_LARGE",
        "message body cannot exceed the max 4194304",
    ),
    (message(user={f"k{i}": "v" for i in range(128)}), *OK),
    (
        message(user={f"k{i}": "v" for i in range(129)}),
        "MESSAGE_PROPERTIES_TOO_LARGE",
        "too many user properties, max is 128",
    ),
    (message(user={"k": "v" * 16_383}), *OK),
    (message(user={"k": "v" * 16_380}, tag="t", keys=["u", "w"]), *OK),
    (
        message(user={"k": "v" * 16_380}, tag="t", keys=["u", "ww"]),
        "MESSAGE_PROPERTIES_TOO_LARGE",
        "the total size of user property is too large, max is 16384",
    ),
    (
        message(user={"k": "ü" * 8_192}),
        "MESSAGE_PROPERTIES_TOO_LARGE",
        "the total size of user property is too large, max is 16384",
    ),
    (
        message(user={"TAGS": "v"}),
        "ILLEGAL_MESSAGE_PROPERTY_KEY",
        "property is used by system: TAGS",
    ),
    (
        message(user={"a\x9fb": "v"}),
        "ILLEGAL_MESSAGE_PROPERTY_KEY",
        "the key of property cannot contain control character",
    ),
    (message(user={"a\xa0b": "\u200b"}), *OK),  # not printable, but no control characters
    (
        message(user={"a": "\x7f"}),
        "ILLEGAL_MESSAGE_PROPERTY_KEY",
        "the value of property cannot contain control character",
    ),
    (
        message(tag="  "),
        "ILLEGAL_MESSAGE_TAG",
        "tag cannot be the char sequence of whitespace",
    ),
    (message(tag="a|b"), "ILLEGAL_MESSAGE_TAG", "tag cannot contain '|'"),
    (message(tag="a\x00"), "ILLEGAL_MESSAGE_TAG", "tag cannot contain control character"),
    (message(tag="a b"), *OK),
    (
        message(keys=["a", " "]),
        "ILLEGAL_MESSAGE_KEY",
        "key cannot be the char sequence of whitespace",
    ),
    (message(keys=["a\n"]), "ILLEGAL_MESSAGE_KEY", "key cannot contain control character"),
    (message(keys=["", "a b"]), *OK),
    (message(message_id=" "), "ILLEGAL_MESSAGE_ID", "message id cannot be empty"),
    (message(message_id=""), "ILLEGAL_MESSAGE_ID", "message id cannot be empty"),
    (message(message_id="any"), *OK),
    (
        message("fifo", message_group=" "),
        "ILLEGAL_MESSAGE_GROUP",
        "message group cannot be the char sequence of whitespace",
    ),
    (message("fifo", message_group="g" * 63), *OK),
    (
        message("fifo", message_group="g" * 64),
        "ILLEGAL_MESSAGE_GROUP",
        "message group exceed the max size 64",
    ),
    (
        message("fifo", message_group="g\x01"),
        "ILLEGAL_MESSAGE_GROUP",
        "message group cannot contain control character",
    ),
    (message("delay", delivery_timestamp=at(NOW_MS + DAY_MS)), *OK),
    (
        message("delay", delivery_timestamp=at(NOW_MS + DAY_MS + 1)),
        "ILLEGAL_DELIVERY_TIME",
        "the max delay time of message is too large, max is 86400000",
    ),
    (message("delay", delivery_timestamp=at(5)), *OK),
    (
        message("half", message_type=4, orphaned_transaction_recovery_duration={"seconds": 3600}),
        *OK,
    ),
    (
        message("half", message_type=4, orphaned_transaction_recovery_duration={"seconds": 3601}),
        "BAD_REQUEST",
        "the max transaction recovery time of message is too large, max is 3600",
    ),
    (message("priority", priority=0), *OK),
    (
        message("priority", priority=-1),
        "INTERNAL_SERVER_ERROR",
        "The priority must be greater than or equal to 0",
    ),
    (
        message("closed"),
        "FORBIDDEN",
        "no writable queue",
    ),
    (
        message("missing"),
        "TOPIC_NOT_FOUND",
        "CODE: 17  DESC: No topic route info in name server for the topic: missing\nFor more"
        " information, please visit the url, https://rocketmq.apache.org/docs/bestPractice/06FAQ",
    ),
    (message("TBW102"), "ILLEGAL_TOPIC", "cannot access system topic"),
    (message(""), "ILLEGAL_TOPIC", "The specified topic is blank"),
    (message("lite", lite_topic="l"), "NOT_IMPLEMENTED", "this server has no lite topics"),
]


@pytest.mark.parametrize(("sent", "code", "text"), CHECKS, ids=lambda one: str(one)[:20])
def test_checks(sent: d.Message, code: str, text: str) -> None:
    world = World()
    assert world.said(sent) == (code, text)
    assert len(world.backend.asked) == (code == "OK")


KINDS = {
    "normal": {},
    "fifo": {"message_group": "g"},
    "delay": {"delivery_timestamp": at(NOW_MS + 1000)},
    "half": {"message_type": 4},
    "priority": {"priority": 3},
    "lite": {"lite_topic": "l"},
}


@pytest.mark.parametrize("topic", [*KINDS, "mixed"])
@pytest.mark.parametrize("kind", KINDS)
def test_type_against_topic(topic: str, kind: str) -> None:
    code, text = World().said(message(topic, **KINDS[kind]))
    if kind == "lite" and topic in ("lite", "mixed"):
        assert code == "NOT_IMPLEMENTED"
    elif topic in (kind, "mixed"):
        assert code == "OK"
    else:
        assert code == "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"
        assert text == (
            f"TopicMessageType validate failed, the expected type is {TOPICS[topic]}, "
            f"but actual type is {TOPICS[kind]}"
        )


def test_no_checks_of_types_and_limits_when_they_are_off() -> None:
    world = World(
        enable_topic_message_type_check=False, max_delay_time_mills=0, max_message_group_size=0
    )
    assert world.said(message("normal", message_group="g" * 500)) == OK
    assert world.said(message("normal", delivery_timestamp=at(NOW_MS + 30 * DAY_MS))) == OK


def test_a_message_becomes_properties_in_this_order() -> None:
    world = World(use_delay_level=True)
    sent = message(
        "mixed",
        user={"colour": "red"},
        tag="t",
        keys=["k1", "k2"],
        message_id="ID",
        body_encoding=d.Encoding.GZIP,
        message_type=d.MessageType.TRANSACTION,
        orphaned_transaction_recovery_duration={"seconds": 30},
        delivery_timestamp=at(NOW_MS + 6_000),
        delivery_attempt=2,
        message_group="g",
        priority=7,
        trace_context="trace",
    )
    assert world.said(sent) == OK
    (asked,) = world.backend.asked
    header = asked.header
    assert list(decode_properties(header.properties).items()) == [
        ("colour", "red"),
        ("TAGS", "t"),
        ("KEYS", "k1 k2"),
        ("UNIQ_KEY", "ID"),
        ("TRAN_MSG", "true"),
        ("CHECK_IMMUNITY_TIME_IN_SECONDS", "30"),
        ("DELAY", "3"),
        ("TIMER_DELIVER_MS", str(NOW_MS + 6_000)),
        ("RECONSUME_TIME", "2"),
        ("PGROUP", "mixed"),
        ("__SHARDINGKEY", "g"),
        ("_SYS_MSG_PRIORITY_", "7"),
        ("TRACE_CONTEXT", "trace"),
        ("__BORNHOST", "host"),
        ("BORN_TIMESTAMP", str(NOW_MS - 5)),
    ]
    assert (header.topic, header.producer_group, header.default_topic) == (
        "mixed",
        "mixed",
        "TBW102",
    )
    assert (header.sys_flag, header.born_timestamp, header.batch) == (5, NOW_MS - 5, False)
    assert (asked.code, asked.body) == (RequestCode.SEND_MESSAGE_V2, b"body")


def test_what_is_missing_or_would_add_properties() -> None:
    world = World()
    sent = message(message_id="I\x02TAGS\x01evil\x02D", born_host=" ", trace_context="a\x02b")
    sent.system_properties.ClearField("born_timestamp")
    assert world.said(sent) == OK
    named = decode_properties(world.backend.asked[0].header.properties)
    assert named["UNIQ_KEY"] == "ITAGS\x01evilD"
    assert "TAGS" not in named
    assert named["TRACE_CONTEXT"] == "ab"
    assert named["__BORNHOST"] == "10.1.2.3:4567"
    assert named["BORN_TIMESTAMP"] == str(NOW_MS)


def test_times_beyond_the_years_are_no_times() -> None:
    world = World(max_delay_time_mills=0)
    sent = message("delay", delivery_timestamp={"seconds": 1 << 62})
    sent.system_properties.born_timestamp.seconds = -(1 << 62)
    assert world.said(sent) == OK
    header = world.backend.asked[0].header
    assert decode_properties(header.properties)["TIMER_DELIVER_MS"] == "1"
    assert header.born_timestamp == NOW_MS


def test_an_applications_sharding_key_makes_it_fifo() -> None:
    assert World().said(message("fifo", user={"__SHARDINGKEY": "g"})) == OK


def test_entries_say_where_a_message_is() -> None:
    (entry,) = World().send(message()).entries
    assert (entry.message_id, entry.transaction_id, entry.offset) == ("ID", "of the broker", 0)


@pytest.mark.parametrize(
    ("answer", "code", "text", "inner"),
    [
        (10, "MASTER_PERSISTENCE_TIMEOUT", "MASTER_PERSISTENCE_TIMEOUT", "FLUSH_DISK_TIMEOUT"),
        (12, "SLAVE_PERSISTENCE_TIMEOUT", "SLAVE_PERSISTENCE_TIMEOUT", "FLUSH_SLAVE_TIMEOUT"),
        (11, "HA_NOT_AVAILABLE", "HA_NOT_AVAILABLE", "SLAVE_NOT_AVAILABLE"),
        (2, "TOO_MANY_REQUESTS", "why", None),
        (1, "INTERNAL_SERVER_ERROR", "why", None),
    ],
)
def test_answers_that_are_not_ok(answer: int, code: str, text: str, inner: str | None) -> None:
    world = World()
    world.backend.code = answer
    reply = world.send(message())
    assert (d.Code.Name(reply.status.code), reply.status.message) == (code, text)
    said = [entry.status.message for entry in reply.entries]
    assert said == ([] if inner is None else [f"send message failed, sendStatus={inner}"])


def test_no_messages_and_two_topics() -> None:
    world = World()
    assert world.said() == ("MESSAGE_CORRUPTED", "no message to send")
    text = "topic in message is not same"
    assert world.said(message(), message("fifo")) == ("MESSAGE_CORRUPTED", text)
    assert world.said(message(), message(body=b""))[0] == "MESSAGE_BODY_EMPTY"
    assert not world.backend.asked


def batch(asked: Any) -> list[tuple[bytes, dict[str, str]]]:
    cursor, found = BatchCursor(asked.body), []
    while cursor.advance():
        found.append((cursor.body, decode_properties(cursor.properties.decode())))
    return found


def test_a_batch_is_one_request_and_has_an_entry_each() -> None:
    world = World()
    reply = world.send(*(message(body=b"%d" % i, message_id=f"ID{i}") for i in range(3)))
    (asked,) = world.backend.asked
    assert (asked.code, asked.header.batch) == (RequestCode.SEND_BATCH_MESSAGE, True)
    assert [(b, p["UNIQ_KEY"]) for b, p in batch(asked)] == [
        (b"0", "ID0"),
        (b"1", "ID1"),
        (b"2", "ID2"),
    ]
    assert [(e.message_id, e.offset) for e in reply.entries] == [("ID0", 0), ("ID1", 1), ("ID2", 2)]
    assert d.Code.Name(reply.status.code) == "OK"


def test_what_may_not_be_in_a_batch_goes_alone_and_in_order() -> None:
    world = World()
    later = {"delivery_timestamp": at(NOW_MS + 1000)}
    gzip = {"body_encoding": d.Encoding.GZIP}
    sent = [{}, {}, later, {}, gzip, gzip, {"message_type": 4}, {}, {}]
    reply = world.send(
        *(message("mixed", message_id=f"ID{i}", **kind) for i, kind in enumerate(sent))
    )
    sizes = [len(batch(a)) if a.header.batch else 1 for a in world.backend.asked]
    assert sizes == [2, 1, 1, 1, 1, 1, 2]
    assert len({(a.broker, a.header.queue_id) for a in world.backend.asked}) == 1
    assert [entry.message_id for entry in reply.entries] == [f"ID{i}" for i in range(len(sent))]
    assert half_of(reply.entries[6].transaction_id) is not None


def test_a_fifo_batch_goes_where_its_groups_go() -> None:
    world = World()
    groups = ["order1", "order1", "group-a", "order1"]
    world.send(*(message("fifo", message_group=group) for group in groups))
    places = {}
    for asked in world.backend.asked:
        entries = (
            batch(asked)
            if asked.header.batch
            else [(b"", decode_properties(asked.header.properties))]
        )
        for _, named in entries:
            places.setdefault(named["__SHARDINGKEY"], set()).add(
                (asked.broker, asked.header.queue_id)
            )
    assert places == {"order1": {("a", 1)}, "group-a": {("b", 3)}}  # buckets 1 and 7 of 8


def test_a_batch_is_not_larger_than_a_message_may_be() -> None:
    world = World()
    world.send(*(message(body=b"x" * (1 << 20)) for _ in range(5)))
    assert [len(batch(a)) for a in world.backend.asked if a.header.batch] == [3, 2]


def test_some_of_a_batch_fail() -> None:
    world = World()
    answers = iter([0, 2])
    ask = world.backend.ask

    def next_ask(*args: Any) -> None:
        world.backend.code = next(answers)
        ask(*args)

    world.backend.ask = next_ask  # type: ignore[method-assign]
    reply = world.send(message("mixed"), message("mixed", body_encoding=d.Encoding.GZIP))
    assert d.Code.Name(reply.status.code) == "MULTIPLE_RESULTS"
    codes = [d.Code.Name(entry.status.code) for entry in reply.entries]
    assert codes == ["OK", "TOO_MANY_REQUESTS"]


@pytest.mark.parametrize(
    ("group", "buckets"), [("order1", (0, 1, 1, 10)), ("group-a", (0, 2, 7, 7))]
)
def test_queues_of_groups(group: str, buckets: tuple[int, ...]) -> None:
    assert tuple(bucket(group, count) for count in (1, 4, 8, 16)) == buckets


def test_others_take_turns() -> None:
    choice = QueueChoice()
    route = TopicRouteData(
        queue_datas=[QueueData("b", 1, 1, 6), QueueData("c", 9, 9, 4), QueueData("a", 2, 2, 2)]
    )
    places = [("a", 0), ("a", 1), ("b", 0)]
    assert [choice.choose("t", route, "") for _ in range(6)] == places * 2
    for number in range(MOST_TOPICS + 5):
        choice.choose(f"t{number}", route, "")
    assert len(choice._topics) <= MOST_TOPICS


def test_only_a_message_that_is_judged_or_unusual_becomes_an_object_of_protobuf() -> None:
    world = World()
    rpc = world.proxy.rpcs[SERVICE + "SendMessage"]
    general, read = rpc.serve, list[str]()

    def serve(call: RpcCall, request: s.SendMessageRequest) -> None:
        read.append(request.messages[0].topic.name)
        general(call, request)

    rpc.serve = serve
    assert world.said(message()) == OK and not read
    assert world.said(message("priority", priority=3)) == OK and read == ["priority"]
    world.proxy.gate = lambda call, request: None
    assert world.said(message()) == OK and read == ["priority", "normal"]


def test_delay_levels() -> None:
    assert [delay_level(ms) for ms in (-5, 0, 999, 1_000, 9_000_000)] == [1, 1, 1, 2, 18]


def test_a_half_message_and_its_end() -> None:
    world = World()
    world.backend.offset = 77
    (entry,) = world.send(message("half", message_type=4)).entries
    assert world.backend.asked.pop().header.sys_flag == 4
    half = half_of(entry.transaction_id)
    assert half is not None
    assert (half.log_offset, half.queue_offset) == (0x1F, 77)
    for resolution, flag in ((1, 8), (2, 12)):
        request = s.EndTransactionRequest(
            topic=d.Resource(name="half"),
            message_id="ID",
            transaction_id=entry.transaction_id,
            resolution=resolution,
            source=2,
        )
        assert World.call(world, "EndTransaction", request).status.code == d.Code.OK
        asked = world.backend.asked.pop()
        assert (asked.broker, asked.code) == (half.broker, RequestCode.END_TRANSACTION)
        header = asked.header
        assert (header.tran_state_table_offset, header.commit_log_offset) == (77, 0x1F)
        assert (header.topic, header.producer_group) == ("half", "half")
        assert (header.commit_or_rollback, header.from_transaction_check) == (flag, True)
        assert header.msg_id == "ID"


@pytest.mark.parametrize(
    ("transaction_id", "topic", "code", "text"),
    [
        ("", "half", "INVALID_TRANSACTION_ID", "transaction id cannot be empty"),
        (" \t", "half", "INVALID_TRANSACTION_ID", "transaction id cannot be empty"),
        ("01AB", "half", "INTERNAL_SERVER_ERROR", "cannot found transaction data"),
        ("T1-0-x-a", "half", "INTERNAL_SERVER_ERROR", "cannot found transaction data"),
        ("T1--1-0-a", "half", "INTERNAL_SERVER_ERROR", "cannot found transaction data"),
        ("T1-0-0-", "half", "INTERNAL_SERVER_ERROR", "cannot found transaction data"),
        (
            "T1-0-8000000000000000-a",
            "half",
            "INTERNAL_SERVER_ERROR",
            "cannot found transaction data",
        ),
        ("T1-0-0-a", "", "ILLEGAL_TOPIC", "The specified topic is blank"),
    ],
)
def test_ends_that_name_no_transaction(
    transaction_id: str, topic: str, code: str, text: str
) -> None:
    world = World()
    request = s.EndTransactionRequest(
        topic=d.Resource(name=topic), transaction_id=transaction_id, resolution=1
    )
    reply = world.call("EndTransaction", request)
    assert (d.Code.Name(reply.status.code), reply.status.message) == (code, text)
    assert not world.backend.asked


def test_an_end_that_fails_does_not_say_ok() -> None:
    world = World()
    request = s.EndTransactionRequest(topic=d.Resource(name="half"), transaction_id="T1-0-0-a")
    assert world.call("EndTransaction", request).status.code == d.Code.OK
    assert not world.backend.asked  # who does not know is asked again by the broker
    request.resolution = 1  # type: ignore[assignment]
    for code in (ResponseCode.SYSTEM_ERROR, ResponseCode.ILLEGAL_OPERATION):
        world.backend.code = code
        reply = world.call("EndTransaction", request)
        assert (reply.status.code, reply.status.message) == (d.Code.INTERNAL_SERVER_ERROR, "why")


def test_ids_of_transactions_say_where_they_are() -> None:
    rng = random.Random(1)
    for broker in ("a", "broker-a-1", "ü - x"):
        half = Half(broker, rng.getrandbits(63), rng.getrandbits(63))
        assert half_of(half.id) == half


def test_recall() -> None:
    world = World()
    handle = RecallHandle(topic="delay", broker_name="b", timestamp="9", uniq_key="ID").encode()

    def recall(topic: str, handle: str) -> tuple[str, str]:
        request = s.RecallMessageRequest(topic=d.Resource(name=topic), recall_handle=handle)
        reply = world.call("RecallMessage", request)
        return d.Code.Name(reply.status.code), reply.message_id or reply.status.message

    assert recall("delay", handle) == ("OK", offset_message_id(HOST, 0x1F))
    (asked,) = world.backend.asked
    assert (asked.broker, asked.code) == ("b", RequestCode.RECALL_MESSAGE)
    assert (asked.header.topic, asked.header.recall_handle) == ("delay", handle)
    for bad in ("", "x", "%%%"):
        assert recall("delay", bad) == ("INTERNAL_SERVER_ERROR", "recall handle is invalid")
    assert recall("normal", handle)[0] == "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"
    assert recall("missing", handle)[0] == "TOPIC_NOT_FOUND"
    assert recall("a b", handle)[0] == "ILLEGAL_TOPIC"
    world.backend.code = ResponseCode.SYSTEM_ERROR
    assert recall("delay", handle) == ("INTERNAL_SERVER_ERROR", "why")


def test_what_is_sent_is_what_is_delivered() -> None:
    rng = random.Random(7)
    letters = "ab Zü\u200b漢😀\xa0|%1"

    def text(most: int, least: int = 0) -> str:
        return "".join(rng.choices(letters, k=rng.randint(least, most)))

    def word() -> str:
        return rng.choice(["x", "ü😀", "k" * 40])

    for number in range(500):
        system: dict[str, Any] = {"message_id": word(), "born_host": word()}
        for name, value in (
            ("tag", word()),
            ("keys", [word() for _ in range(rng.randint(1, 3))]),
            ("message_group", word()[:20]),
            ("priority", rng.randint(0, 99)),
            ("trace_context", word()),
            ("delivery_timestamp", at(NOW_MS + rng.randint(1, DAY_MS))),
            ("message_type", d.MessageType.TRANSACTION),
        ):
            if rng.random() < 0.4:
                system[name] = value
        system["body_encoding"] = rng.choice([d.Encoding.IDENTITY, d.Encoding.GZIP])
        user = {text(6, 1): text(9, 1) for _ in range(rng.randint(0, 4))}
        sent = message("mixed", body=rng.randbytes(1 + number % 50), user=user, **system)
        world = World()
        assert world.said(sent) == OK, sent
        header = world.backend.asked[0].header
        record = StoredRecord("mixed", header.properties, world.backend.asked[0].body)
        record.sys_flag = header.sys_flag
        record.born_timestamp_ms = header.born_timestamp
        record.born_host = record.store_host = HOST
        got = to_message(record)
        told = got.system_properties
        for name in (*system, "born_timestamp"):
            if name != "message_type":
                assert getattr(told, name) == getattr(sent.system_properties, name), name
        kept = {k: v for k, v in got.user_properties.items() if k not in SYSTEM | {"TRACE_CONTEXT"}}
        assert kept == user
        assert got.body == sent.body
        kinds = [
            ("TRANSACTION", "message_type"), ("DELAY", "delivery_timestamp"),
            ("FIFO", "message_group"), ("PRIORITY", "priority"),
        ]  # fmt: skip
        kind = next((kind for kind, name in kinds if name in system), "NORMAL")
        assert d.MessageType.Name(told.message_type) == kind


@pytest.mark.parametrize(
    "said", [b"{", b"[]", b'{"msgId":5}', b'{"msgId":"\xff"}', b'{"queueOffset":"9e9"}',
    b'{"queueOffset":"99999999999999999999"}'],
)  # fmt: skip
def test_answers_that_cannot_be_read(said: bytes) -> None:
    world = World()
    world.backend.said = said
    text = "the broker's answer cannot be read"
    assert world.said(message()) == ("INTERNAL_SERVER_ERROR", text)
    reply = world.send(message("mixed"), message("mixed", body_encoding=d.Encoding.GZIP))
    assert [entry.status.message for entry in reply.entries] == [text, text]
    handle = RecallHandle(topic="delay", broker_name="b", timestamp="9", uniq_key="ID").encode()
    request = s.RecallMessageRequest(topic=d.Resource(name="delay"), recall_handle=handle)
    if b"Offset" not in said:
        assert world.call("RecallMessage", request).status.message == text
