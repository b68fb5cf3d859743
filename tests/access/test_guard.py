"""The guard around its table: white lists, old clients, replays, what cannot be read, the audit; and fuzzed requests."""

import json
import logging
import random
from collections.abc import Iterator
from typing import Any

import pytest
from tests.access.gate import IP, ROWS, SECRET, Answer, Gate, Written, needs_of, signed
from tests.request_samples import body_of, ext_of, frame_of, framed

from roquette.access.guard import Account, Verdict
from roquette.access.model import Action, Resource, ResourceType
from roquette.access.policies import PolicyTable
from roquette.errors import Refused, RemoteProtocolError
from roquette.remoting.request import Peer, Row
from roquette.wire.header_codec import encode_dict
from roquette.wire.signature import SIGNATURE, Credentials, Signer, ext_fields

SEND, QUERY, HEARTBEAT = ROWS[310], ROWS[12], ROWS[34]
LET_IN = Answer(True, 0, None)
TOPIC = (Resource(ResourceType.TOPIC, "T"), (Action.PUB,))
TOPIC_NAMED = ("T", (Action.PUB,))
UNSIGNED = frame_of(310, ext_of(SEND), body_of(SEND))


@pytest.fixture
def gate() -> Iterator[Gate]:
    yield from gate_of()


def gate_of(**scope: object) -> Iterator[Gate]:
    made = Gate(**scope)
    made.book.add("alice")
    yield made
    made.close()


def peer_of(gate: Gate) -> Peer:
    return Peer(gate.dispatcher, Written(), 1, bytes(8), f"{IP}:4711")


def test_without_authorization_whoever_is_proven_may_do_everything() -> None:
    for gate in gate_of(authorize=False):
        assert gate.ask(signed(SEND, "alice")) == LET_IN
        assert not gate.ask(signed(SEND, "alice", "guessed")).processed
        assert not gate.ask(UNSIGNED).processed


def test_a_code_that_needs_no_proof_and_no_right_is_open() -> None:
    for gate in gate_of(unproven=frozenset({310}), unjudged=frozenset({310})):
        assert gate.ask(UNSIGNED) == LET_IN
        assert not gate.ask(frame_of(12, ext_of(QUERY), b"")).processed
    for gate in gate_of(unproven=frozenset({310}), authorize=False):
        assert gate.ask(UNSIGNED) == LET_IN


def test_a_right_is_never_given_to_a_name_that_is_not_proven() -> None:
    """Apache believes the AccessKey of a code in authenticationWhitelist, and judges by it."""
    for gate in gate_of(unproven=frozenset({310})):
        gate.allow("alice", TOPIC)
        claimed = frame_of(310, ext_of(SEND) | {"AccessKey": "alice"}, body_of(SEND))
        assert gate.ask(claimed).remark == "check signature failed."
        assert gate.ask(UNSIGNED).remark == "username cannot be null."
        assert gate.ask(signed(SEND, "alice")) == LET_IN


def test_a_code_that_needs_no_right_needs_a_proof() -> None:
    for gate in gate_of(unjudged=frozenset({310})):
        assert gate.ask(signed(SEND, "alice")) == LET_IN
        assert not gate.ask(UNSIGNED).processed


@pytest.mark.parametrize(("version", "counts"), [(399, False), (401, True)])
def test_clients_up_to_4_9_3_do_not_sign_the_mark_of_a_query_by_unique_key(
    gate: Gate, version: int, counts: bool
) -> None:
    gate.allow("alice", *needs_of(QUERY))
    ext = json.loads(Signer(Credentials("alice", SECRET)).sign(encode_dict(ext_of(QUERY)), b""))
    frame = frame_of(12, ext | {"_UNIQUE_KEY_QUERY": "true"}, b"", version=version)
    assert gate.ask(frame).processed is not counts


def test_a_replayed_request_is_taken_as_by_apaches(gate: Gate) -> None:
    """There is no nonce in the protocol: docs/security.md says so, and TLS is the answer."""
    gate.allow("alice", TOPIC)
    frame = signed(SEND, "alice")
    assert gate.ask(frame) == gate.ask(frame) == LET_IN


def test_what_moves_between_neighbouring_fields_is_not_seen_but_judged(gate: Gate) -> None:
    """Apache's signature is over the values without their names and lengths: docs/reference/access-table.md says so."""
    gate.allow("alice", TOPIC)
    ext = ext_of(SEND)
    moved = {"a": ext["a"][:-1], "b": ext["a"][-1] + ext["b"]}
    answer = gate.ask(signed(SEND, "alice", **moved))
    assert not answer.processed
    assert answer.remark is not None
    assert f"Topic:{moved['b']} " in answer.remark, "proven, and judged by what it says now"


