"""`roquette up ...`: brokers as processes on this machine: a group that elects its master, to try, or masters for all cores."""

import asyncio
import itertools
import os
import signal
from collections.abc import Callable
from typing import Annotated, ClassVar, Final, NamedTuple

import msgspec
import typer

from roquette.admin.doctor.examination import who_is_there
from roquette.admin.replication import MASTER, GroupState, group_states
from roquette.admin.top import broker_rows
from roquette.admin.topics import create_topic
from roquette.apps import local_group, running
from roquette.apps.dev import DEV_SETTINGS
from roquette.apps.local_group import (
    GroupKeeper,
    GroupProcess,
    LocalGroup,
    load_group,
    runs,
    send_signal,
    words_of,
)
from roquette.base.clock import SystemClock
from roquette.base.executor import pause
from roquette.base.files import OsFiles
from roquette.base.javatypes import whole_number
from roquette.base.lifecycle import Tasks
from roquette.base.options import key_values
from roquette.cli.commands import command_of
from roquette.cli.connect import OutputForm
from roquette.cli.exit_codes import UNHEALTHY
from roquette.cli.output import Output, say, show
from roquette.client.client import Client
from roquette.errors import ClientError, ConfigError, RoquetteError, RouteNotFound, StoreError
from roquette.message.message import MessageQueue

app = typer.Typer()

Folder = Annotated[
    str | None,
    typer.Option(
        "--dir", metavar="DIR", help="The group's folder; default is roquette/up in ~/.local/state."
    ),
]


@app.callback(invoke_without_command=True)
def up(
    context: typer.Context,
    replicas: Annotated[
        int | None,
        typer.Option(
            "--replicas",
            min=2,
            max=9,
            help="Brokers of the group; default is 3.",
            show_default=False,
        ),
    ] = None,
    masters: Annotated[
        int | None,
        typer.Option(
            "--brokers",
            min=1,
            max=64,
            help="No group: a cluster of so many masters, as one for each core; topics are on all of them.",
            show_default=False,
        ),
    ] = None,
    etcd: Annotated[
        bool,
        typer.Option(
            "--etcd", help="Three name servers, each with a member of etcd (it must be installed)."
        ),
    ] = False,
    folder: Folder = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the brokers."),
    ] = None,
) -> None:
    """Start a group of brokers that elect their master, on loopback, until Ctrl-C; commands below try it.

    What is sent stays in the folder, and is there when it is started again.
    """
    if context.invoked_subcommand is None:
        if masters is not None and (replicas is not None or etcd):
            raise typer.BadParameter(
                "--brokers is a cluster without a group: it goes with neither --replicas nor --etcd"
            )
        name, brokers = (GROUP_NAME, replicas or 3) if masters is None else ("", masters)
        raise typer.Exit(keep_group(folder, name, brokers, etcd, key_values(settings, "--set")))
    if folder is not None:
        raise typer.BadParameter("--dir goes behind the command")


@app.command("status")
@command_of
def status_command(*, folder: Folder = None, output: OutputForm = Output.TABLE) -> None:
    """Show the processes, who is master, who is in step; exit code 10 when the group is not healthy."""
    if not show_status(folder, output):
        raise typer.Exit(UNHEALTHY)


@app.command("kill")
def kill_command(
    who: Annotated[str, typer.Argument(metavar="master|slave|ID", show_default=False)],
    folder: Folder = None,
) -> None:
    """End a broker by SIGKILL while messages are sent, and tell what happens; exit code 1 when one is lost."""

    if not kill_and_watch(folder, who):
        raise typer.Exit(1)


@app.command("restart")
def restart_command(
    who: Annotated[str, typer.Argument(metavar="ID", help="A broker's id, or a process's name.")],
    folder: Folder = None,
) -> None:
    """Start a process again, after a stop in order if it runs; waits until it is in step."""

    restart(folder, who)


@app.command("stop")
def stop_command(folder: Folder = None) -> None:
    """Stop the group as Ctrl-C does, and what a killed `roquette up` has left behind."""

    stop_group(folder)


# Work of `roquette up` and its verbs: keep a group's processes, look at it, start one again, end all.


