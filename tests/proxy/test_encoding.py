"""Replies written by hand say what protobuf's own messages say."""

from hypothesis import given
from hypothesis import strategies as st

from roquette.message import properties as p
from roquette.message.message_id import host_bytes
from roquette.message.record_layout import StoredRecord
from roquette.proxy import encoding
from roquette.proxy.delivered import timestamp, to_message
from roquette.proxy.statuses import status
from roquette.wire.proto.definition_pb2 import Code, Resource
from roquette.wire.proto.service_pb2 import (
    AckMessageEntry,
    AckMessageResponse,
    AckMessageResultEntry,
    ReceiveMessageResponse,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), max_size=40)
NAMES = st.one_of(
    TEXT.filter(bool),
    st.sampled_from(sorted(p.RESERVED)),
    st.sampled_from([p.SHARDING_KEY, p.TRACE_CONTEXT, p.CHECK_IMMUNITY_TIME_IN_SECONDS]),
)


@given(TEXT, TEXT)
def test_an_ack(message_id: str, handle: str) -> None:
    entry = AckMessageResultEntry(
        message_id=message_id, receipt_handle=handle, status=status(Code.OK, "OK")
    )
    wanted = AckMessageResponse(status=status(Code.OK, "OK"), entries=[entry])
    asked = AckMessageEntry(message_id=message_id, receipt_handle=handle).SerializeToString()
    assert encoding.acknowledged(asked) == wanted.SerializeToString()


@given(st.integers(-(2**63), 2**63 - 1))
def test_the_time_of_delivery(ms: int) -> None:
    wanted = ReceiveMessageResponse(delivery_timestamp=timestamp(ms))
    assert encoding.delivery_time(ms) == wanted.SerializeToString()


@given(
    st.dictionaries(NAMES, TEXT, max_size=8),
    st.binary(max_size=300),
    st.integers(0, 2**31 - 2),
    st.integers(0, 2**62),
    st.integers(-1, 2**45),
    st.integers(0, 3),
)
def test_a_message(
    named: dict[str, str], body: bytes, small: int, large: int, ms: int, sys_flag: int
) -> None:
    record = StoredRecord("topic", "", body)
    record.born_host, record.store_host = host_bytes("10.0.0.1", 5), host_bytes("::1", 10911)
    record.born_timestamp_ms = record.store_timestamp_ms = ms
    record.queue_id, record.queue_offset, record.physical_offset = small, large, large
    record.reconsume_times, record.sys_flag = small, sys_flag
    topic = Resource(resource_namespace="n", name="topic")
    written = encoding.delivered(record, topic.SerializeToString(), "a handle", dict(named))
    rare = named.keys() & encoding._RARE
    assert (written is None) == bool(rare)
    if written is not None:
        message = to_message(record, topic, "a handle", dict(named))
        found = ReceiveMessageResponse.FromString(written)
        assert found == ReceiveMessageResponse(message=message)
        assert found.SerializeToString(deterministic=True) == ReceiveMessageResponse(
            message=message
        ).SerializeToString(deterministic=True)
