"""A message that has rotted on the disk of one member comes back from another one."""

import asyncio
from random import Random

import pytest
from tests.simulation.test_group import MEMBERS, group, master, send, until

from roquette.admin.doctor.checks.diagnosis import diagnose
from roquette.admin.doctor.examination import examine
from roquette.broker.replication import scrub
from roquette_testing.cluster import SimCluster, simulate

pytestmark = pytest.mark.simulation
COUNT = 30
BODY_AT = 88  # of a record with two IPv4 hosts


def log_of(cluster: SimCluster, ip: str) -> bytes:
    """All of its files."""
    store = cluster.hosts[ip].service.broker.store
    size = store.config.segment_size
    return b"".join(store.read_raw(base, size) for base in range(0, store.wrote, size))


def logs(cluster: SimCluster) -> list[bytes]:
    return [log_of(cluster, ip) for ip in MEMBERS]


def spoil(cluster: SimCluster, ip: str, at: int, word: bytes = b"X") -> None:
    """Bytes of its log are others."""
    host = cluster.hosts[ip]
    size = host.service.broker.store.config.segment_size
    name = f"/commitlog/{at - at % size:020}"
    (path,) = [path for path in host.files.snapshot()[0] if path.endswith(name)]
    file = host.files.open_file(path)
    file.pwrite(word, at % size)
    file.sync()
    assert log_of(cluster, ip)[at : at + len(word)] == word


def rot(cluster: SimCluster, ip: str, word: bytes) -> None:
    spoil(cluster, ip, log_of(cluster, ip).index(word))


def health(cluster: SimCluster, ip: str, key: str) -> int:
    return int(cluster.hosts[ip].service.health(0)[key])


async def filled(cluster: SimCluster, **settings) -> str:
    """Returns the master."""
    await group(cluster, **settings)
    mq = await cluster.client("10.0.2.1")
    for number in range(COUNT):
        await send(mq, 1_000_000 + number)
    first = master(cluster)
    assert first is not None
    return first


@pytest.mark.promise("Groups of brokers", "a message that rots on one disk is mended")
@pytest.mark.parametrize("role", ["master", "replica"])
@pytest.mark.parametrize("piece", [64, scrub.PIECE])  # less than a record, and more than a file
def test_a_rotten_message_is_mended_from_another_member(role, piece, monkeypatch):
    monkeypatch.setattr(scrub, "PIECE", piece)

    async def scenario(cluster: SimCluster) -> None:
        first = await filled(cluster, store={"segment_size": 2048})
        assert cluster.hosts[first].service.broker.store.wrote > 2 * 2048
        ip = first if role == "master" else next(ip for ip in MEMBERS if ip != first)
        sound = logs(cluster)[0]
        rot(cluster, ip, b"1000003")
        rot(cluster, ip, b"1000017")
        assert len(set(logs(cluster))) == 2
        await until(lambda: health(cluster, ip, "mendedMessages") == 2, 300)
        assert set(logs(cluster)) == {sound}
        assert health(cluster, ip, "rottenMessages") == 0

    simulate(scenario)


@pytest.mark.promise("Groups of brokers", "a message that rots on one disk is mended")
def test_what_is_mended_is_on_the_disk():
    """Seed 301998: after a power cut it was rotten again, since no flush comes back to its file."""

    async def scenario(cluster: SimCluster) -> None:
        first = await filled(cluster, store={"segment_size": 2048})
        ip = next(ip for ip in MEMBERS if ip != first)
        files = cluster.hosts[ip].files
        (path,) = [path for path, data in files.snapshot()[0].items() if is_log(path, data)]
        rot(cluster, ip, b"1000003")
        await until(lambda: health(cluster, ip, "mendedMessages") == 1, 300)
        assert b"1000003" in files.crash(Random(1), share=0.0).read_bytes(path)

    def is_log(path: str, data: bytes) -> bool:
        return "/commitlog/" in path and b"1000003" in data

    simulate(scenario)


@pytest.mark.promise(
    "Groups of brokers",
    "a header is mended as far as a sound record proves it; what rots with it or with a body, too",
)
@pytest.mark.parametrize(
    ("at", "mended"),
    [(3, True), (5, True), (35, True), (87, True), (15, False), (63, False)],
    ids=["size", "magic", "place", "length of the body", "queue", "time"],
)
def test_of_a_header_what_a_sound_record_proves_is_mended(at, mended):
    """The body of a record of two IPv4 hosts begins 88 bytes behind its first one: of a queue or a time nobody knows."""

    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster, store={"segment_size": 2048})
        await until(lambda: len(set(logs(cluster))) == 1)
        sound, ip = logs(cluster)[0], MEMBERS[1]
        spoil(cluster, ip, sound.index(b"1000003") - BODY_AT + at)
        if mended:
            await until(lambda: health(cluster, ip, "mendedMessages") == 1, 300)
            assert set(logs(cluster)) == {sound}
        else:
            await asyncio.sleep(60)
            assert len(set(logs(cluster))) == 2 and not health(cluster, ip, "mendedMessages")

    simulate(scenario)


