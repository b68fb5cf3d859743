"""`roquette generate`: a board for Grafana and rules for Prometheus, of the metrics that servers show."""

import typer

app = typer.Typer(
    help="Files for other programs: a board for Grafana, rules for Prometheus.",
    no_args_is_help=True,
)


@app.command()
def grafana() -> None:
    """Print a board for Grafana, as JSON to import."""
    import json

    from roquette.base.metric_boards import grafana_board

    print(json.dumps(grafana_board(), indent=2))


@app.command("prometheus-rules")
def prometheus_rules() -> None:
    """Print alerting rules for Prometheus, a file for its rule_files."""
    import json

    from roquette.base.metric_boards import prometheus_rules

    print(json.dumps(prometheus_rules(), indent=2))
