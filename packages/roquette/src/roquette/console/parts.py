"""Parts of pages: typed functions from values to markup. What they are given is escaped; nothing here is trusted text."""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import htpy as h
import msgspec
from htpy import Element, Node
from markupsafe import Markup, escape

from roquette.errors import BrokerError

T = TypeVar("T")

UNKNOWN: Final = "–"
MOST_NODES: Final = 2_000
"""Elements of one table; a page has 3,000 at most, so one with several tables gives them less."""
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_SPANS_MS: Final = ((120_000, 1000, "s"), (7_200_000, 60_000, "min"), (172_800_000, 3_600_000, "h"))


def number(value: float) -> str:
    """1 234 567 with thin spaces; below 0: not known."""
    return UNKNOWN if value < 0 else f"{value:,.0f}".replace(",", "\u202f")


def rate(value: float) -> str:
    """Messages a second."""
    return f"{value:.1f}" if 0 < value < 10 else number(value)


def size(count: float) -> str:
    """Bytes, in the largest unit that leaves a number above 1."""
    if count < 0:
        return UNKNOWN
    power = 0
    while count >= 1024 and power < len(_UNITS) - 1:
        count /= 1024
        power += 1
    return f"{count:.{1 if power else 0}f}\u202f{_UNITS[power]}"


def span(ms: float) -> str:
    """How long: 350 ms, 12 s, 4 min, 3 h, 2 d."""
    if ms < 0:
        return UNKNOWN
    if ms < 1000:
        return f"{ms:.0f}\u202fms"
    for limit, unit, name in _SPANS_MS:
        if ms < limit:
            return f"{ms / unit:.0f}\u202f{name}"
    return f"{ms / 86_400_000:.0f}\u202fd"


def counted(count: int, word: str) -> str:
    """1 queue, 2 queues, 2 processes."""
    plural = "es" if word.endswith("s") else "s"
    return f"{number(count)}\u202f{word}{plural if count != 1 else ''}"


def moment(ms: int, *, ago: bool = False) -> Node:
    """A time in UTC. The browser puts in the reader's zone, or how long ago it was: so a page stays the same while nothing happens."""
    if ms <= 0:
        return h.span(".dim")[UNKNOWN]
    try:
        at = datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # a client may say any time
        return h.span(".dim")[f"{ms} ms"]
    fraction = f".{ms % 1000:03d}Z"
    text = at.strftime("%Y-%m-%d %H:%M:%S") + fraction
    return h.time(datetime=at.strftime("%Y-%m-%dT%H:%M:%S") + fraction, title=text, data_ago=ago)[
        text
    ]


def dot(kind: str, text: Node) -> Element:
    """A state: shape, colour and word; kind: ok, warn, bad, off."""
    return h.span(f".state.{kind}")[h.i(aria_hidden="true"), text]


def dim(text: str) -> Element | None:
    """A word beside a thing; "": none."""
    return h.span(".dim")[text] if text else None


def more(count: int, words: str) -> Element | None:
    """So many more there are than a page shows, and what to do; 0: none."""
    return h.p(".note")[f"{number(count)} {words}"] if count > 0 else None


def online(members: int) -> Element:
    """How many members are there."""
    return dot("ok" if members > 0 else "off", number(members))


def version(name: str) -> str:
    """Of a broker or a client: 5.3.1 of V5_3_1."""
    return name.replace("_", ".").lstrip("V")


def code(text: str) -> Element:
    """A name as servers have it."""
    return h.code[text]


def prose(text: str) -> Node:
    """A sentence, with what stands between backticks as a name."""
    return [code(each) if at % 2 else each for at, each in enumerate(text.split("`"))]


def crumbs(*each: tuple[str, str]) -> Element:
    """Where a page is: address and text of what is above it."""
    links: list[Node] = []
    for href, text in each:
        links += [" / ", h.a(href=href)[text]]
    return h.nav(".crumbs", aria_label="Where you are")[links[1:]]


