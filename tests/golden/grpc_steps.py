"""A fixed list of raw requests of the v5 protocol, and what a server says to each of them.

tools/golden/capture_grpc.py asks Apache's proxy, test_golden_grpc.py our broker. Names, ids, times and ports that differ
from run to run are replaced by words.
"""

import contextlib
import json
import queue
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message as Proto

from roquette.wire.proto import definition_pb2 as d
from roquette.wire.proto import service_pb2 as s

SERVICE = "/apache.rocketmq.v2.MessagingService/"
Said = dict[str, Any]
Remoting = Callable[[int, dict[str, str], bytes], Any]

# Of the broker that is asked.
SETTINGS = {
    "autoCreateTopicEnable": "false",
    "enablePropertyFilter": "true",
    "enableMixedMessageType": "true",
    "timerWheelEnable": "true",
    "recallMessageEnable": "true",
}
MASTER_ONLY = {"order": "false", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"}
# Topics of one queue each: name to (permission, message.type).
TOPICS = {
    "V_normal": ("6", "NORMAL"),
    "V_fifo": ("6", "FIFO"),
    "V_delay": ("6", "DELAY"),
    "V_transaction": ("6", "TRANSACTION"),
    "V_mixed": ("6", "MIXED"),
    "V_priority": ("6", "PRIORITY"),
    "V_plain": ("6", ""),
    "V_write_only": ("2", "NORMAL"),
    "V_read_only": ("4", "NORMAL"),
    "V_empty": ("6", "NORMAL"),
    "V_receives": ("6", "NORMAL"),
    "V_receipts": ("6", "NORMAL"),
    "V_dead": ("6", "NORMAL"),
    "space%V_inner": ("6", "NORMAL"),
}
GROUPS = {"V_group": False, "V_ordered": True, "V_receipts_group": False}
SCRUBBED = {
    "message_id": "ID",
    "transaction_id": "TRANSACTION",
    "receipt_handle": "HANDLE",
    "recall_handle": "RECALL",
    "born_host": "HOST",
    "store_host": "HOST",
    "born_timestamp": "TIME",
    "store_timestamp": "TIME",
    "delivery_timestamp": "TIME",
}


def made(call: Remoting) -> None:
    """Make the topics and groups, at the broker's remoting port."""
    for name, (perm, kind) in TOPICS.items():
        fields = {
            **MASTER_ONLY,
            "topic": name,
            "defaultTopic": "TBW102",
            "perm": perm,
            "readQueueNums": "1",
            "writeQueueNums": "1",
        }
        if kind:
            fields["attributes"] = f"+message.type={kind}"
        answer = call(17, fields, b"")
        assert answer is not None and answer[0]["code"] == 0, (name, answer)
    for name, orderly in GROUPS.items():
        body = {
            "groupName": name,
            "consumeEnable": True,
            "consumeFromMinEnable": True,
            "consumeBroadcastEnable": True,
            "consumeMessageOrderly": orderly,
            "retryQueueNums": 1,
            "retryMaxTimes": 5,
            "brokerId": 0,
            "attributes": {},
            "whichBrokerWhenConsumeSlowly": 1,
            "notifyConsumerIdsChangedEnable": True,
        }
        answer = call(200, {}, json.dumps(body).encode())
        assert answer is not None and answer[0]["code"] == 0, (name, answer)


class Bench:
    """A channel to a server, with a client id."""

    def __init__(self, address: str, poll_s: float = 5) -> None:
        self.address = address
        self.poll_s = poll_s
        self.channel = grpc.insecure_channel(address)
        self.open: list[Any] = []

    def metadata(self, client: str) -> list[tuple[str, str]]:
        """What official clients send with each call."""
        found = [
            ("x-mq-language", "JAVA"),
            ("x-mq-client-version", "5.2.0"),
            ("x-mq-protocol", "v2"),
            ("x-mq-request-id", "7f5c0b1e-1111-2222-3333-444455556666"),
            ("x-mq-date-time", "20261122T000000Z"),
        ]
        return [*found, ("x-mq-client-id", client)] if client else found

    def ask(self, rpc: str, request: Proto, client: str = "golden", timeout: float = 12) -> Said:
        """One call, with one reply."""
        return self.answer(*self.raw(rpc, request, client, timeout))

    def raw(
        self, rpc: str, request: Proto, client: str = "golden", timeout: float = 12
    ) -> tuple[list[Proto], grpc.RpcError | None]:
        """The replies themselves, and how the call ended if not with OK."""
        name = rpc.rpartition("/")[2]
        path = rpc if rpc.startswith("/") else SERVICE + rpc
        reply = getattr(s, f"{name}Response", s.HeartbeatResponse)
        streams = name in ("ReceiveMessage", "PullMessage")
        make = self.channel.unary_stream if streams else self.channel.unary_unary
        method = make(
            path,
            request_serializer=type(request).SerializeToString,
            response_deserializer=reply.FromString,
        )
        found: list[Proto] = []
        try:
            outcome = method(request, timeout=timeout, metadata=self.metadata(client))
            found += list(outcome) if streams else [outcome]
        except grpc.RpcError as error:
            return found, error
        return found, None

    def telemetry(
        self, first: d.Settings | s.TelemetryCommand, client: str = "golden", timeout: float = 300
    ) -> Said:
        """Open a Telemetry stream with a first message; its first reply, or its end. It stays open."""
        command = s.TelemetryCommand(settings=first) if isinstance(first, d.Settings) else first
        out: queue.Queue[Proto | None] = queue.Queue()
        out.put(command)
        stream = self.channel.stream_stream(
            SERVICE + "Telemetry",
            request_serializer=s.TelemetryCommand.SerializeToString,
            response_deserializer=s.TelemetryCommand.FromString,
        )(iter(out.get, None), metadata=self.metadata(client), timeout=timeout)
        self.open.append((out, stream))
        try:
            return self.answer([next(stream)], None)
        except StopIteration:
            return {"grpc": "OK", "replies": []}
        except grpc.RpcError as error:
            return self.answer([], error)

    def answer(self, replies: list[Proto], error: Any) -> Said:
        """What a server said, without what differs from run to run."""
        said: Said = {"grpc": error.code().name if error is not None else "OK"}
        if error is not None:
            said["text"] = self.scrub(error.details() or "", "")
        said["replies"] = [
            self.scrub(MessageToDict(reply, preserving_proto_field_name=True), "")
            for reply in replies
        ]
        return said

    def scrub(self, value: Any, key: str) -> Any:
        """The same with words for ids, times and ports."""
        if isinstance(value, dict):
            return {name: self.scrub(inner, name) for name, inner in sorted(value.items())}
        if isinstance(value, list):
            return [self.scrub(inner, key) for inner in value]
        if key in SCRUBBED and value:
            return SCRUBBED[key]
        if key == "port":
            return "PORT" if str(value) == self.address.rpartition(":")[2] else value
        if isinstance(value, str):
            value = re.sub(r"(\d+\.){3}\d+:\d+", "ADDRESS", value)
            value = re.sub(r"\b01[0-9A-F]{32}\b", "ID", value)
            return re.sub(r"\b\d{10,}\b", "NUMBER", value)
        return value

    def close(self) -> None:
        """End the streams and the channel."""
        for out, stream in self.open:
            out.put(None)
            stream.cancel()
        self.channel.close()


def resource(name: str, space: str = "") -> d.Resource:
    return d.Resource(name=name, resource_namespace=space)


def endpoints(address: str) -> d.Endpoints:
    host, _, port = address.rpartition(":")
    where = d.Address(host=host, port=int(port))
    return d.Endpoints(scheme=d.AddressScheme.IPv4, addresses=[where])


ID = "01ABCDEF0123456789ABCDEF0123456789"
_count = iter(range(1, 1 << 30))


def message(topic: str = "V_normal", body: bytes = b"body", **system: Any) -> d.Message:
    """A message as clients send it; `user` are its user properties."""
    user = system.pop("user", {})
    kind = system.pop("kind", d.MessageType.NORMAL)
    system.setdefault("message_id", f"01ABCDEF0123456789ABCDEF01{next(_count):08X}")
    system.setdefault("body_encoding", d.Encoding.IDENTITY)
    properties = d.SystemProperties(message_type=kind, born_host="golden", **system)
    properties.born_timestamp.FromMilliseconds(int(time.time() * 1000))
    return d.Message(
        topic=resource(topic), body=body, user_properties=user, system_properties=properties
    )


def later(seconds: float) -> dict[str, int]:
    at = time.time() + seconds
    return {"seconds": int(at), "nanos": 0}


def settled(bench: Bench) -> None:
    """Wait until the server knows the topics: routes come by the name server."""
    end = time.monotonic() + 60
    where = endpoints(bench.address)
    for topic in TOPICS:
        while True:
            request = s.QueryRouteRequest(topic=resource(topic), endpoints=where)
            found, _ = bench.raw("QueryRoute", request)
            if [reply.status.code for reply in found] == [d.Code.OK]:  # type: ignore[attr-defined]
                break
            assert time.monotonic() < end, (topic, found)
            time.sleep(0.5)


def replies(address: str, call: Remoting, poll_s: float = 5) -> dict[str, Said]:
    """All requests in order; what was said to each, by its name. `poll_s`: the server's shortest poll."""
    made(call)
    bench = Bench(address, poll_s)
    with contextlib.closing(bench):
        settled(bench)
        said: dict[str, Said] = {}
        for steps in (routes, assignments, clients, sends, transactions, receives, receipts, rest):
            for name, answer in steps(bench):
                full = f"{steps.__name__}: {name}"
                assert full not in said, full
                said[full] = answer
        return said


Steps = Iterator[tuple[str, Said]]


def routes(bench: Bench) -> Steps:
    where = endpoints(bench.address)

    def ask(topic: d.Resource, client: str = "golden") -> Said:
        return bench.ask("QueryRoute", s.QueryRouteRequest(topic=topic, endpoints=where), client)

    for topic in TOPICS:
        yield topic, ask(resource(topic))
    yield "in a namespace", ask(resource("V_inner", "space"))
    yield "unknown", ask(resource("V_unknown"))
    yield "no client id", ask(resource("V_normal"), "")
    for name in ("", " ", "a b", "a" * 128, "TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_x", "ü"):
        yield f"name {name!r}", ask(resource(name))
    yield "%RETRY%V_group", ask(resource("%RETRY%V_group"))
    yield "no endpoints", bench.ask("QueryRoute", s.QueryRouteRequest(topic=resource("V_normal")))
    yield "no topic", bench.ask("QueryRoute", s.QueryRouteRequest(endpoints=where))
    domain = d.Endpoints(
        scheme=d.AddressScheme.DOMAIN_NAME, addresses=[d.Address(host="mq.example", port=80)]
    )
    request = s.QueryRouteRequest(topic=resource("V_normal"), endpoints=domain)
    yield "domain name", bench.ask("QueryRoute", request)


def assignments(bench: Bench) -> Steps:
    where = endpoints(bench.address)

    def ask(topic: str, group: str, client: str = "golden") -> Said:
        request = s.QueryAssignmentRequest(
            topic=resource(topic), group=resource(group), endpoints=where
        )
        return bench.ask("QueryAssignment", request, client)

    yield "normal", ask("V_normal", "V_group")
    yield "fifo group", ask("V_fifo", "V_ordered")
    yield "unknown group", ask("V_normal", "V_nobody")
    yield "unknown topic", ask("V_unknown", "V_group")
    yield "write-only topic", ask("V_write_only", "V_group")
    yield "no group", ask("V_normal", "")
    yield "system group", ask("V_normal", "CID_RMQ_SYS_x")
    yield "bad group", ask("V_normal", "a b")
    yield "long group", ask("V_normal", "g" * 256)
    yield "no client id", ask("V_normal", "V_group", "")


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


def clients(bench: Bench) -> Steps:
    push, simple = d.ClientType.PUSH_CONSUMER, d.ClientType.SIMPLE_CONSUMER
    tell = bench.telemetry
    yield "producer", tell(publisher("V_normal", "V_transaction"), "producer")
    yield "producer without topics", tell(publisher(), "producer2")
    yield "producer of an unknown topic", tell(publisher("V_unknown"), "producer3")
    yield "producer of a bad topic", tell(publisher("a b"), "producer4")
    yield "push consumer", tell(subscriber(push, "V_group", "V_normal"), "push")
    yield "push consumer, fifo", tell(subscriber(push, "V_ordered", "V_fifo"), "push2")
    yield "push consumer, unknown group", tell(subscriber(push, "V_nobody", "V_normal"), "push3")
    yield "push consumer, bad group", tell(subscriber(push, "a b", "V_normal"), "push4")
    yield "push consumer, bad topic", tell(subscriber(push, "V_group", "a b"), "push5")
    yield "push consumer, system group", tell(subscriber(push, "CID_RMQ_SYS_x", "V_normal"), "p6")
    bad = subscriber(push, "V_group", "V_normal")
    bad.subscription.subscriptions[0].expression.type = d.FilterType.SQL
    bad.subscription.subscriptions[0].expression.expression = "a >"
    yield "push consumer, bad SQL", tell(bad, "push7")
    yield "simple consumer", tell(subscriber(simple, "V_group", "V_normal"), "simple")
    full = subscriber(simple, "V_group", "V_normal")
    full.backoff_policy.max_attempts = 99
    full.request_timeout.seconds = 7
    full.subscription.long_polling_timeout.seconds = 3
    full.subscription.receive_batch_size = 99
    full.client_properties["colour"] = "red"
    full.access_point.CopyFrom(endpoints(bench.address))
    yield "simple consumer, everything set", tell(full, "simple2")
    yield "neither publishing nor subscription", tell(d.Settings(user_agent=agent()), "neither")
    trace = s.TelemetryCommand(thread_stack_trace=s.ThreadStackTrace(nonce="1"))
    yield "a stack trace first", tell(trace, "trace", 2)
    yield "an empty command first", tell(s.TelemetryCommand(), "empty", 2)
    yield "no client id", tell(publisher("V_normal"), "")

    def beat(client: str, group: str, kind: Any) -> Said:
        request = s.HeartbeatRequest(group=resource(group), client_type=kind)
        return bench.ask("Heartbeat", request, client)

    yield "heartbeat of nobody", beat("stranger", "V_group", push)
    yield "heartbeat of a producer", beat("producer", "", d.ClientType.PRODUCER)
    yield "heartbeat of a push consumer", beat("push", "V_group", push)
    yield "heartbeat of a simple consumer", beat("simple", "V_group", simple)
    yield "heartbeat without a type", beat("push", "V_group", 0)
    yield "heartbeat of a bad group", beat("push", "a b", push)
    yield "heartbeat of another group", beat("push", "V_ordered", push)
    yield "heartbeat without a client id", beat("", "V_group", push)

    def ends(client: str, group: str) -> Said:
        request = s.NotifyClientTerminationRequest(group=resource(group))
        return bench.ask("NotifyClientTermination", request, client)

    yield "termination of nobody", ends("stranger", "V_group")
    yield "termination of a producer", ends("producer2", "")
    yield "termination of a push consumer", ends("push2", "V_ordered")
    yield "termination of a bad group", ends("push", "a b")
    yield "heartbeat after termination", beat("push2", "V_ordered", push)


def sends(bench: Bench) -> Steps:
    def send(*messages: d.Message, client: str = "producer") -> Said:
        return bench.ask("SendMessage", s.SendMessageRequest(messages=messages), client)

    fifo, delay = d.MessageType.FIFO, d.MessageType.DELAY
    yield "normal", send(message(tag="t", keys=["k1", "k2"], user={"colour": "red"}))
    yield "batch", send(message(), message())
    yield "fifo", send(message("V_fifo", kind=fifo, message_group="g"))
    yield "delay", send(message("V_delay", kind=delay, delivery_timestamp=later(600)))
    yield "priority", send(message("V_priority", kind=d.MessageType.PRIORITY, priority=3))
    yield "gzip flag", send(message(body_encoding=d.Encoding.GZIP))
    yield "no encoding", send(message(body_encoding=0))
    yield "no settings", send(message(), client="nobody")
    yield "no client id", send(message(), client="")
    yield "no messages", send()
    yield "two topics", send(message(), message("V_plain"))
    yield "unknown topic", send(message("V_unknown"))
    yield "read-only topic", send(message("V_read_only"))
    for name in ("", "a b", "TBW102", "RMQ_SYS_x"):
        yield f"topic {name!r}", send(message(name))
    yield "empty body", send(message(body=b""))
    yield "body of 4 MiB", send(message("V_plain", body=b"x" * (4 << 20)))
    yield "body of 4 MiB and a byte", send(message("V_plain", body=b"x" * ((4 << 20) + 1)))
    for key in ("UNIQ_KEY", "TAGS", "KEYS", "DELAY", "", " ", "a\x01b", "a\x02b", "a|b", "a\nb"):
        yield f"property key {key!r}", send(message(user={key: "v"}))
    yield "property value with a separator", send(message(user={"k": "a\x02b"}))
    yield "empty property value", send(message(user={"k": ""}))
    yield "128 properties", send(message(user={f"k{i}": "v" for i in range(128)}))
    yield "129 properties", send(message(user={f"k{i}": "v" for i in range(129)}))
    yield "properties of 16 KiB", send(message(user={"k": "v" * (16_384 - 1)}))
    yield "properties of 16 KiB and a byte", send(message(user={"k": "v" * 16_384}))
    for tag in ("", " ", "a|b", "a\x01b", "a b", "t" * 17_000):
        yield f"tag {tag[:9]!r} of {len(tag)}", send(message(tag=tag))
    for key in ("", " ", "a b", "a\x01b", "k" * 17_000):
        yield f"key {key[:9]!r} of {len(key)}", send(message(keys=[key]))
    for one in ("", " ", "x", ID[:-1], "z" * 300):
        yield f"message id {one[:9]!r} of {len(one)}", send(message(message_id=one))
    for group in ("", " ", "g" * 64, "g" * 65, "a\x01b"):
        answer = send(message("V_fifo", kind=fifo, message_group=group))
        yield f"message group {group[:9]!r} of {len(group)}", answer
    yield "fifo batch", send(*(message("V_fifo", kind=fifo, message_group="g") for _ in range(2)))
    yield (
        "fifo batch of two groups",
        send(*(message("V_fifo", kind=fifo, message_group=group) for group in ("g", "h"))),
    )
    yield (
        "delivery a year ahead",
        send(message("V_delay", kind=delay, delivery_timestamp=later(365 * 86_400))),
    )
    yield "delivery long ago", send(message("V_delay", kind=delay, delivery_timestamp=later(-99)))
    for priority in (-1, 0, 10):
        answer = send(message("V_priority", kind=d.MessageType.PRIORITY, priority=priority))
        yield f"priority {priority}", answer
    half = {"kind": d.MessageType.TRANSACTION, "orphaned_transaction_recovery_duration": None}
    for seconds in (0, 30, 3600, 3601, -1):
        half["orphaned_transaction_recovery_duration"] = {"seconds": seconds}
        yield f"recovery after {seconds} s", send(message("V_transaction", **half))
    yield "delay to a normal topic", send(message(kind=delay, delivery_timestamp=later(5)))
    yield "fifo to a normal topic", send(message(kind=fifo, message_group="g"))
    yield "transaction to a normal topic", send(message(kind=d.MessageType.TRANSACTION))
    yield "normal to a fifo topic", send(message("V_fifo"))
    yield "normal to a delay topic", send(message("V_delay"))
    yield "fifo by type only", send(message("V_fifo", kind=fifo))
    yield "delay by type only", send(message("V_delay", kind=delay))
    yield "type unspecified", send(message(kind=0))
    yield "fifo to a mixed topic", send(message("V_mixed", kind=fifo, message_group="g"))
    yield "fifo to a topic without a type", send(message("V_plain", kind=fifo, message_group="g"))
    yield (
        "fifo and delay",
        send(message("V_mixed", kind=fifo, message_group="g", delivery_timestamp=later(2))),
    )
    yield "lite topic to a normal topic", send(message(kind=d.MessageType.LITE, lite_topic="lite"))
    yield "in a namespace", send(message("space%V_inner"))
    yield "second of a batch is bad", send(message(), message(body=b""))


def transactions(bench: Bench) -> Steps:
    def prepare() -> s.SendResultEntry:
        half = message("V_transaction", kind=d.MessageType.TRANSACTION)
        (reply,), _ = bench.raw("SendMessage", s.SendMessageRequest(messages=[half]), "producer")
        assert isinstance(reply, s.SendMessageResponse)
        return reply.entries[0]

    def end(entry: s.SendResultEntry, resolution: Any, **changes: Any) -> Said:
        request = s.EndTransactionRequest(
            topic=resource("V_transaction"),
            message_id=entry.message_id,
            transaction_id=entry.transaction_id,
            resolution=resolution,
            source=d.TransactionSource.SOURCE_CLIENT,
        )
        request.MergeFrom(s.EndTransactionRequest(**changes))
        return bench.ask("EndTransaction", request, "producer")

    commit, rollback = d.TransactionResolution.COMMIT, d.TransactionResolution.ROLLBACK
    entry = prepare()
    yield "commit", end(entry, commit)
    yield "commit again", end(entry, commit)
    yield "rollback", end(prepare(), rollback)
    yield "unspecified", end(prepare(), 0)
    yield "unknown id", end(s.SendResultEntry(message_id=ID, transaction_id=ID), commit)
    yield "no transaction id", end(s.SendResultEntry(message_id=ID), commit)
    yield "blank transaction id", end(s.SendResultEntry(transaction_id=" "), commit)
    yield "another topic", end(prepare(), commit, topic=resource("V_normal"))
    yield "bad topic", end(prepare(), commit, topic=resource("a b"))


def receive(bench: Bench, topic: str, group: str, **changes: Any) -> tuple[Any, Any]:
    client, timeout = changes.pop("client", "receiver"), changes.pop("timeout", 12)
    broker = d.Broker(name=changes.pop("broker", "broker-a"), endpoints=endpoints(bench.address))
    asked = {
        "group": resource(group),
        "message_queue": d.MessageQueue(
            topic=resource(topic),
            id=changes.pop("queue", -1),
            broker=broker,
            permission=d.Permission.READ_WRITE,
        ),
        "filter_expression": d.FilterExpression(type=d.FilterType.TAG, expression="*"),
        "batch_size": 1,
        "invisible_duration": {"seconds": 20},
        "long_polling_timeout": {"seconds": max(1, int(bench.poll_s))},
        **changes,
    }
    chosen = {name: value for name, value in asked.items() if value is not None}
    return bench.raw("ReceiveMessage", s.ReceiveMessageRequest(**chosen), client, timeout)


def receives(bench: Bench) -> Steps:
    simple = d.ClientType.SIMPLE_CONSUMER
    bench.telemetry(subscriber(simple, "V_group", "V_receives"), "receiver")
    for number in range(20):
        one = message("V_receives", tag="t", keys=["k1", "k2"], user={"number": str(number)})
        bench.raw("SendMessage", s.SendMessageRequest(messages=[one]), "producer")

    def ask(topic: str = "V_receives", group: str = "V_group", **changes: Any) -> Said:
        return bench.answer(*receive(bench, topic, group, **changes))

    yield "a message", ask()
    yield "two messages", ask(batch_size=2)
    yield "auto-renewed", ask(auto_renew=True, invisible_duration=None)
    yield "without settings", ask(client="nobody")
    yield "no client id", ask(client="")
    yield "batch of 0", ask(batch_size=0)
    yield "batch of -1", ask(batch_size=-1)
    yield "invisible for 9 s", ask(invisible_duration={"seconds": 9})
    yield "invisible for 12 h and 1 s", ask(invisible_duration={"seconds": 43_201})
    yield "invisible for 0", ask(invisible_duration={})
    yield "no invisible time", ask(invisible_duration=None)
    yield "unknown topic", ask("V_unknown")
    yield "unknown group", ask(group="V_nobody")
    yield "unknown broker", ask(broker="nobody")
    yield "bad topic", ask("a b")
    yield "bad group", ask(group="a b")
    yield "write-only topic", ask("V_write_only")
    yield "queue 9", ask(queue=9)
    wrong = d.FilterExpression(type=d.FilterType.SQL, expression="a >")
    yield "bad SQL", ask(filter_expression=wrong)
    nothing = d.FilterExpression(type=d.FilterType.SQL, expression="")
    yield "empty SQL", ask(filter_expression=nothing)
    tags = d.FilterExpression(type=d.FilterType.TAG, expression="|| ||")
    yield "bars for tags", ask(filter_expression=tags)
    yield "no filter", ask(filter_expression=None)
    yield "deadline of 3 s", ask("V_empty", timeout=bench.poll_s * 0.6)
    yield "nothing there", ask("V_empty", timeout=bench.poll_s + 3)


def receipts(bench: Bench) -> Steps:
    topic, group = resource("V_receipts"), resource("V_receipts_group")
    simple = d.ClientType.SIMPLE_CONSUMER
    bench.telemetry(subscriber(simple, group.name, topic.name), "holder")
    for _ in range(8):
        bench.raw("SendMessage", s.SendMessageRequest(messages=[message(topic.name)]), "producer")

    def take(of: str = topic.name) -> tuple[str, str]:
        found, _ = receive(bench, of, group.name, client="holder")
        (one,) = (reply.message for reply in found if reply.HasField("message"))
        return one.system_properties.receipt_handle, one.system_properties.message_id

    def ack(*handles: tuple[str, str], **changes: Any) -> Said:
        entries = [s.AckMessageEntry(receipt_handle=h, message_id=m) for h, m in handles]
        asked = {"group": group, "topic": topic, "entries": entries, **changes}
        return bench.ask("AckMessage", s.AckMessageRequest(**asked), "holder")

    def change(handle: str, seconds: int | None, **changes: Any) -> Said:
        duration = None if seconds is None else {"seconds": seconds}
        asked = {"group": group, "topic": topic, "receipt_handle": handle, "message_id": ID}
        request = s.ChangeInvisibleDurationRequest(
            **{**asked, "invisible_duration": duration, **changes}
        )
        return bench.ask("ChangeInvisibleDuration", request, "holder")

    first, second = take(), take()
    garbage = ("garbage", ID)
    expired = " ".join([*first[0].split()[:1], "1000000000000", *first[0].split()[2:]])
    yield "ack", ack(first)
    yield "ack again", ack(first)
    yield "ack of garbage", ack(garbage)
    yield "ack of an expired handle", ack((expired, ID))
    yield "ack of an empty handle", ack(("", ID))
    yield "ack of nothing", ack()
    yield "ack of one good and one bad", ack(second, garbage)
    yield "ack in an unknown group", ack(take(), group=resource("V_nobody"))
    yield "ack in an unknown topic", ack(take(), topic=resource("V_unknown"))
    yield "ack in a bad group", ack(garbage, group=resource("a b"))
    yield "ack in a bad topic", ack(garbage, topic=resource("a b"))
    handle, _ = take()
    yield "change", change(handle, 30)
    yield "change with the old handle", change(handle, 30)
    yield "ack with the old handle", ack((handle, ID))
    handle, _ = take()
    yield "change to 0", change(handle, 0)
    handle, _ = take()
    yield "change to 12 h and 1 s", change(handle, 43_201)
    yield "change to -1", change(handle, -1)
    yield "change without a duration", change(handle, None)
    yield "change of garbage", change("garbage", 30)
    yield "change of an expired handle", change(expired, 30)
    yield "change in a bad group", change(handle, 30, group=resource("a b"))

    def forward(handle: str, **changes: Any) -> Said:
        asked = {
            "group": group,
            "topic": resource("V_dead"),
            "receipt_handle": handle,
            "message_id": ID,
            "delivery_attempt": 1,
            "max_delivery_attempts": 3,
            **changes,
        }
        request = s.ForwardMessageToDeadLetterQueueRequest(**asked)
        return bench.ask("ForwardMessageToDeadLetterQueue", request, "holder")

    bench.raw("SendMessage", s.SendMessageRequest(messages=[message("V_dead")]), "producer")
    yield "forward of garbage", forward("garbage")
    yield "forward of an expired handle", forward(expired)
    handle, _ = take("V_dead")
    yield "forward of a handle of eight words", forward(handle.rpartition(" ")[0])
    yield "forward", forward(handle)
    yield "forward in a bad group", forward(handle, group=resource("a b"))
    yield "forward in a bad topic", forward(handle, topic=resource("a b"))


def rest(bench: Bench) -> Steps:
    def recall(handle: str, topic: str = "V_delay") -> Said:
        request = s.RecallMessageRequest(topic=resource(topic), recall_handle=handle)
        return bench.ask("RecallMessage", request, "producer")

    delayed = message("V_delay", kind=d.MessageType.DELAY, delivery_timestamp=later(600))
    (reply,), _ = bench.raw("SendMessage", s.SendMessageRequest(messages=[delayed]), "producer")
    assert isinstance(reply, s.SendMessageResponse)
    yield "recall", recall(reply.entries[0].recall_handle)
    yield "recall again", recall(reply.entries[0].recall_handle)
    yield "recall of garbage", recall("garbage")
    yield "recall of nothing", recall("")
    yield "recall from another topic", recall(reply.entries[0].recall_handle, "V_normal")
    yield "recall from a bad topic", recall("garbage", "a b")
    yield "recall from an unknown topic", recall("garbage", "V_unknown")
    queue_ = d.MessageQueue(topic=resource("V_normal"), id=0, broker=d.Broker(name="broker-a"))
    group = resource("V_group")
    yield (
        "PullMessage",
        bench.ask("PullMessage", s.PullMessageRequest(group=group, message_queue=queue_)),
    )
    yield (
        "UpdateOffset",
        bench.ask(
            "UpdateOffset", s.UpdateOffsetRequest(group=group, message_queue=queue_, offset=1)
        ),
    )
    yield "GetOffset", bench.ask("GetOffset", s.GetOffsetRequest(group=group, message_queue=queue_))
    yield "QueryOffset", bench.ask("QueryOffset", s.QueryOffsetRequest(message_queue=queue_))
    lite = s.SyncLiteSubscriptionRequest(
        topic=resource("V_normal"), group=group, lite_topic_set=["one"]
    )
    yield "SyncLiteSubscription", bench.ask("SyncLiteSubscription", lite)
    lite.topic.name = "a b"
    yield "SyncLiteSubscription of a bad topic", bench.ask("SyncLiteSubscription", lite)
    unknown = s.HeartbeatRequest()
    yield "an unknown method", bench.ask("Nonsense", unknown)
    yield "an unknown service", bench.ask("/apache.rocketmq.v9.Service/Heartbeat", unknown)
    lite_push = d.ClientType.LITE_PUSH_CONSUMER
    yield (
        "lite push consumer",
        bench.telemetry(subscriber(lite_push, "V_group", "V_normal"), "lite"),
    )
