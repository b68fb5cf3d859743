"""`roquette cluster`"""

from roquette.cli.connect import Cluster, cluster_verb


@cluster_verb
def cluster(cluster: Cluster) -> None:
    """Show clusters, brokers, their addresses and traffic."""
    from roquette.admin.cluster import cluster_state

    cluster.show(cluster.run(cluster_state()), empty="the name server knows no broker yet")
