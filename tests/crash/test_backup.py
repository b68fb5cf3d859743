"""Backups of a real broker's store while it is written and read: each is sound and holds what was acknowledged before."""

import copy
import random
from pathlib import Path

import pytest
from tests.bad_input.neighbour import wait_until
from tests.crash.test_kill_9 import QUEUES, SENDERS, TOPIC, Books, Sender, check
from tests.real_servers import RawConnection, broker_arguments, server
from typer.testing import CliRunner

from roquette.apps.main import app

pytestmark = pytest.mark.crash

GROUP = "auditor"
SETTINGS = {
    "mappedFileSizeCommitLog": 1 << 18,
    "mappedFileSizeConsumeQueue": 2000,
    "flushConsumerOffsetInterval": 100,
}
TOPIC_FIELDS = {
    "topic": TOPIC,
    "defaultTopic": "TBW102",
    "readQueueNums": QUEUES,
    "writeQueueNums": QUEUES,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": "false",
}


def roquette(*words: object) -> str:
    """What a command that must go well prints."""
    found = CliRunner().invoke(app, [str(word) for word in words])
    assert found.exit_code == 0, found.output
    return found.output


def commit_what_is_there(connection: RawConnection, queue: int) -> int:
    """A consumer has taken all of a queue so far; the offset that is committed."""
    head, _ = connection.call(30, {"topic": TOPIC, "queueId": queue})
    end = int(head["extFields"]["offset"])
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": queue, "commitOffset": end}
    assert connection.call(15, fields)[0]["code"] == 0
    return end


def check_restored(store: Path, books: Books, committed: list[int]) -> None:
    """A broker on a restored store has all promises, and offsets that are no older than `committed` nor ahead."""
    with (
        server(broker_arguments(store, SETTINGS)) as broker,
        RawConnection(broker.address) as connection,
    ):
        check(connection, books, full=True)
        for queue in range(QUEUES):
            asked = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": queue}
            offset = int(connection.call(14, asked)[0]["extFields"]["offset"])
            assert committed[queue] <= offset <= len(books.seen[queue])


@pytest.mark.parametrize("how", [[], ["--copy"]], ids=["linked", "copied"])
def test_a_backup_under_load_is_a_store_with_all_that_was_acknowledged(
    tmp_path: Path, how: list[str]
) -> None:
    store, backup, books = tmp_path / "store", tmp_path / "backup", Books()
    with server(broker_arguments(store, SETTINGS)) as broker:
        with RawConnection(broker.address) as connection:
            assert connection.call(17, TOPIC_FIELDS)[0]["code"] == 0
            assert connection.call(200, {}, b'{"groupName":"auditor"}')[0]["code"] == 0
            senders = [
                Sender(broker.address, books, f"s{n}", n % QUEUES, random.Random(n))
                for n in range(SENDERS)
            ]
            for sender in senders:
                sender.start()
            wait_until(lambda: len(list((store / "commitlog").iterdir())) > 4)
            committed = [commit_what_is_there(connection, queue) for queue in range(QUEUES)]
            with books.lock:
                before = copy.deepcopy(books.promised)
            said = roquette("broker", "backup", store, "--to", backup, *how)
            assert "sound" in said
            assert (" 0 of them linked" in said) == bool(how)
            with books.lock:
                assert sum(map(len, books.promised)) > sum(
                    map(len, before)
                )  # it was written meanwhile
        broker.child.kill()
        for sender in senders:
            sender.join(60)
            assert sender.failure is None, sender.failure
    files = {path: path.read_bytes() for path in sorted(backup.rglob("*")) if path.is_file()}
    for name in ("first", "second"):
        assert "sound" in roquette("broker", "restore-backup", backup, "--to", tmp_path / name)
        kept = Books()
        kept.promised = copy.deepcopy(before)
        check_restored(tmp_path / name, kept, committed)
    assert files == {
        path: path.read_bytes() for path in sorted(backup.rglob("*")) if path.is_file()
    }
    with (  # nor was the store harmed
        server(broker_arguments(store, SETTINGS)) as broker,
        RawConnection(broker.address) as connection,
    ):
        check(connection, books, full=True)
