"""Real brokers that are killed, stay away or refuse for a while, under the code of Spark's sink and source."""

import pickle
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
from tests.spark.places import stored

from roquette.base.javatypes import java_hash
from roquette.message.record_layout import StoredRecord
from roquette_spark import plain_message
from roquette_spark.datasource import RocketmqDataSource
from roquette_spark.sink import writer as writer_module
from roquette_spark.sink.writer import SentPartition
from roquette_spark.values.errors import plain_errors
from roquette_spark.workers.sender import BlockingSender

pytestmark = pytest.mark.spark

WAIT_S = 60.0
IN_A_REQUEST = 20
# An outage of a minute is no error.
PATIENT = {
    "fetchOffset.numRetries": "600",
    "fetchOffset.retryIntervalMs": "100",
    "pullBatchSize": "8",
    "batchRows": "100",
}
MAKE_TOPIC, ROUTE, MAX_OFFSET = 17, 105, 30


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

    def start_later(self) -> None:
        """The broker, after a second without one."""
        time.sleep(1.0)
        self.start()

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
        return stored(self.broker.address, topic, self.queues[topic])


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


class Context:
    """What a task knows of itself."""

    def __init__(self, partition: int) -> None:
        self._partition = partition

    def partitionId(self) -> int:
        return self._partition


