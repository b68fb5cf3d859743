"""The offsets file of a broadcasting consumer, and the order of commits."""

from pathlib import Path

from roquette.base.files import OsFiles
from roquette.client.core.process_queue import LocalOffsetFile, two_waves
from roquette.message.message import MessageQueue

QUEUE = MessageQueue("t", "broker-a", 3)


def store(root: Path) -> LocalOffsetFile:
    return LocalOffsetFile(OsFiles(), str(root), "10.0.0.1@7", "g")


def test_offsets_survive_a_restart(tmp_path: Path) -> None:
    assert store(tmp_path).load() == {}
    store(tmp_path).save({QUEUE: 17})

    assert store(tmp_path).load() == {QUEUE: 17}
    assert (tmp_path / "10.0.0.1@7" / "g" / "offsets.json").exists()


def test_the_file_is_byte_for_byte_what_javas_client_writes(tmp_path: Path) -> None:
    store(tmp_path).save({QUEUE: 42})

    # OffsetSerializeWrapper.toJson(true) of rocketmq-client 5.5.0 printed this.
    assert (tmp_path / "10.0.0.1@7" / "g" / "offsets.json").read_text() == (
        '{\n\t"offsetTable":{\n\t\t{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":3,\n'
        '\t\t\t"topic":"t"\n\t\t}:42\n\t}\n}'
    )


def test_a_file_javas_client_wrote_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "10.0.0.1@7" / "g"
    folder.mkdir(parents=True)
    (folder / "offsets.json").write_text(
        '{\n\t"offsetTable":{{\n\t\t\t"topic":"t",\n\t\t\t"brokerName":"broker-a",\n\t\t\t'
        '"queueId":3\n\t\t}:42\n\t}\n}'
    )

    assert store(tmp_path).load() == {QUEUE: 42}


def test_a_torn_file_gives_way_to_the_backup(tmp_path: Path) -> None:
    store(tmp_path).save({QUEUE: 1})
    store(tmp_path).save({QUEUE: 2})
    path = tmp_path / "10.0.0.1@7" / "g" / "offsets.json"
    path.write_bytes(path.read_bytes()[:20])

    assert store(tmp_path).load() == {QUEUE: 1}


def test_one_queue_of_each_topic_at_each_broker_is_committed_before_the_others() -> None:
    queues = [MessageQueue(t, b, n) for t in ("t", "u") for b in ("a", "b") for n in range(3)]

    first, rest = two_waves(queues)

    assert {(q.topic, q.broker_name) for q in first} == {(q.topic, q.broker_name) for q in queues}
    assert len(first) == 4
    assert set(first) | set(rest) == set(queues)
    assert len(first) + len(rest) == len(queues)
    assert two_waves([]) == ([], [])
