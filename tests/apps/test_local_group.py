"""The processes of `roquette up`: only those that were started are ended."""

import os
import re
import shlex
import signal
import subprocess
import sys

import pytest
from tests.typed import parsed

from roquette.admin.replication import GroupState
from roquette.apps.local_group import (
    GroupKeeper,
    GroupProcess,
    LocalGroup,
    born,
    load_group,
    runs,
    send_signal,
    words_of,
)
from roquette.apps.up import chosen, running_group
from roquette.errors import ConfigError


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


def test_a_process_is_known_by_when_it_began() -> None:
    child = sleeper()
    try:
        part = GroupProcess(name="p", pid=child.pid, born=born(child.pid))
        assert runs(part) and born(os.getpid()) != part.born
        other = GroupProcess(name="p", pid=child.pid, born="another life of that number")
        assert not runs(other) and not send_signal(other, signal.SIGKILL)
        assert child.poll() is None
        assert send_signal(part, signal.SIGKILL)
    finally:
        child.kill()
    assert child.wait() == -signal.SIGKILL
    assert not runs(part) and not send_signal(part, signal.SIGKILL)


@pytest.mark.parametrize("pid", [0, 1, -1])
def test_nobody_signals_what_stands_for_many(pid: int) -> None:
    assert not send_signal(GroupProcess(name="p", pid=pid, born=born(pid)), signal.SIGKILL)


def test_the_state_file_says_what_is_there(tmp_path) -> None:
    with pytest.raises(ConfigError, match="no group was started"):
        load_group(str(tmp_path))
    group = LocalGroup(
        cluster="c",
        name="g",
        keeper=GroupProcess(name="keeper"),
        name_servers=[GroupProcess(name="namesrv-1", address="127.0.0.1:9876")],
        brokers=[GroupProcess(name=f"broker-{n}", address=f"127.0.0.1:{n}") for n in (1, 2, 3)],
    )
    with pytest.raises(ConfigError, match=f": roquette up --dir {tmp_path}$"):
        load_group(str(tmp_path))
    keeper = GroupKeeper(str(tmp_path), group, {"fileReservedTime": "1"}, etcd=False)
    keeper.save()
    assert load_group(str(tmp_path)) == group
    words = keeper.command(group.brokers[1])
    for setting in (
        "brokerId=2",
        "brokerRole=SYNC_MASTER",
        "minInSyncReplicas=2",
        "fileReservedTime=1",
    ):
        assert setting in words
    group.name = ""
    words = keeper.command(group.brokers[1])
    assert {"brokerName=broker-2", "fileReservedTime=1"} <= set(words)
    assert not [word for word in words if word.startswith(("brokerId", "enableController"))]
    assert not [word for word in keeper.command(group.name_servers[0]) if "controller" in word]
    (tmp_path / "group.json").write_text("{")
    with pytest.raises(ConfigError, match="not readable"):
        load_group(str(tmp_path))


def test_what_is_advised_about_a_group_names_its_folder(tmp_path) -> None:
    folder = str(tmp_path / "a b")
    group = LocalGroup(
        cluster="c", name="g", keeper=GroupProcess(name="k"), name_servers=[], brokers=[]
    )
    (tmp_path / "a b").mkdir()
    GroupKeeper(folder, group, {}, etcd=False).save()

    for tried in (lambda: running_group(folder), lambda: chosen(silent(), "slave", folder)):
        with pytest.raises(ConfigError) as told:
            tried()
        (words,) = re.findall("roquette up.*", str(told.value))
        assert shlex.split(words)[-2:] == ["--dir", folder]
        parsed(shlex.split(words))
    assert words_of(None, "status") == "roquette up status"


def silent() -> GroupState:
    return GroupState(
        cluster="c",
        group="g",
        master=0,
        epoch=1,
        lossy_epoch=0,
        in_step=[],
        members=[],
        problems=[],
        ordered=0,
    )
