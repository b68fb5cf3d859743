"""A feature: one thing a broker does, with all that belongs to it. A broker is its core and a list of them."""

from collections.abc import Awaitable, Callable, Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from roquette.base.exposition import MetricTable
from roquette.base.lifecycle import Interval, Tasks
from roquette.remoting.dispatcher import Dispatcher
from roquette.remoting.door import Speaks
from roquette.remoting.http_pages import HttpPages
from roquette.remoting.request import Peer, Row
from roquette.store.format.results import Arrival

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
    """What a start has found, for the features that load."""

    now_ms: int
    steady_ms: int
    last_record_offset: int  # physical offset of the log's last record, -1: the log is empty
    abnormal: bool  # the broker before did not stop in order
    damaged: bool  # parts of the log are gone


class Feature:
    """What a feature may have; it overrides what it needs.

    A feature is made from the core, and from other features whose work it uses. The broker calls all features in the
    order of its list: `load` before requests are accepted, `start` after that, `drain` and `stop` when it stops,
    then `save_now`.
    """

    def rows(self) -> Iterable[Row]:
        """The requests it serves."""
        return ()

    def admit(self, row: Row) -> Row:
        """What is served in the place of a row of any feature: a replica refuses what only a master does."""
        return row

    def speaks(self, dispatcher: Dispatcher) -> Speaks | None:
        """What the broker's ports speak beside the remoting protocol; requests go to `dispatcher`."""
        return None

    def pages(self) -> HttpPages | None:
        """What the broker's ports answer over HTTP besides what they are."""
        return None

    def beats(self) -> Iterable[Beat]:
        """What it does again and again."""
        return ()

    def load(self, start: Start) -> None:
        """Read its files, find its state in the store.

        Raises:
            StoreError: there is something, and it cannot be read: the broker does not start.
        """

    async def prepare(self) -> None:
        """What takes long of that: beside the loop, after every feature has loaded."""

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
        """Why clients are not served now; "": they are."""
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
