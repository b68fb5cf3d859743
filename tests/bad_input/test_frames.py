"""Bytes that are no frames, or frames that are no commands: an error or a closed connection, and no more."""

import random
import struct
import time
import zlib
from pathlib import Path

import msgspec
import pytest
from tests.bad_input.conftest import Servers
from tests.bad_input.neighbour import Neighbour, wait_until
from tests.real_servers import RawConnection, ServerProcess, frame, send_fields, server

from roquette.wire.connection import MAX_HEADER

CLIENT_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(190))


def whole(head: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    """A frame around any header bytes."""
    return struct.pack(">ii", 4 + len(head) + len(body), kind << 24 | len(head)) + head + body


CLOSED = {
    "a frame of 2 GiB": b"\x7f\xff\xff\xff" + bytes(100),
    "a negative length": b"\xff\xff\xff\xff" + bytes(100),
    "one byte more than the limit": struct.pack(">i", 16_777_213) + bytes(100),
    "a frame without room for a header length": struct.pack(">i", 3) + bytes(100),
    "a header longer than its frame": struct.pack(">ii", 20, 0x00FF_FFFF) + bytes(16),
    "an unknown serialize type": whole(b"{}" + bytes(30), kind=9),
    "a header that is no JSON": whole(b"hello, world, who are you?"),
    "a header that is no object": whole(b"[1,2,3]"),
    "a header without a code": whole(b'{"opaque":1}'),
    "a header whose code is a word": whole(b'{"code":"ten","opaque":1}'),
    "a header whose code is beyond 64 bits": whole(b'{"code":%d,"opaque":1}' % 10**40),
    "a header that is not UTF-8": whole(b'{"code":10,"opaque":1,"remark":"\xff\xfe"}'),
    "a header of brackets": whole(b'{"code":10,"opaque":1,"extFields":' + b"[" * 200_000),
    "a binary header of nothing": whole(b"", kind=1),
    "a binary header cut short": whole(bytes(20), kind=1),
    "a binary header with a remark of 2 GiB": whole(bytes(13) + b"\x7f\xff\xff\xff", kind=1),
    "a binary header with ext fields of 2 GiB": whole(bytes(17) + b"\x7f\xff\xff\xff", kind=1),
    "TLS": CLIENT_HELLO,
    "noise": random.Random(1).randbytes(5000).replace(b"\0", b"x"),
}


@pytest.mark.parametrize("data", CLOSED.values(), ids=CLOSED.keys())
def test_what_is_no_frame_closes_the_connection(victim: ServerProcess, data: bytes) -> None:
    with Neighbour(victim), RawConnection(victim.address) as connection:
        try:
            connection.socket.sendall(data)
        except OSError:
            return  # closed while we were still sending
        assert connection.told_off()


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"EHLO me\r\n", "none that is spoken here"), (CLIENT_HELLO, "TLS, which is disabled")],
)
def test_what_came_is_named_in_the_log(data: bytes, words: str, tmp_path: Path) -> None:
    arguments = ["namesrv", "--listen", "127.0.0.1:0", "--set", f"kvConfigPath={tmp_path}/kv.json"]
    with server([*arguments, "--set", "tls.server.mode=disabled"]) as namesrv:
        began = time.monotonic()
        for _ in range(50):
            with RawConnection(namesrv.address) as connection:
                connection.socket.sendall(data)
                assert connection.told_off()
        most = 1 + (time.monotonic() - began) // 10  # one line in ten seconds

        def seen() -> list[str]:
            return [line for line in list(namesrv.lines) if "connection closed" in line]

        wait_until(seen)
        assert words in seen()[0]
        assert len(seen()) <= most, "the same line is rate-limited"


