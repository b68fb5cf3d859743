"""Checks of settings: between brokers, and against what the cluster is to be."""

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final

from roquette.admin.doctor.checks.addresses import beyond_loopback, host_of, is_loopback
from roquette.admin.doctor.findings import Looks, Remedy, Severity, Sign, change_setting, command
from roquette.admin.facts import BrokerFacts, whole
from roquette.message.names import PERM_WRITE

_RATIOS: Final = "diskMaxUsedSpaceRatio diskSpaceCleanForciblyRatio diskSpaceWarningLevelRatio"
_DISK_KEYS: Final = (*_RATIOS.split(), "fileReservedTime", "deleteWhen")
_NAMED: Final = 5  # brokers in one line


def _on(broker: BrokerFacts, key: str) -> bool:
    return broker.settings.get(key, "") == "true"


def disk_limits(looks: Looks) -> Iterator[Sign]:
    """Brokers of a cluster with different limits of disk or retention."""
    for cluster in sorted({broker.cluster for broker in looks.now.answering()}):
        here = [broker for broker in looks.now.answering() if broker.cluster == cluster]
        for key in _DISK_KEYS:
            values: dict[str, list[str]] = {}
            for broker in here:
                if key in broker.settings:
                    values.setdefault(broker.settings[key], []).append(broker.label)
            if len(values) > 1:
                usual = max(values, key=lambda value: len(values[value]))
                others = [b for b in here if b.settings.get(key, usual) != usual]
                yield Sign(
                    f"cluster {cluster}, {key}",
                    "; ".join(f"{value}: {', '.join(labels)}" for value, labels in values.items()),
                    "brokers keep messages for different times, or refuse sends at different fillings: "
                    "a backlog can be read to its start on some of them only",
                    " ".join(change_setting(broker, key, usual) for broker in others[:_NAMED])
                    + ", and the same, or what you want, in the configuration of all of them",
                )


def asynchronous_flush(looks: Looks) -> Iterator[Sign]:
    """Messages that are acknowledged before they are on the disk."""
    for broker in looks.now.masters():
        if broker.settings.get("flushDiskType") != "ASYNC_FLUSH":
            continue
        role = broker.settings.get("brokerRole", "")
        copies = f"brokerRole={role}"
        if looks.intent.none_lost or role == "SYNC_MASTER":
            yield Sign(
                broker.label,
                f"flushDiskType=ASYNC_FLUSH, {copies}",
                "a message is acknowledged before it is on the disk: what came in the last half second is lost with the "
                "machine's power, and with all copies when all machines lose it",
                "set flushDiskType=SYNC_FLUSH in its configuration and restart it",
                Severity.ERROR if looks.intent.none_lost else None,
            )


def closed(looks: Looks) -> Iterator[Sign]:
    """Brokers that clients send nothing to, by a drain that was not taken back, or by their permission."""
    drained = {name for server in looks.now.name_servers for name in server.drained}
    for broker in looks.now.masters():
        perm = whole(broker.settings.get("brokerPermission", ""))
        if broker.name in drained:
            cause = "name servers have a drain's note: it holds after a restart, too"
            fix = command("broker", "restore", broker.name)
        elif perm is not None and not perm & PERM_WRITE:
            cause = "somebody took its permission to write: other brokers have its load"
            fix = change_setting(broker, "brokerPermission", perm | PERM_WRITE)
        else:
            continue
        yield Sign(broker.label, f"brokerPermission={perm}", cause, fix)


def auto_creation(looks: Looks) -> Iterator[Sign]:
    """Brokers that make a topic of every name somebody sends to, outside of trials."""
    if not (looks.intent.production or beyond_loopback(looks.now)):
        return
    for broker in looks.now.masters():
        if _on(broker, key := "autoCreateTopicEnable"):
            undo = change_setting(broker, key, "true")
            yield Sign(
                broker.label,
                "autoCreateTopicEnable=true",
                "a misspelt name becomes a topic that nobody consumes; with Apache's brokers, on one broker only",
                f"{change_setting(broker, key, 'false')}, and in its configuration, or its next start forgets it",
                Severity.WARNING if looks.intent.production else None,
                (Remedy(broker.name, broker.address, undo, setting=key, value="false"),),
            )


def _is_public(address: str) -> bool:
    try:
        return ip_address(host_of(address)).is_global
    except ValueError:
        return False


def open_cluster(looks: Looks) -> Iterator[Sign]:
    """Brokers that let everybody in, and that other machines reach."""
    for broker in looks.now.masters():
        closed = _on(broker, "authenticationEnabled") or _on(broker, "aclEnable")
        if closed or not broker.settings or is_loopback(broker.address):
            continue
        public = _is_public(broker.address)
        yield Sign(
            broker.label,
            f"advertised {broker.address}; authenticationEnabled and aclEnable are off",
            "whoever reaches the port reads, writes and deletes everything",
            "docs/security.md: `roquette tls init`, `roquette user create admin --super`, then authenticationEnabled=true",
            Severity.WARNING if public or looks.intent.production else None,
        )
