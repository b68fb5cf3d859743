"""What may befall the disks, stores and records of a group: kinds of `group_chaos_kinds`.

One disk is lost at a time: another one that has all is up then.
"""

import asyncio
import functools
import json
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.group_chaos_kinds import NAME_SERVERS, away_s, end, ended, held, kind
from tests.simulation.group_chaos_rot import rot

from roquette.errors import ConfigError, StoreError
from roquette_testing.cluster import SimCluster, simulate
from roquette_testing.faulty_files import FaultyFiles

if TYPE_CHECKING:
    from tests.simulation.group_chaos import GroupChaos


@kind(1)
async def new_disk(world: "GroupChaos", ip: str, rng: Random) -> bool:
    return await _with_store(world, ip, rng, FaultyFiles(rng.randrange(1 << 30)))


@kind(1)
async def old_copy(world: "GroupChaos", ip: str, rng: Random) -> bool:
    """The store as it was once comes back: a virtual machine's image, a backup."""
    return ip in world.copies and await _with_store(world, ip, rng, world.copies[ip])


@kind(1)
async def image(world: "GroupChaos", ip: str, rng: Random) -> bool:
    """A copy of the store as it ran. That one which lacks less than half a second's messages is not seen is known."""
    if ip in world.busy or ip in world.rotten:
        return False
    files, end = world.files(ip).crash(rng, share=1.0), world.alive[ip].own_end()
    await asyncio.sleep(rng.uniform(1, 15))
    return world.newest().floor > end and await _with_store(world, ip, rng, files)


async def _with_store(world: "GroupChaos", ip: str, rng: Random, files: FaultyFiles) -> bool:
    if not world.spare(ip):
        return False
    done = [False]

    def swap() -> None:
        if world.spare(ip):
            world.swap(ip, files)
            done[0] = True

    await ended(world, ip, rng, swap)
    if world.copies.get(ip) is files and done[0]:
        del world.copies[ip]
    return done[0]


@kind(1)
async def clone(world: "GroupChaos", ip: str, rng: Random) -> bool:
    """A copy of the store begins on another machine beside its original, which it ends; later it goes for ever."""
    there = world.elsewhere(ip)
    with held(world, ip, there) as free:
        if not free or not world.spare(ip):
            return False
        host = world.cluster.host(there)
        host.files = world.files(ip).crash(rng, share=1.0)
        host.files.restart()  # another machine
        original = world.alive[ip]
        world.alive[there] = None
        world.alive[there] = await world.begin(there, ip)
        for _ in range(300):
            if original.failure is not None:
                break
            await asyncio.sleep(0.1)
        fenced = original.failure is not None
        await asyncio.sleep(rng.uniform(0, 5))
        while not world.spare(ip):
            await asyncio.sleep(0.1)
        world.cluster.kill(there)
        world.cluster.kill(ip)
        world.unsure[ip] = None
        await asyncio.sleep(away_s(rng))
        await world.start(ip)
        return fenced


@kind(1)
async def foreign_store(world: "GroupChaos", ip: str, rng: Random) -> bool:
    """A machine of another installation with the same names. It follows nobody, until its store is moved away."""
    with held(world, ip) as free:
        if not free or not world.spare(ip):
            return False
        world.cluster.kill(ip)
        files = foreign_files(world.stores[ip].get("segment_size", 1 << 20)).crash(rng, share=1.0)
        path = "/store/roquetteMember.json"
        known = json.loads(files.read_bytes(path)) | {"id": world.ids[ip]}
        files.write_atomic(path, json.dumps(known).encode())
        world.swap(ip, files)
        await world.start(ip)
        member = world.alive[ip]
        for _ in range(int(rng.uniform(5, 100))):
            await asyncio.sleep(0.1)
            assert member.table.role.value == "IDLE", "a store of another group takes part"
        world.cluster.kill(ip)
        world.swap(ip, FaultyFiles(rng.randrange(1 << 30)))
        await world.start(ip)
        return True


