"""Clusters and brokers: who is there, who is not, and what several of them answer."""

from collections.abc import Sequence
from typing import Any

from roquette.client import calls
from roquette.client.operations import ANY_NAME_SERVER, Answer, Operation, ask, ask_all
from roquette.client.operator_calls import topic_config, topic_configs
from roquette.errors import BrokerError, ConfigError
from roquette.wire import bodies as b
from roquette.wire.bodies import BrokerLeft, ClusterInfo, TopicConfig
from roquette.wire.codes import ResponseCode


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
    return masters_in((yield from cluster_info()), cluster, broker)


def masters_in(
    info: ClusterInfo, cluster: str | None = None, broker: str | None = None
) -> list[tuple[str, str]]:
    """See `masters_of`."""
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


def gone_of(infos: Sequence[ClusterInfo], expected: Sequence[str] = ()) -> list[BrokerLeft]:
    """Brokers that are not there: those that name servers remember and none has, those that are refused, and, absent,
    names in `expected` and masters of replicas that nobody remembers. Each as it was seen last."""
    found: dict[tuple[str, str, str], BrokerLeft] = {}
    there: set[tuple[str, str]] = set()
    names = dict.fromkeys(expected, "")
    for info in infos:
        for name, data in info.broker_addr_table.items():
            there |= {(name, address) for address in data.broker_addrs.values()}
            names[name] = data.cluster
        for gone in info.brokers_left or ():
            key = gone.broker_name, gone.broker_addr, gone.peer
            if key not in found or gone.ago_ms < found[key].ago_ms:
                found[key] = gone
    left = [gone for key, gone in sorted(found.items()) if gone.peer or key[:2] not in there]
    masters = {gone.broker_name for gone in left if gone.broker_id == b.MASTER_ID and not gone.peer}
    tables = [info.broker_addr_table for info in infos]
    masters |= {name for name in names for t in tables if name in t and 0 in t[name].broker_addrs}
    return left + [
        BrokerLeft(names[name], name, why=b.ABSENT) for name in sorted({*names} - masters)
    ]


def span_words(ms: int) -> str:
    """A time as people say it, in two units."""
    minutes, seconds = divmod(ms // 1000, 60)
    return (
        f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {seconds} s"
    )


def left_words(gone: BrokerLeft) -> str:
    """Where a broker was, how long ago it left, and how."""
    if gone.why == b.ABSENT:
        return "no name server knows its master"
    if gone.why == b.REFUSED:
        return f"the one on {gone.peer} that names {gone.broker_addr} is refused: another has its place"
    how = {b.ENDED: "ended in order", b.SILENT: "fell silent"}.get(gone.why, "lost its connection")
    return f"{gone.broker_addr} {how} {span_words(gone.ago_ms)} ago"


def require_one(answers: Sequence[Answer[Any]]) -> None:
    """Raise what the first server failed with when none has an answer."""
    if answers and all(answer.error is not None for answer in answers):
        answers[0].get()


def is_unserved(answer: Answer[Any]) -> bool:
    """Whether a server does not know the request at all, as older ones do not."""
    error = answer.error
    return isinstance(error, BrokerError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def configs_of(topic: str, addresses: Sequence[str]) -> Operation[list[Answer[TopicConfig | None]]]:
    """A topic as each of these brokers has it; None: it has none. Those before 5.0 can only tell of all their topics."""
    answers = yield from ask_all((address, topic_config(topic)) for address in addresses)
    old = [answer.address for answer in answers if is_unserved(answer)]
    told = yield from ask_all((address, topic_configs()) for address in old)
    by_address: dict[str, Answer[TopicConfig | None]] = {
        each.address: Answer(each.address, (each.value or {}).get(topic), each.error)
        for each in told
    }
    return [by_address.get(answer.address, answer) for answer in answers]
