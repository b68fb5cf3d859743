"""Text of a peer that is not UTF-8, as of a C++ client in a GBK locale: it is stored as Apache's broker stores it."""

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.broker.conftest import pull_ext, send_ext

from roquette.base.files import OsReadFiles
from roquette.base.javatypes import java_hash, java_text
from roquette.message.properties import decode_properties
from roquette.message.record import decode_records, encode_batch
from roquette.message.record_view import SOUND, RecordView
from roquette.store.offline.fsck import FsckOptions, check_store
from roquette.store.offline.store_dir import find_store
from roquette.wire.codes import ResponseCode
from roquette.wire.header_codec import BadHeader, ext_dict

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/not_utf8/cases.json").read_text())
CASES = {bytes.fromhex(sent): bytes.fromhex(kept) for sent, kept in GOLDEN["binaryHeader"].items()}
PAIRS = list(CASES.items())
GBK = "标签".encode("gbk")


def json_ext(ext: dict[str, Any], name: str, value: bytes) -> bytes:
    """A header's ext fields with one value as it is, control characters escaped as jsoncpp does."""
    ext = {key: str(old) for key, old in ext.items() if key != name}
    escaped = b"".join(b"\\u%04x" % n if n < 32 else bytes((n,)) for n in value)
    return json.dumps(ext)[:-1].encode() + b',"%b":"%b"}' % (name.encode(), escaped)


def binary_frame(code: int, ext: dict[str, Any], name: str, value: bytes, body: bytes) -> bytes:
    pairs = {k.encode(): str(v).encode() for k, v in ext.items()} | {name.encode(): value}
    packed = b"".join(struct.pack(f">h{len(k)}si", len(k), k, len(v)) + v for k, v in pairs.items())
    head = struct.pack(">hbhiii", code, 1, 453, 77, 0, 0) + struct.pack(">i", len(packed)) + packed
    return struct.pack(">ii", 4 + len(head) + len(body), 1 << 24 | len(head)) + head + body


async def call(
    client: Any, form: str, code: int, ext: Any, name: str, value: bytes, body: bytes
) -> Any:
    if form == "json":
        client.wire.send_request(code, json_ext(ext, name, value), body)
        client.writer.write(b"".join(client.wire.data_to_send()))
    else:
        client.writer.write(binary_frame(code, ext, name, value, body))
    return await client.receive()


def stored(case: Any, topic: str = "T") -> list[tuple[bytes, bytes, int]]:
    """Properties, body and tags code of each message of queue 0, by the bytes of log and queue."""
    found = []
    for physical, size, code in case.broker.store.queue_units(topic, 0, 0, 5_000):
        record = case.broker.store.record_at(physical, size)
        view = RecordView()
        assert view.find(record, 0) == SOUND
        body = record[view.body_at : view.body_at + view.body_size]
        found.append((view.properties(), body, code))
    return found


@pytest.mark.promise("Refusals", "text that is not UTF-8 is stored as Apache's broker stores it")
@pytest.mark.parametrize("form", ["json", "binary"])
def test_property_bytes_are_stored_as_apache_stores_them(run_broker: Any, form: str) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        for sent, _ in PAIRS:
            value = b"TAGS\x01" + sent + b"\x02KEYS\x01k" + sent + b"\x02UNIQ_KEY\x01u\x02"
            reply = await call(client, form, 310, send_ext(), "i", value, sent)
            assert reply.code == 0, (sent, reply.remark)
        found = stored(case)
        assert len(found) == len(PAIRS)
        for (sent, kept), (properties, body, code) in zip(PAIRS, found):
            assert body == sent  # bodies are never touched
            assert b"TAGS\x01" + kept + b"\x02KEYS\x01k" + kept + b"\x02" in properties, sent
            assert code == java_hash(kept.decode()), sent

    run_broker(scenario)


