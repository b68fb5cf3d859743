"""What differs from this file? A YAML to paste, its plan, and the button that takes the steps."""

from typing import Final

import htpy as h
from htpy import Node

from roquette.admin.apply import (
    Effect,
    PlanStep,
    carry_out,
    plan,
    read_wanted,
    rows,
    unknown,
    what_is_there,
)
from roquette.console import parts
from roquette.console.acts import mark_of
from roquette.console.ask import View, ViewAsk
from roquette.errors import ConfigError

PATHS: Final = ("/apply",)
MOST: Final = 10_000
_EXAMPLE: Final = "topics:\n  orders:\n    writeQueueNums: 8\n    readQueueNums: 8\n"


async def show(ask: ViewAsk, done: Node = None) -> View:
    """The file, and its plan when there is one."""
    text = ask.query.get("file", "").replace("\r\n", "\n")
    content: Node = None
    if text:
        try:
            content = _plan(ask, text, await _steps(ask, text))
        except ConfigError as error:
            content = parts.trouble("There is no such plan", str(error))
    area = h.textarea(name="file", rows="12", spellcheck="false")[text or _EXAMPLE]
    form = h.form(".act-form", method="get")[
        h.label["Topics, groups and settings, as they are to be", area],
        h.button(type="submit")["Show the plan"],
    ]
    body = [parts.heading("Apply a file"), done, form, content]
    return View("Apply", "apply", body, ("apply", "--file", "cluster.yaml", "--plan"))


async def _steps(ask: ViewAsk, text: str) -> list[PlanStep]:
    if len(text) > MOST:
        raise ConfigError(f"a file here has {MOST} characters at most: use 'roquette apply --file'")
    wanted = read_wanted(text.encode(), "the file")
    there = await ask.cluster.run(what_is_there(wanted))
    if missing := unknown(wanted, there):
        raise ConfigError(f"the file names what is not there: {', '.join(missing)}")
    return plan(wanted, there)


def _todo(steps: list[PlanStep]) -> list[PlanStep]:
    return [step for step in steps if step.effect in (Effect.SAFE, Effect.REFUSES)]


def _mark(steps: list[PlanStep]) -> str:
    return mark_of(rows(_todo(steps)))


def _plan(ask: ViewAsk, text: str, steps: list[PlanStep]) -> Node:
    todo = _todo(steps)
    refuses = sum(1 for step in todo if step.effect is Effect.REFUSES)
    if not steps:
        return parts.note("ok", "The cluster is as the file says")
    words = f"take {parts.counted(len(todo), 'step')}"
    words += f", {refuses} of which refuse clients" if refuses else ""
    left = parts.dim("What is lossy or drift is not done: the plan says how.")
    kind, to = "danger" if refuses else "go", ask.url("apply", file=text)
    button = parts.plan_button(to, _mark(steps), words, left, kind=kind)
    table = parts.panel("The plan", parts.rows_of(rows(steps), "The plan"))
    return [table, button if todo and not ask.read_only else None]


async def act(ask: ViewAsk, form: dict[str, str], address: str) -> View:
    """Take the steps that were shown, if they are still the same."""
    text = ask.query.get("file", "").replace("\r\n", "\n")
    steps = await _steps(ask, text)
    if _mark(steps) != form.get("mark"):
        why = "Not done: the plan has changed meanwhile"
        return await show(ask, parts.note("warn", why, "look at it again"))
    todo = _todo(steps)
    back = "; ".join(f"{s.kind} {s.subject} on {s.broker}: {s.now or 'not there'}" for s in todo)
    with ask.noting(address, "apply --file ...", back) as result:
        done = await ask.cluster.run(carry_out(todo, refuses=True))
        failed = [row.error for row in done if row.error]
        result += failed[:1]
    count = f"{len(done) - len(failed)} of {parts.counted(len(done), 'step')} done"
    told = parts.note("bad" if failed else "ok", count)
    table = parts.panel("What was done", parts.rows_of(done, "What was done"))
    return await show(ask, [told, table])
