"""A small legal request for every row of both processor tables: what mutations and benches begin with.

Headers are drawn from their Structs, so that a new row has a sample as soon as it stands in its table.
"""

import asyncio
import base64
import json
import types
import typing
import zlib
from typing import Any
from unittest.mock import MagicMock

import msgspec

from roquette.apps.features import broker_features
from roquette.base.clock import SystemClock
from roquette.base.entropy import Entropy
from roquette.base.files import OsFiles
from roquette.broker.floor.clock import BrokerClock
from roquette.broker.floor.config import BrokerConfig, LiveConfig
from roquette.broker.floor.core import build_core
from roquette.broker.floor.parts import Address, BrokerTables
from roquette.message.properties import encode_properties
from roquette.message.record import encode_batch
from roquette.nameserver.floor.config import NamesrvConfig
from roquette.nameserver.service import NameServer
from roquette.remoting.request import Row
from roquette.store.format.config import StoreConfig
from roquette.store.message_store import MessageStore
from roquette.wire.codes import RequestCode as R
from roquette.wire.header_codec import encode_dict

NOW_MS = 1_700_000_000_000
RECEIPT = f"0 {NOW_MS} 60000 0 0 broker-a 0 0"
PROPERTIES = encode_properties({"UNIQ_KEY": "0A01", "KEYS": "k1 k2", "TAGS": "A", "WAIT": "true"})
FIELDS: dict[str, str] = {
    "topic": "T", "consumerGroup": "g", "group": "g", "srcGroup": "g", "destGroup": "g2", "compareGroup": "g",
    "producerGroup": "pg", "groupName": "g", "clientID": "c1", "clientId": "c1", "defaultTopic": "TBW102",
    "extraInfo": RECEIPT, "bornTime": str(NOW_MS), "bornTimestamp": str(NOW_MS), "properties": PROPERTIES,
    "maxMsgNums": "8", "sysFlag": "0", "perm": "6", "readQueueNums": "2", "writeQueueNums": "2",
    "topicFilterType": "SINGLE_TAG", "invisibleTime": "60000", "timestamp": "0", "beginTimestamp": "0",
    "endTimestamp": str(2 * NOW_MS), "key": "k1", "maxNum": "8", "count": "8", "originMsgId": "0A01",
    "originTopic": "T", "msgId": "0A00000100002A9F0000000000000000", "brokerName": "broker-a",
    "brokerAddr": "10.0.0.1:10911", "clusterName": "DefaultCluster", "cluster": "DefaultCluster",
    "haServerAddr": "10.0.0.1:10912", "brokerId": "0", "heartbeatTimeoutMillis": "120000",
    "namespace": "ORDER_TOPIC_CONFIG", "value": "v", "bornHost": "10.0.0.3:1", "storeHost": "10.0.0.1:10911",
    "statsName": "TOPIC_PUT_NUMS", "statsKey": "T", "exp": "*", "expType": "TAG", "subscription": "*",
    "expressionType": "TAG", "defaultTopicQueueNums": "4", "recallHandle": "djEgYSBiIDEgYw==",
    "commitOrRollback": "8", "transactionId": "0A01", "topicList": "T", "filterGroups": "g2", "bname": "broker-a",
    "attributes": "+message.type=NORMAL", "boundaryType": "lower",
}  # fmt: skip
LEFT_OUT = {
    "liteTopic",
    "attemptId",
    "accept_standard_json_only",
    "force",
    "jstackEnable",
    "clientAddr",
}
QUEUE = {"topic": "T", "brokerName": "broker-a", "queueId": 0}
TOPIC = {
    "topicName": "T",
    "readQueueNums": 2,
    "writeQueueNums": 2,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
}
SUBSCRIPTION = {"topic": "T", "subString": "A || B", "tagsSet": ["A", "B"], "codeSet": [65, 66], "subVersion": NOW_MS, "expressionType": "TAG"}  # fmt: skip
SELECTOR = {"topic": "T2", "subString": "a > 5 AND TAGS IN ('A', 'B')", "subVersion": NOW_MS, "expressionType": "SQL92"}  # fmt: skip
HEARTBEAT = {
    "clientID": "c1", "producerDataSet": [{"groupName": "pg"}], "heartbeatFingerprint": 0, "withoutSub": False,
    "consumerDataSet": [{"groupName": "g", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [SUBSCRIPTION, SELECTOR], "unitMode": False}],
}  # fmt: skip
GROUP = {"groupName": "g", "retryQueueNums": 1, "groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000]}}, "attributes": {"+commit.backward": "ACCEPT"}}  # fmt: skip
LOCKS = {"consumerGroup": "g", "clientId": "c1", "onlyThisBroker": False, "mqSet": [QUEUE]}
ACKS = {"brokerName": "broker-a", "acks": [{"c": "g", "t": "T", "r": "0", "so": 0, "q": 0, "rq": 0, "pt": NOW_MS, "it": 60000, "b": base64.b64encode(b"\5").decode()}]}  # fmt: skip
ROUTE = {"queueDatas": [{"brokerName": "broker-a", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}], "brokerDatas": [{"cluster": "DefaultCluster", "brokerName": "broker-a", "brokerAddrs": {"0": "10.0.0.1:10911"}}]}  # fmt: skip
VERSION = {"counter": 1, "stateVersion": 0, "timestamp": NOW_MS}
REGISTRATION = {
    "topicConfigSerializeWrapper": {"topicConfigTable": {"T": TOPIC, "T2": TOPIC | {"topicName": "T2"}}, "dataVersion": VERSION},
    "filterServerList": [],
}  # fmt: skip
ASSIGNMENT = {
    "topic": "T",
    "consumerGroup": "g",
    "clientId": "c1",
    "strategyName": "AVG",
    "messageModel": "CLUSTERING",
}
BODIES: dict[int, object] = {
    R.SEND_MESSAGE: b"hello", R.SEND_MESSAGE_V2: b"hello", R.SEND_REPLY_MESSAGE: b"hello", R.SEND_REPLY_MESSAGE_V2: b"hello",
    R.SEND_BATCH_MESSAGE: encode_batch([(0, b"one", PROPERTIES.encode()), (1, b"two", b"")]),
    R.HEART_BEAT: HEARTBEAT, R.LOCK_BATCH_MQ: LOCKS, R.UNLOCK_BATCH_MQ: LOCKS,
    R.CHECK_CLIENT_CONFIG: {"clientId": "c1", "group": "g", "subscriptionData": SELECTOR},
    R.UPDATE_AND_CREATE_TOPIC_LIST: {"topicConfigList": [TOPIC]},
    R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: GROUP, R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: {"groupConfigList": [GROUP]},
    R.UPDATE_BROKER_CONFIG: b"defaultTopicQueueNums=8\n", R.UPDATE_NAMESRV_CONFIG: b"orderMessageEnable=true\n",
    R.BATCH_ACK_MESSAGE: ACKS, R.QUERY_ASSIGNMENT: ASSIGNMENT,
    R.SET_MESSAGE_REQUEST_MODE: {"topic": "T", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0},
    R.REGISTER_BROKER: REGISTRATION, R.REGISTER_TOPIC_IN_NAMESRV: ROUTE, R.QUERY_DATA_VERSION: VERSION,
    R.WATCH_ROUTES: b'{"topicList":["T","U"]}',
}  # fmt: skip
KV = ("namespace", "key", "value")
BARE: dict[int, tuple[str, ...]] = {R.PUT_KV_CONFIG: KV, R.DELETE_KV_CONFIG: KV[:2]}


async def _broker_rows() -> list[Row]:
    """The rows of a broker that never starts: its store is not opened."""
    clock, files = BrokerClock(SystemClock()), OsFiles()
    live = LiveConfig(BrokerConfig(), StoreConfig(root_dir="nowhere"), 0)
    address = Address(host="127.0.0.1", port=1, fast_port=0, store_host=bytes(8))
    store = MessageStore(live.store, files, address.store_host)
    core = build_core(
        live,
        BrokerTables(live, clock),
        store,
        address,
        MagicMock(),
        files=files,
        clock=clock,
        entropy=Entropy(1),
    )
    return [row for feature in broker_features(core) for row in feature.rows()]


BROKER_ROWS: list[Row] = asyncio.run(_broker_rows())
NAMESRV_ROWS: list[Row] = NameServer(NamesrvConfig(), files=MagicMock(), clock=MagicMock()).rows()
LETTERS = dict(zip("abcdefghijklmn", (
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag",
    "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch", "bname",
), strict=True))  # fmt: skip


def header_of(row: Row) -> type[msgspec.Struct] | None:
    """The header class of a row."""
    decoder = getattr(row.coerce, "__self__", None)
    return None if decoder is None else typing.cast(type[msgspec.Struct], decoder._header)


def ext_of(row: Row) -> dict[str, str]:
    """The ext fields of a legal request."""
    header = header_of(row)
    if header is None:
        return {name: FIELDS[name] for name in BARE.get(row.code, ())}
    ext: dict[str, str] = {}
    for field in msgspec.structs.fields(header):
        name = field.encode_name
        known = FIELDS.get(LETTERS.get(name, name))
        if known is not None:
            ext[name] = known
        elif name not in LEFT_OUT:
            ext[name] = _plain(field.type)
    if row.code == R.SEND_BATCH_MESSAGE:
        ext["m"] = "true"
    if row.code == R.REGISTER_BROKER:
        ext["bodyCrc32"] = str(zlib.crc32(body_of(row)) & 0x7FFFFFFF)
    return ext


def _plain(kind: Any) -> str:
    if typing.get_origin(kind) in {types.UnionType, typing.Union}:
        (kind,) = (one for one in typing.get_args(kind) if one is not types.NoneType)
    if typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    return {bool: "false", int: "0"}.get(kind, "x")


def body_of(row: Row) -> bytes:
    """The body of a legal request."""
    body = BODIES.get(row.code, b"")
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def frame_of(
    code: int, ext: dict[str, str], body: bytes, opaque: int = 1, version: int = 493
) -> bytes:
    """A whole frame with a JSON header."""
    head = b'{"code":%d,"extFields":%b,"flag":0,"language":"JAVA","opaque":%d,"version":%d}' % (
        code, encode_dict(ext), opaque, version,
    )  # fmt: skip
    return framed(head, body)


def framed(head: bytes, body: bytes, kind: int = 0) -> bytes:
    """Lengths around header bytes and a body."""
    size = (kind << 24 | len(head)).to_bytes(4, "big")
    return (4 + len(head) + len(body)).to_bytes(4, "big") + size + head + body
