"""What is in a topic? The newest messages, by tags or SQL92; and why a filter lets nothing pass."""

from typing import Final

import htpy as h
from htpy import Element, Node

from roquette.admin.newest import NewestPage, cursor_of, newest, parse_before, parse_queue
from roquette.client.calls import EVERYTHING, PullFilter
from roquette.console import parts
from roquette.console.ask import View, ViewAsk
from roquette.console.bodies import MOST as MOST_BODY
from roquette.console.bodies import body_of, preview
from roquette.console.views.topic import head
from roquette.errors import BrokerError, ConfigError, RoquetteError
from roquette.message.message import ReceivedMessage
from roquette.message.names import dlq_topic, is_users_group

PATHS: Final = ("/topics/{topic}/messages",)
MOST: Final = 40
MOST_SHOWN: Final = 100
MOST_NODES: Final = 2_400
MOST_BYTES: Final = 262_144
"""Of the messages of a page together; each has its share of what is shown when it opens."""
MOST_QUEUES: Final = 64
CURSOR: Final = 8_000
"""Characters of a place: that of a page says the offset of each queue."""
_SQL: Final = "SQL92"


async def show(ask: ViewAsk) -> View:
    """The view."""
    topic, most = ask.words["topic"], ask.number("most", 1, MOST_SHOWN, MOST)
    wanted = filter_of(ask)
    content: Node
    page: NewestPage | None = None
    try:
        page = await newest_page(ask, topic, most, wanted)
        content = await _shown(ask, topic, page, wanted)
    except (BrokerError, ConfigError) as error:
        content = parts.refused("These messages cannot be shown", error)
    count = f"newest {len(page.messages)}, {parts.number(page.read)} read" if page else ""
    body = [head(ask, topic, "messages"), _form(ask, wanted, count), content]
    words = ["msg", "ls", topic, "--most", str(most)]
    if before := ask.text("before", CURSOR):
        words += ["--before", before]
    if not wanted.takes_all:
        words += ["--sql" if wanted.kind == _SQL else "--tag", wanted.expression]
    title = f"{topic}: messages"
    return View(title=title, place="topics", body=body, command=tuple(words))


def filter_of(ask: ViewAsk) -> PullFilter:
    """What the query's filter is."""
    text = ask.text("filter", 500)
    return (
        PullFilter(text, _SQL)
        if text and ask.query.get("kind") == "sql"
        else PullFilter(text or "*")
    )


async def newest_page(
    ask: ViewAsk, topic: str, most: int, wanted: PullFilter = EVERYTHING
) -> NewestPage:
    """The page of a topic's messages that the query asks for."""
    before = parse_before(ask.text("before", CURSOR) or None, topic, ask.now_ms)
    queue = parse_queue(chosen, topic) if (chosen := ask.text("queue")) else None
    return await ask.cluster.run(newest(topic, most, wanted, before, queue))


def _form(ask: ViewAsk, wanted: PullFilter, count: str) -> Element:
    return h.form(".filter", method="get", role="search", aria_label="Which messages")[
        parts.entry(
            "before",
            "Before",
            ask.text("before", CURSOR),
            placeholder="now",
            size="14",
            title="an offset, -10, +100, @-1h, @2026-09-01T10:00",
        ),
        parts.entry(
            "queue", "Queue", ask.text("queue"), placeholder="all", size="14", title="BROKER:NUMBER"
        ),
        filter_fields(wanted),
        h.button(type="submit")["Show"],
        h.span(".dim")[count],
    ]


def filter_fields(wanted: PullFilter) -> Node:
    """The kind of a filter, and its text."""
    is_sql = wanted.kind == _SQL
    return h.label[
        h.select(name="kind", aria_label="Filter by")[
            h.option(value="tag")["Tags"], h.option(value="sql", selected=is_sql)[_SQL]
        ],
        " ",
        h.input(
            name="filter",
            value="" if wanted.takes_all else wanted.expression,
            placeholder="amount > 700.0" if is_sql else "paid || new",
            size="26",
            aria_label="Filter",
            data_focus=True,
        ),
    ]


