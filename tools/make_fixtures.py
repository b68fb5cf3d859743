"""Stores as a former version left them, small, with a book of what must be served: tests/fixtures/<commit>/.

    python tools/make_fixtures.py            # with the code of the commit below, in a work tree of its own

Run again only for a new format to keep: what is there stays, bit by bit, as the old broker wrote it.
"""

import argparse
import asyncio
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from roquette import StartFrom
from roquette.message.properties import encode_properties

COMMIT = "1b94d96"
TARGET = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / COMMIT
STORE: dict[str, Any] = {"segment_size": 1 << 18, "queue_file_size": 20 * 500}
ROLLED: dict[str, Any] = STORE | {
    "segment_size": 1 << 14,
    "queue_file_size": 20 * 20,
    "max_index_entries": 60,
}
NAME_SERVER, BROKER, CLIENT, FRAMES = "10.0.0.1", "10.0.1.1", "10.0.2.1", "10.0.3.1"
PORT = 10911


def body_hash(body: bytes) -> str:
    """How a book names a body."""
    return hashlib.sha256(body).hexdigest()[:16]


class Caller:
    """Requests that the client of that commit has no verbs for, as frames."""

    async def connect(self) -> None:
        """Open the connection."""
        from roquette.wire.connection import WireConnection

        self._wire = WireConnection()
        self._reader, self._writer = await asyncio.open_connection(BROKER, PORT)

    async def call(self, code: int, ext: dict[str, Any], body: bytes = b"") -> Any:
        """One request and its answer; what else comes is dropped."""
        from roquette.wire.header_codec import encode_dict

        fields = {name: str(value) for name, value in ext.items()}
        opaque = self._wire.send_request(code, encode_dict(fields), body, False)
        self._writer.write(b"".join(self._wire.data_to_send()))
        while data := await self._reader.read(65536):
            for command in self._wire.receive_data(data):
                if command.is_response and command.opaque == opaque:
                    return command
        raise EOFError("the broker closed the connection")


