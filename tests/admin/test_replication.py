"""What `broker status` and `broker promote` make of a group's record and of its members' answers."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from roquette.admin.replication import GroupState, group_states, order_master
from roquette.client.calls import Answer, Operation
from roquette.client.operator_calls import Register
from roquette.errors import AgreementError, BrokerError, ClientError, ConfigError, ConnectError
from roquette.replication.record import NEW_EPOCHS, GroupRecord, MemberPlace, decode_record
from roquette.wire.bodies import BrokerData, ClusterInfo
from roquette.wire.codes import RequestCode, ResponseCode

T = TypeVar("T")
SERVERS = ["ns1:9876", "ns2:9876"]
PLACES = {
    who: MemberPlace(address=f"b{who}:10911", ha_address=f"b{who}:10912") for who in (1, 2, 3)
}
RECORD = GroupRecord(number=7, epoch=4, master=2, members=(1, 2, 3), places=PLACES)
INFO = ClusterInfo(cluster_addr_table={"c": ["g"]})
END = {"commitLogMaxOffset": "1000"}
MASTER = END | {"groupLeaseLeftMs": "2500", "groupEpoch": "4"}
NO_CONTROLLER = BrokerError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no controller")


def run(operation: Operation[T], said: Callable[[str, int, bytes], Any]) -> T:
    """Drive an operation with what servers say: a value, or an error."""
    answers: list[Answer[Any]] | None = None
    try:
        while True:
            asks = operation.send(answers)  # type: ignore[arg-type]
            answers = []
            for address, call in asks:
                value = said(address, call.code, call.body)
                failed = isinstance(value, ClientError)
                answers.append(
                    Answer(address, error=value) if failed else Answer(address, value=value)
                )
    except StopIteration as end:
        found: T = end.value
        return found


def group(record: GroupRecord | None, brokers: Mapping[str, Any]) -> GroupState:
    """The state of the group, when the second name server is its controller."""

    def said(address: str, code: int, body: bytes) -> Any:
        if code == RequestCode.GET_BROKER_CLUSTER_INFO:
            return INFO
        if code == RequestCode.GET_REGISTER:
            found = Register(1, record.encode()) if record is not None else Register(0, b"")
            return found if address == SERVERS[1] else NO_CONTROLLER
        return brokers[address]

    (state,) = run(group_states(SERVERS, "g"), said)
    return state


def test_a_group_is_healthy_when_a_master_serves_and_all_are_in_step() -> None:
    behind = {"commitLogMaxOffset": "900"}
    state = group(RECORD, {"b1:10911": behind, "b2:10911": MASTER, "b3:10911": END})
    assert state.healthy and (state.master, state.epoch, state.in_step) == (2, 4, [1, 2, 3])
    assert [(m.role, m.lag_bytes, m.lease_s) for m in state.members] == [
        ("replica", 100, -1),
        ("master", 0, 2.5),
        ("replica", 0, -1),
    ]


@pytest.mark.promise("Groups of brokers", "`broker status` says what is wrong; its exit code")
@pytest.mark.parametrize(
    "changes, master, words",
    [
        ({"master": 0}, MASTER, "nobody is master"),
        ({}, END, "broker 2 is elected in epoch 4 and does not serve"),
        ({"members": (1, 2)}, MASTER, "not in step: \\[3\\]"),
        ({"doubtful": {3: (4, 900)}}, MASTER, "power loss\\): \\[3\\]"),
        ({"ordered": 3}, MASTER, "broker 3 is ordered"),
        ({}, ConnectError("refused"), "broker 2 does not answer: refused"),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, Any], master: Any, words: str) -> None:
    record = replace(RECORD, **changes)
    state = group(record, {"b1:10911": END, "b2:10911": master, "b3:10911": END})
    assert not state.healthy
    with pytest.raises(AssertionError, match=words):
        raise AssertionError("; ".join(state.problems))


@pytest.mark.parametrize("told", [{}, {"groupId": "theirs"}], ids=["no group", "another group"])
def test_a_broker_that_has_the_place_of_a_dead_member_is_not_taken_for_it(told: Any) -> None:
    record = replace(RECORD, group="ours", members=(1, 2))
    ours = {"groupId": "ours"}
    state = group(
        record, {"b1:10911": END | ours, "b2:10911": MASTER | ours, "b3:10911": END | told}
    )
    assert [member.role for member in state.members] == ["replica", "master", "silent"]
    stranger = state.members[2]
    assert (stranger.log_end, stranger.lag_bytes, stranger.lease_s) == (-1, -1, -1.0)
    assert (
        "broker 3 does not answer: who answers at b3:10911 takes no part in this group"
        in state.problems
    )


def test_an_older_member_gets_no_users_and_it_is_said_without_alarm() -> None:
    """A rolling upgrade goes on while `broker status` ends with 0."""
    older = END | {"groupId": "g1"}
    now = older | {"groupUsers": "2"}
    starting = END
    said = "is of an older version: users and rules pass neither to it nor from it until it is upgraded"
    state = group(RECORD, {"b1:10911": older, "b2:10911": MASTER | now, "b3:10911": starting})
    assert state.healthy and state.notes == [f"broker 1 {said}"]
    state = group(RECORD, {"b1:10911": now, "b2:10911": MASTER | older, "b3:10911": now})
    assert state.healthy and state.notes == [f"broker 2 {said}"]
    nobody = older | {"groupUsers": "0"}
    for brokers in ((now, now, now), (older, nobody, nobody)):
        tables = dict(zip(("b1:10911", "b2:10911", "b3:10911"), brokers, strict=True))
        assert group(RECORD, tables | {"b2:10911": MASTER | brokers[1]}).notes == []


def test_no_record_and_no_controller_are_told_apart() -> None:
    with pytest.raises(ConfigError, match="no group g has a record"):
        group(None, {})

    def said(address: str, code: int, body: bytes) -> Any:
        return INFO if code == RequestCode.GET_BROKER_CLUSTER_INFO else NO_CONTROLLER

    with pytest.raises(ClientError, match="none of the name servers is a controller"):
        run(group_states(SERVERS, "g"), said)


class Controller:
    """One register; each `renewals`-th write loses to the master's renewal."""

    def __init__(self, renewals: int = 0) -> None:
        self.record: Any = RECORD
        self.members: dict[str, dict[str, str]] = {}
        self.left = renewals
        self.writes = 0

    def said(self, address: str, code: int, body: bytes) -> Any:
        """Serve GET_REGISTER and PUT_REGISTER_IF, and answer for the members."""
        if code == RequestCode.GET_BROKER_CLUSTER_INFO:
            return INFO if not self.members else ClusterInfo(BROKERS, INFO.cluster_addr_table)
        if address in self.members:
            return self.members[address]
        if code == RequestCode.GET_REGISTER:
            found = self.record
            return Register(0, b"") if found is None else Register(found.number, found.encode())
        self.writes += 1
        if self.left:
            self.left -= 1
            return False
        self.record = decode_record(body)
        return True


