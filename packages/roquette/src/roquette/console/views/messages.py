"""What is in a topic? The newest messages, by tags or SQL92; and why a filter lets nothing pass."""

from collections.abc import Callable, Sequence
from typing import Final

import htpy as h
from htpy import Element, Node

from roquette.admin.newest import (
    NewestPage,
    cursor_of,
    filter_of,
    newest,
    parse_before,
    parse_queue,
)
from roquette.client.calls import EVERYTHING, PullFilter
from roquette.console import parts
from roquette.console.ask import View, ViewAsk
from roquette.console.bodies import MOST as MOST_BODY
from roquette.console.bodies import body_of, preview
from roquette.console.views.topic import head
from roquette.errors import BrokerError, ConfigError, RoquetteError
from roquette.message.message import ReceivedMessage
from roquette.message.names import dlq_topic, is_users_group
from roquette.message.properties import RETRY_TOPIC

PATHS: Final = ("/topics/{topic}/messages",)
MOST: Final = 40
MOST_SHOWN: Final = 100
MOST_NODES: Final = 2_400
MOST_BYTES: Final = 262_144
"""Of the messages of a page together; each has its share of what is shown when it opens."""
MOST_QUEUES: Final = 64
CURSOR: Final = 8_000
"""Characters of a place: that of a page says the offset of each queue."""
_SQL_HINT: Final = "A property is a text: Java compares 811.33 with whole numbers as not comparable, so write 700.0."
_TAG_HINT: Final = "Tags are compared as they are, upper and lower case too."


async def show(ask: ViewAsk) -> View:
    topic, most = ask.words["topic"], ask.number("most", 1, MOST_SHOWN, MOST)
    content: Node
    page: NewestPage | None = None
    try:
        wanted = filter_of(*typed(ask))
        page = await newest_page(ask, topic, most, wanted)
        content = await _shown(ask, topic, page, wanted)
    except (BrokerError, ConfigError) as error:
        content = parts.refused("These messages cannot be shown", error)
    count = f"newest {len(page.messages)}, {parts.number(page.read)} read" if page else ""
    body = [head(ask, topic, "messages"), _form(ask, count), content]
    before = ask.text("before", CURSOR)
    since = ("--before", before) if before else ()
    words = ("msg", "ls", topic, "--most", str(most), *since, *options_of(ask))
    return View(f"{topic}: messages", "topics", body, words)


def typed(ask: ViewAsk) -> tuple[str, str]:
    """The query's filter as `filter_of` takes it: tags, and an expression."""
    text = ask.text("filter", 500)
    return ("*", text) if ask.query.get("kind") == "sql" else (text or "*", "")


def options_of(ask: ViewAsk) -> tuple[str, ...]:
    """The query's filter as options of a command."""
    tags, expression = typed(ask)
    return ("--sql", expression) if expression else () if tags == "*" else ("--tag", tags)


async def newest_page(
    ask: ViewAsk, topic: str, most: int, wanted: PullFilter = EVERYTHING
) -> NewestPage:
    """The page of a topic's messages that the query asks for."""
    before = parse_before(ask.text("before", CURSOR) or None, topic, ask.now_ms)
    queue = parse_queue(chosen, topic) if (chosen := ask.text("queue")) else None
    return await ask.cluster.run(newest(topic, most, wanted, before, queue))


def _form(ask: ViewAsk, count: str) -> Element:
    before = {"placeholder": "now", "title": "an offset, -10, +100, @-1h, @2026-09-01T10:00"}
    queue = {"placeholder": "all", "title": "BROKER:NUMBER"}
    return h.form(".filter", method="get", role="search", aria_label="Which messages")[
        parts.entry("before", "Before", ask.text("before", CURSOR), size="14", **before),
        parts.entry("queue", "Queue", ask.text("queue"), size="14", **queue),
        filter_fields(ask),
        h.button(type="submit")["Show"],
        parts.dim(count),
    ]


def filter_fields(ask: ViewAsk) -> Node:
    """The kind of a filter, and its text."""
    is_sql, text = ask.query.get("kind") == "sql", ask.text("filter", 500)
    example = "amount > 700.0" if is_sql else "paid || new"
    return h.label[
        h.select(name="kind", aria_label="Filter by")[
            h.option(value="tag")["Tags"], h.option(value="sql", selected=is_sql)["SQL92"]
        ],
        " ",
        h.input(
            name="filter",
            value=text,
            placeholder=example,
            size="26",
            aria_label="Filter",
            data_focus=True,
        ),
    ]


async def _shown(ask: ViewAsk, topic: str, page: NewestPage, wanted: PullFilter) -> Node:
    content: Node = message_list(ask, topic, page.messages)
    if not page.messages and wanted.takes_all:
        why = "Nothing was sent yet, or it is older than what is kept."
        content = parts.empty("No messages here", why)
    elif not page.messages:
        read = parts.counted(page.read, "message")
        why = f"Nothing passes the filter among {read} that were read."
        content = [parts.empty("No messages here", why), await _why_empty(ask, topic, page, wanted)]
    return page_of(ask, page, content)


