"""`roquette store ...` on directories, without any broker."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.store.offline.stores import (
    SEGMENT,
    faults,
    fsck,
    log_file,
    make_store,
    poke,
    records,
    write_config,
)
from typer.testing import CliRunner, Result

from roquette.apps.main import app
from roquette.errors import ConfigError, StoreError


def roquette(*words: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["store", *map(str, words)], input=stdin)


def rows(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_store(tmp_path / "store")
    write_config(tmp_path / "store")
    return tmp_path / "store"


def spoil(root: Path, number: int) -> tuple[str, int]:
    record = records(root)[number]
    path = log_file(root, record.physical_offset)
    poke(path, record.physical_offset % SEGMENT + 95, b"\xff")
    return str(path), record.physical_offset % SEGMENT


def test_every_verb_has_help() -> None:
    for verb in ("ls", "info", "fsck", "grep", "dump", "export", "repair", "take-tail"):
        result = roquette(verb, "--help")
        assert result.exit_code == 0
        assert len(result.stdout) > 300
    assert "fsck" in roquette("--help").stdout


def test_ls_lists_files_with_offsets_and_times(root: Path) -> None:
    found = json.loads(roquette("ls", root, "-o", "json").stdout)

    kinds = {row["kind"] for row in found}
    assert {"log", "queue", "index", "checkpoint", "json"} <= kinds
    logs = [row for row in found if row["kind"] == "log"]
    assert [row["first"] for row in logs] == [n * SEGMENT for n in range(len(logs))]
    assert logs[0]["first_ms"] == 1_700_000_000_000
    assert logs[-1]["last_ms"] == 1_700_000_000_000 + 149 * 100
    assert logs[-1]["end"] == records(root)[-1].physical_offset + records(root)[-1].size
    assert "commitlog" in roquette("ls", root).stdout


def test_info_says_what_a_store_is(root: Path) -> None:
    found = json.loads(roquette("info", root, "-o", "json").stdout)

    assert (found["messages"], found["topics"], len(found["queues"])) == (150, 2, 6)
    assert found["closed"] and found["warnings"] == []
    assert found["checkpoint"]["physical_ms"] == found["last_ms"]
    assert "150 in 6 queues of 2 topics" in roquette("info", root).stdout

    (root / "abort").write_text("")
    shutil.rmtree(root / "consumequeue")
    text = roquette("info", root).output
    assert "not cleanly, or running" in text
    assert "there are no consume queues" in text


def test_info_names_stores_of_other_kinds(tmp_path: Path) -> None:
    (tmp_path / "consumequeue").mkdir()
    (tmp_path / "consumequeue" / "CURRENT").write_text("")
    (tmp_path / "consumequeue" / "MANIFEST-000005").write_text("")

    assert "storeType defaultRocksDB" in roquette("info", tmp_path).output

    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "dledger-n1").mkdir()
    assert "DLedger" in roquette("info", tmp_path).output
    with pytest.raises(StoreError, match="DLedger"):
        raise roquette("grep", tmp_path, "x").exception or AssertionError


def test_fsck_ends_with_1_on_damage_only(root: Path) -> None:
    assert roquette("fsck", root).exit_code == 0
    assert "sound: 150 records" in roquette("fsck", root).output
    assert json.loads(roquette("fsck", root, "-o", "json", "-j", "1").stdout)["sound"] is True

    path, byte = spoil(root, 20)

    found = roquette("fsck", root)
    assert found.exit_code == 1
    assert f"damage: crc: {path} byte {byte}: " in found.output
    assert "what to do about crc: " in found.output
    report = json.loads(roquette("fsck", root, "-o", "json").stdout)
    assert (report["sound"], report["findings"][0]["position"]) == (False, byte)
    assert roquette("fsck", root, "--quick").exit_code == 0  # it is not in the newest file


def test_grep_finds_by_everything_a_message_has(root: Path) -> None:
    def flags(*words: str) -> list[object]:
        return [row["flag"] for row in rows(roquette("grep", root, "-o", "json", *words))]

    assert flags("--key", "key77") == [77]
    assert flags("--id", "UNIQ" + "78".zfill(28)) == [78]
    assert flags("--id", "uniq" + "78".zfill(28)) == [78]
    assert flags("--topic", "Orders") == list(range(0, 150, 2))
    assert flags("--topic", "Orders", "--queue", "2", "--limit", "2") == [2, 8]
    assert flags("--tag", "tag1", "-c", "3") == [1, 4, 7]
    assert flags("message 1[0-9] ") == list(range(10, 20))  # bodies are decompressed for it
    assert flags("--since", "1700000001000", "--until", "1700000001200") == [10, 11, 12]
    assert flags("--since", "2023-11-14T22:13:34+00:00", "-c", "1") == [140]
    row = rows(roquette("grep", root, "-o", "json", "--key", "key77"))[0]
    assert row["properties"]["step"] == "77"  # type: ignore[index]
    assert row["stored_ms"] == 1_700_000_000_000 + 7700
    assert str(row["body"]).startswith("body of message 77")
    assert "Payments/2" in roquette("grep", root, "--key", "key77").stdout
    assert roquette("grep", root, "--key", "none").exit_code == 1


def test_grep_says_where_it_stepped_over_damage(root: Path) -> None:
    path, byte = spoil(root, 20)

    found = roquette("grep", root, "--topic", "Orders")

    assert f"damage: {path} byte {byte}" in found.output
    assert found.stdout.count("\n") >= 74


def test_dump_shows_files_of_every_kind(root: Path) -> None:
    log = rows(roquette("dump", root / "commitlog" / f"{SEGMENT:020d}", "-o", "json"))
    assert log[0]["byte"] == 0 and log[0]["physical_offset"] == SEGMENT
    assert log[-1]["end"] == "filled"
    some = rows(
        roquette(
            "dump", root / "commitlog" / f"{0:020d}", "-o", "json", "--from", "1000", "-c", "1"
        )
    )
    assert some[0]["byte"] >= 1000  # type: ignore[operator]
    queue = rows(
        roquette("dump", root / "consumequeue" / "Orders" / "0" / f"{320:020d}", "-o", "json")
    )
    assert [row["offset"] for row in queue] == list(range(16, 25))
    index = rows(roquette("dump", sorted((root / "index").iterdir())[0], "-o", "json"))
    assert index[0]["slots"] == 17 and index[0]["next_entry"] == 120 and len(index) == 120
    assert rows(roquette("dump", root / "checkpoint", "-o", "json"))[0]["physical_ms"]
    assert (
        "topicConfigTable"
        in rows(roquette("dump", root / "config" / "topics.json", "-o", "json"))[0]
    )
    for path in (
        root / "checkpoint",
        root / "commitlog" / f"{0:020d}",
        root / "config" / "topics.json",
    ):
        assert roquette("dump", path).stdout
    with pytest.raises(StoreError, match="is no file"):
        raise roquette("dump", root / "nothing").exception or AssertionError
    with pytest.raises(ConfigError, match="--kind x"):
        raise roquette("dump", root / "checkpoint", "--kind", "x").exception or AssertionError


def test_export_writes_json_lines_and_parquet(root: Path, tmp_path: Path) -> None:
    lines = rows(roquette("export", root))
    assert [line["flag"] for line in lines] == list(range(150))
    plain = str(lines[3]["body"])
    assert plain.startswith("body of message 3")
    assert roquette("export", root, "--to", tmp_path / "x.jsonl", "--body", "base64").exit_code == 0
    assert "body_base64" in (tmp_path / "x.jsonl").read_text().splitlines()[0]

    again = roquette("export", root, "--to", tmp_path / "x.jsonl", "--topic", "Nobody")
    assert "is there already" in str(again.exception)
    assert len((tmp_path / "x.jsonl").read_text().splitlines()) == 150
    words = ("export", root, "--to", tmp_path / "x.jsonl", "--topic", "Nobody", "--force")
    assert roquette(*words).exit_code == 0
    assert (tmp_path / "x.jsonl").read_text() == ""

    parquet = pytest.importorskip("pyarrow.parquet")
    words = ("--format", "parquet", "--to", tmp_path / "x.parquet", "--topic", "Payments")
    assert roquette("export", root, *words).exit_code == 0
    table = parquet.read_table(tmp_path / "x.parquet").to_pylist()
    assert [row["flag"] for row in table] == list(range(1, 150, 2))
    assert table[1]["body"].decode() == plain
    assert dict(table[1]["properties"])["step"] == "3"


def test_parquet_without_pyarrow_says_what_to_install(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match="pip install"):
        raise (
            roquette("export", root, "--format", "parquet", "--to", tmp_path / "x").exception
            or AssertionError
        )


def test_repair_shows_its_plan_makes_a_copy_and_checks_it(root: Path, tmp_path: Path) -> None:
    spoil(root, 20)
    plan = roquette("repair", root, "--dry-run")
    assert "becomes records nobody reads" in plan.output
    assert faults(fsck(root))

    done = roquette("repair", root, "--to", tmp_path / "mended")

    assert done.exit_code == 0, done.output
    assert "sound: 150 records" in done.output
    assert faults(fsck(root))
    assert not faults(fsck(tmp_path / "mended"))


def test_an_interrupted_repair_is_told_of_and_ended(root: Path) -> None:
    spoil(root, 20)
    (root / "repair.new").mkdir()
    (root / "repair.new" / "x").write_text("new")
    steps = [[f"{root}/repair.new/x", f"{root}/x"]]
    plan = {"commitLog": f"{root}/commitlog", "steps": steps}
    (root / "repair.swap").write_text(json.dumps(plan))
    for words in (("fsck", root), ("repair", root, "--dry-run"), ("repair", root, "--to", "x")):
        assert "--in-place` ends it" in str(roquette(*words).exception)

    done = roquette("repair", root, "--in-place", "-y")

    assert "a repair that was interrupted is ended" in done.output
    assert (root / "x").read_text() == "new"
    assert roquette("fsck", root).exit_code == 0


def test_repair_in_place_asks_first(root: Path) -> None:
    spoil(root, 20)
    refused = roquette("repair", root, "--in-place", stdin="y\n")
    assert "no terminal to ask on; say --yes" in str(refused.exception)
    assert faults(fsck(root))
    assert roquette("repair", root, "--in-place", "--yes").exit_code == 0
    assert not faults(fsck(root))
    with pytest.raises(ConfigError, match="--to DIR"):
        raise roquette("repair", root).exception or AssertionError


@pytest.mark.parametrize("whose", ["ours", "apache"])
def test_a_store_in_use_is_left_alone(root: Path, whose: str) -> None:
    take = (
        "fcntl.flock(f, fcntl.LOCK_EX)" if whose == "ours" else "fcntl.lockf(f, fcntl.LOCK_EX, 1)"
    )
    program = (
        f"import fcntl,sys; f = open(sys.argv[1], 'r+'); {take}; print('held', flush=True); input()"
    )
    lock = root / "lock"
    lock.touch()
    command = [sys.executable, "-c", program, str(lock)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        for verb in ("ls", "info", "fsck", "grep", "export"):
            with pytest.raises(StoreError, match="--force-read"):
                raise roquette(verb, root).exception or AssertionError
        assert roquette("fsck", root, "--force-read").exit_code == 0
        with pytest.raises(StoreError, match="is locked"):
            raise roquette("repair", root, "--in-place", "-y").exception or AssertionError
        holder.stdin.write("\n")
    assert roquette("fsck", root).exit_code == 0


def test_a_reader_keeps_brokers_away_and_writes_nothing(root: Path) -> None:
    from roquette.base.files import StoreGuard

    os.chmod(root / "lock", 0o444)
    before = (root / "lock").stat()
    guard = StoreGuard(str(root / "lock"))
    try:
        with (root / "lock").open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        guard.release()
    assert (root / "lock").stat().st_mtime_ns == before.st_mtime_ns


def test_bad_words_are_refused_in_words(root: Path, tmp_path: Path) -> None:
    for words, text in (
        (("fsck", tmp_path / "nothing"), "is not there"),
        (("grep", root, "("), "is no regular expression"),
        (("grep", root, "--since", "yesterday"), "--since yesterday is no time"),
        (("export", root, "--format", "csv"), "--format csv"),
        (("export", root, "--format", "parquet"), "--to FILE"),
    ):
        error = roquette(*words).exception
        assert isinstance(error, (ConfigError, StoreError)), words
        assert text in str(error)


def test_take_tail_brings_what_only_the_replica_has(root: Path, tmp_path: Path) -> None:
    make_store(tmp_path / "master", 100)
    end = records(tmp_path / "master")[-1]

    result = roquette("take-tail", tmp_path / "master", "--from", root)

    assert result.exit_code == 0, result.output
    assert f"took 50 records, offsets {end.physical_offset + end.size} to" in result.output
    make_store(tmp_path / "master", 0)  # opens it, and stops
    bodies = [[one.body for one in records(store)] for store in (tmp_path / "master", root)]
    assert bodies[0] == bodies[1]
    assert fsck(tmp_path / "master").sound
    again = roquette("take-tail", tmp_path / "master", "--from", root)
    assert "nothing to take" in str(again.exception)


def test_take_tail_wants_both_brokers_stopped(root: Path, tmp_path: Path) -> None:
    make_store(tmp_path / "master", 100)
    for running in (root, tmp_path / "master"):
        with (running / "lock").open("r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            result = roquette("take-tail", tmp_path / "master", "--from", root)
        assert "Stop the broker" in str(result.exception)
