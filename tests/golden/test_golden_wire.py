"""What the wire room writes and reads equals what Apache's remoting writes and reads."""

import json
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roquette.wire.json_body import Int32, Int64

codes = pytest.importorskip("roquette.wire.codes")
connection = pytest.importorskip("roquette.wire.connection")
headers = pytest.importorskip("roquette.wire.headers")
header_codec = pytest.importorskip("roquette.wire.header_codec")

HERE = Path(__file__).parent

PRIMITIVE = {"int", "long", "boolean"}  # never absent in Java
NOT_CARRIED = {"liteTopic", "indexType", "lastKey"}  # lite topics and typed indexes, new in 5.5
OUR_FIELDS = {  # sent where outsideAddr is set
    "RegisterBrokerRequestHeader": {"outsideAddr"},
    "GetRouteInfoRequestHeader": {"outside"},
}
STRICTER = {
    ("QueryConsumeQueueRequestHeader", "topic")
}  # without it Apache fails later, by accident


def cases(name: str) -> Any:
    return json.loads((HERE / name / "cases.json").read_text("utf-8"))


FRAMES = cases("frame")
HEADERS = {name: case for name, case in cases("headers").items() if hasattr(headers, name)}
OURS = {
    13001,
    13002,
    13003,
    13005,
    13006,
    13007,
}  # registers, tables for replicas, watched routes, tickets
OF_4 = {50, 51, 52, 53, 54}  # ACL 1.0's, of Apache 4.9; gone from 5


def test_codes_are_apaches() -> None:
    golden = cases("codes")

    for enum, expected in (
        (codes.RequestCode, golden["requestCodes"]),
        (codes.ResponseCode, golden["responseCodes"]),
    ):
        ours = {name: int(code) for name, code in enum.__members__.items()}
        assert {name: code for name, code in ours.items() if expected.get(name, code) != code} == {}
        assert sorted(set(ours.values()) - set(expected.values()) - OURS - OF_4) == []
        assert (OURS | OF_4).isdisjoint(expected.values())


def test_languages_and_versions_are_apaches() -> None:
    golden = cases("codes")

    assert list(codes.LANGUAGES) == sorted(golden["languages"], key=golden["languages"].get)
    assert golden["currentVersion"] == connection.VERSION
    fives = {
        name: ordinal
        for name, ordinal in golden["versions"].items()
        if name.startswith(("V5_", "V4_"))
    }
    assert {name: codes.version_text(ordinal) for name, ordinal in fives.items()} == {
        name: name for name in fives
    }


@pytest.mark.parametrize("form", ["plain", "fast"])
@pytest.mark.parametrize("case", FRAMES, ids=lambda case: f"{case['name']}-{case['type']}")
def test_frames_of_both_forms_are_read(case: dict[str, Any], form: str) -> None:
    commands = connection.WireConnection().receive_data(bytes.fromhex(case[form]))

    assert len(commands) == 1
    command = commands[0]
    assert (command.code, command.opaque, command.flag) == (
        case["code"],
        case["opaque"],
        case["flag"],
    )
    assert (command.version, command.language) == (case["version"], case["language"])
    assert (command.remark, command.body.decode()) == (case["remark"], case["body"] or "")
    assert header_codec.ext_dict(command.ext) == (case["ext"] or {})


def head_of(frame: bytes) -> Any:
    size = int.from_bytes(frame[4:8], "big")
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return json.loads(frame[8 : 8 + size])


@pytest.mark.parametrize(
    "case", [case for case in FRAMES if case["type"] == "JSON"], ids=lambda case: str(case["name"])
)
def test_frames_are_written_as_apache_writes_them(case: dict[str, Any]) -> None:
    ours = connection.WireConnection()
    ext = header_codec.encode_dict(case["ext"]) if case["ext"] else b""
    body = (case["body"] or "").encode()
    if case["flag"] & 1:
        ours.send_reply(case["opaque"], case["code"], case["remark"], ext, body)
    else:
        ours.send_request(case["code"], ext, body, oneway=bool(case["flag"] & 2))
    frame = b"".join(ours.data_to_send())
    golden = bytes.fromhex(case["fast"])

    expected = head_of(golden) | {"language": "PYTHON", "opaque": head_of(frame)["opaque"]}
    expected.setdefault("extFields", {})
    assert head_of(frame) | {"extFields": head_of(frame).get("extFields", {})} == expected
    assert frame.endswith(body)


@pytest.mark.parametrize("name", HEADERS)
def test_header_fields_are_apaches(name: str) -> None:
    case = HEADERS[name]
    ours = {field.encode_name: field for field in msgspec.structs.fields(getattr(headers, name))}
    required = {field for field, kind in case["fields"].items() if kind.endswith("!")}

    primitive = {field for field, kind in case["fields"].items() if kind in PRIMITIVE}

    assert set(case["fields"]) - set(ours) - NOT_CARRIED == set()
    more = set(ours) - set(case["fields"]) - set(case["inherited"])
    assert more == OUR_FIELDS.get(name, set())
    ours_required = {
        field for field in ours if ours[field].required and (name, field) not in STRICTER
    }
    assert ours_required - required - primitive == set()


@pytest.mark.parametrize("name", HEADERS)
def test_numbers_of_headers_have_the_range_of_apaches_type(name: str) -> None:
    case = HEADERS[name]
    ranges = {"int": Int32, "Integer": Int32, "long": Int64, "Long": Int64}
    kinds = case["inherited"] | case["fields"]
    for field in msgspec.structs.fields(getattr(headers, name)):
        wanted = ranges.get(kinds.get(field.encode_name, "").rstrip("!"))
        if wanted is not None:
            assert field.type in (wanted, typing.Optional[wanted]), field.name  # noqa: UP045


@pytest.mark.parametrize("name", HEADERS)
def test_headers_are_read_and_written_as_apaches(name: str) -> None:
    kind = getattr(headers, name)
    expected = HEADERS[name]["ext"] or {}
    ext = {
        field: value
        for field, value in expected.items()
        if field in {f.encode_name for f in msgspec.structs.fields(kind)}
    }

    header = header_codec.decode_ext(kind, msgspec.Raw(json.dumps(expected).encode()))

    assert header_codec.ext_dict(msgspec.Raw(header_codec.encode_ext(header))) == ext


@pytest.mark.parametrize("ext", ["", ',"extFields":null', ',"extFields":{}'])
def test_a_head_without_ext_fields_is_read(ext: str) -> None:
    head = f'{{"code":34,"opaque":1{ext}}}'.encode()
    frame = (4 + len(head)).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head

    (command,) = connection.WireConnection().receive_data(frame)

    assert header_codec.ext_dict(command.ext) == {}
