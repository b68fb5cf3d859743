"""Write packages/roquette/src/roquette/client/blocking_client.py and blocking_twins.py, and admin/blocking_admin.py: the calls of the asynchronous client
and of `roquette.Admin`, with their signatures, without await.

    .venv/bin/python tools/make_sync.py

Run it after changing a public method of `roquette.client.client.Client`, of what it gives, or of `Admin`;
tests/client/test_make_sync.py fails until it was. A method is copied by its kind: a coroutine function is called and waited
for, a plain one runs on the client's loop. What needs more than that stands in `SPECIAL`.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import workspace

ROOT = Path(__file__).parent.parent
CLIENT = workspace.PRODUCT / "client"
ADMIN = workspace.PRODUCT / "admin"

CALLS = (
    ("client", "SendCalls"),
    ("client", "TransactionCalls"),
    ("client", "RequestCalls"),
    ("client", "ConsumeCalls"),
    ("client", "PopCalls"),
    ("client", "LookCalls"),
)
TWINS = (
    ("consumer", "Consumer", ("close", "pause", "resume", "queues")),
    ("consumer", "MessageStream", ("close", "commit")),
    ("reader", "Reader", None),
    ("pop", "PoppedMessages", ("close",)),
    ("transactions", "Transaction", ("receipt", "message_id", "commit", "rollback")),
)
# How a call's words reach its twin, and what it returns, where that is not the same.
SPECIAL: dict[str, dict[str, str]] = {
    "send_nowait": {
        "template": "return self._submit(lambda: self._client.{call})",
        "returns": "concurrent.futures.Future[SendReceipt]",
    },
    "subscribe": {
        "template": "return Consumer(self, self._call(lambda: self._client.{call}._entered()))",
        "handler": "self._beside(handler)",
        "options": "self._options_beside(options)",
        "returns": "Consumer",
    },
    "serve": {
        "template": "return Consumer(self, self._call(lambda: self._client.{call}._entered()))",
        "handler": "self._beside(handler)",
        "returns": "Consumer",
    },
    "consume": {
        "template": "return MessageStream(self, self._run(lambda: self._client.{call}))",
        "options": "self._options_beside(options)",
        "returns": "MessageStream",
    },
    "reader": {
        "template": "return Reader(self, self._run(lambda: self._client.{call}))",
        "returns": "Reader",
    },
    "transaction": {
        "template": "return Transaction(self, self._run(lambda: self._client.{call}))",
        "returns": "Transaction",
    },
    "pop": {
        "template": "return PoppedMessages(self, self._run(lambda: self._client.{call}))",
        "returns": "PoppedMessages",
    },
    "on_check": {
        "template": "kept = self._keep_check(topic, check)\n        self._run(lambda: self._client.{call})",
        "check": "kept",
    },
}
TYPES = {
    "Handler": "BlockingHandler",
    "BatchHandler": "BlockingBatchHandler",
    "Check": "BlockingCheck",
    "Server": "BlockingServer",
}
WORDS = (("async with ", "with "), ("async for ", "for "), ("await ", ""))
HEAD = '''"""The client for programs without an event loop. Written by tools/make_sync.py: change the asynchronous client instead."""

import concurrent.futures
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, Unpack, overload

from roquette.client.consumer_options import V
from roquette.client import consumer, pop, reader, transactions
from roquette.client.arguments import Timeout, Topics
from roquette.client.blocking_base import (
    BlockingBase,
    BlockingCheck,
    BlockingBatchHandler,
    BlockingHandler,
    BlockingServer,
    Twin,
)
from roquette.client.consumer_options import (
    ConsumerOptions, PopOptions, ReaderOptions, ServeOptions, StartFrom, StrategyName, StreamOptions,
)
from roquette.client.producer import SendReceipt
from roquette.client.producer import KeyedOptions, OnewayOptions, SendOptions
from roquette.client.reader import Changed
from roquette.message.message import Message, MessageQueue, ReceivedMessage

'''
TWIN_NAMES = """from roquette.client.blocking_twins import (
    Consumer, MessageStream, PoppedMessages, Reader, Transaction,
)
"""
CLIENT_HEAD = '''
class Client(BlockingBase[V]):
    """`roquette.Client` without `await`: for any thread, also for its own handlers, which run in a pool of threads.

        with Client("127.0.0.1:9876") as mq:
            mq.send("orders", b"...")
            for message in mq.consume("orders", group="billing"):
                ...

    Arguments are those of the asynchronous client. A forked child must make a client of its own.
    """
'''
ADMIN_HEAD = '''"""`roquette.Admin` without `await`. Written by tools/make_sync.py: change admin/async_admin.py instead."""

from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, TypeVar

from roquette.admin import async_admin
from roquette.admin.catalogue import GroupRow
from roquette.admin.groups import LagRow
from roquette.admin.members import MemberRow
from roquette.admin.seek import SeekRow
from roquette.admin.topics import TopicDescription
from roquette.client.blocking_client import Client
from roquette.client.consumer_options import StartFrom

T = TypeVar("T")


class Admin:
    """`roquette.Admin` of a blocking client, without `await`."""

    def __init__(self, client: Client) -> None:
        self._owner = client

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._owner._call(work)

    @property
    def _twin(self) -> async_admin.Admin:
        return async_admin.Admin(self._owner._client)

'''
MORE = {
    "Transaction": """
    _settles = True

