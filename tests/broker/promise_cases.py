"""A case for each request that changes something: what is asked, and, after `yield`, that its effect is there again.

Between the two the broker is killed, or the power goes, in the moment in which the answer leaves.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from tests.broker.conftest import RawClient, pull_ext, send_ext
from tests.broker.pop_frames import ack, body, pop
from tests.broker.test_reply import answer_one, register, reply_ext
from tests.broker.test_transactions import COMMIT, ROLLBACK, end, prepare

from roquette.message.record import decode_records, encode_batch
from roquette.wire.codes import RequestCode as R
from roquette.wire.header_codec import ext_dict
from roquette_testing.cluster import SimCluster

BROKER, PORT = "10.0.0.1", 10911
TOPIC = {
    "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "topicFilterType": "SINGLE_TAG",
    "order": "false", "topic": "New",
}  # fmt: skip
V1_WORDS = (
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag",
    "properties", "reconsumeTimes", "unitMode",
)  # fmt: skip
GROUP = {"consumerGroup": "g", "topic": "T", "queueId": 0}


def v1(ext: dict[str, Any]) -> dict[str, Any]:
    """A V2 send header with the words of V1."""
    return {word: ext[letter] for word, letter in zip(V1_WORDS, "abcdefghijk", strict=True)}


class World:
    """A server that will die, and a client of it."""

    def __init__(self, cluster: SimCluster, host: str = BROKER, port: int = PORT) -> None:
        self.host, self.port = host, port
        self.cluster = cluster
        self.clock = cluster.clock
        self.client: RawClient
        self.before: Callable[[int], None] = lambda code: None  # runs ahead of each request

    ext = staticmethod(lambda command: ext_dict(command.ext))

    @property
    def broker(self) -> Any:
        return self.cluster.hosts[BROKER].service

    async def connect(self) -> None:
        self.client = RawClient(*await asyncio.open_connection(self.host, self.port))

    async def ask(self, code: int, ext: dict[str, Any], data: bytes = b"") -> Any:
        """A request that must be answered with SUCCESS."""
        self.before(code)
        reply = await self.client.call(code, ext, data)
        assert reply.code == 0, (reply.code, reply.remark)
        return reply

    async def bodies(self, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        reply = await self.client.call(11, pull_ext(topic, queue_id, suspendTimeoutMillis=0))
        return (
            [record.body for record in decode_records(reply.body, True)] if reply.code == 0 else []
        )

    async def know(self, count: int = 3) -> None:
        """Topic T and group g exist, on the disk, and the topic has messages."""
        await self.ask(200, {}, b'{"groupName":"g"}')
        await self.ask(17, TOPIC | {"topic": "T", "readQueueNums": 1, "writeQueueNums": 1})
        for number in range(count):
            await self.ask(310, send_ext("T"), b"m%d" % number)

    async def offset(self, group: str = "g", topic: str = "T") -> int:
        ask = {"consumerGroup": group, "topic": topic, "queueId": 0, "setZeroIfNotFound": "false"}
        reply = await self.client.call(14, ask)
        return int(self.ext(reply)["offset"]) if reply.code == 0 else -1


Case = Callable[[World], AsyncIterator[None]]
CASES: dict[int, list[Case]] = {}


def case(*codes: R) -> Callable[[Case], Case]:
    def note(found: Case) -> Case:
        for code in codes:
            CASES.setdefault(int(code), []).append(found)
        return found

    return note


# Messages


@case(R.SEND_MESSAGE)
async def sent_v1(w: World) -> AsyncIterator[None]:
    await w.ask(10, v1(send_ext("New", k="false")), b"x")
    yield
    assert await w.bodies("New") == [b"x"]


@case(R.SEND_MESSAGE_V2)
async def sent(w: World) -> AsyncIterator[None]:
    await w.ask(310, send_ext("New"), b"x")
    yield
    assert await w.bodies("New") == [b"x"]


@case(R.SEND_MESSAGE_V2)
async def sent_with_a_delay(w: World) -> AsyncIterator[None]:
    await w.ask(310, send_ext("New", properties={"DELAY": "1"}), b"x")
    yield
    await asyncio.sleep(5)
    assert await w.bodies("New") == [b"x"]


@case(R.SEND_MESSAGE_V2)
async def sent_with_a_time(w: World) -> AsyncIterator[None]:
    await w.ask(310, send_ext("New", properties={"TIMER_DELAY_MS": "3000"}), b"x")
    yield
    await asyncio.sleep(6)
    assert await w.bodies("New") == [b"x"]


@case(R.SEND_MESSAGE_V2)
async def sent_half(w: World) -> AsyncIterator[None]:
    half = await prepare(w, w.client)
    yield
    assert (await end(w.client, half, COMMIT)).code == 0
    await asyncio.sleep(0.1)
    assert await w.bodies(queue_id=1) == [b"hello"]


@case(R.SEND_BATCH_MESSAGE)
async def sent_together(w: World) -> AsyncIterator[None]:
    entries = [(0, b"a", b""), (0, b"b", b"")]
    await w.ask(320, send_ext("New", m="true"), encode_batch(entries))
    yield
    assert await w.bodies("New") == [b"a", b"b"]


def back_ext(offset: int, level: int) -> dict[str, Any]:
    return {
        "offset": offset,
        "group": "g",
        "delayLevel": level,
        "originMsgId": "x",
        "originTopic": "T",
    }


@case(R.CONSUMER_SEND_MSG_BACK)
async def sent_back(w: World) -> AsyncIterator[None]:
    await w.know(1)
    await w.ask(36, back_ext(0, 1))
    yield
    await asyncio.sleep(5)
    assert b"m0" in await w.bodies("%RETRY%g")


@case(R.CONSUMER_SEND_MSG_BACK)
async def sent_to_the_dead(w: World) -> AsyncIterator[None]:
    await w.know(1)
    await w.ask(36, back_ext(0, -1))
    yield
    w.broker.tables.topics.find("%DLQ%g").perm = 6
    assert await w.bodies("%DLQ%g") == [b"m0"]


async def reply_of(w: World, code: int, ext: dict[str, Any]) -> None:
    asker = RawClient(*await asyncio.open_connection(BROKER, PORT))
    await register(asker)
    reply, _ = await asyncio.gather(w.client.call(code, ext, b"yes"), answer_one(asker))
    assert reply.code == 0


@case(R.SEND_REPLY_MESSAGE)
async def replied_v1(w: World) -> AsyncIterator[None]:
    await reply_of(w, 324, v1(reply_ext()))
    yield
    assert await w.bodies("DefaultCluster_REPLY_TOPIC") == [b"yes"]


@case(R.SEND_REPLY_MESSAGE_V2)
async def replied(w: World) -> AsyncIterator[None]:
    await reply_of(w, 325, reply_ext())
    yield
    assert await w.bodies("DefaultCluster_REPLY_TOPIC") == [b"yes"]


@case(R.RECALL_MESSAGE)
async def recalled(w: World) -> AsyncIterator[None]:
    late = await w.ask(310, send_ext("New", properties={"TIMER_DELAY_MS": "3000"}), b"x")
    handle = w.ext(late)["recallHandle"]
    await w.ask(370, {"topic": "New", "recallHandle": handle, "producerGroup": "pg"})
    yield
    await asyncio.sleep(8)
    assert await w.bodies("New") == []


# Transactions


@case(R.END_TRANSACTION)
async def committed(w: World) -> AsyncIterator[None]:
    half = await prepare(w, w.client)
    assert (await end(w.client, half, COMMIT)).code == 0
    yield
    assert await w.bodies(queue_id=1) == [b"hello"]
    assert (await end(w.client, half, COMMIT)).code == 1
    assert await w.bodies(queue_id=1) == [b"hello"]


@case(R.END_TRANSACTION)
async def rolled_back(w: World) -> AsyncIterator[None]:
    half = await prepare(w, w.client)
    assert (await end(w.client, half, ROLLBACK)).code == 0
    yield
    assert (await end(w.client, half, COMMIT)).code == 1
    assert await w.bodies(queue_id=1) == []


@case(R.RESUME_CHECK_HALF_MESSAGE)
async def resumed(w: World) -> AsyncIterator[None]:
    half = await prepare(w, w.client)
    await w.ask(323, {"msgId": f"0A00000100002A9F{half.physical:016X}"})
    yield
    assert w.broker.store.max_offset("RMQ_SYS_TRANS_HALF_TOPIC", 0) == 2
    assert (await end(w.client, half, COMMIT)).code == 0
    await asyncio.sleep(0.1)
    assert await w.bodies(queue_id=1) == [b"hello"]


# POP


@case(R.POP_MESSAGE)
async def popped(w: World) -> AsyncIterator[None]:
    await w.know()
    assert len(await pop(w, w.client, invisibleTime=8000)) == 3
    yield
    assert await pop(w, w.client) == []
    await asyncio.sleep(12)
    assert sorted(message.body for message in await pop(w, w.client)) == [b"m0", b"m1", b"m2"]


@case(R.ACK_MESSAGE)
async def acknowledged(w: World) -> AsyncIterator[None]:
    await w.know()
    messages = await pop(w, w.client, invisibleTime=8000)
    assert (await ack(w.client, messages[0])).code == 0
    yield
    await asyncio.sleep(12)
    assert sorted(message.body for message in await pop(w, w.client)) == [b"m1", b"m2"]


@case(R.BATCH_ACK_MESSAGE)
async def acknowledged_together(w: World) -> AsyncIterator[None]:
    await w.know()
    [first, *_] = await pop(w, w.client, invisibleTime=8000)
    parts = first.receipt.split(" ")
    entry = {
        "c": "g", "t": "T", "r": "0", "so": int(parts[0]), "q": 0, "rq": int(parts[3]), "pt": int(parts[1]),
        "it": int(parts[2]), "b": base64.b64encode(b"\5").decode(),
    }  # fmt: skip
    await w.ask(200151, {}, body({"brokerName": "broker-a", "acks": [entry]}))
    yield
    await asyncio.sleep(12)
    assert [message.body for message in await pop(w, w.client)] == [b"m1"]


@case(R.CHANGE_MESSAGE_INVISIBLETIME)
async def hidden_longer(w: World) -> AsyncIterator[None]:
    await w.know()
    [first, *_] = await pop(w, w.client, invisibleTime=4000)
    await w.ask(200053, first.ack_ext(invisibleTime=30_000))
    yield
    await asyncio.sleep(10)
    assert sorted(message.body for message in await pop(w, w.client)) == [b"m1", b"m2"]


@case(R.SET_MESSAGE_REQUEST_MODE)
async def mode_set(w: World) -> AsyncIterator[None]:
    await w.know()
    await w.ask(401, {}, body({"topic": "T", "consumerGroup": "g", "mode": "POP"}))
    yield
    assert "POP" in (await w.ask(402, {})).body.decode()


# Offsets


@case(R.UPDATE_CONSUMER_OFFSET)
async def offset_committed(w: World) -> AsyncIterator[None]:
    await w.know()
    await w.ask(15, GROUP | {"commitOffset": 1})
    await w.ask(15, GROUP | {"commitOffset": 2})
    yield
    assert await w.offset() == 2


@case(R.UPDATE_CONSUMER_OFFSET)
async def offset_committed_back(w: World) -> AsyncIterator[None]:
    await w.know()
    await w.ask(15, GROUP | {"commitOffset": 3})
    await asyncio.sleep(6)  # in the file
    await w.ask(15, GROUP | {"commitOffset": 1})
    yield
    assert await w.offset() == 1


async def committed_by_pull(w: World, code: int) -> None:
    await w.know()
    await w.ask(code, pull_ext(offset=2, sysFlag=5, commitOffset=2))


@case(R.PULL_MESSAGE)
async def offset_committed_by_pull(w: World) -> AsyncIterator[None]:
    await committed_by_pull(w, 11)
    yield
    assert await w.offset() == 2


@case(R.LITE_PULL_MESSAGE)
async def offset_committed_by_lite_pull(w: World) -> AsyncIterator[None]:
    await committed_by_pull(w, 361)
    yield
    assert await w.offset() == 2


@case(R.INVOKE_BROKER_TO_RESET_OFFSET)
async def offset_reset(w: World) -> AsyncIterator[None]:
    await w.know()
    await w.ask(15, GROUP | {"commitOffset": 3})
    ask = {"topic": "T", "group": "g", "timestamp": 0, "isForce": "true", "queueId": 0, "offset": 1}
    await w.ask(222, ask)
    yield
    assert await w.offset() == 1
    reply = await w.client.call(11, pull_ext(offset=3))
    assert (reply.code, w.ext(reply)["nextBeginOffset"]) == (21, "1")


@case(R.INVOKE_BROKER_TO_RESET_OFFSET)
async def offset_reset_behind_pops(w: World) -> AsyncIterator[None]:
    await w.know()
    await asyncio.sleep(6)
    assert len(await pop(w, w.client, invisibleTime=60_000)) == 3
    ask = {"topic": "T", "group": "g", "timestamp": 0, "isForce": "true", "queueId": 0, "offset": 1}
    await w.ask(222, ask)
    yield
    assert sorted(message.body for message in await pop(w, w.client)) == [b"m1", b"m2"]


@case(R.CLONE_GROUP_OFFSET)
async def offset_cloned(w: World) -> AsyncIterator[None]:
    await w.know()
    await w.ask(15, GROUP | {"commitOffset": 3})
    await w.ask(314, {"srcGroup": "g", "destGroup": "h", "offline": "true"})
    yield
    assert await w.offset("h") == 3


# Topics


@case(R.UPDATE_AND_CREATE_TOPIC)
async def topic_made(w: World) -> AsyncIterator[None]:
    await w.ask(17, TOPIC)
    yield
    assert (await w.ask(351, {"topic": "New"})).body


@case(R.UPDATE_AND_CREATE_TOPIC)
async def topic_changed(w: World) -> AsyncIterator[None]:
    await w.ask(17, TOPIC)
    await w.ask(17, TOPIC | {"perm": 4})
    yield
    assert json.loads((await w.ask(351, {"topic": "New"})).body)["perm"] == 4


@case(R.UPDATE_AND_CREATE_TOPIC)
async def topic_made_twice_at_once(w: World) -> AsyncIterator[None]:
    w.client.send(17, {name: str(value) for name, value in TOPIC.items()})
    await w.ask(17, TOPIC)
    yield
    assert (await w.ask(351, {"topic": "New"})).body


@case(R.UPDATE_AND_CREATE_TOPIC_LIST)
async def topics_made(w: World) -> AsyncIterator[None]:
    await w.ask(18, {}, b'{"topicConfigList":[{"topicName":"A"},{"topicName":"B"}]}')
    yield
    assert (await w.ask(351, {"topic": "A"})).body and (await w.ask(351, {"topic": "B"})).body


@case(R.DELETE_TOPIC_IN_BROKER)
async def topic_deleted(w: World) -> AsyncIterator[None]:
    await w.know()
    await w.ask(401, {}, body({"topic": "T", "consumerGroup": "g", "mode": "POP"}))
    await w.ask(353, {"group": "g", "topic": "T", "readable": "false"})
    await w.ask(15, GROUP | {"commitOffset": 3})
    await asyncio.sleep(6)
    await w.ask(215, {"topic": "T"})
    yield
    assert (await w.client.call(351, {"topic": "T"})).code == 17
    assert await w.offset() == -1
    assert w.broker.tables.groups.readable("g", "T")
    assert "T" not in json.loads((await w.ask(402, {})).body)["messageRequestModeMap"]


@case(R.DELETE_TOPIC_IN_BROKER)
async def topic_deleted_and_made_anew(w: World) -> AsyncIterator[None]:
    await w.know()
    assert len(await pop(w, w.client, invisibleTime=1000)) == 3
    await w.ask(15, GROUP | {"commitOffset": 3})
    await w.ask(215, {"topic": "T"})
    yield
    await w.know(1)
    assert await w.offset() == -1
    await asyncio.sleep(4)
    assert [message.body for message in await pop(w, w.client)] == [b"m0"]
    assert await w.bodies() == [b"m0"]


# Groups


@case(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
async def group_made(w: World) -> AsyncIterator[None]:
    await w.ask(200, {}, b'{"groupName":"g1"}')
    yield
    assert (await w.ask(352, {"group": "g1"})).body


@case(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
async def group_changed(w: World) -> AsyncIterator[None]:
    await w.ask(200, {}, b'{"groupName":"g1"}')
    await w.ask(200, {}, b'{"groupName":"g1","retryMaxTimes":3}')
    yield
    assert json.loads((await w.ask(352, {"group": "g1"})).body)["retryMaxTimes"] == 3


@case(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST)
async def groups_made(w: World) -> AsyncIterator[None]:
    await w.ask(225, {}, b'{"groupConfigList":[{"groupName":"g1"},{"groupName":"g2"}]}')
    yield
    assert (await w.ask(352, {"group": "g1"})).body and (await w.ask(352, {"group": "g2"})).body


@case(R.DELETE_SUBSCRIPTIONGROUP)
async def group_deleted(w: World) -> AsyncIterator[None]:
    await w.know()
    await w.ask(401, {}, body({"topic": "T", "consumerGroup": "g", "mode": "POP"}))
    await w.ask(15, GROUP | {"commitOffset": 3})
    await asyncio.sleep(6)
    await w.ask(207, {"groupName": "g", "cleanOffset": "true"})
    yield
    assert w.broker.tables.groups.known("g") is None
    assert await w.offset() == -1
    assert json.loads((await w.ask(402, {})).body)["messageRequestModeMap"] == {"T": {}}


@case(R.UPDATE_AND_GET_GROUP_FORBIDDEN)
async def group_forbidden(w: World) -> AsyncIterator[None]:
    await w.know()
    await w.ask(353, {"group": "g", "topic": "T", "readable": "false"})
    yield
    assert not w.broker.tables.groups.readable("g", "T")


# Clean-ups


async def gone_topic(w: World) -> None:
    """The queues of a topic that nobody knows."""
    await w.ask(310, send_ext("New"), b"x")
    w.broker.tables.topics.delete("New", w.clock.now_ms())
    await asyncio.sleep(2)


@case(R.CLEAN_UNUSED_TOPIC)
async def unknown_topics_cleaned(w: World) -> AsyncIterator[None]:
    await gone_topic(w)
    await w.ask(316, {})
    kept = [path for path in w.cluster.hosts[BROKER].files._seen if "/consumequeue/New/" in path]
    assert not kept
    yield
    assert w.broker.tables.topics.find("New") is None
    assert w.broker.store.queues_of("New") == []


@case(R.CLEAN_EXPIRED_CONSUMEQUEUE, R.DELETE_EXPIRED_COMMITLOG)
async def expired_files_cleaned(w: World) -> AsyncIterator[None]:
    await w.know()
    for number in range(30):
        await w.ask(310, send_ext("T"), b"%d" % number * 50_000)
    first = w.broker.store.min_physical_offset
    w.broker.live.update({"fileReservedTime": "1"})
    w.cluster.loop.stall(2 * 3600)
    await asyncio.sleep(70)  # the queues have reached the disk
    await w.connect()
    await w.ask(310, send_ext("T"), b"last")
    await w.ask(329, {})
    await w.ask(306, {})
    low = w.broker.store.min_physical_offset
    assert low > first
    queue_low = w.broker.store.min_offset("T", 0)
    yield
    assert w.broker.store.min_physical_offset >= low
    assert w.broker.store.min_offset("T", 0) >= queue_low


# Users and rules

ALICE = {"username": "alice"}
RULES = b'{"policies":[{"entries":[{"resource":"Topic:t","actions":["Pub"],"decision":"Allow"}]}]}'


@case(R.AUTH_CREATE_USER)
async def user_made(w: World) -> AsyncIterator[None]:
    await w.ask(3001, ALICE, b'{"password":"p"}')
    yield
    assert w.broker.core.access.users.find("alice").secret == b"p"


@case(R.AUTH_UPDATE_USER)
async def user_changed(w: World) -> AsyncIterator[None]:
    await w.ask(3001, ALICE, b'{"password":"p"}')
    await w.ask(3002, ALICE, b'{"userStatus":"disable"}')
    yield
    assert not w.broker.core.access.users.find("alice").enabled


@case(R.AUTH_DELETE_USER)
async def user_deleted(w: World) -> AsyncIterator[None]:
    await w.ask(3001, ALICE, b'{"password":"p"}')
    await w.ask(3006, {"subject": "User:alice"}, RULES)
    await w.ask(3003, ALICE)
    yield
    state = w.broker.core.access.users.state
    assert not state.users and not state.acls


@case(R.AUTH_CREATE_ACL)
async def rules_made(w: World) -> AsyncIterator[None]:
    await w.ask(3001, ALICE, b'{"password":"p"}')
    await w.ask(3006, {"subject": "User:alice"}, RULES)
    yield
    assert json.loads((await w.ask(3009, {"subject": "User:alice"})).body)["policies"]


@case(R.AUTH_UPDATE_ACL)
async def rules_changed(w: World) -> AsyncIterator[None]:
    await w.ask(3001, ALICE, b'{"password":"p"}')
    await w.ask(3006, {"subject": "User:alice"}, RULES)
    await w.ask(3007, {"subject": "User:alice"}, RULES.replace(b"Allow", b"Deny"))
    yield
    assert b"Deny" in (await w.ask(3009, {"subject": "User:alice"})).body


@case(R.AUTH_DELETE_ACL)
async def rules_deleted(w: World) -> AsyncIterator[None]:
    await w.ask(3001, ALICE, b'{"password":"p"}')
    await w.ask(3006, {"subject": "User:alice"}, RULES)
    await w.ask(3008, {"subject": "User:alice", "resource": "Topic:t"})
    yield
    assert not (await w.ask(3009, {"subject": "User:alice"})).body
