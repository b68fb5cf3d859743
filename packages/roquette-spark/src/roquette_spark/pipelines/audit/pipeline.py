"""`roquette pipeline audit`: is what producers meant there, once, in order, consumed, and in the tables?

The answer is a certificate, which names what was looked at by offsets and fingerprints, or the exceptions. The
command ends with status 1 when there are exceptions.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from roquette.base.options import REQUIRED, counted, option, parse_duration
from roquette.errors import ConfigError
from roquette.message.names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from roquette_spark.commitlog.plan import describe_store
from roquette_spark.pipelines.archive.report import CERTIFICATE as CERTIFICATE_INFO
from roquette_spark.pipelines.archive.report import Certificate, decode_certificate
from roquette_spark.pipelines.audit import frames as ask
from roquette_spark.pipelines.audit.frames import AuditCheck, places_of
from roquette_spark.pipelines.kit.frame import SPAN, Job, Pipeline, PipelineOptions, Plan, Result
from roquette_spark.pipelines.kit.report import (
    Cell,
    Column,
    Report,
    ReportTable,
    Section,
    table_of,
)
from roquette_spark.pipelines.kit.topics import (
    known_topics,
    read_messages,
    read_offsets,
    require_topics,
)
from roquette_spark.pipelines.tables.table import data_files
from roquette_spark.pipelines.tables.table_formats import open_found
from roquette_spark.source.queues import queue_bounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CERTIFICATE, EXCEPTIONS = "certificate.json", "exceptions.jsonl"
CERTIFIED, STOPPED, FOUND = "certified", "stopped", "exceptions"  # verdicts
FORM = "roquette-audit/2"
CHECKED = ("name", "meaning", "looked_at", "exceptions")  # of a check, in the certificate
SHOWN = 20  # exceptions of one check on the page


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions(PipelineOptions):
    """Options of `audit`."""

    topics: tuple[str, ...] = option(REQUIRED, "Topics, with commas or repeated.", metavar="TOPIC")
    manifest: str = option(
        "",
        "What producers meant: JSON lines, CSV or Parquet with a column of ids, and if there are columns count "
        "(how often) and topic.",
        metavar="FILE",
    )
    manifest_id: str = option("id", "The manifest's column of ids.", metavar="COLUMN")
    id: str = option(
        "",
        "Where a message has its id: key, uniq_key, message_group, tags, property:NAME or json:FIELD; default is "
        "key with a manifest, else uniq_key.",
        metavar="FIELD",
    )
    sequence: str = option(
        "",
        "Where a message has its number within its key, for the check of order: as --id.",
        metavar="FIELD",
    )
    order_key: str = option(
        "",
        "What is kept in order: as --id; default is the message group, else the key.",
        metavar="FIELD",
    )
    table: tuple[str, ...] = option(
        (),
        "A table that should have all of a topic, as TOPIC=DIR; may be repeated. The quarantine that `archive` "
        "made beside it counts, too.",
        metavar="TOPIC=DIR",
    )
    groups: tuple[str, ...] = option(
        (), "Groups that should have consumed everything.", metavar="GROUP"
    )
    transactions: bool = option(True, "Look for unfinished transactions.")
    transaction_age: str = option(
        "1m", "Younger transactions may still be going on.", kind=SPAN, metavar="TIME"
    )
    store: tuple[str, ...] = option(
        (),
        "Read messages from this store's files and not from brokers; may be repeated.",
        metavar="DIR",
    )
    since: str = option(
        "",
        "Only messages of the last time, such as 24h; default is all there are.",
        kind=SPAN,
        metavar="TIME",
    )
    most: int = option(1000, "Exceptions listed of each check; all are counted.", least=1)

    @property
    def id_field(self) -> str:
        """Return the name of the field in which a message has its id."""
        return self.id or ("key" if self.manifest else "uniq_key")


@dataclass(slots=True)
class AuditRun:
    """Findings of an audit."""

    at_ms: int
    queues: list[dict[str, Any]] = field(default_factory=list)
    checks: list[AuditCheck] = field(default_factory=list)
    ends: list[dict[str, Any]] = field(default_factory=list)  # of queues, as brokers say
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)  # by topic: what they prove

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    @property
    def verdict(self) -> str:
        """CERTIFIED, FOUND, or STOPPED: it found nothing as far as it came."""
        if self.ok:
            return CERTIFIED
        return STOPPED if all(check.ok or check.name == STOPPED for check in self.checks) else FOUND


def tables_of(options: AuditOptions) -> dict[str, str]:
    """Topic to directory. Raises ConfigError for text that is not TOPIC=DIR."""
    found = {}
    for text in options.table:
        topic, equals, path = text.partition("=")
        if not equals or not path or topic not in options.topics:
            raise ConfigError(
                f"audit: --table {text} is not of the form TOPIC=DIR with one of the topics "
                + ", ".join(options.topics)
            )
        found[topic] = path
    return found


def check_options(options: AuditOptions) -> None:
    """Raises ConfigError for what cannot be right."""
    tables_of(options)
    if options.manifest and "://" not in options.manifest and not os.path.exists(options.manifest):
        raise ConfigError(f"audit: there is no manifest {options.manifest}")
    for where in filter(None, (options.id_field, options.sequence, options.order_key)):
        ask.check_field(where)


def plan(options: AuditOptions) -> Plan:
    check_options(options)
    if not options.store:
        require_topics(options.namesrv, options.topics, "audit")
    where = ", ".join(options.store) or f"brokers of {options.namesrv}"
    reads = [f"{', '.join(options.topics)} from {where}", *map(describe_store, options.store)]
    if options.manifest:
        reads.append(f"ids in {options.manifest}, compared with {options.id_field}")
    reads += [f"table {path} of {topic}" for topic, path in tables_of(options).items()]
    if options.groups:
        reads.append(f"offsets of {', '.join(options.groups)}")
    notes = [] if options.sequence else ["order is not checked: --sequence says where numbers are"]
    return Plan(
        reads=reads, writes=[f"{CERTIFICATE} or {EXCEPTIONS}, in the report directory"], notes=notes
    )


def run(options: AuditOptions, job: Job) -> Result:
    """All checks that the options ask for."""
    check_options(options)
    if not options.store:
        require_topics(options.namesrv, options.topics, "audit")
    job.progress.step("starting Spark")
    spark = job.open_spark()
    audit = AuditRun(job.clock.now_ms())
    offsets = _offsets(options, spark)
    names = ("topic", "broker_name", "queue_id", "min_offset", "max_offset")
    audit.ends = [{n: row[n] for n in names} for row in offsets if row["group"] is None]
    messages = _messages(options, spark, options.topics, audit.at_ms)
    slim = ask.slim(messages, options.id_field, options.order_key, options.sequence).persist()
    try:
        job.progress.step("reading messages")
        audit.queues = ask.queues_of(slim)
        job.progress.update(sum(row["messages"] for row in audit.queues))
        audit.checks.append(_holes(options, audit.queues, offsets))
        for step, checks in _steps(options, spark, slim, audit):
            if job.stop.is_set():
                break
            job.progress.step(step)
            audit.checks += checks()
    finally:
        slim.unpersist()
    if options.groups:
        audit.checks.append(ask.unconsumed(offsets, options.groups, options.most))
    if job.stop.is_set():
        audit.checks.append(
            AuditCheck(STOPPED, "the audit was stopped before its end", exceptions=1)
        )
    return finish(audit, options, job)


def _steps(options: AuditOptions, spark: "SparkSession", slim: "DataFrame", audit: AuditRun) -> Any:
    """(what it is called, how it is done) of every check that wants Spark."""
    most = options.most
    if options.manifest:

        def manifest() -> list[AuditCheck]:
            meant = ask.read_manifest(spark, options.manifest, options.manifest_id)
            return ask.against_manifest(slim, meant, most)

        yield "comparing with the manifest", manifest
    else:
        yield "looking for ids that are there twice", lambda: [ask.repeated_ids(slim, most)]
    if options.sequence:
        yield "checking order", lambda: [ask.inversions(slim, most), ask.scattered_keys(slim, most)]
    for topic, path in tables_of(options).items():

        def compare(topic: str = topic, path: str = path) -> list[AuditCheck]:
            rows = read_rows(spark, path)
            ends = None if options.store else queue_bounds(options.namesrv, [topic])[1]
            by_queue = {(q.broker_name, q.queue_id): end for q, end in (ends or {}).items()}
            found, proof = ask.against_table(topic, slim, rows.frame, most, by_queue)
            audit.tables[topic] = proof | rows.history
            return [*found, skipped_offsets(topic, rows, most), lost_files(topic, rows, most)]

        yield f"comparing {topic} with its table", compare
    if options.transactions:
        yield (
            "looking for unfinished transactions",
            lambda: [_unfinished(options, spark, audit.at_ms)],
        )


def _messages(
    options: AuditOptions, spark: "SparkSession", topics: Sequence[str], at_ms: int
) -> "DataFrame":
    # What is missing is an exception of the audit, not an error of the read.
    lenient = "failOnCorruptRecord" if options.store else "failOnDataLoss"
    return read_messages(
        spark,
        ask.COLUMNS,
        topics,
        namesrv=options.namesrv,
        store=options.store,
        begin_ms=at_ms - parse_duration(options.since) if options.since else 0,
        more={"includeSystemProperties": "true", lenient: "false"},
    )


def _offsets(options: AuditOptions, spark: "SparkSession") -> list[dict[str, Any]]:
    """Ends of queues according to the brokers, before messages are read; empty without brokers."""
    if options.store and not options.groups:
        return []
    return read_offsets(spark, options.namesrv, options.topics, options.groups)


def _holes(
    options: AuditOptions, queues: list[dict[str, Any]], offsets: Sequence[Mapping[str, Any]]
) -> AuditCheck:
    """Holes between messages and, where brokers say how far a queue goes, at its ends."""
    if options.since:
        return ask.holes(queues, options.most)
    known = {(r["topic"], r["broker_name"], r["queue_id"]): r for r in queues}
    spans = dict(known)
    for row in offsets:
        key = row["topic"], row["broker_name"], row["queue_id"]
        if row["group"] is not None or row["max_offset"] <= row["min_offset"]:
            continue
        found = known.get(key)
        span = found or {
            **{name: row[name] for name in ("topic", "broker_name", "queue_id")},
            "first_offset": row["max_offset"],
            "last_offset": row["min_offset"] - 1,
            "offsets": 0,
        }
        spans[key] = span | {
            "first_offset": min(span["first_offset"], row["min_offset"]),
            "last_offset": max(span["last_offset"], row["max_offset"] - 1),
        }
    return ask.holes([spans[key] for key in sorted(spans)], options.most)


def _unfinished(options: AuditOptions, spark: "SparkSession", at_ms: int) -> AuditCheck:
    if not options.store and TRANS_HALF_TOPIC not in known_topics(options.namesrv, "audit"):
        check = AuditCheck("unfinished", "transactions that were neither committed nor rolled back")
        check.skipped = "no broker has had a transaction"
        return check
    halves = _messages(options, spark, [TRANS_HALF_TOPIC], at_ms)
    known = options.store or TRANS_OP_HALF_TOPIC in known_topics(options.namesrv, "audit")
    ops = _messages(options, spark, [TRANS_OP_HALF_TOPIC], at_ms) if known else halves.limit(0)
    before_ms = at_ms - parse_duration(options.transaction_age)
    return ask.unfinished(halves, ops, options.topics, before_ms, options.most)


def finish(audit: AuditRun, options: AuditOptions, job: Job) -> Result:
    """Write the certificate or the exceptions; the command's result."""
    certificate = certificate_of(audit, options)
    name = CERTIFICATE if audit.ok else EXCEPTIONS
    if audit.ok:
        text = json.dumps(certificate, indent=2, sort_keys=True) + "\n"
    else:
        rows = [{"check": check.name, **each} for check in audit.checks for each in check.examples]
        text = "".join(json.dumps(row, sort_keys=True, default=str) + "\n" for row in rows)
    job.files.write_atomic(os.path.join(job.directory, name), text.encode(), keep_backup=False)
    count = sum(check.exceptions for check in audit.checks)
    messages = sum(row["messages"] for row in audit.queues)
    line = {
        CERTIFIED: f"certified: {counted(messages, 'message')}, {certificate['digest'][:16]}",
        STOPPED: "stopped before its end: nothing is certified",
        FOUND: f"{counted(count, 'exception')}: {os.path.join(job.directory, name)}",
    }[audit.verdict]
    return Result(
        ok=audit.ok, summary=certificate, report=report_of(audit, certificate), last_line=line
    )


