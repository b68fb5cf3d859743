"""From Apache's broker to ours and back, by replication: docs/howto/move-from-apache.md, step by step.

Apache's master gets a replica of ours, which becomes the master; then the other way. Nothing is lost, and a consumer
group goes on where it was.
"""

import asyncio
import hashlib
import re
from pathlib import Path

import pytest
from tests.interop import peers
from tests.interop.copied_logs import compare, fill, log_range, until, wait_equal
from tests.interop.peers import Server

from roquette import Client, StartFrom

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}
MEGABYTES = 4
COUNT = MEGABYTES * 1024 // 400 * 400 + 1


def contents(namesrv: str) -> tuple[int, str]:
    """How many messages of the topic there are, and a checksum of all bodies in their order."""

    async def work() -> tuple[int, str]:
        digest, count = hashlib.sha256(), 0
        async with Client(namesrv) as mq:
            for queue in sorted(await mq.queues("copied")):
                first, end = await mq.min_offset(queue), await mq.max_offset(queue)
                puller = mq.reader(group="auditor")
                puller.seek(queue, first)
                while first < end:
                    batch = await puller.poll(timeout=10)
                    assert batch, f"{queue} at {first} of {end}"
                    for message in batch:
                        digest.update(message.body)
                    first, count = first + len(batch), count + len(batch)
                await puller.close()
        return count, digest.hexdigest()

    return asyncio.run(work())


def consume(namesrv: str, count: int) -> int:
    """Consume so many messages, or some more, as group "movers"; returns how many."""

    async def work() -> int:
        got, enough = 0, asyncio.Event()

        async def take(message: object) -> None:
            nonlocal got
            got += 1
            if got >= count:
                enough.set()

        async with Client(namesrv) as mq:
            await mq.subscribe("copied", group="movers", handler=take, start_from=StartFrom.FIRST)
            async with asyncio.timeout(60):
                await enough.wait()
        return got

    return asyncio.run(work())


def committed(server: Server) -> int:
    """The sum of the group's offsets."""
    answer = peers.call(server.address, 43)
    assert answer is not None
    found = re.search(rb'"copied@movers":\{([^}]*)\}', answer[1])  # fastjson writes numbers as keys
    return sum(int(pair.split(b":")[1]) for pair in found[1].split(b",")) if found else 0


def test_from_apache_to_ours_and_back(started: list[Server], tmp_path: Path) -> None:
    def broker(flavour: str, folder: str, **settings: str) -> Server:
        server = peers.start_broker(flavour, tmp_path / folder, namesrv.address, settings=settings)
        started.append(server)
        return server

    namesrv = peers.start_namesrv("roquette", tmp_path / "namesrv")
    started.append(namesrv)

    apache = broker("apache", "apache")
    assert fill(namesrv.address, MEGABYTES) == ["SEND_OK"]
    until(lambda: contents(namesrv.address)[0] == COUNT, apache)  # its queues follow its log
    before = contents(namesrv.address)
    read = consume(namesrv.address, COUNT // 2)
    ours = broker("roquette", "ours", **SLAVE)
    wait_equal(apache, ours)
    until(lambda: committed(ours) == committed(apache) >= COUNT // 2, ours)
    compare(tmp_path / "apache", tmp_path / "ours", log_range(ours)[1])

    apache.process.kill()  # its clean end takes half a minute
    assert ours.stop() == 0
    ours = broker("roquette", "ours")
    assert contents(namesrv.address) == before
    assert read + consume(namesrv.address, COUNT - committed(ours)) >= COUNT
    assert committed(ours) == COUNT
    assert fill(namesrv.address, 1) == ["SEND_OK"]
    more = contents(namesrv.address)
    assert more[0] > COUNT

    apache = broker("apache", "apache", **SLAVE)
    end = wait_equal(ours, apache)
    compare(tmp_path / "ours", tmp_path / "apache", end)
    assert ours.stop() == 0
    apache.process.kill()  # its clean end takes half a minute
    broker("apache", "apache")
    assert contents(namesrv.address) == more
    assert fill(namesrv.address, 1) == ["SEND_OK"]
