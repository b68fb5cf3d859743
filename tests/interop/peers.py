"""Real peers for the interop tests: Apache's servers from Maven Central, Roquette's servers, as processes.

Apache's jars are resolved by Maven from java/poms and our Java programs are compiled once; both stay in
the user's cache (`~/.cache/roquette-peers`), under a hash of what they were made from, so that each checkout finds them. Every server gets its own folder and free ports,
and only what was started here is stopped.
"""

import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import queue
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.interop.ways import (
    ALICE,
    APACHES_MAY,
    MAY,
    WAYS,
    Way,
    connect,
    rights,
    signed,
    way,
)

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "roquette-peers"
BUILD_TIMEOUT_S = 600
START_TIMEOUT_S = 120  # a JVM on a machine with ten times as much to do as it can
STOP_TIMEOUT_S = 90

# What the JVM must open for Apache's servers (their own start scripts do the same).
OPENED = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)
SMALL_JVM = ("-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8")

# No words about an archive of classes that does not fit after all.
QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")

# Apache's brokers by version; the name server is always 5.5.0. 4.9.7 is the newest 4.9 on Maven Central.
SERVERS = {"4.9.7": "servers49", "5.5.0": "servers55"}

# A store that fits a test machine; both brokers know these keys.
SMALL_STORE = {
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 20_000),
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
    "diskMaxUsedSpaceRatio": "95",
    "flushDiskType": "ASYNC_FLUSH",
}


def require_java() -> None:
    """Skip the test when JDK or Maven are absent; in CI (env CI=true) that is a failure."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        absent(f"needs JDK 17 and Maven for the Java peers; not found: {', '.join(missing)}")


def absent(reason: str) -> None:
    """Skip the test for want of a peer; in CI (env CI=true) that is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def class_path(name: str) -> str:
    """Class path of java/poms/<name>.xml: client49, client55, servers49 or servers55. Downloads on first use."""
    pom = HERE / "java" / "poms" / f"{name}.xml"
    kept = CACHE / f"{name}-{digest(pom.read_bytes())}.classpath"
    with alone("maven"):
        if kept.exists():
            text = kept.read_text()
            if all(Path(jar).exists() for jar in text.split(os.pathsep)):
                return text
        fresh = kept.with_suffix(f".{os.getpid()}")
        goal = ("dependency:build-classpath", f"-Dmdep.outputFile={fresh}")
        said = failure("mvn", "-q", "-B", "-f", str(pom), *goal)
        if said:
            absent(f"Maven Central gave no jars for the Java peers: {said}")
        fresh.write_text(fresh.read_text().strip())
        fresh.replace(kept)
        return kept.read_text()


def compiled(name: str, folder: str = "src") -> str:
    """Class path `name` with our own programs (java/<folder>) compiled against it in front."""
    jars = class_path(name)
    sources = sorted((HERE / "java" / folder).glob("*.java"))
    if folder == "v5":
        sources.append(HERE / "java" / "src" / "Json.java")
    if folder == "src" and name != "client49":
        sources += sorted((HERE / "java" / "src55").glob("*.java"))
    made_of = digest(jars.encode(), *(source.read_bytes() for source in sources))
    classes = CACHE / f"{name}-{made_of}.classes"
    with alone("javac"):
        if not classes.exists():
            fresh = CACHE / f"{name}-{made_of}.{os.getpid()}"
            options = ("-encoding", "UTF-8", "-nowarn", "-cp", jars, "-d", str(fresh))
            said = failure("javac", *options, *map(str, sources))
            if said:
                pytest.fail(said)
            fresh.rename(classes)
    return f"{classes}{os.pathsep}{jars}"


def shared_classes(name: str = SERVERS["5.5.0"]) -> Path:
    """Where the archive (CDS) of the classes that Apache's broker loads is, or would be."""
    java = Path(shutil.which("java") or "java").resolve()
    release = java.parent.parent / "release"
    made_of = (
        class_path(name).encode(),
        bytes(java),
        release.read_bytes() if release.exists() else b"",
    )
    return CACHE / f"{name}-{digest(*made_of)}.jsa"


