"""What every page has around its view: navigation, the state of the connection, and the command that says the same."""

from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import quote

import htpy as h
from htpy import Element, Node
from markupsafe import Markup

from roquette.console import parts
from roquette.console.ask import View

PLACES: Final = (
    ("", "Overview", "o"),
    ("topics", "Topics", "t"),
    ("groups", "Groups", "g"),
    ("messages", "Messages", "m"),
    ("dead", "Dead letters", "d"),
    ("brokers", "Brokers", "b"),
    ("names", "Name servers", "n"),
    ("clients", "Clients", "l"),
    ("access", "Access", "a"),
    ("doctor", "Doctor", "x"),
    ("apply", "Apply", "y"),
    ("jobs", "Jobs", "j"),
    ("audit", "Audit", "u"),
)
"""Path, text and key (after `g`) of the navigation."""

_KEYS: Final = (
    ("/ or Ctrl-K", "find a topic, group, broker, message or view"),
    ("g and a letter", "go to a view; the letters stand beside their names"),
    ("f", "into the filter of this page"),
    ("[ and ]", "the page before, the page after"),
    ("p", "pause, or go on"),
    ("h", "hold the tail"),
    ("c", "copy the command of this page"),
    ("t", "light, dark, as the system"),
    ("?", "these keys"),
)
_LEAF: Final = Markup(
    '<svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true"><path d="M8 15V7M8 11C5 11 3.4 9.6 3 7c2.2-.2 4 .6 5 2.6'
    'M8 8.5C8 5 9.6 2.6 13 1.5c.6 3.6-.8 6.3-5 7" fill="none" stroke="currentColor" stroke-width="1.4" stroke-linecap="round"'
    ' stroke-linejoin="round"/></svg>'
)


class Around(NamedTuple):
    """What a page says besides its view.

    Attributes:
        cluster: whose page it is; clusters: all that there are.
        theme: light, dark, or "": as the system. who: the person; `leaves`: may sign out. mode: such as read-only.
    """

    cluster: str
    clusters: Sequence[str]
    theme: str
    who: str
    leaves: bool
    mode: str


def main_of(view: View) -> Element:
    """The part that is refreshed."""
    live = f"{view.live_s:g}" if view.live_s else None
    return h.main("#view", tabindex="-1", data_live=live)[
        view.body, h.footer(".say")[parts.command(view.command)] if view.command else None
    ]


def page_of(view: View, around: Around) -> str:
    """The whole page."""
    base = f"/c/{quote(around.cluster, safe='')}/"
    links = (
        h.a(href=base + path, aria_current="page" if path == view.place else None, data_key=key)[
            h.span[text], h.kbd["g " + key]
        ]
        for path, text, key in PLACES
    )
    scripts = [h.script(src=f"/static/{name}.js", defer=True) for name in ("idiomorph", "console")]
    keys = h.dialog("#keys", aria_label="Keys")[h.h2["Keys"], parts.facts(_KEYS)]
    title = f"{view.title} · {around.cluster}"
    return _document(
        _head(title, scripts),
        h.body(data_base=base)[
            h.a(".skip", href="#view")["Skip to content"],
            _top(base, around),
            h.nav(".side", aria_label="Main")[links],
            main_of(view),
            _palette(base),
            keys,
        ],
        around.theme,
    )


def _document(head: Element, body: Element, theme: str) -> str:
    return str(h.html(lang="en", data_theme=theme or None)[head, body])


def _head(title: str, scripts: Node = None) -> Element:
    return h.head[
        h.meta(charset="utf-8"),
        h.meta(name="viewport", content="width=device-width, initial-scale=1"),
        h.meta(name="color-scheme", content="light dark"),
        h.title[f"{title} · Roquette"],
        h.link(rel="icon", href="/static/icon.svg", type="image/svg+xml"),
        h.link(rel="stylesheet", href="/static/console.css"),
        scripts,
    ]


def _top(base: str, around: Around) -> Element:
    clusters = (
        h.a(
            ".cluster",
            href=f"/c/{quote(name, safe='')}/",
            aria_current="true" if name == around.cluster else None,
        )[name]
        for name in around.clusters
    )
    theme = {"title": "Light, dark, as the system (t)", "aria-label": "Colour theme"}
    leave = h.form(".leave", method="post", action="/sign-out")[h.button(type="submit")["Sign out"]]
    return h.header(".top")[
        h.a(".brand", href=base, aria_label="Roquette")[_LEAF, h.span["Roquette"]],
        h.nav(".clusters", aria_label="Clusters")[clusters],
        h.button(".find", type="button", data_palette=True, aria_keyshortcuts="Control+K /")[
            h.span["Find a topic, group, message id …"], h.kbd["/"]
        ],
        h.span(".live", role="status")[
            h.button(type="button", data_pause=True, title="Pause or go on (p)")["Live"]
        ],
        h.button(".icon", theme, type="button", data_theme_next=True)["◐"],
        h.span(".who")[around.who, h.small[around.mode] if around.mode else None],
        leave if around.leaves else None,
    ]


def _palette(base: str) -> Element:
    field = {
        "name": "q",
        "type": "search",
        "autocomplete": "off",
        "spellcheck": "false",
        "role": "combobox",
        "aria-expanded": "true",
        "aria-controls": "found",
        "aria-label": "Find a topic, group, broker, message id or view",
        "placeholder": "Topic, group, broker, message id …",
    }
    return h.dialog("#palette", aria_label="Find")[
        h.form(action=base + "find", method="get", role="search")[h.input(field)],
        h.ul("#found", role="listbox", aria_label="Found"),
    ]


def bare_page(title: str, theme: str, body: Element) -> str:
    """A page without a cluster: who is not signed in sees no more."""
    brand = h.span(".brand")[_LEAF, h.span["Roquette"]]
    return _document(_head(title), h.body(".bare")[h.main("#view")[brand, body]], theme)
