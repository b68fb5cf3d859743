"""`audit`: each check finds what is wrong and nothing else; certificates and exceptions."""

import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from roquette.base.clock import SystemClock
from roquette.base.files import OsFiles
from roquette.errors import ConfigError
from roquette.message.names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from roquette_spark.pipelines.audit import frames as ask
from roquette_spark.pipelines.audit.frames import AuditCheck
from roquette_spark.pipelines.audit.pipeline import (
    AuditOptions,
    AuditRun,
    _holes,
    certificate_of,
    check_options,
    finish,
    plan,
    tables_of,
)
from roquette_spark.pipelines.kit.frame import Job, load_options
from roquette_spark.pipelines.kit.report import render

BEGIN = 1_700_000_000
MESSAGE = dict.fromkeys(
    (
        *("topic", "broker_name", "queue_id", "queue_offset", "uniq_key", "key", "message_group"),
        *(
            "properties",
            "body",
            "body_crc",
            "store_size",
            "store_timestamp",
            "commit_log_offset",
            "tags",
        ),
    )
)


def message(
    offset: int, key: str | None = None, *, queue: int = 0, **other: Any
) -> tuple[Any, ...]:
    given = {
        **MESSAGE,
        "topic": "pay",
        "broker_name": "broker-a",
        "queue_id": queue,
        "queue_offset": offset,
        "uniq_key": f"U{queue}-{offset}",
        "key": key,
        "body_crc": offset,
        "store_size": 100,
        "store_timestamp": datetime.fromtimestamp(BEGIN + offset, UTC),
        **other,
    }
    return tuple(given.values())


def frame(spark: Any, rows: list[tuple[Any, ...]], **where: str) -> Any:
    messages = spark.createDataFrame(rows, ask.COLUMNS)
    names = {"id_field": "key", "order_key": "", "sequence": ""} | where
    return ask.slim(messages, **names)


@pytest.mark.spark
def test_a_manifest_tells_what_is_lost_twice_and_unmeant(spark: Any, tmp_path: Path) -> None:
    rows = [message(n, key) for n, key in enumerate(["a", "b", "b", "c", "c", "x"])]
    path = tmp_path / "meant.jsonl"
    meant = [
        {"id": "a"},
        {"id": "b"},
        {"id": "c", "count": 3},
        {"id": "d"},
        {"id": "e", "count": 2},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in meant))

    manifest = ask.read_manifest(spark, str(path), "id")
    checks = ask.against_manifest(frame(spark, rows), manifest, most=10)

    lost, twice, unmeant = checks
    assert [(c.name, c.exceptions) for c in checks] == [
        ("lost", 4),
        ("duplicates", 1),
        ("unmeant", 1),
    ]
    assert [(e["id"], e["meant"], e["there"]) for e in lost.examples] == [
        ("c", 3, 2),
        ("d", 1, 0),
        ("e", 2, 0),
    ]
    assert (twice.examples[0]["id"], twice.examples[0]["queue_offset"]) == ("b", 1)
    assert unmeant.examples[0]["id"] == "x"
    assert {c.looked_at for c in checks} == {5}
    with pytest.raises(ConfigError, match="has no column key"):
        ask.read_manifest(spark, str(path), "key")


@pytest.mark.spark
def test_order_repeats_and_scattered_keys(spark: Any) -> None:
    numbered = [(0, "a", 1), (1, "b", 1), (2, "a", 3), (3, "a", 2), (4, "b", 2), (5, "a", 4)]
    rows = [message(at, key, properties={"seq": str(n)}) for at, key, n in numbered]
    rows.append(message(0, "b", queue=1, properties={"seq": "3"}))
    rows.append(message(1, "c", queue=1, properties={"seq": "none"}))
    slim = frame(spark, rows, sequence="property:seq")

    found = ask.inversions(slim, most=10)
    assert (found.looked_at, found.exceptions) == (7, 1)
    assert (found.examples[0]["queue_offset"], found.examples[0]["highest_before"]) == (3, 3)
    scattered = ask.scattered_keys(slim, most=10)
    assert (scattered.looked_at, scattered.exceptions) == (3, 1)
    assert scattered.examples[0]["order_key"] == "b"
    again = ask.repeated_ids(frame(spark, [*rows, message(6, "b")], id_field="uniq_key"), most=10)
    assert again.ok
    same = [message(n, "k", uniq_key="U") for n in range(3)]
    assert ask.repeated_ids(frame(spark, same, id_field="uniq_key"), most=10).exceptions == 2


