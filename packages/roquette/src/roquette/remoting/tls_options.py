"""Options of TLS where we connect to others: values of applications, and the contexts made of them."""

import os
from dataclasses import dataclass, field
from functools import lru_cache, partial
from logging import getLogger

from roquette.base.clock import Clock, SystemClock
from roquette.remoting.pem import FollowedContext, PemFiles, client_context
from roquette.remoting.tls import ClientTls

log = getLogger("roquette.remoting")


def make_client_tls(files: PemFiles, verify: bool, verify_host: bool, clock: Clock) -> ClientTls:
    """The contexts of who connects to others. Raises ConfigError: a file cannot be used."""
    if not verify:
        log.warning(
            "%s: certificates of servers are NOT verified: whoever answers is believed, and reads all that is sent",
            files.owner,
        )
    make = partial(client_context, files, verify=verify, verify_host=verify_host)
    followed = FollowedContext(make, files.paths, clock, files.owner)
    followed.get()
    return ClientTls(followed.get, verify and verify_host)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """Options of TLS of our clients. Files are PEM, and are read again when they change.

    Attributes:
        ca: authorities to trust; empty: the system's.
        certificate, key: what the client shows of itself; the key may be in the same file.
        verify: False believes whoever answers. It encrypts against those who only listen.
        verify_host: False takes any certificate of the authorities, whoever's it is.
    """

    ca: str | os.PathLike[str] = ""
    certificate: str | os.PathLike[str] = ""
    key: str | os.PathLike[str] = ""
    key_password: str = field(default="", repr=False)
    verify: bool = True
    verify_host: bool = True

    @property
    def _client_tls(self) -> ClientTls:
        """Its contexts; the same for equal options. Raises ConfigError."""
        return _of_options(self)


@lru_cache(maxsize=16)
def _of_options(options: TlsOptions) -> ClientTls:
    files = PemFiles(
        owner="TLS of the client",
        certificate=os.fspath(options.certificate),
        key=os.fspath(options.key),
        key_password=options.key_password,
        trusted=os.fspath(options.ca),
    )
    return make_client_tls(files, options.verify, options.verify_host, SystemClock())
