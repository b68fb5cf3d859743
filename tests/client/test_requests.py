"""Request and reply in virtual time."""

import asyncio
from typing import Any

import pytest

from roquette.client.client import Client
from roquette.client.core.process_queue import WINDOW_MS, Waits
from roquette.errors import ConfigError, RequestTimeout
from roquette.message.message import Message, ReceivedMessage
from roquette_testing.cluster import SimCluster, simulate

pytestmark = pytest.mark.simulation

NAMESRV, BROKER, ASKER, SERVER, OTHER = "10.0.0.1", "10.0.1.1", "10.0.2.1", "10.0.2.2", "10.0.2.3"


async def world(cluster: SimCluster) -> tuple[Client, Client]:
    await cluster.add_namesrv(NAMESRV)
    await cluster.add_broker(BROKER, "broker-a")
    asker, server = await cluster.client(ASKER), await cluster.client(SERVER)
    await asker.send("sums", b"the topic is there")
    return asker, server


async def add(message: ReceivedMessage) -> str:
    a, b = message.body.split()
    return str(int(a) + int(b))


def test_each_request_gets_its_own_reply() -> None:
    async def scenario(cluster: SimCluster) -> None:
        asker, server = await world(cluster)
        await server.serve("sums", group="adders", handler=add)
        await asyncio.sleep(1)
        replies = await asyncio.gather(
            *(asker.request("sums", f"{n} {n}", key=f"{n}") for n in range(50))
        )
        assert [int(reply.body) for reply in replies] == [2 * n for n in range(50)]
        message = Message("sums", b"1 2", properties={"mine": "1"})
        assert (await asker.request(message)).body == b"3"
        assert message.properties == {"mine": "1"}
        assert not asker._replies._waiting

    simulate(scenario)


def test_a_request_nobody_answers_ends_in_time() -> None:
    async def scenario(cluster: SimCluster) -> None:
        asker, _server = await world(cluster)
        began = asyncio.get_running_loop().time()
        with pytest.raises(
            RequestTimeout, match=r"to sums was stored, and no reply came within 2.5 s"
        ):
            await asker.request("sums", b"1 1", timeout=2.5)
        assert asyncio.get_running_loop().time() - began < 2.6
        assert not asker._replies._waiting

    simulate(scenario)


