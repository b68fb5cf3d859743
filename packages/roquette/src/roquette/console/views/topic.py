"""Are a topic's queues written and read, by whom, and how far behind is each reader?"""

from collections.abc import Sequence
from typing import Final

import htpy as h
from htpy import Element, Node

from roquette.admin.groups import LagRow, TopicReaders, readers_now
from roquette.admin.members import OnlineGroup
from roquette.admin.topics import QueueRow, describe_topic
from roquette.console import parts
from roquette.console.ask import View, ViewAsk

PATHS: Final = ("/topics/{topic}",)
MOST_GROUPS: Final = 24
MOST_MEMBERS: Final = 64
MOST_ASKED: Final = 1_000
"""Requests that this page may cost: on many brokers fewer groups are asked."""
AGES: Final = ("at the end", "under 10 s", "1 min", "10 min", "1 h", "longer behind")
_LIMITS_MS: Final = (10_000, 60_000, 600_000, 3_600_000)
_CELLS: Final = 600
"""Of the picture of groups and queues; and elements of the list of queues."""
_QUEUES: Final = 1_000


async def show(ask: ViewAsk) -> View:
    topic = ask.words["topic"]
    described = await ask.cluster.look(("topic", topic), lambda: describe_topic(topic))
    seen = await ask.cluster.look(
        ("readers", topic), lambda: readers_now(topic, MOST_GROUPS, MOST_MEMBERS, MOST_ASKED)
    )
    queues = sorted(described.queues, key=lambda q: (q.broker, q.queue))
    last = max((q.last_update_ms for q in queues), default=0)
    lag = sum(max(0, row.lag) for rows in seen.rows.values() for row in rows)
    perms = "/".join(sorted({b.perm for b in described.brokers}))
    brokers = parts.counted(len(described.brokers), "broker")
    members = parts.counted(sum(map(_online, seen.online.values())), "member")
    body = [
        head(ask, topic, ""),
        parts.tiles(
            ("Messages", parts.number(described.messages), "kept now"),
            ("Queues", str(len(queues)), f"on {brokers}, {perms}"),
            ("Groups", str(len(seen.groups)), f"{members} online"),
            ("Behind", parts.number(lag), "over all groups"),
            ("Last message", parts.moment(last, ago=True), "stored"),
        ),
        _readers(ask, topic, seen, queues),
        parts.panel("Queues", _queues(queues)),
    ]
    return View(topic, "topics", body, ("topic", "readers", topic, "--owners"), 2)


def head(ask: ViewAsk, topic: str, tab: str) -> Node:
    """What all pages of a topic begin with."""
    at = ("topics", topic)
    acts = (
        (ask.url(*at, "produce"), "Produce"),
        (ask.url("act", "topic-resize", topic=topic), "Resize"),
        (ask.url("act", "topic-delete", topic=topic), "Delete"),
    )
    tabs = (
        ("", ask.url(*at), "Queues and readers"),
        ("messages", ask.url(*at, "messages"), "Messages"),
        ("tail", ask.url(*at, "tail"), "Live tail"),
        ("settings", ask.url(*at, "settings"), "Settings"),
    )
    above = parts.crumbs((ask.url("topics"), "Topics"))
    return [above, parts.heading(topic, *acts), parts.tabs(tab, *tabs)]


def _online(group: OnlineGroup) -> int:
    return len(group.members) + group.more


def _readers(ask: ViewAsk, topic: str, seen: TopicReaders, queues: Sequence[QueueRow]) -> Element:
    """Groups against queues."""
    title = "Lag of each group in each queue, and who owns it"
    if not seen.groups:
        makes = parts.code(f"roquette consume {topic} --group my-group")
        return parts.panel(title, parts.empty("No group reads this topic", makes, " makes one."))
    heads = [(q.broker, q.queue) for q in queues][: _CELLS // max(1, len(seen.rows))]
    brokers = list(dict.fromkeys(broker for broker, _ in heads))
    left = len(seen.groups) - len(seen.rows)

    def line(group: str) -> Element:
        by = {(row.broker, row.queue): row for row in seen.rows[group]}
        errors = [row.error for row in by.values() if row.error]
        known = [row.lag for row in by.values() if not row.error]
        members = _online(seen.online[group])
        state = parts.dot("ok" if members else "off", f"{members} online")
        cells = (_cell(by.get(at), ask.now_ms) for at in heads)
        return h.tr(id=f"g-{group}")[
            h.th(scope="row")[ask.link("groups", group), h.div(".dim")[state]],
            h.td(".n.total", title=errors[0] if errors else None)[
                parts.number(sum(known) if known else -1), "+?" if errors and known else None
            ],
            cells,
        ]

    spans = {broker: sum(1 for name, _ in heads if name == broker) for broker in brokers}
    above = [h.th(colspan=wide, scope="colgroup")[name] for name, wide in spans.items()]
    numbers = [h.th(".n", scope="col")[str(queue)] for _, queue in heads]
    table = h.table(".heat")[
        h.caption(".sr")["Messages each group has not consumed yet, by queue, with its owner"],
        h.thead[
            h.tr[h.td(colspan="2"), above],
            h.tr[h.th(scope="col")["Group"], h.th(".n", scope="col")["Lag"], numbers],
        ],
        h.tbody[map(line, seen.rows)],
    ]
    return parts.panel(
        title,
        parts.scroll("Lag by group and queue", table),
        parts.more(len(queues) - len(heads), "more queues are not drawn."),
        parts.more(left, "more groups are not asked: open one."),
        aside=heat_key(),
    )


def heat_key() -> Element:
    """What the colours mean."""
    label = "Colours: how old the last message is that the group consumed there"
    ages = (h.li(f".h{at}")[text] for at, text in enumerate(AGES))
    return h.ul(".heatkey", aria_label=label)[ages]


def _cell(row: LagRow | None, now_ms: int) -> Element:
    if row is None or row.error:
        words = row.error if row else "the group has no offset in this queue"
        return h.td(".none", title=words)["?" if row else "·"]
    who = f"owned by {row.owner}" if row.owner else "nobody says that it owns it"
    owner = h.small[short(row.owner)] if row.owner else h.small(".nobody")["nobody"]
    return h.td(
        f".n.h{level(row, now_ms)}",
        title=f"offset {row.consumer_offset} of {row.broker_offset}; {who}",
    )[parts.number(row.lag), owner]


def level(row: LagRow, now_ms: int) -> int:
    """By time, not by count: a thousand messages are nothing to one group and a day to another."""
    if row.lag <= 0:
        return 0
    if row.last_consumed_ms <= 0:
        return 5
    behind = now_ms - row.last_consumed_ms
    return next((at for at, limit in enumerate(_LIMITS_MS, 1) if behind < limit), 5)


def short(client: str) -> str:
    """What tells a member from the others: the part behind the @, without the process's mark."""
    return client.rpartition("@")[2].split("#")[0][-14:]


def _queues(queues: Sequence[QueueRow]) -> Node:
    return parts.grid(
        "Queues",
        queues,
        {
            "Queue": lambda q: parts.code(f"{q.broker}:{q.queue}"),
            "#Oldest": lambda q: q.min_offset,
            "#End": lambda q: q.max_offset,
            "#Messages": lambda q: max(0, q.max_offset - max(0, q.min_offset)),
            "Last message": lambda q: parts.moment(q.last_update_ms, ago=True),
        },
        parts.empty("No queue is known"),
        lambda q: f"q-{q.broker}-{q.queue}",
        _QUEUES,
    )
