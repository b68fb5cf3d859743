"""Operations that ask several servers, step by step: pure generators of calls, which either runner drives.

An operation yields the requests of one step and gets an answer for each: a value, or why there is none. So one
broker that is frozen or dead costs its part of a result, not the result:

    def topics_everywhere(addresses: Sequence[str]) -> Operation[list[str]]:
        answers = yield from ask_all((address, topics_of_broker()) for address in addresses)
        return sorted({topic for answer in answers for topic in answer.value or ()})

`Session.run` drives it on the event loop, `BlockingConnections.run` without one.
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from roquette.client.calls import Call
from roquette.errors import ClientError, ConnectError, RequestTimeout
from roquette.wire.codes import RequestCode

T = TypeVar("T")

ANY_NAME_SERVER: Final = ""
"""The address of whichever name server answers."""

HANDED_ON: Final = frozenset((int(RequestCode.GET_CONSUMER_RUNNING_INFO),))
"""Requests that a broker lets a client answer."""

AHEAD: Final = 64
"""Requests of one operation that a runner has in flight at one server."""


AT_ONCE: Final = 8_192
"""Requests of one step, at all servers: each is a task and an answer in memory."""


class Ask(NamedTuple):
    """One request of a step. A server that did not answer is not asked again by the same operation."""

    address: str
    call: Call[Any]

    def is_silence(self, error: ClientError | None) -> bool:
        """Return True when the server itself did not answer, not a client that it handed the request on to."""
        if isinstance(error, RequestTimeout):
            return self.call.code not in HANDED_ON
        return isinstance(error, ConnectError)


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """Answer of one server; `error` is why there is none."""

    address: str
    value: T | None = None
    error: ClientError | None = None

    def get(self) -> T:
        """The value; raises `error`."""
        if self.error is not None:
            raise self.error
        return cast(T, self.value)

    @property
    def reason(self) -> str:
        """`error` in one line, "" when there is none."""
        return "" if self.error is None else " ".join(str(self.error).split())


Operation = Generator[list[Ask], list[Answer[Any]], T]


def ask_all(asks: Iterable[tuple[str, Call[T]]]) -> Operation[list[Answer[T]]]:
    """Requests of one kind, side by side, `AT_ONCE` in a step; the answers are in their order."""
    wanted = [Ask(address, call) for address, call in asks]
    answers: list[Answer[T]] = []
    for start in range(0, len(wanted), AT_ONCE):
        answers += yield wanted[start : start + AT_ONCE]
    return answers


def together(operations: Iterable[Operation[T]]) -> Operation[list[Answer[T]]]:
    """Operations side by side, in their order: a step asks what all of them ask next. One that fails costs its own result."""
    going = dict(enumerate(operations))
    found: dict[int, Answer[T]] = {}
    told: dict[int, Any] = dict.fromkeys(going)  # None begins a generator
    while True:
        asks: dict[int, list[Ask]] = {}
        for number, answers in told.items():
            try:
                asks[number] = going[number].send(answers)
            except StopIteration as end:
                found[number] = Answer("", end.value)
            except ClientError as error:
                found[number] = Answer("", error=error)
        if not asks:
            return [found[number] for number in going]
        rest = iter((yield [each for wanted in asks.values() for each in wanted]))
        told = {number: list(islice(rest, len(wanted))) for number, wanted in asks.items()}


def ask(address: str, call: Call[T]) -> Operation[T]:
    """One request; raises ClientError when it fails."""
    (answer,) = yield from ask_all([(address, call)])
    return answer.get()
