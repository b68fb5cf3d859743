"""Which entry of a user's policies decides: by example, and against the plain definition on random policies."""

import ipaddress
import random
from itertools import product

import pytest

from roquette.access.guard import Verdict
from roquette.access.model import (
    ANYTHING,
    Acl,
    Action,
    Decision,
    Pattern,
    Policy,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourceType,
    group_resource,
    parse_actions,
    topic_resource,
)
from roquette.access.policies import DENIED, LONGEST, MAX_VERDICTS, NO_MATCH, PolicyTable

PUB, SUB, GET = (Action.PUB,), (Action.SUB,), (Action.GET,)
ALLOW, DENY = Decision.ALLOW, Decision.DENY


def entry(
    key: str, actions: str = "All", decision: Decision = ALLOW, *source_ips: str
) -> PolicyEntry:
    return PolicyEntry(Resource.parse(key), parse_actions(actions.split(",")), source_ips, decision)


def table(*custom: PolicyEntry, default: tuple[PolicyEntry, ...] = ()) -> PolicyTable:
    policies = (Policy(PolicyType.CUSTOM, custom), Policy(PolicyType.DEFAULT, default))
    return PolicyTable([Acl("User:alice", policies)])


def asked(
    rules: PolicyTable, key: str, actions: tuple[Action, ...] = PUB, ip: str = "10.0.0.9"
) -> Verdict:
    return rules.judge("alice", Resource.parse(key), actions, ip)


def test_texts_of_resources_are_apaches() -> None:
    for key in (
        "*",
        "Topic:*",
        "Topic:orders",
        "Group:g*",
        "Cluster:DefaultCluster",
        "Namespace:n",
    ):
        assert str(Resource.parse(key)) == key
    assert str(Resource.parse("topic:a")) == "Topic:a"
    assert Resource.parse("*") == ANYTHING
    assert topic_resource("%RETRY%g") == group_resource("g") == group_resource("%RETRY%g")
    assert str(topic_resource("%DLQ%g")) == "Topic:%DLQ%g"


@pytest.mark.promise("Security", "rules for namespaces, which would decide nothing, are refused")
@pytest.mark.parametrize("key", ["", "orders", "Topic:", "Any:x", "Unknown:x", "Topic:a*b", "Topic:a**", "User:x"])  # fmt: skip
def test_what_is_no_resource_is_refused_with_its_form(key: str) -> None:
    with pytest.raises(ValueError, match="resource"):
        Resource.parse(key)


@pytest.mark.promise(
    "Security",
    "rules: a literal name, the longest prefix, `Topic:*`, `*`; Deny where two fit alike; nothing fits, nothing is allowed",
)
def test_nothing_fits_is_not_allowed() -> None:
    assert asked(PolicyTable(), "Topic:a").why == NO_MATCH
    verdict = asked(table(entry("Topic:b")), "Topic:a")
    assert (verdict.allowed, verdict.why, verdict.rule) == (False, NO_MATCH, "")
    assert (str(verdict.resource), verdict.actions) == ("Topic:a", PUB)


@pytest.mark.promise(
    "Security",
    "rules: a literal name, the longest prefix, `Topic:*`, `*`; Deny where two fit alike; nothing fits, nothing is allowed",
)
def test_a_literal_name_before_the_longest_prefix_before_any_of_its_kind_before_all() -> None:
    entries = [
        entry("*", decision=DENY),
        entry("Topic:*"),
        entry("Topic:or*", decision=DENY),
        entry("Topic:order*"),
        entry("Topic:orders", decision=DENY),
    ]
    rules = table(*random.Random(1).sample(entries, len(entries)))
    assert not asked(rules, "Topic:orders").allowed
    assert asked(rules, "Topic:orders2").allowed
    assert not asked(rules, "Topic:oracle").allowed
    assert asked(rules, "Topic:x").allowed
    assert not asked(rules, "Group:x").allowed
    assert asked(rules, "Topic:orders2").rule == "Custom: Allow All on Topic:order*"


def test_an_entry_counts_only_where_its_action_and_address_fit() -> None:
    rules = table(entry("Topic:a", "Pub", DENY, "10.1.0.0/16"), entry("Topic:*", "Pub,Sub"))
    assert asked(rules, "Topic:a").allowed
    assert asked(rules, "Topic:a", ip="10.1.2.3").why == DENIED
    assert asked(rules, "Topic:a", SUB, ip="10.1.2.3").allowed


