"""The fixtures and options of the test kit, as a user's pytest runs them."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.interop.peers import ROOT
from tools import workspace

FIXTURES = """
from datetime import timedelta

import pytest
import roquette

TOPICS = []


@pytest.mark.parametrize("number", range(3))
def test_shared(roquette_client, roquette_broker, roquette_topic, number):
    roquette_client.send(roquette_topic, b"x")
    (message,) = roquette_broker.messages(roquette_topic)
    assert message.body == b"x"
    assert roquette_topic.startswith("test_shared-")
    assert roquette_topic not in TOPICS
    TOPICS.append(roquette_topic)


def test_clock(roquette_client, roquette_clock, roquette_broker, roquette_topic):
    roquette_client.send(roquette_topic, b"x", deliver_at=timedelta(hours=3))
    roquette_clock.advance(hours=3)
    for message in roquette_client.consume(roquette_topic, group="g", start_from=roquette.StartFrom.FIRST):
        assert message.body == b"x"
        break


def test_faults(roquette_client, roquette_faults, roquette_topic):
    roquette_faults.disconnect()
    roquette_client.send(roquette_topic, b"x")


async def test_world(roquette_world, tmp_path):
    mq = await roquette_world.client("shop")
    await mq.send("orders", b"x")
    assert [message.body for message in roquette_world.messages("orders")] == [b"x"]
    assert tmp_path.exists()
"""
RACE = """
from examples.order_service.test_shop import oversell


async def test_race(roquette_world):
    await oversell(roquette_world, locked=False)
"""


def pytest_of_a_user(folder: Path, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(text)
    environ = {
        **os.environ,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": f"{workspace.python_path()}:{ROOT}",
    }
    plugins = ("-p", "roquette_testing.pytest_plugin", "-p", "xdist.plugin")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *plugins, *words]
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=110, check=False
    )


def test_every_fixture_gives_what_it_promises(tmp_path: Path) -> None:
    done = pytest_of_a_user(tmp_path, FIXTURES, "-n", "2", "--roquette-seeds", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


def test_a_failing_seed_is_named_and_runs_again(tmp_path: Path) -> None:
    done = pytest_of_a_user(tmp_path, RACE, "--roquette-seeds", "1000")
    assert done.returncode == 1, done.stdout + done.stderr
    found = re.search(
        r"roquette: seed (\d+) fails; the same run again: pytest '(.*)' --roquette-seed \1",
        done.stdout,
    )
    assert found, done.stdout
    again = pytest_of_a_user(tmp_path, RACE, found[2], "--roquette-seed", found[1])
    assert again.returncode == 1
    assert f"seed {found[1]} fails" in again.stdout
    lines = [
        re.findall(r"^E +AssertionError: (.*)$", run.stdout, re.MULTILINE) for run in (done, again)
    ]
    assert lines[0] == lines[1] != []


def test_the_plugin_loads_nothing_until_it_is_asked() -> None:
    text = (
        "import sys; import roquette_testing.pytest_plugin; "
        "assert not [m for m in sys.modules if m.startswith(('roquette.broker', 'roquette.client', 'roquette.store'))]"
    )
    subprocess.run(
        [sys.executable, "-c", text],
        check=True,
        env={**os.environ, "PYTHONPATH": workspace.python_path()},
    )
