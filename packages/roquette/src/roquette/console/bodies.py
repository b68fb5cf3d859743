"""Bytes of a message as people read them: JSON, text, or hex; never more than fits a page, and that is said."""

import json
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

MOST: Final = 65_536
MOST_HEX: Final = 4_096
_WIDER: Final = 4
"""JSON that is so many times longer with its blanks is shown as it came: each of 900 levels would be two blanks more in each line."""
_PREVIEW: Final = 160


class Body(NamedTuple):
    """A body for people: `kind`: JSON, text or bytes; `whole`: nothing was left out."""

    text: str
    kind: str
    whole: bool


def body_of(data: bytes, most: int = MOST) -> Body:
    """The body, by what it looks like, of so many bytes."""
    head = data[:most]
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if len(data) <= len(head) or error.start < len(head) - 4:
            return _hex(data, most)
        text = head[: error.start].decode()
    if any(letter < " " and letter not in "\t\n\r" for letter in text):
        return _hex(data, most)
    whole = len(data) <= len(head)
    if whole and text[:1] in "{[" and text:
        try:
            pieces = json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(json.loads(text))
            shown = "".join(_within(pieces, _WIDER * max(len(text), 1_024)))
            return Body(shown, "JSON", True)
        except (ValueError, RecursionError):
            pass
    return Body(text, "text", whole)


def _within(pieces: Iterable[str], most: int) -> Iterator[str]:
    """The pieces; raises ValueError when they are longer."""
    for piece in pieces:
        most -= len(piece)
        if most < 0:
            raise ValueError("too long")
        yield piece


def preview(data: bytes) -> str:
    """The beginning in one line."""
    head = data[:400]
    text = head.decode("utf-8", "replace")
    if "\x00" in text or text.count("\ufffd") > len(text) // 8 + 1:
        return head[:48].hex(" ")
    return " ".join(text.split())[:_PREVIEW]


def _hex(data: bytes, most: int) -> Body:
    most = min(most, MOST_HEX)
    lines = []
    for at in range(0, min(len(data), most), 16):
        row = data[at : min(at + 16, most)]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:08x}  {row.hex(' '):<47}  {shown}")
    return Body("\n".join(lines), "bytes", len(data) <= most)