def test_default_policies_count_only_where_no_custom_one_fits() -> None:
    rules = table(entry("Topic:*", "Pub", DENY), default=(entry("Topic:a", "Pub,Sub"),))
    assert asked(rules, "Topic:a").why == DENIED
    assert asked(rules, "Topic:a", SUB).allowed


@pytest.mark.promise(
    "Security",
    "rules: a literal name, the longest prefix, `Topic:*`, `*`; Deny where two fit alike; nothing fits, nothing is allowed",
)
@pytest.mark.parametrize("order", [(ALLOW, DENY), (DENY, ALLOW)])
@pytest.mark.parametrize("key", ["Topic:a", "Topic:a*", "Topic:*", "*"])
def test_deny_wins_on_a_tie(key: str, order: tuple[Decision, Decision]) -> None:
    rules = table(*(entry(key, "Pub", decision) for decision in order))
    assert asked(rules, "Topic:a").why == DENIED


def test_any_of_several_actions_is_enough() -> None:
    rules = table(entry("Topic:a", "Sub"))
    assert asked(rules, "Topic:a", (*PUB, *SUB, *GET)).allowed
    assert not asked(rules, "Topic:a", (*PUB, *GET)).allowed
    assert asked(rules, "Topic:a", (Action.ANY,)).allowed
    assert not asked(table(PolicyEntry(Resource.parse("*"), ())), "Topic:a", (Action.ANY,)).allowed


@pytest.mark.parametrize(
    ("sources", "ip", "fits"),
    [
        (("10.0.0.1",), "10.0.0.1", True),
        (("10.0.0.1",), "10.0.0.10", False),
        (("10.0.0.0/8", "1.1.1.1"), "10.9.9.9", True),
        (("10.0.0.77/24",), "10.0.0.1", True),
        (("0.0.0.0/0",), "8.8.8.8", True),
        (("0.0.0.0/0",), "::1", False),  # Apache compares across families
        (("::/0",), "8.8.8.8", False),
        (("fe80::/10",), "fe80::1%eth0", True),
        (("::1",), "0:0:0:0:0:0:0:1", True),
        (("10.0.0.0/8",), "::ffff:10.1.1.1", True),
        (("::ffff:10.0.0.0/104",), "10.1.1.1", True),
        (("nonsense",), "10.0.0.1", False),
        (("10.0.0.0/8",), "nonsense", False),
    ],
)
def test_addresses_and_networks(sources: tuple[str, ...], ip: str, fits: bool) -> None:
    assert asked(table(entry("*", "All", ALLOW, *sources)), "Topic:a", ip=ip).allowed is fits


def test_a_denial_whose_addresses_cannot_be_read_denies_all() -> None:
    rules = table(entry("Topic:a", "Pub", DENY, "10.0.0.0/99"), entry("*"))
    assert not asked(rules, "Topic:a").allowed
    rules = table(entry("Topic:a", "Pub", DENY, "10.0.0.0/8"), entry("*"))
    assert not asked(rules, "Topic:a", ip="?").allowed


def test_a_change_counts_at_once() -> None:
    rules = PolicyTable()
    acl = Acl("User:alice", (Policy(PolicyType.CUSTOM, (entry("Topic:a"),)),))
    assert not asked(rules, "Topic:a").allowed
    rules.put(acl)
    assert asked(rules, "Topic:a").allowed
    rules.put(acl.with_policy(Policy(PolicyType.CUSTOM, (entry("Topic:a", "All", DENY),))))
    assert not asked(rules, "Topic:a").allowed
    rules.replace([acl])
    assert asked(rules, "Topic:a").allowed
    rules.remove("alice")
    assert not asked(rules, "Topic:a").allowed
    rules.replace([acl])
    rules.replace([])
    assert not asked(rules, "Topic:a").allowed


def test_what_is_remembered_is_bounded() -> None:
    rules = table(entry("Topic:*"))
    for number in range(2 * MAX_VERDICTS + 5):
        assert asked(rules, f"Topic:t{number}").allowed
    assert len(rules._verdicts) <= MAX_VERDICTS
    for number in range(2 * MAX_VERDICTS + 5):
        rules.remember("alice", 310, ("t", str(number)), "")
        assert len(rules._known) <= MAX_VERDICTS


