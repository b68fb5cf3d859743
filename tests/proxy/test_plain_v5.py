"""The plain readers of sends and acks beside protobuf: what they take, that takes with the same result. And the reply to a send
beside protobuf's."""

import os
import random
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from roquette.proxy.encoding import entry_of, stored
from roquette.proxy.sending import sent_message
from roquette.wire.plain_v5 import AckedMessage, SentMessage, plain_ack, plain_send
from roquette.wire.proto import definition_pb2 as d
from roquette.wire.proto import service_pb2 as s

VALUES = (
    "attempts", "body", "born_ms", "deliver_ms", "encoding", "group", "host", "keys", "lite_topic", "message_id",
    "priority", "recovery_s", "tag", "topic", "trace", "type", "user",
)  # fmt: skip


def values(message: SentMessage) -> dict[str, Any]:
    return {name: getattr(message, name) for name in VALUES}


def request(
    *,
    namespace: str = "",
    user: dict[str, str] | None = None,
    body: bytes = b"b" * 40,
    **system: Any,
) -> bytes:
    """A SendMessageRequest of one message, as official clients write it."""
    known = {
        "message_id": "01A1B2C3D4E5F60A1B0C0D0E0F00000001",
        "message_type": 1,
        "body_encoding": 1,
    } | system
    properties = d.SystemProperties(**known)
    properties.born_timestamp.FromMilliseconds(1_732_000_000_123)
    message = d.Message(
        topic=d.Resource(name="orders", resource_namespace=namespace),
        body=body,
        user_properties=user or {},
        system_properties=properties,
    )
    return s.SendMessageRequest(messages=[message]).SerializeToString()


TWO = s.SendMessageRequest.FromString(request())
TWO.messages.append(TWO.messages[0])
PLAIN = [
    request(tag="TagA", keys=["k1", "k2"], born_host="host-1", queue_id=3),
    request(user={"a": "b", "c": "\xe4\u4e2d"}, tag="\xfc"),
    request(message_type=2, message_group="g1", body=b""),
    request(body=b"x" * 300, body_encoding=2, keys=[""], user={"": ""}),
    s.SendMessageRequest(messages=[d.Message()]).SerializeToString(),
]
GENERAL = [
    b"",
    TWO.SerializeToString(),
    request(priority=1),
    request(namespace="inst"),
    request(trace_context="t"),
    request(lite_topic="l"),
    request(delivery_attempt=2),
    request(delivery_timestamp={"seconds": 1_732_000_100}),
    request(message_type=4, orphaned_transaction_recovery_duration={"seconds": 9}),
    request(body_digest={"type": 2, "checksum": "AB"}),
    request(queue_id=-1),
    request(message_type=-1),
]


@pytest.mark.parametrize("data", PLAIN)
def test_what_producers_send_is_plain(data: bytes) -> None:
    found = plain_send(data)
    assert found is not None and values(found) == general(data)


@pytest.mark.parametrize("data", GENERAL)
def test_what_is_less_usual_is_left_to_protobuf(data: bytes) -> None:
    assert plain_send(data) is None
    s.SendMessageRequest.FromString(data)


def general(data: bytes) -> dict[str, Any]:
    (message,) = s.SendMessageRequest.FromString(data).messages
    return values(sent_message(message))


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(
    user=st.dictionaries(text, text, max_size=3), body=st.binary(max_size=200), tag=text,
    keys=st.lists(text, max_size=3), message_id=text, born_host=text, message_group=text,
    queue_id=st.integers(0, 2**31 - 1), message_type=st.integers(0, 6), body_encoding=st.integers(0, 2),
)  # fmt: skip
def test_any_ordinary_message_is_plain(**known: Any) -> None:
    data = request(**known)
    found = plain_send(data)
    assert found is not None and values(found) == general(data)


