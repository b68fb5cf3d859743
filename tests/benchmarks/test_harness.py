"""The benchmarks start, load and report; nothing is timed here."""

import json
import shutil
from typing import Any

import pytest
from benchmarks.rows import FILL_TOPIC, ROWS, chosen

from benchmarks import against, loads, report, servers, soak


def test_row_keys_are_words_of_their_own() -> None:
    assert len({row.key for row in ROWS}) == len(ROWS)
    assert [row.key for row in chosen("raw-pull,java-push-32")] == ["raw-pull", "java-push-32"]
    with pytest.raises(SystemExit):
        chosen("nothing-like-it")


@pytest.mark.skipif(shutil.which("cc") is None, reason="the raw load needs a C compiler")
def test_the_raw_load_sends_and_drains_through_our_broker() -> None:
    settings = {"mappedFileSizeCommitLog": str(64 << 20)}
    settings["brokerFastFailureEnable"] = "false"  # beside other tests a send may wait for 200 ms
    pair = servers.start("interpreted", settings)
    try:
        servers.create_topic(pair, FILL_TOPIC)
        single = loads.raw(pair, "send", FILL_TOPIC, connections=2, inflight=4, count=800)
        batch = loads.raw(pair, "send", FILL_TOPIC, batch=32, body=1024, count=640)
        drained = loads.raw(pair, "pull", FILL_TOPIC, connections=3)
        soaked = soak.soak(pair, messages=800, step=400)
    finally:
        pair.stop()
    assert (single.errors, batch.errors, drained.errors) == (0, 0, 0), single.first_error
    assert single.messages >= 800
    assert batch.messages >= 640
    assert drained.messages == single.messages + batch.messages
    assert (soaked.messages, soaked.drained, soaked.errors) == (800, 800, 0)


def test_a_table_shows_medians_and_ratios() -> None:
    figures = {"seconds": 2.0, "p50_us": 100, "p99_us": 900, "p999_us": 990, "errors": 0}
    samples = [
        {"row": "raw-1x1-128", "kind": kind, "messages": 100_000, "cpu_s": cpu, **figures}
        for kind, cpus in {"apache": (4.0, 5.0, 9.0), "compiled": (1.0, 1.0, 8.0)}.items()
        for cpu in cpus
    ]
    results = json.loads(
        json.dumps(
            {
                "kinds": ["apache", "compiled"],
                "samples": samples,
                "facts": {"apache": {"start_s": 9.0}, "compiled": {"start_s": 0.5}},
                "micro": {"compiled": {"record encode": 0.1}},
            }
        )
    )
    header, cells = report.table_rows(results)
    assert "ratio" in header
    assert cells[0][1:4] == ["5.00", "1.00", "0.20"]
    assert report.fact_rows(results)[1][0][1:] == ["9.00", "0.50"]
    assert "| record encode | 0.10 |" in report.markdown(*report.micro_rows(results))


def test_against_an_earlier_commit_pairs_count_and_half_pairs_do_not() -> None:
    def sample(kind: str, repeat: int, cpu_s: float, messages: int = 100) -> dict[str, Any]:
        return {"row": "r", "kind": kind, "repeat": repeat, "cpu_s": cpu_s, "messages": messages}

    samples = [
        *(sample("before", 0, 2.0), sample("compiled", 0, 1.0)),
        *(sample("compiled", 1, 6.0), sample("before", 1, 4.0)),
        *(sample("before", 2, 4.0, messages=0), sample("compiled", 2, 1.0)),
    ]
    assert against.ratios(samples) == {"r": [0.5, 1.5]}


def test_micro_runs_from_any_commit_s_folder() -> None:
    figures = servers.micro("interpreted")
    assert {"frame decode, send", "send path, 128 B"} <= figures.keys()
    assert all(spent > 0 for spent in figures.values())
