"""The broker as a whole: failing disks acknowledge nothing, ports, roles."""

import asyncio
import contextlib
import gc
import os
import threading

import pytest

from roquette.apps.features import broker_features, replica_features
from roquette.base import os_file
from roquette.base.clock import LoopClock
from roquette.base.entropy import Entropy
from roquette.base.files import OsFile, OsFiles
from roquette.broker.floor.config import BrokerConfig
from roquette.broker.floor.outbound import advertised_host, store_host
from roquette.broker.service import Broker
from roquette.errors import ConfigError
from roquette.message.message_id import host_bytes
from roquette.store.format.config import FlushDiskType, StoreConfig
from roquette_testing.sim_loop import run


class FailingFile(OsFile):
    fail: dict[str, int] = {}

    def pwrite(self, data, position):
        if self.fail.get("write") and "commitlog" in self.path:
            raise OSError(5, "Input/output error")
        super().pwrite(data, position)

    def sync(self):
        if self.fail.get("sync") and "commitlog" in self.path:
            raise OSError(5, "Input/output error")
        self.fail["syncs"] = self.fail.get("syncs", 0) + 1
        super().sync()


class FailingFiles(OsFiles):
    """A disk that fails when told."""

    def __init__(self):
        super().__init__()
        self.fail = {}

    def open_file(self, path, size=None, create=False, private=False):
        import os

        file = super().open_file(path, size, create, private)
        failing = FailingFile(path, os.dup(file._fd))
        failing.fail = self.fail
        file.close()
        return failing


def test_a_failed_sync_acknowledges_nothing_and_ends_the_broker(run_broker):
    files = FailingFiles()

    async def scenario(case):
        client = await case.client()
        await client.produce()
        files.fail["sync"] = True
        lost = await client.produce()
        after = await client.produce()

        assert (lost.code, after.code) == (14, 14)
        assert "syncing the commit log failed" in await case.broker.wait_failed()
        files.fail.clear()

    run_broker(scenario, store={"flush_disk_type": FlushDiskType.SYNC_FLUSH}, files=files)


def test_a_failed_write_drops_the_connection_with_its_unsent_answers(run_broker):
    files = FailingFiles()

    async def scenario(case):
        client = await case.client()
        await client.produce()
        files.fail["write"] = True
        client.send(310, case.send_ext(), b"x")
        with contextlib.suppress(ConnectionError):
            assert await client.reader.read(100) == b""

        assert "writing the commit log failed" in await case.broker.wait_failed()
        files.fail.clear()

    run_broker(scenario, files=files)


def test_a_sync_that_fails_in_the_kernel_ends_the_broker_too(run_broker, monkeypatch):
    def failing(fd, ended):
        asyncio.get_running_loop().call_soon(ended, OSError(5, "Input/output error"))
        return True

    async def scenario(case):
        client = await case.client()
        await client.produce()
        monkeypatch.setattr("roquette.broker.floor.log_sync.sync_file", failing)
        lost = await client.produce()

        assert lost.code == 14
        assert "Input/output error" in await case.broker.wait_failed()

    run_broker(scenario, store={"flush_disk_type": FlushDiskType.SYNC_FLUSH})


def test_a_sync_of_any_file_that_fails_ends_the_broker(run_broker, monkeypatch):
    def failing(fd):
        if "config" in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(5, "Input/output error")

    async def scenario(case):
        monkeypatch.setattr(os_file, "sync_data", failing)
        monkeypatch.setattr(os, "fsync", failing)
        client = await case.client()
        await client.produce("Fresh")  # topics.json is written

        assert "Input/output error" in await case.broker.wait_failed()
        assert (await client.produce("Fresh")).code == 14

    run_broker(scenario)


def test_a_sync_that_takes_too_long_answers_flush_disk_timeout(run_broker, monkeypatch):
    running = []

    def slow(fd, ended):
        running.append(ended)
        return True

    async def scenario(case):
        client = await case.client()
        await client.produce()
        monkeypatch.setattr("roquette.broker.floor.log_sync.sync_file", slow)
        started = case.loop.time()
        reply = await client.produce()

        assert reply.code == 10
        assert case.ext(reply)["queueOffset"] == "1"
        assert 0.9 < case.loop.time() - started < 1.3
        (ended,) = running
        ended(None)

    run_broker(
        scenario,
        store={"flush_disk_type": FlushDiskType.SYNC_FLUSH, "sync_flush_timeout_ms": 1000},
    )


def test_many_synchronous_sends_share_syncs(run_broker):
    files = FailingFiles()

    async def scenario(case):
        client = await case.client()
        await client.produce()
        before = files.fail.get("syncs", 0)
        opaques = [client.send(310, case.send_ext(), b"x") for _ in range(200)]
        replies = [await client.receive() for _ in opaques]

        assert {r.code for r in replies} == {0}
        assert 1 <= files.fail["syncs"] - before < 20

    run_broker(scenario, store={"flush_disk_type": FlushDiskType.SYNC_FLUSH}, files=files)


