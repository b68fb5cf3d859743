"""Settings of a client: each has a name, a type and a default in one place each, and comes from the program or the environment."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from roquette import (
    Client,
    ClientSettings,
    ConfigError,
    ConsumerOptions,
    PopOptions,
    ReaderOptions,
    ServeOptions,
    StreamOptions,
)
from roquette.base.options import options_of
from roquette.client.config import AccessWords, ClientConfig
from roquette.client.consumer_options import OffsetStore, Revoked, Sql, StartFrom
from roquette.client.settings import config_of, options_of_call
from roquette.message.compression import Compression

WHERE = "127.0.0.1:9876"


def test_each_field_of_the_configuration_is_a_setting() -> None:
    fields = {option.field.removesuffix("_ms") for option in options_of(ClientConfig).values()}
    own = set(ClientSettings.__annotations__) - set(AccessWords.__annotations__)
    assert fields - {"name_servers", "tls", "credentials"} == own


def test_what_is_not_said_is_the_default() -> None:
    assert config_of(WHERE, {}, {}) == ClientConfig(name_servers=WHERE)


def test_spans_of_time_are_seconds_or_timedeltas() -> None:
    made = config_of(WHERE, {"send_timeout": 0.25, "heartbeat": timedelta(minutes=1)}, {})
    assert (made.send_timeout_ms, made.heartbeat_ms) == (250, 60_000)
    for wrong in ("5", -1, True, None, float("nan")):
        with pytest.raises(ConfigError, match="send_timeout"):
            config_of(WHERE, {"send_timeout": wrong}, {})  # type: ignore[typeddict-item]


def test_the_environment_says_what_the_program_does_not() -> None:
    environ = {
        "NAMESRV_ADDR": "10.0.0.1:9876",
        "ROQUETTE_SEND_TIMEOUT": "5",
        "ROQUETTE_CALL_TIMEOUT": "500ms",
        "ROQUETTE_TRACE": "true",
        "ROQUETTE_COMPRESSION": "zstd",
        "ROQUETTE_SEND_ATTEMPTS": "7",
        "ROQUETTE_ACCESS_KEY": "alice",
        "ROQUETTE_CREDENTIALS": "alice",
        "ROQUETTE_TLS": "true",
    }
    made = config_of("", {"send_attempts": 2}, environ)
    assert made == ClientConfig(
        name_servers="10.0.0.1:9876",
        send_timeout_ms=5_000,
        call_timeout_ms=500,
        trace=True,
        compression=Compression.ZSTD,
        send_attempts=2,
    )
    assert config_of(WHERE, {}, environ).name_servers == WHERE


@pytest.mark.parametrize(
    ("name", "text"),
    [("SEND_TIMEOUT", "soon"), ("SEND_TIMEOUT", "0"), ("SEND_ATTEMPTS", "many"), ("TRACE", "yes")],
)
def test_what_the_environment_says_wrongly_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"(?i){name}"):
        config_of(WHERE, {}, {f"ROQUETTE_{name}": text})


def test_an_unknown_setting_names_the_one_that_was_meant() -> None:
    words: dict[str, Any] = {"send_timeuot": 5}
    with pytest.raises(TypeError, match=r"'send_timeuot'; did you mean send_timeout\?"):
        Client(WHERE, **words)


SAID = {  # one text for each kind of option
    "tag": ("new", "new"),
    "start_from": ("last", StartFrom.LAST),
    "max_reconsume_times": ("3", 3),
    "timeout": ("500ms", 0.5),
    "model": ("broadcasting", "broadcasting"),
    "strategy": ("AVG_BY_CIRCLE", "AVG_BY_CIRCLE"),
    "retry_levels": ("1, 2,3", [1, 2, 3]),
    "concurrency": ("7", 7),
    "orderly": ("True", True),
    "invisible": ("90", 90.0),
    "batch": ("8", 8),
    "renew": ("false", False),
    "auto_commit": ("5", 5.0),
    "max_messages": ("100", 100),
    "max_bytes": ("1000", 1000),
}


@pytest.mark.parametrize(
    "known", [ConsumerOptions, StreamOptions, ServeOptions, PopOptions, ReaderOptions]
)
def test_each_option_of_consumers_may_stand_in_the_environment(known: Any) -> None:
    prefix = f"ROQUETTE_{known.__name__.removesuffix('Options').upper()}_"
    for name, kind in known.__annotations__.items():
        if kind in (Sql | None, Revoked | None, OffsetStore | None):
            with pytest.raises(ConfigError, match=f"{prefix}{name.upper()} cannot be said"):
                options_of_call("call", {}, known, {prefix + name.upper(): "x"})
            continue
        text, value = SAID[name]
        environ = {prefix + name.upper(): text}
        assert options_of_call("call", {}, known, environ) == {name: value}
        said: Any = {name: "said"}
        assert options_of_call("call", said, known, environ) == said  # what the program says wins
        if not isinstance(value, str) or name == "start_from":
            with pytest.raises(ConfigError, match=prefix + name.upper()):
                options_of_call("call", {}, known, {prefix + name.upper(): "wrong"})


def test_a_start_may_be_a_time() -> None:
    environ = {"ROQUETTE_READER_START_FROM": "2026-11-27T12:00:00Z"}
    found = options_of_call("reader", {}, ReaderOptions, environ)
    assert found == {"start_from": datetime(2026, 11, 27, 12, tzinfo=UTC)}


def test_each_call_takes_its_options_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    mq = Client(WHERE)

    async def handle(message: Any) -> None: ...

    calls: dict[str, Any] = {
        "CONSUMER": lambda: mq.subscribe("t", handle, group="g"),
        "STREAM": lambda: mq.consume("t", group="g"),
        "SERVE": lambda: mq.serve("t", handle, group="g"),
        "POP": lambda: mq.pop("t", group="g"),
        "READER": lambda: mq.reader(group="g"),
    }
    for name, call in calls.items():
        monkeypatch.setenv(f"ROQUETTE_{name}_TAG", "*")
        monkeypatch.setenv(f"ROQUETTE_{name}_START_FROM", "noon")
        with pytest.raises(ConfigError, match=f"ROQUETTE_{name}_START_FROM='noon' cannot be read"):
            call()
