"""What a question costs in a cluster of 100 brokers, 5,000 topics and 2,000 groups: requests and steps, counted."""

import dataclasses
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from tests.admin.explain.test_pure_verdicts import COPY, MEMBER

from roquette.admin import catalogue
from roquette.admin.catalogue import list_clients
from roquette.admin.explain import SEARCHED_AT_ONCE, SearchTooLarge, collect
from roquette.client.calls import AT_ONCE, Answer, Ask, Operation
from roquette.message.message import MessageQueue
from roquette.wire.bodies import (
    BrokerData,
    ClusterInfo,
    OffsetWrapper,
    QueueData,
    TopicConfig,
    TopicOffset,
    TopicRouteData,
)
from roquette.wire.bodies.clients import ProducerTableInfo
from roquette.wire.bodies.progress import (
    ConsumeStats,
    DelayOffsetSerializeWrapper,
    TopicStatsTable,
)
from roquette.wire.bodies.tables import SubscriptionGroupConfig
from roquette.wire.codes import RequestCode as R
from roquette.wire.header_codec import ext_dict

BROKERS, TOPICS, GROUPS, EACH, PAGE = 100, 5_000, 2_000, 4, 50
NAMES = [f"broker-{number:02}" for number in range(BROKERS)]
ADDRESSES = {f"10.0.0.{number}:10911": name for number, name in enumerate(NAMES)}
WANTED = 4_711  # the topic that has the message, on four brokers as each of them


def topic(number: int) -> str:
    return f"topic-{number:04}"


def brokers_of(name: str) -> list[str]:
    first = int(name.rpartition("-")[2])
    return [NAMES[(first + step) % BROKERS] for step in range(EACH)]


def readers(name: str) -> list[str]:
    """Each group reads two or three topics."""
    return [f"group-{int(name.rpartition('-')[2]) % GROUPS:04}"]


ON = {name: [t for t in map(topic, range(TOPICS)) if name in brokers_of(t)] for name in NAMES}
GROUP_NAMES = [f"group-{number:04}" for number in range(GROUPS)]
CONFIGS = {name: SubscriptionGroupConfig(group_name=name) for name in GROUP_NAMES}
CLUSTER = ClusterInfo(
    {name: BrokerData("C", name, {0: address}) for address, name in ADDRESSES.items()},
    {"C": NAMES},
)


def route(name: str) -> TopicRouteData:
    by_name = {name: address for address, name in ADDRESSES.items()}
    return TopicRouteData(
        queue_datas=[QueueData(broker, EACH, EACH, 6) for broker in brokers_of(name)],
        broker_datas=[BrokerData("C", b, {0: by_name[b]}) for b in brokers_of(name)],
    )


FOUND = dataclasses.replace(
    COPY,
    topic=topic(WANTED),
    queue=MessageQueue(topic(WANTED), brokers_of(topic(WANTED))[0], 3),
    message_id="0A" * 16,
)


def found(broker: str, ext: dict[str, str]) -> list[Any]:
    return [FOUND] if ext["topic"] == FOUND.topic and broker == FOUND.queue.broker_name else []


def stats(broker: str, ext: dict[str, str]) -> ConsumeStats:
    name = topic(int(ext["consumerGroup"].rpartition("-")[2]))
    here = broker in brokers_of(name)
    table = {MessageQueue(name, broker, 0): OffsetWrapper(9, 4)} if here else {}
    return ConsumeStats(table, 0.5 * here)


def places(broker: str, ext: dict[str, str]) -> dict[tuple[str, str], dict[int, int]]:
    return {(group, name): {0: 4} for name in ON[broker] for group in readers(name)}


