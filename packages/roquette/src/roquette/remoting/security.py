"""Security of callers: what they say of themselves, and ask of those they call."""

from dataclasses import dataclass
from typing import Final

from roquette.remoting.tls import ClientTls
from roquette.wire.signature import Credentials, Prover


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Security of a caller: what it says of itself, and asks of those it calls.

    Attributes:
        credentials: every request is signed with them, or None.
        tls: every connection uses it, or None.
        namespace: said with every request, or "".
        prover: of a server, adds a proof to what it signs (wire/signature.py); None: callers are no servers.
    """

    credentials: Credentials | None = None
    tls: ClientTls | None = None
    namespace: str = ""
    prover: Prover | None = None


OPEN: Final = Security()
