"""A replica stands in for a dead master, and the master takes up from there when it comes back.

Apache's enableSlaveActingMaster with enableRemoteEscape: while no name server knows a master, the replica with the
smallest id puts what is due in the delay levels (consumers' retries wait there, too) to other masters of the topic,
which consumers read from; at least once. A master that starts asks its replicas how far they got and what consumers
committed there (BrokerPreOnlineService), before it delivers or serves anything. Timer messages wait for the master.
"""

import asyncio
import logging
from functools import partial
from typing import Final, NamedTuple

from roquette.base.executor import run_blocking
from roquette.base.lifecycle import Health, Tasks
from roquette.broker.cluster.outbound import Outbound
from roquette.broker.config import name_servers
from roquette.broker.core import BrokerCore
from roquette.broker.feature import Feature, Lane
from roquette.broker.files.config_files import DELAYS
from roquette.broker.replication.source import MasterSource
from roquette.broker.timers.delay_levels import DelayLevels, DelayProgress
from roquette.errors import ClientError, RefusedForNow
from roquette.message.names import PERM_WRITE
from roquette.message.record_layout import StoredRecord
from roquette.remoting.outcomes import Reply, Task
from roquette.remoting.promises import Promise
from roquette.remoting.request import RequestContext, Row, row
from roquette.store.results import Appended
from roquette.wire.bodies import MASTER_ID, ConsumerOffsetSerializeWrapper
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.headers import SendMessageRequestHeaderV2
from roquette.wire.json_body import decode_body, encode_body

log = logging.getLogger("roquette.broker.replication")

ABSENT_S: Final = 3.0  # a master that only restarts is back by then
LOOK_S: Final = 1.0
BEAT_S: Final = 0.1
RETRY_S: Final = 1.0
TIMEOUT_MS: Final = 3_000
MOST_WAITING: Final = 512  # messages that are read and not yet taken by another master
AT_ONCE: Final = 32
GROUP: Final = "INNER_ESCAPE_PRODUCER"
_OWN_GROUPS: Final = "CID_RMQ_SYS_"


class _Due(NamedTuple):
    """A message on its way to another master."""

    topic: str
    text: str
    record: StoredRecord


class Outbox:
    """What the delay levels write to on a replica, whose log takes nothing but its master's bytes."""

    def __init__(self, core: BrokerCore) -> None:
        self.aside = core.writer.aside
        self.waiting: list[_Due] = []

    def put_copy(
        self, topic: str, queue_id: int, text: str, record: StoredRecord, now_ms: int
    ) -> Appended:
        """Keep a delivery until it is sent; its queue is the other master's choice. Raises RefusedForNow: many wait."""
        if len(self.waiting) >= MOST_WAITING:
            raise RefusedForNow(ResponseCode.SYSTEM_BUSY, f"{MOST_WAITING} deliveries wait")
        self.waiting.append(_Due(topic, text, record))
        return Appended(-1, -1, len(record.body), -1)


