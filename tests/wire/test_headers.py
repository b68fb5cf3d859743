"""Wire names of headers, pinned; and what must hold for every one of them.

That they are Apache's is checked against captured headers in tests/golden. This list says when they change.
"""

import contextlib
import json
import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquette.wire import headers
from roquette.wire.header_codec import BadHeader, decode_ext, encode_ext, ext_dict
from roquette.wire.headers import (
    PullMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    UnregisterClientRequestHeader,
)
from roquette.wire.json_body import Int32, Int64

# Required fields are marked with "!".
WIRE_NAMES = {
    "AclRequestHeader": "subject",
    "UserRequestHeader": "username",
    "ListUsersRequestHeader": "filter",
    "DeleteAclRequestHeader": "subject policyType resource",
    "ListAclsRequestHeader": "subjectFilter resourceFilter",
    "HaTicketRequestHeader": "proves",
    "HaTicketResponseHeader": "ticket challenge",
    "AckMessageRequestHeader": "consumerGroup! topic! queueId! extraInfo! offset! liteTopic bname",
    "AddBrokerRequestHeader": "configPath",
    "AddWritePermOfBrokerRequestHeader": "brokerName!",
    "AddWritePermOfBrokerResponseHeader": "addTopicCount!",
    "BrokerHeartbeatRequestHeader": (
        "clusterName! brokerAddr! brokerName! brokerId epoch maxOffset confirmOffset "
        "heartbeatTimeoutMills electionPriority"
    ),
    "ChangeInvisibleTimeRequestHeader": (
        "consumerGroup! topic! queueId! extraInfo! offset! invisibleTime! liteTopic suspend bname"
    ),
    "ChangeInvisibleTimeResponseHeader": "popTime invisibleTime reviveQid",
    "CheckRocksdbCqWriteProgressRequestHeader": "topic! checkStoreTime",
    "CheckTransactionStateRequestHeader": (
        "topic tranStateTableOffset! commitLogOffset! msgId transactionId offsetMsgId"
    ),
    "CloneGroupOffsetRequestHeader": "srcGroup! destGroup! topic offline",
    "ConsumeMessageDirectlyResultRequestHeader": (
        "consumerGroup! clientId msgId brokerName topic topicSysFlag groupSysFlag"
    ),
    "ConsumerSendMsgBackRequestHeader": (
        "offset! group! delayLevel! originMsgId originTopic unitMode maxReconsumeTimes bname"
    ),
    "CreateTopicRequestHeader": (
        "topic! defaultTopic readQueueNums! writeQueueNums! perm! topicFilterType "
        "topicSysFlag order attributes force"
    ),
    "DeleteKVConfigRequestHeader": "namespace! key!",
    "DeleteSubscriptionGroupRequestHeader": "groupName! cleanOffset",
    "DeleteTopicFromNamesrvRequestHeader": "topic! clusterName",
    "DeleteTopicRequestHeader": "topic!",
    "EndTransactionRequestHeader": (
        "topic producerGroup! tranStateTableOffset! commitLogOffset! commitOrRollback! "
        "fromTransactionCheck msgId! transactionId"
    ),
    "ExchangeHAInfoRequestHeader": "masterHaAddress masterFlushOffset masterAddress",
    "ExchangeHAInfoResponseHeader": "masterHaAddress masterFlushOffset masterAddress",
    "ExportRocksDBConfigToJsonRequestHeader": "configType!",
    "GetAllSubscriptionGroupRequestHeader": "groupSeq dataVersion maxGroupNum",
    "GetAllSubscriptionGroupResponseHeader": "totalGroupNum!",
    "GetAllTopicConfigRequestHeader": "topicSeq dataVersion maxTopicNum",
    "GetAllTopicConfigResponseHeader": "totalTopicNum",
    "GetBrokerConfigResponseHeader": "version!",
    "GetBrokerMemberGroupRequestHeader": "clusterName! brokerName!",
    "GetConsumeStatsInBrokerHeader": "isOrder!",
    "GetConsumeStatsRequestHeader": "consumerGroup! topic topicList",
    "GetConsumerConnectionListRequestHeader": "consumerGroup!",
    "FollowTablesRequestHeader": "what! since once",
    "FollowTablesResponseHeader": "since! whole logEnd lacks",
    "GetRegisterRequestHeader": "key! several",
    "ElectMasterRequestHeader": "clusterName! brokerName! brokerId! designateElect! invokeTime",
    "ElectMasterResponseHeader": "masterBrokerId masterAddress masterEpoch syncStateSetEpoch",
    "GetReplicaInfoRequestHeader": "brokerName",
    "GetReplicaInfoResponseHeader": "masterBrokerId masterAddress masterEpoch",
    "GetMetaDataResponseHeader": "group controllerLeaderId controllerLeaderAddress isLeader peers",
    "CleanControllerBrokerDataRequestHeader": "clusterName brokerName! brokerControllerIdsToClean isCleanLivingBroker "
    "invokeTime",
    "PutRegisterIfRequestHeader": "key! revision! several",
    "RegisterResponseHeader": "revision!",
    "GetConsumerListByGroupRequestHeader": "consumerGroup!",
    "GetConsumerRunningInfoRequestHeader": "consumerGroup! clientId! jstackEnable",
    "GetConsumerStatusRequestHeader": "topic! group! clientAddr",
    "GetEarliestMsgStoretimeRequestHeader": "topic! queueId! bname",
    "GetEarliestMsgStoretimeResponseHeader": "timestamp!",
    "GetKVConfigRequestHeader": "namespace! key!",
    "GetKVConfigResponseHeader": "value",
    "GetKVListByNamespaceRequestHeader": "namespace!",
    "GetMaxOffsetRequestHeader": "topic! queueId! committed bname",
    "GetMaxOffsetResponseHeader": "offset!",
    "GetMinOffsetRequestHeader": "topic! queueId! bname",
    "GetMinOffsetResponseHeader": "offset!",
    "GetProducerConnectionListRequestHeader": "producerGroup!",
    "GetRouteInfoRequestHeader": "topic! acceptStandardJsonOnly outside",  # the last one is ours
    "GetSubscriptionGroupConfigRequestHeader": "group!",
    "GetTopicConfigRequestHeader": "topic! lo",
    "GetTopicStatsInfoRequestHeader": "topic!",
    "GetTopicsByClusterRequestHeader": "cluster!",
    "NotificationRequestHeader": (
        "consumerGroup! topic! queueId! pollTime! bornTime order attemptId expType exp bname"
    ),
    "NotificationResponseHeader": "hasMsg pollingFull",
    "NotifyConsumerIdsChangedRequestHeader": "consumerGroup",
    "NotifyMinBrokerIdChangeRequestHeader": (
        "minBrokerId brokerName minBrokerAddr offlineBrokerAddr haBrokerAddr"
    ),
    "PeekMessageRequestHeader": "topic! queueId! maxMsgNums! consumerGroup! bname",
    "PollingInfoRequestHeader": "consumerGroup! topic! queueId! bname",
    "PollingInfoResponseHeader": "pollingNum",
    "PopMessageRequestHeader": (
        "consumerGroup! topic! queueId! maxMsgNums! invisibleTime! pollTime! bornTime "
        "initMode! expType exp order attemptId bname"
    ),
    "PopMessageResponseHeader": (
        "popTime invisibleTime reviveQid restNum startOffsetInfo msgOffsetInfo orderCountInfo"
    ),
    "PullMessageRequestHeader": (
        "consumerGroup! topic! queueId! queueOffset! maxMsgNums! sysFlag! commitOffset "
        "suspendTimeoutMillis subscription subVersion expressionType maxMsgBytes "
        "requestSource proxyFrowardClientId bname"
    ),
    "PullMessageResponseHeader": (
        "suggestWhichBrokerId! nextBeginOffset! minOffset! maxOffset! offsetDelta "
        "topicSysFlag groupSysFlag forbiddenType"
    ),
    "PutKVConfigRequestHeader": "namespace! key! value!",
    "QueryConsumeQueueRequestHeader": "topic! queueId! index! count! consumerGroup",
    "QueryConsumeTimeSpanRequestHeader": "topic! group!",
    "QueryConsumerOffsetRequestHeader": ("consumerGroup! topic! queueId! setZeroIfNotFound bname"),
    "QueryConsumerOffsetResponseHeader": "offset!",
    "QueryCorrectionOffsetHeader": "filterGroups compareGroup! topic!",
    "QueryDataVersionRequestHeader": "brokerName! brokerAddr! clusterName! brokerId!",
    "QueryDataVersionResponseHeader": "changed!",
    "QueryMessageRequestHeader": "topic! key! maxNum! beginTimestamp! endTimestamp!",
    "QueryMessageResponseHeader": "indexLastUpdateTimestamp! indexLastUpdatePhyoffset!",
    "QuerySubscriptionByConsumerRequestHeader": "group! topic",
    "QueryTopicConsumeByWhoRequestHeader": "topic!",
    "QueryTopicsByConsumerRequestHeader": "group!",
    "RecallMessageRequestHeader": "producerGroup topic! recallHandle!",
    "RecallMessageResponseHeader": "msgId!",
    "RegisterBrokerRequestHeader": (
        "brokerName! brokerAddr! clusterName! haServerAddr! brokerId! "
        "heartbeatTimeoutMillis enableActingMaster compressed bodyCrc32 outsideAddr"  # the last one is ours
    ),
    "RegisterBrokerResponseHeader": "haServerAddr masterAddr",
    "RegisterTopicRequestHeader": "topic!",
    "RemoveBrokerRequestHeader": "brokerName! brokerClusterName! brokerId!",
    "ReplyMessageRequestHeader": (
        "producerGroup! topic! defaultTopic! defaultTopicQueueNums! queueId! sysFlag! "
        "bornTimestamp! flag! properties reconsumeTimes unitMode bornHost! storeHost! "
        "storeTimestamp!"
    ),
    "ResetMasterFlushOffsetHeader": "masterFlushOffset!",
    "ResetOffsetRequestHeader": "topic! group! queueId offset timestamp! isForce!",
    "ResumeCheckHalfMessageRequestHeader": "topic msgId",
    "SearchOffsetRequestHeader": "topic! queueId! timestamp! boundaryType bname",
    "SearchOffsetResponseHeader": "offset!",
    "SetCommitLogReadModeRequestHeader": "READ_AHEAD_MODE",
    "SendMessageRequestHeader": (
        "producerGroup! topic! defaultTopic! defaultTopicQueueNums queueId! sysFlag! "
        "bornTimestamp! flag! properties reconsumeTimes unitMode maxReconsumeTimes "
        "batch bname"
    ),
    "SendMessageRequestHeaderV2": "a! b! c! d e! f! g! h! i j k l m n",
    "SendMessageResponseHeader": (
        "msgId! queueId! queueOffset! transactionId batchUniqId recallHandle"
    ),
    "UnRegisterBrokerRequestHeader": "brokerName! brokerAddr! clusterName! brokerId!",
    "UnregisterClientRequestHeader": "clientID! producerGroup consumerGroup",
    "UpdateConsumerOffsetRequestHeader": "consumerGroup! topic! queueId! commitOffset! bname",
    "UpdateGroupForbiddenRequestHeader": "group! topic! readable",
    "ViewBrokerStatsDataRequestHeader": "statsName! statsKey!",
    "ViewMessageRequestHeader": "topic offset!",
    "WipeWritePermOfBrokerRequestHeader": "brokerName!",
    "WipeWritePermOfBrokerResponseHeader": "wipeTopicCount!",
}
ALL = sorted(
    name
    for name, kind in vars(headers).items()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
)


