"""Requests of who examines servers and consumers. Pure; the others stand in `client/calls.py`."""

from collections.abc import Mapping

from roquette.base.property_files import format_properties, parse_properties
from roquette.client.calls import Call, body_of, nothing
from roquette.wire.bodies import (
    ConsumerRunningInfo,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from roquette.wire.codes import RequestCode
from roquette.wire.command import Command
from roquette.wire.headers import (
    GetAllTopicConfigRequestHeader,
    GetConsumerRunningInfoRequestHeader,
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


def running_info(group: str, client_id: str, *, stacks: bool = False) -> Call[ConsumerRunningInfo]:
    """What a member of a group is doing, asked through a broker it is connected to."""
    header = GetConsumerRunningInfoRequestHeader(
        consumer_group=group, client_id=client_id, jstack_enable=stacks
    )
    return Call(RequestCode.GET_CONSUMER_RUNNING_INFO, body_of(ConsumerRunningInfo), header)
