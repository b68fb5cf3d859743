"""`roquette cluster`"""

from roquette.cli.connect import NameServers, OutputForm, with_session
from roquette.cli.output import Output, show


def cluster(namesrv: NameServers = None, output: OutputForm = Output.TABLE) -> None:
    """Show clusters, brokers, their addresses and traffic."""
    from roquette.admin.cluster import cluster_state

    show(with_session(namesrv, cluster_state), output, empty="the name server knows no broker yet")
