"""Certificates in files: what is wrong is said with the file and the reason, changes are followed."""

import os
import ssl
from pathlib import Path

import pytest
from tests.certificates import issue, make_ca

from roquette.errors import ConfigError
from roquette.remoting.pem import (
    LOOK_MS,
    FollowedContext,
    PemFiles,
    client_context,
    server_context,
)


def files(cert: object = "", key: object = "", **more: str) -> PemFiles:
    return PemFiles(owner="tls.server", certificate=str(cert), key=str(key), **more)


def refusal(given: PemFiles) -> str:
    with pytest.raises(ConfigError) as caught:
        server_context(given, ssl.CERT_NONE)
    return str(caught.value)


@pytest.mark.parametrize("pkcs1", [False, True])
@pytest.mark.parametrize("password", ["", "geheim"])
@pytest.mark.parametrize("rsa_key", [False, True])
def test_keys_of_all_forms_are_read(
    tmp_path: Path, pkcs1: bool, password: str, rsa_key: bool
) -> None:
    pair = issue(make_ca(tmp_path), ["a"], pkcs1=pkcs1, password=password, rsa_key=rsa_key)

    server_context(files(pair.cert, pair.key, key_password=password), ssl.CERT_NONE)


def test_certificate_and_key_may_be_one_file(tmp_path: Path) -> None:
    pair = issue(make_ca(tmp_path), ["a"])
    both = tmp_path / "both.pem"
    both.write_bytes(pair.key.read_bytes() + pair.cert.read_bytes())

    server_context(files(both), ssl.CERT_NONE)
    server_context(files(both, both), ssl.CERT_NONE)


def test_what_is_wrong_with_a_file_is_said_with_its_name(tmp_path: Path) -> None:
    ca = make_ca(tmp_path)
    one, other = issue(ca, ["a"]), issue(ca, ["a"])
    sealed = issue(ca, ["a"], password="geheim")
    absent = tmp_path / "absent.pem"

    def holding(data: bytes) -> Path:
        path = tmp_path / "strange.pem"
        path.write_bytes(data)
        return path

    der = ssl.PEM_cert_to_DER_cert(one.cert.read_text())
    cases = [
        (files(absent, one.key), absent, "No such file"),
        (files(one.cert, absent), absent, "No such file"),
        (files(tmp_path, one.key), tmp_path, "directory"),
        (files(one.key, one.key), one.key, "it holds a key, and no certificate"),
        (files(one.cert, one.cert), one.cert, "it holds a certificate, and no key"),
        (files(one.cert), one.cert, "it holds a certificate, and no key"),
        (files(one.cert, other.key), other.key, "does not belong to the certificate"),
        (files(sealed.cert, sealed.key), sealed.key, "encrypted, and no password"),
        (files(sealed.cert, sealed.key, key_password="x"), sealed.key, "does not open the key"),
        (files(one.cert, one.key, trusted=str(one.key)), one.key, "no certificate"),
        (files("", one.key), one.key, "without its certificate"),
        (files(holding(der), one.key), "strange.pem", "binary"),
    ]
    for given, name, why in cases:
        text = refusal(given)
        assert str(name) in text and why in text and "geheim" not in text, text
    for data, why in [
        (b"", "empty"),
        (b"\xfe\xed\xfe\xed\0\0", "Java key store"),
        (b"hello", "no PEM file"),
        (b"-----BEGIN CERTIFICATE REQUEST-----\n", "yet to sign"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cannot be used"),
    ]:
        assert why in refusal(files(holding(data), one.key)), data
    ssh = holding(b"-----BEGIN OPENSSH PRIVATE KEY-----\n")
    assert "SSH" in refusal(files(one.cert, ssh))
    assert "geheim" not in repr(files("a", "b", key_password="geheim"))


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.ms = 5_000

    def now_ms(self) -> int:
        return self.ms

    def steady_ms(self) -> int:
        return self.ms

    def lease_ms(self) -> int:
        return self.ms


def test_a_changed_pair_is_read_again_and_a_broken_one_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ca, clock = make_ca(tmp_path), Hand()
    pair = issue(ca, ["a"], name="one")
    given = files(pair.cert, pair.key)
    followed = FollowedContext(
        lambda: server_context(given, ssl.CERT_NONE), given.paths, clock, "tls.server"
    )
    first = followed.get()
    clock.ms += LOOK_MS
    assert followed.get() is first

    pair.cert.write_text("no certificate")
    assert followed.get() is first  # not looked at yet
    for _ in range(3):
        clock.ms += LOOK_MS
        assert followed.get() is first
    told = [r.getMessage() for r in caplog.records if "not taken" in r.getMessage()]
    assert len(told) == 1 and str(pair.cert) in told[0]

    issue(ca, ["a"], name="one")  # the other way to change: both files anew
    os.utime(pair.cert, ns=(1, 1))
    clock.ms += LOOK_MS
    second = followed.get()
    assert second is not first
    pair.cert.unlink()
    clock.ms += LOOK_MS
    assert followed.get() is second


def test_what_could_never_be_read_is_tried_again(tmp_path: Path) -> None:
    clock, ca = Hand(), make_ca(tmp_path)
    given = files(tmp_path / "late.pem", tmp_path / "late.key")
    followed = FollowedContext(
        lambda: server_context(given, ssl.CERT_NONE), given.paths, clock, "tls.server"
    )
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"late\.pem cannot be read"):
            followed.get()
    issue(ca, ["a"], name="late")
    with pytest.raises(ConfigError):
        followed.get()
    clock.ms += LOOK_MS
    followed.get()


def test_a_clients_context_verifies_unless_told_not_to(tmp_path: Path) -> None:
    ca = make_ca(tmp_path)
    trusting = PemFiles(owner="c", trusted=str(ca.cert))
    context = client_context(trusting, verify=True, verify_host=True)
    assert context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname
    assert [cert["subject"] for cert in context.get_ca_certs()] == [((("commonName", "test-ca"),),)]
    context = client_context(trusting, verify=True, verify_host=False)
    assert context.verify_mode is ssl.CERT_REQUIRED and not context.check_hostname
    context = client_context(PemFiles(owner="c"), verify=False, verify_host=True)
    assert context.verify_mode is ssl.CERT_NONE
    for made in (context, server_context(_pair(tmp_path), ssl.CERT_NONE)):
        assert made.minimum_version is ssl.TLSVersion.TLSv1_2


def _pair(directory: Path) -> PemFiles:
    pair = issue(make_ca(directory, "other"), ["a"])
    return files(pair.cert, pair.key)
