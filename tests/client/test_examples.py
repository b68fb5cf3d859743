"""The programs of examples/ that stand on the client: as their users run them, against a broker of ours."""

import asyncio
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from examples.outbox import test_service
from tests.interop import peers
from tools import workspace

from roquette_testing import EmbeddedBroker

ROOT = Path(__file__).parents[2]
ENVIRON = os.environ | {"PYTHONPATH": f"{workspace.python_path()}{os.pathsep}{ROOT}"}

test_the_shop_of_the_outbox = test_service.test_orders_are_taken_once_and_billed


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def stored(broker: EmbeddedBroker, topic: str) -> list[bytes]:
    """All bodies of a topic."""

    async def read() -> list[bytes]:
        found: list[bytes] = []
        async with broker.client() as mq:
            reader = mq.reader(group="counting")
            queues = await mq.queues(topic)
            await reader.assign(queues)
            for queue in queues:
                reader.seek(queue, 0)
            ends = {queue: await mq.max_offset(queue) for queue in queues}
            while any(reader.position(queue) < end for queue, end in ends.items()):
                found += [message.body for message in await reader.poll(timeout=1.0)]
        return found

    return asyncio.run(read())


@pytest.mark.parametrize(
    "lines", [20_000, pytest.param(1_000_000, marks=(pytest.mark.long, pytest.mark.timeout(1200)))]
)
def test_an_ingest_that_is_told_to_end_loses_nothing_and_repeats_nothing(
    broker: EmbeddedBroker, tmp_path: Path, lines: int
) -> None:
    source = tmp_path / "readings.txt"
    wanted = [b"%d of %d" % (number, lines) for number in range(lines)]
    source.write_bytes(b"".join(line + b"\n" for line in wanted))
    words = [sys.executable, "-m", "examples.ingest.ingest", broker.name_servers, str(source)]
    place, said, ended_early = source.with_name("readings.txt.place"), [], False
    for told in (True, False):
        child = subprocess.Popen(words, cwd=ROOT, env=ENVIRON, stdout=subprocess.PIPE, text=True)
        try:
            if told:
                end = time.monotonic() + 60
                while not place.exists():  # some are stored, and others on their way
                    assert time.monotonic() < end and child.poll() is None
                    time.sleep(0.001)
                child.send_signal(signal.SIGTERM)
            said.append(child.communicate(timeout=1000)[0])
        finally:
            child.kill()
        assert child.returncode == 0, said
        ended_early |= told and int(place.read_text()) < source.stat().st_size
    assert ended_early, "it was told too late"
    assert all(line.endswith(" unsaid=0\n") for line in said), said
    assert sum(int(line.split()[0].removeprefix("sent=")) for line in said) == lines
    mine = [body for body in stored(broker, "readings") if body.endswith(b" of %d" % lines)]
    assert sorted(mine) == sorted(wanted)


def test_a_web_service_and_its_worker(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastapi.testclient import TestClient

    monkeypatch.setenv("NAMESRV_ADDR", broker.name_servers)
    from examples.web.service import web

    port = peers.free_port()
    program = str(Path(sys.executable).parent / "roquette")
    words = [program, "run", "examples.web.worker:app", "--health", f"127.0.0.1:{port}"]
    worker = subprocess.Popen(words, cwd=ROOT, env={**ENVIRON, "NAMESRV_ADDR": broker.name_servers})
    try:
        with TestClient(web) as customer:
            assert customer.post("/orders", json={"number": "x"}).status_code == 422
            assert customer.post("/orders", json={"number": 7, "cents": 5}).status_code == 202
            end = time.monotonic() + 60
            while not ready(port):
                assert time.monotonic() < end and worker.poll() is None
                time.sleep(0.05)
            while customer.get("/orders/7").json() != {"number": 7, "state": "handled"}:
                assert time.monotonic() < end
                time.sleep(0.05)
            assert customer.get("/orders/8").json() == {"number": 8, "state": "unknown"}
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(30) == 0
            assert customer.get("/orders/7").status_code == 504
            broker.faults.stop()
            assert customer.post("/orders", json={"number": 9, "cents": 5}).status_code == 503
            broker.faults.restart()
            assert customer.post("/orders", json={"number": 9, "cents": 5}).status_code == 202
    finally:
        worker.kill()


def ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
