"""What users write, for the type checker alone: mypy fails here when a right call is refused, or a wrong one passes."""

import asyncio
import concurrent.futures
from datetime import timedelta
from typing import assert_type

import roquette
from roquette import Message, MessageQueue, ReceivedMessage, SendReceipt


class Order:
    def body(self) -> bytes:
        return b""


async def asynchronous(mq: roquette.Client) -> None:
    receipt = await mq.send("orders", b"x", key="7", tag="new", deliver_at=timedelta(hours=3))
    assert_type(receipt, SendReceipt)
    assert_type(await mq.send_nowait(Message("orders", b"x")), asyncio.Future[SendReceipt])
    assert_type(await mq.send_batch("orders", [b"1", "2"]), list[SendReceipt])
    await mq.send("orders", b"x", kye="7")  # type: ignore[call-arg]
    await mq.send("orders", 7)  # type: ignore[arg-type]
    async with mq.transaction("orders", b"x") as tx:
        assert_type(tx.message_id, str)
    async with mq.pop("orders", group="g") as popped:
        async for message in popped:
            assert_type(message, ReceivedMessage)
            await message.ack()
    async with mq.consume("orders", group="g") as stream:
        async for message in stream:
            assert_type(message.body, bytes)
        await stream.commit()

    async def handle(message: ReceivedMessage) -> None:
        await mq.send("done", message.body)

    async def handle_many(messages: list[ReceivedMessage]) -> int:
        return len(messages)

    assert_type(await mq.subscribe("orders", handle, group="g"), roquette.Consumer)
    async with mq.subscribe("orders", handle_many, group="g", batch=8) as consumer:
        assert_type(consumer.queues, list[MessageQueue])
    mq.subscribe("orders", handle_many, group="g")  # type: ignore[arg-type]
    mq.subscribe("orders", handle, group="g", strategy="AVRG")  # type: ignore[call-overload]
    mq.subscribe("orders", handle, group="g", tgs="new")  # type: ignore[call-overload]
    mq.consume("orders", group="g", concurrency=3)  # type: ignore[call-arg]

    async def sum_up(message: ReceivedMessage) -> dict[str, int]:
        return {}

    def plain_answer(message: ReceivedMessage) -> bytes:
        return message.body

    mq.serve("sums", plain_answer, group="g")
    await mq.send("orders", b"x", priority=3)
    await mq.send("orders", b"x", priority="3")  # type: ignore[arg-type]
    await mq.request("orders", b"x", priority=3)  # type: ignore[call-arg]
    roquette.Client(linger=0.005)
    roquette.Client(linger="5ms")  # type: ignore[arg-type]
    roquette.Client(lingr=5)  # type: ignore[call-arg]
    json = roquette.Client(encode=roquette.to_json)
    await json.send("orders", {"number": 7})
    json.serve("sums", sum_up, group="g")
    mq.serve("sums", sum_up, group="g")  # type: ignore[arg-type]
    await mq.send_batch("orders", [{}])  # type: ignore[list-item]


async def of_orders(mq: "roquette.Client[Order]", other: "roquette.Client[str]") -> None:
    await mq.send("orders", Order())
    await mq.send("orders", b"x")
    await asynchronous(mq)  # takes bytes and str as any client does
    await mq.send("orders", 7)  # type: ignore[arg-type]
    await of_orders(roquette.Client(encode=Order.body), other)
    plain = roquette.Client()
    await of_orders(plain, other)  # type: ignore[arg-type]
    roquette.Client(encode=7)  # type: ignore[arg-type]


def blocking(mq: roquette.sync.Client, queue: MessageQueue) -> None:
    assert_type(mq.send("orders", b"x", key="7", tag="new"), SendReceipt)
    assert_type(mq.send_nowait("orders", b"x"), concurrent.futures.Future[SendReceipt])
    mq.send("orders", b"x", kye="7")  # type: ignore[call-arg]
    mq.send("orders", 7)  # type: ignore[arg-type]
    with roquette.sync.Client(encode=Order.body) as orders:
        orders.send("orders", Order())
        orders.send("orders", 7)  # type: ignore[arg-type]
    with mq.transaction("orders", b"x") as tx:
        assert_type(tx.message_id, str)
    with mq.pop("orders", group="g", timeout=5) as popped:
        for message in popped:
            assert_type(message, ReceivedMessage)
            message.ack()
    for message in mq.consume("orders", group="g"):
        assert_type(message.body, bytes)

    def handle(message: ReceivedMessage) -> None:
        mq.send("done", message.body)

    async def wrong(message: ReceivedMessage) -> None: ...

    mq.subscribe("orders", handle, group="g").close()
    mq.subscribe("orders", wrong, group="g")  # type: ignore[arg-type]
    mq.subscribe("orders", group="g", handlr=handle)  # type: ignore[call-overload]


app = roquette.App(group="g", drain=timedelta(seconds=5))
router = roquette.Router(group="h")
app.include(router)


@app.consumer("orders", tag="new", concurrency=3, publish="bills")
async def bill(order: dict[str, int], mq: roquette.Client) -> bytes | None:
    return b"x" if order else None


@router.consumer("orders", batch=10)
def pack(orders: list[str], mq: roquette.sync.Client) -> int:
    return len(orders)


assert_type(pack(["a"], roquette.sync.Client()), int)  # a decorated function stays what it is
app.consumer("orders", concurency=3)  # type: ignore[call-arg]
app.consumer("orders", orderly="yes")  # type: ignore[arg-type]
app.serve("orders", orderly=True)  # type: ignore[call-arg]
app.include(app.consumer)  # type: ignore[arg-type]
roquette.App(drane=3)  # type: ignore[call-arg]
