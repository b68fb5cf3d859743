"""All gRPC connections of one server: made, looked after, said goodbye to."""

import asyncio
from collections.abc import Callable
from typing import Final

from roquette.proxy.service import ProxyBeat
from roquette.proxy.serving import Serving
from roquette.proxy.session import GrpcSession
from roquette.remoting.http_pages import HttpPages
from roquette.remoting.request import Peer

STEP_S: Final = 0.05


class Sessions(Serving):
    """The connections; `open` makes one, and is what `PortProtocols.http2` wants.

    Its owner runs `beat_row` (once a second) and awaits `close` before it closes its ports: that stops the proxy, too.
    See `Serving` for the arguments.
    """

    def open(
        self,
        number: int,
        on_made: Callable[[Peer], None],
        on_lost: Callable[[Peer, Exception | None], None],
        pages: HttpPages | None = None,
    ) -> GrpcSession:
        """The protocol of a new connection."""
        return GrpcSession(self, number, on_made, on_lost, pages)

    def __len__(self) -> int:
        return len(self.open_now)

    @property
    def calls(self) -> int:
        """Calls under way."""
        return sum(len(session.calls) for session in self.open_now.values())

    @property
    def beat_row(self) -> ProxyBeat:
        """Beat that looks after the connections."""
        return ProxyBeat("grpc-sessions", 1.0, self.beat)

    def beat(self) -> None:
        """Look after every connection."""
        now_s, steady_ms = self.dispatcher.loop.time(), self.clock.steady_ms()
        for session in list(self.open_now.values()):
            session.look(now_s, steady_ms)

    async def close(self) -> None:
        """Say goodbye: new calls are not taken, those in hand finish, then the connections are closed.

        It takes `grpc_shutdown_time_seconds` at most; whoever does not take what is written loses it soon after.
        """
        self.closing = True
        loop = self.dispatcher.loop
        leaving = dict(self.open_now)
        for session in leaving.values():
            session.leave(loop.time())
        until = loop.time() + self.settings.grpc_shutdown_time_seconds
        stopped = False
        while loop.time() < until:
            self.beat()
            leaving = {n: one for n, one in leaving.items() if n in self.open_now}
            if not stopped and all(session.gone_away for session in leaving.values()):
                stopped = True  # those whose polls are released now ask elsewhere
                self.proxy.stop()
            if not leaving:
                break
            await asyncio.sleep(STEP_S)
        if not stopped:
            self.proxy.stop()
        for session in list(self.open_now.values()):
            session.hang_up()
        await asyncio.sleep(0)
