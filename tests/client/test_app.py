"""Applications in virtual time: typed values, what becomes of messages that are not handled, an orderly end."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest

from roquette import App, Client, ConfigError, ReceivedMessage, StartFrom
from roquette.client.app.values import CannotDecode, decoder_of
from roquette_testing.cluster import SimCluster, simulate

A, NAMESRV = "10.0.1.1", "10.0.0.1"


class Book(msgspec.Struct):
    title: str
    pages: int = 1


@dataclass
class Order:
    number: int
    books: list[Book]


class Note(TypedDict):
    text: str


async def until(condition: Callable[[], bool], limit_s: float = 600.0) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + limit_s
    while not condition():
        assert loop.time() < end, "waited in vain"
        await asyncio.sleep(0.02)


def scene(case: Callable[[Client, App], Awaitable[None]], app: App | None = None) -> None:
    """One broker, a client that made the topic, and an application without consumers."""

    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMESRV)
        await cluster.add_broker(A, "broker-a")
        mq = await cluster.client("10.0.2.1")
        await mq.send("orders", b"null")
        await case(mq, app or App())

    simulate(scenario, seed=1)


async def dead(mq: Client, group: str) -> list[bytes]:
    """Bodies of the group's dead letters."""
    found = []
    reader = mq.reader(group="undertaker")
    for queue in await mq.queues(f"%DLQ%{group}"):
        end = await mq.max_offset(queue)
        reader.seek(queue, 0)
        while reader.position(queue) < end:
            found += [message.body for message in await reader.poll(timeout=1.0)]
    return found


def test_a_handler_gets_values_the_message_the_client_and_things_by_name() -> None:
    seen: list[Any] = []
    life: list[str] = []

    @asynccontextmanager
    async def lifespan(mq: Client) -> AsyncIterator[dict[str, object]]:
        life.append("begins")
        yield {"db": "a database", "unused": 1}
        life.append(f"ends after {len(seen)}")

    async def case(mq: Client, app: App) -> None:
        @app.consumer("orders", group="g", tag="order", start_from=StartFrom.FIRST)
        async def handle(
            order: Order, message: ReceivedMessage, client: Client, *, db: str, more: int = 3
        ) -> None:
            assert client is mq
            assert message.tag == "order"
            await asyncio.sleep(0.5)
            seen.append((order, db, more))

        async with app.serving(mq):
            await mq.send("orders", b'{"number": 7, "books": [{"title": "x"}]}', tag="order")
            await asyncio.sleep(0.2)
        assert app.unfinished == 0

    scene(case, App(lifespan=lifespan))

    assert seen == [(Order(7, [Book("x")]), "a database", 3)]
    assert life == ["begins", "ends after 1"]


def test_what_is_no_value_goes_to_the_dead_letters_at_once_or_is_dropped_or_tried_again() -> None:
    seen: list[str] = []

    async def case(mq: Client, app: App) -> None:
        @app.consumer("orders", group="dead", tag="x")
        async def dead_letters(note: Note) -> None:
            seen.append("dead:" + note["text"])

        @app.consumer("orders", group="drop", tag="x", undecodable="drop")
        async def drops(note: Note) -> None:
            seen.append("drop:" + note["text"])

        def picky(body: bytes) -> str:
            seen.append("again")
            raise LookupError("an error that only this decoder knows")

        @app.consumer("orders", group="again", tag="x", undecodable="retry", decode=picky)
        async def again(note: str) -> None:
            raise AssertionError

        async with app.serving(mq):
            await mq.send("orders", b"{", tag="x")
            await mq.send("orders", b'{"text": "good"}', tag="x")
            await until(lambda: seen.count("again") >= 4)
            assert await dead(mq, "dead") == [b"{"]

    scene(case)

    assert {each for each in seen if each != "again"} == {"dead:good", "drop:good"}


