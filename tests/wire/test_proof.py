"""A request that a server of ours signs serves once, at its address, as what it was."""

from functools import partial

import pytest

from roquette.wire import signature
from roquette.wire.signature import (
    MARK,
    PROOF,
    WINDOW_MS,
    Credentials,
    Proofs,
    Prover,
    Signer,
    ext_fields,
    signed_content,
)

SECRET, NOW, HERE = b"the secret of servers", 1_700_000_000_000, "10.0.0.1:10911"


class World:
    """One that signs and one that takes."""

    def __init__(self) -> None:
        self.now_ms = NOW
        self.prover = Prover(lambda: self.now_ms, "a-life")
        self.proofs = Proofs()
        self.proofs.addresses = frozenset((HERE,))

    def sign(self, code: int = 17, address: str = HERE, body: bytes = b"{}") -> dict[str, str]:
        signer = Signer(
            Credentials("inner", SECRET.decode()), "", partial(self.prover.prove, address)
        )
        return ext_fields(signer.sign(b'{"topic":"T","perm":"6"}', body, code))

    def fault(
        self,
        fields: dict[str, str],
        code: int = 17,
        body: bytes = b"{}",
        local: str = "10.0.0.9:1",
    ) -> str:
        return self.proofs.fault(SECRET, code, fields, body, self.now_ms, local)


@pytest.mark.promise(
    "Security",
    "what a server has signed serves for nothing else, at no other address, and once; clocks may differ by five minutes",
)
def test_it_serves_once_for_what_it_was_signed_for() -> None:
    world = World()
    fields = world.sign()
    assert world.fault(fields) == ""
    assert world.fault(fields) == "it has come before"
    assert world.fault(world.sign()) == ""


@pytest.mark.promise(
    "Security",
    "what a server has signed serves for nothing else, at no other address, and once; clocks may differ by five minutes",
)
@pytest.mark.parametrize(
    ("code", "body", "change"),
    [
        (18, b"{}", {}),
        (17, b"[]", {}),
        (17, b"{}", {"perm": "7"}),
        (17, b"{}", {"more": ""}),
        (17, b"{}", {"topic": "T6", "perm": ""}),  # the signature itself covers the same text
        (17, b"{}", {PROOF: ""}),
        (17, b"{}", {PROOF: MARK + "x"}),
        (17, b"{}", {PROOF: f"{MARK}{NOW}|a-life|9|{HERE}|00"}),
    ],
)
def test_another_request_is_refused(code: int, body: bytes, change: dict[str, str]) -> None:
    world = World()
    assert "as another request" in world.fault(world.sign() | change, code, body)
    fields = world.sign()
    del fields[PROOF]
    assert "as another request" in world.fault(fields)


def test_the_mark_stays_in_what_is_signed_wherever_it_is_moved() -> None:
    fields = World().sign()
    text = fields.pop(PROOF)
    moved = fields | {"permroquetteProo": fields.pop("perm") + text[:30], "s": text[30:]}
    assert MARK.encode() in signed_content(moved, b"")


@pytest.mark.promise(
    "Security",
    "what a server has signed serves for nothing else, at no other address, and once; clocks may differ by five minutes",
)
def test_it_counts_at_the_address_that_was_called() -> None:
    world = World()
    assert world.fault(world.sign(address="10.6.6.6:10911")) == "it was signed for 10.6.6.6:10911"
    assert world.fault(world.sign(address="10.6.6.6:10911"), local="10.6.6.6:10911") == ""
    world.proofs.addresses = None
    assert world.fault(world.sign(address="names.example:9876")) == ""


@pytest.mark.promise(
    "Security",
    "what a server has signed serves for nothing else, at no other address, and once; clocks may differ by five minutes",
)
def test_clocks_may_differ_by_a_window() -> None:
    world = World()
    for ago, good in ((WINDOW_MS, True), (-WINDOW_MS, True), (WINDOW_MS + 1, False), (-WINDOW_MS - 1, False)):  # fmt: skip
        world.now_ms = NOW - ago
        fields = world.sign()
        world.now_ms = NOW
        assert (world.fault(fields) == "") is good


def test_requests_may_overtake_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signature, "WIDTH", 8)
    monkeypatch.setattr(signature, "MOST_CALLERS", 3)
    world = World()
    signed = [world.sign() for _ in range(20)]
    for number in (3, 1, 2, 0, 9, 4, 19):
        assert world.fault(signed[number]) == "", number
    for number in (3, 1, 2, 0, 9, 4, 19, 11):  # those too far below the highest count as seen
        assert world.fault(signed[number]) == "it has come before", number
    assert world.fault(signed[12]) == ""
    for life in range(5):
        world.prover = Prover(lambda: NOW, f"life-{life}")
        assert world.fault(world.sign()) == ""
    assert len(world.proofs._seen) == 3
