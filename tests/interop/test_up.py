"""`roquette up`, `broker status` and `broker promote` as an operator uses them: real processes, from other terminals."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquette.apps.local_group import load_group, runs

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

ROQUETTE = str(Path(sys.executable).with_name("roquette"))


class Terminal:
    """Runs words of `roquette` for the group in `folder`."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        log = (folder / "up.log").open("w")
        words = [ROQUETTE, "up", "--dir", str(folder), *options]
        self.up = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
        log.close()

    def run(self, *words: str, code: int = 0) -> tuple[str, str]:
        """What a command prints to stdout and stderr; it must end with `code`."""
        where = {"NAMESRV_ADDR": load_group(str(self.folder)).namesrv}
        more = ("--dir", str(self.folder)) if words[0] == "up" else ()
        done = subprocess.run(
            [ROQUETTE, *words, *more],
            capture_output=True,
            text=True,
            timeout=180,
            env=os.environ | where,
            check=False,
        )
        assert done.returncode == code, (words, done.stdout, done.stderr, self.said())
        return done.stdout, done.stderr

    def said(self) -> str:
        """What `roquette up` has told its own terminal."""
        return (self.folder / "up.log").read_text()


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """A group that runs."""
    with opened(tmp_path_factory.mktemp("up")) as ready:
        yield ready


@contextlib.contextmanager
def opened(folder: Path, *options: str) -> Iterator[Terminal]:
    """Start `roquette up` and wait until it is ready; afterwards nothing of it runs."""
    started = Terminal(folder, *options)
    try:
        assert started.up.stdout is not None
        lines = []
        while not (lines and lines[-1].startswith("ready ")):
            lines.append(started.up.stdout.readline())
            assert lines[-1], started.said()
        yield started
    finally:
        started.up.terminate()
        started.up.wait(60)
        for part in load_group(str(folder)).parts:
            assert not runs(part)


def roles(terminal: Terminal) -> dict[str, str]:
    return {
        row["process"]: row["role"]
        for row in json.loads(terminal.run("up", "status", "-o", "json")[0])
    }


@pytest.mark.promise("Groups of brokers", "`broker status` says what is wrong; its exit code")
def test_a_killed_master_is_replaced_started_again_and_promoted(terminal: Terminal) -> None:
    before = roles(terminal)
    assert sorted(before.values()) == ["master", "name server, controller", "replica", "replica"]
    old = next(name for name, role in before.items() if role == "master")
    number = old.removeprefix("broker-")

    _, told = terminal.run("up", "kill", "master")
    assert f"broker {number} (master, pid" in told
    assert (
        re.search(r"is master, epoch 2\d{3}[^\d]", told)
        and "all that were acknowledged are there" in told
    )
    assert f"{old} (pid" in terminal.said() and "SIGKILL" in terminal.said()
    out, told = terminal.run("broker", "status", code=10)
    assert "silent" in out and f"not in step: [{number}]" in told
    terminal.run("up", "status", code=10)
    _, told = terminal.run("broker", "promote", "broker-a", number, "--yes", code=1)
    assert f"broker {number} does not answer, and is not ordered" in told
    _, told = terminal.run("broker", "promote", "broker-a", "9", "--yes", code=1)
    assert "no broker with id 9 ever joined" in told

    terminal.run("up", "restart", number)
    assert roles(terminal)[old] == "replica"
    _, told = terminal.run("broker", "promote", "broker-a", number, "--yes")
    ordered = re.search(
        rf"broker {number} is master of broker-a, epoch (3\d{{3}}); nobody was for", told
    )
    assert ordered, told
    for _ in range(20):  # a new replica hears what is confirmed with the master's next sign
        words = ("broker", "status", "--name", "broker-a", "-o", "json")
        (group,) = json.loads(terminal.run(*words)[0])
        assert (group["master"], group["in_step"]) == (int(number), [1, 2, 3])
        assert group["epoch"] == int(ordered[1])
        assert group["problems"] == []
        ends = {(member["log_end"], member["confirmed"]) for member in group["members"]}
        if len(ends) == 1:
            break
        time.sleep(0.5)
    assert len(ends) == 1 and ends.pop()[0] > 0


def test_one_group_runs_in_a_folder_and_what_a_killed_one_leaves_is_ended(
    terminal: Terminal,
) -> None:
    _, told = terminal.run("up", code=1)
    assert "runs in" in told
    terminal.up.send_signal(signal.SIGKILL)
    terminal.up.wait()
    group = load_group(str(terminal.folder))
    assert all(runs(part) for part in group.parts)
    _, told = terminal.run("up", code=1)
    assert "roquette up stop" in told
    terminal.run("up", "stop")
    assert not any(runs(part) for part in group.parts)
    assert not terminal.run("up", "status", code=1)[0]


def test_ctrl_c_stops_all_in_order(tmp_path: Path) -> None:
    started = Terminal(tmp_path)
    assert started.up.stdout is not None
    end = time.monotonic() + 60
    while "broker-1 runs" not in started.said():
        assert time.monotonic() < end, started.said()
        time.sleep(0.05)
    started.up.send_signal(signal.SIGINT)
    assert started.up.wait(60) == 0, started.said()
    started.up.stdout.close()
    group = load_group(str(tmp_path))
    assert not any(runs(part) for part in group.parts)
    told = started.said().partition("stopping: ")[2]
    assert told.rindex("broker-") < told.rindex("namesrv-1 has stopped")


def test_a_host_full_of_brokers_is_one_cluster_of_masters(tmp_path: Path) -> None:
    """Topics are on all of them; one that is killed is told, and its messages are there when it runs again."""
    with opened(tmp_path, "--brokers", "3") as terminal:
        assert roles(terminal) == {"namesrv-1": "name server"} | {
            f"broker-{number}": "master" for number in (1, 2, 3)
        }
        terminal.run("topic", "create", "orders", "--cluster", "DefaultCluster", "--queues", "2")
        sent = [str(number) for number in range(30)]
        terminal.run("produce", "orders", *sent)
        stored = json.loads(terminal.run("topic", "describe", "orders", "-o", "json")[0])
        queues = {(each["broker"], each["queue"]): each["max_offset"] for each in stored["queues"]}
        assert len(queues) == 6 and sum(queues.values()) == 30 and 0 not in queues.values(), queues
        for number in (1, 2, 3):
            assert (tmp_path / f"broker-{number}" / "commitlog").is_dir()

        _, told = terminal.run("up", "kill", "2", code=1)
        assert "masters without replicas" in told and "roquette up restart ID" in told
        os.kill(load_group(str(tmp_path)).brokers[1].pid, signal.SIGKILL)
        _, told = terminal.run("up", "status", code=10)
        assert "broker-2: " in told
        terminal.run("produce", "orders", "after")  # the others go on
        terminal.run("up", "restart", "2")
        terminal.run("up", "status")
        read, _ = terminal.run("consume", "orders")
        assert sorted(read.split()) == sorted([*sent, "after"])


@pytest.mark.parametrize("more", [("--replicas", "3"), ("--etcd",)])
def test_masters_are_no_group(tmp_path: Path, more: tuple[str, ...]) -> None:
    words = [ROQUETTE, "up", "--dir", str(tmp_path), "--brokers", "2", *more]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "--brokers is a cluster without a group" in done.stderr
    assert not list(tmp_path.iterdir())
