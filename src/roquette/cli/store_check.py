"""`roquette store fsck` and `repair`: is a store sound, and if not, make it so."""

import sys
from typing import Annotated, Any

import typer

from roquette.base.read_files import OsReadFiles
from roquette.cli.connect import OutputForm
from roquette.cli.output import Output, say, show_json
from roquette.cli.store_args import CommitLog, Directory, ForceRead, opened_store
from roquette.cli.store_runs import Steps, in_processes
from roquette.errors import ConfigError, StoreError


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
            help="maxHashSlotNum, where it cannot be found out.",
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

    options = FsckOptions(check_crc=crc, quick=quick, hash_slots=hash_slots)
    with opened_store(directory, commit_log, force_read) as store:
        try:
            with in_processes(jobs, Steps("checked", "file", store.log_bytes)) as run:
                report = check_store(OsReadFiles(), store, options, run)
        except OSError as error:
            raise StoreError(f"{directory} cannot be read to its end: {error}") from None
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
    delay_levels: Annotated[
        str | None,
        typer.Option(
            "--delay-levels",
            metavar="LEVELS",
            help="messageDelayLevel of the broker; default is what the queues of delayed messages show.",
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
    from roquette.store.offline.repair import repair
    from roquette.store.offline.repair_plan import plan_repair
    from roquette.store.offline.store_dir import find_store
    from roquette.store.offline.swap import finish_pending

    if not dry_run and (to is None) != in_place:
        raise ConfigError(
            "say where to: --to DIR makes a copy, --in-place changes the store itself"
        )
    reader = OsReadFiles()
    changes = in_place and not dry_run
    with opened_store(directory, commit_log, exclusive=changes) as store:
        try:
            if changes and finish_pending(OsFiles(), store.root):
                say("a repair that was interrupted is ended")
                store = find_store(reader, directory, commit_log)
            plan = plan_repair(
                reader, store, hash_slots, index_entries, queue_file_size, delay_levels
            )
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
            steps = Steps("done", "step", store.log_bytes)
            mended = repair(reader, OsFiles(), store, plan, to, steps.begin)
            for warning in plan.warnings[known:]:
                say(f"warning: {warning}")
            report = check_store(reader, mended, FsckOptions(hash_slots=hash_slots))
        except OSError as error:
            raise StoreError(
                f"the repair stopped: {error}. {store.root} is as it was, unless {store.root}/repair.swap is there: "
                "then run the repair again to end it"
            ) from None
    if output is Output.JSON:
        show_json({"plan": plan.lines(), **_plain(report), "sound": report.sound})
    else:
        _show_report(report)
    if not report.sound:
        raise typer.Exit(1)
