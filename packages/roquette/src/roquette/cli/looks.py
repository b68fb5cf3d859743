"""`roquette cluster`; `roquette top` and `roquette events`, which are looks that follow each other."""

from typing import TYPE_CHECKING, Annotated

import typer

from roquette.admin.command import Flag, command
from roquette.base.options import counted
from roquette.cli.apply import Expected, expected_of
from roquette.cli.connect import UNHEALTHY, Cluster, Every, follow
from roquette.cli.output import Output, local_time, prints_lines, say, show_value

if TYPE_CHECKING:
    from roquette.admin.facts import ClusterFacts

Count = Annotated[int, Flag("--count -c", "End after so many; 0: never.", 0)]


@command(watched=True)
def cluster(where: Cluster, *, file: Expected = None) -> None:
    """Show clusters, brokers, their addresses and traffic. Exit code 10 when one is missing, silent or refuses."""
    from roquette.admin.doctor.examination import who_is_there
    from roquette.admin.top import broker_rows
    from roquette.base.clock import SystemClock

    brokers = broker_rows(
        where.run(who_is_there(where.addresses(), SystemClock())), expected_of(where, file)
    )
    where.show(brokers, empty="the name server knows no broker yet")
    if not brokers or any(broker.error for broker in brokers):
        raise typer.Exit(UNHEALTHY)


def top(
    where: Cluster,
    *,
    most: Annotated[int, Flag("--most", "Rows.", 1)] = 20,
    every: Every = 2.0,
    count: Count = 0,
) -> None:
    """Watch what the cluster is busy with: rates and lag of topics and groups, until Ctrl-C."""
    from roquette.admin.doctor.examination import where_they_are
    from roquette.admin.top import busiest

    def tell(before: "ClusterFacts", now: "ClusterFacts") -> None:
        rows = busiest(before, now)
        where.show(rows[:most], empty="no topics yet")
        for bound in [
            *now.left_out,
            *([counted(len(rows) - most, "row")] if len(rows) > most else []),
        ]:
            say(f"left out: {bound}")

    follow(where, where_they_are, tell, every, count, redraws=True)


def events(where: Cluster, *, every: Every = 2.0, count: Count = 0) -> None:
    """Tell what happens, until Ctrl-C: brokers that join, leave, fall silent, refuse messages, take over or are drained.

    Looks are compared: what begins and ends between two of them is not seen. --count: looks.
    """
    from roquette.admin.doctor.examination import who_is_there
    from roquette.admin.top import events

    as_lines = prints_lines(where.output)

    def tell(before: "ClusterFacts", now: "ClusterFacts") -> None:
        for each in events(before, now):
            if as_lines:
                show_value([each], Output.JSONL)
            else:
                print(f"{local_time(each.at_ms)}  {each.subject} {each.kind}: {each.says}")

    follow(where, who_is_there, tell, every, count, redraws=False)