async def _shown(ask: ViewAsk, topic: str, page: NewestPage, wanted: PullFilter) -> Node:
    newer, older = ends_of(ask, page)
    return [
        (parts.note("warn", f"not looked at: {each}") for each in page.errors),
        message_list(ask, topic, page.messages)
        if page.messages
        else [
            parts.empty(
                "No messages here",
                f"Nothing passes the filter among {parts.counted(page.read, 'message')} that were read."
                if not wanted.takes_all
                else "Nothing was sent yet, or it is older than what is kept.",
            ),
            await _why_empty(ask, topic, page, wanted) if not wanted.takes_all else None,
        ],
        parts.pager(newer, older, "newest first"),
    ]


def ends_of(ask: ViewAsk, page: NewestPage) -> tuple[str, str]:
    """Addresses of the newest messages, and of those before a page; empty where there are none."""
    newer = ask.here(before="") if ask.query.get("before") else ""
    return newer, ask.here(before=cursor_of(page.before)) if page.more else ""


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
    names = sorted(
        {name for m in page.messages for name in m.properties if name in wanted.expression}
    )
    by_tag = wanted.kind != _SQL
    hint = (
        "A property is a text: Java compares 811.33 with whole numbers as not comparable, so write 700.0."
        if wanted.kind == _SQL
        else "Tags are compared as they are, upper and lower case too."
    )
    return parts.panel(
        "Why it is empty: what the newest messages have",
        parts.grid(
            ["Message", *(["Tag"] if by_tag else []), *names],
            [
                (
                    parts.code(f"{m.queue.broker_name}:{m.queue.queue_id}:{m.queue_offset}"),
                    *([m.tag or "none"] if by_tag else []),
                    *(m.properties.get(name, "not there") for name in names),
                )
                for m in page.messages
            ],
            caption="What the newest messages have",
        ),
        h.p(".note")[hint],
    )


def message_list(
    ask: ViewAsk, topic: str, messages: list[ReceivedMessage], *, boxes: bool = False
) -> Element:
    """Messages that open; with boxes to choose some of them."""
    return h.div(".messages")[
        (message_row(ask, topic, each, boxes=boxes, of=len(messages)) for each in messages)
    ]


def message_row(
    ask: ViewAsk, topic: str, m: ReceivedMessage, *, boxes: bool = False, of: int = MOST
) -> Node:
    """A message in a line, which opens; one of so many of a page."""
    body = body_of(m.body, min(MOST_BODY, MOST_BYTES // of))
    known = sorted(m.properties.items())
    shown = known[: max(1, (MOST_NODES // of - 20) // 3)]
    place = f"{m.queue.broker_name}:{m.queue.queue_id}:{m.queue_offset}"
    at = ask.url("messages", m.message_id, topic=topic)
    row = h.details(".message", id=f"m-{place}")[
        h.summary[
            parts.moment(m.store_timestamp_ms),
            h.span(".where")[
                f"{m.queue.broker_name}:{m.queue.queue_id}", h.b[parts.number(m.queue_offset)]
            ],
            h.span(".tag")[m.tag] if m.tag else h.span,
            h.span(".keys")[" ".join(m.keys)],
            h.span(".preview")[preview(m.body)],
        ],
        h.div(".inside")[
            h.p[
                h.a(".act", href=at)["What became of it"],
                h.a(".act", href=ask.url("topics", topic, "body", place=place))["Download"],
                h.span(".dim")[
                    f"{body.kind}, {parts.size(len(m.body))}, stored {parts.size(m.store_size)}"
                ],
            ],
            h.pre(tabindex="0")[body.text],
            h.p(".note")["Not all of it is shown: download it."] if not body.whole else None,
            parts.facts(shown),
            h.p(".note")[f"{len(known) - len(shown)} more properties: see what became of it."]
            if len(shown) < len(known)
            else None,
        ],
    ]
    if not boxes:
        return row
    return h.div(".chosen")[
        h.input(type="checkbox", name="at", value=place, aria_label=f"Choose {m.message_id}"),
        row,
    ]


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
