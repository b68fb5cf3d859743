"""Masters of a real group that die under load: what writers see, and whether what they were promised is there.

python -m tests.interop.take_over 50             # kills; each one's times, then percentiles
python -m tests.interop.take_over 20 --etcd --java
"""

import argparse
import asyncio
import bisect
import contextlib
import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.interop.clients import GoClient
from tests.interop.driver import ClientError as DrivenError
from tests.interop.driver import Driver, LineClient
from tests.interop.etcd import Etcd
from tests.interop.peers import (
    Server,
    free_port,
    start_roquette_broker,
    start_roquette_namesrv,
)
from tests.real_servers import RawConnection, frame, pull_fields, send_fields

from roquette.admin.replication import GroupState, group_states
from roquette.admin.topics import create_topic
from roquette.client.client import Client
from roquette.errors import RoquetteError, RouteNotFound
from roquette.message.message import MessageQueue
from roquette.message.record import decode_records
from roquette.wire.codes import STORED_CODES

GROUP = "broker-g"
QUEUES, WRITERS = 4, 8
PACE_S = 0.005  # of one writer between an answer and its next message
HEALTHY_S = 90  # machines are slow when everything runs at once
AT_ONCE_S = 1.0  # answers of the dead one may still be on their way to the books so long; nobody else is master so early


class Group:
    """Three members, each a process, and one name server: their controller, or one that shows the etcd they use.

    Attributes:
        records: directory of the embedded controller.
        prefixes: by member, a command that runs its process in its own place.
    """

    def __init__(self, folder: Path, etcd: str = "", size: int = 3) -> None:
        self.folder = folder
        self.records = folder / "namesrv" / "controller"
        self.prefixes: dict[int, list[str]] = {}
        self._etcd = etcd
        self.namesrv = self.start_namesrv()
        self.controller = etcd or self.namesrv.address
        self.addresses = {who: f"127.0.0.1:{free_port()}" for who in range(1, size + 1)}
        self.members: dict[int, Server] = {}

    def start_namesrv(self, address: str = "127.0.0.1:0") -> Server:
        """Begin a life of the name server."""
        settings = {
            "controller": self._etcd or "embedded",
            "controllerStorePath": str(self.records),
        }
        self.namesrv = start_roquette_namesrv(self.folder / "namesrv", settings, address=address)
        return self.namesrv

    def settings(self, who: int) -> dict[str, str]:
        """Of a member."""
        return {
            "brokerId": str(who),
            "brokerRole": "SYNC_MASTER",
            "enableControllerMode": "true",
            "controllerAddr": self.controller,
            "minInSyncReplicas": "2",
            "totalReplicas": str(len(self.addresses)),
        }

    def store(self, who: int) -> Path:
        """A member's store."""
        return self.folder / f"m{who}" / "s"

    def start(self, who: int) -> None:
        """Begin a life of a member, at its address and with its store."""
        self.members[who] = self._start(who, self.store(who), self.addresses[who])

    def start_all(self) -> None:
        """All that do not run, at once."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(self.start, self.addresses.keys() - self.members.keys()))

    def start_beside(self, who: int, store: Path) -> Server:
        """Another process with a member's id, for another store; the caller ends it."""
        return self._start(who, store, f"127.0.0.1:{free_port()}")

    def _start(self, who: int, store: Path, address: str) -> Server:
        return start_roquette_broker(
            store.parent,
            self.namesrv.address,
            name=GROUP,
            settings=self.settings(who) | {"storePathRootDir": str(store)},
            address=address,
            prefix=self.prefixes.get(who, ()),
        )

    def end(self, who: int) -> None:
        """A planned stop."""
        assert self.members.pop(who).stop() == 0

    def roquette(self, *words: str, code: int = 0) -> str:
        """What an operator's command says, which ends with this code."""
        done = subprocess.run(
            [Path(sys.executable).parent / "roquette", *words],
            capture_output=True,
            text=True,
            timeout=HEALTHY_S,
            env=os.environ | {"NAMESRV_ADDR": self.namesrv.address},
            check=False,
        )
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def kill(self, who: int) -> None:
        """SIGKILL."""
        self.members.pop(who).process.kill()

    def send_signal(self, who: int, number: signal.Signals) -> None:
        """SIGSTOP, SIGCONT."""
        self.members[who].process.popen.send_signal(number)

    def tails(self) -> str:
        """The ends of the members' logs."""
        return "\n".join(member.process.tail(2000) for member in self.members.values())

    def stop(self) -> None:
        """End all, in order."""
        for who in list(self.members):
            self.send_signal(who, signal.SIGCONT)
            self.members.pop(who).stop()
        self.namesrv.stop()