ANSWERS: dict[int, Callable[[str, dict[str, str]], Any]] = {
    R.GET_BROKER_CLUSTER_INFO: lambda broker, ext: CLUSTER,
    R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: lambda broker, ext: list(map(topic, range(TOPICS))),
    R.GET_ROUTEINFO_BY_TOPIC: lambda broker, ext: route(ext["topic"]),
    R.GET_TOPIC_STATS_INFO: lambda broker, ext: TopicStatsTable(
        {MessageQueue(ext["topic"], broker, queue): TopicOffset(2, 9, 5) for queue in range(EACH)},
        0.5,
    ),
    R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: lambda broker, ext: CONFIGS,
    R.GET_CONSUMER_CONNECTION_LIST: lambda broker, ext: MEMBER,
    R.GET_CONSUME_STATS: stats,
    R.GET_ALL_PRODUCER_INFO: lambda broker, ext: ProducerTableInfo(),
    R.GET_ALL_TOPIC_CONFIG: lambda broker, ext: ON[broker],
    R.QUERY_MESSAGE: found,
    R.VIEW_MESSAGE_BY_ID: lambda broker, ext: None,
    R.GET_ALL_CONSUMER_OFFSET: places,
    R.QUERY_TOPIC_CONSUME_BY_WHO: lambda broker, ext: readers(ext["topic"]),
    R.GET_ALL_DELAY_OFFSET: lambda broker, ext: DelayOffsetSerializeWrapper(),
    R.GET_BROKER_RUNTIME_INFO: lambda broker, ext: {},
    R.GET_TIMER_METRICS: lambda broker, ext: {},
    R.GET_TOPIC_CONFIG: lambda broker, ext: TopicConfig(ext["topic"], EACH, EACH),
    R.GET_BROKER_CONFIG: lambda broker, ext: {},
}


class Cost(NamedTuple):
    """Requests by code; `largest`: of one step. `at_one`: at the broker that is asked most."""

    result: Any
    requests: Counter[str]
    steps: int
    largest: int
    at_one: int

    @property
    def total(self) -> int:
        return self.requests.total()


def cost(operation: Operation[Any]) -> Cost:
    requests: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    steps = largest = 0
    told: list[Answer[Any]] | None = None
    while True:
        try:
            asks: list[Ask] = operation.send(told)  # type: ignore[arg-type]
        except StopIteration as end:
            return Cost(end.value, requests, steps, largest, max(asked.values(), default=0))
        steps += 1
        largest = max(largest, len(asks))
        told = []
        for address, call in asks:
            requests[R(call.code).name] += 1
            if address:
                asked[address] += 1
            value = ANSWERS[call.code](
                ADDRESSES.get(address, ""), ext_dict(call.ext) if call.ext else {}
            )
            told.append(Answer(address, value))


def test_names_and_a_page_of_topics() -> None:
    names = cost(catalogue.topics())
    assert (names.total, names.steps) == (2, 2)
    shown, more = names.result.page(limit=PAGE)
    assert (len(shown), more) == (PAGE, TOPICS - PAGE)
    assert names.result.page("TOPIC-47", 3)[0] == ["topic-4700", "topic-4701", "topic-4702"]
    rows = cost(catalogue.topic_rows(shown))
    assert (rows.total, rows.steps) == (PAGE + PAGE * EACH, 2)
    assert rows.result[0] == catalogue.TopicRow(shown[0], 4, 16, 16, "RW-", 4 * 4 * 7, 5, 2.0)


def test_a_search_of_60_000_names_takes_25_ms() -> None:
    all_names = sorted(f"Team-{number % 97}.Orders-{number}" for number in range(60_000))
    names = catalogue.Names({catalogue.OWN: all_names[::2], catalogue.RETRIES: all_names[1::2]})
    for word in ("", "orders-59", "nowhere"):
        took = []
        for _ in range(5):
            begun = time.process_time()
            names.page(word, PAGE, None)
            took.append(time.process_time() - begun)
        assert min(took) <= 0.025, word


def test_a_page_of_topics_asks_400_times_and_names_those_on_too_many_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wide = {topic(number) for number in range(PAGE - 5, PAGE)}
    few = brokers_of
    monkeypatch.setattr(
        sys.modules[__name__], "brokers_of", lambda name: NAMES if name in wide else few(name)
    )
    rows = cost(catalogue.topic_rows([topic(number) for number in range(PAGE)]))
    assert rows.total == PAGE + (PAGE - 5) * EACH + BROKERS <= catalogue.MOST_ASKED
    told = {row.topic for row in rows.result if row.messages == len(few(row.topic)) * EACH * 7}
    assert len(told) == PAGE - 5
    left_out = [row for row in rows.result if row.messages < 0]
    assert len(left_out) == 4 and {row.brokers for row in left_out} == {BROKERS}
    name = left_out[0].topic
    said = f"on 100 brokers, too many for a list: roquette topic describe {name}"
    assert (left_out[0].last_ms, left_out[0].in_tps, left_out[0].error) == (-1, -1.0, said)
    assert cost(catalogue.topic_rows(sorted(wide), most=None)).total == 5 + 5 * BROKERS


