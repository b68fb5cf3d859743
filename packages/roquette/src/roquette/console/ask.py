"""What a view is asked, and what it answers: the state of a page is its URL."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import htpy as h
from htpy import Element, Node

from roquette.errors import RoquetteError

if TYPE_CHECKING:
    from roquette.console.jobs import Deeds
    from roquette.console.look import WatchedCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewAsk:
    """One request for a view.

    Attributes:
        cluster: whom the page is about, asked as the person who asks.
        words: the parts of the path that the view's PATH names; `path`: which of its PATHS it is.
        query: of the URL.
        person: who asks. now_ms: when.
        deeds: jobs and the audit of the console; `read_only`: acts do not exist.
    """

    cluster: "WatchedCluster"
    words: Mapping[str, str]
    query: Mapping[str, str]
    person: str
    now_ms: int
    deeds: "Deeds"
    path: str = ""
    read_only: bool = False

    def url(self, *parts: str, **query: object) -> str:
        """A link within the cluster's part of the console; empty values are left out."""
        path = "/".join(quote(part, safe="") for part in parts)
        words = {key: str(value) for key, value in query.items() if value not in (None, "")}
        base = f"/c/{quote(self.cluster.name, safe='')}/{path}"
        return f"{base}?{urlencode(words)}" if words else base

    @contextmanager
    def noting(self, address: str, what: str, back: str = "") -> Iterator[list[str]]:
        """Note in the audit that a deed is begun, and how it ended: done, or failed by what is put in the list or raised."""

        def note(result: str) -> None:
            self.deeds.audit.note(self.person, address, self.cluster.name, what, result, back)

        note("begun")
        failed: list[str] = []
        try:
            yield failed
        except (RoquetteError, OSError) as error:
            note(f"failed: {error}")
            raise
        finally:
            self.cluster.looks.forget()
        note(f"failed: {failed[0]}" if failed else "done")

    def link(self, *parts: str, **query: object) -> Element:
        """The name of a thing, the last of the parts, which leads to its page."""
        return h.a(href=self.url(*parts, **query))[parts[-1]]

    def here(self, **query: object) -> str:
        """A link to this view with other words of the query."""
        path = self.path
        for name, word in self.words.items():
            path = path.replace(f"{{{name}}}", word)
        return self.url(*path.strip("/").split("/"), **{**self.query, **query})

    def text(self, key: str, most: int = 255) -> str:
        """A word of the query, without blanks around it."""
        return self.query.get(key, "").strip()[:most]

    def number(self, key: str, least: int, most: int, otherwise: int) -> int:
        """A number of the query, within bounds; anything else is `otherwise`."""
        text = self.query.get(key, "")
        if not (text.isascii() and text.isdigit() and len(text) < 12):
            return otherwise
        return min(most, max(least, int(text)))


@dataclass(frozen=True, slots=True)
class View:
    """What a view shows.

    Attributes:
        title: of the page. place: which entry of the navigation is lit.
        body: the markup. command: words of the command that says the same.
        live_s: how often it is looked at again; 0: never by itself.
        status: of HTTP.
    """

    title: str
    place: str
    body: Node
    command: tuple[str, ...] = ()
    live_s: float = 0
    status: int = 200