@contextlib.contextmanager
def group(folder: Path, etcd: str = "") -> Iterator[Group]:
    """Three members that run, and end."""
    made = Group(folder, etcd)
    with running(made):
        yield made


@contextlib.contextmanager
def running(made: Group) -> Iterator[None]:
    """All members run; they end."""
    try:
        made.start_all()
        yield
    finally:
        made.stop()


async def look(client: Client, made: Group) -> GroupState:
    """How the group is."""
    (state,) = await client.session.run(group_states([made.namesrv.address], GROUP))
    return state


async def healthy(client: Client, made: Group) -> GroupState:
    """Wait until there is a master, and all are in step."""
    end, why = time.monotonic() + HEALTHY_S, ""
    while time.monotonic() < end:
        try:
            state = await look(client, made)
            why = "; ".join(state.problems)
            if state.healthy:
                return state
        except RoquetteError as error:
            why = str(error)
        await asyncio.sleep(0.05)
    raise AssertionError(f"not healthy in {HEALTHY_S} s: {why}\n{made.tails()}")


class Books:
    """What writers were promised, by queue and offset, and what was read there.

    Attributes:
        moments: when answers came, in order.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.moments: list[float] = []
        self.failures: list[str] = []
        self.checked = 0
        self._promised: list[dict[int, bytes]] = [{} for _ in range(QUEUES)]
        self._seen: list[list[int]] = [[] for _ in range(QUEUES)]  # hashes of bodies, by offset
        self._last: list[dict[bytes, int]] = [{} for _ in range(QUEUES)]
        self._lock = threading.Lock()

    def promise(self, queue: int, offset: int, body: bytes) -> None:
        """An answer has come."""
        with self._lock:
            self.moments.append(time.monotonic())
            assert self._promised[queue].setdefault(offset, body) is body, (queue, offset, body)

    def resumed(self, since: float) -> float | None:
        """Seconds from a kill to the first answer of somebody else."""
        with self._lock:
            at = bisect.bisect_right(self.moments, since + AT_ONCE_S)
            return self.moments[at] - since if at < len(self.moments) else None

    def pause(self, since: float) -> float:
        """The longest time without an answer, from `since` until now."""
        with self._lock:
            later = [moment for moment in self.moments if moment > since]
        return max(b - a for a, b in itertools.pairwise([since, *later, time.monotonic()]))

    def check(self, address: str, *, again: bool = False) -> None:
        """All that was promised until now is there, in order; with `again` all that was ever read is there still."""
        for queue in range(QUEUES):
            with self._lock:
                promised, self._promised[queue] = self._promised[queue], {}
            seen = self._seen[queue]
            start, end = len(seen), max(promised, default=-1) + 1
            for offset, body in self._read(address, queue, 0 if again else start, end):
                if offset < start:
                    assert hash(body) == seen[offset], (queue, offset, body, "has changed")
                    continue
                assert promised.pop(offset, body) == body, (queue, offset, body)
                self._in_order(queue, body)
                seen.append(hash(body))
            # Promised meanwhile below what was read before: it was in the log, and is one of those bodies.
            for offset, body in promised.items():
                assert offset < start and hash(body) == seen[offset], (
                    "lost",
                    queue,
                    offset,
                    body,
                )
            self.checked += len(seen) - start

    def _in_order(self, queue: int, body: bytes) -> None:
        """Each writer repeats a message until it is promised: each comes once or more, and none before its turn."""
        name, _, number = body.rpartition(b"-")
        last = self._last[queue].get(name, -1)
        assert last <= int(number) <= last + 1, (queue, body, last)
        self._last[queue][name] = int(number)

    def _read(self, address: str, queue: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Ask again where a master without a lease, on a machine that is too busy, has closed the connection."""
        host, _, port = address.rpartition(":")
        latest = time.monotonic() + HEALTHY_S
        while start < end:
            try:
                with RawConnection((host, int(port))) as connection:
                    while start < end:
                        fields = pull_fields(self.topic, queue, start)
                        head, data = connection.call(11, fields)
                        assert head["code"] == 0, (queue, start, end, head)
                        for record in decode_records(data, check_crc=True):
                            assert record.queue_offset == start, (queue, start, record.queue_offset)
                            yield start, record.body
                            start += 1
            except (EOFError, OSError):
                assert time.monotonic() < latest, (address, queue, start, end)
                time.sleep(0.1)


