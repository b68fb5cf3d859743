"""plain_acl.yml as Apache's setups have it: what is read, what is refused and how, what is written."""

import random

import pytest

from roquette.access.plain import yaml_text
from roquette.access.plain.policy import DENY, PUB, SUB, PlainPolicy, read_policy
from roquette.access.plain.yaml_text import MAX_BYTES, plain_value, read_yaml, write_yaml
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


def read(*files: bytes) -> PlainPolicy:
    return read_policy((f"file{number}.yml", data) for number, data in enumerate(files))


def test_a_file_of_apaches_form_is_read() -> None:
    policy = read(FILE)
    app, operator = policy.accounts["orders-app"], policy.accounts["operator"]
    assert app.secret == b"12345678"  # YAML's number is the text that stands there
    assert not app.admin and operator.admin
    assert app.perms == {
        "orders": PUB | SUB, "bills": SUB, "gone": DENY, "%RETRY%readers": SUB, "%RETRY%writers": PUB | SUB,
    }  # fmt: skip
    assert not app.white and operator.white.has("192.168.1.77")
    assert policy.white.has("10.10.103.1") and not policy.white.has("10.10.104.1")
    assert (policy.versions["file0.yml"].counter, policy.versions["file0.yml"].timestamp) == (
        7,
        1_700_000_000_000,
    )
    assert policy.notes == ()
    assert "secret" not in repr(policy) and "12345678" not in repr(policy)


def test_rights_fall_back_to_the_defaults() -> None:
    app = read(FILE).accounts["orders-app"]
    assert not app.lacks("orders", PUB) and not app.lacks("bills", SUB)
    assert app.lacks("bills", PUB) and app.lacks("gone", SUB)
    assert app.lacks("other", SUB)  # defaultTopicPerm: DENY
    assert not app.lacks("%RETRY%other", SUB)  # defaultGroupPerm: SUB
    assert read(FILE).accounts["operator"].lacks("orders", PUB)  # no defaults: DENY


def test_several_files_are_one_policy_and_the_first_of_two_accounts_counts() -> None:
    other = b"accounts: [{accessKey: operator, secretKey: another1}, {accessKey: second1, secretKey: another2}]"
    policy = read(FILE, other, b"# nothing\n")
    assert list(policy.accounts) == ["orders-app", "operator", "second1"]
    assert policy.accounts["operator"].admin
    assert "file1.yml, line 1: account 'operator' stands in file0.yml already" in policy.notes[0]
    assert policy.notes[1] == "file2.yml has nothing in it"


def test_names_and_perms_that_mean_nothing_are_said() -> None:
    policy = read(
        b"account: []\naccounts:\n- accessKey: operator\n  secretKey: another1\n  topicPerm: [a=PUB]\n"
        b"  topicPerms: [a=PUBLISH]\n  defaultGroupPerm: sub"
    )
    assert policy.accounts["operator"].lacks("a", PUB)
    text = "\n".join(policy.notes)
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
    (ACCOUNT + b"  whiteRemoteAddress: 10.0.0.0/8", "line 2: '10.0.0.0/8' is no address"),
    (ACCOUNT + b"  topicPerms: [a]", "line 4: 'a' is not of the form"),
    (ACCOUNT + b"  groupPerms: [a=b=c]", "line 4: 'a=b=c' is not of the form"),
    (ACCOUNT + b"  topicPerms: a=PUB", "line 4: topicPerms is not a list"),
    (b"globalWhiteRemoteAddresses: [1.2.3]", "line 1: '1.2.3' is no address"),
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


def rights(data: bytes) -> list[object]:
    accounts = read(data).accounts.values()
    return [(a.access_key, a.secret, a.white.texts, a.admin, a.perms) for a in accounts]


def test_what_is_written_is_read_again_and_numbers_stay_numbers() -> None:
    written = write_yaml(plain_value(read_yaml(FILE, "f")))
    assert rights(written) == rights(FILE)
    assert b"secretKey: 12345678\n" in written and b"counter: 7\n" in written
    odd = {
        "accounts": [
            {"accessKey": "a: [b] 'c' \"d\"", "secretKey": "true", "x": "0123", "y": ["", "# no"]}
        ]
    }
    assert plain_value(read_yaml(write_yaml(odd), "f")) == odd


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
            policy = read(data)
        except ConfigError as error:
            said = str(error)
        else:
            said = "file0.yml"
            read_well += 1
            for account in policy.accounts.values():
                assert len(account.access_key) > 6 and len(account.secret) > 6
                account.lacks("orders", PUB)
        assert "file0.yml" in said and "top secret" not in said
    assert count // 20 < read_well < count
