"""What chaos strikes: each pipeline as a command that people would give again, and what must be true when it has ended well."""

import json
import os
import random
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from tests.pipelines.processes import SHORT_LIFE
from tests.pipelines.seaweed import S3Server
from tests.pipelines.tables import folder_files, log_files, places, rows
from tests.spark.places import Place, publish, stored

from roquette import Message
from roquette.message.properties import RECONSUME_TIME, decode_properties
from roquette_spark.pipelines.kit.table_files import TableFiles
from roquette_spark.values.options import SPARK_ID

QUEUES = 4


class Subject(ABC):
    """A pipeline, its topic on a real broker, and its destination.

    Attributes:
        folder: of this test; `out` in it is where the pipeline writes, `report` has its report.
        stopped: the status of a run that was asked to end.
        sent: what was published so far, by queue and offset.
    """

    name: str
    stopped = 0

    def __init__(self, place: Place, folder: Path, seed: int) -> None:
        self.place, self.folder = place, folder
        self.random = random.Random(seed)
        self.out = folder / "out"
        self.out.mkdir()
        self.topic = f"{type(self).__name__.lower()}-{seed}"
        self.sent: dict[tuple[int, int], Message] = {}
        self._foreign: dict[Path, bytes] = {}
        place.create(self.topic, QUEUES)

    @abstractmethod
    def grow(self) -> None:
        """More to do, for the next run and some of its batches."""

    @abstractmethod
    def words(self) -> list[str]:
        """The command, without what all have."""

    @abstractmethod
    def check(self) -> None:
        """After a run that ended well: everything once, nothing else."""

    def marks(self) -> int | None:
        """How far a run has come, as far as one sees from outside; None is not at all."""
        return None

    def foreign_places(self) -> list[Path]:
        """Where somebody else has put files, beside the pipeline's own."""
        return [self.folder / "report" / "notes.txt"]

    def command(self) -> list[str]:
        """All words."""
        given = ["-n", self.place.address, "--report", str(self.folder / "report")]
        given += ["--master", "local[2]", "--spark-conf", SHORT_LIFE]
        return [self.name, *given, *self.words()]

    def environ(self) -> dict[str, str]:
        """Of its process."""
        return {"SPARK_LOCAL_IP": "127.0.0.1"}

    def plant_foreign(self) -> None:
        """Others' files, as soon as there is something to put them into."""
        for path in self.foreign_places():
            if path not in self._foreign and path.parent.is_dir():
                self._foreign[path] = os.urandom(50)
                path.write_bytes(self._foreign[path])

    def check_foreign(self) -> None:
        """They are as they were."""
        assert len(self._foreign) == len(self.foreign_places())
        assert {path: path.read_bytes() for path in self._foreign} == self._foreign

    def publish(self, messages: list[Message]) -> None:
        """To the broker that there is now."""
        receipts = publish(self.place.address, messages)
        for receipt, message in zip(receipts, messages, strict=True):
            self.sent[receipt.queue.queue_id, receipt.queue_offset] = message

    def read(self, topic: str, queues: int) -> dict[int, list[Any]]:
        """What the broker has of a topic, by queue."""
        return stored(self.place.broker.address, topic, queues)


def number_of(message: Message) -> int:
    return int(message.keys[0])


