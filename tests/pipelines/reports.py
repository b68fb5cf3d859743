"""A report of each pipeline, of results that are made up; `python -m tests.pipelines.reports` takes their pictures for the guide."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from examples.demo.flights import Totals
from examples.demo.report import Story, write_report

from roquette.base.files import OsFiles
from roquette_spark.pipelines.archive.report import (
    QueueCount,
    QueueRecord,
    TopicResult,
    build_result,
)
from roquette_spark.pipelines.audit.frames import AuditCheck
from roquette_spark.pipelines.audit.pipeline import AuditRun
from roquette_spark.pipelines.audit.pipeline import report_of as audit_report
from roquette_spark.pipelines.dlq.pipeline import Sent
from roquette_spark.pipelines.dlq.pipeline import make_result as dlq_result
from roquette_spark.pipelines.kit.message_rows import RowForm
from roquette_spark.pipelines.kit.report import render
from roquette_spark.pipelines.kit.stream import Batch, Batches
from roquette_spark.pipelines.kit.table_files import Compaction, DataFile, Snapshot
from roquette_spark.pipelines.replay.pipeline import ReplayCheck
from roquette_spark.pipelines.replay.pipeline import make_result as replay_result
from roquette_spark.pipelines.replay.source import open_state
from roquette_spark.pipelines.state.bucket_files import Keys
from roquette_spark.pipelines.state.pipeline import Pointer
from roquette_spark.pipelines.state.pipeline import report_of as state_report
from roquette_spark.pipelines.traffic.report import Disagreement, RouteHistory, TrafficFindings
from roquette_spark.pipelines.traffic.report import report_of as traffic_report
from roquette_spark.source.dead_letters import Letters

NOON = 1_789_300_800_000  # 13 September 2026, 12:00 UTC
IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
LONG = "orders-of-the-northern-region-since-the-second-migration-of-2025"


def batches_of(count: int) -> Batches:
    found = Batches(cast("Any", SimpleNamespace()))
    for number in range(count):
        rows = 14 + 3_000 * (count > 1) * (1 + number % 7)
        found.kept.append(Batch(number, rows, 1.5 + number * 0.8, 0.7))
        found.rows += rows
        found.count += 1
    return found


def snapshot_of(days: int) -> Snapshot:
    files = {
        f"dt=2026-09-{day + 1:02}/part.parquet": DataFile(
            f"dt=2026-09-{day + 1:02}/part.parquet",
            70_000 + day,
            14 + 9_000 * (days > 1) * (1 + day % 5),
            NOON,
            (("dt", f"2026-09-{day + 1:02}"),),
        )
        for day in range(days)
    }
    return Snapshot(version=days, files=files)


def archive(size: int, evolution: str = "add") -> str:
    """Of a first run with one small batch (`size` 1), or of more."""
    topic = TopicResult(
        topic="orders" if size == 1 else LONG,
        root="lake/orders",
        snapshot=snapshot_of(min(28, size)),
        quarantined=9,
        bad=4,
        unmet={"n: not_nullable": 0, "n: in_range(0, 9)": 1_204},
        mended=2,
        reasons=[("no JSON: Expecting value at character 0", 8), ("no body", 1)],
        rescued=3,
        fields=[("discount", 2), ("address.line2", 1)],
        evolution=evolution,
        columns_added=["late"],
        lacks=["--partition region"],
        batches=batches_of(size),
        compaction=Compaction(),
        counts=[
            QueueCount("broker-a", 0, QueueRecord(0, 14, 14)),
            QueueCount("broker-b", 3, QueueRecord(0, 1_200_300, 1_200_300, twice=2), lives=1),
        ],
        form=RowForm("json", day_of="_store_timestamp"),
    )
    return render(build_result([topic], 12, follows=False).report)


def current_state(size: int) -> str:
    page = state_report(
        "users",
        ["tenant", "id"],
        batches_of(size),
        snapshot_of(size),
        keys=Keys(live=1, deleted=size),
        pointer=Pointer(7, "snapshot-0000000003", 1),
        reasons=[("the body is no JSON object", size), ("a column of the key is null", 1)],
    )
    return render(page)


def traffic(size: int) -> str:
    """Of one minute with messages, or of more."""
    names = ["orders", "bills", LONG, "events", "audit-log"][: 1 if size == 1 else 5]
    topics = [
        {
            "topic": name, "messages": 9_000_000 // 9**n, "bytes": 45_000 * (n + 1) ** 7,
            "largest": 4_096, "first_ms": NOON, "last_ms": NOON + size * 60_000,
            "latency_p50_ms": 2, "latency_p95_ms": 31, "latency_p99_ms": 2_500,
        }
        for n, name in enumerate(names)
    ]  # fmt: skip
    over_time = [
        {"topic": name, "bucket_ms": NOON + 60_000 * at, "messages": 60 * (n + 1) * (1 + at % 9)}
        for n, name in enumerate(names)
        for at in range(size)
        if (at + n) % 11 or size == 1
    ]
    consumed = [
        {
            "topic": name, "group": f"billing-{n}", "lag": 7**n, "broker_name": "broker-a", "queue_id": n,
            "last_consume_ms": NOON + n if n else None,
        }
        for n, name in enumerate(names)
    ]  # fmt: skip
    routes = RouteHistory(
        snapshots=size,
        name_servers=["10.0.0.1:9876", "10.0.0.2:9876"],
        topics=5,
        found=[Disagreement("orders", NOON, NOON + 5_000, differences=["10.0.0.2 lacks broker-b"])],
        disagreeing_by_time=[(NOON + 5_000 * at, int(3 < at < 30)) for at in range(size)],
    )
    keys = [{"topic": "orders", "key": "customer-1", "messages": 40}]
    tags = [{"topic": name, "tag": "created", "messages": 5, "bytes": 900} for name in names]
    queues = [
        {"topic": "orders", "broker_name": "broker-a", "queue_id": q, "messages": 9 * q + 1}
        for q in range(4)
    ]
    found = TrafficFindings(
        NOON, NOON + 60_000 * size, 60_000,
        topics=topics, over_time=over_time, offsets=consumed, routes=routes, hot_keys=keys, tags=tags, queues=queues,
    )  # fmt: skip
    return render(traffic_report(found))


def audit(size: int) -> str:
    run = AuditRun(NOON)
    run.queues = [
        {
            "topic": LONG, "broker_name": "broker-a", "queue_id": q, "first_offset": 0, "last_offset": 10**6,
            "messages": 10**6 + 1, "first_message": "1700000000000.4096", "fingerprint": "9f2c41d07be8",
        }
        for q in range(size)
    ]  # fmt: skip
    missing = [{"id": f"order-{n}", "queue": "broker-a 0"} for n in range(3)]
    run.checks = [
        AuditCheck("all_there", "an id of the manifest that no message has", 2_000_002, 3, missing),
        AuditCheck("once", "an id that two messages have", 2_000_002),
        AuditCheck("consumed", "a message behind a group", skipped="no --groups"),
    ]
    certificate = {
        "topics": [LONG],
        "digest": "c0ffee" * 10,
        "messages": sum(q["messages"] for q in run.queues),
    }
    return render(audit_report(run, certificate))


def replay(size: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        state = open_state(f"{folder}/state", OsFiles(), {}, NOON)
        state.begin({}, {})
        state.advance({}, 1 if size == 1 else 1_234_567)
    queues = tuple((f"{LONG} broker-a {q}", 10 ** (q % 7)) for q in range(size))
    check = ReplayCheck(
        5, 4, 2, 18_446_744_073_709, 18_446_744_073_700, 0, ("orders/a/0/17",), queues
    )
    result = replay_result(
        source="orders", target="orders-8", state=state, sent=state.rows, resumed=0, seconds=3.0,
        complete=True, check=check, asked_to_verify=True,
    )  # fmt: skip
    return render(result.report)


def dlq(size: int) -> str:
    counts = {f"%DLQ%{LONG[: 20 + n]}-{n}": (n * 37) % 101 for n in range(size)}
    clusters = [
        {
            "group": f"g{n}",
            "error": "timeout after # ms",
            "messages": n,
            "tries": 16,
            "sample": "AC1" * 10,
        }
        for n in range(size)
    ]
    letter = dict.fromkeys(
        ("id", "group", "origin_topic", "error", "tags", "key", "body"), "text of it"
    )
    letters = Letters("127.0.0.1:9876", counts, {}, {})
    shown = [letter | {"reconsume_times": 16}]
    return render(
        dlq_result(letters, clusters, shown, 1, Sent(1, 0, 0, 0, "dlq-audit", "run-1")).report
    )


def demo(size: int) -> str:
    airlines = {f"A{n}": f"Airline of the Northern Atlantic {n}" for n in range(size)}
    summary = [
        {"carrier": code, "hour": hour, "departed": 40, "departure_delay_minutes": 40 * (hour + n)}
        for n, code in enumerate(airlines)
        for hour in range(5, 24)
    ]
    totals = {place: Totals(flights=336_776) for place in ("CSV", "topic", "Parquet")}
    consumers = [(f"consumer-{n}", 112_000 + n) for n in range(3)]
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "report.html")
        write_report(page, Story([("336,776", "flights")], totals, consumers, summary, airlines))
        return page.read_text(encoding="utf-8")


REPORTS: Mapping[str, Callable[[int], str]] = {
    "archive": archive,
    "current-state": current_state,
    "traffic": traffic,
    "audit": audit,
    "replay": replay,
    "dlq": dlq,
    "demo": demo,
}


def main() -> None:
    from tests.pipelines.browser import photograph

    for name, report in REPORTS.items():
        if name != "demo":
            with tempfile.TemporaryDirectory() as folder:
                photograph(report(24), Path(folder), IMAGES / f"report-{name}.png")


if __name__ == "__main__":
    main()