def test_a_log_that_grows_is_looked_through_again_and_again():
    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster)
        await until(lambda: len(set(logs(cluster))) == 1)
        sound, ip = logs(cluster)[0], MEMBERS[1]
        mq = await cluster.client("10.0.2.2")
        number = 0
        while not health(cluster, ip, "mendedMessages"):
            assert number < 100, "it follows the end of the log"
            await send(mq, 2_000_000 + number)
            await asyncio.sleep(0.5)
            number += 1
            if number == 10:
                rot(cluster, ip, b"1000003")
        assert log_of(cluster, ip).startswith(sound)

    simulate(scenario)


def test_a_size_beyond_the_end_of_the_log_is_mended():
    """The file has room for it, and the log ends before."""

    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster)
        await until(lambda: len(set(logs(cluster))) == 1)
        sound, ip = logs(cluster)[0], MEMBERS[1]
        spoil(cluster, ip, sound.index(b"1000003") - BODY_AT + 2)
        await until(lambda: health(cluster, ip, "mendedMessages") == 1)
        assert set(logs(cluster)) == {sound}

    simulate(scenario)


@pytest.mark.promise(
    "Groups of brokers",
    "a header is mended as far as a sound record proves it; what rots with it or with a body, too",
)
@pytest.mark.parametrize("role", ["master", "replica"])
def test_what_rots_beside_a_body_or_a_size_is_mended_with_it(role):
    """A sector of the disk that spans two messages: queue, time, hosts and properties of both are others, too."""

    async def scenario(cluster: SimCluster) -> None:
        first = await filled(cluster, store={"segment_size": 2048})
        await until(lambda: len(set(logs(cluster))) == 1)
        ip = first if role == "master" else next(ip for ip in MEMBERS if ip != first)
        sound = logs(cluster)[0]
        spoil(cluster, ip, sound.index(b"1000003"), b"X" * 200)
        await until(lambda: health(cluster, ip, "mendedMessages") == 2, 300)
        assert set(logs(cluster)) == {sound}

    simulate(scenario)


def test_what_is_not_proven_rotten_is_not_replaced():
    """Others that differ in a property of a sound record say nothing."""

    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster)
        await until(lambda: len(set(logs(cluster))) == 1)
        sound, ip = logs(cluster)[0], MEMBERS[1]
        for other in (MEMBERS[0], MEMBERS[2]):
            spoil(cluster, other, sound.index(b"KEYS", sound.index(b"1000003")))
        await asyncio.sleep(30)
        assert log_of(cluster, ip) == sound and not health(cluster, ip, "mendedMessages")

    simulate(scenario)


@pytest.mark.parametrize("rotten", [35 - BODY_AT, 0], ids=["place", "body"])
def test_nothing_is_mended_from_members_that_differ_and_it_is_told(rotten):
    """Each of them has another property there."""

    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster)
        await until(lambda: len(set(logs(cluster))) == 1)
        sound, ip = logs(cluster)[0], MEMBERS[1]
        body = sound.index(b"1000003")
        spoil(cluster, ip, body + rotten)
        for number, other in enumerate((MEMBERS[0], MEMBERS[2])):
            spoil(cluster, other, sound.index(b"KEYS", body) + number)
        await until(lambda: health(cluster, ip, "rottenMessages") == 1)
        assert f"/store/commitlog/{0:020}" in cluster.hosts[ip].service.health(0)["rottenFiles"]
        await asyncio.sleep(10)
        assert health(cluster, ip, "mendedMessages") == 0

    simulate(scenario)


@pytest.mark.promise("Groups of brokers", "what nobody has is counted")
def test_what_nobody_has_is_told_and_mended_when_one_is_back_that_has_it():
    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster)
        sound, last = logs(cluster)[0], MEMBERS[2]
        await until(lambda: len(set(logs(cluster))) == 1)
        cluster.kill(last)
        for ip in MEMBERS[:2]:
            rot(cluster, ip, b"1000005")
        await until(lambda: all(health(cluster, ip, "rottenMessages") for ip in MEMBERS[:2]))
        mq = await cluster.client("10.0.9.8")
        facts = await mq.session.run(examine([cluster.name_servers], cluster.clock))
        found = [one for one in diagnose(facts) if one.code == "RQ-D039"]
        assert len(found) == 2
        path = f"/store/commitlog/{0:020}"
        assert all(
            "1 messages have rotted" in one.evidence and path in one.evidence for one in found
        )
        await asyncio.sleep(10)
        assert not any(health(cluster, ip, "mendedMessages") for ip in MEMBERS[:2])
        await cluster.restart(last)
        await until(lambda: set(logs(cluster)) == {sound}, 60)
        await until(lambda: not any(health(cluster, ip, "rottenMessages") for ip in MEMBERS))

    simulate(scenario)
