"""Apache's v5 clients at Roquette's broker, at the port where remoting clients are; five languages, one broker.

All that takes time is begun at once for a client (`Scene`), and each test looks at one thing. With ROQUETTE_INTEROP_PROVE=1
the same runs at Apache's proxy, which holds a broker of its own.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.golden.grpc_steps import Bench, endpoints, resource
from tests.interop.bench import until
from tests.interop.conftest import PROVE, SETTINGS
from tests.interop.driver import ClientError, LineClient
from tests.interop.peers import call, start_apache_namesrv, start_namesrv, start_roquette_broker
from tests.interop.proxies import Door, start_apache_proxy
from tests.interop.v5 import peers
from tests.interop.v5.peers import GO, JAVA, NODE, PYTHON, RUST
from tests.interop.ways import authority, property_file

from roquette import Client, ReceivedMessage, StartFrom
from roquette.wire.proto.service_pb2 import QueryRouteRequest

pytestmark = [pytest.mark.interop]

QUICK = {
    **SETTINGS,
    "transactionTimeOut": "1500",
    "transactionCheckInterval": "1000",
    "recallMessageEnable": "true",
    "timerWheelEnable": "true",
}
WAIT_MS = 30_000  # of a condition that needs a second or two on a quiet machine
ALL = (JAVA, GO, PYTHON, NODE, RUST)
PUSHING = (JAVA, PYTHON, NODE)
NO_TLS_CHOICE = {GO: "1"}  # it always speaks TLS

KINDS = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY")


@pytest.fixture(scope="module", params=["roquette", *(["apache"] if PROVE else [])])
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Door]:
    """A broker that v5 clients reach at `grpc`."""
    folder = tmp_path_factory.mktemp(f"v5-{request.param}")
    if request.param == "apache":
        namesrv = start_apache_namesrv(folder / "namesrv")
        # Its broker asks before it has seen what was said, when that is younger.
        slower = {"transactionTimeOut": "4000", "transactionCheckInterval": "3000"}
        settings = {**QUICK, **slower}
        door = start_apache_proxy(folder / "proxy", namesrv.address, settings=settings)
    else:
        namesrv = start_namesrv("roquette", folder / "namesrv")
        tls = {"tls.config.file": str(property_file(demands="none", name="v5"))}
        settings = {**QUICK, **tls, "tls.server.mode": "permissive"}
        broker = start_roquette_broker(folder / "broker", namesrv.address, settings=settings)
        door = Door(broker, broker.address, namesrv.address)
    for client in ALL:
        for kind in KINDS:
            make_topic(door, f"T_{word_of(client)}_{kind}", kind)
    routed(door, [f"T_{word_of(client)}_{kind}" for client in ALL for kind in KINDS])
    yield door
    door.broker.discard()
    namesrv.discard()


def word_of(client: str) -> str:
    """A word for a client's topics and groups."""
    return f"{client.split(maxsplit=1)[0].lower()}_v5"


def routed(door: Door, topics: list[str]) -> None:
    """Wait until the door tells their routes: Apache's gets them by the name server."""
    bench = Bench(door.grpc)
    where = endpoints(door.grpc)
    try:
        for topic in topics:
            request = QueryRouteRequest(topic=resource(topic), endpoints=where)
            until(lambda request=request: "OK" in str(bench.ask("QueryRoute", request)["replies"]))
    finally:
        bench.close()


def make_topic(door: Door, name: str, kind: str, queues: int = 2) -> str:
    """A topic of a message type."""
    fields = {"topic": name, "defaultTopic": "TBW102", "perm": "6", "order": "false"}
    fields |= {"readQueueNums": str(queues), "writeQueueNums": str(queues)}
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"}
    if kind != "NORMAL":
        fields["attributes"] = f"+message.type={kind}"
    answer = call(door.broker.address, 17, fields)
    assert answer is not None and answer[0]["code"] == 0, answer
    return name


