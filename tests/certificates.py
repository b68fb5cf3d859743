"""Certificate authorities and certificates for tests, made by `cryptography` (part of the extra `dev`).

ca = make_ca(tmp_path)
pair = issue(ca, ["localhost", "127.0.0.1"])
context.load_cert_chain(pair.cert, pair.key)
context.load_verify_locations(ca.cert)
"""

import dataclasses
import ipaddress
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Pair(NamedTuple):
    """The PEM files of a certificate and of its key."""

    cert: Path
    key: Path


@dataclasses.dataclass(frozen=True)
class Authority:
    """Who issues. cert: its own certificate's PEM file, what others trust; its key is beside it."""

    directory: Path
    cert: Path
    key: Path
    name: x509.Name
    signing_key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    issued: list[Pair] = dataclasses.field(default_factory=list)


def make_ca(
    directory: Path, name: str = "test-ca", *, issuer: Authority | None = None
) -> Authority:
    """An authority in `directory` (`<name>.pem`, `<name>.key`); with `issuer` one below another."""
    directory.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    signer = key if issuer is None else issuer.signing_key
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    cert, key_file = directory / f"{name}.pem", directory / f"{name}.key"
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    _write_key(key_file, key, b"", pkcs1=False)
    return Authority(directory, cert, key_file, subject, key, made)


def issue(
    ca: Authority,
    hosts: list[str],
    days: float = 30,
    *,
    client: bool = False,
    both: bool = False,
    starts_in_days: float = -1,
    password: str = "",
    pkcs1: bool = False,
    rsa_key: bool = False,
    name: str = "",
) -> Pair:
    """A certificate for hosts (names or addresses; the first is its common name) and its key.

    Args:
        days: from now until it ends; less than 0 is expired.
        client: for the client's end instead of the server's. both: for either.
        starts_in_days: from now; more than 0 is not yet valid.
        password: encrypts the key. pkcs1: the key in its traditional form, not PKCS#8.
        rsa_key: RSA with 2048 bits (slow to make) instead of P-256.
        name: of the files, in the authority's directory.
    """
    key: Key = (
        rsa.generate_private_key(public_exponent=65537, key_size=2048)
        if rsa_key
        else ec.generate_private_key(ec.SECP256R1())
    )
    now = datetime.now(UTC)
    ends = now + timedelta(days=days)
    starts = min(now + timedelta(days=starts_in_days), ends - timedelta(days=1))
    use = [ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH]
    if both:
        use = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(ca.name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(starts)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(use), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general(host) for host in hosts]), False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.signing_key.public_key()),
            critical=False,
        )
        .sign(ca.signing_key, hashes.SHA256())
    )
    stem = name or f"{'client' if client else 'server'}-{len(ca.issued) + 1}"
    pair = Pair(ca.directory / f"{stem}.pem", ca.directory / f"{stem}.key")
    pair.cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    _write_key(pair.key, key, password.encode(), pkcs1=pkcs1)
    ca.issued.append(pair)
    return pair


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _write_key(path: Path, key: Key, password: bytes, *, pkcs1: bool) -> None:
    form = (
        serialization.PrivateFormat.TraditionalOpenSSL
        if pkcs1
        else serialization.PrivateFormat.PKCS8
    )
    sealing: serialization.KeySerializationEncryption = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    data = key.private_bytes(serialization.Encoding.PEM, form, sealing)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
