"""What is under way? Acts that take long, their sentences, and how they ended."""

import shlex
from typing import Final

import htpy as h
from htpy import Node

from roquette.console import parts
from roquette.console.acts import found
from roquette.console.ask import View, ViewAsk
from roquette.console.jobs import ConsoleJob
from roquette.errors import ConfigError

PATHS: Final = ("/jobs", "/jobs/{number}")
SHOWN: Final = 400
_STATES: Final = {"at work": "warn", "done": "ok", "failed": "bad", "stopped": "off"}


async def show(ask: ViewAsk) -> View:
    if "number" in ask.words:
        return _one(ask, _job(ask))
    table = parts.grid(
        "Jobs",
        ask.deeds.jobs.all(ask.cluster.name),
        {
            "Job": lambda job: h.a(href=ask.url("jobs", str(job.number)))[f"Job {job.number}"],
            "State": lambda job: parts.dot(_STATES[job.state], job.state),
            "Begun": lambda job: parts.moment(job.begun_ms, ago=True),
            "Who": lambda job: job.who,
            "Command": lambda job: parts.code(shlex.join(job.command)),
        },
        parts.empty(
            "No job was begun", "Drain and resize are jobs: they go on while nobody looks."
        ),
    )
    return View("Jobs", "jobs", [parts.heading("Jobs"), table], live_s=2)


def _job(ask: ViewAsk) -> ConsoleJob:
    number = ask.words.get("number", "")
    found = ask.deeds.jobs.get(int(number), ask.cluster.name) if number.isdigit() else None
    if found is None:
        raise ConfigError(f"there is no job {number[:20]}; the newest hundred are kept")
    return found


def _one(ask: ViewAsk, job: ConsoleJob) -> View:
    at_work = job.state == "at work"
    took = (job.ended_ms or ask.now_ms) - job.begun_ms
    stop = h.form(".deed", method="post", action=ask.url("jobs", str(job.number)))[
        h.button(".danger", type="submit")["Stop"],
        parts.dim("It may be begun again: what is done is not done twice."),
    ]
    told = job.sentences[-SHOWN:]
    lines = h.ol(".sentences")[(h.li[parts.moment(at), " ", text] for at, text in told)]
    aside = f"the newest {SHOWN}" if len(job.sentences) > SHOWN else None
    body = [
        parts.crumbs((ask.url("jobs"), "Jobs")),
        parts.heading(f"Job {job.number}"),
        parts.tiles(
            ("State", parts.dot(_STATES[job.state], job.state), f"by {job.who}"),
            ("Begun", parts.moment(job.begun_ms), "" if at_work else f"took {parts.span(took)}"),
        ),
        stop if at_work and not ask.read_only else None,
        parts.refused("It failed", job.error) if job.error else None,
        parts.panel("What it told", lines if told else parts.empty("Nothing yet"), aside=aside),
        _result(ask, job),
    ]
    return View(f"Job {job.number}", "jobs", body, job.command, 1 if at_work else 0)


def _result(ask: ViewAsk, job: ConsoleJob) -> Node:
    """The certificate, as it stands or stood when the job was stopped; then what it found."""
    if job.result is None:
        return parts.panel("So far", parts.rows_of(job.rows, "So far")) if job.rows else None
    if job.command[0] == "explain":
        ways: list[Node] = [
            [ask.link("messages", each["message_id"], topic=each["topic"]), f" in {each['topic']}"]
            for each in job.result.value
        ]
        return parts.panel("What it found", h.ul(".back")[(h.li[way] for way in ways)])
    late = "Time was over before all was done: it may be begun again"
    healthy = getattr(job.result, "healthy", True)
    return [None if healthy else parts.note("warn", late), found("What it found", job.result)]


async def act(ask: ViewAsk, form: dict[str, str], address: str) -> View | str:
    """Stop it."""
    job = _job(ask)
    with ask.noting(address, f"stop job {job.number}: {shlex.join(job.command)}"):
        ask.deeds.jobs.stop(job)
    return ask.url("jobs", str(job.number))