@functools.cache
def foreign_files(size: int) -> FaultyFiles:
    """The store of a broker of another group with the same names. Made outside of any running world."""
    kept = []

    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAME_SERVERS[0], controller="embedded")
        store = {"segment_size": size}
        await cluster.add_member("10.0.1.3", "broker-a", broker_id=3, store=store)
        await asyncio.sleep(5)
        mq = await cluster.client("10.0.2.1")
        for number in range(70):
            await mq.send("orders", b"%d" % number)
        await cluster.stop("10.0.1.3")
        files = cluster.hosts["10.0.1.3"].files
        kept.append(files.crash(share=1.0))  # all is synced: each later copy draws as many numbers

    simulate(scenario, 1)
    return kept[0]


@kind(2)
async def damage(world: "GroupChaos", ip: str, rng: Random) -> bool:
    """Some bytes of one file are others. Those of confirmed messages stay so, until the member has mended them; while it
    stands, or from before its start. What refuses to start in words gets a new disk."""
    with held(world, ip) as free:
        if not free or not world.spare(ip) or ip in world.rotten:
            return False
        rots = rot(world, ip, rng) if rng.random() < 0.7 else None
        if rots is not None and rng.random() < 0.5:
            return rots.befall(world, ip, "while it stands")
        await end(world, ip, rng)
        if rots is not None:
            rots.befall(world, ip, "while it is down")
        before = world.files(ip).crash(rng, share=1.0)
        at = -1 if rots is not None else _spoil(world.files(ip), rng)
        world.unsure[ip] = None
        await asyncio.sleep(away_s(rng))
        try:
            await world.start(ip)
        except (StoreError, ConfigError):
            world.drawn["damage: refused"] += 1
            world.swap(ip, FaultyFiles(rng.randrange(1 << 30)))
            await world.start(ip)
            return True
        if 0 <= at < world.alive[ip].own_end():
            world.cluster.kill(
                ip
            )  # no CRC covers it, or readers meet it: that no member mends this is known
            before.restart()
            world.swap(ip, before)
            await world.start(ip)
            return False
        return True


def _spoil(files: FaultyFiles, rng: Random) -> int:
    """Returns where in the commit log; -1: in another file."""
    images, _ = files.snapshot()
    paths = [path for path, image in sorted(images.items()) if image.strip(b"\0")]
    logs = [path for path in paths if "/commitlog/" in path]
    path = rng.choice(logs if logs and rng.random() < 0.4 else paths)
    image = images[path]
    at = rng.randrange(len(image.rstrip(b"\0")))
    files.open_file(path).pwrite(rng.randbytes(rng.choice((1, 1, 8, 600)))[: len(image) - at], at)
    return int(path[-20:]) + at if path in logs else -1


# The record.


@kind(1)
async def old_record(world: "GroupChaos", ip: str, rng: Random) -> bool:
    """All brokers are stopped, and the controller's data comes from a backup. Once: see decision 37."""
    keeper = NAME_SERVERS[0]
    if keeper in world.busy:
        return False
    backup = world.files(keeper).crash(rng, share=1.0)
    await asyncio.sleep(rng.uniform(2, 20))
    return await _with_record(world, rng, backup)


@kind(1)
async def lost_record(world: "GroupChaos", ip: str, rng: Random) -> bool:
    """All brokers are stopped, and the controller's data is gone. Once."""
    return await _with_record(world, rng, FaultyFiles(rng.randrange(1 << 30)))


async def _with_record(world: "GroupChaos", rng: Random, files: FaultyFiles) -> bool:
    keeper = NAME_SERVERS[0]
    with held(world, keeper, *world.members) as free:
        if not free or world.record_swapped:
            return False
        world.record_swapped = True
        world.newest()
        order = [*world.members]
        rng.shuffle(order)
        for each in order:
            await world.cluster.stop(each)
            await asyncio.sleep(rng.uniform(0, 3))
        world.cluster.kill(keeper)
        world.cluster.hosts[keeper].files = files
        world.forget_record()
        await world.cluster.restart(keeper)
        rng.shuffle(order)
        for each in order:
            await asyncio.sleep(rng.uniform(0, 3))
            await world.start(each)
        return True
