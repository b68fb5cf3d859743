"""`roquette store ...`: looking at, checking and mending a store's directory without a broker."""

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from typing import Annotated, Any

import typer

from roquette.admin.command import Flag
from roquette.base.files import LineFile, OsFiles, OsReadFiles, StoreGuard
from roquette.base.javatypes import whole_number
from roquette.base.options import counted
from roquette.base.os_file import usable_cpus
from roquette.cli.connect import OutputForm, confirm
from roquette.cli.output import Output, prints_lines, say, show, show_value
from roquette.errors import ConfigError, StoreError
from roquette.message.record_layout import StoredRecord
from roquette.store.format.layout import StoreLayout, pending_words
from roquette.store.offline.store_dir import DamagedStretch, StoreDir, find_store

# `roquette store fsck` and `repair`: is a store sound, and if not, make it so.


# Parts that the verbs of `roquette store` share: arguments, and the store they are about.


Directory = Annotated[
    str,
    Flag("DIR", "The store (storePathRootDir), or a directory of commit log files alone."),
]
CommitLog = Annotated[
    str | None,
    Flag("--commit-log DIR", "Where the log is, when storePathCommitLog puts it elsewhere."),
]
ForceRead = Annotated[
    bool,
    Flag(
        "--force-read",
        "Also while a broker uses the store; what it writes meanwhile may look like damage.",
    ),
]
Most = Annotated[int, Flag("--limit -c", "Stop after so many; 0: never.", 0)]
Topic = Annotated[str | None, Flag("--topic TOPIC", "Only this topic.")]
Queue = Annotated[int | None, Flag("--queue N", "Only queues of this id.")]
Key = Annotated[str | None, Flag("--key KEY", "Only messages with this key.")]
Tag = Annotated[str | None, Flag("--tag TAG", "Only messages with this tag.")]
Since = Annotated[str | None, Flag("--since TIME", "Stored then or later: ISO 8601, or epoch ms.")]
Until = Annotated[
    str | None, Flag("--until TIME", "Stored then or earlier: ISO 8601, or epoch ms.")
]


@contextlib.contextmanager
def opened_store(
    path: str, commit_log: str | None = None, force_read: bool = False, *, exclusive: bool = False
) -> Iterator[StoreDir]:
    """The store at a path, kept from brokers meanwhile (unless forced), or from everybody.

    Raises:
        StoreError: none is there, or a broker uses it.
    """
    try:
        store = find_store(OsReadFiles(), path, commit_log)
        guard = StoreGuard("" if force_read or not store.whole else store.lock, exclusive)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}") from None
    except StoreError as error:
        if "is locked" not in str(error):
            raise
        raise StoreError(
            f"{error}. Stop the broker, look at a copy, or look all the same with --force-read "
            "(what it writes meanwhile may look like damage)"
        ) from None
    try:
        layout = StoreLayout(store.root)
        if OsReadFiles().file_size(layout.repair_pending) >= 0 and not (exclusive or force_read):
            raise StoreError(pending_words(store.root))
        yield store
    finally:
        guard.release()


def require_log(store: StoreDir) -> None:
    """Raise StoreError when there is no commit log to read."""
    if not store.log:
        raise StoreError(
            store.strange[0] if store.strange else f"{store.commit_log} has no commit log files"
        )


# Long work of the store verbs: progress on stderr, one process per CPU.


_LONG = 256 << 20  # bytes of log from which on progress is worth a line


class Steps:
    """Says how far something is, when it is long and somebody watches."""

    def __init__(self, verb: str, thing: str, size: int) -> None:
        self._verb = verb
        self._thing = thing
        self._shown = size >= _LONG and sys.stderr.isatty()
        self._done = 0

    def begin(self, name: str) -> None:
        """Something is begun."""
        if self._shown:
            say(f"{name} ...")

    def done(self, total: int) -> None:
        """One more is done, of so many."""
        self._done += 1
        if self._shown:
            say(f"{self._verb} {self._done} of {total} {self._thing}s")

    def restart(self) -> None:
        """Another row of things begins."""
        self._done = 0


