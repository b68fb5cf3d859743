"""The parts of the proxy, in one list: the one place where a new one is added."""

from collections.abc import Callable

from roquette.base.clock import Clock
from roquette.base.entropy import Entropy
from roquette.proxy.backend import Backend
from roquette.proxy.clients import Clients
from roquette.proxy.commands import Commands
from roquette.proxy.receipts import Receipts
from roquette.proxy.receiving import Receiving
from roquette.proxy.refused import RefusedRpcs
from roquette.proxy.renewals import Renewals
from roquette.proxy.routes import Routes
from roquette.proxy.sending import Sending
from roquette.proxy.service import Part, Proxy
from roquette.proxy.settings import ProxySettings
from roquette.proxy.telemetry import Telemetry
from roquette.proxy.transactions import Transactions


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
        Receipts(backend, settings, clock, renewals),
        renewals,
        RefusedRpcs(),
    ]
    return Proxy(parts, clock)
