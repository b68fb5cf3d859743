"""Peers that hold our memory or our connections, against servers of their own with real sockets."""

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.bad_input.neighbour import Neighbour, wait_until
from tests.real_servers import (
    RawConnection,
    ServerProcess,
    broker_arguments,
    frame,
    pull_fields,
    send_fields,
    server,
)

MIB = 1 << 20
KINDS = ["namesrv", "broker"]


def start(
    kind: str, root: Path, settings: dict[str, Any], memory_mib: int = 0
) -> contextlib.AbstractContextManager[ServerProcess]:
    """A server of its own; `memory_mib`: of address space, beyond what it needs to start."""
    words = ["namesrv", "--listen", "127.0.0.1:0", "--set", f"kvConfigPath={root}/kv.json"]
    for key, value in settings.items():
        words += ["--set", f"{key}={value}"]
    if kind == "broker":
        words = broker_arguments(root / "store", settings)
    limit = f'ulimit -v {memory_mib * 1024}; exec "$@"'
    return server(words, ["sh", "-c", limit, "sh"] if memory_mib else [])


@pytest.fixture
def hoard() -> Iterator[list[RawConnection]]:
    connections: list[RawConnection] = []
    yield connections
    for connection in connections:
        connection.close()


@pytest.mark.promise("Bounds", "the bytes that are kept for peers are counted and bounded")
@pytest.mark.parametrize("kind", KINDS)
def test_sixty_half_frames_of_15_mb_cost_the_bound_and_no_more(
    kind: str, tmp_path: Path, hoard: list[RawConnection]
) -> None:
    half = frame(310, send_fields("Hoard"), bytes(15 * MIB), opaque=77)[:-1]
    with start(kind, tmp_path, {"maxUnfinishedFrameBytes": 64 * MIB}) as victim:
        before = victim.anonymous_memory()
        with Neighbour(victim):
            for _ in range(60):
                hoard.append(RawConnection(victim.address))
                hoard[-1].socket.sendall(half)
            wait_until(lambda: any("given up" in line for line in victim.lines))
            wait_until(lambda: victim.anonymous_memory() - before < 100 * MIB)
        assert victim.anonymous_memory() - before < 100 * MIB
        head, _ = hoard[0].read()
        assert (head["code"], head["opaque"]) == (2, 77)
        assert "no memory" in head["remark"]
        hoard[0].socket.sendall(b"\0")  # the rest of what was refused is skipped
        assert hoard[0].call(998, {})[0]["code"] == 3
        assert sum("given up" in line for line in victim.lines) < 20


@pytest.mark.parametrize("kind", KINDS)
def test_who_drips_and_who_does_not_read_is_cut(
    kind: str, tmp_path: Path, hoard: list[RawConnection]
) -> None:
    settings = {"frameTimeoutSeconds": 1, "serverChannelMaxIdleTimeSeconds": 2}
    with start(kind, tmp_path, settings) as victim:
        with RawConnection(victim.address) as good:
            if kind == "broker":
                for _ in range(16):
                    assert good.call(310, send_fields("Slow"), b"x" * 400_000)[0]["code"] == 0
                request = frame(11, pull_fields("Slow", 0, 0))
            else:
                for number in range(2000):
                    value = {"namespace": "n", "key": f"{number:0100}", "value": "v" * 900}
                    good.socket.sendall(frame(100, value))
                request = frame(219, {"namespace": "n"})
        dripper, lazy = RawConnection(victim.address), RawConnection(victim.address, 1.0)
        hoard += [dripper, lazy]
        ended: set[RawConnection] = set()
        deadline = time.monotonic() + 60
        drops = iter(frame(310, send_fields("Drip"), bytes(1000)))
        while len(ended) < 2:
            assert time.monotonic() < deadline, ended
            for connection, data in ((dripper, bytes([next(drops)])), (lazy, request)):
                try:
                    for _ in range(1 if connection is dripper else 40):
                        connection.socket.sendall(data)
                except TimeoutError:
                    pass  # it does not read from us
                except OSError:
                    ended.add(connection)
            time.sleep(0.3)
        words = " ".join(line for line in victim.lines if "connection cut" in line)
        assert "its frame does not come" in words
        assert sum("connection cut" in line for line in victim.lines) < 10


@pytest.mark.parametrize("kind", KINDS)
def test_without_memory_requests_are_refused_and_the_log_stays_quiet(
    kind: str, tmp_path: Path, hoard: list[RawConnection]
) -> None:
    settings = {"maxUnfinishedFrameBytes": 4096 * MIB - 1}
    half = frame(310, send_fields("Hoard"), bytes(15 * MIB), opaque=77)
    with start(kind, tmp_path, settings, memory_mib=800) as victim:
        for number in range(80):
            hoard.append(RawConnection(victim.address))
            try:
                hoard[-1].socket.sendall(half[:-1] if number % 3 else half)
            except OSError:
                continue  # cut while we were still sending
        for connection in hoard:
            connection.close()
        hoard.clear()
        with RawConnection(victim.address) as good:
            assert good.call(998, {})[0]["code"] == 3, "it goes on"
        assert victim.child.poll() is None
        lines = list(victim.lines)
        assert sum("memory is short" in line for line in lines) >= 1
        assert len(lines) < 60, lines[-20:]
        ours = re.compile(r"\d{4}-\d\d-\d\d [\d:,]+ [A-Z]+ roquette[.\w]* ")
        assert not [
            line for line in lines if not ours.match(line) and not line.startswith("    | ")
        ]
