"""`roquette store ...`: looking at, checking and mending a store's directory without a broker."""

import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any

from roquette.admin.command import Flag
from roquette.base.files import OsReadFiles
from roquette.cli.connect import OutputForm
from roquette.cli.output import Output, prints_lines, say, show, show_value
from roquette.cli.store_check import CommitLog, Directory, ForceRead, opened_store
from roquette.errors import ConfigError, StoreError


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
