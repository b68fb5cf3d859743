"""What a member remembers of itself, and what it makes of it at the next start."""

import shutil
from pathlib import Path

import pytest

from roquette.base.entropy import Entropy
from roquette.base.files import OsFiles
from roquette.broker.group.member_file import MemberFile, RememberedState
from roquette.errors import ConfigError
from roquette.replication.record import GroupRecord, MemberPlace, OwnStore


def life(root: Path, clean: bool = False, entered: bool = True, **now) -> OwnStore:
    """An opening of the store, and what is noted of it until it ends."""
    file = MemberFile(OsFiles(), str(root), "key")
    kept = file.load(1, clean=True)
    own = file.begin_life(kept, Entropy(), **{"sync": False, "damage": "", "empty": False} | now)
    if entered:
        kept.openings, kept.record_group = kept.openings[-1:], "group"
        kept.boot, kept.sync, kept.clean = OsFiles().boot_id.hex(), now.get("sync", False), clean
        kept.folder = OsFiles().folder_id(str(root))
    file.save(kept)
    return own


def test_a_store_keeps_its_name_and_knows_its_last_openings(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    first, second = life(root), life(root, entered=False)
    third = life(root)
    assert first.name == second.name == third.name
    assert second.before == (first.opening,)
    assert third.before == (first.opening, second.opening)
    assert third.group == "group" and not third.fault and third.clean


@pytest.mark.parametrize("clean", [True, False])
def test_a_copy_of_a_directory_in_use_is_known_by_its_directory(
    tmp_path: Path, clean: bool
) -> None:
    root, copy = tmp_path / "store", tmp_path / "copy"
    root.mkdir()
    life(root, clean=clean)
    shutil.copytree(root, copy)
    found = life(copy, entered=False)
    assert ("is a copy of one that was in use" in found.fault) is not clean
    assert found.clean is clean
    assert not life(root).fault


def test_damage_makes_a_store_unsure_of_itself(tmp_path: Path) -> None:
    life(tmp_path)
    found = life(tmp_path, damage="damage has cut the log")
    assert (found.fault, found.clean) == ("damage has cut the log", False)


def test_wrong_files_are_refused_in_words(tmp_path: Path) -> None:
    life(tmp_path)
    with pytest.raises(ConfigError, match="is broker 1 of its group, and brokerId=2 is set"):
        MemberFile(OsFiles(), str(tmp_path), "key").load(2, clean=True)
    with pytest.raises(ConfigError, match="belongs to the group key, not to other"):
        MemberFile(OsFiles(), str(tmp_path), "other").load(1, clean=True)
    for damaged in (b"{", b'{"group":"\xd8"}'):
        (tmp_path / "roquetteMember.json").write_bytes(damaged)
        with pytest.raises(ConfigError, match="is not readable"):
            MemberFile(OsFiles(), str(tmp_path), "key").load(1, clean=True)


def test_who_was_in_the_group_is_kept_where_an_older_record_knows_fewer() -> None:
    here = MemberPlace(address="h:1", ha_address="h:2")
    kept = RememberedState(group="roquette/c/a", id=1, boot="", clean=True)
    kept.note(GroupRecord(number=9, group="g", places=dict.fromkeys((1, 2, 4), here)))
    kept.note(GroupRecord(number=10, places={1: here, 3: here}, set_back=True))
    assert (kept.record_group, kept.seen, kept.known) == ("g", 10, [1, 2, 3, 4])
    kept.note(GroupRecord(number=11, places={1: here, 4: here}))  # 2 and 3 were cleaned away
    assert kept.known == [1, 4]
