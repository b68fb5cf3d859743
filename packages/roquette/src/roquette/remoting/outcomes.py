"""Outcomes that a processor may return: five, encoded in one place (the dispatcher).

`Refused` (an exception, in roquette.errors) is the sixth: an error response.
HOT: built once per request.
"""

from collections.abc import Coroutine
from typing import Any


class Reply:
    """Answer now. `ext` is a JSON object of ext fields, `body` bytes or pieces to be joined."""

    __slots__ = ("body", "code", "ext", "remark")

    def __init__(
        self,
        ext: bytes = b"",
        body: bytes | list[bytes] | None = None,
        code: int = 0,
        remark: str | None = None,
    ) -> None:
        self.ext: bytes = ext
        self.body: bytes | list[bytes] | None = body
        self.code: int = code
        self.remark: str | None = remark


class Later:
    """The reply is ready, but waits until the log is durable up to `end_offset`; `size`: bytes of its request's body."""

    __slots__ = ("end_offset", "reply", "size")

    def __init__(self, end_offset: int, reply: Reply) -> None:
        self.end_offset: int = end_offset
        self.reply: Reply = reply
        self.size: int = 0  # until the dispatcher has it


class Held:
    """Nothing to send yet: the processor has put `hold` into its table, and gets the request in `hold.job`, to be run
    again later. `hold.drop()` takes it out again when nobody wants the answer any more."""

    __slots__ = ("hold",)

    def __init__(self, hold: Any) -> None:
        self.hold: Any = hold


class Task:
    """The few requests that must call out: a coroutine which returns the Reply (or None: no answer)."""

    __slots__ = ("work",)

    def __init__(self, work: Coroutine[Any, Any, Reply | None]) -> None:
        self.work: Coroutine[Any, Any, Reply | None] = work


class Silent:
    """No answer at all."""

    __slots__ = ()


Outcome = Reply | Later | Held | Task | Silent
