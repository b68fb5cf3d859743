"""HTTP/2 of a server's connection, without any I/O: bytes in, events out; replies in, bytes out.

libnghttp2 does it (`wire/http2_ngh2.py`). What a peer has taken back within one read is dropped, so that rapid resets
(CVE-2023-44487) make no work.
"""

from dataclasses import dataclass
from typing import Any, Final, Protocol

from roquette.errors import RemoteProtocolError

Fields = tuple[tuple[bytes, bytes], ...]
Event = tuple[int, int, Any, bool]
"""Kind, stream, what came, whether the peer says nothing more on this stream."""

OPENED: Final = 0  # with the fields of a request
DATA: Final = 1  # with bytes of its body; at the end perhaps none
GONE: Final = 2  # with the error code: the stream is reset or broken; not reported of one opened in the same read
PONG: Final = 3  # an answer to our ping; stream 0
CHANGED: Final = 4  # the peer has changed its settings: work for each of its streams; stream 0

NO_ERROR: Final = 0
CANCEL: Final = 8
ENHANCE_YOUR_CALM: Final = 11
MOST_STREAMS: Final = 2**31 - 1


@dataclass(slots=True, frozen=True, kw_only=True)
class Http2Limits:
    """Limits of what a peer may do.

    Attributes:
        streams: under way at one time.
        window, connection_window: bytes of bodies on their way to us, of a stream and of all.
        header_list: bytes of a request's fields, 32 added for each (RFC 9113, section 6.5.2). headers: their number.
        continuations: frames that go on with one header block.
        resets, resets_per_s: streams the peer may reset: at once, and a second for ever.
        acknowledgements: answers to its pings and settings that may wait to be written.
        settings: entries of one SETTINGS frame.
        changes, changes_per_s: SETTINGS frames: at once, and a second for ever.
        opened, opened_per_s: streams it may open: at once, and a second for ever.
        queued: bytes of bodies that wait for its windows: beyond, its further requests wait.
        queued_most: beyond, it is cut. unfinished: bytes of messages that have not come whole.
    """

    streams: int = 4_096
    window: int = 1 << 20
    connection_window: int = 4 << 20
    header_list: int = 16_384
    headers: int = 128
    continuations: int = 8
    resets: int = 1_000
    resets_per_s: int = 200
    acknowledgements: int = 250
    settings: int = 32
    changes: int = 100
    changes_per_s: int = 10
    opened: int = 50_000
    opened_per_s: int = 50_000
    queued: int = 1 << 20
    queued_most: int = 64 << 20
    unfinished: int = 64 << 20


class Flood(RemoteProtocolError):
    """The peer went beyond a limit that keeps it from making work for nothing."""


class Http2(Protocol):
    """One connection. What is said to a stream that is over is dropped.

    Attributes:
        opened, resets: streams the peer has opened and reset so far, those of one read included.
        last_stream: the highest it has opened.
    """

    opened: int
    resets: int
    last_stream: int

    def receive_data(self, data: bytes) -> list[Event]:
        """Take what the peer sent; raises RemoteProtocolError, Flood: write what is queued, then close."""

    def respond(self, stream: int, fields: Fields, data: bytes, trailers: Fields) -> None:
        """A whole reply."""

    def send_headers(self, stream: int, fields: Fields, *, end: bool = False) -> None:
        """The beginning of a reply, or all of one."""

    def send_data(self, stream: int, data: bytes) -> None:
        """A part of its body."""

    def send_trailers(self, stream: int, fields: Fields) -> None:
        """Its end; there may be no fields."""

    def hush(self, stream: int) -> None:
        """The reply is all said: when it is written, the peer need not go on with its request (NO_ERROR)."""

    def reset(self, stream: int, code: int) -> None:
        """Give a stream up at once."""

    def ping(self) -> None:
        """Ask for a PONG."""

    def go_away(self, last: int, code: int = NO_ERROR) -> None:
        """Streams after `last` are not served; `MOST_STREAMS` announces that another such frame follows."""

    def data_to_send(self) -> bytes:
        """Return what may be written now."""

    def queued(self) -> int:
        """Bytes of bodies that wait for the peer's windows."""

    @property
    def over(self) -> bool:
        """Nothing more can happen on this connection."""

    def ended_by(self) -> str:
        """Return the peer's error that has ended it, when it is over; "" for none, or one that `receive_data` raised."""


class Rate:
    """A bound on how often something happens: `burst` at once, `per_s` in the long run."""

    __slots__ = ("_burst", "_left", "_per_s", "_seen", "_then_s")

    def __init__(self, burst: int, per_s: int) -> None:
        self._burst = burst
        self._per_s = per_s
        self._left = float(burst)
        self._seen = 0
        self._then_s = 0.0

    def take(self, total: int, now_s: float) -> bool:
        """`total` have happened by now; False: too many."""
        left = self._left + (now_s - self._then_s) * self._per_s
        self._left = left = min(left, self._burst) - (total - self._seen)
        self._then_s = now_s
        self._seen = total
        return left >= 0


class Floods:
    """Bounds how often the peer of one connection makes work."""

    __slots__ = ("_changes", "_limits", "_opened", "_resets", "changes")

    def __init__(self, limits: Http2Limits) -> None:
        self._limits = limits
        self._opened = Rate(limits.opened, limits.opened_per_s)
        self._resets = Rate(limits.resets, limits.resets_per_s)
        self._changes = Rate(limits.changes, limits.changes_per_s)
        self.changes = 0  # SETTINGS so far

    def check(self, http: Http2, now_s: float) -> None:
        """Raise Flood when something has happened too often."""
        limits = self._limits
        if not self._opened.take(http.opened, now_s):
            raise Flood(f"more than {limits.opened_per_s} streams a second")
        if not self._resets.take(http.resets, now_s):
            raise Flood(f"more than {limits.resets_per_s} resets a second")
        if self.changes and not self._changes.take(self.changes, now_s):
            raise Flood(f"more than {limits.changes_per_s} changes of settings a second")


def without_gone_streams(events: list[Event]) -> list[Event]:
    """`events` without those of streams that are gone by now, and without the end of those nobody has heard of."""
    gone = {event[1] for event in events if event[0] == GONE}
    opened = {event[1] for event in events if event[0] == OPENED}
    return [
        event
        for event in events
        if event[1] not in gone or (event[0] == GONE and event[1] not in opened)
    ]
