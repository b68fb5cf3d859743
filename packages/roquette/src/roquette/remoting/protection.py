"""Protection of servers: what they ask of those who call them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from roquette.remoting.door_settings import DoorSettings
from roquette.remoting.pem import CertificateEnds
from roquette.remoting.request import RequestContext
from roquette.remoting.security import OPEN, Security
from roquette.remoting.tls import ServerTls


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """Of a server: what its ports ask of callers, and what it says where it calls others itself.

    Attributes:
        tls: of the ports; None: all is plain.
        guard: asked with each request (`Hooks.guard`); None: everybody may do everything.
        calls: of our own calls to other servers.
        door: what the ports take beside RocketMQ's protocols; None: nothing.
        ends: of the certificates that are used.
        ports: further ports of a broker, that serve what its main one does.
        shown: the settings this was made from, under their keys, for operators.
    """

    tls: ServerTls | None = None
    guard: Callable[[RequestContext, Any], None] | None = None
    calls: Security = OPEN
    door: DoorSettings | None = None
    ends: CertificateEnds = field(default_factory=lambda: CertificateEnds({}))
    ports: tuple[int, ...] = ()
    shown: Mapping[str, str] = field(default_factory=dict)


UNPROTECTED: Final = Protection()
