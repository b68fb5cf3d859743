"""What functions of an application may be: of one group, in batches, servers, checks, of several modules; what they get and give."""

import asyncio
import contextlib
import importlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pytest
from tests.client.test_app import dead, until

from roquette import App, Client, ConfigError, Message, ReceivedMessage, Router
from roquette.client.app.values import decoder_of
from roquette_testing.cluster import SimCluster, simulate

A, NAMESRV = "10.0.1.1", "10.0.0.1"


@dataclass
class Order:
    number: int


@dataclass
class Stock:
    left: int


def scene(case: Callable[[Client], Awaitable[None]], group: str = "shop") -> None:
    """One broker, a client of a group, and topics that are there."""

    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMESRV)
        await cluster.add_broker(A, "broker-a")
        mq = await cluster.client("10.0.2.1", group=group)
        for topic in ("orders", "stock", "bills"):
            await mq.send(topic, b"null", tag="begin")
        await case(mq)

    simulate(scenario, seed=1)


def test_functions_of_one_group_are_one_member_and_each_gets_its_own() -> None:
    seen: list[tuple[str, object]] = []
    app = App(group="g")

    @app.consumer("orders", tag="new || paid", undecodable="drop")
    async def new(order: Order) -> None:
        seen.append(("new", order.number))

    @app.consumer("orders", tag="gone")
    async def gone(order: Order) -> bool:
        seen.append(("gone", order.number))
        return seen.count(("gone", order.number)) > 1  # a retry finds its function again

    @app.consumer("stock", undecodable="drop")
    async def stock(stock: Stock) -> None:
        seen.append(("stock", stock.left))

    async def case(mq: Client) -> None:
        async with app.serving(mq):
            assert len(mq._consumers) == 1
            for number, tag in enumerate(("new", "paid", "gone", "other")):
                await mq.send("orders", b'{"number": %d}' % number, tag=tag)
            await mq.send("stock", b'{"left": 7}')
            await until(lambda: len(seen) == 5)
            await asyncio.sleep(5)

    scene(case)

    want = [("gone", 2), ("gone", 2), ("new", 0), ("new", 1), ("stock", 7)]
    assert sorted(seen, key=str) == want


def test_a_batch_is_a_list_of_values_and_what_is_none_leaves_alone() -> None:
    seen: list[list[int]] = []
    app = App(group="g")

    @app.consumer("orders", batch=10, tag="x", concurrency=1)
    async def many(orders: list[Order], messages: list[ReceivedMessage]) -> int | None:
        assert [m.body for m in messages] == [b'{"number": %d}' % o.number for o in orders]
        seen.append([order.number for order in orders])
        return 1 if len(orders) > 1 else None

    async def case(mq: Client) -> None:
        for body in ("{", '{"number": 1}', '{"number": 2}', "[]", '{"number": 3}'):
            await mq.send("orders", body, tag="x", shard_key="one")
        async with app.serving(mq):
            await until(lambda: {number for each in seen[1:] for number in each} == {2, 3})
            await until(lambda: sum(map(len, seen)) >= 5)
            await asyncio.sleep(60)
            assert await dead(mq, "g") == [b"{", b"[]"]

    scene(case)

    assert seen[0] == [1, 2, 3]  # the first is done, the others come again
    assert sorted(number for each in seen[1:] for number in each if each) in ([2, 3], [2, 3, 3])


def test_a_batch_that_raises_comes_again_but_for_what_was_said_of_a_message() -> None:
    seen: list[list[str]] = []
    app = App(group="g")

    @app.consumer("orders", batch=10, tag="x", drop_on=(KeyError,))
    def many(texts: list[str], messages: list[ReceivedMessage]) -> None:
        seen.append(texts)
        if len(texts) == 3:
            messages[0].ack()
            raise ValueError
        raise KeyError

    async def case(mq: Client) -> None:
        for body in ("a", "b", "c"):
            await mq.send("orders", body, tag="x", shard_key="one")
        async with app.serving(mq):
            await until(lambda: sum(map(len, seen)) == 5)
            await asyncio.sleep(60)

    scene(case)

    assert seen[0] == ["a", "b", "c"]
    assert sorted(text for each in seen[1:] for text in each) == ["b", "c"]


