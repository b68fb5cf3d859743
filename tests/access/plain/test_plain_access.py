"""ACL 1.0 at work: every request code x who asks, white lists, hot reload, the requests that change accounts."""

import asyncio
import logging
import stat
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import msgspec
import pytest
from tests.access.gate import IP, ROWS, SECRET, Answer, Gate, needs_of, signed
from tests.request_samples import body_of, ext_of, frame_of

from roquette.access.audit import Audit
from roquette.access.guard import Guard, Scope
from roquette.access.model import Kind, Resource
from roquette.access.needs import NEEDS, Plain
from roquette.access.plain.access import PlainAccess, PlainFiles, PlainRefusals
from roquette.access.plain.migrate import policies_of_plain
from roquette.access.plain.processor import PlainProcessor
from roquette.access.plain.yaml_text import write_yaml
from roquette.base.clock import SystemClock
from roquette.base.files import Files, OsFiles
from roquette.errors import ConfigError, Refused
from roquette.remoting.outcomes import Reply, Task
from roquette.remoting.request import Row
from roquette.testing.faulty_files import FaultyFiles
from roquette.wire.codes import RequestCode
from roquette.wire.header_codec import encode_dict

PATH, DIRECTORY = "/store/config/plain_acl.yml", "/store/config/acl"
APACHES = "org.apache.rocketmq.acl.common.AclException: "
EVERY = [pytest.param(row, id=f"{row.code}-{RequestCode(row.code).name}") for row in ROWS.values()]
CODES = [row.code for row in ROWS.values()]


def account(name: str, **fields: Any) -> dict[str, Any]:
    return {"accessKey": name, "secretKey": SECRET, **fields}


def policy_file(*accounts: dict[str, Any], white: tuple[str, ...] = ()) -> bytes:
    return write_yaml({"globalWhiteRemoteAddresses": list(white), "accounts": list(accounts)})


class Server:
    """The access of a server whose files can fail."""

    def __init__(
        self, data: bytes | None = None, files: Files | None = None, path: str = PATH
    ) -> None:
        self.files = files or FaultyFiles(1)
        self.path = path
        if data is not None:
            self.put(data)
        directory = path.rpartition("/")[0] + "/acl"
        self.access = PlainAccess(PlainFiles(self.files, path, directory), SystemClock())
        whose = ("c", "broker-a", "10.0.0.1:10911")
        rows = PlainProcessor(self.access, lambda: whose).rows(0)
        self.rows = {row.code: row for row in rows}

    def put(self, data: bytes, path: str = "") -> None:
        self.files.write_atomic(path or self.path, data, keep_backup=False)

    def guard(self) -> Guard:
        scope = Scope(cluster="DefaultCluster")
        return Guard(self.access, self.access, scope, PlainRefusals(), Audit(SystemClock()))

    async def call(self, code: int, **fields: str) -> Reply:
        row = self.rows[code]
        header = None if row.coerce is None else row.coerce(msgspec.Raw(encode_dict(fields)))
        outcome = row.process(MagicMock(), header, b"")
        found = await outcome.work if isinstance(outcome, Task) else outcome
        assert isinstance(found, Reply)
        return found


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


@pytest.fixture(scope="module")
def server() -> Server:
    return Server(policy_file(account("operator", admin=True)))


@pytest.fixture(scope="module")
def gate(server: Server) -> Iterator[Gate]:
    server.access.load()
    made = Gate(server.guard())
    yield made
    made.close()


def take(server: Server, *accounts: dict[str, Any], white: tuple[str, ...] = ()) -> None:
    server.put(policy_file(*accounts, white=white))
    server.access.load()


def refused(answer: Answer, remark: str) -> None:
    assert answer == Answer(False, 1, APACHES + remark)


def perms_for(row: Row) -> dict[str, Any]:
    """What an account needs for the sample request of a row, and no more."""
    topics, groups = {}, {}
    for resource, actions in needs_of(row):
        words = "|".join(sorted(a.value.upper() for a in actions if a.value in ("Pub", "Sub")))
        if resource.kind is Kind.TOPIC and words:
            topics[resource.name] = words
        elif resource.kind is Kind.GROUP and words:
            groups[resource.name] = "SUB"
    return {
        "topicPerms": [f"{name}={perm}" for name, perm in topics.items()],
        "groupPerms": [f"{name}={perm}" for name, perm in groups.items()],
        "admin": NEEDS[row.code].plain is Plain.ADMIN,
    }


