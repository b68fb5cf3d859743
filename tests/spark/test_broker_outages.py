"""Real brokers that are killed, stay away or refuse for a while, under running Spark jobs: sink and source."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t
from tests.interop.peers import Server, call, start_broker, start_namesrv
from tests.real_servers import RawConnection, pull_fields

from roquette.base.javatypes import java_hash
from roquette.message.record import StoredRecord, decode_records
from roquette.spark import plain_message
from roquette.spark.datasource import RocketmqDataSource
from roquette.spark.writer import open_sender

pytestmark = [pytest.mark.spark, pytest.mark.crash]

WAIT_S = 60.0
IN_A_REQUEST = 20
MAKE_TOPIC, ROUTE, MAX_OFFSET, PULL = 17, 105, 30, 11


class Site:
    """A name server, and one broker that comes back on its store, at another port."""

    def __init__(self, flavour: str, folder: Path) -> None:
        self.flavour = flavour
        self.folder = folder
        self.namesrv = start_namesrv(flavour, folder / "namesrv")
        self.queues: dict[str, int] = {}
        self.broker: Server | None = None

    def start(self, **settings: str) -> None:
        """The broker, with other settings than before if need be."""
        folder = self.folder / "broker"
        self.broker = start_broker(self.flavour, folder, self.namesrv.address, settings=settings)

    def kill(self) -> None:
        """kill -9."""
        assert self.broker is not None
        self.broker.process.kill()
        self.broker = None

    def stop(self) -> None:
        """End all that runs."""
        if self.broker is not None:
            self.broker.process.kill()
        self.namesrv.discard()

    def ask(self, code: int, **fields: Any) -> dict[str, Any]:
        """The fields of a broker's answer."""
        assert self.broker is not None
        answer = call(self.broker.address, code, {k: str(v) for k, v in fields.items()})
        assert answer is not None and answer[0]["code"] == 0, answer
        found: dict[str, Any] = answer[0].get("extFields", {})
        return found

    def create(self, name: str, queues: int) -> str:
        """A new topic of which the name server knows; starts the broker if need be."""
        if self.broker is None:
            self.start()
        topic = f"{name}{len(self.queues)}"
        self.queues[topic] = queues
        self.ask(
            MAKE_TOPIC, topic=topic, defaultTopic="TBW102", readQueueNums=queues, writeQueueNums=queues,
            perm=6, topicFilterType="SINGLE_TAG", topicSysFlag=0, order="false",
        )  # fmt: skip
        end = time.monotonic() + WAIT_S
        while (found := call(self.namesrv.address, ROUTE, {"topic": topic})) is None or found[0][
            "code"
        ]:
            assert time.monotonic() < end, topic
            time.sleep(0.05)
        return topic

    def count(self, topic: str) -> int:
        """Messages stored."""
        queues = range(self.queues[topic])
        return sum(int(self.ask(MAX_OFFSET, topic=topic, queueId=n)["offset"]) for n in queues)

    def records(self, topic: str) -> dict[int, list[StoredRecord]]:
        """All messages by queue, in order, over raw frames."""
        assert self.broker is not None
        host, _, port = self.broker.address.rpartition(":")
        found: dict[int, list[StoredRecord]] = {}
        with RawConnection((host, int(port)), 20.0) as connection:
            for queue in range(self.queues[topic]):
                end = int(self.ask(MAX_OFFSET, topic=topic, queueId=queue)["offset"])
                lane = found[queue] = []
                while len(lane) < end:
                    head, data = connection.call(PULL, pull_fields(topic, queue, len(lane)))
                    assert head["code"] == 0, (queue, len(lane), end, head)
                    lane += decode_records(data, check_crc=True)
        return found


