"""Decision of a slave about its log when a master welcomes it: go on, cut, begin anew, or nothing and say why."""

from dataclasses import dataclass

from roquette.replication.epochs import EpochMarks


@dataclass(frozen=True, slots=True)
class Go:
    """The log is the master's as far as it goes: save the marks, report `at`."""

    at: int
    kept: EpochMarks


@dataclass(frozen=True, slots=True)
class Cut:
    """From `at` on the log is another one: cut it there (what is cut is kept aside), then save the marks."""

    at: int
    kept: EpochMarks


@dataclass(frozen=True, slots=True)
class BeginAnew:
    """The master has nothing any more that follows the log: begin at `at`, its first byte. A log that has messages is
    kept aside: nobody can tell any more whether it was the group's."""

    at: int
    kept: EpochMarks


@dataclass(frozen=True, slots=True)
class Refuse:
    """Touch nothing, close, try again later; the log says why."""

    why: str


Join = Go | Cut | BeginAnew | Refuse

FOREIGN = (
    "the store has messages, and {what}: it is not a copy of this group's log. To have this broker in the group, "
    "move its store away and start it empty; to keep its messages, start it first, alone, in a group of its own name."
)


def join(
    theirs: EpochMarks, their_end: int, mine: EpochMarks, own_end: int, own_begin: int
) -> Join:
    """Compare the logs; the master's list is `seen_from` where its log begins."""
    if not theirs.marks:
        return Refuse("the master has no epochs: it is no member of a group")
    first = theirs.first_start
    if own_end == own_begin and not mine.marks:
        return _begin(theirs, own_end)
    if not mine.marks:
        return Refuse(FOREIGN.format(what="no epochs"))
    at = mine.common(own_end, theirs, their_end)
    if at is None:
        if own_end == own_begin:
            return _begin(theirs, own_end)
        if (
            first > 0 and mine.last_epoch <= theirs.last_epoch
        ):  # what they had in common has expired there
            return BeginAnew(first, theirs.without_beyond(first))
        return Refuse(FOREIGN.format(what="none of its epochs is one of the master's"))
    # The logs part where one of them has expired: nothing is left there to go on from.
    if at < max(first, own_begin):
        return BeginAnew(first, theirs.without_beyond(first))
    kept = mine.joined(theirs, at)
    return Go(at, kept) if at == own_end else Cut(at, kept)


def _begin(theirs: EpochMarks, own_end: int) -> Join:
    first = theirs.first_start
    kept = theirs.without_beyond(first)
    return Go(first, kept) if first == own_end else BeginAnew(first, kept)
