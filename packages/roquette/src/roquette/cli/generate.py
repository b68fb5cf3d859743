"""`roquette generate`: a board for Grafana and rules for Prometheus, of the metrics that servers show."""

from typing import Annotated

import typer

app = typer.Typer(
    help="Files for other programs: a board for Grafana, rules for Prometheus.",
    no_args_is_help=True,
)


@app.command()
def grafana() -> None:
    """Print a board for Grafana, as JSON to import or to provide as a file."""
    import json

    from roquette.base.metric_boards import grafana_board

    print(json.dumps(grafana_board(), indent=2))


@app.command("prometheus-rules")
def prometheus_rules(
    job: Annotated[
        str, typer.Option("--job", help="The name of the job that scrapes the servers.")
    ] = "rocketmq",
) -> None:
    """Print alerting rules for Prometheus, a file for its rule_files."""
    import json

    from roquette.base.metric_boards import prometheus_rules

    print(json.dumps(prometheus_rules(job), indent=2))
