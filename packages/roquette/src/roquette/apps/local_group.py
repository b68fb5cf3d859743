"""Real processes on this machine that are brokers to try, a group or masters: one process keeps them, a file tells others.

The keeper starts and ends all of them; what other terminals want is a file in the folder `orders`, or a signal to a
process that the state file names, sent only while that process is the one that was started.
"""

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from roquette.base.clock import SystemClock
from roquette.base.files import OsFiles, home_directory
from roquette.cli.output import say
from roquette.errors import ConfigError

LOOPBACK: Final = "127.0.0.1"
STATE: Final = "group.json"
FIRST_PORTS: Final = (9876, 10911)  # of the name servers and of the brokers: Apache's
FIRST_ETCD_PORT: Final = 2379
START_S: Final = 60.0
STOP_S: Final = 20.0

_files = OsFiles()


class GroupProcess(msgspec.Struct, kw_only=True):
    """One process.

    Attributes:
        born: when it began, in a form that no other process of that pid has.
        peer: of a name server: its member of etcd, as controllerPeers names it; it stays the same for ever.
    """

    name: str
    address: str = ""
    pid: int = 0
    born: str = ""
    started_ms: int = 0
    peer: str = ""


class LocalGroup(msgspec.Struct, kw_only=True):
    """The state file: what runs in a folder. Brokers stand in the order of their ids, from 1 on.

    Attributes:
        name: brokerName of the group; empty: each broker is a master of its own name, that of its process.
    """

    cluster: str
    name: str
    keeper: GroupProcess
    name_servers: list[GroupProcess]
    brokers: list[GroupProcess]

    @property
    def parts(self) -> list[GroupProcess]:
        """All that the keeper has started."""
        return [*self.name_servers, *self.brokers]

    @property
    def namesrv(self) -> str:
        """For -n."""
        return ";".join(part.address for part in self.name_servers)