def test_a_batch_keeps_the_bytes_and_its_tags_have_the_hash_of_javas_text(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        body = encode_batch([(0, sent, b"TAGS\x01" + sent + b"\x02") for sent, _ in PAIRS])
        reply = await client.call(320, send_ext(m="true", i=""), body)
        assert reply.code == 0, reply.remark
        for (sent, kept), (properties, payload, code) in zip(PAIRS, stored(case), strict=True):
            assert (payload, properties.count(b"TAGS\x01" + sent + b"\x02")) == (sent, 1)
            assert code == java_hash(kept.decode()), sent

    run_broker(scenario)


@pytest.mark.parametrize("form", ["json", "binary"])
def test_such_messages_are_found_by_tag_and_key_also_when_all_is_made_anew(
    run_broker: Any, tmp_path: Path, form: str
) -> None:
    text = java_text(GBK)

    async def send(case: Any) -> None:
        client = await case.client()
        value = b"TAGS\x01" + GBK + b"\x02KEYS\x01" + GBK + b"\x02"
        assert (await call(client, form, 310, send_ext(), "i", value, b"x")).code == 0
        batch = encode_batch([(0, b"y", value), (0, b"z", b"TAGS\x01other\x02")])
        assert (await client.call(320, send_ext(m="true", i=""), batch)).code == 0
        await find(case)

    async def find(case: Any) -> None:
        client = await case.client()
        pulled = await client.pull(subscription=text)
        assert [record.body for record in decode_records(pulled.body)] == [b"x", b"y"]
        assert {decode_properties(r.properties)["TAGS"] for r in decode_records(pulled.body)} == {
            text
        }
        by_key = {
            "topic": "T",
            "key": text,
            "maxNum": 9,
            "beginTimestamp": 0,
            "endTimestamp": 2**62,
        }
        assert len(decode_records((await client.call(12, by_key)).body)) == 2

    run_broker(send)
    report = check_store(
        OsReadFiles(), find_store(OsReadFiles(), str(tmp_path / "store")), FsckOptions()
    )
    assert report.sound, report.findings
    shutil.rmtree(tmp_path / "store" / "consumequeue")
    shutil.rmtree(tmp_path / "store" / "index")
    run_broker(find)


@pytest.mark.parametrize("form", ["json", "binary"])
@pytest.mark.parametrize("field", ["b", "a"], ids=["topic", "group"])
def test_names_that_are_not_utf8_make_nothing(run_broker: Any, form: str, field: str) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        reply = await call(client, form, 310, send_ext(), field, GBK, b"x")
        assert reply.code in set(ResponseCode)
        if field == "b":
            assert reply.code != 0 and "illegal" in reply.remark, reply.remark

        refused = await call(client, form, 11, pull_ext(), "consumerGroup", GBK, b"")
        assert refused.code != 0 and "Error" not in refused.remark.split(":")[0], refused.remark
        assert all(name.isascii() for name in case.broker.store.topics())

    run_broker(scenario)


@pytest.mark.parametrize("text", ["\\ud800", "a\\udc00b", "\\ud83d\\ude00", "\x01\x02"])
def test_escapes_that_are_half_a_pair_become_what_java_writes(text: str) -> None:
    kept = {"\\ud800": "?", "a\\udc00b": "a?b", "\\ud83d\\ude00": "\U0001f600"}.get(text, text)

    assert ext_dict(msgspec.Raw(f'{{"i":"{text}","n":5}}'.encode())) == {"i": kept, "n": "5"}


@pytest.mark.parametrize(
    "ext", [b'{"i":"\xd6', b'{"i":\xd6}', b'{"i":' + b"[" * 99_999, b"\xff" * 200_000]
)
def test_what_is_no_json_either_is_refused_in_our_words(ext: bytes) -> None:
    with pytest.raises(BadHeader, match="ext fields are not JSON: ") as told:
        ext_dict(msgspec.Raw(ext))

    assert "codec" not in str(told.value)
