"""`roquette produce`: from arguments, a file or standard input."""

import asyncio
import os
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from roquette.base.files import read_lines
from roquette.cli.connect import NameServers, OutputForm, name_servers
from roquette.cli.output import Output, say, show_json
from roquette.client.client import Client
from roquette.errors import ConfigError


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    body: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[BODY]...",
            help="Messages; without any, lines of --file or of standard input.",
            show_default=False,
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="FILE", help="One message a line; - is standard input."),
    ] = None,
    tag: Annotated[
        str | None, typer.Option("--tag", metavar="TAG", help="The messages' tag.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="The messages' key.")
    ] = None,
    shard_key: Annotated[
        str | None,
        typer.Option(
            "--shard-key", metavar="KEY", help="Send all to the one queue of this key, in order."
        ),
    ] = None,
    delay_level: Annotated[
        int,
        typer.Option("--delay-level", min=0, max=18, help="Deliver later: 1 is 1 s, 18 is 2 h."),
    ] = 0,
    namesrv: NameServers = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Send messages: one for each argument, or one for each line (any bytes) of a file or of standard input."""
    if body and file:
        raise ConfigError("give messages as arguments or --file, not both")
    if body and "" in body:
        raise ConfigError("RocketMQ has no empty messages: nothing was sent")
    lines = map(os.fsencode, body) if body else _lines(file or "-")

    async def run() -> tuple[int, int]:
        count = empty = 0
        async with Client(name_servers(namesrv)) as client:
            waiting = []
            for line in lines:
                if not line:
                    empty += 1
                    continue
                sent = await client.send_soon(
                    topic, line, tag=tag, key=key, shard_key=shard_key, delay_level=delay_level
                )
                count += 1
                if count == 1:
                    await sent  # creates the topic, or says why not
                waiting.append(sent)
                if len(waiting) >= 1000:
                    await asyncio.gather(*waiting)
                    waiting.clear()
            await asyncio.gather(*waiting)
        return count, empty

    count, empty = asyncio.run(run())
    if empty:
        say(
            f"{empty} empty line{'' if empty == 1 else 's'} left out: RocketMQ has no empty messages"
        )
    if output is Output.JSON:
        show_json({"topic": topic, "sent": count})
    else:
        say(f"sent {count} message{'' if count == 1 else 's'} to {topic}")


def _lines(path: str) -> Iterator[bytes]:
    """Lines as the bytes they are: a message need not be text."""
    if path == "-":
        for line in sys.stdin.buffer:
            yield line.rstrip(b"\n")
        return
    try:
        yield from read_lines(path)
    except OSError as error:
        raise ConfigError(f"--file {path} cannot be read: {error.strerror}") from None
