"""Policies of ACL 2.0, compiled once per change: a request costs a few look-ups, however many entries there are.

Which entry decides, as Apache's AclAuthorizationHandler has it: of those that fit resource, action and address, the
user's Custom ones before the Default ones; among them a literal name before the longest prefix before `Topic:*` before
`*`. Where two fit equally well Deny wins: Apache's comparator says so in its comment and does the opposite.
Nothing fits: not allowed. Other than Apache's: the broker's own topics, where everybody's delayed, timed and half messages
wait, are meant by their literal names alone.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from roquette.access.guard import Account, Verdict
from roquette.access.model import (
    Acl,
    Action,
    Decision,
    Needed,
    Pattern,
    Policy,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourceType,
)
from roquette.message.names import is_inner_topic
from roquette.remoting.request import RequestContext

MAX_VERDICTS: Final = 10_000  # remembered; beyond it they are forgotten, all at once
LONGEST: Final = 300  # characters of a name, beyond which nothing is remembered
NO_MATCH: Final = "no matched policies."
DENIED: Final = "the decision is deny."

_BITS: Final = {action: 1 << place for place, action in enumerate(Action)}
_EVERY: Final = (1 << len(_BITS)) - 1
_ALLOWED: Final = Verdict(True)

_Address = tuple[int, int]  # 4 or 6, and its number


class _Places:
    """The addresses an entry is for."""

    __slots__ = ("_networks", "_singles", "everywhere")

    def __init__(self, texts: Sequence[str], deny: bool) -> None:
        self.everywhere: bool = not texts
        self._singles: set[_Address] = set()
        self._networks: list[tuple[int, int, int]] = []
        for text in texts:
            try:
                network = ipaddress.ip_network(text.strip(), strict=False)
            except ValueError:
                self.everywhere |= deny  # what cannot be read allows nothing, and denies all
                continue
            address = _number(network.network_address)
            width = 32 if address[0] == 4 else 128
            kept = width - network.max_prefixlen + network.prefixlen
            if kept == width:
                self._singles.add(address)
            elif kept >= 0:
                shift = width - kept
                self._networks.append((address[0], address[1] >> shift, shift))

    def hold(self, address: _Address) -> bool:
        if address in self._singles:
            return True
        version, number = address
        return any(v == version and number >> shift == net for v, net, shift in self._networks)


def _number(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> _Address:
    """An IPv4 address within IPv6 (::ffff:10.0.0.1) is the IPv4 one."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    found = address if mapped is None else mapped
    return found.version, int(found)


@lru_cache(maxsize=1_000)
def _address(ip: str) -> _Address | None:
    try:
        return _number(ipaddress.ip_address(ip.partition("%")[0]))
    except ValueError:
        return None


@lru_cache(maxsize=1_000)
def _mask_of(actions: tuple[Action, ...]) -> int:
    if Action.ANY in actions:
        return _EVERY
    return sum({_BITS[action] for action in actions})


class _Rule:
    """A compiled entry."""

    __slots__ = ("deny", "mask", "places", "verdict")

    def __init__(self, entry: PolicyEntry, policy_type: PolicyType) -> None:
        self.deny = entry.decision is Decision.DENY
        given = {_BITS[action] for action in entry.actions}
        self.mask: int = _EVERY if Action.ALL in entry.actions else sum(given)
        self.places = _Places(entry.source_ips, self.deny)
        rule = f"{policy_type.value}: {entry}"
        self.verdict = Verdict(not self.deny, DENIED if self.deny else "", rule)

    def fits(self, action_mask: int, address: _Address | None) -> bool:
        if not self.mask & action_mask:
            return False
        if self.places.everywhere:
            return True
        return self.deny if address is None else self.places.hold(address)


_Rules = list[_Rule]


class _Level:
    """The entries of one policy by how they name their resource."""

    __slots__ = ("_exact", "_kinds", "_lengths", "_prefixes")

    def __init__(self, policy: Policy) -> None:
        self._exact: dict[Resource, _Rules] = {}
        self._kinds: dict[ResourceType, _Rules] = {}  # `Topic:*`; under Kind.ANY `*`
        self._prefixes: dict[tuple[ResourceType, str], _Rules] = {}
        lengths: dict[ResourceType, set[int]] = {}
        for entry in policy.entries:
            resource = entry.resource
            rule = _Rule(entry, policy.policy_type)
            if resource.pattern is Pattern.ANY or resource.kind is ResourceType.ANY:
                self._kinds.setdefault(resource.kind, []).append(rule)
            elif resource.pattern is Pattern.PREFIXED:
                lengths.setdefault(resource.kind, set()).add(len(resource.name))
                self._prefixes.setdefault((resource.kind, resource.name), []).append(rule)
            else:
                self._exact.setdefault(resource, []).append(rule)
        self._lengths = {kind: sorted(found, reverse=True) for kind, found in lengths.items()}

    def best(self, resource: Resource, action_mask: int, address: _Address | None) -> _Rule | None:
        """The entry that decides, of those that fit; None when none does."""
        for rules in self._nearest_first(resource):
            fitting = [rule for rule in rules if rule.fits(action_mask, address)]
            if fitting:
                return next((rule for rule in fitting if rule.deny), fitting[0])
        return None

    def _nearest_first(self, resource: Resource) -> Iterator[_Rules]:
        kind, name = resource.kind, resource.name
        exact = self._exact.get(resource)
        if exact is not None:
            yield exact
        if kind is ResourceType.TOPIC and is_inner_topic(name):
            return  # everybody's messages: no pattern means them
        for length in self._lengths.get(kind, ()):
            rules = self._prefixes.get((kind, name[:length]))
            if rules is not None:
                yield rules
        for any_of in (kind, ResourceType.ANY):
            rules = self._kinds.get(any_of)
            if rules is not None:
                yield rules


