"""`import roquette` is quick, changes nothing in the process, and gives `roquette.sync`."""

import subprocess
import sys

LOOK = """
import asyncio, logging, signal, sys, threading, time
def state():
    return (
        logging.root.handlers[:], logging.root.level, logging.getLoggerClass(), sys.excepthook, sys.getrecursionlimit(),
        [signal.getsignal(which) for which in signal.valid_signals()], threading.enumerate(),
        type(asyncio.get_event_loop_policy()),
    )
before = state()
import roquette
roquette.Client, roquette.App
assert roquette.sync.Client.__module__ == "roquette.client.blocking_client"
assert state() == before
"""
QUICK = """
import sys, time
began = time.process_time()
import roquette
print(time.process_time() - began)
assert "asyncio" not in sys.modules and "msgspec" not in sys.modules
"""
COUNTED = """
import sys
before = set(sys.modules)
import roquette
roquette.Client("127.0.0.1:9876")
print(*sorted(set(sys.modules) - before))
"""
LATER = (  # what is loaded when it is used
    "difflib", "lz4", "zstandard", "yaml", "roquette.admin", "roquette.base.config", "roquette.client.app",
    "roquette.client.pop", "roquette.client.pull_consumer", "roquette.client.telemetry", "roquette.filter.sql_compile",
    "roquette.remoting.certificates", "roquette.remoting.door", "roquette.remoting.server",
)  # fmt: skip


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_import_leaves_the_process_as_it_was() -> None:
    run(LOOK)


def test_an_import_takes_at_most_80_ms() -> None:
    assert min(float(run(QUICK)) for _ in range(3)) <= 0.08


def test_a_client_loads_what_every_client_needs() -> None:
    """How long that takes: `python -m benchmarks.imports`."""
    found = run(COUNTED).split()
    assert not set(LATER) & set(found)
    ours = [name for name in found if name.split(".")[0] == "roquette"]
    assert len(ours) <= 158, (
        f"{len(ours)} modules of ours: load what few clients need when it is used"
    )
