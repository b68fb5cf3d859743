"""Settings of a client: each stated once, with its meaning; `ClientConfig` has the defaults.

A span of time is a number of seconds or a timedelta; `ClientConfig` has it in milliseconds, under the same name and `_ms`.
"""

import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict, TypeVar, cast

from roquette.base.options import Option, options_of, parse_duration
from roquette.client.arguments import check_words, seconds_of
from roquette.client.config import AccessWords, ClientConfig, access_of
from roquette.client.consumer_options import (
    ModelName,
    StartFrom,
    StartPoint,
    StrategyName,
    TopicOptions,
)
from roquette.errors import ConfigError
from roquette.message.compression import Compression

PREFIX: Final = "ROQUETTE_"
Span = float | timedelta
Given = TypeVar("Given", bound=TopicOptions)


class ConnectionSettings(TypedDict, total=False):
    """Settings of a client's connections to its cluster.

    Attributes:
        namespace: topics and groups stand as `namespace%name` at the brokers; the application sees its own names.
        namespace_v2: said with each request, for servers that keep namespaces apart by themselves; "" says nothing.
        call_timeout: for a request that is not a send or a pull (3 s). connect_timeout: for a connection (3 s).
        instance_name: rare: part of the client id; None makes one per client.
        local_host: rare: address to call from and to name in the client id; None finds it.
        poll_routes, heartbeat, compare_name_servers: rare: how often routes are asked for (30 s), brokers hear of us (30 s),
            and name servers' answers are compared (30 s).
    """

    namespace: str
    namespace_v2: str
    call_timeout: Span
    connect_timeout: Span
    instance_name: str | None
    local_host: str | None
    poll_routes: Span
    heartbeat: Span
    compare_name_servers: Span


class SendingSettings(TypedDict, total=False):
    """Settings of sending.

    Attributes:
        send_timeout: for all tries of a send together (3 s).
        send_attempts: 1 + retryTimesWhenSendFailed (3). With more than 1, brokers that cannot be reached are tried again until
            `send_timeout` is over.
        linger: how long `send` and `send_nowait` let a message wait for others to its topic, which then go as one batch (0: they
            go at once). What says a queue, a selector, a shard key, a delay, a priority or a timeout goes alone, as does what
            is large enough to be compressed; `flush` and `close` send what waits.
        compression, compress_over_bytes, compression_level: bodies over 4,096 bytes travel by zlib, level 5.
        max_message_size: of a body (4 MiB).
        max_in_flight: unanswered pipelined sends (`send_nowait`) per client (1,000); `max_bytes_in_flight`: of their bodies
            (100 MiB; Apache: backPressureForAsyncSendSize). A larger body goes alone.
        retry_another_broker_when_not_store_ok: `send` and `send_batch` try another broker when one stored a message less
            safely than it should (FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE): it may then be there twice.
        latency_fault_tolerance: sends that are waited for leave brokers alone that were slow or failed, for a while.
        detect_isolated_brokers: with it, a broker that did not answer is left alone until it answers a probe, which goes out
            each `detect_interval` (2 s) and waits for `detect_timeout` (0.2 s; Apache: startDetectorEnable).
        create_topic_key, default_topic_queues: rare: the topic that new ones are made by (TBW102), and their queues (4).
        max_delay_level: rare: the highest delay level that the brokers have (their messageDelayLevel; Apache's has 18).
    """

    send_timeout: Span
    send_attempts: int
    linger: Span
    compress_over_bytes: int
    compression: Compression
    compression_level: int
    max_message_size: int
    max_in_flight: int
    max_bytes_in_flight: int
    retry_another_broker_when_not_store_ok: bool
    latency_fault_tolerance: bool
    detect_isolated_brokers: bool
    detect_interval: Span
    detect_timeout: Span
    create_topic_key: str
    default_topic_queues: int
    max_delay_level: int


class ConsumingSettings(TypedDict, total=False):
    """Settings of consuming.

    Attributes:
        consume_timeout: how long a handler may take before its message goes back to the broker (15 min; not orderly).
        prefetch_bytes: bodies pulled and not yet handled, of all consumers of a client (64 MiB); beyond it only queues that
            have none pull (one batch).
        pull_threshold_count, pull_threshold_bytes: how many messages, and bytes of bodies, of one queue are fetched ahead of
            the handlers (1,000, 100 MiB); it may pass them by one batch.
        pull_threshold_topic_count, pull_threshold_topic_bytes: the same of all queues of one topic that a consumer has,
            divided evenly among them, at least 1 each; 0: no such limit.
        pull_threshold_span: how far apart the first and the last message at work of a queue may be (2,000).
        pull_batch: the most messages of one pull (32).
        offset_root: where broadcasting consumers keep their offsets; None is ~/.rocketmq_offsets.
        orderly_suspend: until a failed message is tried again in order (1 s).
        persist_offsets, rebalance, lock_interval: rare: how often offsets are saved (5 s), queues are shared again (20 s) and
            their locks renewed (20 s).
        pull_hold, pull_timeout, pull_retry, pull_pause: rare: how long a broker holds a pull (15 s) and its answer may take
            (30 s), and the pauses after one that failed (1 s) and while there is too much (50 ms).
    """

    consume_timeout: Span
    prefetch_bytes: int
    pull_threshold_count: int
    pull_threshold_bytes: int
    pull_threshold_topic_count: int
    pull_threshold_topic_bytes: int
    pull_threshold_span: int
    pull_batch: int
    offset_root: str | None
    orderly_suspend: Span
    persist_offsets: Span
    rebalance: Span
    lock_interval: Span
    pull_hold: Span
    pull_timeout: Span
    pull_retry: Span
    pull_pause: Span


