"""Members of etcd as processes: started, killed, stopped for a while, and asked who leads them."""

import asyncio
import json
import os
import signal
import ssl
import time
from pathlib import Path
from typing import Any

from tests.interop.clients import etcd_program
from tests.interop.peers import START_TIMEOUT_S, Process, failure, free_port

from roquette.remoting.etcd import connect_http

HOST = "127.0.0.1"


async def ask(
    port: int, path: str, body: dict[str, Any], token: str = "", tls: ssl.SSLContext | None = None
) -> dict[str, Any]:
    """One request to a member, on a connection of its own."""
    connection = await connect_http(HOST, port, tls)
    header = f"Authorization: {token}\r\n".encode() if token else b""
    try:
        answer = await connection.post(path, json.dumps(body).encode(), header)
    finally:
        connection.abort()
    assert answer.status == 200, (path, answer)
    found: dict[str, Any] = json.loads(answer.body)
    return found


class Member:
    """One member; its data stay where they are when it is killed and started again."""

    def __init__(self, name: str, folder: Path, *flags: str, tls: bool = False) -> None:
        self.name = name
        self.folder = folder / name
        self.flags = flags
        self.scheme = "https" if tls else "http"
        self.port, self.peer_port = free_port(), free_port()
        self.process: Process | None = None

    def start(self, members: str) -> None:
        client, peer = f"{self.scheme}://{HOST}:{self.port}", f"http://{HOST}:{self.peer_port}"
        command = [
            str(etcd_program()),
            "--name",
            self.name,
            "--data-dir",
            str(self.folder / "data"),
        ]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", members, "--log-level", "error"]
        command += ["--heartbeat-interval", "50", "--election-timeout", "500", *self.flags]
        self.process = Process(command, self.folder, {})

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.popen.send_signal(number)

    def pause(self) -> None:
        """SIGSTOP; returns once the member runs no more, which may be later than the signal."""
        self.send(signal.SIGSTOP)
        assert self.process is not None
        os.waitid(os.P_PID, self.process.popen.pid, os.WSTOPPED)

    def kill(self) -> None:
        assert self.process is not None
        self.process.popen.kill()
        self.process.stop()


class Etcd:
    """A cluster of members."""

    def __init__(self, folder: Path, size: int, *flags: str, tls: bool = False) -> None:
        self.members = [Member(f"m{i}", folder, *flags, tls=tls) for i in range(size)]
        self.names = ",".join(f"{m.name}=http://{HOST}:{m.peer_port}" for m in self.members)

    @property
    def url(self) -> str:
        return "etcd://" + ",".join(f"{HOST}:{member.port}" for member in self.members)

    def start(self) -> "Etcd":
        for member in self.members:
            member.start(self.names)
        return self

    def wait(self, tls: ssl.SSLContext | None = None) -> "Etcd":
        """Until every member answers a linearizable read, so there is a leader."""
        end = time.monotonic() + START_TIMEOUT_S
        for member in self.members:
            while True:
                try:
                    asyncio.run(ask(member.port, "/v3/kv/range", {"key": "eA=="}, tls=tls))
                    break
                except (OSError, EOFError, AssertionError):
                    assert time.monotonic() < end, member.process and member.process.tail()
                    time.sleep(0.05)
        return self

    async def leader(self) -> Member:
        """Who leads now."""
        for member in self.members:
            found = await ask(member.port, "/v3/maintenance/status", {})
            if found["leader"] == found["header"]["member_id"]:
                return member
        return await self.leader()

    def stop(self) -> None:
        for member in self.members:
            if member.process is not None:
                member.send(signal.SIGCONT)
                member.kill()


def certificates(folder: Path) -> None:
    """ca.pem, and of it server.pem and client.pem with their keys; other.pem, an authority that knows neither.

    etcd's gateway refuses a client's certificate that has a common name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    for name in ("ca", "other"):
        words = ["openssl", "req", "-x509", *key, "-subj", f"/CN={name}", "-out", f"{name}.pem"]
        assert not failure(*words, "-keyout", f"{name}.key", folder=folder)
    for name in ("server", "client"):
        words = ["openssl", "req", "-x509", *key, "-subj", f"/O={name}", "-out", f"{name}.pem"]
        words += ["-addext", f"subjectAltName=IP:{HOST}", "-CA", "ca.pem", "-CAkey", "ca.key"]
        words += ["-addext", "basicConstraints=critical,CA:FALSE"]
        assert not failure(*words, "-keyout", f"{name}.key", folder=folder)