def test_an_order_is_written_again_until_no_renewal_comes_between() -> None:
    controller = Controller(renewals=3)
    run(order_master(SERVERS, "c", "g", 3, False), controller.said)
    assert (controller.record.ordered, controller.record.accept_loss) == (3, False)
    assert controller.writes == 4
    run(order_master(SERVERS, "c", "g", 3, False), controller.said)
    assert controller.writes == 4, "it stands there already"


@pytest.mark.promise(
    "Groups of brokers", "`broker promote`; only one in step, or losses accepted; a lost record"
)
def test_who_may_not_be_master_is_refused_in_words() -> None:
    controller = Controller()
    controller.record = GroupRecord(number=1, epoch=4, master=2, members=(1, 2), places=PLACES)
    with pytest.raises(AgreementError, match="broker 3 is not in step"):
        run(order_master(SERVERS, "c", "g", 3, False), controller.said)
    with pytest.raises(AgreementError, match="no broker with id 9 ever joined"):
        run(order_master(SERVERS, "c", "g", 9, False), controller.said)
    assert controller.writes == 0
    run(order_master(SERVERS, "c", "g", 3, True), controller.said)
    assert (controller.record.ordered, controller.record.accept_loss) == (3, True)


BROKERS = {
    "g": BrokerData(cluster="c", broker_name="g", broker_addrs={"1": "b1:10911", "2": "b2:10911"})
}


def member(group: str, epoch: int, end: int, trouble: str = "") -> dict[str, str]:
    return {
        "groupId": group,
        "groupLastEpoch": str(epoch),
        "groupRecordNumber": "70",
        "groupTrouble": trouble,
        "commitLogMaxOffset": str(end),
    }


@pytest.mark.promise(
    "Groups of brokers", "`broker promote`; only one in step, or losses accepted; a lost record"
)
@pytest.mark.parametrize("record", [None, replace(RECORD, group="another")])
def test_a_lost_record_is_begun_anew_by_order_with_losses_accepted(record: Any) -> None:
    controller = Controller()
    controller.record = record
    controller.members = {"b1:10911": member("ours", 4, 900), "b2:10911": member("ours", 5, 800)}
    with pytest.raises(AgreementError, match="broker 2 has most, up to 800 in epoch 5"):
        run(order_master(SERVERS, "c", "g", 1, False), controller.said)
    if record is None:
        with pytest.raises(AgreementError, match="broker 3 does not answer"):
            run(order_master(SERVERS, "c", "g", 3, True), controller.said)
    run(order_master(SERVERS, "c", "g", 2, True), controller.said)
    begun = controller.record
    assert (begun.group, begun.epoch, begun.number) == ("ours", 5 + NEW_EPOCHS, 71)
    assert (begun.ordered, begun.accept_loss, begun.members) == (2, True, ())


def test_a_higher_epoch_in_which_nothing_was_written_is_not_more() -> None:
    """Broker 2 was elected last and wrote nothing; 1 has messages that it lacks. No epoch of either is given again."""
    controller = Controller()
    controller.record = None
    empty = {"groupWrittenEpoch": "3"}
    controller.members = {
        "b1:10911": member("ours", 4, 900),
        "b2:10911": member("ours", 5, 800) | empty,
    }
    with pytest.raises(
        AgreementError,
        match="broker 1 has most, up to 900 in epoch 4; broker 2 ends at 800 in epoch 3",
    ):
        run(order_master(SERVERS, "c", "g", 2, False), controller.said)
    run(order_master(SERVERS, "c", "g", 1, True), controller.said)
    assert controller.record.epoch == 5 + NEW_EPOCHS


def test_a_group_without_a_record_is_seen_by_what_its_members_say() -> None:
    controller = Controller()
    controller.record = None
    controller.members = {"b1:10911": member("ours", 4, 900, "its record is not there")}
    controller.members["b2:10911"] = {}
    (state,) = run(group_states(SERVERS), controller.said)
    assert not state.healthy and state.master == 0
    assert state.problems == [
        "the record roquette/c/g is not there: broker 1 ends at 900 in epoch 4",
        "broker 1: its record is not there",
    ]
