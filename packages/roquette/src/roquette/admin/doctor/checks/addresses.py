"""Checks of addresses: who can be reached, who answers, and what name servers say of brokers."""

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, ip_address
from typing import Final, NamedTuple

from roquette.admin.doctor.findings import Looks, Remedy, Severity, Sign, change_setting, command
from roquette.admin.facts import About, BrokerFacts, ClusterFacts, whole
from roquette.base.options import split_addresses
from roquette.message.names import PERM_WRITE

# Docker's bridges, Docker Desktop, Podman, k3s, and Kubernetes with flannel or kind.
_NETWORKS: Final = "172.16.0.0/12 192.168.65.0/24 10.88.0.0/16 10.42.0.0/16 10.244.0.0/16"
_CONTAINER_NETWORKS: Final = tuple(map(IPv4Network, _NETWORKS.split()))
_DOCKER0: Final = IPv4Network("172.17.0.0/16")
_SAME_NETWORK: Final = 16  # leading bits


def host_of(address: str) -> str:
    """Of `host:port`."""
    return address.rpartition(":")[0].strip("[]")


def is_loopback(address: str) -> bool:
    """Return True when nobody but this machine can mean the address."""
    host = host_of(address)
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def beyond_loopback(facts: ClusterFacts) -> bool:
    """Return True when any broker is advertised to other machines."""
    return any(not is_loopback(broker.address) for broker in facts.brokers)


def _ipv4(address: str) -> IPv4Address | None:
    try:
        found = ip_address(host_of(address))
    except ValueError:
        return None
    return found if isinstance(found, IPv4Address) else None


def unreachable(looks: Looks) -> Iterator[Sign]:
    """Advertised addresses nobody answers at."""
    for broker in looks.now.brokers:
        if broker.error and not broker.connected and not _inside_container(looks.now, broker):
            yield Sign(
                broker.about,
                f"{broker.address}: {broker.error}",
                "clients are sent to this address; the broker is down and still registered, a firewall is between, "
                "or the broker tells an address that is not its own",
                f"start the broker, or set brokerIP1 to an address that clients reach (now {host_of(broker.address)}) and restart it",
            )


def _inside_container(facts: ClusterFacts, broker: BrokerFacts) -> bool:
    """Return True when the address is one that only its host, or its own network, knows."""
    address = _ipv4(broker.address)
    ours = [found for server in facts.name_servers if (found := _ipv4(server.address))]
    if address is None or not ours:
        return False
    mask = (2**_SAME_NETWORK - 1) << (32 - _SAME_NETWORK)
    if any(int(address) & mask == int(other) & mask for other in ours):
        return False  # who asks came through the same network
    if broker.error and not broker.connected:
        return address.is_loopback or any(address in net for net in _CONTAINER_NETWORKS)
    return address in _DOCKER0


def container_address(looks: Looks) -> Iterator[Sign]:
    """Brokers that tell clients the address they have inside a container."""
    for broker in looks.now.brokers:
        if _inside_container(looks.now, broker):
            reached = not broker.error
            told = "reached from this machine" if reached else f"not reached: {broker.error}"
            yield Sign(
                broker.about,
                f"advertised {broker.address}, {told}; the name servers are elsewhere",
                "the address is of a container or of loopback: clients on other machines cannot reach it",
                "set brokerIP1 to the host's address and publish the port, then restart the broker",
                Severity.WARNING if reached else None,
            )


def silent(looks: Looks) -> Iterator[Sign]:
    """Brokers that let us connect and do not answer, or refuse to tell."""
    for broker in looks.now.brokers:
        if broker.error and broker.connected:
            yield Sign(
                broker.about,
                f"{broker.address}: {broker.error}",
                "the process hangs, is overloaded, or does not know who asks",
                "look at the broker's log; a closed cluster needs --login FILE of an administrator",
            )


def refused(looks: Looks) -> Iterator[Sign]:
    """Brokers that do not tell us all: what they keep back may be wrong as well."""
    for broker in looks.now.answering():
        if broker.refused:
            yield Sign(
                broker.about,
                f"not told: {'; '.join(broker.refused)}",
                "who asks may not know it, so that most checks saw nothing",
                "ask with --login FILE of an administrator",
            )


def silent_name_server(looks: Looks) -> Iterator[Sign]:
    """Name servers that do not answer while others do."""
    for server in looks.now.name_servers:
        if server.error:
            yield Sign(
                About(other=f"name server {server.address}"),
                server.error,
                "it is down, or not reachable from here: clients that ask it first wait",
                "start it, or take it out of every client's and broker's list of name servers",
            )


class _Registered(NamedTuple):
    """A broker process as a name server knows it."""

    name: str
    broker_id: int
    address: str


def _known(facts: ClusterFacts) -> dict[str, set[_Registered]]:
    """By name server that answers: the brokers it knows."""
    return {
        server.address: {
            _Registered(name, broker_id, address)
            for name, data in server.cluster.broker_addr_table.items()
            for broker_id, address in data.broker_addrs.items()
        }
        for server in facts.name_servers
        if not server.error
    }


def unknown_broker(looks: Looks) -> Iterator[Sign]:
    """Brokers that one name server knows and another does not; in both looks, when there are two."""
    for missing, broker in sorted(_unknown(looks.now)):
        if looks.before is None or (missing, broker) in _unknown(looks.before):
            yield Sign(
                About(broker=broker.name),
                f"registered as {broker.address}; name server {missing} does not know it",
                "its list of name servers (namesrvAddr) lacks this one, or it cannot reach it",
                _way_to(missing, looks.now, broker),
            )


def _way_to(missing: str, facts: ClusterFacts, wanted: _Registered) -> str:
    """Its whole list with the missing one: what is set takes the place of what was."""
    for broker in facts.brokers:
        listed = split_addresses(broker.settings.get("namesrvAddr", ""))
        same = _Registered(broker.name, broker.broker_id, broker.address) == wanted
        if same and listed and missing not in listed:
            way = change_setting(broker, "namesrvAddr", ";".join([*listed, missing]))
            return f"{way}, and in its configuration, or its next start forgets it"
    return f"open the way from {wanted.address} to {missing}, and see that namesrvAddr of the broker has it"


def _unknown(facts: ClusterFacts) -> set[tuple[str, _Registered]]:
    known = _known(facts)
    every = set().union(*known.values()) if known else set()
    return {(server, broker) for server, table in known.items() for broker in every - table}


# Checks of settings: between brokers, and against what the cluster is to be.


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
                    About(other=f"cluster {cluster}, {key}"),
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
                broker.about,
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
        yield Sign(broker.about, f"brokerPermission={perm}", cause, fix)


def auto_creation(looks: Looks) -> Iterator[Sign]:
    """Brokers that make a topic of every name somebody sends to, outside of trials."""
    if not (looks.intent.production or beyond_loopback(looks.now)):
        return
    for broker in looks.now.masters():
        if _on(broker, key := "autoCreateTopicEnable"):
            undo = change_setting(broker, key, "true")
            yield Sign(
                broker.about,
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
            broker.about,
            f"advertised {broker.address}; authenticationEnabled and aclEnable are off",
            "whoever reaches the port reads, writes and deletes everything",
            "docs/security.md: `roquette tls init`, `roquette user create admin --super`, then authenticationEnabled=true",
            Severity.WARNING if public or looks.intent.production else None,
        )