@pytest.mark.parametrize("row", EVERY)
class TestEveryCode:
    def test_nobody_and_who_cannot_prove_it(self, server: Server, gate: Gate, row: Row) -> None:
        take(server, account("somebody", admin=True))
        unsigned = frame_of(row.code, ext_of(row), body_of(row))
        refused(gate.ask(unsigned), "No accessKey is configured")
        refused(gate.ask(signed(row, "mallory")), "No acl config for mallory")
        wrong = "Check signature failed for accessKey=somebody"
        refused(gate.ask(signed(row, "somebody", "guessed")), wrong)
        refused(gate.ask(signed(row, "somebody", more="9")), wrong)
        named = frame_of(row.code, ext_of(row) | {"AccessKey": "somebody"}, body_of(row))
        refused(gate.ask(named), wrong)

    def test_an_admin_may_do_everything(self, server: Server, gate: Gate, row: Row) -> None:
        take(server, account("operator", admin=True))
        assert gate.ask(signed(row, "operator")) == Answer(True, 0, None)

    def test_exactly_the_rights(self, server: Server, gate: Gate, row: Row) -> None:
        take(server, account("somebody", **perms_for(row)))
        assert gate.ask(signed(row, "somebody")) == Answer(True, 0, None)

    def test_an_account_without_rights(self, server: Server, gate: Gate, row: Row) -> None:
        take(server, account("somebody"))
        answer = gate.ask(signed(row, "somebody"))
        match NEEDS[row.code].plain:
            case Plain.ADMIN:
                text = f"Need admin permission for request code={row.code}, but accessKey=somebody is not"
                refused(answer, text)
            case Plain.RESOURCES:
                assert not answer.processed and "No default permission for " in str(answer.remark)
            case Plain.ACCOUNT:
                assert answer.processed

    def test_a_denial_of_one_is_a_denial(self, server: Server, gate: Gate, row: Row) -> None:
        have = perms_for(row)
        for kind, word in (("topicPerms", "topic"), ("groupPerms", "group")):
            for perm in have[kind]:
                name = perm.partition("=")[0]
                rest = [one for one in have[kind] if one != perm]
                take(server, account("somebody", **have | {kind: [*rest, f"{name}=DENY"]}))
                refused(
                    gate.ask(signed(row, "somebody")), f"No default permission for {word}:{name}"
                )

    @pytest.mark.parametrize("listed", ["everybody", "account"])
    def test_white_lists_let_in_all_but_admins_requests(
        self, server: Server, gate: Gate, row: Row, listed: str
    ) -> None:
        everybody = listed == "everybody"
        own = {} if everybody else {"whiteRemoteAddress": IP}
        take(server, account("somebody", admin=True, **own), white=(IP,) if everybody else ())
        fields = ext_of(row) | ({} if everybody else {"AccessKey": "somebody"})
        frame = frame_of(row.code, fields, body_of(row))
        assert gate.ask(frame).processed is (NEEDS[row.code].plain is not Plain.ADMIN)
        assert not gate.ask(frame, ip="10.0.0.8").processed
        assert gate.ask(signed(row, "somebody")).processed


def test_apaches_admin_codes_and_those_of_accounts_need_an_admin() -> None:
    for code in (17, 25, 200, 207, 215, 50, 51, 53, 54):
        assert NEEDS[code].plain is Plain.ADMIN, code


def judged(server: Server, name: str, code: int, **fields: str) -> Answer:
    gate = Gate(server.guard())
    try:
        row = ROWS[code]
        return gate.ask(
            frame_of(code, *_signed(name, ext_of(row) | fields, body_of(row)), version=400)
        )
    finally:
        gate.close()


def _signed(name: str, fields: dict[str, str], body: bytes) -> tuple[dict[str, str], bytes]:
    from roquette.wire.signature import Credentials, Signer

    ext = Signer(Credentials(name, SECRET)).sign(encode_dict(fields), body)
    return msgspec.json.decode(ext), body


