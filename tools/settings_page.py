"""Makes docs/reference/settings.md and the tables of docs/reference/spark-options.md: `python tools/settings_page.py`.

Every key of Apache's is in the former once for each server.

What a key does stands in the config classes and in base/foreign_keys.py; Apache's defaults in tests/golden/settings.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from roquette.access.model import AccessSettings
from roquette.base.config import ForeignKeys, env_key
from roquette.base.foreign_keys import BROKER, NAMESRV, PROXY
from roquette.base.log_settings import LogSettings
from roquette.base.options import Option, options_of
from roquette.broker.floor.config import BrokerConfig
from roquette.nameserver.floor.config import NamesrvConfig
from roquette.proxy.settings import ClusterSettings, ProxySettings
from roquette.remoting.certificates import TlsSettings
from roquette.remoting.settings import DoorSettings
from roquette.store.format.config import StoreConfig
from roquette_spark.commitlog.files import CommitLogOptions
from roquette_spark.offsets.source import OffsetsOptions
from roquette_spark.values.options import AccessOptions, ReadOptions, WriteOptions

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "settings.md"
SPARK_PAGE = ROOT / "docs" / "reference" / "spark-options.md"
GOLDEN = ROOT / "tests" / "golden" / "settings" / "cases.json"
TLS = {  # Apache's defaults, of TlsSystemConfig; empty texts are none
    "tls.enable": "true if tls.server.mode=enforcing",
    "tls.config.file": "/etc/rocketmq/tls.properties",
    "tls.test.mode.enable": "true",
    "tls.server.mode": "permissive",
    "tls.server.need.client.auth": "none",
    "tls.server.authClient": "false",
    "tls.client.authServer": "false",
    **dict.fromkeys(
        [
            f"tls.{end}.{key}"
            for end in ("server", "client")
            for key in ("certPath", "keyPath", "keyPassword", "trustCertPath")
        ],
        "",
    ),
}
APACHE_PROXY = {  # Apache's defaults of ProxyConfig, of the keys that we have
    "namesrvAddr": "",
    "rocketMQClusterName": "DefaultCluster",
    "grpcServerPort": "8081",
    "remotingListenPort": "8080",
    "grpcShutdownTimeSeconds": "30",
    "maxMessageSize": "4194304",
    "maxUserPropertySize": "16384",
    "userPropertyMaxNum": "128",
    "maxMessageGroupSize": "64",
    "defaultInvisibleTimeMills": "60000",
    "minInvisibleTimeMillsForRecv": "10000",
    "maxInvisibleTimeMills": "43200000",
    "maxDelayTimeMills": "86400000",
    "maxTransactionRecoverySecond": "3600",
    "enableTopicMessageTypeCheck": "true",
    "grpcClientProducerMaxAttempts": "3",
    "grpcClientProducerBackoffInitialMillis": "10",
    "grpcClientProducerBackoffMaxMillis": "1000",
    "grpcClientProducerBackoffMultiplier": "2",
    "grpcClientConsumerMinLongPollingTimeoutMillis": "5000",
    "grpcClientConsumerMaxLongPollingTimeoutMillis": "20000",
    "grpcClientConsumerLongPollingBatchSize": "32",
    "grpcClientIdleTimeMills": "120000",
    "enableProxyAutoRenew": "true",
    "useDelayLevel": "false",
    "proxyMode": "CLUSTER",
}
SHARED = ("NettyServerConfig", "NettyClientConfig", "AuthConfig")
HEAD = """# Settings

Made by `tools/settings_page.py` out of the table that the servers go by: the config classes and `base/foreign_keys.py`. Do not edit by hand.

A setting comes from its default, the property file (`-c FILE`), the environment (`ROQUETTE_` and the key in upper snake case, e.g. `{env}`)
and flags (`--set KEY=VALUE`; none for secrets, which all users of a machine would see), the later before the earlier. A value that does not fit its key ends the start; an unknown key is warned of.
UPDATE_BROKER_CONFIG and UPDATE_NAMESRV_CONFIG (`mqadmin updateBrokerConfig`, `updateNamesrvConfig`) change what the tables say may change at
run time, at once and until the server ends, and refuse everything else by name. "Apache" is the default of Apache's 5.5.0, where it is another
one; "ours" says that Apache's has no such key.

