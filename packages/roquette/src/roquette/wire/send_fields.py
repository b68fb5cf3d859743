"""The fields of a send, as clients of Java, Go and Python write them, read in one pass. HOT: compiled by mypyc in the fast build.

Its contract: what `SendFields.read` takes, `SendMessageRequestHeaderV2` takes with the same result.
"""

from typing import Any, Final, final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_le, write_i64_le
from mypy_extensions import i32, i64, mypyc_attr, u8

from roquette.base.plain_text import TRUE, first_of, plain_end, stands_at, unplain

_REQUIRED: Final = 0b11110111  # a to h, but not d: `default_topic_queue_nums` has a default
_LETTERS: Final = 14  # a to n
_OTHER: Final = 99
_QUOTE: Final = 34
_COLON: Final = 58
_COMMA: Final = 44
_OPEN: Final = 123
_CLOSE: Final = 125
_MINUS: Final = 45
_BACKSLASH: Final = 92
_BAD: Final = -(1 << 62)
_text: Final = BytesWriter()  # of the read that runs


class LastName:
    """The topic or group that was read last: most requests name it again, and its text has its hash."""

    __slots__ = ("_data", "_name")

    def __init__(self) -> None:
        self._data: bytes = b""
        self._name: str = ""

    def name_of(self, data: bytes, begin: i64, end: i64) -> str:
        """The name in data[begin:end]. Raises UnicodeDecodeError."""
        if end - begin != len(self._data) or not stands_at(data, begin, self._data):
            said = data[begin:end]
            self._name = said.decode()
            self._data = said
        return self._name


_topic: Final = LastName()


@final
@mypyc_attr(acyclic=True)
class SendFields:
    """What a send says of its message: SendMessageRequestHeader and its V2, as the path of a send needs them.

    Attributes:
        properties: the property string in UTF-8; empty without one.
        general: the header that the general reader has made, or None: of this one only what was asked is decoded.
    """

    __slots__ = (
        "_default_at",
        "_default_end",
        "_group_at",
        "_group_end",
        "_text",
        "batch",
        "born_timestamp",
        "default_topic_queue_nums",
        "flag",
        "general",
        "max_reconsume_times",
        "properties",
        "queue_id",
        "reconsume_times",
        "sys_flag",
        "topic",
        "unit_mode",
    )

    def __init__(self) -> None:
        self.topic: str = ""
        self.default_topic_queue_nums: i64 = 4
        self.queue_id: i64 = 0
        self.sys_flag: i64 = 0
        self.born_timestamp: i64 = 0
        self.flag: i64 = 0
        self.properties: bytes = b""
        self.reconsume_times: i64 = 0
        self.unit_mode: bool = False
        self.max_reconsume_times: int | None = None
        self.batch: bool = False
        self.general: Any = None
        self._text: bytes = b""
        self._group_at: i64 = 0
        self._group_end: i64 = 0
        self._default_at: i64 = 0
        self._default_end: i64 = 0

    @property
    def producer_group(self) -> str:
        """The group of who sends."""
        if self.general is not None:
            return str(self.general.producer_group)
        return self._text[self._group_at : self._group_end].decode()

    @property
    def default_topic(self) -> str:
        """The topic after which an unknown one is made."""
        if self.general is not None:
            return str(self.general.default_topic)
        return self._text[self._default_at : self._default_end].decode()

    def read(self, data: bytes, start: i64, end: i64) -> i64:
        """Take the JSON object of texts that begins at `start`; the place behind it, -1: the general reader must.

        `data` must be kept by `keep` when it was taken.
        """
        if data[start] != _OPEN:
            return -1
        at: i64 = start + 1
        seen: i64 = 0
        while at + 6 < end:
            letter: i64 = data[at + 1] - 97
            if data[at] != _QUOTE:
                return -1
            if data[at + 2] == _QUOTE:
                if letter < 0 or letter >= _LETTERS or seen >> letter & 1:
                    return -1
                seen |= 1 << letter
                at += 2
            else:  # a signature's field, or another protocol's
                letter = _OTHER
                at = plain_end(data, at + 1, end)
            if (
                at + 3 >= end
                or data[at] != _QUOTE
                or data[at + 1] != _COLON
                or data[at + 2] != _QUOTE
            ):
                return -1
            at += 3
            begin: i64 = at
            if letter == 8:
                at = _unescaped(data, at, end)
                if at < 0:
                    return -1
                self.properties = _text.getvalue()
            elif _is_text(letter):
                at = plain_end(data, at, end)
                if not self._take(letter, data, begin, at, start):
                    return -1
            else:
                number: i64 = data[at] - 48
                if at + 1 < end and data[at + 1] == _QUOTE and 0 <= number <= 9:  # as most are
                    at += 1
                else:
                    number, at = _number(data, at, end)
                if not self._set(letter, number):
                    return -1
            if at + 1 >= end or data[at] != _QUOTE:
                return -1
            at += 2
            if data[at - 1] == _CLOSE:
                return at if seen & _REQUIRED == _REQUIRED else -1
            if data[at - 1] != _COMMA:
                return -1
        return -1

    def read_binary(self, data: bytes, start: i64, end: i64) -> bool:
        """Take the fields of a binary header; False: the general reader must. `keep` as with `read`."""
        at = start
        seen: i64 = 0
        while at < end:
            if at + 8 > end or read_i16_be(data, at) != 1:
                return False
            letter: i64 = data[at + 2] - 97
            size: int = read_i32_be(data, at + 3)
            begin: i64 = at + 7
            at = begin + size
            if size <= 0 or at > end or letter < 0 or letter >= _LETTERS or seen >> letter & 1:
                return False
            seen |= 1 << letter
            place: i64 = begin
            while place < at:
                if data[place] > 126 or (data[place] < 32 and letter != 8):
                    return False
                place += 1
            if letter == 8:
                self.properties = data[begin:at]
            elif _is_text(letter):
                if not self._take(letter, data, begin, at, start):
                    return False
            else:
                number, place = _number(data, begin, at)
                if place != at or not self._set(letter, number):
                    return False
        return seen & _REQUIRED == _REQUIRED

    def _take(self, letter: i64, data: bytes, begin: i64, end: i64, start: i64) -> bool:
        """Take a text but the properties from data[begin:end]; False: the general reader must."""
        if letter == 1:
            self.topic = _topic.name_of(data, begin, end)
        elif letter == 0:
            self._group_at, self._group_end = begin - start, end - start
        elif letter == 2:
            self._default_at, self._default_end = begin - start, end - start
        elif letter == 10 or letter == 12:
            size: i64 = end - begin
            if size < 4 or size > 5:
                return False
            word: i32 = read_i32_be(data, begin)
            is_set = size == 4 and word == TRUE
            if not is_set and (
                size == 4 or word != 0x66616C73 or data[begin + 4] != 101
            ):  # "false"
                return False
            if letter == 10:
                self.unit_mode = is_set
            else:
                self.batch = is_set
        return True

    def _set(self, letter: i64, number: i64) -> bool:
        """Take a number; False: the general reader must."""
        if letter == 6:
            self.born_timestamp = number
            return number != _BAD
        if number > 2147483647 or number < -2147483648:
            return False
        if letter == 3:
            self.default_topic_queue_nums = number
        elif letter == 4:
            self.queue_id = number
        elif letter == 5:
            self.sys_flag = number
        elif letter == 7:
            self.flag = number
        elif letter == 9:
            self.reconsume_times = number
        else:
            self.max_reconsume_times = number
        return True

    def keep(self, text: bytes) -> None:
        """Keep what was read: the object from its first brace to its last, or all binary fields."""
        self._text = text


