"""A broker whose disk fills up: what is refused, what goes on, what comes back by itself."""

import asyncio
import errno
import logging

import pytest
from tests.broker.pop_frames import ack, pop_ext, popped
from tests.broker.test_transactions import COMMIT, end, prepare, stored

from roquette.wire.bodies import ConsumerOffsetSerializeWrapper, KVTable
from roquette.wire.json_body import decode_body
from roquette_testing.faulty_files import FaultyFiles

FULL_AGAIN_S = 6.0  # a beat of the disk watch and a little


class BrokenFiles(FaultyFiles):
    """Files whose name ends in `broken` cannot be written."""

    broken = "none"

    def open_file(self, path, size=None, create=False, private=False):
        file = super().open_file(path, size, create)
        if path.endswith(self.broken):

            def pwrite(data, position):
                raise OSError(errno.EIO, "Input/output error", path)

            file.pwrite = pwrite
        return file


def fill_to(files: FaultyFiles, percent: int) -> None:
    files.set_capacity(files.used * 100 // percent)


def offsets_on_disk(files: FaultyFiles, root: str) -> dict[int, int]:
    """What the file says of group g on topic T."""
    data = files.read_bytes(f"{root}/config/consumerOffset.json")
    return decode_body(ConsumerOffsetSerializeWrapper, data).offset_table["T@g"]


async def commit(client, offset: int, group: str = "g", topic: str = "T"):
    fields = {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": offset}
    return await client.call(15, fields)


async def known(case, client):
    """Topic T and group g exist, two messages wait."""
    for _ in range(2):
        assert (await client.produce()).code == 0
    assert (await client.pull()).code == 0


def test_above_the_limit_sends_are_refused_in_words_and_all_else_goes_on(run_broker, tmp_path):
    files = FaultyFiles()
    root = str(tmp_path / "store")

    async def scenario(case):
        client = await case.client()
        await known(case, client)
        half = await prepare(case, client)
        reply = await client.call(
            200050, pop_ext(case.clock.now_ms(), consumerGroup="p", invisibleTime=60_000)
        )
        messages = popped(reply)
        fill_to(files, 95)
        await asyncio.sleep(FULL_AGAIN_S)

        refused = await client.produce()
        batch = await client.call(320, case.send_ext(m="true"), b"\0" * 30)
        other = await client.produce("New")
        half_refused = await client.produce(
            properties={"UNIQ_KEY": "k2", "TRAN_MSG": "true", "PGROUP": "pg"}, f=4
        )
        delayed = await client.produce(properties={"UNIQ_KEY": "k3", "DELAY": "1"})
        for reply in (refused, batch, other, half_refused, delayed):
            assert reply.code == 14
            for part in (f"the disk of {root}/commitlog is 95", "MiB free", "fileReservedTime",
                         "90 % (diskSpaceWarningLevelRatio)", "[CL:  0.9"):  # fmt: skip
                assert part in reply.remark, reply.remark
            assert case.ext(reply)["MSG_REGION"] == "DefaultRegion"
        assert case.broker.tables.topics.find("New") is None, (
            "a refused send leaves no topic behind"
        )

        assert (await client.pull()).code == 0
        assert (await commit(client, 1)).code == 0
        assert (await ack(client, messages[0], "p")).code == 0
        await end(client, half, COMMIT)
        assert b"hello" in [record.body for record in await stored(client, queue_id=1)]
        sent_back = await client.call(
            36, {"offset": 0, "group": "g", "delayLevel": 3, "originMsgId": "x", "originTopic": "T"}
        )
        assert sent_back.code == 0, sent_back.remark
        info = decode_body(KVTable, (await client.call(28, {})).body).table
        assert "% full" in info["messagesRefused"]
        assert 0.95 <= float(info["commitLogDiskRatio"]) < 0.99
        assert f"commitLogDiskRatio_{root}/commitlog" in info
        await asyncio.sleep(FULL_AGAIN_S)
        assert offsets_on_disk(files, root) == {0: 1}

        files.set_capacity(1 << 40)
        await asyncio.sleep(FULL_AGAIN_S)
        assert (await client.produce()).code == 0
        info = decode_body(KVTable, (await client.call(28, {})).body).table
        assert info["messagesRefused"] == "no"

    run_broker(scenario, files=files, store=SMALL)


SMALL = {"queue_file_size": 2000, "max_index_entries": 100}


@pytest.mark.promise(
    "Bounds", "a full disk loses nothing, and sends are taken again when there is space"
)
def test_with_not_a_byte_left_offsets_are_saved_and_all_comes_back(run_broker, tmp_path, caplog):
    files = FaultyFiles()
    root = str(tmp_path / "store")
    logging.getLogger("roquette").propagate = True

    async def scenario(case):
        client = await case.client()
        await known(case, client)
        await commit(client, 1)
        await asyncio.sleep(FULL_AGAIN_S)
        assert files.exists(f"{root}/reserve")
        files.set_capacity(files.used)
        await commit(client, 2)
        await asyncio.sleep(FULL_AGAIN_S)

        assert offsets_on_disk(files, root) == {0: 2}
        assert not files.exists(f"{root}/reserve")
        assert "is given up" in caplog.text
        assert (await client.produce()).code == 14
        assert (await client.pull()).code == 0

        for _ in range(200):  # it stays so: no beat, no retry and no message breaks anything
            assert (await client.produce(body=b"y" * 5000)).code == 14
            await asyncio.sleep(1)
        files.set_capacity(1 << 40)
        await asyncio.sleep(60)
        assert (await client.produce()).code == 0
        assert files.exists(f"{root}/reserve")
        assert case.broker.failure is None

    async def again(case):
        client = await case.client()
        assert case.broker.tables.offsets.query("g", "T", 0) == 2
        assert case.broker.store.max_offset("T", 0) == 3
        assert (await client.produce()).code == 0

    run_broker(scenario, files=files)
    run_broker(again, files=files)


def test_a_broker_stops_and_starts_on_a_full_disk(run_broker, tmp_path):
    files = FaultyFiles()

    async def scenario(case):
        client = await case.client()
        await known(case, client)
        await commit(client, 2)
        files.set_capacity(files.used)

    async def full(case):
        client = await case.client()
        assert case.broker.tables.offsets.query("g", "T", 0) == 2
        assert (await client.pull()).code == 0
        assert (await client.produce()).code == 14
        files.set_capacity(1 << 40)
        await asyncio.sleep(60)
        assert (await client.produce()).code == 0

    run_broker(scenario, files=files)
    run_broker(full, files=files)


@pytest.mark.parametrize("name", ["consumerOffset.json.tmp", "consumerOffset.json.sum.tmp"])
def test_a_file_that_cannot_be_written_is_reported_and_tried_again(
    run_broker, tmp_path, caplog, name
):
    files = BrokenFiles()
    root = str(tmp_path / "store")
    logging.getLogger("roquette").propagate = True

    async def scenario(case):
        client = await case.client()
        await known(case, client)
        await commit(client, 1)
        await asyncio.sleep(FULL_AGAIN_S)
        files.broken = name
        await commit(client, 2)
        await asyncio.sleep(4 * FULL_AGAIN_S)
        assert offsets_on_disk(files, root) == {0: 1}, "the older content stays"
        assert caplog.text.count("consumerOffset.json not written") >= 3
        assert "Input/output error" in caplog.text
        assert (await client.produce("Other")).code == 0, "other files are written"
        files.broken = "none"
        await asyncio.sleep(FULL_AGAIN_S)
        assert offsets_on_disk(files, root) == {0: 2}

    run_broker(scenario, files=files)


def test_files_that_cannot_be_written_at_the_end_do_not_stop_the_stop(run_broker, tmp_path):
    files = BrokenFiles()
    root = str(tmp_path / "store")

    async def scenario(case):
        client = await case.client()
        await known(case, client)
        files.broken = ".json.tmp"

    run_broker(scenario, files=files)
    assert not files.exists(f"{root}/abort"), "the store itself was closed well"


def test_the_log_on_another_disk_shows_its_own_numbers(run_broker, tmp_path):
    class TwoDisks(FaultyFiles):
        def disk_usage(self, path):
            return (1000, 50) if path.startswith("/log") else (1 << 40, 1 << 39)

    async def scenario(case):
        client = await case.client()
        refused = await client.produce()
        assert refused.code == 14
        assert "the disk of /log/commitlog is 95.0 % full" in refused.remark
        info = decode_body(KVTable, (await client.call(28, {})).body).table
        assert info["commitLogDiskRatio"] == info["commitLogDiskRatio_/log/commitlog"] == "0.95"
        assert info["consumeQueueDiskRatio"] == "0.5"
        assert info["commitLogDirCapacity"] == "Total : 1000 B, Free : 50 B."

    run_broker(scenario, files=TwoDisks(), store={"commit_log_dir": "/log/commitlog"})


def test_a_closed_store_is_not_called_a_full_disk(run_broker):
    async def scenario(case):
        client = await case.client()
        case.broker.store.fail("syncing the commit log failed: it broke")
        refused = await client.produce()
        assert refused.code == 14
        assert "disk is full" not in refused.remark
        assert "it broke" in refused.remark

    run_broker(scenario)


def test_a_failed_sync_of_a_file_ends_the_broker_and_leaves_an_older_content(run_broker, tmp_path):
    """As of any file: what the disk holds is not known any more."""
    files = FaultyFiles()
    root = str(tmp_path / "store")

    async def scenario(case):
        client = await case.client()
        await known(case, client)
        await commit(client, 1)
        await asyncio.sleep(FULL_AGAIN_S)
        assert offsets_on_disk(files, root) == {0: 1}
        real = files.open_file

        def open_file(path, size=None, create=False, private=False):
            if path.endswith("consumerOffset.json.tmp"):
                files.fail("sync", 1, errno.EIO)
            return real(path, size, create)

        files.open_file = open_file
        await commit(client, 2)
        why = await asyncio.wait_for(case.broker.wait_failed(), 30)
        assert "the disk failed" in why
        assert offsets_on_disk(files, root) == {0: 1}
        files.open_file = real

    run_broker(scenario, files=files)
