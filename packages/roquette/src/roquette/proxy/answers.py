"""Answers of brokers, and how they find back to who asked, by a number."""

from collections.abc import Callable
from typing import NamedTuple


class BrokerAnswer(NamedTuple):
    """A broker's answer; `ext` is the JSON object of its ext fields, or empty."""

    code: int
    remark: str
    ext: bytes
    body: bytes


Then = Callable[[BrokerAnswer], None]


class Asks:
    """The requests of one connection; `answered` is what its `InnerWire` calls."""

    __slots__ = ("_next", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[int, Then] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, then: Then) -> int:
        """Wait for an answer; returns its number, the `opaque` of the request."""
        number = self._next
        self._next = (number + 1) & 0x7FFFFFFF
        self._waiting[number] = then
        return number

    def drop(self, number: int) -> bool:
        """Wait no more; False: it was answered."""
        return self._waiting.pop(number, None) is not None

    def answered(self, number: int, code: int, remark: str | None, ext: bytes, body: bytes) -> None:
        """An answer has come; one that nobody waits for is dropped."""
        then = self._waiting.pop(number, None)
        if then is not None:
            then(BrokerAnswer(code, remark or "", ext, body))
