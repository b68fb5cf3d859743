"""versitygw, a gateway in Go that serves a directory as S3: the second opinion on what object stores do."""

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.interop.peers import CACHE, absent, alone, failure
from tests.pipelines.processes import wait_until
from tests.pipelines.seaweed import SECRET, USER, S3Server, answers, free_ports

VERSION: Final = "v1.8.0"


def installed() -> Path:
    """The program; Go builds it on first use (some minutes)."""
    program = CACHE / f"versitygw-{VERSION}"
    with alone("versitygw"):
        if not program.exists():
            CACHE.mkdir(parents=True, exist_ok=True)
            if shutil.which("go") is None:
                absent("no Go to build versitygw with")
            with tempfile.TemporaryDirectory(prefix="versitygw") as folder:
                package = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
                said = failure("go", "install", package, GOBIN=folder)
                if said:
                    absent(f"versitygw was not built: {said}")
                shutil.move(f"{folder}/versitygw", program)
    return program


@contextlib.contextmanager
def running() -> Iterator[S3Server]:
    """Start it with the bucket `plain`; its files go when it ends."""
    program = installed()
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="versitygw") as folder:
        (Path(folder) / "data" / "plain").mkdir(parents=True)
        words = [str(program), "--port", f"127.0.0.1:{port}", "--access", USER, "--secret", SECRET]
        log = Path(folder) / "log"
        with log.open("wb") as stream:
            child = subprocess.Popen(
                [*words, "--quiet", "posix", f"{folder}/data"],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
            )
        try:
            found = S3Server(f"http://127.0.0.1:{port}", "")
            up = wait_until(lambda: child.poll() is not None or answers(found.s3), 60)
            assert up and child.poll() is None, log.read_text()[-3000:]
            yield found
        finally:
            child.kill()
            child.wait()