@pytest.mark.parametrize("ahead_ms", [0, 3_600_000, -3_600_000])
def test_what_nobody_waits_for_is_skipped_and_the_rest_answered_whatever_the_clocks(
    ahead_ms: int,
) -> None:
    async def scenario(cluster: SimCluster) -> None:
        asker, server = await world(cluster)
        cluster.set_clock(SERVER, ahead_ms)
        cluster.set_clock(ASKER, -ahead_ms // 2)
        seen: list[bytes] = []

        async def handle(message: ReceivedMessage) -> bytes:
            seen.append(message.body)
            await asyncio.sleep(5.0 if message.body == b"slow" else 0.0)
            return b"done"

        await server.serve("sums", group="adders", handler=handle, concurrency=1)
        await asyncio.sleep(1)
        for number in range(3):
            assert (await asker.request("sums", f"{number}")).body == b"done"
        slow = asyncio.ensure_future(asker.request("sums", b"slow", timeout=20))
        await asyncio.sleep(0.5)
        with pytest.raises(RequestTimeout):
            await asker.request("sums", b"impatient", timeout=1)
        assert (await asker.request("sums", b"patient", timeout=20)).body == b"done"
        assert (await slow).body == b"done"
        assert seen[-5:] == [b"0", b"1", b"2", b"slow", b"patient"]

    simulate(scenario)


def test_a_wait_is_what_a_message_waited_longer_than_others() -> None:
    waits = Waits()
    assert waits.waited_ms("a", 1_000_000, 50) == 0
    assert waits.waited_ms("a", 1_000_100, 450) == 300
    assert waits.waited_ms("b", 5, 450) == 0, "each broker has a clock of its own"
    assert waits.waited_ms("a", 1_000_390, 430) == 0, "this one waited least"
    assert waits.waited_ms("a", 1_000_400, 540) == 100
    set_back = 900_000
    assert waits.waited_ms("a", set_back, 1_000) > 100_000
    for now in range(1_000, 1_000 + 3 * WINDOW_MS, 1_000):
        waited = waits.waited_ms("a", set_back + now, now)
    assert waited == 0, "a clock that is set back is known as such after two minutes at most"


@pytest.mark.parametrize(
    ("silence_ms", "waited_ms"), [(2 * WINDOW_MS - 1, 5_000), (2 * WINDOW_MS, 0)]
)
def test_what_separates_two_clocks_is_forgotten_after_two_windows(
    silence_ms: int, waited_ms: int
) -> None:
    waits = Waits()
    assert waits.waited_ms("a", 1_000_000, 0) == 0
    late = 1_000_000 + silence_ms - 5_000  # stored five seconds before it comes
    assert waits.waited_ms("a", late, silence_ms) == waited_ms


def test_a_server_that_fails_answers_the_next_one() -> None:
    async def scenario(cluster: SimCluster) -> None:
        asker, server = await world(cluster)

        def handle(message: ReceivedMessage) -> Any:
            if message.body == b"bad":
                raise ValueError("bad")
            return None if message.body == b"none" else b"good"

        await server.serve("sums", group="adders", handler=handle)
        await asyncio.sleep(1)
        for body in (b"bad", b"none"):
            with pytest.raises(RequestTimeout):
                await asker.request("sums", body, timeout=1)
        assert (await asker.request("sums", b"x")).body == b"good"

    simulate(scenario)


@pytest.mark.parametrize("wrong", [5, True, 2.5, ["a"], {1: 2}])
def test_an_answer_that_is_no_body_is_no_reply_and_runs_once(wrong: object) -> None:
    async def scenario(cluster: SimCluster) -> None:
        asker, server = await world(cluster)
        ran: list[bytes] = []

        def handle(message: ReceivedMessage) -> Any:
            ran.append(message.body)
            return wrong

        await server.serve("sums", group="adders", handler=handle)
        await asyncio.sleep(1)
        ran.clear()
        with pytest.raises(RequestTimeout):
            await asker.request("sums", b"x", timeout=1)
        await asyncio.sleep(120)
        assert ran == [b"x"]

    simulate(scenario)


@pytest.mark.parametrize("timeout", [0.2, 1.0])
def test_the_time_includes_a_broker_that_does_not_answer(timeout: float) -> None:
    async def scenario(cluster: SimCluster) -> None:
        asker, _ = await world(cluster)
        cluster.network.partition(ASKER, BROKER)
        for _ in range(2):
            began = asyncio.get_running_loop().time()
            with pytest.raises(RequestTimeout):
                await asker.request("sums", b"1 1", timeout=timeout)
            assert asyncio.get_running_loop().time() - began < timeout + 0.1
            assert not asker._replies._waiting

    simulate(scenario)


def test_a_requester_that_left_harms_nobody() -> None:
    async def scenario(cluster: SimCluster) -> None:
        asker, server = await world(cluster)

        async def slow(message: ReceivedMessage) -> bytes:
            await asyncio.sleep(1)
            return b"done"

        await server.serve("sums", group="adders", handler=slow)
        await asyncio.sleep(1)
        tasks = [
            asyncio.get_running_loop().create_task(asker.request("sums", b"1")) for _ in range(3)
        ]
        await asyncio.sleep(0.5)
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert tasks[0].cancelled()
        assert [task.result().body for task in tasks[1:]] == [b"done", b"done"]

        async def ask() -> None:
            asyncio.get_running_loop().create_task(asker.request("sums", b"1", timeout=20))

        await cluster.run_on(ASKER, ask())
        await asyncio.sleep(0.2)
        cluster.kill(ASKER)
        await asyncio.sleep(30)
        other = await cluster.client(OTHER)
        assert (await other.request("sums", b"1")).body == b"done"

    simulate(scenario)


def test_wrong_words_are_refused() -> None:
    async def scenario(cluster: SimCluster) -> None:
        asker, server = await world(cluster)
        for timeout in (0, -1, 601, "3"):
            with pytest.raises(ConfigError, match="timeout="):
                await asker.request("sums", b"x", timeout=timeout)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="cannot be called"):
            await server.serve("sums", group="g", handler=b"x")  # type: ignore[arg-type]

    simulate(scenario)
