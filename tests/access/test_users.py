"""Users and rules of a server: what requests make of them, and what of that survives a crash."""

import asyncio
import json
import stat
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from roquette.access.model import AccessSettings, Resource, UserType
from roquette.access.policies import PolicyTable
from roquette.access.processor import AccessProcessor
from roquette.access.users import AccessTables, Users
from roquette.base.files import Files, OsFiles
from roquette.errors import ConfigError, Refused, StoreError
from roquette.remoting.request import Peer, Reply, RequestContext, Task
from roquette.wire.bodies.tables import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from roquette.wire.codes import RequestCode
from roquette.wire.command import Command
from roquette.wire.header_codec import encode_dict
from roquette.wire.json_body import encode_body
from roquette.wire.signature import Credentials, Signer
from roquette_testing.faulty_files import FaultyFiles

ROOT = '{"username":"root","password":"r00t"}'
OPEN = AccessSettings()
AUTHENTICATED = AccessSettings(authentication_enabled=True, init_authentication_user=ROOT)
CLOSED = AccessSettings(
    authentication_enabled=True, authorization_enabled=True, init_authentication_user=ROOT
)
PASSWORDS = {"root": "r00t", "alice": "4lice"}
CODES = {code.name.removeprefix("AUTH_").lower(): int(code) for code in RequestCode}


class Server:
    """The processor over users in files that can fail."""

    def __init__(self, settings: AccessSettings, files: Files | None = None) -> None:
        self.files = files or FaultyFiles(1)
        self.policies = PolicyTable()
        self.users = Users(self.files, "/store/config", self.policies)
        self.settings = settings
        rows = AccessProcessor(settings, self.users).rows(0)
        self.rows = {row.code: row for row in rows}
        self.peer = Peer(cast(Any, None), asyncio.Transport(), 1, bytes(8), "10.0.0.1:4711")

    async def start(self) -> "Server":
        self.users.load()
        await self.users.add_first(self.settings.first_users())
        return self

    async def call(self, what: str, by: str = "root", body: Any = None, **fields: str) -> Reply:
        """Process a request signed by a user; `by` empty: by nobody."""
        row = self.rows[CODES[what]]
        ext, data = encode_dict(fields), b"" if body is None else encode_body(body)
        if by:
            ext = Signer(Credentials(by, PASSWORDS.get(by, "unknown"))).sign(ext, data)
        command = Command(code=row.code, opaque=1, ext=ext, body=data)
        assert row.decode is not None
        ctx = RequestContext(self.peer, command, row, 0)
        outcome = row.process(ctx, row.decode(command.ext), data)
        reply = await outcome.work if isinstance(outcome, Task) else outcome
        assert isinstance(reply, Reply)
        return reply

    async def refused(self, what: str, **given: Any) -> tuple[int, str]:
        with pytest.raises(Refused) as refusal:
            await self.call(what, **given)
        return refusal.value.code, refusal.value.remark


def user(name: str = "alice", **given: str) -> UserInfo:
    return UserInfo(username=name, **{"password": PASSWORDS.get(name, "pw"), **given})


def acl(*rules: tuple[str, str, str], subject: str = "User:alice") -> AclInfo:
    entries = [
        PolicyEntryInfo(resource=resource, actions=actions.split(","), decision=decision)
        for resource, actions, decision in rules
    ]
    return AclInfo(subject=subject, policies=[PolicyInfo(entries=entries)])


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def shown(reply: Reply) -> Any:
    assert isinstance(reply.body, bytes)
    return json.loads(reply.body)


def test_users_come_change_and_go_and_no_answer_has_a_password() -> None:
    async def scenario() -> None:
        server = await Server(CLOSED).start()
        await server.call("create_user", body=user(), username="alice")
        assert shown(await server.call("get_user", username="alice")) == {
            "username": "alice",
            "userType": "Normal",
            "userStatus": "enable",
        }
        assert await server.refused("create_user", body=user(), username="alice") == (
            16,
            "The user is existed",
        )
        listed = await server.call("list_user")
        assert [each["username"] for each in shown(listed)] == ["alice", "root"]
        assert b"assword" not in bytes(listed.body or b"")  # type: ignore[arg-type]
        await server.call("update_user", body=UserInfo(user_status="disable"), username="alice")
        account = server.users.find("alice")
        assert account is not None and not account.enabled and account.secret == b"4lice"
        await server.call("delete_user", username="alice")
        await server.call("delete_user", username="alice")
        assert (await server.call("get_user", username="alice")).body is None
        assert await server.refused("update_user", body=user(), username="alice") == (
            16,
            "The user is not exist",
        )

    run(scenario)