class Archive(Subject):
    """A topic, one message in 41 bad, to a table."""

    name = "archive"

    def grow(self) -> None:
        first = len(self.sent)
        self.publish([self.message(n) for n in range(first, first + 300)])

    def message(self, number: int) -> Message:
        text = os.urandom(100).hex()  # cannot be compressed away
        body = json.dumps({"n": number, "text": text}).encode()
        return Message(self.topic, b"bad" if number % 41 == 0 else body, keys=(str(number),))

    def words(self) -> list[str]:
        given = ["--topics", self.topic, "--to", str(self.out / "lake"), "--batch", "70"]
        given += ["--schema", "n int, text string", "--small-files", "6"]
        given += ["--keep-replaced-minutes", "0"]
        # One task a batch or one a queue, and often otherwise than before.
        return [*given, "--source-option", f"minRecordsPerPartition={self.random.choice((0, 500))}"]

    def marks(self) -> int:
        return len(list((self.root / "_delta_log").glob("*.json")))

    @property
    def root(self) -> Path:
        return self.out / "lake" / self.topic

    def foreign_places(self) -> list[Path]:
        beside = [self.out / "lake" / "notes.txt", self.root / "notes.txt"]
        beside += [self.root / "_delta_log" / "notes.txt", self.root / "foreign.parquet"]
        return super().foreign_places() + beside

    def check(self) -> None:
        quarantine = self.root.with_name(f"{self.topic}.quarantine")
        for find in (log_files, folder_files):
            good = rows([path for path in find(self.root) if path.name != "foreign.parquet"])
            self.check_rows(good, rows(find(quarantine)))

    def check_rows(self, good: list[dict[str, Any]], bad: list[dict[str, Any]]) -> None:
        found = [place[1:] for place in places(good) + places(bad)]
        assert sorted(found) == sorted(self.sent)
        for row in good:
            message = self.sent[row["_queue_id"], row["_queue_offset"]]
            assert {"n": row["n"], "text": row["text"]} == json.loads(message.body)
        assert all(row["body"] == b"bad" for row in bad)


class ArchiveIceberg(Archive):
    """The same to tables of Iceberg, in a catalog of their own."""

    def words(self) -> list[str]:
        return [*super().words(), "--table-format", "iceberg"]

    def marks(self) -> int:
        return len(list((self.root / "metadata").glob("*.metadata.json")))

    def foreign_places(self) -> list[Path]:
        beside = [self.out / "lake" / "notes.txt", self.root / "notes.txt"]
        beside += [self.root / "metadata" / "notes.txt", self.root / "foreign.parquet"]
        return Subject.foreign_places(self) + beside

    def check(self) -> None:
        good, bad = (
            self.table_of(root).scan().to_arrow().to_pylist()
            for root in (self.root, self.root.with_name(f"{self.topic}.quarantine"))
        )
        self.check_rows(good, bad)

    def table_of(self, root: Path) -> Table:
        """By pyiceberg, from the table's own catalog."""
        there = f"sqlite:///{root}/_roquette/catalog.db"
        catalog = load_catalog("roquette", type="sql", uri=there)
        [name] = catalog.list_tables("roquette")
        return catalog.load_table(name)


class ArchiveInAStore(Archive):
    """The same to an object store behind a door that may refuse each Nth call, or lose its answer.

    Attributes:
        every: N; 0 lets all pass.
    """

    def __init__(self, place: Place, folder: Path, seed: int, store: S3Server) -> None:
        super().__init__(place, folder, seed)
        self.every, self._calls, self.struck = 0, 0, 0
        self._store, self.address = store, store.s3
        self._bucket = f"s3://plain/{self.topic}"
        self._keys = [f"{self._bucket}/notes.txt", f"{self._bucket}/{self.topic}/notes.txt"]
        self._theirs: dict[str, bytes] = {}

    def judge(self, method: str, path: str) -> str:
        """For the door: by turns a call is refused, and done with its answer lost."""
        self._calls += 1
        if not self.every or self._calls % self.every:
            return "pass"
        self.struck += 1
        return ("refuse", "lose")[self.struck % 2]

    def environ(self) -> dict[str, str]:
        return super().environ() | self._store.environ() | {"AWS_ENDPOINT_URL": self.address}

    def words(self) -> list[str]:
        words = super().words()
        words[words.index("--to") + 1] = self._bucket
        return [*words, "--checkpoints", str(self.out / "positions")]

    def marks(self) -> int:
        table = f"{self._bucket}/{self.topic}"
        return DeltaTable(table).version() + 1 if DeltaTable.is_deltatable(table) else 0

    def foreign_places(self) -> list[Path]:
        return Subject.foreign_places(self)

    def plant_foreign(self) -> None:
        super().plant_foreign()
        for key in self._keys:
            if key not in self._theirs:
                self._theirs[key] = os.urandom(50)
                folder, _, name = key.rpartition("/")
                TableFiles(folder).write(name, self._theirs[key])

    def check_foreign(self) -> None:
        super().check_foreign()
        for key, content in self._theirs.items():
            folder, _, name = key.rpartition("/")
            assert TableFiles(folder).read(name) == content

    def check(self) -> None:
        table = f"{self._bucket}/{self.topic}"
        good, bad = (
            DeltaTable(each).to_pyarrow_table().to_pylist()
            for each in (table, f"{table}.quarantine")
        )
        self.check_rows(good, bad)