@pytest.fixture(scope="module")
def roquette(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site("roquette", tmp_path_factory.mktemp("roquette"))
    yield site
    site.stop()


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site("apache", tmp_path_factory.mktemp("apache"))
    yield site
    site.stop()


class Job:
    """Something that runs while the broker has its troubles."""

    def __init__(self, work: Callable[[], None]) -> None:
        pool = ThreadPoolExecutor(1)
        self._result = pool.submit(work)
        pool.shutdown(wait=False)

    @property
    def running(self) -> bool:
        """Has it not ended?"""
        return not self._result.done()

    def end(self) -> BaseException | None:
        """Wait for it; how it failed, if it did."""
        return self._result.exception(2 * WAIT_S)


def write(spark: Any, site: Site, topic: str, count: int, **options: str) -> Job:
    """A job of two tasks that sends numbered bodies of nine keys."""
    rows = spark.range(0, count, 1, 2).selectExpr(
        "concat(id, repeat('x', 200)) AS body", "concat('k', id % 9) AS key"
    )
    given = {"namesrvAddr": site.namesrv.address, "topic": topic}
    given |= {"sendBatchSize": str(IN_A_REQUEST)} | options
    writer = rows.write.format("rocketmq").options(**given).mode("append")
    return Job(writer.save)


def number_of(record: StoredRecord) -> int:
    return int(record.body.rstrip(b"x"))


def check_stored(site: Site, topic: str, count: int, *, twice: int) -> None:
    """Every message is there, at most so many twice; each key in its queue, in the order of its task."""
    found = site.records(topic)
    seen = Counter(number_of(record) for lane in found.values() for record in lane)
    assert sorted(seen) == list(range(count))
    assert seen.total() - count <= twice, seen.most_common(5)
    for queue, lane in found.items():
        once = list(dict.fromkeys(number_of(record) for record in lane))
        for key in {number % 9 for number in once}:
            assert queue == abs(java_hash(f"k{key}")) % len(found)
            for half in (range(count // 2), range(count // 2, count)):  # the two tasks
                own = [number for number in once if number % 9 == key and number in half]
                assert own == sorted(own)


def until_stored(site: Site, topic: str, count: int, job: Job) -> None:
    end = time.monotonic() + WAIT_S
    while site.count(topic) < count:
        assert job.running, str(job.end())[:4000]
        assert time.monotonic() < end, "the job sends nothing"
        time.sleep(0.01)


def check_kills(spark: Any, site: Site, kills: int, count: int, **options: str) -> None:
    """The broker dies while both tasks send, and comes back; the job ends well and nothing is missing."""
    topic = site.create("target", 4)
    job = write(spark, site, topic, count, **options)
    for n in range(kills):
        until_stored(site, topic, (n + 1) * count // (kills + 2), job)
        site.kill()
        time.sleep(0.5)
        assert job.running, str(job.end())[:4000]
        site.start()
    error = job.end()
    assert error is None, str(error)[:4000]
    check_stored(site, topic, count, twice=kills * 2 * 4 * IN_A_REQUEST)  # what flew of each queue


def check_away(spark: Any, site: Site) -> None:
    """The broker dies for longer than the deadline: one line. The same write again completes."""
    topic = site.create("away", 4)
    options = {"sendDeadlineMs": "2000", "deliveryGuarantee": "idempotent", "writeId": "w1"}
    job = write(spark, site, topic, 6000, rateLimit="1500", **options)
    until_stored(site, topic, 1000, job)
    site.kill()
    error = job.end()
    assert error is not None
    line = plain_message(error)
    assert line is not None and "\n" not in line, line
    assert line.startswith("rocketmq: ") and f"messages to {topic}" in line, line
    assert "not stored after" in line, line

    site.start()
    before = site.count(topic)
    assert 1000 <= before < 6000
    assert write(spark, site, topic, 6000, **options).end() is None
    found = [record for lane in site.records(topic).values() for record in lane]
    assert sorted({number_of(record) for record in found}) == list(range(6000))
    assert len(found) == before + 6000


def storm(site: Site) -> int:
    """One task's code alone, 32 requests in flight at a broker that takes one at a time: busy answers."""
    topic = site.create("busy", 4)
    schema = t.StructType([t.StructField("body", t.StringType())])
    given = {"namesrvAddr": site.namesrv.address, "topic": topic, "sendBatchSize": "1"}
    writer: Any = RocketmqDataSource(given).writer(schema, False)
    bodies = [f"{n}x" for n in range(600)]
    try:
        sent = writer._task.run(iter([pa.record_batch({"body": bodies})]), None)
    finally:
        open_sender.cache_clear()
    assert sent.rows == 600
    found = [number_of(record) for lane in site.records(topic).values() for record in lane]
    assert sorted(found) == list(range(600))
    assert sent.requests == 600 + sent.busy
    busy: int = sent.busy
    return busy


def check_storm(spark: Any, site: Site, **settings: str) -> None:
    """A broker that refuses most of what comes at once: all is stored, once, in order."""
    if site.broker is not None:
        site.kill()
    site.start(sendThreadPoolQueueCapacity="1", **settings)
    assert storm(site) > 100
    topic = site.create("storm", 16)
    error = write(spark, site, topic, 2000, sendBatchSize="2").end()
    assert error is None, str(error)[:4000]
    check_stored(site, topic, 2000, twice=0)
    site.kill()  # the next one starts it with its usual settings


def check_source(spark: Any, site: Site, folder: Path, kills: int) -> None:
    """A stream whose broker has no replica reads on when that is back, in the same query."""
    topic = site.create("origin", 4)
    assert write(spark, site, topic, 6000).end() is None
    given = {"namesrvAddr": site.namesrv.address, "subscribe": topic, "startingOffsets": "earliest"}
    given |= {"maxOffsetsPerTrigger": str(1800 // (kills + 1)), "pullBatchSize": "8"}
    given |= {"fetchOffset.numRetries": "600", "fetchOffset.retryIntervalMs": "100"}
    query = (
        spark.readStream.format("rocketmq")
        .options(**given)
        .schema("queue_id int, queue_offset long, body string")
        .load()
        .writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    for n in range(kills):
        end = time.monotonic() + WAIT_S
        while len(query.recentProgress) <= n:
            assert time.monotonic() < end, query.status
            time.sleep(0.02)
        site.kill()
        time.sleep(1.0)
        assert query.isActive
        site.start()
    assert query.awaitTermination(int(2 * WAIT_S)), query.status
    rows = spark.read.parquet(str(folder / "out")).collect()
    assert sorted(int(row.body.rstrip("x")) for row in rows) == list(range(6000))
    wanted = {
        (queue, record.queue_offset, record.body.decode())
        for queue, lane in site.records(topic).items()
        for record in lane
    }
    assert {(row.queue_id, row.queue_offset, row.body) for row in rows} == wanted


def test_a_broker_that_dies_under_the_sink_and_comes_back(spark: Any, roquette: Site) -> None:
    check_kills(spark, roquette, 1, 6000, rateLimit="2000")


def test_a_broker_that_stays_away_is_one_line(spark: Any, roquette: Site) -> None:
    check_away(spark, roquette)


def test_busy_answers_are_no_success(spark: Any, roquette: Site) -> None:
    check_storm(spark, roquette)


def test_a_broker_that_dies_under_the_source_and_comes_back(
    spark: Any, roquette: Site, tmp_path: Path
) -> None:
    check_source(spark, roquette, tmp_path, 1)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_twenty_kills_of_the_broker_under_the_sink(spark: Any, roquette: Site) -> None:
    check_kills(spark, roquette, 20, 120_000, rateLimit="1500")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_ten_kills_of_the_broker_under_the_source(
    spark: Any, roquette: Site, tmp_path: Path
) -> None:
    check_source(spark, roquette, tmp_path, 10)


@pytest.mark.long
@pytest.mark.interop
@pytest.mark.timeout(600)
def test_apaches_broker_in_the_same_troubles(spark: Any, apache: Site, tmp_path: Path) -> None:
    check_kills(spark, apache, 2, 20_000, rateLimit="1000")
    check_away(spark, apache)
    check_source(spark, apache, tmp_path, 2)
    check_storm(spark, apache, sendMessageThreadPoolNums="1")
