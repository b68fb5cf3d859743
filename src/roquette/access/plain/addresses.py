"""The white lists of ACL 1.0: addresses with '*', ranges and braces, as Apache's RemoteAddressStrategyFactory has them.

`10.1.2.3`, `10.1.2.*`, `10.1.2-9.*`, `10.1.2.{4,5}`, `10.1.2.3,10.9.9.9`, `2001:db8::{1,2}`, `2001:db8::1-ff`,
`2001:db8:0:7:*`, and `*`, which is every address. Networks such as 10.0.0.0/8 are not of this grammar. Each part means
what it says: Apache ignores all that follows the first '*' or range of an address, which lets in more than is written.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

Parts = tuple[int, ...]  # four of IPv4, eight of IPv6
_Range = tuple[tuple[int, int], ...]

KEPT: Final = 1_024  # addresses that were asked for, with what was answered
_EVERY: Final = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
_OCTET: Final = re.compile(r"[0-9]{1,3}")
_GROUP: Final = re.compile(r"[0-9A-Fa-f]{1,4}")


def parts_of(ip: str) -> Parts | None:
    """The numbers of an address; None: it is none. An IPv4 address that is written as IPv6 is the IPv4 address."""
    if ":" not in ip:
        octets = ip.split(".")
        if len(octets) != 4 or not all(_OCTET.fullmatch(octet) for octet in octets):
            return None
        parts = tuple(map(int, octets))
        return parts if max(parts) < 256 else None
    try:
        address = ipaddress.IPv6Address(ip.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped
    if mapped is not None:
        return tuple(mapped.packed)
    packed = address.packed
    return tuple(packed[i] << 8 | packed[i + 1] for i in range(0, 16, 2))


class Addresses:
    """A white list. An empty one has no address in it.

    Raises:
        ValueError: a text is no address of this grammar; it says which, and what would be.
    """

    __slots__ = ("_every", "_exact", "_ranges", "has", "texts")

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.texts: tuple[str, ...] = tuple(str(text) for text in texts if text.strip())
        self._every = any(text in _EVERY for text in self.texts)
        found = [one for text in self.texts if text not in _EVERY for one in _meant(text)]
        self._exact = frozenset(tuple(low for low, _ in one) for one in found if _single(one))
        self._ranges = tuple(one for one in found if not _single(one))
        self.has: Callable[[str], bool] = lru_cache(KEPT)(self._has)

    def __bool__(self) -> bool:
        return bool(self.texts)

    def _has(self, ip: str) -> bool:
        """Whether an address is in the list; a text that is none is in no list."""
        if not self.texts:
            return False
        parts = parts_of(ip)
        if parts is None:
            return False
        return self._every or parts in self._exact or any(_in(parts, one) for one in self._ranges)


def _meant(text: str) -> list[_Range]:
    if text.endswith("}"):
        head, brace, inner = text[:-1].partition("{")
        if not brace or not head.endswith((".", ":")) or "{" in inner:
            raise _unfit(text)
        return [_one(head + last, text) for last in inner.split(",")]
    if "," in text and ("*" in text or "-" in text):
        raise _unfit(text)
    return [_one(one, text) for one in text.split(",")]


def _one(one: str, text: str) -> _Range:
    exact = parts_of(one)
    if exact is not None:
        return tuple((part, part) for part in exact)
    if "*" not in one and "-" not in one:
        raise _unfit(text)
    return _ranged(one, text)


def _single(ranges: _Range) -> bool:
    return all(least == most for least, most in ranges)


def _in(parts: Parts, ranges: _Range) -> bool:
    return len(parts) == len(ranges) and all(
        least <= part <= most for part, (least, most) in zip(parts, ranges)
    )


def _ranged(one: str, text: str) -> _Range:
    if ":" not in one:
        words = [word.strip() for word in one.split(".")]
        if len(words) != 4 or not words[0].isdecimal():
            raise _unfit(text)
        return tuple(_bounds(word, text, _OCTET, 10, 255) for word in words)
    head, gap, tail = one.partition("::")
    if "::" in tail:
        raise _unfit(text)
    before = head.split(":") if head else []
    after = tail.split(":") if tail else []
    missing = 8 - len(before) - len(after)
    words = before + after
    if any("*" in word for word in words[:-1]) or any("-" in word for word in words[:-2]):
        raise _unfit(text)
    if missing < 0 or (gap and missing == 0):
        raise _unfit(text)
    if gap:
        words = [*before, *["0"] * missing, *after]
    elif missing and words[-1] == "*":
        words += ["*"] * missing  # Apache compares no further than to the '*'
    elif missing:
        raise _unfit(text)
    return tuple(_bounds(word, text, _GROUP, 16, 0xFFFF) for word in words)


def _bounds(word: str, text: str, form: re.Pattern[str], base: int, most: int) -> tuple[int, int]:
    if word == "*":
        return 0, most
    first, dash, last = word.partition("-")
    if not form.fullmatch(first) or (dash and not form.fullmatch(last)):
        raise _unfit(text)
    least, highest = int(first, base), int(last if dash else first, base)
    if not least <= highest <= most:
        raise _unfit(text)
    return least, highest


def _unfit(text: str) -> ValueError:
    return ValueError(
        f"{text[:80]!r} is no address: write one as 10.1.2.3, 10.1.2.*, 10.1.2.1-9, 10.1.2.{{1,2}}, 10.1.2.3,10.1.2.4, "
        "2001:db8::1, 2001:db8::1-ff or *"
    )
