"""What changed when: brokers, masters, and what they refuse, since the console began."""

from collections import deque
from typing import Final

import msgspec

from roquette.admin.facts import ClusterFacts
from roquette.admin.top import ClusterEvent, events
from roquette.console.audit import Sink

MOST: Final = 10_000


class Changes:
    """The newest changes between looks, which all people share; `sink`: where they are kept as JSON lines."""

    def __init__(self, sink: Sink | None = None) -> None:
        self.events: deque[ClusterEvent] = deque(maxlen=MOST)
        self._sink = sink
        self._before: ClusterFacts | None = None
        self._at_ms = 0

    def see(self, at_ms: int, facts: ClusterFacts) -> None:
        """Compare a look with the one before it; an older one than that is left out."""
        if at_ms <= self._at_ms:
            return
        if self._before is not None:
            for event in events(self._before, facts):
                self.events.append(event)
                if self._sink is not None:
                    self._sink.write(msgspec.json.encode(event).decode() + "\n")
                    self._sink.flush()
        self._before, self._at_ms = facts, at_ms