def test_noise_of_many_kinds_is_survived(victim: ServerProcess) -> None:
    rng = random.Random(7)
    good = frame(105, {"topic": "T"})
    with Neighbour(victim):
        for _ in range(300):
            data = bytearray(good * 3)
            for _ in range(rng.randint(1, 8)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            with RawConnection(victim.address) as connection:
                connection.socket.sendall(bytes(data[: rng.randint(1, len(data))]))
    assert victim.child.poll() is None


def test_half_frames_and_a_close_leave_nothing(victim: ServerProcess) -> None:
    before = victim.open_sockets()
    data = frame(10, {"topic": "T"}, b"x" * 1000)
    with Neighbour(victim):
        for cut in (1, 3, 4, 7, 8, 20, len(data) - 1):
            with RawConnection(victim.address) as connection:
                connection.socket.sendall(data[:cut])
    wait_until(lambda: victim.open_sockets() <= before)


def test_frames_in_single_bytes_are_answered(victim: ServerProcess) -> None:
    with Neighbour(victim), RawConnection(victim.address) as connection:
        for byte in frame(999, {"topic": "T"}):
            connection.socket.sendall(bytes([byte]))
        head, _ = connection.read()
        assert head["code"] == 3


@pytest.mark.parametrize("code", [0, 1, 999, 32_767, 2**31 - 1, -1, -(2**31)])
def test_unknown_codes_are_answered_3(victim: ServerProcess, code: int) -> None:
    with RawConnection(victim.address) as connection:
        head, _ = connection.call(code, {"x": "y"}, b"body")
        assert (head["code"], head["remark"]) == (3, f" request type {code} not supported")
        assert connection.call(998, {})[0]["code"] == 3, "the connection lives on"


def test_answers_nobody_asked_for_are_ignored(victim: ServerProcess) -> None:
    with Neighbour(victim), RawConnection(victim.address) as connection:
        for opaque in range(2000):
            head = b'{"code":0,"flag":1,"opaque":%d}' % opaque
            connection.socket.sendall(whole(head, b"surprise"))
        assert connection.call(998, {})[0]["code"] == 3
    assert sum("answer without a request" in line for line in victim.lines) < 10


@pytest.mark.parametrize("count", [15_000, 100_000])
def test_very_many_header_fields_are_read_or_refused(victim: ServerProcess, count: int) -> None:
    fields = {f"key-{number}": "value" for number in range(count)}
    head = msgspec.json.encode({"code": 105, "opaque": 1, "extFields": fields | {"topic": "No"}})
    binary_ext = b"".join(
        struct.pack(">h", len(key)) + key.encode() + struct.pack(">i", 5) + b"value"
        for key in fields
    )
    binary = (
        struct.pack(">hbhiii", 105, 0, 493, 1, 0, 0)
        + struct.pack(">i", len(binary_ext))
        + binary_ext
    )
    with Neighbour(victim):
        for data in (whole(head), whole(binary, kind=1)):
            with RawConnection(victim.address) as connection:
                connection.socket.sendall(data)
                if len(data) > MAX_HEADER:
                    assert connection.closed_by_peer()
                else:
                    assert connection.read()[0]["code"] in (1, 3, 17)


def test_wrong_header_fields_are_told_not_fatal(servers: Servers) -> None:
    with Neighbour(servers.broker), RawConnection(servers.broker.address) as connection:
        for ext in (
            {},
            {"topic": "T"},
            send_fields("T") | {"e": "many"},
            send_fields("T") | {"e": str(2**70)},
            send_fields("T") | {"g": "1e400"},
            send_fields("T") | {"h": "NaN"},
        ):
            head, _ = connection.call(310, ext, b"x")
            assert head["code"] == 1, head
            assert "SendMessageRequestHeader" in head["remark"]
        for queue in (4, 70_000, 2**31 - 1, 2**31, 2**63 - 1):
            head, _ = connection.call(310, send_fields("T") | {"e": queue}, b"x")
            assert head["code"] in (1, 29), (queue, head)
        for queue in (-1, -(2**31)):  # any queue, as with Apache's broker
            head, _ = connection.call(310, send_fields("T") | {"e": queue}, b"x")
            assert 0 <= int(head["extFields"]["queueId"]) < 4, (queue, head)
        for queue in (-(2**31) - 1, -(2**63)):  # no int of Java's
            head, _ = connection.call(310, send_fields("T") | {"e": queue}, b"x")
            assert head["code"] == 1, (queue, head)


DEEP = [
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"clientID":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b"{'a':" * 50_000 + b"1" + b"}" * 50_000,
    b'[{"$ref":"' + b"." * 100_000 + b'"}]',
    b'{"clientID":"x","consumerDataSet":[{' + b'"a":{' * 20_000,
    b"\xff\xfe\x00" * 1000,
    b"9" * 1_000_000,
]


@pytest.mark.parametrize("number", range(len(DEEP)))
def test_deep_and_wrong_bodies_are_refused(servers: Servers, number: int) -> None:
    body = DEEP[number]
    register = {
        "brokerName": "evil", "brokerAddr": "10.9.9.9:1", "clusterName": "c", "haServerAddr": "",
        "brokerId": "0", "compressed": "false", "bodyCrc32": zlib.crc32(body) & 0x7FFFFFFF,
    }  # fmt: skip
    cases = [
        (
            servers.broker,
            (34, {}),
            (41, {}),
            (42, {}),
            (25, {}),
            (200, {}),
            (320, send_fields("T")),
        ),
        (servers.namesrv, (103, register), (318, {}), (322, register)),
    ]
    for victim, *requests in cases:
        with Neighbour(victim), RawConnection(victim.address) as connection:
            for code, ext in requests:
                head, _ = connection.call(code, ext, body)
                assert head["code"] != 0 or code in (25, 318), (code, head)
                assert len(head.get("remark", "")) < 2000, "nobody wants it all back"
    with RawConnection(servers.namesrv.address) as connection:
        _, told = connection.call(106, {})
        assert b"evil" not in told


def test_a_zip_bomb_as_registration_is_refused(servers: Servers) -> None:
    before = servers.namesrv.anonymous_memory()
    bomb = zlib.compressobj(9)
    body = b"".join(bomb.compress(bytes(1 << 20)) for _ in range(200)) + bomb.flush()
    ext = {
        "brokerName": "evil", "brokerAddr": "10.9.9.9:1", "clusterName": "c", "haServerAddr": "",
        "brokerId": "0", "compressed": "true", "bodyCrc32": zlib.crc32(body) & 0x7FFFFFFF,
    }  # fmt: skip
    with Neighbour(servers.namesrv), RawConnection(servers.namesrv.address) as connection:
        head, _ = connection.call(103, ext, body)
        assert head["code"] == 1, head
    assert servers.namesrv.anonymous_memory() - before < 20 << 20


BATCHES = [
    b"", b"\0", bytes(100), b"\xff" * 100, struct.pack(">i", 2**31 - 1) + bytes(50),
    struct.pack(">iiiii", 30, 0, 0, 0, -1) + bytes(20),
    struct.pack(">iiiii", 30, 0, 0, 0, 2**31 - 1) + bytes(20),
    struct.pack(">iiii", -16, 0, 0, 0) * 1000,
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BATCHES)))
def test_batches_that_are_none_are_refused(servers: Servers, number: int) -> None:
    with Neighbour(servers.broker), RawConnection(servers.broker.address) as connection:
        ext = send_fields("Batches") | {"m": "true"}
        assert connection.call(320, ext, BATCHES[number])[0]["code"] != 0
        head, _ = connection.call(30, {"topic": "Batches", "queueId": 0})
        assert int(head["extFields"]["offset"]) == 0, "nothing was stored"
