"""Spark reads stores of real brokers, ours and Apache's, once the brokers are gone: the rows a broker gave, and no more."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.interop.peers import Server, call, start_broker, start_namesrv
from tests.spark.commitlog.test_source import damage, write_store
from tests.spark.places import Place
from tests.spark.test_servers import body_of, produce

pytestmark = pytest.mark.spark

# The columns both sources know of a message. A broker knows its name and whether a store is its own.
SAME = (
    *("topic", "queue_id", "queue_offset", "msg_id", "uniq_key", "key", "keys", "tags", "body"),
    *("properties", "born_timestamp", "store_timestamp", "born_host", "store_host", "flag"),
    *("sys_flag", "body_crc", "reconsume_times", "commit_log_offset", "store_size", "message_type"),
)


def offline(spark: Any, path: Path | str, **options: str) -> Any:
    return spark.read.format("rocketmq_commitlog").options(**options).load(str(path))


def test_a_store_is_a_table(spark: Any, tmp_path: Path) -> None:
    parts = write_store(tmp_path, [20, 21, 7])

    frame = offline(spark, tmp_path, splitBytes="2k", brokerName="broker-a")

    rows = frame.orderBy("queue_offset").collect()
    assert [row.body for row in rows] == [part["body"] for part in parts]
    assert {row.broker_name for row in rows} == {"broker-a"}
    narrow = spark.read.schema("body string, tags string").format("rocketmq_commitlog")
    assert narrow.load(f"file://{tmp_path}").where("tags = 'B'").count() == 24


def test_sql_reads_a_store_and_its_damage(spark: Any, tmp_path: Path) -> None:
    write_store(tmp_path, [20, 7])
    damage(tmp_path, 300)
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW store USING rocketmq_commitlog "
        f"OPTIONS (path '{tmp_path}', failOnCorruptRecord 'false', columns 'topic,queue_offset')"
    )

    assert spark.sql("SELECT count(*), max(queue_offset) FROM store").first() == (26, 26)
    stretches = offline(spark, tmp_path, rows="stretches").orderBy("physical_offset").collect()
    assert [row.kind for row in stretches] == ["damaged", "blank", "empty"]
    with pytest.raises(Exception, match=r"is damaged at physical offset \d+, \d+ bytes"):
        offline(spark, tmp_path).count()


def make_store(flavour: str, folder: Path) -> tuple[str, Server, Server]:
    """A running broker with a topic of 1,500 messages; the path of its store."""
    namesrv = start_namesrv(flavour, folder / "namesrv")
    try:
        settings = {"mappedFileSizeCommitLog": str(128 << 10)}  # some segments, with blanks between
        broker = start_broker(flavour, folder / "broker", namesrv.address, settings=settings)
    except BaseException:
        namesrv.discard()
        raise
    return str(folder / "broker" / ("store" if flavour == "apache" else "s")), namesrv, broker


def check_same_rows(spark: Any, flavour: str, folder: Path) -> None:
    """A topic by way of its broker and, when that is gone, from its files."""
    path, namesrv, broker = make_store(flavour, folder)
    try:
        sent = produce(namesrv.address, "offline", range(1500))
        given = {"namesrvAddr": namesrv.address, "subscribe": "offline"}
        rows = spark.read.format("rocketmq").options(**given).load().select(*SAME).collect()
        live = offline(spark, path, subscribe="offline").count()  # the broker still writes here
    finally:
        broker.stop()
        namesrv.discard()
    found = offline(spark, path, subscribe="offline", splitBytes="300k").select(*SAME).collect()

    assert live == len(rows) == len(found) == 1500
    assert sorted(found, key=place) == sorted(rows, key=place)
    assert {place(row): row.body.decode() for row in found} == {
        at: body_of(number) for at, number in sent.items()
    }
    kinds = {row.kind for row in offline(spark, path, rows="stretches").collect()}
    assert kinds == {"blank", "empty"}


def place(row: Any) -> tuple[int, int]:
    return row.queue_id, row.queue_offset


def test_a_store_of_ours_has_the_rows_its_broker_gave(spark: Any, tmp_path: Path) -> None:
    check_same_rows(spark, "roquette", tmp_path)


@pytest.mark.interop
def test_a_store_of_apaches_has_the_rows_its_broker_gave(spark: Any, tmp_path: Path) -> None:
    check_same_rows(spark, "apache", tmp_path)


def check_offsets(spark: Any, servers: Place) -> None:
    """Ends of queues, and the place of a group that has consumed a part."""
    sent = produce(servers.address, "offsets", range(400))
    ends = {queue: max(o for q, o in sent if q == queue) + 1 for queue, _ in sent}
    servers.settle("offsets", 400)
    consumed = consume_half(servers.broker.address, "offsets", "readers", ends)
    given = {"namesrvAddr": servers.address, "subscribe": "offsets"}
    frame = spark.read.format("rocketmq_offsets").options(group="*", **given).load()
    rows = frame.orderBy("queue_id", "group").collect()
    queues = {row.queue_id: row for row in rows if row.group is None}
    assert {q: (r.min_offset, r.max_offset) for q, r in queues.items() if q in ends} == {
        q: (0, high) for q, high in ends.items()
    }
    assert all(row.last_store_timestamp is not None for q, row in queues.items() if q in ends)
    group = [row for row in rows if row.group == "readers"]
    assert len(group) == len(queues)
    assert sum(row.lag for row in group) == 400 - consumed
    assert sum(row.committed_offset or 0 for row in group) == consumed
    assert any(row.last_consume_timestamp for row in group)
    assert {(row.broker_name, row.cluster) for row in rows} == {("broker-a", "DefaultCluster")}


def consume_half(address: str, topic: str, group: str, ends: dict[int, int]) -> int:
    """Commit a place in the middle of each queue, as a consumer would; the messages before these places."""
    made = call(address, 200, body=json.dumps({"groupName": group}).encode())
    assert made is not None
    assert made[0]["code"] == 0, made
    for queue, high in ends.items():
        fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue)}
        answer = call(address, 15, fields | {"commitOffset": str(high // 2)})
        assert answer is not None
        assert answer[0]["code"] == 0, answer
    return sum(high // 2 for high in ends.values())


def test_offsets_of_our_broker(spark: Any, roquette: Place) -> None:
    check_offsets(spark, roquette)


@pytest.mark.interop
def test_offsets_of_apaches_broker(spark: Any, apache: Place) -> None:
    check_offsets(spark, apache)
