"""`roquette store ...`: looking at, checking and mending a store's directory without a broker."""

import json
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

import typer

from roquette.base.read_files import OsReadFiles, StoreGuard
from roquette.cli.connect import OutputForm
from roquette.cli.output import Output, say, show, show_json
from roquette.cli.store_runs import Steps, in_processes
from roquette.errors import ConfigError, StoreError
from roquette.message.record import StoredRecord
from roquette.store.offline.store_dir import StoreDir, find_store
from roquette.store.offline.walk import Fault

app = typer.Typer(
    help="Read, check and mend a store's directory (ours or Apache's) without a broker.",
    no_args_is_help=True,
)

Directory = Annotated[
    str,
    typer.Argument(
        metavar="DIR",
        help="The store (storePathRootDir), or a directory of commit log files alone.",
        show_default=False,
    ),
]
CommitLog = Annotated[
    str | None,
    typer.Option(
        "--commit-log",
        metavar="DIR",
        help="Where the log is, when storePathCommitLog puts it elsewhere.",
    ),
]
ForceRead = Annotated[
    bool,
    typer.Option(
        "--force-read",
        help="Also while a broker uses the store; what it writes meanwhile may look like damage.",
    ),
]
Topic = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic.")]
Queue = Annotated[int | None, typer.Option("--queue", metavar="N", help="Only queues of this id.")]
Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Only messages with this key.")
]
Tag = Annotated[
    str | None, typer.Option("--tag", metavar="TAG", help="Only messages with this tag.")
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Stored then or later: ISO 8601, or epoch ms."),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Stored then or earlier: ISO 8601, or epoch ms."),
]


def open_store(path: str, commit_log: str | None, force_read: bool) -> tuple[StoreDir, StoreGuard]:
    """The store at a path, kept from brokers until the guard is released (unless forced).

    Raises:
        StoreError: none is there, or a broker uses it.
    """
    try:
        store = find_store(OsReadFiles(), path, commit_log)
        guard = StoreGuard("" if force_read or not store.whole else store.lock)
    except OSError as error:
        raise StoreError(f"{path} can not be read: {error.strerror or error}") from None
    except StoreError as error:
        if "is locked" not in str(error):
            raise
        raise StoreError(
            f"{error}. Stop the broker, look at a copy, or look all the same with --force-read "
            "(what it writes meanwhile may look like damage)"
        ) from None
    return store, guard


def require_log(store: StoreDir) -> None:
    """Raise StoreError when there is no commit log to read."""
    if not store.log:
        raise StoreError(
            store.strange[0] if store.strange else f"{store.commit_log} has no commit log files"
        )


