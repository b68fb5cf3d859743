"""What the palette finds besides views: topics, groups, brokers, and a message id as it is."""

from typing import Final

from roquette.admin.catalogue import DEAD, OWN, RETRIES, SYSTEM, Names, groups, topics
from roquette.console.ask import ViewAsk

NAMES_S: Final = 5.0
_KINDS: Final = {OWN: "topic", RETRIES: "retries", DEAD: "dead letters", SYSTEM: "system topic"}


async def topics_of(ask: ViewAsk) -> Names:
    """Every topic's name, as a name server knows them, some seconds old at most."""
    return await ask.cluster.look("topics", topics, NAMES_S)


async def groups_of(ask: ViewAsk) -> Names:
    """Every group's name, as the masters know them, some seconds old at most."""
    return await ask.cluster.look("groups", groups, NAMES_S)


async def found(ask: ViewAsk, words: str) -> list[tuple[str, str, str]]:
    """Text, kind and address of what has these words; raises RoquetteError for who may not list names."""
    if not words:
        return []
    items: list[tuple[str, str, str]] = []
    if len(words) >= 16 and " " not in words:
        items.append((words, "message id or key", ask.url("messages", q=words)))
    names, known = await topics_of(ask), await groups_of(ask)
    for kind, text in _KINDS.items():
        items += [(n, text, ask.url("topics", n)) for n in names.page(words, 6, kind)[0]]
    items += [(n, "group", ask.url("groups", n)) for n in known.page(words, 6, OWN)[0]]
    brokers = {state.broker for state in await ask.cluster.brokers()}
    low = words.lower()
    items += [(n, "broker", ask.url("brokers", n)) for n in sorted(brokers) if low in n.lower()]
    return items
