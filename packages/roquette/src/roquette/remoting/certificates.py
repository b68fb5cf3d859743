"""TLS of servers as it is configured: Apache's keys, and the contexts made of them.

Other than Apache's: a certificate that is given is used whatever tls.test.mode.enable says; a mode or a demand of client
certificates that is none ends the start instead of meaning the weakest; connections to others verify unless told not to.
"""

import asyncio
import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from logging import getLogger
from typing import Final

from roquette.base.clock import Clock
from roquette.base.executor import run_blocking
from roquette.base.files import OsFiles, write_private
from roquette.base.options import option
from roquette.errors import ConfigError
from roquette.remoting.pem import (
    Authority,
    CertificateEnds,
    FollowedContext,
    PemFiles,
    server_context,
)
from roquette.remoting.tls import ClientTls, ServerTls, TlsMode
from roquette.remoting.tls_options import make_client_tls

log = getLogger("roquette.remoting")

OWN_DAYS: Final = 3650


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Settings of a name server's or broker's TLS. All are read at the start; no request changes one."""

    enable: bool | None = option(
        None,
        "Connections to other servers (name servers, masters) use TLS.",
        name="tls.enable",
        unset="true if tls.server.mode=enforcing",
    )
    config_file: str = option(
        "/etc/rocketmq/tls.properties",
        "A properties file with more of these keys, which count before those of the file of -c; the default is read if it is there.",
        name="tls.config.file",
    )
    test_mode: bool = option(
        True,
        "Without tls.server.certPath a pair is made once, in the directory tls of the store; a pair that is given is used in any case.",
        name="tls.test.mode.enable",
    )
    mode: str = option(
        "permissive",
        "Connections that begin with TLS: disabled (closed), permissive (taken beside plain ones), enforcing (no others are taken).",
        name="tls.server.mode",
        choices=("disabled", "permissive", "enforcing"),
    )
    certificate: str = option(
        "",
        "The server's certificates as a PEM file, its own first. Read again when it changes, as all these files.",
        name="tls.server.certPath",
    )
    key: str = option(
        "",
        "Its key: PKCS#8 or PKCS#1, as a PEM file.",
        name="tls.server.keyPath",
        unset="in the file of tls.server.certPath",
    )
    key_password: str = option(
        "", "Opens that key if it is encrypted.", name="tls.server.keyPassword", secret=True
    )
    trusted: str = option(
        "",
        "The authorities of clients' certificates, as a PEM file.",
        name="tls.server.trustCertPath",
    )
    verify_clients: bool | None = option(
        None,
        "Certificates of clients are checked.",
        name="tls.server.authClient",
        unset="true where clients show one",
    )
    client_certificates: str | None = option(
        None,
        "Whether a client shows a certificate: none, optional, require.",
        name="tls.server.need.client.auth",
        choices=("none", "optional", "require"),
        unset="require if tls.server.authClient=true, else none",
    )
    client_certificate: str = option(
        "", "The certificates shown to other servers, as a PEM file.", name="tls.client.certPath"
    )
    client_key: str = option(
        "",
        "Their key.",
        name="tls.client.keyPath",
        unset="in the file of tls.client.certPath",
    )
    client_key_password: str = option(
        "", "Opens that key if it is encrypted.", name="tls.client.keyPassword", secret=True
    )
    client_trusted: str = option(
        "",
        "The authorities of other servers' certificates, as a PEM file.",
        name="tls.client.trustCertPath",
        unset="the system's",
    )
    verify_servers: bool = option(
        True, "Certificates of other servers are checked.", name="tls.client.authServer"
    )
    verify_hosts: bool = option(
        True,
        "Other servers' certificates name the host or address that was called.",
        name="tls.client.verifyHost",
    )

    @property
    def calls(self) -> bool:
        """True if connections to other servers use TLS (NettyClientConfig.useTLS)."""
        return self.mode == "enforcing" if self.enable is None else self.enable


def server_tls(
    settings: TlsSettings, directory: str, hosts: Sequence[str], clock: Clock
) -> ServerTls | None:
    """Return how a listening port takes TLS; None: not at all.

    A pair that is given is read now, one of our own is made when somebody asks for TLS first (at once if all must).

    Args:
        directory: where a pair of our own is kept. hosts: whom that one names, beside this machine.

    Raises:
        ConfigError: the settings contradict each other, or a file cannot be used.
    """
    if settings.mode == "disabled":
        return None
    clients = _client_demand(settings)
    files = PemFiles(
        owner="tls.server",
        certificate=settings.certificate,
        key=settings.key,
        key_password=settings.key_password,
        trusted=settings.trusted if clients is not ssl.CERT_NONE else "",
    )

    def make() -> ssl.SSLContext:
        if settings.certificate or settings.key:
            return server_context(files, clients)
        if not settings.test_mode:
            raise ConfigError(
                "TLS needs a certificate: set tls.server.certPath and tls.server.keyPath"
            )
        return server_context(own_pair(directory, hosts, clock, files.trusted), clients)

    followed = FollowedContext(make, files.paths, clock, "tls.server")
    if settings.certificate or settings.key or settings.mode == "enforcing":
        followed.get()
    lock = asyncio.Lock()

    async def context() -> ssl.SSLContext:
        """Raises ConfigError: there is no certificate, with what to do."""
        if not followed.fresh:
            async with lock:
                return await run_blocking(followed.get)
        return followed.get()

    return ServerTls(TlsMode[settings.mode.upper()], context)


def certificate_ends(settings: TlsSettings, directory: str) -> CertificateEnds:
    """Of all that a server uses; `directory` as in `server_tls`."""
    used = settings.mode != "disabled"
    own = "" if settings.key else os.path.join(directory, "server.pem")
    return CertificateEnds(
        {
            "tls.server.certPath": (settings.certificate or own) if used else "",
            "tls.server.trustCertPath": settings.trusted if used else "",
            "tls.client.certPath": settings.client_certificate,
            "tls.client.trustCertPath": settings.client_trusted,
        }
    )


def _client_demand(settings: TlsSettings) -> ssl.VerifyMode:
    """Return the demand for clients' certificates. OpenSSL checks each that is shown, so that there is no way between."""
    check, demand = settings.verify_clients, settings.client_certificates
    if check and demand == "none":
        raise ConfigError(
            "tls.server.authClient=true with tls.server.need.client.auth=none checks what no client shows: "
            "say optional or require"
        )
    if check is False and demand == "require":
        raise ConfigError(
            "tls.server.need.client.auth=require with tls.server.authClient=false: a certificate that nobody checks "
            "proves nothing; set tls.server.authClient=true and tls.server.trustCertPath"
        )
    if check is None:
        check = demand == "require" or (demand == "optional" and bool(settings.trusted))
    if not check:
        return ssl.CERT_NONE
    if not settings.trusted:
        raise ConfigError(
            "certificates of clients are checked, and tls.server.trustCertPath does not say against which authorities"
        )
    return ssl.CERT_OPTIONAL if demand == "optional" else ssl.CERT_REQUIRED


