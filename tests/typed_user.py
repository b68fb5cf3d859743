"""What users write, for the type checker alone: mypy fails here when a right call is refused, or a wrong one passes."""

import asyncio
import concurrent.futures
from datetime import timedelta
from typing import assert_type

import roquette
from roquette import Message, MessageQueue, ReceivedMessage, SendReceipt


async def asynchronous(mq: roquette.Client) -> None:
    receipt = await mq.send("orders", b"x", key="7", tag="new", deliver_at=timedelta(hours=3))
    assert_type(receipt, SendReceipt)
    assert_type(await mq.send_nowait(Message("orders", b"x")), asyncio.Future[SendReceipt])
    assert_type(await mq.send_batch("orders", [b"1", "2"]), list[SendReceipt])
    await mq.send("orders", b"x", kye="7")  # type: ignore[call-arg]
    await mq.send("orders", 7)  # type: ignore[arg-type]
    async with mq.transaction("orders", b"x") as tx:
        assert_type(tx.message_id, str)
    async with mq.pop("orders", group="g") as jobs:
        async for job in jobs:
            assert_type(job.message, ReceivedMessage)
            await job.ack()
    async for message in mq.consume("orders", group="g"):
        assert_type(message.body, bytes)

    async def handle(message: ReceivedMessage) -> None:
        await mq.send("done", message.body)

    consumer = await mq.subscribe("orders", group="g", handler=handle)
    await mq.subscribe("orders", group="g", handler=handle, strategy="AVRG")  # type: ignore[arg-type]
    await consumer.close()


def blocking(mq: roquette.sync.Client, queue: MessageQueue) -> None:
    assert_type(mq.send("orders", b"x", key="7", tag="new"), SendReceipt)
    assert_type(mq.send_nowait("orders", b"x"), concurrent.futures.Future[SendReceipt])
    mq.send("orders", b"x", kye="7")  # type: ignore[call-arg]
    mq.send("orders", 7)  # type: ignore[arg-type]
    with mq.transaction("orders", b"x") as tx:
        assert_type(tx.message_id, str)
    with mq.pop("orders", group="g") as jobs:
        for job in jobs:
            assert_type(job.message, ReceivedMessage)
            job.ack()
    for message in mq.consume("orders", group="g"):
        assert_type(message.body, bytes)

    def handle(message: ReceivedMessage) -> None:
        mq.send("done", message.body)

    async def wrong(message: ReceivedMessage) -> None: ...

    mq.subscribe("orders", group="g", handler=handle).close()
    mq.subscribe("orders", group="g", handler=wrong)  # type: ignore[arg-type]
    mq.subscribe("orders", group="g", handlr=handle)  # type: ignore[call-arg]
