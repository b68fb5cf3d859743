"""`roquette top`, `events`, `bundle` and `selftest`: what they see, on written-down facts and at a `roquette dev`."""

import io
import json
import tarfile
from pathlib import Path

import pytest
from tests.admin.doctor.scripted import GROUP, TOPIC, healthy
from tests.cli.conftest import Roquette

from roquette.admin.bundle import LEFT_OUT, without_secrets
from roquette.admin.facts import ClusterFacts
from roquette.admin.top import busiest, events
from roquette.cli import looks


def test_top_tells_rates_and_lag_of_what_has_most_to_do() -> None:
    first, *rest = busiest(healthy(), healthy(60))

    assert (first.topic, first.group) == (TOPIC, GROUP)
    assert (first.in_per_s, first.out_per_s, first.lag) == (
        40.0,
        40.0,
        8,
    )  # four queues, ten a second each
    assert all(row.topic.startswith("%RETRY%") for row in rest)


def test_a_topic_that_nobody_reads_is_there_and_a_new_one_has_no_rate() -> None:
    before, now = healthy(), healthy(60)
    for facts in (before, now):
        for broker in facts.brokers:
            del broker.offsets[GROUP, TOPIC]
    before.brokers.clear()

    rows = {(row.topic, row.group): row for row in busiest(before, now)}

    assert rows[TOPIC, ""].in_per_s == 0.0
    assert rows[TOPIC, ""].lag == 0


def said(before: ClusterFacts, now: ClusterFacts) -> list[str]:
    return [f"{each.subject} {each.kind}: {each.says}" for each in events(before, now)]


def test_events_tell_who_comes_goes_takes_over_and_refuses() -> None:
    before, now = healthy(), healthy(60)
    assert said(before, now) == []
    now.brokers[0].address = "192.168.1.13:10911"
    now.brokers[1].runtime["messagesRefused"] = "the disk is full"
    now.name_servers[1].error = "connection refused"
    now.name_servers[0].drained = ["broker-b"]

    assert said(before, now) == [
        "broker broker-a is master: 192.168.1.13:10911",
        "broker broker-a left: 192.168.1.11:10911",
        "broker broker-a joined: 192.168.1.13:10911",
        "broker broker-b is drained: by a note at its name servers",
        "broker broker-b refuses messages: 192.168.1.12:10911: the disk is full",
        "name server 192.168.1.2:9876 is silent: connection refused",
    ]
    assert "broker broker-b takes messages again: 192.168.1.12:10911: the disk is full" in said(
        now, before
    )
    now.brokers[1].error = "did not answer"
    assert "broker broker-b is silent: 192.168.1.12:10911: did not answer" in said(before, now)


SECRETS = {
    "innerClientAuthenticationCredentials": '{"accessKey":"a","secretKey":"hunter2"}',
    "tls.server.keyPassword": "hunter2",
    "rocketmqToken": "hunter2",
}


def test_no_secret_is_left_in_texts() -> None:
    rows = json.dumps(
        [{"server": "a", "key": key, "value": value} for key, value in SECRETS.items()]
    )
    table = json.dumps({"runtime": SECRETS, "namesrvAddr": "http://me:hunter2@10.0.0.1/list"})
    log = """user=a secretKey=hunter2, tls.keyPassword: 'hunter2' "token": "hunter2" http://me:hunter2@h/x"""

    for text in (rows, table, log):
        assert "hunter2" not in (clean := without_secrets(text)), clean
        assert LEFT_OUT in clean
    assert (
        without_secrets("the log says nothing: 17 keys=4711")
        == "the log says nothing: 17 keys=4711"
    )
    assert '"server": "a"' in without_secrets(rows)


def test_a_bundle_has_all_and_is_its_owners_alone(roquette: Roquette, tmp_path: Path) -> None:
    log, to = tmp_path / "broker.log", tmp_path / "b.tar.gz"
    log.write_text("".join(f"line {number} secretKey=hunter2\n" for number in range(100)))

    done = roquette("bundle", str(to), "--log", str(log), "--lines", "3", "-o", "json")

    assert done.exit_code == 0, done.output
    assert to.stat().st_mode & 0o777 == 0o600
    with tarfile.open(fileobj=io.BytesIO(to.read_bytes())) as archive:
        parts = {
            entry.name.removeprefix("roquette-bundle/"): (
                archive.extractfile(entry) or io.BytesIO()
            )
            .read()
            .decode()
            for entry in archive
        }
    assert list(parts) == json.loads(done.stdout)["parts"]
    assert parts["log-1-broker.log"].splitlines() == [
        f"line {number} secretKey={LEFT_OUT}" for number in (97, 98, 99)
    ]
    assert json.loads(parts["cluster.json"])[0]["answers"] is True
    assert {"fileReservedTime", "brokerName"} <= {
        row["key"] for row in json.loads(parts["broker-config-get.json"])
    }
    assert isinstance(json.loads(parts["doctor.json"]), list)
    metrics = [text for name, text in parts.items() if name.startswith("metrics-")]
    assert len(metrics) == 2 and all("# TYPE rocketmq_" in text for text in metrics)
    again = roquette("bundle", str(to))
    assert isinstance(again.exception, FileExistsError)


def test_looks_at_a_cluster(roquette: Roquette) -> None:
    roquette("produce", "busy", "x")
    top = roquette("top", "--count", "1", "--every", "0.1", "-o", "json")
    assert top.exit_code == 0
    assert {"topic": "busy", "group": ""}.items() <= json.loads(top.stdout)[0].items()
    roquette("produce", "idle", "x")
    bounded = roquette("top", "--count", "1", "--every", "0.1", "--most", "1")
    assert (bounded.exit_code, bounded.stderr) == (0, "left out: 1 row\n")
    quiet = roquette("events", "--count", "1", "--every", "0.1", "-o", "jsonl")
    assert (quiet.exit_code, quiet.stdout) == (0, "")


def test_a_selftest_measures_disk_and_ways(
    roquette: Roquette, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "SLOW_MS", dict.fromkeys(looks.SLOW_MS, 1e6))
    done = roquette("selftest", "--dir", str(tmp_path), "--times", "5", "-o", "json")

    rows = json.loads(done.stdout)
    assert done.exit_code == 0
    assert [row["what"] for row in rows] == [
        "sync of 4 KiB",
        "write and sync of 1 MiB",
        *["question"] * 2,
    ]
    assert all(0 < row["p50_msec"] <= row["p99_msec"] <= row["most_msec"] for row in rows)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(looks, "SLOW_MS", dict.fromkeys(looks.SLOW_MS, 0.0))
    assert roquette("selftest", "--times", "2").exit_code == 10