def make_shared_classes() -> None:
    """Start and end a broker, and keep what it loaded: servers that map it start with half the CPU time, 1.5 s instead of 2.6."""
    wanted = shared_classes()
    with alone("classes"), tempfile.TemporaryDirectory() as folder:
        if wanted.exists():
            return
        fresh = wanted.with_suffix(f".{os.getpid()}")
        namesrv = start_apache_namesrv(Path(folder, "namesrv"))
        try:
            start = (f"-XX:ArchiveClassesAtExit={fresh}", *QUIET)
            broker = start_apache_broker(Path(folder, "broker"), namesrv.address, options=start)
            ended = broker.stop()
        finally:
            namesrv.discard()
        if ended == 128 + signal.SIGTERM and fresh.exists():  # whole: it was not killed meanwhile
            fresh.replace(wanted)


@contextlib.contextmanager
def alone(what: str) -> Iterator[None]:
    """One process at a time gets or builds it; those that waited find it there."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{what}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def digest(*parts: bytes) -> str:
    """A name for what is built from these parts."""
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def failure(*command: str, folder: Path | None = None, **env: str) -> str:
    """Run a build command; what it said if it failed or took too long, else ""."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
            cwd=folder,
            env={**os.environ, **env},
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]} did not end within {BUILD_TIMEOUT_S} s"
    if not done.returncode:
        return ""
    return f"{command[0]} failed ({done.returncode}):\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def made(name: str, sources: list[Path], *commands: tuple[str, ...]) -> Path:
    """A folder with copies of the sources, where these commands have run."""
    built = CACHE / f"{name}-{digest(*(source.read_bytes() for source in sources))}"
    with alone(name):
        if not (built / "done").exists():
            shutil.rmtree(built, ignore_errors=True)
            built.mkdir(parents=True)
            for source in sources:
                shutil.copy(source, built)
            for command in commands:
                said = failure(*command, folder=built)
                if said:
                    absent(f"the packages of {name} could not be had: {said}")
            (built / "done").touch()
    return built


_next_port = itertools.count(20000 + os.getpid() * 16 % 10000, 4)
_claimed: list[object] = []


def free_port() -> int:
    """A port that is free now together with port-2 (the fast listener) and port+1 (HA).

    This process keeps it until it ends, also while a server that restarts there is down: tests run in several.
    """
    for port in _next_port:
        if not claimed(port):
            continue
        try:
            with contextlib.ExitStack() as held:
                for candidate in (port - 2, port, port + 1):
                    listener = held.enter_context(socket.socket())
                    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    listener.bind(("127.0.0.1", candidate))
            return port
        except OSError:
            continue
    raise AssertionError("no free port")


def claimed(port: int) -> bool:
    """Whether no other process of tests has this port; it is this one's then."""
    folder = Path(tempfile.gettempdir()) / f"roquette-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    file = (folder / str(port)).open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return False
    _claimed.append(file)
    return True


