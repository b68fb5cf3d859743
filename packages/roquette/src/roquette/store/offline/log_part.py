"""What the check of one log file says: values, which go from process to process."""

from dataclasses import dataclass, field

from roquette.store.audit.findings import Findings


@dataclass(slots=True)
class Pending:
    """Records in a row whose queue has no unit for them, or another one's."""

    first_offset: int
    next_offset: int
    first_physical: int
    last_physical: int
    reason: str  # unit_missing, unit_wrong or queue_missing
    file: str
    position: int
    message: str


@dataclass(slots=True)
class QueueSpan:
    """What one log file says of one queue.

    Attributes:
        first_offset: of the first record. `next_offset`: behind the last one.
        life_offset, life_physical: the first record that its unit agrees with; -1: none.
    """

    topic: str
    queue_id: int
    first_offset: int
    next_offset: int
    life_offset: int
    life_physical: int
    records: int
    pending: list[Pending]


@dataclass(slots=True)
class LogPart:
    """What the check of one log file says."""

    base: int
    path: str
    findings: Findings = field(default_factory=Findings)
    spans: list[QueueSpan] = field(default_factory=list)
    records: int = 0
    bytes: int = 0
    end: int = 0  # physical offset behind the last record or blank
    filled: bool = False  # the log goes on in the next file
    first_ms: int = 0
    last_ms: int = 0
    max_ms: int = 0
    damaged: int = 0  # bytes