def own_pair(directory: str, hosts: Sequence[str], clock: Clock, trusted: str = "") -> PemFiles:
    """The pair made once in `directory`; its authority's certificate is beside it, and that one's key nowhere. Blocks.

    Raises:
        ConfigError: it cannot be made, with what to do.
    """
    names = ("server.pem", "server.key", "ca.pem")
    pem, key, ca = (os.path.join(directory, name) for name in names)
    try:
        if not os.path.exists(pem):
            files = OsFiles()
            files.make_dirs(directory)
            authority = Authority("roquette, made at the start", clock.now_ms(), OWN_DAYS)
            pair = authority.server(list(dict.fromkeys(hosts)))
            files.remove(key)  # of an attempt that did not come to its end
            write_private(key, pair["key"])
            files.write_atomic(ca, authority.pem["cert"], keep_backup=False)
            files.write_atomic(pem, pair["cert"], keep_backup=False)
    except (OSError, ConfigError) as error:
        raise ConfigError(
            f"TLS was asked for, tls.server.certPath is not set, and no certificate could be made in {directory}: "
            f"{error}"
        ) from None
    log.warning(
        "TLS with a certificate that was made here: clients can verify it only with %s as their authority; "
        "set tls.server.certPath and tls.server.keyPath",
        ca,
    )
    return PemFiles(owner="tls.server", certificate=pem, key=key, trusted=trusted)


def client_tls(settings: TlsSettings, clock: Clock) -> ClientTls | None:
    """Return how a server calls others by TLS; None: plainly. Raises ConfigError."""
    if not settings.calls:
        return None
    files = PemFiles(
        owner="tls.client",
        certificate=settings.client_certificate,
        key=settings.client_key,
        key_password=settings.client_key_password,
        trusted=settings.client_trusted,
    )
    return make_client_tls(files, settings.verify_servers, settings.verify_hosts, clock)