**What waits.** One loop serves all requests, so that a queue of requests is what arrived and was not taken up yet: behind more than 512 of its kind
that came together, while the loop is at work for others, or while a peer does not read its answers. The time in queue
(`waitTimeMillsIn*Queue`) is the time from the read off the socket to the turn that takes a request up; waiting for a sync of the disk, or for messages,
comes later and is not counted. What is refused for it is answered SYSTEM_BUSY with Apache's `[TIMEOUT_CLEAN_QUEUE]` in that turn; Apache's broker
looks every 10 ms. A request that finds `*QueueCapacity` others of its kind waiting on its port is answered SYSTEM_BUSY with `[OVERLOAD]` at once.
"""
NOTES = {
    "maxTopicLength": "Apache's broker does not look at it",
    "validateSystemTopicWhenUpdateTopic": "Apache's broker deletes them, too, when it is false",
    "channelExpiredTimeout": "producers: 120 s, as there",
}


SPARK_OPTIONS = {
    "rocketmq, reading": ReadOptions,
    "rocketmq, writing": WriteOptions,
    "rocketmq_commitlog": CommitLogOptions,
    "rocketmq_offsets": OffsetsOptions,
    "access": AccessOptions,
}


def main() -> None:
    """Write the pages."""
    PAGE.write_text(page())
    SPARK_PAGE.write_text(spark_page(SPARK_PAGE.read_text()))


def spark_page(text: str) -> str:
    """The page of Spark's options with the tables between its marks made again."""

    def table(match: re.Match[str]) -> str:
        cls = SPARK_OPTIONS[match[2]]
        inherited = options_of(AccessOptions) if cls is not AccessOptions else ()
        own = [known for name, known in options_of(cls).items() if name not in inherited]
        rows = [option_row(known) for known in own]
        return "\n".join(
            [match[1], "| option | default | meaning |", "|---|---|---|", *rows, match[3]]
        )

    return re.sub(r"(<!-- options: (.*?) -->)\n.*?(<!-- end -->)", table, text, flags=re.S)


def option_row(known: Option) -> str:
    """The row of an option of Spark's."""
    names = f"`{known.name}`" + "".join(f", also `{name}`" for name in known.also)
    if known.required or known.unset:
        default = known.unset or "required"
    else:
        text = known.written or known.text(known.default)
        default = shown(text) if text not in ("", "()") else ""
    return f"| {names} | {default} | {known.help.replace('|', chr(92) + '|')} |"


def page() -> str:
    """The page's text."""
    golden = json.loads(GOLDEN.read_text())
    shared = {key: value for name in SHARED for key, value in golden[name].items()} | TLS
    broker = shared | golden["MessageStoreConfig"] | golden["BrokerConfig"]
    return "\n".join(
        [
            HEAD.format(env=env_key("brokerName")),
            *part(
                "Broker",
                (BrokerConfig, StoreConfig, TlsSettings, DoorSettings, AccessSettings, LogSettings),
                BROKER,
                broker,
            ),
            *part(
                "Name server",
                (NamesrvConfig, TlsSettings, DoorSettings, AccessSettings, LogSettings),
                NAMESRV,
                shared | golden["NamesrvConfig"],
            ),
            *part(
                "Proxy",
                (
                    ClusterSettings,
                    ProxySettings,
                    TlsSettings,
                    DoorSettings,
                    AccessSettings,
                    LogSettings,
                ),
                PROXY,
                shared | APACHE_PROXY,
            ),
        ]
    )


def part(
    title: str, classes: Iterable[type[Any]], foreign: ForeignKeys, apache: Mapping[str, str]
) -> list[str]:
    """One server's three tables."""
    known = {key: each for cls in classes for key, each in options_of(cls).items()}
    lines = [f"## {title}: served", ""]
    lines += ["| key | default | Apache | at run time | what it says |", "|---|---|---|---|---|"]
    for key in sorted(known, key=str.lower):
        lines.append(served(known[key], apache))
    lines += ["", f"## {title}: refused", ""]
    lines += ["The server does not start with any other value than these.", ""]
    lines += ["| key | harmless | Apache | what it asks for |", "|---|---|---|---|"]
    for key, asked in sorted(foreign.refused.items()):
        if key not in known:
            harmless = ", ".join(f"`{text}`" for text in sorted(asked.harmless) if text) or "none"
            was = shown(apache[key]) if key in apache else "-"
            meaning = f"{asked.meaning}: say `{asked.instead}`" if asked.instead else asked.meaning
            meaning += f", {asked.how}" if asked.how else ""
            lines.append(f"| `{key}` | {harmless} | {was} | {meaning} |")
    lines += ["", f"## {title}: without effect", ""]
    lines += ["Taken, and told in the log at start.", ""]
    lines += ["| why | keys, and Apache's defaults |", "|---|---|"]
    reasons: dict[str, list[str]] = {}
    for key, why in foreign.idle.items():
        default = f"={apache[key]}" if apache.get(key) else ""
        reasons.setdefault(why, []).append(f"`{key}{default}`")
    lines += [f"| {why} | {', '.join(keys)} |" for why, keys in reasons.items()]
    return [*lines, ""]


def served(known: Option, apache: Mapping[str, str]) -> str:
    """The row of a key that is served."""
    key, ours = known.name, known.text(known.default)
    if key not in apache:
        other = "ours"
    else:
        other = "" if apache[key] == ours or not apache[key] else shown(apache[key])
    if not known.mutable:
        when = "no"
    elif known.most is None:
        when = "yes"
    else:
        when = f"{known.least} to {known.most}"
    note = f" ({NOTES[key]})" if key in NOTES else ""
    text = known.help.replace("|", "\\|")
    default = known.unset or shown(ours)
    return f"| `{key}` | {default} | {other} | {when} | {text}{note} |"


def shown(text: str) -> str:
    """A value in a table."""
    return f"`{text}`" if text else "-"


if __name__ == "__main__":
    main()
