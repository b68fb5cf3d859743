"""Persists the broker's tables, and registers changes of topics with the name servers.

What operators change is written before the request is answered, topics are registered, too; a file that cannot
be written is reported. Offsets that clients commit go to the journal at the end of each turn, and to their file on a beat,
as delay progress does. Topics whose file a crash took are made out of their queues.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from roquette.base.descriptors import NO_SPACE, rights_words
from roquette.base.executor import run_blocking
from roquette.base.metric_families import TABLES_UNWRITTEN, MetricTable, one
from roquette.broker.floor import config_files, set_aside
from roquette.broker.floor.config import system_topics
from roquette.broker.floor.config_files import Saver, SaveSteps
from roquette.broker.floor.deletions import DeletedTopics, Deletions
from roquette.broker.floor.feature import Beat, Feature, Start
from roquette.broker.floor.parts import BrokerParts
from roquette.broker.floor.tables.offset_journal import NAMES as JOURNALS
from roquette.broker.floor.tables.offset_journal import Change, OffsetJournal
from roquette.broker.floor.tables.topics import TopicTable
from roquette.errors import StoreError
from roquette.message.names import PERM_WRITE, perm_text
from roquette.remoting.request import Outcome, Reply, Task
from roquette.store.format.config import FlushDiskType
from roquette.store.message_store import MessageStore
from roquette.wire.bodies import (
    ConsumerOffsetSerializeWrapper,
    MessageRequestModeSerializeWrapper,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from roquette.wire.codes import ResponseCode

log = logging.getLogger("roquette.broker")

GROUPS_BEAT_S = (
    1.0  # subscriptionGroup.json is written once in so long for groups that clients make
)

ASIDE_BEAT_S = 0.1


SETTLE_S = 0.5  # a reply waits so long at most for the name servers
CONFIRMED_S = 0.02  # what the group confirms is looked at so often


class Registrar(Protocol):
    """Tells the name servers of topics."""

    def topic_changed(self, name: str) -> None:
        """A topic was made, changed or deleted."""

    def all_changed(self) -> None:
        """Every topic is told again: what the broker permits has changed."""

    def refresh(self) -> None:
        """Take the name servers from the settings again."""

    async def settled(self, limit_s: float = SETTLE_S) -> None:
        """Wait until the name servers know the changes, `limit_s` at most."""


class TablePersistence(Feature):
    """Loads the five tables, and follows their changes.

    Attributes:
        followers: called with each change of the offsets that the journal has taken, and whether it has words of the
            broker's own (`OffsetTable.own_words`).
        registrar: the feature that registers; it says so when it is made.
        deleted: topics whose messages the log still has.
        modes: the file of the request modes, to be written after a change.
        lacks: tables that this master has never had (`TakeOver`).
    """

    registrar: Registrar

    def __init__(self, core: BrokerParts, deletions: Deletions) -> None:
        files, tables = core.files, core.tables
        self._files = files
        self._tasks = core.shell.tasks
        self._clock = core.clock
        self._live = core.live
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._modes = tables.modes
        self._store = core.store
        self._topic_file = Saver(files, config_files.TOPICS, self._topic_wrapper, frozen=True)
        self._group_file = Saver(files, config_files.GROUPS, self._groups.to_wrapper, frozen=True)
        self._aside_file = Saver(files, set_aside.FILE, core.writer.aside.to_file)
        self._aside = core.writer.aside
        self._aside.changed.append(self._aside_file.mark)
        self.deleted = DeletedTopics(files, core.store, core.live.bounds.deleted)
        self.modes = Saver(files, config_files.MODES, tables.modes.to_wrapper)
        self._more = (self.deleted.file, self.modes)
        self._journal = journal = OffsetJournal(*files.place)
        self._sync_flush = core.live.store.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._turns = self._synced = 0  # entries of the journal, and those on the disk
        self._syncing, self._asked = asyncio.Lock(), False
        self._log_sync = core.log_sync
        self._settle: list[Callable[[], None]] = []
        self._offset_file = Saver(
            files,
            config_files.OFFSETS,
            self._offsets.to_wrapper,
            frozen=True,
            steps=SaveSteps(
                before=self._before_offsets,
                ready=self._log_kept,
                picture=journal.picture,
                pictured=journal.pictured,
                written=journal.saved,
            ),
        )
        self._deletions = deletions
        self._early = False  # the file of offsets is written before its beat
        self.followers: list[Callable[[Change, bool], None]] = []
        self.lacks: list[str] = []

    def _topic_wrapper(self) -> TopicConfigSerializeWrapper:
        return TopicConfigSerializeWrapper(
            topic_config_table=self._topics.to_table(), data_version=self._topics.data_version
        )

    def load(self, start: Start) -> None:
        """Read the files into the tables; raises StoreError when a file exists and cannot be read."""
        self._files.prove(JOURNALS)
        topics = self._files.load(config_files.TOPICS, TopicConfigSerializeWrapper)
        if topics is not None:
            self._topics.load(topics.topic_config_table.values(), topics.data_version)
        self.deleted.load()
        groups = self._files.load(config_files.GROUPS, SubscriptionGroupWrapper)
        if groups is not None:
            self._groups.load(
                groups.subscription_group_table.values(),
                groups.forbidden_table,
                groups.data_version,
            )
        offsets = self._files.load_marked(config_files.OFFSETS, ConsumerOffsetSerializeWrapper)
        crc = size = 0
        if offsets is not None:
            self._offsets.load(offsets.value)
            crc, size = offsets.mark.crc, offsets.mark.size
        # Where parts of the log are gone, no journal may speak of it.
        log_end = 0 if start.damaged else self._store.max_physical_offset
        for change in self._journal.load(crc, size, log_end):
            self._offsets.apply(change)
        self._offsets.count()
        self._aside.load(self._files.load(set_aside.FILE, set_aside.SetAsideFile))
        restore_topics(
            self._topics,
            self._store,
            self._deletions.is_system,
            start.now_ms,
            clean=not start.abnormal,
        )
        modes = self._files.load(config_files.MODES, MessageRequestModeSerializeWrapper)
        if modes is not None:
            self._modes.load(modes.message_request_mode_map)

    def before_offsets(self, settle: Callable[[], None]) -> None:
        """`settle` runs before the offsets are written: POP commits an offset when the log holds the check-point of
        the messages before it, and only then."""
        self._settle.append(settle)

    def _before_offsets(self) -> None:
        for settle in self._settle:
            settle()

    async def _log_kept(self) -> bool:
        """Wait until what the offsets speak of is on the disk, and confirmed in a group: a cut of the log takes
        check-points of pops and decisions of transactions with it, and only the journal can go back to before them."""
        store, end = self._store, self._store.max_physical_offset
        until_ms = self._clock.steady_ms() + self._live.current.slave_timeout
        safe = await self._log_sync.on_disk(end)
        while safe and store.confirmed < end:
            safe = self._clock.steady_ms() < until_ms
            await asyncio.sleep(CONFIRMED_S)
        return safe

    async def prepare(self) -> None:
        """All features have loaded: from here on, follow changes."""
        self._topics.add_system(
            system_topics(self._live.current, timer_wheel=self._live.store.timer_wheel_enable)
        )
        self._topics.set_writable(bool(self._live.current.broker_permission & PERM_WRITE))
        self._topics.changed.append(self._topic_changed)
        self._groups.changed.append(self._group_changed)
        self._live.changed.append(self._settings_changed)

    def beats(self) -> list[Beat]:
        """The files; what could not be written elsewhere is tried again."""
        return [
            Beat("offsets", self._live.offset_interval_s, self.save_offsets),
            Beat("set-aside", ASIDE_BEAT_S, self._aside_file.try_save),
        ]

    def _topic_changed(self, name: str) -> None:
        if self._topics.find(name) is None:
            self.deleted.deleted(name)
        self.registrar.topic_changed(name)
        self._topic_file.soon(self._tasks)

    def _group_changed(self, name: str) -> None:
        self._group_file.soon(self._tasks, GROUPS_BEAT_S)

    def _settings_changed(self, keys: list[str]) -> None:
        if keys:
            log.info("settings changed keys=%s", ",".join(keys))
        self._store.reconfigure(self._live.store)
        if "brokerPermission" in keys:
            permission = self._live.current.broker_permission
            log.info("broker permission is now %s", perm_text(permission))
            self._topics.set_writable(bool(permission & PERM_WRITE))
            self._topics.touch(self._clock.now_ms())
            self._topic_file.mark()
            self.registrar.all_changed()
        if "namesrvAddr" in keys:
            self.registrar.refresh()

    # Outcomes that answer when it is done. Each is a refusal that says so when a file cannot be written.

    async def topics_saved(self) -> bool:
        """Wait until the topics are on the disk; False when that failed, which their beat tries again."""
        return await self._topic_file.try_save()

    async def settled(self, limit_s: float = SETTLE_S) -> bool:
        """The same, and the name servers know: `limit_s` at most for them."""
        saved = await self.topics_saved()
        await self.registrar.settled(limit_s)
        return saved

    def topic_set(self, reply: Reply, limit_s: float = SETTLE_S) -> Outcome:
        """`reply`, once changed topics are on the disk and the name servers know of them."""
        return Task(self._confirmed(reply, self._topic_file, settle_s=limit_s))

    def topic_deleted(self, reply: Reply) -> Outcome:
        """The same after a deletion: a topic of the same name must not meet the old one's offsets."""
        self._offset_file.mark()
        files = (self._offset_file, self._group_file, *self._more, self._topic_file)
        return Task(self._confirmed(reply, *files, settle_s=SETTLE_S))

    def topic_may_go(self, name: str) -> None:
        """Raises Refused when there is no room to remember that the topic is deleted."""
        self.deleted.make_room(name)

    def queues_dropped(self, topics: list[str], reply: Reply) -> Outcome:
        """`reply`, once it is on the disk that the queues of some unknown topics are gone."""
        for topic in topics:
            self.deleted.deleted(topic)
        return Task(self._confirmed(reply, self.deleted.file))

    def group_set(self, reply: Reply) -> Outcome:
        """`reply`, once changed groups are on the disk."""
        return Task(self._confirmed(reply, self._group_file))

    def group_deleted(self, reply: Reply) -> Outcome:
        """The same, and what went with the group."""
        self._offset_file.mark()
        return Task(self._confirmed(reply, self._offset_file, *self._more, self._group_file))

    def offsets_set(self, reply: Reply) -> Outcome:
        """`reply`, once the offsets are on the disk."""
        self._offset_file.mark()
        return Task(self._confirmed(reply, self._offset_file))

    def committed(self, reply: Reply) -> Outcome:
        """`reply`, once the commit is as safe as flushDiskType says."""
        return Task(self._on_disk(reply)) if self._sync_flush else reply

    async def _on_disk(self, reply: Reply) -> Reply:
        """In a later turn: this one has written the journal, which speaks of the log."""
        late = not await self._log_sync.all_on_disk()
        if await self._sync_journal():
            return reply if not late else Reply(code=ResponseCode.FLUSH_DISK_TIMEOUT)
        self._offset_file.mark()  # the whole file, then
        return await self._confirmed(reply, self._offset_file)

    async def _sync_journal(self) -> bool:
        """Bring what the journal has now to the disk, for all who ask; False: the disk does not take it."""
        wanted = self._turns
        async with self._syncing:
            turns = self._turns
            if self._synced < wanted:
                try:
                    await run_blocking(self._journal.sync)
                except OSError as error:
                    log.error("journal of offsets not synced error=%s", error)
                    return False
                self._synced = turns
        return True

    async def _sync_soon(self) -> None:
        try:
            while self._synced < self._turns and await self._sync_journal():
                pass
        finally:
            self._asked = False

    async def _confirmed(self, reply: Reply, *files: Saver, settle_s: float = 0.0) -> Reply:
        for file in files:
            await file.confirm()
        if settle_s:
            await self.registrar.settled(settle_s)
        return reply

    def turn_written(self, log_end: int) -> bool:
        """Write down what the turn changed of the offsets; False when that cannot be done, for the first time:
        the answers of this turn must not leave. Later commits are refused until it works again."""
        offsets, journal = self._offsets, self._journal
        if not offsets.moved:
            return True
        change = offsets.change(log_end)
        if journal.append(change):
            for follow in self.followers:
                follow(change, offsets.own_words)
            offsets.told()
            offsets.unsafe = None
            self._turns += 1
            if self._sync_flush and not self._asked:
                self._asked = True
                self._tasks.start("sync-offset-journal", self._sync_soon())
            if journal.full and not self._early:
                self._early = True
                self._tasks.start("save-full-journal", self._save_early())
            return True
        first, offsets.unsafe = offsets.unsafe is None, journal.failure
        return not first

    async def _save_early(self) -> None:
        self._offset_file.mark()
        await self._offset_file.try_save()
        self._early = False

    async def save_offsets(self) -> None:
        """The beat of consumer offsets; retries what failed elsewhere."""
        if self._offsets.dirty:
            self._offsets.dirty = False
            self._offset_file.mark()
        for saver in (self._offset_file, self._topic_file, self._group_file, *self._more):
            await saver.try_save()
        if any(error.errno not in NO_SPACE for error in self._files.failures.values()):
            raise StoreError(f"tables cannot be written: {self._trouble}")

    @property
    def _trouble(self) -> str:
        failed = [f"{name}: {error}" for name, error in self._files.failures.items()]
        return "; ".join([*failed, *filter(None, [self._journal.failure])])

    def unready(self) -> str:
        """Return why what changes now is gone after a restart."""
        why, remedy = self.health().values()
        return f"tables cannot be written: {why}. {remedy}" if why != "no" else ""

    def health(self) -> dict[str, str]:
        """Tables that cannot be written, and what mends their rights."""
        remedy = rights_words(self._files.place[1])
        return {"tablesUnwritten": self._trouble or "no", "tablesRemedy": remedy}

    def measures(self, now_ms: int) -> list[MetricTable]:
        """Return how many those are."""
        return [one(TABLES_UNWRITTEN, len(self._files.failures))]

    def save_now(self) -> None:
        """Write everything (Apache persists whatever there is)."""
        store, files = self._store, [self._topic_file, self._group_file]
        self._offset_file.mark()  # the journal stays unless it is written
        if min(store.synced_offset, store.confirmed) >= store.max_physical_offset:  # `_log_kept`
            files.append(self._offset_file)
        for saver in files:
            saver.mark()
            saver.try_save_now()
        for saver in self._more:
            saver.try_save_now()
        self._journal.close(remove=not self._offset_file.dirty)
        self._aside_file.try_save_now()


