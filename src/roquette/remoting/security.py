"""What servers ask of those who call them, and what callers say and ask."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from roquette.remoting.door_settings import DoorSettings
from roquette.remoting.request import RequestContext
from roquette.remoting.tls import ClientTls, ServerTls
from roquette.wire.proof import Prover
from roquette.wire.signature import Credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """What a caller says of itself, and asks of those it calls.

    Attributes:
        credentials: every request is signed with them, or None.
        tls: every connection uses it, or None.
        namespace: said with every request, or "".
        prover: of a server, adds a proof to what it signs (wire/proof.py); None: callers are no servers.
    """

    credentials: Credentials | None = None
    tls: ClientTls | None = None
    namespace: str = ""
    prover: Prover | None = None


OPEN: Final = Security()


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """Of a server: what its ports ask of callers, and what it says where it calls others itself.

    Attributes:
        tls: of the ports; None: all is plain.
        guard: asked with each request (`Hooks.guard`); None: everybody may do everything.
        calls: of our own calls to other servers.
        door: what the ports take beside RocketMQ's protocols; None: nothing.
        ports: further ports of a broker, that serve what its main one does.
        shown: the settings this was made from, under their keys, for operators.
    """

    tls: ServerTls | None = None
    guard: Callable[[RequestContext, Any], None] | None = None
    calls: Security = OPEN
    door: DoorSettings | None = None
    ports: tuple[int, ...] = ()
    shown: Mapping[str, str] = field(default_factory=dict)


UNPROTECTED: Final = Protection()
