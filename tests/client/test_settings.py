"""Settings of a client: each has a name, a type and a default in one place each, and comes from the program or the environment."""

from datetime import timedelta
from typing import Any

import pytest

from roquette import Client, ClientSettings, ConfigError
from roquette.base.options import options_of
from roquette.client.access import AccessWords
from roquette.client.config import ClientConfig
from roquette.client.settings import config_of
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
