"""A member of etcd as a child of the name server: started, watched, ended with it.

The members of `controllerPeers` are one etcd cluster; each name server has one of them. What the members agree on stands below
`controllerStorePath`.
"""

import asyncio
import ipaddress
import json
import logging
import os
import os.path
import re
import shutil
import signal
import ssl
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from roquette.base.executor import run_blocking
from roquette.base.files import Files
from roquette.base.lifecycle import Health, Tasks
from roquette.errors import ConfigError, RemoteProtocolError, RoquetteError
from roquette.nameserver.floor.config import NamesrvConfig
from roquette.remoting.etcd import SCHEME, connect_http, parse_etcd, tls_context
from roquette.remoting.http1 import HttpListener
from roquette.remoting.http_pages import HttpPages

log = logging.getLogger("roquette.apps")

OLDEST: Final = (3, 5, 9)
"""Before it, a leader that hung could end or prolong what it no longer led (etcd 15247)."""
STOP_S: Final = 10.0
ASK_S: Final = 1.0
MEET_S: Final = 0.2
MEET_TRIES: Final = 5
NEW: Final = "/roquette/new/"  # what members without data ask each other, where etcd listens later
WELL_S: Final = 10.0  # a member that has run so long starts without a pause when it ends
_FORM: Final = "NAME=HOST:PEERPORT:CLIENTPORT;..."
_TIMES: Final = ("--heartbeat-interval", "50", "--election-timeout", "500")
_KEPT: Final = ("--auto-compaction-mode", "revision", "--auto-compaction-retention", "1000")


class MemberAddress(NamedTuple):
    """Addresses at which a member is reached, by its fellows and by name servers."""

    name: str
    host: str
    peer_port: int
    client_port: int

    @property
    def peer(self) -> str:
        """host:port."""
        return f"{self._url_host}:{self.peer_port}"

    @property
    def client(self) -> str:
        """host:port."""
        return f"{self._url_host}:{self.client_port}"

    @property
    def _url_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def bound(self) -> str:
        """Address it listens on: etcd binds addresses, not names."""
        try:
            ipaddress.ip_address(self.host)
        except ValueError:
            return "0.0.0.0"
        return self._url_host


def parse_places(text: str) -> list[MemberAddress]:
    """The members of `controllerPeers`; raises ConfigError."""
    found = []
    for word in filter(None, (part.strip() for part in text.replace(",", ";").split(";"))):
        match = re.fullmatch(r"([\w.-]+)=(\[[^\]]+\]|[^:=]+):(\d{1,5}):(\d{1,5})", word)
        if match is None or not all(0 < int(port) < 65_536 for port in match.groups()[2:]):
            raise ConfigError(f"controllerPeers: {word!r} is not of the form {_FORM}")
        name, host, peer, client = match.groups()
        found.append(MemberAddress(name, host.strip("[]"), int(peer), int(client)))
    if not found or len({place.name for place in found}) != len(found):
        raise ConfigError(f"controllerPeers names each member once, in the form {_FORM}")
    return found