class CurrentState(Subject):
    """Changes of 17 rows, one in 41 without a key."""

    name = "current-state"

    def grow(self) -> None:
        first = len(self.sent)
        self.publish([self.message(n) for n in range(first, first + 300)])

    def message(self, number: int) -> Message:
        change = {"id": number % 17, "v": number, "name": f"n{number}", "pad": os.urandom(99).hex()}
        if number % 41 == 0:
            del change["id"]
        return Message(self.topic, json.dumps(change).encode(), keys=(str(number),))

    def words(self) -> list[str]:
        given = ["--topic", self.topic, "--to", str(self.out / "state"), "--batch", "70"]
        given += ["--key", "id", "--version", "v", "--keep-replaced-minutes", "0"]
        return [*given, "--schema", "id int, v long, name string, pad string"]

    @property
    def root(self) -> Path:
        return self.out / "state"

    def marks(self) -> int:
        return len(list((self.root / "_delta_log").glob("*.json")))

    def foreign_places(self) -> list[Path]:
        beside = [self.root / "notes.txt", self.root / "_delta_log" / "notes.txt"]
        return [*super().foreign_places(), *beside, self.root / "foreign.parquet"]

    def check(self) -> None:
        wanted: dict[int, str] = {}
        bad = set()
        for place, message in self.sent.items():
            change = json.loads(message.body)
            if "id" in change:
                newest = max(number_of(message), int(wanted.get(change["id"], "n-1")[1:]))
                wanted[change["id"]] = f"n{newest}"
            else:
                bad.add(place)
        current = json.loads((self.root / "CURRENT").read_text())["snapshot"]
        by_pointer = [p for p in folder_files(self.root) if p.is_relative_to(self.root / current)]
        by_log = log_files(self.root)
        assert sorted(by_log) == by_pointer
        found = rows(by_log)
        assert {row["id"]: row["name"] for row in found} == wanted
        assert len(found) == len(wanted)
        apart = rows(log_files(self.out / "state.quarantine"))
        assert sorted(place[1:] for place in places(apart)) == sorted(bad)


class Replay(Subject):
    """A topic into another one of more queues, in small steps: settled at the beginning, so it grows once."""

    name = "replay"
    target_queues = 8

    def __init__(self, place: Place, folder: Path, seed: int) -> None:
        super().__init__(place, folder, seed)
        self.target = f"{self.topic}-wide"
        place.create(self.target, self.target_queues)

    def grow(self) -> None:
        if not self.sent:
            keys = [f"k{n % 9}" for n in range(1200)]
            self.publish(
                [
                    Message(self.topic, b"%d" % n, keys=(key,), shard_key=key)
                    for n, key in enumerate(keys)
                ]
            )

    def words(self) -> list[str]:
        given = ["--topics", self.topic, "--to-topic", self.target]
        given += ["--queues", str(self.target_queues), "--step", "60"]
        return [*given, "--state", str(self.out / "state")]

    def marks(self) -> int:
        path = self.out / "state" / "replay.json"
        return int(json.loads(path.read_text()).get("rows", 0)) if path.exists() else 0

    def check(self) -> None:
        """Each message once by its id, though a step that was struck may have sent it twice; keys in order."""
        lanes = self.read(self.target, self.target_queues)
        numbers: dict[str, int] = {}
        for lane in lanes.values():
            once: dict[str, tuple[str, int]] = {}
            for record in lane:
                properties = decode_properties(record.properties)
                known = properties[SPARK_ID]
                once.setdefault(known, (properties["KEYS"], int(record.body)))
                assert numbers.setdefault(known, int(record.body)) == int(record.body)
            by_key: dict[str, list[int]] = {}
            for key, number in once.values():
                by_key.setdefault(key, []).append(number)
            assert all(found == sorted(found) for found in by_key.values())
        assert sorted(numbers.values()) == list(range(len(self.sent)))
        summary = json.loads((self.folder / "report" / "summary.json").read_text())
        assert summary["ok"] and summary["result"]["complete"]