@app.command("ls")
def ls_command(
    directory: Directory,
    commit_log: CommitLog = None,
    force_read: ForceRead = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """List the store's files with their sizes, offsets and times.

    Offsets are physical ones for the log and the index, queue offsets for queues; `end` is the one behind the last.
    """
    from roquette.store.offline.overview import file_rows

    store, guard = open_store(directory, commit_log, force_read)
    try:
        show(file_rows(OsReadFiles(), store), output, empty=f"{directory} has no files of a store")
    finally:
        guard.release()


@app.command("info")
def info_command(
    directory: Directory,
    commit_log: CommitLog = None,
    force_read: ForceRead = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """Say what a store is and holds: kind, topics, queues, offsets, times, checkpoint, warnings."""
    from roquette.store.offline.describe import time_words
    from roquette.store.offline.overview import overview

    store, guard = open_store(directory, commit_log, force_read)
    try:
        found = overview(OsReadFiles(), store)
    finally:
        guard.release()
    if output is Output.JSON:
        show_json(found)
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


@app.command("fsck")
def fsck_command(
    directory: Directory,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Only the newest log file and the ends of the queues."),
    ] = False,
    crc: Annotated[
        bool, typer.Option("--crc/--no-crc", help="Compare every body with its CRC.")
    ] = True,
    hash_slots: Annotated[
        int | None,
        typer.Option(
            "--hash-slots",
            metavar="N",
            min=1,
            help="maxHashSlotNum, where it can not be found out.",
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=0, help="Processes; 0: as many as there are CPUs.")
    ] = 0,
    commit_log: CommitLog = None,
    force_read: ForceRead = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """Check the whole store: every record, queue, index entry and small file. Exit code 1 on damage.

    Changes nothing. Every fault comes with its file, the byte in it and what to do.
    """
    from roquette.store.offline.fsck import FsckOptions, check_store

    store, guard = open_store(directory, commit_log, force_read)
    options = FsckOptions(check_crc=crc, quick=quick, hash_slots=hash_slots)
    try:
        with in_processes(jobs, Steps("checked", "file", store.log_bytes)) as run:
            report = check_store(OsReadFiles(), store, options, run)
    except OSError as error:
        raise StoreError(f"{directory} can not be read to its end: {error}") from None
    finally:
        guard.release()
    if output is Output.JSON:
        show_json({**_plain(report), "sound": report.sound})
    else:
        _show_report(report)
    if not report.sound:
        raise typer.Exit(1)


def _plain(report: Any) -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = msgspec.to_builtins(report)
    return found


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
    verdict = "sound" if report.sound else f"{faults} fault{'' if faults == 1 else 's'}"
    say(
        f"{verdict}: {report.records} records, {report.bytes} bytes of log up to offset {report.end}, "
        f"{report.queues} queues, {report.damaged} bytes damaged, {notes} notes"
    )


@app.command("grep")
def grep_command(
    directory: Directory,
    body: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATTERN]", help="A regular expression the body must have.", show_default=False
        ),
    ] = None,
    topic: Topic = None,
    queue: Queue = None,
    key: Key = None,
    tag: Tag = None,
    message_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Only the message with this unique id.")
    ] = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[
        int, typer.Option("--limit", "-c", min=0, help="Stop after so many; 0: never.")
    ] = 0,
    commit_log: CommitLog = None,
    force_read: ForceRead = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """Print the messages that fit, in the order of the log; a JSON object a line with -o json.

    Exit code 1 when there is none, as grep does.
    """
    store, guard = open_store(directory, commit_log, force_read)
    try:
        query = query_of(topic, queue, key, tag, message_id, since, until, body)
        seen = 0
        for record in _found(store, query):
            _print_record(record, output)
            seen += 1
            if limit and seen >= limit:
                break
    finally:
        guard.release()
    if output is Output.TABLE:
        say(f"{seen} message{'' if seen == 1 else 's'}")
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
    if text.isascii() and text.isdecimal() and len(text) > 8:
        return int(text)
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
        if isinstance(found, Fault):
            say(f"damage: {found.path} byte {found.position} to {found.end}: {found.words}")
        else:
            yield found


def _print_record(record: StoredRecord, output: Output) -> None:
    from roquette.store.offline.describe import plain_body, record_fields, time_words

    if output is Output.JSON:
        sys.stdout.write(json.dumps(record_fields(record), ensure_ascii=False) + "\n")
        return
    body = plain_body(record)[0]
    text = body[:200].decode("utf-8", "replace").encode("unicode_escape").decode()
    more = f"... ({len(body)} bytes)" if len(body) > 200 else ""
    sys.stdout.write(
        f"{time_words(record.store_timestamp_ms)} {record.topic}/{record.queue_id} {record.queue_offset} "
        f"at {record.physical_offset}: {text}{more}\n"
    )


@app.command("dump")
def dump_command(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="One file of a store, of whatever kind.", show_default=False
        ),
    ],
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="log, queue, index, checkpoint, timerwheel, timerlog, timercheck, json or text, when the name does not say.",
        ),
    ] = None,
    start: Annotated[
        int, typer.Option("--from", metavar="BYTE", min=0, help="Begin at this byte of the file.")
    ] = 0,
    limit: Annotated[
        int, typer.Option("--limit", "-c", min=0, help="Stop after so many rows; 0: never.")
    ] = 0,
    base: Annotated[
        int | None,
        typer.Option(
            "--base",
            metavar="OFFSET",
            help="Physical offset of a log file's first byte, if renamed.",
        ),
    ] = None,
    hash_slots: Annotated[
        int | None,
        typer.Option("--hash-slots", metavar="N", min=1, help="maxHashSlotNum of an index file."),
    ] = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Show what stands in any one file, row by row; a JSON object a line with -o json."""
    from roquette.store.offline.dump import KINDS, dump_file, kind_of

    files = OsReadFiles()
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"--kind {kind} is none of {', '.join(KINDS)}")
    try:
        found = kind or kind_of(files, file)
        rows = dump_file(files, file, found, start=start, base=base, slots=hash_slots)
        for seen, row in enumerate(rows):
            if limit and seen >= limit:
                break
            if output is Output.JSON:
                sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
            elif found == "json":
                sys.stdout.write(json.dumps(row, ensure_ascii=False, indent=2) + "\n")
            else:
                sys.stdout.write(" ".join(_words_of(row)) + "\n")
    except OSError as error:
        raise StoreError(f"{file} can not be read: {error.strerror or error}") from None


def _words_of(row: dict[str, Any]) -> Iterator[str]:
    from roquette.store.offline.describe import time_words

    for name, value in row.items():
        if name.endswith("_ms") and isinstance(value, int) and value > 1 << 32:
            yield f"{name.removesuffix('_ms')}={time_words(value)}".replace(" ", "T")
        elif isinstance(value, (dict, list, str)):
            yield f"{name}={json.dumps(value, ensure_ascii=False)}"
        else:
            yield f"{name}={value}"


@app.command("export")
def export_command(
    directory: Directory,
    out: Annotated[
        str | None,
        typer.Option("--to", metavar="FILE", help="File to write; default is standard output."),
    ] = None,
    form: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="jsonl or parquet (needs pyarrow).")
    ] = "jsonl",
    body: Annotated[
        str,
        typer.Option(
            "--body",
            metavar="HOW",
            help="In JSON lines: auto (text, else base64), text, base64 or none.",
        ),
    ] = "auto",
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
    """
    from roquette.store.offline.export import write_parquet

    if form not in ("jsonl", "parquet"):
        raise ConfigError(f"--format {form} is neither jsonl nor parquet")
    if body not in ("auto", "text", "base64", "none"):
        raise ConfigError(f"--body {body} is none of auto, text, base64, none")
    if form == "parquet" and out is None:
        raise ConfigError("a Parquet file is not written to standard output: give --to FILE")
    store, guard = open_store(directory, commit_log, force_read)
    try:
        records = _found(store, query_of(topic, queue, key, tag, None, since, until, None))
        if form == "parquet":
            count = write_parquet(records, out or "")
        else:
            count = _export_lines(records, out, body)
    except OSError as error:
        raise StoreError(f"{out or 'standard output'} can not be written: {error}") from None
    finally:
        guard.release()
    say(f"{count} message{'' if count == 1 else 's'}")


