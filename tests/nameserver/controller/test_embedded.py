"""The embedded controller: a register per key that is written once for each revision, whatever befalls its process."""

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest

from roquette.errors import AgreementError, ConfigError
from roquette.nameserver import controller
from roquette.nameserver.controller import RegisterFile, encode_registers
from roquette.remoting.client import RemotingClient
from roquette.remoting.etcd import RemoteAgreement
from roquette.replication.record import Stored
from roquette_testing.cluster import SimCluster, simulate
from roquette_testing.faulty_files import FaultyFiles
from roquette_testing.sim_loop import SimLoop, run

PATH = "/c/registers.json"
KEY = "roquette/c/b"  # what name servers serve


def on_files(scenario: Callable[[FaultyFiles], Any], seed: int = 1) -> None:
    async def main(loop: SimLoop) -> None:
        await scenario(FaultyFiles(seed))

    run(main, seed)


async def opened(files: FaultyFiles) -> RegisterFile:
    registers = RegisterFile(files, "/c")
    await registers.load()
    return registers


def test_a_put_wins_only_over_the_revision_it_names() -> None:
    async def scenario(files: FaultyFiles) -> None:
        registers = await opened(files)
        assert await registers.get("a") == Stored(0, b"")
        assert await registers.put_if("a", 7, b"x") is None
        first = await registers.put_if("a", 0, b"x")
        assert first and await registers.put_if("a", 0, b"y") is None
        other = await registers.put_if("b", 0, b"z")
        second = await registers.put_if("a", first, b"y")
        assert other and second and first < other < second
        await registers.close()

        again = await opened(files)
        assert await again.get("a") == Stored(second, b"y")
        assert await again.get("b") == Stored(other, b"z")
        third = await again.put_if("b", other, b"")
        assert third and third > second
        await again.close()

    on_files(scenario)


def test_of_puts_at_once_one_wins_and_the_others_are_told_after_it_is_on_the_disk() -> None:
    async def scenario(files: FaultyFiles) -> None:
        registers = await opened(files)
        for _ in range(20):
            before = (await registers.get("k")).revision
            puts = [registers.put_if("k", before, b"%d" % i) for i in range(30)]
            outcomes = await asyncio.gather(*puts)
            assert sum(outcome is not None for outcome in outcomes) == 1
        assert files.calls["sync"] < 20 * 10  # those that wait go to the disk together
        await registers.close()

    on_files(scenario)


@pytest.mark.promise(
    "Groups of brokers",
    "embedded: survives kill -9 and loss of power, refuses to be one of two truths, and an earlier content",
)
@pytest.mark.parametrize("seed", range(60))
def test_what_was_answered_or_shown_is_there_after_a_loss_of_power(seed: int) -> None:
    async def scenario(files: FaultyFiles) -> None:
        rng, known, tries = random.Random(seed), Stored(0, b""), 0
        for life in range(6):
            registers = await opened(files)
            found = await registers.get("k")
            assert found.revision >= known.revision, life
            assert found == known or found.revision > known.revision
            known = found
            for _ in range(rng.randrange(4)):
                tries += 1
                new = await registers.put_if("k", known.revision, b"%d" % tries)
                assert new
                known = Stored(new, b"%d" % tries)
            last = asyncio.ensure_future(registers.put_if("k", known.revision, b"last"))
            for _ in range(rng.randrange(6)):
                await asyncio.sleep(0)
                known = max(known, await registers.get("k"))
            files = files.crash()
            last.cancel()
            await asyncio.sleep(1)

    on_files(scenario, seed)


@pytest.mark.parametrize("seed", range(40))
def test_what_a_killed_process_left_is_on_the_disk_before_it_is_shown(seed: int) -> None:
    async def scenario(files: FaultyFiles) -> None:
        registers = await opened(files)
        first = await registers.put_if("k", 0, b"1")
        assert first
        files.fail("sync_dir", 1 + seed % 3)
        with contextlib.suppress(AgreementError):
            await registers.put_if("k", first, b"2")  # killed between rename and sync
        await registers.close()
        files.kill()
        files.work_again()
        shown = await (await opened(files)).get("k")
        again = await (await opened(files.crash())).get("k")
        assert again == shown

    on_files(scenario, seed)


