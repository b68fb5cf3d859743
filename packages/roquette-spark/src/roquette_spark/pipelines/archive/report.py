"""Report of an archive run: numbers for programs, a page for people."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from roquette.base.options import counted, size_text
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.frame import Result
from roquette_spark.pipelines.kit.message_rows import DAY, RowForm
from roquette_spark.pipelines.kit.report import (
    Cell,
    Chart,
    Column,
    Report,
    ReportTable,
    columns,
    lines,
    table_of,
)
from roquette_spark.pipelines.kit.stream import Batches, rates, summary_of
from roquette_spark.pipelines.kit.table_files import Compaction, Snapshot
from roquette_spark.pipelines.kit.topics import PlannedEnd, Queue
from roquette_spark.values.offsets import QueueRange

# What an archive has of each queue, counted batch by batch: the check at the end asks it instead of scanning. Pure.
# Each commit carries the certificate of all commits until then. What a batch adds to it are the rows that its tasks wrote, by the files' own counts, beside the offsets that the batch was to read.


CERTIFICATE = "certificate"  # in the table's commits


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """Of one queue, or of what it was before its topic was made anew.

    Attributes:
        start, end: the offsets that batches were to read, from the first to the last of them, `end` excluded.
        rows: in table and quarantine together.
        missing: offsets of that span without a row; not counted where tags were asked for.
        twice: rows more than offsets.
        skipped: offsets that the source went over, since no broker had them any more: with failOnDataLoss=false.
        seen: which message lies before `end` (as in the offsets of the source); "" if that is not known.
    """

    start: int
    end: int
    rows: int = 0
    missing: int = 0
    twice: int = 0
    skipped: int = 0
    seen: str = ""

    def plus(self, other: "QueueRecord") -> "QueueRecord":
        """With the counts of another record of the queue."""
        names = ("rows", "missing", "twice", "skipped")
        return replace(self, **{name: getattr(self, name) + getattr(other, name) for name in names})


@dataclass(frozen=True, slots=True)
class Certificate:
    """Of one topic. `former` are the records of queues whose topic was made anew, or whose store lost its tail, since then."""

    queues: Mapping[Queue, QueueRecord] = field(default_factory=dict)
    former: tuple[tuple[Queue, QueueRecord], ...] = ()

    @property
    def totals(self) -> dict[Queue, QueueRecord]:
        """Of each queue, with what it was before."""
        found = dict(self.queues)
        for queue, each in self.former:
            found[queue] = found[queue].plus(each)
        return found

    rows = property(lambda self: self._sum("rows"))
    missing = property(lambda self: self._sum("missing"))
    twice = property(lambda self: self._sum("twice"))
    skipped = property(lambda self: self._sum("skipped"))

    def _sum(self, name: str) -> int:
        return sum(getattr(each, name) for each in self.totals.values())

    def with_batch(
        self,
        ranges: Iterable[QueueRange],
        rows: Mapping[Queue, int],
        starts: Mapping[Queue, int],
        *,
        every: bool,
        planned: Mapping[Queue, PlannedEnd] | None = None,
    ) -> "Certificate":
        """With one batch more.

        Args:
            ranges: what the batch was to read.
            rows: what its files have, by queue.
            starts: where the table began; a queue that is not named began where it is first read.
            every: each offset is to be a row: no tags were asked for.
            planned: where the batch ends, in all queues, and which of them it begins anew.
        """
        queues, former, planned = dict(self.queues), self.former, planned or {}
        for queue, place in planned.items():
            if place.anew is not None and queue in queues:
                former += ((queue, queues[queue]),)
                queues[queue] = QueueRecord(place.anew, place.anew)
        expected: dict[Queue, int] = {}
        for each in sorted(ranges):
            queue = each.queue.broker_name, each.queue.queue_id
            start = min(starts.get(queue, each.start), each.start)
            record = queues.get(queue, QueueRecord(start, start))
            end = max(record.end, each.end)
            expected[queue] = expected.get(queue, 0) + end - record.end
            gap = max(0, each.start - record.end)
            queues[queue] = replace(record, end=end, skipped=record.skipped + gap)
        for queue, wanted in expected.items():
            count, record = rows.get(queue, 0), queues[queue]
            queues[queue] = replace(
                record,
                rows=record.rows + count,
                missing=record.missing + (max(0, wanted - count) if every else 0),
                twice=record.twice + max(0, count - wanted),
            )
        return Certificate(queues, former).reaching(planned, starts, every=every)

    def reaching(
        self, ends: Mapping[Queue, PlannedEnd], starts: Mapping[Queue, int], *, every: bool
    ) -> "Certificate":
        """Up to where a stream has come: what it has gone over and nobody wrote is missing."""
        queues = dict(self.queues)
        for queue, each in ends.items():
            start = min(starts.get(queue, each.offset), each.offset)
            record = queues.get(queue, QueueRecord(start, start))
            more = max(0, each.offset - record.end)
            queues[queue] = replace(
                record,
                end=max(record.end, each.offset),
                missing=record.missing + (more if every else 0),
                skipped=record.skipped + more,
                seen=each.seen if each.offset >= record.end else record.seen,
            )
        return Certificate(queues, self.former)

    def remembering(self, kept: "Certificate") -> "Certificate":
        """With what rows alone do not tell: what the stream skipped, and which message lies before an end."""
        totals, queues = kept.totals, dict(self.queues)
        for queue, each in self.queues.items():
            if queue in totals:
                seen = totals[queue].seen if totals[queue].end == each.end else ""
                queues[queue] = replace(each, skipped=totals[queue].skipped, seen=seen)
        return Certificate(queues)

    def encode(self) -> str:
        """For a commit. Versions that know the first five numbers of a queue alone ignore the rest."""
        found: dict[str, dict[str, list[int]]] = {}
        for (broker_name, queue_id), each in sorted(self.queues.items()):
            found.setdefault(broker_name, {})[str(queue_id)] = _numbers(each)[:5]
        more = [[*q, _numbers(each)[5], each.seen] for q, each in sorted(self.queues.items())]
        former = [[*queue, *_numbers(each), each.seen] for queue, each in self.former]
        parts = {"v": 1, "queues": found, "more": more, "former": former}
        return json.dumps(parts, separators=(",", ":"))


def _numbers(each: QueueRecord) -> list[int]:
    return [each.start, each.end, each.rows, each.missing, each.twice, each.skipped]


def decode_certificate(text: str) -> Certificate:
    """Raises ConfigError when it was made by a version that is newer than this."""
    found = json.loads(text)
    if found.get("v") != 1:
        raise ConfigError("archive: the table's certificate was made by a newer version: use that")
    more = {(broker, queue_id): rest for broker, queue_id, *rest in found.get("more", ())}
    queues = {
        (broker_name, int(queue_id)): QueueRecord(
            *values, *more.get((broker_name, int(queue_id)), ())
        )
        for broker_name, queues in found["queues"].items()
        for queue_id, values in queues.items()
    }
    former = [((each[0], each[1]), QueueRecord(*each[2:])) for each in found.get("former", ())]
    return Certificate(queues, tuple(former))


MOST_DAYS, MOST_VALUES = 370, 40  # in the chart
_WITH_ADD = "With --schema-evolution add fields that come from then on get columns; rows stay as they were written."
_WHY_RESCUED = {
    "add": "No column can take them: their name is one of ours or not for columns, they were null whenever they came, "
    "there are too many, or an earlier run was told not to add columns; rows stay as they were written.",
    "fixed": f"This run adds no columns (--schema-evolution fixed). {_WITH_ADD}",
    "fail": f"They are of earlier runs, or have no name for a column. {_WITH_ADD}",
}
MOST_NAMED = 8  # topics in the title


@dataclass(frozen=True, slots=True)
class QueueCount:
    """What the tables have of one queue, beside the stream's position and what the brokers say.

    Attributes:
        record: what is known of it now, earlier lives of its topic included.
        before: what was known of it when this run began.
        behind: messages that brokers had when this run began, behind the end of what it was to read.
        other: the brokers have another message than the one the table ends with.
        lives: how often its topic was made anew, or its store lost its tail, since the table was begun.
    """

    broker_name: str
    queue_id: int
    record: QueueRecord
    before: QueueRecord = QueueRecord(0, 0)
    behind: int = 0
    other: bool = False
    lives: int = 0

    @property
    def exact(self) -> bool:
        """Each offset is there once."""
        return not (self.record.twice or self.record.missing or self.record.skipped or self.lives)

    @property
    def worse(self) -> bool:
        """This run has found more missing or twice than was known, or does not end where the brokers do."""
        more = any(
            getattr(self.record, name) > getattr(self.before, name)
            for name in ("missing", "twice", "skipped")
        )
        return more or self.other or self.behind > 0


@dataclass(frozen=True, slots=True)
class TopicResult:
    """One topic after a run. `counts` is None when nothing was compared.

    Attributes:
        bad: messages that this run put into the quarantine.
        mended: messages that this run moved from there to the table.
        unmet: expectation -> rows of this run that do not meet it.
        rescued: rows of this run with fields that no column takes.
        fields: such fields in all of the table, and in how many rows.
        evolution: of EVOLUTIONS, as this run had it.
        columns_added: names of the columns that this run's bodies gave to the table.
        lacks: options whose column its bodies did not have when it came to a stream of many topics.
    """

    topic: str
    root: str
    snapshot: Snapshot
    quarantined: int
    reasons: list[tuple[str, int]]
    bad: int
    mended: int
    unmet: Mapping[str, int]
    rescued: int
    fields: list[tuple[str, int]]
    evolution: str
    columns_added: list[str]
    lacks: list[str]
    batches: Batches
    compaction: Compaction
    counts: list[QueueCount] | None
    form: RowForm

    @property
    def ok(self) -> bool:
        """Nothing more lost or twice than was known before this run, as far as was looked."""
        return not any(each.worse for each in self.counts or ())

    def summary(self) -> dict[str, Any]:
        found = {
            "table": self.root,
            "version": self.snapshot.version,
            "rows": self.snapshot.rows,
            "files": len(self.snapshot.files),
            "bytes": self.snapshot.size,
            "quarantined": self.quarantined,
            "quarantined_now": self.bad,
            "from_quarantine": self.mended,
            "expectations": dict(self.unmet),
            "reasons": dict(self.reasons),
            "rescued": self.rescued,
            "rescued_fields": dict(self.fields),
            "columns_added": self.columns_added,
            "lacks": self.lacks,
            "this_run": summary_of(self.batches),
            "files_joined": self.compaction.files_before,
            "checked": self.counts is not None,
        }
        sums = sums_of(self.counts or ())
        return found | {name: n if self.counts is not None else None for name, n in sums.items()}


def sums_of(counts: Sequence[QueueCount]) -> dict[str, int]:
    """Of queues: offsets that are missing, there twice or skipped, and what of brokers' ends the tables do not have."""
    return {
        **{n: sum(getattr(c.record, n) for c in counts) for n in ("missing", "twice", "skipped")},
        "behind": sum(each.behind for each in counts),
        "other_ends": sum(each.other for each in counts),
        "queues_made_anew": sum(each.lives > 0 for each in counts),
    }


