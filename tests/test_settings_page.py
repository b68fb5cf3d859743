"""docs/reference/settings.md is what the servers go by, and leaves out no key of Apache's."""

import collections
import json
import re
from pathlib import Path

import pytest
from tools import workspace
from tools.settings_page import (
    APACHE_PROXY,
    GOLDEN,
    PAGE,
    SHARED,
    SPARK_PAGE,
    page,
    spark_page,
)

from roquette.access.model import AccessSettings
from roquette.apps.proxy import proxy_settings, sources_of
from roquette.base.config import ForeignKeys, to_properties
from roquette.base.foreign_keys import BROKER, NAMESRV, PROXY
from roquette.base.log_settings import LogSettings
from roquette.base.options import options_of
from roquette.broker.floor.config import BrokerConfig
from roquette.nameserver.floor.config import NamesrvConfig
from roquette.proxy.settings import ClusterSettings, ProxySettings
from roquette.remoting.certificates import TlsSettings
from roquette.remoting.settings import DoorSettings
from roquette.store.format.config import StoreConfig

APACHE = json.loads(GOLDEN.read_text())
SERVERS = {
    "Broker": (
        (BrokerConfig, StoreConfig, TlsSettings, DoorSettings, AccessSettings, LogSettings),
        BROKER,
        ("BrokerConfig", "MessageStoreConfig", *SHARED),
    ),
    "Name server": (
        (NamesrvConfig, TlsSettings, DoorSettings, AccessSettings, LogSettings),
        NAMESRV,
        ("NamesrvConfig", *SHARED),
    ),
}


def keys_of(heading: str) -> list[str]:
    """The keys of one of the page's tables; those without effect are in its second column."""
    (part,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
    rows = [row.split("|") for row in part.splitlines() if row.startswith("|") and "`" in row]
    if heading.endswith("without effect"):
        return [key for row in rows for key in re.findall(r"`([^`=]+)[^`]*`", row[2])]
    return [row[1].strip(" `") for row in rows]


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run python tools/settings_page.py"


def test_the_tables_of_sparks_options_are_current() -> None:
    text = SPARK_PAGE.read_text()

    assert text == spark_page(text), "run python tools/settings_page.py"
    assert text.count("<!-- options: ") == 5


@pytest.mark.promise(
    "Refusals", "every key of Apache's is served, refused, or has no effect for a stated reason"
)
@pytest.mark.parametrize("server", SERVERS)
def test_every_key_of_apaches_is_there_once_and_says_what_the_server_does(server: str) -> None:
    classes, foreign, names = SERVERS[server]
    served = keys_of(f"{server}: served")
    refused = keys_of(f"{server}: refused")
    idle = keys_of(f"{server}: without effect")

    assert sorted(served) == sorted(key for cls in classes for key in options_of(cls))
    assert sorted(refused) == sorted(set(foreign.refused) - set(served))
    assert sorted(idle) == sorted(foreign.idle)
    times = collections.Counter([*served, *refused, *idle])
    assert {key for key, count in times.items() if count != 1} == set()
    wanted = {key for name in names for key in APACHE[name]}
    assert wanted - set(times) == set()


@pytest.mark.parametrize("foreign", [BROKER, NAMESRV], ids=["broker", "namesrv"])
def test_a_key_has_one_reason(foreign: ForeignKeys) -> None:
    text = (workspace.PRODUCT / "base" / "foreign_keys.py").read_text()
    for key in foreign.idle:
        assert len(re.findall(rf"(?<![\w.]){key}(?![\w.])", text)) == 1, key
        assert key not in foreign.refused, key


def test_the_proxys_keys_are_spelt_as_apaches(tmp_path: Path) -> None:
    file = tmp_path / "rmq-proxy.json"
    file.write_text('{"minInvisibleTimeMillsForRecv": 3000, "namesrvAddr": "10.0.0.1:9876"}')
    settings = proxy_settings(sources_of(str(file), {}, {}))
    assert settings.proxy.min_invisible_time_mills_for_recv == 3000
    served = {*options_of(ClusterSettings), *options_of(ProxySettings), *PROXY.refused}
    assert set(APACHE_PROXY) - served == set()


def test_every_setting_is_read_somewhere() -> None:
    sources = [
        path.read_text()
        for path in workspace.PRODUCT.rglob("*.py")
        if path.name != "foreign_keys.py"
    ]
    for cls in (
        BrokerConfig,
        StoreConfig,
        NamesrvConfig,
        TlsSettings,
        DoorSettings,
        AccessSettings,
        LogSettings,
    ):
        for known in options_of(cls).values():
            assert any(re.search(rf"\.{known.field}\b", text) for text in sources), known.name


def test_the_same_default_as_apaches_where_no_page_says_otherwise() -> None:
    ours = to_properties(BrokerConfig()) | to_properties(StoreConfig())
    apache = {key: value for name in SERVERS["Broker"][2] for key, value in APACHE[name].items()}
    apache |= APACHE["MessageStoreConfig"] | APACHE["BrokerConfig"]
    others = {key for key, value in ours.items() if apache.get(key) and apache[key] != value}
    assert others == {"enablePropertyFilter", "haListenPort", "haTransferBatchSize", "listenPort"}
