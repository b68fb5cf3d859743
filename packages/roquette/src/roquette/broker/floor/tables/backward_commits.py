"""Commits that move a group back: logged, counted, and refused where the group's attribute says so.

Apache accepts them and logs each (ConsumerOffsetManager.commitOffset). The group attribute
`roquette.commit.backward=REFUSE` keeps the larger offset; resets by an operator still move back.
"""

import logging

from roquette.base.clock import Clock
from roquette.base.logs import RateLimited
from roquette.broker.floor.tables.attributes import COMMIT_BACKWARD, REFUSE
from roquette.broker.floor.tables.groups import GroupTable

log = logging.getLogger("roquette.broker")


class BackwardCommitPolicy:
    """Judges smaller offsets.

    Attributes:
        accepted, refused: how many there were since the start.
        never: none is accepted: a replica, whose master says what is committed.
    """

    def __init__(self, groups: GroupTable, clock: Clock) -> None:
        self._groups = groups
        self._log = RateLimited(log, clock)
        self.never = False
        self.accepted = 0
        self.refused = 0

    def permits(
        self, group: str, topic: str, queue_id: int, offset: int, old: int, client: str
    ) -> bool:
        """Whether `offset` may replace the larger `old`."""
        config = self._groups.known(group)
        allowed = not self.never and (
            config is None or (config.attributes or {}).get(COMMIT_BACKWARD) != REFUSE
        )
        if allowed:
            self.accepted += 1
        else:
            self.refused += 1
        self._log.warning(
            f"{topic}@{group}",
            "commit moves back group=%s topic=%s queue_id=%d offset=%d committed=%d client=%s %s",
            group,
            topic,
            queue_id,
            offset,
            old,
            client or "-",
            "accepted" if allowed else "refused",
        )
        return allowed
