"""`roquette up kill`: a broker dies while messages are sent, and what a sender sees is told in lines."""

import asyncio
import itertools
import signal
from typing import Final

from roquette.admin.replication import GroupState, group_states
from roquette.admin.topics import create_topic
from roquette.apps.group_run import find, running_group
from roquette.apps.local_group import LocalGroup, send_signal, words_of
from roquette.base.javatypes import whole_number
from roquette.base.lifecycle import Tasks
from roquette.cli.output import say
from roquette.client.client import Client
from roquette.errors import ClientError, ConfigError, RoquetteError, RouteNotFound
from roquette.message.message import MessageQueue

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
    all_there, member = asyncio.run(_watch(running_group(folder), target, folder))
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
