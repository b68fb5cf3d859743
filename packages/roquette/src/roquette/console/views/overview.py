"""Is anything wrong, and where? Rates, brokers, name servers, what the doctor found, and who is furthest behind."""

from collections import defaultdict
from typing import Final, NamedTuple

import htpy as h
from htpy import Element, Node

from roquette.admin.doctor.findings import Finding, Severity
from roquette.admin.facts import ClusterFacts
from roquette.admin.top import BrokerState
from roquette.console import charts, parts
from roquette.console.ask import View, ViewAsk
from roquette.console.look import Examination, Look

PATHS: Final = ("/",)
SHOWN: Final = 8
_TITLES: Final = {"ok": "Healthy", "warn": "Look at this", "bad": "Something is wrong"}


class Behind(NamedTuple):
    """How far a group is behind in a topic: messages, and the ms for which the oldest waits; -1: not known."""

    group: str
    topic: str
    lag: int
    waits_ms: int


async def show(ask: ViewAsk) -> View:
    """The view."""
    cluster = ask.cluster
    states = await cluster.brokers()
    looked = cluster.examined()
    facts = looked.value.facts if looked else ClusterFacts()
    masters = [s for s in states if s.broker_id == 0 and s.answers]
    now = cluster.rates[-1] if cluster.rates else None
    behind, silent = behind_in(facts), [s for s in states if not s.answers]
    members = sum(len(group.members) for group in facts.groups)
    own = {name for broker in facts.masters() for name in broker.topics}
    today = sum(max(0, s.messages_today) for s in masters)
    body = [
        parts.heading("Overview"),
        _missing(states, silent) or verdict(ask, looked),
        parts.tiles(
            (
                "In",
                [parts.rate(now.sent) if now else "…", h.small["/s"]],
                f"{parts.number(today)} today",
            ),
            ("Out", [parts.rate(now.read) if now else "…", h.small["/s"]], "to consumers"),
            ("Behind", *_sum_of(looked, behind)),
            (
                "Brokers",
                f"{len(states) - len(silent)}",
                parts.dot("bad", f"{len(silent)} silent")
                if silent
                else parts.dot("ok", "all answer")
                if states
                else parts.dot("bad", "none is known"),
            ),
            (
                "Topics",
                parts.number(len(own)) if looked else "…",
                parts.counted(len(cluster.name_servers), "name server"),
            ),
            (
                "Members",
                parts.number(members) if looked else "…",
                f"of {parts.counted(len(facts.groups), 'group')}" if looked else "being examined",
            ),
        ),
        h.div(".two")[
            parts.panel("Messages per second", _chart(ask), aside=_legend()),
            parts.panel(
                "Furthest behind",
                _ranking(ask, behind, looked is not None),
                aside=h.a(href=ask.url("groups"))["All groups"],
            ),
        ],
        parts.panel(
            "Brokers", brokers_grid(ask, states), aside=h.a(href=ask.url("brokers"))["Details"]
        ),
        parts.panel(
            "Name servers",
            _name_servers(ask, facts),
            aside=h.a(href=ask.url("names"))["Compare"],
        ),
    ]
    return View(title="Overview", place="", body=body, command=("doctor",), live_s=2)


def _missing(states: list[BrokerState], silent: list[BrokerState]) -> Node:
    """Newer facts win over the doctor's last look."""
    if not states:
        return parts.trouble("No broker is known", "none is registered at the name servers")
    if not silent:
        return None
    names = ", ".join(sorted({s.broker for s in silent})[:4])
    why = f"{len(silent)} of {len(states)} do not answer: {names}"
    return parts.trouble("Brokers are missing", why, h.p(".dim")[silent[0].error])


def verdict(ask: ViewAsk, looked: "Look[Examination] | None", shown: int = 4) -> Element:
    """What the doctor said last, and when."""
    label = "What the doctor found"
    if looked is None:
        return parts.note("off", "The doctor examines the cluster")
    findings = looked.value.findings
    count = {each: sum(1 for f in findings if f.severity is each) for each in Severity}
    worst = "bad" if count[Severity.ERROR] else "warn" if count[Severity.WARNING] else "ok"
    words = ", ".join(f"{n} {each}{'s' * (n != 1)}" for each, n in count.items() if n)
    first = [f for f in findings if f.severity is not Severity.NOTE][:shown]
    return h.section(f".verdict.{worst}", aria_label=label)[
        h.div(".sum")[
            parts.dot(worst, _TITLES[worst]),
            h.span(".dim")[words or "nothing is wrong", ", examined ", parts.moment(looked.at_ms)],
            h.a(href=ask.url("doctor"))["All findings"],
        ],
        h.ul[(h.li[_finding(ask, each)] for each in first)] if first else None,
    ]