class PolicyTable:
    """Policies of every user. One writer, the event loop's thread; what changes a user's policies calls `put`."""

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self._levels: dict[str, tuple[_Level, ...]] = {}
        self._with_places: set[str] = set()  # users with an entry for some addresses only
        self._verdicts: dict[tuple[str, Resource, tuple[Action, ...], str], Verdict] = {}
        self._known: set[tuple[str, int, object, str]] = set()  # `knows`
        self.replace(acls)

    def replace(self, acls: Iterable[Acl]) -> None:
        """These and no others."""
        self._levels.clear()
        self._with_places.clear()
        for acl in acls:
            self.put(acl)
        self._forget()

    def put(self, acl: Acl) -> None:
        """All policies of one user, new or instead of those before."""
        name = acl.username
        found = [acl.policy(kind) for kind in (PolicyType.CUSTOM, PolicyType.DEFAULT)]
        policies = [policy for policy in found if policy is not None]
        self._levels[name] = tuple(map(_Level, policies))
        self._with_places.discard(name)
        if any(entry.source_ips for policy in policies for entry in policy.entries):
            self._with_places.add(name)
        self._forget()

    def remove(self, username: str) -> None:
        """The user has no policies any more."""
        self._levels.pop(username, None)
        self._with_places.discard(username)
        self._forget()

    def judge(
        self, username: str, resource: Resource, actions: tuple[Action, ...], ip: str
    ) -> Verdict:
        """Judge if one of `actions` on `resource` is allowed from `ip`, and by which entry."""
        place = ip if username in self._with_places else ""
        key = (username, resource, actions, place)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._decide(*key)
            if len(resource.name) <= LONGEST:
                if len(self._verdicts) >= MAX_VERDICTS:
                    self._verdicts.clear()
                self._verdicts[key] = verdict
        return verdict

    def knows(self, name: str, code: int, cache_key: object, ip: str) -> bool:
        """`guard.Judge`."""
        return (name, code, cache_key, ip if name in self._with_places else "") in self._known

    def remember(self, name: str, code: int, cache_key: object, ip: str) -> None:
        """`guard.Judge`."""
        words = cache_key if isinstance(cache_key, tuple) else (cache_key,)
        if all(word is None or len(word) <= LONGEST for word in words):
            if len(self._known) >= MAX_VERDICTS:
                self._known.clear()
            self._known.add((name, code, cache_key, ip if name in self._with_places else ""))

    def _forget(self) -> None:
        self._verdicts.clear()
        self._known.clear()

    def _decide(
        self, username: str, resource: Resource, actions: tuple[Action, ...], ip: str
    ) -> Verdict:
        action_mask = _mask_of(actions)
        for level in self._levels.get(username, ()):
            rule = level.best(resource, action_mask, _address(ip))
            if rule is not None:
                found = rule.verdict
                return found if found.allowed else _verdict_for(found, resource, actions)
        return _verdict_for(Verdict(False, NO_MATCH), resource, actions)


def _verdict_for(verdict: Verdict, resource: Resource, actions: tuple[Action, ...]) -> Verdict:
    return Verdict(verdict.allowed, verdict.why, verdict.rule, resource, actions)


class PolicyJudge:
    """The judge of ACL 2.0: every resource of a request must be allowed."""

    def __init__(self, table: PolicyTable) -> None:
        self._table = table
        self.knows, self.remember = table.knows, table.remember

    def judge(
        self,
        account: Account,
        job: RequestContext | None,
        header: Any,
        needs: Sequence[Needed],
        ip: str,
    ) -> Verdict:
        """The first that is not allowed, else the last."""
        verdict = _ALLOWED
        for resource, actions in needs:
            verdict = self._table.judge(account.name, resource, actions, ip)
            if not verdict.allowed:
                break
        return verdict