def certificate_of(audit: AuditRun, options: AuditOptions) -> dict[str, Any]:
    """Say what was looked at and what came of it; `digest` is the SHA-256 of all the rest as canonical JSON."""
    found: dict[str, Any] = {
        "form": FORM,
        "verdict": audit.verdict,
        "at_ms": audit.at_ms,
        "topics": list(options.topics),
        "source": list(options.store) or options.namesrv,
        "since": options.since or "the beginning",
        "manifest": options.manifest or None,
        "id": options.id_field,
        "sequence": options.sequence or None,
        "tables": tables_of(options),
        "groups": list(options.groups),
        "messages": sum(row["messages"] for row in audit.queues),
        "queues": audit.queues,
        "ends": audit.ends,
        "proofs": audit.tables,
        "checks": [
            {name: getattr(check, name) for name in CHECKED} | {"skipped": check.skipped or None}
            for check in audit.checks
        ],
    }
    text = json.dumps(found, sort_keys=True, separators=(",", ":"))
    return found | {"digest": hashlib.sha256(text.encode()).hexdigest()}


def report_of(audit: AuditRun, certificate: Mapping[str, Any]) -> Report:
    report = Report(
        title="Certificate" if audit.ok else "Exceptions",
        lead=f"Audit of {', '.join(certificate['topics'])}. Digest {certificate['digest']}.",
    )
    report.count(certificate["messages"], "message", " looked at")
    report.count(len(audit.queues), "queue")
    report.count(sum(check.exceptions for check in audit.checks), "exception")
    checks: dict[str, Column] = {
        "check": lambda check: check.name.replace("_", " "),
        "what counts": lambda check: check.meaning,
        "looked at": lambda check: check.looked_at,
        "exceptions": lambda check: (
            Cell("not made: " + check.skipped, True)
            if check.skipped
            else Cell(f"{check.exceptions:,}", check.ok)
        ),
    }
    text = "What was asked, of how many, and how many exceptions there are."
    report.add("Checks", text, table_of(audit.checks, checks))
    for check in audit.checks:
        head = list(check.examples[0]) if check.examples else []
        rows = [[row.get(name) for name in head] for row in check.examples[:SHOWN]]
        text = f"{check.meaning}: the first {len(rows)} of {check.exceptions:,}."
        report.add(check.name.replace("_", " "), text, ReportTable(head, rows))
    names = ("first_offset", "last_offset", "messages", "first_message", "fingerprint")
    queues = [
        [f"{row['topic']} {row['broker_name']} {row['queue_id']}", *(row[name] for name in names)]
        for row in audit.queues
    ]
    report.sections.append(
        Section(
            "What was looked at",
            "A queue's messages have the same fingerprint exactly if places, bodies' CRCs and sizes are the same. Which its "
            "first message is (stored when, and where in the log) tells topics of one name from each other.",
            [ReportTable(["queue", *(name.replace("_", " ") for name in names)], queues)],
        )
    )
    return report