async def need_topic(client: Client, made: Group, topic: str) -> list[MessageQueue]:
    """The topic's queues, when its route is told."""
    await client.session.run(create_topic([made.namesrv.address], topic, queues=QUEUES))
    end = time.monotonic() + HEALTHY_S
    while True:
        try:
            return await client.queues(topic)
        except RouteNotFound:
            assert time.monotonic() < end
            await asyncio.sleep(0.05)


async def write(
    client: Client, books: Books, queue: MessageQueue, name: str, pace_s: float
) -> None:
    """One message after the other, each until it is promised; until cancelled."""
    number = 0
    while True:
        body = f"{name}-{number}".encode()
        try:
            receipt = await client.send(books.topic, body, queue=queue)
        except RoquetteError as error:
            books.failures.append(str(error))
            await asyncio.sleep(0.05)
            continue
        if receipt.status != "SEND_OK":  # stored, and perhaps nowhere else: no promise
            books.failures.append(receipt.status)
            continue
        books.promise(queue.queue_id, receipt.queue_offset, body)
        number += 1
        await asyncio.sleep(pace_s)


class DrivenWriter(threading.Thread):
    """A Java or Go producer that sends one message after the other, each until it is promised.

    Go's asks for routes every 30 s, whatever is set.
    """

    def __init__(self, driver: LineClient, namesrv: str, topic: str, poll_ms: int) -> None:
        super().__init__(daemon=True)
        self.books = Books(topic)
        self._driver = driver
        self._ended = threading.Event()
        self._go = isinstance(driver, GoClient)
        more: dict[str, int] = {"queue": 1} if self._go else {"poll": poll_ms}
        driver("producer", name="taken", namesrv=namesrv, retries=0, **more)

    def run(self) -> None:
        number = 0
        while not self._ended.wait(PACE_S):
            queue, turn = number % QUEUES, number // QUEUES
            try:
                answer = self._driver(
                    "send",
                    name="taken",
                    topic=self.books.topic,
                    brokerName=GROUP,
                    body=f"j{queue}",
                    first=turn,
                    **({"queue": queue} if self._go else {"mode": "forced", "queueId": queue}),
                )
            except DrivenError as error:
                self.books.failures.append(str(error))
                continue
            (result,) = answer["results"]
            if result["status"] == "SEND_OK":
                self.books.promise(queue, result["queueOffset"], f"j{queue}-{turn}".encode())
                number += 1

    def end(self) -> None:
        """Send no more."""
        self._ended.set()
        self.join(60)
        self._driver("drop", name="taken")


@contextlib.contextmanager
def writers(
    client: Client,
    books: Books,
    queues: list[MessageQueue],
    name: str = "w",
    pace_s: float = PACE_S,
) -> Iterator[None]:
    """Writers, two for each queue, while the block runs; of each name once with the same books."""
    tasks = [
        asyncio.ensure_future(write(client, books, queues[n % QUEUES], f"{name}{n}", pace_s))
        for n in range(WRITERS)
    ]
    try:
        yield
        assert not any(task.done() for task in tasks), [t.exception() for t in tasks if t.done()]
    finally:
        for task in tasks:
            task.cancel()


