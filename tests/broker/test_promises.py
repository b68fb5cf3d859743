"""Every row of the processor tables declares what its answer promises; here it is killed in that moment."""

import asyncio
import errno
import random
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import msgspec
import pytest
from tests.broker.promise_cases import BROKER, CASES, World
from tests.request_samples import BROKER_ROWS

from roquette.nameserver.floor.config import NamesrvConfig
from roquette.nameserver.service import NameServer
from roquette.remoting.promises import Promise
from roquette.replication.record import GroupRecord, MemberPlace, decode_record, record_key
from roquette.store.format.config import FlushDiskType
from roquette.wire.codes import RequestCode
from roquette_testing.cluster import NAMESRV_PORT, SimCluster, simulate

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "answers.md"
NAMESRV_ROWS = NameServer(NamesrvConfig(), files=MagicMock(), clock=MagicMock()).rows()
SYNC, ASYNC = FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH
KILL = -1.0
NAMESRV = "10.0.0.2"
POWER = (0.0, 0.5, 1.0)  # what part of the unsynced is on the disk all the same
ENDS = {
    Promise.LOG: [(ASYNC, KILL), (SYNC, KILL), *((SYNC, share) for share in POWER)],
    Promise.JOURNAL: [(ASYNC, KILL), (SYNC, KILL), *((SYNC, share) for share in POWER)],
    Promise.FILE: [(ASYNC, KILL), *((ASYNC, share) for share in POWER), (SYNC, 0.0)],
    Promise.PROCESS: [(ASYNC, KILL), (SYNC, KILL)],
}


class Share(random.Random):
    """Draws as a file system's crash does, with a part of the unsynced that is given."""

    share = 0.0

    def choice(self, seq: Any) -> Any:
        return self.share if 0.9 in seq else super().choice(seq)


async def crash(world: World, share: float) -> None:
    cluster, host = world.cluster, world.cluster.hosts[world.host]
    if share == KILL:
        cluster.kill(world.host)
    else:
        rng = Share(7)
        rng.share = share
        cluster.loop.kill(host.process)
        host.files = host.files.crash(rng)
        host.service = None
    await cluster.restart(world.host)
    await world.connect()


async def begin(cluster: SimCluster, flush: FlushDiskType) -> World:
    cluster.network.delay_s = (0.0, 0.0)
    settings = {
        "transaction_check_interval": 3_600_000,
        "recall_message_enable": True,
        "lite_pull_message_enable": True,
    }
    await cluster.add_broker(
        BROKER, "broker-a", name_servers="", store={"flush_disk_type": flush}, **settings
    )
    world = World(cluster)
    await world.connect()
    return world


RUNS = [
    pytest.param(case, flush, share, id=f"{row.code}-{case.__name__}-{flush.name[:4]}-{share}")
    for row in BROKER_ROWS
    for case in CASES.get(row.code, [])
    for flush, share in ENDS[row.promise]
]


@pytest.mark.promise(
    "Answers", "what an answer promises is there after kill -9 or a loss of power, for each request"
)
@pytest.mark.parametrize("case, flush, share", RUNS)
def test_what_was_answered_is_there_after_the_end(
    case: Any, flush: FlushDiskType, share: float
) -> None:
    async def scenario(cluster: SimCluster) -> None:
        world = await begin(cluster, flush)
        steps = case(world)
        await anext(steps)
        await crash(world, share)
        with pytest.raises(StopAsyncIteration):
            await anext(steps)
        await asyncio.sleep(0.1)

    simulate(scenario, seed=5)


FILE_RUNS = [
    pytest.param(row.code, case, id=f"{row.code}-{case.__name__}")
    for row in BROKER_ROWS
    for case in CASES.get(row.code, [])
    if row.promise is Promise.FILE
]


@pytest.mark.promise("Answers", "a file that cannot be written is told to who asked")
@pytest.mark.parametrize("code, case", FILE_RUNS)
def test_a_file_that_cannot_be_written_is_told(code: int, case: Any) -> None:
    async def scenario(cluster: SimCluster) -> None:
        world = await begin(cluster, ASYNC)
        files = cluster.hosts[BROKER].files
        open_file = files.open_file

        def refuse(
            path: str, size: int | None = None, create: bool = False, private: bool = False
        ) -> Any:
            if path.startswith("/store/config/") and (".json" in path or ".yml" in path):
                raise OSError(errno.EIO, "Input/output error", path)
            return open_file(path, size, create)

        def before(asked: int) -> None:
            files.open_file = refuse if asked == code else open_file  # type: ignore[method-assign]

        world.before = before
        with pytest.raises(
            AssertionError,
            match=r"^\((1|209|210|211), .(changed in memory only|not changed): .* cannot be",
        ):
            await anext(case(world))

    simulate(scenario, seed=5)


def test_every_request_that_changes_something_has_a_case() -> None:
    wanted = {row.code for row in BROKER_ROWS if row.promise in ENDS}
    assert wanted == set(CASES), sorted(wanted ^ set(CASES))