def test_a_body_that_cannot_be_read_is_refused_after_the_proof(gate: Gate) -> None:
    ext = Signer(Credentials("alice", SECRET)).sign(b"", b"{nonsense")
    frame = frame_of(34, json.loads(ext), b"{nonsense")
    assert gate.ask(frame) == Answer(False, 16, "parse authorization context error.")


@pytest.mark.promise("Security", "each request, and each rpc, has a rule; one without is refused")
def test_a_code_without_a_rule_is_refused(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    from roquette.access.needs import NEEDS

    gate.book.add("root", is_super=True)
    monkeypatch.delitem(NEEDS, 310)
    for name in ("alice", "root"):
        answer = gate.ask(signed(SEND, name))
        assert (answer.processed, answer.code) == (False, 16)


def test_what_an_account_may_now_is_not_asked_where_no_request_is() -> None:
    for gate in gate_of(authorize=False):
        assert gate.guard.permits("alice", peer_of(gate), *TOPIC_NAMED)


def test_what_an_account_may_now_is_judged_by_its_rights_now(gate: Gate) -> None:
    peer = peer_of(gate)
    assert not gate.guard.permits("alice", peer, *TOPIC_NAMED)
    gate.allow("alice", TOPIC)
    assert gate.guard.permits("alice", peer, *TOPIC_NAMED)
    assert not gate.guard.permits("nobody", peer, *TOPIC_NAMED)
    gate.book.add("alice", enabled=False)
    assert not gate.guard.permits("alice", peer, *TOPIC_NAMED)


def test_a_call_without_a_name_is_refused_where_a_name_is_asked_for(gate: Gate) -> None:
    """What the answer says is what `unsigned` says."""
    with pytest.raises(Refused, match="username cannot be null"):
        gate.guard.judge(None, peer_of(gate), 310, [TOPIC])


def test_secrets_stand_in_no_text() -> None:
    assert SECRET not in repr(Account("alice", SECRET.encode()))


@pytest.mark.promise(
    "Security", "the audit names who was refused; made-up names fill no log and hide no line"
)
def test_the_audit_says_who_what_and_why_in_one_line_of_its_own(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    create = ROWS[17]
    with caplog.at_level(logging.INFO, "roquette.audit"):
        gate.ask(signed(SEND, "alice"))
        gate.ask(signed(SEND, "alice"))
        gate.ask(frame_of(310, ext_of(SEND) | {"AccessKey": "x\nrefused user=bob"}, b""))
        gate.allow("alice", *needs_of(create), TOPIC)
        gate.ask(signed(SEND, "alice"))
        gate.ask(signed(create, "alice"))
    lines = [record.getMessage() for record in caplog.records if record.name == "roquette.audit"]
    assert lines[0] == (
        f"refused user=alice request=SEND_MESSAGE_V2 resource=Topic:T ip={IP} why=no matched policies."
    )
    assert len(lines) == 3, "the second refusal is counted, a send that is allowed is no line"
    assert (
        lines[2] == f"allowed user=alice request=UPDATE_AND_CREATE_TOPIC resource=Topic:T ip={IP}"
    )
    assert not any(SECRET in line for line in lines)


def content(ext: bytes, body: bytes) -> bytes:
    fields = ext_fields(ext)
    values = [fields[name] for name in sorted(fields) if name != SIGNATURE]
    return "".join(values).encode("utf-8", "replace") + body


def mutated(chance: random.Random, ext: bytes, body: bytes) -> tuple[bytes, bytes]:
    fields = json.loads(ext)
    name = chance.choice(list(fields))
    value: object = fields[name]
    kind = chance.randrange(9)
    if kind == 0:
        body = body + b"x" if chance.random() < 0.5 else body[:-1]
    elif kind == 1:
        fields[name] = chance.choice([None, True, 5, 1e99, [], {}, "", "\ud800", "x" * 40_000])
    elif kind == 2:
        fields[SIGNATURE] = chance.choice(["", "=", "é", "A" * 28, str(value), None, 7])
    elif kind == 3:
        del fields[name]
    elif kind == 4:
        fields[chance.choice(["AccessKey", "Signature", "b", "zz"])] = str(value)
    elif kind == 5:  # the same name twice
        return ext[:-1] + b',"%b":"%b"}' % (name.encode(), b"x"), body
    elif kind in (6, 7):
        at = chance.randrange(len(ext))
        return ext[:at] + bytes([chance.randrange(256)]) + ext[at + 1 :], body
    else:
        shuffled = list(fields.items())
        chance.shuffle(shuffled)
        fields = dict(shuffled)
    return json.dumps(fields).encode(), body


@pytest.mark.promise(
    "Security", "the signature covers all fields and the body; what counts is what was signed"
)
@pytest.mark.parametrize("rounds", [2_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_nothing_is_let_in_but_what_was_signed(gate: Gate, rounds: int) -> None:
    chance = random.Random(16)
    signer = Signer(Credentials("alice", SECRET))
    rows = [SEND, QUERY, HEARTBEAT, ROWS[11], ROWS[103], ROWS[17]]
    gate.allow("alice", *[need for each in rows for need in needs_of(each)])
    let_in = 0
    for _ in range(rounds):
        row = chance.choice(rows)
        body = body_of(row)
        ext = signer.sign(encode_dict(ext_of(row)), body)
        changed, other = mutated(chance, ext, body)
        head = b'{"code":%d,"extFields":%b,"flag":0,"language":"JAVA","opaque":1,"version":513}'
        try:
            answer = gate.ask(framed(head % (row.code, changed), other))
        except RemoteProtocolError:
            continue
        if answer.processed:
            let_in += 1
            assert content(changed, other) == content(ext, body), (changed, other)
        else:
            assert answer.code in (1, 16), answer
    assert gate.dispatcher.crashed == 0
    assert let_in > rounds / 20, "reordered fields are the same request"


@pytest.mark.parametrize("code", [310, 11], ids=["a send", "a pull"])
def test_what_is_remembered_is_forgotten_with_the_rules(
    gate: Gate, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = ROWS[code]
    frame = signed(row, "alice")
    judged: list[str] = []
    judge = PolicyTable.judge

    def judging(table: PolicyTable, name: str, *rest: Any) -> Verdict:
        judged.append(name)
        return judge(table, name, *rest)

    monkeypatch.setattr(PolicyTable, "judge", judging)
    for _ in range(2):
        gate.allow("alice", *needs_of(row))
        assert gate.ask(frame) == LET_IN
        before = len(judged)
        assert gate.ask(frame) == gate.ask(frame) == LET_IN
        assert len(judged) == before > 0, "no rule is looked for from the second request on"
        gate.allow("alice")
        assert not gate.ask(frame).processed
        gate.allow("alice", *needs_of(row))
        assert gate.ask(frame) == LET_IN
        gate.table.remove("alice")
        assert not gate.ask(frame).processed
    gate.allow("alice", *needs_of(row))
    assert gate.ask(frame) == LET_IN
    gate.book.add("alice", enabled=False)
    assert not gate.ask(frame).processed


def test_what_is_remembered_is_for_the_user_the_resource_the_code_and_the_address(
    gate: Gate,
) -> None:
    gate.book.add("bob")
    gate.allow("alice", TOPIC, ips=("10.0.0.0/24",))
    for _ in range(2):
        assert gate.ask(signed(SEND, "alice")) == LET_IN
        assert not gate.ask(signed(SEND, "alice"), "10.0.1.7").processed
        assert not gate.ask(signed(SEND, "bob")).processed
        assert not gate.ask(signed(QUERY, "alice")).processed
        other = encode_dict(ext_of(SEND) | {"b": "U"})
        ext = json.loads(Signer(Credentials("alice", SECRET)).sign(other, body_of(SEND)))
        assert not gate.ask(frame_of(310, ext, body_of(SEND))).processed
    gate.allow("bob", TOPIC)
    assert gate.ask(signed(SEND, "bob"), "10.0.1.7") == LET_IN


def test_who_shows_all_that_is_allowed_shows_each(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    gate.allow("alice", TOPIC, *needs_of(QUERY))
    with caplog.at_level(logging.DEBUG, "roquette.audit"):
        gate.ask(signed(SEND, "alice"))
        gate.ask(signed(QUERY, "alice"))
    assert len(caplog.records) == 2 and not gate.table._known


def test_names_of_fields_are_kept_of_those_who_are_proven(gate: Gate) -> None:
    gate.allow("alice", TOPIC)
    old = frame_of(310, json.loads(signed_ext(SEND)), body_of(SEND), version=399)
    assert gate.ask(old) == LET_IN
    gate.ask(signed(SEND, "alice", "guessed"))
    assert not gate.guard._names
    gate.ask(signed(SEND, "alice"))
    assert gate.ask(signed(SEND, "alice")) == LET_IN
    assert set(gate.guard._names) == {310}
    assert gate.ask(old) == LET_IN
    more = json.loads(signed_ext(SEND, {"later": "x"}))
    assert gate.ask(frame_of(310, more, body_of(SEND))) == LET_IN
    known = gate.guard._names[310]
    assert known is not None and "later" in known.names
    gate.allow("alice", *needs_of(QUERY))
    mark = {"_UNIQUE_KEY_QUERY": "true"}
    assert gate.ask(frame_of(12, json.loads(signed_ext(QUERY, mark)), b"")) == LET_IN
    beside = json.loads(signed_ext(QUERY)) | mark
    assert not gate.ask(frame_of(12, beside, b"")).processed
    assert gate.ask(frame_of(12, beside, b"", version=399)) == LET_IN


def signed_ext(row: Row, more: dict[str, str] | None = None) -> bytes:
    ext = encode_dict(ext_of(row) | (more or {}))
    return Signer(Credentials("alice", SECRET)).sign(ext, body_of(row))
