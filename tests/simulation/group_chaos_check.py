"""What must be true of a group at the end, after all that `group_chaos` did to it."""

from typing import TYPE_CHECKING, Any

from tests.simulation.group_chaos_books import POPPED, name_of, records_of
from tests.simulation.group_chaos_kinds import NAME_SERVERS
from tests.simulation.group_chaos_later import LATER

if TYPE_CHECKING:
    from tests.simulation.group_chaos import GroupChaos

TOPIC = "orders"
ENDS = (TOPIC, POPPED, LATER)
LATE_S = 20.0  # what was on its way has come by then


async def check(world: "GroupChaos") -> None:
    """All is quiet: what was promised?"""
    stores = world.stores_open()
    store = max(stores, key=lambda each: each.min_physical_offset)
    begin, end = store.min_physical_offset, store.wrote
    assert begin == 0 or world.expires
    places: dict[tuple[str, int, int], bytes] = {}
    ends: dict[bytes, int] = {}
    for record in records_of(store, begin, end, ours):
        body = name_of(record.body)
        assert body not in ends, f"twice in the log: {body!r}"
        ends[body] = record.physical_offset
        place = record.topic, record.queue_id, record.queue_offset
        assert place not in places, f"two messages at {place}: {places[place]!r} {body!r}"
        places[place] = body
    # Where the group's record is lost while only one is in step, nothing is taken before all is calm again: `_calm` waits for ten.
    assert len(world.acknowledged) > 10, "the run must have done something"
    order: dict[tuple[bytes, str, int], int] = {}
    for body, place in world.acknowledged.items():
        kept = places.get(place)
        known_s, at = world.places[body]
        if at < begin or known_s < world.lost_at + LATE_S:
            continue
        if kept != body and (world.role == "SYNC_MASTER" or body in ends):
            raise AssertionError(f"acknowledged, not at its place {place}: {body!r} ({kept!r})")
        if kept == body:
            line = body.split(b"-")[0], place[0], place[1]
            assert order.get(line, -1) < ends[body], f"out of order: {body!r}"
            order[line] = ends[body]
    for place, body in world.shown.items():
        gone = world.places.get(body, (0.0, begin))[1] < begin or place[2] < store.min_offset(
            *place[:2]
        )
        assert gone or places.get(place) == body, (
            f"shown at {place}: {body!r}; there is {places.get(place)!r}"
        )
    ends_of = [_ends_of(each) for each in stores]
    assert all(each == ends_of[0] for each in ends_of), ends_of
    await world.until(lambda: not _lacking(world), "tables are the same", 30)
    if world.role == "SYNC_MASTER" and world.lost_at < 0:
        assert not world.pops.wrong, world.pops.wrong[:5]
    await world.until(lambda: _registered(world), "name servers know the master", 35)


def _lacking(world: "GroupChaos") -> list[str]:
    """Tables that a member lacks, and what is not as it was made: to be shown by `until` in the end."""
    brokers = [(world.alive[ip].broker, world.ids[ip]) for ip in world.members]
    told = [broker.runtime_info(0).get("tablesNotCopied", "none") for broker, _ in brokers]
    wrong = [words for broker, who in brokers for words in world.tables.wrong(broker, who)]
    world.left = [each for each in told if each != "none"] + wrong
    return world.left


def _registered(world: "GroupChaos") -> bool:
    record = world.newest()
    wanted = {
        0 if who == record.master else who: place.address for who, place in record.places.items()
    }
    for ip in NAME_SERVERS:
        route = world.cluster.hosts[ip].service.core.routes.find_route(TOPIC)
        found = route.broker_datas[0].broker_addrs if route and route.broker_datas else {}
        if {int(who): address for who, address in found.items()} != wanted:
            return False
    return True


def _ends_of(store: Any) -> dict[tuple[str, int], int]:
    """Of each queue that ever had a message."""
    queues = [(topic, queue) for topic in ENDS for queue in store.queues_of(topic)]
    return {where: end for where in sorted(queues) if (end := store.max_offset(*where))}


def ours(topic: str) -> bool:
    """Is each message of it in the books?"""
    return topic in (TOPIC, POPPED)
