"""Catalogue of a cluster: names come in one request of a server, and what is to know of each only for a page of them."""

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, islice
from typing import Annotated, Any, ClassVar, Final

import msgspec

from roquette.admin.cluster import cluster_info, masters_of, require_one, system_names
from roquette.admin.command import (
    PAGE,
    Flag,
    Like,
    Limit,
    OperationReport,
    command,
    more_words,
)
from roquette.admin.groups import BrokerLag, lags_of
from roquette.client import calls
from roquette.client.calls import ANY_NAME_SERVER, Answer, Operation, ask, ask_all
from roquette.client.core.route_cache import TopicRoute
from roquette.client.operator_calls import all_producers
from roquette.errors import BrokerError
from roquette.message.message import unread
from roquette.message.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    is_system_group,
    is_system_topic,
    is_users_group,
    perm_text,
)
from roquette.wire.bodies import (
    ConsumerConnection,
    TopicRouteData,
)
from roquette.wire.bodies.progress import TopicStatsTable
from roquette.wire.codes import version_text

OWN: Final = "own"
RETRIES: Final = "retries"
DEAD: Final = "dead letters"
SYSTEM: Final = "system"

MOST_ASKED: Final = 400
"""Requests to servers for one page of names."""


class Names(msgspec.Struct, frozen=True):
    """Topics, or consumer groups.

    Attributes:
        kinds: OWN (the users'), RETRIES, DEAD, SYSTEM -> names, sorted.
        places: of groups: (broker, address) of the masters that know each, and of those that do not tell.
    """

    kinds: dict[str, list[str]]
    places: dict[str, list[tuple[str, str]]] = {}

    def page(
        self, like: str = "", limit: int | None = None, kind: str | None = OWN
    ) -> tuple[list[str], int]:
        """The first names with a word in them, whatever its case, and how many more there are; `kind` None: of all."""
        kinds = self.kinds.values() if kind is None else [self.kinds.get(kind, [])]
        word = like.lower()
        found = [n for names in kinds for n in names if not word or word in n.lower()]
        found.sort()  # each kind is sorted already: it costs nothing
        return found[:limit], len(found) - len(found[:limit])


class TopicName(msgspec.Struct, frozen=True):
    """A topic that exists."""

    topic: str


class TopicRow(msgspec.Struct, frozen=True):
    """A topic over all its brokers. Numbers are -1 when not asked or not known; `last_ms` 0: nothing is in it.

    Attributes:
        in_tps: messages a second that come in.
        error: of which brokers the numbers lack the share, and why; or why they were not asked.
    """

    topic: str
    brokers: int = -1
    read_queues: int = -1
    write_queues: int = -1
    perm: str = ""
    messages: int = -1
    last_ms: int = -1
    in_tps: float = -1.0
    error: str = ""

    NARROW: ClassVar = ("in_tps",)


class GroupRow(msgspec.Struct, frozen=True):
    """One consumer group. `lag` counts messages not yet consumed, over all its topics and queues. Numbers are -1 when not
    asked or not known.

    Attributes:
        out_tps: messages a second that it takes.
        error: of which brokers the numbers lack the share, and why; or why they were not asked.
    """

    group: str
    members: int = -1
    model: str = ""
    topics: int = -1
    lag: int = -1
    out_tps: float = -1.0
    error: str = ""

    NARROW: ClassVar = ("out_tps", "topics", "model")


def kind_of(topic: str, own: Collection[str]) -> str:
    """The kind of a topic; `own`: the names of clusters and brokers, which are topics too."""
    if topic.startswith(RETRY_PREFIX):
        return RETRIES
    if topic.startswith(DLQ_PREFIX):
        return DEAD
    return SYSTEM if is_system_topic(topic) or topic in own else OWN


def topics() -> Operation[Names]:
    """Every topic a name server knows: two requests."""
    names = yield from ask(ANY_NAME_SERVER, calls.topic_names())
    own = system_names((yield from cluster_info()))
    return _topic_names(tuple(names), frozenset(own))


@lru_cache(1)
def _topic_names(names: tuple[str, ...], own: frozenset[str]) -> Names:
    """Who looks again and again finds the same ones: of 60,000 the kinds cost more than asking."""
    return Names(_by_kind((kind_of(name, own), name) for name in names))


def groups() -> Operation[Names]:
    """Every group a master knows: a request of each; raises ClientError when none answers."""
    masters = yield from masters_of()
    answers = yield from ask_all((address, calls.groups_of_broker()) for _, address in masters)
    require_one(answers)
    names = {name for answer in answers for name in answer.value or ()}
    places: dict[str, list[tuple[str, str]]] = {name: [] for name in names}
    for place, answer in zip(masters, answers, strict=True):
        for name in names if answer.value is None else answer.value:
            places[name].append(place)
    return Names(
        _by_kind((OWN if is_users_group(name) else SYSTEM, name) for name in names), places
    )


