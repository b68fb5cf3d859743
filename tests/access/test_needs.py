"""The table of rights: its page is current, and what bodies name is bounded and read as processors read it."""

import json

import pytest
from tests.access.gate import OWN
from tools.access_page import PAGE, page

from roquette.access.model import Action, Resource, ResourceType
from roquette.access.needs import MAX_NEEDED, NEEDS
from roquette.errors import RemoteProtocolError
from roquette.wire.codes import RequestCode as R

SUB = (Action.SUB,)


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run python tools/access_page.py"


def heartbeat(*topics: str, group: str = "g") -> bytes:
    subscriptions = [{"topic": topic} for topic in topics]
    consumer = {"groupName": group, "subscriptionDataSet": subscriptions}
    return json.dumps({"clientID": "c", "consumerDataSet": [consumer, consumer]}).encode()


def test_a_heartbeat_needs_each_group_and_topic_once() -> None:
    needed = NEEDS[R.HEART_BEAT].of(None, heartbeat("a", "b", "%RETRY%g"), OWN)
    assert [(str(resource), actions) for resource, actions in needed] == [
        ("Group:g", SUB),
        ("Topic:a", SUB),
        ("Topic:b", SUB),
    ]
    assert NEEDS[R.HEART_BEAT].of(None, b'{"clientID":"c"}', OWN) == [], "a producer's"


def test_what_one_request_names_is_bounded() -> None:
    names = [str(number) for number in range(MAX_NEEDED + 1)]
    with pytest.raises(RemoteProtocolError, match="more than"):
        NEEDS[R.HEART_BEAT].of(None, heartbeat(*names), OWN)


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'{"consumerDataSet":7}', b"\xff", b"x" * (513 << 10)]
)
def test_a_body_that_cannot_be_read_is_an_error_of_the_peer(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        NEEDS[R.HEART_BEAT].of(None, body, OWN)


def test_no_right_names_a_field_that_headers_do_not_have() -> None:
    """Guarded by the matrix for the rows that are served; here for what a name of a field could hide."""
    for need in NEEDS.values():
        for right in need.rights:
            assert bool(right.field) or right.kind is ResourceType.CLUSTER
        assert need.rights or need.body


class Header:
    """An acknowledgement of POP."""

    consumer_group = "g"

    def __init__(self, topic: str) -> None:
        self.topic = topic


@pytest.mark.parametrize(
    ("topic", "resources"),
    [
        ("t", {"Topic:t", "Group:g"}),
        ("%RETRY%g_t", {"Topic:t", "Group:g"}),
        ("%RETRY%g+t", {"Group:g"}),
        ("%RETRY%g", {"Group:g"}),
        ("%RETRY%h", {"Group:h", "Group:g"}),
        ("%RETRY%h_t", {"Group:h_t", "Group:g"}),
        ("%RETRY%h+t", {"Group:h", "Group:g"}),
    ],
)
def test_pops_retry_topics_are_their_groups(topic: str, resources: set[str]) -> None:
    for code in (R.ACK_MESSAGE, R.CHANGE_MESSAGE_INVISIBLETIME):
        needed = NEEDS[code].of(Header(topic), b"", OWN)
        assert {str(resource) for resource, _ in needed} == resources


def test_a_cluster_that_is_named_is_the_one_that_counts() -> None:
    class Named:
        cluster_name: str | None = "Other"

    header = Named()
    right = (Action.UPDATE,)
    assert NEEDS[R.REGISTER_BROKER].of(header, b"", OWN) == [
        (Resource(ResourceType.CLUSTER, "Other"), right)
    ]
    header.cluster_name = None
    assert NEEDS[R.REGISTER_BROKER].of(header, b"", OWN) == [(OWN, right)]
