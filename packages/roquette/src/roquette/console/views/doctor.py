"""What is wrong, why, and what to do? Every finding, with the changes that cure it."""

from itertools import accumulate
from typing import Final

import htpy as h
from htpy import Element, Node

from roquette.admin.doctor.findings import Finding, Severity, apply_remedies
from roquette.console import acts, parts
from roquette.console.ask import View, ViewAsk
from roquette.console.views.overview import verdict
from roquette.errors import ConfigError

PATHS: Final = ("/doctor",)
MOST_NODES: Final = 2_400
_TONES: Final = {Severity.ERROR: "bad", Severity.WARNING: "warn", Severity.NOTE: "off"}


async def show(ask: ViewAsk, done: Node = None) -> View:
    """The view."""
    looked = ask.cluster.examined()
    findings = looked.value.findings if looked else []
    costs = accumulate(16 + 6 * len(each.remedies) for each in findings)  # elements of each
    shown = sum(1 for each in costs if each <= MOST_NODES)
    cost = f"it took {parts.span(looked.took_s * 1000)} to look" if looked else ""
    body = [
        parts.heading("Doctor"),
        done,
        verdict(ask, looked, 0),
        (_finding(ask, each) for each in findings[:shown]),
        h.p(".note")[f"{parts.number(len(findings) - shown)} more are not shown here."]
        if len(findings) > shown
        else None,
        h.p(".dim")[cost, ": ", parts.counted(len(findings), "finding")] if looked else None,
    ]
    return View(title="Doctor", place="doctor", body=body, command=("doctor",), live_s=5)


def _finding(ask: ViewAsk, finding: Finding) -> Element:
    tone = _TONES[finding.severity]
    return h.section(f".finding.{tone}", id=finding.code)[
        h.h2[
            parts.dot(tone, finding.severity.value),
            " ",
            parts.code(finding.code),
            " ",
            finding.subject,
        ],
        parts.facts((("seen", finding.evidence), ("why", finding.cause), ("fix", finding.fix))),
        (
            h.form(".deed", method="post", action=ask.url("doctor"))[
                h.input(type="hidden", name="mark", value=acts.mark_of(remedy)),
                h.button(".go", type="submit")[f"Do it: {remedy.words}"],
                h.span(".dim")["the way back: ", parts.code(remedy.undo)],
            ]
            for remedy in finding.remedies
            if not ask.read_only
        ),
    ]


async def act(ask: ViewAsk, form: dict[str, str], address: str) -> View:
    """Carry out a remedy that was shown, if it is still one."""
    looked = ask.cluster.examined()
    known = [r for f in (looked.value.findings if looked else ()) for r in f.remedies]
    chosen = [remedy for remedy in known if acts.mark_of(remedy) == form.get("mark")]
    if not chosen:
        return await show(
            ask, parts.note("warn", "Not done: the doctor says otherwise now", "look again")
        )
    remedy, audit = chosen[0], ask.deeds.audit
    where = (ask.person, address, ask.cluster.name, f"doctor: {remedy.words}")
    audit.note(*where, "begun", remedy.undo)
    failed = await ask.cluster.run(apply_remedies([remedy]))
    audit.note(*where, f"failed: {failed[0]}" if failed and failed[0] else "done", remedy.undo)
    ask.cluster.looks.forget()
    if failed and failed[0]:
        raise ConfigError(failed[0])
    return await show(ask, parts.note("ok", "Done", "the doctor looks again"))
