"""Functions that a server adds to its dispatcher. HOT: asked with every request."""

from collections.abc import Callable
from typing import Any

from roquette.remoting.outcomes import Later
from roquette.remoting.request import Peer, RequestContext


def _nothing() -> None:
    return None


class Hooks:
    """Functions that a server runs around its requests.

    Args:
        end_turn: runs after the requests of a turn and before anything is written.
        later: keeps a reply that waits for the disk; `Dispatcher.answer` brings it back.
        guard: asked with each request and its decoded header before it is processed; raises `Refused`.
        refused: hears who asked what when a request is refused because too many others wait.
    """

    __slots__ = ("end_turn", "guard", "later", "refused")

    def __init__(
        self,
        end_turn: Callable[[], None] = _nothing,
        later: Callable[[RequestContext, Later], None] | None = None,
        guard: Callable[[RequestContext, Any], None] | None = None,
        refused: Callable[[Peer, int], None] | None = None,
    ) -> None:
        self.refused: Callable[[Peer, int], None] | None = refused
        self.end_turn: Callable[[], None] = end_turn
        self.guard: Callable[[RequestContext, Any], None] | None = guard
        self.later: Callable[[RequestContext, Later], None] | None = later
