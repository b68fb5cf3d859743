"""The servers under measurement, each a name server and a broker as processes of their own.

Kinds: `apache` (5.5.0 from Maven Central, 1 GiB of heap), `compiled` and `interpreted` (Roquette), `before` (an
earlier commit, compiled; benchmarks/against.py).
Class paths and processes are those of the interop tests.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.interop import peers, ways
from tests.interop.ways import Way

from roquette.wire.codes import RequestCode
from roquette.wire.header_codec import encode_ext, ext_dict
from roquette.wire.headers import CreateTopicRequestHeader, SendMessageRequestHeaderV2

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("apache", "compiled", "interpreted")
QUEUES = 8
BEFORE = "before"
# Where the environment of each kind of ours lies; `before` comes with its commit.
ENVIRONMENTS = {"compiled": ROOT / ".venv-compiled", "interpreted": ROOT / ".venv"}
START_LIMIT_S = 90.0
TICKS = os.sysconf("SC_CLK_TCK")

# What Apache's runbroker.sh gives the JVM, but for the heap's size and touching it beforehand.
BROKER_JVM = (
    *("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m"),
    *("-XX:G1ReservePercent=25", "-XX:InitiatingHeapOccupancyPercent=30"),
    *("-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-OmitStackTraceInFastThrow"),
    "-XX:MaxDirectMemorySize=1g",
)
NAMESRV_JVM = ("-server", "-Xms512m", "-Xmx512m", "-XX:+UseG1GC")
SETTINGS = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": "bench",
    "brokerId": "0",
    "brokerIP1": "127.0.0.1",
    "defaultTopicQueueNums": str(QUEUES),
    "transientStorePoolEnable": "false",
}


@dataclass
class Pair:
    """A running name server and broker."""

    kind: str
    folder: Path
    namesrv: str
    broker: str
    processes: tuple[peers.Process, peers.Process]
    start_s: float
    way: Way | None = None  # into closed servers
    user: tuple[str, str] | None = None  # whose loads they are; None: the administrator's

    @property
    def broker_pid(self) -> int:
        """The measured process."""
        return self.processes[1].popen.pid

    def stop(self) -> None:
        """End both and remove their files."""
        for process in reversed(self.processes):
            process.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def build_compiled() -> None:
    """Bring the compiled environment up to date with the source."""
    subprocess.run([sys.executable, str(ROOT / "tools" / "build_compiled.py")], check=True)


def form_of(kind: str) -> dict[str, str]:
    """What has a kind of ours run in its form, whatever its environment holds."""
    return {"ROQUETTE_INTERPRETED": "1" if kind == "interpreted" else ""}


def start(kind: str, settings: dict[str, str] | None = None, closed: str = "") -> Pair:
    """Start name server and broker at the same time; returns when the broker has taken a message.

    `closed` says how they are closed (tests/interop/ways.py): "tls", "signed", "closed", or not at all.

    `start_s` of the result is the time from before the first process to that first accepted message.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"roquette-bench-{kind}-"))
    ports = (peers.free_port(), peers.free_port())
    way = ways.way(closed)
    wanted = {**SETTINGS, **(settings or {})}
    environment = {"NAMESRV_ADDR": "", "PYTHONPATH": "", "ROCKETMQ_HOME": str(folder)} | form_of(
        kind
    )
    began = time.monotonic()
    processes = tuple(
        peers.Process(command, folder / name, environment)
        for name, command in zip(("namesrv", "broker"), commands(kind, folder, ports, wanted, way))
    )
    addresses = [f"127.0.0.1:{port}" for port in ports]
    if way:
        ways.WAYS.update(dict.fromkeys(addresses, way))
    pair = Pair(kind, folder, *addresses, processes, 0.0, way)  # type: ignore[arg-type]
    try:
        while not accepts(pair.broker):
            if time.monotonic() > began + START_LIMIT_S or any(
                p.popen.poll() is not None for p in processes
            ):
                raise RuntimeError("".join(process.tail() for process in processes))
            time.sleep(0.005)
        pair.start_s = time.monotonic() - began
        while not peers.serves(pair.namesrv, "bench", pair.broker):
            if time.monotonic() > began + START_LIMIT_S:
                raise RuntimeError(f"{kind}: the broker is not registered")
            time.sleep(0.02)
    except BaseException:
        pair.stop()
        raise
    return pair


def commands(
    kind: str,
    folder: Path,
    ports: tuple[int, int],
    settings: dict[str, str],
    way: Way | None = None,
) -> list[list[str]]:
    """The command lines of name server and broker."""
    if kind == "apache":
        return _apache(folder, *ports, settings, way)
    return _ours(kind, folder, *ports, settings, way)


