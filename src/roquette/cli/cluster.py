"""`roquette cluster`"""

import typer

from roquette.cli.connect import Cluster, listing_verb
from roquette.cli.exits import UNHEALTHY


@listing_verb
def cluster(cluster: Cluster) -> None:
    """Show clusters, brokers, their addresses and traffic. Exit code 10 when one is missing, silent or refuses."""
    from roquette.admin.cluster import cluster_state

    brokers = cluster.run(cluster_state(cluster.addresses(), cluster.expected))
    cluster.show(brokers, empty="the name server knows no broker yet")
    if not brokers or any(broker.error for broker in brokers):
        raise typer.Exit(UNHEALTHY)
