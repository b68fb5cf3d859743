"""One client process of Roquette under one load; prints messages, seconds and its own CPU seconds as JSON.

    python client_load.py VERB NAME_SERVERS TOPIC [key=value ...]

Verbs: one, pipelined, batch, fill, handler, iterate, blocking-one, blocking-handler, idle.
"""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Awaitable, Callable

import roquette
import roquette.sync

BODY = b"x" * 128
FIRST = roquette.StartFrom.FIRST


class Measure:
    """From `begin` on."""

    def __init__(self) -> None:
        self.began, self.cpu = time.perf_counter(), time.process_time()

    def tell(self, messages: int) -> None:
        """Print what was measured."""
        found = {
            "messages": messages,
            "seconds": time.perf_counter() - self.began,
            "cpu_s": time.process_time() - self.cpu,
        }
        print(json.dumps(found))


async def sends(
    mq: roquette.Client, topic: str, count: int, step: Callable[[], Awaitable[int]]
) -> None:
    """Run a step until so many messages are sent, after a tenth of them to warm up."""
    await mq.send(topic, BODY)
    sent = 0
    while sent < count // 10:
        sent += await step()
    measure, sent = Measure(), 0
    while sent < count:
        sent += await step()
    measure.tell(sent)


async def main(verb: str, servers: str, topic: str, count: int) -> None:
    """Asynchronous verbs."""
    async with roquette.Client(servers, send_timeout=30) as mq:

        async def one() -> int:
            await mq.send(topic, BODY)
            return 1

        async def pipelined() -> int:
            await asyncio.gather(*[await mq.send_nowait(topic, BODY) for _ in range(256)])
            return 256

        async def batch() -> int:
            return len(await mq.send_batch(topic, [BODY] * 100))

        steps = {"one": one, "pipelined": pipelined, "batch": batch, "fill": pipelined}
        if verb in steps:
            await sends(mq, topic, count, steps[verb])
        elif verb == "handler":
            seen, done, measures = 0, asyncio.Event(), []

            async def handle(message: roquette.ReceivedMessage) -> None:
                nonlocal seen
                seen += 1
                if seen == count // 10:
                    measures.append(Measure())
                if seen == count:
                    done.set()

            await mq.subscribe(topic, group=f"g-{time.time_ns()}", handler=handle, start_from=FIRST)
            await done.wait()
            measures[0].tell(count - count // 10)
        elif verb == "iterate":
            seen, begun = 0, None
            async with mq.consume(topic, group=f"g-{time.time_ns()}", start_from=FIRST) as messages:
                async for _ in messages:
                    seen += 1
                    if seen == count // 10:
                        begun = Measure()
                    if seen == count and begun is not None:
                        begun.tell(count - count // 10)
                        break
        elif verb == "idle":
            await mq.subscribe(topic, group=f"g-{time.time_ns()}", handler=lambda message: None)
            await asyncio.sleep(5)
            measure = Measure()
            await asyncio.sleep(10)
            measure.tell(1)


def blocking(verb: str, servers: str, topic: str, count: int) -> None:
    """Verbs of the blocking client."""
    with roquette.sync.Client(servers) as mq:
        if verb == "blocking-one":
            for _ in range(count // 10):
                mq.send(topic, BODY)
            measure = Measure()
            for _ in range(count):
                mq.send(topic, BODY)
            measure.tell(count)
            return
        seen, done, measures = 0, threading.Event(), []

        def handle(message: roquette.ReceivedMessage) -> None:
            nonlocal seen
            with lock:
                seen += 1
                if seen == count // 10:
                    measures.append(Measure())
                if seen == count:
                    done.set()

        lock = threading.Lock()
        mq.subscribe(topic, group=f"g-{time.time_ns()}", handler=handle, start_from=FIRST)
        if not done.wait(120):
            raise RuntimeError(f"{seen} of {count} messages came within 120 s")
        measures[0].tell(count - count // 10)


if __name__ == "__main__":
    verb, servers, topic, *words = sys.argv[1:]
    settings = dict(word.split("=", 1) for word in words)
    count = int(settings.get("count", "10000"))
    if verb.startswith("blocking"):
        blocking(verb, servers, topic, count)
    else:
        asyncio.run(main(verb, servers, topic, count))
