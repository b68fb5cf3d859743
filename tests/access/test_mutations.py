"""Each guard is needed: without it, the attack it is meant for succeeds."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.access.attackers import run_attack
from tests.access.attacks import ATTACKS
from tests.certificates import issue, make_ca
from tests.spark.workers.test_blocking_tls import ask, serving

from roquette.access import assemble, guard, needs, policies, processor, records, users
from roquette.access.guard import Account, Guard, Verdict
from roquette.access.model import User
from roquette.broker.clients import client_calls
from roquette.broker.floor import config, writer
from roquette.broker.operation import store_requests, topic_admin
from roquette.broker.replication.ha_ticket import HaTickets
from roquette.errors import ConnectError, Refused
from roquette.nameserver.processors import operators as names_settings
from roquette.remoting import pem, tls_options
from roquette.remoting.request import RequestContext
from roquette.remoting.tls_options import TlsOptions
from roquette.wire.bodies.tables import UserInfo
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


def _remembers(patch: Patch) -> None:
    """Who was found once is known for ever."""
    known: dict[str, Account | None] = {}

    def find(self: users.Users, access_key: str) -> Account | None:
        known[access_key] = self._accounts.get(access_key) or known.get(access_key)
        return known[access_key]

    patch.setattr(users.Users, "find", find)
    patch.setattr(policies.PolicyTable, "remove", nothing)


def _judges_the_first(patch: Patch) -> None:
    """The guard judges the first of two topics, the processor takes the last."""
    check = Guard.check

    def first(self: Guard, job: RequestContext, header: Any) -> None:
        found = re.search(rb'"b":"([^"]*)"', bytes(job.command.ext))
        if not found or not hasattr(header, "topic"):
            check(self, job, header)
            return
        last, header.topic = header.topic, found[1].decode()
        check(self, job, header)
        header.topic = last

    patch.setattr(Guard, "check", first)


def _plainly(kind: Any, body: bytes) -> Any:
    """JSON of any size, and its errors as they come."""
    return msgspec.json.decode(body, type=kind)


def _talks(kind: Any, body: bytes) -> Any:
    try:
        return _plainly(kind, body)
    except msgspec.DecodeError:
        raise Refused(1, f"this is wrong: {body.decode('utf-8', 'replace')}") from None


def _no_bounds(patch: Patch) -> None:
    for module, name in (
        (records, "MOST_RESOURCE"),
        (records, "MOST_ENTRIES"),
        (users, "MOST_RULES"),
    ):
        patch.setattr(module, name, 1 << 40)
    patch.setattr(processor, "decode_request_body", _plainly)


def _names_settings(patch: Patch) -> None:
    patch.setattr(names_settings, "forbidden_keys", lambda keys: [])
    patch.setattr(names_settings, "with_changes", lambda given, *_: given)


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
        lambda patch: patch.setattr(store_requests, "is_of_topic", lambda *_: True),
        ("query_by_a_colliding_key",),
    ),
    "passwords are told": (
        lambda patch: patch.setattr(records, "user_info", _told),
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
    "users are remembered": (_remembers, ("deleted_user_goes_on",)),
    "a broker's settings are all mutable": (
        lambda patch: patch.setattr(config, "with_changes", lambda given, *_: given),
        ("setting_names_a_path_or_command", "access_settings_changed_by_request"),
    ),
    "a name server's settings are all mutable": (
_names_settings,
        ("setting_names_a_path_or_command",),
    ),
    "a name is any text": (
        lambda patch: patch.setattr(topic_admin, "topic_error", nothing),
        ("topic_name_leaves_the_store",),
    ),
    "JSON is read without bounds": (
        lambda patch: patch.setattr(processor, "decode_request_body", _plainly),
        ("json_bombs",),
    ),
    "refusals repeat the request": (
        lambda patch: patch.setattr(processor, "_decoded", _talks),
        ("secrets_in_error_remarks",),
    ),
    "the guard judges another field than is used": (_judges_the_first, ("two_values_of_one_field",)),
    "the door for replicas asks for no ticket": (
        lambda patch: patch.setattr(HaTickets, "door", lambda self, connection, side: side(connection)),
        ("replication_port_without_ticket", "operator_follows_the_log"),
    ),
    "a sender says where a waiting message belongs": (
        lambda patch: patch.setattr(writer, "keep_place", nothing),
        ("message_smuggled_by_properties",),
    ),
    "what servers sign serves again": (
        lambda patch: patch.setattr(assemble.Access, "_replayed", lambda *_: ""),
        ("servers_signature_serves_for_more",),
    ),
    "rules have no bounds": (_no_bounds, ("rules_without_end",)),
}  # fmt: skip


@pytest.mark.parametrize(
    "words, name", [(words, name) for words, (_, names) in MUTATIONS.items() for name in names]
)
def test_without_its_guard_the_attack_succeeds(
    words: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    MUTATIONS[words][0](monkeypatch)

    assert run_attack(ATTACKS[name]), f"{words}: {name} fails all the same"


@pytest.mark.promise(
    "Security", "our servers and clients verify whom they call, unless they are told not to"
)
def test_without_verification_a_wrong_authority_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard of #4527 at a client: its context."""
    right, wrong = make_ca(tmp_path / "a"), make_ca(tmp_path / "b", "another-ca")
    made = pem.client_context

    def trusting(files: pem.PemFiles, **_: Any) -> Any:
        return made(files, verify=False, verify_host=False)

    with serving(issue(wrong, ["127.0.0.1"])) as server:
        with pytest.raises(ConnectError, match="its certificate is refused"):
            ask(server, TlsOptions(ca=right.cert))
        tls_options._of_options.cache_clear()
        monkeypatch.setattr(tls_options, "client_context", trusting)
        assert ask(server, TlsOptions(ca=right.cert)) == ["topic"]
    tls_options._of_options.cache_clear()


def test_without_its_demand_an_enforcing_server_takes_who_shows_no_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other half of #4527, at a server."""
    ca = make_ca(tmp_path)
    with serving(issue(ca, ["127.0.0.1"]), clients=ca) as server, pytest.raises(ConnectError):
        ask(server, TlsOptions(ca=ca.cert))
    with serving(issue(ca, ["127.0.0.1"])) as server:
        assert ask(server, TlsOptions(ca=ca.cert)) == ["topic"]