GROUP_NAME = "broker-a"
CLUSTER_NAME = "DefaultCluster"
HEALTHY_S = 60.0
LOOK_S = 0.1


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `roquette up status`."""

    process: str
    role: str
    address: str
    pid: int
    epoch: int
    in_step: bool | None
    log_end: int
    lag_bytes: int
    started_ms: int

    NARROW: ClassVar = ("started_ms", "log_end", "pid", "epoch")


def keep_group(
    where: str | None, name: str, count: int, etcd: bool, settings: dict[str, str]
) -> int:
    """Run so many brokers until SIGINT or SIGTERM; the exit code. Raises ConfigError: some run there, or they did not start.

    Args:
        name: of their group; empty: each is a master of its own.
    """
    folder = where or local_group.default_folder()
    files = OsFiles()
    files.make_dirs(folder)
    try:
        lock = files.lock_file(os.path.join(folder, "lock"))
    except StoreError:
        raise ConfigError(
            f"a group runs in {folder} already: {local_group.words_of(folder, 'status')}"
        ) from None
    name_servers = [GroupProcess(name=f"namesrv-{one}") for one in range(1, 4 if etcd else 2)]
    brokers = [GroupProcess(name=f"broker-{broker_id}") for broker_id in range(1, count + 1)]
    if files.exists(os.path.join(folder, local_group.STATE)):
        before = load_group(folder)
        if any(map(runs, before.parts)):
            raise ConfigError(
                f"processes of an earlier group in {folder} run: {local_group.words_of(folder, 'stop')}"
            )
        kept = (before.name, len(before.name_servers), len(before.brokers))
        if kept != (name, len(name_servers), count):
            what = "another group, of" if before.name else "a cluster of"
            raise ConfigError(
                f"{folder} has {what} {len(before.brokers)} brokers and {len(before.name_servers)} "
                "name server(s): give the same options, remove the folder, or name another one by --dir"
            )
        name_servers = [
            GroupProcess(name=part.name, peer=part.peer) for part in before.name_servers
        ]
    pid = os.getpid()
    group = LocalGroup(
        cluster=CLUSTER_NAME,
        name=name,
        keeper=GroupProcess(name="keeper", pid=pid, born=local_group.born(pid)),
        name_servers=name_servers,
        brokers=brokers,
    )
    shared = {key: text for key, text in DEV_SETTINGS.items() if key != "brokerName"}
    keeper = GroupKeeper(folder, group, shared | settings, etcd)
    try:
        return running.run(lambda stop: _keep(keeper, stop))
    finally:
        lock.release()


async def _keep(keeper: GroupKeeper, stop: asyncio.Event) -> int:
    """Start, tell, look after them until `stop`, end all."""
    group = keeper.group
    say(f"starting {len(group.brokers)} brokers and {len(group.name_servers)} name server(s)")
    try:
        await keeper.start(stop)
        if not stop.is_set():
            everybody = set(range(1, len(group.brokers) + 1))
            look = await until_ready(group, everybody, stop.is_set)
            if look is not None:
                show(lines(group, look), Output.TABLE)
                say(f"\ntry:  roquette produce -n {group.namesrv} orders hello world")
                if group.name:
                    kill = local_group.words_of(keeper.folder, "kill master")
                    say(f"      {kill}          # in another terminal: watch a take-over")
                running.print_ready(namesrv=group.namesrv)
        while not stop.is_set():
            await keeper.look()
            await asyncio.sleep(LOOK_S)
    finally:
        say("stopping: replicas, then the master, then name servers")
        await keeper.stop(await _masters(group))
    return 0


async def _masters(group: LocalGroup) -> list[int]:
    """The ids of brokers that end last."""
    try:
        return [state.master] if group.name and (state := (await look_at(group)).state) else []
    except RoquetteError:
        return []


class Brokers(NamedTuple):
    """What is seen of the brokers.

    Attributes:
        ready: the ids of those in step with a master; of masters: that are registered and answer.
        state: of the group; None: there is none.
    """

    ready: set[int]
    news: str
    problems: list[str]
    state: GroupState | None = None


async def look_at(group: LocalGroup) -> Brokers:
    """Look at the brokers. Raises ClientError, ConfigError: a name server or the group's record is not there (yet)."""
    async with Client(group.namesrv, group="TOOLS_PRODUCER") as client:
        servers = [part.address for part in group.name_servers]
        if not group.name:
            rows = broker_rows(await client.session.run(who_is_there(servers, SystemClock())))
            found = {row.broker: row.error for row in rows}
            errors = {part.name: found.get(part.name, "not registered") for part in group.brokers}
            ready = {who for who, part in enumerate(group.brokers, 1) if not errors[part.name]}
            problems = [f"{name}: {error}" for name, error in errors.items() if error]
            return Brokers(ready, f"{len(ready)} of {len(errors)} brokers serve", problems)
        (state,) = await client.session.run(group_states(servers, group.name, group.cluster))
        news = f"broker {state.master} is master of epoch {state.epoch}, in step: {state.in_step}"
        ready = set(state.in_step) if state.master else set()
        return Brokers(ready, news if state.master else "", state.problems, state)


