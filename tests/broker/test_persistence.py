"""The JSON files: Apache's shapes, a backup of the previous content, and a way back from torn files."""

import json
import logging

import pytest

from roquette.base.files import OsFiles
from roquette.broker.floor.config_files import ConfigFiles
from roquette.errors import StoreError
from roquette.wire.bodies import DelayOffsetSerializeWrapper


@pytest.fixture
def files(tmp_path):
    return ConfigFiles(OsFiles(), str(tmp_path))


def wrapper(offset):
    return DelayOffsetSerializeWrapper(offset_table={1: offset})


def load(files):
    found = files.load("d.json", DelayOffsetSerializeWrapper)
    return None if found is None else found.offset_table


def test_what_was_never_written_is_nothing(files):
    assert load(files) is None


def test_a_write_keeps_the_previous_content_as_backup(files, tmp_path):
    files.save("d.json", wrapper(1))
    files.save("d.json", wrapper(2))

    assert load(files) == {1: 2}
    assert "1:1" in (tmp_path / "d.json.bak").read_text()


@pytest.mark.parametrize("torn", [b"", b'{"offsetTable":{1:', b"\0" * 100])
def test_a_torn_main_file_is_read_from_its_backup_and_that_is_said(files, tmp_path, torn, caplog):
    files.save("d.json", wrapper(1))
    files.save("d.json", wrapper(2))
    (tmp_path / "d.json").write_bytes(torn)
    logging.getLogger("roquette").propagate = True
    with caplog.at_level("WARNING", "roquette.broker"):
        found = load(files)

    assert found == {1: 1}
    assert "restored from its backup" in caplog.text


def test_files_that_are_all_unreadable_stop_the_start(files, tmp_path):
    (tmp_path / "d.json").write_bytes(b"{")

    with pytest.raises(StoreError, match="no readable copy"):
        load(files)


def test_a_broker_writes_topics_groups_and_offsets_and_reads_them_back(run_broker, tmp_path):
    config = tmp_path / "store" / "config"

    async def first(case):
        client = await case.client()
        await client.produce("Mine", d=2)
        await client.pull("Mine", sysFlag=5, commitOffset=1)

    async def second(case):
        assert case.broker.tables.topics.find("Mine").write_queues == 2
        assert case.broker.tables.groups.known("g") is not None
        assert case.broker.tables.offsets.query("g", "Mine", 0) == 1

    run_broker(first)
    topics = json.loads((config / "topics.json").read_text())
    groups = json.loads((config / "subscriptionGroup.json").read_text())
    run_broker(second)

    assert topics["topicConfigTable"]["Mine"]["topicName"] == "Mine"
    assert topics["dataVersion"]["counter"] >= 1
    assert groups["subscriptionGroupTable"]["g"]["retryMaxTimes"] == 16
    assert (config / "topics.json.bak").exists()


def test_messages_without_topics_are_not_forgotten(run_broker, tmp_path):
    config = tmp_path / "store" / "config"

    async def first(case):
        client = await case.client()
        await client.produce("Mine", d=2, e=1)

    async def second(case):
        assert case.broker.tables.topics.find("Mine").read_queues == 2

    def lose_topics():
        for file in config.iterdir():
            if file.name.startswith("topics.json"):
                file.unlink()

    run_broker(first)
    lose_topics()
    with pytest.raises(
        StoreError, match=r"topics\.json and its backups are gone, but the store has messages"
    ):
        run_broker(second)
    (
        tmp_path / "store" / "abort"
    ).touch()  # after a crash, which may have come before the first one was written
    run_broker(second)