def test_what_a_function_returns_is_published_before_its_message_is_done() -> None:
    bills: list[tuple[str, tuple[str, ...]]] = []
    app = App(group="g")
    tries: list[int] = []

    @app.consumer("orders", tag="x", publish="bills")
    async def bill(order: Order) -> object:
        tries.append(order.number)
        if order.number == 0:
            return None
        if order.number == 1:
            return Message("bills", b"whole", keys=("k1",))
        if order.number == 2:
            return {"bill": 2}
        if tries.count(3) == 1:
            return True  # is no value: it comes again
        return "three"

    @app.consumer("bills", group="bills", tag="*", undecodable="drop")
    async def billed(message: ReceivedMessage) -> None:
        if message.tag != "begin":
            bills.append((message.body.decode(), message.keys))

    async def case(mq: Client) -> None:
        async with app.serving(mq):
            for number in range(4):
                await mq.send("orders", b'{"number": %d}' % number, tag="x")
            await until(lambda: len(bills) == 3)
            await asyncio.sleep(20)

    scene(case)

    assert sorted(bills) == [("three", ()), ("whole", ("k1",)), ('{"bill":2}', ())]
    assert sorted(tries) == [0, 1, 2, 3, 3]


def test_a_send_that_fails_lets_the_message_come_again() -> None:
    tries: list[str] = []
    app = App(group="g")

    @app.consumer("orders", tag="x", publish="bills")
    async def bill(text: str) -> Message | str:
        tries.append(text)
        return Message("%illegal%", b"") if len(tries) == 1 else text

    async def case(mq: Client) -> None:
        async with app.serving(mq):
            await mq.send("orders", "one", tag="x")
            await until(lambda: len(tries) == 2)
            queues = await mq.queues("bills")
            before = 1
            await asyncio.sleep(2)
            assert sum([await mq.max_offset(queue) for queue in queues]) == before + 1

    scene(case)


def test_a_server_replies_what_it_returns() -> None:
    app = App(group="stock")

    @app.serve("stock")
    async def answer(order: Order, *, shelf: dict[int, int]) -> Stock | None:
        return Stock(shelf[order.number]) if order.number in shelf else None

    @asynccontextmanager
    async def lifespan(mq: Client) -> AsyncIterator[dict[str, object]]:
        yield {"shelf": {7: 3}}

    app._lifespan = lifespan

    async def case(mq: Client) -> None:
        async with app.serving(mq):
            reply = await mq.request("stock", b'{"number": 7}', timeout=5)
            assert json.loads(reply.body) == {"left": 3}
            with pytest.raises(Exception, match="no reply"):
                await mq.request("stock", b'{"number": 8}', timeout=1)

    scene(case)


def test_transactions_begin_in_handlers_and_checks_have_what_handlers_have() -> None:
    saved: dict[str, bool] = {}
    asked: list[int] = []
    billed: list[str] = []
    app = App(group="shop")

    @app.consumer("orders", tag="x")
    async def take(order: Order, mq: Client) -> None:
        with contextlib.suppress(TimeoutError):
            async with (
                asyncio.timeout(0.5),
                mq.transaction("bills", b'{"number": %d}' % order.number, tag="x") as tx,
            ):
                saved[tx.message_id] = True
                await asyncio.sleep(order.number)  # of 1 neither end is said

    @app.check("bills")
    async def was_saved(
        order: Order, message: ReceivedMessage, *, answers: dict[str, bool]
    ) -> bool:
        asked.append(order.number)
        return answers.get(message.message_id, False)

    @app.consumer("bills", group="bills", tag="x")
    async def bill(text: str) -> None:
        billed.append(text)

    @asynccontextmanager
    async def lifespan(mq: Client) -> AsyncIterator[dict[str, object]]:
        yield {"answers": saved}

    app._lifespan = lifespan

    async def case(mq: Client) -> None:
        async with app.serving(mq):
            await mq.send("orders", b'{"number": 0}', tag="x")
            await mq.send("orders", b'{"number": 1}', tag="x")
            await until(lambda: len(set(billed)) == 2, 300)

    scene(case)

    assert set(asked) == {1}