@pytest.mark.spark
def test_a_table_is_compared_by_place(spark: Any, tmp_path: Path) -> None:
    slim = frame(spark, [message(n, "k") for n in range(10, 20)])
    rows = [
        ("broker-a", 0, n) for n in (3, *range(10, 18), 12, 18)
    ]  # 3 is older than all of the topic
    table = spark.createDataFrame(rows, "_broker_name string, _queue_id int, _queue_offset bigint")

    places = ask.places_of(table, "x")
    checks, proof = ask.against_table("pay", slim, places, most=5, ends={("broker-a", 0): 20})
    missing, twice, other, extra = checks

    assert proof == {"rows": 11, "proven": 10, "unproven": 1}
    assert other.skipped == "the table has no column store_timestamp"
    assert (missing.exceptions, missing.examples[0]["queue_offset"]) == (1, 19)
    assert (twice.exceptions, twice.examples[0]["queue_offset"]) == (1, 12)
    assert extra.exceptions == 0
    with pytest.raises(ConfigError, match="has no columns broker_name, queue_id"):
        ask.places_of(spark.createDataFrame([(1,)], "n int"), "x")


@pytest.mark.spark
def test_transactions_without_an_end(spark: Any) -> None:
    halves = [
        message(n, topic=TRANS_HALF_TOPIC, properties={"REAL_TOPIC": "pay"}) for n in range(6)
    ]
    halves.append(message(6, topic=TRANS_HALF_TOPIC, properties={"REAL_TOPIC": "other"}))
    ops = [message(0, topic=TRANS_OP_HALF_TOPIC, tags="d", body=b"0"), message(1, tags="d", body=b"1,3,"),
           message(2, tags="x", body=b"2")]  # fmt: skip
    both = [spark.createDataFrame(rows, ask.COLUMNS) for rows in (halves, ops)]

    found = ask.unfinished(*both, ["pay"], (BEGIN + 5) * 1000, most=10)

    assert [each["queue_offset"] for each in found.examples] == [2, 4]  # 5 is too young
    assert (found.looked_at, found.exceptions) == (6, 2)


@pytest.mark.spark
def test_fingerprints_do_not_depend_on_order_but_on_content(spark: Any) -> None:
    rows = [message(n, "k") for n in range(4)]
    changed = [*rows[:3], message(3, "k", body_crc=99)]

    (one,) = ask.queues_of(frame(spark, rows))
    (two,) = ask.queues_of(frame(spark, rows[::-1]))
    (three,) = ask.queues_of(frame(spark, changed))

    assert one == two
    assert one["fingerprint"] != three["fingerprint"]
    assert (one["messages"], one["first_offset"], one["last_offset"]) == (4, 0, 3)


def span(queue: int, first: int, last: int, offsets: int) -> dict[str, Any]:
    place = {"topic": "pay", "broker_name": "broker-a", "queue_id": queue}
    return {
        **place,
        "first_offset": first,
        "last_offset": last,
        "offsets": offsets,
        "messages": offsets,
        "first_message": "1.0",
    }


def ends(queue: int, low: int, high: int, **group: Any) -> dict[str, Any]:
    place = {"topic": "pay", "broker_name": "broker-a", "queue_id": queue, "group": None}
    return {**place, "min_offset": low, "max_offset": high, **group}


def test_holes_between_messages_and_at_the_ends() -> None:
    options = AuditOptions(topics=("pay",))
    queues = [span(0, 5, 9, 5), span(1, 0, 9, 7)]

    assert ask.holes(queues, 10).exceptions == 3
    found = _holes(options, queues, [ends(0, 5, 12), ends(1, 0, 10), ends(2, 0, 4), ends(3, 7, 7)])
    assert [(e["queue_id"], e["missing"]) for e in found.examples] == [(0, 2), (1, 3), (2, 4)]
    assert found.exceptions == 9
    assert _holes(options, [span(0, 5, 9, 5)], [ends(0, 5, 10)]).ok