def _is_text(letter: i64) -> bool:
    return letter < 3 or letter == 10 or letter > 11


def _number(data: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    """The number that begins there, as clients write it, and the place behind it; `_BAD`: it is another one, or none."""
    negative = at < end and data[at] == _MINUS
    if negative:
        at += 1
    first = at
    number: i64 = 0
    while at < end:
        digit: i64 = data[at] - 48
        if digit < 0 or digit > 9:
            break
        number = number * 10 + digit
        at += 1
    size = at - first
    if size == 0 or size > 18 or (data[first] == 48 and (size > 1 or negative)):
        return _BAD, at
    return -number if negative else number, at


def _unescaped(data: bytes, at: i64, end: i64) -> i64:
    """Write the text that begins at `at` into `_text`; the place of its closing quote, -1: it is an unusual one."""
    text = _text
    text.truncate(0)
    size: i64 = 0
    last: i64 = len(data) - 8
    while at <= last:
        eight: i64 = read_i64_le(data, at)
        write_i64_le(text, eight)
        bits: i64 = unplain(eight)
        if bits == 0:
            at += 8
            size += 8
            continue
        plain: i64 = first_of(bits)
        at += plain
        size += plain
        text.truncate(size)
        if at >= end:
            return -1
        if data[at] == _QUOTE:
            return at
        # \u00 and two digits: the separators of properties. Every other escape is rare.
        if at + 6 > end or read_i32_be(data, at) != 0x5C753030:
            return -1
        one: i64 = (data[at + 4] - 48) * 16 + data[at + 5] - 48
        if one < 0 or one > 25 or data[at + 4] < 48 or data[at + 5] < 48 or data[at + 5] > 57:
            return -1
        text.append(u8(one))
        size += 1
        at += 6
    return -1


def made_fields(topic: str, group: str, default_topic: str, properties: bytes) -> SendFields:
    """Fields that no header has said; the numbers are the caller's to set."""
    found = SendFields()
    found.topic = topic
    found.properties = properties
    named, default = group.encode(), default_topic.encode()
    found._text = named + default
    found._group_end = found._default_at = len(named)
    found._default_end = len(named) + len(default)
    return found


def fields_of(header: Any) -> SendFields:
    """The same of a header that the general reader has made: SendMessageRequestHeader or its V2."""
    found = SendFields()
    found.topic = header.topic
    found.default_topic_queue_nums = header.default_topic_queue_nums
    found.queue_id = header.queue_id
    found.sys_flag = header.sys_flag
    found.born_timestamp = header.born_timestamp
    found.flag = header.flag
    found.properties = (header.properties or "").encode()
    found.reconsume_times = header.reconsume_times
    found.unit_mode = header.unit_mode
    found.max_reconsume_times = header.max_reconsume_times
    found.batch = header.batch
    found.general = header
    return found
