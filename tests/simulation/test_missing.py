"""What has gone, or cannot work, is found by the doctor, by `cluster`, by readiness and by a gauge; its cure ends that."""

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from tests.exposition import read_exposition
from tests.simulation.test_group import MEMBERS, in_step, master, until
from tests.simulation.ward import APART_S, N1, N2, OPERATOR, SETTINGS, A, B, Ward, one
from tests.typed import commands_of
from tools.commands_page import ROOT_COMMAND, below

from roquette.admin.doctor.checks.diagnosis import diagnose, is_healthy
from roquette.admin.doctor.examination import who_is_there
from roquette.admin.doctor.findings import Finding, Intent, Severity
from roquette.admin.replication import forget, group_states
from roquette.admin.settings import change_brokers
from roquette.admin.top import broker_rows
from roquette.apps.features import replica_features
from roquette.client import calls
from roquette.client.operator_calls import put_group
from roquette.errors import ClientError, StoreError
from roquette.message.message import MessageQueue
from roquette.wire.bodies.tables import SubscriptionGroupConfig
from roquette_testing.cluster import SimCluster, simulate

pytestmark = pytest.mark.simulation

PORT = 5557


async def page(ip: str, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection(ip, PORT)
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body.decode()


async def ready(ip: str) -> str:
    """Why a server is not; "": it is."""
    status, text = await page(ip, "/readyz")
    return "" if status == 200 else text.strip()


async def gauge(ip: str, name: str, **labels: Any) -> float:
    (found,) = await gauges(ip, name, **labels)
    return found


async def gauges(ip: str, name: str, **labels: Any) -> list[float]:
    _, text = await page(ip, "/metrics")
    return [
        sample.value
        for sample in read_exposition(text)
        if sample.name == name
        and {k: str(v) for k, v in labels.items()}.items() <= sample.labels.items()
    ]


def metrics_at(ip: str) -> dict[str, Any]:
    return {"metrics_listen": f"{ip}:{PORT}"}


class Clinic(Ward):
    """Two name servers, what a scenario adds, and an operator. The doctor, and `cluster`, as a person types them."""

    async def build(self, **client: Any) -> None:
        for ip in (N1, N2):
            controller = {"controller": "embedded"} if ip == N1 else {}
            await self.cluster.add_namesrv(ip, **controller, **metrics_at(ip))
        self.mq = await self.cluster.client(OPERATOR, **client)

    async def broker(self, ip: str, name: str, **settings: Any) -> Any:
        return await self.cluster.add_broker(ip, name, **{**SETTINGS, **metrics_at(ip), **settings})

    async def replica(self, ip: str, name: str) -> Any:
        words = {"broker_id": 1, "broker_role": "SLAVE"}
        return await self.broker(ip, name, features=replica_features, **words)

    async def members(self, **settings: Any) -> None:
        for ip in MEMBERS:
            await self.cluster.add_member(
                ip, "orders", **{**metrics_at(ip), **SETTINGS, **settings}
            )
        await until(lambda: in_step(self.cluster) == len(MEMBERS))
        await asyncio.sleep(5)

    @property
    def servers(self) -> list[str]:
        return list(self.mq.session.name_servers)

    async def exits(self, *expected: str) -> int:
        """What `roquette cluster` ends with."""
        clock = self.cluster.host(OPERATOR).clock
        rows = broker_rows(await self.run(who_is_there(self.servers, clock)), expected)
        return 10 if not rows or any(row.error for row in rows) else 0

    async def cure(self, finding: Finding, name: str) -> None:
        """Run `broker forget` as the finding prints it."""
        (command,) = [c for c in commands_of(finding.fix) if c.startswith("roquette broker forget")]
        words = shlex.split(command)[3:]
        assert words[0] == name
        below(below(ROOT_COMMAND)["broker"])["forget"].make_context("forget", words[:1])
        await self.run(forget(self.servers, words[0], None))

    async def well(self) -> bool:
        return await self.findings() == [] and await self.exits() == 0


def clinic(scenario: Callable[[Clinic], Awaitable[None]]) -> None:
    async def main(cluster: SimCluster) -> None:
        ward = Clinic(cluster)
        await ward.build()
        async with asyncio.timeout(3_600):
            await scenario(ward)

    simulate(main)


def test_a_broker_that_died_is_missed_until_it_is_back_or_forgotten() -> None:
    async def scenario(ward: Clinic) -> None:
        await ward.broker(A, "broker-a")
        await ward.broker(B, "broker-b")
        assert await ward.well()
        ward.cluster.kill(B)
        await asyncio.sleep(61)
        finding = await one(ward, "RQ-D040")
        assert (finding.subject, finding.severity) == ("broker broker-b", Severity.ERROR)
        assert finding.evidence.startswith("10.0.1.2:10911 lost its connection 1 min ")
        assert await ward.exits() == 10
        up = partial(gauge, N1, "rocketmq_namesrv_broker_up", broker="broker-b", broker_id=0)
        assert await up() == 0
        await ward.cluster.restart(B)
        await asyncio.sleep(1)
        assert await ward.well()
        assert await up() == 1
        ward.cluster.kill(B)
        await asyncio.sleep(5)
        await ward.cure((await one(ward, "RQ-D040", APART_S)), "broker-b")
        assert await ward.well()

    clinic(scenario)


def test_a_frozen_machine_is_missed_when_it_has_fallen_silent() -> None:
    async def scenario(ward: Clinic) -> None:
        await ward.broker(A, "broker-a")
        await ward.broker(B, "broker-b")
        ward.cluster.isolate(B)
        await asyncio.sleep(200)
        assert "fell silent" in (await one(ward, "RQ-D040")).evidence
        ward.cluster.heal()
        await asyncio.sleep(60)
        assert await ward.well()

    clinic(scenario)


def test_one_that_ended_in_order_is_a_warning() -> None:
    async def scenario(ward: Clinic) -> None:
        await ward.broker(A, "broker-a")
        await ward.broker(B, "broker-b")
        await ward.cluster.stop(B)
        finding = await one(ward, "RQ-D040")
        assert finding.severity is Severity.WARNING
        assert "10.0.1.2:10911 ended in order" in finding.evidence
        await ward.cure(finding, "broker-b")
        assert await ward.well()

    clinic(scenario)


def test_all_brokers_are_dead() -> None:
    async def scenario(ward: Clinic) -> None:
        (finding,) = await ward.findings()
        assert (finding.code, await ward.exits()) == ("RQ-D043", 10)
        assert await ready(N1) == "no broker is registered here; 0 have left within a day"
        await ward.broker(A, "broker-a")
        await ward.broker(B, "broker-b")
        assert await ready(N1) == ""
        ward.cluster.kill(A)
        ward.cluster.kill(B)
        await asyncio.sleep(5)
        found = await ward.findings()
        assert [(f.code, f.subject) for f in found] == [
            ("RQ-D040", "broker broker-a"),
            ("RQ-D040", "broker broker-b"),
        ]
        assert await ward.exits() == 10
        assert await ready(N1) == "no broker is registered here; 2 have left within a day"

    clinic(scenario)


def test_a_dead_master_whose_replica_is_left() -> None:
    async def scenario(ward: Clinic) -> None:
        await ward.broker(A, "broker-a")
        await ward.replica(B, "broker-a")
        await asyncio.sleep(40)
        assert (await ward.well(), await ready(B)) == (True, "")
        ward.cluster.kill(A)
        await asyncio.sleep(5)
        finding = await one(ward, "RQ-D040")
        assert finding.subject == "broker broker-a"
        assert "nobody takes messages" in finding.cause
        assert await gauge(N1, "rocketmq_namesrv_has_master", broker="broker-a") == 0
        assert await ready(B) == "it follows no master"
        for ip in (N1, N2):  # who knew the master is gone, too
            await ward.cluster.stop(ip)
            await ward.cluster.restart(ip)
        await asyncio.sleep(40)
        assert (await one(ward, "RQ-D040")).evidence == "no name server knows its master"
        await ward.cluster.restart(A)
        await asyncio.sleep(40)
        assert (await ward.well(), await ready(B)) == (True, "")

    clinic(scenario)


@pytest.mark.parametrize("total", [1, 2])
def test_a_replica_that_stopped(total: int) -> None:
    """With totalReplicas its master knows; else the name servers remember."""

    async def scenario(ward: Clinic) -> None:
        await ward.broker(A, "broker-a", total_replicas=total)
        await ward.replica(B, "broker-a")
        await asyncio.sleep(40)
        assert await ward.well()
        await ward.cluster.stop(B)
        await asyncio.sleep(30)
        finding = await one(ward, "RQ-D040" if total == 1 else "RQ-D041")
        assert "10.0.1.2:10911 ended in order" in finding.evidence
        assert await gauge(A, "rocketmq_replicas_expected") == total - 1
        await ward.cluster.restart(B)
        await asyncio.sleep(40)
        assert await ward.well()

    clinic(scenario)


def test_two_brokers_of_one_name() -> None:
    async def scenario(ward: Clinic) -> None:
        await ward.broker(A, "broker-a")
        await ward.broker(B, "broker-a")
        await asyncio.sleep(10)
        finding = await one(ward, "RQ-D040")
        assert "the one on 10.0.1.2 that names 10.0.1.2:10911 is refused" in finding.evidence
        assert (await ready(B)).startswith("a name server refuses it: 10.0.0.1:9876: ")
        assert "alive on another connection" in await ready(B)
        assert (await ready(A), await ward.exits()) == ("", 10)
        assert await gauge(N1, "rocketmq_namesrv_broker_up", why="refused") == 0
        ward.cluster.kill(B)
        await ward.broker("10.0.1.3", "broker-b")
        await asyncio.sleep(70)
        assert await ward.well()

    clinic(scenario)


@pytest.mark.parametrize("total", [pytest.param(1, marks=pytest.mark.long), 3])
def test_a_group_that_lacks_one_and_then_two(total: int) -> None:
    async def scenario(ward: Clinic) -> None:
        await ward.members(total_replicas=total, min_in_sync_replicas=2)
        assert [await ready(ip) for ip in MEMBERS] == [""] * 3
        assert await ward.well()
        first = master(ward.cluster)
        assert first is not None
        others = [ip for ip in MEMBERS if ip != first]
        ward.cluster.kill(others[0])
        await asyncio.sleep(10)
        finding = await one(ward, "RQ-D041")
        assert finding.evidence.startswith(f"2 of 3 members are in step; {others[0]}:10911 lost")
        assert await ward.exits() == 10
        assert await gauge(first, "rocketmq_replicas_expected") == 2
        assert await gauge(first, "rocketmq_replicas_in_step") == 1
        ward.cluster.kill(others[1])
        await asyncio.sleep(20)
        found = {f.code: f for f in await ward.findings()}
        assert found.keys() == {"RQ-D032", "RQ-D041"}
        assert "1 of 3 members" in found["RQ-D041"].evidence
        assert await ready(first) == "it refuses messages: in-sync replicas not enough: 1 of 2"
        assert await gauge(first, "rocketmq_refusing_for_replicas") == 1
        assert (
            f"minInSyncReplicas=1 inSyncReplicas=1 --broker {first}:10911" in found["RQ-D032"].fix
        )
        changes = {"minInSyncReplicas": "1", "inSyncReplicas": "1"}
        assert await ward.run(change_brokers(changes, broker="orders")) == {"orders": ""}
        await asyncio.sleep(3)
        assert (await one(ward, "RQ-D041"), await ready(first))[1] == ""
        for ip in others:
            await ward.cluster.restart(ip)
        await until(lambda: in_step(ward.cluster) == 3)
        await asyncio.sleep(5)
        assert await ward.well()

    clinic(scenario)


def test_a_group_whose_master_died_and_one_that_never_comes_back() -> None:
    async def scenario(ward: Clinic) -> None:
        await ward.members()
        first = master(ward.cluster)
        assert first is not None
        (group,) = await ward.run(group_states(ward.servers))
        number = group.master
        ward.cluster.kill(first)
        await until(lambda: master(ward.cluster) is not None)
        await asyncio.sleep(20)
        finding = await one(ward, "RQ-D041")
        assert f"{first}:10911 lost its connection" in finding.evidence
        assert "roquette broker forget orders --id ID" in finding.fix
        await ward.run(forget(ward.servers, "orders", number))
        await asyncio.sleep(3)
        assert await ward.well()
        with pytest.raises(ClientError, match="still alive"):
            (group,) = await ward.run(group_states(ward.servers))
            living = [m.broker_id for m in group.members if m.broker_id != group.master]
            await ward.run(forget(ward.servers, "orders", living[0]))

    clinic(scenario)


def test_role_epoch_and_lease_of_each_member_before_and_after_a_take_over() -> None:
    async def series(ip: str) -> tuple[float, float, float, *tuple[float, ...]]:
        """Whether it is master, whether replica, the newest epoch it knows, and a master's lease in seconds."""
        roles = [await gauge(ip, "rocketmq_broker_role", role=r) for r in ("master", "replica")]
        lease = await gauges(ip, "rocketmq_group_lease_seconds")
        return roles[0], roles[1], await gauge(ip, "rocketmq_group_epoch"), *lease

    async def scenario(ward: Clinic) -> None:
        await ward.members()
        first = master(ward.cluster)
        assert first is not None
        table = ward.cluster.hosts[first].service.table
        hold_s = table.settings.hold_ms / 1000
        before = {ip: await series(ip) for ip in MEMBERS}
        epoch = table.epoch
        assert before.pop(first)[:3] == (1, 0, epoch)
        assert 0 < (await series(first))[3] <= hold_s
        assert set(before.values()) == {(0, 1, epoch)}

        ward.cluster.partition(first, N1)  # it renews no more, and its page answers
        await asyncio.sleep(hold_s)
        assert (await series(first))[3] == 0
        await until(lambda: master(ward.cluster) not in (None, first))
        second = master(ward.cluster)
        assert second is not None
        ward.cluster.heal()
        await until(lambda: in_step(ward.cluster) == len(MEMBERS))
        await asyncio.sleep(5)
        after = {ip: await series(ip) for ip in MEMBERS}
        later = ward.cluster.hosts[second].service.table.epoch
        assert after[second][:3] == (1, 0, later) and later > epoch
        assert 0 < after.pop(second)[3] <= hold_s
        assert set(after.values()) == {(0, 1, later)}, "the old master among them"

    clinic(scenario)


def test_brokers_that_the_context_names() -> None:
    async def scenario(ward: Clinic) -> None:
        await ward.broker(A, "broker-a")
        looks = await ward.look()
        intent = Intent(brokers=("broker-a", "broker-x"))
        (finding,) = [f for f in diagnose(looks, None, intent) if f.severity is Severity.ERROR]
        assert (finding.code, finding.subject) == ("RQ-D040", "broker broker-x")
        assert is_healthy(diagnose(looks, None, Intent(brokers=("broker-a",))))
        assert (await ward.exits("broker-a"), await ward.exits("broker-x")) == (0, 10)

    clinic(scenario)


def deny(files: Any, under: str) -> Callable[[], None]:
    """Root has restored a directory: nothing in it can be made or written. Returns what gives it back."""
    whole = files.open_file

    def open_file(path: str, size: Any = None, create: bool = False, private: bool = False) -> Any:
        if path.startswith(under):
            raise PermissionError(13, "Permission denied", path)
        return whole(path, size, create, private)

    files.open_file = open_file
    return lambda: files.__dict__.pop("open_file", None)


def test_tables_that_cannot_be_written() -> None:
    async def scenario(ward: Clinic) -> None:
        await ward.broker(A, "broker-a")
        await ward.create("orders", queues=4)
        assert await ready(A) == ""
        files = ward.cluster.hosts[A].files
        api = ward.mq.session.api
        await api.call(f"{A}:10911", put_group(SubscriptionGroupConfig(group_name="g")))
        give_back = deny(files, "/store/config/")
        await api.call(f"{A}:10911", calls.commit("g", MessageQueue("orders", "broker-a", 0), 0))
        await asyncio.sleep(60)
        finding = await one(ward, "RQ-D042")
        assert "consumerOffset.json: [Errno 13] Permission denied" in finding.evidence
        assert "chown -R" in finding.fix
        assert await ward.exits() == 10
        assert "/store/config" in finding.fix
        assert (await ready(A)).startswith("task offsets failed")
        assert "/store/config" in await ready(A)
        assert await gauge(A, "rocketmq_tables_unwritten") == 1
        assert await gauge(A, "rocketmq_task_failures_in_row", task="offsets") >= 3
        ward.cluster.kill(A)
        with pytest.raises(
            StoreError, match=r"tables cannot be written: .* chown -R \d+ /store/config && chmod"
        ):
            await ward.cluster.restart(A)
        ward.cluster.kill(A)
        give_back()
        await ward.cluster.restart(A)
        await asyncio.sleep(5)
        assert (await ready(A), await ward.well()) == ("", True)

    clinic(scenario)


def test_a_broker_without_a_name_server() -> None:
    async def scenario(ward: Clinic) -> None:
        await ward.broker(A, "broker-a", name_servers="")
        assert (await ready(A)).startswith(
            "namesrvAddr is empty: this broker is registered nowhere"
        )
        await ward.broker(B, "broker-b")
        assert await ready(B) == ""
        for ip in (N1, N2):
            ward.cluster.kill(ip)
        await asyncio.sleep(60)
        assert (await ready(B)).startswith("it is registered at no name server: 10.0.0.1:9876: ")

    clinic(scenario)
