"""Bytes of a message as people read them: JSON, text, or hex; never more than fits a page, and that is said."""

import json
from typing import Final, NamedTuple

MOST: Final = 65_536
MOST_HEX: Final = 4_096
_PREVIEW: Final = 160


class Body(NamedTuple):
    """A body for people: `kind`: JSON, text or bytes; `whole`: nothing was left out."""

    text: str
    kind: str
    whole: bool


def body_of(data: bytes) -> Body:
    """The body, by what it looks like."""
    head = data[:MOST]
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if len(data) <= len(head) or error.start < len(head) - 4:
            return _hex(data)
        text = head[: error.start].decode()
    if any(letter < " " and letter not in "\t\n\r" for letter in text):
        return _hex(data)
    whole = len(data) <= len(head)
    if whole and text[:1] in "{[" and text:
        try:
            return Body(json.dumps(json.loads(text), indent=2, ensure_ascii=False), "JSON", True)
        except (ValueError, RecursionError):
            pass
    return Body(text, "text", whole)


def preview(data: bytes) -> str:
    """The beginning in one line."""
    head = data[:400]
    text = head.decode("utf-8", "replace")
    if "\x00" in text or text.count("\ufffd") > len(text) // 8 + 1:
        return head[:48].hex(" ")
    return " ".join(text.split())[:_PREVIEW]


def _hex(data: bytes) -> Body:
    lines = []
    for at in range(0, min(len(data), MOST_HEX), 16):
        row = data[at : min(at + 16, MOST_HEX)]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:08x}  {row.hex(' '):<47}  {shown}")
    return Body("\n".join(lines), "bytes", len(data) <= MOST_HEX)
