"""plain_acl.yml as Apache's setups have it: what is read, what is refused and how, which users and rules come of it."""

import random

import pytest

from roquette.access.records import PlainAccounts, read_accounts
from roquette.base import yaml_text
from roquette.base.yaml_text import MAX_BYTES
from roquette.errors import ConfigError

FILE = b"""
# the addresses of the brokers
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*
accounts:
  - accessKey: orders-app
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - orders=PUB|SUB
      - bills = SUB
      - gone=DENY
    groupPerms:
      # a group
      - readers=SUB
      - writers=PUB|SUB
  - {accessKey: "operator", secretKey: 'top secret', whiteRemoteAddress: 192.168.1.*, admin: yes}
dataVersion:
- counter: 7
  timestamp: 1700000000000
"""


def read(*files: bytes) -> PlainAccounts:
    return read_accounts((f"file{number}.yml", data) for number, data in enumerate(files))


def rules(found: PlainAccounts) -> dict[str, list[str]]:
    """User -> its rules, those for what no rule names last."""
    return {
        acl.username: [
            f"{p.policy_type.value}: {entry}" for p in acl.policies for entry in p.entries
        ]
        for acl in found.acls
    }


def test_a_file_of_apaches_form_is_read() -> None:
    found = read(FILE)
    assert [(user.username, user.password, user.user_type.value) for user in found.users] == [
        ("orders-app", "12345678", "Normal"),  # YAML's number is the text that stands there
        ("operator", "top secret", "Super"),
    ]
    assert rules(found) == {
        "orders-app": [
            "Custom: Allow Pub,Sub on Topic:orders",
            "Custom: Allow Sub on Topic:bills",
            "Custom: Deny All on Topic:gone",
            "Custom: Allow Sub on Group:readers",
            "Custom: Allow Pub,Sub on Group:writers",
            "Default: Deny All on Topic:*",
            "Default: Allow Sub on Group:*",
        ]
    }
    assert "secret" not in repr(found) and "12345678" not in repr(found)


def test_a_retry_topic_is_its_groups() -> None:
    found = read(
        ACCOUNT + b'  topicPerms: ["%RETRY%g=SUB", "%RETRY%h=PUB"]\n  groupPerms: [h=DENY]'
    )
    assert rules(found) == {
        "operator": ["Custom: Allow Sub on Group:g", "Custom: Deny All on Group:h"]
    }


def test_white_lists_are_not_taken_over_and_it_is_said() -> None:
    said = [note for note in read(FILE).notes if "white lists have no like" in note]
    assert [note.partition(": ")[0] for note in said] == [
        f"file0.yml, line {line}" for line in (4, 5, 21)
    ]
    assert len(read(FILE).notes) == len(said)


def test_several_files_are_one_policy_and_the_first_of_two_accounts_counts() -> None:
    other = b"accounts: [{accessKey: operator, secretKey: another1}, {accessKey: second1, secretKey: another2}]"
    found = read(FILE, other, b"# nothing\n")
    assert {user.username: user.password for user in found.users} == {
        "orders-app": "12345678",
        "operator": "top secret",
        "second1": "another2",
    }
    assert "file1.yml, line 1: account 'operator' stands in file0.yml already" in found.notes[-2]
    assert found.notes[-1] == "file2.yml has nothing in it"


def test_names_and_perms_that_mean_nothing_are_said() -> None:
    found = read(
        b"account: []\naccounts:\n- accessKey: operator\n  secretKey: another1\n  topicPerm: [a=PUB]\n"
        b"  topicPerms: [a=PUBLISH]\n  defaultGroupPerm: sub"
    )
    assert rules(found) == {
        "operator": ["Custom: Deny All on Topic:a", "Default: Deny All on Group:*"]
    }
    text = "\n".join(found.notes)
    for said in ("'account'", "'topicPerm'", "'PUBLISH'", "'sub'", "it denies"):
        assert said in text