""",
    "Consumer": '''
    @property
    def group(self) -> str:
        """The group it is a member of."""
        return self._twin.group

''',
    "MessageStream": """
    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self._each(self._twin)

""",
    "PoppedMessages": """
    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self._each(self._twin)

""",
}


def class_of(module: str, name: str, folder: Path = CLIENT) -> ast.ClassDef:
    """The class as it is written."""
    tree = ast.parse((folder / f"{module}.py").read_text("utf-8"))
    return next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)


def public(node: ast.ClassDef) -> list[Any]:
    """Its public methods, in order."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [n for n in node.body if isinstance(n, kinds) and not n.name.startswith("_")]


def docstring(node: Any, indent: str) -> str:
    """Of a method: its first paragraph, without the words of asyncio; the asynchronous one says the rest."""
    text = (ast.get_docstring(node, clean=False) or "").partition("\n\n")[0]
    return f'{indent}"""{plain(text).rstrip()}"""\n'


def plain(text: str) -> str:
    """A text without the words of asyncio."""
    for word, other in WORDS:
        text = text.replace(word, other)
    return text


def method(node: Any, target: str) -> str:
    """A method of the twin."""
    special = SPECIAL.get(node.name, {}) if target == "self._client" else {}
    arguments = ast.unparse(node.args)
    for name, other in TYPES.items():
        arguments = re.sub(rf"\b{name}\b", other, arguments)
    returns = special.get("returns") or ast.unparse(node.returns)
    words = [special.get(a.arg, a.arg) for a in node.args.args[1:]]
    words += [f"*{node.args.vararg.arg}"] if node.args.vararg else []
    words += [f"{a.arg}={special.get(a.arg, a.arg)}" for a in node.args.kwonlyargs]
    if node.args.kwarg:
        words += [f"**{special.get(node.args.kwarg.arg, node.args.kwarg.arg)}"]
    call = f"{node.name}({', '.join(words)})"
    waits = isinstance(node, ast.AsyncFunctionDef)
    decorated = [ast.unparse(d) for d in node.decorator_list]
    lines = "".join(f"    @{d}\n" for d in decorated)
    if "overload" in decorated:
        return lines + f"    def {node.name}({arguments}) -> {returns}: ...\n\n"
    lines += f"    def {node.name}({arguments}) -> {returns}:\n" + docstring(node, "        ")
    if "template" in special:
        return lines + "        " + special["template"].format(call=call) + "\n\n"
    if decorated == ["property"]:
        return lines + f"        return self._run(lambda: {target}.{node.name})\n\n"
    how = "_call" if waits else "_run"
    if node.name == "close":
        how = "_close"
    value = "" if returns == "None" else "return "
    step = f"lambda: {target}.{call}" if words else f"{target}.{node.name}"
    return lines + f"        {value}self.{how}({step})\n\n"


def texts() -> dict[Path, str]:
    """The modules, formatted."""
    twins = HEAD.replace("The client", "Objects that the client hands out,", 1)
    for module, name, chosen in TWINS:
        node = class_of(module, name)
        about = plain((ast.get_docstring(node) or "").partition("\n")[0])
        twins += f'\nclass {name}(Twin[{module}.{name}]):\n    """{about}"""\n\n'
        methods = [m for m in public(node) if chosen is None or m.name in chosen]
        twins += "".join(method(m, "self._twin") for m in methods) + MORE.get(name, "")
        twins += "\n"
    calls = HEAD + TWIN_NAMES + CLIENT_HEAD + "\n"
    for module, name in CALLS:
        calls += "".join(method(m, "self._client") for m in public(class_of(module, name)))
    admin = ADMIN_HEAD
    for node in public(class_of("async_admin", "Admin", ADMIN)):
        admin += method(node, "self._twin")
    return {
        CLIENT / "blocking_twins.py": tidy(twins),
        CLIENT / "blocking_client.py": tidy(calls),
        ADMIN / "blocking_admin.py": tidy(admin),
    }


def tidy(found: str) -> str:
    """Without imports that are not used, and formatted."""
    ruff = str(Path(sys.executable).parent / "ruff")
    name = str(CLIENT / "blocking_client.py")
    for words in (["check", "--fix-only", "-q", "--select", "F401,I"], ["format", "-q"]):
        command = [ruff, *words, "--stdin-filename", name, "-"]
        found = subprocess.run(
            command, input=found, capture_output=True, text=True, check=True, cwd=ROOT
        ).stdout
    return found


if __name__ == "__main__":
    for path, text in texts().items():
        path.write_text(text, "utf-8")
