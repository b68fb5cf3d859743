"""Check of the arguments of the client's calls, in words that say what is wrong, before anything happens."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from roquette.base.clock import Clock
from roquette.base.options import did_you_mean
from roquette.client.consumer_options import (
    ConsumerOptions,
    Encode,
    MemberOptions,
    Model,
    Selection,
    Sql,
    StartFrom,
    StartPoint,
    StrategyName,
    TopicOptions,
    body_of,
    check_function,
    check_selection,
)
from roquette.client.core.rebalance import STRATEGIES, Strategy
from roquette.client.producer import SendOptions
from roquette.errors import ConfigError, MessageIllegal
from roquette.message import properties as names
from roquette.message.message import EPOCH, Message, is_seconds
from roquette.message.names import client_group_error, client_topic_error

Topics = str | Mapping[str, Selection]
"""A topic, or topics with their tags or filters: {"orders": "new || paid", "stock": sql("left < 3")}."""

Timeout = float | timedelta | None
"""Seconds, or a span of time; None: as long as it takes, or by default."""

_TAKEN: Final = names.SYSTEM - {names.UNIQ_KEY, names.LITE_TOPIC}
"""Properties that are RocketMQ's; a message may be given its id, and what there is no other word for."""

_WORDS: Final = {
    names.KEYS: "say key=",
    names.TAGS: "say tag=",
    names.DELAY: "say delay_level=",
    names.SHARDING_KEY: "say shard_key=",
    names.PRIORITY: "say priority=",
    names.WAIT: "say Message(..., wait_store_ok=)",
    names.TIMER_DELIVER_MS: "say deliver_at=",
    names.TIMER_DELAY_SEC: "say deliver_at=timedelta(...)",
    names.TIMER_DELAY_MS: "say deliver_at=timedelta(...)",
}


_AS_THEY_ARE: Final = frozenset({"tag", "shard_key", "delay_level", "priority"})
"""Options of a send that a Message has by the same names, and that it checks itself."""