@pytest.mark.parametrize(
    ("fields", "body", "code"),
    [
        ({"username": ""}, user(), 29),
        ({"username": " "}, user(), 29),
        ({"username": "a b"}, user(), 29),
        ({"username": "a:b"}, user(), 29),
        ({"username": "a\nb"}, user(), 29),
        ({"username": "x" * 256}, user(), 29),
        ({"username": "bob"}, UserInfo(username="bob"), 16),
        ({"username": "bob"}, user("bob", password="x" * 2_000), 29),
        ({"username": "bob"}, user("bob", user_type="Root"), 29),
        ({"username": "bob"}, user("bob", user_status="off"), 29),
        ({"username": "bob"}, ["no", "user"], 1),
    ],
)
def test_what_is_no_user_is_refused(fields: dict[str, str], body: Any, code: int) -> None:
    async def scenario() -> None:
        server = await Server(CLOSED).start()
        assert (await server.refused("create_user", body=body, **fields))[0] == code
        assert list(server.users.state.users) == ["root"]

    run(scenario)


def test_rules_are_merged_by_resource_shown_and_removed() -> None:
    async def scenario() -> None:
        server = await Server(CLOSED).start()
        await server.call("create_user", body=user(), username="alice")
        subject = "User:alice"
        rules = acl(("Topic:t*", "Pub", "Allow"), ("Group:g", "Sub", "Allow"))
        await server.call("create_acl", body=rules, subject=subject)
        await server.call("update_acl", body=acl(("Topic:t*", "Sub", "Deny")), subject=subject)
        (policy,) = shown(await server.call("get_acl", subject=subject))["policies"]
        assert policy == {
            "policyType": "Custom",
            "entries": [
                {"resource": "Topic:t*", "actions": ["Sub"], "decision": "Deny"},
                {"resource": "Group:g", "actions": ["Sub"], "decision": "Allow"},
            ],
        }
        (only,) = shown(await server.call("list_acl", resourceFilter="Group"))
        assert [entry["resource"] for entry in only["policies"][0]["entries"]] == ["Group:g"]
        assert (await server.call("list_acl", subjectFilter="bob")).body == b""
        verdict = server.policies.judge("alice", Resource.parse("Group:g"), (), "")
        assert not verdict.allowed
        await server.call("delete_acl", subject=subject, resource="Group:g")
        assert await server.refused("delete_acl", subject=subject, resource="Grup:t") == (
            16,
            "resource 'Grup:t' is not '*', 'Topic:<name>', 'Group:<name>', 'Cluster:<name>' or "
            "'Namespace:<name>', where a '*' may end the name",
        )
        assert "alice" in server.users.state.acls
        await server.call("delete_acl", subject=subject)
        assert server.users.state.acls == {}
        assert await server.refused("delete_acl", subject=subject) == (
            16,
            "The acl is not exist.",
        )

    run(scenario)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (AclInfo(), "The body of acl is null"),
        (AclInfo(subject="User:alice", policies=[PolicyInfo()]), "The policies is empty."),
        (acl(("", "Pub", "Allow")), "The resource is null."),
        (acl(("Queue:q", "Pub", "Allow")), "resource 'Queue:q' is not"),
        (acl(("Namespace:n", "Pub", "Deny")), "no request needs a right on a namespace"),
        (acl(("Topic:t", "", "Allow")), "The actions are wrong"),
        (acl(("Topic:t", "Any", "Allow")), "The actions can not be Any."),
        (acl(("Topic:t", "Pub", "Perhaps")), "The decision is null or illegal."),
        (acl(("Topic:t", "Pub", "Allow"), subject="Role:a"), "The subject type is null."),
        (acl(("Topic:t", "Pub", "Allow"), subject="User:bob"), "The subjects of header and body"),
        (acl(*((f"Topic:{n}", "Pub", "Allow") for n in range(1_001))), "1000 rules at most"),
    ],
)
def test_what_is_no_rule_is_refused(body: AclInfo, words: str) -> None:
    async def scenario() -> None:
        server = await Server(CLOSED).start()
        await server.call("create_user", body=user(), username="alice")
        assert words in (await server.refused("create_acl", body=body, subject="User:alice"))[1]
        assert server.users.state.acls == {}

    run(scenario)


