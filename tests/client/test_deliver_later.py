"""Messages that are delivered later, taken back, and seen by interceptors: in virtual time."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from roquette.client.client import Client
from roquette.errors import BrokerError, ClientError, ConfigError, MessageIllegal
from roquette.message.message import Message, ReceivedMessage
from roquette_testing.cluster import SimCluster, simulate

pytestmark = pytest.mark.simulation


async def world(cluster: SimCluster) -> Client:
    await cluster.add_namesrv("10.0.0.1")
    await cluster.add_broker("10.0.1.1", "broker-a", recall_message_enable=True)
    return await cluster.client("10.0.2.1")


def test_a_message_comes_when_it_is_due_and_not_before() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await world(cluster)
        await mq.send("orders", b"now")
        came: dict[bytes, float] = {}
        began = cluster.loop.time()
        at = datetime.fromtimestamp(cluster.clock.now_ms() / 1000, UTC) + timedelta(seconds=90)
        await mq.send("orders", b"span", deliver_at=timedelta(minutes=1))
        await mq.send("orders", b"time", deliver_at=at)

        async with mq.consume("orders", group="g", start_from=0) as messages:
            async for message in messages:
                came[message.body] = cluster.loop.time() - began
                if len(came) == 3:
                    break

        assert came[b"now"] < 30
        assert 59.999 <= came[b"span"] < 65  # times are whole milliseconds
        assert 89.999 <= came[b"time"] < 95

    simulate(scenario)


def test_a_message_is_taken_back_until_it_is_due() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await world(cluster)
        plain = await mq.send("orders", b"now")
        back = await mq.send("orders", b"never", deliver_at=timedelta(minutes=2))
        await mq.send("orders", b"last", deliver_at=timedelta(minutes=2, seconds=5))
        await mq.recall(back)
        with pytest.raises(MessageIllegal, match="no recall handle"):
            await mq.recall(plain)

        bodies = []
        async with mq.consume("orders", group="g", start_from=0) as messages:
            async for message in messages:
                bodies.append(message.body)
                if message.body == b"last":
                    break
        assert bodies == [b"now", b"last"]
        with pytest.raises(BrokerError, match="recall failed"):
            await mq.recall(back)

    simulate(scenario)


@pytest.mark.parametrize(
    ("when", "words"),
    [(datetime(2030, 1, 1), "no time zone"), (datetime(1960, 1, 1, tzinfo=UTC), "before 1970")],
)
def test_a_time_that_means_nothing_is_refused(when: datetime, words: str) -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await world(cluster)
        with pytest.raises(ConfigError, match=words):
            await mq.send("orders", b"x", deliver_at=when)
        with pytest.raises(TypeError, match="neither a datetime nor a timedelta"):
            await mq.send("orders", b"x", deliver_at=5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="has its own"):
            await mq.send(Message("orders", b"x"), deliver_at=timedelta(1))
        with pytest.raises(MessageIllegal, match="a batch takes neither"):
            await mq.send_batch(
                "orders", [Message("orders", b"x", deliver_at=datetime(2030, 1, 1, tzinfo=UTC))]
            )

    simulate(scenario)


class Witness:
    """An interceptor that writes down what it sees, and marks what is sent."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def on_send(self, message: Message, group: str) -> Any:
        message.properties["seen"] = "yes"
        self.seen.append(("send", message.body, group))
        return lambda receipt, error: self.seen.append(
            ("sent", message.body, getattr(receipt, "status", None), type(error).__name__)
        )

    def on_receive(self, message: ReceivedMessage, group: str) -> Any:
        self.seen.append(("receive", message.body, group, message.properties["seen"]))
        return lambda ok, error: self.seen.append(
            ("handled", message.body, ok, type(error).__name__)
        )


class Broken:
    """An interceptor that fails: nobody suffers from it."""

    def on_send(self, message: Message, group: str) -> None:
        raise ValueError("on_send")

    def on_receive(self, message: ReceivedMessage, group: str) -> None:
        raise ValueError("on_receive")


def test_interceptors_see_each_send_and_its_end() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq, witness = await world(cluster), Witness()
        mq.intercept(witness)
        mq.intercept(Broken())
        group = "DEFAULT_PRODUCER"

        await mq.send("orders", b"1")
        await (await mq.send_nowait("orders", b"2"))
        await mq.send_oneway("orders", b"3")
        await mq.send_batch("orders", [b"4", b"5"])
        with pytest.raises(MessageIllegal):
            await mq.send("orders", b"")

        begun = [("send", body, group) for body in (b"1", b"2", b"3", b"4", b"5", b"")]
        assert [entry for entry in witness.seen if entry[0] == "send"] == begun
        ends = [("sent", body, "SEND_OK", "NoneType") for body in (b"1", b"2", b"4", b"5")]
        ends.insert(2, ("sent", b"3", None, "NoneType"))
        ends.append(("sent", b"", None, "MessageIllegal"))
        seen = [entry for entry in witness.seen if entry[0] == "sent"]
        assert sorted(seen, key=str) == sorted(ends, key=str)

    simulate(scenario)


def test_interceptors_see_a_batch_that_was_not_stored() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq, witness = await world(cluster), Witness()
        await mq.send("orders", b"first")
        mq.intercept(witness)
        cluster.kill("10.0.1.1")
        with pytest.raises(ClientError):
            await mq.send_batch("orders", [b"1", b"2"])
        assert sorted(entry[:3] for entry in witness.seen if entry[0] == "sent") == [
            ("sent", b"1", None),
            ("sent", b"2", None),
        ]

    simulate(scenario)


def test_interceptors_see_each_handled_message() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq, witness = await world(cluster), Witness()
        mq.intercept(witness)
        mq.intercept(Broken())
        await mq.send("orders", b"1")
        failures = [ValueError("no"), None]

        async def handle(message: ReceivedMessage) -> None:
            if error := failures.pop(0):
                raise error

        await mq.subscribe("orders", group="g", handler=handle, start_from=0)
        await asyncio.sleep(30)
        assert [entry for entry in witness.seen if entry[0] in ("receive", "handled")] == [
            ("receive", b"1", "g", "yes"),
            ("handled", b"1", False, "ValueError"),
            ("receive", b"1", "g", "yes"),
            ("handled", b"1", True, "NoneType"),
        ]
        assert sum(entry[0] == "send" for entry in witness.seen) == 1  # a retry is no send

    simulate(scenario)