PIPELINE = Pipeline(
    name="audit",
    help="Prove that nothing was lost, sent twice or put out of order, or list the exceptions.\n\n"
    "Compares what producers meant (a manifest), topics, tables, consumers' offsets and transactions. Writes a "
    "certificate, or the exceptions and ends with status 1.",
    options=AuditOptions,
    plan=plan,
    run=run,
)


# Tables as `audit` compares them: those of `archive` by their log, together with their quarantine; others as they are.


QUARANTINE = ".quarantine"


@dataclass(slots=True)
class TableRows:
    """The place (broker, queue, offset) of every row of a table.

    Attributes:
        files: how many files its log names; 0 for a table without one.
        record: the certificate that `archive` has counted; None if it has not.
        gone: those that are not there, with their rows by the log; their rows are not in `frame`.
    """

    frame: "DataFrame"
    files: int = 0
    record: Certificate | None = None
    gone: list[tuple[str, int]] = field(default_factory=list)

    @property
    def history(self) -> dict[str, int]:
        """What the certificate says: offsets that were skipped, queues that were made anew."""
        if self.record is None:
            return {}
        anew = {queue for queue, _ in self.record.former}
        return {"skipped": self.record.skipped, "queues_made_anew": len(anew)}


def read_rows(spark: "SparkSession", path: str) -> TableRows:
    """The rows of a table, bad ones in the quarantine among them.

    Raises:
        ConfigError: there is no table, or its rows have no places.
    """
    path = path.rstrip("/")
    found = _read_one(spark, path)
    if found is None:
        raise ConfigError(f"audit: there is no table {path}")
    bad = _read_one(spark, path + QUARANTINE)
    if bad is None:
        return found
    return TableRows(
        found.frame.unionByName(bad.frame),
        found.files + bad.files,
        found.record,
        found.gone + bad.gone,
    )