def wire_names(kind: type[msgspec.Struct]) -> str:
    fields = msgspec.structs.fields(kind)
    return " ".join(f.encode_name + ("!" if f.required else "") for f in fields)


def test_every_header_is_pinned() -> None:
    assert sorted(WIRE_NAMES) == ALL


@pytest.mark.parametrize("name", ALL)
def test_wire_names(name: str) -> None:
    assert wire_names(getattr(headers, name)) == WIRE_NAMES[name]


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.sampled_from(["+5", "007", "TRUE", ""]),
)


@given(name=st.sampled_from(ALL), values=st.lists(SCALARS, min_size=16, max_size=16))
def test_any_ext_fields_are_read_or_refused(name: str, values: list[Any]) -> None:
    kind = getattr(headers, name)
    ext = {f.encode_name: v for f, v in zip(msgspec.structs.fields(kind), values) if v is not None}

    with contextlib.suppress(BadHeader):
        header = decode_ext(kind, msgspec.Raw(msgspec.json.encode(ext)))
        assert decode_ext(kind, msgspec.Raw(encode_ext(header))) == header


def full(kind: type[msgspec.Struct]) -> dict[str, str]:
    texts = {Int32: "7", Int64: "7", bool: "true", str: 'ü"\x01'}
    return {
        f.encode_name: next(
            text
            for plain, text in texts.items()
            if f.type in (plain, typing.Optional[plain])  # noqa: UP045
        )
        for f in msgspec.structs.fields(kind)
    }


