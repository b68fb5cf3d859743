"""The parts of the proxy, in one list: the one place where a new one is added."""

from collections.abc import Callable

from roquette.base.clock import Clock
from roquette.base.entropy import Entropy
from roquette.proxy.backend import Backend
from roquette.proxy.sending import Sending
from roquette.proxy.service import Part, Proxy
from roquette.proxy.settings import ProxySettings
from roquette.proxy.transactions import Transactions


def make_proxy(
    backend: Backend,
    settings: ProxySettings,
    clock: Clock,
    entropy: Entropy,
    max_body: Callable[[], int] = lambda: 4 << 20,
) -> Proxy:
    """The proxy in front of a backend; `max_body`: bytes of a message's body at most, now."""
    parts: list[Part] = [
        Sending(backend, settings, max_body),
        Transactions(backend),
    ]
    return Proxy(parts, clock)
