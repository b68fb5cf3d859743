"""`roquette topic resize`: another number of queues, without loss."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from roquette.base.quantities import counted
from roquette.cli.connect import Cluster, Yes, cluster_verb, confirm
from roquette.cli.exits import UNHEALTHY
from roquette.cli.output import say
from roquette.cli.waiting import IgnoredGroups, Settle, Timeout

if TYPE_CHECKING:
    from roquette.admin.resize import ProofRow


@cluster_verb
def resize_command(
    where: Cluster,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    queues: Annotated[int, typer.Option(min=1, help="Of the topic, on every broker that has it.")],
    read_queues: Annotated[
        int | None,
        typer.Option(min=1, help="Set both numbers at once: this one to read, --queues to write."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Until every group has read the queues that go.")
    ] = False,
    settle: Settle = 35.0,
    timeout: Timeout = 3600.0,
    ignore_group: IgnoredGroups = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also orders that lose messages or order.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Change a topic's number of queues; prints the certificate that nothing is lost.

    Fewer queues: first nobody sends to those that go; with --wait they are taken away when every group has read them
    and nothing delayed can still come. Exit code 10 when something is left.
    """
    from roquette.admin.resize import begin, prove, set_numbers

    confirm(f"change {topic} to {queues} queues", yes)
    if read_queues is not None:
        places = where.run(set_numbers(topic, queues, read_queues, force=force))
        say(
            f"{topic}: {queues} to write, {read_queues} to read on {counted(len(places), 'broker')}"
        )
        return
    order, ignored = (topic, queues), ignore_group or []
    if wait:
        rows = asyncio.run(_resize(where, order, (settle, timeout), force, ignored))
    else:
        going = where.run(begin(topic, queues, force=force))
        rows = [row for place in going for row in where.run(prove(place, queues, ignored))]
    where.show(rows, empty=f"{topic} has {queues} queues; none had to go")
    if wait and not all(row.proven for row in rows):
        raise typer.Exit(UNHEALTHY)
    if rows and not wait:
        say(
            f"nobody sends to queue {queues} and on any more; --wait takes them away when they are read"
        )


async def _resize(
    where: Cluster,
    order: tuple[str, int],
    times: tuple[float, float],
    force: bool,
    ignored: list[str],
) -> "list[ProofRow]":
    from roquette.admin.drain import Pace
    from roquette.admin.resize import resize

    pace = Pace(asyncio.sleep, asyncio.get_running_loop().time, say, *times)
    async with where.client("TOOLS_PRODUCER") as client:
        return await resize(client.session.run, *order, pace, force=force, ignored=ignored)
