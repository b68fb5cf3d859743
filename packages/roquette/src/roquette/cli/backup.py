"""`roquette broker backup` and `restore-backup`: a store copied while its broker runs, checked, and put back."""

from typing import Annotated, Any

from roquette.admin.command import Flag
from roquette.base.clock import SystemClock
from roquette.base.files import OsFiles, OsReadFiles
from roquette.cli.connect import OutputForm
from roquette.cli.output import Output, say
from roquette.cli.store import (
    CommitLog,
    Directory,
    Steps,
    in_processes,
    opened_store,
    show_verdict,
)
from roquette.errors import StoreError

To = Annotated[str, Flag("--to DIR", "Empty, or not there yet; outside of the source.")]
Quick = Annotated[
    bool, Flag("--quick", "Check only the newest log file and the ends of the queues.")
]


def backup(
    directory: Directory,
    *,
    to: To,
    copy: bool = False,
    quick: Quick = False,
    commit_log: CommitLog = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Copy a store while its broker runs, and check the copy. Exit code 1 when it is not sound.

    Run it on the broker's machine. Sealed files are hard links where the disk is the same, so a large store takes
    seconds and little room. What was acknowledged before the backup began is in it; no offset is ahead of its log.

    Args:
        copy: Copy what is written no more, too, instead of linking it: for another disk, or a replica whose log may be cut.
    """
    from roquette.store.offline.backup import back_up

    with opened_store(directory, commit_log, force_read=True) as store:
        steps = Steps("done", "part", store.log_bytes)
        try:
            made = back_up(
                OsReadFiles(),
                OsFiles(),
                store,
                to,
                SystemClock().now_ms(),
                link=not copy,
                say=steps.begin,
            )
        except OSError as error:
            raise StoreError(
                f"the backup is not whole ({error}); delete {to} and try again"
            ) from None
    if output is Output.TABLE:
        linked = sum(file.linked for file in made.files)
        say(
            f"{to}: {len(made.files)} files, {linked} of them linked, {made.size} bytes, {made.copied} of them copied"
        )
    _check(to, quick, output, {"backup": to, "files": len(made.files), "copied": made.copied})


def restore_backup(
    backup: Annotated[str, Flag("BACKUP", "What `backup` has made.")],
    *,
    to: To,
    quick: Quick = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """Copy a backup to where a broker will open it, and check it. The backup stays as it is. Exit code 1 on damage."""
    from roquette.store.offline.backup import restore

    steps = Steps("done", "part", 0)
    try:
        made = restore(OsReadFiles(), OsFiles(), backup, to, steps.begin)
    except OSError as error:
        raise StoreError(f"{to} is not whole ({error}); delete it and try again") from None
    _check(to, quick, output, {"restored": to, "files": len(made.files)})
    say(
        f"start a broker with storePathRootDir={to}, and with the brokerName and brokerId that {made.source} had, once "
        "that one runs no more: two brokers under one name would both register"
    )


def _check(path: str, quick: bool, output: Output, more: dict[str, Any]) -> None:
    from roquette.store.offline.fsck import FsckOptions, check_store

    steps = Steps("checked", "file", 0)
    with opened_store(path) as store, in_processes(0, steps) as run:
        report = check_store(OsReadFiles(), store, FsckOptions(quick=quick), run)
    show_verdict(report, output, more)
