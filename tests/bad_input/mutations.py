"""Legal requests, mutated: header fields, types, lengths, both header forms, bodies. Everything is drawn from one generator."""

import json
import random
import re
from typing import Any

from tests.request_samples import body_of, ext_of, framed

from roquette.remoting.request import Row
from roquette.wire.connection import encode_binary_header

NUMBERS = (-1, 0, 1, 7, 127, 128, 255, 256, 65_535, 65_536, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**30, 10**400)  # fmt: skip
TEXTS = (
    "", " ", "x", "\0", "a\0b", "\n", "a\nWARNING forged", "\r\n", "\x7f", "é" * 50, "x" * 300, "x" * 5000, "\ud83d\ude00", "%RETRY%g",
    "%DLQ%g", "%RETRY%", "TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer", "../../x", "a/b", "*", "||", "A || ",
    "true", "FALSE", "null", "NaN", "Infinity", "1e5", "1.5", "-0", "+5", "007", "0x10", "１２", "²", "1_0", " 5", "5L", "9" * 200, "SQL92",
    "a > 5", "a IN (", "'", '"', "\\", "a BETWEEN 1 AND 2", "x\1y\2", "\1", "\2", "TAGS\1", "KEYS\1" + "k " * 500, "DELAY\1" + "9" * 50 + "\2",
    "TIMER_DELIVER_MS\1" + "9" * 19 + "\2", "TIMER_DELAY_SEC\1-1\2", "DELAY\1" + "3\2", "TRAN_MSG\1true\2", "POP_CK\1x\2", "INNER_NUM\0019\2",
    "0 0 0 0 0 broker-a 0 0", "1 2 3", "- - - - - - - -", "9 " * 8, "ffffffffffffffffffffffffffffffff", "0A00000100002A9F7FFFFFFFFFFFFFFF", "0A" * 28,
    "djEg", "djEgVCBicm9rZXItYSA5OTk5OTk5OTk5OTk5OTk5OTk5OSB4", "T", "T2", "g", "c1", "broker-a", "10.0.0.1:10911", "a:b", ":", "[::1]:5",
    "+message.type=DELAY", "-message.type", "+x=", ",,,", ";;;", "a=b\n" * 20,
)  # fmt: skip
RAW = (
    b"null", b"true", b"[]", b"{}", b'[1,"a",null]', b'{"a":{"b":[]}}', b"1.5", b"1e400", b"-0", b"9" * 400, b'"\\ud800"', b'"\\u0000"', b'"\xff"',
    b"[" * 50 + b"]" * 50, b"[" * 2000, b'{"a":' * 500, b"", b"'x'", b"1L", b"{1:2}", b'{"$ref":"$"}', b'{"$ref":"$.x"}', b"nul",
)  # fmt: skip
BODIES = (b"", b"\0", b"null", b"[]", b"{}", b"1", b'"x"', b"\xff\xfe", b"{" * 500, b"[" * 5000, b"{'a':1}", b"[],[]", b'{"a":1,}', b"\x1f\x8b\x08", b"\x78\x9c\x00", b"\x28\xb5\x2f\xfd", b'{"$ref":"$.a"}', b"=\n==\n", b"\\u", b"a=\\uZZZZ")  # fmt: skip
_NUMBER = re.compile(rb"-?[0-9]+")
_VALUE = re.compile(rb'"[^"\\]*"|-?[0-9]+|true|false|null')


