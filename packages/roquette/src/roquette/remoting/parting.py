"""The end of a connection whose peer shall read a last word."""

import asyncio
from collections.abc import Callable
from typing import Final

PARTING_S: Final = 3.0  # for the peer to read it and to close
MOST_IGNORED: Final = 65_536  # bytes that may still come


def part(transport: asyncio.Transport, word: bytes, gone: Callable[[], None]) -> None:
    """Send a last word and read no more. To close at once would reset the connection where bytes are unread, and the
    word with it. `gone` is called when it has ended."""
    transport.set_protocol(_Parting(transport, gone))
    transport.write(word)
    if transport.can_write_eof():
        transport.write_eof()
    else:
        transport.close()


class _Parting(asyncio.Protocol):
    def __init__(self, transport: asyncio.Transport, gone: Callable[[], None]) -> None:
        self._transport = transport
        self._gone = gone
        self._ignored = 0
        self._timer = asyncio.get_running_loop().call_later(PARTING_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        self._ignored += len(data)
        if self._ignored > MOST_IGNORED:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._gone()
