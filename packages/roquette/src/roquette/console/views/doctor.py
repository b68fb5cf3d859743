"""What is wrong, why, and what to do? Every finding, with the changes that cure it."""

from itertools import accumulate
from typing import Final

import htpy as h
from htpy import Element, Node

from roquette.admin.doctor.findings import Finding, Remedy, Severity, apply_remedies
from roquette.console import acts, parts
from roquette.console.ask import View, ViewAsk
from roquette.console.views.overview import verdict
from roquette.errors import ConfigError

PATHS: Final = ("/doctor",)
MOST_NODES: Final = 2_400
_TONES: Final = {Severity.ERROR: "bad", Severity.WARNING: "warn", Severity.NOTE: "off"}


async def show(ask: ViewAsk, done: Node = None) -> View:
    looked = ask.cluster.examined()
    findings = looked.value.findings if looked else []
    costs = accumulate(16 + 6 * len(each.remedies) for each in findings)  # elements of each
    shown = sum(1 for each in costs if each <= MOST_NODES)
    cost = f"it took {parts.span(looked.took_s * 1000)} to look" if looked else ""
    count = parts.counted(len(findings), "finding")
    body = [
        parts.heading("Doctor"),
        done,
        verdict(ask, looked, 0),
        [_finding(ask, each) for each in findings[:shown]],
        parts.more(len(findings) - shown, "more are not shown here."),
        h.p(".dim")[f"{cost}: {count}"] if looked else None,
    ]
    return View("Doctor", "doctor", body, ("doctor",), 5)


def _finding(ask: ViewAsk, finding: Finding) -> Element:
    tone = _TONES[finding.severity]
    state, code = parts.dot(tone, finding.severity.value), parts.code(finding.code)

    def button(remedy: Remedy) -> Element:
        back = h.span(".dim")["the way back: ", parts.code(remedy.undo)]
        return parts.plan_button(ask.url("doctor"), acts.mark_of(remedy), remedy.words, back)

    return h.section(f".finding.{tone}", id=finding.code)[
        h.h2[state, " ", code, " ", finding.subject],
        parts.facts(
            (("seen", finding.evidence), ("why", finding.cause), ("fix", parts.prose(finding.fix)))
        ),
        None if ask.read_only else map(button, finding.remedies),
    ]


async def act(ask: ViewAsk, form: dict[str, str], address: str) -> View:
    """Carry out a remedy that was shown, if it is still one."""
    looked = ask.cluster.examined()
    known = [r for f in (looked.value.findings if looked else ()) for r in f.remedies]
    remedy = next((each for each in known if acts.mark_of(each) == form.get("mark")), None)
    if remedy is None:
        why = "Not done: the doctor says otherwise now"
        return await show(ask, parts.note("warn", why, "look again"))
    with ask.noting(address, f"doctor: {remedy.words}", remedy.undo):
        failed = await ask.cluster.run(apply_remedies([remedy]))
        if failed and failed[0]:
            raise ConfigError(failed[0])
    return await show(ask, parts.note("ok", "Done", "the doctor looks again"))
