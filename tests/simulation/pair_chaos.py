"""A classic pair, a SYNC_MASTER and its slave, in the trouble one seed draws; one of the two may be Apache's.

`python -m tests.simulation.pair_chaos N [FIRST]` runs N seeds. What was acknowledged is on the master; or, when a power
cut took it from there, on the slave, which nobody overwrites, and one of the two says so, if one is ours.
"""

import asyncio
import itertools
import sys
from collections import Counter
from typing import Any

from tests.simulation.apache_peers import apache_master, apache_slave
from tests.simulation.group_chaos_books import log_of, records_of

from roquette.apps.features import broker_features, replica_features
from roquette.errors import ClientError
from roquette.store.format.config import FlushDiskType
from roquette.store.format.layout import REPLICAS_AHEAD
from roquette_testing.cluster import SimCluster, simulate

NAME_SERVER, MASTER, SLAVE, PRODUCER = "10.0.0.1", "10.0.1.1", "10.0.1.2", "10.0.2.1"
TOPIC = "orders"
PEERS = ("", "Apache's slave", "Apache's master")
KINDS = ("kill master", "power", "kill slave", "cut", "cut way", "pause", "reset", "slow disk")


class PairChaos:
    """The scenario and its books. `peer`: which of the two is Apache's; empty: none."""

    def __init__(self, peer: str = "", faults: int = 8) -> None:
        self.peer = peer
        self.forgets = False  # Apache's slave, which compares nothing, was ahead and did not come between two crashes
        self.faults = faults
        self.acknowledged: dict[bytes, int] = {}  # with its place in the log
        self.producing = True
        self.drawn: Counter[str] = Counter()

    async def __call__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        rng = cluster.loop.random
        flush = rng.choice((FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH))
        store = {"flush_disk_type": flush, "segment_size": rng.choice((128 << 10, 1 << 20))}
        await cluster.add_namesrv(NAME_SERVER)
        await cluster.add_broker(
            MASTER, "broker-a", store=store, broker_role="SYNC_MASTER", in_sync_replicas=2,
            features=apache_master if self.peer == PEERS[2] else broker_features,
        )  # fmt: skip
        await cluster.add_broker(
            SLAVE, "broker-a", store=store, broker_role="SLAVE", broker_id=1, name_servers=f"{NAME_SERVER}:9876",
            features=apache_slave if self.peer == PEERS[1] else replica_features,
        )  # fmt: skip
        task = cluster.loop.create_task(self._produce())
        for _ in range(self.faults):
            await asyncio.sleep(rng.uniform(0.2, 8))
            await self._fault(rng.choice(KINDS), rng)
        cluster.heal()
        await asyncio.sleep(40)
        self.producing = False
        await task
        await asyncio.sleep(5)
        self._check()

    async def _produce(self) -> None:
        mq = await self.cluster.client(PRODUCER, send_attempts=1)
        for number in itertools.count():
            if not self.producing:
                return
            body = b"%d-" % number
            try:
                receipt = await mq.send(
                    TOPIC, body + b"x" * self.cluster.loop.random.randrange(1500)
                )
            except ClientError:
                await asyncio.sleep(0.3)
                continue
            if receipt.status == "SEND_OK":
                self.acknowledged[body] = int(receipt.offset_message_id[16:], 16)
            await asyncio.sleep(self.cluster.loop.random.uniform(0, 0.1))

    async def _fault(self, kind: str, rng: Any) -> None:
        cluster, self.drawn = self.cluster, self.drawn + Counter([kind])
        ip = SLAVE if kind == "kill slave" else rng.choice((MASTER, SLAVE))
        if kind in ("kill master", "power", "kill slave"):
            ip = SLAVE if kind == "kill slave" else MASTER
            powerless = self.drawn["power"] > (kind == "power")  # before
            self.forgets |= (
                self.peer == PEERS[1] and ip == MASTER and powerless and not self._noted()
            )
            cluster.kill(ip, power_loss=kind == "power")
            await asyncio.sleep(rng.uniform(0, 5))
            await cluster.restart(ip)
        elif kind == "pause":
            cluster.pause(ip, rng.uniform(0.2, 20))
        elif kind == "reset":
            cluster.reset(ip)
        elif kind == "slow disk":
            cluster.slow_disk(ip, rng.uniform(0.02, 1))
            await asyncio.sleep(rng.uniform(1, 8))
            cluster.slow_disk(ip, 0)
        else:
            cluster.partition(MASTER, SLAVE) if kind == "cut" else cluster.cut_way(MASTER, SLAVE)
            await asyncio.sleep(rng.uniform(0.5, 12))
            cluster.heal()

    def _noted(self) -> bool:
        """Does the master know from its disk that the slave is ahead?"""
        files, path = self.cluster.hosts[MASTER].files, f"/store/config/{REPLICAS_AHEAD}"
        return files.exists(path) and SLAVE.encode() in files.read_bytes(path)

    def _check(self) -> None:
        ours, theirs = (self.cluster.hosts[ip].service for ip in (MASTER, SLAVE))
        mine, copies = _places(ours.store), _places(theirs.store)
        lost = [body for body, at in self.acknowledged.items() if mine.get(at) != body]
        gone = [body for body in lost if copies.get(self.acknowledged[body]) != body]
        assert not gone, f"acknowledged, and nowhere: {gone[:5]}"
        ahead = ours.runtime_info(0).get("replicaAhead", "no")
        # Of a master that has grown past it:
        refused = theirs.runtime_info(0).get("followsRefused", "no")
        words = [each for each in (ahead, refused) if each not in ("no", "")]
        # Who does not follow keeps its master waiting.
        done = len(self.acknowledged) > 20 or words or self.forgets
        assert done, "the run must have done something"
        self.drawn["on the slave alone"] += len(lost)
        if not words:
            begin = max(each.store.min_physical_offset for each in (ours, theirs))
            logs = [log_of(each.store, begin, each.store.wrote) for each in (ours, theirs)]
            if self.forgets and logs[0] != logs[1]:
                self.drawn["a second crash forgets"] += 1
                return
            assert not lost, f"{lost[:5]} are on the slave alone, and nobody says so"
            assert logs[0] == logs[1], f"the logs differ: {[*map(len, logs)]}"


def _places(store: Any) -> dict[int, bytes]:
    records = records_of(store, 0, store.wrote, TOPIC.__eq__)
    return {record.physical_offset: record.body.rstrip(b"x") for record in records}


def main(count: int, first: int) -> int:
    """Run seeds; returns how many failed."""
    failed, acknowledged = 0, 0
    drawn: Counter[str] = Counter()
    for seed in range(first, first + count):
        world = PairChaos(PEERS[seed % len(PEERS)])
        drawn[world.peer or "both ours"] += 1
        try:
            simulate(world, seed)
            drawn, acknowledged = drawn + world.drawn, acknowledged + len(world.acknowledged)
        except AssertionError as error:
            failed += 1
            print(f"seed {seed}: {str(error)[:500]}", flush=True)
    print(
        f"{count} seeds, {failed} failed, {acknowledged} acknowledged, {dict(sorted(drawn.items()))}"
    )
    return failed


if __name__ == "__main__":
    count, first = (*sys.argv[1:], *("1", "1")[len(sys.argv) - 1 :])
    sys.exit(main(int(count), int(first)) > 0)
