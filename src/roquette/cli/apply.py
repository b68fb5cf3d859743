"""`roquette apply`: topics, groups and settings as a file says."""

import sys
from typing import Annotated

import typer

from roquette.base.quantities import counted
from roquette.cli.connect import Cluster, Yes, cluster_verb, confirm
from roquette.cli.exits import UNHEALTHY
from roquette.cli.output import say
from roquette.errors import ClientError, ConfigError


@cluster_verb
def apply(
    cluster: Cluster,
    file: Annotated[
        str,
        typer.Option(
            "--file", "-f", metavar="FILE", show_default=False, help="YAML; - is standard input."
        ),
    ],
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Only show what differs; exit code 10 when something does."),
    ] = False,
    allow_refusing: Annotated[
        bool,
        typer.Option(
            "--allow-refusing", help="Also take steps after which senders or consumers are refused."
        ),
    ] = False,
    yes: Yes = False,
) -> None:
    """Change topics, groups and settings to what a file says, on every master; shows the plan and asks first.

    What would put messages out of reach is never done, and what is not in the file stays: both are shown with the way to
    do it. Run again, it changes nothing. The form of the file: docs/cli.md.
    """
    from roquette.admin.apply.carry import carry_out, rows, what_is_there
    from roquette.admin.apply.plan import Effect, unknown
    from roquette.admin.apply.plan import plan as make_plan
    from roquette.admin.apply.wanted import read_wanted

    wanted = read_wanted(_bytes_of(file), file)
    there = cluster.run(what_is_there())
    if missing := unknown(wanted, there):
        raise ConfigError(f"{file} names what is not there: {', '.join(missing)}")
    steps = make_plan(wanted, there)
    differ = [step for step in steps if step.effect is not Effect.DRIFT]
    if plan:
        cluster.show(rows(steps), empty="the cluster is as the file says")
        if differ:
            raise typer.Exit(UNHEALTHY)
        return
    todo = {Effect.SAFE, Effect.REFUSES} if allow_refusing else {Effect.SAFE}
    taken = [step for step in differ if step.effect in todo]
    left = [step for step in differ if step.effect not in todo]
    if not cluster.for_programs and steps and not yes:
        cluster.show(rows(steps))
    if taken:
        confirm(f"take {counted(len(taken), 'step')}", yes)
        done = cluster.run(carry_out(taken, refuses=allow_refusing))
        cluster.show(done)
        if failed := [row for row in done if row.error]:
            raise ClientError(
                f"{len(failed)} of {len(done)} steps were not done: {failed[0].broker}: {failed[0].error}"
            )
    for step in left:
        say(f"not done, {step.effect}: {step.kind} {step.subject} on {step.broker}: {step.how}")
    if left:
        raise typer.Exit(UNHEALTHY)
    if not taken:
        say("the cluster is as the file says")


def _bytes_of(file: str) -> bytes:
    from roquette.base.read_files import OsReadFiles, read_all
    from roquette.base.yaml_text import MAX_BYTES

    if file == "-":
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    try:
        return read_all(OsReadFiles(), file, MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from None