class Mutations:
    """An endless stream of frames."""

    def __init__(self, rows: list[Row], seed: int) -> None:
        self._rng = random.Random(seed)
        self._rows = [(row.code, ext_of(row), body_of(row)) for row in rows]
        self._bodies = [body for _, _, body in self._rows if body] + list(BODIES)
        self._opaque = 0
        self._turn = 0

    def next(self) -> tuple[int, bytes]:
        """The code of the row it was made from, and the frame."""
        rng = self._rng
        code, ext, body = self._rows[self._turn % len(self._rows)]
        self._turn += 1
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        fields: dict[str, Any] = dict(ext)
        raw: dict[str, bytes] = {}
        for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
            self._mutate_fields(fields, raw)
        if rng.random() < 0.6:
            for _ in range(rng.choice((1, 1, 2, 4))):
                body = self._mutate_body(body)
        if rng.random() < 0.3:
            data = self._binary(code, fields, body)
        else:
            data = self._json(code, fields, raw, body)
        if rng.random() < 0.04:
            data = self._flip(data)
        return code, data

    def _mutate_fields(self, fields: dict[str, Any], raw: dict[str, bytes]) -> None:
        rng = self._rng
        name = rng.choice(list(fields)) if fields else "topic"
        kind = rng.randrange(12)
        if kind < 4:
            fields[name] = rng.choice(TEXTS)
        elif kind < 7:
            fields[name] = str(rng.choice(NUMBERS))
        elif kind == 7:
            fields.pop(name, None)
        elif kind == 8:
            raw[name] = rng.choice(RAW)
        elif kind == 9:
            fields[rng.choice(TEXTS)] = rng.choice(TEXTS)
        elif kind == 10:
            text = str(fields.get(name, ""))
            at = rng.randrange(len(text) + 1)
            fields[name] = text[:at] + rng.choice(TEXTS) + text[at + rng.randrange(3) :]
        else:
            other = rng.choice(list(fields)) if fields else name
            fields[name] = fields.get(other, "")

    def _json(self, code: int, fields: dict[str, Any], raw: dict[str, bytes], body: bytes) -> bytes:
        rng = self._rng
        parts = [
            b"%b:%b" % (_quoted(name), raw.get(name, _quoted(value)))
            for name, value in fields.items()
        ]
        ext = b"{%b}" % b",".join(parts)
        flag, version, language, more = b"0", b"493", b'"JAVA"', b""
        if rng.random() < 0.1:
            flag = str(rng.choice((1, 2, 3, *NUMBERS))).encode()
        if rng.random() < 0.05:
            version = str(rng.choice(NUMBERS)).encode()
        if rng.random() < 0.05:
            language = rng.choice((*RAW, b'"CPP"', b"7", _quoted(rng.choice(TEXTS))))
        if rng.random() < 0.05:
            more = b',"remark":%b' % rng.choice((*RAW, _quoted(rng.choice(TEXTS))))
        if rng.random() < 0.02:
            ext = rng.choice(RAW)
        head = b'{"code":%d,"extFields":%b,"flag":%b,"language":%b,"opaque":%d,"version":%b%b}' % (
            code, ext, flag, language, self._opaque, version, more,
        )  # fmt: skip
        return framed(head, body)

    def _binary(self, code: int, fields: dict[str, Any], body: bytes) -> bytes:
        rng = self._rng
        ext = {_plain(name): _plain(value) for name, value in fields.items() if len(name) < 30_000}
        head = encode_binary_header(
            code=(code + 2**15) % 2**16 - 2**15, opaque=self._opaque, flag=rng.choice((0, 0, 0, 0, 2)),
            version=rng.choice((493, 493, 0, -1)), language="JAVA", remark=None, ext=ext,
        )  # fmt: skip
        if rng.random() < 0.2:
            head = self._flip(head)
        return framed(head, body, kind=1)

    def _mutate_body(self, body: bytes) -> bytes:
        rng = self._rng
        kind = rng.randrange(11)
        at = rng.randrange(len(body) + 1)
        if kind == 0:
            return body[:at]
        if kind == 1:
            return self._flip(body)
        if kind == 2:
            return rng.choice(self._bodies)
        if kind == 3:
            return (
                body[:at]
                + rng.choice(
                    (b"\0", b"\xff", b"\xed\xa0\x80", b'"', b"'", b",", b"[", b"{", b"\\", b"\n")
                )
                + body[at:]
            )
        if kind == 4:
            return body[:at] + body[at + rng.randrange(9) :]
        if kind == 5 and len(body) >= 4:
            at = rng.randrange(len(body) - 3)
            number = rng.choice((0, 1, -1, 2**31 - 1, -(2**31), len(body), 127))
            return body[:at] + number.to_bytes(4, "big", signed=True) + body[at + 4 :]
        if kind == 6:
            return _one(rng, _NUMBER, body, str(rng.choice(NUMBERS)).encode())
        if kind in (7, 8):
            return _one(rng, _VALUE, body, rng.choice(RAW))
        if kind == 9:
            return _one(rng, _VALUE, body, _quoted(rng.choice(TEXTS)))
        return body + body[at:]

    def _flip(self, data: bytes) -> bytes:
        if not data:
            return data
        changed = bytearray(data)
        for _ in range(self._rng.choice((1, 1, 2, 8))):
            changed[self._rng.randrange(len(changed))] ^= 1 << self._rng.randrange(8)
        return bytes(changed)


def _one(rng: random.Random, pattern: re.Pattern[bytes], body: bytes, new: bytes) -> bytes:
    found = list(pattern.finditer(body))
    if not found:
        return body + new
    chosen = rng.choice(found)
    return body[: chosen.start()] + new + body[chosen.end() :]


def _quoted(value: Any) -> bytes:
    return json.dumps(value).encode()


def _plain(text: Any) -> str:
    return str(text).encode("utf-8", "replace").decode()