class DeadLetters(Subject):
    """Dead letters of a group, sent back to where they came from: each once, not once by its id."""

    name = "dlq"

    def grow(self) -> None:
        numbers = range(len(self.sent), len(self.sent) + 60)
        dead = f"%RETRY%group-{self.topic}"
        letters = [
            Message(
                dead,
                b"%d" % number,
                keys=(str(number),),
                properties={
                    "RETRY_TOPIC": self.topic,
                    "ORIGIN_MESSAGE_ID": f"ID{number}",
                    RECONSUME_TIME: "17",
                },
            )
            for number in numbers
        ]
        self.sent |= {(-1, number): letter for number, letter in zip(numbers, letters, strict=True)}
        publish_dead(self.place, letters, len(self.sent))

    def words(self) -> list[str]:
        given = ["--groups", f"group-{self.topic}", "--send", "--rate", "30"]
        return [*given, "--audit", str(self.out / "audit")]

    def marks(self) -> int:
        return sum(len(lane) for lane in self.read(self.topic, QUEUES).values())

    def check(self) -> None:
        found = [int(r.body) for lane in self.read(self.topic, QUEUES).values() for r in lane]
        assert Counter(found) == Counter(range(len(self.sent)))
        states = Counter[str]()
        letters: dict[str, set[str]] = {}
        for row in rows(folder_files(self.out / "audit")):
            letters.setdefault(row["id"], set()).add(row["state"])
        for known in letters.values():
            states["settled" if known & {"sent", "found"} else "open"] += 1
        assert states == {"settled": len(self.sent)}


def publish_dead(place: Place, letters: list[Message], total: int) -> None:
    """The broker puts them away: the topic that they were sent to is the group's for retries."""
    import asyncio

    from roquette import Client

    async def send() -> None:
        async with Client(place.address) as mq:
            for letter in letters:
                await mq._sender.send(letter)  # the client's own words refuse a broker's properties

    asyncio.run(send())
    place.settle(letters[0].topic.replace("%RETRY%", "%DLQ%"), total)


class Audit(Subject):
    """Of a topic with its manifest. What was stopped certifies nothing."""

    name = "audit"
    stopped = 1

    def grow(self) -> None:
        first = len(self.sent)
        numbers = range(first, first + 300)
        self.publish([Message(self.topic, b"x", keys=(str(n),)) for n in numbers])

    def words(self) -> list[str]:
        manifest = self.folder / "meant.jsonl"
        lines = [json.dumps({"id": str(n)}) for n in range(len(self.sent))]
        manifest.write_text("\n".join(lines) + "\n")
        return ["--topics", self.topic, "--manifest", str(manifest), "--id", "key"]

    def check(self) -> None:
        summary = json.loads((self.folder / "report" / "summary.json").read_text())
        certificate = json.loads((self.folder / "report" / "certificate.json").read_text())
        assert summary["ok"] and summary["result"]["verdict"] == "certified"
        assert summary["result"]["messages"] == len(self.sent)
        assert certificate["digest"]
        assert all(each["exceptions"] == 0 for each in summary["result"]["checks"])


class Traffic(Subject):
    """Of a topic."""

    name = "traffic"

    def grow(self) -> None:
        first = len(self.sent)
        numbers = range(first, first + 300)
        self.publish([Message(self.topic, b"x" * 100, keys=(str(n),)) for n in numbers])

    def words(self) -> list[str]:
        return ["--topics", self.topic]

    def check(self) -> None:
        summary = json.loads((self.folder / "report" / "summary.json").read_text())
        (topic,) = summary["result"]["topics"]
        assert (topic["topic"], topic["messages"]) == (self.topic, len(self.sent))
        assert self.topic in (self.folder / "report" / "report.html").read_text()
