"""What may befall a group of brokers: one function for each kind, drawn by `group_chaos`.

A kind returns whether it came about: not when its member is being restarted already, or when the last copy of something
acknowledged would go (the promise holds for what n copies have, until n disks are lost).
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from roquette.admin.replication import order_master
from roquette.errors import AgreementError, ClientError, ConfigError
from roquette.replication.epochs import Refuse, join
from roquette.store.format.config import FlushDiskType

if TYPE_CHECKING:
    from tests.simulation.group_chaos import GroupChaos

OPERATOR = "10.0.9.9"
NAME_SERVERS = ("10.0.0.1", "10.0.0.2")
Kind = Callable[["GroupChaos", str, Random], Awaitable[bool]]


class Drawn(NamedTuple):
    """A kind: how often it is drawn, against the others."""

    weight: int
    befall: Kind


KINDS: dict[str, Drawn] = {}


def kind(weight: int) -> Callable[[Kind], Kind]:
    """Enter a function into the table, by its name."""

    def enter(befall: Kind) -> Kind:
        name = getattr(befall, "__name__", "").replace("_", " ")
        KINDS[name] = Drawn(weight, befall)
        return befall

    return enter


def draw(rng: Random) -> str:
    """The name of a kind."""
    return rng.choices([*KINDS], [each.weight for each in KINDS.values()])[0]


@contextmanager
def held(world: "GroupChaos", *ips: str) -> Iterator[bool]:
    """Nobody else kills, stops or starts these; false: somebody does at present."""
    free = not any(ip in world.busy for ip in ips)
    if free:
        world.busy |= dict.fromkeys(ips)
    try:
        yield free
    finally:
        if free:
            for ip in ips:
                del world.busy[ip]


def away_s(rng: Random) -> float:
    """How long a member is away."""
    return rng.choice((rng.uniform(0, 1), rng.uniform(0, 8)))


async def ended(
    world: "GroupChaos", ip: str, rng: Random, between: Callable[[], object] = lambda: None
) -> bool:
    """A member is killed, or stopped; `between`: what happens to its machine; and it comes again."""
    with held(world, ip) as free:
        if free:
            await end(world, ip, rng)
            between()
            await asyncio.sleep(away_s(rng))
            await world.start(ip)
        return free


async def supervised(world: "GroupChaos", ip: str) -> None:
    """A process that has ended in words is started again."""
    with held(world, ip) as free:
        if free:
            world.cluster.kill(ip)
            world.unsure[ip] = None
            await asyncio.sleep(1)
            await world.start(ip)


async def end(world: "GroupChaos", ip: str, rng: Random) -> None:
    if rng.random() < 0.7:
        world.cluster.kill(ip)
    else:
        await world.cluster.stop(ip)
    if rng.random() < 0.5 and ip not in world.rotten:
        world.copies[ip] = world.files(ip).crash(rng, share=1.0)


# Processes and machines.


@kind(2)
async def kill(world: "GroupChaos", ip: str, rng: Random) -> bool:
    return await ended(world, ip, rng)


@kind(2)
async def power(world: "GroupChaos", ip: str, rng: Random) -> bool:
    with held(world, ip) as free:
        if free:
            may = world.may_lose(ip)
            world.cluster.kill(ip, power_loss=may)
            if may:
                world.unsure[ip] = None
            await asyncio.sleep(away_s(rng))
            await world.start(ip)
        return free


@kind(2)
async def pause(world: "GroupChaos", ip: str, rng: Random) -> bool:
    """It is over when the machine runs again: what is to be well then is counted from there."""
    if ip in world.busy:
        return False
    took = rng.choice((rng.uniform(0.2, 8), rng.uniform(0.2, 8), rng.uniform(8, 25)))
    world.cluster.pause(ip, took)
    await asyncio.sleep(took)
    return True


@kind(2)
async def name_server(world: "GroupChaos", ip: str, rng: Random) -> bool:
    host = rng.choice(NAME_SERVERS)
    with held(world, host) as free:
        if free:
            world.newest()
            world.cluster.kill(host, power_loss=rng.random() < 0.5)
            await asyncio.sleep(rng.uniform(0, 4))
            await world.cluster.restart(host)
        return free


# Connections.


@kind(1)
async def reset(world: "GroupChaos", ip: str, rng: Random) -> bool:
    world.cluster.reset(ip)
    return True


@kind(1)
async def isolate(world: "GroupChaos", ip: str, rng: Random) -> bool:
    world.cluster.isolate(ip)
    await asyncio.sleep(rng.uniform(0.5, 10))
    world.cluster.network.heal(ip)
    return True


@kind(2)
async def cut(world: "GroupChaos", ip: str, rng: Random) -> bool:
    return await _cut(world, ip, rng, world.cluster.partition)


@kind(2)
async def cut_way(world: "GroupChaos", ip: str, rng: Random) -> bool:
    return await _cut(world, ip, rng, world.cluster.cut_way)


async def _cut(world: "GroupChaos", ip: str, rng: Random, how: Callable[[str, str], None]) -> bool:
    ends = [ip, rng.choice((*world.members, *NAME_SERVERS[:1] * 2, *world.clients))]
    if ends[0] == ends[1]:
        return False
    rng.shuffle(ends)
    how(*ends)
    await asyncio.sleep(rng.uniform(0.5, 12))
    world.cluster.network.heal(*ends)
    return True


# Disks.


@kind(1)
async def slow_disk(world: "GroupChaos", ip: str, rng: Random) -> bool:
    world.cluster.slow_disk(ip, rng.uniform(0.02, 1.5))
    await asyncio.sleep(rng.uniform(1, 10))
    world.cluster.slow_disk(ip, 0)
    return True


@kind(1)
async def hung_disk(world: "GroupChaos", ip: str, rng: Random) -> bool:
    """Until somebody sees it, and cuts the machine off its power."""
    with held(world, ip) as free:
        if free:
            world.cluster.slow_disk(ip, 1_000)
            await asyncio.sleep(rng.uniform(1, 15))
            world.cluster.kill(ip)
            world.cluster.slow_disk(ip, 0)
            await asyncio.sleep(away_s(rng))
            await world.start(ip)
        return free


@kind(1)
async def full_disk(world: "GroupChaos", ip: str, rng: Random) -> bool:
    """For some time: the oldest messages go first. A member that cannot go on without space is started again."""
    with held(world, ip) as free:
        if free:
            files = world.files(ip)
            world.expires = True
            files.set_capacity(files.used + rng.randrange(200_000))
            await asyncio.sleep(rng.uniform(1, 15))
            files.set_capacity(1 << 40)
            if world.alive[ip].failure is not None or rng.random() < 0.3:
                world.cluster.kill(ip)
                await asyncio.sleep(away_s(rng))
                await world.start(ip)
        return free


@kind(1)
async def failing_disk(world: "GroupChaos", ip: str, rng: Random) -> bool:
    """A call fails, perhaps one after the other; a member that cannot go on is started again."""
    with held(world, ip) as free:
        if free:
            call = rng.choice(("pwrite", "sync", "rename", "open", "allocate", "sync_dir"))
            for nth in range(1, rng.choice((2, 2, 30))):
                world.files(ip).fail(call, nth, rng.choice((errno.EIO, errno.ENOSPC)))
            await asyncio.sleep(rng.uniform(0.5, 8))
            world.files(ip).work_again()
            if world.alive[ip].failure is not None or rng.random() < 0.3:
                world.cluster.kill(ip)
                await asyncio.sleep(away_s(rng))
                await world.start(ip)
        return free


# Settings.


@kind(1)
async def other_flush(world: "GroupChaos", ip: str, rng: Random) -> bool:
    """flushDiskType is changed, with a power cut perhaps."""
    with held(world, ip) as free:
        if free:
            may = world.may_lose(ip) and rng.random() < 0.5
            world.cluster.kill(ip, power_loss=may)
            if may:
                world.unsure[ip] = None
            new = FlushDiskType.ASYNC_FLUSH if world.syncs(ip) else FlushDiskType.SYNC_FLUSH
            world.stores[ip] = world.stores[ip] | {"flush_disk_type": new}
            await asyncio.sleep(away_s(rng))
            await world.start(ip)
        return free


@kind(1)
async def other_settings(world: "GroupChaos", ip: str, rng: Random) -> bool:
    """minInSyncReplicas is changed at run time, at all members or at this one."""
    least = rng.choice((1, 2))
    for each in rng.choice(((ip,), world.members)):
        if each not in world.busy and world.alive[each].broker is not None:
            world.alive[each].broker.core.live.update({"minInSyncReplicas": str(least)})
    return True


@kind(1)
async def other_id(world: "GroupChaos", ip: str, rng: Random) -> bool:
    """brokerId is changed, which is refused in words."""
    with held(world, ip) as free:
        if not free:
            return False
        world.cluster.kill(ip)
        try:
            await world.begin(ip, ip, broker_id=rng.choice([*range(1, world.ids[ip]), 7]))
            raise AssertionError("the store of one broker has become another one")
        except ConfigError:
            world.cluster.kill(ip)
        await world.start(ip)
        return True


@kind(1)
async def growth(world: "GroupChaos", ip: str, rng: Random) -> bool:
    """A new member; once. Where the record is lost it would get the id of another one, and be ordered in its place."""
    new = "10.0.1.4"
    begun = NAME_SERVERS[0] not in world.busy and world.newest().master > 0
    if new in world.members or not begun:
        return False
    with held(world, new):
        world.stores[new] = dict(world.stores[ip])
        world.ids[new] = rng.choice((0, 4))
        world.members = (*world.members, new)
        world.alive[new] = None
        await world.start(new)
        world.ids[new] = world.alive[new].id
    return True


@kind(1)
async def clock(world: "GroupChaos", ip: str, rng: Random) -> bool:
    """Somebody sets a clock."""
    offset_ms = int(rng.choice((-1, 1)) * 10 ** rng.uniform(1, 4))
    world.clocks_off_ms = max(world.clocks_off_ms, abs(offset_ms))
    world.cluster.set_clock(rng.choice((ip, NAME_SERVERS[0])), offset_ms)
    return True


# Tables, and operators.


@kind(1)
async def deaf_for_tables(world: "GroupChaos", ip: str, rng: Random) -> bool:
    """The tables of the master do not come."""
    took = rng.uniform(1, 10)
    world.tables_late_s = max(world.tables_late_s, took)
    world.deaf[ip] = None
    await asyncio.sleep(took)
    world.deaf.pop(ip, None)
    return True


@kind(1)
async def promote(world: "GroupChaos", ip: str, rng: Random) -> bool:
    """`roquette broker promote`, without losses."""
    return await order(world, world.ids[ip], loss=False)


@kind(1)
async def promote_with_loss(world: "GroupChaos", ip: str, rng: Random) -> bool:
    """`roquette broker promote --accept-data-loss`, of whom somebody likes; in some worlds only."""
    return world.lossy and await order(world, world.ids[ip], loss=True)


async def order(world: "GroupChaos", who: int, *, loss: bool) -> bool:
    """False: it is refused, or nobody answers."""
    try:
        mq = world.operator or await world.client(OPERATOR)
        world.operator = mq
        servers = [f"{ip}:9876" for ip in NAME_SERVERS]
        await mq.session.run(order_master(servers, "DefaultCluster", "broker-a", who, loss))
        return True
    except (AgreementError, ClientError, ConfigError):
        return False


async def operate(world: "GroupChaos") -> None:
    """When nobody is master for long somebody reads why, and orders the one that has most; and moves away the stores that an
    order with losses has made another log's."""
    waited = 0
    while True:
        await asyncio.sleep(1)
        for ip in world.members if world.lossy else ():
            if _is_refused(world, ip):
                await KINDS["new disk"].befall(world, ip, world.loop.random)
        waited = waited + 1 if world.stuck() else 0
        if waited >= 8:
            waited = 0
            best = max(world.members, key=world.has)
            if await order(world, world.ids[best], loss=True):
                world.drawn["operator"] += 1


def _is_refused(world: "GroupChaos", ip: str) -> bool:
    """Does its log say that it has "none of its epochs is one of the master's"? A master that began anew cannot be followed."""
    master = next((m for m in world.alive.values() if m.is_master and m.broker is not None), None)
    member = world.alive.get(ip)
    if master is None or member is None or member.broker is None or ip in world.busy:
        return False
    begin = member.broker.store.min_physical_offset
    found = join(master.marks, master.own_end(), member.marks, member.own_end(), begin)
    return isinstance(found, Refuse) and "none of its epochs" in found.why


def state(world: "GroupChaos") -> list[Any]:
    """Of each member, for whoever looks for a cause."""
    members = [(ip, world.member(ip)) for ip in world.members]
    return [(ip, m.id, m.table.role.value, m.table.trouble, m.own_end()) for ip, m in members if m]
