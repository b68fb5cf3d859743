"""Pages that a port answers over HTTP, by whichever version of it, and those they are for."""

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from roquette.remoting.address import host_name
from roquette.remoting.http_stream import StreamedPage

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
        ready: why the server should get no requests now; "": it should.
        well: what is wrong with the server itself; "": nothing.
        more: further pages by their path.
        streams: pages that are made while they are sent, by their path.
        shown: whether other peers than those of the loopback get these: they name topics and groups.
    """

    about: str
    anyone: bool = False
    ready: Callable[[], str] = lambda: ""
    well: Callable[[], str] = lambda: ""
    more: Mapping[str, Page] = field(default_factory=dict)
    streams: Mapping[str, StreamedPage] = field(default_factory=dict)
    shown: bool = False

    def joined(self, other: "HttpPages") -> "HttpPages":
        """These pages with those of `other`, and with its judgement of the server's health."""
        return replace(
            self,
            ready=other.ready,
            well=other.well,
            more={**self.more, **other.more},
            streams={**self.streams, **other.streams},
        )

    def why_not_ready(self) -> str:
        """Return why the server should get no requests; "": it should."""
        return self.well() or self.ready()

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
            why = self.why_not_ready() if path == "/readyz" else self.well()
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


def host_said(authority: str) -> str:
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
