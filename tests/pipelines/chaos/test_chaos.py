"""Chaos: every pipeline, struck while it runs, and given again: nothing is lost, twice, or somebody else's."""

import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.pipelines.chaos.strikes import Chaos, small_disk
from tests.pipelines.chaos.subjects import (
    Archive,
    ArchiveIceberg,
    ArchiveInAStore,
    Audit,
    CurrentState,
    DeadLetters,
    Replay,
    Subject,
    Traffic,
)
from tests.pipelines.faulty_store import door
from tests.pipelines.processes import wait_until
from tests.pipelines.seaweed import S3Server
from tests.pipelines.stores import serving
from tests.spark.places import Place

from roquette_spark.pipelines.kit.table_files import TableFiles

pytestmark = pytest.mark.spark

SUBJECTS = {
    each.__name__: each
    for each in (Archive, ArchiveIceberg, CurrentState, Replay, DeadLetters, Audit, Traffic)
}


@pytest.fixture
def sea(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with serving("seaweed") as server:
        for name, value in server.environ().items():
            monkeypatch.setenv(name, value)
        assert wait_until(lambda: TableFiles("s3://plain").exists(""), 30)
        yield server


def strike(subject: Subject, events: list[str]) -> Chaos:
    chaos = Chaos(subject)
    try:
        for event in events:
            chaos.round(event)
        chaos.finish()
    finally:
        chaos.stop()
    return chaos


SEED = 20  # the long form has others


# A full disk in the quick form, where test_dlq.py kills a driver and test_broker_outages.py a broker; each kind in the long one.
@pytest.mark.promise("Spark and pipelines", "each message is in a table once, whatever is killed")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "events"),
    [
        ("Archive", ["disk"]),
        ("Archive", ["worker"]),
        ("ArchiveIceberg", ["jvm"]),
        ("CurrentState", ["disk"]),
        ("Replay", ["jvm"]),
        ("DeadLetters", ["driver"]),
        ("Audit", ["group"]),
        ("Traffic", ["broker"]),
    ],
)
def test_struck_and_given_again(place: Place, tmp_path: Path, name: str, events: list[str]) -> None:
    subject = SUBJECTS[name](place, tmp_path, SEED)
    with contextlib.ExitStack() as stack:
        if "disk" in events and not stack.enter_context(small_disk(subject.out)):
            pytest.skip("a disk of its own cannot be mounted here")
        chaos = strike(subject, events)

    assert chaos.struck.total() >= 1, f"nothing was hit (seed {SEED})"


@pytest.mark.timeout(600)
def test_a_store_that_fails_each_nth_call(place: Place, sea: S3Server, tmp_path: Path) -> None:
    subject = ArchiveInAStore(place, tmp_path, SEED, sea)
    with door(sea.s3, subject.judge) as address:
        subject.address = address
        chaos = strike(subject, ["store"])

    assert chaos.struck["store"] == 1


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", list(SUBJECTS))
def test_struck_again_and_again(place: Place, tmp_path: Path, name: str) -> None:
    writes = name in ("Archive", "ArchiveIceberg", "CurrentState")
    rounds = 30 if writes else 5
    struck: Counter[str] = Counter()
    for seed in range(7, 12):  # what is done, as replay at some time is, cannot be struck again
        folder = tmp_path / str(seed)
        folder.mkdir()
        subject = SUBJECTS[name](place, folder, seed)
        with small_disk(subject.out, "48m") as mounted:  # logs and checkpoints of all rounds
            kinds = ["driver", "jvm", "worker", "group", "broker"] + ["disk"] * (mounted and writes)
            chances = random.Random(seed)
            events = chances.sample(kinds, k=len(kinds))
            events += chances.choices(kinds, k=max(0, rounds + 5 - struck.total() - len(kinds)))
            struck += strike(subject, events).struck
        if struck.total() >= rounds:
            break

    print(f"{name}: {dict(struck)}")
    assert struck.total() >= rounds


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_store_that_fails_again_and_again(place: Place, sea: S3Server, tmp_path: Path) -> None:
    subject = ArchiveInAStore(place, tmp_path, 7, sea)
    with door(sea.s3, subject.judge) as address:
        subject.address = address
        chaos = strike(subject, ["store", "driver"] * 5)

    assert chaos.struck["store"] == 5
