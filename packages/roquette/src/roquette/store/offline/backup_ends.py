"""The ends of files that grow, for a backup: what of them is of records that the log has."""

from roquette.base.files import File, Files, ReadFiles
from roquette.store.format.unit import UNIT_SIZE, UnitView
from roquette.store.index.index_file import ENTRY_SIZE, IndexEntry


def _stays(unit: bytes, written: int) -> bool:
    """Is it whole, and of a record that ends at `written` or before? One that stands for no record stays, too."""
    view = UnitView()
    view.look_at(unit, 0)
    return view.size > 0 and view.end <= written


def last_unit_stays(reader: ReadFiles, path: str, written: int) -> bool:
    """Does the last place of a queue file hold a unit that a backup keeps? True also when the file is gone."""
    unit = _last_bytes(reader, path, UNIT_SIZE)
    return not unit or _stays(unit, written)


def last_entry(reader: ReadFiles, path: str) -> int | None:
    """The physical offset in the last place of an index file; None when no entry stands there: it is not full."""
    entry = _last_bytes(reader, path, ENTRY_SIZE)
    if not entry.strip(b"\0"):
        return None
    view = IndexEntry()
    view.look_at(entry, 0)
    return view.physical


def _last_bytes(reader: ReadFiles, path: str, size: int) -> bytes:
    """The end of a file; nothing when the file is gone, or smaller."""
    try:
        source = reader.open_file(path)
    except FileNotFoundError:
        return b""
    try:
        return source.pread(size, source.size - size) if source.size >= size else b""
    finally:
        source.close()


def keep_units(files: Files, path: str, written: int) -> int:
    """Wipe the units at the end of a copied queue file whose records end behind `written`; returns how many stay.

    They are the last ones, since a queue's records only follow each other. A unit that was not whole when it was
    copied goes, too: its record was not written then. The broker that opens the backup puts back what has a record.
    """
    file = files.open_file(path)
    try:
        data = file.pread(file.size, 0).rstrip(b"\0")
        end = found = -(-len(data) // UNIT_SIZE)
        data = data.ljust(found * UNIT_SIZE, b"\0")
        while end and not _stays(data[(end - 1) * UNIT_SIZE : end * UNIT_SIZE], written):
            end -= 1
        if end != found:
            _wipe(file, end * UNIT_SIZE)
        return end
    finally:
        file.close()


def keep_bytes(files: Files, path: str, count: int) -> None:
    """Wipe a copied file behind its first bytes; its size stays."""
    file = files.open_file(path)
    try:
        _wipe(file, count)
    finally:
        file.close()


def _wipe(file: File, start: int) -> None:
    size = file.size
    file.truncate(start)
    file.truncate(size)
    file.sync()
