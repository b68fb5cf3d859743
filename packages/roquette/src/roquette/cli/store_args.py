"""What the verbs of `roquette store` share: arguments, and the store they are about."""

import contextlib
from collections.abc import Iterator
from typing import Annotated

from roquette.admin.command import Flag
from roquette.base.files import OsReadFiles
from roquette.base.tool_files import StoreGuard
from roquette.errors import StoreError
from roquette.store.format.foreign_parts import pending_words
from roquette.store.format.layout import StoreLayout
from roquette.store.offline.store_dir import StoreDir, find_store

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