def test_rules_of_nobody_and_wrong_addresses_are_refused() -> None:
    async def scenario() -> None:
        server = await Server(CLOSED).start()
        rules = acl(("Topic:t", "Pub", "Allow"), subject="User:bob")
        assert await server.refused("create_acl", body=rules, subject="User:bob") == (
            16,
            "The subject of User:bob is not exist.",
        )
        await server.call("create_user", body=user(), username="alice")
        rules = acl(("Topic:t", "Pub", "Allow"))
        assert rules.policies and rules.policies[0].entries
        rules.policies[0].entries[0].source_ips = ["10.0.0.0/33"]
        assert await server.refused("create_acl", body=rules, subject="User:alice") == (
            16,
            "The source ip is invalid.",
        )

    run(scenario)


@pytest.mark.promise(
    "Security", "who may change users makes no super user, and no rules for itself"
)
def test_a_user_with_a_right_on_the_cluster_makes_no_super_user_and_no_rules_for_itself() -> None:
    async def scenario() -> None:
        server = await Server(CLOSED).start()
        await server.call("create_user", body=user(), username="alice")
        by = {"by": "alice"}
        only = "The super user can only be "
        raised = user("eve", user_type="super")
        assert await server.refused("create_user", body=raised, username="eve", **by) == (
            1,
            only + "create by super user",
        )
        raised = UserInfo(user_type="Super")
        assert await server.refused("update_user", body=raised, username="alice", **by) == (
            1,
            only + "update by super user",
        )
        taken = UserInfo(password="mine")
        assert await server.refused("update_user", body=taken, username="root", **by) == (
            16,
            only + "update by super user",
        )
        assert (await server.refused("delete_user", username="root", **by))[0] == 16
        rules = acl(("*", "All", "Allow"))
        words = "User:alice may not change its own rules"
        for what in ("create_acl", "update_acl"):
            assert await server.refused(what, body=rules, subject="User:alice", **by) == (16, words)
        assert await server.refused("delete_acl", subject="user:alice", **by) == (16, words)
        await server.call("create_user", body=user("bob"), username="bob", **by)

    run(scenario)


def test_without_rights_of_anybody_super_users_alone_change_users() -> None:
    async def scenario() -> None:
        server = await Server(AUTHENTICATED).start()
        await server.call("create_user", body=user(), username="alice")
        code, words = await server.refused(
            "create_user", body=user("bob"), username="bob", by="alice"
        )
        assert (code, "by super users" in words) == (16, True)

    run(scenario)


@pytest.mark.parametrize("by", ["", "nobody"])
def test_a_white_list_lets_nobody_in_to_users_and_rules(by: str) -> None:
    """The guard is not asked here, as with a white list that has the code: who has not signed changes nothing."""

    async def scenario() -> None:
        server = await Server(CLOSED).start()
        code, words = await server.refused("create_user", body=user(), username="alice", by=by)
        assert (code, "that are signed" in words) == (16, True)

    run(scenario)


def test_where_nobody_is_asked_for_a_signature_users_are_prepared() -> None:
    async def scenario() -> None:
        server = await Server(OPEN).start()
        root = user("root", user_type="Super")
        await server.call("create_user", body=root, username="root", by="")
        assert server.users.supers() == ["root"]

    run(scenario)


def test_the_first_users_are_made_once_and_the_known_password_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        inner = AccessSettings(
            authentication_enabled=True,
            init_authentication_user=ROOT,
            inner_client_authentication_credentials='{"accessKey":"inner","secretKey":"s"}',
        )
        first = await Server(inner).start()
        assert first.users.supers() == ["inner", "root"]
        other = AccessSettings(init_authentication_user=ROOT.replace("r00t", "0ther"))
        again = await Server(other, first.files).start()
        account = again.users.find("root")
        assert account is not None and account.secret == b"r00t"
        assert again.users.state.users["inner"].user_type is UserType.SUPER

    run(scenario)
    assert "another password" in caplog.text
    assert "0ther" not in caplog.text and "r00t" not in caplog.text