def test_port_0_takes_free_ports_two_apart(run_broker):
    async def scenario(case):
        assert case.broker.core.address.port > 0
        assert case.broker.core.address.fast_port == case.broker.core.address.port - 2
        client = await case.client(case.broker.core.address.port)
        assert (await client.produce()).code == 0

    run_broker(scenario, broker={"listen_port": 0})


def test_a_free_port_is_nobody_elses_until_it_is_opened(run_broker):
    refused = []

    def features(core):
        found = broker_features(core)
        own = found[0].prepare

        async def prepare():
            await own()
            for near in (-2, 0, 1):
                with pytest.raises(OSError):
                    await asyncio.get_running_loop().create_server(
                        asyncio.Protocol, "10.0.0.1", core.address.port + near
                    )
                refused.append(near)

        found[0].prepare = prepare
        return found

    async def scenario(case):
        assert refused == [-2, 0, 1]
        assert (await (await case.client(case.broker.core.address.port)).produce()).code == 0

    run_broker(scenario, broker={"listen_port": 0}, features=features)


def test_a_taken_port_is_said_in_words(run_broker):
    async def scenario(case):
        await asyncio.get_running_loop().create_server(asyncio.Protocol, "10.0.0.1", 20911)

        other = Broker(
            BrokerConfig(broker_name="b", bind_address="10.0.0.1", listen_port=20911),
            type(case.broker.live.store)(root_dir=case.broker.live.store.root_dir + "2"),
            broker_features,
            files=OsFiles(),
            clock=case.clock,
            entropy=case.broker.core.entropy,
        )
        with pytest.raises(ConfigError, match="cannot listen on 10\\.0\\.0\\.1:20911"):
            await other.start()

    run_broker(scenario)


def failing(step, place, features):
    """Those features, of which one raises at one of its steps."""

    def make(core):
        found = features(core)
        name = type(found[place]).__name__

        def fail(*_):
            raise ConfigError(f"{name} does not {step}")

        setattr(found[place], step, fail)
        return found

    return make


@pytest.mark.parametrize("step", ["rows", "load", "prepare", "start"])
@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SLAVE"])
def test_a_failed_start_leaves_nothing_open(tmp_path, role, step):
    """Whichever feature fails, and where: the next one has the store, the ports, and knows what the one before has found."""
    slave = role == "SLAVE"
    features = replica_features if slave else broker_features
    config = BrokerConfig(broker_name="b", bind_address="10.0.0.1", listen_port=20911, broker_role=role, broker_id=int(slave), metrics_listen="10.0.0.1:5557")  # fmt: skip
    store = StoreConfig(root_dir=str(tmp_path), segment_size=1 << 20, queue_file_size=20_000, max_hash_slots=100, max_index_entries=1000, timer_log_file_size=1 << 16)  # fmt: skip

    async def main(loop):
        def broker(make):
            clock = LoopClock(loop)
            return Broker(config, store, make, files=OsFiles(), clock=clock, entropy=Entropy(1))

        def held():
            gc.collect()
            tasks = [task.get_name() for task in asyncio.all_tasks()]
            return tasks, threading.enumerate(), len(os.listdir("/proc/self/fd"))

        killed = broker(features)
        await killed.start()
        count = len(killed._features)
        await killed.abandon()
        before = held()
        for place in range(count):
            with pytest.raises(ConfigError, match=f"does not {step}"):
                await broker(failing(step, place, features)).start()
            await asyncio.sleep(0)
            assert held() == before, place
        last = broker(features)
        await last.start()
        assert last.opened.abnormal
        await last.stop()

    run(main, 1)


def test_what_cannot_be_advertised_is_refused():
    with pytest.raises(ConfigError, match="brokerIP1 is not set"):
        advertised_host(BrokerConfig())
    with pytest.raises(ConfigError, match="is no IP address, and has none"):
        asyncio.run(store_host("a" * 300, 10911))


def test_what_records_carry_of_a_name_is_its_address():
    assert asyncio.run(store_host("localhost", 10911)) == host_bytes("127.0.0.1", 10911)
    assert asyncio.run(store_host("[::1]", 10911)) == host_bytes("::1", 10911)


def test_the_same_seed_gives_the_same_run(run_broker, tmp_path):
    async def scenario(case):
        client = await case.client()
        for _ in range(20):
            await client.produce(e=-1)
        await asyncio.sleep(3)

    first = run_broker(scenario, store={"root_dir": str(tmp_path / "a")}).fingerprint()
    second = run_broker(scenario, store={"root_dir": str(tmp_path / "b")}).fingerprint()

    assert first == second
