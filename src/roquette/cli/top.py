"""`roquette top`"""

from typing import TYPE_CHECKING, Annotated

import typer

from roquette.base.quantities import counted
from roquette.cli.connect import Cluster, Every, cluster_verb, follow
from roquette.cli.output import say

if TYPE_CHECKING:
    from roquette.admin.doctor.facts import Facts

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

    follow(cluster, where_they_are, tell, every, count)