class Workload:
    """One life of a broker, and its book."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.book: dict[str, Any] = {
            "commit": COMMIT, "kind": kind, "messages": [], "waiting": [], "offsets": [],
            "groups": [], "topics": [], "pop": {"open": [], "acknowledged": []},
            "halves": {"open": [], "committed": [], "rolled_back": []},
        }  # fmt: skip
        self.images: dict[str, bytes] = {}
        self.directories: list[str] = []

    async def __call__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.store = ROLLED if self.kind == "rolled" else STORE
        self.book["store"] = self.store
        await cluster.add_namesrv(NAME_SERVER)
        await cluster.add_broker(BROKER, "broker-a", store=self.store)
        self.mq = await cluster.client(CLIENT)
        self.frames = Caller()
        await cluster.run_on(FRAMES, self.frames.connect())
        if self.kind == "young":
            await self._send("orders", 20, pause_s=0.01)
        elif self.kind == "rolled":
            await self._send("orders", 300, size=200, pause_s=0.05)
            await self._delayed(5)
        else:
            await self._everything()
        self._read_tables()
        if self.kind == "stopped":
            await cluster.stop(BROKER)
        else:
            cluster.kill(BROKER)
        self.book["end_ms"] = cluster.clock.now_ms()
        files = cluster.hosts[BROKER].files
        self.images = {path: node.content() for path, node in sorted(files._seen.items())}
        self.directories = sorted(d for d in files._directories if d not in ("", "/", "."))

    async def _everything(self) -> None:
        await self._send("orders", 60)
        await self._send("invoices", 10)
        await self._consume()
        await self._pop()
        await self._halves()
        await self._delayed(12)
        await self._tables()
        await asyncio.sleep(70)  # each file has been written, the check-point as well
        await self._send("orders", 15)
        await self._delayed(3)

    async def _send(self, topic: str, count: int, *, size: int = 30, pause_s: float = 0.02) -> None:
        for number in range(count):
            key = f"{topic}-{len(self.book['messages'])}"
            body = f"{key} {number} ".encode().ljust(size, b".")
            receipt = await self.mq.send(topic, body, key=key, tag=f"t{number % 3}")
            self.book["messages"].append(
                [topic, receipt.queue.queue_id, receipt.queue_offset, key, body_hash(body)]
            )
            await asyncio.sleep(pause_s)

    async def _consume(self) -> None:
        """A group that has read and committed, one whose messages are on the way again, one that gave up."""

        async def fine(message: Any) -> bool:
            return True

        async def never(message: Any) -> bool:
            return False

        for group, handler, retries in (
            ("billing", fine, -1),
            ("again", never, -1),
            ("gives-up", never, 0),
        ):
            consumer = await self.mq.subscribe(
                "invoices" if handler is never else "orders",
                group=group, handler=handler, start_from=StartFrom.FIRST, max_reconsume_times=retries,
            )  # fmt: skip
            await asyncio.sleep(4)
            await consumer.close()
            self.book["groups"].append(group)
        await asyncio.sleep(6)

    async def _pop(self) -> None:
        from tests.broker.pop_frames import pop_ext, popped

        ext = pop_ext(
            self.cluster.clock.now_ms(),
            consumerGroup="popper",
            topic="invoices",
            invisibleTime=600_000,
        )
        messages = popped(await self.frames.call(200050, ext), "broker-a")
        assert len(messages) == 10, len(messages)
        for number, message in enumerate(messages):
            done = number % 3 == 0
            if done:
                assert (await self.frames.call(200051, message.ack_ext("popper"))).code == 0
            self.book["pop"]["acknowledged" if done else "open"].append(body_hash(message.body))

    async def _halves(self) -> None:
        from roquette.wire.header_codec import ext_dict

        for number, state in enumerate((0, 8, 12, 0, 8)):
            key = f"half-{number}"
            named = {
                "UNIQ_KEY": key,
                "TRAN_MSG": "true",
                "PGROUP": "shop",
                "CHECK_IMMUNITY_TIME_IN_SECONDS": "9999",
            }
            ext = {
                "a": "shop", "b": "orders", "c": "TBW102", "d": 4, "e": number % 4, "f": 4,
                "g": self.cluster.clock.now_ms(), "h": 0, "i": encode_properties(named), "j": 0, "k": "false",
            }  # fmt: skip
            reply = await self.frames.call(310, ext, key.encode())
            assert reply.code == 0, reply
            sent = ext_dict(reply.ext)
            place = [
                key,
                sent["queueOffset"],
                str(int(sent["msgId"][-16:], 16)),
                body_hash(key.encode()),
            ]
            if state:
                end = {
                    "producerGroup": "shop", "tranStateTableOffset": place[1], "commitLogOffset": place[2],
                    "commitOrRollback": state, "fromTransactionCheck": "false", "msgId": key, "transactionId": key,
                }  # fmt: skip
                assert (await self.frames.call(37, end)).code == 0
            name = {0: "open", 8: "committed", 12: "rolled_back"}[state]
            self.book["halves"][name].append(place)

    async def _delayed(self, count: int) -> None:
        from roquette.message.message import Message

        for number in range(count):
            label = f"{len(self.book['waiting'])}"
            body = f"later-{label}".encode()
            level = (9, 14, 18)[number % 3]  # 5 min, 10 min, 2 h
            now_ms = self.cluster.clock.now_ms()
            await self.mq.send("later", body, key=f"later-{label}", delay_level=level)
            due_ms = now_ms + {9: 300_000, 14: 600_000, 18: 7_200_000}[level]
            self.book["waiting"].append(["level", due_ms, body_hash(body)])
            body = f"timer-{label}".encode()
            due_ms = now_ms + (300_000, 1_800_000, 5_400_000)[number % 3]
            await self.mq.send(Message("later", body, properties={"TIMER_DELIVER_MS": str(due_ms)}))
            self.book["waiting"].append(["timer", due_ms, body_hash(body)])
            await asyncio.sleep(0.05)

    async def _tables(self) -> None:
        """Topics and groups that were made, changed and deleted by an operator."""
        for name, queues in (("made", 3), ("dropped", 2), ("made", 6)):
            ext = {"topic": name, "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
                   "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false", "defaultTopic": "TBW102"}  # fmt: skip
            assert (await self.frames.call(17, ext)).code == 0
        assert (await self.frames.call(215, {"topic": "dropped"})).code == 0
        for name, retries in (("strict", 1), ("strict", 2), ("gone", 3)):
            text = json.dumps({"groupName": name, "retryMaxTimes": retries, "consumeEnable": True})
            assert (await self.frames.call(200, {}, text.encode())).code == 0
        assert (
            await self.frames.call(207, {"groupName": "gone", "removeOffset": "true"})
        ).code == 0

    def _read_tables(self) -> None:
        """What the tables hold in memory and on disk at the end."""
        broker = self.cluster.hosts[BROKER].service
        clean = self.kind == "stopped"
        for topic in ("orders", "invoices", "later", "made", "%RETRY%again", "%DLQ%gives-up"):
            found = broker.topics.find(topic)
            if found is not None:
                self.book["topics"].append([topic, found.read_queues, found.write_queues])
        for group in ("billing", "again", "gives-up", "popper"):
            for topic in ("orders", "invoices"):
                for queue in range(4):
                    offset = broker.offsets.query(group, topic, queue)
                    if offset is not None and offset >= 0:
                        self.book["offsets"].append([group, topic, queue, offset])
        store = broker.store
        self.book["ends"] = [
            [topic, queue, store.max_offset(topic, queue)]
            for topic in sorted(store.topics())
            for queue in store.queues_of(topic)
            if not topic.startswith("rmq_sys_") or topic == "rmq_sys_wheel_timer"
        ]
        self.book["clean"] = clean

    def write(self, target: Path) -> None:
        """Both files: the archive, the same for the same content, and the book."""
        target.mkdir(parents=True, exist_ok=True)
        with tarfile.open(target / f"{self.kind}.tar.xz", "w:xz", preset=6) as archive:
            for name in self.directories:
                info = tarfile.TarInfo(name.lstrip("/"))
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(info)
            for name, data in self.images.items():
                info = tarfile.TarInfo(name.lstrip("/"))
                info.size, info.mode = len(data), 0o644
                archive.addfile(info, io.BytesIO(data))
        text = json.dumps(self.book, indent=None, separators=(",", ":"))
        (target / f"{self.kind}.json").write_text(text.replace("],[", "],\n["))


def make(target: Path) -> None:
    """Let the code on the path write each kind."""
    from roquette_testing.cluster import simulate

    for kind in ("stopped", "killed", "young", "rolled"):
        work = Workload(kind)
        simulate(work, seed=7)
        work.write(target)
        print(kind, (target / f"{kind}.tar.xz").stat().st_size, len(work.book["messages"]))


def main() -> None:
    """Check the commit out beside, and run this very file with its code."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--here", type=Path, help=argparse.SUPPRESS)
    here = options.parse_args().here
    if here is not None:
        make(here)
        return
    with tempfile.TemporaryDirectory() as scratch:
        tree = f"{scratch}/tree"
        subprocess.run(["git", "worktree", "add", "--detach", tree, COMMIT], check=True)
        try:
            subprocess.run(
                [sys.executable, os.path.abspath(__file__), "--here", str(TARGET)],
                cwd=tree,
                env=os.environ | {"PYTHONPATH": f"{tree}/src:{tree}"},
                check=True,
            )
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], check=True)


if __name__ == "__main__":
    main()
