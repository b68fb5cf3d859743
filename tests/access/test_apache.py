"""Against Apache 5.5.0's auth module (tests/golden/access): what requests need, what policies decide, what is signed."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.access.gate import OWN, ROWS

from roquette.access.guard import UNIQUE_KEY_QUERY, V4_9_3
from roquette.access.model import (
    Acl,
    Decision,
    Policy,
    PolicyEntry,
    PolicyType,
    Resource,
    parse_actions,
)
from roquette.access.needs import NEEDS
from roquette.access.policies import PolicyTable
from roquette.wire.header_codec import encode_dict
from roquette.wire.signature import signed_content, signs

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "access" / "cases.json").read_text())
SERVED = [int(code) for code in GOLDEN["needs"] if int(code) in ROWS]


def ours(code: int, case: dict[str, Any]) -> set[tuple[str, frozenset[str]]]:
    row = ROWS[code]
    header = None if row.coerce is None else row.coerce(msgspec.Raw(encode_dict(case["ext"])))
    needed = NEEDS[code].of(header, case["body"].encode(), OWN)
    return {(str(resource), frozenset(map(str, actions))) for resource, actions in needed}


@pytest.mark.parametrize("code", SERVED)
def test_requests_need_what_apaches_do_or_the_table_says_that_they_need_more(code: int) -> None:
    case = GOLDEN["needs"][str(code)]
    apache = {(resource, frozenset(actions.split(","))) for resource, actions in case["needs"]}
    if NEEDS[code].note == "Apache asks for nothing":
        assert apache == set()
        return
    found = ours(code, case)
    assert found == apache or NEEDS[code].note, (found, apache)


def test_what_apaches_decides_is_decided() -> None:
    seen = set()
    for case in GOLDEN["decisions"]:
        policies = tuple(
            Policy(
                PolicyType(policy["type"]),
                tuple(
                    PolicyEntry(
                        Resource.parse(entry["resource"]),
                        parse_actions(entry["actions"].split(",")),
                        tuple(source for source in entry["sourceIps"].split(",") if source),
                        Decision(entry["decision"]),
                    )
                    for entry in policy["entries"]
                ),
            )
            for policy in case["policies"]
        )
        table = PolicyTable([Acl("User:alice", policies)])
        resource = Resource.parse(case["resource"])
        verdict = table.judge(
            "alice", resource, parse_actions(case["actions"].split(",")), case["ip"]
        )
        text = f"User:alice has no permission to access {resource} from {case['ip']}, {verdict.why}"
        assert ("" if verdict.allowed else text) == case["refusal"], case
        seen.add(verdict.why)
    assert len(seen) == 3


@pytest.mark.parametrize("case", GOLDEN["signatures"])
def test_the_same_bytes_are_signed(case: dict[str, Any]) -> None:
    fields = dict(case["ext"])
    if case["version"] <= V4_9_3:
        del fields[UNIQUE_KEY_QUERY]
    secret, body = case["secret"].encode(), case["body"].encode()
    assert signs(case["signature"], secret, signed_content(fields, body))
    assert not signs(case["signature"], secret, signed_content(fields | {"x": "y"}, body))
