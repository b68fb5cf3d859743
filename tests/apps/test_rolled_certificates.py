"""A broker's certificates are replaced while clients come and send: no send fails, and the new ones are shown."""

import asyncio
import shutil
import ssl
from pathlib import Path

import pytest
from tests.certificates import Authority, issue, make_ca
from tests.real_servers import SMALL_STORE, ServerProcess

import roquette

ROLLS = 3


def put(ca: Authority, directory: Path) -> None:
    """A new pair under the old names, its key first: for a moment they do not belong together."""
    pair = issue(ca, ["127.0.0.1"])
    for path, name in ((pair.key, "server.key"), (pair.cert, "server.pem")):
        shutil.copy(path, directory / "new")
        (directory / "new").replace(directory / name)


@pytest.mark.timeout(120)
def test_certificates_are_replaced_under_sends(tmp_path: Path) -> None:
    ca = make_ca(tmp_path / "ca")
    put(ca, tmp_path)
    tls = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": tmp_path / "server.pem",
        "tls.server.keyPath": tmp_path / "server.key",
        "tls.client.trustCertPath": ca.cert,
    }
    flags = [word for key, value in tls.items() for word in ("--set", f"{key}={value}")]
    sizes = [word for key, value in SMALL_STORE.items() for word in ("--set", f"{key}={value}")]
    kept = ["--set", f"kvConfigPath={tmp_path}/kv.json"]
    namesrv = ServerProcess(["namesrv", "--listen", "127.0.0.1:0", *kept, *flags])
    broker = None
    try:
        namesrv.wait_ready()
        names = "{}:{}".format(*namesrv.address)
        store = ["--store", str(tmp_path / "store"), "--namesrv", names]
        broker = ServerProcess(["broker", "--listen", "127.0.0.1:0", *store, *sizes, *flags])
        broker.wait_ready()
        asyncio.run(roll(ca, tmp_path, names, broker.address))
    finally:
        for process in filter(None, (broker, namesrv)):
            process.end()


async def roll(ca: Authority, directory: Path, names: str, broker: tuple[str, int]) -> None:
    sent, ended = 0, asyncio.Event()

    async def send_for_ever() -> None:
        """Each client sends a little; the next one makes new connections."""
        nonlocal sent
        while not ended.is_set():
            async with roquette.Client(names, tls=roquette.TlsOptions(ca=ca.cert)) as client:
                for _ in range(5):
                    await client.send("orders", b"x")
                    sent += 1

    tasks = [asyncio.create_task(send_for_ever()) for _ in range(3)]
    shown = set()
    for _ in range(ROLLS):
        before = await asyncio.to_thread(ssl.get_server_certificate, broker)
        shown.add(before)
        put(ca, directory)
        while await asyncio.to_thread(ssl.get_server_certificate, broker) == before:
            await asyncio.sleep(0.2)
            assert not any(task.done() for task in tasks), tasks
    ended.set()
    await asyncio.gather(*tasks)  # raises what a send has raised
    assert len(shown) == ROLLS and sent > 5 * ROLLS