@pytest.mark.parametrize("call", ["open", "pwrite", "sync", "rename", "remove", "sync_dir"])
def test_what_was_answered_is_there_after_a_power_cut_at_any_step(call: str) -> None:
    async def scenario() -> None:
        for step in range(1, 8):
            server = await Server(CLOSED, FaultyFiles(step)).start()
            await server.call("create_user", body=user(), username="alice")
            rules = acl(("Topic:t", "Pub", "Allow"))
            await server.call("create_acl", body=rules, subject="User:alice")
            assert isinstance(server.files, FaultyFiles)
            server.files.fail(call, step)
            answered = set()
            for name in ("bob", "carol"):
                try:
                    await server.call("create_user", body=user(name), username=name)
                    answered.add(name)
                except Refused as refusal:
                    assert "not changed" in refusal.remark  # noqa: PT017
                    assert name not in server.users.state.users
                    break
            after = await Server(OPEN, server.files.crash()).start()
            assert {"root", "alice"} | answered <= set(after.users.state.users)
            assert set(after.users.state.acls) == {"alice"}

    run(scenario)


def test_rules_go_before_their_user() -> None:
    async def scenario() -> None:
        server = await Server(CLOSED).start()
        await server.call("create_user", body=user(), username="alice")
        await server.call("create_acl", body=acl(("*", "All", "Allow")), subject="User:alice")
        written: list[str] = []
        save = server.users._save
        server.users._save = lambda name, kept: (written.append(name), save(name, kept))  # type: ignore[assignment,func-returns-value]
        await server.call("delete_user", username="alice")
        assert written == ["acls.json", "users.json"]
        assert server.users.state.acls == {}

    run(scenario)


@pytest.mark.promise(
    "Security",
    "users, rules and their copies are readable by the server's user alone; passwords of keys are shown nowhere",
)
def test_the_files_and_their_copies_are_their_owners_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        users = Users(OsFiles(), str(tmp_path), PolicyTable())
        await users.add_first(CLOSED.first_users())
        await users.change(lambda state: state.without_user("root"))
        for path in tmp_path.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path

    run(scenario)


def test_files_that_cannot_be_read_end_the_start() -> None:
    files = FaultyFiles(1)
    files.make_dirs("/store/config")
    files.write_atomic("/store/config/users.json", b'{"users":[{"username":"a"}]}')
    with pytest.raises(StoreError, match="no readable copy"):
        Users(files, "/store/config", PolicyTable()).load()


def test_a_replica_has_what_its_master_says() -> None:
    async def scenario() -> None:
        server = await Server(CLOSED).start()
        await server.call("create_user", body=user(), username="alice")
        await server.call("create_acl", body=acl(("*", "All", "Allow")), subject="User:alice")
        kept = server.users.state.kept()
        replica = await Server(OPEN).start()
        await replica.users.follow(kept)
        assert replica.users.state == server.users.state
        version = replica.users.version
        await replica.users.follow(kept)
        assert replica.users.version == version
        with pytest.raises(Refused):
            await replica.users.follow(AccessTables(users=[UserInfo(username="x")]))
        assert (await Server(OPEN, replica.files).start()).users.state == server.users.state

    run(scenario)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"authorization_enabled": True}, "needs authenticationEnabled"),
        ({"authentication_whitelist": "105,abc"}, "must be request codes"),
        ({"ha_allowed_replicas": "10.0.0.0/33"}, "neither an address nor a network"),
        ({"init_authentication_user": "s3cret"}, "a JSON object with username, password"),
        ({"init_authentication_user": '{"username":"s3cret"}'}, "a JSON object"),
        ({"inner_client_authentication_credentials": '{"accessKey":"s3cret"}'}, "secretKey"),
    ],
)
def test_settings_that_do_not_fit_are_refused_without_secrets(
    given: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        AccessSettings(**given)
    assert "s3cret" not in str(error.value)


def test_settings_have_no_secret_in_their_text() -> None:
    assert "r00t" not in repr(CLOSED)
    settings = AccessSettings(ha_allowed_replicas="10.0.0.0/8, 192.168.1.1")
    assert settings.allows_replica("10.1.2.3") and settings.allows_replica("192.168.1.1")
    assert not settings.allows_replica("11.0.0.1") and not settings.allows_replica("x")
