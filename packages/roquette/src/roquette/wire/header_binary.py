"""The ROCKETMQ binary header (serialize type 1), read into the same Command as the JSON form. HOT.

code 2 | language 1 | version 2 | opaque 4 | flag 4 | remark length 4, remark | ext length 4, ext
ext: repeated (key length 2, key | value length 4, value)         (Apache: RocketMQSerializable)
"""

from typing import Final

import msgspec
from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    write_i16_be,
    write_i32_be,
)
from mypy_extensions import i64

from roquette.base.javatypes import java_text
from roquette.errors import RemoteProtocolError
from roquette.wire.codes import LANGUAGES
from roquette.wire.command import Command

FIXED_SIZE: Final = 21
_quote = msgspec.json.Encoder().encode


def decode_binary_header(data: bytes, start: int, end: int) -> Command:
    """Read the header in data[start:end]; raises RemoteProtocolError when it is not one."""
    if end - start < FIXED_SIZE or end > len(data):
        raise RemoteProtocolError(
            f"a binary header of {end - start} bytes is shorter than {FIXED_SIZE}"
        )
    pos: i64 = start
    code: int = read_i16_be(data, pos)
    language = data[pos + 2]
    version: int = read_i16_be(data, pos + 3)
    opaque: int = read_i32_be(data, pos + 5)
    flag: int = read_i32_be(data, pos + 9)
    size: int = read_i32_be(data, pos + 13)
    pos += 17
    if size < 0 or pos + size + 4 > end:
        raise RemoteProtocolError("the remark is longer than its header")
    remark: str | None = java_text(data[pos : pos + size]) if size else None
    pos += size
    ext_size: int = read_i32_be(data, pos)
    pos += 4
    if ext_size < 0 or pos + ext_size > end:
        raise RemoteProtocolError("the ext fields are longer than their header")
    ext = _read_ext(data, pos, pos + ext_size)
    return Command(
        code=code,
        opaque=opaque,
        flag=flag,
        version=version,
        language=LANGUAGES[language] if language < len(LANGUAGES) else None,
        remark=remark,
        ext=msgspec.Raw(_quote(ext)),
    )


def _read_ext(data: bytes, pos: i64, end: i64) -> dict[str, str]:
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
    return fields


def encode_binary_header(
    *,
    code: int,
    opaque: int,
    flag: int,
    version: int,
    language: str,
    remark: str | None,
    ext: dict[str, str],
) -> bytes:
    """Write a header as Java does when `rocketmq.serialize.type` is ROCKETMQ."""
    writer = BytesWriter()
    write_i16_be(writer, code)
    writer.append(LANGUAGES.index(language))
    write_i16_be(writer, version)
    write_i32_be(writer, opaque)
    write_i32_be(writer, flag)
    text = (remark or "").encode()
    write_i32_be(writer, len(text))
    writer.write(text)
    fields = BytesWriter()
    for key, value in ext.items():
        key_bytes = key.encode()
        value_bytes = value.encode()
        write_i16_be(fields, len(key_bytes))
        fields.write(key_bytes)
        write_i32_be(fields, len(value_bytes))
        fields.write(value_bytes)
    packed = fields.getvalue()
    write_i32_be(writer, len(packed))
    writer.write(packed)
    return writer.getvalue()
