"""Our clients at closed servers, Apache's and ours: TLS with certificates at both ends, users and policies.

The cases are those of test_our_client_apache.py; besides, what is refused is said at once and says why.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.interop import peers
from tests.interop import test_our_client_apache as cases
from tests.interop.ways import ALICE, authority, shown

import roquette.sync
from roquette import BrokerError, Client, ConnectError, StartFrom
from roquette.errors import RoquetteError
from roquette.remoting.tls_options import TlsOptions
from roquette.wire.signature import Credentials

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180), pytest.mark.also("closed")]

AT_ONCE_S = 8.0  # below the 10 s of a call
NO_PERMISSION = 16


def trusting(ca: str = "ca", shows: str = "ca") -> TlsOptions:
    """TLS as our clients have it: verified, with a certificate of their own."""
    pair = shown(shows, "client")
    return TlsOptions(ca=authority(ca).cert, certificate=pair.cert, key=pair.key)


class Closed(cases.Cluster):
    """Clients get in as Alice."""

    def client(self, **settings: Any) -> Any:
        way = {"tls": trusting(), "credentials": Credentials(*ALICE)}
        return super().client(**way | settings)


@pytest.fixture(
    scope="module",
    params=["apache-closed", pytest.param("roquette-closed", marks=pytest.mark.long)],
)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Closed]:
    folder = tmp_path_factory.mktemp(request.param)
    namesrv = peers.start_namesrv(request.param, folder / "namesrv")
    try:
        settings = {**cases.QUICK_DELAYS, "autoCreateTopicEnable": "true"}
        at = folder / "broker"
        broker = peers.start_broker(request.param, at, namesrv.address, settings=settings)
        try:
            yield Closed(request.param, namesrv.address, folder)
        finally:
            broker.discard()
    finally:
        namesrv.discard()


test_send_in_every_way = cases.test_send_in_every_way_and_read_it_back
test_delayed_messages = cases.test_delayed_messages_come_later
test_orderly_handlers = cases.test_orderly_handlers_see_each_queue_in_order_through_failures
test_failing_messages = cases.test_a_failing_message_returns_and_ends_among_the_dead_letters
test_pulling = cases.test_pulling_with_seek_commit_and_offsets_by_time
test_broadcasting = cases.test_broadcasting_gives_everybody_everything_and_remembers_locally


def test_the_blocking_client(cluster: Closed) -> None:
    topic, got = cases.name("sync"), []
    with roquette.sync.Client(
        cluster.namesrv, tls=trusting(), access_key=ALICE[0], secret_key=ALICE[1]
    ) as mq:
        assert mq.send(topic, b"1", key="k").status == "SEND_OK"
        for message in mq.consume(topic, group=cases.name("group"), start_from=StartFrom.FIRST):
            got.append(message.body)
            break
    assert got == [b"1"]


def told(cluster: Closed, topic: str, **way: Any) -> RoquetteError:
    """What a sender is told, soon: by the asyncio client, and by the blocking one in the same words."""
    words = {"tls": trusting(), "credentials": Credentials(*ALICE), **way}

    async def send() -> RoquetteError:
        async with Client(cluster.namesrv, **words) as mq:
            with pytest.raises(RoquetteError) as caught:
                await mq.send(topic, b"x")
        return caught.value

    began = time.monotonic()
    error = asyncio.run(send())
    assert time.monotonic() - began < AT_ONCE_S
    return error


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (("alice", "not-hers"), "check signature failed."),
        (("nobody", "x"), "User:nobody is not found."),
        (None, "username cannot be null."),
    ],
    ids=["wrong secret", "unknown user", "unsigned"],
)
def test_a_signature_that_is_no_good(
    cluster: Closed, keys: tuple[str, str] | None, why: str
) -> None:
    error = told(cluster, "TBW102", credentials=Credentials(*keys) if keys else None)
    assert isinstance(error, BrokerError), repr(error)
    assert (error.code, why in str(error)) == (NO_PERMISSION, True), repr(error)


def test_a_topic_of_others(cluster: Closed) -> None:
    error = told(cluster, "U_others")
    assert isinstance(error, BrokerError), repr(error)
    assert "User:alice has no permission to access Topic:U_others" in str(error)


@pytest.mark.parametrize(
    ("tls", "why"),
    [
        (lambda: trusting(ca="another"), "certificate"),
        (lambda: trusting(shows="another"), "certificate"),
        (lambda: TlsOptions(ca=authority("ca").cert), "certificate"),
        (lambda: False, "TLS"),
    ],
    ids=["the servers' CA unknown", "our CA unknown", "no certificate", "in the clear"],
)
def test_tls_that_does_not_come_about(cluster: Closed, tls: Any, why: str) -> None:
    error = told(cluster, "T_never", tls=tls())
    assert isinstance(error, ConnectError), repr(error)
    assert why in str(error), error