def _by_kind(named: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for kind, name in sorted(named):
        found.setdefault(kind, []).append(name)
    return found


@command(
    empty="no topics yet: a first send creates one, or 'roquette topic create NAME'", watched=True
)
def list_topics(
    *,
    like: Like = "",
    limit: Annotated[int | None, Flag("--limit N", least=1)] = None,
    system: bool = False,
) -> Operation[OperationReport[list[Any]]]:
    """List topics: the names of all, or with --limit what there is to know of some.

    Args:
        limit: The first N, with their queues, permissions and messages; it says how many more.
        system: Also the system's own topics, retries and dead letters.
    """
    names, more = (yield from topics()).page(like, limit, None if system else OWN)
    rows: Sequence[msgspec.Struct] = [TopicName(name) for name in names]
    if limit is not None:
        rows = yield from topic_rows(names, most=None)
    return OperationReport(list(rows), notes=more_words(more, "topics"))


@command(
    empty="no consumer groups yet: a group appears when its first consumer starts", watched=True
)
def list_groups(
    *, like: Like = "", limit: Limit = PAGE, system: bool = False
) -> Operation[OperationReport[list[GroupRow]]]:
    """List consumer groups with their members and lag.

    Args:
        system: Also the system's own groups.
    """
    found = yield from groups()
    names, more = found.page(like, limit, None if system else OWN)
    rows = yield from group_rows(names, found, most=None)
    return OperationReport(rows, notes=more_words(more, "groups"))


def _fit(costs: dict[str, int], most: int | None) -> set[str]:
    """Return the names of which can be asked with so many requests, the cheapest first."""
    cheapest = sorted(costs, key=lambda name: costs[name])
    spent = accumulate(costs[name] for name in cheapest)
    return {
        name for name, sum_ in zip(cheapest, spent, strict=True) if most is None or sum_ <= most
    }


def topic_rows(names: Sequence[str], most: int | None = MOST_ASKED) -> Operation[list[TopicRow]]:
    """Ask what is to know of these topics: a route of each, and a request to each of its brokers.

    Args:
        names: up to PAGE.
        most: requests; of topics on more brokers than fit the numbers are not known. None: any number.
    """
    routes = yield from ask_all((ANY_NAME_SERVER, calls.route(name)) for name in names)
    places = {
        name: _addresses(name, route.value) for name, route in zip(names, routes, strict=True)
    }
    left = None if most is None else most - len(names)
    fitting = _fit({name: len(addresses) for name, addresses in places.items()}, left)
    asked = [places[name] if name in fitting else [] for name in names]
    answers = yield from ask_all(
        (address, calls.topic_stats(name))
        for name, addresses in zip(names, asked, strict=True)
        for address in addresses
    )
    rest = iter(answers)
    return [
        _topic_row(name, route, list(islice(rest, len(addresses))), asked=name in fitting)
        for name, route, addresses in zip(names, routes, asked, strict=True)
    ]


def _addresses(name: str, data: TopicRouteData | None) -> list[str]:
    route = TopicRoute(name, data or TopicRouteData())
    return [address for broker in route.addresses if (address := route.address_for_read(broker))]


def _topic_row(
    name: str,
    route: Answer[TopicRouteData],
    stats: Sequence[Answer[TopicStatsTable]],
    *,
    asked: bool,
) -> TopicRow:
    if route.value is None:
        return TopicRow(name, error=route.reason)
    data = route.value.queue_datas
    known = TopicRow(
        name,
        len(data),
        sum(each.read_queue_nums for each in data),
        sum(each.write_queue_nums for each in data),
        " ".join(sorted({perm_text(each.perm) for each in data})),
        error=f"on {len(data)} brokers, too many for a list: roquette topic describe {name}",
    )
    if not asked:
        return known
    errors = "; ".join(f"{answer.address}: {answer.reason}" for answer in stats if answer.error)
    told = [answer.value for answer in stats if answer.value is not None]
    if not told:
        return msgspec.structs.replace(known, error=errors)
    ends = [at for each in told for at in each.offset_table.values()]
    return msgspec.structs.replace(
        known,
        messages=sum(unread(None, at.min_offset, at.max_offset) for at in ends),
        last_ms=max((at.last_update_timestamp for at in ends), default=0),
        in_tps=sum(each.topic_put_tps for each in told),
        error=errors,
    )


def group_rows(
    names: Sequence[str], found: Names, most: int | None = MOST_ASKED
) -> Operation[list[GroupRow]]:
    """Ask what is to know of these groups: two requests of each to each master that knows it, and what `lags_of` asks besides.

    Args:
        names: up to PAGE.
        most: requests; of groups on more brokers than fit the numbers are not known. None: any number.
    """
    fitting = _fit({name: 2 * len(found.places.get(name, ())) for name in names}, most)
    asked = [
        (name, *place) for name in names if name in fitting for place in found.places.get(name, ())
    ]
    left = None if most is None else most - len(asked)
    online = yield from ask_all(
        (address, calls.group_connections(group)) for group, _, address in asked
    )
    members: dict[str, list[Answer[ConsumerConnection]]] = {name: [] for name in names}
    for (group, _, _), answer in zip(asked, online, strict=True):
        members[group].append(answer)
    lags: dict[str, list[BrokerLag]] = {name: [] for name in names}
    for (group, _, _), each in zip(asked, (yield from lags_of(asked, most=left)), strict=True):
        lags[group].append(each)
    return [
        _group_row(name, members[name], lags[name])
        if name in fitting
        else GroupRow(
            name,
            error=f"on {len(found.places[name])} brokers, too many for a list: roquette group lag {name}",
        )
        for name in names
    ]


def _group_row(
    group: str, answers: list[Answer[ConsumerConnection]], lags: list[BrokerLag]
) -> GroupRow:
    online = [each.value for each in answers if each.value is not None]
    refused = [isinstance(each.error, BrokerError) for each in answers]  # nobody is online there
    silent = len(answers) > 0 and not online and not any(refused)
    rows = [row for each in lags for row in each.rows]
    told = [row for row in rows if not row.error]
    errors = [f"{row.broker}: {row.error}" for row in rows if row.error]
    unknown = not told and len(errors) == len(lags) > 0
    if any(row.lag < 0 for row in told):
        unknown = True
        errors.append(f"behind in more topics than fit in a list: roquette group lag {group}")
    return GroupRow(
        group,
        -1 if silent else len({one.client_id for each in online for one in each.connection_set}),
        next(((each.message_model or "").lower() for each in online), ""),
        len({row.topic for row in told}),
        -1 if unknown else sum(row.lag for row in told),
        sum(each.out_tps for each in lags if each.out_tps > 0),
        "; ".join(errors),
    )


# Connected clients: producers, and members of consumer groups with what each is doing.


class ClientRow(msgspec.Struct, frozen=True):
    """One client of one group.

    Attributes:
        kind: producer or consumer. `brokers`: how many masters it is connected to.
    """

    client: str
    kind: str
    group: str
    address: str
    language: str
    version: str
    brokers: int

    NARROW: ClassVar = ("brokers", "version", "language", "kind")


class ClientsFound(msgspec.Struct, frozen=True):
    """Clients by kind, group and id. `more`: how many groups were left out."""

    rows: list[ClientRow]
    more: int


def _listed(
    found: ClientsFound, group: str | None, **_: object
) -> OperationReport[list[ClientRow]]:
    empty = "no client is connected" + (f" in group {group}" if group else "")
    return OperationReport(found.rows, notes=more_words(found.more, "groups"), empty=empty)


@command(shows=_listed, watched=True)
def list_clients(
    *, group: str | None = None, like: Like = "", limit: Limit = PAGE, system: bool = False
) -> Operation[ClientsFound]:
    """List producers and consumers with their addresses, languages and versions.

    Producers are seen from Apache's 5.x and from ours; one that has not sent for two minutes is forgotten.

    Args:
        group: Only this group's.
        system: Also the system's own.

    Returns:
        Those of the first groups with the word in their names.
    """
    masters = yield from masters_of()
    known, more = Names({OWN: [group or ""]}, {group or "": masters}), 0
    names = [group or ""]
    if group is None:
        known = yield from groups()
        names, more = known.page(like, limit, None if system else OWN)
    asked = [(name, address) for name in names for _, address in known.places[name]]
    online = yield from ask_all((address, calls.group_connections(name)) for name, address in asked)
    if group is not None and not any(isinstance(each.error, BrokerError) for each in online):
        require_one(online)  # a refusal is an answer: no member is online there
    found: dict[tuple[str, str, str], ClientRow] = {}
    for (name, _), answer in zip(asked, online, strict=True):
        for each in answer.value.connection_set if answer.value else ():
            words = (each.language or "", version_text(each.version))
            _add(found, ClientRow(each.client_id, "consumer", name, each.client_addr, *words, 1))
    told = yield from ask_all((address, all_producers()) for _, address in masters)
    senders = [(name, one) for each in told if each.value for name, one in each.value.data.items()]
    if group is None:
        sending = {name for name, _ in senders if system or not is_system_group(name)}
        names, left_out = Names({OWN: list(sending)}).page(like, limit)
        more += left_out
    chosen = set(names)
    for name, producers in senders:
        for one in producers if name in chosen else ():
            words = (one.language or "", version_text(one.version))
            _add(found, ClientRow(one.client_id, "producer", name, one.remote_ip, *words, 1))
    return ClientsFound([found[key] for key in sorted(found)], more)


def _add(found: dict[tuple[str, str, str], ClientRow], row: ClientRow) -> None:
    key = row.kind, row.group, row.client
    before = found.get(key)
    brokers = 1 if before is None else before.brokers + 1
    found[key] = msgspec.structs.replace(row, brokers=brokers)