def test_what_groups_have_not_consumed() -> None:
    rows = [
        ends(0, 0, 10),
        ends(0, 0, 10, group="g", lag=4, committed_offset=6),
        ends(1, 0, 3, group="g", lag=0, committed_offset=3),
    ]
    check = ask.unconsumed(rows, ["g"], 10)
    assert (check.looked_at, check.exceptions, len(check.examples)) == (2, 4, 1)


def job(folder: Path) -> Job:
    def no_spark() -> Any:
        raise AssertionError("not needed")

    return Job(
        directory=str(folder),
        open_spark=no_spark,
        clock=SystemClock(),
        files=OsFiles(),
        stop=threading.Event(),
    )


def test_an_audit_that_was_stopped_certifies_nothing(tmp_path: Path) -> None:
    audit = AuditRun(5, [], [AuditCheck("holes", "none", 1), AuditCheck("stopped", "t", 0, 1)])

    result = finish(audit, AuditOptions(topics=("pay",)), job(tmp_path))

    assert (result.ok, result.summary["verdict"]) == (False, "stopped")
    assert result.last_line == "stopped before its end: nothing is certified"
    assert not (tmp_path / "certificate.json").exists()


def test_a_certificate_names_what_was_looked_at_and_can_be_checked(tmp_path: Path) -> None:
    queue = {**span(0, 0, 9, 10), "first_ms": 1, "last_ms": 2, "fingerprint": "AB"}
    audit = AuditRun(
        5,
        [queue],
        [AuditCheck("holes", "none", 1), AuditCheck("unfinished", "t", skipped="no broker")],
    )
    options = AuditOptions(topics=("pay",))

    result = finish(audit, options, job(tmp_path))

    assert result.ok
    written = json.loads((tmp_path / "certificate.json").read_text())
    assert written == json.loads(json.dumps(result.summary))
    assert (written["verdict"], written["messages"]) == ("certified", 10)
    assert result.last_line == f"certified: 10 messages, {written['digest'][:16]}"
    assert "Certificate" in render(result.report)
    assert "not made: no broker" in render(result.report)
    other = AuditRun(5, [{**queue, "fingerprint": "AC"}], audit.checks)
    assert certificate_of(other, options)["digest"] != written["digest"]


def test_exceptions_are_listed_and_the_run_fails(tmp_path: Path) -> None:
    check = AuditCheck(
        "lost", "meant, not there", 10, 2, [{"id": "<a>", "meant": 1}, {"id": "b", "meant": 1}]
    )
    result = finish(AuditRun(5, [], [check]), AuditOptions(topics=("pay",)), job(tmp_path))

    assert not result.ok
    lines = (tmp_path / "exceptions.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["<a>", "b"]
    assert result.last_line.startswith("2 exceptions: ")
    assert not (tmp_path / "certificate.json").exists()
    assert "&lt;a&gt;" in render(result.report)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"table": ("pay",)}, "--table pay is not of the form TOPIC=DIR"),
        ({"table": ("other=x",)}, "with one of the topics pay"),
        ({"manifest": "/nowhere/m.jsonl"}, "there is no manifest /nowhere/m.jsonl"),
        ({"id": "body"}, "'body' is none of key, uniq_key"),
        ({"sequence": "json:"}, "'json:' is none of key"),
        ({"transaction_age": "soon"}, "--transaction-age must be a time"),
        ({"since": "1"}, "--since must be a time"),
    ],
)
def test_wrong_options_are_told(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        check_options(load_options(AuditOptions, {"topics": ("pay",), **given}, {}, where="audit"))


def test_a_dry_run_looks_at_stores(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000").write_bytes(bytes(1 << 20))
    told = plan(AuditOptions(topics=("pay",), store=(str(tmp_path),)))

    assert told.reads[1] == f"store {tmp_path}: 1 segments, 1 MiB"
    assert told.notes == ["order is not checked: --sequence says where numbers are"]
    with pytest.raises(ConfigError, match="No such file or directory"):
        plan(AuditOptions(topics=("pay",), store=("/nowhere",)))


def test_tables_by_topic() -> None:
    assert tables_of(AuditOptions(topics=("a", "b"), table=("a=/x", "b=s3://y=z"))) == {
        "a": "/x",
        "b": "s3://y=z",
    }