def test_defaults_retry_topics_and_the_trace_topic() -> None:
    server = Server(
        policy_file(
            account("reader1", defaultGroupPerm="SUB", topicPerms=["orders=SUB"]),
            account("bounded", admin=True, topicPerms=["orders=PUB"]),
        )
    )
    server.access.load()
    send = {"b": "orders"}
    assert judged(server, "reader1", 310, **send).remark == (
        APACHES + "No default permission for topic:orders"
    )
    assert judged(server, "reader1", 310, b="RMQ_SYS_TRACE_TOPIC").processed
    assert judged(server, "reader1", 310, b="%RETRY%any").processed  # defaultGroupPerm
    assert judged(server, "bounded", 310, **send).processed
    assert judged(server, "bounded", 310, b="bills").remark == (
        APACHES + "No default permission for topic:bills"
    )  # an admin with perms has these
    assert judged(server, "bounded", 17).processed


def test_without_a_file_or_with_a_broken_one_there_is_no_start() -> None:
    with pytest.raises(ConfigError, match=r"neither /store/config/plain_acl\.yml nor"):
        Server().access.load()
    with pytest.raises(ConfigError, match=r"plain_acl\.yml, line 2: this is not YAML"):
        Server(b"accounts: [").access.load()


def test_changes_of_the_files_count_when_they_stand_still(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        server = Server(policy_file(account("first-one")))
        access = server.access
        access.load()

        async def known_after(looks: int) -> list[str]:
            for _ in range(looks):
                await access.look()
            return list(access.policy.accounts)

        server.put(policy_file(account("second-one")))
        assert await known_after(1) == ["first-one"]
        assert await known_after(1) == ["second-one"]
        server.put(b"accounts: [")
        with caplog.at_level(logging.INFO):
            assert await known_after(5) == ["second-one"]
        assert [r.levelname for r in caplog.records if r.levelname == "ERROR"] == ["ERROR"]
        assert "plain_acl.yml, line 2" in caplog.text and "count on" in caplog.text
        server.put(b"")
        assert await known_after(3) == ["second-one"]
        server.files.remove(PATH)
        assert await known_after(3) == ["second-one"]
        server.put(policy_file(account("second-one")))
        server.put(policy_file(account("in-folder", admin=True)), f"{DIRECTORY}/team.yml")
        server.put(b"accounts: [", f"{DIRECTORY}/team.yml.bak")
        assert await known_after(2) == ["second-one", "in-folder"]
        server.files.remove(f"{DIRECTORY}/team.yml")
        assert await known_after(2) == ["second-one"]

    run(story())


def test_requests_change_accounts_and_white_lists_in_the_files(tmp_path: Path) -> None:
    async def story() -> None:
        path = str(tmp_path / "plain_acl.yml")
        server = Server(None, OsFiles(), path)
        (tmp_path / "acl").mkdir()
        (tmp_path / "plain_acl.yml").write_bytes(policy_file(account("operator", admin=True)))
        (tmp_path / "acl" / "team.yml").write_bytes(
            policy_file(account("teams-own", defaultTopicPerm="SUB"))
        )
        access = server.access
        access.load()
        await server.call(
            50,
            accessKey="new-account",
            secretKey="12345678",
            topicPerms="a=PUB,b=SUB",
            admin="false",
        )
        found = access.policy.accounts["new-account"]
        assert (found.secret, found.topic_perms, found.path) == (
            b"12345678",
            ("a=PUB", "b=SUB"),
            path,
        )
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
        # What is not given stays; the account stays in its file.
        await server.call(50, accessKey="teams-own", secretKey="another1", groupPerms="g=SUB")
        team = access.policy.accounts["teams-own"]
        assert (team.secret, team.default_topic_perm, team.group_perms) == (
            b"another1",
            "SUB",
            ("g=SUB",),
        )
        assert team.path.endswith("acl/team.yml")
        await server.call(53, globalWhiteAddrs="10.1.*.*,10.2.3.4")
        await server.call(53, globalWhiteAddrs="10.7.7.7", aclFileFullPath="acl/team.yml")
        assert access.policy.white.texts == ("10.1.*.*", "10.2.3.4", "10.7.7.7")
        versions = msgspec.json.decode(
            msgspec.json.decode((await server.call(52)).ext)["allAclFileVersion"]
        )
        assert {name: one["counter"] for name, one in versions.items()} == {
            "plain_acl.yml": 2,
            "acl/team.yml": 2,
        }
        await server.call(51, accessKey="new-account")
        assert "new-account" not in access.policy.accounts
        shown = await server.call(54)
        body = msgspec.json.decode(shown.body)
        assert [one["accessKey"] for one in body["plainAccessConfigs"]] == ["operator", "teams-own"]
        assert {one["secretKey"] for one in body["plainAccessConfigs"]} == {"******"}
        # All of it is in the files.
        again = Server(None, OsFiles(), path).access
        again.load()
        assert list(again.policy.accounts) == ["operator", "teams-own"]
        await access.look()
        assert access._seen is None

    run(story())


WRONG = [
    (50, 209, {"accessKey": "short", "secretKey": "12345678"}, "should longer than 6"),
    (50, 209, {"accessKey": "new-account"}, "The secretKey cannot be null"),
    (50, 209, {"accessKey": "new-account", "secretKey": "12345678", "topicPerms": "a"}, "Parse Resource format error"),
    (50, 209, {"accessKey": "new-account", "secretKey": "12345678", "groupPerms": "a=PUT"}, "Parse resource permission error"),
    (50, 209, {"accessKey": "new-account", "secretKey": "12345678", "whiteRemoteAddress": "1.2"}, "is no address"),
    (51, 210, {"accessKey": "nobody-here"}, "has been deleted failed"),
    (53, 211, {"globalWhiteAddrs": "1.2.3"}, "is no address"),
    (53, 211, {"globalWhiteAddrs": "1.2.3.4", "aclFileFullPath": "/etc/passwd"}, "has been updated failed"),
    (53, 211, {"globalWhiteAddrs": "1.2.3.4", "aclFileFullPath": "/store/config/acl/new.yml"}, "has been updated failed"),
]  # fmt: skip


@pytest.mark.parametrize("code, answer, fields, said", WRONG)
def test_what_would_make_a_file_unreadable_is_refused(
    code: int, answer: int, fields: dict[str, str], said: str
) -> None:
    async def story() -> None:
        server = Server(policy_file(account("operator", admin=True)))
        server.access.load()
        before = server.files.read_bytes(PATH)
        with pytest.raises(Refused, match=said) as caught:
            await server.call(code, **fields)
        assert caught.value.code == answer and "12345678" not in caught.value.remark
        assert server.files.read_bytes(PATH) == before
        assert list(server.access.policy.accounts) == ["operator"]

    run(story())


def test_the_requests_are_refused_without_acl_1() -> None:
    for row in PlainProcessor(None, lambda: ("", "", "")).rows(0):
        with pytest.raises(Refused, match="aclEnable=false"):
            row.process(MagicMock(), MagicMock(), b"")


def test_users_and_rules_are_made_of_accounts() -> None:
    server = Server(
        policy_file(
            account("operator", admin=True),
            account("orders1", defaultTopicPerm="DENY", defaultGroupPerm="SUB",
                    topicPerms=["a=PUB|SUB", "b=DENY"], groupPerms=["g=SUB"]),
        )
    )  # fmt: skip
    server.access.load()
    users, acls = policies_of_plain(server.access.policy)
    assert [(u.username, u.password, u.user_type.value) for u in users] == [
        ("operator", SECRET, "Super"),
        ("orders1", SECRET, "Normal"),
    ]
    (acl,) = acls
    assert acl.subject == "User:orders1"
    lines = [f"{p.policy_type.value}: {entry}" for p in acl.policies for entry in p.entries]
    assert lines == [
        "Custom: Allow Pub,Sub on Topic:a",
        "Custom: Deny All on Topic:b",
        "Custom: Allow Sub on Group:g",
        "Default: Deny All on Topic:*",
        "Default: Allow Sub on Group:*",
    ]
    assert Resource.parse("Topic:*") == acl.policies[1].entries[0].resource
