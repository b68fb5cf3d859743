"""Acts: commands of `admin` as pages. A form, then the plan, which has a URL; the plan's mark comes back with the button, and
the plan is made again: what was agreed to is done, or it is shown again."""

import hashlib
import inspect
import re
import shlex
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin

import htpy as h
import msgspec
from htpy import Node

from roquette.admin.command import (
    GIVEN,
    OperationPlan,
    OperationReport,
    command,
    declared,
    flag_of,
    helps_of,
    takes_many,
    words_of,
)
from roquette.admin.drain import ShowRows, unseen
from roquette.console import parts
from roquette.console.ask import View, ViewAsk
from roquette.console.jobs import ConsoleJob, Tell
from roquette.errors import BrokerError, ConfigError

Values = dict[str, Any]
Rows = Sequence[msgspec.Struct]
Before = Callable[[ViewAsk, Values], Awaitable[Rows]]

_STAY: Final = ("read_queues", "write_queues", "queues", "perm", "members", "epoch")
"""Numbers of a plan's rows that do not move with traffic: they are part of what is agreed to."""

_PLACES: Final = {
    "topic": "topics",
    "group": "groups",
    "msg": "messages",
    "explain": "messages",
    "dlq": "dead",
    "broker": "brokers",
    "namesrv": "names",
    "user": "access",
    "acl": "access",
}


class Act(NamedTuple):
    """A command that changes something.

    Attributes:
        words: of the command. function: declared by `admin.command`.
        asks: its parameters that the form has; those that are not there keep their defaults. The first are of the link.
        loses: what is lost to somebody, in words, or what says it of the plan's rows; "": nothing. typed: parameter whose value is typed first.
        job: it takes long. before: rows that are shown where the command has no plan of its own.
        pins: words of a plan as they stay while time goes on. button: words on it, made of the plan's rows.
        back: the command that takes it back, with values in braces, or such commands of the values and the rows before;
            "": there is no way back.
    """

    words: str
    function: Callable[..., Any]
    asks: str
    loses: str | Callable[[Rows], str] = ""
    typed: str = ""
    job: bool = False
    before: Before | None = None
    pins: Callable[[Values, int], Values] = lambda values, now_ms: values
    button: Callable[[Rows], str] | None = None
    back: str | Callable[[Values, Rows], list[tuple[str, ...]]] = ""

    @property
    def asked(self) -> list[str]:
        """Parameters of the form."""
        return self.asks.split()

    @property
    def place(self) -> str:
        """Of the navigation: the command's first word says what it is about."""
        return _PLACES[self.words.split()[0]]


class ActPlan(NamedTuple):
    """What would be done. `question`: in words; `rows`: of what; `does`: the change itself, None: the function is called."""

    question: str
    rows: Rows
    notes: Sequence[str]
    does: Any
    mark: str


def text_values(act: Act, query: Mapping[str, str]) -> Values:
    """The words of a form by parameter, those that are given."""
    return {name: query[name].strip() for name in act.asked if query.get(name, "").strip()}


def read(act: Act, typed: Mapping[str, str]) -> Values:
    """The values of the command; raises ConfigError for what cannot be one."""
    wants, found = inspect.signature(act.function).parameters, {}
    for name, text in typed.items():
        kind, flag = wants[name].annotation, flag_of(wants[name].annotation)
        plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
        kinds, many = (plain, *get_args(plain)), takes_many(kind)
        if flag.reads is not None:
            found[name] = flag.reads(text.split() if many else text)
        elif bool in kinds:
            found[name] = text not in ("", "false", "0")
        elif int in kinds or float in kinds:
            found[name] = _number(name, text, int if int in kinds else float)
            if flag.least is not None and found[name] < flag.least:
                raise ConfigError(f"{name} is at least {flag.least}, not {text[:40]}")
        else:
            found[name] = text.split() if many else text
    return found


def _number(name: str, text: str, kind: type[int] | type[float]) -> float:
    try:
        return kind(text)
    except ValueError:
        raise ConfigError(f"{name.replace('_', ' ')} is a number, not {text[:40]}") from None


def missing(act: Act, typed: Mapping[str, str]) -> list[str]:
    """Parameters without a default that are not given."""
    wants = inspect.signature(act.function).parameters
    return [n for n in act.asked if wants[n].default is inspect.Parameter.empty and n not in typed]


