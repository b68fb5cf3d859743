"""Requests of who examines servers and consumers. Pure; the others stand in `client/calls.py`."""

from collections.abc import Mapping

from roquette.base.property_files import format_properties, parse_properties
from roquette.client.calls import Call, body_of, nothing
from roquette.wire.bodies import (
    ConsumerRunningInfo,
    GroupList,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    TopicConfigAndMappingSerializeWrapper,
)
from roquette.wire.bodies.topic_config import TopicConfig
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.headers import (
    GetAllTopicConfigRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetTopicConfigRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from roquette.wire.json_body import decode_body


def broker_settings() -> Call[dict[str, str]]:
    """Every setting of a broker under Apache's key."""

    def read(answer: Command) -> dict[str, str]:
        return parse_properties(answer.body.decode("utf-8", "replace"))

    return Call(RequestCode.GET_BROKER_CONFIG, read)


def change_broker_settings(changes: Mapping[str, str]) -> Call[None]:
    """Change settings of a broker while it runs."""
    body = format_properties(changes).encode()
    return Call(RequestCode.UPDATE_BROKER_CONFIG, nothing, body=body)


def topic_configs() -> Call[dict[str, TopicConfig]]:
    """The topics a broker has, by name."""

    def read(answer: Command) -> dict[str, TopicConfig]:
        return decode_body(TopicConfigAndMappingSerializeWrapper, answer.body).topic_config_table

    return Call(RequestCode.GET_ALL_TOPIC_CONFIG, read, GetAllTopicConfigRequestHeader())


def topic_config(topic: str) -> Call[TopicConfig | None]:
    """A topic as a broker has it; None: it has none. Apache's brokers serve it since 5.0."""

    def read(answer: Command) -> TopicConfig | None:
        return None if answer.code else decode_body(TopicConfig, answer.body)

    header = GetTopicConfigRequestHeader(topic=topic)
    missing = frozenset((ResponseCode.TOPIC_NOT_EXIST,))
    return Call(RequestCode.GET_TOPIC_CONFIG, read, header, also=missing)


def readers_of(topic: str) -> Call[list[str]]:
    """The groups that have offsets of a topic at a broker, or members there that subscribe to it."""
    header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
    code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
    return Call(code, lambda answer: decode_body(GroupList, answer.body).group_list, header)


def time_spans(group: str, topic: str) -> Call[list[QueueTimeSpan]]:
    """Of each queue of a topic at a broker: when its messages were stored, and since when the next one of a group is there."""
    header = QueryConsumeTimeSpanRequestHeader(topic=topic, group=group)
    code = RequestCode.QUERY_CONSUME_TIME_SPAN
    return Call(
        code,
        lambda answer: decode_body(QueryConsumeTimeSpanBody, answer.body).consume_time_span_set,
        header,
    )


def running_info(group: str, client_id: str, *, stacks: bool = False) -> Call[ConsumerRunningInfo]:
    """Ask what a member of a group is doing, through a broker it is connected to."""
    header = GetConsumerRunningInfoRequestHeader(
        consumer_group=group, client_id=client_id, jstack_enable=stacks
    )
    return Call(RequestCode.GET_CONSUMER_RUNNING_INFO, body_of(ConsumerRunningInfo), header)
