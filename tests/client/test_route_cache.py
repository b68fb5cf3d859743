"""Routes become queues as in Apache's client."""

import pytest

from roquette.client.core.route_cache import TopicRoute, canonical, route_from_template
from roquette.message.message import MessageQueue
from roquette.wire.bodies import BrokerData, QueueData, TopicRouteData


def queues(name: str, read: int = 2, write: int = 2, perm: int = 6) -> QueueData:
    return QueueData(
        broker_name=name,
        read_queue_nums=read,
        write_queue_nums=write,
        perm=perm,
        topic_sys_flag=0,
    )


def broker(name: str, **members: str) -> BrokerData:
    addresses = {int(key[1:]): address for key, address in members.items()}
    return BrokerData(cluster="c", broker_name=name, broker_addrs=addresses)


def route(*parts: QueueData | BrokerData, order: str | None = None) -> TopicRoute:
    return TopicRoute(
        "t",
        TopicRouteData(
            order_topic_conf=order,
            queue_datas=[part for part in parts if isinstance(part, QueueData)],
            broker_datas=[part for part in parts if isinstance(part, BrokerData)],
        ),
    )


def names(found: list[MessageQueue]) -> list[str]:
    return [f"{queue.broker_name}{queue.queue_id}" for queue in found]


def test_publish_needs_write_permission_and_a_master() -> None:
    found = route(
        queues("b", write=1),
        queues("a", write=2),
        queues("readonly", perm=4),
        queues("headless"),
        broker("a", _0="h:1"),
        broker("b", _0="h:2"),
        broker("readonly", _0="h:3"),
        broker("headless", _1="h:4"),
    )

    assert names(found.publish) == ["a0", "a1", "b0"]


def test_subscribe_needs_read_permission_only_and_counts_read_queues() -> None:
    found = route(queues("b", read=3, write=1), queues("a", read=1, perm=2), broker("b", _1="h:2"))

    assert names(found.subscribe) == ["b0", "b1", "b2"]


def test_order_conf_replaces_the_queues_to_send_to() -> None:
    found = route(queues("a", write=8), broker("a", _0="h:1"), order="b:1;a:2")

    assert found.ordered
    assert names(found.publish) == ["b0", "a0", "a1"]


@pytest.mark.parametrize("conf", ["a", "a:x", ";;", ":3"])
def test_malformed_order_conf_gives_no_queue_and_does_not_crash(conf: str) -> None:
    assert route(queues("a"), broker("a", _0="h:1"), order=conf).publish == []


def test_reads_go_to_the_wanted_member_or_to_the_lowest_one_left() -> None:
    found = route(broker("a", _1="h:2", _3="h:4"), broker("b", _0="h:1", _1="h:5"))

    assert found.address_for_read("a", 3) == "h:4"
    assert found.address_for_read("a") == "h:2"
    assert found.address_for_read("b") == "h:1"
    assert found.address_for_read("x") is None
    assert found.master_of("a") is None


def test_order_of_parts_does_not_make_a_route_different() -> None:
    one = route(queues("a"), queues("b"), broker("a", _0="x"), broker("b", _0="y"))
    two = route(queues("b"), queues("a"), broker("b", _0="y"), broker("a", _0="x"))

    assert one.same_as(two)
    assert canonical(one.data) == canonical(two.data)


@pytest.mark.parametrize(
    "other",
    [
        route(queues("a", write=3), broker("a", _0="x")),
        route(queues("a", perm=4), broker("a", _0="x")),
        route(queues("a"), broker("a", _0="z")),
        route(queues("a"), broker("a", _0="x"), order="a:1"),
        route(queues("a")),
    ],
)
def test_a_change_of_content_makes_a_route_different(other: TopicRoute) -> None:
    assert not route(queues("a"), broker("a", _0="x")).same_as(other)


@pytest.mark.parametrize(("client_queues", "expected"), [(4, 4), (16, 8)])
def test_a_new_topic_gets_the_smaller_number_of_queues(client_queues: int, expected: int) -> None:
    template = route(queues("a", read=8, write=8, perm=7), broker("a", _0="x"))

    found = route_from_template("new", template.data, client_queues)

    assert found.publish == [MessageQueue("new", "a", number) for number in range(expected)]
    assert found.master_of("a") == "x"
