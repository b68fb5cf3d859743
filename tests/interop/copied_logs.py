"""What tests of replication share: filling a master, waiting for a replica, comparing their logs byte for byte."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

from tests.interop import peers
from tests.interop.peers import Server

from roquette import Client, Message

SOON_S = 90.0
BATCH = 400  # messages of 1 KiB in one request


def log_range(server: Server) -> tuple[int, int]:
    """Begin and end of a broker's log; -1: one of Apache's that has just started, and cannot say it yet."""
    answer = peers.call(server.address, 28)
    assert answer is not None, server.process.tail()
    if not answer[1]:
        return -1, -1
    table = json.loads(answer[1])["table"]
    return int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])


def wait_equal(master: Server, slave: Server, limit_s: float = SOON_S) -> int:
    """Wait until both logs end at one offset; returns it."""
    until(lambda: log_range(slave)[1] == log_range(master)[1] >= 0, slave, limit_s)
    return log_range(master)[1]


def until(done: Callable[[], object], slave: Server, limit_s: float = SOON_S) -> None:
    """Wait until it is true."""
    end = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < end, slave.process.tail()
        time.sleep(0.1)


def segments(folder: Path) -> dict[str, Path]:
    """The log's files by name."""
    return {path.name: path for path in folder.rglob("commitlog/*") if path.name.isdigit()}


def compare(one: Path, other: Path, end: int) -> None:
    """All bytes up to the log's end are the same."""
    ours, theirs = segments(one), segments(other)
    size = 16 << 20
    for base in range(0, end, size):
        name, upto = f"{base:020d}", min(size, end - base)
        assert ours[name].read_bytes()[:upto] == theirs[name].read_bytes()[:upto], name


def fill(namesrv: str, megabytes: int, wait: bool = False) -> list[str]:
    """Send so much in messages of 1 KiB; returns the statuses of the answers, each once."""

    async def work() -> set[str]:
        found = set()
        async with Client(namesrv, send_timeout=15) as mq:
            await mq.send(Message("copied", b"first", wait_store_ok=wait))
            for number in range(megabytes * 1024 // BATCH):
                bodies = [b"%08d.%03d" % (number, k) + b"x" * 1012 for k in range(BATCH)]
                messages = [Message("copied", body, wait_store_ok=wait) for body in bodies]
                found |= {one.status for one in await mq.send_batch("copied", messages)}
        return found

    return sorted(asyncio.run(work()))


def send(namesrv: str, count: int) -> list[str]:
    """Send single messages that wait; returns the statuses."""

    async def work() -> list[str]:
        async with Client(namesrv, send_timeout=15) as mq:
            return [(await mq.send("copied", b"%d" % k)).status for k in range(count)]

    return asyncio.run(work())


def change(server: Server, **settings: str) -> None:
    """UPDATE_BROKER_CONFIG."""
    text = "".join(f"{key}={value}\n" for key, value in settings.items())
    answer = peers.call(server.address, 25, body=text.encode())
    assert answer is not None and answer[0]["code"] == 0, answer


def ha_status(server: Server) -> dict[str, object]:
    """GET_BROKER_HA_STATUS."""
    answer = peers.call(server.address, 907)
    assert answer is not None and answer[0]["code"] == 0, answer
    found: dict[str, object] = json.loads(answer[1])
    return found