class Process:
    """One started program: its lines are kept, the log goes to a file, stop() ends only it."""

    def __init__(self, command: list[str], folder: Path, env: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.log = folder / "output.log"
        self._lines: queue.Queue[str | None] = queue.Queue()
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        with self.log.open("ab") as log:
            for raw in self.popen.stdout:
                log.write(raw)
                log.flush()
                self._lines.put(raw.decode("utf-8", "replace").rstrip("\r\n"))
        self._lines.put(None)

    def line(self, timeout_s: float) -> str:
        """The next line of stdout; AssertionError with the log's end when none comes."""
        try:
            found = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise AssertionError(f"no line within {timeout_s} s\n{self.tail()}") from None
        if found is None:
            self._lines.put(None)
            raise AssertionError(f"the process ended with {self.popen.wait()}\n{self.tail()}")
        return found

    def line_with(self, text: str, timeout_s: float) -> str:
        """The next line that contains `text`."""
        end = time.monotonic() + timeout_s
        while text not in (line := self.line(max(0.1, end - time.monotonic()))):
            pass
        return line

    def write(self, text: str) -> None:
        """One line to its stdin."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(text.encode() + b"\n")
        self.popen.stdin.flush()

    def tail(self, size: int = 4000) -> str:
        """The end of what it printed."""
        return f"--- {self.log}\n" + self.log.read_text("utf-8", "replace")[-size:]

    def stop(self) -> int:
        """SIGTERM, later SIGKILL; the exit code."""
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.popen.kill()
        with contextlib.suppress(OSError):
            assert self.popen.stdin is not None
            self.popen.stdin.close()
        return self.popen.wait()

    def kill(self) -> None:
        """SIGKILL, as a crash would be."""
        self.popen.kill()
        self.popen.wait()


class Server:
    """A running server: `address` is host:port; `flavour` is "apache" or "roquette"."""

    def __init__(self, process: Process, address: str, flavour: str, name: str) -> None:
        self.process = process
        self.address = address
        self.flavour = flavour
        self.name = name

    def stop(self) -> int:
        """End it cleanly; the exit code."""
        return self.process.stop()

    def discard(self) -> None:
        """End it after its last test: ours must end cleanly, Apache's would take half a minute."""
        if self.flavour == "apache":
            self.process.kill()
        else:
            assert self.stop() == 0, self.process.tail()


# 4.9 reads where to log from a file under its home, and does not start without it.
_LOGBACK = """<configuration><appender name="out" class="ch.qos.logback.core.ConsoleAppender">
<encoder><pattern>%d %p %logger - %m%n</pattern></encoder></appender>
<root level="INFO"><appender-ref ref="out"/></root></configuration>"""


def _java_server(
    main: str,
    folder: Path,
    heap: str,
    *arguments: str,
    version: str = "5.5.0",
    closed: Way | None = None,
    options: Sequence[str] = (),
) -> Process:
    if not options and version == "5.5.0" and (archive := shared_classes()).exists():
        options = (f"-XX:SharedArchiveFile={archive}", *QUIET)
    folder.mkdir(parents=True, exist_ok=True)
    if version == "4.9.7":
        (folder / "conf").mkdir(exist_ok=True)
        (folder / "conf" / "logback_broker.xml").write_text(_LOGBACK)
    command = [
        *("java", *SMALL_JVM, f"-Xmx{heap}", "-XX:MaxDirectMemorySize=512m", *OPENED, *options),
        *(f"-D{key}={value}" for key, value in _tls(closed).items()),
        *(f"-Duser.home={folder}", f"-Drocketmq.home.dir={folder}"),
        *("-cp", class_path(SERVERS[version]), main, *arguments),
    ]
    return Process(command, folder, {"ROCKETMQ_HOME": str(folder), "NAMESRV_ADDR": ""})


def _tls(closed: Way | None) -> dict[str, str]:
    """No TLS without keys of ours: an Apache server that may be asked for it computes keys of its own at each start, 3 to 10 CPU s."""
    return (closed.tls_settings() if closed else {}) or {"tls.server.mode": "disabled"}


def _properties(folder: Path, settings: Mapping[str, str]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return str(path)


def start_apache_namesrv(
    folder: Path, settings: Mapping[str, str] | None = None, closed: Way | None = None
) -> Server:
    """Apache's name server 5.5.0 on a free loopback port, ready."""
    require_java()
    port = _port_with(closed)
    wanted = {"listenPort": str(port), "bindAddress": "127.0.0.1", **(settings or {})}
    main = "org.apache.rocketmq.namesrv.NamesrvStartup"
    process = _java_server(main, folder, "192m", "-c", _properties(folder, wanted), closed=closed)
    server = Server(process, f"127.0.0.1:{port}", "apache", "namesrv")
    return _ready(server, lambda: call(server.address, 106) is not None)


def start_apache_broker(
    folder: Path,
    namesrv: str,
    *,
    name: str = "broker-a",
    settings: Mapping[str, str] | None = None,
    version: str = "5.5.0",
    closed: Way | None = None,
    options: Sequence[str] = (),
) -> Server:
    """Apache's broker on a free loopback port, registered with `namesrv`, ready. `options`: of the JVM."""
    require_java()
    port = _port_with(closed)
    wanted = {
        "brokerName": name,
        "brokerClusterName": "DefaultCluster",
        "brokerId": "0",
        "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": str(port),
        "haListenPort": str(port + 1),
        "namesrvAddr": namesrv,
        "storePathRootDir": str(folder / "store"),
        "storePathCommitLog": str(folder / "store" / "commitlog"),
        "timerWheelEnable": "false",
        "enableCalcFilterBitMap": "false",
        **SMALL_STORE,
        **(closed.access_settings(apache=True) if closed else {}),
        **(settings or {}),
    }
    main = "org.apache.rocketmq.broker.BrokerStartup"
    file = _properties(folder, wanted)
    process = _java_server(
        main, folder, "512m", "-c", file, version=version, closed=closed, options=options
    )
    server = Server(process, f"127.0.0.1:{port}", "apache", name)
    return _ready(server, lambda: serves(namesrv, name, server.address))


def start_roquette_namesrv(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    closed: Way | None = None,
    address: str = "127.0.0.1:0",
) -> Server:
    """Our name server on a free loopback port, or at `address`, ready."""
    if closed and not closed.tls:
        whitelists = dict.fromkeys(("authenticationWhitelist", "authorizationWhitelist"), "105")
        settings = {**(settings or {}), **whitelists}
    listen = ("--listen", address, *_closed_by(closed, folder))
    own = {"kvConfigPath": str(folder / "kvConfig.json")}  # else all of a machine share one
    process = _roquette("namesrv", folder, *listen, settings={**own, **(settings or {})})
    address = _announced(process, "namesrv")
    if closed:
        WAYS[address] = closed
    return Server(process, address, "roquette", "namesrv")


def start_roquette_broker(
    folder: Path,
    namesrv: str,
    *,
    name: str = "broker-a",
    settings: Mapping[str, str] | None = None,
    address: str = "",
    closed: Way | None = None,
    prefix: Sequence[str] = (),
) -> Server:
    """Our broker on a free loopback port, or at `address`, registered with `namesrv`, ready.

    `prefix`: a command that runs the rest of its line in its own place.
    """
    wanted = {"brokerName": name, "brokerClusterName": "DefaultCluster", **SMALL_STORE}
    wanted |= {"brokerIP1": "127.0.0.1", **(settings or {})}
    store = wanted.pop("storePathRootDir", str(folder / "s"))
    address = (
        address or f"127.0.0.1:{_port_with(closed)}"
    )  # what it tells others may be `brokerIP1`
    where = ("--listen", address, "-n", namesrv, "--store", store, *_closed_by(closed, folder))
    process = _roquette("broker", folder, *where, settings=wanted, prefix=prefix)
    _announced(process, "broker")
    server = Server(process, address, "roquette", name)
    return _ready(server, lambda: serves(namesrv, name, server.address))


def _port_with(closed: Way | None) -> int:
    port = free_port()
    if closed:
        WAYS[f"127.0.0.1:{port}"] = closed
    return port


def _closed_by(closed: Way | None, folder: Path) -> tuple[str, ...]:
    """A file of settings: secrets are in no command line."""
    if closed is None:
        return ()
    settings = {**closed.tls_settings(), **closed.access_settings(apache=False)}
    settings["kvConfigPath"] = str(folder / "kvConfig.json")  # a name server's users are beside it
    return ("-c", _properties(folder, settings))


def start_namesrv(flavour: str, folder: Path, settings: Mapping[str, str] | None = None) -> Server:
    """A name server of "apache" or "roquette", closed as ways.py says."""
    who, _, closed = flavour.partition("-")
    start = {"apache": start_apache_namesrv, "roquette": start_roquette_namesrv}[who]
    server = start(folder, settings, way(closed))
    if who == "roquette":  # Apache's has no users
        _let_alice_in(server)
    return server


def start_broker(
    flavour: str,
    folder: Path,
    namesrv: str,
    *,
    name: str = "broker-a",
    settings: Mapping[str, str] | None = None,
) -> Server:
    """A broker of "apache" or "roquette", closed as ways.py says."""
    who, _, closed = flavour.partition("-")
    start = {"apache": start_apache_broker, "roquette": start_roquette_broker}[who]
    server = start(folder, namesrv, name=name, settings=settings, closed=way(closed))
    _let_alice_in(server)
    return server


def _let_alice_in(server: Server) -> None:
    """The user of the clients under test, if the server has users; it is stopped when it takes none."""
    if server.address in WAYS and WAYS[server.address].users:
        try:
            grant(server, ALICE, {**MAY, **(APACHES_MAY if server.flavour == "apache" else {})})
        except BaseException:
            server.stop()
            raise


def grant(server: Server, user: tuple[str, str], may: Mapping[str, str]) -> None:
    """A user who may do what `may` says: resources, and actions by commas."""
    for code, fields, body in rights(user, may):
        answer = call(server.address, code, fields, body)
        assert answer is not None and answer[0]["code"] == 0, f"{answer}\n{server.process.tail()}"


def _roquette(
    verb: str,
    folder: Path,
    *arguments: str,
    settings: Mapping[str, str] | None,
    prefix: Sequence[str] = (),
) -> Process:
    program = Path(sys.executable).parent / "roquette"
    pairs = [f"{key}={value}" for key, value in (settings or {}).items()]
    flags = [word for pair in pairs for word in ("--set", pair)]
    command = [*prefix, str(program), verb, *arguments, *flags]
    return Process(command, folder, {"NAMESRV_ADDR": ""})


def _announced(process: Process, part: str) -> str:
    """The address in the line `ready namesrv=HOST:PORT broker=HOST:PORT`."""
    try:
        line = process.line_with("ready ", START_TIMEOUT_S)
        return dict(word.split("=", 1) for word in line.split()[1:])[part]
    except BaseException:
        process.stop()
        raise


def _ready(server: Server, probe: Any) -> Server:
    """Wait until `probe()` is true; a server that does not get there is stopped and shown."""
    end = time.monotonic() + START_TIMEOUT_S
    try:
        while not probe():
            assert server.process.popen.poll() is None, f"ended early\n{server.process.tail()}"
            assert time.monotonic() < end, f"not ready\n{server.process.tail()}"
            time.sleep(0.05)
    except BaseException:
        server.stop()
        raise
    return server


def serves(namesrv: str, broker_name: str, address: str) -> bool:
    """Whether the name servers ("a;b") list the broker at `address` and the broker answers."""
    for one in namesrv.split(";"):
        answer = call(one, 106)
        if answer is None or f'"{broker_name}"'.encode() not in answer[1]:
            return False
        if b":" + address.rpartition(":")[2].encode() not in answer[1]:  # whatever address it tells
            return False
    return call(address, 28) is not None


def call(
    address: str, code: int, fields: Mapping[str, str] | None = None, body: bytes = b""
) -> tuple[dict[str, Any], bytes] | None:
    """One request as a raw frame, on a connection of its own: header and body, None if refused.

    A closed server is called by its way (ways.py), as its administrator.
    """
    header = {"code": code, "language": "JAVA", "version": 493, "opaque": 1, "flag": 0}
    closed = WAYS.get(address)
    fields = (
        signed(closed.admin, fields or {}, body) if closed and closed.users else dict(fields or {})
    )
    header |= {"serializeTypeCurrentRPC": "JSON", "extFields": fields}
    text = json.dumps(header).encode()
    frame = struct.pack(">ii", 4 + len(text) + len(body), len(text)) + text + body
    try:
        with connect(address) as peer:
            peer.sendall(frame)
            (size,) = struct.unpack(">i", _exactly(peer, 4))
            data = _exactly(peer, size)
    except OSError:
        return None
    (length,) = struct.unpack(">i", data[:4])
    length &= 0xFFFFFF
    return json.loads(data[4 : 4 + length]), data[4 + length :]


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = peer.recv(size - len(data))
        if not more:
            raise ConnectionError("closed")
        data += more
    return data
