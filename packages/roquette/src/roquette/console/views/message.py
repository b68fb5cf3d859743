"""What became of a message? Its journey drawn, every verdict with its evidence, and the message itself."""

from typing import Final

import htpy as h
from htpy import Element, Node

from roquette.admin.explain import MessageFacts, MessageVerdict, collect, explain
from roquette.console import parts
from roquette.console.ask import View, ViewAsk
from roquette.console.bodies import body_of
from roquette.console.journey import SENDER, TOPIC, JourneyStep, steps_of, tone
from roquette.message.message import ReceivedMessage

PATHS: Final = ("/messages/{message}",)
MOST: Final = 20


async def show(ask: ViewAsk) -> View:
    """The view."""
    message, topic = ask.words["message"], ask.text("topic") or None
    found = await ask.cluster.look(
        ("message", message, topic), lambda: collect(message, topic, ask.now_ms)
    )
    above = [(ask.url("messages"), "Messages")]
    if topic:
        above.append((ask.url("topics", topic, "messages"), topic))
    send = ask.url("act", "msg-resend", message=message, topic=topic)
    body: list[Node] = [
        parts.crumbs(*above),
        parts.heading(message, (send, "Send again")),
        h.p[f"{len(found)} messages have this key."] if len(found) > 1 else None,
        [_one(ask, facts) for facts in found[:MOST]],
        h.p(".note")[f"{len(found) - MOST} more are not shown: say which topic"]
        if len(found) > MOST
        else None,
    ]
    words = ("explain", message, *(("--topic", topic) if topic else ()))
    return View(title=message, place="messages", body=body, command=words, live_s=5)


def _one(ask: ViewAsk, facts: MessageFacts) -> Node:
    verdicts = explain(facts)
    stored = next((copy for copy in facts.copies if copy.topic == facts.topic), None)
    stored = stored or next(iter(facts.copies), None)
    return [
        parts.panel(
            "Journey",
            _journey(ask, steps_of(facts, verdicts)),
            aside=f"by what {parts.counted(len(facts.brokers), 'broker')} and the trace topic tell",
        ),
        parts.panel("What is known, and how", _verdicts(ask, verdicts)),
        _message(stored) if stored is not None else None,
    ]


def _journey(ask: ViewAsk, steps: list[JourneyStep]) -> Element:
    """A row for each lane; steps stand in the order of their times, so that the eye goes from left to right."""
    if not steps:
        return parts.empty(
            "Nothing is known of it",
            "No broker has it: it never came, or is older than what is kept.",
        )
    lanes = sorted(
        dict.fromkeys(s.lane for s in steps), key=lambda lane: {SENDER: 0, TOPIC: 1}.get(lane, 2)
    )
    moments = sorted({step.at_ms for step in steps if step.at_ms})
    column = {at: number for number, at in enumerate(moments)}
    is_open = any(not step.at_ms for step in steps)

    def place(step: JourneyStep) -> int:
        return column[step.at_ms] if step.at_ms else len(moments)

    def cell(lane: str, at: int) -> Element:
        here = [s for s in steps if s.lane == lane and place(s) == at]
        return h.td[
            (
                h.div(f".step.{s.kind}", title=s.text)[
                    h.i(aria_hidden="true"), h.strong[s.title], h.span[s.text]
                ]
                for s in here
            )
        ]

    def track(lane: str) -> Element:
        used = {place(s) for s in steps if s.lane == lane}
        is_group = lane not in (SENDER, TOPIC)
        name: Node = h.a(href=ask.url("groups", lane))[lane] if is_group else lane
        return h.tr[
            h.th(scope="row")[name, h.small["group"] if is_group else None],
            (
                h.td(".rail") if min(used) < at < max(used) and at not in used else cell(lane, at)
                for at in range(len(moments) + is_open)
            ),
        ]

    begin = moments[0] if moments else 0
    return h.div(".scroll", tabindex="0", role="region", aria_label="Journey")[
        h.table(".journey")[
            h.caption(".sr")["Each row is who had the message; columns are moments, in order"],
            h.thead[
                h.tr[
                    h.td,
                    (
                        h.th(scope="col")[_after(at - begin), h.small[parts.moment(at)]]
                        for at in moments
                    ),
                    h.th(scope="col")["now"] if is_open else None,
                ]
            ],
            h.tbody[(track(lane) for lane in lanes)],
        ]
    ]


def _after(ms: int) -> str:
    if ms == 0:
        return "0"
    return f"+{ms / 1000:.3f}\u202fs" if 1000 <= ms < 100_000 else f"+{parts.span(ms)}"


def _verdicts(ask: ViewAsk, verdicts: list[MessageVerdict]) -> Element:
    return h.ol(".verdicts")[
        (
            h.li(f".{tone(each.code)}")[
                h.span(".codeword")[each.code],
                h.div[
                    h.p[
                        [h.a(href=ask.url("groups", each.group))[each.group], " "]
                        if each.group
                        else None,
                        each.says,
                    ],
                    h.p(".evidence")[each.evidence] if each.evidence else None,
                ],
            ]
            for each in verdicts
        )
    ]


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
    return parts.panel(
        "The message",
        h.div(".two")[h.pre(tabindex="0")[body.text], parts.facts(known)],
        aside=f"{body.kind}, {parts.size(len(m.body))}"
        + ("" if body.whole else ", not all of it is shown"),
    )
