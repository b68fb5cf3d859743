"""Faults of an embedded broker."""

import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from roquette import sync
from roquette.message.message import Message, ReceivedMessage
from roquette.message.properties import SYSTEM, UNIQ_KEY
from roquette_testing.faulty_port import Action, Fault, FaultyPort, Side, codes_of


class Victim(Protocol):
    """Embedded broker, as far as faults need it."""

    port: FaultyPort

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the broker's loop and wait for its value."""

    def run(self, step: Callable[[], Any]) -> Any:
        """Run a plain function on the broker's loop and wait for its value."""

    def post(self, step: Callable[[], object]) -> None:
        """Run a plain function on the broker's loop soon."""

    async def start_broker(self) -> None:
        """Begin, unless it runs."""

    async def stop_broker(self) -> None:
        """End in order."""

    async def kill_broker(self) -> None:
        """End as by SIGKILL."""

    def drop_connections(self) -> None:
        """Break all."""

    def sync_client(self) -> sync.Client:
        """A client."""
        ...


class EmbeddedFaults:
    """Faults that can happen to an embedded broker.

    `drop`, `delay`, `repeat` and `reorder` happen at the broker's port to the next `count` requests, or answers, of a
    kind: `of` is "send", "receive", "acknowledge", "end transaction", a request code, or None for any request, heartbeats
    among them. They return a `Fault`, whose `left` says how many are still to come. `heal` ends them.
    """

    def __init__(self, broker: Victim) -> None:
        self._broker = broker

    # the process

    def kill(self) -> None:
        """The broker ends as by SIGKILL: connections are cut, nothing more is answered, written or saved.

        What it had written stays, as the system keeps it for a killed process. Its name server stays, and `restart`
        brings the broker back, which then recovers its store.
        """
        self._broker.call(self._broker.kill_broker())

    def stop(self) -> None:
        """The broker ends in order, as after a SIGTERM of its process; its name server stays. `restart` brings it back."""
        self._broker.call(self._broker.stop_broker())

    def restart(self) -> None:
        """The broker again, with its messages, on the same port."""
        self._broker.call(self._broker.start_broker())

    def freeze(self, seconds: float) -> None:
        """Nothing is answered for so long, of real time (at most 60 s), as after a SIGSTOP; returns at once."""
        if not 0 <= seconds <= 60:
            raise ValueError(f"{seconds} s is not 0 to 60 s")
        self._broker.post(lambda: threading.Event().wait(seconds))

    # the network

    def disconnect(self) -> None:
        """Break every connection; clients come back by themselves."""
        self._broker.run(self._broker.drop_connections)

    def partition(self, *, requests: bool = True, answers: bool = True) -> None:
        """No request reaches the broker, and no answer its clients, until `heal`: then all that waited passes.

        Connections stay, and new ones are made; the name server can be reached.
        """
        wanted: dict[Side, bool] = {"requests": requests, "answers": answers}
        sides = frozenset(side for side, is_cut in wanted.items() if is_cut)
        self._broker.run(lambda: self._broker.port.partition(sides))

    def heal(self) -> None:
        """No partition any more, and none of `drop`, `delay`, `repeat` and `reorder`."""
        self._broker.run(self._broker.port.heal)

    def drop(self, side: Side, *, of: str | int | None = None, count: int = 1) -> Fault:
        """Lose the next requests ("requests") or their answers ("answers")."""
        return self._add("drop", side, of, count)

    def delay(
        self, side: Side, seconds: float, *, of: str | int | None = None, count: int = 1
    ) -> Fault:
        """Let the next ones come so much later, by the broker's clock; others overtake them."""
        return self._add("delay", side, of, count, seconds)

    def repeat(self, side: Side, *, of: str | int | None = None, count: int = 1) -> Fault:
        """Let each of the next ones come twice."""
        return self._add("repeat", side, of, count)

    def reorder(
        self, side: Side, *, of: str | int | None = None, count: int = 2, seconds: float = 1.0
    ) -> Fault:
        """Keep the next ones until there are `count`, or `seconds` have passed; then the last comes first."""
        return self._add("reorder", side, of, count, seconds)

    def _add(
        self, action: Action, side: Side, of: str | int | None, count: int, seconds: float = 0.0
    ) -> Fault:
        if side not in ("requests", "answers"):
            raise ValueError(f"{side!r} is neither 'requests' nor 'answers'")
        if count < 1 or seconds < 0:
            raise ValueError(f"count={count}, seconds={seconds}: at least 1, and no negative time")
        fault = Fault(action, side, codes_of(of), count, seconds)
        self._broker.run(lambda: self._broker.port.faults.append(fault))
        return fault

    # messages

    def duplicate(self, message: ReceivedMessage) -> None:
        """Store a message again in its queue, under its own id: as a sender does whose answer was lost."""
        again = Message(
            message.topic,
            message.body,
            tag=message.tag,
            keys=message.keys,
            properties={
                name: text
                for name, text in message.properties.items()
                if name not in SYSTEM or name == UNIQ_KEY
            },
            shard_key=message.shard_key,
        )
        with self._broker.sync_client() as mq:
            mq.send(again, queue=message.queue)