def damaged(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.promise(
    "Groups of brokers",
    "embedded: survives kill -9 and loss of power, refuses to be one of two truths, and an earlier content",
)
@pytest.mark.parametrize("how", ["bit", "cut", "empty", "gone", "zeros"])
def test_an_earlier_content_is_never_taken_for_the_newest(how: str) -> None:
    async def scenario(files: FaultyFiles) -> None:
        registers = await opened(files)
        revision = 0
        for value in (b"1", b"2", b"3"):
            revision = await registers.put_if("k", revision, value) or 0
        await registers.close()
        data = files.read_bytes(PATH)
        changed = {"bit": damaged(data), "cut": data[:-9], "empty": b"", "zeros": bytes(len(data))}
        files.remove(PATH)
        if how != "gone":
            files.write_atomic(PATH, changed[how], keep_backup=False)
        with pytest.raises(ConfigError, match="written last"):
            await opened(files)
        files.write_atomic(PATH, data, keep_backup=False)
        again = await opened(files)  # the refusal has left nothing behind
        assert (await again.get("k")).value == b"3"
        await again.close()

    on_files(scenario)


def test_a_disk_that_fails_answers_unknown_and_shows_nothing_unsynced() -> None:
    async def scenario(files: FaultyFiles) -> None:
        registers = await opened(files)
        first = await registers.put_if("k", 0, b"1")
        assert first
        for call in ("pwrite", "rename", "sync", "sync_dir"):
            for nth in (1, 2):
                files.fail(call, nth)
                with pytest.raises(AgreementError, match="could not be written"):
                    for _ in range(3):
                        await registers.put_if("k", first, b"2")
                        first = (await registers.get("k")).revision
                before = await registers.get("k")
                assert before.revision == first
                await registers.close()
                files.kill()  # after a sync that failed none is tried again: the process ends
                registers = await opened(files)
                first = (await registers.get("k")).revision
                assert first >= before.revision
        assert await registers.put_if("k", first, b"3")
        await registers.close()

    on_files(scenario)


def test_what_would_go_beyond_its_bounds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "MOST_KEYS", 5)
    monkeypatch.setattr(controller, "MOST_BYTES", 70_000)

    async def scenario(files: FaultyFiles) -> None:
        registers = await opened(files)
        with pytest.raises(AgreementError, match="at most 65536 bytes"):
            await registers.put_if("k", 0, bytes(65_537))
        with pytest.raises(AgreementError, match="1024 characters"):
            await registers.put_if("k" * 1_025, 0, b"")
        big = await registers.put_if("big", 0, bytes(65_536))
        assert big
        with pytest.raises(AgreementError, match="70000 bytes"):
            await registers.put_if("k", 0, bytes(5_000))
        for i in range(4):
            assert await registers.put_if(f"k{i}", 0, b"")
        with pytest.raises(AgreementError, match="at most 5 records"):
            await registers.put_if("k9", 0, b"")
        assert await registers.put_if("big", big, b"")
        await registers.close()

    on_files(scenario)


def test_a_thousand_records_are_written_in_time() -> None:
    table = {f"roquette/c/broker-{i}": Stored(i, bytes(4_000)) for i in range(1_000)}
    data = encode_registers(table, 1_000)
    assert controller.decode_registers("f", data) == (table, 1_000)


# Through name servers

NS, OTHER, CLIENT = "10.0.0.1", "10.0.0.2", "10.0.2.1"


async def agreement(cluster: SimCluster, *ips: str) -> RemoteAgreement:
    client = RemotingClient(cluster.clock, local_host=CLIENT)
    return RemoteAgreement(client, [f"{ip}:9876" for ip in ips])


def test_brokers_ask_a_name_server_that_is_killed_and_restarted() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NS, controller="embedded")
        asked = await agreement(cluster, NS)
        revision = 0
        for life in range(5):
            value = b"%d" % life
            revision = await asked.put_if(KEY, revision, value) or 0
            assert revision and await asked.put_if(KEY, revision - 1, b"?") is None
            assert await asked.get(KEY) == Stored(revision, value)
            cluster.kill(NS, power_loss=life % 2 == 1)
            await asyncio.sleep(0.5)
            with pytest.raises(AgreementError):
                await asked.get(KEY)
            await cluster.restart(NS)
            assert await asked.get(KEY) == Stored(revision, value)
        cluster.partition(NS, CLIENT)
        with pytest.raises(AgreementError):
            await asked.put_if(KEY, revision, b"unknown")
        cluster.heal()
        await asyncio.sleep(5)
        found = await asked.get(KEY)
        assert found == Stored(revision + 1, b"unknown")  # it had arrived: hence "unknown"

    simulate(scenario)


@pytest.mark.promise(
    "Groups of brokers",
    "embedded: survives kill -9 and loss of power, refuses to be one of two truths, and an earlier content",
)
def test_who_keeps_no_records_or_keeps_them_alone_says_so() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NS)
        await cluster.add_namesrv(OTHER, controller="embedded")
        with pytest.raises(AgreementError, match="--controller"):
            await (await agreement(cluster, NS)).get(KEY)
        both = await agreement(cluster, "10.0.0.9", NS, OTHER)  # two files would be two truths
        with pytest.raises(AgreementError, match="must name it alone"):
            await both.get(KEY)
        for _ in range(3):
            with pytest.raises(AgreementError):
                await both.put_if(KEY, 0, b"v")
        asked = await agreement(cluster, OTHER)
        assert await asked.get(KEY) == Stored(0, b"")
        assert await asked.put_if(KEY, 0, b"v") == 1

    simulate(scenario)


def test_two_name_servers_do_not_share_a_file(tmp_path: Any) -> None:
    async def scenario(files: FaultyFiles) -> None:
        registers = await opened(files)
        with pytest.raises(ConfigError, match="another controllerStorePath"):
            await opened(files)
        await registers.close()

    on_files(scenario)


def test_a_wrong_controller_is_refused_at_the_start() -> None:
    async def scenario(cluster: SimCluster) -> None:
        with pytest.raises(ConfigError, match="controller='raft'"):
            await cluster.add_namesrv(NS, controller="raft")

    simulate(scenario)
