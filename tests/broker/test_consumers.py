"""Who consumes: registration, subscriptions, leaving, expiry."""

from typing import Any

import pytest

from roquette.broker.floor.tables.consumers import CHANNEL_EXPIRED_MS, ConsumerTable, codes_of
from roquette.broker.floor.tables.duplicate_clients import DuplicateClientDetector
from roquette.remoting.request import Peer
from roquette.wire.bodies import SubscriptionData
from roquette_testing.embedded import ManualClock


def fake_peer(number: int) -> Peer:
    nothing: Any = None
    return Peer(nothing, nothing, number, bytes(8), f"10.0.0.{number}:40000")


def subscription(
    topic: str, version: int = 1, expression: str = "*", codes: list[int] | None = None
) -> SubscriptionData:
    return SubscriptionData(
        topic=topic, sub_string=expression, sub_version=version, code_set=codes or []
    )


def register(
    table: ConsumerTable,
    peer: Peer,
    client: str,
    subscriptions: list[SubscriptionData],
    now: int = 0,
) -> bool:
    return table.register(
        "g",
        peer,
        client_id=client,
        language="JAVA",
        version=513,
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscriptions=subscriptions,
        now_ms=now,
    )


def test_a_new_member_and_a_new_topic_make_the_group_rebalance_and_a_plain_heartbeat_does_not() -> (
    None
):
    table = ConsumerTable()
    peer = fake_peer(1)

    assert register(table, peer, "a", [subscription("t")])
    assert not register(table, peer, "a", [subscription("t")])
    assert register(table, peer, "a", [subscription("t"), subscription("u")])
    assert register(table, fake_peer(2), "b", [subscription("t"), subscription("u")])


def test_a_topic_missing_from_a_heartbeat_is_no_longer_subscribed() -> None:
    table = ConsumerTable()
    register(table, fake_peer(1), "a", [subscription("t"), subscription("u")])

    changed = register(table, fake_peer(1), "a", [subscription("u")])

    group = table.find("g")
    assert changed
    assert group is not None
    assert list(group.subscriptions) == ["u"]


def test_a_subscription_is_replaced_only_by_a_newer_version() -> None:
    table = ConsumerTable()
    register(table, fake_peer(1), "a", [subscription("t", 5, "A", [65])])

    register(table, fake_peer(1), "a", [subscription("t", 4, "B", [66])])

    group = table.find("g")
    assert group is not None
    assert group.filters["t"].codes == frozenset({65})
    register(table, fake_peer(1), "a", [subscription("t", 6, "B", [66])])
    assert group.filters["t"].codes == frozenset({66})


def test_star_and_class_filters_let_everything_through() -> None:
    assert codes_of(subscription("t")) is None
    assert (
        codes_of(SubscriptionData(topic="t", sub_string="A", code_set=[65], class_filter_mode=True))
        is None
    )
    assert codes_of(subscription("t", 1, "A", [65])) == frozenset({65})


def test_a_lost_connection_leaves_every_group_it_was_in() -> None:
    table = ConsumerTable()
    peer = fake_peer(1)
    register(table, peer, "a", [subscription("t")])

    assert table.remove_peer(peer) == ["g"]
    assert table.find("g") is None
    assert table.remove_peer(peer) == []


def test_clients_without_a_heartbeat_for_120_s_expire() -> None:
    table = ConsumerTable()
    quiet, lively = fake_peer(1), fake_peer(2)
    register(table, quiet, "a", [subscription("t")], now=0)
    register(table, lively, "b", [subscription("t")], now=CHANNEL_EXPIRED_MS)

    assert table.expire(CHANNEL_EXPIRED_MS) == []
    assert table.expire(CHANNEL_EXPIRED_MS + 1) == [("g", quiet)]
    group = table.find("g")
    assert group is not None
    assert group.client_ids() == ["b"]


def watched() -> tuple[ConsumerTable, DuplicateClientDetector]:
    watch = DuplicateClientDetector(ManualClock())
    return ConsumerTable(watch=watch), watch


def test_unregistering_removes_the_connection_and_the_dead_one_before_it() -> None:
    table, _ = watched()
    peer: Any = fake_peer(2)
    register(table, fake_peer(1), "a", [subscription("t")])
    register(table, peer, "a", [subscription("t")])

    assert table.unregister("g", peer)
    assert not table.unregister("g", peer)
    assert table.find("g") is None


def test_a_client_id_alive_on_two_connections_is_noticed_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table, watch = watched()
    old: Any
    old, new = fake_peer(1), fake_peer(2)
    register(table, old, "a", [subscription("t")])
    register(table, new, "a", [subscription("t")])
    register(table, new, "a", [subscription("t")])
    assert watch.duplicates == 0  # the older connection may be dead
    register(table, old, "a", [subscription("t")])
    register(table, old, "a", [subscription("t")])

    assert watch.duplicates == 1
    assert "client_id=a addresses=10.0.0.1:40000,10.0.0.2:40000" in caplog.text
    assert table.unregister("g", old)
    group = table.find("g")
    assert group is not None and group.client_ids() == ["a"]


def test_a_reconnected_client_is_no_duplicate() -> None:
    table, watch = watched()
    old: Any = fake_peer(1)
    register(table, old, "a", [subscription("t")])
    register(table, fake_peer(2), "a", [subscription("t")])
    table.remove_peer(old)
    register(table, fake_peer(2), "a", [subscription("t")])

    assert watch.duplicates == 0


def test_members_that_subscribe_differently_are_noticed_with_both_names(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table, watch = watched()
    first, second = fake_peer(1), fake_peer(2)
    register(table, first, "a", [subscription("t", 1, "x || y"), subscription("%RETRY%g")])
    register(table, second, "b", [subscription("t", 2, "y||x")])
    assert watch.conflicts == 0
    register(table, second, "b", [subscription("t", 3, "z")])
    register(table, second, "b", [subscription("t", 3, "z")])

    assert watch.conflicts == 1
    assert "client_id=b address=10.0.0.2:40000 subscribes=CLUSTERING[t:TAG:z]" in caplog.text
    assert "client_id=a address=10.0.0.1:40000 subscribes=CLUSTERING[t:TAG:x||y]" in caplog.text
    register(table, first, "a", [subscription("t", 4, "z")])
    group = table.find("g")
    assert group is not None and len(group.signatures) == 1


def test_a_client_whose_clock_went_back_may_change_its_mind() -> None:
    table, _ = watched()
    peer: Any = fake_peer(1)
    register(table, peer, "a", [subscription("t", 10, "x", [ord("x")])])
    register(table, peer, "a", [subscription("t", 3, "y", [ord("y")])])
    register(table, fake_peer(2), "b", [subscription("t", 2, "y", [ord("y")])])

    group = table.find("g")
    assert group is not None and group.subscriptions["t"].sub_string == "y"
    assert group.subscriptions["t"].sub_version == 3


def test_a_heartbeat_without_subscriptions_keeps_those_of_the_group() -> None:
    table, _ = watched()
    peer: Any = fake_peer(1)
    register(table, peer, "a", [subscription("t")])
    table.register(
        "g",
        peer,
        client_id="a",
        language="JAVA",
        version=513,
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscriptions=None,
        now_ms=5,
    )
    group = table.find("g")
    assert group is not None and set(group.subscriptions) == {"t"}
