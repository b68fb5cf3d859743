"""The broker's settings."""

import pytest

from roquette.apps.broker import broker_settings
from roquette.apps.namesrv import namesrv_settings
from roquette.base.config import NO_FOREIGN_KEYS, Sources, with_changes
from roquette.base.foreign_keys import BROKER, NAMESRV
from roquette.base.options import options_of
from roquette.broker.floor.config import BrokerConfig, LiveConfig, name_servers
from roquette.errors import ConfigError
from roquette.nameserver.floor.config import NamesrvConfig
from roquette.store.format.config import StoreConfig

REFUSED = "(which Roquette does not have|: say .* instead)"


def test_name_servers_are_split_and_each_counted_once():
    config = BrokerConfig(namesrv_addr=" a:1; b:2;a:1;")

    assert name_servers(config) == ["a:1", "b:2"]


def test_settings_that_may_change_do_and_the_version_moves():
    live = LiveConfig(BrokerConfig(), StoreConfig(), 1)
    told = []
    live.changed.append(told.append)
    live.update({"brokerPermission": "4", "fileReservedTime": "5"})

    assert live.current.broker_permission == 4
    assert live.store.file_reserved_hours == 5
    assert live.version().counter == 1
    assert told == [["brokerPermission", "fileReservedTime"]]


def test_settings_that_may_not_change_are_refused_whole():
    live = LiveConfig(BrokerConfig(), StoreConfig(), 1)

    with pytest.raises(ConfigError, match="listenPort"):
        live.update({"brokerPermission": "4", "listenPort": "1"})
    assert live.current.broker_permission == 6


def test_all_settings_are_shown_under_apaches_keys():
    shown = LiveConfig(BrokerConfig(), StoreConfig(), 1).properties()

    assert shown["listenPort"] == "10911"
    assert shown["flushDiskType"] == "ASYNC_FLUSH"
    assert shown["autoCreateTopicEnable"] == "true"


HOSTILE = (
    *(
        "",
        " ",
        "0",
        "-1",
        "1",
        "99",
        "99;x",
        "25",
        "true",
        "TRUE ",
        "yes",
        "x",
        "1.5",
        "1e9",
        "0x10",
        "\0",
    ),
    *(str(2**bits + more) for bits in (31, 32, 63, 64) for more in (-1, 0)),
    *("99999999999", "9" * 5000, "/etc/passwd", "http://x/", "a:1;/b", "\u0661"),
)
MUTABLE = [
    (kind, key)
    for kind in (BrokerConfig, StoreConfig, NamesrvConfig)
    for key, known in options_of(kind).items()
    if known.mutable
]


@pytest.mark.parametrize(("kind", "key"), MUTABLE, ids=lambda each: getattr(each, "__name__", each))
def test_what_a_request_may_change_stays_within_stated_bounds(kind, key):
    known = options_of(kind)[key]
    assert known.choices or known.most is not None or known.kind.parse is not None
    told: list[str] = []
    for text in HOSTILE:
        try:
            (changed,) = with_changes((kind(),), {key: text}, NO_FOREIGN_KEYS)
        except ConfigError as error:
            told.append(str(error))
            continue
        value = getattr(changed, known.field)
        if known.choices:
            assert text.strip().lower() in [choice.lower() for choice in known.choices]
        elif known.type is int:
            assert known.least <= value <= known.most, text
        else:
            assert "/" not in value
    assert all(line.startswith(f"{key} in the request must be ") for line in told)


@pytest.mark.promise("Refusals", "a change that would do nothing is refused")
@pytest.mark.parametrize("key", ["nobodysKey", "brokerPermision", *BROKER.idle, *BROKER.refused])
def test_a_change_that_would_do_nothing_is_no_success(key):
    live = LiveConfig(BrokerConfig(), StoreConfig(), 1)

    with pytest.raises(ConfigError, match=key):
        live.update({"autoCreateTopicEnable": "false", key: "SYNC_MASTER"})
    assert live.current.auto_create_topic_enable


@pytest.mark.promise("Refusals", "a server that is asked for a guarantee it lacks does not start")
@pytest.mark.parametrize("source", ["file", "--set"])
@pytest.mark.parametrize("key", BROKER.refused)
def test_a_broker_asked_for_a_guarantee_it_lacks_does_not_start(key, source):
    for text in ("true", "SYNC_MASTER", "SLAVE", "2", "/elsewhere", "enforcing"):
        line, flags = (f"{key}={text}", {}) if source == "file" else ("", {key: text})
        with pytest.raises(ConfigError, match=f"{key}={text} in .*{REFUSED}"):
            broker_settings(Sources(file_text=line, overrides=flags))
    for text in BROKER.refused[key].harmless:
        broker_settings(Sources(file_text=f"{key}={text.upper()}"))


@pytest.mark.promise("Refusals", "a server that is asked for a guarantee it lacks does not start")
@pytest.mark.parametrize("key", NAMESRV.refused)
def test_a_name_server_asked_for_protection_does_not_start(key):
    with pytest.raises(ConfigError, match=REFUSED):
        namesrv_settings(Sources(file_text=f"{key}=true"))
    namesrv_settings(Sources(file_text=f"{key}="))


def test_settings_of_ports_and_accounts_are_shown_beside_the_others():
    live = LiveConfig(BrokerConfig(), StoreConfig(), 1)
    live.fixed = {"useTLS": "false", "listenPort": "1"}

    shown = live.properties()

    assert (shown["useTLS"], shown["listenPort"]) == ("false", "10911")


def test_a_permission_that_stays_is_told_nevertheless():
    live, told = LiveConfig(BrokerConfig(), StoreConfig(), 1), []
    live.changed.append(told.append)

    live.update({"brokerPermission": "6"})
    live.update({"traceOn": "true"})

    assert told == [["brokerPermission"]], "that undoes a wiped write permission"
