"""`roquette broker status`, `promote`, `backup`, `restore-backup`; `roquette broker` itself runs one (apps)."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from roquette.cli.backup import backup_command, restore_command
from roquette.cli.connect import Cluster, Yes, cluster_verb, confirm, listing_verb
from roquette.cli.exits import UNHEALTHY
from roquette.cli.output import say
from roquette.cli.settings import broker_app as settings_app
from roquette.cli.waiting import IgnoredGroups, Settle, Timeout
from roquette.errors import ClientError

if TYPE_CHECKING:
    from roquette.admin.left import Left
    from roquette.admin.replication import GroupState

app = typer.Typer(
    help="Run a broker; drain it; see and change who is master of a group; back up and restore a store; its settings."
)
app.add_typer(settings_app, name="config")
app.command("backup")(backup_command)
app.command("restore-backup")(restore_command)

LOOK_S = 0.05
WAIT_S = 60.0

ClusterName = Annotated[
    str | None, typer.Option("--cluster", metavar="CLUSTER", help="The group's brokerClusterName.")
]


@app.command("status")
@listing_verb
def status_command(
    where: Cluster,
    name: Annotated[
        str | None, typer.Option("--name", metavar="BROKER", help="Only this group (brokerName).")
    ] = None,
    cluster: ClusterName = None,
) -> None:
    """Show groups that elect their master: roles, epochs, lease, who is in step, lag.

    Exit code 10 when one of them has no master, or a member that is not in step.
    """
    from roquette.admin.replication import group_states

    groups = where.run(group_states(where.addresses(), name, cluster))
    if where.for_programs:
        where.show_value(groups)
    else:
        show_groups(where, groups)
    if not all(group.healthy for group in groups):
        raise typer.Exit(UNHEALTHY)


def show_groups(where: Cluster, groups: "list[GroupState]") -> None:
    """The members in a table, what is wrong in lines."""
    members = [member for group in groups for member in group.members]
    where.show(members, empty="no group elects its master (enableControllerMode=true)")
    for group in groups:
        master = f"master is broker {group.master}" if group.master else "NO MASTER"
        say(f"\n{group.group}: {master}, epoch {group.epoch}, in step: {group.in_step}")
        if group.lossy_epoch:
            say(f"  messages were lost by order when epoch {group.lossy_epoch} began")
        for words in (*group.problems, *group.notes):
            say(f"  {words}")


@app.command("promote")
@cluster_verb
def promote_command(
    where: Cluster,
    group: Annotated[str, typer.Argument(metavar="BROKER", show_default=False)],
    member: Annotated[int, typer.Argument(metavar="ID", min=1, show_default=False)],
    cluster: ClusterName = None,
    accept_data_loss: Annotated[
        bool,
        typer.Option(
            "--accept-data-loss",
            help="Also a member that is not in step: what only others have is lost.",
        ),
    ] = False,
    yes: Yes = False,
) -> None:
    """Make a member the master, as for an upgrade; waits until it is, and says how long nobody was.

    A member that is in step has everything that was acknowledged, and nothing is lost. Others need --accept-data-loss.
    """
    words = f"make broker {member} the master of {group}"
    if accept_data_loss:
        words += ", even if messages that were acknowledged are lost by it"
    confirm(words, yes)
    asyncio.run(_promote(where, (cluster or "DefaultCluster", group), member, accept_data_loss))


async def _promote(where: Cluster, name: tuple[str, str], member: int, accept_loss: bool) -> None:
    from roquette.admin.replication import group_states, order_master

    servers, (cluster, group) = where.addresses(), name
    now: Callable[[], float] = asyncio.get_running_loop().time
    async with where.client("TOOLS_PRODUCER") as client:
        run = client.session.run
        (before,) = await run(group_states(servers, group, cluster))
        if before.master == member:
            say(f"broker {member} is master of {group} already, epoch {before.epoch}")
            return
        if silent := [m for m in before.members if m.broker_id == member and m.error]:
            raise ClientError(
                f"broker {member} does not answer, and is not ordered: {silent[0].error}"
            )
        last_s, old = now(), before.master
        await run(order_master(servers, name, member, accept_loss))
        say(f"ordered; the master is {f'broker {old}' if old else 'nobody'} now")
        end_s = last_s + WAIT_S
        while now() < end_s:
            (state,) = await run(group_states(servers, group, cluster))
            if state.master == member:
                stopped = f"; nobody was for {now() - last_s:.2f} s at most" if old else ""
                say(f"broker {member} is master of {group}, epoch {state.epoch}{stopped}")
                return
            if state.master and state.ordered != member:
                raise ClientError(
                    f"the order is over, and broker {member} did not stand in time: broker {state.master} is master, epoch "
                    f"{state.epoch}; look at broker {member}, and order again"
                )
            if state.master == old:
                last_s = now()
            await asyncio.sleep(LOOK_S)
    raise ClientError(
        f"broker {member} is not master after {WAIT_S:.0f} s; the order stands: {'; '.join(state.problems)}"
    )


@app.command("forget")
@cluster_verb
def forget_command(
    where: Cluster,
    name: Annotated[str, typer.Argument(metavar="BROKER", show_default=False)],
    member: Annotated[
        int | None,
        typer.Option("--id", metavar="ID", min=1, help="Also this member of its group, for good."),
    ] = None,
    yes: Yes = False,
) -> None:
    """Expect a broker that has left no more: `cluster` and `doctor` miss it no longer. One that is there stays."""
    from roquette.admin.replication import forget

    confirm(f"expect {name}{f' (id {member})' if member else ''} no more", yes)
    words = where.run(forget(where.addresses(), name, member))
    say(f"{name} is expected no more{': ' if words else ''}{'; '.join(words)}")


@app.command("drain")
@cluster_verb
def drain_command(
    where: Cluster,
    name: Annotated[str, typer.Argument(metavar="BROKER", show_default=False)],
    wait: Annotated[
        bool, typer.Option("--wait", help="Until everything is consumed; else only the first step.")
    ] = False,
    settle: Settle = 35.0,
    timeout: Timeout = 3600.0,
    ignore_group: IgnoredGroups = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also with topics that are on this broker alone.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Empty a broker without loss: clients stop to send to it, and groups read what it has.

    Exit code 10 when --wait ends with something left. `broker restore` gives everything back.
    """
    from roquette.admin.drain import hide, left_on

    confirm(f"have clients send nothing to {name} any more", yes)
    ignored = ignore_group or []
    if wait:
        left = asyncio.run(_drain(where, name, (settle, timeout), force, ignored))
    else:
        where.run(hide(where.addresses(), name, alone=force))
        left = where.run(left_on(name, ignored))
    where.show([*left.rows, *left.stays], empty=f"{name} has nothing left for anybody")
    for sentence in left.unknown:
        say(sentence)
    if wait and left.rows:
        raise typer.Exit(UNHEALTHY)


async def _drain(
    where: Cluster, name: str, times: tuple[float, float], force: bool, ignored: list[str]
) -> "Left":
    from roquette.admin.drain import Pace, drain

    pace = Pace(asyncio.sleep, asyncio.get_running_loop().time, say, *times)
    async with where.client("TOOLS_PRODUCER") as client:
        run = client.session.run
        return await drain(run, where.addresses(), name, pace, alone=force, ignored=ignored)


@app.command("restore")
@cluster_verb
def take_back_command(
    where: Cluster, name: Annotated[str, typer.Argument(metavar="BROKER", show_default=False)]
) -> None:
    """Give a drained broker back the permissions it had: clients send to it again."""
    from roquette.admin.drain import restore
    from roquette.message.names import perm_text

    note = where.run(restore(where.addresses(), name))
    say(f"{name} has its permission {perm_text(note.permission)} again; clients come within 30 s")