async def until_ready(
    group: LocalGroup, broker_ids: set[int], given_up: Callable[[], bool]
) -> Brokers | None:
    """Wait until these are in step with a master, or serve as masters, telling what changes; None when the caller gave up.

    Raises ClientError when it takes too long.
    """
    now = asyncio.get_running_loop().time
    end_s, told, why = now() + HEALTHY_S, "", "nothing answered"
    while now() < end_s and not given_up():
        try:
            look = await look_at(group)
        except RoquetteError as error:
            why = str(error)
        else:
            why = "; ".join(look.problems) or "a broker is missing"
            if look.news not in ("", told):
                told = look.news
                say(f"  {told}")
            if broker_ids <= look.ready:
                return look
        await asyncio.sleep(LOOK_S)
    if given_up():
        return None
    words = "in step" if group.name else "there"
    raise ClientError(f"{sorted(broker_ids)} are not {words} after {HEALTHY_S:.0f} s: {why}")


def lines(group: LocalGroup, look: Brokers | None) -> list[Line]:
    """The processes, and what is known of the brokers; without a `look` nothing is."""
    state = look.state if look else None
    known = {member.broker_id: member for member in state.members} if state else {}
    unknown, servers = ("-", "name server, controller") if group.name else ("master", "name server")
    found = []
    for part in group.parts:
        is_broker = part in group.brokers
        member = known.get(int(part.name.rpartition("-")[2])) if is_broker else None
        role = member.role if member else unknown if is_broker else servers
        there = runs(part)
        found.append(
            Line(
                process=part.name,
                role=role if there else "ended",
                address=part.address,
                pid=part.pid if there else -1,
                epoch=state.epoch if state and member and member.role == MASTER else -1,
                in_step=member.in_step if member else None,
                log_end=member.log_end if member else -1,
                lag_bytes=member.lag_bytes if member else -1,
                started_ms=part.started_ms,
            )
        )
    return found


def running_group(folder: str | None) -> LocalGroup:
    """Return the group that runs in the folder; raises ConfigError when nothing does."""
    directory = folder or local_group.default_folder()
    group = load_group(directory)
    if not runs(group.keeper):
        stop = f" (processes it started do: {local_group.words_of(folder, 'stop')})"
        left = stop if any(map(runs, group.parts)) else ""
        raise ConfigError(f"no group runs in {directory}{left}: {local_group.words_of(folder)}")
    return group


def show_status(folder: str | None, output: Output) -> bool:
    """Print the processes; whether the group is healthy."""
    group = running_group(folder)
    try:
        look = asyncio.run(look_at(group))
    except RoquetteError as error:
        show(lines(group, None), output)
        say(f"the group does not answer: {error}")
        return False
    show(lines(group, look), output)
    for problem in look.problems:
        say(problem)
    return look.state.healthy if look.state else not look.problems


def restart(folder: str | None, target: str) -> None:
    """Have the keeper start a process again. Raises ConfigError: there is none of that name; ClientError: it did
    not start."""
    directory = folder or local_group.default_folder()
    name = f"broker-{target}" if target.isdigit() else target
    old = find(running_group(folder), name)
    if send_signal(old, signal.SIGTERM):
        say(f"stopping {name}, pid {old.pid}")
        _wait_until(lambda: not runs(old), f"{name} did not stop")
    files, order = OsFiles(), local_group.order_path(directory, name)
    files.write_atomic(order, b"", keep_backup=False)
    _wait_until(lambda: not files.exists(order), f"{name} was not started")
    group = running_group(folder)
    if not runs(find(group, name)):
        raise ClientError(f"{name} did not start, see {directory}/{name}.log")
    say(f"{name} runs again")
    broker = {int(name.rpartition("-")[2])} if name.startswith("broker-") else set()
    show(lines(group, asyncio.run(until_ready(group, broker, lambda: False))), Output.TABLE)


