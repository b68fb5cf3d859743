"""Settings of running servers: seen, and changed where a server lets them be changed; and what brokers count."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from roquette.admin.cluster import masters_of, require_one
from roquette.admin.command import Changes, Flag, OperationReport, command
from roquette.base.options import counted, did_you_mean
from roquette.client import calls
from roquette.client.calls import Answer, Operation, ask_all, runtime_info
from roquette.client.operator_calls import (
    broker_settings,
    change_broker_settings,
    change_name_server_settings,
    counter,
    name_server_settings,
)
from roquette.errors import BrokerError, ConfigError, RouteNotFound
from roquette.message.names import perm_text
from roquette.wire.bodies import ClusterInfo, TopicRouteData


class SettingRow(msgspec.Struct, frozen=True):
    """A setting of one server, under Apache's key."""

    server: str
    key: str
    value: str


def _brokers(cluster: str | None, broker: str | None) -> Operation[list[tuple[str, str]]]:
    """(name, address) of masters, or of the one process whose address is given, which no name server needs to know."""
    if broker is not None and ":" in broker:
        return [(broker, broker)]
    return (yield from masters_of(cluster, broker))


Key = Annotated[str | None, Flag("", "Apache's key; without it all settings.")]
OneBroker = Annotated[
    str | None, Flag("", "Only this one: the name of a master, or HOST:PORT of any broker.")
]


@command(watched=True)
def settings_of_brokers(
    key: Key = None, *, broker: OneBroker = None, runtime: bool = False
) -> Operation[list[SettingRow]]:
    """Show settings of the masters, or of one broker.

    Args:
        runtime: What it tells of its run instead (brokerStatus).

    Raises:
        ConfigError: there is no such broker or setting. ClientError: one does not answer.
    """
    masters = yield from _brokers(None, broker)
    call = runtime_info() if runtime else broker_settings()
    answers = yield from ask_all((address, call) for _, address in masters)
    return _rows(
        {name: answer.get() for (name, _), answer in zip(masters, answers, strict=True)}, key
    )


class CounterRow(msgspec.Struct, frozen=True):
    """A broker's counter over a minute, an hour or a day.

    Attributes:
        tps: a second. average: of each time that it was added to, as bytes of a message.
    """

    broker: str
    span: str
    sum: int
    tps: float
    average: float


@command(watched=True)
def counters(
    name: Annotated[str, Flag("COUNTER", "TOPIC_PUT_NUMS, TOPIC_PUT_SIZE, GROUP_GET_NUMS ...")],
    key: Annotated[str, Flag("KEY", "Of what: a topic, or TOPIC@GROUP.")],
    *,
    broker: OneBroker = None,
) -> Operation[OperationReport[list[CounterRow]]]:
    """Show what brokers have counted of a topic or group: roquette broker stats GROUP_GET_NUMS orders@billing

    Raises:
        ConfigError: there is no such broker. ClientError: none has such a counter, or none answers.
    """
    masters = yield from _brokers(None, broker)
    answers = yield from ask_all((address, counter(name, key)) for _, address in masters)
    require_one(answers)
    rows: list[CounterRow] = []
    silent: list[str] = []
    for (server, _), answer in zip(masters, answers, strict=True):
        if answer.value is not None:
            data = answer.value
            spans = {"minute": data.stats_minute, "hour": data.stats_hour, "day": data.stats_day}
            rows += [
                CounterRow(server, span, item.sum, item.tps, item.avgpt)
                for span, item in spans.items()
                if item is not None
            ]
        elif not isinstance(answer.error, BrokerError):  # else it has no such counter
            silent.append(f"{server} does not tell: {answer.reason}")
    return OperationReport(rows, notes=silent)


@command(watched=True)
def settings_of_name_servers(
    name_servers: Sequence[str], key: Key = None
) -> Operation[list[SettingRow]]:
    """Show settings of each name server.

    Raises:
        ConfigError and ClientError as above.
    """
    answers = yield from ask_all((address, name_server_settings()) for address in name_servers)
    return _rows({answer.address: answer.get() for answer in answers}, key)


def _rows(tables: Mapping[str, Mapping[str, str]], key: str | None) -> list[SettingRow]:
    rows = [
        SettingRow(server, *item)
        for server, table in tables.items()
        for item in sorted(table.items())
    ]
    found = [row for row in rows if key in (None, row.key)]
    if key is not None and not found:
        raise ConfigError(
            f"there is no setting {key}{did_you_mean(key, {row.key for row in rows})}"
        )
    return found


