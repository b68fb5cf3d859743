"""Every header in JSON that is one, by msgspec: what `plain_head` leaves, and its oracle. Interpreted."""

import msgspec

from roquette.wire.command import Command
from roquette.wire.json_body import Int32


class Head(msgspec.Struct, gc=False, kw_only=True):
    """The members of a JSON header. Others are skipped."""

    code: Int32
    opaque: Int32
    flag: Int32 = 0
    version: Int32 = 0
    language: str | int | None = "JAVA"
    remark: str | None = None
    # Not `Raw | None`: msgspec would then take nothing but null. A peer's null arrives as Raw(b"null").
    ext: msgspec.Raw = msgspec.field(name="extFields", default=msgspec.Raw(b"{}"))


_decode = msgspec.json.Decoder(Head).decode


def general_head(data: bytes) -> Command:
    """Read a whole JSON header. Raises msgspec.DecodeError, UnicodeDecodeError, RecursionError."""
    head = _decode(data)
    return Command(
        head.code, head.opaque, head.flag, head.version, head.language, head.remark, bytes(head.ext)
    )