def build_result(topics: list[TopicResult], seconds: float, *, follows: bool) -> Result:
    rows = sum(each.snapshot.rows for each in topics)
    bad = sum(each.quarantined for each in topics)
    new = sum(each.batches.rows for each in topics)
    rescued = sum(each.rescued for each in topics)
    bad_now = sum(each.bad for each in topics)
    summary = {
        "rows": rows,
        "quarantined": bad,
        "new_rows": new,
        "rescued": rescued,
        "topics": {each.topic: each.summary() for each in topics},
    }
    report = Report(
        title="Archive of " + _title(topics),
        lead="Topics as Parquet tables: each message once, in the table or in the quarantine beside it.",
    )
    report.count(rows, "row", " in the tables")
    report.count(bad, "message", f" in quarantine, {bad_now:,} of this run")
    report.count(new, "message", " taken by this run")
    report.count(rescued, "row", " of this run with fields without a column")
    report.count(sum(len(each.snapshot.files) for each in topics), "file")
    report.facts += [
        (size_text(sum(each.snapshot.size for each in topics)), "of Parquet"),
        (f"{seconds:.0f} s", "with Spark"),
    ]
    for each in topics:
        _add_topic(report, each)
    checked = [each for each in topics if each.counts is not None]
    counts = [count for each in checked for count in each.counts or ()]
    verdict = _compared(counts) if checked else ""
    line = f"{counted(new, 'message')} archived, {counted(rows, 'row')} in the tables, {bad:,} in quarantine{verdict}"
    if rescued:
        line += (
            f"; warning: {counted(rescued, 'row')} with fields without a column, kept in _rescued"
        )
    if bad_now:
        line += f"; warning: {counted(bad_now, 'message')} of this run went to the quarantine"
    status = Result.BAD_MESSAGES if bad_now and not follows else 0
    ok = all(each.ok for each in topics)
    return Result(ok=ok, summary=summary, report=report, last_line=line, status=status)


