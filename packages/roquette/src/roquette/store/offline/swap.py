"""Putting what was made beside a store in the place of its files, all or nothing.

Everything new is made and synced in `repair.new` first, files of the log in a directory of that name beside theirs, so
that a rename does. Then the file `repair.swap` names the steps: before it is there the store is as it was; once it is
there the steps are taken, again after a crash, until it is gone. Our broker does not open a store that has it. Apache's
does not look at it; it finds the file `abort` and no checkpoint, and so reads the log that is there at that moment.
"""

import os
from typing import Final

import msgspec

from roquette.base.files import Files
from roquette.errors import StoreError
from roquette.store.format.foreign_parts import pending_words
from roquette.store.format.layout import StoreLayout

NEW: Final = "repair.new"


class Swap:
    """The steps of one swap, in order."""

    def __init__(self, files: Files, root: str, commit_log: str) -> None:
        self._files = files
        self._root = root
        self._commit_log = commit_log
        self._pending = StoreLayout(root).repair_pending
        self._steps: list[tuple[str, str]] = []  # source, "" for none, and target

    def put(self, source: str, target: str) -> None:
        """Let a file or directory take the place of another."""
        self._steps.append((source, target))

    def drop(self, target: str) -> None:
        """Let a file or directory go."""
        self._steps.append(("", target))

    def log_directory(self) -> str:
        """Where new files of the log are made: on the same disk as the log."""
        directory = f"{self._commit_log}/{NEW}"
        self._files.make_dirs(directory)
        return directory

    def clean(self) -> None:
        """Remove what an earlier attempt has left."""
        self._files.remove_tree(f"{self._root}/{NEW}")
        self._files.remove_tree(f"{self._commit_log}/{NEW}")
        self._files.remove(f"{self._pending}.tmp")

    def refuse_pending(self) -> None:
        """Raises StoreError when a swap was begun and not ended."""
        if self._files.exists(self._pending):
            raise StoreError(pending_words(self._root))

    def commit(self) -> None:
        """From here on the store is the new one, once the steps are taken. Raises OSError."""
        files = self._files
        made = [os.path.dirname(source) for source, _ in self._steps if source]
        for path in dict.fromkeys(made + [os.path.dirname(directory) for directory in made]):
            files.sync_dir(path)
        plan = {"commitLog": self._commit_log, "steps": self._steps}
        files.write_atomic(self._pending, msgspec.json.encode(plan), keep_backup=False)

    def finish(self) -> None:
        """Take the steps; those that were taken are passed over. Raises OSError: try again."""
        files, root = self._files, self._root
        left = [step for step in self._steps if not step[0] or files.exists(step[0])]
        touched = {root: None} | {os.path.dirname(target): None for _, target in self._steps}
        if any(source for source, _ in left):  # the new checkpoint comes last
            files.open_file(f"{root}/abort", create=True).close()
            files.remove(f"{root}/checkpoint")
            files.sync_dir(root)
        for source, target in left:
            if not source or files.is_dir(source):
                self._remove(target)
            if source:
                files.rename(source, target)
        for path in touched:
            files.sync_dir(path)
        files.remove(f"{root}/abort")
        files.sync_dir(root)
        files.remove(self._pending)
        files.sync_dir(root)
        self.clean()

    def _remove(self, path: str) -> None:
        if self._files.file_size(path) >= 0:
            self._files.remove(path)
        else:
            self._files.remove_tree(path)


def finish_pending(files: Files, root: str) -> bool:
    """End a swap that was interrupted; False when there is none. Raises OSError, and StoreError when it is unreadable."""
    path = StoreLayout(root).repair_pending
    if not files.exists(path):
        return False
    try:
        plan = msgspec.json.decode(files.read_bytes(path), type=_Plan)
    except msgspec.DecodeError as error:
        raise StoreError(f"{path} cannot be read: {error}") from None
    swap = Swap(files, root, plan.commitLog)
    for source, target in plan.steps:
        swap.put(source, target)
    swap.finish()
    return True


class _Plan(msgspec.Struct):
    commitLog: str
    steps: list[tuple[str, str]]
