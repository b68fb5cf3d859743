"""How is this broker? What it tells of its run by subject, and its settings with what differs from the others."""

import re
from itertools import islice
from typing import Final

import htpy as h
from htpy import Node

from roquette.admin.settings import SettingRow, settings_of_brokers
from roquette.console import parts
from roquette.console.ask import View, ViewAsk
from roquette.console.views.group import settings_grid
from roquette.console.views.overview import brokers_grid
from roquette.errors import RoquetteError

PATHS: Final = ("/brokers/{broker}", "/brokers/{broker}/settings")
ELSEWHERE: Final = 4
_SUBJECTS: Final = (
    ("Messages", re.compile(r"(?i)msg|put|get|tps|message")),
    ("Disk and log", re.compile(r"(?i)disk|commitlog|queue|dispatch|flush|store|offset")),
    ("Delays", re.compile(r"(?i)timer|delay|schedule")),
)


async def show(ask: ViewAsk) -> View:
    name = ask.words["broker"]
    command = ("broker", "config", "get", "--broker", name)
    if ask.path.endswith("/settings"):
        rows = await ask.cluster.look("settings", settings_of_brokers)
        body: Node = [head(ask, name, "settings"), _settings(name, rows)]
        return View(f"{name}: settings", "brokers", body, command)
    states = [each for each in await ask.cluster.brokers() if each.broker == name]
    try:
        told = await ask.cluster.look(
            ("runtime", name), lambda: settings_of_brokers(broker=name, runtime=True)
        )
        content = _by_subject(told)
    except RoquetteError as error:
        content = parts.refused("It does not tell more", error)
    body = [head(ask, name, ""), parts.panel("Processes", brokers_grid(ask, states)), content]
    return View(name, "brokers", body, (*command, "--runtime"), 2)


def head(ask: ViewAsk, name: str, tab: str) -> Node:
    """What all pages of a broker begin with."""
    acts = (
        (ask.url("act", "broker-config-set", broker=name), "Change a setting"),
        (ask.url("act", "broker-drain", name=name, wait="true"), "Drain"),
        (ask.url("act", "broker-restore", name=name), "Restore"),
    )
    tabs = (
        ("", ask.url("brokers", name), "State"),
        ("members", ask.url("brokers", name, "members"), "Masters and replicas"),
        ("settings", ask.url("brokers", name, "settings"), "Settings"),
    )
    above = parts.crumbs((ask.url("brokers"), "Brokers"))
    return [above, parts.heading(name, *acts), parts.tabs(tab, *tabs)]


def _by_subject(rows: list[SettingRow]) -> Node:
    left = {row.key: row.value for row in rows}
    found: list[Node] = []
    for subject, pattern in (*_SUBJECTS, ("Other", re.compile(""))):
        here = {key: left.pop(key) for key in sorted(left) if pattern.search(key)}
        if here:
            pairs = parts.facts((key, value) for key, value in here.items())
            found.append(parts.panel(subject, h.div(".inside")[pairs]))
    return found


def _elsewhere(others: dict[str, str]) -> str:
    """What the first of the others have, and how many more there are."""
    told = [f"{server}: {value}" for server, value in islice(others.items(), ELSEWHERE)]
    more = len(others) - len(told)
    return ", ".join(told) + (f", and {more} more" if more else "")


def _settings(name: str, rows: list[SettingRow]) -> Node:
    """This broker's, and of the others what they have otherwise."""
    own = {row.key: row.value for row in rows if row.server == name}
    others: dict[str, dict[str, str]] = {}
    for row in rows:
        if row.server != name and own.get(row.key) != row.value:
            others.setdefault(row.key, {})[row.server] = row.value
    if not own:
        return settings_grid(rows)
    return parts.grid(
        "Settings",
        sorted(own),
        {
            "Setting": parts.code,
            "Here": own.__getitem__,
            "Elsewhere": lambda key: _elsewhere(others.get(key, {})),
        },
    )