def make_group(door: Door, name: str, *, orderly: bool = False, retries: int = 3) -> str:
    """A consumer group."""
    body = {"groupName": name, "consumeMessageOrderly": orderly, "retryMaxTimes": retries}
    body |= {"consumeEnable": True, "consumeFromMinEnable": True, "retryQueueNums": 1}
    body |= {"consumeBroadcastEnable": True, "brokerId": 0, "attributes": {}}
    body |= {"whichBrokerWhenConsumeSlowly": 1, "notifyConsumerIdsChangedEnable": True}
    answer = call(door.broker.address, 200, {}, json.dumps(body).encode())
    assert answer is not None and answer[0]["code"] == 0, answer
    return name


class Scene:
    """One client, with everything begun that takes time."""

    def __init__(self, client: str, peer: LineClient, door: Door, word: str) -> None:
        self.client, self.peer, self.door, self.word = client, peer, door, word
        self.at = {"endpoints": door.grpc, "tls": NO_TLS_CHOICE.get(client)}
        self.topics = {kind: f"T_{word}_{kind}" for kind in KINDS}
        self.outcomes: dict[str, Any] = {}
        self.pushes = client in PUSHING

    def group(self, name: str, **config: Any) -> str:
        return make_group(self.door, f"G_{self.word}_{name}", **config)

    def note(self, name: str, step: Callable[[], Any]) -> None:
        """Do a step; what it gave, or why it failed, is for the test that asks."""
        try:
            self.outcomes[name] = step()
        except (ClientError, AssertionError) as failed:
            self.outcomes[name] = failed

    def of(self, name: str) -> Any:
        """What a step gave."""
        outcome = self.outcomes[name]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def send(self, kind: str, **arguments: Any) -> list[Any]:
        """Send; a producer for each topic."""
        name = f"{self.word}-{kind}"
        if f"producer {kind}" not in self.outcomes:  # started by the first send
            check = {"check": "COMMIT"} if kind == "TRANSACTION" else {}
            self.note(
                f"producer {kind}",
                lambda: self.peer(
                    "producer", name=name, topic=self.topics[kind], **check, **self.at
                ),
            )
        self.of(f"producer {kind}")
        command = arguments.pop("command", "send")
        answer = self.peer(command, name=name, topic=self.topics[kind], **arguments)
        return list(answer["results"]) if command == "send" else [answer]

    def begin(self) -> None:
        """Begin it all, in an order that lets waits run side by side."""
        self.note("tags", lambda: self.send("NORMAL", tag="red", key="k", property=OF_RED, count=3))
        self.note("blue", lambda: self.send("NORMAL", tag="blue", property={"size": 3}, body="b"))
        self.note("fifo", lambda: self.send("FIFO", order="g", count=6))
        self.note("delayed", lambda: self.send("DELAY", delay=2000))
        for end in ("commit", "rollback", "none"):
            self.note(
                end,
                lambda end=end: self.send("TRANSACTION", command="transaction", end=end, body=end),
            )
        if self.pushes:
            self.note("push", lambda: self.push("push", "NORMAL"))
            self.note("retry", lambda: self.push("retry", "NORMAL", failUntil=1))
            self.note("dead", lambda: self.push("dead", "NORMAL", retries=1, failUntil=9))
            self.note("push fifo", lambda: self.push("order", "FIFO", orderly=True))
        self.note("changed", self.change)

    def push(self, name: str, kind: str, **more: Any) -> None:
        config = {key: more.pop(key) for key in ("orderly", "retries") if key in more}
        group = self.group(name, **config)
        self.peer("push", name=name, group=group, topic=self.topics[kind], **more, **self.at)

    def pushed(self, name: str, count: int) -> list[Any]:
        """What a push consumer has seen, `count` messages at least."""
        return list(self.peer("dump", name=name, min=count, timeout=WAIT_MS)["messages"])

    def simple(self, name: str, kind: str, **more: Any) -> None:
        group = self.group(name, orderly=kind == "FIFO")
        self.peer("simple", name=name, group=group, topic=self.topics[kind], **more, **self.at)

    def receive(self, name: str, count: int, invisible: int = 20) -> list[Any]:
        """Receive `count` messages or more by a simple consumer, or what comes in time."""
        found: list[Any] = []
        end = time.monotonic() + WAIT_MS / 1000
        while time.monotonic() < end:
            try:
                found += self.peer("receive", name=name, invisible=invisible)["messages"]
            except ClientError as failed:
                # Without its settings Apache's proxy cannot serve a receive, and some clients do not wait for them.
                if "settings" not in str(failed):
                    raise
            if len(found) >= count:
                break
        return found

    def change(self) -> dict[str, Any]:
        """Receive a message and make it visible again after 2 s."""
        self.simple("changing", "NORMAL")
        first, *others = self.receive("changing", 4)
        for one in others:
            self.peer("ack", name="changing", msgId=one["msgId"])
        if self.client != RUST:
            self.peer("change", name="changing", msgId=first["msgId"], invisible=2)
        return dict(first)


