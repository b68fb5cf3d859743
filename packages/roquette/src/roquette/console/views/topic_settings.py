"""How is a topic set, on each broker?"""

from typing import Final

import htpy as h

from roquette.admin.cluster import configs_of, masters_of
from roquette.admin.settings import SettingRow
from roquette.client.calls import Operation
from roquette.console import parts
from roquette.console.ask import View, ViewAsk
from roquette.console.views.group import settings_grid
from roquette.console.views.topic import head
from roquette.message.names import perm_text
from roquette.wire.bodies import TopicConfig

PATHS: Final = ("/topics/{topic}/settings",)


async def show(ask: ViewAsk) -> View:
    topic = ask.words["topic"]

    def operation() -> Operation[dict[str, TopicConfig | str]]:
        masters = yield from masters_of()
        answers = yield from configs_of(topic, [address for _, address in masters])
        told = {name: answer for (name, _), answer in zip(masters, answers, strict=True)}
        told = {name: each for name, each in told.items() if each.error or each.value}
        return {name: each.value or each.reason for name, each in told.items()}

    configs = await ask.cluster.look(("config", topic), operation)
    known = {name: each for name, each in configs.items() if not isinstance(each, str)}
    silent = {name: each for name, each in configs.items() if isinstance(each, str)}
    rows = [
        SettingRow(name, key, value)
        for name, config in known.items()
        for key, value in _words(config).items()
    ]
    body = [
        head(ask, topic, "settings"),
        settings_grid(rows) if known else parts.empty("No broker has the topic"),
        [parts.note("bad", f"{name} does not tell", why) for name, why in silent.items()],
    ]
    if known:
        file = _file(topic, next(iter(known.values())))
        body.append(h.p[h.a(".act", href=ask.url("apply", file=file))["Change by a plan"]])
    return View(f"{topic}: settings", "topics", body, ("topic", "describe", topic))


def _words(config: TopicConfig) -> dict[str, str]:
    return {
        "read queues": str(config.read_queue_nums),
        "write queues": str(config.write_queue_nums),
        "permission": perm_text(config.perm),
        "order": "yes" if config.order else "no",
        **{f"attribute {name}": value for name, value in (config.attributes or {}).items()},
    }


def _file(topic: str, config: TopicConfig) -> str:
    """What is there, as `roquette apply` reads it."""
    perm = perm_text(config.perm)[:2].replace("-", "") or "NONE"
    queues = f"read_queues: {config.read_queue_nums}\n    write_queues: {config.write_queue_nums}"
    return f"topics:\n  {topic}:\n    {queues}\n    perm: {perm}\n"
