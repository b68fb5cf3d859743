"""Being told of route changes at once by a name server of ours. Apache's refuse, and routes are polled as ever."""

import logging
from collections.abc import Callable, Collection
from typing import Final

from roquette.client import calls
from roquette.errors import BrokerError, ClientError
from roquette.remoting.client import RemotingClient
from roquette.remoting.request import Peer

log = logging.getLogger("roquette.client")

BEAT_S: Final = 1.0
WATCHED: Final = 5_000  # topics; a name server takes no more from one client
AGAIN_S: Final = 600.0  # a name server that refused is asked again after


class RouteWatch:
    """Asks one name server to tell of the topics in use.

    Args:
        changed: called with topics whose routes may have changed while nobody told.
    """

    def __init__(
        self, remoting: RemotingClient, changed: Callable[[Collection[str]], None]
    ) -> None:
        self._remoting = remoting
        self._changed = changed
        self._told: dict[str, None] = {}
        self._peer: Peer | None = None  # who tells
        self._refused: dict[str, float] = {}  # name servers, until when they are left alone

    async def step(self, address: str, topics: Collection[str], now_s: float) -> None:
        """See that the name server at `address` knows what to tell of."""
        peer = self._remoting.peer(address)
        wanted = dict.fromkeys(topics)
        if peer is None or (peer is self._peer and wanted == self._told):
            return
        if self._refused.get(address, 0.0) > now_s:
            return
        call = calls.watch_routes(list(wanted))
        try:
            answer = await peer.invoke(call.code, call.ext, call.body, 3_000)
            call.result(answer, address)
        except BrokerError as error:
            self._refused[address] = now_s + AGAIN_S
            log.debug("route changes are not told of by=%s error=%s", address, error)
            return
        except ClientError:
            return  # it is asked again with the next beat
        known = self._told if peer is self._peer else {}
        self._peer, self._told = peer, wanted
        self._changed([topic for topic in wanted if topic not in known])
