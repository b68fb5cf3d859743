"""`roquette produce`: from arguments, a file or standard input."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from roquette.admin.command import Flag
from roquette.base.files import read_lines
from roquette.base.options import counted
from roquette.cli.connect import Cluster
from roquette.cli.output import say
from roquette.errors import ClientError, ConfigError, RoquetteError

if TYPE_CHECKING:
    from roquette.client.producer import SendReceipt


def produce(
    cluster: Cluster,
    topic: str,
    body: Annotated[
        list[str] | None,
        Flag("BODY", "Messages; without any, lines of --file or of standard input."),
    ] = None,
    *,
    file: str | None = None,
    tag: str | None = None,
    key: str | None = None,
    shard_key: Annotated[str | None, Flag("--shard-key KEY")] = None,
    delay_level: Annotated[int, Flag(least=0, most=18)] = 0,
) -> None:
    """Send messages: one for each argument, or one for each line (any bytes) of a file or of standard input.

    Args:
        file: One message a line; - is standard input.
        tag: The messages' tag.
        key: The messages' key.
        shard_key: Send all to the one queue of this key, in order.
        delay_level: Deliver later: 1 is 1 s, 18 is 2 h.
    """
    if body and file:
        raise ConfigError("give messages as arguments or --file, not both")
    if body and "" in body:
        raise ConfigError("RocketMQ has no empty messages: nothing was sent")
    lines = map(os.fsencode, body) if body else _lines(file or "-")

    async def run() -> tuple[int, int]:
        async with cluster.client() as client:
            options: dict[str, Any] = {"tag": tag, "key": key, "shard_key": shard_key}
            send = partial(client.send_nowait, topic, delay_level=delay_level, **options)
            return await _send_all(send, lines)

    count, empty = asyncio.run(run())
    if empty:
        say(f"{counted(empty, 'empty line')} left out: RocketMQ has no empty messages")
    if cluster.for_programs:
        cluster.show_value({"topic": topic, "sent": count})
    else:
        say(f"sent {counted(count, 'message')} to {topic}")


async def _send_all(
    send: Callable[[bytes], Awaitable["asyncio.Future[SendReceipt]"]], lines: Iterable[bytes]
) -> tuple[int, int]:
    """Send lines; how many there were, and how many were empty. An error says how many were sent all the same."""
    count = empty = stored = 0
    waiting: list[asyncio.Future[SendReceipt]] = []
    failed: list[BaseException] = []

    async def settle() -> int:
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        waiting.clear()
        failed.extend(end for end in ends if isinstance(end, BaseException))
        return sum(not isinstance(end, BaseException) for end in ends)

    try:
        for line in lines:
            if not line:
                empty += 1
                continue
            count += 1
            waiting.append(await send(line))
            if count == 1 or len(waiting) >= 1000:  # the first one creates the topic
                stored += await settle()
                if failed:
                    break
    except RoquetteError as error:
        failed.append(error)
    stored += await settle()
    if failed and stored and isinstance(failed[0], RoquetteError):
        raise ClientError(f"{failed[0]} ({stored} other messages were sent)") from failed[0]
    if failed:
        raise failed[0]
    return count, empty


def _lines(path: str) -> Iterator[bytes]:
    """Lines as the bytes they are: a message need not be text."""
    if path == "-":
        if sys.stdin is None:
            raise ConfigError("standard input is closed: give messages as arguments or --file")
        for line in sys.stdin.buffer:
            yield line.rstrip(b"\n")
        return
    try:
        yield from read_lines(path)
    except OSError as error:
        raise ConfigError(f"--file {path} cannot be read: {error.strerror}") from None
