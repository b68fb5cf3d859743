"""The signature of a request, as Apache's AclSigner makes it: HMAC-SHA1 over the values of its ext fields and its body."""

import hmac
from binascii import b2a_base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha1
from hmac import compare_digest
from typing import Final

import msgspec
from msgspec.structs import astuple

from roquette.errors import ConfigError
from roquette.wire.header_codec import NOT_FAST, ext_dict

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"
PROOF: Final = "roquetteProof"
Prove = Callable[[bytes, int, dict[str, str], bytes], str]
"""Takes secret, code, ext fields and body of a request; gives the value of its field `PROOF`."""

MOST_KEYS: Final = 1_000  # ready to sign; others are made again
MOST_NAMES: Final = 48  # of one kind of request
LONGEST_NAME: Final = 64
_BLOCK: Final = 64  # of SHA-1, bytes
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))  # RFC 2104
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))

_quote = msgspec.json.Encoder().encode
_decode_text = msgspec.json.Decoder(dict[str, str]).decode


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials of a client: a user's name and secret. The secret is in no text that is made of this value.

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


def ext_fields(ext: bytes) -> dict[str, str]:
    """All ext fields of a request as text; raises BadHeader."""
    if not ext:
        return {}
    try:
        return _decode_text(ext)
    except NOT_FAST:
        return ext_dict(ext)


def signature(secret: bytes, fields: dict[str, str], body: bytes) -> bytes:
    """The signature, base64, over the values of `fields` in the order of their names, and `body`.

    `SIGNATURE` itself is left out.
    """
    return _key(secret).mark(signed_content(fields, body))


def signed_content(fields: dict[str, str], body: bytes) -> bytes:
    """Return the bytes a signature covers: neither the request's code nor where a value ends and another begins."""
    values = [fields[name] for name in sorted(fields) if name != SIGNATURE]
    content = "".join(values).encode("utf-8", "replace")
    return content + body if body else content


class SignedNames:
    """Reads requests whose ext fields have these names and no others: their values come in the order in which they are signed.

    That takes half the time of a dict and its sorting. A field that is not there is an empty text: it adds nothing to what is signed.
    """

    __slots__ = ("_account", "_decode", "names")

    def __init__(self, names: frozenset[str]) -> None:
        signed = sorted(names - {SIGNATURE})
        places = {f"f{place}": name for place, name in enumerate([*signed, SIGNATURE])}
        fields = [(place, str, "") for place in places]
        kind = msgspec.defstruct(
            "Signed", fields, rename=places, forbid_unknown_fields=True, gc=False
        )
        self.names = names
        self._decode = msgspec.json.Decoder(kind).decode
        self._account = signed.index(ACCESS_KEY)

    def read(self, ext: bytes, body: bytes) -> tuple[str, str, bytes] | None:
        """The user's name, the signature and what is signed, or "" where one is not there; None: `ext_fields` must read it."""
        try:
            *signed, given = astuple(self._decode(ext))
        except NOT_FAST:
            return None
        content = "".join(signed).encode("utf-8", "replace")
        return signed[self._account], given, content + body if body else content


def more_names(known: SignedNames | None, names: Iterable[str]) -> SignedNames | None:
    """Reads these names, too; the same as before when they would be too many, or no client of anybody's has them."""
    found = frozenset(names) | {ACCESS_KEY, SIGNATURE} | (known.names if known else frozenset())
    usual = all(name.isidentifier() and len(name) <= LONGEST_NAME for name in found)
    return SignedNames(found) if usual and len(found) <= MOST_NAMES else known


def signs(given: str, secret: bytes, content: bytes) -> bool:
    """Return True if `given` is the signature over `signed_content`; the time it takes says nothing of where it differs."""
    return compare_digest(given.encode("utf-8", "replace"), _key(secret).mark(content))


class _Key:
    """A secret as HMAC-SHA1 takes it: what is the same for all texts is computed once. `hmac.digest` takes 2.5 times as long."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret: bytes) -> None:
        short = secret if len(secret) <= _BLOCK else sha1(secret).digest()
        block = short.ljust(_BLOCK, b"\0")
        self._inner = sha1(block.translate(_INNER))
        self._outer = sha1(block.translate(_OUTER))

    def mark(self, content: bytes) -> bytes:
        """The signature over `content`, base64."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(content)
        outer.update(inner.digest())
        return b2a_base64(outer.digest(), newline=False)


