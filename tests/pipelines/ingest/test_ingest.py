"""Events as messages, and what a run refuses; no Java here."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from roquette.errors import ClientError, ConfigError, MessageIllegal
from roquette_spark.pipelines.ingest.debezium import DatabaseEvent
from roquette_spark.pipelines.ingest.pipeline import IngestOptions, Topics, message_of, plan


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        ('{"id":7}', ("7",)),
        ('{"shop":"a","id":7}', ("a|7",)),
        ('{"schema":{"type":"struct"},"payload":{"id":7}}', ("7",)),
        ('{"id":1,"payload":2}', ("1|2",)),
        ('{"name":"two words"}', ()),
        (f'{{"name":"{"x" * 201}"}}', ()),
        (None, ()),
    ],
)
def test_a_message_is_found_by_the_values_of_its_key_and_keeps_their_order(
    key: str | None, keys: tuple[str, ...]
) -> None:
    found = message_of(DatabaseEvent("shop.public.orders", key, "{}"))
    assert (found.topic, found.keys, found.shard_key) == (
        "shop-public-orders", keys, key or "shop-public-orders",
    )  # fmt: skip


class Broker:
    """Refuses as often as it is told, then takes all."""

    def __init__(self, *refusals: ClientError) -> None:
        self.refusals, self.taken = list(refusals), list[str]()

    def send_batch(self, topic: str, messages: list[Any]) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.taken += [f"{topic}:{each.body.decode()}" for each in messages]


def topics_at(broker: Broker, *, stopped: bool = False) -> Topics:
    progress = SimpleNamespace(update=lambda done: None, say=lambda text: None)
    stop = SimpleNamespace(wait=lambda seconds: stopped)
    client: Any = broker
    job: Any = SimpleNamespace(progress=progress, stop=stop)
    return Topics(client, job)


def test_a_broker_that_is_away_is_waited_for_until_the_run_is_stopped() -> None:
    events = [DatabaseEvent("s.a", None, "1"), DatabaseEvent("s.b", None, "2")]
    away = Broker(ClientError("away"), ClientError("away"))
    topics = topics_at(away)
    topics.take(events)
    assert away.taken == ["s-a:1", "s-b:2"] and topics.sent == {"s-a": 1, "s-b": 1}
    with pytest.raises(ClientError):
        topics_at(Broker(ClientError("away")), stopped=True).take(events)
    with pytest.raises(MessageIllegal, match=r"ingest: an event of s\.a: too large"):
        topics_at(Broker(MessageIllegal("too large"))).take(events)


def test_two_tables_of_one_topic_are_refused() -> None:
    topics = topics_at(Broker())
    topics.take([DatabaseEvent("s.a.b", None, "1")])
    with pytest.raises(ConfigError, match=r"s\.a\.b and s\.a-b are both topic s-a-b"):
        topics.take([DatabaseEvent("s.a-b", None, "1")])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read"),
        ("topic.prefix=shop\n", "has no connector.class"),
        ("connector.class=x\n", "has no topic.prefix"),
        ("connector.class=x\ntopic.prefix=s\noffset.storage=y\n", "give one"),
        ("connector.class=x\ntopic.prefix=s\nheartbeat.interval.ms=0\n", "milliseconds above 0"),
    ],
)
def test_properties_that_cannot_be_right_are_refused(
    tmp_path: Path, text: str | None, words: str
) -> None:
    path = tmp_path / "shop.properties"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        plan(IngestOptions(debezium=str(path), offsets=str(tmp_path / "offsets")))
