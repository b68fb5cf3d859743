"""Every request code of both servers x who asks, judged by a real dispatcher: made of the servers' rows, so that a row
without a rule fails here."""

from collections.abc import Iterator

import pytest
from tests.access.gate import IP, OWN, ROWS, SECRET, Answer, Gate, needs_of, signed
from tests.request_samples import body_of, ext_of, frame_of, framed

from roquette.access.model import Resource, ResourceType
from roquette.access.needs import NEEDS
from roquette.remoting.request import Row
from roquette.wire.codes import RequestCode

EVERY = [pytest.param(row, id=f"{row.code}-{_name}") for row in ROWS.values()
         for _name in [RequestCode(row.code).name if row.code in set(RequestCode) else "?"]]  # fmt: skip


@pytest.fixture(scope="module")
def gate() -> Iterator[Gate]:
    made = Gate()
    made.book.add("alice")
    made.book.add("off", enabled=False)
    made.book.add("root", is_super=True)
    yield made
    made.close()


def refused(answer: Answer, remark: str) -> None:
    assert (answer.processed, answer.code) == (False, 16)
    assert answer.remark is not None
    assert SECRET not in answer.remark
    assert answer.remark == remark


@pytest.mark.promise("Security", "each request, and each rpc, has a rule; one without is refused")
def test_every_row_has_a_rule() -> None:
    assert {code: row for code, row in ROWS.items() if code not in NEEDS} == {}


@pytest.mark.parametrize("row", EVERY)
class TestEveryCode:
    def test_no_user(self, gate: Gate, row: Row) -> None:
        frame = frame_of(row.code, ext_of(row), body_of(row))
        refused(gate.ask(frame), "username cannot be null.")

    def test_unknown_user(self, gate: Gate, row: Row) -> None:
        refused(gate.ask(signed(row, "mallory")), "User:mallory is not found.")

    def test_wrong_secret(self, gate: Gate, row: Row) -> None:
        gate.allow("alice", *needs_of(row))
        refused(gate.ask(signed(row, "alice", "guessed")), "check signature failed.")

    def test_no_signature(self, gate: Gate, row: Row) -> None:
        gate.allow("alice", *needs_of(row))
        frame = frame_of(row.code, ext_of(row) | {"AccessKey": "alice"}, body_of(row))
        refused(gate.ask(frame), "check signature failed.")

    def test_another_body_than_was_signed(self, gate: Gate, row: Row) -> None:
        gate.allow("alice", *needs_of(row))
        frame = signed(row, "alice")
        length, head = int.from_bytes(frame[:4], "big"), int.from_bytes(frame[5:8], "big")
        changed = framed(frame[8 : 8 + head], frame[8 + head : 4 + length] + b" ")
        refused(gate.ask(changed), "check signature failed.")

    def test_another_field_than_was_signed(self, gate: Gate, row: Row) -> None:
        gate.allow("alice", *needs_of(row))
        for name in [*ext_of(row), "more"]:
            answer = gate.ask(signed(row, "alice", **{name: "9"}))
            refused(answer, "check signature failed.")

    def test_a_disabled_user(self, gate: Gate, row: Row) -> None:
        gate.allow("off", *needs_of(row))
        refused(gate.ask(signed(row, "off")), "User:off is disabled.")

    def test_a_user_without_any_right(self, gate: Gate, row: Row) -> None:
        gate.table.remove("alice")
        needs = needs_of(row)
        assert needs, "a sample request that needs no right shows nothing"
        text = (
            f"User:alice has no permission to access {needs[0][0]} from {IP}, no matched policies."
        )
        refused(gate.ask(signed(row, "alice")), text)

    def test_a_user_with_all_rights_but_one(self, gate: Gate, row: Row) -> None:
        needs = needs_of(row)
        for missing in needs:
            gate.allow("alice", *[one for one in needs if one is not missing])
            text = f"User:alice has no permission to access {missing[0]} from {IP}, no matched policies."
            refused(gate.ask(signed(row, "alice")), text)

    def test_a_user_with_the_right_on_other_things_of_the_kind(self, gate: Gate, row: Row) -> None:
        others = [
            (Resource(have.kind, have.name + "x"), actions) for have, actions in needs_of(row)
        ]
        gate.allow("alice", *others)
        assert not gate.ask(signed(row, "alice")).processed

    def test_a_user_with_exactly_the_right(self, gate: Gate, row: Row) -> None:
        needs = needs_of(row)
        gate.allow("alice", *needs)
        assert gate.ask(signed(row, "alice")) == Answer(True, 0, None)
        if any(resource.kind is not ResourceType.CLUSTER for resource, _ in needs):
            assert all(resource != OWN for resource, _ in needs)

    def test_from_another_address_than_the_policys(self, gate: Gate, row: Row) -> None:
        gate.allow("alice", *needs_of(row), ips=("10.9.0.0/16",))
        assert not gate.ask(signed(row, "alice")).processed
        assert gate.ask(signed(row, "alice"), ip="10.9.1.1").processed

    def test_a_super_user(self, gate: Gate, row: Row) -> None:
        assert gate.ask(signed(row, "root")) == Answer(True, 0, None)