def heading(title: str, *acts: tuple[str, str]) -> Element:
    """The page's title, and links to what can be done: address and text."""
    return h.h1[
        h.span(".name.subject")[title],
        (h.a(".act", href=href)[text] for href, text in acts),
    ]


def empty(title: str, *more: Node) -> Element:
    """There is nothing, and what would make something."""
    return h.div(".empty")[h.strong[title], h.p[more] if more else None]


def trouble(title: str, reason: str, *more: Node) -> Element:
    """Something does not answer: what, why, and what to do."""
    return h.div(".trouble", role="alert")[h.strong[title], h.p(".reason")[reason], more]


def refused(title: str, error: Exception, *more: Node) -> Element:
    """The same of an error: a server's own words, with its code and address in small."""
    if isinstance(error, BrokerError):
        where = h.p(".dim")[f"code {error.code}, {error.address}"]
        return trouble(title, error.remark or type(error).__name__, where, more)
    return trouble(title, str(error) or type(error).__name__, more)


def command(words: Sequence[str]) -> Element:
    """The command that says the same, to copy."""
    text = shlex.join(["roquette", *words])
    return h.div(".command")[
        h.code[h.span(".prompt", aria_hidden="true")["$ "], text],
        h.button(".copy", type="button", data_copy=text, title="Copy as command (c)")["Copy"],
    ]


def panel(title: str, *body: Node, aside: Node = None) -> Element:
    """A titled part of a page."""
    return h.section(".panel")[
        h.header[h.h2[title], h.div(".aside")[aside] if aside is not None else None], body
    ]


def plan_button(
    to: str, mark: str, words: str, *more: Node, before: Node = None, kind: str = "go"
) -> Element:
    """The button that does what a plan says; the plan's mark comes back with it."""
    return h.form(".deed", method="post", action=to)[
        h.input(type="hidden", name="mark", value=mark),
        before,
        h.button(f".{kind}", type="submit")[f"Do it: {words}"],
        more,
    ]


def note(kind: str, title: Node, *more: Node) -> Element:
    """What was done, or not, or is to know before; kind: ok, warn, bad, off."""
    role = "alert" if kind in ("warn", "bad") else "status"
    return h.section(f".verdict.{kind}", role=role)[
        h.div(".sum")[dot(kind, title), (h.span(".dim")[each] for each in more)]
    ]


def tiles(*each: tuple[str, Node, Node]) -> Element:
    """Numbers that answer the view's question at a glance: label, value, and a word about it."""
    return h.dl(".tiles")[
        (h.div[h.dt[label], h.dd[value], h.dd(".note")[words]] for label, value, words in each)
    ]


def facts(pairs: Iterable[tuple[str, Node]]) -> Element:
    """Names and values, one below the other."""
    return h.dl(".props")[(h.div[h.dt[name], h.dd[value]] for name, value in pairs)]


def grid(
    caption: str,
    rows: Iterable[T],
    columns: Mapping[str, Callable[[T], Node]],
    empty: Node = None,
    key: Callable[[T], str] | None = None,
    most: int = MOST_NODES,
) -> Node:
    """A table.

    Args:
        columns: by head, what a row's cell is; a head that begins with `#` is of numbers, and below 0 one is not known.
        empty: in its place when there is no row.
        key: id of a row, so that a refresh keeps it.
        most: elements; rows beyond them are counted.
    """
    lines: list[str] = []
    used = left = 0
    for row in rows:  # joined by hand: 20 times faster than elements, and the only place that does; `_text` escapes
        if used >= most:
            left += 1
            continue
        lines.append(f'<tr id="{escape(key(row))}">' if key else "<tr>")
        begun = len(lines)
        for at, (head, shows) in enumerate(columns.items()):
            name, cell = "td" if at else "th scope=row", shows(row)
            cell = number(cell) if isinstance(cell, int) and head[:1] == "#" else cell
            kind = (" class='n zero'" if cell == "0" else " class=n") if head[:1] == "#" else ""
            lines.append(f"<{name}{kind}>{_text(cell)}</{name[:2]}>")
        used += 1 + sum(each.count("<") - each.count("</") for each in lines[begun:])
        lines.append("</tr>")
    if not lines and empty is not None:
        return empty
    titles = [
        h.th(".n" if head[:1] == "#" else "", scope="col")[head.lstrip("#")] if head else h.td
        for head in columns
    ]
    body = Markup("".join(lines))
    table = h.table[h.caption(".sr")[caption], h.thead[h.tr[titles]], h.tbody[body]]
    return [scroll(caption, table), more(left, "more rows are not shown here.")]


