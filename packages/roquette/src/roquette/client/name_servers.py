"""Name servers that a client asks: a list it is given, or one that it looks up, over HTTP or DNS, again and again.

Apache: TopAddressing, MQClientAPIImpl.fetchNameServerAddr.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Final
from urllib.parse import urlsplit

from roquette.base.clock import Clock
from roquette.base.entropy import Entropy
from roquette.base.javatypes import whole_number
from roquette.base.lifecycle import Tasks
from roquette.errors import ConfigError, ConnectError, RemoteProtocolError
from roquette.remoting.address import addresses_of
from roquette.remoting.etcd import connect_http

log = logging.getLogger("roquette.client")

RENEW_S: Final = 120.0  # how often a list is looked up
DEFAULT_PATH: Final = "/rocketmq/nsaddr"
DEFAULT_PORT: Final = 9876
MOST: Final = 64  # name servers that one look-up may give
_LOOK_UP_S: Final = 3.0
_PAUSE_MS: Final = 1_000  # between two look-ups that failures ask for

LookUp = Callable[[], Coroutine[None, None, list[str]]]
"""Finds addresses; raises OSError, EOFError or RemoteProtocolError."""


def parse_name_servers(text: str) -> list[str]:
    """ "host:port;host:port" (or with commas, or a rocketmq:// prefix) -> addresses; raises ConfigError."""
    words = [
        word.strip().removeprefix("rocketmq://").rstrip("/")
        for word in text.replace(",", ";").split(";")
    ]
    found = [word for word in words if word]
    for word in found:
        host, _, port = word.rpartition(":")
        if not host or whole_number(port, 65_535) < 1 or "/" in host:
            raise ConfigError(f"name server address {word!r} is not of the form host:port")
    if not found:
        raise ConfigError(
            "no name server address is given: pass 'host:port;host:port' or set NAMESRV_ADDR"
        )
    return found


class NameServers:
    """The name servers of one client, and which of them is asked now.

    Args:
        text: "host:port;host:port", or where such a list is found: "http://host:port/path", "dns://name:port".

    Raises:
        ConfigError: the text is none of these.
    """

    def __init__(self, text: str, clock: Clock, entropy: Entropy, tasks: Tasks) -> None:
        self.source = text.strip()
        self._look_up = _look_up_of(self.source)
        self.addresses = [] if self._look_up is not None else parse_name_servers(text)
        self._current = entropy.below(len(self.addresses) or MOST)
        self._clock = clock
        self._tasks = tasks
        self._looking: asyncio.Task[bool] | None = None
        self._looked_ms: int | None = None
        self.failed = ""

    @property
    def changes(self) -> bool:
        """True if the list is looked up."""
        return self._look_up is not None

    def current(self) -> str | None:
        """The one to ask; None while none is known."""
        return self.addresses[self._current % len(self.addresses)] if self.addresses else None

    def leave(self, address: str) -> None:
        """It failed: ask the next one, unless another caller has moved on already."""
        if self.current() == address:
            self._current += 1

    async def renew(self, *, now: bool = False) -> bool:
        """Look the list up, not more often than each second unless `now`; whether there is another one.

        The old one stays when nobody answers: `failed` says why. Callers share one look-up.
        """
        if self._look_up is None:
            return False
        if self._looking is None:
            early = (
                self._looked_ms is not None
                and self._clock.steady_ms() - self._looked_ms < _PAUSE_MS
            )
            if early and not now:
                return False
            self._looking = self._tasks.start("name-servers", self._renew(self._look_up))
            self._looking.add_done_callback(self._looked)
        return await asyncio.shield(self._looking)

    def _looked(self, looking: "asyncio.Task[bool]") -> None:
        self._looking = None
        self._looked_ms = self._clock.steady_ms()

    async def _renew(self, look_up: LookUp) -> bool:
        try:
            async with asyncio.timeout(_LOOK_UP_S):
                found = await look_up()
        except (OSError, EOFError, TimeoutError, RemoteProtocolError) as error:
            self.failed = f"{self.source} gives no name servers: {error or type(error).__name__}"
            log.warning("%s; known now=%s", self.failed, ";".join(self.addresses) or "none")
            return False
        self.failed = ""
        if sorted(found) == sorted(self.addresses):
            return False
        self.addresses = found
        log.info("name servers from=%s now=%s", self.source, ";".join(self.addresses))
        return True

    def unreachable(self, last: BaseException | None) -> ConnectError:
        """Return the error to raise when none answers."""
        if not self.addresses:
            return ConnectError(self.failed or f"{self.source} was not asked for name servers yet")
        return ConnectError(f"no name server of {';'.join(self.addresses)} can be reached: {last}")


def _look_up_of(text: str) -> LookUp | None:
    """Return the look-up that a text asks for; None: it is a list. Raises ConfigError."""
    scheme, mark, _ = text.partition("://")
    if not mark or scheme not in ("http", "https", "dns"):
        return None
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    good = host and port != 0 and parts.username is None and not parts.fragment
    if scheme == "http" and good:
        path = parts.path if parts.path not in ("", "/") else DEFAULT_PATH
        if parts.query:
            path += f"?{parts.query}"
        if path.isascii() and path.isprintable() and " " not in path:
            return lambda: _from_http(host or "", port or 80, path)
    if scheme == "dns" and good and parts.path in ("", "/") and not parts.query:
        return lambda: _from_dns(host or "", port or DEFAULT_PORT)
    raise ConfigError(
        f"name servers {text!r:.200} are neither host:port;host:port nor http://host:port/path nor dns://name:port"
    )


async def _from_http(host: str, port: int, path: str) -> list[str]:
    """Ask an address server for its list: one line, "host:port;host:port"."""
    connection = await connect_http(host, port, None)
    try:
        answer = await connection.get(path)
    finally:
        connection.abort()
    if answer.status != 200:
        raise RemoteProtocolError(f"it answers with status {answer.status}")
    text = answer.body.decode("utf-8", "replace").strip()
    line = text.splitlines()[0] if text else ""
    try:
        return _bounded(parse_name_servers(line))
    except ConfigError:
        raise RemoteProtocolError(f"it answers {line[:80]!r}, not host:port;host:port") from None


async def _from_dns(name: str, port: int) -> list[str]:
    return _bounded(await addresses_of(name, port))


def _bounded(found: list[str]) -> list[str]:
    if len(found) > MOST:
        raise RemoteProtocolError(f"it names {len(found)} name servers, more than {MOST}")
    return found
