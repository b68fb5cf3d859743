"""Just enough of HTTP/1.1 to ask a JSON gateway: one connection, one request at a time, answers bounded in size."""

import asyncio
import ssl
from typing import Final, NamedTuple

from roquette.errors import RemoteProtocolError

MOST_HEAD: Final = 16 << 10  # bytes of status line and headers
MOST_BODY: Final = 1 << 20  # bytes of an answer


class HttpAnswer(NamedTuple):
    """Answer of a server."""

    status: int
    body: bytes


class HttpConnection:
    """A kept connection to one server, made by `connect_http`.

    Attributes:
        usable: another request may be sent on it.
    """

    def __init__(
        self, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._host = host.encode()
        self._reader = reader
        self._writer = writer
        self._kept = True

    @property
    def usable(self) -> bool:
        """True if the server, as far as we know, still listens to it."""
        return self._kept and not self._reader.at_eof() and not self._writer.is_closing()

    async def post(self, path: str, body: bytes, headers: bytes = b"") -> HttpAnswer:
        """Send JSON and wait for the answer; cancelled or failed, the connection is of no use any more.

        Args:
            headers: whole lines.

        Raises:
            OSError, EOFError: it broke. RemoteProtocolError: what came is no answer.
        """
        return await self._ask(
            b"POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s"
            % (path.encode(), self._host, headers, len(body), body)
        )

    async def get(self, path: str) -> HttpAnswer:
        """Ask for what is at a path, on a connection that is used for nothing else. Raises what `post` does."""
        return await self._ask(
            b"GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n"
            % (path.encode(), self._host)
        )

    async def _ask(self, request: bytes) -> HttpAnswer:
        kept, self._kept = self._kept, False
        assert kept, "used while another request is under way"
        self._writer.write(request)
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            status = int(lines[0].split(" ")[1])
            fields = {
                name.strip().lower(): value.strip().lower()
                for name, _, value in (line.partition(":") for line in lines[1:])
            }
            if "chunked" in fields.get("transfer-encoding", ""):
                data = await self._chunks()
            elif "content-length" not in fields and fields.get("connection") == "close":
                data = await self._rest()
            else:
                data = await self._reader.readexactly(_bounded(int(fields["content-length"])))
        except (ValueError, KeyError, IndexError, asyncio.LimitOverrunError) as error:
            raise RemoteProtocolError(f"this is no HTTP answer: {error!r}") from None
        self._kept = fields.get("connection") != "close"
        return HttpAnswer(status, data)

    async def _chunks(self) -> bytes:
        found = b""
        while True:
            size = _bounded(int((await self._line()).partition(b";")[0], 16), len(found))
            if size == 0:
                break
            found += await self._reader.readexactly(size)
            if await self._line():
                raise ValueError("a chunk does not end where it should")
        for _ in range(100):  # trailers
            if not await self._line():
                return found
        raise ValueError("trailers without an end")

    async def _rest(self) -> bytes:
        """Read what comes until the server closes the connection."""
        found = b""
        while more := await self._reader.read(MOST_HEAD):
            _bounded(len(more), len(found))
            found += more
        return found

    async def _line(self) -> bytes:
        return (await self._reader.readuntil(b"\r\n"))[:-2]

    def abort(self) -> None:
        """Close it at once."""
        self._kept = False
        self._writer.transport.abort()


def _bounded(size: int, before: int = 0) -> int:
    if size < 0 or before + size > MOST_BODY:
        raise ValueError(f"the answer is larger than {MOST_BODY} bytes")
    return size


async def connect_http(host: str, port: int, context: ssl.SSLContext | None) -> HttpConnection:
    """Connect; raises OSError (ssl.SSLError is one) when the server cannot be reached or is not who it should be."""
    reader, writer = await asyncio.open_connection(host, port, ssl=context, limit=MOST_HEAD)
    return HttpConnection(f"{host}:{port}", reader, writer)
