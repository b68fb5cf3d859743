"""Our servers as processes of their own, and raw frames for them: no line of our client or codec between."""

import os
import re
import socket
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

MAIN = [sys.executable, "-c", "from roquette.apps.main import main; main()"]
SMALL_STORE = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 1000,
}


class ServerProcess:
    """A running name server or broker. `lines` are its last log lines."""

    def __init__(self, arguments: list[str], prefix: Sequence[str] = ()) -> None:
        """`prefix`: a command that runs the rest of its line in its own place."""
        self.child = subprocess.Popen(
            [*prefix, *MAIN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.lines: deque[str] = deque(maxlen=5000)
        self.address: tuple[str, int] = ("", 0)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stderr is not None
        for line in self.child.stderr:
            self.lines.append(line.rstrip("\n"))

    def wait_ready(self) -> "ServerProcess":
        """Wait for the ready line."""
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        found = re.fullmatch(r"ready (?:broker|namesrv)=([\d.]+):(\d+)\n", line)
        if found is None:
            self.child.wait(5)
            self._reader.join(5)
        assert found, f"{line!r}, log: " + "\n".join(self.lines)
        self.address = (found[1], int(found[2]))
        return self

    def end(self) -> None:
        """SIGKILL, unless it has ended."""
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        self._reader.join(5)
        for pipe in (self.child.stdout, self.child.stderr):
            assert pipe is not None
            pipe.close()

    def anonymous_memory(self) -> int:
        """Bytes of memory that no file backs (RssAnon)."""
        text = Path(f"/proc/{self.child.pid}/status").read_text()
        return int(text.split("RssAnon:")[1].split()[0]) * 1024

    def cpu_s(self) -> float:
        """Seconds of CPU time it has used."""
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def open_sockets(self) -> int:
        """Descriptors that are sockets."""
        count = 0
        folder = f"/proc/{self.child.pid}/fd"
        for name in os.listdir(folder):
            try:
                count += os.readlink(f"{folder}/{name}").startswith("socket:")
            except FileNotFoundError:
                continue
        return count


def broker_arguments(store: Path, settings: dict[str, Any] | None = None) -> list[str]:
    """The command line of a broker with small files on a free port."""
    words = ["broker", "--listen", "127.0.0.1:0", "--store", str(store)]
    for key, value in {**SMALL_STORE, **(settings or {})}.items():
        words += ["--set", f"{key}={value}"]
    return words


@contextmanager
def server(arguments: list[str], prefix: Sequence[str] = ()) -> Iterator[ServerProcess]:
    """A server that is ready, and killed at the end."""
    process = ServerProcess(arguments, prefix)
    try:
        yield process.wait_ready()
    finally:
        process.end()


class RawConnection:
    """A blocking connection that speaks frames."""

    def __init__(self, address: tuple[str, int], timeout: float = 30.0) -> None:
        self.socket = socket.create_connection(address, timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self.socket.makefile("rb")
        self._opaque = 0

    def call(
        self, code: int, ext: dict[str, Any], body: bytes = b""
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request, wait for its answer: (header, body). EOFError when the peer closed."""
        self._opaque += 1
        self.socket.sendall(frame(code, ext, body, opaque=self._opaque))
        answer = self.read()
        assert answer[0]["opaque"] == self._opaque
        return answer

    def read(self) -> tuple[dict[str, Any], bytes]:
        """The next frame."""
        (size,) = struct.unpack(">i", self._exactly(4))
        data = self._exactly(size)
        (length,) = struct.unpack(">i", data[:4])
        return msgspec.json.decode(data[4 : 4 + length]), data[4 + length :]

    def _exactly(self, count: int) -> bytes:
        data = self._stream.read(count)
        if len(data) < count:
            raise EOFError("the peer closed the connection")
        return data

    def told_off(self) -> bool:
        """Whether the peer ends the connection without an answer, but perhaps with a line that people can read."""
        try:
            said = self._stream.read()
        except ConnectionResetError:
            return True
        return not said or (said[-1:] == b"\n" and b"this port" in said.lower())

    def closed_by_peer(self) -> bool:
        """Whether the peer ends the connection without another byte (within the timeout)."""
        try:
            return self._stream.read(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self._stream.close()
        self.socket.close()

    def __enter__(self) -> "RawConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def frame(code: int, ext: dict[str, Any], body: bytes = b"", *, opaque: int = 1) -> bytes:
    """One request as Java's client writes it."""
    fields = {key: value if isinstance(value, str) else str(value) for key, value in ext.items()}
    head = msgspec.json.encode(
        {
            "code": code, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": opaque,
            "serializeTypeCurrentRPC": "JSON", "version": 493,
        }
    )  # fmt: skip
    return struct.pack(">ii", 4 + len(head) + len(body), len(head)) + head + body


def send_fields(topic: str, queue: int = 0, properties: str = "WAIT\x01true\x02") -> dict[str, Any]:
    """Ext fields of SEND_MESSAGE_V2 (310)."""
    return {
        "a": "pg", "b": topic, "c": "TBW102", "d": 4, "e": queue, "f": 0, "g": 1_700_000_000_000,
        "h": 0, "i": properties, "j": 0, "k": "false", "m": "false",
    }  # fmt: skip


def pull_fields(topic: str, queue: int, offset: int, count: int = 32) -> dict[str, Any]:
    """Ext fields of PULL_MESSAGE (11), not held."""
    return {
        "consumerGroup": "auditor", "topic": topic, "queueId": queue, "queueOffset": offset,
        "maxMsgNums": count, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0,
        "subscription": "*", "subVersion": 0, "expressionType": "TAG",
    }  # fmt: skip
