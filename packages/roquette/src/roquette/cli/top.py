"""`roquette top` and `roquette events`: looks that follow each other."""

from typing import TYPE_CHECKING, Annotated

import typer

from roquette.base.quantities import counted
from roquette.cli.connect import Cluster, Every, cluster_verb, follow
from roquette.cli.output import Output, local_time, prints_lines, say, show_value

if TYPE_CHECKING:
    from roquette.admin.facts import Facts

Count = Annotated[int, typer.Option("--count", "-c", min=0, help="End after so many; 0: never.")]


@cluster_verb
def top(
    cluster: Cluster,
    most: Annotated[int, typer.Option("--most", min=1, help="Rows.")] = 20,
    every: Every = 2.0,
    count: Count = 0,
) -> None:
    """Watch what the cluster is busy with: rates and lag of topics and groups, until Ctrl-C."""
    from roquette.admin.doctor.examination import where_they_are
    from roquette.admin.top import busiest

    def tell(before: "Facts", now: "Facts") -> None:
        rows = busiest(before, now)
        cluster.show(rows[:most], empty="no topics yet")
        for bound in [
            *now.left_out,
            *([counted(len(rows) - most, "row")] if len(rows) > most else []),
        ]:
            say(f"left out: {bound}")

    follow(cluster, where_they_are, tell, every, count, redraws=True)


@cluster_verb
def events(cluster: Cluster, every: Every = 2.0, count: Count = 0) -> None:
    """Tell what happens, until Ctrl-C: brokers that join, leave, fall silent, refuse messages, take over or are drained.

    Looks are compared: what begins and ends between two of them is not seen. --count: looks.
    """
    from roquette.admin.doctor.examination import who_is_there
    from roquette.admin.events import events

    as_lines = prints_lines(cluster.output)

    def tell(before: "Facts", now: "Facts") -> None:
        for each in events(before, now):
            if as_lines:
                show_value([each], Output.JSONL)
            else:
                print(f"{local_time(each.at_ms)}  {each.subject} {each.kind}: {each.says}")

    follow(cluster, who_is_there, tell, every, count, redraws=False)