class TracingSettings(TypedDict, total=False):
    """Settings of message trace.

    Attributes:
        trace: tell what is sent and handled to a topic that Apache's tools read (mqadmin queryMsgTraceById).
        trace_topic: that topic; None is RMQ_SYS_TRACE_TOPIC. The broker must have it, or make topics by itself.
    """

    trace: bool
    trace_topic: str | None


class ClientSettings(
    AccessWords,
    ConnectionSettings,
    SendingSettings,
    ConsumingSettings,
    TracingSettings,
    total=False,
):
    """All settings of a client. Each but who it is may also stand in the environment: `send_timeout` as ROQUETTE_SEND_TIMEOUT."""


def config_of(
    name_servers: str, settings: ClientSettings, environ: Mapping[str, str] = os.environ
) -> ClientConfig:
    """The configuration of a client: what is said, else what the environment says, else the defaults.

    Raises:
        ConfigError: a setting is wrong. TypeError: there is none of that name.
    """
    check_words("Client", settings, ClientSettings)
    tls, credentials = access_of(
        cast(AccessWords, {n: v for n, v in settings.items() if n in AccessWords.__annotations__})
    )
    given: dict[str, Any] = dict(settings)
    values: dict[str, Any] = {"tls": tls, "credentials": credentials}
    for option in options_of(ClientConfig).values():
        name = option.field.removesuffix("_ms")
        if option.field == "name_servers" or name not in ClientSettings.__annotations__:
            continue
        if name in given and name not in values:
            value = given[name]
            values[option.field] = _ms(option, value, name) if option.field != name else value
        elif (text := environ.get(PREFIX + name.upper())) is not None and name not in values:
            values[option.field] = _read(option, text, PREFIX + name.upper())
    return ClientConfig(
        name_servers=name_servers or environ.get("NAMESRV_ADDR", ""),
        **values,
    )


def options_of_call(call: str, given: Given, known: type, environ: Mapping[str, str]) -> Given:
    """The options of a call: what it says, else what the environment says, of PopOptions as ROQUETTE_POP_BATCH.

    Raises:
        ConfigError: the environment has what is no text, or cannot be read. TypeError: there is no option of that name.
    """
    check_words(call, given, known)
    found: dict[str, Any] = {**given}
    prefix = f"{PREFIX}{known.__name__.removesuffix('Options').upper()}_"
    for name, kind in known.__annotations__.items():
        text = environ.get(prefix + name.upper())
        if text is not None and name not in found:
            found[name] = _option(kind, text.strip(), prefix + name.upper())
    return cast(Given, found)


def _option(kind: Any, text: str, where: str) -> object:
    try:
        if kind in (Span, Span | None):
            return _seconds(text, where)
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if kind is int:
            return int(text)
        if kind == Sequence[int]:
            return [int(word) for word in text.split(",")]
        if kind == StartPoint:
            words = {"first": StartFrom.FIRST, "last": StartFrom.LAST}
            return words.get(text.lower()) or datetime.fromisoformat(text)
    except (KeyError, ValueError):
        raise ConfigError(f"{where}={text!r:.80} cannot be read") from None
    if kind is str or kind in (ModelName, StrategyName):
        return text  # the call says what it may be
    raise ConfigError(f"{where} cannot be said in the environment")


def _ms(option: Option, value: Span, name: str) -> int:
    seconds = seconds_of(value, name, (option.least or 0) / 1000)
    return max(round(seconds * 1000), 1 if seconds else 0)  # less is not nothing


def _read(option: Option, text: str, where: str) -> object:
    """A setting of the environment: spans of time as `5`, in seconds, or with a unit, `500ms`."""
    if not option.field.endswith("_ms"):
        return option.read(text, where)
    return _ms(option, _seconds(text.strip(), where), where)


def _seconds(text: str, where: str) -> float:
    try:
        return parse_duration(text) / 1000 if text[-1:].isalpha() else float(text)
    except ValueError:
        raise ConfigError(f"{where} must be a time such as 5, 500ms or 15m, not {text!r}") from None
