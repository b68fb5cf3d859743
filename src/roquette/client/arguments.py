"""What applications give to the client's calls: checked, in words that say what is wrong, before anything happens."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

from roquette.client.answers import check_function
from roquette.client.consumer_options import (
    ConsumerOptions,
    Model,
    OffsetStore,
    Revoked,
    StartFrom,
    StartPoint,
)
from roquette.client.core.rebalance import STRATEGIES, Strategy
from roquette.client.selection import Selection, Sql, check_selection
from roquette.errors import ConfigError, MessageIllegal
from roquette.message import properties as names
from roquette.message.message import Message, is_seconds
from roquette.message.names import client_group_error, client_topic_error

Timeout = float | timedelta | None
"""Seconds, or a span of time; None: as long as it takes, or by default."""

ModelName = Literal["clustering", "broadcasting"]
StrategyName = Literal["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"] | Strategy
"""A name of Apache's, or a function such as `roquette.by_machine_room` and its kin make: the same in every member."""

_TAKEN: Final = names.SYSTEM - {names.UNIQ_KEY, names.PRIORITY, names.LITE_TOPIC}
"""Properties that are RocketMQ's; a message may be given its id, and what there is no other word for."""

_WORDS: Final = {
    names.KEYS: "say key=",
    names.TAGS: "say tag=",
    names.DELAY: "say delay_level=",
    names.SHARDING_KEY: "say shard_key=",
    names.WAIT: "say Message(..., wait_store_ok=)",
    names.TIMER_DELIVER_MS: "say deliver_at=",
    names.TIMER_DELAY_SEC: "say deliver_at=timedelta(...)",
    names.TIMER_DELAY_MS: "say deliver_at=timedelta(...)",
}


def as_message(
    topic: str | Message,
    body: bytes | str = b"",
    key: str | Sequence[str] | None = None,
    tag: str | None = None,
    properties: Mapping[str, str] | None = None,
    shard_key: str | None = None,
    delay_level: int = 0,
    deliver_at_ms: int = 0,
) -> Message:
    """The words of a send call as a Message; a Message passes through.

    Raises:
        TypeError: a value has a wrong type, or words stand beside a Message that has its own.
        MessageIllegal: a property is empty, or RocketMQ's own.
    """
    if isinstance(topic, Message):
        if body or key or tag or properties or shard_key or delay_level or deliver_at_ms:
            raise TypeError("a Message has its own body, key, tag, properties, shard key and delay")
        _check_properties(topic.properties)
        return topic
    if not isinstance(body, (bytes, bytearray, memoryview, str)):
        raise TypeError(f"the body must be bytes or str, not {type(body).__name__}")
    named = dict(_mapping(properties)) if properties else {}
    _check_properties(named)
    return Message(
        topic,
        body.encode() if isinstance(body, str) else bytes(body),
        tags=tag,
        keys=() if key is None else (key,) if isinstance(key, str) else _texts("key", key),
        properties=named,
        delay_level=delay_level,
        sharding_key=shard_key,
        deliver_at_ms=deliver_at_ms,
    )


