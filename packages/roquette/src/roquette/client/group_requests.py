"""Requests of operators about groups and clients as values (see `calls`)."""

from roquette.client.calls import Call, body_of, nothing
from roquette.message.message import MessageQueue
from roquette.wire.bodies.clients import ProducerTableInfo
from roquette.wire.codes import RequestCode
from roquette.wire.headers import (
    DeleteSubscriptionGroupRequestHeader,
    ResetOffsetRequestHeader,
)


def reset_offset(group: str, queue: MessageQueue, offset: int) -> Call[None]:
    """Let a group go on elsewhere in one queue, whoever has it now (brokers of 5.x)."""
    header = ResetOffsetRequestHeader(
        topic=queue.topic,
        group=group,
        queue_id=queue.queue_id,
        offset=offset,
        timestamp=-1,
        is_force=True,
    )
    return Call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, nothing, header)


def reset_by_time(group: str, topic: str, timestamp_ms: int) -> Call[None]:
    """Let the members of a group go on at a time, in all queues of a topic on a broker; -1: at the end."""
    header = ResetOffsetRequestHeader(
        topic=topic, group=group, timestamp=timestamp_ms, is_force=True
    )
    return Call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, nothing, header)


def delete_group(group: str, *, with_offsets: bool) -> Call[None]:
    """Remove a group's settings from a broker, and its offsets if so wanted."""
    header = DeleteSubscriptionGroupRequestHeader(group_name=group, clean_offset=with_offsets)
    return Call(RequestCode.DELETE_SUBSCRIPTIONGROUP, nothing, header)


def all_producers() -> Call[ProducerTableInfo]:
    """Every producer that is connected to a broker."""
    return Call(RequestCode.GET_ALL_PRODUCER_INFO, body_of(ProducerTableInfo))