def test_a_plain_function_gets_the_blocking_client_and_may_call_it() -> None:
    sync = importlib.import_module("roquette.sync")
    app = App(group="g")

    def handle(text: str, mq: Any, *, more: int = 3) -> None: ...

    handle.__annotations__["mq"] = Client
    with pytest.raises(
        ConfigError, match=r"no coroutine function: its mq is a roquette\.sync\.Client"
    ):
        app.consumer("orders")(handle)
    handle.__annotations__["mq"] = sync.Client
    app.consumer("orders")(handle)

    async def waits(mq: Any) -> None: ...

    waits.__annotations__["mq"] = sync.Client
    with pytest.raises(ConfigError, match=r"a coroutine function: its mq is a roquette\.Client"):
        app.consumer("stock", group="h")(waits)


def test_things_of_the_lifespan_come_by_name_or_by_type() -> None:
    seen: list[object] = []

    class Shop:
        name = "corner"

    @asynccontextmanager
    async def lifespan(mq: Client) -> AsyncIterator[Shop]:
        yield Shop()

    app = App(group="g", lifespan=lifespan)

    @app.consumer("orders", tag="x")
    async def handle(text: str, *, shop: Shop, mq: Client, message: ReceivedMessage) -> None:
        seen.append((text, shop.name, type(mq), message.body))

    async def case(mq: Client) -> None:
        async with app.serving(mq):
            await mq.send("orders", "one", tag="x")
            await until(lambda: bool(seen))

    scene(case)

    assert seen == [("one", "corner", Client, b"one")]


def test_an_application_of_several_modules() -> None:
    seen: list[str] = []
    billing, stock = Router(group="billing"), Router(group="stock")

    @billing.consumer("orders", tag="x")
    async def bill(text: str) -> None:
        seen.append("bill " + text)

    @stock.consumer("orders", tag="x")
    async def take(text: str) -> None:
        seen.append("take " + text)

    app = App()
    app.include(billing)
    app.include(stock)
    with pytest.raises(ConfigError, match="would get the same messages of orders"):
        app.include(stock)

    async def case(mq: Client) -> None:
        async with app.serving(mq):
            await mq.send("orders", "one", tag="x")
            await until(lambda: len(seen) == 2)

    scene(case)

    assert sorted(seen) == ["bill one", "take one"]


def test_functions_that_do_not_go_together_are_told() -> None:
    app = App(group="g")

    def of(*kinds: object) -> Callable[..., Awaitable[None]]:
        async def handle(first: object) -> None: ...

        handle.__annotations__["first"] = kinds[0]
        return handle

    app.consumer("orders", tag="a")(of(str))
    for words, add in (
        ("would get the same", app.consumer("orders", tag="b || a")),
        ("would get the same", app.consumer("orders")),
        ("one set of options", app.consumer("stock", concurrency=3)),
        ("batches has its group for itself", app.consumer("stock", batch=3)),
        ("serves or takes batches", app.serve("stock")),
    ):
        with pytest.raises(ConfigError, match=words):
            add(of(list[str]))
    with pytest.raises(ConfigError, match="its first is a list, such as"):
        app.consumer("stock", group="h", batch=2)(of(str))
    with pytest.raises(ConfigError, match="without publish="):
        app.consumer("stock", group="h", batch=2, publish="bills")
    with pytest.raises(ConfigError, match="publish: "):
        app.consumer("stock", group="h", publish="no topic")
    with pytest.raises(ConfigError, match="no group is said"):
        Router().consumer("orders")
    with pytest.raises(TypeError, match="orderly"):
        app.serve("stock", group="h", orderly=True)  # type: ignore[call-arg]
    app.check("bills")(of(str))
    with pytest.raises(ConfigError, match="a check of bills already"):
        app.check("bills")(of(str))


def test_annotated_values_are_checked() -> None:
    pydantic = pytest.importorskip("pydantic")
    few = Annotated[int, msgspec.Meta(le=3)]
    assert decoder_of(few, "x")(b"3") == 3
    with pytest.raises(msgspec.ValidationError):
        decoder_of(few, "x")(b"4")

    class Line(pydantic.BaseModel):  # type: ignore[name-defined, misc]
        amount: int

    said = Annotated[Line, pydantic.AfterValidator(lambda line: Line(amount=line.amount + 1))]
    assert decoder_of(said, "x")(b'{"amount": 1}') == Line(amount=2)
    with pytest.raises(ValueError, match="less than"):
        decoder_of(Annotated[int, pydantic.Field(lt=3)], "x")(b"4")
