"""Ext fields to Structs and back: what Java's parsers accept, and what no parser should."""

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquette.wire.header_codec import (
    BadHeader,
    HeaderDecoder,
    decode_ext,
    encode_dict,
    encode_ext,
    encoder,
    ext_dict,
)
from roquette.wire.json_body import Int32, Int64


class Sample(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """One field of every kind."""

    topic_name: str
    queue_id: int
    batch: bool
    remark: str | None = None
    max_times: int | None = None
    local: bool | None = None
    perm: int = 6


FULL: dict[str, Any] = {"topicName": "T", "queueId": "3", "batch": "true"}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def decode(**changes: object) -> Sample:
    return decode_ext(Sample, raw(FULL | changes))


@given(
    topic=TEXT,
    number=st.integers(-(2**63), 2**63 - 1),
    flag=st.booleans(),
    remark=st.none() | TEXT,
    times=st.none() | st.integers(-(2**63), 2**63 - 1),
    local=st.none() | st.booleans(),
)
def test_any_header_survives_and_travels_as_texts(
    topic: str, number: int, flag: bool, remark: str | None, times: int | None, local: bool | None
) -> None:
    header = Sample(
        topic_name=topic, queue_id=number, batch=flag, remark=remark, max_times=times, local=local
    )
    data = encode_ext(header)
    assert decode_ext(Sample, msgspec.Raw(data)) == header
    assert all(isinstance(value, str) for value in msgspec.json.decode(data).values())


def test_absent_values_are_left_out() -> None:
    data = encode_ext(Sample(topic_name="T", queue_id=1, batch=False))
    assert msgspec.json.decode(data) == {
        "topicName": "T",
        "queueId": "1",
        "batch": "false",
        "perm": "6",
    }


def test_constants_become_part_of_the_template() -> None:
    encode = encoder(Sample, {"MSG_REGION": '100% "x"'})
    fields = msgspec.json.decode(encode(Sample(topic_name="%d", queue_id=1, batch=True)))
    assert fields["MSG_REGION"] == '100% "x"'
    assert fields["topicName"] == "%d"


@pytest.mark.parametrize("value", ["3", "+3", "003", 3])
def test_numbers_in_javas_forms(value: object) -> None:
    assert decode(queueId=value).queue_id == 3


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("true", True),
        ("TRUE", True),
        ("True", True),
        (True, True),
        ("false", False),
        ("yes", False),
    ],
)
def test_booleans_in_javas_forms(value: object, wanted: bool) -> None:
    assert decode(batch=value).batch is wanted


def test_numbers_and_booleans_where_texts_are_meant() -> None:
    assert decode(topicName=5, remark=True).topic_name == "5"
    assert decode(topicName=5, remark=True).remark == "true"


def test_empty_and_null_are_absent() -> None:
    found = decode(maxTimes="", remark=None, unknown="ignored")
    assert (found.max_times, found.remark) == (None, None)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("queueId", "x"),
        ("queueId", ""),
        ("queueId", "1_000"),
        ("queueId", " 1"),
        ("queueId", "1.5"),
        ("queueId", {}),
        ("topicName", None),
    ],
)
def test_what_does_not_fit_names_header_and_field(field: str, value: object) -> None:
    with pytest.raises(BadHeader, match="Sample"):
        decode(**{field: value})


class Bounded(msgspec.Struct, gc=False, kw_only=True, rename={"sys_flag": "f"}):
    """Fields of Java's types."""

    sys_flag: Int32
    born: Int64 | None = None
    times: Int32 | None = None


@pytest.mark.parametrize("value", ["{}", '"{}"', '"+{}"', '"00{}"'])
@pytest.mark.parametrize("name, bits", [("f", 32), ("born", 64), ("times", 32)])
def test_a_number_beyond_javas_type_is_refused_with_field_value_and_range(
    name: str, bits: int, value: str
) -> None:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    for number in (high, high + 1, 2**64, int("9" * 400)):
        text = value.format(number)
        fields = {"f": "0", name: text}
        data = ",".join(f'"{key}":{field}' for key, field in fields.items())
        if number == high:
            found = decode_ext(Bounded, msgspec.Raw(b"{%b}" % data.encode()))
            assert high in (found.sys_flag, found.born, found.times)
            continue
        with pytest.raises(BadHeader) as caught:
            decode_ext(Bounded, msgspec.Raw(b"{%b}" % data.encode()))
        words = str(caught.value)
        assert f"field {name}" in words
        assert f"{low}..{high}" in words
        assert text.strip('"')[:20] in words
        assert ("(sys_flag)" in words) == (name == "f")


@pytest.mark.parametrize("data", [b"[]", b"5", b'"x"', b"{", b"", b"nonsense", b"\xff"])
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(BadHeader):
        HeaderDecoder(Sample)(msgspec.Raw(data))


def test_no_ext_fields_at_all() -> None:
    with pytest.raises(BadHeader):
        decode_ext(Sample, None)
    assert ext_dict(None) == {}


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(BadHeader):
        HeaderDecoder(Sample)(msgspec.Raw(data))


@given(st.dictionaries(TEXT, TEXT, max_size=5))
def test_bare_fields_survive(fields: dict[str, str]) -> None:
    assert ext_dict(msgspec.Raw(encode_dict(fields))) == fields
