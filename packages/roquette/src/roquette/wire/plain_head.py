"""JSON headers as clients really write them, read in one pass. HOT: compiled by mypyc in the fast build.

Its contract: what it takes, `general_head` takes with the same result. It takes one flat object, without spaces: each known
member once at most, in any order, numbers that fit an int, texts in ASCII, ext fields that are texts. All else it leaves.
Where the code has come first and is a send's, its ext fields are read in the same pass.
"""

from typing import Final

from librt.strings import read_i16_be, read_i32_be
from mypy_extensions import i32, i64

from roquette.base.plain_text import plain_end
from roquette.wire.codes import RequestCode
from roquette.wire.command import Command
from roquette.wire.send_fields import SendFields

_TEXT_TO_JAVA: Final = 0x4A415641  # "JAVA", as read_i32_be has it
_CODE: Final = 0x636F6465  # the first four letters of each member's name
_FLAG: Final = 0x666C6167
_OPAQUE: Final = 0x6F706171
_REMARK: Final = 0x72656D61
_VERSION: Final = 0x76657273
_LANGUAGE: Final = 0x6C616E67
_EXT: Final = 0x65787446
_SERIALIZE: Final = 0x73657269
_QUOTE: Final = 34
_COLON: Final = 58
_COMMA: Final = 44
_OPEN: Final = 123
_CLOSE: Final = 125
_BAD: Final = 1 << 40
_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
_SEND_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)


def is_send(code: i64) -> bool:
    """Are the ext fields of such a request `SendFields`?"""
    return code == _SEND or code == _SEND_BATCH


def plain_head(data: bytes, start: i64, end: i64) -> Command | None:
    """Read the header in data[start:end], which `data` has; None: `general_head` must."""
    if end - start < 2 or data[start] != _OPEN or data[end - 1] != _CLOSE:
        return None
    code: i64 = _BAD
    opaque: i64 = _BAD
    flag: i64 = 0
    version: i64 = 0
    seen: i64 = 0
    bit: i64 = 0
    language: str = "JAVA"
    remark: str | None = None
    ext: bytes = b"{}"
    fields: SendFields | None = None
    at: i64 = start + 1
    value: i64 = 0
    while True:
        # A member's name: its first letters say which it could be, and so how long it is.
        if at + 7 > end or data[at] != _QUOTE:
            return None
        at += 1
        word: i32 = read_i32_be(data, at)
        if word == _CODE:
            bit = 1
            at += 4
        elif word == _FLAG:
            bit = 2
            at += 4
        elif word == _OPAQUE and read_i16_be(data, at + 4) == 0x7565:
            bit = 4
            at += 6
        elif word == _VERSION and at + 7 < end and read_i32_be(data, at + 3) == 0x73696F6E:
            bit = 8
            at += 7
        elif word == _LANGUAGE and at + 8 < end and read_i32_be(data, at + 4) == 0x75616765:
            bit = 16
            at += 8
        elif (
            word == _EXT
            and at + 9 < end
            and read_i32_be(data, at + 4) == 0x69656C64
            and data[at + 8] == 115
        ):
            bit = 32
            at += 9
        elif word == _REMARK and read_i16_be(data, at + 4) == 0x726B:
            bit = 64
            at += 6
        elif word == _SERIALIZE and at + 23 < end and _says_type(data, at):
            bit = 128
            at += 23
        else:
            return None
        if seen & bit or at + 3 > end or data[at] != _QUOTE or data[at + 1] != _COLON:
            return None
        seen |= bit
        at += 2
        if bit <= 8:
            begin: i64 = at
            negative = data[at] == 45
            if negative:
                at += 1
            first: i64 = at
            value = 0
            while 48 <= data[at] <= 57:  # the closing brace ends it
                value = value * 10 + data[at] - 48
                at += 1
                if at - first > 10:
                    return None
            if at == first or (at - first > 1 and data[first] == 48) or (negative and value == 0):
                return None
            if negative:
                value = -value
            if value > 2147483647 or value < -2147483648:
                return None
            if bit == 1:
                code = value
            elif bit == 2:
                flag = value
            elif bit == 4:
                opaque = value
            else:
                version = value
        elif bit == 32:
            begin = at
            if is_send(code):
                fields = SendFields()
                at = fields.read(data, at, end)
                if at < 0:
                    fields = None
                    at = begin
            if fields is None:
                at = _past_texts(data, at, end)
                if at < 0:
                    return None
            ext = data[begin:at]
            if fields is not None:
                fields.keep(ext)
        else:
            if data[at] != _QUOTE:
                return None
            begin = at + 1
            at = plain_end(data, begin, end)
            if at >= end or data[at] != _QUOTE:
                return None
            if bit == 64:
                remark = data[begin:at].decode()
            elif bit == 16 and (at - begin != 4 or read_i32_be(data, begin) != _TEXT_TO_JAVA):
                language = data[begin:at].decode()
            at += 1
        if at >= end:
            return None
        if data[at] == _CLOSE:
            break
        if data[at] != _COMMA:
            return None
        at += 1
    if at + 1 != end or code == _BAD or opaque == _BAD:
        return None
    command = Command(code, opaque, flag, version, language, remark, ext)
    command.fields = fields
    return command


def _past_texts(data: bytes, at: i64, end: i64) -> i64:
    """The place behind the object of texts that begins at `at`, ASCII or escaped; -1: it is another one."""
    if data[at] != _OPEN:
        return -1
    at += 1
    if data[at] == _CLOSE:
        return at + 1
    is_name = True
    while at < end:
        if data[at] != _QUOTE:
            return -1
        at = plain_end(data, at + 1, end)
        while at < end:
            one: i64 = data[at]
            if one == _QUOTE:
                break
            if one == 92:  # an escape: of one letter, or \u00 with two digits
                at += 1
                if at + 5 > end:
                    return -1
                one = data[at]
                if one == 117:
                    if read_i16_be(data, at + 1) != 0x3030 or not _is_hex(data[at + 3]):
                        return -1
                    if not _is_hex(data[at + 4]):
                        return -1
                    at += 4
                elif one not in (34, 92, 47, 98, 102, 110, 114, 116):
                    return -1
            elif one < 32 or one > 126:
                return -1
            at += 1
        at += 1
        if at >= end:
            return -1
        one = data[at]
        at += 1
        if is_name:
            if one != _COLON:
                return -1
            is_name = False
        elif one == _COMMA:
            is_name = True
        else:
            return at if one == _CLOSE else -1
    return -1


def _says_type(data: bytes, at: i64) -> bool:
    """Does `serializeTypeCurrentRPC` stand there?"""
    return (
        read_i32_be(data, at + 4) == 0x616C697A
        and read_i32_be(data, at + 8) == 0x65547970
        and read_i32_be(data, at + 12) == 0x65437572
        and read_i32_be(data, at + 16) == 0x72656E74
        and read_i32_be(data, at + 19) == 0x74525043
    )


def _is_hex(one: i64) -> bool:
    return 48 <= one <= 57 or 97 <= one <= 102 or 65 <= one <= 70