OF_RED = {"size": 7, "colour": "Zinnoberrot, 朱"}


@pytest.fixture(scope="module")
def stage(
    servers: Door, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Scene]]:
    """Scenes by client, each begun when first asked for."""
    scenes: dict[str, Scene] = {}

    def find(client: str) -> Scene:
        if client not in scenes:
            word = f"{client.split(maxsplit=1)[0].lower()}_v5"
            peer = peers.started(client, tmp_path_factory.mktemp(word), authority("ca").cert)
            scenes[client] = Scene(client, peer, servers, word)
            scenes[client].begin()
        return scenes[client]

    yield find
    for scene in scenes.values():
        scene.peer.stop()


def of(*clients: str) -> pytest.MarkDecorator:
    """A test with each of these clients; the marker `feature` takes the client from the parameter."""
    return pytest.mark.parametrize("client", clients, ids=lambda client: client.split()[0].lower())


@of(*ALL)
@pytest.mark.feature("send", "simple", "properties")
def test_what_is_sent_is_received_once(client: str, stage: Callable[..., Scene]) -> None:
    scene = stage(client)
    sent = scene.of("tags") + scene.of("blue")
    scene.simple("simple", "NORMAL")
    found = scene.receive("simple", 4)
    assert sorted(one["body"] for one in found) == ["b-0", "m-0", "m-1", "m-2"]
    assert {one["msgId"] for one in found} == {one["msgId"] for one in sent}
    red = next(one for one in found if one["body"] == "m-0")
    assert red["tag"] == "red" and red["keys"] == ["k"] and red["attempt"] == 1
    assert red["properties"] == {key: str(value) for key, value in OF_RED.items()}
    for one in found:
        scene.peer("ack", name="simple", msgId=one["msgId"])


@of(*ALL)
@pytest.mark.feature("tags")
def test_tags_select(client: str, stage: Callable[..., Scene]) -> None:
    scene = stage(client)
    scene.simple("by_tag", "NORMAL", tags="blue || green")
    assert [one["body"] for one in scene.receive("by_tag", 1)] == ["b-0"]


@of(*ALL)
@pytest.mark.feature("sql92")
def test_sql_selects(client: str, stage: Callable[..., Scene], servers: Door) -> None:
    if servers.broker.flavour == "apache" and client == GO:
        pytest.skip("Apache's proxy has no settings of it: it sends SQL as an unknown type")
    scene = stage(client)
    scene.simple("by_sql", "NORMAL", sql="size > 5")
    assert sorted(one["body"] for one in scene.receive("by_sql", 3)) == ["m-0", "m-1", "m-2"]


@of(*(client for client in ALL if client != RUST))
@pytest.mark.feature("invisible")
def test_a_changed_invisible_time_brings_a_message_again(
    client: str, stage: Callable[..., Scene]
) -> None:
    scene = stage(client)
    first = scene.of("changed")
    (again,) = scene.receive("changing", 1)
    assert again["msgId"] == first["msgId"] and again["attempt"] == 2
    scene.peer("ack", name="changing", msgId=again["msgId"])


