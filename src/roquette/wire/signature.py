"""The signature of a request, as Apache's AclSigner makes it: HMAC-SHA1 over the values of its ext fields and its body."""

import hmac
from binascii import b2a_base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from roquette.errors import ConfigError
from roquette.wire.header_codec import ext_dict

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"
PROOF: Final = "roquetteProof"
Prove = Callable[[bytes, int, dict[str, str], bytes], str]
"""Takes secret, code, ext fields and body of a request; gives the value of its field `PROOF`."""

_quote = msgspec.json.Encoder().encode
_decode_text = msgspec.json.Decoder(dict[str, str]).decode


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who a client is: a user's name and secret. The secret is in no text that is made of this value.

    Attributes:
        access_key: the user's name. secret_key: its password. security_token: of a temporary secret, or empty.

    Raises:
        ConfigError: a name without a secret, or a secret without a name.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not self.access_key or not self.secret_key:
            raise ConfigError(
                "credentials are an access key and a secret key: one of them is empty"
            )


def ext_fields(ext: bytes | msgspec.Raw) -> dict[str, str]:
    """All ext fields of a request as text; raises BadHeader."""
    if not ext:
        return {}
    try:
        return _decode_text(ext)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ext_dict(msgspec.Raw(ext))


def signature(secret: bytes, fields: dict[str, str], body: bytes) -> bytes:
    """The signature, base64, over the values of `fields` in the order of their names, and `body`.

    `SIGNATURE` itself is left out.
    """
    return _mark(secret, signed_content(fields, body))


def signed_content(fields: dict[str, str], body: bytes) -> bytes:
    """What a signature covers: neither the request's code nor where a value ends and another begins."""
    values = [fields[name] for name in sorted(fields) if name != SIGNATURE]
    content = "".join(values).encode("utf-8", "replace")
    return content + body if body else content


def signs(given: str, secret: bytes, content: bytes) -> bool:
    """Whether `given` is the signature over `signed_content`; the time it takes says nothing of where it differs."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), _mark(secret, content))


def _mark(secret: bytes, content: bytes) -> bytes:
    return b2a_base64(hmac.digest(secret, content, "sha1"), newline=False)


class Signer:
    """Says with each request who sends it: signs with one user's secret, if there is one, and names a namespace.

    Args:
        namespace: goes into the fields `ns` and `nsd`, as from Apache's NamespaceRpcHook; "": none does.
        prove: what a server adds to what it signs (wire/proof.py); None: nothing.
    """

    __slots__ = ("_access_key", "_named", "_prove", "_secret", "_tail", "_token")

    def __init__(
        self, credentials: Credentials | None, namespace: str = "", prove: Prove | None = None
    ) -> None:
        self._prove = prove
        self._named = b'"ns":%b,"nsd":"true"}' % _quote(namespace) if namespace else b""
        self._secret: bytes | None = None
        if credentials is None:
            return
        self._access_key = credentials.access_key
        self._token = credentials.security_token
        self._secret = credentials.secret_key.encode()
        tail = b'"%b":%b' % (ACCESS_KEY.encode(), _quote(self._access_key))
        if self._token:
            tail += b',"%b":%b' % (SECURITY_TOKEN.encode(), _quote(self._token))
        self._tail = tail + b',"%b":"' % SIGNATURE.encode()

    def sign(self, ext: bytes, body: bytes, code: int = 0) -> bytes:
        """The ext fields, a JSON object or empty, with the namespace, the user's name and the signature."""
        if self._named:
            ext = (ext[:-1] + b"," if len(ext) > 2 else b"{") + self._named
        if self._secret is None:
            return ext
        fields = ext_fields(ext)
        start = ext[:-1] + b"," if fields else b"{"
        fields[ACCESS_KEY] = self._access_key
        if self._token:
            fields[SECURITY_TOKEN] = self._token
        if self._prove is not None:
            proof = self._prove(self._secret, code, fields, body)
            fields[PROOF] = proof
            start += b'"%b":%b,' % (PROOF.encode(), _quote(proof))
        return b'%b%b%b"}' % (start, self._tail, signature(self._secret, fields, body))