def _compared(counts: Sequence[QueueCount]) -> str:
    sums = sums_of(counts)
    found = f"; compared with the topics: {sums['missing']:,} missing, {sums['twice']:,} twice"
    if sums["skipped"]:
        found += f", {sums['skipped']:,} skipped (no broker had them any more)"
    if sums["behind"]:
        found += f", {sums['behind']:,} not read"
    if sums["other_ends"]:
        found += f", another last message in {counted(sums['other_ends'], 'queue')}"
    if lives := sums["queues_made_anew"]:
        found += f"; {counted(lives, 'queue')} made anew since the table was begun"
    return found


def _title(topics: list[TopicResult]) -> str:
    names = [each.topic for each in topics]
    return ", ".join(names) if len(names) <= MOST_NAMED else f"{len(names)} topics"


def _verdict(count: QueueCount) -> str:
    if count.worse:
        return "DIFFERS"
    return "exact" if count.exact else "known before"


def _last_message(count: QueueCount) -> str:
    if count.behind:
        return f"{count.behind:,} before the brokers'"
    anew = f", of life {count.lives + 1}" if count.lives else ""
    return "ANOTHER" if count.other else f"offset {count.record.end - 1}{anew}"


def _by_partition(topic: TopicResult) -> tuple[str, str, Chart]:
    """Rows by day, of tables by hours, too; or by the values of the column that partitions."""
    name = topic.form.partitioned_by[0]
    by_day = name == DAY
    found: dict[str, int] = {}
    for file in topic.snapshot.files.values():
        value = dict(file.partition).get(name) or ("unknown" if by_day else "null")
        found[value] = found.get(value, 0) + file.rows
    ordered = sorted(found.items(), key=lambda item: item if by_day else (-item[1], item[0]))
    items = [(value, float(rows), f"{value}: {counted(rows, 'row')}") for value, rows in ordered]
    if by_day:
        shown = items[-MOST_DAYS:]
        last = f", the last {len(shown)} shown." if len(items) > len(shown) else "."
        text = f"By {topic.form.day_of}, in UTC; {counted(len(items), 'day')}{last}"
        return "rows by day", text, columns(shown, "rows by day")
    shown = items[:MOST_VALUES]
    last = f", the {len(shown)} with the most rows shown." if len(items) > len(shown) else "."
    text = f"{counted(len(items), 'value')}{last}"
    return f"rows by {name}", text, columns(shown, f"rows by {name}")


