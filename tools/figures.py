"""`make figures`: how large the house is, and how many steps an operation takes. Counted and printed; none of it is a limit.

usage: python tools/figures.py [--calls]
"""

import argparse
import ast
import asyncio
import collections
import io
import os
import sys
import threading
import tokenize
from pathlib import Path
from types import FrameType
from typing import Any, Final

import workspace

ROOT: Final = Path(__file__).resolve().parent.parent
TWIN: Final = "Written by tools/make_sync.py"
LAYOUT: Final = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}
ROUNDS: Final = 50


def written(source: Path) -> list[Path]:
    """Modules by hand: what protoc and tools/make_sync.py write is not counted."""
    return [
        path
        for path in sorted(source.rglob("*.py"))
        if not path.stem.endswith("_pb2") and TWIN not in path.read_text().partition("\n")[0]
    ]


def tokens(text: str) -> int:
    """Of the code, docstrings among them: as formatting cannot change them."""
    made = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(token.type not in LAYOUT for token in made)


def size(paths: list[Path]) -> str:
    texts = [path.read_text() for path in paths]
    lines = sum(text.count("\n") for text in texts)
    return f"{len(paths):6,} {lines:9,} {sum(map(tokens, texts)):9,}"


def pairs(paths: list[Path], source: Path) -> int:
    """Folders that import each other."""
    there = {
        path: path.relative_to(source).with_suffix("").as_posix().replace("/", ".")
        for path in paths
    }
    names = {name.removesuffix(".__init__"): path.parent for path, name in there.items()}
    found = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    target = names.get(f"{node.module}.{alias.name}", names.get(node.module or ""))
                    if (
                        target
                        and target != path.parent
                        and source not in (target.parent, path.parent.parent)
                    ):
                        found.add((path.parent, target))
    return sum((b, a) in found for a, b in found) // 2


class Counted:
    """Calls of our own functions, by the side that makes them."""

    def __init__(self) -> None:
        self.calls: collections.Counter[tuple[str, str, str]] = collections.Counter()
        self.on = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if (
            self.on
            and event == "call"
            and "/roquette/" in file
            and "/roquette_testing/" not in file
        ):
            broker = threading.current_thread().name == "roquette-broker"
            self.calls["broker" if broker else "client", file, frame.f_code.co_name] += 1

    def told(self, what: str, rounds: int) -> None:
        """A line: functions that ran in less than every second round are no part of the way."""
        self.on = False
        steady = {key: n / rounds for key, n in self.calls.items() if n >= rounds / 2}
        sides = [
            sum(n for key, n in steady.items() if key[0] == side) for side in ("client", "broker")
        ]
        modules = len({key[1] for key in steady})
        print(f"{what:12} {sides[0]:7.0f} {sides[1]:7.0f} {sum(sides):7.0f} {modules:8}")
        self.calls.clear()


async def count_calls(counted: Counted) -> None:
    import roquette
    from roquette.client import calls
    from roquette_testing import EmbeddedBroker

    with EmbeddedBroker(network="memory") as broker:
        async with broker.client() as mq:
            for _ in range(5):
                await mq.send("t", b"x")
            counted.on = True
            for _ in range(ROUNDS):
                await mq.send("t", b"x", key="k")
            counted.told("send", ROUNDS)
            queue = (await mq.queues("t"))[0]
            api, address = mq.session.api, mq.session.master_of(queue)
            await api.call(address, calls.pull("g", queue, 0, 1))
            counted.on = True
            for _ in range(ROUNDS):
                await api.call(address, calls.pull("g", queue, 0, 1))
            counted.told("pull", ROUNDS)
            counted.on = True
            for round_ in range(ROUNDS):
                await api.call(address, calls.commit("g", queue, round_ % 3))
            counted.told("commit", ROUNDS)
            first = roquette.StartFrom.FIRST
            async with mq.pop(
                "t", group="p", batch=1, invisible=60.0, start_from=first
            ) as messages:
                await (await anext(messages)).ack()
                counted.on = True
                for _ in range(ROUNDS - 10):
                    await (await anext(messages)).ack()
                counted.told("pop and ack", ROUNDS - 10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", action="store_true", help="only the calls of an operation")
    if not parser.parse_args().calls:
        print(f"{'':18} {'modules':>6} {'lines':>9} {'tokens':>9}  folders that import each other")
        everything: list[Path] = []
        for package, source in workspace.SOURCES.items():
            paths = written(source)
            everything += paths
            print(f"{package:18} {size(paths)}  {pairs(paths, source)}")
        print(f"{'all':18} {size(everything)}")
        documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        kept = sum(path.stat().st_size for path in documents if "reference" not in path.parts)
        whole = sum(path.stat().st_size for path in documents)
        print(
            f"documents          {kept // 1000} kB by hand, {whole // 1000} kB with docs/reference\n"
        )
    os.environ["ROQUETTE_INTERPRETED"] = "1"  # compiled functions are not seen
    counted = Counted()
    threading.setprofile(counted)
    sys.setprofile(counted)
    print(f"{'calls':12} {'client':>7} {'broker':>7} {'both':>7} {'modules':>8}")
    asyncio.run(count_calls(counted))


if __name__ == "__main__":
    main()
