"""Settings of Apache's do what they do there: each is changed by a request, and its effect seen through requests."""

import asyncio
import json
import re
from typing import Any

import pytest
from tests.broker.conftest import pull_ext, send_ext
from tests.broker.pop_frames import pop_ext

from roquette.message.properties import decode_properties
from roquette.message.record import decode_records

BUSY = 2
LATE = r"\[TIMEOUT_CLEAN_QUEUE\]broker busy, start flow control for a while, period in queue: 50ms, size of queue: \d+"
FULL = "[OVERLOAD]system busy, start flow control for a while"


def beat(client_id: str = "c", group: str = "g") -> bytes:
    subscription = {"topic": "T", "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1}
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [subscription],
        "unitMode": False,
    }  # fmt: skip
    return json.dumps({"clientID": client_id, "consumerDataSet": [consumer]}).encode()


ASK: dict[str, tuple[int, dict[str, Any], bytes]] = {
    "send": (310, send_ext(), b"hello"),
    "pull": (11, pull_ext(suspendTimeoutMillis=0, sysFlag=4), b""),
    "pop": (200050, pop_ext(0), b""),
    "litePull": (361, pull_ext(suspendTimeoutMillis=0, sysFlag=4), b""),
    "heartbeat": (34, {}, beat()),
    "transaction": (37, {"producerGroup": "p", "tranStateTableOffset": 0, "commitLogOffset": 0, "commitOrRollback": 8}, b""),
    "ack": (200051, {"consumerGroup": "g", "topic": "T", "queueId": 0, "extraInfo": "x", "offset": 0}, b""),
    "admin": (21, {}, b""),
    "query": (12, {"topic": "T", "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 1}, b""),
    "clientManager": (35, {"clientID": "c"}, b""),
    "consumerManager": (14, {"consumerGroup": "g", "topic": "T", "queueId": 0}, b""),
    "reply": (325, send_ext("R"), b"hello"),
    "loadBalance": (400, {}, json.dumps({"topic": "T", "consumerGroup": "g", "clientId": "c", "strategyName": "AVG", "messageModel": "CLUSTERING"}).encode()),
}  # fmt: skip
WAITS = {
    "send": "Send", "pull": "Pull", "pop": "Pull", "litePull": "LitePull", "heartbeat": "Heartbeat",
    "transaction": "Transaction", "ack": "Ack", "admin": "AdminBroker",
}  # fmt: skip
CAPACITIES = {
    "send": "sendThreadPool", "pull": "pullThreadPool", "pop": "pullThreadPool",
    "litePull": "litePullThreadPool", "heartbeat": "heartbeatThreadPool",
    "transaction": "endTransactionPool", "ack": "ackThreadPool", "admin": "adminBrokerThreadPool",
    "query": "queryThreadPool", "clientManager": "clientManagerThreadPool",
    "consumerManager": "consumerManagerThreadPool", "reply": "replyThreadPool",
    "loadBalance": "loadBalanceThreadPool",
}  # fmt: skip


async def change(client: Any, **settings: Any) -> None:
    text = "".join(f"{key}={value}\n" for key, value in settings.items())
    reply = await client.call(25, {}, text.encode())
    assert reply.code == 0, reply.remark
    shown = (await client.call(26, {})).body.decode()
    assert all(f"{key}={value}\n" in shown for key, value in settings.items())


def late_turns(loop: Any) -> None:
    """From now on the loop takes up every request 50 ms after it was read."""
    soon = loop.call_soon

    def call_soon(callback: Any, *args: Any, **more: Any) -> Any:
        if getattr(callback, "__name__", "") == "_turn":
            loop.stall(0.05)
        return soon(callback, *args, **more)

    loop.call_soon = call_soon


@pytest.mark.parametrize("kind", WAITS)
def test_requests_that_waited_too_long_are_refused(run_broker: Any, kind: str) -> None:
    key = f"waitTimeMillsIn{WAITS[kind]}Queue"

    async def scenario(case: Any) -> None:
        client = await case.client()
        usual = (await client.call(*ASK[kind])).code
        soon = case.loop.call_soon
        for settings, refused in (
            ({key: 51}, False),
            ({key: 50}, True),
            ({key: 50, "brokerFastFailureEnable": "false"}, False),
        ):
            case.loop.call_soon = soon
            await change(client, **{"brokerFastFailureEnable": "true"} | settings)
            late_turns(case.loop)
            reply = await client.call(*ASK[kind])
            assert (reply.code == BUSY) is refused, reply.remark
            assert not refused or re.fullmatch(LATE, reply.remark), reply.remark
            assert refused or reply.code == usual
            assert (
                await client.call(*ASK["query"])
            ).code != BUSY  # of another queue, without a limit

    run_broker(scenario)


@pytest.mark.parametrize("kind", CAPACITIES)
def test_requests_beyond_a_queues_capacity_are_refused(run_broker: Any, kind: str) -> None:
    key = f"{CAPACITIES[kind]}QueueCapacity"

    async def scenario(case: Any) -> None:
        client = await case.client()
        case.loop.random.random = lambda: 0.99  # no splits: they arrive together
        for capacity, refused in ((3, 0), (2, 1), (1, 2)):
            await change(client, **{key: capacity})
            for _ in range(3):
                client.send(*ASK[kind])
            replies = [await client.receive() for _ in range(3)]
            assert [reply.remark for reply in replies].count(FULL) == refused
            assert [reply.code for reply in replies].count(BUSY) == refused

    run_broker(scenario)


def test_trace_on_is_told_to_producers_and_stored(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        for value in ("true", "false", "true"):
            await change(client, traceOn=value)
            assert case.ext(await client.produce())["TRACE_ON"] == value
            assert case.ext(await client.produce("no/name"))["TRACE_ON"] == value
        records = decode_records((await client.pull()).body)
        assert [decode_properties(r.properties)["TRACE_ON"] for r in records] == [
            "true",
            "false",
            "true",
        ]

    run_broker(scenario)


@pytest.mark.parametrize(
    "settings",
    [{}, {"trace_topic_enable": True}, {"trace_topic_enable": True, "msg_trace_topic_name": "TR"}],
)
def test_the_trace_topic_is_made_at_start(run_broker: Any, settings: dict[str, Any]) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        found = [
            name
            for name in ("RMQ_SYS_TRACE_TOPIC", "TR")
            if (await client.call(351, {"topic": name})).code == 0
        ]
        assert found == (
            [settings.get("msg_trace_topic_name", "RMQ_SYS_TRACE_TOPIC")] if settings else []
        )

    run_broker(scenario, broker=settings)


async def pulled(client: Any) -> int:
    return len(decode_records((await client.pull(maxMsgNums=32)).body))


def test_a_pull_brings_as_much_as_settings_allow(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        for _ in range(40):
            await client.produce(body=b"x" * 100)
        size = decode_records((await client.pull()).body)[0].size
        assert await pulled(client) == 32
        await change(client, maxTransferCountOnMessageInMemory=5)
        assert await pulled(client) == 5
        await change(client, maxTransferBytesOnMessageInMemory=3 * size)
        assert await pulled(client) == 3
        await change(client, accessMessageInMemoryMaxRatio=0)  # all is taken to be on the disk
        assert await pulled(client) == 8
        await change(client, maxTransferCountOnMessageInDisk=7)
        assert await pulled(client) == 7
        await change(client, maxTransferBytesOnMessageInDisk=2 * size)
        assert await pulled(client) == 2
        await change(client, accessMessageInMemoryMaxRatio=40)
        assert await pulled(client) == 3

    run_broker(scenario)


@pytest.mark.parametrize("expired_ms", [30_000, 90_000])
def test_consumers_without_a_heartbeat_are_gone_after_channel_expired_timeout(
    run_broker: Any, expired_ms: int
) -> None:
    async def scenario(case: Any) -> None:
        silent, lively, admin = [await case.client() for _ in range(3)]
        await change(admin, channelExpiredTimeout=expired_ms)
        await silent.call(34, {}, beat("silent"))
        gone_s = 0
        while gone_s < 200:
            await lively.call(34, {}, beat("lively"))
            members = json.loads((await admin.call(38, {"consumerGroup": "g"})).body)[
                "consumerIdList"
            ]
            if members == ["lively"]:
                break
            gone_s += 5
            await asyncio.sleep(5)
        assert expired_ms <= gone_s * 1000 <= expired_ms + 15_000
        await silent.reader.read()  # to its end: the connection is closed
        assert silent.reader.at_eof()

    run_broker(scenario)


@pytest.mark.parametrize("told", ["true", "false"])
def test_members_are_told_of_others_if_the_broker_shall(run_broker: Any, told: str) -> None:
    async def scenario(case: Any) -> None:
        first, second = await case.client(), await case.client()
        await change(first, notifyConsumerIdsChangedEnable=told)
        for client, name in ((first, "c1"), (second, "c2")):
            await client.call(34, {}, beat(name))
        second.send(35, {"clientID": "c2", "consumerGroup": "g"})
        await asyncio.sleep(1)
        first.send(26, {})
        codes = []
        while True:
            command = await first.receive()
            if command.is_response:
                break
            codes.append(command.code)
        codes += [command.code for command in first.unread]
        assert (40 in codes) is (told == "true")

    run_broker(scenario)


def topic_ext(name: str) -> dict[str, Any]:
    return {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip


def test_topics_of_the_system_change_if_they_may_and_never_go(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        conflict = "The topic[SELF_TEST_TOPIC] is conflict with system topic."
        reply = await client.call(17, topic_ext("SELF_TEST_TOPIC"))
        assert (reply.code, reply.remark) == (29, conflict)
        await change(client, validateSystemTopicWhenUpdateTopic="false")
        assert (await client.call(17, topic_ext("SELF_TEST_TOPIC"))).code == 0
        shown = json.loads((await client.call(351, {"topic": "SELF_TEST_TOPIC"})).body)
        assert shown["readQueueNums"] == 3
        reply = await client.call(215, {"topic": "SELF_TEST_TOPIC"})
        assert (reply.code, reply.remark) == (29, conflict)

    run_broker(scenario)


def test_new_topics_are_as_long_as_max_topic_length(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        assert (await client.produce("A" * 127)).code == 0
        await change(client, maxTopicLength=20)
        words = f"The specified topic: {'B' * 21}, is longer than topic max length: 20"
        for reply in (await client.produce("B" * 21), await client.call(17, topic_ext("B" * 21))):
            assert (reply.code, reply.remark) == (29, words)
        assert (await client.produce("C" * 20)).code == 0
        assert (await client.call(17, topic_ext("D" * 20))).code == 0
        assert (await client.produce("A" * 127)).code == 0  # it is there
        assert (await client.call(17, topic_ext("A" * 127))).code == 0
        assert (await client.call(34, {}, beat(group="G" * 100))).code == 0
        assert (await client.call(351, {"topic": "%RETRY%" + "G" * 100})).code == 0

    run_broker(scenario)
