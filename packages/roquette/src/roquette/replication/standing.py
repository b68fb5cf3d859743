"""Candidacy for master: rules over the record alone."""

from typing import Final

from roquette.replication.effects import TakeOverSettings
from roquette.replication.record import GroupRecord

ALL_DOUBTFUL_MS: Final = (
    1_000  # all lost power: so much later than a TTL, for each to say what it has
)


def patience(record: GroupRecord, me: int, settings: TakeOverSettings) -> int:
    """Return the time the beat must have stood still before `me` stands, ms."""
    if record.ordered not in (0, me):
        return settings.ttl_ms
    if record.master == me:  # an earlier life of ours, which is over
        return 2 * settings.renew_ms
    return settings.ttl_ms if record.master else 0


def by_loss(record: GroupRecord, me: int) -> bool:
    """Is it an order that makes `me` eligible, and nothing else?"""
    unfit = me not in record.members or me in record.doubtful
    return unfit and record.ordered == me and record.accept_loss


def valid_order(record: GroupRecord) -> bool:
    """May the one be master whom an operator wants? Else the order is out of date."""
    fit = record.ordered in record.members and record.ordered not in record.doubtful
    return record.ordered != 0 and (fit or record.accept_loss)


def bar(record: GroupRecord, me: int, waited_ms: int, settings: TakeOverSettings) -> str:
    """Return the reason why `me` may not stand, in words; empty: it may."""
    if by_loss(record, me):
        return ""
    if me not in record.members:
        return (
            f"no master, and broker {me} is not in step: it waits for one of {list(record.members)}, "
            "or for an order to elect it, losses accepted"
        )
    if why := record.unfit.get(me):
        others = [member_id for member_id in record.members if member_id not in record.unfit]
        hope = f"it waits for one of {others}" if others else "nobody else is in step"
        return f"no master, and broker {me} may lack acknowledged messages: {why}; {hope}, or an order to elect it"
    if record.set_back:
        silent = [member_id for member_id, said in record.doubtful.items() if said[0] < 0]
        if silent:
            return f"the record is an old one: brokers {silent} are to say what they have, or an order to elect one"
    elif me not in record.doubtful or record.members == (me,):
        return ""
    elif others := [member_id for member_id in record.members if member_id not in record.doubtful]:
        return f"no master, and broker {me} has lost power: it waits for one of {others}"
    if waited_ms <= settings.ttl_ms + ALL_DOUBTFUL_MS:
        return f"brokers {list(record.members)} say what they have: the one with most is sought"
    best = max(record.members, key=lambda member_id: (record.doubtful[member_id], -member_id))
    if best == me:
        return ""
    sick = f"; it is barred: {record.unfit[best]}" if best in record.unfit else ""
    return f"broker {me} waits for {best}, which has most{sick}"
