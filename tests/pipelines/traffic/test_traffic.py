"""`traffic`: the answers of its queries on few messages, its page, its options."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from roquette.base.options import duration_text
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.frame import load_options
from roquette_spark.pipelines.kit.report import render
from roquette_spark.pipelines.traffic import frames as ask
from roquette_spark.pipelines.traffic.pipeline import (
    TrafficOptions,
    check,
)
from roquette_spark.pipelines.traffic.report import (
    TrafficFindings,
    fill_gaps,
    history,
    imbalance,
    last_line,
    report_of,
    summary_of,
)

BEGIN = 1_700_000_000_000


def at(ms: int) -> datetime:
    return datetime.fromtimestamp((BEGIN + ms) / 1000, UTC)


@pytest.mark.spark
def test_counts_latency_and_hot_keys(spark: Any) -> None:
    rows = [
        (
            "pay",
            "broker-a",
            n % 2,
            f"k{n % 5 if n % 2 else 0}",
            None,
            200 + n,
            at(n * 1000 - 10),
            at(n * 1000),
            "new" if n % 4 else None,
        )
        for n in range(100)
    ]
    rows.append(("log", None, 0, None, "group", 150, at(0), at(7), "paid"))
    frame = ask.slim(spark.createDataFrame(rows, ask.COLUMNS), 60).persist()

    pay, log = ask.by_topic(frame)
    assert (pay["topic"], pay["messages"], pay["bytes"], pay["largest"]) == ("pay", 100, 24950, 299)
    assert (pay["first_ms"], pay["last_ms"]) == (BEGIN, BEGIN + 99_000)
    assert [pay[f"latency_p{p}_ms"] for p in (50, 95, 99)] == [10, 10, 10]
    assert (log["messages"], log["latency_p50_ms"]) == (1, 7)
    assert [(b["broker_name"], b["messages"]) for b in ask.by_broker(frame)] == [
        ("", 1),
        ("broker-a", 100),
    ]
    assert [(q["topic"], q["queue_id"], q["messages"]) for q in ask.by_queue(frame)] == [
        ("log", 0, 1),
        ("pay", 0, 50),
        ("pay", 1, 50),
    ]
    buckets = ask.over_time(frame, ["pay"])
    assert sum(b["messages"] for b in buckets) == 100
    assert all(b["bucket_ms"] % 60_000 == 0 for b in buckets)
    hot = ask.hot_keys(frame, 2)
    assert [(h["topic"], h["key"], h["messages"]) for h in hot] == [
        ("log", "group", 1),
        ("pay", "k0", 60),
        ("pay", "k1", 10),
    ]
    assert [(t["topic"], t["tag"], t["messages"], t["bytes"]) for t in ask.by_tag(frame)] == [
        ("log", "paid", 1, 150),
        ("pay", "new", 75, 18750),
    ]
    frame.unpersist()


@pytest.mark.spark
def test_traces_become_times_from_end_to_end(spark: Any) -> None:
    """Bodies as Java's clients write them, old forms and new ones, several events in one message."""

    def event(*fields: object) -> str:
        return "\u0001".join(str(field) for field in fields) + "\u0002"

    def pub(number: int, when: int, success: str = "true") -> str:
        head = ("Pub", BEGIN + when, "Region", "PG", "pay", f"ID{number}", "tag", "key", "h:1", 5)
        return event(*head, 3 + number, 0, "OFFSETID", success)

    def consumed(
        number: int, when: int, cost: int, *, success: str = "true", request: str = "R"
    ) -> str:
        before = (
            "SubBefore",
            BEGIN + when,
            "Region",
            "CG",
            f"{request}{number}",
            f"ID{number}",
            0,
            "key",
        )
        after = (
            "SubAfter",
            f"{request}{number}",
            f"ID{number}",
            cost,
            success,
            "key",
            0,
            BEGIN + when,
            "CG",
        )
        return event(*before) + event(*after)

    old = event("Pub", BEGIN, "Region", "PG", "pay", "ID9", "", "", "h:1", 5, 2, 0, "false")
    end = event(
        "EndTransaction",
        BEGIN,
        "Region",
        "PG",
        "pay",
        "ID9",
        "",
        "",
        "h:1",
        0,
        "T",
        "COMMIT",
        "false",
    )
    bodies = [
        *(pub(0, 0) + pub(1, 100), old + end + "junk\u0002Pub\u0001x\u0002"),
        consumed(0, 40, 6),
        consumed(1, 160, 8, success="false") + consumed(1, 5160, 4, request="again"),
    ]
    events = ask.trace_events(
        spark.createDataFrame([(b, at(0)) for b in bodies], ask.TRACE_COLUMNS)
    )

    (sends,) = [row for row in ask.sends(events) if row["topic"]]
    assert (sends["topic"], sends["client_group"], sends["sends"], sends["failed"]) == (
        "pay",
        "PG",
        3,
        1,
    )
    assert sends["cost_p99_ms"] == 4
    (found,) = ask.end_to_end(events)
    assert (found["topic"], found["client_group"]) == ("pay", "CG")
    assert (found["messages"], found["deliveries"], found["failed"]) == (2, 3, 1)
    assert (found["wait_p50_ms"], found["wait_p99_ms"]) == (40, 60)
    assert found["cost_p99_ms"] == 8