def _check_properties(properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        if name == "" or value == "":
            raise MessageIllegal(
                f"property {name!r}={value!r:.80} is empty, and brokers drop such: leave it out, or give it a value"
            )
        if name in _TAKEN:
            word = _WORDS.get(
                name, "name it otherwise; of a received message give on only your own"
            )
            raise MessageIllegal(f"property {name!r} is RocketMQ's own: {word}")


def deliver_at_ms(when: datetime | timedelta | None, now_ms: int) -> int:
    """When to deliver, in milliseconds since 1970; 0: at once.

    Raises:
        TypeError: it is neither a time nor a span. ConfigError: a time has no zone, or is before 1970.
    """
    if when is None:
        return 0
    if not isinstance(when, (datetime, timedelta)):
        raise TypeError(f"deliver_at={when!r:.80} is neither a datetime nor a timedelta")
    if isinstance(when, datetime):
        return since_1970_ms("deliver_at", when)
    at_ms = now_ms + when // timedelta(milliseconds=1)
    if at_ms <= 0:
        raise ConfigError(f"deliver_at={when} is before 1970")
    return at_ms


def since_1970_ms(what: str, when: datetime | int) -> int:
    """A moment in milliseconds since 1970.

    Raises:
        ConfigError: a datetime has no zone, a number is of seconds, or it is neither, or before 1970.
    """
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise ConfigError(
                f"{what}={when.isoformat()} has no time zone: say datetime.now(timezone.utc), "
                "or .astimezone() of one that is local"
            )
        found_ms = int(when.timestamp() * 1000)
    elif isinstance(when, bool) or not isinstance(when, int):
        raise ConfigError(
            f"{what}={when!r:.80} is neither a datetime nor whole milliseconds since 1970"
        )
    elif is_seconds(when):
        raise ConfigError(
            f"{what}={when} is before 1973 as milliseconds since 1970: if it is seconds, multiply by 1000"
        )
    else:
        found_ms = when
    if found_ms < 0:
        raise ConfigError(f"{what}={when} is before 1970")
    return found_ms


def start_point(value: StartPoint) -> StartFrom | int:
    """A StartFrom, or a time as milliseconds since 1970; raises ConfigError."""
    if isinstance(value, datetime | int) and not isinstance(value, bool):
        return since_1970_ms("start_from", value)
    try:
        return StartFrom(str(value))
    except ValueError:
        raise ConfigError(
            f"start_from={value!r} is not StartFrom.FIRST, StartFrom.LAST, a datetime or milliseconds"
        ) from None


def _texts(what: str, values: object) -> tuple[str, ...]:
    if isinstance(values, Sequence) and all(isinstance(value, str) for value in values):
        return tuple(values)
    raise TypeError(f"{what} must be a str or several, not {values!r:.80}")


def _mapping(values: object) -> Mapping[str, str]:
    if isinstance(values, Mapping):
        return values
    raise TypeError(f"properties must be a mapping of str to str, not {values!r:.80}")


def consumer_options(
    group: str,
    subscriptions: Mapping[str, Selection],
    *,
    concurrency: int,
    start_from: StartPoint,
    model: ModelName,
    orderly: bool,
    max_reconsume_times: int,
    strategy: StrategyName,
    on_revoke: Revoked | None = None,
    retry_levels: Sequence[int] = (),
    batch: int = 0,
    offsets: OffsetStore | None = None,
) -> ConsumerOptions:
    """The words of a subscribe call as options; raises ConfigError."""
    check_group(group)
    check_count("concurrency", concurrency)
    check_count("max_reconsume_times", max_reconsume_times, least=-1)
    if on_revoke is not None:
        check_function("on_revoke", on_revoke)
    if isinstance(retry_levels, str) or not isinstance(retry_levels, Sequence):
        raise ConfigError(f"retry_levels={retry_levels!r} is not a list of delay levels")
    for level in retry_levels:
        check_count("each of retry_levels", level)
    if offsets is not None and not (
        callable(getattr(offsets, "load", None)) and callable(getattr(offsets, "save", None))
    ):
        raise ConfigError(
            f"offsets={offsets!r:.80} has not both load and save (roquette.OffsetStore)"
        )
    if offsets is not None:
        check_function("offsets.load", offsets.load)
        check_function("offsets.save", offsets.save)
    if not isinstance(orderly, bool):
        raise ConfigError(f"orderly={orderly!r} is neither True nor False")
    models = {kind.value.lower(): kind for kind in Model}
    if str(model).lower() not in models:
        raise ConfigError(f"model={model!r} is neither clustering nor broadcasting")
    kind = models[model.lower()]
    if retry_levels and orderly:
        raise ConfigError("retry_levels are not for orderly consumers, which try again at once")
    if kind is Model.BROADCASTING and (retry_levels or (max_reconsume_times >= 0 and not orderly)):
        raise ConfigError(
            "broadcasting has no retries: neither retry_levels nor max_reconsume_times have an effect"
        )
    return ConsumerOptions(
        group=group,
        subscriptions=subscriptions,
        model=kind,
        start_from=start_point(start_from),
        concurrency=concurrency,
        orderly=orderly,
        max_reconsume_times=max_reconsume_times,
        strategy=as_strategy(strategy),
        on_revoke=on_revoke,
        retry_levels=tuple(retry_levels),
        batch=batch,
        offsets=offsets,
    )


def as_subscriptions(
    topic: str | Mapping[str, Selection], tags: str, chosen: Sql | None = None
) -> dict[str, Selection]:
    """Topics with what is wanted of each; raises ConfigError."""
    if chosen is not None and (not isinstance(chosen, Sql) or tags != "*"):
        raise ConfigError(
            "tags and a filter exclude each other: write TAGS IN ('a', 'b') into the filter"
            if isinstance(chosen, Sql)
            else f"filter={chosen!r} is not made by roquette.sql('...')"
        )
    if isinstance(topic, Mapping) and (chosen is not None or tags != "*"):
        raise ConfigError("topics that are a mapping have their tags or filters in it")
    found = dict(topic) if isinstance(topic, Mapping) else {topic: chosen or tags}
    if not found:
        raise ConfigError("no topic is given")
    for name, wanted in found.items():
        if not isinstance(name, str) or (error := client_topic_error(name)) is not None:
            raise ConfigError(error if isinstance(name, str) else f"topic {name!r} is no str")
        check_selection(name, wanted)
    return found


def as_strategy(strategy: StrategyName) -> Strategy:
    """The function that shares queues; raises ConfigError."""
    found = strategy if callable(strategy) else STRATEGIES.get(strategy)
    if found is None:
        raise ConfigError(
            f"strategy {strategy!r} is unknown: one of {', '.join(STRATEGIES)}, or a function"
        )
    return found


def check_group(group: str) -> None:
    """Raises ConfigError: a group cannot be called so."""
    if not isinstance(group, str) or (error := client_group_error(group)) is not None:
        raise ConfigError(error if isinstance(group, str) else f"group {group!r} is no str")


def seconds_of(timeout: float | timedelta) -> float:
    """A time limit in seconds; raises ConfigError."""
    found = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if isinstance(found, bool) or not isinstance(found, int | float) or not found >= 0:
        raise ConfigError(f"timeout={timeout!r:.80} is no number of seconds and no timedelta")
    return float(found)


def check_count(what: str, value: int, least: int = 1) -> None:
    """Raises ConfigError: not a whole number, or too small."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{what}={value!r} is not a whole number of at least {least}")
