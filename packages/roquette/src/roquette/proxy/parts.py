"""The parts of the proxy, in one list: the one place where a new one is added."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from roquette.base.clock import Clock
from roquette.base.entropy import Entropy
from roquette.proxy.backend import Backend
from roquette.proxy.clients import Clients
from roquette.proxy.receipts import Receipts
from roquette.proxy.receiving import Receiving
from roquette.proxy.renewals import Renewals
from roquette.proxy.routes import Routes
from roquette.proxy.sending import Sending
from roquette.proxy.service import Part, Proxy, Rpc, RpcCall
from roquette.proxy.settings import ProxySettings
from roquette.proxy.statuses import GRPC_UNIMPLEMENTED
from roquette.proxy.telemetry import Commands, Telemetry
from roquette.proxy.transactions import Transactions
from roquette.wire.proto import service_pb2 as s

# The rpcs of the protocol that are not served: each is refused in words.


_PULL: Final = (
    "{} is not served, as Apache's proxy has none: receive messages with a push or simple consumer"
)
_LITE: Final = "{} is not served: there are no lite topics here"
REFUSED: Final = (
    Rpc("PullMessage", s.PullMessageRequest, s.PullMessageResponse, lambda call, _: _refuse(call, _PULL), streams=True),
    Rpc("UpdateOffset", s.UpdateOffsetRequest, s.UpdateOffsetResponse, lambda call, _: _refuse(call, _PULL)),
    Rpc("GetOffset", s.GetOffsetRequest, s.GetOffsetResponse, lambda call, _: _refuse(call, _PULL)),
    Rpc("QueryOffset", s.QueryOffsetRequest, s.QueryOffsetResponse, lambda call, _: _refuse(call, _PULL)),
    Rpc(
        "SyncLiteSubscription", s.SyncLiteSubscriptionRequest, s.SyncLiteSubscriptionResponse,
        lambda call, _: _refuse(call, _LITE),
    ),
)  # fmt: skip


def _refuse(call: RpcCall, text: str) -> None:
    call.finish(GRPC_UNIMPLEMENTED, text.format(call.rpc.name))


class RefusedRpcs(Part):
    """Answers them with gRPC's UNIMPLEMENTED."""

    def rpcs(self) -> Iterable[Rpc[Any]]:
        """All of them."""
        return REFUSED


def make_proxy(
    backend: Backend,
    settings: ProxySettings,
    clock: Clock,
    entropy: Entropy,
    max_body: Callable[[], int] = lambda: 4 << 20,
) -> Proxy:
    """The proxy in front of a backend. `max_body`: bytes of a message's body at most, now."""
    clients = Clients(backend, clock)
    commands = Commands(clients, clock, entropy)
    renewals = Renewals(backend, clock)
    clients.gone = renewals.client_gone
    parts: list[Part] = [
        Telemetry(backend, clients, settings, clock, max_body, commands.report),
        commands,
        clients,
        Sending(backend, settings, max_body),
        Transactions(backend),
        Routes(backend),
        Receiving(backend, settings, clock, renewals),
        Receipts(backend, settings, renewals),
        renewals,
        RefusedRpcs(),
    ]
    return Proxy(parts, clock)
