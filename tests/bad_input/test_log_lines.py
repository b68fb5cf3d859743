"""Whatever names peers choose: log lines are whole, ours, and bounded. Every request of both servers."""

import contextlib
import io
import json
import logging
import re
import socket

import msgspec
import pytest
from tests.bad_input.conftest import Servers
from tests.real_servers import RawConnection
from tests.request_samples import BROKER_ROWS, NAMESRV_ROWS, body_of, ext_of, framed

from roquette.base.log_settings import LogSettings, configure
from roquette.base.logs import MAX_LINE, MAX_VALUE, LineFormatter

EVIL = {
    "a line feed": "x\n2030-01-01 00:00:00,000 ERROR roquette.broker forged=line",
    "a carriage return": "x\rforged=line",
    "a terminal sequence": "\x1b[2J\x1b[31mforged=line",
    "line separators": "x\u2028forged=line\u2029\x85\x0b\x0cy",
    "NUL": "x\0forged=line",
    "right to left": "x\u202eenil=degrof",
    "half a surrogate pair": "x\ud800forged=line",
    "a field": 'x forged=line" forged2="yes',
    "a percent sign": "%s %d %(x)s %n",
    "a backslash": "x\\nforged=line\\",
    "1 MB": "x" * 1_000_000,
    "1 MB of line feeds": "\n" * 1_000_000,
}
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ (roquette[.\w]*|asyncio) \S")


class Stream(io.StringIO):
    """As stderr: what is not UTF-8 cannot be written."""

    def write(self, text: str) -> int:
        text.encode()
        return super().write(text)


@pytest.fixture
def log_lines() -> tuple[logging.Logger, Stream]:
    stream = Stream()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter())
    logger = logging.Logger("roquette.test")
    logger.addHandler(handler)
    return logger, stream


@pytest.mark.promise(
    "Security", "no value of a peer makes a line, or a sequence for a terminal, in a log"
)
@pytest.mark.parametrize("name", EVIL.values(), ids=EVIL)
def test_a_value_makes_one_bounded_line(
    name: str, log_lines: tuple[logging.Logger, Stream]
) -> None:
    logger, stream = log_lines
    for log in (
        lambda: logger.warning("refused group=%s client=%s", name, "c1"),
        lambda: logger.warning("refused error=%r client=%s", ValueError(name), "c1"),
        lambda: logger.warning("%s not written, it is tried again client=%s", name, "c1"),
        lambda: logger.warning("refused names=%s %s client=%s", [name] * 20, {name: name}, "c1"),
        lambda: logger.warning("names=%s count=%d client=%s", name, 10**30, "c1"),
    ):
        stream.truncate(0)
        stream.seek(0)
        log()
        (line,) = stream.getvalue().splitlines()
        assert LINE.match(line), line[:200]
        assert line.isprintable()
        assert line.endswith("client=c1"), "what follows a value is not lost"
        assert len(line) < MAX_LINE + 100
        fields = re.sub(r'"(?:[^"\\]|\\.)*"', "", line)  # what is outside of quotation marks
        if "not written" not in line and "[" not in line:
            assert "forged" not in fields, fields


def test_a_template_with_what_a_peer_says_still_makes_one_line(
    log_lines: tuple[logging.Logger, Stream],
) -> None:
    logger, stream = log_lines
    for name in EVIL.values():
        logger.warning("refused " + name.replace("%", ""))
    assert all(LINE.match(line) for line in stream.getvalue().splitlines())
    assert len(stream.getvalue().splitlines()) == len(EVIL)


@pytest.mark.parametrize("name", EVIL.values(), ids=EVIL)
def test_a_traceback_is_marked_and_bounded(
    name: str, log_lines: tuple[logging.Logger, Stream]
) -> None:
    logger, stream = log_lines
    try:
        raise ValueError(name * 3)
    except ValueError:
        logger.exception("failed name=%s", name)
    first, *rest = stream.getvalue().splitlines()
    assert LINE.match(first)
    assert rest
    assert len(rest) < 70
    assert all(line.startswith("    | ") and line.isprintable() for line in rest)
    assert max(map(len, rest)) < 2 * MAX_VALUE


def test_plain_values_stay_plain(log_lines: tuple[logging.Logger, Stream]) -> None:
    logger, stream = log_lines
    logger.info("started port=%d address=%s empty=%s why=%s", 1, "10.0.0.1:9", "", "it is so")
    assert stream.getvalue().endswith('started port=1 address=10.0.0.1:9 empty="" why="it is so"\n')


@pytest.mark.promise(
    "Security", "no value of a peer makes a line, or a sequence for a terminal, in a log"
)
@pytest.mark.parametrize("kind", ["namesrv", "broker"])
def test_no_request_writes_a_line_of_its_own(servers: Servers, kind: str) -> None:
    """Each request of a server with each hostile name in all its text fields, and in the names of its body."""
    victim = servers.namesrv if kind == "namesrv" else servers.broker
    rows = NAMESRV_ROWS if kind == "namesrv" else BROKER_ROWS
    sent = 0
    for row in rows:
        plain, body = ext_of(row), body_of(row)
        data = b""
        for name in EVIL.values():
            short = name[:50_000].replace("\ud800", "")  # JSON cannot carry it
            texts = {key: short for key, value in plain.items() if not value.isdigit()}
            head = {"code": row.code, "opaque": 1, "extFields": plain | texts}
            quoted = msgspec.json.encode(short)
            evil = body.replace(b'"g"', quoted).replace(b'"T"', quoted)
            for fields, each in ((plain | texts, body), (plain, evil), (plain | texts, evil)):
                data += framed(msgspec.json.encode(head | {"extFields": fields}), each)
                sent += 1
        with RawConnection(victim.address) as connection, contextlib.suppress(OSError):
            connection.socket.sendall(data)
            connection.socket.shutdown(socket.SHUT_WR)
            while connection.socket.recv(1 << 16):
                pass
    assert sent >= 36 * len(rows)
    lines = list(victim.lines)
    strange = [line for line in lines if not LINE.match(line) and not line.startswith("    | ")]
    assert not strange, strange[:3]
    assert max(map(len, lines)) < MAX_LINE + 200
    assert victim.child.poll() is None


@pytest.mark.parametrize("name", EVIL.values(), ids=EVIL)
def test_a_value_makes_one_bounded_object(name: str) -> None:
    stream = Stream()
    configure(LogSettings(log_format="json"), stream)
    try:
        raise ValueError(name * 3)
    except ValueError:
        logging.getLogger("roquette.test").exception("refused names=%s group=%s", [name], name)
    (line,) = stream.getvalue().splitlines()
    told = json.loads(line)
    assert line.isascii()
    assert sorted(told) == ["fields", "level", "logger", "message", "time", "traceback"]
    assert sorted(told["fields"]) == ["group", "names"]
    assert told["fields"]["group"].startswith(name[:MAX_VALUE])
    assert len(told["message"]) < MAX_LINE + 100
    assert len(line) < 12 * (MAX_LINE + 72 * 2 * MAX_VALUE)


def test_the_formatter_is_in_force() -> None:
    stream = Stream()
    configure(LogSettings(), stream)
    logging.getLogger("roquette.test").warning("refused group=%s", EVIL["a line feed"])
    (line,) = stream.getvalue().splitlines()
    assert LINE.match(line)
