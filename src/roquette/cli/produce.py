"""`roquette produce`: from arguments, a file or standard input."""

import asyncio
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

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
    """Send messages: one for each argument, or one for each line of a file or of standard input."""
    if body and file:
        raise ConfigError("give messages as arguments or --file, not both")
    lines = iter(body) if body else _lines(file or "-")

    async def run() -> int:
        count = 0
        async with Client(name_servers(namesrv)) as client:
            waiting = []
            for line in lines:
                if not line:
                    continue  # an empty message is not allowed
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
        return count

    count = asyncio.run(run())
    if output is Output.JSON:
        show_json({"topic": topic, "sent": count})
    else:
        say(f"sent {count} message{'' if count == 1 else 's'} to {topic}")


def _lines(path: str) -> Iterator[str]:
    from roquette.base.files import read_lines

    if path == "-":
        for line in sys.stdin:
            yield line.rstrip("\n")
        return
    try:
        yield from read_lines(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--file {path} can not be read: {error}") from None
