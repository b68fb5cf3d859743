"""Is anything wrong, and where? Rates, brokers, name servers, what the doctor found, and who is furthest behind."""

from typing import Final

import htpy as h
from htpy import Element, Node

from roquette.admin.doctor.findings import Finding, Severity
from roquette.admin.facts import ClusterFacts, NameServerFacts
from roquette.admin.top import BrokerState
from roquette.console import charts, parts
from roquette.console.ask import View, ViewAsk
from roquette.console.look import Behind, Examination, Look

PATHS: Final = ("/",)
SHOWN: Final = 8
_TITLES: Final = {"ok": "Healthy", "warn": "Look at this", "bad": "Something is wrong"}


async def show(ask: ViewAsk) -> View:
    cluster, servers = ask.cluster, ask.cluster.name_servers
    states, looked = await cluster.brokers(), cluster.examined()
    facts = looked.value.facts if looked else ClusterFacts()
    masters = [s for s in states if s.broker_id == 0 and s.answers]
    now = cluster.rates[-1] if cluster.rates else None
    behind = looked.value.behind if looked else []
    silent = [s for s in states if not s.answers]
    lag, where = _sum_of(behind)
    members = sum(len(group.members) for group in facts.groups)
    topics = parts.number(looked.value.topics if looked else -1)
    today = parts.number(sum(max(0, s.messages_today) for s in masters))
    groups = f"of {parts.counted(len(facts.groups), 'group')}"
    well = parts.dot("ok", "all answer") if states else parts.dot("bad", "none is known")
    well = parts.dot("bad", f"{len(silent)} silent") if silent else well

    furthest = _ranking(ask, behind) if looked else parts.empty("Being examined")

    def seen(value: str, instead: str = "…") -> str:
        return value if looked else instead

    body = [
        parts.heading("Overview"),
        _missing(states, silent) or verdict(ask, looked),
        parts.tiles(
            ("In", [parts.rate(now.sent) if now else "…", h.small["/s"]], f"{today} today"),
            ("Out", [parts.rate(now.read) if now else "…", h.small["/s"]], "to consumers"),
            ("Behind", seen(lag), seen(where, "being examined")),
            ("Brokers", f"{len(states) - len(silent)}", well),
            ("Topics", seen(topics), parts.counted(len(servers), "name server")),
            ("Members", seen(parts.number(members)), seen(groups, "being examined")),
        ),
        h.div(".two")[
            parts.panel("Messages per second", _chart(ask), aside=_legend()),
            _panel(ask, "Furthest behind", furthest, "groups", "All groups"),
        ],
        _panel(ask, "Brokers", brokers_grid(ask, states), "brokers", "Details"),
        _panel(ask, "Name servers", _name_servers(ask, facts), "names", "Compare"),
    ]
    return View("Overview", "", body, ("doctor",), 2)


def _panel(ask: ViewAsk, title: str, content: Node, place: str, text: str) -> Element:
    return parts.panel(title, content, aside=h.a(href=ask.url(place))[text])


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
            h.a(href=ask.url("doctor"))["All findings"] if shown else None,
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
        h.span(".fix")[parts.prose(finding.fix)],
    ]


def _sum_of(behind: list[Behind]) -> tuple[str, str]:
    groups = parts.counted(len({row.group for row in behind}), "group")
    words = f"in {groups}" if behind else "all groups are at the end"
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


def _ranking(ask: ViewAsk, behind: list[Behind]) -> Element:
    if not behind:
        return parts.empty("Nobody is behind", "Every group is at the end of every queue it reads.")

    def line(row: Behind) -> Element:
        waits = f", {parts.span(row.waits_ms)} behind" if row.waits_ms >= 0 else None
        label = f"{row.group} is {row.lag} messages behind"
        return h.li[
            ask.link("groups", row.group),
            h.span(".dim")[" on ", ask.link("topics", row.topic), waits],
            h.span(".n")[parts.number(row.lag)],
            h.progress(value=row.lag, max=behind[0].lag, aria_label=label),
        ]

    return h.ol(".ranking")[map(line, behind[:SHOWN])]


def brokers_grid(ask: ViewAsk, states: list[BrokerState]) -> Node:
    """Brokers with their rates, and who does not answer."""

    def state(row: BrokerState) -> Element:
        if not row.answers:
            return parts.dot("bad", row.error)
        return parts.dot("warn", "drained") if row.drained else parts.dot("ok", "answers")

    def points(row: BrokerState) -> Element:
        rates = ask.cluster.by_broker.get(row.address, ())
        return charts.spark(list(rates), f"messages in at {row.broker}")

    def disk(row: BrokerState) -> Node:
        known = row.disk_used >= 0
        return charts.bar(row.disk_used, f"disk of {row.broker}") if known else parts.UNKNOWN

    why = "the name servers know none: it has stopped, or registers elsewhere"
    return parts.grid(
        "Brokers",
        states,
        {
            "Broker": lambda row: ask.link("brokers", row.broker),
            "Role": lambda row: f"replica {row.broker_id}" if row.broker_id else "master",
            "Address": lambda row: parts.code(row.address),
            "State": state,
            "#In /s": lambda row: parts.rate(row.in_tps),
            "Recently": points,
            "#Out /s": lambda row: parts.rate(row.out_tps),
            "#Today": lambda row: row.messages_today,
            "Disk": disk,
            "Version": lambda row: parts.dim(parts.version(row.version) or parts.UNKNOWN),
        },
        parts.trouble("No broker", why),
        lambda row: f"b-{row.broker}-{row.address}",
    )


def _name_servers(ask: ViewAsk, facts: ClusterFacts) -> Node:
    if not facts.name_servers:
        return parts.grid("Name servers", ask.cluster.name_servers, {"Address": parts.code})

    def state(server: NameServerFacts) -> Element:
        return parts.dot("bad", server.error) if server.error else parts.dot("ok", "answers")

    return parts.grid(
        "Name servers",
        facts.name_servers,
        {
            "Address": lambda each: parts.code(each.address),
            "State": state,
            "#Brokers": lambda e: -1 if e.error else len(e.cluster.broker_addr_table),
            "#Topics": lambda each: -1 if each.error else len(each.topics),
        },
    )