def _changed(
    reasons: dict[str, str], changes: Mapping[str, str], **_: object
) -> OperationReport[Any]:
    done = [server for server, reason in reasons.items() if not reason]
    failed = {server: reason for server, reason in reasons.items() if reason}
    what = ", ".join(f"{key}={value}" for key, value in changes.items())
    why = "; ".join(f"{server}: {reason}" for server, reason in failed.items())
    return OperationReport(
        {"settings": changes, "done": done, "failed": failed},
        [f"{what} now at {', '.join(done)}"] if done else [],
        failed=f"not changed: {why}" if failed else "",
    )


@command(shows=_changed)
def change_brokers(
    changes: Changes,
    *,
    broker: OneBroker = None,
    cluster: str | None = None,
    every: Annotated[bool, Flag("--all")] = False,
) -> Operation[dict[str, str]]:
    """Change settings of a running broker, all of them or none; it says which values are possible.

    Args:
        cluster: Every master of this cluster.
        every: Every master.

    Returns:
        By name why a broker did not, "" for those that did.

    Raises:
        ConfigError: there is no such broker or cluster, or it is not said which ones are meant.
    """
    if (broker is not None) + (cluster is not None) + every != 1:
        raise ConfigError("say which: --broker NAME, --cluster NAME, or --all")
    masters = yield from _brokers(cluster, broker)
    return (yield from _change(masters, change_broker_settings, broker_settings(), changes))


@command(shows=_changed)
def change_name_servers(name_servers: Sequence[str], changes: Changes) -> Operation[dict[str, str]]:
    """Change settings of every name server while it runs.

    Returns:
        By address why one did not, "" for those that did.
    """
    servers = [(address, address) for address in name_servers]
    order, look = change_name_server_settings, name_server_settings()
    return (yield from _change(servers, order, look, changes))


def _change(
    servers: Sequence[tuple[str, str]],
    order: Callable[[Mapping[str, str]], calls.Call[Any]],
    look: calls.Call[dict[str, str]],
    changes: Mapping[str, str],
) -> Operation[dict[str, str]]:
    """Why each server did not change them.

    Apache's take an order for what they do not have, and do the rest of it. So a server that lacks a setting is ordered that
    alone: it says why not, or does nothing.
    """
    looked = yield from ask_all((address, look) for _, address in servers)
    lacks = [
        {
            key: text
            for key, text in changes.items()
            if key not in (changes if told.error else told.get())
        }
        for told in looked
    ]
    asks = (
        (told.address, order(lack or changes)) for told, lack in zip(looked, lacks, strict=True)
    )
    reasons: dict[str, str] = {}
    for (name, _), answer, lack in zip(servers, (yield from ask_all(asks)), lacks, strict=True):
        reasons[name] = answer.reason or (f"it has no setting {', '.join(lack)}" if lack else "")
    return reasons


# Differences between name servers, asked of each by itself: brokers with their addresses, topics with their queues.


ABSENT: Final = "not known"


class DifferenceRow(msgspec.Struct, frozen=True):
    """Row of one name server, about something that another one says otherwise.

    Attributes:
        kind: name server, broker or topic. `error`: why it says nothing; of this server alone no difference is known.
    """

    kind: str
    subject: str
    name_server: str
    says: str
    error: str = ""


@command(watched=True)
def diff(name_servers: Sequence[str]) -> Operation[OperationReport[list[DifferenceRow]]]:
    """Show which name servers disagree about which brokers and topics. Exit code 10 when any do, or one is silent.

    Each is asked by itself: name all of them with -n.
    """
    rows, count = (yield from differences(name_servers)), len(name_servers)
    found = counted(len({(row.kind, row.subject) for row in rows}), "difference")
    notes = [f"\n{found} between {count} name servers"] if rows else []
    empty = f"{counted(count, 'name server')}: no difference"
    return OperationReport(rows, notes=notes, empty=empty, healthy=not rows)


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
            brokers[server] = _names_of_brokers(cluster.get())
    found += _compare("broker", brokers)
    routes: dict[str, dict[str, str]] = {server: {} for server in there}
    names = sorted({topic for answer in topics for topic in answer.value or ()})
    asked = [(server, topic) for topic in names for server in there]
    answers = yield from ask_all((server, calls.route(topic)) for server, topic in asked)
    for (server, topic), answer in zip(asked, answers, strict=True):
        routes[server][topic] = _says(answer)
    return found + _compare("topic", routes)


def _compare(kind: str, answers: Mapping[str, Mapping[str, str]]) -> list[DifferenceRow]:
    """`answers`: by name server and subject."""
    subjects = sorted({subject for table in answers.values() for subject in table})
    return [
        DifferenceRow(kind, subject, server, table.get(subject, ABSENT))
        for subject in subjects
        if len({table.get(subject, ABSENT) for table in answers.values()}) > 1
        for server, table in answers.items()
    ]


def _names_of_brokers(info: ClusterInfo) -> dict[str, str]:
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
