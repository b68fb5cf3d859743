"""Answers over HTTP that are made piece by piece: the loop is free between two pieces, and no piece waits in memory."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

STREAM_S: Final = 30.0  # for the peer to take all of an answer


@dataclass(slots=True, kw_only=True)
class StreamedPage:
    """A page that is made while it is sent.

    Attributes:
        kind: its content type.
        begin: makes the pieces, in slices of a few milliseconds each; an empty one lets the loop free, too.
        most: so many are sent at the same time; further requests get 503.
        running: so many are being sent.
    """

    kind: str
    begin: Callable[[], Iterator[bytes]]
    most: int = 2
    running: int = 0


class PageStream:
    """One answer on its way.

    Args:
        write: takes the pieces, which are not empty. abort: it breaks off: the peer takes too long, or a piece cannot be made.
        done: all of it is written.
    """

    def __init__(
        self,
        page: StreamedPage,
        write: Callable[[bytes], None],
        abort: Callable[[], None],
        done: Callable[[], None],
    ) -> None:
        self._page = page
        self._write = write
        self._abort = abort
        self._done = done
        self._pieces = page.begin()
        self._open = True
        self._paused = False
        self._waiting = False
        page.running += 1
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(STREAM_S, abort)
        self._go_on()

    def _go_on(self) -> None:
        self._waiting = True
        asyncio.get_running_loop().call_soon(self._step)

    def _step(self) -> None:
        self._waiting = False
        if not self._open or self._paused:
            return
        whole = False
        try:
            piece = next(self._pieces, None)
            whole = True
        finally:
            if not whole:  # a defect: the peer must not take a part for all
                self._abort()
        if piece is None:
            self.close()
            self._done()
            return
        if piece:
            self._write(piece)
        self._go_on()

    def pause(self) -> None:
        """The peer does not take what was written."""
        self._paused = True

    def resume(self) -> None:
        """It does again."""
        self._paused = False
        if self._open and not self._waiting:
            self._go_on()

    def close(self) -> None:
        """It is over, or its connection is."""
        if self._open:
            self._open = False
            self._page.running -= 1
            self._timer.cancel()
