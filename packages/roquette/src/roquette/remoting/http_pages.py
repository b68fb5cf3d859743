"""Pages that a port answers over HTTP, by whichever version of it, and those they are for."""

import asyncio
import ipaddress
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from roquette.remoting.address import host_name

# Answers over HTTP that are made piece by piece: the loop is free between two pieces, and no piece waits in memory.


STREAM_S: Final = 30.0  # for the peer to take all of an answer


@dataclass(slots=True, kw_only=True)
class StreamedPage:
    """A page that is made while it is sent.

    Attributes:
        kind: its content type.
        begin: makes the pieces, in slices of a few milliseconds each; an empty one lets the loop free, too.
        most: so many are sent at the same time; further requests get 503.
        running: so many are being sent.
    """

    kind: str
    begin: Callable[[], Iterator[bytes]]
    most: int = 2
    running: int = 0


class PageStream:
    """One answer on its way.

    Args:
        write: takes the pieces, which are not empty. abort: it breaks off: the peer takes too long, or a piece cannot be made.
        done: all of it is written.
    """

    def __init__(
        self,
        page: StreamedPage,
        write: Callable[[bytes], None],
        abort: Callable[[], None],
        done: Callable[[], None],
    ) -> None:
        self._page = page
        self._write = write
        self._abort = abort
        self._done = done
        self._pieces = page.begin()
        self._open = True
        self._paused = False
        self._waiting = False
        page.running += 1
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(STREAM_S, abort)
        self._go_on()

    def _go_on(self) -> None:
        self._waiting = True
        asyncio.get_running_loop().call_soon(self._step)

    def _step(self) -> None:
        self._waiting = False
        if not self._open or self._paused:
            return
        whole = False
        try:
            piece = next(self._pieces, None)
            whole = True
        finally:
            if not whole:  # a defect: the peer must not take a part for all
                self._abort()
        if piece is None:
            self.close()
            self._done()
            return
        if piece:
            self._write(piece)
        self._go_on()

    def pause(self) -> None:
        """The peer does not take what was written."""
        self._paused = True

    def resume(self) -> None:
        """It does again."""
        self._paused = False
        if self._open and not self._waiting:
            self._go_on()

    def close(self) -> None:
        """It is over, or its connection is."""
        if self._open:
            self._open = False
            self._page.running -= 1
            self._timer.cancel()


TEXT: Final = "text/plain; charset=utf-8"

Page = Callable[[], tuple[str, bytes]]  # -> content type, body


class HttpReply(NamedTuple):
    """An answer; `stream` makes its body while it is sent, else `body` is all of it."""

    status: int
    body: bytes = b"ok\n"
    kind: str = TEXT
    stream: StreamedPage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpPages:
    """Pages that are answered over HTTP.

    Attributes:
        about: what the port is, and how a client is pointed at it: one line.
        anyone: whether other peers than those of the loopback get an answer.
        check_readiness: returns why the server should get no requests now; "": it should.
        check_health: returns what is wrong with the server itself; "": nothing.
        more: further pages by their path.
        streams: pages that are made while they are sent, by their path.
        shown: whether other peers than those of the loopback get these: they name topics and groups.
    """

    about: str
    anyone: bool = False
    check_readiness: Callable[[], str] = lambda: ""
    check_health: Callable[[], str] = lambda: ""
    more: Mapping[str, Page] = field(default_factory=dict)
    streams: Mapping[str, StreamedPage] = field(default_factory=dict)
    shown: bool = False

    def joined(self, other: "HttpPages") -> "HttpPages":
        """These pages with those of `other`, and with its judgement of the server's health."""
        return replace(
            self,
            check_readiness=other.check_readiness,
            check_health=other.check_health,
            more={**self.more, **other.more},
            streams={**self.streams, **other.streams},
        )

    def why_not_ready(self) -> str:
        """Return why the server should get no requests; "": it should."""
        return self.check_health() or self.check_readiness()

    def paths(self) -> str:
        """Return the paths where something is, separated by blanks."""
        return " ".join(["/", "/healthz", "/readyz", *self.more, *self.streams])

    def reply(self, method: str, path: str, host: str, local: bool) -> HttpReply:
        """The answer to a request.

        Args:
            host: whom it wants to ask, without the port; "": it does not say. local: whether it comes from this machine.
        """
        near = local and names_this_machine(host)  # it may have what is for this machine alone
        if not (near or self.anyone):
            words = b"HTTP is answered to this machine only, by its address or as localhost (setting httpAccess)\n"
            return HttpReply(403, words)
        if method not in ("GET", "HEAD"):
            return HttpReply(405, b"only GET and HEAD are answered here\n")
        if path == "/":
            return HttpReply(200, f"{self.about}\n".encode())
        if path in ("/healthz", "/readyz"):
            why = self.why_not_ready() if path == "/readyz" else self.check_health()
            return HttpReply(503, f"{why}\n".encode()) if why else HttpReply(200)
        if path in self.streams:
            return self._streamed(self.streams[path], method, near)
        if path in self.more:
            kind, body = self.more[path]()
            return HttpReply(200, body, kind)
        return HttpReply(404, f"no such page; there are {self.paths()}\n".encode())

    def _streamed(self, page: StreamedPage, method: str, near: bool) -> HttpReply:
        if not (near or self.shown):
            words = b"this page is for this machine only (setting metricsListen opens a port for others)\n"
            return HttpReply(403, words)
        if page.running >= page.most:
            words = b"as many are being sent already as are sent at the same time\n"
            return HttpReply(503, words)
        return HttpReply(200, b"", page.kind, None if method == "HEAD" else page)


def host_of_authority(authority: str) -> str:
    """The host that a request names, without the port; "": none. Raises ValueError: it is no name or address."""
    return urlsplit("//" + authority).hostname or ""


def names_this_machine(host: str) -> bool:
    """Return True when a request from this machine means this machine: a browser's page that had its own name lead here says that name."""
    if host in ("", "localhost", host_name().lower()):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
