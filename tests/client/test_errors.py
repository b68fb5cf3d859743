"""Errors as applications meet them: all of them can be sent to another process, and are names of `roquette`."""

import ast
import asyncio
import contextlib
import copy
import inspect
import pickle
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.client.test_push_consumer import small

import roquette
from roquette import errors
from roquette.client.producer import Producer
from roquette.client.receipt import SendReceipt, all_stored
from roquette.errors import ClientError, ConfigError, MessageIllegal, RoquetteError
from roquette.message.message import MessageQueue
from roquette.wire.codes import RequestCode
from roquette.wire.command import Command
from roquette_testing.cluster import SimCluster, simulate

KINDS = sorted(
    (
        each
        for each in vars(errors).values()
        if inspect.isclass(each) and issubclass(each, RoquetteError)
    ),
    key=lambda kind: kind.__name__,
)
CLIENT = Path(inspect.getfile(Producer)).parent
INSIDE = {"NotStored"}  # Spark's sender's; `Refused` is of servers, also of those within a client


def example(kind: type[RoquetteError]) -> RoquetteError:
    """An error with a value of its own in each of its fields."""
    takes = inspect.signature(kind.__init__).parameters.values()
    values = {int: 17, bytes: b"ext", bool: True, str: "its own text"}
    words = {each.name: values[each.annotation] for each in takes if each.annotation in values}
    plain = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in takes)
    error = kind("its text") if plain else kind(**words)
    error.add_note("a note")
    for name, value in words.items():
        if hasattr(error, name):
            assert getattr(error, name) == value
    return error


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_is_pickled_and_copied_with_its_fields(kind: type[RoquetteError]) -> None:
    error = example(kind)
    for again in (
        pickle.loads(pickle.dumps(error)),  # noqa: S301 - our own
        copy.copy(error),
        copy.deepcopy(error),
    ):
        assert type(again) is kind
        assert (str(again), again.args) == (str(error), error.args)
        assert vars(again) == vars(error)


def test_the_outcomes_of_a_batch_are_pickled_with_its_error() -> None:
    receipt = SendReceipt(
        status="SEND_OK",
        message_id="id",
        offset_message_id="",
        queue=MessageQueue("t", "b", 0),
        queue_offset=3,
    )
    with pytest.raises(ClientError) as failed:
        all_stored([receipt, errors.NotSent(), errors.BrokerError(13, "no", address="a:1")])
    again = pickle.loads(pickle.dumps(failed.value))  # noqa: S301 - our own
    assert (again.code, again.address, again.receipts) == (13, "a:1", (receipt,))
    assert again.outcomes[2] is again
    assert isinstance(again.outcomes[1], errors.NotSent)
    assert again.__notes__ == failed.value.__notes__


def test_what_the_client_raises_is_exported() -> None:
    raised = {
        node.id
        for path in CLIENT.rglob("*.py")
        for statement in ast.walk(ast.parse(path.read_text()))
        if isinstance(statement, ast.Raise) and statement.exc is not None
        for node in ast.walk(statement.exc)
        if isinstance(node, ast.Name)
    }
    ours = {kind.__name__ for kind in KINDS} & raised - {"Refused"}
    assert ours >= {"ConfigError", "ClientClosed", "Unreachable"}
    assert ours - INSIDE <= set(roquette.__all__)
    for kind in KINDS:
        if issubclass(kind, ClientError):
            assert getattr(roquette, kind.__name__) is kind


def calls_with(code: int | None) -> set[int]:
    """Make each kind of call while answers to the requests `code` say "done" with bytes that mean nothing; what was asked."""
    asks: set[int] = set()

    async def main(cluster: SimCluster) -> None:
        await small(cluster)
        mq = await cluster.client("10.0.3.1", group="own")
        (queue, *_) = await mq.queues("orders")
        receipt = await mq.send("orders", b"x", key="k")
        reader = mq.reader(group="reader")
        real = mq.session.remoting.invoke

        async def odd(address: str, asked: int, *rest: Any, **settings: Any) -> Command:
            answer = await real(address, asked, *rest, **settings)
            asks.add(asked)
            if asked == code:
                answer.body, answer.ext = b"\x00\x00\x00\x08junk", b'{"junk":{}}'
            return answer

        async def transaction() -> None:
            async with mq.transaction("orders", b"x"):
                pass

        mq.session.remoting.invoke = odd  # type: ignore[method-assign,assignment]
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: mq.send("orders", b"x"),
            lambda: mq.send_batch("orders", [b"x", b"y"]),
            lambda: mq.send("new", b"x"),
            lambda: mq.request("orders", b"x", timeout=0.5),
            transaction,
            lambda: mq.find("orders", "k"),
            lambda: mq.message_at(receipt.offset_message_id),
            lambda: mq.queues("orders"),
            lambda: mq.max_offset(queue),
            lambda: mq.min_offset(queue),
            lambda: mq.offset_by_time(queue, 0),
            lambda: reader.committed(queue),
            lambda: reader.seek_to_end(queue),
            lambda: mq.subscribe("orders", group="g", handler=print),
        ]
        for call in calls:
            with contextlib.suppress(ClientError):
                async with asyncio.timeout(60):
                    await call()

    simulate(main)
    return asks


def test_what_a_call_raises_is_a_client_error_whatever_the_answer_is() -> None:
    asked = calls_with(None)
    assert asked >= {RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID} and len(asked) > 9
    for code in sorted(asked):
        calls_with(code)


def test_one_mistake_is_one_type() -> None:
    """Misuse is a ConfigError, of a message MessageIllegal; a value of another type may be a TypeError."""

    async def main(cluster: SimCluster) -> None:
        mq = await small(cluster)
        (queue, *_) = await mq.queues("orders")
        reader = mq.reader(group="reader")
        with pytest.raises(ConfigError):
            reader.seek(queue, -1)
        with pytest.raises(ConfigError):
            await mq.message_at("zz")
        for words in ({"properties": {"a": "x" * 40_000}}, {"key": "k" * 40_000}):
            for call in (mq.send, mq.send_nowait, mq.send_oneway):
                with pytest.raises(MessageIllegal, match="brokers take 32767"):
                    await call("orders", b"x", **words)

    simulate(main)