def find(group: LocalGroup, name: str) -> GroupProcess:
    """The process of that name; raises ConfigError."""
    for part in group.parts:
        if part.name == name:
            return part
    known = ", ".join(part.name for part in group.parts)
    raise ConfigError(f"there is no process {name}; there are {known}")


def stop_group(folder: str | None) -> None:
    """End a group by its keeper, or what is left of one."""
    directory = folder or local_group.default_folder()
    group = load_group(directory)
    if send_signal(group.keeper, signal.SIGTERM):
        _wait_until(lambda: not runs(group.keeper), "the group did not stop")
    for part in reversed(group.parts):
        if send_signal(part, signal.SIGTERM):
            say(f"{part.name}, pid {part.pid}, was left: stopping it")
            _wait_until(lambda left=part: not runs(left), f"{part.name} did not stop")  # type: ignore[misc]
    say(f"nothing runs in {directory}; what was sent is kept there")


def _wait_until(condition: Callable[[], bool], words: str) -> None:
    for _ in range(int(HEALTHY_S * 20)):
        if condition():
            return
        pause(50)
    raise ClientError(f"{words} within {HEALTHY_S:.0f} s")


# `roquette up kill`: a broker dies while messages are sent, and what a sender sees is told in lines.


TOPIC: Final = "roquette-up-probe"
STEP_S: Final = 0.05  # between two probes, and two looks at the group
BEFORE_S: Final = 1.0  # probes are sent so long before the kill, and after all is well again
AFTER_S: Final = 1.0
LIMIT_S: Final = 30.0
READ_S: Final = 15.0


class ProbeSender:
    """Messages sent at a steady pace, whatever becomes of them. Times are the loop's, seconds."""

    def __init__(self, client: Client) -> None:
        self.acknowledged: dict[int, tuple[float, str]] = {}  # by queue offset: when, the body
        self.refused: list[tuple[float, str]] = []
        self.queue: MessageQueue | None = None
        self._client = client
        self._number = 0

    async def run(self, tasks: Tasks) -> None:
        """Send until cancelled."""
        while True:
            self._number += 1
            tasks.start("probe", self._send(self._number))
            await asyncio.sleep(STEP_S)

    async def _send(self, number: int) -> None:
        now, body = asyncio.get_running_loop().time, f"probe-{number}"
        try:
            receipt = await self._client.send(TOPIC, body)
        except RoquetteError as error:
            self.refused.append((now(), str(error)))
            return
        if receipt.status == "SEND_OK":
            self.queue = receipt.queue
            self.acknowledged[receipt.queue_offset] = (now(), body)
        else:
            self.refused.append((now(), receipt.status))

    def first_after(self, limit_s: float) -> float | None:
        """Return the time of the first acknowledgement after that moment."""
        return min((at for at, _ in self.acknowledged.values() if at > limit_s), default=None)

    async def lost(self) -> list[int]:
        """Offsets of acknowledged probes that are not found where the broker said they are."""
        assert self.queue is not None
        wanted = {offset: body for offset, (_, body) in self.acknowledged.items()}
        reader = self._client.reader(group="roquette-up-reader")
        await reader.assign([self.queue])
        reader.seek(self.queue, min(wanted))
        now = asyncio.get_running_loop().time
        end_s = now() + READ_S
        while wanted and now() < end_s:
            for message in await reader.poll(timeout=1.0):
                if wanted.get(message.queue_offset) == message.body.decode(errors="replace"):
                    del wanted[message.queue_offset]
        return sorted(wanted)


def kill_and_watch(folder: str | None, target: str) -> bool:
    """Kill one broker and tell; whether all that was acknowledged is there. Raises ConfigError, ClientError."""
    group = running_group(folder)
    if not group.name:
        raise ConfigError(
            f"brokers of `roquette up --brokers` are masters without replicas: when one is killed, nobody takes over. "
            f"To stop one in order and start it: {words_of(folder, 'restart ID')}"
        )
    all_there, member = asyncio.run(_watch(group, target, folder))
    if all_there:
        say(f"next: {words_of(folder, f'restart {member}')}")
    return all_there


