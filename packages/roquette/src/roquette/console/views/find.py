"""Where is the message with this key, id or place?"""

from typing import Final

import htpy as h
from htpy import Node

from roquette.admin.stored import MOST, full_words, moment_of
from roquette.console import parts
from roquette.console.ask import View, ViewAsk
from roquette.console.views.messages import message_list
from roquette.errors import RoquetteError

PATHS: Final = ("/messages",)


async def show(ask: ViewAsk) -> View:
    words, topic = ask.text("q"), ask.text("topic")
    why = "With a topic it is looked for there; without one its journey is asked of all brokers."
    content: Node = parts.empty("Say a key, or an id", why)
    command: tuple[str, ...] = ()
    if words and topic:
        command = ("msg", "find", words, "--topic", topic)
        try:
            content = await _found(ask, topic, words)
        except RoquetteError as error:
            content = parts.refused("It cannot be looked for", error)
    elif words:
        command, way = ("explain", words), ask.url("messages", words)
        content = h.p[h.a(".act", href=way)["What became of it, in all topics"]]
    since = {"size": "14", "placeholder": "ever", "title": "@-1h or a time"}
    form = h.form(".filter", method="get", role="search")[
        parts.entry("q", "Key or id", words, size="36", data_focus=True, required=True),
        parts.entry("topic", "Topic", topic, size="24", placeholder="all"),
        parts.entry("since", "Since", ask.text("since"), **since),
        h.button(type="submit")["Find"],
    ]
    body = [parts.heading("Find a message"), form, content]
    return View("Find a message", "messages", body, command)


async def _found(ask: ViewAsk, topic: str, words: str) -> Node:
    since = moment_of(ask.text("since") or None, ask.cluster.clock)
    more = {} if since is None else {"since": since}
    found = await ask.cluster.client.find(topic, words, most=MOST, **more)
    if not found:
        why = "It waits for its time, never came, is older than what is kept, or its key is another one. "
        way = h.a(href=ask.url("messages", words, topic=topic))["What became of it"]
        return parts.empty("No broker has it", why, way)
    count = h.p(".dim")[parts.counted(len(found), "message")]
    notes = [h.p(".note")[each] for each in full_words(found, MOST)]
    return [count, message_list(ask, topic, found), notes]
