"""What a replica answers: each request of a master is served, or refused in words that say where the master is."""

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.broker.conftest import RawClient, send_ext
from tests.request_samples import BROKER_ROWS, body_of, ext_of

from roquette.apps.features import replica_features
from roquette.message.record import decode_records
from roquette.remoting.promises import Promise
from roquette.wire.codes import RequestCode as R
from roquette_testing.cluster import SimCluster, simulate

MASTER = "10.0.0.9:10911"
READ = {
    11, 361, 12, 14, 15, 21, 25, 26, 28, 29, 30, 31, 32, 33, 34, 35, 38, 41, 42, 43, 46, 201, 202, 203, 204, 208, 223,
    300, 303, 305, 306, 307, 308, 309, 315, 317, 321, 328, 329, 343, 345, 351, 352, 400, 402, 905, 907, 908, 2001, 2002, 2003, 2004,
    3004, 3005, 3009, 3010,
}  # fmt: skip
WORDS = {
    R.SEND_MESSAGE_V2: (14, "the broker is a slave"),
    R.SEND_REPLY_MESSAGE_V2: (14, "the broker is a slave"),
    R.CONSUMER_SEND_MSG_BACK: (14, "the broker is a slave"),
    R.POP_MESSAGE: (14, "the broker is a slave"),
    R.NOTIFICATION: (14, "the broker is a slave"),
    R.ACK_MESSAGE: (14, "the broker is a slave"),
    R.END_TRANSACTION: (11, "a slave broker ends no transaction"),
    R.RECALL_MESSAGE: (11, "recall failed, broker service not available"),
    R.INVOKE_BROKER_TO_RESET_OFFSET: (1, "Can not reset offset in slave broker"),
    R.UPDATE_AND_CREATE_TOPIC: (1, "Can't modify topic or subscription group from slave broker"),
    R.DELETE_SUBSCRIPTIONGROUP: (1, "Can't modify topic or subscription group from slave broker"),
    R.CLONE_GROUP_OFFSET: (16, "a slave broker does not do this"),
    R.LOCK_BATCH_MQ: (16, "a slave broker does not do this"),
}


@dataclass
class Place:
    """Where the master is."""

    master_address: str = MASTER
    ha_address: str = "10.0.0.9:10912"


def replica(place: Place) -> Any:
    return partial(replica_features, source=place)


SLAVE = {"broker_id": 1}


@pytest.mark.promise(
    "Replication", "a replica serves what it may, and names the master for the rest"
)
def test_each_row_of_a_master_is_served_or_refused(run_broker: Any) -> None:
    place = Place()

    async def scenario(case: Any) -> None:
        client = await case.client()
        served = set()
        for row in BROKER_ROWS:
            ext = ext_of(row) | {"suspendTimeoutMillis": "0"}
            reply = await client.call(row.code, ext, body_of(row))
            assert reply.code != 3, row.code  # REQUEST_CODE_NOT_SUPPORTED
            if f"(the master is {MASTER})" in (reply.remark or ""):
                code, words = WORDS.get(R(row.code), (reply.code, ""))
                assert reply.code == code and words in reply.remark, (row.code, reply.remark)
            else:
                served.add(row.code)
                changes = row.promise in (Promise.LOG, Promise.FILE)
                assert not changes, row.code
        assert served == READ - {11, 361, 41, 42}, sorted(served ^ READ)
        end = case.broker.store.max_physical_offset
        assert end == 0

    run_broker(scenario, features=replica(place), broker=SLAVE)


def fill(run_broker: Any) -> None:
    async def master(case: Any) -> None:
        client = await case.client()
        for number in range(3):
            assert (await client.produce(body=b"m%d" % number)).code == 0
        assert (await client.call(200, {}, b'{"groupName":"g"}')).code == 0

    run_broker(master)


def test_a_replica_is_read_when_that_is_allowed(run_broker: Any, tmp_path: Path) -> None:
    fill(run_broker)
    place = Place()

    async def scenario(case: Any) -> None:
        client = await case.client()
        reply = await client.pull()
        assert (reply.code, reply.remark) == (
            2, f"slaveReadEnable=false: this slave broker is not read (the master is {MASTER})",
        )  # fmt: skip
        assert (await client.call(25, {}, b"slaveReadEnable=true\n")).code == 0
        reply = await client.pull()
        ext = case.ext(reply)
        assert [record.body for record in decode_records(reply.body, True)] == [b"m0", b"m1", b"m2"]
        assert ext["suggestWhichBrokerId"] == "0"
        # Nothing found, and offsets it does not have: the master is asked again, from the same place.
        for offset in (3, 50):
            reply = await client.pull(offset=offset, sysFlag=6)
            ext = case.ext(reply)
            assert (reply.code, ext["nextBeginOffset"]) == (20, str(offset))

    run_broker(scenario, features=replica(place), broker=SLAVE)


def test_a_reader_far_behind_stays(run_broker: Any) -> None:
    fill(run_broker)

    async def scenario(case: Any) -> None:
        client = await case.client()
        assert (await client.call(25, {}, b"slaveReadEnable=true\n")).code == 0
        assert case.ext(await client.pull())["suggestWhichBrokerId"] == "1"

    store = {"memory_ratio": 0}
    run_broker(scenario, features=replica(Place()), broker=SLAVE, store=store)


def test_without_a_master_a_replica_is_read_and_locked_and_holds(run_broker: Any) -> None:
    fill(run_broker)
    place = Place("", "")

    async def scenario(case: Any) -> None:
        client = await case.client()
        reply = await client.pull()
        assert (reply.code, case.ext(reply)["nextBeginOffset"]) == (0, "3")
        began_s = case.loop.time()
        reply = await client.pull(offset=50, sysFlag=6, suspendTimeoutMillis=2000)
        assert (reply.code, case.ext(reply)["nextBeginOffset"]) == (19, "50")
        assert case.loop.time() - began_s >= 2
        lock = b'{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":"T","brokerName":"broker-a","queueId":0}]}'
        assert (await client.call(41, {}, lock)).code == 0
        reply = await client.produce()
        assert (reply.code, reply.remark.rpartition(" (")[2]) == (14, "no master is known now)")

    run_broker(scenario, features=replica(place), broker=SLAVE)


def test_commits_at_a_replica_go_forward_only(run_broker: Any) -> None:
    fill(run_broker)

    async def scenario(case: Any) -> None:
        client = await case.client()
        where = {"consumerGroup": "g", "topic": "T", "queueId": 0}
        codes = [
            (await client.call(15, where | {"commitOffset": offset})).code for offset in (2, 1)
        ]
        assert codes == [0, 29]
        assert case.ext(await client.call(14, where))["offset"] == "2"

    run_broker(scenario, features=replica(Place()), broker=SLAVE)


@pytest.mark.parametrize("there", [True, False])
def test_the_name_server_says_where_the_master_is(there: bool) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv("10.0.0.1")
        if there:
            await cluster.add_broker("10.0.1.1", "broker-a")
        service = await cluster.add_broker(
            "10.0.1.2", "broker-a", features=replica_features, broker_id=1
        )
        await asyncio.sleep(0.1)
        reader, writer = await asyncio.open_connection("10.0.1.2", 10911)
        reply = await RawClient(reader, writer).call(310, send_ext())
        words = "the master is 10.0.1.1:10911" if there else "no master is known now"
        assert words in reply.remark
        assert service.name == "broker-a"

    simulate(scenario, seed=1)
