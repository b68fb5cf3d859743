"""Limits of one record, and the words for breaking them."""

from typing import Final

from roquette.errors import MessageIllegal
from roquette.message.record import MAX_PROPERTIES, record_size
from roquette.store.commit_log import BLANK_SIZE
from roquette.store.config import StoreConfig

FIXED_SIZE: Final = record_size(0, 0, 0, 0, 0)
MAX_TOPIC: Final = 255


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
    """Raise MessageIllegal for a name that can not be a topic's directory."""
    if not topic or "/" in topic or "\0" in topic or topic in (".", ".."):
        raise MessageIllegal(f"topic {topic!r} can not name a directory")
    if len(topic.encode()) > MAX_TOPIC:
        raise MessageIllegal(f"the topic takes {len(topic.encode())} bytes, at most {MAX_TOPIC}")
