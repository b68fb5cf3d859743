"""Certificates and keys in PEM files: what is wrong with one is said with its name and the reason.

The files are read by OpenSSL, which takes paths only: they are always the system's.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from logging import getLogger
from typing import TYPE_CHECKING, Any, Final

from roquette.base.clock import Clock
from roquette.base.executor import run_blocking
from roquette.base.files import OsFiles
from roquette.errors import ConfigError
from roquette.remoting.address import host_name, local_address

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

log = getLogger("roquette.remoting")

ENDS_BEAT_S: Final = 60.0  # between two looks at when certificates end
LOOK_MS: Final = 2_000
"""How often files are looked at for a change, at most."""

_MOST: Final = 16 << 20
_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----", b"-----BEGIN TRUSTED CERTIFICATE-----"
_KEY: Final = b"PRIVATE KEY-----"
_INSTEAD: Final = (  # what a file may hold instead: how it is told, what it is
    (b"CERTIFICATE REQUEST-----", "it holds a request, which an authority has yet to sign"),
    (b"OPENSSH PRIVATE KEY-----", "it holds a key of SSH's form: ssh-keygen -p -m pkcs8 -f FILE"),
    (_KEY, "it holds a key, and no certificate"),
    (b"PUBLIC KEY-----", "it holds a public key"),
    (_CERTIFICATE[0], "it holds a certificate, and no key"),
)
_BINARY: Final = (
    (
        b"\xfe\xed\xfe\xed",
        "it is a Java key store: keytool -importkeystore -deststoretype pkcs12, then ",
    ),
    (
        b"0",
        "it is binary (DER or PKCS#12): openssl x509 -inform der -in FILE for a certificate, or ",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PemFiles:
    """Certificates that one end of a connection presents, and those it trusts; an empty path is none.

    Attributes:
        owner: whose they are, for errors.
        certificate: its chain, its own certificate first.
        key: empty: it is in the same file.
        trusted: certificates of authorities, for those of the other end.
    """

    owner: str
    certificate: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)
    trusted: str = ""

    @property
    def paths(self) -> list[str]:
        """All that are given."""
        return [path for path in (self.certificate, self.key, self.trusted) if path]

    def fill(self, context: ssl.SSLContext) -> None:
        """Read all files into a context. Raises ConfigError."""
        if self.certificate:
            self._fill_pair(context)
        elif self.key:
            raise ConfigError(f"{self.owner}: the key {self.key} is given without its certificate")
        if self.trusted:
            self._read(self.trusted, "the file of trusted certificates", _CERTIFICATE)
            try:
                context.load_verify_locations(self.trusted)
            except (ssl.SSLError, OSError) as error:
                raise self._unusable(
                    "the file of trusted certificates", self.trusted, error
                ) from None

    def _fill_pair(self, context: ssl.SSLContext) -> None:
        self._read(self.certificate, "the certificate", _CERTIFICATE)
        key = self.key or self.certificate
        text = self._read(key, "the key", (_KEY,))
        sealed = b"ENCRYPTED" in text
        if sealed and not self.key_password:
            raise ConfigError(f"{self.owner}: the key {key} is encrypted, and no password is given")
        try:
            # Without a function for the password OpenSSL would ask the terminal.
            context.load_cert_chain(self.certificate, key, lambda: self.key_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or ""
            if reason == "KEY_VALUES_MISMATCH":
                raise ConfigError(
                    f"{self.owner}: the key {key} does not belong to the certificate {self.certificate}"
                ) from None
            if sealed:
                raise ConfigError(
                    f"{self.owner}: the password does not open the key {key}"
                ) from None
            raise self._unusable(
                "the certificate or its key", f"{self.certificate}, {key}", error
            ) from None

    def _unusable(self, what: str, path: str, error: Exception) -> ConfigError:
        reason = getattr(error, "reason", None)
        words = reason.lower().replace("_", " ") if reason else str(error)
        return ConfigError(f"{self.owner}: {what} cannot be used: {path}: {words}")

    def _read(self, path: str, what: str, wanted: Sequence[bytes]) -> bytes:
        try:
            if os.path.getsize(path) > _MOST:
                raise ConfigError(f"{self.owner}: {what} {path} is no PEM file: it is too large")
            data = OsFiles().read_bytes(path)
        except OSError as error:
            raise ConfigError(
                f"{self.owner}: {what} {path} cannot be read: {error.strerror or error}"
            ) from None
        if not any(mark in data for mark in wanted) or _INSTEAD[1][0] in data:
            raise ConfigError(f"{self.owner}: {what} {path} cannot be used: {what_it_is(data)}")
        return data


def what_it_is(data: bytes) -> str:
    """Say what a file that is not the PEM file it should be seems to be."""
    if not data.strip():
        return "it is empty"
    for mark, words in _BINARY:
        if data.startswith(mark) and b"-----BEGIN" not in data:
            return f"{words}openssl pkcs12 -in FILE -nodes for a key store; PEM is wanted"
    for mark, words in _INSTEAD:
        if mark in data:
            return words
    return "it is no PEM file: nothing in it begins with -----BEGIN"


Mark = tuple[int, int, int] | None


class FollowedContext:
    """A context that follows its files: connections made after a change are made with what is there then.

    A change that cannot be used is told once, and the context before it stays.

    Args:
        make: reads the files; raises ConfigError.
        paths: the files.
        owner: whose they are, for the log.
    """

    def __init__(
        self,
        make: Callable[[], ssl.SSLContext],
        paths: Sequence[str],
        clock: Clock,
        owner: str,
    ) -> None:
        self._make = make
        self._paths = list(paths)
        self._clock = clock
        self._owner = owner
        self._context: ssl.SSLContext | None = None
        self._read: list[Mark] = []  # as they were when they were read
        self._refused: list[Mark] = []  # as they were when they could not be used
        self._error = ""
        self._looked_ms: int | None = None

    @property
    def fresh(self) -> bool:
        """The files were looked at a short while ago: `get` neither reads nor waits."""
        return self._looked_ms is not None and self._clock.steady_ms() - self._looked_ms < LOOK_MS

    def get(self) -> ssl.SSLContext:
        """The context of the files as they are. Blocks unless `fresh`; raises ConfigError: there never was one."""
        if self.fresh:
            return self._known()
        now_ms = self._clock.steady_ms()
        marks = [_mark(path) for path in self._paths]
        if self._context is None or self._error or marks != self._read:
            self._take(marks)
        self._looked_ms = now_ms  # at last: from then on other threads take what is known
        return self._known()

    def _take(self, marks: list[Mark]) -> None:
        try:
            made = self._make()
        except ConfigError as error:
            if self._context is not None and (marks, str(error)) != (self._refused, self._error):
                log.error("changed certificates are not taken: %s; the ones before stay", error)
            self._refused, self._error = marks, str(error)
            return
        if self._context is not None:
            log.info("certificates read again owner=%s", self._owner)
        self._context, self._read, self._error = made, marks, ""

    def _known(self) -> ssl.SSLContext:
        if self._context is None:
            raise ConfigError(self._error)
        return self._context


class CertificateEnds:
    """Ends of the certificates in some files.

    Args:
        files: by the setting that names each; "": none.

    Attributes:
        found: seconds since 1970, by setting, as `look` has found them: when the first of a pair's chain ends, and the last of
            the authorities that are trusted.
    """

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = {setting: path for setting, path in files.items() if path}
        self.found: dict[str, float] = {}

    async def look(self) -> None:
        """The beat. Of a file that cannot be read it keeps what it knows: who uses the file says what is wrong."""
        if self.files:
            await run_blocking(self._look)

    def _look(self) -> None:
        for setting, path in self.files.items():
            with suppress(OSError, ValueError):
                data = OsFiles().read_bytes(path)
                from cryptography import x509  # much to load, and there may be no file

                found = x509.load_pem_x509_certificates(data)
                pick = max if setting.endswith("trustCertPath") else min
                self.found[setting] = pick(each.not_valid_after_utc.timestamp() for each in found)


def _mark(path: str) -> Mark:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def server_context(files: PemFiles, clients: ssl.VerifyMode) -> ssl.SSLContext:
    """Of a server's end. TLS 1.2 and later; nobody renegotiates, or resumes what a change of files has ended.

    Args:
        clients: whether clients show a certificate, which is then checked.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2", "http/1.1"])  # gRPC clients in Java and Go insist on it
    context.options |= ssl.OP_NO_TICKET | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0
    context.verify_mode = clients
    files.fill(context)
    return context


def client_context(files: PemFiles, *, verify: bool, verify_host: bool) -> ssl.SSLContext:
    """Of a client's end. Without trusted certificates of one's own those of the system are trusted."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = verify and verify_host
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    if verify and not files.trusted:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    files.fill(context)
    return context


def _context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    return context


# A certificate authority of one's own, and what it issues: P-256, made in memory.


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