def page_of(ask: ViewAsk, page: NewestPage, content: Node) -> Node:
    """Messages between what was not looked at, and links to the newest and to those before."""
    newer = ask.here(before="") if ask.query.get("before") else ""
    older = ask.here(before=cursor_of(page.before)) if page.more else ""
    errors = [parts.note("warn", f"not looked at: {each}") for each in page.errors]
    return [errors, content, parts.pager(newer, older, "newest first")]


async def _why_empty(ask: ViewAsk, topic: str, empty: NewestPage, wanted: PullFilter) -> Node:
    """What the newest messages have of what the filter asks for; where there are many queues, those of the longest."""
    ends = empty.before
    longest = max(ends, key=lambda queue: ends[queue]) if len(ends) > MOST_QUEUES else None
    try:
        page = await ask.cluster.run(newest(topic, 10, queue=longest))
    except RoquetteError:
        return None
    if not page.messages:
        return None
    there = {name for m in page.messages for name in m.properties if name in wanted.expression}
    by_tag = wanted.kind == "TAG"

    def column(name: str) -> Callable[[ReceivedMessage], Node]:
        return lambda m: m.properties.get(name, "not there")

    columns: dict[str, Callable[[ReceivedMessage], Node]] = {
        "Message": lambda m: parts.code(place_of(m))
    }
    if by_tag:
        columns["Tag"] = lambda m: m.tag or "none"
    columns |= {name: column(name) for name in sorted(there)}
    hint = _TAG_HINT if by_tag else _SQL_HINT
    table = parts.grid("What the newest messages have", page.messages, columns)
    title = "Why it is empty: what the newest messages have"
    return parts.panel(title, table, h.p(".note")[hint])


def place_of(m: ReceivedMessage) -> str:
    """BROKER:QUEUE:OFFSET."""
    return f"{m.queue.broker_name}:{m.queue.queue_id}:{m.queue_offset}"


def message_list(
    ask: ViewAsk, topic: str, messages: Sequence[ReceivedMessage], *, boxes: bool = False
) -> Element:
    """Messages that open; with boxes to choose some of them."""
    shows = _chosen_row if boxes else message_row
    return h.div(".messages")[(shows(ask, topic, each, len(messages)) for each in messages)]


def message_row(ask: ViewAsk, topic: str, m: ReceivedMessage, of: int = MOST) -> Element:
    """A message in a line, which opens; one of so many of a page."""
    body, place = body_of(m.body, min(MOST_BODY, MOST_BYTES // of)), place_of(m)
    known = sorted(m.properties.items())
    shown = known[: max(1, (MOST_NODES // of - 20) // 3)]
    queue = f"{m.queue.broker_name}:{m.queue.queue_id}"
    at = ask.url("messages", m.message_id, topic=m.origin_topic)  # of a dead letter, what died
    file = ask.url("topics", topic, "body", place=place)
    sizes = f"{body.kind}, {parts.size(len(m.body))}, stored {parts.size(m.store_size)}"
    origin = m.properties.get(RETRY_TOPIC)  # of what failed and of what died
    failed = f"of {origin}, failed {parts.counted(m.reconsume_times, 'time')}"
    acts = [h.a(".act", href=at)["What became of it"], h.a(".act", href=file)["Download"]]
    return h.details(".message", id=f"m-{place}")[
        h.summary[
            parts.moment(m.store_timestamp_ms),
            h.span(".where")[queue, h.b[parts.number(m.queue_offset)]],
            h.span(".tag")[m.tag] if m.tag else h.span,
            h.span(".keys")[" ".join(m.keys)],
            h.span(".preview")[
                h.b(title=failed)[f"{origin} ×{m.reconsume_times} "] if origin else None,
                preview(m.body),
            ],
        ],
        h.div(".inside")[
            h.p[acts, parts.dim(sizes)],
            h.pre(tabindex="0")[body.text],
            None if body.whole else h.p(".note")["Not all of it is shown: download it."],
            parts.facts(shown),
            parts.more(len(known) - len(shown), "more properties: see what became of it."),
        ],
    ]


def _chosen_row(ask: ViewAsk, topic: str, m: ReceivedMessage, of: int) -> Element:
    label = f"Choose {m.message_id}"
    box = h.input(type="checkbox", name="at", value=place_of(m), aria_label=label)
    return h.div(".chosen")[box, message_row(ask, topic, m, of)]


async def body_file(ask: ViewAsk) -> tuple[str, bytes]:
    """A message's whole body: its name and its bytes."""
    from roquette.admin.stored import get

    place = ask.text("place")
    message = await get(ask.cluster.client, place, ask.words["topic"])
    return f"{ask.words['topic']}-{place.replace(':', '-')}.bin", message.body


FILES: Final = {"/topics/{topic}/body": "body_file"}


def dead_of(group: str) -> str:
    """The topic of a group's dead letters. Raises ConfigError: it can have none."""
    if not is_users_group(group):
        raise ConfigError(f"{group} is a group of the system, without dead letters")
    return dlq_topic(group)
