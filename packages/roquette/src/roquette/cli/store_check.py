"""`roquette store fsck` and `repair`: is a store sound, and if not, make it so."""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Annotated, Any

import typer

from roquette.admin.command import Flag
from roquette.base.files import OsFiles, OsReadFiles, StoreGuard
from roquette.base.options import counted
from roquette.base.os_file import usable_cpus
from roquette.cli.connect import OutputForm, confirm
from roquette.cli.output import Output, say, show_value
from roquette.errors import ConfigError, StoreError
from roquette.store.format.layout import StoreLayout, pending_words
from roquette.store.offline.store_dir import StoreDir, find_store

# What the verbs of `roquette store` share: arguments, and the store they are about.


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
    from roquette.store.offline.store_dir import find_store

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
