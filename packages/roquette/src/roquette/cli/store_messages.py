"""`roquette store grep` and `export`: the messages in a store's log."""

import json
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

import typer

from roquette.admin.command import Flag
from roquette.base.files import OsReadFiles
from roquette.base.javatypes import whole_number
from roquette.base.options import counted
from roquette.cli.connect import OutputForm
from roquette.cli.output import Output, prints_lines, say
from roquette.cli.store_check import (
    CommitLog,
    Directory,
    ForceRead,
    Key,
    Most,
    Queue,
    Since,
    Steps,
    Tag,
    Topic,
    Until,
    opened_store,
    require_log,
)
from roquette.errors import ConfigError, StoreError
from roquette.message.record_layout import StoredRecord
from roquette.store.offline.store_dir import StoreDir
from roquette.store.offline.walk import DamagedStretch


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
    from roquette.base.files import LineFile
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
