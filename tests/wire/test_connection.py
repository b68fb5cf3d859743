"""Frames: however they are cut, and whatever they hold."""

import contextlib
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquette.errors import LocalProtocolError, RemoteProtocolError
from roquette.wire.command import Command
from roquette.wire.connection import VERSION, WireConnection
from roquette.wire.header_codec import encode_dict, ext_dict

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 2**31 - 1), st.dictionaries(TEXTS, TEXTS, max_size=3), st.binary(max_size=50)
    ),
    max_size=5,
)


def frame(head: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    return (
        (4 + len(head) + len(body)).to_bytes(4, "big")
        + bytes([kind])
        + len(head).to_bytes(3, "big")
        + head
        + body
    )


@given(requests=REQUESTS, cuts=st.lists(st.integers(1, 60), min_size=1, max_size=20))
def test_requests_arrive_whole_however_they_are_cut(requests: Any, cuts: list[int]) -> None:
    ours, theirs = WireConnection(), WireConnection()
    opaques = [ours.send_request(code, encode_dict(ext), body) for code, ext, body in requests]
    data = b"".join(ours.data_to_send())

    commands: list[Command] = []
    at, turn = 0, 0
    while at < len(data):
        size = cuts[turn % len(cuts)]
        commands += theirs.receive_data(data[at : at + size])
        at, turn = at + size, turn + 1

    assert [(c.code, ext_dict(c.ext), bytes(c.body)) for c in commands] == requests
    assert [c.opaque for c in commands] == opaques
    assert all((c.language, c.version, c.flag) == ("PYTHON", VERSION, 0) for c in commands)


@given(
    opaque=st.integers(-(2**31), 2**31 - 1),
    code=st.integers(-2000, 2**31 - 1),
    remark=st.none() | TEXTS,
    ext=st.dictionaries(TEXTS, TEXTS, max_size=3),
    body=st.binary(max_size=50),
)
def test_replies_arrive_as_they_were_sent(
    opaque: int, code: int, remark: str | None, ext: dict[str, str], body: bytes
) -> None:
    ours = WireConnection()
    ours.send_reply(opaque, code, remark, encode_dict(ext) if ext else b"", body)

    (found,) = WireConnection().receive_data(b"".join(ours.data_to_send()))

    assert (found.opaque, found.code, found.remark) == (opaque, code, remark)
    assert (ext_dict(found.ext), found.body, found.is_response, found.is_oneway) == (
        ext,
        body,
        True,
        False,
    )


def test_the_prefix_of_a_frame() -> None:
    assert frame(b" " * 131)[:8] == bytes.fromhex("00000087 00000083")


def test_one_way_requests_say_so() -> None:
    ours = WireConnection()
    ours.send_request(15, b"", oneway=True)

    (found,) = WireConnection().receive_data(b"".join(ours.data_to_send()))

    assert (found.is_oneway, found.is_response) == (True, False)


def test_heads_of_others_are_read() -> None:
    head = json.dumps(
        {
            "code": 34,
            "language": "KLINGON",
            "version": 121,
            "opaque": -7,
            "flag": 0,
            "remark": None,
            "extFields": {"a": 1, "b": True},
            "serializeTypeCurrentRPC": "JSON",
            "body": None,
            "suspended": False,
        }
    ).encode()

    (found,) = WireConnection().receive_data(frame(head, b"x"))

    assert (found.code, found.opaque, found.body) == (34, -7, b"x")
    assert ext_dict(found.ext) == {"a": "1", "b": "true"}


@pytest.mark.parametrize(
    "data",
    [
        bytes.fromhex("00000003 000000"),
        bytes.fromhex("ffffffff"),
        bytes.fromhex("01000000"),
        bytes.fromhex("16030100 a0010000"),
        bytes.fromhex("00000004 00000001"),
        frame(b"{}"),
        frame(b"[]"),
        frame(b'{"code":"x","opaque":1}'),
        frame(b'{"code":1,"opaque":1,"remark":"\xff"}'),
        frame(b"[" * 100_000),
        frame(b'{"code":1,"opaque":1}', kind=2),
        frame(b'{"code":1,"opaque":1}', kind=1),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=lambda data: data[:12].hex(),
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        WireConnection().receive_data(data)


@given(data=st.binary(max_size=60))
def test_anything_is_read_or_refused(data: bytes) -> None:
    for candidate in (data, frame(data), frame(data, kind=1)):
        with contextlib.suppress(RemoteProtocolError):
            WireConnection().receive_data(candidate)


def test_frames_beyond_the_bound_are_not_sent() -> None:
    ours = WireConnection(max_frame=200)
    with pytest.raises(LocalProtocolError):
        ours.send_request(10, b"", b"x" * 200)
    assert ours.data_to_send() == []

    with pytest.raises(RemoteProtocolError):
        ours.receive_data((197).to_bytes(4, "big"))
    assert ours.receive_data((196).to_bytes(4, "big")) == []


def test_a_frame_that_comes_in_single_bytes_costs_no_more_than_its_bytes() -> None:
    connection = WireConnection()
    tracemalloc.start()
    connection.receive_data((16_000_000).to_bytes(4, "big"))
    for _ in range(200_000):
        connection.receive_data(bytes([7]))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 1_000_000


def test_nothing_is_reserved_for_a_frame_that_is_only_announced() -> None:
    tracemalloc.start()
    connections = [WireConnection() for _ in range(100)]
    for connection in connections:
        connection.receive_data((16_000_000).to_bytes(4, "big") + bytes(100))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 1_000_000


def test_a_remark_with_half_a_surrogate_pair_is_sent_as_java_writes_it() -> None:
    ours, theirs = WireConnection(), WireConnection()
    ours.send_reply(7, 1, "unknown key \ud800 \U0001f600", b"", b"")

    (reply,) = theirs.receive_data(b"".join(ours.data_to_send()))
    assert reply.remark == "unknown key ? \U0001f600"
