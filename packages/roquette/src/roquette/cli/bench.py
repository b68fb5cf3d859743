"""`roquette bench ...`: how fast a cluster takes and gives messages."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roquette.admin.command import Flag
from roquette.cli.connect import Cluster
from roquette.cli.exit_codes import FAILED
from roquette.cli.output import say
from roquette.errors import ConfigError, RouteNotFound

if TYPE_CHECKING:
    from roquette.admin.bench import Meter
    from roquette.client.client import Client

Count = Annotated[int, Flag("--count -c N", "End after so many.", 0)]
Duration = Annotated[float, Flag("--duration SECONDS", "End after so long.", 0)]
Clients = Annotated[int, Flag("--clients N", "Clients with connections of their own.", 1)]
Create = Annotated[bool, Flag("--create", "Create the topic if it does not exist.")]


def pub(
    cluster: Cluster,
    topic: str,
    *,
    count: Count = 0,
    duration: Duration = 0.0,
    size: Annotated[int, Flag("--size BYTES", "Of each message's body.", 1)] = 128,
    clients: Clients = 1,
    in_flight: Annotated[
        int, Flag("--in-flight N", "Unanswered messages of each client.", 1)
    ] = 100,
    batch: Annotated[int, Flag("--batch N", "Send so many in one request.", 1)] = 1,
    rate: Annotated[float, Flag("--rate N", "Messages a second, at most.", 0)] = 0.0,
    create: Create = False,
) -> None:
    """Send messages and measure it. Without --count and --duration: 100,000 messages.

    Latency: from handing a message over (with --batch: a batch) to its answer. Ends at the first send that fails: exit code 1.
    """
    from roquette.admin.bench import publish
    from roquette.base.entropy import Entropy

    _require(cluster, topic, create)
    body = Entropy().bytes(size // 2 + 1).hex()[:size].encode()  # not compressible by much

    async def work(found: "Sequence[Client]", meter: "Meter") -> None:
        await publish(found, meter, topic, body, batch, in_flight)

    whole = count if count or duration else 100_000
    settings = {"max_in_flight": in_flight, "compress_over_bytes": size + 1}
    _measure("pub", cluster, topic, clients, whole, duration, rate, work, settings)


def sub(
    cluster: Cluster,
    topic: str,
    *,
    count: Count = 0,
    duration: Duration = 0.0,
    clients: Clients = 1,
    group: Annotated[str | None, Flag("--group -g GROUP")] = None,
    offset: Annotated[str, Flag("--offset PLACE")] = "first",
    follow: Annotated[bool, Flag("--follow -f", "Wait for more at the end.")] = False,
    create: Create = False,
) -> None:
    """Receive messages and measure it; without --group they are only read, up to the end there is now.

    Latency: the age of a message when it arrives, of those born meanwhile (the machines' clocks decide).

    Args:
        group: As members of this group, acknowledging.
        offset: Where to begin: first, last, -10, @-1h.
    """
    from roquette.admin.bench import Reading, receive
    from roquette.admin.seek import parse_place
    from roquette.base.clock import SystemClock

    if (group or follow) and not (count or duration):
        raise ConfigError("with --group and --follow there is no end: say --count or --duration")
    clock = SystemClock()
    place = parse_place(offset, clock.now_ms())
    if group and place.kind != "time" and place[:2] not in (("start", 0), ("end", 0)):
        raise ConfigError(
            f"--offset {offset} does not go with --group: first, last and times (@-1h) do"
        )
    _require(cluster, topic, create)
    reading = Reading(topic=topic, group=group, place=place, follow=follow)

    async def work(found: "Sequence[Client]", meter: "Meter") -> None:
        await receive(found, meter, reading, clock)

    _measure("sub", cluster, topic, clients, count, duration, 0.0, work, {})


def _require(cluster: Cluster, topic: str, create: bool) -> None:
    """Make sure that the topic exists; raises RouteNotFound, or with `create` what its creation does."""
    from roquette.admin.topics import create_topic, require_topic

    try:
        cluster.run(require_topic(topic))
    except RouteNotFound as error:
        if not create:
            raise RouteNotFound(topic, f"{error}, and --create makes it") from None
        made = cluster.run(create_topic(cluster.addresses(), topic))
        say(f"topic {topic} created on: {', '.join(made.done)}")


def _measure(
    action: str,
    cluster: Cluster,
    topic: str,
    clients: int,
    count: int,
    duration_s: float,
    rate: float,
    work: "Callable[[Sequence[Client], Meter], Awaitable[None]]",
    settings: dict[str, Any],
) -> None:
    """Run a load by so many clients until a limit of `Meter` or Ctrl-C; show what was found."""
    import time

    from roquette.admin.bench import BenchRow, Meter, figures, with_progress

    async def run() -> BenchRow:
        loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as stack:
            found = [
                await stack.enter_async_context(cluster.client(**settings)) for _ in range(clients)
            ]
            meter = Meter(count, duration_s, rate, loop.time, time.process_time)
            for number in (signal.SIGINT, signal.SIGTERM):
                with contextlib.suppress(NotImplementedError):
                    loop.add_signal_handler(number, meter.stop)
            await with_progress(work(found, meter), meter, _tell)
            return meter.result(action, topic, clients)

    row = asyncio.run(run())
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    cluster.show([row] if cluster.for_programs else figures(row))
    if row.error:
        raise typer.Exit(FAILED)


def _tell(line: str) -> None:
    """Progress: on a terminal each line in the place of the one before."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()
    else:
        say(line)
