"""Contexts of both ends, made of real certificates, for one run of tests."""

import ssl
import tempfile
from functools import lru_cache
from pathlib import Path

from tests.certificates import Authority, Pair, issue, make_ca

from roquette.remoting.tls import ClientTls, ServerTls, TlsMode

HOSTS = ["localhost", "127.0.0.1", "10.0.0.1", "10.0.0.254"]


@lru_cache(maxsize=4)
def authority(name: str = "ours") -> Authority:
    keep = tempfile.TemporaryDirectory()
    made = make_ca(Path(keep.name), name)
    _KEPT.append(keep)
    return made


_KEPT: list[object] = []


@lru_cache(maxsize=16)
def pair(kind: str = "good") -> Pair:
    match kind:
        case "good":
            return issue(authority(), HOSTS)
        case "other host":
            return issue(authority(), ["elsewhere.example"])
        case "expired":
            return issue(authority(), HOSTS, days=-1)
        case "stranger":
            return issue(authority("another"), HOSTS)
        case "client":
            return issue(authority(), ["alice"], client=True)
        case "strange client":
            return issue(authority("another"), ["mallory"], client=True)
    raise AssertionError(kind)


def server_context(kind: str = "good", *, asks: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair(kind))
    if asks:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority().cert)
    return context


def client_context(certificate: str = "", *, twelve: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority().cert)
    if certificate:
        context.load_cert_chain(*pair(certificate))
    if twelve:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def serving(context: ssl.SSLContext | None = None, mode: TlsMode = TlsMode.PERMISSIVE) -> ServerTls:
    made = context or server_context()

    async def give() -> ssl.SSLContext:
        return made

    return ServerTls(mode, give)


def calling(context: ssl.SSLContext | None = None) -> ClientTls:
    made = context or client_context()
    return ClientTls(lambda: made, True)