@of(*ALL)
@pytest.mark.feature("order")
def test_a_message_group_stays_in_order(client: str, stage: Callable[..., Scene]) -> None:
    scene = stage(client)
    scene.of("fifo")
    bodies = [f"m-{i}" for i in range(6)]
    if scene.pushes:
        scene.of("push fifo")
        found = scene.pushed("order", 6)
    else:
        scene.simple("order", "FIFO")
        found = scene.receive("order", 6)
    assert [one["body"] for one in found] == bodies
    assert {one["order"] for one in found} == {"g"}


@of(*ALL)
@pytest.mark.feature("timer")
def test_a_delivery_time_is_kept(client: str, stage: Callable[..., Scene]) -> None:
    scene = stage(client)
    scene.of("delayed")
    scene.simple("delayed", "DELAY")
    assert [one["body"] for one in scene.receive("delayed", 1)] == ["m-0"]


@of(JAVA, PYTHON, NODE)
@pytest.mark.feature("recall")
def test_a_delayed_message_is_recalled(client: str, stage: Callable[..., Scene]) -> None:
    scene = stage(client)
    (sent,) = scene.send("DELAY", delay=60_000, body="never")
    name, topic = f"{scene.word}-DELAY", scene.topics["DELAY"]
    answer = scene.peer("recall", name=name, topic=topic, handle=sent["recallHandle"])
    assert client == PYTHON or answer["msgId"] == sent["msgId"]


@of(JAVA, PYTHON, NODE)
@pytest.mark.feature("priority")
def test_a_priority_is_taken(client: str, stage: Callable[..., Scene]) -> None:
    scene = stage(client)
    (sent,) = scene.send("PRIORITY", priority=3)
    scene.simple("priority", "PRIORITY")
    assert [one["msgId"] for one in scene.receive("priority", 1)] == [sent["msgId"]]


@of(RUST)
@pytest.mark.feature("batch")
def test_a_batch_is_stored(client: str, stage: Callable[..., Scene]) -> None:
    scene = stage(client)
    sent = scene.send("NORMAL", batch=1, count=3, tag="batched", body="batch")
    assert len({one["msgId"] for one in sent}) >= 1
    scene.simple("batch", "NORMAL", tags="batched")
    found = scene.receive("batch", 3)
    assert sorted(one["body"] for one in found) == ["batch-0", "batch-1", "batch-2"]


@of(*ALL)
@pytest.mark.feature("transactions")
def test_transactions_are_committed_rolled_back_and_asked_about(
    client: str, stage: Callable[..., Scene]
) -> None:
    scene = stage(client)
    for end in ("commit", "rollback", "none"):
        scene.of(end)
    scene.simple("halves", "TRANSACTION")
    found = scene.receive("halves", 2)
    assert sorted(one["body"] for one in found) == ["commit-0", "none-0"]
    checked = scene.peer("dump", name=f"{scene.word}-TRANSACTION", min=1, timeout=WAIT_MS)
    assert {one["body"] for one in checked["messages"]} == {"none-0"}


@of(*PUSHING)
@pytest.mark.feature("push")
def test_a_push_consumer_gets_everything(client: str, stage: Callable[..., Scene]) -> None:
    scene = stage(client)
    scene.of("push")
    found = scene.pushed("push", 4)
    assert {one["body"] for one in found} >= {"b-0", "m-0", "m-1", "m-2"}


@of(*PUSHING)
@pytest.mark.feature("retry")
def test_what_fails_comes_again(client: str, stage: Callable[..., Scene]) -> None:
    scene = stage(client)
    scene.of("retry")
    tries = [one for one in scene.pushed("retry", 8) if one["body"] in ("m-0", "b-0")]
    for body in ("m-0", "b-0"):
        assert [one["attempt"] for one in tries if one["body"] == body] == [1, 2]


