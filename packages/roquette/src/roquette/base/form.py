"""Form in which the hot modules run: compiled by mypyc, or interpreted.

A wheel has both forms, and the compiled one is used. In a checkout `make compile` puts the compiled form beside the
sources and lists in `COMPILED` what it was made of. When one of these files has changed since, all of them run
interpreted: compiled modules know each other's layout, so a mixture would not work.
"""

import os
import sys
from binascii import crc32
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from types import ModuleType
from typing import Final

COMPILED: Final = ".compiled"
"""Beside this package, in a checkout: a line `size mtime_ns crc path` for each source file."""

_PACKAGE: Final = "roquette"
_A_HOT_ONE: Final = "roquette.message.record_view"

_why = ""


class _Sources:
    """Finds the source files of this package's modules, whatever else is there."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Called by the import system."""
        if path is None or not name.startswith(_PACKAGE + "."):
            return None
        file = os.path.join(next(iter(path)), name.rpartition(".")[2] + ".py")
        return spec_from_file_location(name, file) if os.path.isfile(file) else None


def choose() -> None:
    """Have the interpreted form imported if it was asked for, or if the compiled one is not of these sources."""
    global _why  # noqa: PLW0603 - said once in a process's life
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.environ.get("ROQUETTE_INTERPRETED"):
        _why = "ROQUETTE_INTERPRETED is set"
    else:
        _why = _stale(root)
    if _why:
        sys.meta_path.insert(0, _Sources)


def _stale(root: str) -> str:
    try:
        with open(os.path.join(root, COMPILED)) as stream:
            lines = stream.read().splitlines()
    except OSError:
        return ""
    for line in lines:
        size, changed_ns, crc, path = line.split(" ", 3)
        if not is_same(os.path.join(root, path), int(size), int(changed_ns), int(crc)):
            return f"{path} has changed since `make compile`"
    return ""


def is_same(path: str, size: int, changed_ns: int, crc: int) -> bool:
    """Is a file what it was? It is read when only its time is another."""
    try:
        now = os.stat(path)
        if now.st_size != size:
            return False
        if now.st_mtime_ns == changed_ns:
            return True
        with open(path, "rb") as stream:
            return crc32(stream.read()) == crc
    except OSError:
        return False


def form() -> str:
    """`compiled`, or `interpreted` and why if there is a reason to tell."""
    spec = find_spec(_A_HOT_ONE)
    if spec is not None and (spec.origin or "").endswith(tuple(EXTENSION_SUFFIXES)):
        return "compiled"
    return f"interpreted: {_why}" if _why else "interpreted"
