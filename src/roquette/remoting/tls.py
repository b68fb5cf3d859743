"""What TLS is on a connection, of either end. The contexts come from `remoting/certificates.py`."""

import enum
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


class TlsMode(enum.Enum):
    """What a listening port takes (tls.server.mode)."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


@dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS of a listening port.

    Attributes:
        context: for the next connection; raises ConfigError: there is no certificate, with what to do.
    """

    mode: TlsMode
    context: Callable[[], Awaitable[ssl.SSLContext]]


@dataclass(frozen=True, slots=True)
class ClientTls:
    """TLS of connections that we open.

    Attributes:
        context: for the next connection.
        check_host: the certificate must name the host or address that is called.
    """

    context: Callable[[], ssl.SSLContext]
    check_host: bool