@of(*PUSHING)
@pytest.mark.feature("dead-letter")
def test_what_fails_too_often_is_a_dead_letter(client: str, stage: Callable[..., Scene]) -> None:
    scene = stage(client)
    scene.of("dead")
    scene.pushed("dead", 8)  # four messages, two attempts each
    dead = f"%DLQ%G_{scene.word}_dead"

    def there() -> bool:
        answer = call(scene.door.broker.address, 30, {"topic": dead, "queueId": "0"})
        return answer is not None and int(answer[0].get("extFields", {}).get("offset", 0)) >= 4

    until(there)


@of(*ALL)
@pytest.mark.feature("refusals")
def test_a_refusal_reaches_the_sender(client: str, stage: Callable[..., Scene]) -> None:
    scene = stage(client)
    scene.of("tags")
    with pytest.raises(ClientError):
        scene.send("NORMAL", tag="a|b")


@of(JAVA, GO, PYTHON, NODE)
@pytest.mark.feature("tls")
def test_tls_is_taken_at_the_same_port(
    client: str, stage: Callable[..., Scene], servers: Door
) -> None:
    if servers.broker.flavour == "apache" and client in (PYTHON, NODE):
        pytest.skip("it verifies the certificate, and Apache's is one that nobody knows")
    scene = stage(client)
    at = {"endpoints": servers.grpc, "tls": "1"}
    topic = scene.topics["NORMAL"]
    scene.peer("producer", name="tls", topic=topic, **at)
    (sent,) = scene.peer("send", name="tls", topic=topic, tag="tls", body="by-tls")["results"]
    group = scene.group("tls")
    scene.peer("simple", name="by_tls", topic=topic, group=group, tags="tls", **at)
    assert [one["msgId"] for one in scene.receive("by_tls", 1)] == [sent["msgId"]]
    for name in ("tls", "by_tls"):
        scene.peer("stop", name=name)


@of(*ALL)
@pytest.mark.feature("mixed-group")
def test_a_group_has_members_of_both_protocols(
    client: str, stage: Callable[..., Scene], servers: Door
) -> None:
    """Each message comes to somebody: to the v5 client, or to ours, which is asked in the same group."""
    if servers.broker.flavour == "apache":
        pytest.skip("its name server is told to v5 clients only by its proxy")
    scene = stage(client)
    topic = make_topic(servers, f"T_{scene.word}_mixed", "NORMAL", queues=4)
    group = scene.group("mixed")
    scene.peer("simple", name="mixed", topic=topic, group=group, **scene.at)
    seen: set[str] = set()

    async def of_ours() -> None:
        async with Client(servers.namesrv) as mq:
            for number in range(20):
                await mq.send(topic, f"{number}".encode())
            first = await asyncio.to_thread(scene.receive, "mixed", 5)
            seen.update(one["body"] for one in first)
            for one in first:
                await asyncio.to_thread(scene.peer, "ack", name="mixed", msgId=one["msgId"])

            def handler(message: ReceivedMessage) -> None:
                seen.add(message.body.decode())

            await mq.subscribe(topic, group=group, handler=handler, start_from=StartFrom.FIRST)
            end = time.monotonic() + WAIT_MS / 1000
            while len(seen) < 20 and time.monotonic() < end:
                seen.update(
                    one["body"] for one in await asyncio.to_thread(scene.receive, "mixed", 1)
                )

    asyncio.run(of_ours())
    assert seen == {f"{number}" for number in range(20)}


@of(*ALL)
@pytest.mark.feature("shutdown")
def test_clients_end_in_order(client: str, stage: Callable[..., Scene]) -> None:
    scene = stage(client)
    scene.simple("ending", "FIFO")
    for name in ("ending", *(f"{scene.word}-{kind}" for kind in ("NORMAL", "FIFO"))):
        assert scene.peer("stop", name=name)["done"]
