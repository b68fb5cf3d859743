"""Clusters and brokers: who is there, and how they are doing."""

import msgspec

from roquette.client.session import Session
from roquette.errors import ClientError, ConfigError
from roquette.wire.bodies import ClusterInfo, KVTable
from roquette.wire.codes import RequestCode
from roquette.wire.json_body import decode_body


class BrokerState(msgspec.Struct, frozen=True):
    """One broker process. Rates are messages per second over the last 10 s; -1 and "" when it does not answer."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    version: str
    in_tps: float
    out_tps: float
    messages_today: int
    disk_used: float
    answers: bool


class Brokers:
    """Every broker the name servers know."""

    def __init__(self, info: ClusterInfo) -> None:
        self.info = info

    @staticmethod
    async def load(session: Session) -> "Brokers":
        """Ask a name server."""
        reply = await session.call_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return Brokers(decode_body(ClusterInfo, reply.body))

    def system_names(self) -> set[str]:
        """Names of clusters and brokers, which are topics too."""
        clusters = set(self.info.cluster_addr_table)
        replies = {f"{name}_REPLY_TOPIC" for name in clusters}
        return clusters | replies | set(self.info.broker_addr_table)

    def masters(self, *, cluster: str | None, broker: str | None) -> list[tuple[str, str]]:
        """(name, address) of masters, of one cluster or broker or of all; raises ConfigError when there is none."""
        known = self.info.broker_addr_table
        if broker is not None:
            names = [broker] if broker in known else []
        elif cluster is not None:
            names = sorted(self.info.cluster_addr_table.get(cluster, []))
        else:
            names = sorted(known)
        found = [
            (name, known[name].broker_addrs[0])
            for name in names
            if name in known and 0 in known[name].broker_addrs
        ]
        if not found:
            wanted, there = f"broker {broker}" if broker else "broker", sorted(known)
            if broker is None and cluster is not None:
                wanted, there = f"cluster {cluster}", sorted(self.info.cluster_addr_table)
            raise ConfigError(
                f"the name server knows no {wanted}; it knows {', '.join(there) or 'no broker at all'}"
            )
        return found


async def masters_of(
    session: Session, *, cluster: str | None, broker: str | None
) -> list[tuple[str, str]]:
    """(name, address) of the masters meant; raises ConfigError when there is none."""
    return (await Brokers.load(session)).masters(cluster=cluster, broker=broker)


async def cluster_state(session: Session) -> list[BrokerState]:
    """Every broker process, by cluster, name and id; one that does not answer is listed as such."""
    info = (await Brokers.load(session)).info
    found: list[BrokerState] = []
    for cluster, names in sorted(info.cluster_addr_table.items()):
        for name in sorted(names):
            if name not in info.broker_addr_table:
                continue
            for broker_id, address in sorted(info.broker_addr_table[name].broker_addrs.items()):
                found.append(await _state(session, cluster, name, broker_id, address))
    return found


async def _state(
    session: Session, cluster: str, name: str, broker_id: int, address: str
) -> BrokerState:
    try:
        reply = await session.api.call(address, RequestCode.GET_BROKER_RUNTIME_INFO)
    except ClientError:
        return BrokerState(cluster, name, broker_id, address, "", -1.0, -1.0, -1, -1.0, False)
    table = decode_body(KVTable, reply.body).table
    today = int(table.get("msgPutTotalTodayNow", "0")) - int(
        table.get("msgPutTotalTodayMorning", "0")
    )
    return BrokerState(
        cluster,
        name,
        broker_id,
        address,
        table.get("brokerVersionDesc", ""),
        _first(table.get("putTps", "")),
        _first(table.get("getTransferredTps", table.get("getTransferedTps", ""))),
        today,
        _first(table.get("commitLogDiskRatio", "")),
        True,
    )


def _first(text: str) -> float:
    try:
        return float(text.split(maxsplit=1)[0])
    except (IndexError, ValueError):
        return -1.0