def restore_topics(
    topics: TopicTable,
    store: MessageStore,
    is_system: Callable[[str], bool],
    now_ms: int,
    *,
    clean: bool,
) -> None:
    """Make topics out of their queues after a crash, which may have come before the file was written.

    A clean stop has written the file, always: without it the directory is another one, or somebody has removed
    it, and with it went what groups have consumed.

    Args:
        is_system: does the broker make the topic itself?
        clean: the store was closed by its last owner.

    Raises:
        StoreError: there must have been a file.
    """
    if topics.all():
        return
    found = {
        topic: max(store.queues_of(topic)) + 1
        for topic in store.topics()
        if not is_system(topic)
        and any(store.max_offset(topic, queue_id) for queue_id in store.queues_of(topic))
    }
    if not found:
        return
    path = f"{store.layout.config}/topics.json"
    if clean:
        raise StoreError(
            f"{path} and its backups are gone, but the store has messages of {len(found)} topics, such as "
            f'"{min(found)}". Put the directory {store.layout.config} back; it also holds what groups have consumed'
        )
    log.error(
        "%s is gone: %d topics are made anew out of their queues, with default settings topics=%s",
        path,
        len(found),
        ",".join(sorted(found)[:20]),
    )
    for topic, queues in sorted(found.items()):
        topics.put(
            TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues), now_ms
        )
