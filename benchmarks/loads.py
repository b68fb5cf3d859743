"""The two loads: raw frames from our C program, and Apache's Java client in one warm JVM."""

import hashlib
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.interop import peers

from benchmarks.servers import ROOT, Pair

HERE = Path(__file__).resolve().parent
CACHE = ROOT / ".cache" / "benchmarks"
RUN_LIMIT_S = 180.0


@dataclass(frozen=True)
class Measured:
    """What one run of a load found. Latencies are of requests, closed loop, in microseconds."""

    messages: int
    seconds: float
    p50_us: int
    p99_us: int
    p999_us: int
    errors: int
    first_error: str
    cpu_s: float

    @property
    def cpu_per_100k(self) -> float:
        """CPU seconds of the broker per 100,000 messages."""
        return self.cpu_s / self.messages * 100_000 if self.messages else float("nan")

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds if self.seconds else 0.0


def raw_program(*, closed: bool = False) -> Path:
    """The C load, compiled for this machine; for closed servers with OpenSSL, whose headers must be there."""
    source = HERE / "load.c"
    made_of = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    program = CACHE / f"load-{made_of}{'-closed' if closed else ''}"
    if not program.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        openssl = ("-DCLOSED", "-lssl", "-lcrypto") if closed else ()
        command = ("cc", "-O2", "-Wall", "-o", str(program), str(source), *openssl)
        subprocess.run(command, check=True)
    return program


def keys(pair: Pair) -> dict[str, str]:
    """Who signs, as words of a load; nobody at servers without users."""
    if pair.way is None or not pair.way.users:
        return {}
    name, secret = pair.user or pair.way.admin
    return {"access": name, "secret": secret}


def raw(pair: Pair, verb: str, topic: str, **settings: int | float) -> Measured:
    """One run of the C load against a broker."""
    host, _, port = pair.broker.partition(":")
    tls = {"tls": 1} if pair.way and pair.way.tls else {}
    words = [f"{key}={value}" for key, value in {**settings, **tls, **keys(pair)}.items()]
    command = [
        str(raw_program(closed=pair.way is not None)),
        verb,
        host,
        port,
        topic,
        f"pid={pair.broker_pid}",
        *words,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    return Measured(**json.loads(done.stdout))


class JavaClient:
    """The JVM with Apache's client 5.5.0; one at a time, for all servers."""

    def __init__(self, folder: Path) -> None:
        jars = peers.class_path("client55")
        source = HERE / "java" / "Load.java"
        digest = hashlib.sha256(jars.encode() + source.read_bytes()).hexdigest()[:16]
        classes = CACHE / f"java-{digest}"
        if not classes.exists():
            options = (
                "-encoding",
                "UTF-8",
                "-nowarn",
                "-Xlint:none",
                "-cp",
                jars,
                "-d",
                str(classes),
            )
            subprocess.run(["javac", *options, str(source)], check=True)
        # Apache's client logs below the home folder.
        jvm = ("java", "-Xms512m", "-Xmx1g", f"-Duser.home={folder}")
        self._process = peers.Process([*jvm, "-cp", f"{classes}:{jars}", "Load"], folder, {})
        self._process.line_with('"ready"', 30.0)

    def run(self, pair: Pair, verb: str, topic: str, **settings: int | float) -> Measured:
        """One run against a pair of servers."""
        tls = {"tls": pair.way.tls} if pair.way and pair.way.tls else {}
        words = [f"{key}={value}" for key, value in {**settings, **tls, **keys(pair)}.items()]
        place = (f"ns={pair.namesrv}", f"topic={topic}", f"pid={pair.broker_pid}")
        self._process.write(" ".join((verb, *place, *words)))
        return Measured(**json.loads(self._process.line_with('"messages"', RUN_LIMIT_S)))

    @property
    def pid(self) -> int:
        """Of the JVM."""
        return int(self._process.popen.pid)

    def stop(self) -> None:
        """End the JVM."""
        self._process.stop()
