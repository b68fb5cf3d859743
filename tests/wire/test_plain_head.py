"""The plain reader of headers beside the general one: what it takes, that takes with the same result."""

import json
import os
import random
from typing import Any

import pytest

from roquette.errors import RemoteProtocolError
from roquette.wire.binary_ext import json_of
from roquette.wire.command import Command
from roquette.wire.connection import decode_binary_header, encode_binary_header
from roquette.wire.general_head import general_head
from roquette.wire.header_codec import HeaderDecoder
from roquette.wire.headers import SendMessageRequestHeaderV2
from roquette.wire.plain_head import plain_head
from roquette.wire.send_fields import fields_of

read_header = HeaderDecoder(SendMessageRequestHeaderV2)
SAID = (
    *("topic", "default_topic_queue_nums", "queue_id", "sys_flag", "born_timestamp", "flag", "properties"),
    *("reconsume_times", "unit_mode", "max_reconsume_times", "batch", "producer_group", "default_topic"),
)  # fmt: skip
EXT = {
    "a": "group",
    "b": "orders",
    "e": "3",
    "i": "KEYS\x01k1\x02UNIQ_KEY\x017F000001\x02WAIT\x01true\x02",
    "n": "broker-a",
}
SEND = EXT | {
    "c": "TBW102",
    "d": "4",
    "f": "-1",
    "g": "1732800000000",
    "h": "0",
    "j": "0",
    "k": "false",
    "m": "false",
}
PLAIN_TEXTS = {name: text for name, text in SEND.items() if name not in "dijkm"}


def java(ext: dict[str, str], **more: object) -> bytes:
    """A header as fastjson writes it."""
    head = {"code": 310, "extFields": ext, "flag": 0, "language": "JAVA", "opaque": 7}
    head |= {"serializeTypeCurrentRPC": "JSON", "version": 513} | more
    return json.dumps(head, separators=(",", ":")).encode()


PLAIN = [
    java(EXT),
    java({}),
    java(SEND),
    java(SEND | {"l": "16", "k": "true", "d": "2147483647", "i": ""}, code=320),
    java(SEND | {"AccessKey": "someone", "Signature": "qV+/9w=="}),
    java(PLAIN_TEXTS),
    java({"topic": 'a"b\\c/d'}, remark="what was wrong", flag=1, opaque=2**31 - 1),
    java(EXT, opaque=-(2**31), version=0, language="PYTHON"),
    b'{"code":105,"flag":0,"language":"GO","opaque":12,"version":317,"remark":"","extFields":{"topic":"T"}}',
    b'{"opaque":1,"code":34}',
]
GENERAL = [
    b'{"code":1,"opaque":2,"extFields":null}',
    b'{"code":1,"opaque":2,"remark":null}',
    b'{ "code":1,"opaque":2}',
    b'{"code":1,"opaque":2,"extFields":{"a":1}}',
    b'{"code":1,"opaque":2,"extFields":{"a":{"b":"c"}}}',
    '{"code":1,"opaque":2,"extFields":{"a":"\xfc"}}'.encode(),
    b'{"code":1,"opaque":2,"extFields":{"a":"\\u00e4\\ud83d\\ude00"}}',
    b'{"code":1,"code":2,"opaque":2}',
    b'{"code":1,"opaque":2,"else":3}',
    b'{"code":1,"opaque":2,"language":7}',
]


def said(fields: Any) -> list[object]:
    """What was read of a send."""
    return [getattr(fields, name) for name in SAID]


def same(found: Command, wanted: Command) -> bool:
    """Are both readers' commands equal, and what was read of a send in the same pass?"""
    if found.fields is not None:
        assert said(found.fields) == said(fields_of(read_header(wanted.ext)))
    return found == wanted


def test_a_send_is_read_in_the_same_pass() -> None:
    read = [plain_head(data, 0, len(data)) for data in PLAIN[2:6]]
    assert all(command is not None and command.fields is not None for command in read)
    data = java({name: text for name, text in SEND.items() if name != "b"})
    command = plain_head(data, 0, len(data))
    assert command is not None and command.fields is None  # the general reader says what is missing


@pytest.mark.parametrize("data", PLAIN)
def test_what_clients_write_is_plain(data: bytes) -> None:
    found = plain_head(data, 0, len(data))
    assert found is not None and same(found, general_head(data))
    inside = plain_head(b"xx" + data + b"yy", 2, 2 + len(data))
    assert inside == found


