"""Findings: what a check says, and what the table of checks says of each."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from roquette.admin.facts import About, BrokerFacts, ClusterFacts
from roquette.base.options import counted
from roquette.client import calls, operator_calls
from roquette.client.calls import Operation, ask_all


class Severity(StrEnum):
    """error: messages are lost, stuck or refused. warning: they will be, or nobody would notice. note: good to know."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Intent(msgspec.Struct, frozen=True):
    """Purpose of the cluster: in production, settings for trials are faults; `none_lost`: no acknowledged message
    may be lost when a machine loses power; `brokers`: names of those that are to be there."""

    production: bool = False
    none_lost: bool = False
    brokers: tuple[str, ...] = ()


class Remedy(msgspec.Struct, frozen=True):
    """A change that can be taken back, as data.

    Attributes:
        broker, address: where.
        topic, queues, perm: a topic to create there, when `topic` is not empty.
        setting, value: else a setting to change.
        undo: the command that takes it back.
    """

    broker: str
    address: str
    undo: str
    topic: str = ""
    queues: int = 0
    perm: int = 6
    setting: str = ""
    value: str = ""

    @property
    def words(self) -> str:
        """The change in one line."""
        if self.topic:
            return f"create topic {self.topic} with {counted(self.queues, 'queue')} on broker {self.broker}"
        return f"set {self.setting}={self.value} on broker {self.broker}"


class Sign(NamedTuple):
    """Sign that a check found.

    Attributes:
        severity: when it is not the check's own.
    """

    about: About
    evidence: str
    cause: str
    fix: str
    severity: Severity | None = None
    remedies: tuple[Remedy, ...] = ()


def command(*words: object) -> str:
    """A command of ours as it is typed; in back quotes, by which others find it in a fix."""
    return f"`{shlex.join(('roquette', *map(str, words)))}`"


def change_setting(broker: BrokerFacts, key: str, value: object) -> str:
    """The command that changes a setting of this very process, whether or not a name server knows it."""
    return command("broker", "config", "set", f"{key}={value}", "--broker", broker.address)


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong: what, with the numbers that were seen, why, and what to do (`command`)."""

    code: str
    severity: Severity
    about: About
    evidence: str
    cause: str
    fix: str
    remedies: tuple[Remedy, ...] = ()

    @property
    def subject(self) -> str:
        """What it is about, in words."""
        return self.about.words


class Looks(NamedTuple):
    """Material that a check judges.

    Attributes:
        before: an earlier look, when there were two.
    """

    now: ClusterFacts
    before: ClusterFacts | None
    intent: Intent

    @property
    def seconds(self) -> float:
        """Between both looks."""
        return 0.0 if self.before is None else (self.now.steady_ms - self.before.steady_ms) / 1000


class Check(NamedTuple):
    """A row of the table.

    Attributes:
        code: stable, for scripts.
        severity: of its findings, unless one has another.
        meaning: one line for the page of codes.
        run: the check.
        two_looks: whether it needs `--for`.
    """

    code: str
    severity: Severity
    meaning: str
    run: Callable[[Looks], Iterator[Sign]]
    two_looks: bool = False


# Does what findings offer: changes that can be taken back.


def remedies_of(findings: Iterable[Finding]) -> list[Remedy]:
    """List what can be done, each once."""
    return list(dict.fromkeys(remedy for finding in findings for remedy in finding.remedies))


def apply_remedies(remedies: Sequence[Remedy]) -> Operation[list[str]]:
    """Make the changes, side by side; returns why each was not made, "" for those that were."""
    answers = yield from ask_all((remedy.address, _call(remedy)) for remedy in remedies)
    return [answer.reason for answer in answers]


def _call(remedy: Remedy) -> calls.Call[None]:
    if remedy.topic:
        return calls.create_topic(remedy.topic, queues=remedy.queues, perm=remedy.perm)
    return operator_calls.change_broker_settings({remedy.setting: remedy.value})
