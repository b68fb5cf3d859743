"""The binary header, against the vector of the protocol notes, frames of Apache's, and noise."""

import contextlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquette.errors import RemoteProtocolError
from roquette.wire.codes import LANGUAGES
from roquette.wire.connection import WireConnection, decode_binary_header, encode_binary_header
from roquette.wire.header_codec import ext_dict

VECTOR = bytes.fromhex(
    "0000002d 01000029 0069 00 0191 00000007 00000000 00000000 00000014"
    "0005 746f706963 00000009 546f70696354657374"
)
FRAMES = json.loads(
    (Path(__file__).parent.parent / "golden" / "frame" / "cases.json").read_text("utf-8")
)


def test_the_vector_is_read_and_written() -> None:
    (command,) = WireConnection().receive_data(VECTOR)

    assert (command.code, command.language, command.version, command.opaque) == (
        105,
        "JAVA",
        401,
        7,
    )
    assert (command.flag, command.remark, ext_dict(command.ext)) == (
        0,
        None,
        {"topic": "TopicTest"},
    )
    written = encode_binary_header(
        code=105,
        opaque=7,
        flag=0,
        version=401,
        language="JAVA",
        remark=None,
        ext={"topic": "TopicTest"},
    )
    assert written == VECTOR[8:]


@pytest.mark.parametrize(
    "case", [c for c in FRAMES if c["type"] == "ROCKETMQ"], ids=lambda case: str(case["name"])
)
def test_headers_are_written_as_apache_writes_them(case: dict[str, Any]) -> None:
    golden = bytes.fromhex(case["plain"])
    head = golden[8 : 8 + (int.from_bytes(golden[4:8], "big") & 0xFFFFFF)]
    found = decode_binary_header(golden, 8, 8 + len(head))

    written = encode_binary_header(
        code=found.code,
        opaque=found.opaque,
        flag=found.flag,
        version=found.version,
        language=str(found.language),
        remark=found.remark,
        ext=ext_dict(found.ext),
    )

    assert len(written) == len(head)  # Java's map has an order of its own
    assert decode_binary_header(written, 0, len(written)) == found


def test_a_language_nobody_knows_is_none() -> None:
    data = bytearray(VECTOR[8:])
    data[2] = 200

    assert decode_binary_header(bytes(data), 0, len(data)).language is None


def test_empty_keys_and_values_are_absent() -> None:
    data = encode_binary_header(
        code=1,
        opaque=1,
        flag=1,
        version=1,
        language="GO",
        remark="",
        ext={"a": "", "b": "1", "": "x"},
    )

    found = decode_binary_header(data, 0, len(data))

    assert (found.remark, ext_dict(found.ext)) == (None, {"b": "1"})


@pytest.mark.parametrize("size", range(len(VECTOR) - 8))
def test_every_cut_is_refused(size: int) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_binary_header(VECTOR[8:], 0, size)


@pytest.mark.parametrize("at", [13, 17, 21, 28])
@pytest.mark.parametrize("value", ["ffffffff", "7fffffff", "80000000", "0000ffff"])
def test_lengths_that_lie_are_refused(at: int, value: str) -> None:
    data = bytearray(VECTOR[8:])
    data[at : at + 4] = bytes.fromhex(value)

    with pytest.raises(RemoteProtocolError):
        decode_binary_header(bytes(data), 0, len(data))


@given(data=st.binary(max_size=60), noise=st.binary(max_size=40))
def test_anything_is_read_or_refused(data: bytes, noise: bytes) -> None:
    for candidate in (data, VECTOR[8:25] + noise, VECTOR[8:29] + noise):
        with contextlib.suppress(RemoteProtocolError):
            found = decode_binary_header(candidate, 0, len(candidate))
            assert ext_dict(found.ext) is not None


INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(
    code=INT16,
    opaque=INT32,
    flag=INT32,
    version=INT16,
    language=st.sampled_from(LANGUAGES),
    remark=st.none() | TEXTS,
    ext=st.dictionaries(TEXTS, TEXTS, max_size=4),
    before=st.binary(max_size=5),
)
def test_headers_survive_the_round_trip(before: bytes, ext: dict[str, str], **head: Any) -> None:
    data = encode_binary_header(ext=ext, **head)

    found = decode_binary_header(before + data + b"body", len(before), len(before) + len(data))

    assert msgspec.json.decode(found.ext) == ext
    assert {name: getattr(found, name) for name in head} == head
