"""How connections that we open prove who we are."""

from dataclasses import dataclass
from typing import Final

from roquette.remoting.tls import ClientTls
from roquette.wire.signature import Credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """What a caller says of itself, and asks of those it calls.

    Attributes:
        credentials: every request is signed with them, or None.
        tls: every connection uses it, or None.
    """

    credentials: Credentials | None = None
    tls: ClientTls | None = None


OPEN: Final = Security()