class ActingMaster(Feature):
    """Delivers the delay levels in a dead master's name."""

    def __init__(self, core: BrokerCore, source: MasterSource, outbound: Outbound) -> None:
        self._core = core
        self._source = source
        self._outbound = outbound
        self.delivered = 0

    def rows(self) -> list[Row]:
        """What the returning master asks."""
        code, nothing = RequestCode.GET_ALL_DELAY_OFFSET, Promise.NOTHING
        return [row(code, self._progress_now, None, Lane.ADMIN, nothing)]

    def _progress_now(self, ctx: RequestContext, header: None, body: bytes) -> Task:
        """GET_ALL_DELAY_OFFSET: how far the deliveries that other masters have taken are."""
        return Task(self._progress_reply())

    async def _progress_reply(self) -> Reply:
        found = await run_blocking(self._core.files.load, DELAYS, DelayProgress)
        return Reply(body=encode_body(found or DelayProgress(), java_keys=True))

    def runtime_info(self, now_ms: int) -> dict[str, str]:
        """How many messages were delivered."""
        return {"actingMasterDelivered": str(self.delivered)}

    async def start(self, tasks: Tasks) -> None:
        """Watch for a master that is gone."""
        tasks.keep("acting-master", self._watch)

    async def _watch(self, health: Health) -> None:
        absent_s = 0.0
        while True:
            await asyncio.sleep(LOOK_S)
            absent_s = 0.0 if self._source.master_address else absent_s + LOOK_S
            if absent_s >= ABSENT_S and await self._is_first():
                log.warning("no master is known: this replica delivers what is due")
                await self._act(health)
                log.info("deliveries end: a master is known, or another replica is first")
                absent_s = 0.0
            health.worked()

    async def _is_first(self) -> bool:
        """Whether a name server knows no member of this broker's name with a smaller id."""
        config = self._core.live.current
        for server in name_servers(config):
            try:
                members = await self._outbound.members(
                    server, config.broker_cluster_name, config.broker_name, TIMEOUT_MS
                )
            except ClientError:
                continue
            return self._core.identity.broker_id == min(members, default=-1)
        return False

    async def _act(self, health: Health) -> None:
        """Deliver while there is no master and no replica before this one."""
        core, outbox = self._core, Outbox(self._core)
        levels = DelayLevels(
            core.store, outbox, core.writer.delay_ms, core.times, core.clock.now_ms(), _ignore
        )
        found = await run_blocking(core.files.load, DELAYS, DelayProgress)
        if found is not None:
            levels.load(found.offset_table, found.data_version, found.log_offset)
        looked_s = asyncio.get_running_loop().time()
        while not self._source.master_address:
            more = False
            if not outbox.waiting:
                try:
                    more = levels.step(core.clock.now_ms(), core.clock.steady_ms())
                except RefusedForNow:  # the outbox is full
                    more = True
            if outbox.waiting:
                await self._send_all(outbox)
                if outbox.waiting:
                    await asyncio.sleep(RETRY_S)
            if levels.dirty and not outbox.waiting:
                levels.capture(core.store.max_physical_offset)
                data = core.files.encode(DELAYS, levels.to_wrapper())
                await run_blocking(core.files.write, DELAYS, data)
            health.worked()
            now_s = asyncio.get_running_loop().time()
            if now_s - looked_s >= LOOK_S:
                looked_s = now_s
                if not await self._is_first():
                    return
            await asyncio.sleep(0 if more else BEAT_S)

    async def _send_all(self, outbox: Outbox) -> None:
        """Send what waits; what nobody has taken goes on waiting."""
        waiting, left = outbox.waiting, []
        places = {topic: await self._masters_of(topic) for topic in {due.topic for due in waiting}}
        for start in range(0, len(waiting), AT_ONCE):
            part = waiting[start : start + AT_ONCE]
            taken = await asyncio.gather(*[self._send(due, places[due.topic]) for due in part])
            left += [due for due, done in zip(part, taken) if not done]
        self.delivered += len(waiting) - len(left)
        outbox.waiting = left

    async def _masters_of(self, topic: str) -> list[tuple[str, int]]:
        """Address and number of queues of the other masters that take messages of a topic."""
        config = self._core.live.current
        for server in name_servers(config):
            try:
                route = await self._outbound.route(server, topic, TIMEOUT_MS)
            except ClientError:
                continue
            queues = {
                data.broker_name: data.write_queue_nums
                for data in (route.queue_datas if route else ())
                if data.perm & PERM_WRITE
            }
            return [
                (broker.broker_addrs[MASTER_ID], queues[broker.broker_name])
                for broker in (route.broker_datas if route else ())
                if broker.broker_name != config.broker_name
                and MASTER_ID in broker.broker_addrs
                and queues.get(broker.broker_name, 0) > 0
            ]
        return []

    async def _send(self, due: _Due, masters: list[tuple[str, int]]) -> bool:
        record = due.record
        if not masters:
            log.warning("no other master takes messages of topic=%s: they wait", due.topic)
            return False
        address, queues = masters[record.queue_offset % len(masters)]
        header = SendMessageRequestHeaderV2(
            producer_group=GROUP,
            topic=due.topic,
            default_topic="",
            queue_id=record.queue_offset // len(masters) % queues,
            sys_flag=record.sys_flag,
            born_timestamp=record.born_timestamp_ms,
            flag=record.flag,
            properties=due.text,
            reconsume_times=record.reconsume_times,
        )
        try:
            await self._outbound.send(address, header, record.body, TIMEOUT_MS)
        except ClientError as error:
            log.warning("delivery not taken topic=%s broker=%s error=%s", due.topic, address, error)
            return False
        return True


def _ignore(topic: str, size: int) -> None:
    return None


class PreOnline(Feature):
    """A master that starts takes over what a replica did in its name: progress of the delay levels, consumers' offsets.

    Never backwards, and never beyond the own queues' ends. A replica that does not answer is passed over: then what it
    delivered is delivered once more.
    """

    def __init__(self, core: BrokerCore, levels: DelayLevels, outbound: Outbound) -> None:
        self._core = core
        self._levels = levels
        self._outbound = outbound

    async def prepare(self) -> None:
        """Before anything is served."""
        config = self._core.live.current
        if not config.enable_slave_acting_master or self._core.identity.broker_id != MASTER_ID:
            return
        for server in name_servers(config):
            try:
                members = await self._outbound.members(
                    server, config.broker_cluster_name, config.broker_name, TIMEOUT_MS
                )
            except ClientError as error:
                log.warning("members not known namesrv=%s error=%s", server, error)
                continue
            for number, address in sorted(members.items()):
                if number != MASTER_ID:
                    await self._take_from(address)
            return

    async def _take_from(self, replica: str) -> None:
        ask = partial(self._outbound.ask, replica, timeout_ms=TIMEOUT_MS)
        try:
            answer = await ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
            moved = self._take_offsets(decode_body(ConsumerOffsetSerializeWrapper, answer.body))
            answer = await ask(RequestCode.GET_ALL_DELAY_OFFSET)
            self._levels.take(decode_body(DelayProgress, answer.body).offset_table)
        except ClientError as error:
            log.warning("progress not taken over replica=%s error=%s", replica, error)
        else:
            log.info("progress taken over replica=%s offsets=%d", replica, moved)

    def _take_offsets(self, table: ConsumerOffsetSerializeWrapper) -> int:
        core, moved = self._core, 0
        for key, queues in table.offset_table.items():
            topic, _, group = key.partition("@")
            for queue_id, offset in queues.items():
                if (
                    not group.startswith(_OWN_GROUPS)
                    and core.tables.offsets.query(group, topic, queue_id) < offset
                    and offset <= core.store.max_offset(topic, queue_id)
                ):
                    core.tables.offsets.commit(group, topic, queue_id, offset, core.clock.now_ms())
                    moved += 1
        return moved