@pytest.mark.parametrize("name", ALL)
def test_headers_survive_the_round_trip(name: str) -> None:
    kind = getattr(headers, name)
    header = decode_ext(kind, msgspec.Raw(json.dumps(full(kind)).encode()))

    written = json.loads(encode_ext(header))

    assert written == full(kind)  # every value a text, as Go's client needs
    assert decode_ext(kind, msgspec.Raw(json.dumps(written).encode())) == header


V2: dict[str, Any] = {
    "a": "pg",
    "b": "T",
    "c": "TBW102",
    "e": "3",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
}


def test_the_letters_stand_for_the_long_names() -> None:
    short = decode_ext(
        SendMessageRequestHeaderV2,
        msgspec.Raw(json.dumps(full(SendMessageRequestHeaderV2)).encode()),
    )
    long = decode_ext(
        SendMessageRequestHeader, msgspec.Raw(json.dumps(full(SendMessageRequestHeader)).encode())
    )

    assert msgspec.structs.asdict(short) == msgspec.structs.asdict(long)


def test_third_party_producers_leave_the_queue_count_out() -> None:
    found = decode_ext(SendMessageRequestHeaderV2, msgspec.Raw(json.dumps(V2).encode()))

    assert (found.default_topic_queue_nums, found.queue_id, found.properties) == (4, 3, None)


def test_numbers_and_flags_need_not_be_texts() -> None:
    sent = V2 | {"d": 8, "e": 3, "g": 1_700_000_000_000, "k": True, "m": False, "b": 5}  # ali-ons

    found = decode_ext(SendMessageRequestHeaderV2, msgspec.Raw(json.dumps(sent).encode()))

    assert (found.topic, found.queue_id, found.unit_mode, found.batch) == ("5", 3, True, False)


def test_irregular_names() -> None:
    assert "proxyFrowardClientId" in wire_names(PullMessageRequestHeader)
    assert wire_names(UnregisterClientRequestHeader).startswith("clientID!")


def test_unknown_fields_are_skipped_and_missing_ones_named() -> None:
    decode_ext(
        SendMessageRequestHeaderV2, msgspec.Raw(json.dumps(V2 | {"ns": "x", "z": "1"}).encode())
    )

    with pytest.raises(BadHeader, match="`b`"):
        decode_ext(SendMessageRequestHeaderV2, msgspec.Raw(b'{"a":"pg"}'))
    assert ext_dict(msgspec.Raw(b'{"a":1,"b":null,"c":true}')) == {"a": "1", "c": "true"}