def as_message(
    topic: str | Message,
    body: object = b"",
    options: SendOptions | None = None,
    clock: Clock | None = None,
    encode: Encode[Any] | None = None,
    call: str = "",
) -> Message:
    """The words of a send call as a Message; a Message passes through.

    Args:
        call: whose words they are, if it is one with `SendOptions`: they are looked at here.

    Raises:
        TypeError: the call has no such word, a value has a wrong type, or words stand beside a Message that has its own.
        ConfigError: a time has no zone, or is before 1970.
        MessageIllegal: a property is empty, or RocketMQ's own; `encode` raised.
    """
    given: SendOptions = options or {}
    plain = given.keys() <= _AS_THEY_ARE  # as most are: nothing is to be looked at here
    if call and not plain:
        check_words(call, given, SendOptions)
    if isinstance(topic, Message):
        if body not in (b"", "") or any(
            value for name, value in given.items() if name not in ("queue", "selector")
        ):
            raise TypeError("a Message has its own body, key, tag, properties, shard key and delay")
        _check_properties(topic.properties)
        return topic
    if type(body) is not bytes:
        body = body_of(body, encode)
    if plain:
        same: Any = given
        return Message(topic, body, **same)
    key, properties, at = given.get("key"), given.get("properties"), given.get("deliver_at")
    named = dict(_mapping(properties)) if properties else {}
    _check_properties(named)
    return Message(
        topic,
        body,
        tag=given.get("tag"),
        keys=() if key is None else (key,) if isinstance(key, str) else _texts("key", key),
        properties=named,
        delay_level=given.get("delay_level", 0),
        shard_key=given.get("shard_key"),
        priority=given.get("priority"),
        deliver_at=None if at is None or clock is None else deliver_time(at, clock),
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


def deliver_time(when: datetime | timedelta, clock: Clock) -> datetime:
    """Return the time of delivery.

    Raises:
        TypeError: it is neither a time nor a span. ConfigError: a time has no zone, or is before 1970.
    """
    if isinstance(when, datetime):
        since_1970_ms("deliver_at", when)
        return when
    if not isinstance(when, timedelta):
        raise TypeError(f"deliver_at={when!r:.80} is neither a datetime nor a timedelta")
    at = EPOCH + timedelta(milliseconds=clock.now_ms()) + when
    if at <= EPOCH:
        raise ConfigError(f"deliver_at={when} is before 1970")
    return at


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


def member_options(
    group: str, topic: Topics, options: ConsumerOptions, *, batch: int = 0, call: str = "subscribe"
) -> MemberOptions:
    """The words of a call that joins a group, as a value; raises ConfigError, and TypeError for a word that nobody knows."""
    check_words(call, options, ConsumerOptions)
    check_group(group)
    subscriptions = as_subscriptions(topic, options)
    concurrency = options.get("concurrency", 20)
    check_count("concurrency", concurrency)
    most = options.get("max_reconsume_times", -1)
    check_count("max_reconsume_times", most, least=-1)
    on_revoke = options.get("on_revoke")
    if on_revoke is not None:
        check_function("on_revoke", on_revoke)
    levels = options.get("retry_levels", ())
    if isinstance(levels, str) or not isinstance(levels, Sequence):
        raise ConfigError(f"retry_levels={levels!r} is not a list of delay levels")
    for level in levels:
        check_count("each of retry_levels", level)
    offsets = options.get("offsets")
    if offsets is not None and not (
        callable(getattr(offsets, "load", None)) and callable(getattr(offsets, "save", None))
    ):
        raise ConfigError(
            f"offsets={offsets!r:.80} has not both load and save (roquette.OffsetStore)"
        )
    if offsets is not None:
        check_function("offsets.load", offsets.load)
        check_function("offsets.save", offsets.save)
    orderly = options.get("orderly", False)
    if not isinstance(orderly, bool):
        raise ConfigError(f"orderly={orderly!r} is neither True nor False")
    model = options.get("model", "clustering")
    models = {kind.value.lower(): kind for kind in Model}
    if str(model).lower() not in models:
        raise ConfigError(f"model={model!r} is neither clustering nor broadcasting")
    kind = models[model.lower()]
    if levels and orderly:
        raise ConfigError("retry_levels are not for orderly consumers, which try again at once")
    if kind is Model.BROADCASTING and (levels or (most >= 0 and not orderly)):
        raise ConfigError(
            "broadcasting has no retries: neither retry_levels nor max_reconsume_times have an effect"
        )
    return MemberOptions(
        group=group,
        subscriptions=subscriptions,
        model=kind,
        start_from=start_point(options.get("start_from", StartFrom.FIRST)),
        concurrency=concurrency,
        orderly=orderly,
        max_reconsume_times=most,
        strategy=as_strategy(options.get("strategy", "AVG")),
        on_revoke=on_revoke,
        retry_levels=tuple(levels),
        batch=batch,
        offsets=offsets,
    )


def check_words(call: str, words: Mapping[str, object], known: type) -> None:
    """Raises TypeError, as Python does: a keyword that the call does not have."""
    if not words or words.keys() <= known.__annotations__.keys():
        return
    for unknown in sorted(set(words) - set(known.__annotations__)):
        meant = did_you_mean(unknown, known.__annotations__)
        raise TypeError(f"{call}() got an unexpected keyword argument {unknown!r}{meant}")


def as_subscriptions(topic: Topics, options: TopicOptions) -> dict[str, Selection]:
    """Topics with what is wanted of each; raises ConfigError."""
    tag, chosen = options.get("tag", "*"), options.get("filter")
    if chosen is not None and (not isinstance(chosen, Sql) or tag != "*"):
        raise ConfigError(
            "tag and filter exclude each other: write TAGS IN ('a', 'b') into the filter"
            if isinstance(chosen, Sql)
            else f"filter={chosen!r} is not made by roquette.sql('...')"
        )
    if isinstance(topic, Mapping) and (chosen is not None or tag != "*"):
        raise ConfigError("topics that are a mapping have their tags or filters in it")
    found = dict(topic) if isinstance(topic, Mapping) else {topic: chosen or tag}
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


def seconds_of(
    value: float | timedelta, what: str = "timeout", least: float = 0.0, most: float = math.inf
) -> float:
    """A span of time in seconds; raises ConfigError."""
    found = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(found, bool) or not isinstance(found, int | float) or math.isnan(found):
        raise ConfigError(f"{what}={value!r:.80} is no number of seconds and no timedelta")
    if not least <= found <= most:
        limits = f"{least:g} to {most:g}" if most < math.inf else f"at least {least:g}"
        raise ConfigError(f"{what}={value!r:.80} is not {limits} seconds")
    return float(found)


def milliseconds_of(
    value: float | timedelta | None, what: str = "timeout", least: float = 0.001
) -> int | None:
    """A span of time in whole milliseconds, None for None; raises ConfigError."""
    return None if value is None else math.ceil(seconds_of(value, what, least) * 1000)


def check_count(what: str, value: int, least: int = 1) -> None:
    """Raises ConfigError: not a whole number, or too small."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{what}={value!r} is not a whole number of at least {least}")
