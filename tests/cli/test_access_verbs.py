"""Users and rules by verbs, against a real `roquette dev` that is open: servers keep them before they ask for them."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Roquette

from roquette.errors import ClientError, ConfigError


def json_of(roquette: Roquette, *words: str, stdin: str | None = None) -> Any:
    done = roquette(*words, "-o", "json", stdin=stdin)
    assert done.exit_code in (0, 10), (words, done.stderr, done.exception)
    return json.loads(done.stdout)


def test_users_are_created_shown_changed_and_deleted_everywhere(
    roquette: Roquette, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the-secret-of-ann\nanother line\n")

    created = json_of(roquette, "user", "create", "ann", "--password-file", str(secret))
    assert sorted(row["server"] for row in created["servers"]) == ["broker-a", "name server"]
    assert {row["result"] for row in created["servers"]} == {"done"}
    assert "password" not in created
    piped = json_of(
        roquette, "user", "create", "bob", "--password-file", "-", "--super", stdin="s3\n"
    )
    assert piped["user"] == "bob"
    generated = json_of(roquette, "user", "create", "cid", "--generate", "--disabled")
    assert len(generated["password"]) >= 32
    for form in ("json", "table"):  # nothing was changed: there is nothing to show
        again = roquette("user", "create", "cid", "--generate", "-o", form)
        assert isinstance(again.exception, ClientError)
        assert "password" not in again.stdout + again.stderr

    assert json_of(roquette, "user", "ls") == [
        {"username": "ann", "user_type": "Normal", "user_status": "enable", "error": ""},
        {"username": "bob", "user_type": "Super", "user_status": "enable", "error": ""},
        {"username": "cid", "user_type": "Normal", "user_status": "disable", "error": ""},
    ]
    roquette("user", "update", "ann", "--disable")
    changed = json_of(roquette, "user", "update", "cid", "--enable", "--super", "--generate")
    assert changed["password"] != generated["password"]
    statuses = {row["username"]: row["user_status"] for row in json_of(roquette, "user", "ls")}
    assert statuses == {"ann": "disable", "bob": "enable", "cid": "enable"}
    everything = roquette("user", "ls").stdout + roquette("user", "show", "ann").stdout
    assert "secret" not in everything

    for name in ("ann", "bob", "cid"):
        assert roquette("user", "delete", name, "--yes").exit_code == 0
    assert json_of(roquette, "user", "ls") == []
    assert isinstance(roquette("user", "show", "ann").exception, ClientError)


def test_rules_are_added_to_and_asked_about(roquette: Roquette) -> None:
    roquette("user", "create", "app1", "--generate")
    allowed = roquette("acl", "allow", "app1", "sub", "orders*")
    assert "Allow Sub on Topic:orders*" in allowed.stderr
    assert "acl allow app1 sub Group:NAME" in allowed.stderr
    json_of(roquette, "acl", "allow", "app1", "pub", "orders*")
    json_of(roquette, "acl", "deny", "app1", "all", "orders-internal")
    json_of(roquette, "acl", "allow", "app1", "pub", "Topic:invoices", "--from", "10.0.0.0/8")

    rules = {row["resource"]: row for row in json_of(roquette, "acl", "show", "app1")}
    assert set(rules["Topic:orders*"]["actions"].split(",")) == {"Pub", "Sub"}
    assert rules["Topic:orders-internal"]["decision"] == "Deny"
    assert rules["Topic:invoices"]["source_ips"] == "10.0.0.0/8"
    shown = json_of(roquette, "user", "show", "app1")
    assert len(shown["rules"]) == 3

    def check(actions: str, resource: str, *more: str) -> list[tuple[bool, str]]:
        rows = json_of(roquette, "acl", "check", "app1", actions, resource, *more)
        return [(row["allowed"], row["why"]) for row in rows]

    assert [allowed for allowed, _ in check("pub,sub", "orders-new")] == [True, True]
    assert "Topic:orders*" in check("pub", "orders-new")[0][1]
    assert check("pub", "orders-internal")[0] == (
        False,
        "Custom: Deny All on Topic:orders-internal",
    )
    assert check("get", "orders-new") == [(False, "no matched policies.")]
    assert check("pub", "invoices", "--from", "10.0.0.7")[0][0]
    assert not check("pub", "invoices", "--from", "192.0.2.1")[0][0]
    assert roquette("acl", "check", "app1", "pub", "other").exit_code == 10
    assert roquette("acl", "check", "app1", "pub", "orders-1").exit_code == 0
    assert "there is no such user" in roquette("acl", "check", "nobody", "pub", "t").stdout
    roquette("user", "update", "app1", "--disable")
    assert "disabled" in roquette("acl", "check", "app1", "pub", "orders-1").stdout

    clash = roquette("acl", "deny", "app1", "pub", "orders*").exception
    assert isinstance(clash, ConfigError)
    assert "--replace" in str(clash)
    json_of(roquette, "acl", "deny", "app1", "pub", "orders*", "--replace")
    roquette("acl", "rm", "app1", "Topic:invoices")
    left = json_of(roquette, "acl", "ls", "--user", "app1")
    assert {(row["resource"], row["decision"]) for row in left} == {
        ("Topic:orders*", "Deny"), ("Topic:orders-internal", "Deny"),
    }  # fmt: skip
    assert roquette("acl", "rm", "app1", "--yes").exit_code == 0
    assert json_of(roquette, "acl", "show", "app1") == []
    roquette("user", "delete", "app1", "--yes")


def test_a_dry_run_says_what_and_does_nothing(roquette: Roquette) -> None:
    roquette("user", "create", "dry", "--generate")
    roquette("acl", "allow", "dry", "pub", "kept")
    for words, said in (
        (("user", "create", "eve", "--generate"), "would create user eve"),
        (("user", "update", "dry", "--disable"), "would change user dry"),
        (("user", "delete", "dry"), "would delete user dry"),
        (("acl", "allow", "dry", "sub", "kept"), "would set Allow Pub,Sub on Topic:kept"),
        (("acl", "deny", "dry", "sub", "other"), "would set Deny Sub on Topic:other"),
        (("acl", "rm", "dry"), "would remove Allow Pub on Topic:kept"),
    ):
        done = roquette(*words, "--dry-run")
        assert done.exit_code == 0, (words, done.exception)
        assert said in done.stdout
        assert "broker-a" in done.stdout
        assert "name server" in done.stdout
    assert [row["username"] for row in json_of(roquette, "user", "ls")] == ["dry"]
    assert [row["actions"] for row in json_of(roquette, "acl", "show", "dry")] == ["Pub"]
    roquette("user", "delete", "dry", "--yes")


def test_what_cannot_be_is_said_in_words(roquette: Roquette, tmp_path: Path) -> None:
    for words, text in (
        (("user", "create", "x"), "no terminal to ask for a password"),
        (("user", "create", "x", "--generate", "--password-file", "-"), "not both"),
        (("user", "create", "x", "--password-file", "/does/not/exist"), "cannot be read"),
        (("user", "update", "x"), "nothing to change"),
        (("acl", "allow", "x", "fly", "t"), "actions are"),
        (("acl", "allow", "x", "any", "t"), "a rule names its actions"),
        (("acl", "allow", "x", "pub", "Topic:a*b"), "'*'"),
        (("acl", "allow", "x", "pub", "t", "--from", "nowhere"), "neither an address"),
        (("acl", "check", "x", "pub", "t*"), "requests have no *"),
    ):
        error = roquette(*words, stdin="").exception
        assert isinstance(error, ConfigError), words
        assert text in str(error), words
    error = roquette("acl", "allow", "nobody", "pub", "t").exception
    assert isinstance(error, ClientError)
    assert "not done on broker-a" in str(error)


def test_partial_results_are_said(roquette: Roquette, namesrv: str) -> None:
    gone = f"{namesrv};127.0.0.1:9"
    done = roquette("user", "create", "part", "--generate", "-n", gone)
    assert isinstance(done.exception, ClientError)
    assert "127.0.0.1:9" in str(done.exception)
    assert "done" in done.stdout
    rows = json.loads(roquette("user", "ls", "-n", gone, "-o", "json").stdout)
    assert "127.0.0.1:9" in rows[0]["error"]
    roquette("user", "delete", "part", "--yes")


@pytest.mark.parametrize(
    "text, words",
    [
        ("accessKey=a\n", "one of them is empty"),
        ("accessKey=a\nsecretKey=b\nsecretkey=c\n", "unknown key secretkey"),
        ("accessKey=a\nsecretKey=b\ntls.enable=perhaps\n", "must be true or false"),
    ],
)
def test_a_login_file_that_is_wrong_is_refused_without_its_secret(
    roquette: Roquette, tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "login"
    file.write_text(text)
    error = roquette("cluster", "--login", str(file)).exception
    assert isinstance(error, ConfigError)
    assert words in str(error)
    assert "=b" not in str(error)


def test_accounts_of_acl_1_become_users(roquette: Roquette, tmp_path: Path) -> None:
    plain = tmp_path / "plain_acl.yml"
    plain.write_text(
        "accounts:\n"
        "- {accessKey: old-admin, secretKey: 12345678, admin: true}\n"
        "- {accessKey: old-app, secretKey: 87654321, whiteRemoteAddress: 10.1.2.*, defaultTopicPerm: DENY,"
        " topicPerms: [orders=PUB|SUB], groupPerms: [billing=SUB]}\n"
    )
    dry = roquette("acl", "import", str(plain), "--dry-run")
    assert "plain_acl.yml, line 3: white lists have no like" in dry.stderr
    planned = dry.stdout
    assert "would make user old-app (Normal) with 3 rules" in planned
    assert "87654321" not in planned
    assert json_of(roquette, "user", "ls") == []

    assert roquette("acl", "import", str(plain)).exit_code == 0
    users = {row["username"]: row["user_type"] for row in json_of(roquette, "user", "ls")}
    assert users == {"old-admin": "Super", "old-app": "Normal"}
    for resource, allowed in (("orders", True), ("Group:billing", True), ("other", False)):
        done = roquette("acl", "check", "old-app", "sub", resource)
        assert done.exit_code == (0 if allowed else 10), done.stdout
    wrong = tmp_path / "wrong.yml"
    wrong.write_text("accounts: [{accessKey: x}]\n")
    assert "wrong.yml" in str(roquette("acl", "import", str(wrong)).exception)
    for name in users:
        assert roquette("user", "delete", name, "--yes").exit_code == 0


def test_a_cluster_that_takes_anybody_is_open(roquette: Roquette) -> None:
    assert json_of(roquette, "user", "prove") == {"result": "open"}
    assert roquette("user", "prove").exit_code == 10
