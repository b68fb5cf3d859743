"""A real broker on a real full disk of 40 MiB: the right words, no crash, nothing corrupted, back by itself."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from tests.real_servers import (
    RawConnection,
    ServerProcess,
    broker_arguments,
    pull_fields,
    send_fields,
    server,
)
from tests.small_disk import on_small_disk, seen_by

from roquette.errors import BrokerError
from roquette.message.record import decode_records
from roquette.sync import Client

pytestmark = pytest.mark.crash

SETTINGS = {
    "cleanFileForciblyEnable": "false",
    "deleteWhen": "",
    "cleanResourceInterval": 2000,
    "flushConsumeQueueThoroughInterval": 2000,  # what is not synced is not deleted
}
TOPIC = "orders"


def grow(ballast: Path, share: float) -> None:
    """Fill the disk from outside until so much of it is used; 1.0 leaves not a byte."""
    usage = os.statvfs(ballast.parent)
    total = usage.f_blocks * usage.f_frsize
    wanted = int(total * share) - (total - usage.f_bavail * usage.f_frsize)
    with ballast.open("ab", buffering=0) as file:
        try:
            while wanted > 0:
                wanted -= file.write(b"b" * min(wanted, 4096))
        except OSError:
            assert share == 1.0
        if share == 1.0:
            try:
                while True:
                    file.write(b"b" * 4096)
            except OSError:
                pass


def wait_for(check, seconds: float) -> float:
    """How long it took until `check` said yes."""
    began = time.monotonic()
    while not check():
        assert time.monotonic() - began < seconds, "not in time"
        time.sleep(0.2)
    return time.monotonic() - began


def send(connection: RawConnection, body: bytes) -> dict:
    return connection.call(310, send_fields(TOPIC), body)[0]


def commit(connection: RawConnection, offset: int) -> None:
    fields = {"consumerGroup": "auditor", "topic": TOPIC, "queueId": 0, "commitOffset": offset}
    assert connection.call(15, fields)[0]["code"] == 0


def read_all(connection: RawConnection) -> list[bytes]:
    found: list[bytes] = []
    while True:
        head, body = connection.call(11, pull_fields(TOPIC, 0, len(found)))
        if head["code"] != 0:
            return found
        found += [record.body for record in decode_records(body, check_crc=True)]


def flood(connection: RawConnection, sent: list[bytes]) -> str:
    """Send until it is refused; returns the words."""
    for number in range(10_000):
        body = b"%d-" % number + os.urandom(60_000)
        head = send(connection, body)
        if head["code"] != 0:
            assert head["code"] == 14
            return head["remark"]
        sent.append(body)
    raise AssertionError("the disk never filled")


def test_a_full_disk_stops_senders_only_and_the_broker_comes_back(tmp_path: Path) -> None:
    store = tmp_path / "store"
    prefix = on_small_disk("40m", store)
    with (
        server(
            ["namesrv", "--listen", "127.0.0.1:0", "--set", f"kvConfigPath={tmp_path}/kv"]
        ) as names,
        server(
            [*broker_arguments(store, SETTINGS), "--namesrv", "{}:{}".format(*names.address)],
            prefix,
        ) as broker,
    ):
        inside = seen_by(broker.child.pid, store)
        ballast = inside / "ballast"
        sent: list[bytes] = []
        with (
            RawConnection(broker.address) as connection,
            Client("{}:{}".format(*names.address)) as client,
        ):
            body = b"first"
            assert send(connection, body)["code"] == 0
            sent.append(body)
            connection.call(11, pull_fields(TOPIC, 0, 0))  # makes the group known
            commit(connection, 1)

            grow(ballast, 0.93)
            wait_for(lambda: send(connection, b"")["code"] == 14, 60)
            with pytest.raises(BrokerError) as refused:
                client.send(TOPIC, b"refused")
            for part in (
                f"the disk of {store}/commitlog is 9",
                "% full",
                "diskSpaceWarningLevelRatio",
            ):
                assert part in str(refused.value)

            ballast.unlink()
            wait_for(lambda: send(connection, b"")["code"] != 14, 60)
            words = flood(
                connection, sent
            )  # faster than anybody looks: files cannot be made any more
            assert "the disk of" in words
            assert "no space for another file" in words or "% full" in words

            grow(ballast, 1.0)
            commit(connection, len(sent))
            offsets = inside / "config" / "consumerOffset.json"
            wait_for(
                lambda: (
                    offsets.exists() and f"{{0:{len(sent)}" in "".join(offsets.read_text().split())
                ),
                60,
            )
            assert read_all(connection) == sent
            assert send(connection, b"x")["code"] == 14
            assert broker.child.poll() is None

            os.kill(broker.child.pid, signal.SIGSTOP)  # the store of this moment: no byte was left
            os.waitid(os.P_PID, broker.child.pid, os.WSTOPPED)
            shutil.copytree(inside, tmp_path / "copy", ignore=shutil.ignore_patterns("ballast"))
            os.kill(broker.child.pid, signal.SIGCONT)

            ballast.unlink()
            commitlog = sorted((inside / "commitlog").iterdir())
            assert len(commitlog) > 5
            # Enough of it cannot come from outside: an operator lowers what is kept.
            connection.call(25, {}, b"fileReservedBytes=1000000\ncleanFileForciblyEnable=true\n")
            took = wait_for(lambda: send(connection, b"after")["code"] == 0, 80)
            print(f"taken again after {took:.1f} s")
            assert broker.child.poll() is None
            assert not [line for line in broker.lines if "Traceback" in line]

    with (
        server(broker_arguments(tmp_path / "copy", SETTINGS)) as again,
        RawConnection(again.address) as connection,
    ):
        assert read_all(connection) == sent
        fields = {"consumerGroup": "auditor", "topic": TOPIC, "queueId": 0}
        head, _ = connection.call(14, fields)
        assert head["extFields"]["offset"] == str(len(sent))


def test_a_file_size_limit_is_a_full_disk_too(tmp_path: Path) -> None:
    """RLIMIT_FSIZE: every file beyond it fails with EFBIG, whoever writes it."""
    prefix = ["sh", "-c", 'ulimit -f 200; exec "$@"', "sh"]  # 100 or 200 KiB, as the shell counts
    process = ServerProcess(
        broker_arguments(tmp_path / "store", {"timerWheelEnable": "false"}), prefix
    )
    try:
        process.wait_ready()
        with RawConnection(process.address) as connection:
            head = send(connection, b"x")
            assert head["code"] == 14
            assert "File too large" in head["remark"]
        assert process.child.poll() is None
    finally:
        process.end()


def test_a_file_that_cannot_be_written_is_reported_and_tried_again(tmp_path: Path) -> None:
    """Real clock and real files: something stands where the temporary file should go."""
    store = tmp_path / "store"
    offsets = store / "config" / "consumerOffset.json"
    obstacle = store / "config" / "consumerOffset.json.tmp"

    def on_disk(offset: int) -> bool:
        return offsets.exists() and f"{{0:{offset}" in "".join(offsets.read_text().split())

    def complaints() -> int:
        return sum("consumerOffset.json not written" in line for line in broker.lines)

    with (
        server(broker_arguments(store, {"flushConsumerOffsetInterval": 300})) as broker,
        RawConnection(broker.address) as connection,
    ):
        for _ in range(3):
            assert send(connection, b"x")["code"] == 0
        connection.call(11, pull_fields(TOPIC, 0, 0))
        commit(connection, 1)
        wait_for(lambda: on_disk(1), 60)
        obstacle.mkdir()
        commit(connection, 2)
        wait_for(lambda: complaints() >= 3, 60)
        assert on_disk(1), "the older content stays"
        obstacle.rmdir()
        wait_for(lambda: on_disk(2), 60)
        assert (offsets.with_name("consumerOffset.json.bak")).exists()
