"""What the command loads before it knows what is wanted: no client, no server, nothing that draws; and what a server without
guests loads: nothing that only they need.
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from tools import workspace

HEAVY = (
    *("roquette.client.producer", "roquette.client.session", "roquette.client.client"),
    *("roquette.broker", "roquette.nameserver.service", "pyspark", "pyarrow", "rich", "uvloop"),
)
SHOW = """
import sys
sys.argv = ["roquette", *{words!r}]
from roquette.apps.entry import main
try:
    main()
except SystemExit:
    pass
print("loaded", *sorted(sys.modules))
"""
READY = """
import os, sys
from roquette.apps import running
def ready(**places):
    print("loaded", *sorted(sys.modules), flush=True)
    os._exit(0)
running.print_ready = ready
sys.argv = ["roquette", *{words!r}]
from roquette.apps.entry import main
main()
"""
OF_FEW = {  # loaded by those servers that use it, then
    *("google", "ngh2", "cryptography", "yaml", "lz4", "zstandard", "rich", "starlette", "uvicorn", "email", "http"),
    *("roquette.client", "roquette.admin", "roquette.console", "roquette.cli.connect", "roquette.proxy.service"),
    *("roquette.access.needs", "roquette.base.metric_boards", "roquette.remoting.etcd"),
    *("roquette.remoting.http1", "roquette.wire.http2"),
    *("roquette.apps.local_backend", "roquette.apps.managed_etcd", "roquette.broker.group"),
    *("roquette.broker.replication.follower", "roquette.filter.sql_compile"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("words", "besides"),
    [
        (["namesrv"], {"roquette.broker", "roquette.store", "roquette.filter"}),
        (["broker", "--store", "store"], {"roquette.nameserver", "roquette.replication"}),
    ],
)
def test_a_server_that_nobody_calls_holds_what_every_server_needs(
    words: list[str], besides: set[str], tmp_path: Path
) -> None:
    """How much that is: `RssAnon` in /proc/PID/status, `idle_anonymous_mb` of benchmarks."""
    text = READY.format(words=[*words, "--listen", "127.0.0.1:0"])
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert f"roquette.apps.{words[0]}" in loaded
    assert not loaded & (OF_FEW | besides), sorted(loaded & (OF_FEW | besides))


@pytest.mark.parametrize("words", [["--version"], ["topic", "list", "--help"]])
def test_a_word_to_the_command_loads_no_client(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHOW.format(words=words)], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "roquette.apps.main" in loaded
    assert not loaded & set(HEAVY), sorted(loaded & set(HEAVY))
    others = {"roquette.cli.store", "roquette.admin.access", "roquette.admin.replication"}
    assert not loaded & others, sorted(loaded & others)
    assert ("roquette.admin.catalogue" in loaded) == (words[0] == "topic")


def test_a_name_that_is_nearly_right_is_told_though_its_verb_is_not_loaded() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "roquette.apps.entry", "topc", "list"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert "Did you mean 'topic'" in done.stderr


def run_the_product_alone(words: list[str]) -> subprocess.CompletedProcess[str]:
    """Without what site-packages leads to: the checkout's packages."""
    path = [str(workspace.SOURCES["roquette"]), sysconfig.get_path("purelib")]
    text = f"import sys; sys.path += {path!r}\n{SHOW.format(words=words)}"
    command = [sys.executable, "-I", "-S", "-c", text]
    return subprocess.run(command, capture_output=True, text=True, check=True)


@pytest.mark.parametrize("words", [["pipeline", "archive", "--to", "lake"], ["spark", "doctor"]])
def test_without_the_package_of_spark_its_verbs_say_what_to_install(words: list[str]) -> None:
    done = run_the_product_alone(words)

    assert "roquette-spark: pip install 'roquette[spark]'" in done.stderr
    assert "pyspark" not in done.stdout


def test_the_product_alone_has_help_for_every_verb() -> None:
    done = run_the_product_alone(["--help"])

    assert "on PySpark: not installed" in done.stdout
    assert not done.stderr
