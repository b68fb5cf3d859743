"""`traffic` and `audit` over real servers: two brokers, and two name servers of which one knows only one broker."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.interop.peers import Server, call, start_broker, start_namesrv
from tests.spark.commitlog.test_jobs import consume_half
from tests.spark.test_servers import produce

from roquette_spark.pipelines.audit.pipeline import PIPELINE as AUDIT
from roquette_spark.pipelines.audit.pipeline import AuditOptions
from roquette_spark.pipelines.kit.running import run_pipeline
from roquette_spark.pipelines.traffic.pipeline import PIPELINE as TRAFFIC
from roquette_spark.pipelines.traffic.pipeline import TrafficOptions

pytestmark = pytest.mark.spark

COUNT = 300


class Place(NamedTuple):
    """Two name servers; the first knows both brokers."""

    both: str
    one: str
    brokers: list[Server]
    store: str


def serve(flavour: str, folder: Path) -> Iterator[Place]:
    with ExitStack() as running, ThreadPoolExecutor(2) as pool:

        def begin(start: Callable[..., Server], *given: Any, **more: str) -> Server:
            server = start(flavour, *given, **more)
            running.callback(server.discard)
            return server

        starting = [pool.submit(begin, start_namesrv, folder / name) for name in ("ns1", "ns2")]
        first, second = (each.result().address for each in starting)
        known = {"broker-a": f"{first};{second}", "broker-b": first}
        starting = [
            pool.submit(begin, start_broker, folder / name, addresses, name=name)
            for name, addresses in known.items()
        ]
        brokers = [each.result() for each in starting]
        create_topic({first: brokers, second: brokers[:1]}, "pay")
        produce(first, "pay", range(COUNT))
        store = folder / "broker-a" / ("store" if flavour == "apache" else "s")
        yield Place(first, second, brokers, str(store))


def create_topic(known: dict[str, list[Server]], topic: str) -> None:
    """On every broker: Apache's would make it by itself on the first one only, which no two routes differ about.

    Each broker's last queue can be read, but nobody writes to it: it has nothing of any span of time.
    Waits until each name server tells the brokers that it knows.
    """
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "5", "writeQueueNums": "4"}
    fields |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    for address in {broker.address for brokers in known.values() for broker in brokers}:
        answer = call(address, 17, fields)
        assert answer is not None
        assert answer[0]["code"] == 0, answer
    end = time.monotonic() + 60
    while not all(tells(namesrv, topic, brokers) for namesrv, brokers in known.items()):
        assert time.monotonic() < end, f"the name servers do not know {topic} on all brokers"
        time.sleep(0.1)


def tells(namesrv: str, topic: str, brokers: list[Server]) -> bool:
    route = call(namesrv, 105, {"topic": topic})
    return route is not None and all(f'"{b.name}"'.encode() in route[1] for b in brokers)


@pytest.fixture(scope="module")
def roquette(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    yield from serve("roquette", tmp_path_factory.mktemp("watching"))


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    yield from serve("apache", tmp_path_factory.mktemp("watching-apache"))


def check_traffic(spark: Any, place: Place, folder: Path) -> None:
    consume_half(place.brokers[0].address, "pay", "readers", {0: 8, 1: 8})
    namesrv = f"{place.both};{place.one}"
    options = TrafficOptions(namesrv=namesrv, topics=("pay",), snapshots=2, snapshot_interval=0.1)

    result = run_pipeline(TRAFFIC, options, directory=str(folder))

    summary = result.summary
    (topic,) = summary["topics"]
    assert (topic["topic"], topic["messages"]) == ("pay", COUNT)
    assert sum(row["messages"] for row in summary["brokers"]) == COUNT
    assert 0 <= topic["latency_p50_ms"] < 60_000
    assert summary["imbalance"][0]["topic"] == "pay"
    assert summary["lag_by_group"]["readers"] > 0
    assert [row["rank"] for row in summary["hot_keys"]] == list(range(1, 11))
    routes = summary["routes"]
    assert (routes["snapshots"], len(routes["name_servers"])) == (2, 2)
    (found,) = routes["disagreements"]
    assert found["topic"] == "pay"
    assert f"{place.one} does not know broker-b" in found["differences"][0]
    html = (folder / "report.html").read_text()
    assert "Routes on which name servers disagree" in html
    assert (folder / "routes.jsonl").read_text().count("\n") == 4


def check_audit(spark: Any, place: Place, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    manifest = folder / "meant.jsonl"
    ids = [{"id": f"key-{number}", "topic": "pay"} for number in range(COUNT)]
    manifest.write_text("".join(json.dumps(row) + "\n" for row in ids))
    options: dict[str, Any] = {"namesrv": place.both, "topics": ("pay",), "manifest": str(manifest)}

    since = AuditOptions(**options, since="24h")
    good = run_pipeline(AUDIT, since, directory=str(folder / "good"))
    assert good.ok, good.summary["checks"]
    assert (good.summary["messages"], good.summary["verdict"]) == (COUNT, "certified")
    assert json.loads((folder / "good" / "certificate.json").read_text())["digest"]

    with manifest.open("a") as file:
        file.write(json.dumps({"id": "never-sent", "topic": "pay"}) + "\n")
    groups = {"groups": ("nobody",)}
    made = call(place.brokers[0].address, 200, body=json.dumps({"groupName": "nobody"}).encode())
    assert made is not None
    bad = run_pipeline(AUDIT, AuditOptions(**options, **groups), directory=str(folder / "bad"))
    assert not bad.ok
    found = {check["name"]: check["exceptions"] for check in bad.summary["checks"]}
    assert (found["lost"], found["duplicates"], found["unmeant"], found["holes"]) == (1, 0, 0, 0)
    assert found["unconsumed"] == COUNT
    lines = (folder / "bad" / "exceptions.jsonl").read_text().splitlines()
    assert "never-sent" in {json.loads(line).get("id") for line in lines}


def test_traffic_of_our_servers(spark: Any, roquette: Place, tmp_path: Path) -> None:
    check_traffic(spark, roquette, tmp_path)


def test_an_audit_of_our_servers(spark: Any, roquette: Place, tmp_path: Path) -> None:
    check_audit(spark, roquette, tmp_path)


def test_both_read_a_store_without_its_broker(spark: Any, roquette: Place, tmp_path: Path) -> None:
    """One broker's files have its half of the messages, and no hole."""
    audit = AuditOptions(topics=("pay",), store=(roquette.store,))
    certified = run_pipeline(AUDIT, audit, directory=str(tmp_path / "audit"))
    traffic = TrafficOptions(store=(roquette.store,), lag=False, trace_topic="")
    seen = run_pipeline(TRAFFIC, traffic, directory=str(tmp_path / "traffic"))

    assert certified.ok
    assert 0 < certified.summary["messages"] == seen.summary["messages"] < COUNT


@pytest.mark.interop
def test_apaches_servers_are_watched_alike(spark: Any, apache: Place, tmp_path: Path) -> None:
    check_traffic(spark, apache, tmp_path / "traffic")
    check_audit(spark, apache, tmp_path / "audit")
