"""Apache's controller requests at a name server with a controller: what they tell of a record, and make of it."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from roquette.errors import AgreementError
from roquette.nameserver.floor.route_table import RouteTable
from roquette.remoting.client import RemotingClient
from roquette.replication.record import GroupRecord, MemberPlace, decode_record, record_key
from roquette.wire.command import Command
from roquette.wire.header_codec import encode_dict, ext_dict
from roquette_testing.cluster import SimCluster, simulate

NS, CLIENT = "10.0.0.1", "10.0.2.1"
GROUP = {"clusterName": "DefaultCluster", "brokerName": "b"}
KEY = record_key("DefaultCluster", "b")
PLACES = {
    who: MemberPlace(address=f"10.0.1.{who}:1", ha_address=f"10.0.1.{who}:2") for who in (1, 2, 3)
}
RECORD = GroupRecord(
    number=7, epoch=4, master=1, members=(1, 2), set_epoch=5, beat=9, places=PLACES
)


class Case:
    """A name server with a record of the group b, asked by bare requests."""

    def __init__(self, cluster: SimCluster, server: Any) -> None:
        self.cluster = cluster
        self.server = server
        self.client = RemotingClient(cluster.clock, local_host=CLIENT)

    async def ask(self, code: int, body: bytes = b"", /, **ext: Any) -> Command:
        fields = encode_dict({k: str(v) for k, v in ext.items()})
        return await self.client.invoke(f"{NS}:9876", code, fields, body, timeout_ms=10_000)

    async def record(self) -> GroupRecord:
        return decode_record((await self.server._registers.get(KEY)).value)

    async def write(self, record: GroupRecord) -> None:
        stored = await self.server._registers.get(KEY)
        assert await self.server._registers.put_if(KEY, stored.revision, record.encode())

    def living(self, monkeypatch: pytest.MonkeyPatch, *ids: int) -> None:
        members = {who: PLACES[who].address for who in ids}
        monkeypatch.setattr(RouteTable, "find_members", lambda self, name: members)


def on(scenario: Callable[[Case], Awaitable[None]], **settings: Any) -> None:
    async def main(cluster: SimCluster) -> None:
        server = await cluster.add_namesrv(NS, **({"controller": "embedded"} | settings))
        case = Case(cluster, server)
        if server._registers is not None:
            await case.write(RECORD)
        await scenario(case)
        await case.client.close()

    simulate(main)


def test_what_is_told_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(case: Case) -> None:
        case.living(monkeypatch, 1, 3)
        told = ext_dict((await case.ask(1005)).ext)
        assert told == {
            "group": "embedded", "controllerLeaderId": f"{NS}:9876", "isLeader": "true",
            "controllerLeaderAddress": f"{NS}:9876", "peers": f"{NS}:9876",
        }  # fmt: skip
        one = await case.ask(1004, brokerName="b")
        assert ext_dict(one.ext) == {
            "masterBrokerId": "1", "masterAddress": "10.0.1.1:1", "masterEpoch": "4",
        }  # fmt: skip
        assert json.loads(one.body) == {"syncStateSet": [1, 2], "syncStateSetEpoch": 5}
        many = json.loads((await case.ask(1006, b'["b","other"]')).body)
        (group,) = many["replicasInfoTable"].values()
        shown = {
            name: [(m["brokerId"], m["brokerAddress"], m["alive"]) for m in group.pop(name)]
            for name in ("inSyncReplicas", "notInSyncReplicas")
        }
        assert shown["inSyncReplicas"] == [(1, "10.0.1.1:1", True), (2, "10.0.1.2:1", False)]
        assert shown["notInSyncReplicas"] == [(3, "10.0.1.3:1", True)]
        assert group == {
            "masterBrokerId": 1, "masterAddress": "10.0.1.1:1", "masterEpoch": 4, "syncStateSetEpoch": 5,
        }  # fmt: skip
        assert (await case.ask(1004, brokerName="none")).code == 2008
        assert "100 are allowed" in str(
            (await case.ask(1006, json.dumps(["b"] * 101).encode())).remark
        )
        assert b"controller=embedded" in (await case.ask(1010)).body
        assert (await case.ask(1009, b"orderMessageEnable=true")).code == 0
        assert b"orderMessageEnable=true" in (await case.ask(1010)).body
        refused = await case.ask(1009, b"controllerStorePath=/elsewhere")
        assert "black list" in str(refused.remark)

    on(scenario)


async def carried_out(case: Case, member: int) -> None:
    """What the group's brokers do about an order."""
    while (record := await case.record()).ordered != member:
        await asyncio.sleep(0.1)
    order = {"ordered": 0, "accept_loss": False}
    changes = {"number": record.number + 1, "epoch": record.epoch + 1, "master": member} | order
    await case.write(GroupRecord(**{**_fields(record), **changes}))


