"""Small files whose loss is not to be borne: replaced as a whole, earlier contents kept, damage noticed.

Beside `topics.json` stand its earlier contents, `topics.json.bak` (as Apache's ConfigManager leaves it), `.bak2` and
`.bak3`, and `topics.json.sum`: a line for each file we wrote, newest first, with CRC-32, size, time of the
last write to it, and a CRC of the line. The file itself stays exactly what Apache's broker reads and writes.

The sums tell an edit from damage. A content that is not among them, in a file that was written to since (its
time differs), is somebody's edit or Apache's own writing: it counts when it can be read. With the time of a content
of ours, the bytes have changed without a write: the disk did that, and an earlier content is taken instead.
"""

import logging
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from roquette.base.checksum import crc32
from roquette.base.descriptors import DENIED, SHORTAGE, rights_words
from roquette.base.files import Files, make_durable_dir, write_whole
from roquette.errors import RoquetteError, StoreError

log = logging.getLogger("roquette.files")
T = TypeVar("T")

BACKUPS: Final = (".bak", ".bak2", ".bak3")
SUMS: Final = ".sum"
_MARKS: Final = 8  # of each content two: of the file, and of its copy


@dataclass(frozen=True, slots=True)
class ContentMark:
    """Mark of one content we wrote."""

    crc: int
    size: int
    modified_ms: int

    def matches(self, data: bytes) -> bool:
        """Is it this content?"""
        return self.size == len(data) and self.crc == crc32(data)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """A content that could be read.

    Attributes:
        path: where it was found.
        problems: what is wrong with the newer ones, a sentence each; empty when it is the newest.
        foreign: somebody else wrote it.
        mark: of the content.
    """

    value: T
    path: str
    problems: list[str]
    foreign: bool
    mark: ContentMark


def save(files: Files, path: str, data: bytes, *, private: bool = False) -> None:
    """Replace a file; on return the new content is on the disk. Blocks. `private`: nobody else may read it or its copies.

    At every instant, power cuts included, the old or the new content is there, whole. An OSError leaves one of
    them, and calling again later is right, however often: no earlier content is pushed out by a failure.
    """
    directory = make_durable_dir(files, path)
    marks = [_write(files, path + ".tmp", data, sync=True, private=private)]
    known = _marks(files, path)
    if files.exists(path):
        marks.extend(_keep(files, path, private))
    marks.extend(mark for mark in known if mark not in marks)
    # Before the rename, and with the old content's mark: a power cut may leave either content.
    if known:
        _write_sums(files, path, marks, private)
    files.rename(path + ".tmp", path)
    files.sync_dir(directory)
    if not known:  # sums without any file would mean that files were lost
        _write_sums(files, path, marks, private)


def _keep(files: Files, path: str, private: bool) -> list[ContentMark]:
    """Make the present content the newest backup, the others older by one; returns the marks of the two.

    A copy, so that the file itself is never missing. It needs no sync: the file is whole at every moment.
    """
    try:
        data = files.read_bytes(path)
    except OSError as error:
        if error.errno in SHORTAGE:
            raise
        log.error("%s cannot be read, so it is replaced without a backup error=%s", path, error)
        return []
    marks = [ContentMark(crc32(data), len(data), files.modified_ms(path))]
    names = [path + suffix for suffix in BACKUPS]
    if files.exists(names[0]) and files.read_bytes(names[0]) == data:
        return marks  # a save before this one came no further
    marks.append(_write(files, names[0] + ".tmp", data, sync=False, private=private))
    free = next((i for i, name in enumerate(names) if not files.exists(name)), len(names) - 1)
    for place in range(free, 0, -1):
        files.rename(names[place - 1], names[place])
    files.rename(names[0] + ".tmp", names[0])
    return marks


def _write(
    files: Files, path: str, data: bytes, *, sync: bool, private: bool = False
) -> ContentMark:
    write_whole(files, path, data, sync=sync, private=private)
    return ContentMark(crc32(data), len(data), files.modified_ms(path))


def _write_sums(files: Files, path: str, marks: list[ContentMark], private: bool) -> None:
    _write(files, path + SUMS + ".tmp", _encode(marks[:_MARKS]), sync=True, private=private)
    files.rename(path + SUMS + ".tmp", path + SUMS)


