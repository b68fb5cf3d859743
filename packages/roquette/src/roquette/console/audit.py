"""Who did what here: each act before it is begun and after, in the log `roquette.audit`, in a file, and on a page."""

import json
import logging
from collections import deque
from typing import Final, NamedTuple, Protocol

from roquette.base.clock import Clock

log = logging.getLogger("roquette.audit")
MOST: Final = 500


class AuditLine(NamedTuple):
    """One line. `result`: begun, done, or why not; `back`: the command that takes it back, where there is one."""

    at_ms: int
    who: str
    address: str
    cluster: str
    command: str
    result: str
    back: str = ""


class Sink(Protocol):
    """Where lines are kept: a file that is appended to."""

    def write(self, text: str, /) -> object:
        """Append."""

    def flush(self) -> object:
        """Hand what was written to the system."""


class ActAudit:
    """The newest lines; all of them go to the log, and as JSON to the file, if there is one."""

    def __init__(self, clock: Clock, sink: Sink | None = None) -> None:
        self.lines: deque[AuditLine] = deque(maxlen=MOST)
        self._clock = clock
        self._sink = sink

    def note(
        self, who: str, address: str, cluster: str, command: str, result: str, back: str = ""
    ) -> None:
        """Add a line; raises OSError when the file takes none, and then nothing may be done."""
        line = AuditLine(self._clock.now_ms(), who, address, cluster, command, result, back)
        if self._sink is not None:
            self._sink.write(json.dumps(line._asdict(), ensure_ascii=False) + "\n")
            self._sink.flush()
        self.lines.append(line)
        log.warning("%s from %s at %s: %s: %s", who, address, cluster, command, result)