def test_names_that_nothing_has_are_not_kept() -> None:
    """A header may have 512 KiB: an account would fill the memory with 10,000 topics that it has no right to."""
    rules = table(entry("Topic:t*"))
    name = "t" + "x" * 100_000
    assert asked(rules, f"Topic:{name}").allowed
    assert not asked(rules, f"Topic:y{name}").allowed
    for said in (name, ("t", name), (None, name)):
        rules.remember("alice", 310, said, "")
        assert not rules.knows("alice", 310, said, "")
    assert not rules._verdicts
    for said in ("t" * LONGEST, ("t", None)):
        rules.remember("alice", 11, said, "")
        assert rules.knows("alice", 11, said, "")
    assert asked(rules, "Topic:" + "t" * LONGEST).allowed and rules._verdicts


NAMES = ("", "a", "ab", "abc", "abcd", "b")
IPS = ("10.0.0.1", "10.1.0.1", "11.0.0.1", "::1")
SOURCES = ((), (), ("10.0.0.1",), ("10.0.0.0/8",), ("10.1.0.0/16", "::1"), ("::/1",))


def plain_definition(
    acl: Acl, resource: Resource, actions: tuple[Action, ...], ip: str
) -> Decision | None:
    """All entries that fit, and the nearest of them: as the source of the rule has it, with Deny first on a tie."""
    order = {Pattern.LITERAL: 0, Pattern.PREFIXED: 1, Pattern.ANY: 2}

    def fits(one: PolicyEntry) -> bool:
        does = bool(one.actions) and (
            Action.ANY in actions or Action.ALL in one.actions or set(actions) & set(one.actions)
        )
        here = not one.source_ips or any(
            ipaddress.ip_address(ip) in ipaddress.ip_network(source) for source in one.source_ips
        )
        return one.resource.covers(resource) and bool(does) and here

    for kind in (PolicyType.CUSTOM, PolicyType.DEFAULT):
        policy = acl.policy(kind)
        fitting = [one for one in (policy.entries if policy else ()) if fits(one)]
        if fitting:
            fitting.sort(
                key=lambda one: (
                    one.resource.kind is ResourceType.ANY,
                    order[one.resource.pattern],
                    -len(one.resource.name),
                    one.decision is ALLOW,
                )
            )
            return fitting[0].decision
    return None


def random_entry(chance: random.Random) -> PolicyEntry:
    kind = chance.choice((ResourceType.TOPIC, ResourceType.GROUP, ResourceType.ANY))
    pattern = Pattern.ANY if kind is ResourceType.ANY else chance.choice(list(Pattern))
    name = "" if pattern is Pattern.ANY else chance.choice(NAMES)
    actions = tuple(chance.sample(list(Action), chance.choice((0, 1, 1, 2))))
    return PolicyEntry(
        Resource(kind, name, pattern), actions, chance.choice(SOURCES), chance.choice((ALLOW, DENY))
    )


def test_the_compiled_table_decides_as_the_plain_definition_does() -> None:
    chance = random.Random(16)
    resources = [
        Resource(kind, name)
        for kind, name in product((ResourceType.TOPIC, ResourceType.GROUP), NAMES)
    ]
    seen = set()
    for _ in range(300):
        policies = tuple(
            Policy(kind, tuple(random_entry(chance) for _ in range(chance.randrange(7))))
            for kind in chance.sample(list(PolicyType), chance.choice((1, 2)))
        )
        acl = Acl("User:alice", policies)
        rules = PolicyTable([acl])
        for resource in resources:
            actions = tuple(chance.sample([one for one in Action if one is not Action.ALL], chance.choice((1, 2))))  # fmt: skip
            ip = chance.choice(IPS)
            decision = plain_definition(acl, resource, actions, ip)
            verdict = rules.judge("alice", resource, actions, ip)
            why = {ALLOW: "", DENY: DENIED, None: NO_MATCH}[decision]
            assert (verdict.allowed, verdict.why) == (decision is ALLOW, why), (acl, resource)
            seen.add(decision)
    assert seen == {ALLOW, DENY, None}