def _export_lines(records: Iterator[StoredRecord], out: str | None, body: str) -> int:
    from roquette.base.read_files import LineFile
    from roquette.store.offline.describe import record_fields

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


@app.command("repair")
def repair_command(
    directory: Directory,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="DIR", help="Make a sound copy here; empty, or not there yet."
        ),
    ] = None,
    in_place: Annotated[
        bool,
        typer.Option("--in-place", help="Change the store itself; asks after the plan was shown."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
    hash_slots: Annotated[
        int | None,
        typer.Option("--hash-slots", metavar="N", min=1, help="maxHashSlotNum of the new index."),
    ] = None,
    index_entries: Annotated[
        int | None,
        typer.Option("--index-entries", metavar="N", min=2, help="maxIndexNum of the new index."),
    ] = None,
    queue_file_size: Annotated[
        int | None,
        typer.Option(
            "--queue-file-size",
            metavar="BYTES",
            min=20,
            help="mappedFileSizeConsumeQueue of the new queues, when no old one shows it.",
        ),
    ] = None,
    commit_log: CommitLog = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Make queues and index anew from the log, cut a torn tail, step over damage; then check the result.

    No sound record is lost and no queue offset given twice. Run again, it changes nothing.
    """
    from roquette.base.files import OsFiles
    from roquette.store.offline.fsck import FsckOptions, check_store
    from roquette.store.offline.repair import plan_repair, repair

    if not dry_run and (to is None) != in_place:
        raise ConfigError(
            "say where to: --to DIR makes a copy, --in-place changes the store itself"
        )
    reader = OsReadFiles()
    store, guard = open_store(directory, commit_log, False)
    try:
        if in_place and not dry_run:
            guard.release()
            guard = StoreGuard(store.lock, exclusive=True)
        plan = plan_repair(reader, store, hash_slots, index_entries, queue_file_size)
        if output is Output.TABLE or not dry_run:
            for line in plan.lines():
                say(line)
        if dry_run:
            if output is Output.JSON:
                show_json({"store": store.root, "plan": plan.lines()})
            return
        if in_place and not yes:
            typer.confirm(f"change {store.root} so?", abort=True, err=True)
        known = len(plan.warnings)
        mended = repair(reader, OsFiles(), store, plan, to, _quiet_steps(store))
        for warning in plan.warnings[known:]:
            say(f"warning: {warning}")
        report = check_store(reader, mended, FsckOptions(hash_slots=hash_slots))
    except OSError as error:
        raise StoreError(
            f"the repair stopped: {error}; the store's own files are still there"
        ) from None
    finally:
        guard.release()
    if output is Output.JSON:
        show_json({"plan": plan.lines(), **_plain(report), "sound": report.sound})
    else:
        _show_report(report)
    if not report.sound:
        raise typer.Exit(1)


def _quiet_steps(store: StoreDir) -> Any:
    steps = Steps("done", "step", store.log_bytes)
    return steps.begin
