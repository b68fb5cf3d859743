"""Verdicts on facts that are hard to bring about, and traces as Apache's clients write them."""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tools import workspace

from roquette.admin.cluster import Holdings
from roquette.admin.explain import (
    Attempt,
    BrokerEvidence,
    MessageFacts,
    attempts_in,
    delays_ms,
    explain,
)
from roquette.message.message import MessageQueue, ReceivedMessage
from roquette.wire.bodies import ConsumerConnection, SubscriptionData
from roquette.wire.bodies.tables import SubscriptionGroupConfig, TopicConfig

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "explain.md"
SOURCE = workspace.PRODUCT / "admin" / "explain.py"
QUEUE = MessageQueue("orders", "broker-a", 3)
COPY = ReceivedMessage(
    topic="orders", queue=QUEUE, body=b"", properties={}, tag="a", keys=(), message_id="ID",
    offset_message_id="OID", queue_offset=7, physical_offset=0, born_timestamp_ms=1, store_timestamp_ms=2,
    born_host="10.0.0.9:1", store_host="10.0.1.1:10911", reconsume_times=0, flag=0, sys_flag=0, body_crc=0,
    store_size=100, prepared_offset=0,
)  # fmt: skip
TOPIC = TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4)
MEMBER = ConsumerConnection(
    subscription_table={"orders": SubscriptionData(topic="orders")}, message_model="CLUSTERING"
)


def facts(
    place: int | None,
    *copies: ReceivedMessage,
    online: Mapping[str, ConsumerConnection] = {"g": MEMBER},
    **changes: Any,
) -> MessageFacts:
    """One broker, and a group `g` that is at `place` in the queue."""
    places = {} if place is None else {("g", "orders"): {3: place}}
    holdings = Holdings({}, places, {("g", "orders")}, {}, dict(online), [], set())
    broker = BrokerEvidence(holdings, TOPIC, {}, (1_000,), 1)
    broker = dataclasses.replace(broker, **changes)
    return MessageFacts("ID", "orders", 10_000, [COPY, *copies], {"broker-a": broker})


def test_a_verdict_names_what_it_is_about() -> None:
    found = dataclasses.replace(facts(7), unreachable={"broker-b": "it does not answer"})
    verdicts = explain(found)
    assert {(each.topic, each.message) for each in verdicts} == {("orders", "ID")}
    assert [(each.code, each.group, each.broker) for each in verdicts] == [
        ("stored", "", "broker-a"),
        ("waiting", "g", "broker-a"),
        ("unknown", "", "broker-b"),
    ]


def code(found: MessageFacts) -> str:
    (verdict,) = [verdict for verdict in explain(found) if verdict.group == "g"]
    return verdict.code


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (facts(7), "waiting"),
        (facts(8), "passed"),
        (facts(None), "not-begun"),
        (facts(7, online={}), "offline"),
        (facts(8, online={}), "passed"),
        (facts(7, groups={"g": SubscriptionGroupConfig(consume_enable=False)}), "disabled"),
        (facts(7, topic=msgspec.structs.replace(TOPIC, read_queue_nums=3)), "out-of-reach"),
        (facts(7, topic=msgspec.structs.replace(TOPIC, perm=2)), "out-of-reach"),
        (dataclasses.replace(facts(8), attempts=[Attempt("g", "h", 5, 0, False)]), "handled"),
        (dataclasses.replace(facts(8), attempts=[Attempt("other", "h", 5, 0, True)]), "passed"),
    ],
)  # fmt: skip
def test_a_groups_part(found: MessageFacts, wanted: str) -> None:
    assert code(found) == wanted


def test_the_next_one_and_one_behind_others() -> None:
    assert "reads it next" in explain(facts(7))[1].says
    assert "has 5 messages before it" in explain(facts(2))[1].says


def test_retries_are_under_way_until_the_group_is_past_them() -> None:
    retry = dataclasses.replace(
        COPY, topic="%RETRY%g", queue=MessageQueue("%RETRY%g", "broker-a", 0), reconsume_times=2
    )
    found = {verdict.code: verdict for verdict in explain(facts(8, retry))}
    assert "failed 2 times, and is to get it again" in found["retrying"].says
    past = facts(8, retry)
    past.brokers["broker-a"].holdings.places["g", "%RETRY%g"] = {0: 8}
    assert "retried" in {verdict.code for verdict in explain(past)}


def test_what_was_not_asked_is_said() -> None:
    found = dataclasses.replace(facts(8), unreachable={"broker-b": "connection refused"})
    last = explain(found)[-1]
    assert (last.code, last.evidence) == ("unknown", "connection refused")
    twice = explain(facts(8, dataclasses.replace(COPY, queue_offset=9)))
    assert "several" in {verdict.code for verdict in twice}


def test_delay_levels_are_read_as_the_broker_writes_them() -> None:
    assert delays_ms("1s 5m 2h 1d x 3") == (1_000, 300_000, 7_200_000, 86_400_000, 0, 0)


def test_traces() -> None:
    def record(*fields: object) -> str:
        return "\x01".join(map(str, fields)) + "\x02"

    before = record("SubBefore", 5, "R", "g", "req", "ID", 1, "null")
    after = record("SubAfter", "req", "ID", 3, "true", "null", 0, 8, "g")
    other = record("SubBefore", 4, "R", "g", "req2", "OTHER", 0, "null")
    broken = record("SubBefore", "x", "R", "g", "req3", "ID", 0, "null") + "SubAfter\x01req\x02"
    assert attempts_in([(before + other + broken, "h1")], "ID") == [Attempt("g", "h1", 5, 1, None)]
    assert attempts_in([(before, "h1"), (after, "h1")], "ID") == [Attempt("g", "h1", 5, 1, True)]


def test_the_page_lists_every_verdict() -> None:
    rows = re.findall(r"^\| ([a-z, -]+) \| ", PAGE.read_text(), re.M)
    listed = {code for row in rows for code in row.split(", ")} - {"verdict"}
    source = SOURCE.read_text()
    codes = set(re.findall(r'MessageVerdict\(\s*"([a-z-]+)"', source))
    assert listed == codes | {"filtered-by-tag", "filtered-by-sql"}
