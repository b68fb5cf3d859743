"""The dearest legal request that we know of each request code, in a broker and a name server that are full.

Each entry: the code -> requests (what it is, ext fields, body). A code whose small sample is its worst stands in `SMALL`
with the reason.
"""

import json
import struct
import zlib
from typing import Any, Final, NamedTuple

from tests.request_samples import (
    FIELDS,
    HEARTBEAT,
    NOW_MS,
    QUEUE,
    SUBSCRIPTION,
    TOPIC,
    VERSION,
)

from roquette.message.properties import encode_properties
from roquette.message.record import encode_batch
from roquette.wire.codes import RequestCode as R

TOPICS: Final = 60_000
GROUPS: Final = 10_000
MEMBERS: Final = 5_000  # connections of one group
QUEUES: Final = 65_536  # of one topic
BROKERS: Final = 2_000  # at the name server, besides one with all topics
MIB: Final = 1 << 20
FRAME: Final = 16 * MIB - 4096


class Request(NamedTuple):
    """One request: what is dear in it, fields that differ from the sample's, the body (None: the sample's)."""

    what: str
    ext: dict[str, str] = {}
    body: bytes | None = None


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _filled(before: bytes, unit: bytes, after: bytes, size: int) -> bytes:
    return before + unit * ((size - len(before) - len(after)) // len(unit)) + after


def hostile() -> list[Request]:
    """Bodies that are dear to read, whatever they should have been."""
    return [
        Request("16 MB of the dialect", body=_filled(b"{'a':[", b"[],", b"1]}", FRAME)),
        Request("4 MB of the dialect", body=_filled(b"{'a':[", b"[],", b"1]}", 4 * MIB)),
        Request("64 kB of the dialect", body=_filled(b"{'a':[", b"[],", b"1]}", 65_000)),
        Request("64 kB of the dialect, words", body=_filled(b"{'a':[", b"'\\u0041',", b"1]}", 65_000)),
        Request("16 MB of empty lists", body=_filled(b"[", b"[],", b"[]]", FRAME)),
        Request("16 MB of empty lists in a field", body=_filled(b'{"a":[', b"[],", b"[]]}", FRAME)),
        Request("16 MB of nulls", body=_filled(b'{"a":[', b"null,", b"[]]}", FRAME)),
        Request("1 MB of nulls", body=_filled(b'{"topic":null,"a":[', b"null,", b"[]]}", MIB)),
        Request("16 MB of references", body=_filled(b'{"a":[', b'{"$ref":"$.b"},', b"[]]}", FRAME)),
        Request("16 MB of number keys", body=_filled(b'{"a":{', b"1:2,", b"3:4}}", FRAME)),
        Request("16 MB of one text", body=_filled(b'{"a":"', b"x", b'"}', FRAME)),
        Request("16 MB of opening brackets", body=b"[" * FRAME),
        Request("16 MB of no JSON", body=b"\xff" * FRAME),
    ]  # fmt: skip


def heartbeats() -> list[Request]:
    """Many groups, subscriptions, expressions; tags."""

    def beat(producers: int, consumers: int, subscriptions: list[dict[str, Any]]) -> bytes:
        group = HEARTBEAT["consumerDataSet"][0]  # type: ignore[index]
        return _json(HEARTBEAT | {
            "producerDataSet": [{"groupName": f"p{n}"} for n in range(producers)],
            "consumerDataSet": [group | {"groupName": f"c{n}", "subscriptionDataSet": subscriptions} for n in range(consumers)],
        })  # fmt: skip

    def selectors(count: int, size: int) -> list[dict[str, Any]]:
        term = " AND a > 5 OR b IN ('x','y')"
        return [
            {"topic": f"t{n}", "expressionType": "SQL92", "subVersion": 1,
             "subString": (f"z = {n}" + term * (size // len(term)))}
            for n in range(count)
        ]  # fmt: skip

    one = [SUBSCRIPTION]
    return [
        Request("500,000 producer groups", body=beat(500_000, 0, [])),
        Request("4,000 producer groups", body=beat(4_000, 0, [])),
        Request("900 SQL92 expressions of 16 kB", body=beat(0, 1, selectors(900, 16_000))),
        Request("16 SQL92 expressions of 16 kB", body=beat(0, 1, selectors(16, 16_000))),
        Request("64 SQL92 expressions of 2 kB", body=beat(0, 1, selectors(64, 2_000))),
        Request("1,000 consumer groups, new", body=beat(0, 1_000, one)),
        Request("1,000 consumer groups, known", body=beat(0, 1_000, one)),
        Request("50,000 consumer groups", body=beat(0, 50_000, one)),
        Request("4,000 subscriptions", body=beat(0, 1, [SUBSCRIPTION | {"topic": f"s{n}"} for n in range(4_000)])),
        Request("60,000 subscriptions", body=beat(0, 1, [SUBSCRIPTION | {"topic": f"s{n}"} for n in range(60_000)])),
        Request("a subscription with 100,000 tags", body=beat(0, 1, [SUBSCRIPTION | {"codeSet": list(range(100_000))}])),
        Request("a group of 5,000 members changes", body=beat(0, 0, []).replace(
            b'"consumerDataSet":[]', b'"consumerDataSet":[{"groupName":"crowd","subscriptionDataSet":[]}]')),
    ]  # fmt: skip


def batches() -> list[Request]:
    """Many messages, many keys."""
    keys = encode_properties({"UNIQ_KEY": "0A01", "KEYS": " ".join(["k"] * 16_000)}).encode()
    return [
        Request("a batch of 180,000 messages", body=encode_batch([(0, b"", b"")] * 180_000)),
        Request("a batch of 32,768 messages", body=encode_batch([(0, b"", b"")] * 32_768)),
        Request("a batch of 120 messages with 16,000 keys each", body=encode_batch([(0, b"", keys)] * 120)),
        Request("a batch of 4,000 messages with properties", body=encode_batch([(0, b"x", encode_properties({"UNIQ_KEY": f"0A01{n:08}", "KEYS": "a b c", "TAGS": f"t{n}"}).encode()) for n in range(4_000)])),
    ]  # fmt: skip


def registration(topics: int, *, compressed: bool) -> Request:
    """A registration; the second of the same is told apart by its version."""
    if not compressed:
        table = {f"r{n}": TOPIC | {"topicName": f"r{n}"} for n in range(topics)}
        body = _json({"topicConfigSerializeWrapper": {"topicConfigTable": table, "dataVersion": VERSION}, "filterServerList": []})  # fmt: skip
    else:
        parts = [_sized(_json(VERSION)), struct.pack(">i", topics)]
        parts += [_sized(b"z%d 2 2 6 SINGLE_TAG {}" % n) for n in range(topics)]
        body = zlib.compress(b"".join([*parts, _sized(b"[]"), struct.pack(">i", 0)]))
    ext = {"compressed": str(compressed).lower(), "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF), "brokerName": f"reg-{topics}-{compressed}", "brokerAddr": f"10.1.0.{topics % 250}:1"}  # fmt: skip
    return Request(f"{topics:,} topics{', compressed' if compressed else ''}", ext, body)


def _sized(part: bytes) -> bytes:
    return struct.pack(">i", len(part)) + part


def bomb() -> Request:
    """Few bytes that become many."""
    body = zlib.compress(bytes(63 * MIB), 9)
    return Request("64 MB compressed to 64 kB", {"compressed": "true", "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF)}, body)  # fmt: skip


LOCKS = _json({"consumerGroup": "g", "clientId": "c1", "mqSet": [QUEUE | {"queueId": n} for n in range(100_000)]})  # fmt: skip
SELECTOR = " OR ".join(f"a LIKE '%x{n}%y%z%'" for n in range(700))  # under 16,384 characters
WIDE = {"topic": "Wide"}
BIG_MESSAGE = bytes(4 * MIB)


def broker_cases() -> dict[int, list[Request]]:
    """Of the broker."""
    dialect = hostile()
    send = [
        Request("a body of 4 MB", body=BIG_MESSAGE),
        Request("a body of 16 MB", body=bytes(FRAME)),
    ]
    keys = encode_properties({"KEYS": " ".join(["k"] * 16_000)})
    properties = [Request("16,000 keys", {"i": keys}), Request("16,000 properties", {"i": "a\1b\2" * 8_000})]  # fmt: skip
    pull = [
        Request("no message passes a dear SQL92 expression", {"topic": "Full", "expressionType": "SQL92", "subscription": SELECTOR, "sysFlag": "4", "maxMsgNums": "1000000"}),
        Request("no message passes 2,000 tags", {"topic": "Full", "subscription": "||".join(f"t{n}" for n in range(2_000)), "sysFlag": "4", "maxMsgNums": "1000000"}),
        Request("as many messages as fit", {"topic": "Full", "maxMsgNums": "1000000", "sysFlag": "4"}),
        Request("big messages", {"topic": "Big", "maxMsgNums": "1000000", "maxMsgBytes": str(2**31 - 1), "sysFlag": "4"}),
    ]  # fmt: skip
    pop = [
        Request("all of 65,536 queues", WIDE | {"queueId": "-1", "maxMsgNums": "32"}),
        Request("a full queue", {"topic": "Full", "queueId": "-1", "maxMsgNums": "32"}),
        Request("no message passes a dear SQL92 expression", {"topic": "Full", "queueId": "-1", "expType": "SQL92", "exp": SELECTOR}),
    ]  # fmt: skip
    config = _filled(b"", b"defaultTopicQueueNums=8\n", b"", FRAME)
    unknown = b"".join(b"unknown%d=8\n" % n for n in range(100_000))
    topics = [TOPIC | {"topicName": f"made{n}"} for n in range(100_000)]
    group = {"groupName": "x"}
    return {
        R.SEND_MESSAGE: send, R.SEND_MESSAGE_V2: send + properties, R.SEND_BATCH_MESSAGE: batches(),
        R.SEND_REPLY_MESSAGE: send, R.SEND_REPLY_MESSAGE_V2: send,
        R.CONSUMER_SEND_MSG_BACK: [Request("a message of 4 MB", {"offset": "big", "originTopic": "Big"})],
        R.PULL_MESSAGE: pull, R.LITE_PULL_MESSAGE: pull, R.POP_MESSAGE: pop,
        R.PEEK_MESSAGE: [Request("all of 65,536 queues", WIDE | {"queueId": "-1"})],
        R.NOTIFICATION: [Request("all of 65,536 queues", WIDE | {"queueId": "-1"})],
        R.HEART_BEAT: heartbeats() + dialect,
        R.GET_CONSUMER_LIST_BY_GROUP: [Request("5,000 members", {"consumerGroup": "crowd"})],
        R.GET_CONSUMER_CONNECTION_LIST: [Request("5,000 members", {"consumerGroup": "crowd"})],
        R.GET_PRODUCER_CONNECTION_LIST: [Request("5,000 members", {"producerGroup": "crowd"})],
        R.GET_ALL_PRODUCER_INFO: [Request("5,000 clients")],
        R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: [Request("5,000 members", {"group": "crowd"})],
        R.LOCK_BATCH_MQ: [Request("100,000 queues", body=LOCKS), *dialect],
        R.UNLOCK_BATCH_MQ: [Request("100,000 queues", body=LOCKS), *dialect],
        R.CHECK_CLIENT_CONFIG: [Request("an SQL92 expression of 16 kB", body=_json({"subscriptionData": {"topic": "T", "expressionType": "SQL92", "subString": SELECTOR[:16_000].rsplit(" OR ", 1)[0] + " "}})), *dialect],
        R.QUERY_SUBSCRIPTION_BY_CONSUMER: [Request("a group of 5,000 members", {"group": "crowd"})],
        R.QUERY_MESSAGE: [Request("64 of a million equal keys", {"topic": "Full", "key": "k", "maxNum": "1000000", "endTimestamp": str(2**62)}), Request("big messages", {"topic": "Big", "key": "k", "maxNum": "64", "endTimestamp": str(2**62)})],
        R.VIEW_MESSAGE_BY_ID: [Request("a message of 4 MB", {"offset": "big"})],
        R.CONSUME_MESSAGE_DIRECTLY: [Request("a message of 4 MB", {"consumerGroup": "crowd", "clientId": "m1", "msgId": "big"})],
        R.UPDATE_AND_CREATE_TOPIC: [Request("65,536 queues", WIDE | {"readQueueNums": str(QUEUES), "writeQueueNums": str(QUEUES)})],
        R.UPDATE_AND_CREATE_TOPIC_LIST: [Request("100,000 topics", body=_json({"topicConfigList": topics})), Request("1,000 topics", body=_json({"topicConfigList": topics[:1000]})), *dialect],
        R.GET_ALL_TOPIC_CONFIG: [Request(f"{TOPICS:,} topics")],
        R.GET_TOPIC_STATS_INFO: [Request("65,536 queues", WIDE)],
        R.DELETE_TOPIC_IN_BROKER: [Request("65,536 queues and their offsets", {"topic": "Gone"})],
        R.QUERY_TOPIC_CONSUME_BY_WHO: [Request("10,000 groups")],
        R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: [Request("100,000 attributes", body=_json(group | {"attributes": {f"+a{n}": "b" for n in range(100_000)}})), *dialect],
        R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: [Request("100,000 groups", body=_json({"groupConfigList": [{"groupName": f"made{n}"} for n in range(100_000)]})), Request("1,000 groups", body=_json({"groupConfigList": [{"groupName": f"made{n}"} for n in range(1_000)]})), *dialect],
        R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: [Request(f"{GROUPS:,} groups")],
        R.DELETE_SUBSCRIPTIONGROUP: [Request("with offsets on 60,000 topics", {"groupName": "leaver", "cleanOffset": "true"})],
        R.QUERY_TOPICS_BY_CONSUMER: [Request("60,000 topics")],
        R.INVOKE_BROKER_TO_RESET_OFFSET: [Request("65,536 queues", WIDE | {"queueId": "-1", "timestamp": "-1", "isForce": "true"}), Request("65,536 queues by time", WIDE | {"queueId": "-1", "timestamp": str(NOW_MS), "isForce": "true"})],
        R.CLONE_GROUP_OFFSET: [Request("of 60,000 topics", {"topic": "", "srcGroup": "g", "destGroup": "copy", "offline": "true"})],
        R.QUERY_CORRECTION_OFFSET: [Request("65,536 queues, 10,000 groups", WIDE)],
        R.GET_ALL_CONSUMER_OFFSET: [Request("60,000 topics and 65,536 queues")],
        R.GET_CONSUME_STATS: [Request("60,000 topics", {"topic": "", "topicList": ""}), Request("65,536 queues", WIDE | {"topicList": ""})],
        R.GET_BROKER_CONSUME_STATS: [Request("60,000 topics, 10,000 groups")],
        R.QUERY_CONSUME_TIME_SPAN: [Request("65,536 queues", WIDE)],
        R.QUERY_CONSUME_QUEUE: [Request("10,000 units", {"topic": "Full", "count": "1000000"})],
        R.QUERY_CONSUMER_OFFSET: [Request("of one queue among 65,536", WIDE)],
        R.SEARCH_OFFSET_BY_TIMESTAMP: [Request("in a full queue", {"topic": "Full", "timestamp": str(NOW_MS)})],
        R.CLEAN_UNUSED_TOPIC: [Request(f"{TOPICS:,} topics")],
        R.CLEAN_EXPIRED_CONSUMEQUEUE: [Request(f"{TOPICS:,} topics")],
        R.UPDATE_BROKER_CONFIG: [Request("16 MB of settings", body=config), Request("100,000 unknown keys", body=unknown), Request("16 MB without an end of line", body=b"a" * FRAME), Request("16 MB of backslashes", body=b"\\" * FRAME)],
        R.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: [Request("16 MB of lines", body=unknown), Request("4,000 wrong lines", body=b"".join(b"%d=x\n" % n for n in range(4_000))), Request("4,000 groups", body=b"".join(b"%d=1\n" % n for n in range(4_000)))],
        R.BATCH_ACK_MESSAGE: [Request("100,000 acknowledgements", body=_json({"acks": [{"c": "g", "t": "T", "r": "0", "so": n, "pt": NOW_MS, "it": 60_000, "b": "/////w=="} for n in range(100_000)]})), Request("a bit set of 8 MB", body=_json({"acks": [{"c": "g", "t": "T", "r": "0", "so": 0, "pt": NOW_MS, "it": 60_000, "b": "/" * (8 * MIB)}]})), Request("1,000 acknowledgements", body=_json({"acks": [{"c": "g", "t": "T", "r": "0", "so": n, "pt": NOW_MS, "it": 60_000, "b": "/////w=="} for n in range(1_000)]})), *dialect],
        R.QUERY_ASSIGNMENT: [Request("5,000 members, 65,536 queues", body=_json({"topic": "Wide", "consumerGroup": "crowd", "clientId": "m1", "strategyName": "AVG", "messageModel": "CLUSTERING"})), *dialect],
        R.SET_MESSAGE_REQUEST_MODE: dialect,
        R.GET_BROKER_RUNTIME_INFO: [Request(f"{TOPICS:,} topics")],
        R.UNREGISTER_CLIENT: [Request("of a group of 5,000 members", {"consumerGroup": "crowd"})],
        R.GET_TIMER_METRICS: [Request(f"{TOPICS:,} topics")],
        **access_cases(),
    }  # fmt: skip


def access_cases() -> dict[int, list[Request]]:
    """About users and rules, of brokers and name servers alike."""
    rules = [
        {
            "resource": f"Topic:t{n}*",
            "actions": ["Pub", "Sub"],
            "sourceIps": ["10.0.0.0/8"],
            "decision": "Allow",
        }
        for n in range(100_000)
    ]
    acl, few = (
        {"subject": "User:worst", "policies": [{"policyType": "Custom", "entries": rules[:count]}]}
        for count in (100_000, 1_000)
    )
    user, dialect = {"username": "worst"}, hostile()
    subject = {"subject": "User:worst"}
    rows = [
        Request("100,000 rules", subject, _json(acl)),
        Request("1,000 rules", subject, _json(few)),
        *[Request(one.what, subject, one.body) for one in dialect],
    ]
    return {
        R.AUTH_CREATE_USER: [Request("one user", user, _json({"password": "p"})), *[Request(one.what, user, one.body) for one in dialect]],
        R.AUTH_UPDATE_USER: [Request(one.what, user, one.body) for one in dialect],
        R.AUTH_CREATE_ACL: rows, R.AUTH_UPDATE_ACL: rows,
        R.AUTH_GET_ACL: [Request("1,000 rules", subject)],
    }  # fmt: skip


def namesrv_cases() -> dict[int, list[Request]]:
    """Of the name server."""
    dialect = hostile()
    queues = [
        {"brokerName": f"broker-{n}", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
        for n in range(100_000)
    ]
    settings = _filled(b"", b"orderMessageEnable=true\n", b"", FRAME)
    return {
        R.GET_ROUTEINFO_BY_TOPIC: [Request(f"a topic on {BROKERS:,} brokers", {"topic": "Common"}), Request("the same of a zone", {"topic": "Common", "__ZONE_NAME": "z", "__ZONE_MODE": "true"})],
        R.WATCH_ROUTES: [Request("5,000 topics", body=_json({"topicList": [f"watched-{n:0100}" for n in range(5_000)]})), Request("1 MB of short names", body=_json({"topicList": [f"{n}" for n in range(100_000)]})), *dialect],
        R.REGISTER_BROKER: [registration(TOPICS, compressed=False), registration(TOPICS, compressed=True), registration(300_000, compressed=True), bomb(), *[Request(one.what, {"bodyCrc32": "0"}, one.body) for one in dialect]],
        R.UNREGISTER_BROKER: [Request(f"a broker with {TOPICS:,} topics", {"brokerName": "all", "brokerAddr": "10.9.0.1:1"})],
        R.QUERY_DATA_VERSION: dialect,
        R.GET_BROKER_CLUSTER_INFO: [Request(f"{BROKERS:,} brokers")],
        R.GET_BROKER_MEMBER_GROUP: [Request("1,000 members", {"brokerName": "members"})],
        R.WIPE_WRITE_PERM_OF_BROKER: [Request(f"{TOPICS:,} topics", {"brokerName": "all"})],
        R.ADD_WRITE_PERM_OF_BROKER: [Request(f"{TOPICS:,} topics", {"brokerName": "all"})],
        R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: [Request(f"{TOPICS:,} topics")],
        R.GET_TOPICS_BY_CLUSTER: [Request(f"{TOPICS:,} topics")],
        R.GET_SYSTEM_TOPIC_LIST_FROM_NS: [Request(f"{BROKERS:,} brokers")],
        R.GET_UNIT_TOPIC_LIST: [Request(f"{TOPICS:,} topics")],
        R.GET_HAS_UNIT_SUB_TOPIC_LIST: [Request(f"{TOPICS:,} topics")],
        R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: [Request(f"{TOPICS:,} topics")],
        R.DELETE_TOPIC_IN_NAMESRV: [Request(f"a topic on {BROKERS:,} brokers", {"topic": "Common2"})],
        R.REGISTER_TOPIC_IN_NAMESRV: [Request("100,000 brokers", {"topic": "New"}, _json({"queueDatas": queues})), *dialect],
        R.PUT_KV_CONFIG: [Request("10,000 keys and a value of 1 MB", {"value": "v" * (MIB - 1000)})],
        R.DELETE_KV_CONFIG: [Request("10,000 keys", {"key": "k1"})],
        R.GET_KVLIST_BY_NAMESPACE: [Request("10,000 keys")],
        R.UPDATE_NAMESRV_CONFIG: [Request("16 MB of settings", body=settings), Request("16 MB without an end of line", body=b"a" * FRAME)],
        **access_cases(),
    }  # fmt: skip


SMALL: Final[dict[int, str]] = {
    R.END_TRANSACTION: "one record of at most 4 MB", R.RESUME_CHECK_HALF_MESSAGE: "one record",
    R.NOTIFY_MIN_BROKER_ID_CHANGE: "one address", R.POLLING_INFO: "one number", R.ACK_MESSAGE: "one receipt", R.CHANGE_MESSAGE_INVISIBLETIME: "one receipt",
    R.GET_ALL_MESSAGE_REQUEST_MODE: "what operators have set", R.UPDATE_CONSUMER_OFFSET: "one number",
    R.GET_MAX_OFFSET: "one number", R.GET_MIN_OFFSET: "one number", R.GET_EARLIEST_MSG_STORETIME: "one number",
    R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: "the system's topics", R.GET_TOPIC_CONFIG: "one topic",
    R.UPDATE_AND_GET_GROUP_FORBIDDEN: "one group", R.GET_SUBSCRIPTIONGROUP_CONFIG: "one group",
    R.GET_ALL_DELAY_OFFSET: "18 levels", R.GET_CONSUMER_RUNNING_INFO: "passed on", R.VIEW_BROKER_STATS_DATA: "one counter",
    R.DELETE_EXPIRED_COMMITLOG: "in a thread", R.GET_BROKER_CONFIG: "the settings", R.RECALL_MESSAGE: "one record",
    R.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: "one group", R.SET_COMMITLOG_READ_MODE: "one setting; as many calls as the log has files",
    R.GET_COLD_DATA_FLOW_CTR_INFO: "at most 20,000 thresholds, each set by an operator", R.RESET_MASTER_FLUSH_OFFSET: "nothing",
    R.POP_ROLLBACK: "nothing",
    R.GET_TIMER_CHECK_POINT: "seven numbers", R.BROKER_HEARTBEAT: "one broker", R.GET_KV_CONFIG: "one value",
    R.GET_NAMESRV_CONFIG: "the settings", R.GET_CONTROLLER_CONFIG: "the settings",
    R.UPDATE_CONTROLLER_CONFIG: "UPDATE_NAMESRV_CONFIG at a controller", R.GET_REGISTER: "one record",
    R.PUT_REGISTER_IF: "one record of at most 64 KiB", R.CONTROLLER_GET_METADATA_INFO: "one address",
    R.CONTROLLER_GET_SYNC_STATE_DATA: "100 groups, each read in turn", R.CONTROLLER_GET_REPLICA_INFO: "one group",
    R.GET_BROKER_HA_STATUS: "the replicas", R.FOLLOW_TABLES: "waits; a whole table is encoded in steps",
    R.CONTROLLER_ELECT_MASTER: "one group", R.CLEAN_BROKER_DATA: "one group",
    R.AUTH_DELETE_USER: "one user", R.AUTH_GET_USER: "one user", R.AUTH_LIST_USER: "encoded in a thread",
    R.AUTH_DELETE_ACL: "one user's rules", R.AUTH_LIST_ACL: "encoded in a thread", R.GET_HA_TICKET: "one ticket",
}  # fmt: skip
assert FIELDS
