"""The master of a real group dies, or stands still, under load: another one goes on, nothing acknowledged is lost."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.interop.clients import GoClient
from tests.interop.driver import Driver
from tests.interop.etcd import Etcd
from tests.interop.take_over import (
    HEALTHY_S,
    Group,
    elect_shorter,
    group,
    kill_masters,
    look,
    percentile,
    stop_master,
)

from roquette import Client

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

QUICK_S = 20  # a machine that does ten other things; what an idle one takes: python -m tests.interop.take_over


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """Three members, whose record stands in a file of the name server."""
    with group(tmp_path_factory.mktemp("group")) as members:
        yield members


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """Three members of etcd."""
    members = Etcd(tmp_path_factory.mktemp("etcd"), 3)
    try:
        yield members.start().wait()
    finally:
        members.stop()


@pytest.mark.promise(
    "Groups of brokers", "the master dies: all are there, in order, another one in some 3 s"
)
@pytest.mark.parametrize(
    "kills",
    [3, pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(7200)])],
)
def test_the_master_is_killed_and_writers_go_on(
    made: Group, drivers: Callable[[str], Driver], kills: int
) -> None:
    report = asyncio.run(kill_masters(made, kills, drivers("5.5.0"), f"killed-{kills}"))
    print("\n".join(report.lines()))
    assert len(report.ours) == len(report.driven) == kills
    assert max(report.ours + report.driven) < QUICK_S
    assert kills < 100 or percentile(report.ours, 99) <= 5
    assert min(report.checked.values()) > 10 * kills


@pytest.mark.promise(
    "Groups of brokers", "our client waits for the new master; Apache's at its next look at routes"
)
@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_go_producer_goes_on_when_it_asks_for_routes_next(made: Group, go: GoClient) -> None:
    """Which it does each 30 s; nothing that it was promised is lost, or out of order."""
    report = asyncio.run(kill_masters(made, 3, go, "killed-go"))
    print("\n".join(report.lines()))
    assert max(report.driven) < 30 + QUICK_S
    assert report.checked["killed-go-driven"] > 30


@pytest.mark.promise("Groups of brokers", "the master is cut off from the record, or stands still")
@pytest.mark.parametrize("seconds", [5, pytest.param(30, marks=pytest.mark.long)])
def test_a_master_that_stood_still_acknowledges_nothing_afterwards(
    made: Group, seconds: int
) -> None:
    assert asyncio.run(stop_master(made, seconds, f"stopped-{seconds}")) < QUICK_S


@pytest.mark.promise("Groups of brokers", "what a replica has and its group has not is kept")
def test_a_replica_that_is_ahead_of_the_new_master_cuts_and_keeps_what_it_cuts(made: Group) -> None:
    _, ahead = asyncio.run(elect_shorter(made))
    assert "commit log cut from=" in made.members[ahead].process.tail(1 << 20)


def test_the_record_in_etcd_names_the_next_master(etcd: Etcd, tmp_path: Path) -> None:
    with group(tmp_path, etcd.url) as made:
        report = asyncio.run(kill_masters(made, 1, topic="killed-etcd"))
    assert max(report.ours) < QUICK_S


@pytest.mark.promise("Groups of brokers", "etcd's leader dies: writing goes on")
@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_leader_of_etcd_that_dies_moves_no_office(tmp_path: Path) -> None:
    """Ten times: the broker goes on as master, and its answers are late by etcd's election at most."""
    cluster = Etcd(tmp_path / "etcd", 3).start().wait()
    try:
        with group(tmp_path, cluster.url) as made:
            asyncio.run(_kill_leaders(made, cluster, 10))
    finally:
        cluster.stop()


async def _kill_leaders(made: Group, cluster: Etcd, kills: int) -> None:
    async with Client(made.namesrv.address, send_timeout=10) as mq:
        async with asyncio.timeout(HEALTHY_S):
            while not (before := await look(mq, made)).healthy:
                await asyncio.sleep(0.2)
        slowest = 0.0
        for _ in range(kills):
            leader = await cluster.leader()
            leader.kill()
            end = time.monotonic() + 6
            while time.monotonic() < end:
                began = time.monotonic()
                assert (await mq.send("T", b"x")).status == "SEND_OK"
                slowest = max(slowest, time.monotonic() - began)
                await asyncio.sleep(0.01)
            leader.start(cluster.names)
            await asyncio.sleep(2)
            state = await look(mq, made)
            assert (state.epoch, state.master) == (before.epoch, before.master), made.tails()
        print(f"{kills} leaders of etcd died, slowest send {slowest:.2f} s")
