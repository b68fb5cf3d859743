"""What an application's functions may be and may answer: wrong kinds are refused when given, odd answers are no success."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import pytest
from tests.client.test_push_consumer import small, until

from roquette import App, StartFrom
from roquette.errors import ConfigError
from roquette.message.message import MessageQueue, ReceivedMessage
from roquette.sync import Client as BlockingClient
from roquette_testing.cluster import SimCluster, simulate

Handler = Callable[[ReceivedMessage], Any]


def generator(message: ReceivedMessage) -> Iterator[int]:
    yield 1


async def async_generator(message: ReceivedMessage) -> AsyncIterator[int]:
    yield 1


async def coroutine(message: ReceivedMessage) -> None:
    raise AssertionError("it runs")


class Yields:
    def __call__(self, message: ReceivedMessage) -> Iterator[int]:
        yield 1


class Store:
    """Its `load` is what is given."""

    def __init__(self, load: Any) -> None:
        self.load = load

    def save(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Keep nothing."""


WRONG: tuple[object, ...] = (
    generator, async_generator, Yields(), Yields, functools.partial(generator), 7,
)  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_what_would_not_run_is_refused_when_it_is_given(wrong: Any) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await small(cluster)
        mq = await cluster.client("10.0.3.1", group="own")
        with pytest.raises(ConfigError):
            await mq.subscribe("orders", group="g", handler=wrong)
        with pytest.raises(ConfigError):
            await mq.subscribe("orders", group="g", handler=wrong)
        with pytest.raises(ConfigError):
            await mq.serve("orders", group="g", handler=wrong)
        with pytest.raises(ConfigError):
            mq.on_check("orders", wrong)
        with pytest.raises(ConfigError):
            await mq.subscribe("orders", group="g", handler=coroutine, on_revoke=wrong)
        with pytest.raises(ConfigError):
            await mq.subscribe("orders", group="g", handler=coroutine, offsets=Store(wrong))
        with pytest.raises(ConfigError):
            App().consumer("orders", group="g")(wrong)
        with pytest.raises(ConfigError):
            App(lifespan=wrong)
        reader = mq.reader(group="g")
        with pytest.raises(ConfigError):
            await reader.subscribe("orders", on_change=wrong)

    simulate(scenario)


@pytest.mark.parametrize("wrong", [*WRONG, coroutine])
def test_the_blocking_client_takes_plain_functions_alone(wrong: Any) -> None:
    with BlockingClient("127.0.0.1:1", group="own") as mq:
        with pytest.raises(ConfigError):
            mq.subscribe("orders", group="g", handler=wrong)
        with pytest.raises(ConfigError):
            mq.subscribe("orders", group="g", handler=wrong)
        with pytest.raises(ConfigError):
            mq.serve("orders", group="g", handler=wrong)
        with pytest.raises(ConfigError):
            mq.on_check("orders", wrong)
        with pytest.raises(ConfigError):
            mq.subscribe("orders", group="g", handler=lambda m: None, offsets=Store(wrong))


@pytest.mark.parametrize(
    ("answer", "accepted"),
    [
        (lambda m: None, True),
        (lambda m: True, True),
        (lambda m: False, False),
        (lambda m: asyncio.sleep(0), True),
        (lambda m: asyncio.sleep(0, False), False),
        (lambda m: asyncio.sleep(0, asyncio.sleep(0)), False),
        (generator, False),
        (async_generator, False),
        (lambda m: "done", False),
        (lambda m: 0, False),
    ],
)
@pytest.mark.parametrize("form", ["handler", "app"])
def test_an_answer_that_is_not_understood_is_no_success(
    answer: Handler, accepted: bool, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await small(cluster)
        mq = await cluster.client("10.0.3.1")
        got: list[int] = []

        def handler(message: ReceivedMessage) -> Any:
            got.append(message.reconsume_times)
            return None if got[1:] else answer(message)

        if form == "app":
            app = App()
            app.consumer("orders", group="g", start_from=StartFrom.FIRST)(handler)
            async with app.serving(mq):
                await _seen(got, accepted)
        else:
            await mq.subscribe("orders", group="g", handler=handler, start_from=StartFrom.FIRST)
            await _seen(got, accepted)

    simulate(scenario)
    assert "was never awaited" not in caplog.text


async def _seen(got: list[int], accepted: bool) -> None:
    await until(lambda: len(got) == 1)
    if accepted:
        await asyncio.sleep(40)
        assert got == [0]
    else:
        await until(lambda: got == [0, 1])


def test_an_odd_answer_of_a_check_or_a_store_is_told() -> None:
    def load(group: str, queue: MessageQueue) -> Any:
        return True

    async def scenario(cluster: SimCluster) -> None:
        await small(cluster)
        mq = await cluster.client("10.0.3.1")
        consumer = await mq.subscribe(
            "orders", group="g", handler=lambda m: None, offsets=Store(load)
        )
        assert not consumer.queues, "True is no offset"

    simulate(scenario)


KEPT: ContextVar[str] = ContextVar("kept", default="nothing")


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_each_call_has_a_clean_context(orderly: bool, waits: bool) -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        seen: list[str] = []

        def handler(message: ReceivedMessage) -> None:
            seen.append(KEPT.get())
            KEPT.set("the message before")

        async def waiting(message: ReceivedMessage) -> None:
            await asyncio.sleep(0.01)
            handler(message)
            await asyncio.sleep(0.01)
            seen.append(KEPT.get())

        KEPT.set("who subscribes")
        await mq.subscribe(
            "orders",
            group="g",
            handler=waiting if waits else handler,
            orderly=orderly,
            concurrency=1,
            start_from=StartFrom.FIRST,
        )
        for n in range(4):
            await mq.send("orders", f"{n}")
        expected = ["who subscribes", "the message before"] if waits else ["who subscribes"]
        await until(lambda: len(seen) >= 5 * len(expected))
        assert sorted(seen) == sorted(expected * 5)

    simulate(scenario)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({}, "it comes again, delay level 3"),
        ({"retry_levels": [2]}, "it comes again, delay level 2"),
        ({"max_reconsume_times": 0}, "it goes to the dead letters"),
        ({"orderly": True}, "it is tried again in 1000 ms"),
        ({"model": "broadcasting"}, "it is dropped"),
    ],
)
def test_the_log_says_what_failed_where_and_what_happens_next(
    words: dict[str, Any], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(message: ReceivedMessage) -> None:
        raise ValueError("no such customer")

    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        await mq.send("orders", b"1", key="order-7")
        await mq.subscribe(
            "orders", group="g", handler=handler, start_from=StartFrom.FIRST, **words
        )
        await asyncio.sleep(2)

    simulate(scenario)
    text = next(r for r in caplog.records if "keys=order-7" in r.getMessage())
    assert "group=g topic=orders id=" in text.getMessage()
    assert f"attempt=1: {told}" in text.getMessage()
    assert text.exc_info is not None
    assert "no such customer" in str(text.exc_info[1])