def scroll(label: str, table: Element) -> Element:
    """A table that may be wider than the page."""
    return h.div(".scroll", tabindex="0", role="region", aria_label=label)[table]


def _text(cell: Node) -> str:
    if cell is None:
        return ""
    if isinstance(cell, str) and not hasattr(cell, "__html__"):
        return str(escape(cell))
    return str(h.fragment[cell])


def rows_of(rows: Sequence[msgspec.Struct], caption: str, empty: Node = None) -> Node:
    """A table of what an operation found, as the command line shows it: a column that all rows leave at its default is not there."""
    if not rows:
        return empty
    kinds = [
        field
        for field in msgspec.structs.fields(type(rows[0]))
        if any(getattr(row, field.name) != field.default for row in rows)
    ]
    signed = getattr(type(rows[0]), "SIGNED", ())

    def column(field: msgspec.structs.FieldInfo) -> tuple[str, Callable[[Any], Node]]:
        name, time = field.name, field.name.endswith("_ms")
        head = name.removesuffix("_ms").replace("_", " ")
        head = f"#{head}" if field.type in (int, float) and not time else head
        return head, lambda row: _cell(name, getattr(row, name), name in signed)

    return grid(caption, rows, dict(map(column, kinds)))


def _cell(name: str, value: Any, signed: bool) -> Node:
    if name.endswith("_ms") and isinstance(value, int):
        return moment(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and signed:
        return f"{value:+,}".replace(",", "\u202f") if value else "0"
    if isinstance(value, int | float):
        return number(value) if isinstance(value, int) else rate(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def tabs(here: str, *each: tuple[str, str, Node]) -> Element:
    """Parts of a thing, each with a URL of its own: key, address, text."""
    return h.nav(".tabs", aria_label="Parts")[
        (h.a(href=to, aria_current="page" if key == here else None)[text] for key, to, text in each)
    ]


def pager(before: str, after: str, here: Node) -> Element | None:
    """Links to what comes before and after, "" where nothing is."""
    if not before and not after:
        return None
    return h.nav(".pager", aria_label="Pages")[
        h.a(href=before, rel="prev", data_key="[")["Previous"] if before else h.span["Previous"],
        h.span(".dim")[here],
        h.a(href=after, rel="next", data_key="]")["Next"] if after else h.span["Next"],
    ]


def choice(name: str, label: str, options: Iterable[tuple[str, str]], chosen: str) -> Element:
    """A list to choose from: value and text of each."""
    return h.label[
        label,
        " " if label else None,
        h.select(name=name, aria_label=None if label else name)[
            (h.option(value=value, selected=value == chosen)[text] for value, text in options)
        ],
    ]


def entry(name: str, label: str, value: str = "", **more: Any) -> Element:
    """A line to type into."""
    return h.label[label, " ", h.input(name=name, value=value, **more)]


def search(ask_url: str, words: str, found: Node, *hidden: tuple[str, str]) -> Element:
    """A field that answers while one types."""
    return h.form(".filter", method="get", action=ask_url, role="search", data_instant=True)[
        (h.input(type="hidden", name=name, value=value) for name, value in hidden if value),
        h.input(
            type="search",
            name="q",
            value=words,
            placeholder="Name has …",
            aria_label="Name has",
            autocomplete="off",
            spellcheck="false",
            data_focus=True,
        ),
        h.span(".dim")[found],
    ]