async def until_resumed(books: Books, since: float, made: Group) -> float:
    """Seconds from `since` to the first answer after it."""
    while (took := books.resumed(since)) is None:
        assert time.monotonic() < since + HEALTHY_S, (books.failures[-5:], made.tails())
        await asyncio.sleep(0.02)
    return took


async def kill_masters(
    made: Group,
    kills: int,
    driver: LineClient | None = None,
    topic: str = "taken-over",
    poll_ms: int = 1_000,
) -> "Report":
    """Kill the master, wait until writes go on, start it again, wait until all are in step; so many times."""
    books, driven = Books(topic), None
    report = Report()
    async with Client(made.namesrv.address) as client:
        await healthy(client, made)
        queues = await need_topic(client, made, topic)
        if driver is not None:
            await need_topic(client, made, f"{topic}-driven")
            driven = DrivenWriter(driver, made.namesrv.address, f"{topic}-driven", poll_ms)
            driven.start()
        try:
            with writers(client, books, queues):
                for _ in range(kills):
                    await until_resumed(books, time.monotonic(), made)
                    if driven is not None:
                        await until_resumed(driven.books, time.monotonic(), made)
                    master = (await healthy(client, made)).master
                    since = time.monotonic()
                    made.kill(master)
                    report.ours.append(await until_resumed(books, since, made))
                    if driven is not None:
                        report.driven.append(await until_resumed(driven.books, since, made))
                    await asyncio.to_thread(made.start, master)
                    state = await healthy(client, made)
                    await asyncio.to_thread(books.check, made.addresses[state.master])
                    report.tell(master, state)
        finally:
            if driven is not None:
                await asyncio.to_thread(driven.end)
        master = (await healthy(client, made)).master
        for one in (books, *([driven.books] if driven is not None else [])):
            await asyncio.to_thread(one.check, made.addresses[master], again=True)
            report.checked[one.topic] = one.checked
            report.failures[one.topic] = len(one.failures)
    return report


async def stop_master(made: Group, seconds: float, topic: str = "stopped") -> float:
    """SIGSTOP the master under load for so long: it acknowledges nothing afterwards, and nothing promised is lost.

    Returns after how many seconds writes went on.
    """
    books = Books(topic)
    async with Client(made.namesrv.address) as client:
        old = (await healthy(client, made)).master
        queues = await need_topic(client, made, topic)
        with writers(client, books, queues):
            await until_resumed(books, time.monotonic(), made)
            host, _, port = made.addresses[old].rpartition(":")
            with RawConnection((host, int(port)), timeout=10) as connection:
                head, _ = connection.call(310, send_fields(topic, 0), b"raw-0")
                assert head["code"] == 0, head
                books.promise(0, int(head["extFields"]["queueOffset"]), b"raw-0")
                since = time.monotonic()
                made.send_signal(old, signal.SIGSTOP)
                try:
                    for number in range(1, 51):
                        sent = frame(310, send_fields(topic, 0), b"raw-%d" % number, opaque=1000)
                        connection.socket.sendall(sent)
                    took = await until_resumed(books, since, made)
                    await asyncio.sleep(max(0.0, since + seconds - time.monotonic()))
                finally:
                    made.send_signal(old, signal.SIGCONT)
                answers = await asyncio.to_thread(lambda: list(_answers(connection)))
                assert not [code for code in answers if code in STORED_CODES], answers
            state = await healthy(client, made)
            await until_resumed(books, time.monotonic(), made)
        await asyncio.to_thread(books.check, made.addresses[state.master])
    return took


