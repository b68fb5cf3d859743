"""Objects of a client that begin and end: consumers, streams, popped messages, readers."""

from collections.abc import Generator
from types import TracebackType
from typing import Any, Self


class Opened:
    """`async with` begins it and ends it; `await` begins it and leaves its end to `close`, or to the client's."""

    async def start(self) -> None:
        """Begin; may be called twice."""

    async def close(self) -> None:
        """End it; may be called twice."""
        raise NotImplementedError

    async def _entered(self) -> Self:
        await self.start()
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self._entered().__await__()

    async def __aenter__(self) -> Self:
        return await self._entered()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
