"""A feature: one thing a broker does, with all that belongs to it. A broker is its core and a list of them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from roquette.base.clock import Clock
from roquette.base.executor import join_slices
from roquette.base.lifecycle import Health, Interval, Tasks
from roquette.base.metric_families import MetricTable
from roquette.errors import Refused, RefusedForNow, RemoteProtocolError
from roquette.remoting.dispatcher import Dispatcher
from roquette.remoting.door import PortProtocols
from roquette.remoting.http_pages import HttpPages
from roquette.remoting.request import Outcome, Peer, Reply, Row, Task
from roquette.store.format.results import Arrival
from roquette.wire.codes import ResponseCode, version_text
from roquette.wire.json_body import MAX_REQUEST, decode_request_body, encode_body, text_slices

ABOUT: Final = (
    "This is a RocketMQ broker: clients of the v5 SDKs (gRPC) have this address as their endpoint; clients of the "
    "remoting protocol have a name server's as namesrvAddr, and find the brokers there."
)
"""What a broker's ports say of themselves to who speaks HTTP to them."""


class Lane(IntEnum):
    """Classes of work, each with a bounded queue of its own (Apache: one thread pool each)."""

    SEND = 0
    PULL = 1
    LITE_PULL = 2
    CONSUMER_MANAGER = 3
    HEARTBEAT = 4
    CLIENT_MANAGER = 5
    QUERY = 6
    ADMIN = 7
    ACK = 8
    END_TRANSACTION = 9
    REPLY = 10
    LOAD_BALANCE = 11


class Beat(NamedTuple):
    """Work that comes again and again: a failure is logged, and the next beat comes nevertheless."""

    name: str
    seconds: Interval
    step: Callable[[], Awaitable[object] | None]


class Start(NamedTuple):
    """Findings of a start, for the features that load."""

    now_ms: int
    steady_ms: int
    last_record_offset: int  # physical offset of the log's last record, -1: the log is empty
    abnormal: bool  # the broker before did not stop in order
    damaged: bool  # parts of the log are gone


class Feature:
    """Base of the features: all that one may have; it overrides what it needs.

    A feature is made from the core, and from other features whose work it uses. The broker calls all features in the
    order of its list: `load` before requests are accepted, `start` after that, `drain` and `stop` when it stops,
    then `save_now`.
    """

    def rows(self) -> Iterable[Row]:
        """The requests it serves."""
        return ()

    def admit(self, row: Row) -> Row:
        """Return what is served in the place of a row of any feature: a replica refuses what only a master does."""
        return row

    def protocols(self, dispatcher: Dispatcher) -> PortProtocols | None:
        """Return what the broker's ports speak beside the remoting protocol; requests go to `dispatcher`."""
        return None

    def pages(self) -> HttpPages | None:
        """Return what the broker's ports answer over HTTP besides what they are."""
        return None

    def beats(self) -> Iterable[Beat]:
        """Return the work that it does again and again."""
        return ()

    def load(self, start: Start) -> None:
        """Read its files, find its state in the store.

        Raises:
            StoreError: there is something, and it cannot be read: the broker does not start.
        """

    async def prepare(self) -> None:
        """Do what takes long of that: beside the loop, after every feature has loaded."""

    async def start(self, tasks: Tasks) -> None:
        """Requests are accepted: begin what runs for ever."""

    def arrived(self, arrivals: list[Arrival]) -> None:
        """Messages have become visible: run again who waits for them. Never called without any."""

    def turn_written(self, log_end: int) -> bool:
        """The log is written up to `log_end`: write down what else the turn changed. False: its replies must not leave."""
        return True

    def connection_lost(self, peer: Peer) -> None:
        """A connection has ended."""

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: its tables and files are gone already."""

    def forget_group(self, group: str, clean_offset: bool) -> None:
        """A group was deleted, with its progress when `clean_offset`."""

    def runtime_info(self, now_ms: int) -> dict[str, str]:
        """Its lines of GET_BROKER_RUNTIME_INFO."""
        return {}

    def measures(self, now_ms: int) -> Iterable[MetricTable]:
        """Its metrics; of the labels those that are not the broker's own."""
        return ()

    def health(self) -> dict[str, str]:
        """Figures of trouble, for operators: shown with the run-time table."""
        return {}

    def unready(self) -> str:
        """Return why clients are not served now; "": they are."""
        return ""

    async def leave(self) -> None:
        """The broker is about to stop: leave others in order."""

    def drain(self) -> None:
        """The broker stops: answer all requests that wait."""

    async def stop(self) -> None:
        """Tasks have ended, connections are closed: finish what is under way."""

    def save_now(self) -> None:
        """Write its files, blocking: the log is on the disk already."""


