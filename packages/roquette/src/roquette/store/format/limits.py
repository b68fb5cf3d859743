"""Limits of one record, and the words for breaking them."""

from roquette.errors import MessageIllegal
from roquette.message.record_layout import (
    BLANK_SIZE,
    MAX_PROPERTIES,
    MAX_TOPIC_NAME,
    names_directory,
)
from roquette.store.format.config import StoreConfig


def raise_illegal(
    config: StoreConfig, body_size: int, properties_size: int, size: int, *, own: bool = False
) -> None:
    """Raise MessageIllegal with the numbers, if any limit is broken; maxMessageSize is none for `own` messages."""
    if body_size > config.max_message_size and not own:
        raise MessageIllegal(
            f"the message body size {body_size} is above maxMessageSize {config.max_message_size}"
        )
    if properties_size > MAX_PROPERTIES:
        raise MessageIllegal(
            f"the properties take {properties_size} bytes, at most {MAX_PROPERTIES} are allowed"
        )
    if size + BLANK_SIZE > config.segment_size:
        raise MessageIllegal(
            f"a record of {size} bytes does not fit into a commit log file of "
            f"{config.segment_size} bytes (mappedFileSizeCommitLog)"
        )


def check_topic(topic: str) -> None:
    """Raise MessageIllegal for a name that cannot be a topic's directory."""
    name = topic.encode()
    if len(name) > MAX_TOPIC_NAME:
        raise MessageIllegal(f"the topic takes {len(name)} bytes, at most {MAX_TOPIC_NAME}")
    if not names_directory(name):
        raise MessageIllegal(f"topic {topic!r} cannot name a directory")
