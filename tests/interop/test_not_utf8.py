"""Property text that is not UTF-8 comes back from ours as from Apache's broker (ROQUETTE_INTEROP_PROVE=1 runs both): same bytes."""

import socket
import struct

import pytest
from tests.broker.conftest import pull_ext, send_ext
from tests.broker.test_not_utf8 import GBK, PAIRS, binary_frame, json_ext
from tests.interop.conftest import Cluster
from tests.interop.peers import _exactly, call

from roquette.base.javatypes import java_text
from roquette.message.record import decode_records, encode_batch, peek_size_magic
from roquette.message.record_view import SOUND, RecordView

pytestmark = pytest.mark.interop


def ask(peer: socket.socket, frame: bytes) -> int:
    """The code of the answer, in whichever form it comes."""
    peer.sendall(frame)
    (size,) = struct.unpack(">i", _exactly(peer, 4))
    data = _exactly(peer, size)
    if data[0] == 1:
        return int(struct.unpack(">h", data[4:6])[0])
    return int(data[4:].split(b'"code":')[1].split(b",")[0])


def pulled(cluster: Cluster, topic: str, count: int, **more: object) -> list[bytes]:
    """Records of queue 0, whole."""
    found: list[bytes] = []
    while len(found) < count:
        ext = pull_ext(topic, 0, len(found), suspendTimeoutMillis=5000, **more)
        answer = call(cluster.broker.address, 11, {key: str(value) for key, value in ext.items()})
        assert answer is not None and answer[0]["code"] == 0, answer
        at, data = 0, answer[1]
        while at < len(data):
            size, _ = peek_size_magic(data, at)
            found.append(data[at : at + size])
            at += size
    return found


def properties_in(record: bytes) -> bytes:
    view = RecordView()
    assert view.find(record, 0) == SOUND
    return view.properties()


def test_text_that_is_not_utf8_is_stored_by_one_rule(cluster: Cluster, name: str) -> None:
    host, _, port = cluster.broker.address.rpartition(":")
    pairs = [*PAIRS[::20], (GBK, java_text(GBK).encode())]
    with socket.create_connection((host, int(port)), timeout=30) as peer:
        for sent, _ in pairs:
            value = b"TAGS\x01" + sent + b"\x02KEYS\x01k" + sent + b"\x02"
            assert ask(peer, binary_frame(310, send_ext(name, d=1), "i", value, sent)) == 0
        batch = encode_batch([(0, b"b", b"TAGS\x01" + GBK + b"\x02"), (0, b"c", b"TAGS\x01d\x02")])
        assert ask(peer, binary_frame(320, send_ext(name, d=1, m="true"), "i", b"", batch)) == 0
    records = pulled(cluster, name, len(pairs) + 2)
    for (sent, kept), record in zip(pairs, records):
        text = properties_in(record)
        assert b"TAGS\x01" + kept + b"\x02" in text, sent
        assert b"KEYS\x01k" + kept + b"\x02" in text, sent
        assert decode_records(record)[0].body == sent
    assert b"TAGS\x01" + GBK + b"\x02" in properties_in(records[-2])
    tagged = pulled(cluster, name, 2, subscription=java_text(GBK))
    assert [decode_records(record)[0].body for record in tagged] == [GBK, b"b"]


def test_a_json_header_that_is_not_utf8(cluster: Cluster, name: str) -> None:
    host, _, port = cluster.broker.address.rpartition(":")
    head = b'{"code":310,"extFields":%b,"flag":0,"language":"CPP","opaque":1,"version":400}'
    head %= json_ext(send_ext(name), "i", b"TAGS\x01" + GBK + b"\x02")
    frame = struct.pack(">ii", 5 + len(head), len(head)) + head + b"x"
    with socket.create_connection((host, int(port)), timeout=30) as peer:
        if cluster.flavour == "apache":  # a deviation, docs/compatibility.md
            with pytest.raises(ConnectionError):
                ask(peer, frame)
        else:
            assert ask(peer, frame) == 0
