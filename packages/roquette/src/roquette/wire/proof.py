"""Proof that a server of ours adds to the requests that it signs, since Apache's signature covers neither code nor field names:
who gets such a request could let it serve for another one.

The mark is part of what is signed, wherever a forger moves it: a receiver of ours that finds it takes the request only with a
proof of this code, these fields, this body, this address and this moment, and once. Others see one more field.
"""

import hmac
from collections.abc import Callable
from typing import Final

from roquette.wire.signature import PROOF, SIGNATURE

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
        said = f"{MARK}{self._now_ms()}|{self._life}|{self._number}|{address}"
        return f"{said}|{_mac(secret, said, code, fields, body)}"


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
        said, _, mac = fields.get(PROOF, "").rpartition("|")
        wanted = _mac(secret, said, code, fields, body)
        if not hmac.compare_digest(wanted.encode(), mac.encode("utf-8", "replace")):
            return "it was signed as another request"
        at, life, number, address = said.removeprefix(MARK).split("|")
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


def _mac(secret: bytes, said: str, code: int, fields: dict[str, str], body: bytes) -> str:
    parts = [said.encode(), b"%d" % code]
    for name in sorted(fields):
        if name not in (PROOF, SIGNATURE):
            parts += [name.encode("utf-8", "replace"), fields[name].encode("utf-8", "replace")]
    parts.append(body)
    content = b"".join(b"%d:%b" % (len(part), part) for part in parts)
    return hmac.digest(secret, content, "sha256").hex()
