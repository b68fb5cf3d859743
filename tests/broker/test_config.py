"""The broker's settings."""

import pytest

from roquette.broker.config import BrokerConfig, LiveConfig, name_servers
from roquette.errors import ConfigError
from roquette.store.config import StoreConfig


def test_name_servers_are_split_and_each_counted_once():
    config = BrokerConfig(namesrv_addr=" a:1; b:2;a:1;")

    assert name_servers(config) == ["a:1", "b:2"]


def test_settings_that_may_change_do_and_the_version_moves():
    live = LiveConfig(BrokerConfig(), StoreConfig(), 1)
    told = []
    live.changed = told.append
    live.update({"brokerPermission": "4", "fileReservedTime": "5", "nobodysKey": "x"})

    assert live.current.broker_permission == 4
    assert live.store.file_reserved_hours == 5
    assert live.version().counter == 1
    assert told == [["brokerPermission", "fileReservedTime", "nobodysKey"]]


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
