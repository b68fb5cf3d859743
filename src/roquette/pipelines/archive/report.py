"""What an archive run tells: numbers for programs, a page for people."""

from dataclasses import dataclass
from typing import Any

from roquette.pipelines.kit.frame import Result
from roquette.pipelines.kit.message_rows import RowForm
from roquette.pipelines.kit.page import Cell, Page, Section, columns, lines, table
from roquette.pipelines.kit.stream import Batches, rates, summary_of
from roquette.pipelines.kit.table import Compaction
from roquette.pipelines.kit.table_log import Snapshot


@dataclass(frozen=True, slots=True)
class QueueCount:
    """What the tables have of one queue: rows, rows too many, offsets that are not there."""

    broker_name: str
    queue_id: int
    rows: int
    twice: int
    missing: int


@dataclass(frozen=True, slots=True)
class TopicResult:
    """One topic after a run. `counts` is None when nothing was compared.

    Attributes:
        rescued: rows of this run with fields that no column takes.
        fields: such fields in all of the table, and in how many rows.
    """

    topic: str
    root: str
    snapshot: Snapshot
    quarantined: int
    reasons: list[tuple[str, int]]
    rescued: int
    fields: list[tuple[str, int]]
    batches: Batches
    compaction: Compaction
    counts: list[QueueCount] | None
    form: RowForm

    @property
    def ok(self) -> bool:
        """Nothing lost, nothing twice, as far as was looked."""
        return not any(each.twice or each.missing for each in self.counts or ())

    def summary(self) -> dict[str, Any]:
        """For summary.json."""
        counts = self.counts
        return {
            "table": self.root,
            "version": self.snapshot.version,
            "rows": self.snapshot.rows,
            "files": len(self.snapshot.files),
            "bytes": self.snapshot.size,
            "quarantined": self.quarantined,
            "reasons": dict(self.reasons),
            "rescued": self.rescued,
            "rescued_fields": dict(self.fields),
            "this_run": summary_of(self.batches),
            "files_joined": self.compaction.files_before,
            "checked": counts is not None,
            "missing": None if counts is None else sum(each.missing for each in counts),
            "twice": None if counts is None else sum(each.twice for each in counts),
        }


def build_result(topics: list[TopicResult], seconds: float) -> Result:
    """All topics together."""
    rows = sum(each.snapshot.rows for each in topics)
    bad = sum(each.quarantined for each in topics)
    new = sum(each.batches.rows for each in topics)
    rescued = sum(each.rescued for each in topics)
    ok = all(each.ok for each in topics)
    summary = {
        "rows": rows,
        "quarantined": bad,
        "new_rows": new,
        "rescued": rescued,
        "topics": {each.topic: each.summary() for each in topics},
    }
    page = Page(
        title="Archive of " + ", ".join(each.topic for each in topics),
        lead="Topics as Parquet tables: each message once, in the table or in the quarantine beside it.",
        facts=[
            (f"{rows:,}", "rows in the tables"),
            (f"{new:,}", "of them in this run" if new != rows else "new in this run"),
            (f"{bad:,}", "messages in quarantine"),
            (f"{rescued:,}", "rows of this run with fields without a column"),
            (f"{sum(len(each.snapshot.files) for each in topics):,}", "files"),
            (_size(sum(each.snapshot.size for each in topics)), "of Parquet"),
            (f"{seconds:.0f} s", "with Spark"),
        ],
        sections=[section for each in topics for section in _sections(each)],
    )
    checked = [each for each in topics if each.counts is not None]
    verdict = ""
    if checked:
        missing = sum(count.missing for each in checked for count in each.counts or ())
        twice = sum(count.twice for each in checked for count in each.counts or ())
        verdict = f"; compared with the topics: {missing:,} missing, {twice:,} twice"
    line = f"{new:,} messages archived, {rows:,} rows in the tables, {bad:,} in quarantine{verdict}"
    if rescued:
        line += f"; warning: {rescued:,} rows with fields without a column, kept in _rescued"
    return Result(ok=ok, summary=summary, page=page, last_line=line)


def _sections(topic: TopicResult) -> list[Section]:
    days: dict[str, int] = {}
    for file in topic.snapshot.files.values():
        day = dict(file.partition).get("dt") or "unknown"
        days[day] = days.get(day, 0) + file.rows
    sections = []
    if topic.batches.kept:
        sections.append(
            Section(
                f"{topic.topic}: pace",
                f"Rows a second of each batch of this run ({topic.batches.count:,} batches), over seconds.",
                lines(rates(topic.batches), "rows a second"),
            )
        )
    if days:
        items = [(day, float(rows), f"{day}: {rows:,} rows") for day, rows in sorted(days.items())]
        shown = items[-370:]
        sections.append(
            Section(
                f"{topic.topic}: rows by day",
                f"By {topic.form.day_of}, in UTC; {len(items):,} days"
                + (f", the last {len(shown)} shown." if len(items) > len(shown) else "."),
                columns(shown, "rows by day"),
            )
        )
    if topic.counts is not None:
        sections.append(
            Section(
                f"{topic.topic}: compared with the topic",
                "Rows by queue, in table and quarantine together; offsets between a queue's first row and the "
                "stream's position that are not there are missing.",
                table(
                    ["queue", "rows", "missing", "twice", ""],
                    [
                        [
                            f"{each.broker_name} {each.queue_id}",
                            each.rows,
                            each.missing,
                            each.twice,
                            Cell("exact", True)
                            if not each.missing and not each.twice
                            else Cell("DIFFERS", False),
                        ]
                        for each in topic.counts
                    ],
                ),
            )
        )
    if topic.fields:
        sections.append(
            Section(
                f"{topic.topic}: fields without a column",
                "They are in the column _rescued, as JSON. A table with columns for them: --schema and another --to.",
                table(["field", "rows"], topic.fields),
            )
        )
    if topic.reasons:
        sections.append(
            Section(
                f"{topic.topic}: quarantine",
                f"Why messages could not be read. They are whole in {topic.root}.quarantine.",
                table(["what is wrong", "messages"], topic.reasons),
            )
        )
    return sections


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
