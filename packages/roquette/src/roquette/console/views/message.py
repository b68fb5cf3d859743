"""What became of a message? Its journey drawn, every verdict with its evidence, and the message itself."""

from typing import Final

import htpy as h
from htpy import Element, Node

from roquette.admin.explain import (
    MessageFacts,
    MessageVerdict,
    SearchTooLarge,
    collect,
    explain,
)
from roquette.console import acts, parts
from roquette.console.act_table import ACTS
from roquette.console.ask import View, ViewAsk
from roquette.console.bodies import body_of
from roquette.console.journey import SENDER, TOPIC, JourneyStep, steps_of, tone
from roquette.errors import ConfigError
from roquette.message.message import ReceivedMessage

PATHS: Final = ("/messages/{message}",)
MOST: Final = 20
MOST_SEARCHED: Final = 400
"""Requests to find it in all topics; what takes more is a job."""


async def show(ask: ViewAsk) -> View:
    message, topic = ask.words["message"], ask.text("topic") or None
    above = [(ask.url("messages"), "Messages")]
    above += [(ask.url("topics", topic, "messages"), topic)] if topic else []
    send = ask.url("act", "msg-resend", message=message, topic=topic)
    head = [parts.crumbs(*above), parts.heading(message, (send, "Send again"))]
    words = ("explain", message, *(("--topic", topic) if topic else ()))
    try:
        found = await ask.cluster.look(
            ("message", message, topic),
            lambda: collect(message, topic, ask.now_ms, most=MOST_SEARCHED),
        )
    except SearchTooLarge as error:
        return View(message, "messages", [head, await _search(ask, message, error.topics)], words)
    except ConfigError as error:
        none = parts.refused("Nothing is known of it", error)
        return View(message, "messages", [head, none], words)
    body: list[Node] = [
        head,
        h.p[f"{len(found)} messages have this key."] if len(found) > 1 else None,
        [_one(ask, facts) for facts in found[:MOST]],
        parts.more(len(found) - MOST, "more are not shown: say which topic"),
    ]
    return View(message, "messages", body, words, 5)


async def _search(ask: ViewAsk, message: str, topics: int) -> Element:
    """The job that looks through all topics, and the field for the one that it was sent to."""
    typed = {"message": message}
    plan = await acts.plan_of(ACTS["explain"], ask, typed)
    count = parts.counted(topics, "topic")
    looks = parts.plan_button(ask.url("act", "explain", **typed), plan.mark, f"look at all {count}")
    field = parts.entry("topic", "The topic that it was sent to", required=True, size="24")
    named = h.form(".filter", method="get", role="search")[
        field, h.button(type="submit")["What became of it"]
    ]
    why = f"It may be in each of {count}: a search that tells how far it is, and may be stopped."
    instead = h.p(".dim")["This console is read-only: the command below looks at all of them."]
    return parts.panel("In which topic?", named, h.p[why], instead if ask.read_only else looks)


def _one(ask: ViewAsk, facts: MessageFacts) -> Node:
    verdicts = explain(facts)
    copies = sorted(facts.copies, key=lambda copy: copy.topic != facts.topic)
    by = f"by what {parts.counted(len(facts.brokers), 'broker')} and the trace topic tell"
    return [
        parts.panel("Journey", _journey(ask, steps_of(facts, verdicts)), aside=by),
        parts.panel("What is known, and how", _verdicts(ask, verdicts)),
        _message(copies[0]) if copies else None,
    ]


def _journey(ask: ViewAsk, steps: list[JourneyStep]) -> Element:
    """A row for each lane; steps stand in the order of their times, so that the eye goes from left to right."""
    if not steps:
        why = "No broker has it: it never came, or is older than what is kept."
        return parts.empty("Nothing is known of it", why)
    first = {SENDER: 0, TOPIC: 1}
    lanes = sorted(dict.fromkeys(s.lane for s in steps), key=lambda lane: first.get(lane, 2))
    moments = sorted({step.at_ms for step in steps if step.at_ms})
    column = {at: number for number, at in enumerate(moments)}
    is_open = any(not step.at_ms for step in steps)

    def place(step: JourneyStep) -> int:
        return column[step.at_ms] if step.at_ms else len(moments)

    def cell(lane: str, at: int) -> Element:
        here = [step for step in steps if step.lane == lane and place(step) == at]
        point = h.i(aria_hidden="true")
        return h.td[
            (
                h.div(f".step.{s.kind}", title=s.text)[point, h.strong[s.title], h.span[s.text]]
                for s in here
            )
        ]

    def track(lane: str) -> Element:
        used = {place(step) for step in steps if step.lane == lane}
        is_group = lane not in (SENDER, TOPIC)
        name: Node = [ask.link("groups", lane), h.small["group"]] if is_group else lane
        return h.tr[
            h.th(scope="row")[name],
            (
                h.td(".rail") if min(used) < at < max(used) and at not in used else cell(lane, at)
                for at in range(len(moments) + is_open)
            ),
        ]

    times = [
        h.th(scope="col")[_after(at - moments[0]), h.small[parts.moment(at)]] for at in moments
    ]
    now = h.th(scope="col")["now"] if is_open else None
    table = h.table(".journey")[
        h.caption(".sr")["Each row is who had the message; columns are moments, in order"],
        h.thead[h.tr[h.td, times, now]],
        h.tbody[map(track, lanes)],
    ]
    return parts.scroll("Journey", table)


def _after(ms: int) -> str:
    if ms == 0:
        return "0"
    return f"+{ms / 1000:.3f}\u202fs" if 1000 <= ms < 100_000 else f"+{parts.span(ms)}"


def _verdicts(ask: ViewAsk, verdicts: list[MessageVerdict]) -> Element:
    def line(each: MessageVerdict) -> Element:
        group: Node = [ask.link("groups", each.group), " "] if each.group else None
        evidence = h.p(".evidence")[each.evidence] if each.evidence else None
        code = h.span(".codeword")[each.code]
        return h.li(f".{tone(each.code)}")[code, h.div[h.p[group, each.says], evidence]]

    return h.ol(".verdicts")[map(line, verdicts)]


def _message(m: ReceivedMessage) -> Element:
    body = body_of(m.body)
    known = (
        ("topic", m.topic),
        ("queue", f"{m.queue.broker_name}:{m.queue.queue_id}"),
        ("offset", str(m.queue_offset)),
        ("message id", m.message_id),
        ("offset message id", m.offset_message_id),
        *sorted(m.properties.items()),
    )
    words = f"{body.kind}, {parts.size(len(m.body))}"
    words += "" if body.whole else ", not all of it is shown"
    content = h.div(".two")[h.pre(tabindex="0")[body.text], parts.facts(known)]
    return parts.panel("The message", content, aside=words)