def _read_one(spark: "SparkSession", path: str) -> TableRows | None:
    from roquette_spark.pipelines.tables.table_source import open_frame  # needs PySpark

    table = open_found(path)
    snapshot = table.snapshot
    if snapshot.version >= 0:
        there = set(data_files(table.files))
        left = {name: file for name, file in snapshot.files.items() if name in there}
        frame = open_frame(spark, table, files=left.values())
        gone = [
            (table.files.address(name), file.rows)
            for name, file in sorted(snapshot.files.items())
            if name not in there
        ]
        kept = table.last_info(CERTIFICATE_INFO)
        record = None if kept is None else decode_certificate(kept)
        return TableRows(places_of(frame, path), len(snapshot.files), record, gone)
    if "://" not in path and not os.path.exists(path):
        return None
    if path.endswith(QUARANTINE):
        return None
    return TableRows(places_of(spark.read.parquet(path), path))


def skipped_offsets(topic: str, rows: TableRows, most: int) -> AuditCheck:
    """What the stream into the table went over: the topic does not know it any more, the table's certificate does."""
    check = AuditCheck(
        "table_skipped",
        f"offsets that no broker had any more when the table's stream came to them (table of {topic})",
    )
    if rows.record is None:
        check.skipped = "the table has no certificate of archive"
        return check
    for (broker_name, queue_id), each in sorted(rows.record.totals.items()):
        place = {"topic": topic, "broker_name": broker_name, "queue_id": queue_id}
        check.note(each.skipped, {**place, "skipped": each.skipped}, most)
    return check


def lost_files(topic: str, rows: TableRows, most: int) -> AuditCheck:
    """Files that a table's log names and that are not there."""
    meaning = f"files that the table's log names and that are not there (table of {topic})"
    check = AuditCheck("table_files", meaning, rows.files - len(rows.gone))
    for path, count in rows.gone:
        check.note(1, {"topic": topic, "file": path, "rows": count}, most)
    if not rows.files:
        check.skipped = "the table has no log"
    return check
