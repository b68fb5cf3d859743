"""Findings of a check: one line each, with file, byte and what to do."""

from typing import Final

import msgspec

DAMAGE: Final = "damage"
NOTE: Final = "note"
MAX_FINDINGS: Final = 10_000  # of one report; more are counted only
MAX_OF_PART: Final = 1_000  # of one file's check

_REPAIR: Final = "`roquette store repair` makes a copy without it"
_REBUILD: Final = "`roquette store repair` makes queues and index anew from the log"
_START: Final = "the broker mends it at its next start"
_LOST: Final = "restore the file from a backup or a replica, or let `roquette store repair` make a copy without it"

ADVICE: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("magic", "size", "structure", "offset", "crc", "topic", "hole", "blank"), _REPAIR
    ),
    "whole_crc": "restore it if a disk is to blame; if an application sent the property, nothing: it is kept and served",
    "tail": f"{_REPAIR}; {_START} when nothing sound follows",
    "cut": "copy the file again, whole",
    "segment_missing": _LOST,
    "segment_size": _LOST,
    "log_gap": _LOST,
    "stray": "move it away: Apache's broker takes every name in this directory for an offset",
    "time_back": "nothing: the clock was set back",
    **dict.fromkeys(
        (
            *("unit_missing", "unit_wrong", "unit_size", "unit_tag", "unit_orphan", "unit_hole"),
            *("queue_missing", "queue_file", "queue_gap"),
            *("index_missing", "index_wrong", "index_orphan", "index_chain", "index_header"),
            *("index_time", "index_size", "index_tail", "index_behind"),
        ),
        _REBUILD,
    ),
    "checkpoint": "remove the file: the broker then looks at the whole log at its next start",
    "json": "put the .bak file beside it in its place, or restore it from a backup",
    "offset_beyond": "set the group's offset back, or find out what the log has lost",
    "timer": "remove timerwheel, timerlog and config/timercheck: our broker makes them anew from the timer's topic",
    "unit_ahead": "nothing, or start the broker: it recovers",
    "abort": "nothing, or start the broker: it recovers",
    "strange": "read it with Apache's own broker",
    "unread": "give the settings it was made with",
}


class StoreFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One fault, or something worth a note.

    Attributes:
        severity: `damage` or `note`.
        kind: a word of `ADVICE`.
        file, position: where; -1 when no byte can be named.
        message: what is wrong. `advice`: what to do.
        count: how many neighbours this stands for.
    """

    severity: str
    kind: str
    file: str
    position: int
    message: str
    advice: str
    count: int = 1


def finding(
    kind: str, file: str, position: int, message: str, severity: str = DAMAGE, count: int = 1
) -> StoreFinding:
    """A finding with its kind's advice."""
    return StoreFinding(
        severity=severity,
        kind=kind,
        file=file,
        position=position,
        message=message,
        advice=ADVICE[kind],
        count=count,
    )


class Findings:
    """A bounded list; neighbours of one kind in one file become one finding."""

    def __init__(self, limit: int = MAX_OF_PART) -> None:
        self._limit = limit
        self.items: list[StoreFinding] = []
        self.left_out = 0
        self._run: tuple[str, str, int] = (
            "",
            "",
            -1,
        )  # kind, file, the place a neighbour would have

    def add(self, item: StoreFinding) -> None:
        """Take one, or count it when there are too many."""
        self._run = ("", "", -1)
        if len(self.items) < self._limit:
            self.items.append(item)
        else:
            self.left_out += 1

    def add_run(
        self, kind: str, file: str, position: int, message: str, place: int, severity: str = DAMAGE
    ) -> None:
        """Take one of a row: `place` is its number, and the one after it is counted with it; -1: any
        neighbour of its kind is."""
        if self._run == (kind, file, place) and self.items:
            last = self.items[-1]
            self.items[-1] = msgspec.structs.replace(last, count=last.count + 1)
        else:
            self.add(finding(kind, file, position, message, severity))
        self._run = (kind, file, place + 1 if place >= 0 else -1)

    def extend(self, other: "Findings") -> None:
        """Take another list's."""
        for item in other.items:
            self.add(item)
        self.left_out += other.left_out
