"""Finds members of one group that disturb each other: the same client id twice, different subscriptions.

Both make messages reach no member, and Apache reports neither: two clients with one id both believe in the
same share of the queues, and of two subscriptions the newer replaces the other for everybody. Here both are logged
with both clients' names, and counted. The policy is to warn: nobody is refused. A heartbeat that brings nothing new
costs no look at other members. HOT.
"""

import logging
from collections.abc import Iterable

from roquette.base.checksum import crc32
from roquette.base.clock import Clock
from roquette.base.logs import RateLimited
from roquette.broker.floor.tables.consumers import ClientChannel, ConsumerGroup
from roquette.message.names import RETRY_PREFIX
from roquette.wire.bodies import SubscriptionData

log = logging.getLogger("roquette.broker")

SHOWN = 1_024  # characters of what a member subscribes to


class DuplicateClientDetector:
    """Watches the members of all groups; ConsumerTable calls it.

    Attributes:
        duplicates: client ids seen alive on two connections of a group, since the start.
        conflicts: times a member came to subscribe differently from another, since the start.
    """

    def __init__(self, clock: Clock) -> None:
        self._log = RateLimited(log, clock)
        self.duplicates = 0
        self.conflicts = 0

    def added(self, group: ConsumerGroup, channel: ClientChannel) -> None:
        """A connection joined. An older one with the same client id may just be dead: its next heartbeat shows."""
        for other in group.channels.values():
            if other is not channel and other.client_id == channel.client_id:
                other.suspected_duplicate = channel

    def beat(self, group: ConsumerGroup, channel: ClientChannel) -> None:
        """The older of two connections with one client id lives."""
        suspected_duplicate, channel.suspected_duplicate = channel.suspected_duplicate, None
        if (
            suspected_duplicate is None
            or group.channels.get(suspected_duplicate.peer.id) is not suspected_duplicate
        ):
            return
        self.duplicates += 1
        self._log.warning(
            f"{group.name} {channel.client_id}",
            "two clients have one id, each gets only a part of its messages group=%s client_id=%s "
            "addresses=%s,%s: give them different instance names",
            group.name,
            channel.client_id,
            channel.peer.remote,
            suspected_duplicate.peer.remote,
        )

    def subscribed(
        self,
        group: ConsumerGroup,
        channel: ClientChannel,
        message_model: str,
        subscriptions: Iterable[SubscriptionData],
    ) -> bool:
        """Take in what a member's heartbeat subscribes to; True when it is not what the same member said before."""
        signature, before = signature_of(message_model, subscriptions), channel.signature
        if signature == before:
            return False
        self.left(group, channel)
        channel.signature = signature
        group.signatures[signature] = group.signatures.get(signature, 0) + 1
        if len(group.signatures) > 1:
            self._conflict(group, channel, signature)
        return before != ""

    def _conflict(self, group: ConsumerGroup, channel: ClientChannel, signature: str) -> None:
        for other in group.channels.values():
            if other.signature not in ("", signature):
                self.conflicts += 1
                self._log.warning(
                    group.name,
                    "members of a group subscribe differently, messages go to nobody group=%s "
                    "client_id=%s address=%s subscribes=%s client_id=%s address=%s subscribes=%s",
                    group.name,
                    channel.client_id,
                    channel.peer.remote,
                    signature,
                    other.client_id,
                    other.peer.remote,
                    other.signature,
                )
                return

    def left(self, group: ConsumerGroup, channel: ClientChannel) -> None:
        """A member is gone, or subscribes to something else."""
        count = group.signatures.get(channel.signature, 0)
        if count > 1:
            group.signatures[channel.signature] = count - 1
        else:
            group.signatures.pop(channel.signature, None)
        channel.signature = ""


def signature_of(message_model: str, subscriptions: Iterable[SubscriptionData]) -> str:
    """Return what members of a group must have in common: the model, and each topic's expression, tags in any order."""
    parts = []
    for data in subscriptions:
        if data.topic.startswith(RETRY_PREFIX):
            continue
        text, kind = data.sub_string or "*", data.expression_type or "TAG"
        if kind == "TAG" and text != "*":
            text = "||".join(sorted({tag.strip() for tag in text.split("||")}))
        parts.append(f"{data.topic}:{kind}:{text}")
    signature = f"{message_model}[{', '.join(sorted(parts))}]"
    if len(signature) <= SHOWN:
        return signature
    return f"{signature[:SHOWN]}... ({len(signature)} characters, CRC {crc32(signature.encode())})"
