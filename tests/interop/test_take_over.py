"""The master of a real group dies, or stands still, under load: another one goes on, nothing acknowledged is lost."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.interop.driver import Driver
from tests.interop.etcd import Etcd
from tests.interop.take_over import Group, elect_shorter, group, kill_masters, stop_master

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


@pytest.mark.parametrize(
    "kills",
    [3, pytest.param(50, marks=[pytest.mark.long, pytest.mark.timeout(3600)])],
)
def test_the_master_is_killed_and_writers_go_on(
    made: Group, drivers: Callable[[str], Driver], kills: int
) -> None:
    report = asyncio.run(kill_masters(made, kills, drivers("5.5.0"), f"killed-{kills}"))
    print("\n".join(report.lines()))
    assert len(report.ours) == len(report.java) == kills
    assert max(report.ours + report.java) < QUICK_S
    assert min(report.checked.values()) > 10 * kills


@pytest.mark.parametrize("seconds", [5, pytest.param(30, marks=pytest.mark.long)])
def test_a_master_that_stood_still_acknowledges_nothing_afterwards(
    made: Group, seconds: int
) -> None:
    assert asyncio.run(stop_master(made, seconds, f"stopped-{seconds}")) < QUICK_S


def test_a_replica_that_is_ahead_of_the_new_master_cuts_and_keeps_what_it_cuts(made: Group) -> None:
    _, ahead = asyncio.run(elect_shorter(made))
    assert "commit log cut from=" in made.members[ahead].process.tail(1 << 20)


def test_the_record_in_etcd_names_the_next_master(etcd: Etcd, tmp_path: Path) -> None:
    with group(tmp_path, etcd.url) as made:
        report = asyncio.run(kill_masters(made, 1, topic="killed-etcd"))
    assert max(report.ours) < QUICK_S