@pytest.mark.parametrize("orderly", [False, True])
def test_errors_that_no_retry_cures_end_a_message(orderly: bool) -> None:
    seen: list[bytes] = []

    async def case(mq: Client, app: App) -> None:
        @app.consumer(
            "orders",
            group="g",
            tag="x",
            orderly=orderly,
            dead_letter_on=(KeyError,),
            drop_on=(ZeroDivisionError,),
        )
        def handle(body: bytes) -> bool | None:
            seen.append(body)
            if body == b"key":
                raise KeyError(body)
            if body == b"zero":
                raise ZeroDivisionError
            return body != b"false" or seen.count(body) > 1

        async with app.serving(mq):
            for body in (b"key", b"zero", b"false", b"good"):
                await mq.send("orders", body, tag="x", shard_key="one")
            await until(lambda: seen.count(b"false") == 2 and b"good" in seen)
            await asyncio.sleep(20)
            assert await dead(mq, "g") == [b"key"]

    scene(case)

    assert sorted(seen) == sorted([b"key", b"zero", b"false", b"false", b"good"])


def test_the_end_waits_for_handlers_so_long_and_what_was_ended_comes_again() -> None:
    seen: list[str] = []

    def member(seconds: float) -> App:
        app = App(drain=5)

        @app.consumer("orders", group="g", tag="x")
        async def handle(name: str) -> None:
            seen.append(f"begins {name}")
            await asyncio.sleep(seconds if name == "slow" else 2)
            seen.append(f"ends {name}")

        return app

    async def case(mq: Client, _: App) -> None:
        loop = asyncio.get_running_loop()
        app = member(1000)
        async with app.serving(mq):
            await mq.send("orders", "slow", tag="x")
            await mq.send("orders", "quick", tag="x")
            await until(lambda: len(seen) == 2)
            told = loop.time()
        assert 5 <= loop.time() - told <= 7
        assert app.unfinished == 1
        assert sorted(seen) == ["begins quick", "begins slow", "ends quick"]
        seen.clear()
        async with member(1).serving(mq):
            await until(lambda: "ends slow" in seen)

    scene(case)

    assert seen == ["begins slow", "ends slow"]


def test_wrong_applications_are_told_at_once() -> None:
    app = App()
    consumer = app.consumer("t", group="g")

    async def two(first: str, second: dict[str, int]) -> None: ...
    async def many(*values: str) -> None: ...
    async def no_type(message: ReceivedMessage, value) -> None: ...  # type: ignore[no-untyped-def]
    async def foreign(value: "Elsewhere") -> None: ...  # type: ignore[name-defined] # noqa: F821
    async def no_json(value: asyncio.Queue[int]) -> None: ...

    for function, words in (
        (two, "asks for two values"),
        (many, r"\*values"),
        (no_type, "value of handler .* has no type"),
        (foreign, "unknown where it is defined"),
        (no_json, "give decode="),
    ):
        with pytest.raises(ConfigError, match=words):
            consumer(function)
    with pytest.raises(ConfigError, match="undecodable"):
        app.consumer("t", group="g", undecodable="burn")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="kye"):
        app.consumer("t", group="g", kye=1)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="no consumer"):
        app.run()
    with pytest.raises(ConfigError, match="drain"):
        App(drain=-1)


def test_things_the_lifespan_does_not_give_are_told_and_what_had_joined_leaves() -> None:
    async def case(mq: Client, app: App) -> None:
        @app.consumer("orders", group="g")
        async def first(message: ReceivedMessage) -> None: ...

        @app.consumer("orders", group="h")
        async def second(message: ReceivedMessage, *, db: str) -> None: ...

        for _ in range(2):  # the first one has left: else the client already has a consumer of it
            with pytest.raises(ConfigError, match="asks for db"):
                async with app.serving(mq):
                    pass

    scene(case)


def test_pydantic_makes_its_models_alone_and_within_others() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Line(pydantic.BaseModel):  # type: ignore[name-defined, misc]
        amount: int

    assert decoder_of(Line, "x")(b'{"amount": "3"}') == Line(amount=3)
    assert decoder_of(list[Line], "x")(b'[{"amount": 4}]') == [Line(amount=4)]
    with pytest.raises(ValueError, match="amount"):
        decoder_of(list[Line], "x")(b'[{"amount": "y"}]')


def test_without_pydantic_everything_else_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)

    assert decoder_of(Order, "x")(b'{"number": 1, "books": []}') == Order(1, [])
    assert decoder_of(dict, "x")(b'{"a": 1}') == {"a": 1}
    assert decoder_of(int | None, "x")(b"null") is None
    assert decoder_of(str, "x")("ü".encode()) == "ü"
    assert issubclass(CannotDecode, Exception)