async def plan_of(act: Act, ask: ViewAsk, typed: Mapping[str, str]) -> ActPlan:
    """Make the plan; raises RoquetteError when there is none. Nothing is changed."""
    values, says = read(act, typed), declared(act.function) or command()
    asked: Values = {}
    for name, each in inspect.signature(act.function).parameters.items():
        if name not in GIVEN:
            asked[name] = values.get(name, None if each.default is each.empty else each.default)
    question = says.asks(**asked) if callable(says.asks) else says.asks.format(**asked)
    rows: Rows = []
    notes: Sequence[str] = ()
    does = None
    if says.dry_run or says.confirmed:
        plan = await _found(act.function, values, ask, lambda text: None)
        if not isinstance(plan, OperationPlan):
            why = [plan.empty, *(row.error for row in plan.value or ())]
            raise ConfigError("; ".join(filter(None, why)) or f"{act.words} has no plan")
        shown = plan.shows
        if isinstance(shown, Generator):
            shown = await ask.cluster.run(shown)
        rows, notes, does = _rows(shown), plan.notes, plan.does
        question = plan.asks or question
    elif act.before is not None:
        rows = await act.before(ask, values)
    question = question or act.words
    kept = [[_kept(row, field.name) for field in msgspec.structs.fields(type(row))] for row in rows]
    asks = re.sub(
        r"\d+", "#", question
    )  # what moves with traffic is on the button, not in the mark
    return ActPlan(question, rows, notes, does, mark_of((act.words, dict(typed), asks, kept)))


def mark_of(what: object) -> str:
    """Names what somebody agrees to; plain values and structs."""
    return hashlib.blake2b(msgspec.json.encode(what), digest_size=12).hexdigest()


def _rows(shown: Any) -> Rows:
    if isinstance(shown, OperationReport):
        lists = [each for each in shown.shown or (shown.value,) if isinstance(each, list | tuple)]
        return [row for rows in lists for row in rows if isinstance(row, msgspec.Struct)]
    return list(shown or ())


def _kept(row: msgspec.Struct, name: str) -> object:
    value = getattr(row, name)
    return value if isinstance(value, str | bool) or name in _STAY else None


async def _found(
    function: Callable[..., Any],
    values: Values,
    ask: ViewAsk,
    tell: Tell,
    show: ShowRows = unseen,
) -> Any:
    """What a declared function finds with these values and what is given to it."""
    cluster = ask.cluster
    given = {"name_servers": cluster.name_servers, "clock": cluster.clock, "mq": cluster.client}
    given |= {"run": cluster.run, "tell": tell, "show": show}
    wants = inspect.signature(function).parameters
    result = function(**values, **{name: given[name] for name in wants if name in given})
    if inspect.isawaitable(result):
        result = await result
    return await cluster.run(result) if isinstance(result, Generator) else result


async def show(act: Act, ask: ViewAsk) -> View:
    """The form, and the plan when all is given that it needs."""
    typed = act.pins(text_values(act, ask.query), ask.now_ms)
    lacks, content = missing(act, typed), None
    if not lacks and (typed or not act.asked):
        try:
            content = _shown(act, ask, typed, await plan_of(act, ask, typed))
        except ConfigError as error:
            content = parts.trouble("There is no such plan", str(error))
        except BrokerError as error:
            content = parts.refused("There is no such plan", error)
    return _view(act, () if lacks else typed, _form(act, typed), content)


def _view(act: Act, typed: Mapping[str, str] | tuple[()], *content: Node) -> View:
    title = act.words.capitalize()
    command = words_of(act.words, act.function, typed) if typed else ()
    return View(title, act.place, [parts.heading(title), content], command)


def _form(act: Act, typed: Mapping[str, str]) -> Node:
    helps, wants = helps_of(act.function), inspect.signature(act.function).parameters

    def field(name: str) -> Node:
        each, flag, value = wants[name], flag_of(wants[name].annotation), typed.get(name, "")
        words, label = flag.help or helps.get(name, ""), name.replace("_", " ")
        help = h.small(".help", id=f"help-{name}")[words]
        more = {"aria_describedby": f"help-{name}"} if words else {}
        if isinstance(each.default, bool):
            checked = bool(value)
            box = h.input(type="checkbox", name=name, value="true", checked=checked, **more)
            return [h.label(".check")[box, " ", label], help]
        needed = each.default is each.empty
        stands = (
            "" if flag.form.startswith("--") and " " not in flag.form else flag.form.split(" ")[-1]
        )
        example = stands if needed or each.default in (None, "") else str(each.default)
        entry = parts.entry(name, label, value, required=needed, placeholder=example, **more)
        return [entry, help]

    if not act.asked:
        return None
    fields = h.div(".fields")[map(field, act.asked)]
    return h.form(".act-form", method="get")[fields, h.button(type="submit")["Show the plan"]]


def _shown(act: Act, ask: ViewAsk, typed: Mapping[str, str], plan: ActPlan) -> Node:
    rows = parts.rows_of(plan.rows, "The plan")
    words = act.button(plan.rows) if act.button else plan.question
    confirm: Node = None
    if act.typed:
        field = h.input(name="typed", autocomplete="off", required=True)
        confirm = h.label[f"Type {typed[act.typed]} to confirm ", field]
    loses = act.loses if isinstance(act.loses, str) else act.loses(plan.rows)
    kind, to = "danger" if loses else "go", ask.here(**typed)
    read_only = h.p(".dim")["This console is read-only."]
    button = parts.plan_button(to, plan.mark, words, before=confirm, kind=kind)
    asked = h.p[plan.question.capitalize(), "."]
    return [
        parts.note("warn", loses) if loses else None,
        [h.p(".note")[note] for note in plan.notes],
        parts.panel("The plan", rows, aside=plan.question) if plan.rows else asked,
        read_only if ask.read_only else button,
    ]