@contextlib.contextmanager
def in_processes(
    jobs: int, steps: Steps
) -> Iterator[Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]]:
    """A `map` over processes; with one job, or one item, in this one. Results come in order."""
    count = jobs or usable_cpus()
    with contextlib.ExitStack() as stack:
        pool: list[ProcessPoolExecutor] = []

        def run(task: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
            listed = list(items)
            steps.restart()
            if count == 1 or len(listed) < 2:
                found: Iterator[Any] = map(task, listed)
            else:
                if not pool:
                    pool.append(stack.enter_context(ProcessPoolExecutor(count)))
                found = pool[0].map(task, listed)
            for result in found:
                steps.done(len(listed))
                yield result

        yield run


def fsck(
    directory: Directory,
    *,
    quick: bool = False,
    crc: Annotated[bool, Flag("--crc/--no-crc", "Compare every body with its CRC.")] = True,
    hash_slots: Annotated[int | None, Flag("--hash-slots N", least=1)] = None,
    jobs: Annotated[int, Flag("--jobs -j", least=0)] = 0,
    commit_log: CommitLog = None,
    force_read: ForceRead = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """Check the whole store: every record, queue, index entry and small file. Exit code 1 on damage.

    Changes nothing. Every fault comes with its file, the byte in it and what to do.

    Args:
        quick: Only the newest log file and the ends of the queues.
        hash_slots: maxHashSlotNum, where it cannot be found out.
        jobs: Processes; 0: as many as there are CPUs.
    """
    from roquette.store.offline.fsck import FsckOptions, check_store

    options = FsckOptions(check_crc=crc, quick=quick, hash_slots=hash_slots)
    with opened_store(directory, commit_log, force_read) as store:
        try:
            with in_processes(jobs, Steps("checked", "file", store.log_bytes)) as run:
                report = check_store(OsReadFiles(), store, options, run)
        except OSError as error:
            raise StoreError(f"{directory} cannot be read to its end: {error}") from None
    show_verdict(report, output, {})


def _show_report(report: Any) -> None:
    advice: dict[str, str] = {}
    for item in report.findings:
        place = f"{item.file} byte {item.position}" if item.position >= 0 else item.file
        more = f" ({item.count} in a row)" if item.count > 1 else ""
        sys.stdout.write(f"{item.severity}: {item.kind}: {place}: {item.message}{more}\n")
        advice[item.kind] = item.advice
    sys.stdout.flush()
    if report.left_out:
        say(f"and {report.left_out} more")
    for kind, words in advice.items():
        say(f"what to do about {kind}: {words}")
    faults = sum(item.severity == "damage" for item in report.findings) + report.left_out
    notes = len(report.findings) - faults + report.left_out
    verdict = "sound" if report.sound else f"{counted(faults, 'fault')}"
    say(
        f"{verdict}: {report.records} records, {report.bytes} bytes of log up to offset {report.end}, "
        f"{report.queues} queues, {report.damaged} bytes damaged, {notes} notes"
    )


def repair(
    directory: Directory,
    *,
    to: Annotated[str | None, Flag("--to DIR")] = None,
    in_place: bool = False,
    yes: Annotated[bool, Flag("--yes -y", "Do not ask.")] = False,
    dry_run: Annotated[bool, Flag("--dry-run", "Only show the plan.")] = False,
    hash_slots: Annotated[int | None, Flag("--hash-slots N", least=1)] = None,
    index_entries: Annotated[int | None, Flag("--index-entries N", least=2)] = None,
    queue_file_size: Annotated[int | None, Flag("--queue-file-size BYTES", least=20)] = None,
    delay_levels: Annotated[str | None, Flag("--delay-levels LEVELS")] = None,
    commit_log: CommitLog = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Rebuild queues and index from the log, cut a torn tail, skip damage; then check the result.

    No sound record is lost and no queue offset given twice. Run again, it changes nothing.

    Args:
        to: Make a sound copy here; empty, or not there yet.
        in_place: Change the store itself; asks after the plan was shown.
        hash_slots: maxHashSlotNum of the new index.
        index_entries: maxIndexNum of the new index.
        queue_file_size: mappedFileSizeConsumeQueue of the new queues, when no old one shows it.
        delay_levels: messageDelayLevel of the broker; default is what the queues of delayed messages show.
    """
    if not dry_run and (to is None) != in_place:
        raise ConfigError(
            "say where to: --to DIR makes a copy, --in-place changes the store itself"
        )
    settings = (hash_slots, index_entries, queue_file_size, delay_levels)
    with opened_store(directory, commit_log, exclusive=in_place and not dry_run) as store:
        try:
            if in_place and not dry_run:
                store = _end_interrupted(store, directory, commit_log)
            plan = _planned(store, settings, quiet=dry_run and output is not Output.TABLE)
            if dry_run:
                if output is not Output.TABLE:
                    show_value({"store": store.root, "plan": plan.lines()}, output)
                return
            if in_place:
                confirm(f"change {store.root} so", yes)
            report = _repaired(store, plan, to, hash_slots)
        except OSError as error:
            raise StoreError(
                f"the repair stopped: {error}. {store.root} is as it was, unless {store.root}/repair.swap is there: "
                "then run the repair again to end it"
            ) from None
    show_verdict(report, output, {"plan": plan.lines()})


def _end_interrupted(store: StoreDir, directory: str, commit_log: str | None) -> StoreDir:
    """The store once a repair that was interrupted has been ended."""
    from roquette.store.offline.repair import finish_pending

    if not finish_pending(OsFiles(), store.root):
        return store
    say("a repair that was interrupted is ended")
    return find_store(OsReadFiles(), directory, commit_log)


def _planned(store: StoreDir, settings: tuple[Any, ...], *, quiet: bool) -> Any:
    from roquette.store.offline.repair_plan import plan_repair

    plan = plan_repair(OsReadFiles(), store, *settings)
    if not quiet:
        for line in plan.lines():
            say(line)
    return plan


def _repaired(store: StoreDir, plan: Any, to: str | None, hash_slots: int | None) -> Any:
    """Carry a plan out, and check what came of it."""
    from roquette.store.offline import repair as repairs
    from roquette.store.offline.fsck import FsckOptions, check_store

    known = len(plan.warnings)
    steps = Steps("done", "step", store.log_bytes)
    mended = repairs.repair(OsReadFiles(), OsFiles(), store, plan, to, steps.begin)
    for warning in plan.warnings[known:]:
        say(f"warning: {warning}")
    return check_store(OsReadFiles(), mended, FsckOptions(hash_slots=hash_slots))


def take_tail(
    directory: Directory,
    *,
    source: Annotated[str, Flag("--from DIR", "The replica's store.")],
    commit_log: CommitLog = None,
) -> None:
    """Append to a master's store what only its replica's has. Both brokers are stopped.

    For a master outside of a group that lost power before its log was on the disk.
    """
    from roquette.store.offline import take_tail as tails

    with opened_store(directory, commit_log, exclusive=True) as store, opened_store(source) as its:
        try:
            begin, end, count = tails.take_tail(OsReadFiles(), OsFiles(), store, its)
        except OSError as error:
            raise StoreError(f"not all was taken: {error}. Run it again") from None
    say(
        f"took {counted(count, 'record')}, offsets {begin} to {end}. The broker's start makes queues of them"
    )


def show_verdict(report: Any, output: Output, more: dict[str, Any]) -> None:
    """Show what a check found; exit code 1 when the store is not sound."""
    import msgspec

    if output is not Output.TABLE:
        found = {**more, **msgspec.to_builtins(report), "sound": report.sound}
        show_value(found, output)
    else:
        _show_report(report)
    if not report.sound:
        raise typer.Exit(1)


def ls(
    directory: Directory,
    *,
    commit_log: CommitLog = None,
    force_read: ForceRead = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """List the store's files with their sizes, offsets and times.

    Offsets are physical ones for the log and the index, queue offsets for queues; `end` is the one behind the last.
    """
    from roquette.store.offline.overview import file_rows

    with opened_store(directory, commit_log, force_read) as store:
        show(file_rows(OsReadFiles(), store), output, empty=f"{directory} has no files of a store")


def info(
    directory: Directory,
    *,
    commit_log: CommitLog = None,
    force_read: ForceRead = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """Say what a store is and holds: kind, topics, queues, offsets, times, checkpoint, warnings."""
    from roquette.store.offline.overview import overview
    from roquette.store.offline.search import time_words

    with opened_store(directory, commit_log, force_read) as store:
        found = overview(OsReadFiles(), store)
    if output is not Output.TABLE:
        show_value(found, output)
        return
    times = f"{time_words(found.first_ms)} to {time_words(found.last_ms)}"
    lines = [
        f"store        {found.store}",
        f"kind         {found.kind}, last opened by: {found.written_by}",
        f"log          {found.log_files} files of {found.segment_size} bytes, offsets {found.min_offset} to {found.max_offset}",
        f"stored       {times}",
        f"messages     {found.messages} in {len(found.queues)} queues of {found.topics} topics",
        f"index        {found.index_files} files, {found.index_entries} entries",
        f"timer files  {'yes' if found.timer else 'no'}",
        f"stopped      {'cleanly' if found.closed else 'not cleanly, or running'}",
    ]
    if found.checkpoint:
        names = (("log", "physical_ms"), ("queues", "logical_ms"), ("index", "index_ms"))
        words = [f"{name} {time_words(found.checkpoint[key])}" for name, key in names]
        lines.append(f"checkpoint   {', '.join(words)}")
    lines += [f"not read     {path} (RocksDB)" for path in found.not_read]
    sys.stdout.write("\n".join(lines) + "\n")
    if found.queues:
        sys.stdout.write("\n")
        sys.stdout.flush()
        show(found.queues, output)
    for warning in found.warnings:
        say(f"warning: {warning}")


def dump(
    file: Annotated[str, Flag("FILE", "One file of a store, of whatever kind.")],
    *,
    kind: str | None = None,
    start: Annotated[int, Flag("--from BYTE", "Begin at this byte of the file.", 0)] = 0,
    limit: Annotated[int, Flag("--limit -c", "Stop after so many rows; 0: never.", 0)] = 0,
    base: Annotated[int | None, Flag("--base OFFSET")] = None,
    hash_slots: Annotated[int | None, Flag("--hash-slots N", least=1)] = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Show what any one file holds, row by row; a JSON object a line with -o json.

    Args:
        kind: log, queue, index, checkpoint, timerwheel, timerlog, timercheck, journal, json or text, when the name does not
            say.
        base: Physical offset of a log file's first byte, if renamed.
        hash_slots: maxHashSlotNum of an index file.
    """
    from roquette.store.offline.dump import KINDS, dump_file, kind_of

    files, lines = OsReadFiles(), prints_lines(output)
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"--kind {kind} is not one of {', '.join(KINDS)}")
    try:
        found = kind or kind_of(files, file)
        rows = dump_file(files, file, found, start=start, base=base, slots=hash_slots)
        for seen, row in enumerate(rows):
            if limit and seen >= limit:
                break
            if lines:
                sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
            elif found == "json":
                sys.stdout.write(json.dumps(row, ensure_ascii=False, indent=2) + "\n")
            else:
                sys.stdout.write(" ".join(_words_of(row)) + "\n")
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror or error}") from None


def _words_of(row: dict[str, Any]) -> Iterator[str]:
    from roquette.store.offline.search import time_words

    for name, value in row.items():
        if name.endswith("_ms") and isinstance(value, int) and value > 1 << 32:
            yield f"{name.removesuffix('_ms')}={time_words(value)}".replace(" ", "T")
        elif isinstance(value, (dict, list, str)):
            yield f"{name}={json.dumps(value, ensure_ascii=False)}"
        else:
            yield f"{name}={value}"


# `roquette store grep` and `export`: the messages in a store's log.


def grep(
    directory: Directory,
    body: Annotated[str | None, Flag("PATTERN", "A regular expression the body must have.")] = None,
    *,
    topic: Topic = None,
    queue: Queue = None,
    key: Key = None,
    tag: Tag = None,
    message_id: Annotated[
        str | None, Flag("--id ID", "Only the message with this unique id.")
    ] = None,
    since: Since = None,
    until: Until = None,
    limit: Most = 0,
    commit_log: CommitLog = None,
    force_read: ForceRead = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """Print the messages that fit, in the order of the log; a JSON object a line with -o json.

    Exit code 1 when there is none, as grep does.
    """
    with opened_store(directory, commit_log, force_read) as store:
        query = query_of(topic, queue, key, tag, message_id, since, until, body)
        seen = 0
        for record in _found(store, query):
            _print_record(record, output)
            seen += 1
            if limit and seen >= limit:
                break
    if output is Output.TABLE:
        say(f"{counted(seen, 'message')}")
    if not seen:
        raise typer.Exit(1)


def query_of(
    topic: str | None,
    queue: int | None,
    key: str | None,
    tag: str | None,
    message_id: str | None,
    since: str | None,
    until: str | None,
    body: str | None,
) -> Any:
    """The words of the command line as a query; raises ConfigError for wrong ones."""
    from roquette.store.offline.search import Query

    pattern = None
    if body is not None:
        try:
            pattern = re.compile(body.encode())
        except re.error as error:
            raise ConfigError(f"{body!r} is no regular expression: {error}") from None
    return Query(
        topic=topic,
        queue=queue,
        key=key,
        tag=tag,
        message_id=message_id,
        since_ms=time_of("--since", since),
        until_ms=time_of("--until", until),
        body=pattern,
    )


def time_of(option: str, text: str | None) -> int | None:
    """Epoch ms of a number or an ISO 8601 time (local, unless it names its zone)."""
    if text is None:
        return None
    if len(text) > 8 and (at_ms := whole_number(text, 2**63 - 1)) >= 0:
        return at_ms
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise ConfigError(
            f"{option} {text} is no time: write 2026-11-21T19:00:00, 2026-11-21 or epoch milliseconds"
        ) from None


def _found(store: StoreDir, query: Any) -> Iterator[StoredRecord]:
    """Records that fit; damage met on the way is said on stderr, not passed over in silence."""
    from roquette.store.offline.search import search

    require_log(store)
    steps = Steps("read", "file", store.log_bytes)
    files = OsReadFiles()
    for found in search(files, store, query, lambda file: steps.begin(file.path)):
        if isinstance(found, DamagedStretch):
            say(f"damage: {found.path} byte {found.position} to {found.end}: {found.words}")
        else:
            yield found


def _print_record(record: StoredRecord, output: Output) -> None:
    from roquette.store.offline.search import plain_body, record_fields, time_words

    if prints_lines(output):
        sys.stdout.write(json.dumps(record_fields(record), ensure_ascii=False) + "\n")
        return
    body = plain_body(record)[0]
    text = body[:200].decode("utf-8", "replace").encode("unicode_escape").decode()
    more = f"... ({len(body)} bytes)" if len(body) > 200 else ""
    sys.stdout.write(
        f"{time_words(record.store_timestamp_ms)} {record.topic}/{record.queue_id} {record.queue_offset} "
        f"at {record.physical_offset}: {text}{more}\n"
    )


def export(
    directory: Directory,
    *,
    out: Annotated[str | None, Flag("--to FILE")] = None,
    form: Annotated[str, Flag("--format FORMAT", "jsonl or parquet (needs pyarrow).")] = "jsonl",
    body: Annotated[str, Flag("--body HOW")] = "auto",
    force: bool = False,
    topic: Topic = None,
    queue: Queue = None,
    key: Key = None,
    tag: Tag = None,
    since: Since = None,
    until: Until = None,
    commit_log: CommitLog = None,
    force_read: ForceRead = False,
) -> None:
    """Write messages as JSON lines or Parquet, in the order of the log, bodies decompressed.

    The log is read, so messages of deleted topics and system topics come too unless --topic says otherwise.

    Args:
        out: File to write; default is standard output.
        body: In JSON lines: auto (text, else base64), text, base64 or none.
        force: Overwrite the file if it is there.
    """
    from roquette.store.offline.search import write_parquet

    if form not in ("jsonl", "parquet"):
        raise ConfigError(f"--format {form} is neither jsonl nor parquet")
    if body not in ("auto", "text", "base64", "none"):
        raise ConfigError(f"--body {body} is not one of auto, text, base64, none")
    if form == "parquet" and out is None:
        raise ConfigError("a Parquet file is not written to standard output: give --to FILE")
    if out is not None and not force and OsReadFiles().file_size(out) >= 0:
        raise ConfigError(f"{out} is there already: give another --to, or --force to overwrite it")
    with opened_store(directory, commit_log, force_read) as store:
        try:
            records = _found(store, query_of(topic, queue, key, tag, None, since, until, None))
            if form == "parquet":
                count = write_parquet(records, out or "")
            else:
                count = _export_lines(records, out, body)
        except OSError as error:
            raise StoreError(f"{out or 'standard output'} cannot be written: {error}") from None
    say(f"{counted(count, 'message')}")


def _export_lines(records: Iterator[StoredRecord], out: str | None, body: str) -> int:
    from roquette.store.offline.search import record_fields

    count = 0
    target = LineFile(out) if out is not None else None
    try:
        for record in records:
            line = json.dumps(record_fields(record, body), ensure_ascii=False) + "\n"
            if target is not None:
                target.write(line)
            else:
                sys.stdout.write(line)
            count += 1
    finally:
        if target is not None:
            target.close()
    return count
