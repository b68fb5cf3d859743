"""A random attacker finds nothing, and finds something as soon as a guard is missing."""

from typing import Any

import pytest
from tests.access.test_mutations import MUTATIONS, Patch
from tests.simulation.attacker import REQUESTS, run_world, shrunk
from tests.simulation.attacker_model import PARTIES

from roquette.access import needs, users
from roquette.access.guard import Account
from roquette.broker.replication import table_feed
from roquette.broker.sending import feature
from roquette.message.names import retry_topic
from roquette.nameserver import controller
from roquette.proxy import cluster
from roquette.proxy import cluster as places
from roquette.proxy.access import CallGuard
from roquette.proxy.service import Proxy
from roquette.remoting.request import RequestContext
from roquette.wire.codes import RequestCode

pytestmark = pytest.mark.simulation

MANY = 200_000
MOST_WORLDS = 400  # in which a missing guard must be found


@pytest.mark.promise(
    "Security",
    "somebody with few rights, asking anything, learns and changes nothing that they do not give",
)
@pytest.mark.parametrize("party", PARTIES)
def test_nothing_is_learnt_or_changed_that_no_right_gives(party: str) -> None:
    world = run_world(1_000, 150, party)
    assert world.found == [], shrunk(1_000, 150, party)


@pytest.mark.long
@pytest.mark.timeout(14_400)
@pytest.mark.parametrize("part", range(4))
def test_two_hundred_thousand_requests(part: int) -> None:
    for seed in range(part, MANY // REQUESTS, 4):
        assert run_world(seed).found == [], shrunk(seed, REQUESTS)


def _any_signer(patch: Patch) -> None:
    """Who has signed is a super user."""
    signer = users.Users.signer

    def super_user(self: users.Users, job: RequestContext) -> Account | None:
        found = signer(self, job)
        return found and Account(found.name, found.secret, True, found.enabled)

    patch.setattr(users.Users, "signer", super_user)


async def _proves_nothing(*_: Any) -> None:
    return None


def _own_retries(patch: Patch) -> None:
    for module in (feature, places):
        patch.setattr(module, "judged_topic", lambda topic, group, said: retry_topic(group))


def _unsealed(patch: Patch) -> None:
    """Neither proofs nor seals."""
    MUTATIONS["what servers sign serves again"][0](patch)
    patch.setattr(table_feed, "seal", lambda secret, once, nonce, words: words)


def _any_client(patch: Patch) -> None:
    watch = CallGuard.watch

    def watched(guard: CallGuard, proxy: Proxy) -> None:
        watch(guard, proxy)
        guard.clients = None

    patch.setattr(CallGuard, "watch", watched)


OF_ISSUE_34: dict[str, Any] = {
    "what is for super users is for all": _any_signer,
    "users are not sealed, and what servers sign serves again": _unsealed,
    "a proxy proves no place": lambda patch: patch.setattr(cluster, "prove_place", _proves_nothing),
    "retries are of the group that says so": _own_retries,
    "a v5 client's id is anybody's": _any_client,
    "a producer stays one": lambda patch: patch.setattr(CallGuard, "publishes", lambda *_: True),
    "who may look may be a sign of life": lambda patch: patch.setitem(
        needs.NEEDS, RequestCode.QUERY_DATA_VERSION, needs.Need(otherwise=needs.GET)
    ),
    "any key is a record's": lambda patch: patch.setattr(
        controller, "is_record_key", lambda key: True
    ),
}
GUARDS: dict[str, Any] = {words: change for words, (change, _) in MUTATIONS.items()} | OF_ISSUE_34


def first_found(seeds: range) -> int | None:
    """The first seed that finds something."""
    return next((seed for seed in seeds if run_world(seed).found), None)


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("words", GUARDS)
def test_it_finds_that_a_guard_is_missing(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    GUARDS[words](monkeypatch)

    assert first_found(range(1, 1 + MOST_WORLDS)) is not None, f"{words}: nothing is found"