def _finding(ask: ViewAsk, finding: Finding) -> Node:
    return [
        h.a(href=ask.url("doctor") + f"#{finding.code}")[parts.code(finding.code)],
        " ",
        h.strong[finding.subject],
        " ",
        finding.evidence,
        h.span(".fix")[finding.fix],
    ]


def behind_in(facts: ClusterFacts) -> list[Behind]:
    """Groups that have messages before them, the most first."""
    lags: defaultdict[tuple[str, str], int] = defaultdict(int)
    for position in facts.positions():
        lags[position.group, position.queue.topic] += position.lag
    waits = {key: ms for broker in facts.masters() for key, ms in broker.waits.items()}
    rows = [
        Behind(group, topic, lag, waits.get((group, topic), -1))
        for (group, topic), lag in lags.items()
        if lag
    ]
    return sorted(rows, key=lambda row: (-row.lag, row.group, row.topic))


def _sum_of(looked: object, behind: list[Behind]) -> tuple[Node, Node]:
    if looked is None:
        return "…", "being examined"
    groups = len({row.group for row in behind})
    words = f"in {parts.counted(groups, 'group')}" if behind else "all groups are at the end"
    return parts.number(sum(row.lag for row in behind)), words


def _chart(ask: ViewAsk) -> Node:
    rates = ask.cluster.rates
    if len(rates) < 2:
        return parts.empty("Collecting", "Rates are drawn from the moment somebody looks.")
    sent, read = [each.sent for each in rates], [each.read for each in rates]
    times = [each.at_ms for each in rates]
    label = "Messages per second, in and out, since somebody looks"
    return charts.chart([("in", sent), ("out", read)], times, label)


def _legend() -> Element:
    return h.span(".legend")[h.i(".in"), "in", h.i(".out"), "out"]


def _ranking(ask: ViewAsk, behind: list[Behind], looked: bool) -> Element:
    if not looked:
        return parts.empty("Being examined")
    if not behind:
        return parts.empty("Nobody is behind", "Every group is at the end of every queue it reads.")
    return h.ol(".ranking")[
        (
            h.li[
                h.a(href=ask.url("groups", row.group))[row.group],
                h.span(".dim")[
                    " on ",
                    h.a(href=ask.url("topics", row.topic))[row.topic],
                    f", {parts.span(row.waits_ms)} behind" if row.waits_ms >= 0 else None,
                ],
                h.span(".n")[parts.number(row.lag)],
                h.progress(
                    value=row.lag,
                    max=behind[0].lag,
                    aria_label=f"{row.group} is {row.lag} messages behind",
                ),
            ]
            for row in behind[:SHOWN]
        )
    ]


def brokers_grid(ask: ViewAsk, states: list[BrokerState]) -> Node:
    """Brokers with their rates, and who does not answer."""
    return parts.grid(
        [
            "Broker",
            "Role",
            "Address",
            "State",
            "#In /s",
            "Recently",
            "#Out /s",
            "#Today",
            "Disk",
            "Version",
        ],
        (_broker(ask, each) for each in states),
        caption="Brokers",
        keyed=[f"b-{each.broker}-{each.address}" for each in states],
        empty=parts.trouble(
            "No broker", "the name servers know none: it has stopped, or registers elsewhere"
        ),
    )


def _broker(ask: ViewAsk, state: BrokerState) -> tuple[Node, ...]:
    points = list(ask.cluster.by_broker.get(state.address, ()))
    word = parts.dot("ok", "answers") if state.answers else parts.dot("bad", state.error)
    return (
        h.a(href=ask.url("brokers", state.broker))[state.broker],
        "master" if state.broker_id == 0 else f"replica {state.broker_id}",
        parts.code(state.address),
        parts.dot("warn", "drained") if state.drained and state.answers else word,
        parts.rate(state.in_tps),
        charts.spark(points, f"messages in at {state.broker}"),
        parts.rate(state.out_tps),
        parts.number(state.messages_today),
        charts.bar(state.disk_used, f"disk of {state.broker}")
        if state.disk_used >= 0
        else parts.UNKNOWN,
        h.span(".dim")[state.version.replace("_", ".").lstrip("V") or parts.UNKNOWN],
    )


def _name_servers(ask: ViewAsk, facts: ClusterFacts) -> Node:
    if not facts.name_servers:
        return parts.grid(
            ["Address"],
            [[parts.code(each)] for each in ask.cluster.name_servers],
            caption="Name servers",
        )
    return parts.grid(
        ["Address", "State", "#Brokers", "#Topics"],
        [
            (
                parts.code(server.address),
                parts.dot("bad", server.error) if server.error else parts.dot("ok", "answers"),
                parts.number(-1 if server.error else len(server.cluster.broker_addr_table)),
                parts.number(-1 if server.error else len(server.topics)),
            )
            for server in facts.name_servers
        ],
        caption="Name servers",
    )
