"""Ext fields of a binary header, as the JSON object that every reader of ext fields takes. HOT.

key length 2, key | value length 4, value: repeated (Apache: RocketMQSerializable)
"""

import msgspec
from librt.strings import read_i16_be, read_i32_be
from mypy_extensions import i64

from roquette.base.javatypes import java_text
from roquette.errors import RemoteProtocolError

_quote = msgspec.json.Encoder().encode


def json_of(data: bytes, pos: i64, end: i64) -> bytes:
    """The fields in data[pos:end] as JSON; raises RemoteProtocolError where they are cut off."""
    fields: dict[str, str] = {}
    while pos < end:
        if pos + 2 > end:
            raise RemoteProtocolError("an ext key is cut off")
        key_size: int = read_i16_be(data, pos)
        pos += 2
        if key_size < 0 or pos + key_size + 4 > end:
            raise RemoteProtocolError("an ext key is longer than its fields")
        key = java_text(data[pos : pos + key_size])
        pos += key_size
        value_size: int = read_i32_be(data, pos)
        pos += 4
        if value_size < 0 or pos + value_size > end:
            raise RemoteProtocolError("an ext value is longer than its fields")
        if value_size and key_size:
            fields[key] = java_text(data[pos : pos + value_size])
        pos += value_size
    return bytes(_quote(fields))
