"""Names: pages of them, and what the palette finds besides views: topics, groups, brokers, and a message id as it is."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import htpy as h
from htpy import Node

from roquette.admin.catalogue import DEAD, OWN, RETRIES, SYSTEM, Names, groups, topics
from roquette.console import parts
from roquette.console.ask import ViewAsk

NAMES_S: Final = 10.0
PAGE: Final = 50
_KINDS: Final = {OWN: "topic", RETRIES: "retries", DEAD: "dead letters", SYSTEM: "system topic"}


async def topics_of(ask: ViewAsk) -> Names:
    """Every topic's name, as a name server knows them, some seconds old at most."""
    return await ask.cluster.look("topics", topics, NAMES_S)


async def groups_of(ask: ViewAsk) -> Names:
    """Every group's name, as the masters know them, some seconds old at most."""
    return await ask.cluster.look("groups", groups, NAMES_S)


class NamesPage(NamedTuple):
    """A page of names: those of it, what stands above and below them, and options of the command that lists the same."""

    shown: list[str]
    above: Node
    below: Node
    options: tuple[str, ...]


def names_page(
    ask: ViewAsk, names: Names, kinds: Mapping[str, str], lag: Callable[[str], int] | None = None
) -> NamesPage:
    """The page that the query asks for, of names of a kind with a word in them; `lag`: they may be sorted by that."""
    words, kind, order = ask.text("q"), ask.text("kind") or OWN, ask.text("order")
    found, _ = names.page(words, None, kind)
    if order and lag:
        found.sort(key=lambda name: -lag(name))
    pages = max(1, -(-len(found) // PAGE))
    page = ask.number("page", 1, pages, 1)
    ways = [(key, ask.here(kind=key * (key != OWN), page=""), text) for key, text in kinds.items()]
    by = "by name" if order else "the furthest behind first"
    other = [", ", h.a(href=ask.here(order="" if order else "behind", page=""))[by]]
    count = f"{parts.number(len(found))} of {parts.number(len(names.kinds.get(kind, ())))}"
    hidden = (("kind", kind * (kind != OWN)), ("order", order))
    to_before = ask.here(page=page - 1) if page > 1 else ""
    to_after = ask.here(page=page + 1) if page < pages else ""
    return NamesPage(
        found[(page - 1) * PAGE : page * PAGE],
        [
            parts.tabs(kind, *ways),
            parts.search(ask.here(), words, [count, other if lag else None], *hidden),
        ],
        parts.pager(to_before, to_after, f"{page} of {parts.number(pages)}"),
        (*(("--like", words) if words else ()), *(("--system",) if kind != OWN else ())),
    )


async def found(ask: ViewAsk, words: str) -> list[tuple[str, str, str]]:
    """Text, kind and address of what has these words; raises RoquetteError for who may not list names."""
    if not words:
        return []
    items: list[tuple[str, str, str]] = []
    if len(words) >= 16 and " " not in words:
        items.append((words, "message id or key", ask.url("messages", q=words)))
    names, known = await topics_of(ask), await groups_of(ask)
    brokers, low = {state.broker for state in await ask.cluster.brokers()}, words.lower()
    of = {kind: names.page(words, 6, kind)[0] for kind in _KINDS}
    items += [(n, _KINDS[OWN], ask.url("topics", n)) for n in of.pop(OWN)]
    items += [(n, "group", ask.url("groups", n)) for n in known.page(words, 6, OWN)[0]]
    items += [(n, "broker", ask.url("brokers", n)) for n in sorted(brokers) if low in n.lower()]
    items += [(n, _KINDS[kind], ask.url("topics", n)) for kind in of for n in of[kind]]
    return sorted(
        items, key=lambda item: item[0].lower() != low
    )  # who has typed a whole name wants that