def load(files: Files, path: str, parse: Callable[[bytes], T]) -> Loaded[T] | None:
    """The newest content that is sound; None when nothing was ever written. Blocks.

    What was found wrong on the way is logged as an error, an edit by somebody else as information.

    Args:
        parse: raises ValueError or a RoquetteError for what it cannot read.

    Raises:
        StoreError: there are or were files, and none can be read: starting empty would lose what they hold.
        OSError: no descriptors or memory to read them.
    """
    marks = _marks(files, path)
    problems: list[str] = []
    for name in (path, *(path + suffix for suffix in BACKUPS)):
        if not files.exists(name):
            if name == path:
                problems.append(f"{path} is missing")
            continue
        try:
            data = files.read_bytes(name)
            if not data.strip(b" \r\n\t\0"):
                raise ValueError("the file is empty")
            value = parse(data)
            modified_ms = files.modified_ms(name)
        except (OSError, ValueError, RoquetteError) as error:
            if isinstance(error, OSError) and error.errno in SHORTAGE:
                raise  # an older content must not be taken for want of a descriptor
            if isinstance(error, OSError) and error.errno in DENIED:  # nor for want of a right
                raise StoreError(f"{name} cannot be read: {error}. {rights_words(name)}") from None
            problems.append(f"{name}: {error}")
            continue
        foreign = not any(mark.matches(data) for mark in marks)
        # An edit changes the time of the last write; other bytes under our own time are damage.
        if foreign and any(0 < mark.modified_ms == modified_ms for mark in marks):
            problems.append(f"{name}: its bytes have changed since they were written (checksum)")
            continue
        mark = ContentMark(crc32(data), len(data), modified_ms)
        found = Loaded(value, name, problems, foreign and bool(marks), mark)
        _tell(found)
        return found
    if problems == [f"{path} is missing"] and not files.exists(path + SUMS):
        return None
    raise StoreError(
        f"no readable copy of {path}: {'; '.join(problems)}. Put a sound file there, or, to begin without it, "
        f"remove {path} and all files whose names begin with it"
    )


def _tell(found: Loaded[T]) -> None:
    if found.problems:
        log.error(
            "config file restored from its backup %s: what was saved last may be missing. %s",
            found.path,
            "; ".join(found.problems),
        )
    elif found.foreign:
        log.info("config file %s was changed since we wrote it: taken as it is", found.path)


def _marks(files: Files, path: str) -> list[ContentMark]:
    """The checksums beside a file; empty without them."""
    try:
        text = files.read_bytes(path + SUMS).decode("ascii", "replace")
    except OSError as error:
        if error.errno in SHORTAGE:
            raise
        return []
    return parse_marks(text)


def parse_marks(text: str) -> list[ContentMark]:
    """The lines of a file of sums; those that say nothing are passed over, and all when one is damaged."""
    marks: list[ContentMark] = []
    for line in text.splitlines():
        line, _, check = line.partition(" #")
        if check and check != _check_of(line):
            return []  # damaged sums must not speak against a sound content
        words = line.split()
        if len(words) == 3 and words[1].isdecimal() and words[2].isdecimal():
            try:
                marks.append(ContentMark(int(words[0], 16), int(words[1]), int(words[2])))
            except ValueError:
                continue
    return marks


def _encode(marks: list[ContentMark]) -> bytes:
    lines = [f"{m.crc:08x} {m.size} {m.modified_ms}" for m in marks]
    return "".join(f"{line} #{_check_of(line)}\n" for line in lines).encode()


def _check_of(line: str) -> str:
    return f"{crc32(line.encode()):08x}"


# Entries of a file that only grows, each with a sum over itself and the one before: what is read is a beginning of what was written.


_HEAD: Final = struct.Struct(">IIB")  # bytes of the content, CRC-32 of the last sum and it, kind


class ChainedEntry(NamedTuple):
    """One sound entry: `end` is the byte behind it, `crc` its sum."""

    kind: int
    content: bytes
    start: int
    end: int
    crc: int


def chained(kind: int, content: bytes, previous: int) -> tuple[bytes, int]:
    """The bytes of an entry that follows one with the sum `previous` (0: none), and its own sum."""
    crc = crc32(previous.to_bytes(4, "big") + content)
    return _HEAD.pack(len(content), crc, kind) + content, crc


def chained_entries(data: bytes) -> Iterator[ChainedEntry]:
    """The entries of a file as far as its sums are right."""
    start, crc = 0, 0
    while start + _HEAD.size <= len(data):
        size, said, kind = _HEAD.unpack_from(data, start)
        end = start + _HEAD.size + size
        content = data[start + _HEAD.size : end]
        if end > len(data) or said != crc32(crc.to_bytes(4, "big") + content):
            return
        yield ChainedEntry(kind, content, start, end, said)
        start, crc = end, said
