"""Backups of small stores: what is linked, what is refused, and a store that comes back record by record."""

import os
from pathlib import Path

import msgspec
import pytest
from tests.store.offline.stores import (
    READER,
    START_MS,
    config,
    fsck,
    make_store,
    opened,
    records,
    write_config,
)

from roquette.base.files import OsFiles
from roquette.errors import StoreError
from roquette.store.message_store import MessageStore
from roquette.store.offline.backup import MANIFEST, Manifest, back_up, restore

FILES = OsFiles()


def made(root: Path, to: Path, *, link: bool = True) -> Manifest:
    return back_up(READER, FILES, opened(root), str(to), START_MS, link=link)


def stored(root: Path) -> list[tuple[str, int, int, bytes]]:
    return [(each.topic, each.queue_id, each.queue_offset, each.body) for each in records(root)]


@pytest.mark.parametrize("close", [True, False], ids=["stopped", "running"])
def test_a_store_comes_back_record_by_record(tmp_path: Path, close: bool) -> None:
    root, backup, back = tmp_path / "store", tmp_path / "backup", tmp_path / "back"
    store = make_store(root, close=close)
    write_config(root)
    before = stored(root)
    manifest = made(root, backup)
    restore(READER, FILES, str(backup), str(back))
    if not close:
        store.close(START_MS)
    assert manifest.log_end == max(file.base + file.size for file in opened(root).log)
    assert stored(backup) == stored(back) == before
    assert fsck(back).sound
    for name in ("topics.json", "consumerOffset.json"):
        assert (back / "config" / name).read_bytes() == (root / "config" / name).read_bytes()
    again = MessageStore(config(back), FILES, bytes(8))
    report = again.open(START_MS)
    assert report.abnormal and not report.dropped_bytes and not report.lost_messages
    again.close(START_MS)
    assert stored(back) == before


def test_full_files_are_linked_and_growing_ones_are_copied(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root)
    linked = {file.path for file in made(root, tmp_path / "linked").files if file.linked}
    logs = sorted(path.name for path in (root / "commitlog").iterdir())
    assert {f"commitlog/{name}" for name in logs[:-1]} <= linked
    assert f"commitlog/{logs[-1]}" not in linked
    assert os.path.samefile(root / "commitlog" / logs[0], tmp_path / "linked/commitlog" / logs[0])
    assert not any(file.linked for file in made(root, tmp_path / "copied", link=False).files)
    first = root / "commitlog" / logs[0]
    assert not os.path.samefile(first, tmp_path / "copied/commitlog" / logs[0])


def test_what_is_no_place_for_a_backup_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    root, taken, file = tmp_path / "store", tmp_path / "taken", tmp_path / "file"
    make_store(root)
    taken.mkdir()
    (taken / "mine").write_text("precious")
    file.write_text("precious")
    for target, said in (
        (taken, "is not empty"),
        (file, "is a file"),
        (root / "backup", "lies in"),
        (root, "lies in"),
    ):
        with pytest.raises(StoreError, match=said):
            made(root, target)
    assert (taken / "mine").read_text() == file.read_text() == "precious"
    assert not (root / "backup").exists()
    with pytest.raises(StoreError, match="commit log alone"):
        made(root / "commitlog", tmp_path / "other")


def test_what_is_no_whole_backup_is_not_restored(tmp_path: Path) -> None:
    root, backup, back = tmp_path / "store", tmp_path / "backup", tmp_path / "back"
    make_store(root)
    made(root, backup)
    manifest = (backup / MANIFEST).read_bytes()

    def refused(said: str) -> None:
        with pytest.raises(StoreError, match=said):
            restore(READER, FILES, str(backup), str(back))
        assert not back.exists()

    (backup / MANIFEST).unlink()
    refused("no backup, or one that was not ended")
    (backup / MANIFEST).write_bytes(manifest[: len(manifest) // 2])
    refused("cannot be read")
    found = msgspec.json.decode(manifest)
    (backup / MANIFEST).write_bytes(msgspec.json.encode({**found, "version": 2}))
    refused("version 2; known is 1")
    for path in ("../outside", "/etc/passwd", "config/../../outside"):
        foreign = {"path": path, "size": 1, "linked": False}
        (backup / MANIFEST).write_bytes(msgspec.json.encode({**found, "files": [foreign]}))
        refused("not below the backup")
    (backup / MANIFEST).write_bytes(manifest)
    cut = backup / next(
        file["path"] for file in found["files"] if file["path"].startswith("consume")
    )
    with cut.open("r+b") as opened:
        opened.truncate(cut.stat().st_size - 1)
    refused("1 of [0-9]+ files are not as they were")
    cut.unlink()
    refused("is gone")
