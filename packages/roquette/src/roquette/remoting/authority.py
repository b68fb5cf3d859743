"""A certificate authority of one's own, and what it issues: P-256, made in memory."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from roquette.errors import ConfigError
from roquette.remoting.address import host_name, local_address

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

CLOCK_SKEW = datetime.timedelta(hours=1)  # certificates count from then on: clocks differ


class Authority:
    """A new authority, and the pairs it issues.

    Args:
        now_ms: wall time. days: how long all its certificates are valid.
    """

    def __init__(self, name: str, now_ms: int, days: int) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        self._now = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
        self._days = days
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self._cert = self._sign(self._name, self._key, authority=True)

    @property
    def pem(self) -> dict[str, bytes]:
        """Its certificate, which others trust, and its key: `cert` and `key`."""
        return _pem(self._cert, self._key)

    def server(self, hosts: Sequence[str]) -> dict[str, bytes]:
        """`cert` and `key` of a server that is reached under these names and addresses; it may be a
        client, too, as a broker is of name servers."""
        general = [_general_name(host) for host in hosts]
        return self._issue(hosts[0], general)

    def client(self, name: str) -> dict[str, bytes]:
        """`cert` and `key` of a client."""
        return self._issue(name, [])

    def _issue(self, name: str, hosts: Sequence[x509.GeneralName]) -> dict[str, bytes]:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        # a common name has 64 characters at most, and nobody looks at it where there are hosts
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name[:64])])
        return _pem(self._sign(subject, key, hosts=hosts), key)

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        hosts: Sequence[x509.GeneralName] = (),
        authority: bool = False,
    ) -> x509.Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.x509.oid import ExtendedKeyUsageOID as Use

        own, issuer = key.public_key(), self._key.public_key()
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(own)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - CLOCK_SKEW)
            .not_valid_after(self._now + datetime.timedelta(days=self._days))
            .add_extension(x509.BasicConstraints(authority, 0 if authority else None), True)
            .add_extension(_key_usage(authority), True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(own), False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), False)
        )
        if not authority:
            uses = [Use.SERVER_AUTH, Use.CLIENT_AUTH] if hosts else [Use.CLIENT_AUTH]
            builder = builder.add_extension(x509.ExtendedKeyUsage(uses), False)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(hosts), False)
        return builder.sign(self._key, hashes.SHA256())


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        x509.NameAttribute(x509.NameOID.COMMON_NAME, host[:64])  # not empty
        return x509.DNSName(host)
    except ValueError:
        raise ConfigError(f"{host!r} is neither an address nor the name of a host") from None


def _key_usage(authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    never = dict.fromkeys(
        (
            "content_commitment",
            "data_encipherment",
            "encipher_only",
            "decipher_only",
            "key_encipherment",
            "key_agreement",
        ),
        False,
    )
    return x509.KeyUsage(
        digital_signature=True, key_cert_sign=authority, crl_sign=authority, **never
    )


def _pem(cert: x509.Certificate, key: Any) -> dict[str, bytes]:
    from cryptography.hazmat.primitives import serialization

    form = serialization.Encoding.PEM
    kind, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return {"cert": cert.public_bytes(form), "key": key.private_bytes(form, kind, plain)}


def own_hosts() -> list[str]:
    """The names and addresses of this machine that clients are likely to use."""
    return list(dict.fromkeys(["localhost", "127.0.0.1", "::1", host_name(), local_address()]))
