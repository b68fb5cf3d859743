"""`explain` about messages of Java's clients; with ROQUETTE_INTEROP_PROVE=1 on Apache's broker, too."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.interop.bench import Bench, until
from tests.interop.conftest import Cluster
from tests.interop.driver import Driver

from roquette.admin.explain import collect, explain
from roquette_spark.workers.connection import BlockingConnections

pytestmark = [pytest.mark.interop, pytest.mark.long, pytest.mark.timeout(180)]


def test_messages_of_java_clients(
    drivers: Callable[[str], Driver], cluster: Cluster, name: str, tmp_path: Path
) -> None:
    java = drivers("5.5.0")
    java("producer", name=name, group=f"P_{name}", namesrv=cluster.namesrv.address)
    bench = Bench(java, cluster, name)
    bench.create(queues=1)
    connections = BlockingConnections(cluster.namesrv.address, timeout_ms=10_000)

    def said(message_id: str) -> dict[str, str]:
        """The verdict about each group, and the others by their code."""
        now_ms = int(time.time() * 1000)
        (facts,) = connections.run(collect(message_id, bench.topic, now_ms))
        return {verdict.group or verdict.code: verdict.code for verdict in explain(facts)}

    bench.consumer("all", group=f"{bench.group}_all")
    bench.consumer("b", group=f"{bench.group}_b", expression="b")
    bench.consumer("dead", group=f"{bench.group}_dead", failUntil=99, maxReconsume=0)
    bench.consumer("gone", group=f"{bench.group}_gone")
    (first,) = bench.send(1, tags="a")
    until(lambda: said(first["msgId"]).get(f"{bench.group}_gone") == "passed")
    bench.stop(f"{name}-gone")
    (second,) = bench.send(1, tags="a")
    wanted = {
        "stored": "stored",
        f"{bench.group}_all": "passed",
        f"{bench.group}_b": "filtered-by-tag",
        f"{bench.group}_gone": "offline",
        f"{bench.group}_dead": "dead",
    }
    until(lambda: said(second["msgId"]) == wanted)
    (late,) = bench.send(1, delay=5)
    until(lambda: said(late["msgId"]) == {"delayed": "delayed"})
    assert said("AC" * 16) == {"not-found": "not-found"}
    for consumer in list(bench.running):
        bench.stop(consumer)
