"""What a broker shows at /metrics, in which slices, and when it says that it is not well."""

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.broker.conftest import send_ext
from tests.broker.pop_frames import pop
from tests.broker.test_replica_gate import SYNC_MASTER
from tests.broker.test_transactions import COMMIT, ROLLBACK, end, prepare
from tests.exposition import Sample, read_exposition

from roquette import __version__
from roquette.base.files import OsFiles
from roquette.base.metric_families import FAMILIES
from roquette.broker.operation.metrics import AT_ONCE, KEPT, LagTimes, MetricsFeature
from roquette.nameserver.floor.config import NamesrvConfig
from roquette.nameserver.service import NameServer
from roquette.remoting.account import WAITING
from roquette.remoting.pem import Authority, CertificateEnds
from roquette.remoting.settings import DoorSettings, Protection
from roquette.store.upkeep.retention import LogState

HOST = "10.0.0.1"
ON = {"metrics_listen": f"{HOST}:5557"}
BOARD = """rocketmq_broker_tps rocketmq_broker_qps rocketmq_consumer_offset rocketmq_consumer_message_size
    rocketmq_producer_offset rocketmq_consumer_tps rocketmq_producer_message_size rocketmq_producer_tps
    rocketmq_group_get_latency_by_storetime"""  # of rocketmq-exporter's board, Grafana 10477
MANY = re.compile("_task_|_dropped$|_watermark$|_refusals_")
KAFKA = "kafka_consumergroup_lag kafka_consumergroup_current_offset"


async def get(path: str) -> tuple[int, str]:
    """Status and text of a page."""
    reader, writer = await asyncio.open_connection(HOST, 5557)
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body.decode()


async def scrape() -> dict[str, list[Sample]]:
    """Samples by name."""
    status, text = await get("/metrics")
    assert status == 200
    found: dict[str, list[Sample]] = {}
    for sample in read_exposition(text):
        found.setdefault(sample.name, []).append(sample)
    return found


def value(found: dict[str, list[Sample]], name: str, **labels: str) -> float:
    """Of the one sample with these labels."""
    fit = [s for s in found[name] if labels.items() <= s.labels.items()]
    assert len(fit) == 1, (name, labels, fit)
    return float(fit[0].value)


async def use(case: Any, topic: str = "T", sent: int = 5, committed: int = 2) -> Any:
    """Messages are sent to queue 0, pulled, and some of them committed."""
    client = await case.client()
    for _ in range(sent):
        await client.produce(topic)
    await client.pull(topic)
    offset = {"consumerGroup": "g", "topic": topic, "queueId": 0, "commitOffset": committed}
    await client.call(15, offset)
    return client


