"""`roquette namesrv diff`, `config`; `roquette namesrv` itself runs one (apps)."""

import typer

from roquette.base.quantities import counted
from roquette.cli.connect import Cluster, listing_verb
from roquette.cli.exits import UNHEALTHY
from roquette.cli.output import say
from roquette.cli.settings import name_server_app

app = typer.Typer(help="Run a name server; see what name servers disagree about; their settings.")
app.add_typer(name_server_app, name="config")


@app.command("diff")
@listing_verb
def diff_command(cluster: Cluster) -> None:
    """Show which name servers disagree about which brokers and topics. Exit code 10 when any do, or one is silent.

    Each is asked by itself: name all of them with -n.
    """
    from roquette.admin.disagreement import differences

    servers = cluster.addresses()
    rows = cluster.run(differences(servers))
    cluster.show(rows, empty=f"{counted(len(servers), 'name server')}: no difference")
    if rows:
        subjects = len({(row.kind, row.subject) for row in rows})
        say(f"\n{counted(subjects, 'difference')} between {len(servers)} name servers")
        raise typer.Exit(UNHEALTHY)