def _add_topic(report: Report, topic: TopicResult) -> None:
    def add(title: str, text: str, part: Chart | ReportTable) -> None:
        report.add(f"{topic.topic}: {title}", text, part)

    if len(topic.batches.kept) > 1:
        batches = counted(topic.batches.count, "batch", "batches")
        text = (
            f"Rows a second of each batch of this run ({batches}), by the seconds since its begin."
        )
        add("pace", text, lines(rates(topic.batches), "rows a second"))
    if topic.snapshot.files:
        add(*_by_partition(topic))
    queues: dict[str, Column] = {
        "queue": lambda each: f"{each.broker_name} {each.queue_id}",
        "rows": lambda each: each.record.rows,
        "missing": lambda each: each.record.missing,
        "twice": lambda each: each.record.twice,
        "skipped": lambda each: each.record.skipped,
        "last message": _last_message,
        "": lambda each: Cell(_verdict(each), not each.worse),
    }
    add(
        "compared with the topic",
        "Rows by queue, in table and quarantine together; offsets between a queue's first row and the "
        "stream's position that are not there are missing. Skipped are those that no broker had any more. The last "
        "message is that of the brokers, or has expired there.",
        table_of(topic.counts or (), queues, most=None),
    )
    unmet = [[n, r, Cell("NOT MET" if r else "met", not r)] for n, r in topic.unmet.items()]
    text = "Rows of this run that do not meet what is expected of them, once for each expectation."
    add("expectations", text, ReportTable(["expectation", "rows", ""], unmet))
    add(
        "fields without a column",
        "They are in the column _rescued, as JSON. " + _WHY_RESCUED[topic.evolution],
        ReportTable(["field", "rows"], topic.fields),
    )
    add(
        "quarantine",
        f"Why messages could not be read. They are whole in {topic.root}.quarantine.",
        ReportTable(["what is wrong", "messages"], topic.reasons),
    )