def test_boards_find_their_names_and_the_figures_are_right(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        await use(case)
        await asyncio.sleep(25)
        found = await scrape()
        for name in f"{BOARD} {KAFKA}".split():
            assert found[name], name
        assert set(found["rocketmq_producer_offset"][0].labels) == {"cluster", "broker", "topic"}
        group = {"topic": "T", "consumer_group": "g"}
        assert value(found, "rocketmq_messages_in_total", topic="T") == 5
        assert value(found, "rocketmq_messages_out_total", **group) == 5
        assert value(found, "rocketmq_consumer_lag_messages", **group) == 3
        assert value(found, "rocketmq_consumer_offset", topic="T", group="g") == 2
        assert value(found, "kafka_consumergroup_lag", consumergroup="g", topic="T") == 3
        assert 10_000 < value(found, "rocketmq_consumer_lag_latency", **group) < 40_000
        assert value(found, "rocketmq_metrics_series_dropped", metric="") == 0
        assert value(found, "rocketmq_fsync_seconds_count") > 0
        for name in found:
            assert name.removesuffix("_sum").removesuffix("_count") in FAMILIES

    run_broker(scenario, broker=ON)


def test_what_is_kept_for_peers_is_shown_with_its_bounds(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        case.broker.core.tables.topics.ensure("T", queues=4, perm=6, now_ms=0)
        client.send(310, send_ext("T"), bytes(5_000))  # no replica is there
        await asyncio.sleep(2)
        found = await scrape()
        assert value(found, "rocketmq_waiting_send_bytes") == WAITING + 5_000
        assert value(found, "rocketmq_waiting_send_bytes_limit") == 256 << 20
        assert WAITING < value(found, "rocketmq_kept_bytes") < 5_000
        assert value(found, "rocketmq_kept_bytes_limit") == 512 << 20
        case.broker.core.log_sync.replicated(1 << 40)
        assert (await client.receive()).code == 0
        found = await scrape()
        assert not value(found, "rocketmq_waiting_send_bytes")
        assert not value(found, "rocketmq_kept_bytes")

    run_broker(scenario, broker=ON | SYNC_MASTER | {"slave_timeout": 9_000})


def test_what_a_broker_is_and_refuses_is_shown(run_broker: Any) -> None:
    """Before: none of these series."""

    async def scenario(case: Any) -> None:
        client = await use(case)
        core = case.broker.core
        found = await scrape()
        assert value(found, "rocketmq_broker_role", broker="broker-a", role="master") == 1
        assert value(found, "rocketmq_broker_role", broker="broker-a", role="replica") == 0
        assert value(found, "rocketmq_broker_connections") == 1
        assert value(found, "rocketmq_time_seconds") == pytest.approx(case.clock.now_ms() / 1000, abs=1)  # fmt: skip
        assert value(found, "rocketmq_build_info", version=__version__) == 1
        assert value(found, "process_open_fds") < value(found, "process_max_fds")
        assert value(found, "process_resident_memory_bytes") > 1 << 20
        assert 0 < value(found, "process_cpu_seconds_total") < time.monotonic()
        assert abs(value(found, "process_start_time_seconds") - time.time()) < 86_400
        assert not any(sample.value for sample in found["rocketmq_refusals_total"])
        assert "rocketmq_follows_connected" not in found and "rocketmq_group_epoch" not in found

        await client.call(9_999, {})
        core.live.bounds.topics.most = 0
        await client.produce("another")
        odd = (await asyncio.open_connection(HOST, case.broker.core.address.port))[1]
        odd.write(b"\xff" * 20)
        core.access.audit.unproven("eve", 10, "10.6.6.6", "the signature is wrong")
        core.access.audit.refused("alice", 10, None, "10.6.6.6", "no policy matches")
        await asyncio.sleep(1)
        found = await scrape()
        kinds = {s.labels["kind"]: s.value for s in found["rocketmq_refusals_total"]}
        wanted = {
            "unsupported": 1,
            "protocol": 1,
            "unproven": 1,
            "denied": 1,
            "names": kinds["names"],
        }
        assert kinds == dict.fromkeys(("busy", "tls", "connections"), 0) | wanted
        assert kinds["names"] > 0

    door = Protection(door=DoorSettings())
    run_broker(scenario, broker=ON, protection=door)


def test_registration_at_each_name_server_is_shown(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        found = await scrape()
        server = {"namesrv": "10.0.0.7:9876"}
        assert value(found, "rocketmq_registered", **server) == 0
        names = NameServer(NamesrvConfig(), files=OsFiles(), clock=case.clock)
        await names.start("10.0.0.7", 9876)
        await asyncio.sleep(30)
        found = await scrape()
        assert value(found, "rocketmq_registered", **server) == value(found, "rocketmq_ready") == 1
        case.broker.store.send_refusal = "the disk is full"
        assert value(await scrape(), "rocketmq_ready") == 0
        await names.stop()
        await asyncio.sleep(40)
        assert value(await scrape(), "rocketmq_registered", **server) == 0

    run_broker(scenario, broker=ON | {"namesrv_addr": "10.0.0.7:9876"})


def test_the_ends_of_certificates_follow_their_files(run_broker: Any, tmp_path: Path) -> None:
    """The first of a pair's chain ends it; of authorities the last; of a file that cannot be read what was known."""
    now_ms, pair, trust = 1_700_000_000_000, tmp_path / "pair.pem", tmp_path / "ca.pem"
    short, long = (Authority("ours", now_ms, days) for days in (10, 90))
    both = short.server(["a"])["cert"] + long.pem["cert"]
    pair.write_bytes(both)
    trust.write_bytes(both)
    missing = str(tmp_path / "none.pem")
    ends = CertificateEnds(
        {"tls.server.certPath": str(pair), "tls.server.trustCertPath": str(trust),
         "tls.client.certPath": missing, "tls.client.trustCertPath": ""}
    )  # fmt: skip

    async def days() -> dict[str, float]:
        found = (await scrape())["rocketmq_certificate_end_seconds"]
        return {s.labels["file"]: (s.value - now_ms / 1000) / 86_400 for s in found}

    async def scenario(case: Any) -> None:
        assert await days() == {"tls.server.certPath": 10, "tls.server.trustCertPath": 90}
        pair.write_bytes(long.server(["a"])["cert"])
        trust.write_bytes(b"nothing")
        await asyncio.sleep(61)
        assert await days() == {"tls.server.certPath": 90, "tls.server.trustCertPath": 90}

    run_broker(scenario, broker=ON, protection=Protection(ends=ends))


@pytest.mark.parametrize(
    ("full_free", "room"), [(0, 5 << 30), (16 << 30, 5 << 30), (4 << 30, 11 << 30)]
)
def test_the_room_of_a_disk_ends_where_messages_are_refused(
    run_broker: Any, full_free: int, room: int
) -> None:
    """100 GiB, 15 of them free: 5 up to 90 %; and where that is later, up to diskFullFreeBytes."""

    async def scenario(case: Any) -> None:
        guard = case.broker.store.disk
        guard.check((100 << 30, 15 << 30), None, LogState(1), 0)
        found = await scrape()
        assert value(found, "rocketmq_disk_room_bytes", disk="root") == room
        guard.check((100 << 30, (15 << 30) - room - (1 << 20)), None, LogState(1), 0)
        assert value(await scrape(), "rocketmq_disk_room_bytes", disk="log") == -(1 << 20)
        assert guard.refusal is not None
        guard.check((100 << 30, (15 << 30) - room), None, LogState(1), 0)
        assert guard.refusal is None

    run_broker(scenario, broker=ON, store={"disk_full_free": full_free})


def test_each_queue_is_shown_where_that_is_wanted(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        await use(case)
        found = await scrape()
        queue = {"topic": "T", "partition": "0"}
        assert value(found, "kafka_consumergroup_lag", consumergroup="g", **queue) == 3
        assert value(found, "kafka_topic_partition_current_offset", **queue) == 5

    run_broker(scenario, broker={**ON, "metrics_per_queue": True})


def test_what_is_left_out_is_told(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        for number in range(20):
            await client.produce(f"T{number}")
        found = await scrape()
        assert len(found["rocketmq_topic_number"]) == 1
        assert max(len(found[name]) for name in found if not MANY.search(name)) <= 3
        left = value(found, "rocketmq_metrics_series_dropped", metric="rocketmq_producer_offset")
        assert left >= 20

    run_broker(scenario, broker={**ON, "metrics_max_series": 3})


def test_of_many_topics_and_groups_those_metrics_are_shown_that_matter_most(
    run_broker: Any,
) -> None:
    async def scenario(case: Any) -> None:
        await use(case)
        core, now_ms = case.broker.core, case.broker.core.clock.now_ms()
        for number in range(700):
            name = f"T{number}"
            topic = core.tables.topics.ensure(name, queues=4, perm=6, now_ms=now_ms)
            topic.put_count += 1
            core.tables.offsets.commit("g", name, 0, 0, now_ms)
            core.stats.group_get(name, "g", 1, 100)
        await asyncio.sleep(25)
        _, text = await get("/metrics")
        families = {each.name: each for each in text_string_to_metric_families(text)}
        assert sum(len(each.samples) for each in families.values()) <= 2_000
        assert len(families["rocketmq_consumer_lag_messages"].samples) == 701
        assert len(families["rocketmq_messages_in"].samples) == 701
        assert families["rocketmq_task_failures"].samples
        found = await scrape()
        left = {s.labels["metric"]: s.value for s in found["rocketmq_metrics_series_dropped"]}
        assert "rocketmq_consumer_lag_messages" not in left
        assert left["kafka_consumergroup_lag"] == left["rocketmq_group_diff"] == 701
        part = len(found["rocketmq_consumer_lag_latency"])
        assert 300 < part < 701
        assert left["rocketmq_consumer_lag_latency"] == 701 - part
        assert left[""] == sum(count for name, count in left.items() if name)

    run_broker(scenario, broker={**ON, "metrics_max_samples": 2_000})


def test_rates_without_a_counter_are_left_out_and_told(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        await use(case)
        await asyncio.sleep(25)
        items = case.broker.core.items
        items._capacity = len(items)
        await use(case, "U")
        await asyncio.sleep(25)
        found = await scrape()
        assert {s.labels["topic"] for s in found["rocketmq_producer_tps"]} == {"T"}
        assert value(found, "rocketmq_messages_in_total", topic="U") == 5
        left = "rocketmq_metrics_series_dropped"
        assert value(found, left, metric="rocketmq_producer_tps") == 1
        assert value(found, left, metric="rocketmq_consumer_tps") == 1

    run_broker(scenario, broker=ON)


def test_prometheus_own_parser_takes_it(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        await use(case)
        _, text = await get("/metrics")
        families = list(text_string_to_metric_families(text))
        assert all(each.documentation and each.type != "unknown" for each in families)
        assert sum(len(each.samples) for each in families) == len(read_exposition(text))

    run_broker(scenario, broker=ON)


def test_names_of_any_kind_are_escaped(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        tables = case.broker.core.tables
        await use(case)
        tables.offsets.commit('a"b\\c\nd', "T", 0, 1)
        found = await scrape()
        assert value(found, "rocketmq_consumer_offset", group='a"b\\c\nd') == 1

    run_broker(scenario, broker=ON)


def test_no_slice_looks_at_more_than_some_queues_and_no_record_is_read(
    run_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        for number in range(300):
            topic = {"topic": f"T{number}", "defaultTopic": "TBW102", "readQueueNums": 16,
                     "writeQueueNums": 16, "perm": 6, "topicFilterType": "SINGLE_TAG",
                     "topicSysFlag": 0, "order": "false"}  # fmt: skip
            await client.call(17, topic)
            await client.produce(f"T{number}")
            case.broker.core.tables.offsets.commit("g", f"T{number}", 0, 0)
        looks = 0
        store = case.broker.core.store
        of_queue = type(store).max_offset

        def count(self: Any, topic: str, queue: int) -> int:
            nonlocal looks
            looks += 1
            return int(of_queue(self, topic, queue))

        def refuse(*args: Any) -> None:
            raise AssertionError("a scrape reads no record")

        monkeypatch.setattr(type(store), "max_offset", count)
        for name in ("store_time", "read_queue", "earliest_store_time"):
            monkeypatch.setattr(type(store), name, refuse)
        pieces = samples = 0
        for piece in case.broker.feature(MetricsFeature)._scrape():
            assert looks <= AT_ONCE + 1
            lines = [line for line in piece.splitlines() if not line.startswith(b"#")]
            assert len(lines) <= 250
            looks, pieces, samples = 0, pieces + 1, samples + len(lines)
        assert samples > 300 * 5
        assert pieces > 300 * 16 // AT_ONCE + samples // 250

    run_broker(scenario, broker=ON)


def test_health_is_that_of_the_tasks_and_readiness_that_of_the_store(run_broker: Any) -> None:
    def fails() -> None:
        raise RuntimeError("no luck")

    async def scenario(case: Any) -> None:
        assert await get("/healthz") == (200, "ok\n")
        status, why = await get("/readyz")  # where it is registered: simulation/test_missing.py
        assert (status, why[:21]) == (503, "namesrvAddr is empty:")
        case.broker.store.send_refusal = "the disk is full"
        assert await get("/healthz") == (200, "ok\n")
        assert await get("/readyz") == (503, "it refuses messages: the disk is full\n")
        case.broker.store.send_refusal = None
        case.broker.tasks.every("unlucky", 1.0, fails)
        await asyncio.sleep(10)
        status, why = await get("/healthz")
        assert status == 503
        assert "task unlucky failed" in why
        assert "no luck" in why
        found = await scrape()
        assert value(found, "rocketmq_task_failures_in_row", task="unlucky") >= 3

    run_broker(scenario, broker=ON)


def test_apaches_keys_open_the_port_as_well(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        assert (await get("/metrics"))[0] == 200

    keys = {"metrics_exporter_type": "PROM", "metrics_prom_exporter_host": "10.0.0.1"}
    run_broker(scenario, broker=keys)


def test_the_age_of_a_lag_comes_from_ends_seen_before() -> None:
    times = LagTimes()
    assert times.behind_ms("T", 1, 2, 0) is None
    for step in range(100):
        times.note("T", step * 10, step * 10_000)
    now_ms = 1_000_000
    assert times.behind_ms("T", 990, 990, now_ms) == 0
    assert times.behind_ms("T", 985, 990, now_ms) == 1_000_000 - 990_000
    old = times.behind_ms("T", 0, 990, now_ms)
    assert old is not None
    assert 600_000 <= old <= now_ms
    middle = times.behind_ms("T", 500, 990, now_ms)
    assert middle is not None
    assert 200_000 <= middle <= 500_000
    assert max(len(part) for part in times._ends["T"]) <= KEPT
    times.note("T", 3, now_ms)  # its queues were made again
    assert times.behind_ms("T", 3, 5, now_ms) == 0
    times.forget("T")
    assert len(times) == 0


@pytest.mark.parametrize("order", ["false", "true"])
def test_what_pop_groups_hold_is_in_flight(run_broker: Any, order: str) -> None:
    """Before: 0 of them, and no lag, since a pop moves the group's offset at once."""

    async def scenario(case: Any) -> None:
        client = await use(case, "Popped")
        fields = {"consumerGroup": "held", "topic": "Popped", "queueId": 0, "order": order}
        more = {"invisibleTime": 600_000, "maxMsgNums": 3}
        first, *_ = await pop(case, client, **fields, **more)

        async def figures() -> list[float]:
            found = await scrape()
            group = {"topic": "Popped", "consumer_group": "held"}
            names = ("lag", "inflight", "ready")
            return [value(found, f"rocketmq_consumer_{name}_messages", **group) for name in names]

        assert await figures() == [5, 3, 2]
        assert (await client.call(200_051, first.ack_ext("held"))).code == 0
        assert await figures() == [4, 2, 2]

    run_broker(scenario, broker=ON)


def test_transactions_timers_and_pops_under_apaches_names(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await use(case)
        halves = [await prepare(case, client, f"k{number}") for number in range(5)]
        await end(client, halves[0], COMMIT)
        await end(client, halves[1], COMMIT)
        await end(client, halves[2], ROLLBACK)
        for key, delay_ms in (("soon", 2_000), ("late", 3_600_000), ("later", 7_200_000)):
            named = {"UNIQ_KEY": key, "TIMER_DELAY_MS": str(delay_ms)}
            await client.produce("Timed", properties=named)
        await use(case, "Popped")
        more = {"topic": "Popped", "queueId": 0}
        assert len(await pop(case, client, consumerGroup="lost", invisibleTime=5_000, **more)) == 5
        assert (
            len(await pop(case, client, consumerGroup="slow", invisibleTime=600_000, **more)) == 5
        )
        await asyncio.sleep(15)

        found = await scrape()
        assert value(found, "rocketmq_half_messages", node_type="broker") == 2
        assert value(found, "rocketmq_commit_messages_total") == 2
        assert value(found, "rocketmq_rollback_messages_total") == 1
        assert value(found, "rocketmq_timing_messages", topic="Timed") == 2
        assert value(found, "rocketmq_timer_enqueue_lag") == 0
        assert value(found, "rocketmq_timer_enqueue_total") == 3
        assert value(found, "rocketmq_timer_dequeue_total") == 1
        assert value(found, "rocketmq_timer_dequeue_latency") < 2_000
        assert value(found, "rocketmq_pop_revive_retry_messages_total") == 5
        assert value(found, "rocketmq_pop_revive_lag") == 0
        assert value(found, "rocketmq_pop_checkpoint_buffer_size") == 1

    run_broker(scenario, broker=ON)
