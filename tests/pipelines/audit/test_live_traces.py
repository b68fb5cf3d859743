"""`traffic` tells end-to-end times from what Apache's real Java client writes into the trace topic."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.interop.bench import until
from tests.interop.driver import Driver
from tests.spark.places import Place

from roquette import Client
from roquette_spark.pipelines.kit.running import run_pipeline
from roquette_spark.pipelines.traffic.pipeline import PIPELINE, TRACE_TOPIC, TrafficOptions

pytestmark = [pytest.mark.spark, pytest.mark.interop, pytest.mark.long]

COUNT = 40
BOTH = pytest.mark.parametrize("version", ["5.5.0", "4.9.8"])


async def kinds(namesrv: str) -> Counter[str]:
    """Events in the trace topic, by kind."""
    found: Counter[str] = Counter()
    async with Client(namesrv) as mq:
        queues = await mq.queues(TRACE_TOPIC)
        count = sum([await mq.max_offset(queue) for queue in queues])
        puller = mq.reader(group="looks-at-traces")
        await puller.assign(queues)
        while count > 0:
            messages = await puller.poll(timeout=30)
            assert messages, count
            count -= len(messages)
            events = [e for m in messages for e in m.body.decode().split("\x02") if e]
            found.update(event.partition("\x01")[0] for event in events)
        await puller.close()
    return found


@BOTH
def test_end_to_end_times_of_java_clients(spark: Any, version: str, tmp_path: Path) -> None:
    place = Place("roquette", tmp_path, traceTopicEnable="true")
    driver = Driver(version, tmp_path / "java")
    try:
        place.create("pay")
        namesrv = place.address
        driver("maker", name="shop", namesrv=namesrv, trace=1)
        driver("reader", name="desk", namesrv=namesrv, topic="pay", group="billing", trace=1)
        sent = driver("send", name="shop", topic="pay", count=COUNT, keys="k", tags="t")["results"]
        assert len(sent) == COUNT and all(each["traceOn"] for each in sent)
        rows = driver("read", name="desk", min=COUNT, timeout=60_000)["rows"]
        assert len(rows) == COUNT
        wanted = {"Pub": COUNT, "SubBefore": COUNT, "SubAfter": COUNT}
        until(lambda: dict(asyncio.run(kinds(namesrv))) == wanted, 60)

        options = TrafficOptions(namesrv=namesrv, topics=("pay",))
        found = run_pipeline(PIPELINE, options, directory=str(tmp_path / "report")).summary
    finally:
        driver.stop()
        place.discard()

    (topic,) = found["topics"]
    assert (topic["topic"], topic["messages"]) == ("pay", COUNT)
    (sends,) = found["sends"]
    assert (sends["topic"], sends["client_group"]) == ("pay", "PG_shop")
    assert (sends["sends"], sends["failed"]) == (COUNT, 0)
    assert 0 <= sends["cost_p50_ms"] <= sends["cost_p99_ms"] < 60_000
    (ends,) = found["end_to_end"]
    assert (ends["topic"], ends["client_group"]) == ("pay", "billing")
    assert (ends["messages"], ends["deliveries"], ends["failed"]) == (COUNT, COUNT, 0)
    assert 0 <= ends["wait_p50_ms"] <= ends["wait_p99_ms"] < 60_000
    page = (tmp_path / "report" / "report.html").read_text()
    assert "<h2>End to end" in page and "<h2>Sends" in page
