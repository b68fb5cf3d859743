import ast
import asyncio
import enum
import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, is_typeddict

from tests.interop.peers import ROOT

import roquette
from roquette import Message, ReceivedMessage, sql
from roquette_testing.embedded import EmbeddedBroker

PAGE = (
    (ROOT / "docs" / "reference" / "client-features.md")
    .read_text("utf-8")
    .partition("\n## Every public name")[2]
)
ROW = re.compile(r"\| `(\w+)` \| (.*) \| `(?:(test_\w+\.py)::(test_\w+))` \|")


def set_in(cls: type[Any]) -> Iterator[str]:
    """What its methods set on `self`."""
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(cls)))):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ):
            yield node.attr


def attributes(cls: Any) -> set[str]:
    """The public ones of a class, but for those that a public class it stands on has."""
    if is_typeddict(cls):
        return set(cls.__annotations__)
    if issubclass(cls, enum.Enum):
        return set(cls.__members__)
    found: set[str] = set()
    for base in cls.__mro__:
        ours = base.__module__.startswith("roquette")
        if base is not cls and ours and base.__name__ in roquette.__all__:
            break
        if ours:
            found |= {*vars(base), *vars(base).get("__annotations__", ()), *set_in(base)}
    return {name for name in found if not name.startswith("_")}


def public() -> dict[str, set[str]]:
    things = {name: getattr(roquette, name) for name in roquette.__all__ if name[0] != "_"}
    return {
        name: attributes(thing) if inspect.isclass(thing) else set()
        for name, thing in things.items()
    }


def shown() -> dict[str, dict[str, tuple[str, str]]]:
    """Of each name of `roquette` its attributes, and by which test each is shown; "" is the name itself."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for line in PAGE.splitlines():
        if not line.startswith("| `"):
            continue
        row = ROW.fullmatch(line)
        assert row, line
        for word in re.findall(r"`(\w+)`", row[2]) or [""]:
            assert word not in found.setdefault(row[1], {}), line
            found[row[1]][word] = row[3], row[4]
    return found


@cache
def functions(file: str) -> dict[str, str]:
    """The test functions of a file, as text."""
    found: dict[str, str] = {}
    for path in (ROOT / "tests").rglob(file):
        text = path.read_text("utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                first = min(n.lineno for n in (node, *node.decorator_list))
                found[node.name] = "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    return found


def test_the_table_has_every_name_and_no_other() -> None:
    known, rows = public(), shown()
    assert rows.keys() == known.keys()
    for name, words in known.items():
        told = rows[name].keys()
        # one test may show all that a set of options, an enumeration or an error has
        assert told == {""} or told - {""} == words, name


def test_each_name_is_used_by_its_test() -> None:
    for name, words in shown().items():
        for word, (file, test) in words.items():
            text = functions(file).get(test)
            assert text is not None, f"{name}.{word}: {file} has no {test}"
            if not word:  # helpers of the file may say the name
                text = "".join(p.read_text("utf-8") for p in (ROOT / "tests").rglob(file))
            assert re.search(rf"\b{word or name}\b", text), f"{test} does not use {name}.{word}"


def test_what_few_programs_use() -> None:
    """Names that no other test says."""
    ends: list[tuple[int, bool]] = []

    class Both:
        def on_send(self, message: Message, group: str) -> None: ...

        def on_receive(self, message: ReceivedMessage, group: str) -> None: ...

        def on_batch(self, messages: Sequence[ReceivedMessage], group: str) -> Any:
            return lambda accepted, error: ends.append((len(messages), accepted))

    async def handle(messages: list[ReceivedMessage]) -> None:
        assert messages[0].delivery is not None and messages[0].decision is None
        messages[0].ack()
        assert messages[0].decision is not None
        done.set()

    async def scenario() -> None:
        async with EmbeddedBroker() as broker, broker.client(group="shop") as mq:
            at = datetime.now(UTC) + timedelta(hours=1)
            receipt = await mq.send("orders", b"later", deliver_at=at)
            assert receipt.recall_handle
            assert Message("t", b"", deliver_at=at).deliver_at_ms == int(at.timestamp() * 1000)
            async with mq.transaction("orders", b"0") as tx:
                assert tx.receipt.transaction_id
                await tx.commit()
            async with mq.transaction("orders", b"1") as tx:
                await tx.rollback()

            mq.intercept(Both())
            async with mq.subscribe("orders", handle, group="g", batch=8):
                await asyncio.wait_for(done.wait(), 30)
            assert ends == [(1, True)]

            stream = mq.consume("orders", group="loop", timeout=2)
            await stream.start()
            assert [message.body async for message in stream] == [b"0"]
            popped = mq.pop("orders", group="p", timeout=30)
            await (await anext(popped)).ack()
            assert not popped.closed and popped.expired == popped.unreadable == 0
            await popped.close()
            assert popped.closed

            reader = mq.reader(group="r")
            queues = await mq.queues("orders")
            await reader.assign(queues)
            assert reader.group == "r" and reader.offsets().keys() == set(queues)
            assert [await mq.min_offset(queue) for queue in queues] == [0] * len(queues)
            await reader.give_up(queues[:1])
            assert reader.offsets().keys() == set(queues[1:])

    assert sql("price > 3").expression == "price > 3"
    done = asyncio.Event()
    asyncio.run(scenario())
