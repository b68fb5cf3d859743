"""LOCAL: the v5 protocol on a broker's ports. What speaks it, 4 MB, is loaded when the first connection wants it."""

import itertools
from collections.abc import Awaitable
from importlib import import_module
from typing import TYPE_CHECKING, Final

from roquette.base.executor import run_blocking
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Feature
from roquette.broker.floor.tables.topics import Created
from roquette.proxy.settings import ProxySettings, has_http2
from roquette.remoting.dispatcher import Dispatcher
from roquette.remoting.door import PortProtocols

if TYPE_CHECKING:
    from roquette.apps.local_backend import LocalBackend
    from roquette.proxy.sessions import Sessions

FIRST_NUMBER: Final = 1 << 32


class LocalProxy(Feature):
    """Serves the v5 protocol on the broker's ports.

    Attributes:
        made: what serves it, from the first connection on.
    """

    def __init__(self, core: BrokerCore, settings: ProxySettings, created: Created) -> None:
        self._core = core
        self._settings = settings
        self._created = created
        self.made: tuple[LocalBackend, Sessions] | None = None

    def protocols(self, dispatcher: Dispatcher) -> PortProtocols | None:
        """HTTP/2, unless grpcEnable=false. Raises ConfigError: there is none, and grpcServerPort asks for it."""
        port = self._settings.grpc_server_port
        if not self._settings.grpc_enable or not has_http2(
            f"grpcServerPort={port} (0 serves remoting alone)" if port else ""
        ):
            return None
        numbers = itertools.count(FIRST_NUMBER)  # unique among the connections of both ports
        return PortProtocols(
            http2=lambda _, made, lost, pages: self.sessions(dispatcher).open(
                next(numbers), made, lost, pages
            ),
            load=self._load,
        )

    def _load(self) -> Awaitable[object] | None:
        if self.made is not None:
            return None
        return run_blocking(import_module, "roquette.apps.local_backend")

    def sessions(self, dispatcher: Dispatcher) -> "Sessions":
        """The connections of v5 clients, whose requests go to `dispatcher`."""
        if self.made is None:
            from roquette.apps.local_backend import make_local  # see `_load`

            self.made = make_local(self._core, dispatcher, self._settings, self._created)
            sessions = self.made[1]
            beats = [beat for part in sessions.proxy.parts for beat in part.beats()]
            for beat in (sessions.beat_row, *beats):
                self._core.shell.tasks.every(beat.name, beat.seconds, beat.step)
        return self.made[1]

    async def leave(self) -> None:
        """Say goodbye to v5 clients before the ports close."""
        if self.made is not None:
            await self.made[1].close()

    def drain(self) -> None:
        """Answer all requests that wait."""
        if self.made is not None:
            self.made[1].proxy.stop()

    async def stop(self) -> None:
        """End lookups."""
        if self.made is not None:
            await self.made[0].close()
