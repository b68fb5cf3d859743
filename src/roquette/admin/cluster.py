"""Clusters and brokers: who is there, and how they are doing."""

from collections.abc import Sequence
from typing import Any

import msgspec

from roquette.client import calls
from roquette.client.operations import ANY_NAME_SERVER, Answer, Operation, ask, ask_all
from roquette.errors import ConfigError
from roquette.wire.bodies import ClusterInfo


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
    error: str = ""


def cluster_info() -> Operation[ClusterInfo]:
    """Every broker a name server knows."""
    return (yield from ask(ANY_NAME_SERVER, calls.cluster_info()))


def system_names(info: ClusterInfo) -> set[str]:
    """Names of clusters and brokers, which are topics too."""
    clusters = set(info.cluster_addr_table)
    replies = {f"{name}_REPLY_TOPIC" for name in clusters}
    return clusters | replies | set(info.broker_addr_table)


def masters_of(
    cluster: str | None = None, broker: str | None = None
) -> Operation[list[tuple[str, str]]]:
    """(name, address) of masters, of one cluster or broker or of all; raises ConfigError when there is none."""
    info = yield from cluster_info()
    known = info.broker_addr_table
    if broker is not None:
        names = [broker] if broker in known else []
    elif cluster is not None:
        names = sorted(info.cluster_addr_table.get(cluster, []))
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
            wanted, there = f"cluster {cluster}", sorted(info.cluster_addr_table)
        raise ConfigError(
            f"the name server knows no {wanted}; it knows {', '.join(there) or 'no broker at all'}"
        )
    return found


def require_one(answers: Sequence[Answer[Any]]) -> None:
    """Raise what the first server failed with when none has an answer."""
    if answers and all(answer.error is not None for answer in answers):
        answers[0].get()


def cluster_state() -> Operation[list[BrokerState]]:
    """Every broker process, by cluster, name and id; one that does not answer is listed as such."""
    info = yield from cluster_info()
    found = [
        (cluster, name, broker_id, address)
        for cluster, names in sorted(info.cluster_addr_table.items())
        for name in sorted(names)
        if name in info.broker_addr_table
        for broker_id, address in sorted(info.broker_addr_table[name].broker_addrs.items())
    ]
    answers = yield from ask_all((address, calls.runtime_info()) for *_, address in found)
    return [_state(*place, answer) for place, answer in zip(found, answers, strict=True)]


def _state(
    cluster: str, name: str, broker_id: int, address: str, answer: Answer[dict[str, str]]
) -> BrokerState:
    table = answer.value or {}
    now, morning = (int(table.get(f"msgPutTotalToday{at}", "0")) for at in ("Now", "Morning"))
    return BrokerState(
        cluster,
        name,
        broker_id,
        address,
        table.get("brokerVersionDesc", ""),
        _first(table.get("putTps", "")),
        _first(table.get("getTransferredTps", table.get("getTransferedTps", ""))),
        -1 if answer.error else now - morning,
        _first(table.get("commitLogDiskRatio", "")),
        answer.error is None,
        answer.reason,
    )


def _first(text: str) -> float:
    try:
        return float(text.split(maxsplit=1)[0])
    except (IndexError, ValueError):
        return -1.0
