"""Each guard is needed: without it, the attack it is meant for succeeds."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.access.attackers import run_attack
from tests.access.attacks import ATTACKS

from roquette.access import assemble, guard, needs, policies, processor, records, users
from roquette.access.guard import Account, Guard, Verdict
from roquette.access.model import User
from roquette.broker.clients import client_calls
from roquette.broker.operation import query
from roquette.wire.bodies.access import UserInfo
from roquette.wire.codes import RequestCode
from roquette.wire.header_codec import ext_dict

Patch = pytest.MonkeyPatch


def allowed(*_: Any) -> Verdict:
    return Verdict(True)


def nothing(*_: Any) -> None:
    return None


def _told(user: User) -> UserInfo:
    return UserInfo(username=user.username, password=user.password)


def _enabled(user: User) -> Account:
    return Account(user.username, user.password.encode(), user.user_type == "Super", True)


def _free(code: int) -> Callable[[Patch], None]:
    """The table asks for nothing with this request."""
    return lambda patch: patch.setitem(needs.NEEDS, code, needs.Need(otherwise=()))


MUTATIONS: dict[str, tuple[Callable[[Patch], None], tuple[str, ...]]] = {
    "no guard stands before the processors": (
        lambda patch: patch.setattr(assemble.Access, "protect", lambda self, given: given),
        ("no_signature", "unsigned_one_way_requests", "other_ports_are_open"),
    ),
    "signatures are not compared": (
        lambda patch: patch.setattr(guard, "signs", lambda *_: True),
        (
            "wrong_secret", "name_without_signature", "signature_of_another_body",
            "signature_of_other_fields", "signature_moved_between_fields",
        ),
    ),
    "every policy allows": (
        lambda patch: patch.setattr(policies.PolicyTable, "judge", allowed),
        (
            "anothers_topic_is_read", "anothers_topic_is_written", "anothers_retries_are_read",
            "anothers_dead_letters_are_read", "anothers_retries_are_written", "anothers_queues_locked",
            "anothers_offsets_moved", "others_are_looked_at", "operators_requests_of_a_user",
            "user_gives_itself_rights", "mallory_changes_a_setting", "denied_within_what_is_allowed",
            "anothers_pop_is_acknowledged", "anothers_timer_recalled", "rights_taken_are_kept",
        ),
    ),
    "a pull needs no right": (_free(RequestCode.PULL_MESSAGE), ("anothers_topic_is_read",)),
    "a heartbeat needs no right": (_free(RequestCode.HEART_BEAT), ("group_joined_without_right",)),
    "a message named by its place is anybody's": (
        lambda patch: patch.setattr(Guard, "_check_topic", nothing),
        (
            "message_read_by_its_place", "anothers_message_sent_back", "anothers_transaction_ended",
            "anothers_message_consumed_directly",
        ),
    ),
    "patterns mean the broker's own topics": (
        lambda patch: patch.setattr(policies, "is_inner_topic", lambda name: False),
        ("waiting_messages_are_read", "broker_topics_are_written"),
    ),
    "checks go to whoever says it is a producer": (
        lambda patch: patch.setattr(assemble.Access, "permits", lambda *_: True),
        ("anothers_transaction_checked",),
    ),
    "a client id belongs to nobody": (
        lambda patch: patch.setattr(assemble.Access, "account_of", lambda *_: ""),
        ("anothers_reply_caught",),
    ),
    "a request is passed on with its signature": (
        lambda patch: patch.setattr(client_calls, "_unsigned", lambda job: ext_dict(job.command.ext)),
        ("operators_signature_passed_on",),
    ),
    "a query finds what has the hash": (
        lambda patch: patch.setattr(query, "is_of_topic", lambda *_: True),
        ("query_by_a_colliding_key",),
    ),
    "passwords are told": (
        lambda patch: patch.setattr(records, "shown", _told),
        ("secrets_read_by_requests",),
    ),
    "every name is one": (
        lambda patch: patch.setattr(processor, "check_name", lambda name: name),
        ("names_that_look_alike",),
    ),
    "everybody makes super users": (
        lambda patch: patch.setattr(processor, "_supers_by_supers", nothing),
        ("operator_becomes_super_user",),
    ),
    "everybody changes super users": (
        lambda patch: patch.setattr(processor, "_not_of_a_super", nothing),
        ("operator_becomes_super_user",),
    ),
    "disabled users are let in": (
        lambda patch: patch.setattr(users, "_account", _enabled),
        ("disabled_user_goes_on",),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "words, name", [(words, name) for words, (_, names) in MUTATIONS.items() for name in names]
)
def test_without_its_guard_the_attack_succeeds(
    words: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    MUTATIONS[words][0](monkeypatch)

    assert run_attack(ATTACKS[name]), f"{words}: {name} fails all the same"
