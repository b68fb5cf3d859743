"""Names that Linux has and macOS or Windows lack are hidden: the client runs without them, servers without macOS's."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.real_servers import broker_arguments, server

HIDE_MACOS = """
import os, sys
sys.platform = "darwin"
for name in ("posix_fallocate", "fdatasync", "posix_fadvise", "eventfd", "sched_getaffinity"):
    if hasattr(os, name):
        delattr(os, name)
"""
HIDE_WINDOWS = """
import asyncio, os, sys
for module in ("fcntl", "resource", "pwd", "grp", "termios", "uvloop"):
    sys.modules[module] = None
for name in (
    "posix_fallocate", "fdatasync", "posix_fadvise", "eventfd", "sched_getaffinity", "pread", "pwrite",
    "statvfs", "sysconf", "fork", "getuid", "geteuid", "O_CLOEXEC", "O_DIRECTORY", "killpg", "setsid",
):
    if hasattr(os, name):
        delattr(os, name)
def refuse(*_, **__):
    raise NotImplementedError
asyncio.unix_events._UnixSelectorEventLoop.add_signal_handler = refuse
"""
CLIENT = """
import asyncio, sys
import roquette
import roquette.sync

async def main(namesrv):
    async with roquette.Client(namesrv) as mq:
        for at in range(20):
            await mq.send("Systems", b"m%d" % at)
        seen = set()
        async def handle(message):
            seen.add(message.body)
        consumer = await mq.subscribe(
            "Systems", group="g", handler=handle, start_from=roquette.StartFrom.FIRST, model="broadcasting"
        )
        while len(seen) < 20:
            await asyncio.sleep(0.01)
        await consumer.close()

asyncio.run(main(sys.argv[1]))
with roquette.sync.Client(sys.argv[1]) as mq:
    print(mq.send("Systems", b"blocking").status)
from roquette.base.files import OsFiles
try:
    OsFiles().lock_file(sys.argv[2] + "/lock")
    print("locked")
except Exception as error:
    print(error)
"""
BROKER = """
import asyncio, sys
from roquette.apps.main import app
app(standalone_mode=False)
"""


@pytest.mark.parametrize(
    ("hide", "lock"),
    [(HIDE_WINDOWS, "file locks that this system lacks"), (HIDE_MACOS, "locked")],
    ids=["windows", "macos"],
)
def test_the_client_runs_without_what_other_systems_lack(
    hide: str, lock: str, tmp_path: Path
) -> None:
    with server(["namesrv", "--listen", "127.0.0.1:0"]) as namesrv:
        address = f"127.0.0.1:{namesrv.address[1]}"
        with server(broker_arguments(tmp_path / "s", {"namesrvAddr": address})):
            done = subprocess.run(
                [sys.executable, "-c", hide + CLIENT, address, str(tmp_path)],
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
                env={"HOME": str(tmp_path), "PYTHONPATH": ":".join(p for p in sys.path if p)},
            )
    assert done.returncode == 0, done.stderr
    assert "SEND_OK" in done.stdout
    assert lock in done.stdout


def test_a_store_lives_without_what_macos_lacks(tmp_path: Path) -> None:
    code = (
        HIDE_MACOS
        + """
from roquette.base.files import OsFiles
from roquette.store.format.config import FlushDiskType, StoreConfig
from roquette.store.message_store import MessageStore
import roquette.apps.broker, roquette.apps.namesrv, roquette.broker.floor.log_sync
files = OsFiles()
lock = files.lock_file(sys.argv[1] + "/lock")
file = files.open_file(sys.argv[1] + "/a", size=100_000, create=True)
assert file.size == 100_000
file.pwrite(b"x", 5)
file.sync()
files.sync_dir(sys.argv[1])
from roquette.base.kernel_sync import open_kernel_sync
import asyncio
async def main():
    assert open_kernel_sync(asyncio.get_running_loop()) is None
asyncio.run(main())
print(file.pread(1, 5))
"""
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "b'x'\n", done.stderr