def test_names_and_a_page_of_groups() -> None:
    names = cost(catalogue.groups())
    assert (names.total, names.steps) == (1 + BROKERS, 2)
    shown, more = names.result.page(limit=PAGE)
    assert (len(shown), more) == (PAGE, GROUPS - PAGE)
    rows = cost(catalogue.group_rows(shown, names.result, most=None))
    assert rows.total == PAGE * BROKERS * 2 + PAGE * EACH
    assert rows.steps == 3 and rows.at_one <= 3 * PAGE
    assert [row.lag for row in rows.result] == [EACH * 5] * PAGE
    assert {row.out_tps for row in rows.result} == {EACH * 0.5}


def test_a_page_of_groups_asks_400_times_and_names_those_on_too_many_brokers() -> None:
    names = cost(catalogue.groups()).result
    shown = names.page(limit=PAGE)[0]
    for name in shown[:-2]:  # the last two are known to 100 masters
        places = [
            place
            for place in names.places[name]
            if place[0] in brokers_of(topic(int(name.rpartition("-")[2])))
        ]
        names.places[name] = places[:4]
    rows = cost(catalogue.group_rows(shown, names))
    assert rows.total <= catalogue.MOST_ASKED
    assert [row.group for row in rows.result if row.members < 0] == shown[-2:]
    last = rows.result[-1]
    assert (last.topics, last.lag, last.out_tps) == (-1, -1, -1.0)
    assert last.error == f"on 100 brokers, too many for a list: roquette group lag {last.group}"
    assert [row.lag for row in rows.result[:4]] == [EACH * 5] * 4
    assert rows.result[4].lag == -1 and "in more topics than fit" in rows.result[4].error


def test_a_page_of_clients() -> None:
    clients = cost(list_clients(limit=PAGE))
    assert clients.total == 2 + BROKERS + PAGE * BROKERS + BROKERS
    assert clients.steps == 5
    assert clients.result.more == GROUPS - PAGE


def test_what_became_of_a_message_of_a_topic() -> None:
    told = cost(collect(FOUND.message_id, topic(WANTED), 0))
    assert [facts.topic for facts in told.result] == [topic(WANTED)]
    assert told.at_one <= 30 and told.total <= 30 * BROKERS
    assert told.steps <= 20
    assert told.requests["GET_CONSUMER_CONNECTION_LIST"] <= BROKERS


def test_what_became_of_a_message_of_any_topic() -> None:
    sentences: list[str] = []
    told = cost(collect(FOUND.message_id, None, 0, sentences.append))
    assert [facts.topic for facts in told.result] == [topic(WANTED)]
    assert told.total <= TOPICS * EACH + 30 * BROKERS
    assert told.steps <= 20 + TOPICS * EACH // SEARCHED_AT_ONCE
    assert told.largest <= AT_ONCE
    assert sentences[-1] == "looked at 4,608 of 5,000 topics"


def test_a_search_of_all_topics_may_be_refused_before_it_begins() -> None:
    with pytest.raises(SearchTooLarge, match="5,000 topics would have to be looked through"):
        cost(collect(FOUND.message_id, None, 0, most=400))


def test_only_brokers_of_the_cluster_are_asked_for_what_an_id_names() -> None:
    stranger = "0A00F00D00000050" + "00" * 8  # 10.0.240.13, port 80
    told = cost(collect(stranger, topic(WANTED), 0))
    assert told.requests["VIEW_MESSAGE_BY_ID"] == 0
    known = "0A00000700002A9F" + "00" * 8
    assert cost(collect(known, topic(WANTED), 0)).requests["VIEW_MESSAGE_BY_ID"] == 1