@pytest.mark.promise(
    "Answers", "what an answer promises is there after kill -9 or a loss of power, for each request"
)
@pytest.mark.parametrize("share", [KILL, *POWER])
@pytest.mark.parametrize("code", [100, 102])
def test_what_a_name_server_answered_is_there_after_the_end(code: int, share: float) -> None:
    """PUT_KV_CONFIG and DELETE_KV_CONFIG: all that a name server promises."""

    async def scenario(cluster: SimCluster) -> None:
        cluster.network.delay_s = (0.0, 0.0)
        await cluster.add_namesrv(NAMESRV)
        world = World(cluster, NAMESRV, NAMESRV_PORT)
        await world.connect()
        entry = {"namespace": "n", "key": "k"}
        await world.ask(100, entry | {"value": "v"})
        if code == 102:
            await world.ask(102, entry)
        await crash(world, share)
        assert (await world.client.call(101, entry)).code == (0 if code == 100 else 22)

    simulate(scenario, seed=5)


@pytest.mark.parametrize("share", [KILL, *POWER])
@pytest.mark.parametrize("code", [13002, 1011, 1002])
def test_what_a_controller_answered_stands_in_its_record(code: int, share: float) -> None:
    """PUT_REGISTER_IF, CLEAN_BROKER_DATA, CONTROLLER_ELECT_MASTER, at an embedded controller."""
    places = {who: MemberPlace(address=f"a:{who}", ha_address=f"a:1{who}") for who in (1, 2)}
    record = GroupRecord(number=1, epoch=3, master=1, members=(1, 2), places=places)
    key, group = {"key": record_key("c", "b")}, {"clusterName": "c", "brokerName": "b"}

    async def scenario(cluster: SimCluster) -> None:
        cluster.network.delay_s = (0.0, 0.0)
        await cluster.add_namesrv(NAMESRV, controller="embedded")
        world = World(cluster, NAMESRV, NAMESRV_PORT)
        await world.connect()
        await world.ask(13002, key | {"revision": "0"}, record.encode())
        if code == 1011:
            await world.ask(1011, group | {"brokerControllerIdsToClean": "2"})
        if code == 1002:
            order = group | {"brokerId": "2", "designateElect": "true"}
            operator = World(cluster, NAMESRV, NAMESRV_PORT)
            await operator.connect()
            asked = asyncio.ensure_future(operator.ask(1002, order))
            await asyncio.sleep(0.5)
            ordered = decode_record((await world.ask(13001, key)).body)
            assert ordered.ordered == 2
            won = msgspec.structs.replace(ordered, number=3, master=2, epoch=4, ordered=0)
            await world.ask(13002, key | {"revision": "2"}, won.encode())
            await asked
        await crash(world, share)
        found = decode_record((await world.client.call(13001, key)).body)
        shown = (found.number, found.epoch, found.master, found.members)
        assert (
            shown
            == {
                13002: (1, 3, 1, (1, 2)),
                1011: (2, 3, 1, (1,)),
                1002: (3, 4, 2, (1, 2)),
            }[code]
        )

    simulate(scenario, seed=5)


@pytest.mark.parametrize("share", [KILL, *POWER])
@pytest.mark.parametrize("code", [3001, 3002, 3003, 3006, 3007, 3008])
def test_users_of_a_name_server_are_there_after_the_end(code: int, share: float) -> None:
    alice, subject = {"username": "alice"}, {"subject": "User:alice"}
    rules = (
        b'{"policies":[{"entries":[{"resource":"Topic:t","actions":["Pub"],"decision":"Allow"}]}]}'
    )
    steps: dict[int, tuple[int, dict[str, str], bytes]] = {
        3002: (3002, alice, b'{"userStatus":"disable"}'),
        3003: (3003, alice, b""),
        3006: (3006, subject, rules),
        3007: (3007, subject, rules.replace(b"Allow", b"Deny")),
        3008: (3008, subject | {"resource": "Topic:t"}, b""),
    }

    async def scenario(cluster: SimCluster) -> None:
        cluster.network.delay_s = (0.0, 0.0)
        await cluster.add_namesrv(NAMESRV)
        world = World(cluster, NAMESRV, NAMESRV_PORT)
        await world.connect()
        await world.ask(3001, alice, b'{"password":"p"}')
        if code in (3003, 3007, 3008):
            await world.ask(*steps[3006])
        if code != 3001:
            await world.ask(*steps[code])
        await crash(world, share)
        user = (await world.client.call(3004, alice)).body
        acl = (await world.client.call(3009, subject)).body
        assert (b"alice" in user, b"disable" in user) == (code != 3003, code == 3002)
        assert (b"Allow" in acl, b"Deny" in acl) == (code == 3006, code == 3007)

    simulate(scenario, seed=5)


def test_every_row_of_a_name_server_that_promises_something_is_tried() -> None:
    assert {row.code for row in NAMESRV_ROWS if row.promise in ENDS} == {
        100,
        102,
        13002,
        1002,
        1011,
        *(3001, 3002, 3003, 3006, 3007, 3008),
    }


def table() -> str:
    """What docs/reference/answers.md says of all rows that change something."""
    lines = ["| what an answer promises | broker | name server |", "|---|---|---|"]
    for promise in list(Promise)[1:]:
        cells = [
            ", ".join(RequestCode(row.code).name for row in rows if row.promise is promise)
            for rows in (BROKER_ROWS, NAMESRV_ROWS)
        ]
        lines.append(f"| {promise.name}: {promise.value} | {cells[0]} | {cells[1] or '-'} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The page with the table behind its head."""
    return PAGE.read_text().partition("| what an answer")[0] + table()


def test_the_documents_say_what_the_tables_declare() -> None:
    assert PAGE.read_text() == page(), "run python -m tests.broker.test_promises"


if __name__ == "__main__":
    PAGE.write_text(page())
