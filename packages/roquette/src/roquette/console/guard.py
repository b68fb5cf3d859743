"""Who may ask at all: host, origin, rate, and what browsers may do with our pages. Pure ASGI, before every route."""

import ipaddress
from collections.abc import Callable, Iterable
from typing import Any, Final

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=(), payment=()"),
)
SAFE: Final = ("GET", "HEAD")
LOOPBACK: Final = frozenset(("127.0.0.1", "localhost", "[::1]"))
LIVE: Final = "roquette-live"
RATE: Final = 20.0
"""Requests a second of one address, beyond the live parts of pages; so many at once after a pause."""
MOST_ADDRESSES: Final = 4096

Message = dict[str, Any]


class PageGuard:
    """Refuses other hosts (DNS rebinding), requests that another site caused (CSRF), and more requests than a person makes.

    Args:
        hosts: names under which the console is known.
        proxies: networks whose X-Forwarded-For, -Proto and -Host are believed.
        time: seconds, steady.
    """

    def __init__(
        self,
        app: Any,
        hosts: Iterable[str],
        *,
        read_only: bool,
        time: Callable[[], float],
        proxies: Iterable[str] = (),
    ) -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._read_only = read_only
        self._proxies = [ipaddress.ip_network(each) for each in proxies]
        self._time = time
        self._left: dict[str, tuple[float, float]] = {}

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        self._believe(scope, headers)
        why = self._refusal(scope, headers)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *HEADERS]}
            await send(message)

        if why is None:
            await self._app(scope, receive, guarded)
            return
        status, words = why
        head = [(b"content-type", b"text/plain; charset=utf-8")]
        await guarded({"type": "http.response.start", "status": status, "headers": head})
        await guarded({"type": "http.response.body", "body": f"{words}\n".encode()})

    def _believe(self, scope: Message, headers: dict[bytes, str]) -> None:
        """Take the browser's address, host and scheme from a proxy that we were told of."""
        if not self._proxies or scope.get("client") is None:
            return
        try:
            address = ipaddress.ip_address(scope["client"][0])
        except ValueError:
            return
        if not any(address in network for network in self._proxies):
            return
        if forwarded := headers.get(b"x-forwarded-for"):
            scope["client"] = (forwarded.rpartition(",")[2].strip(), 0)
        if headers.get(b"x-forwarded-proto") == "https":
            scope["scheme"] = "https"
        if host := headers.get(b"x-forwarded-host"):
            headers[b"host"] = host

    def _refusal(self, scope: Message, headers: dict[bytes, str]) -> tuple[int, str] | None:
        host = headers.get(b"host", "")
        name, _, port = host.rpartition(":")
        name = name if port.isdigit() and name else host
        if name.lower() not in self._hosts:
            return (
                421,
                f"this console is not known as {name[:100]!r}: start it with --host {name[:100]}",
            )
        if LIVE.encode() not in headers and not self._within_rate(scope):
            return 429, f"more than {RATE:.0f} requests a second: wait a moment"
        if scope["method"] in SAFE:
            return None
        if self._read_only and not scope["path"].startswith("/sign-"):
            return 403, "this console is read-only"
        site = headers.get(b"sec-fetch-site")
        if site is not None:
            return (
                None
                if site in ("same-origin", "none")
                else (403, "another site caused this request")
            )
        if headers.get(b"origin", "").partition("://")[2] != host:
            return 403, "another origin caused this request"
        return None

    def _within_rate(self, scope: Message) -> bool:
        address, now = (scope.get("client") or ("", 0))[0], self._time()
        left, at = self._left.pop(address, (3 * RATE, now))
        left = min(3 * RATE, left + (now - at) * RATE)
        self._left[address] = (max(0.0, left - 1), now)
        if len(self._left) > MOST_ADDRESSES:
            del self._left[next(iter(self._left))]
        return left >= 1
