"""The offline source's planning, storage and reading, called as Spark calls them but without Spark."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.spark.records import make_log, struct_of

from roquette.base.files import OsReadFiles
from roquette.errors import ConfigError, CorruptRecord
from roquette.message.record import encode_blank
from roquette_spark.commitlog.files import commitlog_options, open_log
from roquette_spark.commitlog.plan import plan, plan_log
from roquette_spark.commitlog.source import GAP_SCHEMA, CommitLogDataSource, CommitLogReader
from roquette_spark.values.schema import COLUMNS

SEGMENT = 4000
TIME = 1_700_000_000_100  # store time of queue offset 0; each offset is a millisecond later


def write_store(root: Path, counts: list[int], *, base: int = 0, **extra: Any) -> list[dict]:
    """A store of one full segment per count, numbered messages in them; what was written."""
    parts: list[dict] = []
    directory = root / "commitlog"
    directory.mkdir(parents=True, exist_ok=True)
    for index, count in enumerate(counts):
        start = base + index * SEGMENT
        some = [
            {"queue_offset": n, "body": b"body %d" % n, "properties": {"TAGS": "AB"[n % 2]}} | extra
            for n in range(len(parts), len(parts) + count)
        ]
        data, _ = make_log(some, base=start)
        parts += some
        rest = SEGMENT - len(data)
        data += (encode_blank(rest) + bytes(rest - 8)) if index + 1 < len(counts) else bytes(rest)
        (directory / f"{start:020d}").write_bytes(data)
    return parts


def read(path: Path | str, *columns: str, **given: str) -> list[dict]:
    """Rows of all splits."""
    options = {"path": str(path)} | given
    schema = struct_of(*(columns or ("queue_offset",)))
    reader = CommitLogReader(schema, commitlog_options(options))
    return [
        row
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


def offsets(path: Path | str, **given: str) -> list[int]:
    return [row["queue_offset"] for row in read(path, **given)]


def stretches(path: Path | str, **given: str) -> list[tuple[str, int, int]]:
    options = commitlog_options({"path": str(path), "rows": "stretches"} | given)
    names = [field.split()[0] for field in GAP_SCHEMA.split(", ")]
    reader = CommitLogReader(struct_of(**gap_types(names)), options)
    rows = [r for part in reader.partitions() for b in reader.read(part) for r in b.to_pylist()]
    return [(row["kind"], row["physical_offset"], row["size"]) for row in rows]


def gap_types(names: list[str]) -> dict[str, str]:
    return {n: "bigint" if n in ("physical_offset", "size") else "string" for n in names}


@pytest.mark.parametrize("split", ["0", "1k", "300", "1g"])
def test_every_message_of_every_segment_once(tmp_path: Path, split: str) -> None:
    parts = write_store(tmp_path, [20, 21, 7], base=8 * SEGMENT)

    rows = read(tmp_path, "queue_offset", "body", "topic", "tags", "broker_name", splitBytes=split)

    assert [row["queue_offset"] for row in rows] == list(range(48))
    assert [row["body"] for row in rows] == [part["body"] for part in parts]
    assert {(row["topic"], row["broker_name"]) for row in rows} == {("T", None)}
    assert [kind for kind, _, _ in stretches(tmp_path, splitBytes=split)] == [
        "blank",
        "blank",
        "empty",
    ]


def test_all_columns_of_a_mixed_log(tmp_path: Path) -> None:
    directory = tmp_path / "commitlog"
    directory.mkdir()
    parts = [
        {"topic": "A", "body": b"1", "properties": {"KEYS": "k1 k2", "own": "x"}},
        {"topic": "B", "body": b"2", "properties": {"TAGS": "t"}},
        {"topic": "B", "body": b"", "properties": {}},
    ]
    data, places = make_log(parts)
    (directory / f"{0:020d}").write_bytes(data + bytes(500))

    rows = read(tmp_path, *COLUMNS, brokerName="broker-a")

    assert [(r["topic"], r["broker_name"], r["body"]) for r in rows] == [
        ("A", "broker-a", b"1"),
        ("B", "broker-a", b"2"),
        ("B", "broker-a", b""),
    ]
    assert [r["commit_log_offset"] for r in rows] == places
    assert [(r["key"], r["keys"], r["tags"]) for r in rows] == [
        ("k1", ["k1", "k2"], None),
        (None, None, "t"),
        (None, None, None),
    ]
    assert [r["properties"] for r in rows] == [[("own", "x")], [], []]


def test_a_path_may_be_a_store_its_log_or_one_segment(tmp_path: Path) -> None:
    write_store(tmp_path, [5, 5])
    log = tmp_path / "commitlog"

    assert offsets(log) == offsets(tmp_path) == list(range(10))
    assert offsets(log / f"{SEGMENT:020d}") == [5, 6, 7, 8, 9]
    assert offsets(f"{log / f'{0:020d}'},{log / f'{SEGMENT:020d}'}") == list(range(10))


def test_files_made_ahead_and_files_of_others_are_not_read(tmp_path: Path) -> None:
    write_store(tmp_path, [5, 5])
    (tmp_path / "commitlog" / f"{2 * SEGMENT:020d}").write_bytes(bytes(SEGMENT))
    (tmp_path / "commitlog" / "notes.txt").write_bytes(b"x")

    assert offsets(tmp_path) == list(range(10))
    assert stretches(tmp_path)[-1][0] == "empty"


def test_segments_outside_the_time_are_not_opened(tmp_path: Path) -> None:
    hour, minutes = 3_600_000, 600_000
    directory = tmp_path / "commitlog"
    directory.mkdir()
    for index in range(4):
        data, _ = make_log(
            [{"queue_offset": index * hour + n * minutes} for n in range(3)], index * SEGMENT
        )
        rest = SEGMENT - len(data)
        data += encode_blank(rest) + bytes(rest - 8)
        (directory / f"{index * SEGMENT:020d}").write_bytes(data)
    given = {
        "startingTimestamp": str(TIME + hour + minutes),
        "endingTimestamp": str(TIME + 2 * hour + 1),
    }

    assert offsets(tmp_path, **given) == [hour + minutes, hour + 2 * minutes, 2 * hour]
    splits = plan(commitlog_options({"path": str(tmp_path), **given}))
    assert [split.base for split in splits] == [SEGMENT, 2 * SEGMENT]
    assert offsets(tmp_path, startingTimestamp=str(TIME + 9 * hour)) == []
    assert offsets(tmp_path, endingTimestamp=str(TIME + 2 * minutes)) == [0, minutes]


def test_topics_patterns_and_tags(tmp_path: Path) -> None:
    directory = tmp_path / "commitlog"
    directory.mkdir()
    topics = ["orders", "orders-eu", "pay", "SCHEDULE_TOPIC_XXXX", "%RETRY%g"]
    parts = [{"topic": t, "properties": {"TAGS": "ab"[i % 2]}} for i, t in enumerate(topics)]
    parts.append({"topic": "pay", "sys_flag": 4})  # prepared: in no queue
    (directory / f"{0:020d}").write_bytes(make_log(parts)[0])

    assert offsets(tmp_path) == [0, 1, 2, 4]
    assert offsets(tmp_path, includeSystemTopics="true") == [0, 1, 2, 3, 4, 5]
    assert offsets(tmp_path, subscribe="pay, orders") == [0, 2]
    assert offsets(tmp_path, subscribe="SCHEDULE_TOPIC_XXXX") == [3]
    assert offsets(tmp_path, subscribePattern="orders.*") == [0, 1]
    assert offsets(tmp_path, tags="a || c") == [0, 2, 4]


def damage(root: Path, at: int, junk: bytes = b"\xee" * 10) -> Path:
    path = root / "commitlog" / f"{at - at % SEGMENT:020d}"
    data = bytearray(path.read_bytes())
    data[at % SEGMENT : at % SEGMENT + len(junk)] = junk
    path.write_bytes(data)
    return path


def test_damage_fails_with_file_and_place_or_is_skipped_and_listed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_store(tmp_path, [20, 20])
    size = len(make_log([{"body": b"body 0", "properties": {"TAGS": "A"}}])[0])
    path = damage(tmp_path, 2 * size + 4)

    with pytest.raises(CorruptRecord) as told:
        offsets(tmp_path)
    assert str(path) in str(told.value)
    assert f"damaged at physical offset {2 * size}, {size} bytes" in str(told.value)
    assert "failOnCorruptRecord=false" in str(told.value)
    assert offsets(tmp_path, failOnCorruptRecord="false") == [0, 1, *range(3, 40)]
    assert f"{path} is damaged at physical offset {2 * size}" in caplog.text
    assert stretches(tmp_path)[0] == ("damaged", 2 * size, size)


def test_a_missing_segment_is_damage(tmp_path: Path) -> None:
    write_store(tmp_path, [5, 5, 5])
    (tmp_path / "commitlog" / f"{SEGMENT:020d}").unlink()

    with pytest.raises(
        CorruptRecord, match=f"missing at physical offset {SEGMENT}, {SEGMENT} bytes"
    ):
        offsets(tmp_path)
    assert offsets(tmp_path, failOnCorruptRecord="false") == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    assert ("missing", SEGMENT, SEGMENT) in stretches(tmp_path)


def test_a_body_that_cannot_be_decompressed_costs_only_its_message(tmp_path: Path) -> None:
    directory = tmp_path / "commitlog"
    directory.mkdir()
    parts = [{"body": b"plain"}] * 5 + [{"body": b"no zlib", "sys_flag": 1}] + [{"body": b"x"}] * 5
    (directory / f"{0:020d}").write_bytes(make_log(parts)[0])

    assert offsets(tmp_path) == list(range(11))  # who does not read bodies does not notice
    with pytest.raises(CorruptRecord, match="compressed body of 7 bytes is broken"):
        read(tmp_path, "body")
    rows = read(tmp_path, "body", "queue_offset", failOnCorruptRecord="false")
    assert [row["queue_offset"] for row in rows] == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]


def test_reads_are_by_position_and_never_past_a_file(tmp_path: Path) -> None:
    write_store(tmp_path, [20, 3])
    (first, second) = open_log(str(tmp_path), "{}")[1]
    assert (first.base, second.base, first.size) == (0, SEGMENT, SEGMENT)

    asked: list[int] = []

    class Spying(OsReadFiles):
        def open_file(self, path: str) -> Any:
            file = super().open_file(path)
            return SimpleNamespace(
                size=file.size,
                pread=lambda size, at: asked.append(size) or file.pread(size, at),
                close=file.close,
            )

    files = Spying()
    splits = plan_log(files, [first, second], commitlog_options({"path": "x"}), 0)
    assert [(s.start, s.end, s.last) for s in splits] == [(0, SEGMENT, False), (0, SEGMENT, True)]
    assert 0 < sum(asked) <= 2 * 128  # planning reads heads only
    with contextlib.closing(files.open_file(first.path)) as file:
        assert file.pread(10, SEGMENT - 5) == bytes(5)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"rows": "messages"}, "a path is required"),
        ({"path": "/nowhere/at/all"}, "/nowhere/at/all: No such file or directory"),
        ({"path": "{tmp}"}, "has no segments: a commit log's files are named by 20 digits"),
        ({"path": "x", "pth": "y"}, "unknown option pth; did you mean path"),
        ({"path": "x", "subscribe": "a", "topic": "b"}, "subscribe and topic mean the same"),
        ({"path": "x", "subscribe": "a", "subscribePattern": "b"}, "not both"),
        (
            {"path": "x", "subscribePattern": "("},
            "subscribePattern: '(' is not a regular expression",
        ),
        ({"path": "x", "splitBytes": "many"}, "splitBytes must be a size such as 128m"),
        ({"path": "x", "rows": "files"}, "rows must be messages or stretches, not 'files'"),
        ({"path": "x", "checkCrc": "yes"}, "checkCrc must be true or false"),
        ({"path": "x", "brokerName": "a,b"}, "has 2 names for 1 paths"),
        ({"path": "x", "startingTimestamp": "5", "endingTimestamp": "4"}, "is before"),
        ({"path": "x", "storageOptions": '{"secret":"s'}, "must be a JSON object"),
        ({"path": "nosuch://x"}, "nosuch://"),
        (
            {"path": "x", "readBytes": "3g"},
            "readBytes must be a size such as 128m of at most 1073741824",
        ),
    ],
)
def test_wrong_options_are_told_in_one_line(
    tmp_path: Path, given: Mapping[str, str], told: str
) -> None:
    given = {name: value.replace("{tmp}", str(tmp_path)) for name, value in given.items()}
    with pytest.raises(ConfigError) as error:
        CommitLogReader(struct_of("body"), commitlog_options(given)).partitions()
    assert told in str(error.value)
    assert "\n" not in str(error.value)
    assert "secret" not in str(error.value)


def test_the_source_has_the_broker_sources_columns() -> None:
    source = CommitLogDataSource({"path": "x"})
    assert source.name() == "rocketmq_commitlog"
    assert source.schema() == ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())
    assert CommitLogDataSource({"path": "x", "rows": "stretches"}).schema() == GAP_SCHEMA
    assert CommitLogDataSource({"path": "x", "columns": "body,topic"}).schema() == (
        "`body` binary, `topic` string"
    )
    with pytest.raises(ConfigError, match="unknown column nose"):
        CommitLogDataSource({"path": "x", "columns": "nose"}).schema()


@pytest.fixture
def memory_store(tmp_path: Path) -> Iterator[str]:
    """The store's files in fsspec's memory file system: an object store's manners without one."""
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    write_store(tmp_path, [20, 20, 4])
    for path in (tmp_path / "commitlog").iterdir():
        memory.pipe(f"/bucket/store/commitlog/{path.name}", path.read_bytes())
    yield "memory://bucket/store"
    with contextlib.suppress(FileNotFoundError):
        memory.rm("/bucket", recursive=True)


@pytest.mark.parametrize("read_bytes", ["1m", "500"])
def test_an_object_store_reads_alike(tmp_path: Path, memory_store: str, read_bytes: str) -> None:
    given = {"splitBytes": "1k", "readBytes": read_bytes}

    assert read(memory_store, "queue_offset", "body", **given) == read(
        tmp_path, "queue_offset", "body"
    )
    assert stretches(memory_store, **given) == stretches(tmp_path)
    assert offsets(f"{memory_store}/commitlog/{SEGMENT:020d}") == list(range(20, 40))
    with pytest.raises(ConfigError, match="memory://bucket/none: No such file"):
        offsets("memory://bucket/none")


def test_no_segment_of_an_object_store_is_asked_for_its_size(
    memory_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of the directory and the split have it: a request for each file of a large store would take minutes."""
    memory = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem
    asked: list[str] = []
    info = memory.info

    def spy(self: Any, path: str, **options: Any) -> Any:
        asked.append(path)
        return info(self, path, **options)

    monkeypatch.setattr(memory, "info", spy)
    assert len(offsets(memory_store)) == 44
    assert asked and not [path for path in asked if path[-20:].isdigit()]