@pytest.mark.parametrize("data", GENERAL)
def test_what_is_less_usual_is_left_to_the_general_reader(data: bytes) -> None:
    assert plain_head(data, 0, len(data)) is None
    general_head(data)


PIECES = [
    *(b'{}[]",:\\-0189eEu.+ \x00\x1f\x7f\x80\xff'[n : n + 1] for n in range(23)),
    *(b'"code":', b'"opaque":', b'"extFields":', b'"remark":"', b"null", b"true", b"\\u0001", b"\\ud800"),
    *(b'"d":"7",', b'"k":"true",', b'"l":"3",', b'"i":"', b"\\u0019", b"\\u001a", b"9223372036854775807"),
    *(b"2147483648", b"-2147483648", b"01", b"-0", b'"a":"b",', b'"language":"JAVA"', b"{}", b","),
]  # fmt: skip


def mutated(rng: random.Random) -> bytes:
    """A header to which one to three things were done."""
    data = bytearray(rng.choice(PLAIN + GENERAL))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(data))
        match rng.randrange(8):
            case 0:
                del data[at : at + rng.randint(1, 6)]
            case 1:
                data[at:at] = rng.choice(PIECES)
            case 2:
                data[at : at + rng.randint(1, 8)] = rng.choice(PIECES)
            case 3:
                begin = rng.randrange(len(data) + 1)
                data[at:at] = data[begin : begin + rng.randint(1, 30)]
            case _:
                data[at] = rng.choice(b"09aAzZ_%1") if rng.random() < 0.9 else rng.randrange(256)
    return bytes(data)


def differ(seed: int, count: int) -> int:
    """Compare both readers on so many mutated headers; how many were plain."""
    rng = random.Random(seed)
    plain = 0
    for number in range(count):
        data = mutated(rng)
        found = plain_head(data, 0, len(data))
        if found is None:
            continue
        plain += 1
        try:
            wanted = general_head(data)
        except (ValueError, RecursionError) as error:
            raise AssertionError(f"seed {seed}, {number}: {data!r} is refused: {error}") from None
        assert same(found, wanted), f"seed {seed}, {number}: {data!r}"
    return plain


def test_no_mutated_header_is_read_in_two_ways() -> None:
    assert differ(int(os.environ.get("ROQUETTE_SEED", "1")), 60_000) > 2_000


def binary(ext: dict[str, str]) -> bytes:
    """A binary header of a send, after its sizes."""
    return encode_binary_header(
        code=310, opaque=7, flag=0, version=513, language="JAVA", remark=None, ext=ext
    )


def differ_binary(seed: int, count: int) -> int:
    """The same of binary headers: what was read at once, and what is read of them as JSON."""
    rng = random.Random(seed)
    plain = 0
    begin = len(binary({}))
    for number in range(count):
        data = bytearray(binary(SEND if rng.random() < 0.8 else PLAIN_TEXTS))
        for _ in range(rng.choice((1, 1, 2, 3))):
            at = rng.randrange(begin, len(data))
            if rng.random() < 0.7:
                data[at] = rng.choice(b"09aAn_\x00\x01\x02\x05\x7f\x80-")
            else:
                data[at : at + rng.randint(0, 3)] = rng.choice(
                    (b"\x00\x01i", b"7", b"", b"\x00\x00")
                )
        data[begin - 4 : begin] = (len(data) - begin).to_bytes(4, "big")
        try:
            found = decode_binary_header(bytes(data), 0, len(data))
        except RemoteProtocolError:
            continue
        if found.fields is not None:
            plain += 1
            fields, ext = found.fields, found.ext
            assert ext == json_of(bytes(data), begin, len(data))
            assert said(fields) == said(fields_of(read_header(ext))), (
                f"seed {seed}, {number}: {data!r}"
            )
    return plain


def test_no_mutated_binary_header_is_read_in_two_ways() -> None:
    assert differ_binary(int(os.environ.get("ROQUETTE_SEED", "1")), 20_000) > 2_000


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(100, 110))
def test_no_mutated_binary_header_of_a_million(seed: int) -> None:
    assert differ_binary(seed, 100_000) > 10_000


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(100, 150))
def test_no_mutated_header_of_five_million(seed: int) -> None:
    assert differ(seed, 100_000) > 3_000
