"""What can be known of a message: where it and its copies lie, who reads, and where each reader is."""

from dataclasses import dataclass, field
from typing import Final

from roquette.admin.left import Holdings
from roquette.message.message import ReceivedMessage
from roquette.wire.bodies.group_config import SubscriptionGroupConfig
from roquette.wire.bodies.topic_config import TopicConfig

UNFOUND: Final = "it never came, is older than what is kept, or is on a broker that name servers do not know any more"


@dataclass(frozen=True)
class BrokerEvidence:
    """One broker.

    Attributes:
        topic: the topic as the broker has it; None: it has none.
        groups: the configurations of groups.
        delays_ms: of each delay level, from level 1 on.
        first_ms: when the oldest message of its log was stored.
    """

    holdings: Holdings
    topic: TopicConfig | None
    groups: dict[str, SubscriptionGroupConfig]
    delays_ms: tuple[int, ...]
    first_ms: int


@dataclass(frozen=True)
class Attempt:
    """A member handled the message, as its trace says. `ok` is None when no end of it was traced."""

    group: str
    host: str
    begun_ms: int
    retries: int
    ok: bool | None


@dataclass(frozen=True)
class MessageFacts:
    """All of it.

    Attributes:
        copies: the message wherever it was found: in its topic, among delayed ones, half messages, retries, dead letters.
        unreachable: brokers that did not answer or are not there, and why.
    """

    asked: str
    topic: str
    now_ms: int
    copies: list[ReceivedMessage]
    brokers: dict[str, BrokerEvidence]
    attempts: list[Attempt] = field(default_factory=list)
    unreachable: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Evidence:
    """One thing that happened, or did not, and how it is known.

    Attributes:
        code: the kind of verdict; docs/howto/explain.md lists them.
        group: whom it concerns; "" for everybody.
        evidence: what was looked at.
    """

    code: str
    group: str
    says: str
    evidence: str