def hooks(features: Iterable[Feature], name: str) -> list[Callable[..., object]]:
    """The bound methods of those features that override `name`: calls of the others would cost each turn."""
    default = getattr(Feature, name)
    return [getattr(one, name) for one in features if getattr(type(one), name) is not default]


# Questions to every request's body, and to the clients that requests are forwarded to.


T = TypeVar("T")

MAX_LISTED: Final = 1_000  # topics or groups created by one request
RESET_SINCE: Final = 28  # V3_0_7_SNAPSHOT: older clients know neither 220 nor 221


def check_count(count: int, what: str) -> None:
    """Raise Refused when one request asks for more than is done in one turn."""
    if count > MAX_LISTED:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"{count} {what} in one request, {MAX_LISTED} are allowed: send several",
        )


def decode_request(kind: type[T], body: bytes, most: int = MAX_REQUEST) -> T:
    """Read a request's JSON body; a body that is not one is refused, not fatal."""
    try:
        return decode_request_body(kind, body, most)
    except RemoteProtocolError as error:
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"the body is not a {kind.__name__}: {error}"
        ) from None


def check_resets(version: int) -> None:
    """Raise Refused for a client of a version that knows neither 220 nor 221."""
    if version < RESET_SINCE:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"the client does not support this feature. version={version_text(version)}",
        )


# Work of the broker step by step, between the turns of its clients: on its own log, and for large answers.


log = logging.getLogger("roquette.broker")

BEAT_S: Final = 0.1
REFUSED_S: Final = 10.0
STEP_S: Final = 0.005  # a step of a long answer
MANY: Final = 500  # rows of an answer: more are written beside the loop


async def paced(items: Iterable[T], at_once: int = 1_000) -> AsyncIterator[T]:
    """The items; after STEP_S, or so many of them, the others have a turn. Nobody else changes `items`."""
    time = asyncio.get_running_loop().time
    end = time() + STEP_S
    for number, item in enumerate(items, 1):
        yield item
        if number % at_once == 0 or time() >= end:
            await asyncio.sleep(0)
            end = time() + STEP_S


async def encode_rows(value: Any, rows: int, *, java_keys: bool = False) -> bytes:
    """`encode_body` of a value with so many rows, which does not change any more."""
    if rows <= MANY:
        return encode_body(value, java_keys=java_keys)
    return await join_slices(text_slices(value, java_keys=java_keys, indent=None))


async def reply_of(outcome: Outcome) -> Reply | None:
    """Return the answer of an outcome that is a reply or a task."""
    if isinstance(outcome, Task):
        return await outcome.work
    assert isinstance(outcome, Reply)
    return outcome


async def run_steps(
    step: Callable[[int, int], bool],
    clock: Clock,
    end_turn: Callable[[], None],
    log_when_refused: str,
    health: Health,
) -> None:
    """Work for ever: a step at once after one that left work, else after a beat.

    Args:
        step: does a bounded piece of work at a wall and a steady time; whether there is more. Raises
            RefusedForNow when the store takes nothing now: the next step comes after ten seconds.
        end_turn: brings to the log what was appended.
        log_when_refused: the log's line when the store takes nothing now.
        health: told of each step that went well.
    """
    while True:
        try:
            more = step(clock.now_ms(), clock.steady_ms())
            wait_s = 0.0 if more else BEAT_S
        except RefusedForNow as refusal:
            log.warning("%s reason=%s", log_when_refused, refusal.remark)
            wait_s = REFUSED_S
        end_turn()
        health.worked()
        await asyncio.sleep(wait_s)


# Whom a replica copies from.


class Copied(NamedTuple):
    """The mastership whose tables are copied.

    Attributes:
        address: host:port; empty: no tables are to be copied now. epoch: 0 outside of groups.
    """

    address: str = ""
    epoch: int = 0


class MasterSource(Protocol):
    """Source of the place where the master of a replica is found now. Read each time: it moves."""

    @property
    def master_address(self) -> str:
        """host:port for requests; empty: nobody is master, as far as is known."""
        ...

    @property
    def ha_address(self) -> str:
        """host:port for the log's bytes; empty: unknown."""
        ...


def words_of_master(source: MasterSource) -> str:
    """The end of a refusal: where to ask."""
    address = source.master_address
    return f" (the master is {address})" if address else " (no master is known now)"