PIECES = [
    *(b"\x00\x01\x08\x0a\x10\x12\x1a\x22\x28\x30\x3a\x42\x4a\x68\x70\x7f\x80\x8a\xff"[n : n + 1] for n in range(19)),
    *(b"\x8a\x01", b"\x80\x00", b"\x88\x80\x80\x80\x80\x00", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\xed\xa0\x80"),
    *(b"\x22\x00", b"\x68\x01", b"\x12\x01k", b"\x3a\x02\x08\x01", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x10"),
]  # fmt: skip


def mutated(rng: random.Random, samples: list[bytes]) -> bytes:
    """A request to which one to three things were done."""
    data = bytearray(rng.choice(samples))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(10):
            case 0:
                del data[at : at + rng.randint(1, 6)]
            case 1:
                data[at:at] = rng.choice(PIECES)
            case 2:
                data[at : at + rng.randint(1, 8)] = rng.choice(PIECES)
            case 3:
                begin = rng.randrange(len(data) + 1)
                data[at:at] = data[begin : begin + rng.randint(1, 30)]
            case 4 if at < len(data):  # a length, mostly, that is a little off
                data[at] = (data[at] + rng.choice((-2, -1, 1, 2))) & 255
            case _ if at < len(data):
                data[at] = (
                    rng.choice(b"\x00\x01\x02\x7faZ~9")
                    if rng.random() < 0.7
                    else rng.randrange(256)
                )
    return bytes(data)


def grown(data: bytes, rng: random.Random) -> bytes:
    """A message to which fields are added inside, so that all lengths fit: what random bytes seldom do."""
    (message,) = s.SendMessageRequest.FromString(data).messages
    system = bytearray(message.system_properties.SerializeToString())
    extra = rng.choice(PIECES) + rng.choice((b"", b"", rng.choice(PIECES)))
    inner = message.topic.SerializeToString()
    if rng.random() < 0.7:
        at = rng.choice((0, len(system), rng.randrange(len(system) + 1)))
        system[at:at] = extra
    else:
        inner += extra
    whole = framed(0x0A, inner) + framed(0x1A, bytes(system)) + framed(0x22, message.body)
    if rng.random() < 0.2:
        whole += extra
    return framed(0x0A, whole)


def framed(tag: int, data: bytes) -> bytes:
    size, out = len(data), bytearray([tag])
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    return bytes(out) + bytes([size]) + data


def differ(seed: int, count: int) -> int:
    """Compare both readers on so many mutated messages; how many were plain."""
    rng = random.Random(seed)
    plain = 0
    for number in range(count):
        data = (
            grown(rng.choice(PLAIN), rng) if number & 1 else mutated(rng, PLAIN + PLAIN + GENERAL)
        )
        found = plain_send(data)
        if found is None:
            continue
        plain += 1
        try:
            wanted = general(data)
        except (DecodeError, ValueError) as error:
            raise AssertionError(f"seed {seed}, {number}: {data!r} is refused: {error}") from None
        assert values(found) == wanted, f"seed {seed}, {number}: {data!r}"
    return plain


def test_no_mutated_message_is_read_in_two_ways() -> None:
    assert differ(int(os.environ.get("ROQUETTE_SEED", "1")), 20_000) > 1_000


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(100, 120))
def test_no_mutated_message_of_two_million(seed: int) -> None:
    assert differ(seed, 100_000) > 6_000


@given(st.lists(st.tuples(text, text, st.integers(0, 2**63 - 1), text), max_size=3))
def test_the_reply_is_what_protobuf_writes(known: list[tuple[str, str, int, str]]) -> None:
    ok = d.Status(code=d.OK, message="OK")
    entries = [
        s.SendResultEntry(status=ok, message_id=a, transaction_id=b, offset=c, recall_handle=e)
        for a, b, c, e in known
    ]
    wanted = s.SendMessageResponse(status=ok, entries=entries).SerializeToString()
    assert stored([entry_of(*each) for each in known]) == wanted


def ack(
    *entries: tuple[str, str, str], topic: str = "orders", group: str = "g", namespace: str = ""
) -> bytes:
    """An AckMessageRequest; of each entry: message id, receipt, lite topic."""
    said = [
        s.AckMessageEntry(message_id=a, receipt_handle=b, lite_topic=c or None)
        for a, b, c in entries
    ]
    resource = d.Resource(name=topic, resource_namespace=namespace)
    return s.AckMessageRequest(
        group=d.Resource(name=group), topic=resource, entries=said
    ).SerializeToString()


def acked(request: bytes) -> tuple[str, str, str, bytes]:
    """What protobuf reads of a request with one entry."""
    said = s.AckMessageRequest.FromString(request)
    (entry,) = said.entries
    assert not (entry.lite_topic or said.topic.resource_namespace or said.group.resource_namespace)
    return said.topic.name, said.group.name, entry.receipt_handle, entry.SerializeToString()


def told(found: AckedMessage) -> tuple[str, str, str, bytes]:
    entry = s.AckMessageEntry.FromString(found.entry).SerializeToString()
    return found.topic, found.group, found.receipt, entry


RECEIPT = "0 1732000000123 60000 2 0 broker-a 3 17 4711"
ACKS = [
    ack(("01A1B2", RECEIPT, "")),
    ack(("\xfc", "r" * 300, ""), topic="t" * 120, group="\u4e2d"),
]
OTHER_ACKS = [
    b"",
    ack(),
    ack(("01", RECEIPT, ""), ("02", RECEIPT, "")),
    ack(("01", RECEIPT, "lite")),
    ack(("", RECEIPT, "")),
    ack(("01", "", "")),
    ack(("01", RECEIPT, ""), namespace="inst"),
    ack(("01", RECEIPT, ""), topic=""),
    ack(("01", RECEIPT, ""), group=""),
]


@pytest.mark.parametrize("request_", ACKS)
def test_what_consumers_acknowledge_is_plain(request_: bytes) -> None:
    found = plain_ack(request_)
    assert found is not None and told(found) == acked(request_)
    assert found.entry in request_


@pytest.mark.parametrize("request_", OTHER_ACKS)
def test_acks_that_are_less_usual_are_left_to_protobuf(request_: bytes) -> None:
    assert plain_ack(request_) is None
    s.AckMessageRequest.FromString(request_)


def differing_acks(seed: int, count: int) -> int:
    """Compare both readers on so many mutated acks; how many were plain."""
    rng = random.Random(seed)
    plain = 0
    for number in range(count):
        data = mutated(rng, ACKS + ACKS + OTHER_ACKS)
        found = plain_ack(data)
        if found is None:
            continue
        plain += 1
        try:
            wanted = acked(data)
        except (DecodeError, ValueError) as error:
            raise AssertionError(f"seed {seed}, {number}: {data!r} is refused: {error}") from None
        assert told(found) == wanted, f"seed {seed}, {number}: {data!r}"
    return plain


def test_no_mutated_ack_is_read_in_two_ways() -> None:
    assert differing_acks(int(os.environ.get("ROQUETTE_SEED", "1")), 20_000) > 1_000


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(200, 210))
def test_no_mutated_ack_of_a_million(seed: int) -> None:
    assert differing_acks(seed, 100_000) > 5_000