def _fields(record: GroupRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


def test_an_order_stands_in_the_record_until_the_group_has_carried_it_out() -> None:
    async def scenario(case: Case) -> None:
        group = asyncio.create_task(carried_out(case, 2))
        done = await case.ask(1002, **GROUP, brokerId=2, designateElect="true")
        await group
        assert done.code == 0 and ext_dict(done.ext) == {
            "masterBrokerId": "2", "masterAddress": "10.0.1.2:1", "masterEpoch": "5",
            "syncStateSetEpoch": "5",
        }  # fmt: skip
        body = json.loads(done.body)
        assert body["brokerAddrs"] == {str(who): place.address for who, place in PLACES.items()}
        assert body["brokerMemberGroup"]["brokerAddrs"] == body["brokerAddrs"]
        assert body["syncStateSet"] == [1, 2]

        late = await case.ask(1002, **GROUP, brokerId=1, designateElect="true")
        assert late.code == 2012 and "the order stands" in str(late.remark)
        assert (await case.record()).ordered == 1

    on(scenario)


@pytest.mark.parametrize(
    "ext, code, words",
    [
        ({"brokerId": 1}, 2011, "The old master 1 is still alive"),
        ({"brokerId": 3}, 2012, "broker 3 is not in step"),
        ({"brokerId": 9}, 2012, "no broker with id 9"),
        ({"brokerId": 9, "acceptDataLoss": "true"}, 2012, "no broker with id 9"),
        ({"brokerId": 2, "designateElect": "false"}, 2005, "only an operator"),
        ({"brokerId": 2, "brokerName": "other"}, 2010, "no record of DefaultCluster/other"),
        ({"brokerId": 2, "clusterName": "other"}, 2010, "no record of other/b"),
    ],
)
def test_an_order_that_cannot_be_is_refused_and_leaves_nothing(
    ext: dict[str, Any], code: int, words: str
) -> None:
    async def scenario(case: Case) -> None:
        answer = await case.ask(1002, **({"designateElect": "true"} | GROUP | ext))
        assert (answer.code, words in str(answer.remark)) == (code, True), answer.remark
        assert await case.record() == RECORD

    on(scenario)


def test_a_member_out_of_step_is_ordered_only_with_the_loss_accepted() -> None:
    async def scenario(case: Case) -> None:
        group = asyncio.create_task(carried_out(case, 3))
        ext = GROUP | {"brokerId": 3, "designateElect": "true", "acceptDataLoss": "true"}
        assert (await case.ask(1002, **ext)).code == 0
        await group

    on(scenario)


def test_members_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(case: Case) -> None:
        case.living(monkeypatch, 1, 2)
        for ids, words in [
            ("", "name the ids"),
            ("x", "name the ids"),
            ("1", "broker 1 is the master"),
            ("2;3", "b-2 is still alive"),
        ]:
            answer = await case.ask(1011, **GROUP, brokerControllerIdsToClean=ids)
            assert (answer.code, words in str(answer.remark)) == (2009, True), answer.remark
        assert await case.record() == RECORD
        assert (await case.ask(1011, **GROUP, brokerControllerIdsToClean="3")).code == 0
        one = await case.record()
        assert sorted(one.places) == [1, 2] and (one.number, one.set_epoch) == (8, 5)
        living = GROUP | {"brokerControllerIdsToClean": "2", "isCleanLivingBroker": "true"}
        assert (await case.ask(1011, **living)).code == 0
        two = await case.record()
        assert (sorted(two.places), two.members, two.number, two.set_epoch) == ([1], (1,), 9, 6)
        await case.write(GroupRecord(**{**_fields(two), "master": 0, "number": 10}))
        last = await case.ask(
            1011, **GROUP | {"brokerControllerIdsToClean": "1", "isCleanLivingBroker": "true"}
        )
        assert last.code == 2009 and "nobody could be elected" in str(last.remark)

    on(scenario)


def test_a_change_is_made_once_whoever_writes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The master renews its lease between read and write; and answers of the store are lost."""

    async def scenario(case: Case) -> None:
        registers, count = case.server._registers, 0
        put_if = registers.put_if

        async def crossed(key: str, revision: int, value: bytes) -> int | None:
            nonlocal count
            count += 1
            if count == 1:
                record = await case.record()
                fields = {**_fields(record), "number": record.number + 1, "beat": 99}
                await put_if(key, revision, GroupRecord(**fields).encode())
            new: int | None = await put_if(key, revision, value)
            if count == 2:
                raise AgreementError("the answer is lost")
            return new

        monkeypatch.setattr(registers, "put_if", crossed)
        assert (await case.ask(1011, **GROUP, brokerControllerIdsToClean="3")).code == 0
        found = await case.record()
        assert (found.beat, found.number, sorted(found.places), count) == (99, 9, [1, 2], 2)

    on(scenario)


@pytest.mark.parametrize("code", [1002, 1004, 1005, 1006, 1009, 1010, 1011, 13001, 13002])
def test_without_a_controller_they_are_refused_in_words(code: int) -> None:
    async def scenario(case: Case) -> None:
        ext = GROUP | {"brokerId": 1, "designateElect": "true", "brokerControllerIdsToClean": "1"}
        answer = await case.ask(code, b"[]" if code == 1006 else b"", key="k", revision=0, **ext)
        assert answer.code == 3 and "--controller" in str(answer.remark)

    on(scenario, controller="")
