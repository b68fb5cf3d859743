"""What a message is sent with: its values checked, its properties as they travel. HOT: each send comes by here."""

from datetime import datetime
from typing import Any, Final

from roquette.errors import MessageIllegal
from roquette.message import properties as names
from roquette.message.message import Message

_TEXT: Final = (str, type(None))
_SEVERAL: Final = (tuple, list)


def property_map(message: Message) -> dict[str, str]:
    """All properties as they travel, RocketMQ's among them (Apache: Message's setters).

    Raises:
        TypeError: a value has another type than it should have.
        MessageIllegal: one would be read as another, or as none.
    """
    given: Any = message  # what applications put there may be of another type
    tag: Any = given.tag
    keys: Any = given.keys
    own: Any = given.properties
    shard_key: Any = given.shard_key
    delay_level: Any = given.delay_level
    deliver_at: Any = given.deliver_at
    priority: Any = given.priority
    if not (
        type(given.topic) is str
        and type(given.body) is bytes
        and (tag is None or type(tag) is str)
        and (shard_key is None or type(shard_key) is str)
        and type(given.flag) is int
        and type(delay_level) is int
        and (priority is None or type(priority) is int)
        and (deliver_at is None or type(deliver_at) is datetime)
        and (type(keys) is tuple or type(keys) is list)
    ):
        _check_types(given)
    if keys:
        for key in keys:
            if not isinstance(key, str):
                raise TypeError(f"key {key!r:.80} is not str")
    found: dict[str, str] = {}
    if own:
        for name, text in own.items():
            if not isinstance(name, str) or not isinstance(text, str):
                raise TypeError(f"property {name!r:.80}={text!r:.80} is not str")
            found[name] = text
    if (
        (tag is not None and not tag.isalnum())  # most are, and are fine
        or keys
        or shard_key is not None
        or priority is not None
        or deliver_at is not None
    ) and (wrong := _wrong_word(given)):
        raise MessageIllegal(wrong)
    if tag:
        found[names.TAGS] = tag
    if keys:
        found[names.KEYS] = names.KEY_SEPARATOR.join(keys)
    if delay_level:
        found[names.DELAY] = str(delay_level)
    if deliver_at is not None and (at_ms := given.deliver_at_ms):
        found[names.TIMER_DELIVER_MS] = str(at_ms)
    if shard_key:
        found[names.SHARDING_KEY] = shard_key
    if priority is not None:
        found[names.PRIORITY] = str(priority)
    found[names.WAIT] = "true" if given.wait_store_ok else "false"
    return found


def _check_types(message: Any) -> None:
    """Raise TypeError for the first value of another type than it should have."""
    expected: tuple[tuple[str, tuple[type, ...]], ...] = (
        ("topic", (str,)),
        ("body", (bytes, bytearray, memoryview)),
        ("tag", _TEXT),
        ("shard_key", _TEXT),
        ("flag", (int,)),
        ("delay_level", (int,)),
        ("priority", (int, type(None))),
        ("deliver_at", (datetime, type(None))),
        ("keys", _SEVERAL),
    )
    for name, kinds in expected:
        value = getattr(message, name)
        if isinstance(value, bool) or not isinstance(value, kinds):
            wrong = f"{name}={value!r:.80} has a wrong type: {type(value).__name__}"
            raise TypeError(wrong + (", say (key,)" if name == "keys" else ""))


def _wrong_word(message: Any) -> str:
    """The first value that would be read as another, or as none, in words; empty when there is none."""
    tag = message.tag
    if (
        tag is not None
        and not tag.isalnum()
        and (tag != tag.strip() or tag in ("", "*") or "||" in tag)
    ):
        why = "consumers could not name it: they read '||' as 'or', '*' as all, and pass over blanks at the ends"
        return f"tag {tag!r:.80} is not one tag, and {why}; None is no tag"
    for key in message.keys:
        if key.split() != [key]:
            why = (
                "empty, and would vanish"
                if not key.strip()
                else "of several words: each would be a key"
            )
            return f"key {key!r:.80} is {why}; give several as a tuple, blanks as another character"
    if message.shard_key == "":
        return "shard key '' is empty, and would choose no queue: leave it out, or give it a value"
    if message.priority is not None:
        if not 0 <= message.priority <= names.MAX_PRIORITY:
            return f"priority {message.priority} is not 0 to {names.MAX_PRIORITY}"
        if message.shard_key or message.delay_level or message.deliver_at:
            return "a priority stands with neither shard key nor delay: brokers would drop it"
    if message.deliver_at is not None:
        if message.deliver_at.tzinfo is None:
            return f"deliver_at={message.deliver_at.isoformat()} has no time zone: say datetime.now(timezone.utc) + ..."
        if message.deliver_at_ms < 0:
            return f"deliver_at={message.deliver_at} is before 1970"
    return ""
