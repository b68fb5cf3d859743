"""`roquette store dump` knows every file that a broker writes."""

import asyncio
import os
from pathlib import Path
from typing import Any

from tests.broker.conftest import Case
from tests.simulation.test_group import MEMBERS, group, send

from roquette.base.files import OsReadFiles
from roquette.store.offline.dump import dump_file, kind_of
from roquette_testing.cluster import SimCluster, simulate


def told(root: Path) -> dict[str, str]:
    """What each file below a directory is; all of them are read."""
    found, files = {}, OsReadFiles()
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            kind = found[os.path.relpath(path, root)] = kind_of(files, path)
            list(dump_file(files, path, kind, slots=100))
    return found


def test_every_file_of_a_store_is_known(run_broker: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"

    async def scenario(case: Case) -> None:
        client = await case.client()
        due = str(case.clock.now_ms() + 3_000)
        kinds = ({}, {"KEYS": "k"}, {"TIMER_DELIVER_MS": due}, {"DELAY": "1"}, {"TRAN_MSG": "true"})
        for properties in kinds:
            named = {"UNIQ_KEY": "0A0000010001", "WAIT": "true"} | properties
            flag = 4 if "TRAN_MSG" in properties else 0  # a half message
            answer = await client.produce("T", b"body", properties=named, f=flag)
            assert answer.code == 0, answer.remark
        await client.pull()
        commit = {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 1}
        assert (await client.call(15, commit)).code == 0
        await asyncio.sleep(20)
        assert (await client.call(15, commit | {"commitOffset": 2})).code == 0
        assert (await client.call(215, {"topic": "gone"})).code == 0  # DELETE_TOPIC_IN_BROKER
        running = told(root)
        assert running["config/consumerOffset.journal.0"] == "journal"
        journals = [path for path, kind in running.items() if kind == "journal"]
        rows = [
            row
            for path in journals
            for row in dump_file(OsReadFiles(), str(root / path), "journal")
        ]
        assert rows[0].keys() == {"byte", "kind", "generation", "previous", "crc", "size"}
        assert any(row.get("offsets") == {"T@g": {0: 2}} for row in rows)

    run_broker(scenario)
    found = told(root)
    assert found["config/timermetrics"] == "json"
    assert found["index.sums"] == found["reserve"] == "text"
    assert {"log", "queue", "index", "checkpoint", "timerlog", "timerwheel"} <= {*found.values()}


def test_every_file_of_a_member_of_a_group_is_known(tmp_path: Path) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await group(cluster, 2)
        mq = await cluster.client("10.0.2.1")
        for number in range(5):
            await send(mq, number)
        cluster.kill(MEMBERS[0])
        await asyncio.sleep(10)
        for ip in MEMBERS[:2]:
            images, _ = cluster.hosts[ip].files.snapshot()
            for path, image in images.items():
                place = tmp_path / ip / path.lstrip("/")
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(image)

    simulate(scenario, seed=3)
    kinds = [told(tmp_path / ip / "store") for ip in MEMBERS[:2]]
    assert all(kinds)
    assert any("roquetteMember.json" in found for found in kinds)