class ManagedEtcd:
    """The member of this name server.

    Attributes:
        url: of all members, its own first, for the name server's `controller`.

    Raises:
        ConfigError: controllerPeers or controllerSelf is wrong, or there is no etcd, or one below 3.5.9.
    """

    def __init__(self, config: NamesrvConfig, files: Files) -> None:
        places = parse_places(config.controller_peers)
        mine = [place for place in places if place.name == config.controller_self]
        if not mine:
            names = ", ".join(place.name for place in places)
            raise ConfigError(
                f"controllerSelf={config.controller_self!r} is none of controllerPeers: {names}"
            )
        self._self = mine[0]
        self._others = [place for place in places if place is not self._self]
        self.url = SCHEME + ",".join(place.client for place in (self._self, *self._others))
        self._tls: list[str] = []
        self._context: ssl.SSLContext | None = None
        self._server_context: ssl.SSLContext | None = None
        self._new: set[str] = set()  # fellows that have said that they have never run
        self._scheme = "http://"
        if config.controller_ca_file or config.controller_cert_file:
            self._encrypt(config)
        self._cluster = ",".join(f"{place.name}={self._scheme}{place.peer}" for place in places)
        self._files = files
        self._data = f"{config.controller_store_path}/etcd"
        self._pid_file = f"{config.controller_store_path}/etcd.pid"
        self._joins_file = f"{config.controller_store_path}/etcd.joins"
        program = shutil.which(config.controller_program)
        if program is None:
            raise ConfigError(
                f"controller=managed needs etcd 3.5.9 or newer: no program {config.controller_program!r} is "
                "found. Install it, or name it by controllerProgram"
            )
        self._program = program
        self._tasks = Tasks()

    def _encrypt(self, config: NamesrvConfig) -> None:
        """Members and name servers speak TLS, and show certificates of one authority."""
        files = config.controller_ca_file, config.controller_cert_file, config.controller_key_file
        if not all(files):
            raise ConfigError(
                "controllerCaFile, controllerCertFile and controllerKeyFile belong together: one is missing"
            )
        ca, cert, key = files
        self.url += "?" + urlencode({"caFile": ca, "certFile": cert, "keyFile": key})
        try:
            self._context = tls_context(parse_etcd(self.url))
            self._server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ca)
            self._server_context.load_cert_chain(cert, key)
            self._server_context.verify_mode = ssl.CERT_REQUIRED
        except OSError as error:
            raise ConfigError(f"the files of controllerCertFile cannot be used: {error}") from None
        self._scheme = "https://"
        for kind in ("", "peer-"):
            self._tls += [f"--{kind}cert-file", cert, f"--{kind}key-file", key]
            self._tls += [f"--{kind}trusted-ca-file", ca, f"--{kind}client-cert-auth"]

    async def start(self) -> None:
        """Begin to run the member; it need not be there yet on return. Raises ConfigError."""
        child = await asyncio.create_subprocess_exec(self._program, "--version", stdout=PIPE)
        output = (await child.communicate())[0].decode("utf-8", "replace")
        match = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", output)
        if match is None or tuple(map(int, match.groups())) < OLDEST:
            raise ConfigError(
                f"controller=managed needs etcd 3.5.9 or newer: {self._program} says {output[:80]!r}"
            )
        await run_blocking(self._files.make_dirs, os.path.dirname(self._data))
        self._tasks.keep("etcd", self._run)

    async def _run(self, health: Health) -> None:
        await self._end_orphan()
        child = await asyncio.create_subprocess_exec(
            self._program,
            *await self._arguments(),
            stdin=DEVNULL,
            stdout=DEVNULL,
            start_new_session=True,  # Ctrl-C is for the name server, which ends it
            env={k: text for k, text in os.environ.items() if not k.startswith("ETCD_")},
        )
        log.info("etcd started member=%s pid=%d", self._self.name, child.pid)
        await run_blocking(self._files.write_atomic, self._pid_file, b"%d" % child.pid, False)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(WELL_S):
                    await child.wait()
            if child.returncode is None:
                health.worked()
                await child.wait()
        finally:
            if child.returncode is None:
                await _end(child)
        raise MemberEnded(f"etcd member {self._self.name} ended with {child.returncode}")

    async def _arguments(self) -> list[str]:
        me, bound = self._self, f"{self._scheme}{self._self.bound}"
        state = await self._state()
        return [
            *("--name", me.name, "--data-dir", self._data, "--log-level", "warn"),
            *("--listen-peer-urls", f"{bound}:{me.peer_port}"),
            *("--initial-advertise-peer-urls", self._peer_url),
            *("--listen-client-urls", f"{bound}:{me.client_port}"),
            *("--advertise-client-urls", f"{self._scheme}{me.client}"),
            *("--initial-cluster", self._cluster, "--initial-cluster-state", state),
            *_TIMES,
            *_KEPT,
            *self._tls,
        ]

    @property
    def _peer_url(self) -> str:
        return f"{self._scheme}{self._self.peer}"

    async def _state(self) -> str:
        """Does the member begin a cluster (new), or join one (existing)?

        One that has run and has no data any more may have voted and forgotten it: it must not come back. It leaves
        the cluster, and a new one takes its place. While no cluster answers it cannot tell itself from one that has
        never run: it begins one only together with all of its fellows.
        """
        if await run_blocking(self._files.exists, f"{self._data}/member"):
            self._new.clear()
            return "new"  # or whatever: the data say what it is
        joins = await run_blocking(self._files.exists, self._joins_file)
        found = await self._listed()
        if found is None and not joins:
            found = await self._meet()
            if found is None:
                return "new"
        if found is None:
            raise MemberEnded(f"etcd member {self._self.name} waits for those it is to join")
        other, members = found
        ours = [each for each in members if self._peer_url in each["peerURLs"]]
        if ours and not ours[0].get("name"):  # it has never run
            return "existing" if joins else "new"
        for each in ours:
            log.warning(
                "etcd member has no data and leaves the cluster, a new one takes its place member=%s id=%s data=%s",
                self._self.name,
                each["ID"],
                self._data,
            )
            await self._ask(other, "/v3/cluster/member/remove", {"ID": each["ID"]})
        # Written before the member is added: one that dies in between waits for the cluster, it begins none.
        await run_blocking(self._files.write_atomic, self._joins_file, b"", False)
        await self._ask(other, "/v3/cluster/member/add", {"peerURLs": [self._peer_url]})
        return "existing"

    async def _meet(self) -> tuple[MemberAddress, list[dict[str, Any]]] | None:
        """Wait until all fellows say that they are new as well; or what `_listed` says, when a cluster answers first.

        It goes on when it knows that all are new, and each of them knows it of this one: an answer that was lost comes
        again. One that has gone on answers no more, and is asked a few times in vain.
        """
        me, fellows = self._self, {place.name: place for place in self._others}
        pages = {NEW + name: partial(self._met, name) for name in fellows}
        if not fellows:
            return None
        door = HttpListener(
            HttpPages(about="a new member of etcd waits for its fellows", anyone=True, more=pages)
        )
        await door.start(f"{me.bound}:{me.client_port}", self._server_context)
        log.warning(
            "etcd member %s has no data: it waits for a cluster that it can join, or for all of controllerPeers, new as it is",
            me.name,
        )
        told: set[str] = set()
        found, tries = None, 0
        try:
            while found is None and told < {*fellows} and tries < MEET_TRIES:
                for name in {*fellows} - told:
                    with suppress(MemberEnded):
                        await self._ask(fellows[name], NEW + me.name)
                        told.add(name)
                        self._new.add(name)
                tries += self._new >= {*fellows}
                found = await self._listed()
                await asyncio.sleep(MEET_S)
        finally:
            await door.close()
        return found

    def _met(self, fellow: str) -> tuple[str, bytes]:
        self._new.add(fellow)
        return "application/json", b"{}"

    async def _listed(self) -> tuple[MemberAddress, list[dict[str, Any]]] | None:
        """Another member, and whom it knows as members; None when no cluster answers."""
        for other in self._others:
            with suppress(MemberEnded):
                return other, (await self._ask(other, "/v3/cluster/member/list", {}))["members"]
        return None

    async def _ask(
        self, place: MemberAddress, path: str, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """A request about the cluster's members. Raises MemberEnded: no answer, or a refusal."""
        try:
            async with asyncio.timeout(ASK_S):
                connection = await connect_http(place.host, place.client_port, self._context)
                try:
                    post = None if body is None else json.dumps(body).encode()
                    asked = connection.get(path) if post is None else connection.post(path, post)
                    answer = await asked
                finally:
                    connection.abort()
            if answer.status != 200:
                raise RemoteProtocolError(f"HTTP {answer.status} {answer.body[:200]!r}")
            found: dict[str, Any] = json.loads(answer.body)
            return found
        except (OSError, EOFError, TimeoutError, RemoteProtocolError, ValueError) as error:
            raise MemberEnded(f"etcd at {place.client} did not do {path}: {error!r}") from None

    async def _end_orphan(self) -> None:
        """End the member that a name server has left which was killed: this one has its port and its data."""
        try:
            pid = int(await run_blocking(self._files.read_bytes, self._pid_file))
        except (OSError, ValueError):
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            for _ in range(int(STOP_S * 20)):
                if not await run_blocking(self._is_ours, pid):
                    return
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
                await asyncio.sleep(0.05)

    def _is_ours(self, pid: int) -> bool:
        """Is the process a member with our data? Where the system does not tell it is taken for none."""
        try:
            words = self._files.read_bytes(f"/proc/{pid}/cmdline").split(b"\0")
        except OSError:
            return False
        return os.fsencode(self._data) in words

    async def stop(self) -> None:
        """End the member."""
        await self._tasks.stop()


class MemberEnded(RoquetteError):
    """The child is gone, or cannot start yet: it is started again, after a pause."""


async def _end(child: asyncio.subprocess.Process) -> None:
    """SIGTERM, later SIGKILL."""
    with suppress(ProcessLookupError):
        child.terminate()
    try:
        async with asyncio.timeout(STOP_S):
            await child.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            child.kill()
        await child.wait()
