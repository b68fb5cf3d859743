"""Topics become tables: forms, days, bad messages, restarts, compaction, pace."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake_cluster import FakeCluster
from tests.pipelines.lineage import Receiver, receiver
from tests.pipelines.tables import folder_files, log_files, places, rows
from tests.spark.records import make_record

from roquette.errors import ConfigError
from roquette.message.message import MessageQueue
from roquette_spark.pipelines.archive.pipeline import PIPELINE, ArchiveOptions
from roquette_spark.pipelines.kit.frame import PipelineError, Progress, Result
from roquette_spark.pipelines.kit.running import run_pipeline

pytestmark = pytest.mark.spark
__all__ = ["receiver"]

Q0, Q1 = (MessageQueue("T", "broker-a", queue_id) for queue_id in range(2))
BAD_BODIES = {
    b"": "the body is empty",
    b"\xff\xfe{}": "the body is not UTF-8",
    b"[1]": "the body is no JSON object",
    b"null": "the body is no JSON object",
    b'{"n": 1': "the body is malformed JSON",
}


def body(number: int) -> bytes:
    return json.dumps({"n": number, "name": f"größe {number}", "at": "2013-02-01"}).encode()


def records(numbers: range, queue_id: int = 0, start: int = 0) -> list[bytes]:
    return [
        make_record(start + i, body(n), {"KEYS": f"k{n}", "TAGS": "a"}, queue_id=queue_id)
        for i, n in enumerate(numbers)
    ]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster({Q0: records(range(300)), Q1: records(range(300, 500), 1)}) as cluster:
        yield cluster


@pytest.fixture
def options(cluster: FakeCluster, tmp_path: Path) -> ArchiveOptions:
    """All in one batch, since each costs about a CPU second: tests of what several ones mean take 100."""
    return ArchiveOptions(
        namesrv=cluster.address,
        topics=("T",),
        to=str(tmp_path / "lake"),
        report=str(tmp_path / "report"),
        batch=500,
        compact=False,
        check=False,
    )


def run(options: ArchiveOptions, **more: Any) -> Result:
    return run_pipeline(PIPELINE, replace(options, **more))


def expected(first: int, second: int) -> list[tuple[str, int, int]]:
    return [("broker-a", 0, i) for i in range(first)] + [("broker-a", 1, i) for i in range(second)]


def test_a_json_topic_becomes_a_table_with_its_columns(
    spark: Any, cluster: FakeCluster, options: ArchiveOptions, tmp_path: Path
) -> None:
    result = run(options, check=True, batch=100)

    found = rows(log_files(tmp_path / "lake/T"))
    assert places(found) == expected(300, 200)
    assert sorted(row["n"] for row in found) == list(range(500))
    row = next(row for row in found if row["n"] == 7)
    assert (row["name"], row["at"], row["_keys"], row["_tags"]) == (
        "größe 7",
        "2013-02-01",
        ["k7"],
        "a",
    )
    assert rows(folder_files(tmp_path / "lake/T")) == found
    assert {file.parent.name for file in folder_files(tmp_path / "lake/T")} == {"dt=2023-11-14"}
    summary = result.summary["topics"]["T"]
    assert (result.ok, summary["rows"], summary["missing"], summary["twice"]) == (True, 500, 0, 0)
    assert summary["this_run"]["batches"] == 5
    assert result.last_line.startswith("500 messages archived, 500 rows in the tables, 0 in quaran")
    assert "compared with the topic" in (tmp_path / "report/report.html").read_text()
    written = json.loads((tmp_path / "report/summary.json").read_text())
    assert written["result"]["rows"] == 500


def test_what_comes_later_is_added_and_a_batch_is_never_there_twice(
    spark: Any, cluster: FakeCluster, options: ArchiveOptions, tmp_path: Path
) -> None:
    run(options, batch=100)
    assert run(options, batch=100).summary["new_rows"] == 0

    cluster.queues[Q0] += records(range(1000, 1150), start=300)
    offsets = tmp_path / "lake/T/_roquette/checkpoint/commits"
    for name in ("4", ".4.crc"):  # as killed after the table had the batch, before Spark knew
        (offsets / name).unlink()
    result = run(options, check=True, batch=100)

    assert places(rows(folder_files(tmp_path / "lake/T"))) == expected(450, 200)
    assert (result.ok, result.summary["new_rows"]) == (True, 150)


def test_messages_that_cannot_be_read_are_kept_apart(
    spark: Any, cluster: FakeCluster, options: ArchiveOptions, tmp_path: Path
) -> None:
    cluster.queues[Q1] += [
        make_record(200 + i, each, queue_id=1) for i, each in enumerate(BAD_BODIES)
    ]

    result = run(options, check=True, schema="n int, name string, at string")

    apart = rows(folder_files(tmp_path / "lake/T.quarantine"))
    assert {row["body"]: row["error"] for row in apart} == BAD_BODIES
    assert places(apart) == [("broker-a", 1, 200 + i) for i in range(len(BAD_BODIES))]
    assert places(rows(folder_files(tmp_path / "lake/T"))) == expected(300, 200)
    assert (result.ok, result.summary["quarantined"]) == (True, len(BAD_BODIES))


def test_raw_bodies_are_kept_byte_for_byte(
    spark: Any, cluster: FakeCluster, options: ArchiveOptions, tmp_path: Path
) -> None:
    cluster.queues[Q1] += [
        make_record(200 + i, each, queue_id=1) for i, each in enumerate(BAD_BODIES)
    ]

    assert run(options, format="raw", check=True).ok

    found = {(r["queue_id"], r["queue_offset"]): r for r in rows(folder_files(tmp_path / "lake/T"))}
    assert [found[1, 200 + i]["body"] for i in range(len(BAD_BODIES))] == list(BAD_BODIES)
    assert (found[0, 7]["body"], found[0, 7]["keys"]) == (body(7), ["k7"])
    assert not (tmp_path / "lake/T.quarantine").exists()


def test_a_given_schema_a_day_of_the_body_and_the_body_itself(
    spark: Any, cluster: FakeCluster, options: ArchiveOptions, tmp_path: Path
) -> None:
    given = {"schema": "at string, n int", "schema_evolution": "fixed"}
    run(options, day_of="at", keep_body=True, **given)

    files = folder_files(tmp_path / "lake/T")
    found = rows(files)
    assert {file.parent.name for file in files} == {"dt=2013-02-01"}
    assert list(found[0])[:2] == ["at", "n"]
    assert "name" not in found[0]
    assert {row["n"]: row["_body"] for row in found} == {n: body(n) for n in range(500)}


def test_small_files_are_joined_and_replaced_ones_go_later(
    spark: Any, cluster: FakeCluster, options: ArchiveOptions, tmp_path: Path
) -> None:
    root = tmp_path / "lake/T"
    result = run(options, compact=True, small_files=3, batch=100)
    files = log_files(root)

    joined = result.summary["topics"]["T"]["files_joined"]
    assert len(files) == 1
    assert joined > 2
    assert len(folder_files(root)) > joined  # readers of older versions still find theirs
    assert places(rows(files)) == expected(300, 200)
    run(options, keep_replaced_minutes=0)
    assert folder_files(root) == files


def test_spark_reads_the_folder_as_a_table(
    spark: Any, cluster: FakeCluster, options: ArchiveOptions, tmp_path: Path
) -> None:
    run(options)

    frame = spark.read.parquet(str(tmp_path / "lake/T"))

    assert frame.where("dt = '2023-11-14'").count() == 500


def test_several_topics_are_archived_and_odd_names_are_folders(
    spark: Any, cluster: FakeCluster, options: ArchiveOptions, tmp_path: Path
) -> None:
    dead = MessageQueue("%DLQ%g", "broker-a", 0)
    cluster.queues[dead] = [make_record(i, body(i), topic="%DLQ%g", queue_id=0) for i in range(20)]

    result = run(options, topics=("T", "%DLQ%g"))

    assert result.summary["rows"] == 520
    assert places(rows(folder_files(tmp_path / "lake/~DLQ~g"))) == expected(20, 0)


def test_following_goes_on_until_asked_to_stop(
    spark: Any, cluster: FakeCluster, options: ArchiveOptions, tmp_path: Path
) -> None:
    root = tmp_path / "lake/T"

    class Stopping(Progress):
        """Adds messages once the first are archived, and asks to stop once those are."""

        stop: threading.Event

        def update(self, done: int, total: int | None = None, note: str = "") -> None:
            if done >= 500 and len(cluster.queues[Q0]) == 300:
                cluster.queues[Q0] += records(range(600, 610), start=300)
            if done >= 510:
                self.stop.set()

    from roquette_spark.pipelines.archive import pipeline as archive
    from roquette_spark.pipelines.kit.frame import Job

    progress = Stopping()

    def watched(given: ArchiveOptions, job: Job) -> Result:
        progress.stop = job.stop
        return archive.run(given, job)

    pipeline = replace(PIPELINE, run=watched)
    following = replace(
        options, follow=True, interval_s=1, source_option=("partitionDiscoveryIntervalMs=0",)
    )
    result = run_pipeline(pipeline, following, progress=progress)

    assert (result.ok, result.summary["new_rows"]) == (True, 510)
    assert places(rows(folder_files(root))) == expected(310, 200)


def test_a_rate_is_kept(
    spark: Any, cluster: FakeCluster, options: ArchiveOptions, tmp_path: Path
) -> None:
    begin = time.monotonic()

    run(options, format="raw", max_rate=100, batch=250)

    assert time.monotonic() - begin >= 4.5


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"schema": "id nonsense("}, '--schema must be columns such as "id int, name string"'),
        ({"schema": "n int, N int"}, "the body's column N has the name of another column"),
        ({"schema": "dt string"}, "the body's column dt has the name of another column"),
        (
            {"day_of": "when"},
            "--day-of when is neither store_timestamp, born_timestamp nor a column",
        ),
        ({"starting": "yesterday"}, "--starting yesterday is none of earliest, latest"),
        ({"source_option": ("colour=red",)}, "unknown option colour"),
        ({"source_option": ("colour",)}, "--source-option 'colour' is not of the form key=value"),
    ],
)
def test_wrong_options_are_told_in_one_line(
    spark: Any, options: ArchiveOptions, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        run(options, **more)

    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_wrong_beginning_is_told_before_anything_is_asked(tmp_path: Path) -> None:
    wrong = ArchiveOptions(topics=("T",), to=str(tmp_path), namesrv="127.0.0.1:1", starting="never")

    with pytest.raises(ConfigError, match="--starting never is none of earliest, latest"):
        PIPELINE.plan(wrong)


def test_a_topic_that_does_not_exist_is_told_before_spark_starts(options: ArchiveOptions) -> None:
    with pytest.raises(PipelineError, match="does the topic exist"):
        run(options, topics=("nothing",))


def test_a_table_goes_on_only_as_it_was_begun(
    spark: Any, cluster: FakeCluster, options: ArchiveOptions, tmp_path: Path
) -> None:
    run(options)

    with pytest.raises(ConfigError, match="was begun with --format json"):
        run(options, format="raw")
    for given, evolution in (("n string", "add"), ("n int, more int", "add"), ("n int", "fixed")):
        with pytest.raises(ConfigError, match="has another schema than --schema"):
            run(options, schema=given, schema_evolution=evolution)
    (tmp_path / "lake/T/_roquette/checkpoint").rename(tmp_path / "away")
    with pytest.raises(PipelineError, match="checkpoint is gone, so nobody knows where to go on"):
        run(options)


def test_an_archive_begins_at_a_time_also_where_a_queue_has_nothing_that_late(
    spark: Any, cluster: FakeCluster, options: ArchiveOptions, tmp_path: Path
) -> None:
    run(options, starting="250")  # to this cluster a time is an offset

    assert places(rows(folder_files(tmp_path / "lake/T"))) == expected(300, 0)[250:]
    cluster.queues[Q1] += records(range(1000, 1005), 1, start=200)
    assert run(options, starting="250").summary["new_rows"] == 5


def test_a_dry_run_tells_what_there_is(
    spark: Any, cluster: FakeCluster, options: ArchiveOptions
) -> None:
    new = PIPELINE.plan(options)
    run(options)
    again = PIPELINE.plan(options)

    assert list(new.reads) == ["topic T: 500 messages in 2 queues on broker-a"]
    assert new.writes[0].endswith("T: new")
    assert "T: 500 rows in " in again.writes[0]


def test_a_topic_without_json_is_told(
    spark: Any, cluster: FakeCluster, options: ArchiveOptions
) -> None:
    cluster.queues = {Q0: [make_record(0, b"plain", queue_id=0)]}

    with pytest.raises(PipelineError, match="is a JSON object: use --format raw"):
        run(options)


def test_what_is_missing_or_twice_fails_the_check(
    spark: Any, cluster: FakeCluster, options: ArchiveOptions, tmp_path: Path
) -> None:
    from roquette_spark.pipelines.kit.table_files import Commit
    from roquette_spark.pipelines.tables.delta_table import open_table

    run(options, batch=100)
    table = open_table(str(tmp_path / "lake/T"))
    some = next(iter(table.snapshot.files.values()))
    table.commit(Commit(removes=[some]), "DELETE")

    result = run(options, check=True)

    assert (result.ok, result.summary["topics"]["T"]["missing"]) == (False, some.rows)
    assert "DIFFERS" in (tmp_path / "report/report.html").read_text()
    # A hole is told once as an error, and afterwards as known.
    again = run(options, check=True)
    assert (again.ok, again.summary["topics"]["T"]["missing"]) == (True, some.rows)
    assert "known before" in (tmp_path / "report/report.html").read_text()


def test_fields_without_a_column_become_columns(
    spark: Any, cluster: FakeCluster, options: ArchiveOptions, tmp_path: Path
) -> None:
    run(options, schema="n int")
    late = [b'{"n": 3000000000, "late": {"x": 1}, "_queue_id": 7}', b'{"n": 1, "odd=name": true}']
    cluster.queues[Q1] += [make_record(200 + i, each, queue_id=1) for i, each in enumerate(late)]

    result = run(options, schema="n int", check=True)

    found = rows(log_files(tmp_path / "lake/T"))
    assert places(found) == expected(300, 202)
    [new] = [row for row in found if row.get("late")]
    assert (new["n"], new["late"], new["_rescued"]) == (3_000_000_000, {"x": 1}, '{"_queue_id":7}')
    [odd] = [row for row in found if row.get("_rescued") and row is not new]
    assert odd["_rescued"] == '{"odd=name":true}'
    summary = result.summary["topics"]["T"]
    assert (result.ok, summary["columns_added"], summary["quarantined"]) == (True, ["late"], 0)
    frame = spark.read.schema("n bigint, late struct<x: bigint>, name string").parquet(
        *(str(file) for file in log_files(tmp_path / "lake/T"))
    )
    assert frame.agg({"n": "sum"}).first()[0] == sum(range(500)) + 3_000_000_001


def test_a_table_that_may_not_grow_ends_before_the_batch(
    spark: Any, cluster: FakeCluster, options: ArchiveOptions, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="has fields without a column: name, at: --schema-evol"):
        run(options, schema="n long", schema_evolution="fail")

    assert folder_files(tmp_path / "lake/T") == []


def test_rows_that_are_not_as_expected_go_to_the_quarantine_and_come_back(
    spark: Any, cluster: FakeCluster, options: ArchiveOptions, tmp_path: Path
) -> None:
    expect = tmp_path / "expect.yml"
    expect.write_text("columns: {n: {checks: {less_than: 490}}, name: {}}")

    result = run(options, expect=str(expect), check=True)

    topic = result.summary["topics"]["T"]
    assert topic["expectations"] == {
        "n: not_nullable": 0, "n: less_than(490)": 10, "name: not_nullable": 0,
    }  # fmt: skip
    assert (result.ok, result.status, topic["quarantined"], topic["rows"]) == (True, 3, 10, 490)
    assert topic["reasons"] == {"not as expected: n: less_than(490)": 10}
    assert "n: less_than(490)" in (tmp_path / "report/report.html").read_text()

    expect.write_text("columns: {n: {checks: {less_than: 495}}}")  # they were too strict
    again = run(options, expect=str(expect), from_quarantine=True).summary["topics"]["T"]
    assert (again["rows"], again["quarantined"], again["from_quarantine"]) == (495, 5, 5)


def test_a_table_that_has_begun_marks_rows_from_then_on(
    spark: Any, cluster: FakeCluster, options: ArchiveOptions, tmp_path: Path
) -> None:
    run(options)
    cluster.queues[Q0] += records(range(1000, 1010), start=300)
    (tmp_path / "expect.yml").write_text("columns: {n: {checks: {less_than: 1005}}}")

    result = run(options, expect=str(tmp_path / "expect.yml"), expect_action="mark")

    marks = {row["n"]: row.get("_unmet") for row in rows(log_files(tmp_path / "lake/T"))}
    assert {n for n, mark in marks.items() if mark} == set(range(1005, 1010))
    assert marks[1007] == "n: less_than(1005)"
    assert (len(marks), result.status, result.summary["quarantined"]) == (510, 0, 0)
    assert run(options).ok  # and goes on without


def test_lineage_has_the_topic_and_the_table(
    spark: Any, cluster: FakeCluster, options: ArchiveOptions, tmp_path: Path, receiver: Receiver
) -> None:
    result = run(options, lineage=receiver.url)

    start, end = receiver.events
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert end["job"]["name"] == f"roquette.archive.{options.to}"
    read, wrote = end["inputs"][0], end["outputs"][0]
    assert (read["namespace"], read["name"]) == (f"rocketmq://{cluster.address}", "T")
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == 500
    assert (wrote["namespace"], wrote["name"]) == ("file", f"{options.to}/T")
    assert wrote["outputFacets"]["outputStatistics"]["rowCount"] == 500
    assert wrote["facets"]["version"]["datasetVersion"] == str(
        result.summary["topics"]["T"]["version"]
    )
    kinds = {each["name"]: each["type"] for each in wrote["facets"]["schema"]["fields"]}
    assert (kinds["n"], kinds["_properties"], kinds["dt"]) == ("long", "map", "date")
