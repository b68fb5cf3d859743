"""The parts of the proxy, in one list: the one place where a new one is added."""

from roquette.base.clock import Clock
from roquette.base.entropy import Entropy
from roquette.proxy.backend import Backend
from roquette.proxy.service import Part, Proxy
from roquette.proxy.settings import ProxySettings


def make_proxy(backend: Backend, settings: ProxySettings, clock: Clock, entropy: Entropy) -> Proxy:
    """The proxy in front of a backend."""
    parts: list[Part] = []
    return Proxy(parts, clock)
