"""What name servers disagree about, asked of each by itself: brokers with their addresses, topics with their queues."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from roquette.admin.command import Report, command
from roquette.base.options import counted
from roquette.client import calls
from roquette.client.operations import Answer, Operation, ask_all
from roquette.errors import RouteNotFound
from roquette.message.names import perm_text
from roquette.wire.bodies import ClusterInfo, TopicRouteData

ABSENT: Final = "not known"


class DifferenceRow(msgspec.Struct, frozen=True):
    """What one name server says of something that another one says otherwise.

    Attributes:
        kind: name server, broker or topic. `error`: why it says nothing; of this server alone no difference is known.
    """

    kind: str
    subject: str
    name_server: str
    says: str
    error: str = ""


@command(watched=True)
def diff(name_servers: Sequence[str]) -> Operation[Report[list[DifferenceRow]]]:
    """Show which name servers disagree about which brokers and topics. Exit code 10 when any do, or one is silent.

    Each is asked by itself: name all of them with -n.
    """
    rows, count = (yield from differences(name_servers)), len(name_servers)
    found = counted(len({(row.kind, row.subject) for row in rows}), "difference")
    notes = [f"\n{found} between {count} name servers"] if rows else []
    empty = f"{counted(count, 'name server')}: no difference"
    return Report(rows, notes=notes, empty=empty, healthy=not rows)


def differences(name_servers: Sequence[str]) -> Operation[list[DifferenceRow]]:
    """Every broker and topic of which not all name servers say the same, with what each says; [] when they agree.

    A name server that does not answer has a row of its own.

    Raises:
        ClientError: none answers.
    """
    clusters = yield from ask_all((server, calls.cluster_info()) for server in name_servers)
    topics = yield from ask_all((server, calls.topic_names()) for server in name_servers)
    if all(answer.error is not None for answer in clusters):
        clusters[0].get()
    found: list[DifferenceRow] = []
    there: list[str] = []
    brokers: dict[str, dict[str, str]] = {}
    for server, cluster, listed in zip(name_servers, clusters, topics, strict=True):
        if reason := cluster.reason or listed.reason:
            found.append(DifferenceRow("name server", server, server, "", reason))
        else:
            there.append(server)
            brokers[server] = _brokers(cluster.get())
    found += _compare("broker", brokers)
    routes: dict[str, dict[str, str]] = {server: {} for server in there}
    names = sorted({topic for answer in topics for topic in answer.value or ()})
    asked = [(server, topic) for topic in names for server in there]
    answers = yield from ask_all((server, calls.route(topic)) for server, topic in asked)
    for (server, topic), answer in zip(asked, answers, strict=True):
        routes[server][topic] = _says(answer)
    return found + _compare("topic", routes)


def _compare(kind: str, said: Mapping[str, Mapping[str, str]]) -> list[DifferenceRow]:
    """`said`: by name server and subject."""
    subjects = sorted({subject for table in said.values() for subject in table})
    return [
        DifferenceRow(kind, subject, server, table.get(subject, ABSENT))
        for subject in subjects
        if len({table.get(subject, ABSENT) for table in said.values()}) > 1
        for server, table in said.items()
    ]


def _brokers(info: ClusterInfo) -> dict[str, str]:
    clusters = {
        name: cluster for cluster, names in info.cluster_addr_table.items() for name in names
    }
    return {
        name: f"{clusters.get(name, '?')}: {_addresses(data.broker_addrs)}"
        for name, data in info.broker_addr_table.items()
    }


def _addresses(table: Mapping[int, str]) -> str:
    return ", ".join(f"{broker_id}={address}" for broker_id, address in sorted(table.items()))


def _says(answer: Answer[TopicRouteData]) -> str:
    if isinstance(answer.error, RouteNotFound):
        return ABSENT
    if answer.error is not None:
        return f"no answer: {answer.reason}"
    route = answer.get()
    queues = sorted(
        f"{data.broker_name} {data.write_queue_nums} write {data.read_queue_nums} read {perm_text(data.perm)}"
        for data in route.queue_datas
    )
    order = f"; order {route.order_topic_conf}" if route.order_topic_conf else ""
    return "; ".join(queues) + order
