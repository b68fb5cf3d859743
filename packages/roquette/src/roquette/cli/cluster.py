"""`roquette cluster`"""

import typer

from roquette.cli.apply import Expected, expected_of
from roquette.cli.connect import Cluster, listing_verb
from roquette.cli.exits import UNHEALTHY


@listing_verb
def cluster(cluster: Cluster, file: Expected = None) -> None:
    """Show clusters, brokers, their addresses and traffic. Exit code 10 when one is missing, silent or refuses."""
    from roquette.admin.doctor.examination import who_is_there
    from roquette.admin.top import broker_rows
    from roquette.base.clock import SystemClock

    brokers = broker_rows(
        cluster.run(who_is_there(cluster.addresses(), SystemClock())), expected_of(cluster, file)
    )
    cluster.show(brokers, empty="the name server knows no broker yet")
    if not brokers or any(broker.error for broker in brokers):
        raise typer.Exit(UNHEALTHY)
