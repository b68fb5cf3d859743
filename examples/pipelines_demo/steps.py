"""The pipelines over the topic of flights, one after another; each is one command (or the few that a person would type), then a comparison."""

import asyncio
import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from examples.demo.flights import SPARK_SCHEMA, Flight, totals_of
from examples.demo.servers import DemoError
from examples.pipelines_demo.run import (
    BY_AIRCRAFT,
    GROUP,
    TOPIC,
    Run,
    check,
    is_cancelled,
    table_rows,
)
from examples.pipelines_demo.topics import TRIES, Desk, queue_count, read_topic

from roquette_spark.pipelines.kit.frame import Result

PLACE = ("_broker_name", "_queue_id", "_queue_offset")
NEW_QUEUES = 12  # the topic has 8
DOUBLED = 3  # rows put twice into the damaged table
ALL_CHECKS = (
    *("holes", "lost", "duplicates", "unmeant", "inversions", "scattered", "unconsumed"),
    *(
        "table_missing",
        "table_twice",
        "table_other",
        "table_extra",
        "table_skipped",
        "table_files",
        "unfinished",
    ),
)


def archive(run: Run) -> None:
    """The topic as a table: totals, and nothing missing or twice."""
    lake = run.directory / "lake"
    batch = min(200_000, len(run.flights) // 3)  # several files, for `audit`: one will be lost
    found = run.pipeline(
        "archive",
        "--topics",
        TOPIC,
        "--to",
        str(lake),
        "--schema",
        SPARK_SCHEMA,
        "--batch",
        str(batch),
        "--no-compact",
    )
    names = ["id", "distance", "dep_delay", "arr_delay", "tailnum"]
    rows = list(table_rows(lake / TOPIC, names))
    check("the table's totals with the CSV's", totals_of(rows), totals_of(run.flights))
    check("distinct flights", len({row["id"] for row in rows}), len(run.flights))
    check("rows by the summary", found["rows"], len(run.flights))
    topic = found["topics"][TOPIC]
    check("missing and twice, by its own check", (topic["missing"], topic["twice"]), (0, 0))
    print(f"  {topic['this_run']['rows_per_second']:,} rows/s in batches")


def current_state(run: Run) -> None:
    """The last flight of each aircraft."""
    to = run.directory / "state"
    words = ["--topic", TOPIC, "--to", str(to), "--key", "tailnum", "--version", "id"]
    without = sum(flight["tailnum"] is None for flight in run.flights)
    status = Result.BAD_MESSAGES if without else 0
    found = run.pipeline("current-state", *words, "--schema", SPARK_SCHEMA, status=status)
    last = {f["tailnum"]: f["id"] for f in run.flights if f["tailnum"] is not None}
    rows = {row["tailnum"]: row["id"] for row in table_rows(to, ["tailnum", "id"])}
    check("the last flight of each aircraft", rows, last)
    check("flights without a tail number, in quarantine", found["quarantined"], without)


def consume(run: Run) -> None:
    """The group takes every flight and refuses the cancelled ones, which become dead letters."""
    print(f"\na consumer of the group {GROUP} refuses cancelled flights", flush=True)
    desk = Desk(is_cancelled)
    cancelled = run.cancelled
    flown = len(run.flights) - len(cancelled)
    asyncio.run(desk.work(run.namesrv, accepted=flown, refused=TRIES * len(cancelled)))
    check(
        "every other flight was accepted once",
        (len(desk.accepted), desk.accepted.total()),
        (flown, flown),
    )
    twice = {int(str(flight["id"])): TRIES for flight in cancelled}
    check(f"every cancelled flight was refused {TRIES} times", dict(desk.refused), twice)


def replay(run: Run) -> None:
    """The topic into one with another number of queues: every flight, and each aircraft's in order."""
    state = run.directory / "replay-state"
    words = ["--topics", TOPIC, "--to-topic", BY_AIRCRAFT, "--queues", str(NEW_QUEUES)]
    found = run.pipeline("replay", *words, "--state", str(state))
    own = found["check"]
    check("messages by its own check", (own["wanted"], own["found"]), (len(run.flights),) * 2)
    check("checksums of both sides", own["found_sum"], own["wanted_sum"])
    check("out of order and twice, by its own check", (own["inversions"], own["copies"]), (0, 0))
    check("queues", asyncio.run(queue_count(run.namesrv, BY_AIRCRAFT)), NEW_QUEUES)
    there = asyncio.run(read_topic(run.namesrv, BY_AIRCRAFT))
    check_order(there, run.flights)
    print(f"  {found['rows_per_second']:,} messages/s")


def check_order(there: Iterable[tuple[int, Flight]], flights: list[Flight]) -> None:
    """Messages of a topic, as (queue, flight), beside the CSV: the same flights, each aircraft's in one queue, in order."""
    lanes: dict[object, list[int]] = {}
    queues: dict[object, set[int]] = {}
    got: dict[int, Flight] = {}
    count = 0
    for queue, flight in there:
        number = int(str(flight["id"]))
        lanes.setdefault(flight["tailnum"], []).append(number)
        queues.setdefault(flight["tailnum"], set()).add(queue)
        got[number] = flight
        count += 1
    check("messages read", count, len(flights))
    check("flights, field by field", [got[n] for n in sorted(got)], flights)
    lanes.pop(None, None)
    unordered = [tail for tail, lane in lanes.items() if lane != sorted(lane)]
    scattered = [tail for tail in lanes if len(queues[tail]) > 1]
    check(
        f"of {len(lanes):,} aircraft, those out of order or in several queues",
        unordered + scattered,
        [],
    )


def traffic(run: Run) -> None:
    """Totals by topic, airline, queue and aircraft, and what the group still has to do."""
    found = run.pipeline("traffic", "--topics", f"{TOPIC},{BY_AIRCRAFT}")
    count = len(run.flights)
    check("messages by topic", by(found["topics"], "topic"), {TOPIC: count, BY_AIRCRAFT: count})
    airlines = Counter(str(flight["carrier"]) for flight in run.flights)
    for topic in (TOPIC, BY_AIRCRAFT):
        check(f"messages by airline in {topic}", by(found["tags"], "tag", topic), dict(airlines))
    check(
        "messages by queue, with the producer's receipts",
        by(found["queues"], "queue_id", TOPIC),
        run.by_queue,
    )
    aircraft = Counter(str(f["tailnum"]) for f in run.flights if f["tailnum"] is not None)
    top = sorted(aircraft.items(), key=lambda item: (-item[1], item[0]))[:10]
    check("the busiest aircraft", list(by(found["hot_keys"], "key", TOPIC).items()), top)
    lag = found["lag_by_group"]  # the tables are members of groups, too
    check("what groups have still to consume", (lag.get(GROUP), set(lag.values())), (0, {0}))
    page = (run.directory / "report-traffic" / "report.html").read_text()
    plots = [f"<h2>{title}" in page for title in ("Messages over time", "Messages by tag", "Lag")]
    check("plots are in its report", (all(plots), page.count("<svg") >= 3), (True, True))


def by(rows: list[dict[str, Any]], column: str, topic: str = "") -> dict[Any, int]:
    """Messages by a column, of one topic or of all rows."""
    return {row[column]: row["messages"] for row in rows if topic in ("", row["topic"])}


def audit(run: Run) -> None:
    """A certificate for the topic, its consumers and its table; then the exceptions of a damaged table."""
    lake = run.directory / "lake"
    words = ["--topics", TOPIC, "--manifest", str(run.directory / "meant.jsonl")]
    words += ["--id", "json:id", "--sequence", "json:id", "--groups", GROUP]
    found = run.pipeline("audit", *words, "--table", f"{TOPIC}={lake / TOPIC}")
    check("messages", (found["verdict"], found["messages"]), ("certified", len(run.flights)))
    clean = dict.fromkeys(ALL_CHECKS, 0)
    check("exceptions of every check", exceptions(found), clean)
    certificate = json.loads((run.directory / "report-audit" / "certificate.json").read_text())
    digest = certificate.pop("digest")
    text = json.dumps(certificate, sort_keys=True, separators=(",", ":"))
    check("the certificate's digest", digest, hashlib.sha256(text.encode()).hexdigest())

    damaged = run.directory / "damaged"
    shutil.copytree(lake, damaged)
    gone, doubled = damage(damaged / TOPIC)
    print(
        f"\na copy of the table: a file with {len(gone):,} rows deleted, {DOUBLED} rows put in twice"
    )
    words += ["--table", f"{TOPIC}={damaged / TOPIC}", "--most", str(len(run.flights))]
    found = run.pipeline("audit", *words, report="audit-damaged", status=1)
    counts = {"table_missing": len(gone), "table_twice": DOUBLED, "table_files": 1}
    check("exceptions of every check", exceptions(found), clean | counts)
    listed: dict[str, set[tuple[Any, ...]]] = {"table_missing": set(), "table_twice": set()}
    for line in (run.directory / "report-audit-damaged" / "exceptions.jsonl").open():
        row = json.loads(line)
        if row["check"] in listed:
            listed[row["check"]].add(tuple(row[name[1:]] for name in PLACE))
    check("the rows that are missing, one by one", listed["table_missing"], gone)
    check("the rows that are there twice, one by one", listed["table_twice"], doubled)


def exceptions(found: dict[str, Any]) -> dict[str, int]:
    """By check."""
    return {each["name"]: each["exceptions"] for each in found["checks"]}


def damage(root: Path) -> tuple[set[tuple[Any, ...]], set[tuple[Any, ...]]]:
    """Delete a table's smallest file and double some rows of its largest; returns the places of both."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from deltalake import DeltaTable

    files = sorted(
        map(Path, DeltaTable(str(root)).file_uris()), key=lambda path: path.stat().st_size
    )
    if len(files) < 2:
        raise DemoError(f"{root} has {len(files)} files: too few to damage one and keep another")
    gone = places(pq.ParquetFile(files[0]).read(columns=list(PLACE)))
    files[0].unlink()
    rows = pq.ParquetFile(files[-1]).read()
    again = rows.slice(rows.num_rows // 2, DOUBLED)
    pq.write_table(pa.concat_tables([rows, again]), files[-1])
    return gone, places(again)


def places(rows: Any) -> set[tuple[Any, ...]]:
    """(broker, queue, offset) of each row of an Arrow table."""
    return {tuple(row[name] for name in PLACE) for row in rows.select(list(PLACE)).to_pylist()}


def dlq(run: Run) -> None:
    """What lies dead and why; one airline's letters back to the topic, once; a consumer that takes them now."""
    cancelled = Counter(str(flight["carrier"]) for flight in run.cancelled)
    (airline, chosen), *_ = cancelled.most_common(1)
    words = ["--groups", GROUP, "--by", "origin_topic,tags"]
    found = run.pipeline("dlq", *words)
    check("dead letters", found["dead_letters"], len(run.cancelled))
    clusters = {each["tags"]: each["messages"] for each in found["clusters"]}
    check("dead letters by airline", clusters, dict(cancelled))
    origins = {(each["origin_topic"], each["tries"]) for each in found["clusters"]}
    check("where they came from, and how often they failed", origins, {(TOPIC, TRIES)})

    ledger = run.directory / "dlq-audit"
    words += ["--where", f"tags = '{airline}'", "--send", "--rate", "2000", "--audit", str(ledger)]
    sent = run.pipeline("dlq", *words, report="dlq-send")["sent"]
    check(f"letters of {airline} sent back", (sent["sent"], sent["settled"]), (chosen, 0))
    again = run.pipeline("dlq", *words, report="dlq-again")["sent"]
    check("the same command again sends nothing", (again["sent"], again["settled"]), (0, chosen))
    check_ledger(ledger, chosen)

    print("\nthe consumer, which takes cancelled flights now", flush=True)
    desk = Desk(lambda flight: False)
    asyncio.run(desk.work(run.namesrv, accepted=chosen))
    wanted = {int(str(f["id"])): 1 for f in run.cancelled if f["carrier"] == airline}
    check("exactly these flights came again, each once", dict(desk.accepted), wanted)


def check_ledger(directory: Path, count: int) -> None:
    """The audit table: every letter planned, then sent, to the topic it came from."""
    import pyarrow.parquet as pq

    rows = [
        row
        for path in sorted(directory.glob("*.parquet"))
        for row in pq.ParquetFile(path).read().to_pylist()
    ]
    states = Counter(row["state"] for row in rows)
    check("the audit table's states", dict(states), {"planned": count, "sent": count})
    check("letters in it", len({row["id"] for row in rows}), count)
    check("their targets", {row["target"] for row in rows}, {TOPIC})
