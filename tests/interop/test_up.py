"""`roquette up`, `broker status` and `broker promote` as an operator uses them: real processes, from other terminals."""

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

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        log = (folder / "up.log").open("w")
        words = [ROQUETTE, "up", "--dir", str(folder)]
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
    opened = Terminal(tmp_path_factory.mktemp("up"))
    try:
        assert opened.up.stdout is not None
        lines = []
        while not (lines and lines[-1].startswith("ready ")):
            lines.append(opened.up.stdout.readline())
            assert lines[-1], opened.said()
        yield opened
    finally:
        opened.up.terminate()
        opened.up.wait(60)
        for part in load_group(str(opened.folder)).parts:
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
    opened = Terminal(tmp_path)
    assert opened.up.stdout is not None
    end = time.monotonic() + 60
    while "broker-1 runs" not in opened.said():
        assert time.monotonic() < end, opened.said()
        time.sleep(0.05)
    opened.up.send_signal(signal.SIGINT)
    assert opened.up.wait(60) == 0, opened.said()
    opened.up.stdout.close()
    group = load_group(str(tmp_path))
    assert not any(runs(part) for part in group.parts)
    told = opened.said().partition("stopping: ")[2]
    assert told.rindex("broker-") < told.rindex("namesrv-1 has stopped")
