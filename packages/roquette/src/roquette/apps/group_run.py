"""Work of `roquette up` and its verbs: keep a group's processes, look at it, start one again, end all."""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import ClassVar

import msgspec

from roquette.admin.replication import MASTER, GroupState, group_states
from roquette.apps import local_group, running
from roquette.apps.dev import DEV_SETTINGS
from roquette.apps.local_group import (
    GroupKeeper,
    GroupProcess,
    LocalGroup,
    load_group,
    runs,
    send_signal,
)
from roquette.base.executor import pause
from roquette.base.files import OsFiles
from roquette.cli.output import Output, say, show
from roquette.client.client import Client
from roquette.errors import ClientError, ConfigError, RoquetteError, StoreError

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


def keep_group(where: str | None, replicas: int, etcd: bool, settings: dict[str, str]) -> int:
    """Run a group until SIGINT or SIGTERM; the exit code. Raises ConfigError: one runs there, or it did not start."""
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
    brokers = [GroupProcess(name=f"broker-{broker_id}") for broker_id in range(1, replicas + 1)]
    if files.exists(os.path.join(folder, local_group.STATE)):
        before = load_group(folder)
        if any(map(runs, before.parts)):
            raise ConfigError(
                f"processes of an earlier group in {folder} run: {local_group.words_of(folder, 'stop')}"
            )
        if (len(before.name_servers), len(before.brokers)) != (len(name_servers), replicas):
            raise ConfigError(
                f"{folder} has another group, of {len(before.brokers)} brokers and {len(before.name_servers)} "
                "name server(s): give the same options, remove the folder, or name another one by --dir"
            )
        name_servers = [
            GroupProcess(name=part.name, peer=part.peer) for part in before.name_servers
        ]
    pid = os.getpid()
    group = LocalGroup(
        cluster=CLUSTER_NAME,
        name=GROUP_NAME,
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
            state = await until_in_step(group, everybody, stop.is_set)
            if state is not None:
                show(lines(group, state), Output.TABLE)
                say(f"\ntry:  roquette produce -n {group.namesrv} orders hello world")
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
    try:
        return [(await look_at(group)).master]
    except RoquetteError:
        return []


async def look_at(group: LocalGroup) -> GroupState:
    """Look at the group's present state. Raises ClientError, ConfigError: its name server or its record is not there (yet)."""
    async with Client(group.namesrv, group="TOOLS_PRODUCER") as client:
        servers = [part.address for part in group.name_servers]
        (state,) = await client.session.run(group_states(servers, group.name, group.cluster))
        return state


async def until_in_step(
    group: LocalGroup, broker_ids: set[int], given_up: Callable[[], bool]
) -> GroupState | None:
    """Wait until there is a master and these are in step, telling what changes; None when the caller gave up.

    Raises ClientError when it takes too long.
    """
    now = asyncio.get_running_loop().time
    end_s, told, why = now() + HEALTHY_S, "", "nothing answered"
    while now() < end_s and not given_up():
        try:
            state = await look_at(group)
        except RoquetteError as error:
            why = str(error)
        else:
            why = "; ".join(state.problems) or "a broker is missing"
            news = (
                f"broker {state.master} is master of epoch {state.epoch}, in step: {state.in_step}"
            )
            if news != told and state.master:
                told = news
                say(f"  {news}")
            if state.master and broker_ids <= set(state.in_step):
                return state
        await asyncio.sleep(LOOK_S)
    if given_up():
        return None
    raise ClientError(f"{sorted(broker_ids)} are not in step after {HEALTHY_S:.0f} s: {why}")


def lines(group: LocalGroup, state: GroupState | None) -> list[Line]:
    """The processes, and what is known of the brokers; without a `state` nothing is."""
    known = {member.broker_id: member for member in state.members} if state else {}
    found = []
    for part in group.parts:
        is_broker = part in group.brokers
        member = known.get(int(part.name.rpartition("-")[2])) if is_broker else None
        role = member.role if member else "-" if is_broker else "name server, controller"
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
        state = asyncio.run(look_at(group))
    except RoquetteError as error:
        show(lines(group, None), output)
        say(f"the group does not answer: {error}")
        return False
    show(lines(group, state), output)
    for problem in state.problems:
        say(problem)
    return state.healthy


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
    state = asyncio.run(until_in_step(group, broker, lambda: False))
    show(lines(group, state), Output.TABLE)


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
