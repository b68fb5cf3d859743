"""A broker that accepts and never answers costs its rows, which say why; not the command."""

import asyncio
import json
import time
from typing import Any

from tests.client.sink_cluster import SILENCE, SinkCluster
from typer.testing import CliRunner

from roquette import StartFrom
from roquette.admin.catalogue import group_rows, groups
from roquette.admin.doctor.examination import who_is_there
from roquette.admin.groups import group_lag
from roquette.admin.top import broker_rows
from roquette.admin.topics import create_topic, delete_topic, describe_topic
from roquette.client import calls
from roquette.client.calls import Answer, Operation, ask_all, together
from roquette.errors import ClientError
from roquette.message.message import ReceivedMessage
from roquette.wire.command import Command
from roquette_spark.workers.inspector import ClusterInspector
from roquette_testing.cluster import SimCluster, simulate

NAME_SERVER, A, B, CLIENT = "10.0.0.1", "10.0.1.1", "10.0.1.2", "10.0.2.1"


def test_a_frozen_broker_costs_its_rows_and_they_say_why() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAME_SERVER)
        await cluster.add_broker(A, "broker-a")
        await cluster.add_broker(B, "broker-b")
        mq = await cluster.client(CLIENT)
        run, servers = mq.session.run, mq.session.name_servers
        made = await run(create_topic(servers, "orders", queues=2))
        assert (made.done, made.failed) == (["broker-a", "broker-b"], {})
        await asyncio.sleep(1)
        for queue in await mq.queues("orders"):
            await mq.send("orders", b"x", queue=queue)
        got: list[ReceivedMessage] = []
        await mq.subscribe("orders", group="g", handler=got.append, start_from=StartFrom.FIRST)
        await asyncio.sleep(30)
        assert len(got) == 4
        assert {row.broker for row in await run(group_lag("g", topic="orders"))} == {
            "broker-a",
            "broker-b",
        }

        cluster.partition(CLIENT, B)  # B is in every route, takes requests and answers none

        lag = await run(group_lag("g", topic="orders"))
        assert [(row.broker, row.lag) for row in lag] == [
            ("broker-a", 0),
            ("broker-a", 0),
            ("broker-b", -1),
        ]
        assert "10.0.1.2:10911" in lag[-1].error
        (group,) = await run(group_rows(["g"], await run(groups())))
        assert (group.group, group.topics, group.lag) == ("g", 2, 0)
        assert group.error.startswith("broker-b: ")
        described = await run(describe_topic("orders"))
        assert [row.error == "" for row in described.brokers] == [True, False]
        assert [(row.broker, row.max_offset) for row in described.queues] == [("broker-a", 1)] * 2
        look = await run(who_is_there(servers, cluster.host(CLIENT).clock))
        assert [(state.broker, state.answers) for state in broker_rows(look)] == [
            ("broker-a", True),
            ("broker-b", False),
        ]
        made = await run(create_topic(servers, "more", queues=2))
        assert (made.done, list(made.failed)) == (["broker-a"], ["broker-b"])
        gone = await run(delete_topic(servers, "orders"))
        assert (gone.done, list(gone.failed), gone.untold) == (["broker-a"], ["broker-b"], {})

        cluster.partition(CLIENT, A)
        for operation in (group_lag("g"), describe_topic("more"), create_topic(servers, "new")):
            await fails(mq.session.run(operation))

    simulate(scenario)


async def fails(work: "asyncio.Future[object]") -> None:
    try:
        await work
    except ClientError:
        return
    raise AssertionError("nobody answered")


def test_a_server_that_is_silent_is_waited_for_once() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAME_SERVER)
        await cluster.add_broker(A, "broker-a")
        await cluster.add_broker(B, "broker-b")
        mq = await cluster.client(CLIENT)
        cluster.partition(CLIENT, B)
        loop = asyncio.get_running_loop()
        begun = loop.time()

        def many() -> Operation[int]:
            asks = [(f"{ip}:10911", calls.topics_of_broker()) for ip in (A, B) for _ in range(500)]
            first = yield from ask_all(asks)
            second = yield from ask_all(asks)
            return sum(answer.error is None for answer in first + second)

        assert await mq.session.run(many()) == 1000
        assert loop.time() - begun < 5

    simulate(scenario)


def test_operations_side_by_side_share_their_steps_and_not_their_failures() -> None:
    def asks(times: int, fails: bool) -> Operation[int]:
        found = 0
        for number in range(times):
            answers = yield from ask_all(("a", calls.topics_of_broker()) for _ in range(number))
            found += len(answers)
        if fails:
            raise ClientError("no")
        return found

    steps: list[int] = []
    work = together([asks(0, False), asks(3, False), asks(2, True), asks(4, False)])
    told: list[Answer[Any]] | None = None
    while True:
        try:
            wanted = work.send(told)  # type: ignore[arg-type]
        except StopIteration as end:
            found = end.value
            break
        steps.append(len(wanted))
        told = [Answer(each.address, []) for each in wanted]
    assert [answer.value for answer in found] == [0, 3, None, 6]
    assert [answer.reason for answer in found] == ["", "", "no", ""]
    assert steps == [3, 4, 3]


class HalfSilent(SinkCluster):
    """Broker b accepts and never answers."""

    def answer(
        self, broker: str, command: Command
    ) -> tuple[int, str | None, dict[str, str], bytes] | None:
        if broker == "b":
            return SILENCE, None, {}, b""
        return super().answer(broker, command)


def test_over_real_sockets_the_others_are_done_and_the_exit_code_tells() -> None:
    from roquette.apps.main import app

    with HalfSilent({"T": {"a": 2, "b": 3}}) as cluster:
        inspector = ClusterInspector(cluster.address, timeout_ms=200)
        begun = time.monotonic()
        change = inspector.run(create_topic(inspector.name_servers, "new", queues=5))
        assert change.done == ["a"]
        assert "did not answer within 0.2 s" in change.failed["b"]
        assert time.monotonic() - begun < 30

        words = ["topic", "create", "newer", "-n", cluster.address, "-o", "json"]
        result = CliRunner().invoke(app, words)
    assert json.loads(result.stdout)["brokers"] == ["a"]
    assert isinstance(result.exception, ClientError)
    assert "not done on b: " in str(result.exception)
    assert cluster.topics["newer"] == {"a": 8}
