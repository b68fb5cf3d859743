"""Plain functions run in threads wherever an asynchronous client takes one, and may block and use a blocking client."""

import asyncio
import contextvars
import threading
from collections import Counter
from collections.abc import Awaitable

from roquette import Message, ReceivedMessage, Retry
from roquette_testing.embedded import EmbeddedBroker

LIMIT_S = 30.0


def test_handlers_batches_and_servers_run_beside_the_loop_and_use_the_twin() -> None:
    async def scenario() -> None:
        loop = threading.get_ident()
        async with (
            EmbeddedBroker() as broker,
            broker.client(group="shop") as mq,
        ):
            twin = await asyncio.to_thread(broker.sync_client().start)
            together = threading.Barrier(3)

            def handle(message: ReceivedMessage) -> None:
                assert threading.get_ident() != loop
                together.wait(LIMIT_S)  # three are at work at the same time
                twin.send("done", message.body)

            def handle_many(messages: list[ReceivedMessage]) -> int:
                assert threading.get_ident() != loop
                twin.send_batch("counted", [message.body for message in messages])
                return len(messages)

            def answer(message: ReceivedMessage) -> bytes:
                assert threading.get_ident() != loop
                return twin.send("asked", message.body).status.encode()

            async with (
                mq.subscribe("orders", handle, group="one", concurrency=3),
                mq.subscribe("orders", handle_many, group="many", batch=8),
                mq.serve("questions", answer, group="servers"),
            ):
                for number in range(3):
                    await mq.send("orders", b"%d" % number)
                assert (await mq.request("questions", b"q", timeout=LIMIT_S)).body == b"SEND_OK"
                async with asyncio.timeout(LIMIT_S):
                    for topic in ("done", "counted"):
                        async with mq.consume(topic, group="look") as found:
                            assert {(await anext(found)).body for _ in range(3)} == {
                                b"0",
                                b"1",
                                b"2",
                            }
            await asyncio.to_thread(twin.close)

    asyncio.run(scenario())


def test_what_is_said_and_raised_in_a_thread_counts() -> None:
    var: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="clean")
    seen: list[str] = []
    tries: Counter[bytes] = Counter()

    def handle(message: ReceivedMessage) -> bool | None:
        seen.append(var.get())
        var.set("dirty")
        tries[message.body] += 1
        if message.body == b"dead":
            message.dead_letter()
        if tries[message.body] > 1 or message.body == b"dead":
            return None
        if message.body == b"again":
            raise Retry(after=1)
        if message.body == b"stop":
            raise StopIteration
        return False

    async def scenario() -> None:
        async with EmbeddedBroker() as broker, broker.client() as mq:
            for body in (b"dead", b"again", b"stop", b"false"):
                await mq.send("orders", body)
            async with mq.subscribe("orders", handle, group="g", retry_levels=[1]):
                async with asyncio.timeout(LIMIT_S):
                    while len(seen) < 7:
                        await asyncio.sleep(0.01)
            assert tries == {b"dead": 1, b"again": 2, b"stop": 2, b"false": 2}
            assert set(seen) == {"clean"}
            (dead,) = broker.messages("%DLQ%g")
            assert dead.body == b"dead"

    asyncio.run(scenario())


def test_a_check_runs_beside_the_loop() -> None:
    asked: list[int] = []

    def check(message: ReceivedMessage) -> bool:
        asked.append(threading.get_ident())
        return True

    async def scenario() -> None:
        async with (
            EmbeddedBroker() as broker,
            broker.client(group="shop") as mq,
        ):
            mq.on_check("orders", check)
            await mq._sender.send_half(Message("orders", b"x"))
            async with mq.consume("orders", group="g", timeout=LIMIT_S) as messages:
                advancing = asyncio.create_task(advance(broker))
                assert (await anext(messages)).body == b"x"
                advancing.cancel()
        assert asked and threading.get_ident() not in asked

    async def advance(broker: EmbeddedBroker) -> None:
        while True:
            await asyncio.to_thread(broker.clock.advance, seconds=10)
            await asyncio.sleep(0.1)

    asyncio.run(scenario())


def test_a_wrapper_of_a_coroutine_function_is_awaited_on_the_loop() -> None:
    async def scenario() -> None:
        loop = threading.get_ident()
        ran = asyncio.Event()

        async def handle(message: ReceivedMessage) -> None:
            assert threading.get_ident() == loop
            ran.set()

        async with EmbeddedBroker() as broker, broker.client() as mq:
            await mq.send("orders", b"x")

            def wrapped(message: ReceivedMessage) -> Awaitable[None]:
                return handle(message)

            async with mq.subscribe("orders", wrapped, group="g"):
                await asyncio.wait_for(ran.wait(), LIMIT_S)

    asyncio.run(scenario())
