"""What happened in a cluster between two looks: who came, went, took over, or refuses. Pure."""

from collections.abc import Iterator
from typing import Final

import msgspec

from roquette.admin.facts import ClusterFacts

KINDS: Final = {
    "there": ("joined", "left"),
    "master": ("is master", "is master no more"),
    "silent": ("is silent", "answers again"),
    "drained": ("is drained", "is restored"),
    "messagesRefused": ("refuses messages", "takes messages again"),
    "groupTrouble": ("has trouble in its group", "is well in its group again"),
    "followsRefused": ("is refused by its master", "follows its master again"),
}
"""What is looked at: the words when it begins to be so, or is another one, and when it ends."""


class ClusterEvent(msgspec.Struct, frozen=True):
    """One change, seen at `at_ms` by the clock of who looked. `kind`: one of the words of KINDS."""

    at_ms: int
    subject: str
    kind: str
    says: str


def events(before: ClusterFacts, now: ClusterFacts) -> Iterator[ClusterEvent]:
    """The changes, by subject."""
    old, new = _states(before), _states(now)
    for key in sorted(key for key in {**old, **new} if old.get(key) != new.get(key)):
        subject, kind, _ = key
        words = KINDS[kind][key not in new]
        yield ClusterEvent(now.at_ms, subject, words, new.get(key, old.get(key, "")))


def _states(facts: ClusterFacts) -> dict[tuple[str, str, str], str]:
    """By subject, what of it is so, and which of several: in words, where there is something to tell."""
    found: dict[tuple[str, str, str], str] = {}
    for server in facts.name_servers:
        if server.error:
            found[f"name server {server.address}", "silent", ""] = server.error
        for name in server.drained:
            found[f"broker {name}", "drained", ""] = "by a note at its name servers"
    for broker in facts.brokers:
        subject = f"broker {broker.name}"
        found[subject, "there", broker.address] = broker.address
        if broker.broker_id == 0:
            found[subject, "master", ""] = broker.address
        if broker.error:
            found[subject, "silent", broker.address] = f"{broker.address}: {broker.error}"
        for key in ("messagesRefused", "groupTrouble", "followsRefused"):
            if (text := broker.runtime.get(key, "no")) not in ("no", ""):
                found[subject, key, broker.address] = f"{broker.address}: {text}"
    return found