_key = lru_cache(maxsize=MOST_KEYS)(_Key)


class Signer:
    """Says with each request who sends it: signs with one user's secret, if there is one, and names a namespace.

    Args:
        namespace: goes into the fields `ns` and `nsd`, as from Apache's NamespaceRpcHook; "": none does.
        prove: what a server adds to what it signs (wire/signature.py); None: nothing.
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


# Proof that a server of ours adds to the requests that it signs, since Apache's signature covers neither code nor field names: who gets such a request could let it serve for another one.
# The mark is part of what is signed, wherever a forger moves it: a receiver of ours that finds it takes the request only with a proof of this code, these fields, this body, this address and this moment, and once. Others see one more field.


MARK: Final = "roquette-proof:1:"
WINDOW_MS: Final = 300_000  # what clocks of servers may differ by, and a request may take
WIDTH: Final = 4_096  # numbers of a caller that may overtake each other
MOST_CALLERS: Final = 10_000  # those that were silent longest are forgotten


class Prover:
    """Makes the proofs of one caller.

    Args:
        now_ms: wall time. life: a random name, of this caller alone.
    """

    def __init__(self, now_ms: Callable[[], int], life: str) -> None:
        self._now_ms = now_ms
        self._life = life
        self._number = 0

    def prove(
        self, address: str, secret: bytes, code: int, fields: dict[str, str], body: bytes
    ) -> str:
        """The field `PROOF` of a request to host:port, of all its other fields but the signature."""
        self._number += 1
        claims = f"{MARK}{self._now_ms()}|{self._life}|{self._number}|{address}"
        return f"{claims}|{_mac(secret, claims, code, fields, body)}"


class Proofs:
    """Those that a server has seen. Pure; times are wall ms.

    Attributes:
        addresses: host:port by which callers know this server; None: it is not asked (name servers have any names).
    """

    def __init__(self) -> None:
        self.addresses: frozenset[str] | None = None
        self._seen: dict[
            str, tuple[int, int]
        ] = {}  # caller -> its highest number, bits of those below

    def fault(
        self, secret: bytes, code: int, fields: dict[str, str], body: bytes, now_ms: int, local: str
    ) -> str:
        """Return the reason why a request that holds the mark is not what its signer sent here; "": it is.

        Args:
            local: the address of ours that it came to.
        """
        claims, _, mac = fields.get(PROOF, "").rpartition("|")
        wanted = _mac(secret, claims, code, fields, body)
        if not hmac.compare_digest(wanted.encode(), mac.encode("utf-8", "replace")):
            return "it was signed as another request"
        at, life, number, address = claims.removeprefix(MARK).split("|")
        if self.addresses is not None and address not in self.addresses and address != local:
            return f"it was signed for {address}"
        if abs(now_ms - int(at)) > WINDOW_MS:
            return f"it was signed {(now_ms - int(at)) // 1000} s ago by the clock of this server"
        return "" if self._first(life, int(number)) else "it has come before"

    def _first(self, life: str, number: int) -> bool:
        """Return True if the number is new; one too far below the highest counts as seen."""
        highest, bits = self._seen.pop(life, (number - 1, 0))
        ahead = number - highest
        new = ahead > 0 or (-ahead < WIDTH and not bits >> -ahead & 1)
        if ahead > 0:
            highest, bits = number, (bits << min(ahead, WIDTH) | 1) & (1 << WIDTH) - 1
        elif new:
            bits |= 1 << -ahead
        self._seen[life] = highest, bits
        if len(self._seen) > MOST_CALLERS:
            del self._seen[next(iter(self._seen))]
        return new


def _mac(secret: bytes, claims: str, code: int, fields: dict[str, str], body: bytes) -> str:
    parts = [claims.encode(), b"%d" % code]
    for name in sorted(fields):
        if name not in (PROOF, SIGNATURE):
            parts += [name.encode("utf-8", "replace"), fields[name].encode("utf-8", "replace")]
    parts.append(body)
    content = b"".join(b"%d:%b" % (len(part), part) for part in parts)
    return hmac.digest(secret, content, "sha256").hex()