class Hooks:
    """Runs the sink's and the source's code as Spark does, two tasks side by side, without a session."""

    def __init__(self, site: Site) -> None:
        self.site = site

    def write(self, topic: str, count: int, **options: str) -> Job:
        """Two tasks that send numbered bodies of nine keys."""
        schema = t.StructType([t.StructField(name, t.StringType()) for name in ("body", "key")])
        given = {"namesrvAddr": self.site.namesrv.address, "topic": topic}
        given |= {"sendBatchSize": str(IN_A_REQUEST)} | options
        made: Any = RocketmqDataSource(given).writer(schema, False)

        def task(partition: int) -> SentPartition:
            copy = pickle.loads(pickle.dumps(made))  # noqa: S301 - our own
            ids = range(count // 2) if partition == 0 else range(count // 2, count)
            batch = pa.record_batch(
                {"body": [f"{n}{'x' * 200}" for n in ids], "key": [f"k{n % 9}" for n in ids]}
            )
            batches = (batch.slice(start, 100) for start in range(0, len(ids), 100))
            with plain_errors():
                sent: SentPartition = copy._task.run(batches, Context(partition))
            return sent

        def work() -> None:
            with ThreadPoolExecutor(2) as pool:
                made.commit(list(pool.map(task, (0, 1))))

        return Job(work)

    def rows(self, topic: str, kills: int, batch: int) -> list[tuple[int, int, str]]:
        """All of a topic by micro-batches of some size; the broker dies within the first ones."""
        schema = t.StructType(
            [
                t.StructField("queue_id", t.IntegerType()),
                t.StructField("queue_offset", t.LongType()),
                t.StructField("body", t.StringType()),
            ]
        )
        given = {"namesrvAddr": self.site.namesrv.address, "subscribe": topic} | PATIENT
        given |= {"maxOffsetsPerTrigger": str(batch), "startingOffsets": "earliest"}
        reader: Any = RocketmqDataSource(given).streamReader(schema)
        found: list[tuple[int, int, str]] = []
        back: list[Job] = []
        start = reader.initialOffset()
        while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
            for part in reader.partitions(start, end):
                for records in reader.read(part):
                    columns = [column.to_pylist() for column in records.columns]
                    found += zip(*columns, strict=True)
                    if kills:
                        kills -= 1
                        self.site.kill()
                        back.append(Job(self.site.start_later))
            start = end
        assert [job.end() for job in back] == [None] * len(back)
        return found


class Session:
    """The same as jobs of a Spark session."""

    def __init__(self, spark: Any, site: Site, folder: Path) -> None:
        self.spark, self.site, self.folder = spark, site, folder

    def write(self, topic: str, count: int, **options: str) -> Job:
        """A job of two tasks that sends numbered bodies of nine keys."""
        rows = self.spark.range(0, count, 1, 2).selectExpr(
            "concat(id, repeat('x', 200)) AS body", "concat('k', id % 9) AS key"
        )
        given = {"namesrvAddr": self.site.namesrv.address, "topic": topic}
        given |= {"sendBatchSize": str(IN_A_REQUEST)} | options
        writer = rows.write.format("rocketmq").options(**given).mode("append")

        def work() -> None:
            # A thread of its own has no session, and Spark looks for data sources of Python in the active one.
            self.spark._jvm.SparkSession.setActiveSession(self.spark._jsparkSession)
            writer.save()

        return Job(work)

    def rows(self, topic: str, kills: int, batch: int) -> list[tuple[int, int, str]]:
        """All of a topic by one query; the broker dies within its first batches."""
        given = {"namesrvAddr": self.site.namesrv.address, "subscribe": topic} | PATIENT
        given |= {"maxOffsetsPerTrigger": str(batch), "startingOffsets": "earliest"}
        query = (
            self.spark.readStream.format("rocketmq")
            .options(**given)
            .schema("queue_id int, queue_offset long, body string")
            .load()
            .writeStream.format("parquet")
            .option("path", str(self.folder / "out"))
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        for n in range(kills):
            end = time.monotonic() + WAIT_S
            while len(query.recentProgress) <= n:
                assert time.monotonic() < end, query.status
                time.sleep(0.02)
            self.site.kill()
            time.sleep(1.0)
            assert query.isActive
            self.site.start()
        assert query.awaitTermination(int(2 * WAIT_S)), query.status
        return [tuple(row) for row in self.spark.read.parquet(str(self.folder / "out")).collect()]


Runner = Hooks | Session


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


def check_kills(run: Runner, kills: int, count: int, **options: str) -> None:
    """The broker dies while both tasks send, and comes back; the job ends well and nothing is missing."""
    site = run.site
    topic = site.create("target", 4)
    job = run.write(topic, count, **options)
    for n in range(kills):
        until_stored(site, topic, (n + 1) * count // (2 * kills + 2), job)  # far from the end
        site.kill()
        time.sleep(0.5)
        assert job.running, str(job.end())[:4000]
        site.start()
    error = job.end()
    assert error is None, str(error)[:4000]
    check_stored(site, topic, count, twice=kills * 2 * 4 * IN_A_REQUEST)  # what flew of each queue


def check_away(run: Runner) -> None:
    """The broker dies for longer than the deadline: one line. The same write again completes."""
    site = run.site
    topic = site.create("away", 4)
    options = {"deliveryGuarantee": "idempotent", "writeId": "w1"}
    job = run.write(topic, 6000, rateLimit="1000", sendDeadlineMs="3000", **options)
    until_stored(site, topic, 1000, job)
    site.kill()
    error = job.end()
    assert isinstance(error, Exception)
    line = plain_message(error) if isinstance(run, Session) else str(error)
    assert line is not None and "\n" not in line, line
    assert line.startswith("rocketmq: ") and f"messages to {topic}" in line, line
    assert "not stored after" in line, line

    site.start()
    before = site.count(topic)
    assert 1000 <= before < 6000
    assert run.write(topic, 6000, **options).end() is None
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
    sent = writer._task.run(iter([pa.record_batch({"body": bodies})]), None)
    assert sent.rows == 600
    found = [number_of(record) for lane in site.records(topic).values() for record in lane]
    assert sorted(found) == list(range(600))
    assert sent.requests == 600 + sent.busy
    busy: int = sent.busy
    return busy


def check_storm(run: Runner, *, twice: int = 0, **settings: str) -> None:
    """A broker that refuses most of what comes at once: all is stored, in order, and once if every request is answered."""
    site = run.site
    if site.broker is not None:
        site.kill()
    site.start(sendThreadPoolQueueCapacity="1", **settings)
    assert storm(site) > 100
    topic = site.create("storm", 16)
    error = run.write(topic, 2000, sendBatchSize="2").end()
    assert error is None, str(error)[:4000]
    check_stored(site, topic, 2000, twice=twice)
    site.kill()  # the next one starts it with its usual settings


def check_source(run: Runner, kills: int) -> None:
    """A stream whose broker has no replica reads on when that is back, without a restart of its own."""
    site = run.site
    topic = site.create("origin", 4)
    assert run.write(topic, 6000).end() is None

    rows = run.rows(topic, kills, 1800 // (kills + 1))

    assert sorted(int(body.rstrip("x")) for _, _, body in rows) == list(range(6000))
    wanted = {
        (queue, record.queue_offset, record.body.decode())
        for queue, lane in site.records(topic).items()
        for record in lane
    }
    assert set(rows) == wanted


@pytest.fixture
def hooks(roquette: Site, monkeypatch: pytest.MonkeyPatch) -> Hooks:
    """Each task has connections of its own, as in processes."""
    monkeypatch.setattr(
        writer_module,
        "open_sender",
        lambda options: BlockingSender(writer_module.sender_config(options)),
    )
    return Hooks(roquette)


def test_a_broker_that_dies_under_the_sink_and_comes_back(hooks: Hooks) -> None:
    check_kills(hooks, 1, 6000, rateLimit="2000")


def test_a_broker_that_stays_away_is_one_line(hooks: Hooks) -> None:
    check_away(hooks)


def test_busy_answers_are_no_success(hooks: Hooks) -> None:
    check_storm(hooks)


def test_a_broker_that_dies_under_the_source_and_comes_back(hooks: Hooks) -> None:
    check_source(hooks, 1)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_twenty_kills_of_the_broker_under_the_sink(hooks: Hooks) -> None:
    check_kills(hooks, 20, 120_000, rateLimit="1500")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_same_under_spark_jobs(spark: Any, roquette: Site, tmp_path: Path) -> None:
    run = Session(spark, roquette, tmp_path)
    check_kills(run, 2, 10_000, rateLimit="2000")
    check_away(run)
    check_source(run, 3)
    check_storm(run)


@pytest.mark.long
@pytest.mark.interop
@pytest.mark.timeout(600)
def test_apaches_broker_in_the_same_troubles(hooks: Hooks, apache: Site) -> None:
    hooks.site = apache
    check_kills(hooks, 2, 20_000, rateLimit="1000")
    check_away(hooks)
    check_source(hooks, 2)
    # It stores some batches without an answer when its queue of requests overflows (2 % seen): they are sent again.
    check_storm(hooks, twice=400, sendMessageThreadPoolNums="1")
