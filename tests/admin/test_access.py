"""Users and rules over a whole cluster: who is asked, and what is made of the answers."""

from collections.abc import Callable
from typing import Any

import pytest

from roquette.admin.access import AclRow, Told, UserRow, list_acls, list_users, save_user
from roquette.client.calls import Answer, Ask, Operation
from roquette.errors import BrokerError, ClientError, RequestTimeout
from roquette.wire.bodies.route import BrokerData, ClusterInfo
from roquette.wire.bodies.tables import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from roquette.wire.codes import RequestCode

NAME_SERVERS = ["ns1:9876", "ns2:9876"]
CLUSTER = ClusterInfo(
    broker_addr_table={
        "a": BrokerData(cluster="c", broker_name="a", broker_addrs={0: "a:1", 1: "a:2"})
    },
    cluster_addr_table={"c": ["a"]},
)
ALICE = UserInfo(username="alice", user_type="Normal", user_status="enable")


def drive(operation: Operation[Any], answer: Callable[[Ask], Any]) -> Any:
    """Run an operation over made-up answers; one that is an exception is an error."""
    answers: list[Answer[Any]] | None = None
    while True:
        try:
            asks = next(operation) if answers is None else operation.send(answers)
        except StopIteration as done:
            return done.value
        answers = []
        for ask in asks:
            said = CLUSTER
            if ask.call.code != RequestCode.GET_BROKER_CLUSTER_INFO:
                said = answer(ask)
            failed = isinstance(said, ClientError)
            answers.append(
                Answer(ask.address, None if failed else said, said if failed else None)  # type: ignore[arg-type]
            )


def test_a_change_goes_to_masters_and_name_servers_and_each_says_what_became_of_it() -> None:
    def answer(ask: Ask) -> Any:
        assert ask.call.code == RequestCode.AUTH_CREATE_USER
        if ask.address == "ns2:9876":
            return BrokerError(3, " request type 3001 not supported")
        return RequestTimeout("no answer") if ask.address == "a:1" else None

    told = drive(save_user("alice", NAME_SERVERS, create=True), answer)

    assert told == [
        Told("a", "a:1", "no answer"),
        Told("", "ns1:9876"),
        Told("", "ns2:9876", unserved=True),
    ]


def test_users_are_shown_once_with_the_servers_that_differ() -> None:
    bob = UserInfo(username="bob", user_type="Super", user_status="enable")

    def answer(ask: Ask) -> Any:
        return [ALICE, bob] if ask.address == "a:1" else [ALICE]

    rows = drive(list_users(NAME_SERVERS), answer)

    assert rows == [
        UserRow("alice", "Normal", "enable"),
        UserRow("bob", "Super", "enable", "ns1:9876: has it not so; ns2:9876: has it not so"),
    ]


def test_rules_are_rows_and_silence_is_said() -> None:
    entry = PolicyEntryInfo(resource="Topic:t*", actions=["Pub", "Sub"], decision="Allow")
    acl = AclInfo(subject="User:alice", policies=[PolicyInfo(entries=[entry])])

    def answer(ask: Ask) -> Any:
        return RequestTimeout("no answer") if ask.address == "ns2:9876" else [acl]

    rows = drive(list_acls(NAME_SERVERS), answer)

    silent = "ns2:9876: no answer"
    assert rows == [AclRow("User:alice", "Custom", "Topic:t*", "Pub,Sub", "", "Allow", silent)]


def test_where_no_server_keeps_users_it_is_said() -> None:
    with pytest.raises(ClientError, match="no server here keeps users"):
        drive(list_users(NAME_SERVERS), lambda ask: BrokerError(3, "not supported"))


def test_a_password_is_in_no_text() -> None:
    assert "s3cret" not in repr(UserInfo(username="alice", password="s3cret"))