ACCOUNT = b"accounts:\n- accessKey: operator\n  secretKey: another1\n"
REFUSED = [
    (b"accounts: &a []\nother: *a", "line 1: anchors and aliases"),
    (b"a: !!python/object/apply:os.system [id]", "line 1: tags"),
    (b"accounts: !!org.apache.rocketmq.common.PlainAccessConfig {}", "line 1: tags"),
    (b"[" * 100_000, "line 1: lists and mappings deeper than 8"),
    (b"{a: " * 5_000, "line 1: lists and mappings deeper than 8"),
    (b"accounts:\n- " + b"[" * 9, "line 2: lists and mappings deeper than 8"),
    (b"a: '[[[[[[[[[[[[[[[['\nb: 'no end", "this is not YAML"),
    (b"a: 1\na: 2", "line 2: 'a' is given twice"),
    (b"<<: {a: 1}", "line 1: this key"),
    (b"? [a]\n: b", "line 1: this key"),
    (b"---\na: 1\n---\nb: 1\n", "line 3: a second document"),
    (b"\n- a", "line 1: a policy file has"),
    (b"accounts:\n  x: 1", "line 2: accounts is not a list"),
    (b"accounts:\n - text", "line 2: an item of accounts is not"),
    (b"accounts: [", "this is not YAML"),
    (b"a: \x00", "line 1: this is not YAML"),
    (b"\na: \xff", "line 2: this is not UTF-8"),
    (b"accounts:\n- accessKey: operator", "line 2: this account has no secretKey"),
    (
        b"accounts:\n- {accessKey: short, secretKey: another1}",
        "line 2: this account has no accessKey",
    ),
    (ACCOUNT + b"  admin: maybe", "line 2: admin is true or false"),
    (ACCOUNT + b"  whiteRemoteAddress: [1.2.3.4]", "line 4: whiteRemoteAddress is not a text"),
    (ACCOUNT + b"  topicPerms: [a]", "line 4: 'a' is not of the form"),
    (ACCOUNT + b"  groupPerms: [a=b=c]", "line 4: 'a=b=c' is not of the form"),
    (ACCOUNT + b"  topicPerms: a=PUB", "line 4: topicPerms is not a list"),
    (b"globalWhiteRemoteAddresses: [[1.2.3.4]]", "line 1: an item of globalWhiteRemoteAddresses"),
    (b"#" * (MAX_BYTES + 1), f"has {MAX_BYTES + 1} bytes"),
]


@pytest.mark.parametrize("data, said", REFUSED)
def test_what_cannot_be_read_is_refused_with_file_line_and_what_to_do(
    data: bytes, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(data)
    assert said in str(caught.value) and "file0.yml" in str(caught.value)
    assert "another1" not in str(caught.value)


def test_more_values_than_may_be_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_text, "MAX_NODES", 1_000)
    with pytest.raises(ConfigError, match="more than 1000 values"):
        read(b"a: [" + b",".join([b"1"] * 1_001) + b"]")


SPICES = (
    b"&a",
    b"*a",
    b"  - ",
    b"!!str x",
    b"? ",
    b"---",
    b"...",
    b"%YAML 1.2",
    b"\t- x",
    b"  a: |",
    b"'",
    b"[{",
    b"accounts:",
)


def mutated(random_: random.Random, data: bytes) -> bytes:
    """`data` with a few lines or bytes otherwise."""
    lines = data.split(b"\n")
    for _ in range(random_.randrange(1, 4)):
        place = random_.randrange(len(lines))
        line = lines[place]
        match random_.randrange(5):
            case 0:
                lines[place] = lines[random_.randrange(len(lines))]
            case 1:
                lines[place] = b" " * random_.randrange(8) + line.lstrip()
            case 2 if line:
                at = random_.randrange(len(line))
                lines[place] = line[:at] + bytes([random_.randrange(256)]) + line[at + 1 :]
            case 3:
                lines.insert(place, random_.choice(SPICES))
            case _:
                lines[place : place + random_.randrange(1, 3)] = [b""]
    return b"\n".join(lines)


@pytest.mark.parametrize(
    "count",
    [2_000, pytest.param(1_000_000, marks=[pytest.mark.long, pytest.mark.timeout(7200)])],
)
def test_mutated_files_are_read_or_refused(count: int) -> None:
    random_ = random.Random(16)
    read_well = 0
    for _ in range(count):
        data = mutated(random_, FILE)
        try:
            found = read(data)
        except ConfigError as error:
            said = str(error)
        else:
            said = "file0.yml"
            read_well += 1
            for user in found.users:
                assert len(user.username) > 6 and len(user.password) > 6
            assert {acl.username for acl in found.acls} <= {user.username for user in found.users}
        assert "file0.yml" in said and "top secret" not in said
    assert count // 20 < read_well < count