async def carry_out(act: Act, ask: ViewAsk, form: Mapping[str, str], address: str) -> View | str:
    """Do what was agreed to, when it is still what was seen; else show what it is now. A text is where to go on: a job.

    Raises:
        RoquetteError: there is no plan any more, or it could not be done.
    """
    typed = text_values(act, ask.query)
    if lacks := missing(act, typed):
        raise ConfigError(f"it is not said which: {', '.join(lacks)}")
    plan = await plan_of(act, ask, typed)
    if act.typed and form.get("typed", "") != typed[act.typed]:
        return await _again(act, ask, f"Not done: {typed[act.typed]} was to be typed")
    if plan.mark != form.get("mark"):
        return await _again(act, ask, "Not done: the plan has changed meanwhile")
    words = words_of(act.words, act.function, typed)
    if isinstance(act.back, str):
        ways = [tuple(word.format(**typed) for word in act.back.split())] if act.back else []
    else:
        ways = act.back(typed, plan.rows)
    deed, back = _typed(words), [_typed(each) for each in ways]
    if act.job:

        def ended(job: ConsoleJob) -> None:
            audit.note(*where, job.state if job.error is None else f"failed: {job.error}", way)

        audit, where, way = (
            ask.deeds.audit,
            (ask.person, address, ask.cluster.name, deed),
            "; ".join(back),
        )
        audit.note(*where, "begun", way)
        values = read(act, typed)

        async def work(tell: Tell, show: ShowRows) -> Any:
            found = await _found(act.function, values, ask, tell, show)
            return _reported(act, values, found)

        job = ask.deeds.jobs.start(
            ask.cluster.name,
            ask.person,
            words,
            work,
            ended,
        )
        return ask.url("jobs", str(job.number))
    told: list[str] = []
    with ask.noting(address, deed, "; ".join(back)) as wrong:
        result = await _done(act, plan, read(act, typed), ask, told)
        wrong += filter(None, (_failed(result),))
    return _view(act, typed, _result(act, ask, result, told, back))


def _typed(words: Sequence[str]) -> str:
    return shlex.join(["roquette", *words])


async def _again(act: Act, ask: ViewAsk, why: str) -> View:
    view = await show(act, ask)
    return replace(view, body=[parts.note("warn", why, "look at it again below"), view.body])


async def _done(act: Act, plan: ActPlan, values: Values, ask: ViewAsk, told: list[str]) -> Any:
    if isinstance(plan.does, Generator):
        result = await ask.cluster.run(plan.does)
    elif plan.does is not None:
        result = await plan.does(ask.cluster.client)
    else:
        result = await _found(act.function, values, ask, told.append)
    return _reported(act, values, result)


def _reported(act: Act, values: Values, result: Any) -> Any:
    """What is shown of a result, as its command shows it."""
    says = declared(act.function)
    if says is None or says.shows is None:
        return result
    wants = inspect.signature(act.function).parameters
    filled = {n: values.get(n, p.default) for n, p in wants.items() if n not in GIVEN}
    return says.shows(result, **filled)


def _failed(result: Any) -> str:
    if not isinstance(result, OperationReport) or (result.done and not result.failed):
        return ""
    return result.failed or "Not all of it was done"


def found(title: str, result: Any) -> Node:
    """What an operation found: its rows, or its value by fields, and its notes."""
    report = result if isinstance(result, OperationReport) else OperationReport(result)
    table: Node = None
    if isinstance(report.value, msgspec.Struct):
        fields = msgspec.to_builtins(report.value).items()
        pairs = ((name.replace("_", " "), _plain(each)) for name, each in fields)
        table = h.div(".inside")[parts.facts(pairs)]
    elif rows := _rows(report):
        table = parts.rows_of(rows, title)
    elif report.empty:
        table = parts.empty(report.empty)
    notes = [h.p[note] for note in report.notes]
    return [parts.panel(title, table) if table is not None else None, notes]


def _plain(value: object) -> str:
    if isinstance(value, list | dict):
        return msgspec.json.encode(value).decode() if value else "none"
    return str(value)


def _result(act: Act, ask: ViewAsk, result: Any, told: Sequence[str], back: Sequence[str]) -> Node:
    failed = _failed(result)
    ways = parts.panel("The way back", h.ul(".back")[(h.li[parts.code(each)] for each in back)])
    none = h.p(".dim")["There is no way back."] if act.loses and not act.back else None
    return [
        parts.note("bad" if failed else "ok", failed or "Done", *told),
        found("What was done", result),
        ways if back else none,
        h.p[h.a(".act", href=ask.url(act.place))["Back"]],
    ]
