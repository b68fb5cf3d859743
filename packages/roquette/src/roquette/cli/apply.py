"""`roquette apply`: topics, groups and settings as a file says, or one group."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from roquette.admin.command import Attributes, Flag, changes_of
from roquette.base.options import counted
from roquette.cli.connect import Cluster, Yes, confirm
from roquette.cli.exit_codes import UNHEALTHY
from roquette.cli.output import say
from roquette.errors import ClientError, ConfigError

if TYPE_CHECKING:
    from roquette.admin.apply import WantedCluster

Expected = Annotated[
    str | None, Flag("--file -f FILE", "The cluster's YAML: miss the brokers it names, too.")
]


def apply(
    cluster: Cluster,
    *,
    file: Annotated[str | None, Flag("--file -f FILE")] = None,
    group: str | None = None,
    settings: Annotated[
        Mapping[str, str] | None, Flag("--set NAME=VALUE", reads=changes_of, many=True)
    ] = None,
    attribute: Attributes = None,
    plan: bool = False,
    allow_refusing: bool = False,
    yes: Yes = False,
) -> None:
    """Change topics, groups and settings to what a file says, on every master; shows the plan and asks first.

    What would put messages out of reach is never done, and what is not in the file stays: both are shown with the way to
    do it. Run again, it changes nothing. The form of the file: docs/reference/cli.md; a group's settings: roquette group show --settings.

    Args:
        file: The cluster's YAML; - is standard input.
        group: In place of a file, with --set and --attribute.
        settings: Of SubscriptionGroupConfig, such as retryMaxTimes=3. Repeatable.
        plan: Only show what differs; exit code 10 when something does.
        allow_refusing: Also take steps after which senders or consumers are refused.
    """
    from roquette.admin.apply import Effect, carry_out, rows, unknown, what_is_there
    from roquette.admin.apply import plan as make_plan

    wanted = _wanted(file, group, settings or {}, attribute or {})
    there = cluster.run(what_is_there(wanted))
    if missing := unknown(wanted, there):
        raise ConfigError(f"{file} names what is not there: {', '.join(missing)}")
    steps = make_plan(wanted, there)
    differ = [step for step in steps if step.effect is not Effect.DRIFT]
    if group is not None:  # the others are not asked about
        steps = differ
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


def _wanted(
    file: str | None, group: str | None, settings: Mapping[str, str], attributes: Mapping[str, str]
) -> "WantedCluster":
    from roquette.admin.apply import WantedCluster, WantedGroup, group_setting
    from roquette.message.names import client_group_error

    if (file is None) == (group is None) or (file and (settings or attributes)):
        raise ConfigError("say either --file FILE, or --group GROUP with --set and --attribute")
    if file is not None:
        return read_file(file)
    if error := client_group_error(group or ""):
        raise ConfigError(error)
    fields = dict(group_setting(*item) for item in settings.items())
    return WantedCluster([], [WantedGroup(group or "", fields, dict(attributes))], {})


def expected_of(cluster: Cluster, file: str | None) -> tuple[str, ...]:
    """Names of brokers that are to be there: the context's, and those of a cluster's file. Raises ConfigError."""
    named = () if file is None else read_file(file).brokers()
    return tuple(dict.fromkeys((*cluster.expected, *named)))


def read_file(file: str) -> "WantedCluster":
    """Read what a cluster's file wants; `-` is standard input. Raises ConfigError."""
    from roquette.admin.apply import read_wanted
    from roquette.base.files import OsReadFiles, read_all
    from roquette.base.yaml_text import MAX_BYTES

    try:
        data = (
            sys.stdin.buffer.read(MAX_BYTES + 1)
            if file == "-"
            else read_all(OsReadFiles(), file, MAX_BYTES + 1)
        )
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from None
    return read_wanted(data, file)