def chosen(state: GroupState, target: str, folder: str | None = None) -> int:
    """The id that "master", "slave" or a number means; raises ConfigError."""
    replicas = [m.broker_id for m in state.members if m.broker_id != state.master and not m.error]
    if target == "master" and state.master:
        return state.master
    if target == "slave" and replicas:
        return replicas[-1]
    if (broker_id := whole_number(target, 2**63 - 1)) in {each.broker_id for each in state.members}:
        return broker_id
    if target in ("master", "slave"):
        raise ConfigError(f"the group has no {target} at present: {words_of(folder, 'status')}")
    raise ConfigError(f"{target} is not master, slave or the id of a broker")


async def _watch(group: LocalGroup, target: str, folder: str | None) -> tuple[bool, int]:
    tasks, now = Tasks(), asyncio.get_running_loop().time
    servers = [part.address for part in group.name_servers]
    async with Client(group.namesrv, group="roquette-up") as client:
        looks = group_states(servers, group.name, group.cluster)
        (state,) = await client.session.run(looks)
        member = chosen(state, target, folder)
        role = "master" if member == state.master else "replica"
        await _need_topic(client, servers)
        probes = ProbeSender(client)
        tasks.start("probes", probes.run(tasks))
        try:
            await asyncio.sleep(BEFORE_S)
            if not probes.acknowledged:
                why = probes.refused[-1][1] if probes.refused else "no answer"
                raise ClientError(f"nobody is killed: messages are not acknowledged: {why}")
            part = find(group, f"broker-{member}")
            killed_s = now()
            if not send_signal(part, signal.SIGKILL):
                raise ConfigError(
                    f"broker {member} has ended already: {words_of(folder, f'restart {member}')}"
                )
            say(f"   0.000 s  broker {member} ({role}, pid {part.pid}) is killed")
            await _tell(client, servers, group, probes, killed_s, state)
            await asyncio.sleep(AFTER_S)
        finally:
            await tasks.stop()
        return await _sum_up(probes), member


async def _need_topic(client: Client, servers: list[str]) -> None:
    await client.session.run(create_topic(servers, TOPIC, queues=1))
    end_s = asyncio.get_running_loop().time() + LIMIT_S
    while True:
        try:
            await client.queues(TOPIC)
            return
        except RouteNotFound:
            if asyncio.get_running_loop().time() > end_s:
                raise
            await asyncio.sleep(STEP_S)


async def _tell(
    client: Client,
    servers: list[str],
    group: LocalGroup,
    probes: ProbeSender,
    killed_s: float,
    before: GroupState,
) -> None:
    """Say what happens, when it does, until messages are acknowledged again by a master."""
    now = asyncio.get_running_loop().time
    refused = epoch = False
    while now() < killed_s + LIMIT_S:
        if not refused and probes.refused and probes.refused[-1][0] > killed_s:
            refused = True
            at_s, why = next(each for each in probes.refused if each[0] > killed_s)
            say(f"{at_s - killed_s:8.3f} s  a message is not acknowledged: {' '.join(why.split())}")
        (state,) = await client.session.run(group_states(servers, group.name, group.cluster))
        if not epoch and state.master and state.epoch > before.epoch:
            epoch = True
            say(f"{now() - killed_s:8.3f} s  broker {state.master} is master, epoch {state.epoch}")
        settled = state.epoch > before.epoch or state.master == before.master
        back = probes.first_after(killed_s + STEP_S)
        if state.master and settled and back is not None:
            say(f"{back - killed_s:8.3f} s  messages are acknowledged")
            return
        await asyncio.sleep(STEP_S)
    raise ClientError(f"no message is acknowledged {LIMIT_S:.0f} s after the kill")


async def _sum_up(probes: ProbeSender) -> bool:
    times = sorted(at for at, _ in probes.acknowledged.values())
    pause_s = max(b - a for a, b in itertools.pairwise(times))
    say(
        f"longest time without an acknowledgement: {pause_s:.2f} s; {len(times)} messages acknowledged, "
        f"{len(probes.refused)} not"
    )
    lost = await probes.lost()
    if lost:
        say(f"LOST: {len(lost)} acknowledged messages, at offsets {lost[:20]} of {TOPIC}")
    else:
        say("all that were acknowledged are there")
    return not lost