async def elect_shorter(made: Group, topic: str = "ahead") -> tuple[int, int]:
    """Let a replica become master that lacks bytes which another one has, and nobody was promised: that one cuts them.

    Returns the ids of the new master and of the other one.
    """
    books = Books(topic)
    async with Client(made.namesrv.address) as client:
        old = (await healthy(client, made)).master
        queues = await need_topic(client, made, topic)
        await need_topic(client, made, f"{topic}-big")
        host, _, port = made.addresses[old].rpartition(":")
        with writers(client, books, queues), RawConnection((host, int(port))) as connection:
            await until_resumed(books, time.monotonic(), made)
            short, ahead = (who for who in made.addresses if who != old)
            made.send_signal(short, signal.SIGSTOP)
            try:  # more than sockets hold; and before that one leaves the set, which is after 1.5 s
                big = frame(310, send_fields(f"{topic}-big"), bytes(200_000))
                await asyncio.to_thread(connection.socket.sendall, big * 100)
                await asyncio.sleep(0.3)
            finally:
                made.kill(old)
                made.send_signal(ahead, signal.SIGSTOP)
                made.send_signal(short, signal.SIGCONT)
            since = time.monotonic()
            try:
                while (await look(client, made)).master != short:
                    assert time.monotonic() < since + HEALTHY_S, made.tails()
                    await asyncio.sleep(0.05)
            finally:
                made.send_signal(ahead, signal.SIGCONT)
            await until_resumed(books, time.monotonic(), made)
            await asyncio.to_thread(made.start, old)
            await healthy(client, made)
        await asyncio.to_thread(books.check, made.addresses[short])
    return short, ahead


def _answers(connection: RawConnection) -> Iterator[int]:
    """Codes of what still comes, until the peer closes or is silent."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            yield connection.read()[0]["code"]


class Report:
    """Seconds from each kill to the next acknowledgement, of our client and of the driven one's."""

    def __init__(self) -> None:
        self.ours: list[float] = []
        self.driven: list[float] = []
        self.checked: dict[str, int] = {}
        self.failures: dict[str, int] = {}

    def tell(self, killed: int, state: GroupState) -> None:
        """A line for the last kill."""
        driven = f", the driven one's after {self.driven[-1]:.2f} s" if self.driven else ""
        print(
            f"kill {len(self.ours)}: broker {killed} dead, broker {state.master} in epoch {state.epoch}, "
            f"writes after {self.ours[-1]:.2f} s{driven}",
            flush=True,
        )

    def lines(self) -> Iterator[str]:
        """The result."""
        for who, times in {"ours": self.ours, "driven": self.driven}.items():
            if times:
                yield f"{who}: {len(times)} kills, p50 {percentile(times, 50):.2f} s, p99 {percentile(times, 99):.2f} s, max {max(times):.2f} s"
        for topic, count in self.checked.items():
            yield f"{topic}: {count} messages read, all that were acknowledged among them, in order; {self.failures[topic]} sends refused"


def percentile(values: list[float], percent: int) -> float:
    """Of the values, the smallest that is not below so many of them."""
    if len(values) < 2:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kills", type=int)
    parser.add_argument("--etcd", action="store_true", help="three members of etcd")
    parser.add_argument("--java", action="store_true", help="a Java producer sends, too")
    parser.add_argument("--go", action="store_true", help="a Go producer sends, too")
    parser.add_argument("--poll", type=int, default=1_000, help="Java's pollNameServerInterval")
    parser.add_argument("--stop", type=float, metavar="SECONDS", help="SIGSTOP for so long")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        etcd = Etcd(folder / "etcd", 3).start().wait() if words.etcd else None
        driver = Driver("5.5.0", folder / "java") if words.java else None
        driver = GoClient(folder / "go") if words.go else driver
        try:
            with group(folder / "group", etcd.url if etcd is not None else "") as made:
                if words.stop:
                    for number in range(words.kills):
                        took = asyncio.run(stop_master(made, words.stop, f"stopped-{number}"))
                        print(
                            f"stop {number + 1}: writes after {took:.2f} s, nothing from the old master"
                        )
                    return
                scenario = kill_masters(made, words.kills, driver, poll_ms=words.poll)
                report = asyncio.run(scenario)
        finally:
            if driver is not None:
                driver.stop()
            if etcd is not None:
                etcd.stop()
    print("\n".join(report.lines()))
    assert percentile(report.ours, 99) <= 5, "writes resume within 5 s"


if __name__ == "__main__":
    main()
