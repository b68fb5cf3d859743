"""What all processors of a name server work on."""

from collections.abc import Callable
from enum import IntEnum
from typing import Any

from roquette.base.clock import Clock
from roquette.errors import Refused, RemoteProtocolError
from roquette.nameserver.floor.bounds import NameServerBounds
from roquette.nameserver.floor.config import NamesrvConfig
from roquette.nameserver.floor.kv_table import KvTable
from roquette.nameserver.floor.route_table import RouteTable
from roquette.remoting.request import RequestContext
from roquette.wire.codes import ResponseCode
from roquette.wire.json_body import decode_request_body


class NameServerLane(IntEnum):
    """Classes of work, each with a bounded queue of its own."""

    CLIENTS = 0
    BROKERS = 1


class NameServerCore:
    """The settings in force now, the tables and the time.

    Attributes:
        started_ms: steady time of the start.
        fixed: settings of ports and accounts, which are shown beside the others.
        changed: called after each change of the settings.
    """

    def __init__(self, config: NamesrvConfig, clock: Clock) -> None:
        self.config = config
        self.clock = clock
        self.bounds = NameServerBounds()
        self.routes = RouteTable(self.bounds)
        self.kv = KvTable(self.bounds)
        self.started_ms = 0
        self.fixed: dict[str, str] = {}
        self.changed: list[Callable[[NamesrvConfig], None]] = []

    def waits_s(self) -> float:
        """Seconds for which routes are still refused after the start (needWaitForService)."""
        config, ran_ms = self.config, self.clock.steady_ms() - self.started_ms
        wait_s = config.wait_seconds_for_service - ran_ms / 1000
        return wait_s if config.need_wait_for_service and wait_s > 0 else 0.0

    def is_outside(self, ctx: RequestContext) -> bool:
        """Whether a request came in at the port of those who reach brokers by their outside addresses."""
        port = self.config.outside_listen_port
        return port > 0 and ctx.peer.local.endswith(f":{port}")

    def change(self, config: NamesrvConfig) -> None:
        """Other settings from now on."""
        self.config = config
        for follow in self.changed:
            follow(config)


def decode_or_refuse(kind: Any, body: bytes) -> Any:
    """The body of a request; raises Refused when it is not of this kind."""
    try:
        return decode_request_body(kind, body)
    except RemoteProtocolError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