def _apache(
    folder: Path, namesrv: int, broker: int, settings: dict[str, str], way: Way | None
) -> list[list[str]]:
    jars = peers.class_path("servers55")
    store = folder / "store"
    tls: tuple[str, ...] = ()
    if way and way.tls:  # with BoringSSL, as Apache's distribution has it
        jars = f"{peers.class_path('boringssl')}{os.pathsep}{jars}"
        tls = tuple(f"-D{key}={value}" for key, value in way.tls_settings().items())
    settings = {
        **settings,
        **(way.access_settings(apache=True) if way else {}),
        "listenPort": str(broker),
        "haListenPort": str(broker + 1),
        "bindAddress": "127.0.0.1",
        "namesrvAddr": f"127.0.0.1:{namesrv}",
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        "diskMaxUsedSpaceRatio": "95",
    }
    common = (
        *tls,
        *peers.OPENED,
        f"-Duser.home={folder}",
        f"-Drocketmq.home.dir={folder}",
        "-cp",
        jars,
    )
    files = [
        _properties(
            folder / "namesrv.properties", {"listenPort": str(namesrv), "bindAddress": "127.0.0.1"}
        ),
        _properties(folder / "broker.properties", settings),
    ]
    mains = ("namesrv.NamesrvStartup", "broker.BrokerStartup")
    return [
        ["java", *jvm, *common, f"org.apache.rocketmq.{main}", "-c", file]
        for jvm, main, file in zip((NAMESRV_JVM, BROKER_JVM), mains, files)
    ]


def _properties(path: Path, settings: dict[str, str]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return str(path)


def _ours(
    kind: str,
    folder: Path,
    namesrv: int,
    broker: int,
    settings: dict[str, str],
    way: Way | None,
) -> list[list[str]]:
    program = str(ENVIRONMENTS[kind] / "bin" / "roquette")
    closed: tuple[str, ...] = ()
    if way:
        keys = {**way.tls_settings(), **way.access_settings(apache=False)}
        keys["kvConfigPath"] = str(
            folder / "kvConfig.json"
        )  # the name server's users are beside it
        closed = ("-c", _properties(folder / "closed.properties", keys))
    flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    place = (
        "--listen",
        f"127.0.0.1:{broker}",
        "-n",
        f"127.0.0.1:{namesrv}",
        "--store",
        str(folder / "store"),
    )
    return [
        [program, "namesrv", "--listen", f"127.0.0.1:{namesrv}", *closed],
        [program, "broker", *place, *closed, *flags],
    ]


def micro(kind: str) -> dict[str, float]:
    """Microseconds of each operation of micro.py, by its own commit's file, best of its rounds."""
    environment = ENVIRONMENTS[kind]
    command = [environment / "bin" / "python", environment.parent / "benchmarks" / "micro.py"]
    done = subprocess.run(
        [*map(str, command), "--json"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=environment.parent,
        env={**os.environ, **form_of(kind), "PYTHONPATH": str(environment.parent)},
    )
    return dict(json.loads(done.stdout))


def accepts(broker: str) -> bool:
    """Whether the broker takes a message now, to a topic it creates."""
    header = SendMessageRequestHeaderV2(
        producer_group="bench",
        topic="BenchStart",
        default_topic="TBW102",
        default_topic_queue_nums=QUEUES,
        queue_id=0,
        sys_flag=0,
        flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        properties="",
    )
    answer = peers.call(broker, RequestCode.SEND_MESSAGE_V2, _fields(header), b"x")
    return answer is not None and answer[0]["code"] == 0


def create_topic(pair: Pair, name: str, queues: int = QUEUES) -> None:
    """A topic of its own for a load."""
    header = CreateTopicRequestHeader(
        topic=name,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
    )
    answer = peers.call(pair.broker, RequestCode.UPDATE_AND_CREATE_TOPIC, _fields(header))
    if answer is None or answer[0]["code"] != 0:
        raise RuntimeError(f"{pair.kind}: topic {name} was not created: {answer}")


def let_in(pair: Pair, topic: str) -> None:
    """Loads are a normal user's from here on, with the rules of the tests' one and two others for topic and groups."""
    may = {**ways.MAY, f"Topic:{topic}": "Pub,Sub,Get", "Group:*": "Sub,Get"}
    own = () if pair.kind == "apache" else (pair.namesrv,)  # Apache's has no users
    for address in (pair.broker, *own):
        for code, fields, body in ways.rights(ways.ALICE, may):
            answer = peers.call(address, code, fields, body)
            if answer is None or answer[0]["code"] != 0:
                raise RuntimeError(f"{pair.kind}: the user was not made: {answer}")
    pair.user = ways.ALICE


def write_topics(store: Path, names: Iterable[str], queues: int) -> None:
    """Have a broker that starts on this store know these topics already."""
    table = {
        name: {"topicName": name, "readQueueNums": queues, "writeQueueNums": queues, "perm": 6}
        for name in names
    }
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1}
    config = store / "config"
    config.mkdir(parents=True)
    (config / "topics.json").write_text(
        json.dumps({"topicConfigTable": table, "dataVersion": version})
    )


def _fields(header: object) -> dict[str, str]:
    return ext_dict(encode_ext(header))  # type: ignore[arg-type]


def anonymous_kb(pid: int) -> int:
    """RssAnon of a process: what it has in memory that is not a page of a file."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    raise RuntimeError("no RssAnon")


def cpu_s(pid: int) -> float:
    """CPU seconds a process has used, user and system, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