def default_folder() -> str:
    """Of groups to try, below the user's state directory."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(home_directory(), ".local", "state")
    return os.path.join(state, "roquette", "up")


def words_of(folder: str | None, verb: str = "") -> str:
    """A command about the group in that folder, to be typed."""
    other = "" if folder in (None, default_folder()) else f"--dir {shlex.quote(folder or '')}"
    return " ".join(filter(None, ("roquette up", verb, other)))


def order_path(folder: str, name: str) -> str:
    """The file by which another terminal has a process started."""
    return os.path.join(folder, "orders", name)


def load_group(folder: str) -> LocalGroup:
    """Load the group that runs there, or ran. Raises ConfigError when nothing ever did."""
    try:
        return msgspec.json.decode(_files.read_bytes(os.path.join(folder, STATE)), type=LocalGroup)
    except FileNotFoundError:
        raise ConfigError(f"no group was started in {folder}: {words_of(folder)}") from None
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{folder}/{STATE} is not readable: {error}") from None


def born(pid: int) -> str:
    """Return the time at which the process began; empty: there is none, or it has ended."""
    if pid <= 1:
        return ""
    try:
        text = _files.read_bytes(f"/proc/{pid}/stat").decode(errors="replace")
    except OSError:
        if _files.exists("/proc/self/stat"):
            return ""
        ps = ("ps", "-o", "lstart=", "-p", str(pid))
        return subprocess.run(ps, capture_output=True, text=True, check=False).stdout.strip()
    words = text.rpartition(")")[2].split()
    return "" if words[0] in "ZX" else f"{_files.boot_id.hex()}-{words[19]}"


def runs(part: GroupProcess) -> bool:
    """Does that very process run?"""
    return part.born != "" and born(part.pid) == part.born


def send_signal(part: GroupProcess, number: signal.Signals) -> bool:
    """Signal that very process; whether it was there."""
    if not runs(part):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(part.pid, number)
    return True


class GroupKeeper:
    """Starts a group's processes, starts those again that are ordered, and ends all.

    Args:
        settings: of the brokers, besides what makes them a group.
        etcd: each name server runs a member of etcd, too.
    """

    def __init__(
        self, folder: str, group: LocalGroup, settings: Mapping[str, str], etcd: bool
    ) -> None:
        self.folder = folder
        self.etcd = etcd
        self.group = group
        self._settings = settings
        self._children: dict[str, Process] = {}

    async def start(self, stop: asyncio.Event) -> None:
        """Start name servers, then brokers, until `stop`. Raises ConfigError: one of them ended."""
        await self._choose_addresses()
        for part in self.group.parts:
            if _files.exists(order := order_path(self.folder, part.name)):
                _files.remove(order)
        for parts in (self.group.name_servers, self.group.brokers):
            if not stop.is_set():
                for part in parts:
                    await self._start(part)
                for part in parts:
                    await self._ready(part)

    async def _choose_addresses(self) -> None:
        """Ports that are free now, below those which systems give to outgoing connections."""
        for parts, port in zip(
            (self.group.name_servers, self.group.brokers), FIRST_PORTS, strict=True
        ):
            for part in parts:
                # A broker's are three: for clients, below it the fast one, above it that for replicas.
                while not await _free(port - 2, port, port + 1):
                    port += 10
                part.address = f"{LOOPBACK}:{port}"
                port += 10
        port = FIRST_ETCD_PORT
        for part in self.group.name_servers if self.etcd else ():
            while not part.peer:
                if await _free(port, port + 1):
                    part.peer = f"{part.name}={LOOPBACK}:{port + 1}:{port}"
                port += 10

    def command(self, part: GroupProcess) -> list[str]:
        """The command line of a process."""
        own = os.path.join(self.folder, part.name)
        if part in self.group.name_servers:
            words = ["namesrv", "--listen", part.address]
            settings = {"kvConfigPath": os.path.join(own, "kvConfig.json")}
            if self.group.name:
                settings["controller"] = "managed" if part.peer else "embedded"
                settings["controllerStorePath"] = os.path.join(own, "controller")
            if part.peer:
                settings["controllerPeers"] = ";".join(p.peer for p in self.group.name_servers)
                settings["controllerSelf"] = part.name
        else:
            words = ["broker", "--listen", part.address, "-n", self.group.namesrv, "--store", own]
            settings = {
                "brokerClusterName": self.group.cluster,
                "brokerName": self.group.name or part.name,
                "brokerIP1": LOOPBACK,
                **(self._membership(part) if self.group.name else {}),
                **self._settings,
            }
        pairs = [f"{key}={value}" for key, value in settings.items()]
        flags = [word for pair in pairs for word in ("--set", pair)]
        return [sys.executable, "-m", "roquette.apps.entry", *words, *flags]

    def _membership(self, part: GroupProcess) -> dict[str, str]:
        """The settings that make a broker a member of the group."""
        brokers = len(self.group.brokers)
        return {
            "brokerId": part.name.rpartition("-")[2],
            "brokerRole": "SYNC_MASTER",
            "enableControllerMode": "true",
            "controllerAddr": self.group.namesrv,
            "totalReplicas": str(brokers),
            # With three, no message is acknowledged that only one has; of two, one goes on alone.
            "minInSyncReplicas": "2" if brokers > 2 else "1",
        }

    async def _start(self, part: GroupProcess) -> None:
        environ = {key: text for key, text in os.environ.items() if key != "NAMESRV_ADDR"}
        path = self.log_of(part)
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            child = await asyncio.create_subprocess_exec(
                *self.command(part),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environ,
                start_new_session=True,  # Ctrl-C is for the keeper, which ends them in order
            )
        finally:
            os.close(log)
        self._children[part.name] = child
        part.pid, part.born, part.started_ms = child.pid, born(child.pid), SystemClock().now_ms()
        self.save()

    async def _ready(self, part: GroupProcess) -> None:
        child, path, line = self._children[part.name], self.log_of(part), b""
        assert child.stdout is not None
        with contextlib.suppress(TimeoutError):
            line = await asyncio.wait_for(child.stdout.readline(), START_S)
        if not line.startswith(b"ready "):
            raise ConfigError(f"{part.name} did not start; the end of {path}: {_last_line(path)}")
        say(f"  {part.name} runs at {part.address}, pid {part.pid}, log {path}")

    def log_of(self, part: GroupProcess) -> str:
        """Return the path of a process's log."""
        return os.path.join(self.folder, f"{part.name}.log")

    def save(self) -> None:
        """Write the state file."""
        _files.write_atomic(os.path.join(self.folder, STATE), msgspec.json.encode(self.group))

    async def look(self) -> None:
        """Tell of processes that have ended, and start those that are ordered."""
        for part in self.group.parts:
            child = self._children.get(part.name)
            if child is not None and child.returncode is not None:
                del self._children[part.name]
                say(f"{part.name} (pid {part.pid}) has ended: {_cause(child.returncode)}")
            order = order_path(self.folder, part.name)
            if part.name not in self._children and _files.exists(order):
                try:
                    await self._start(part)
                    await self._ready(part)
                except ConfigError as error:
                    say(str(error))
                _files.remove(order)

    async def stop(self, first: Sequence[int]) -> None:
        """End brokers in this order of ids, others before them, then the name servers."""
        brokers = dict(enumerate(self.group.brokers, 1))
        last = [brokers.pop(who) for who in first if who in brokers]
        for part in [*brokers.values(), *last, *self.group.name_servers]:
            child = self._children.pop(part.name, None)
            if child is None or child.returncode is not None:
                continue
            child.terminate()
            try:
                await asyncio.wait_for(child.wait(), STOP_S)
                say(f"  {part.name} has stopped")
            except TimeoutError:
                child.kill()
                await child.wait()
                say(f"  {part.name} did not stop in {STOP_S:.0f} s and was killed")


async def _free(*ports: int) -> bool:
    loop = asyncio.get_running_loop()
    probes = []
    try:
        for port in ports:
            probes.append(await loop.create_server(asyncio.Protocol, LOOPBACK, port))
    except OSError:
        return False
    finally:
        for probe in probes:
            probe.close()
    return True


def _cause(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _last_line(path: str) -> str:
    with contextlib.suppress(OSError):
        lines = _files.read_bytes(path).decode(errors="replace").rstrip().splitlines()
        return lines[-1] if lines else "nothing"
    return "nothing"