def queue(topic: str, queue_id: int, messages: int) -> dict[str, Any]:
    return {"topic": topic, "broker_name": "broker-a", "queue_id": queue_id, "messages": messages}


def offset(
    queue_id: int, group: str | None, lag: int | None, consumed: int | None = None
) -> dict[str, Any]:
    place = {"topic": "pay", "broker_name": "broker-a", "queue_id": queue_id, "group": group}
    return {**place, "lag": lag, "last_consume_ms": consumed, "last_store_ms": BEGIN}


def test_empty_queues_count_in_the_balance() -> None:
    found = imbalance(
        [queue("pay", 0, 90), queue("pay", 1, 30), queue("even", 0, 5)],
        [*(offset(n, None, None) for n in range(4)), offset(9, "g", 3)],
    )

    assert [(row["topic"], row["queues"], row["empty"]) for row in found] == [
        ("pay", 4, 2),
        ("even", 1, 0),
    ]
    assert (found[0]["fullest"], found[0]["fullest_queue"], found[0]["ratio"]) == (90, 0, 3.0)


def test_a_line_does_not_cross_a_gap() -> None:
    assert fill_gaps({"a": [(0, 5), (10, 6), (50, 7), (70, 8)]}, 10) == {
        "a": [(0, 5), (10, 6), (20, 0.0), (40, 0.0), (50, 7), (60, 0.0), (70, 8)]
    }


def findings() -> TrafficFindings:
    topic = {
        "topic": "pay<b>",
        "messages": 3,
        "bytes": 900,
        "largest": 400,
        "first_ms": BEGIN,
        "last_ms": BEGIN,
    }
    times = {f"{what}_p{p}_ms": p for what in ("latency", "wait", "cost") for p in (50, 95, 99)}
    ends = {
        "topic": "pay",
        "client_group": "CG",
        "messages": 2,
        "deliveries": 3,
        "failed": 1,
        **times,
    }
    one = {"at_ms": BEGIN, "name_server": "a:1", "topic": "pay", "queues": {}, "addresses": {}}
    two = {**one, "name_server": "b:1", "queues": {"broker-a": [4, 4, 6]}}
    return TrafficFindings(
        BEGIN,
        BEGIN + 60_000,
        1000,
        topics=[topic | times],
        brokers=[{"broker_name": "", "messages": 3, **times}],
        queues=[queue("pay", 0, 3)],
        over_time=[{"topic": "pay<b>", "bucket_ms": BEGIN, "messages": 3, "bytes": 9}],
        hot_keys=[{"topic": "pay<b>", "key": "k", "messages": 2, "rank": 1}],
        tags=[
            {"topic": "pay", "tag": tag, "messages": 9, "bytes": 2048, "rank": 1} for tag in "<A"
        ],
        offsets=[offset(0, None, None), offset(0, "g", 7, BEGIN), offset(0, "h", 2)],
        sends=[{"topic": "pay", "client_group": "PG", "sends": 3, "failed": 0, **times}],
        end_to_end=[ends],
        routes=history([one, two]),
    )


def test_the_page_and_the_summary_tell_everything() -> None:
    html = render(report_of(findings()))
    summary = json.loads(json.dumps(summary_of(findings())))

    for text in (
        *("Messages over time", "Volume by topic", "From producer to broker", "Hot keys", "66.7 %"),
        *("Messages by tag", "pay: &lt;", "9, 2.0 KiB"),
        *("Balance of queues", "Lag by group and topic", "End to end", "Sends", "not yet"),
        "a:1 does not know broker-a: clients that ask there miss 4 queues",
    ):
        assert text in html
    assert "pay<b>" not in html
    assert summary["messages"] == 3
    assert [row["tag"] for row in summary["tags"]] == ["<", "A"]
    assert summary["queues"][0]["messages"] == 3
    assert summary["lag_by_group"] == {"g": 7, "h": 2}
    assert summary["routes"]["disagreements"][0]["healed_ms"] is None
    assert last_line(findings()) == (
        "3 messages in 1 topic; groups are 9 messages behind; name servers disagreed 1 time, now on 1 topic"
    )


def test_a_page_of_nothing_is_still_a_page() -> None:
    empty = TrafficFindings(BEGIN, BEGIN + 1, 1000)
    assert "Traffic" in render(report_of(empty))
    assert last_line(empty) == "nothing was found"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"since": "yesterday"}, "--since must be a time such as 30m, 24h or 7d, not 'yesterday'"),
        ({"messages": False, "lag": False}, "nothing is asked for"),
        (
            {"routes": "/nowhere/routes.jsonl"},
            "no file /nowhere/routes.jsonl: collect some with --snapshots",
        ),
    ],
)
def test_wrong_options_are_told(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        check(load_options(TrafficOptions, given, {}, where="traffic"))


def test_times_as_people_read_them() -> None:
    assert [
        duration_text(ms) for ms in (None, 12, -30, 1_500, 150_000, 8_000_000, 200_000_000)
    ] == [*("–", "12 ms", "-30 ms", "1.5 s", "2.5 min", "2.2 h", "2.3 d")]
