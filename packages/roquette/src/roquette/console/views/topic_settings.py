"""How is a topic set, on each broker?"""

from typing import Final

import htpy as h

from roquette.admin.cluster import configs_of, masters_of
from roquette.client.calls import Operation
from roquette.console import parts
from roquette.console.ask import View, ViewAsk
from roquette.console.views.topic import head
from roquette.message.names import perm_text
from roquette.wire.bodies import TopicConfig

PATHS: Final = ("/topics/{topic}/settings",)


async def show(ask: ViewAsk) -> View:
    """The view."""
    topic = ask.words["topic"]

    def operation() -> Operation[dict[str, TopicConfig | str]]:
        masters = yield from masters_of()
        answers = yield from configs_of(topic, [address for _, address in masters])
        found: dict[str, TopicConfig | str] = {}
        for (name, _), answer in zip(masters, answers, strict=True):
            if answer.error is not None:
                found[name] = answer.reason
            elif answer.value is not None:
                found[name] = answer.value
        return found

    configs = await ask.cluster.look(("config", topic), operation)
    known = {name: each for name, each in configs.items() if not isinstance(each, str)}
    rows = {name: _words(each) for name, each in known.items()}
    keys = list(dict.fromkeys(key for each in rows.values() for key in each))
    body = [
        head(ask, topic, "settings"),
        parts.grid(
            ["Setting", *rows, ""],
            [
                (
                    key,
                    *(each.get(key, parts.UNKNOWN) for each in rows.values()),
                    parts.dot("warn", "differs")
                    if len({e.get(key) for e in rows.values()}) > 1
                    else "",
                )
                for key in keys
            ],
            caption="Settings of the topic",
            empty=parts.empty("No broker has the topic"),
        ),
        (
            parts.note("bad", f"{name} does not tell", each)
            for name, each in configs.items()
            if isinstance(each, str)
        ),
        h.p[
            h.a(".act", href=ask.url("apply", file=_file(topic, next(iter(known.values())))))[
                "Change by a plan"
            ]
        ]
        if known
        else None,
    ]
    return View(
        title=f"{topic}: settings", place="topics", body=body, command=("topic", "describe", topic)
    )


def _words(config: TopicConfig) -> dict[str, str]:
    return {
        "read queues": str(config.read_queue_nums),
        "write queues": str(config.write_queue_nums),
        "permission": perm_text(config.perm),
        "order": "yes" if config.order else "no",
        **{f"attribute {name}": value for name, value in sorted((config.attributes or {}).items())},
    }


def _file(topic: str, config: TopicConfig) -> str:
    return (
        f"topics:\n  {topic}:\n    readQueueNums: {config.read_queue_nums}\n"
        f"    writeQueueNums: {config.write_queue_nums}\n    perm: RW\n"
    )
