"""A replica copies what its master keeps besides the log: topics, groups, request modes, consumer offsets, progress.

From a master of ours at once, by requests that wait there for changes (`table_feed`); from Apache's every ten seconds,
by the requests of its slaves (SlaveSynchronize). A table is taken over whole, deletions included, and never empty, and
from a master whose log was compared only. What speaks of the log is taken when this log is as long as the master's was: a
replica that becomes master must not pass over what it lacks. All of it goes to this broker's own tables and files, so
that a restart as master finds it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from roquette.access.processor import unseal
from roquette.access.users import decode_kept
from roquette.base.executor import run_blocking
from roquette.base.javatypes import whole_number
from roquette.base.lifecycle import Health, Tasks, Work
from roquette.base.logs import RateLimited
from roquette.broker.floor.config_files import DELAYS, ORDERS, TIMER_METRICS, TOPICS, DelayProgress
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Copied, Feature, Start, paced
from roquette.broker.floor.outbound import LOG_END
from roquette.broker.floor.tables.offset_journal import Change
from roquette.broker.floor.tables.topics import Topic
from roquette.errors import BrokerError, ClientError, Refused, RemoteProtocolError, StoreError
from roquette.store.format.checkpoint import TimerCheckpoint, decode_timer_checkpoint
from roquette.store.timer.timer_follow import begin_at
from roquette.wire.bodies import (
    ConsumerOffsetSerializeWrapper,
    ConsumerOrderInfoSerializeWrapper,
    MessageRequestModeSerializeWrapper,
    SubscriptionGroupWrapper,
    TimerMetricsSerializeWrapper,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigSerializeWrapper,
)
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.header_codec import decode_ext, encode_dict, encode_ext, ext_dict
from roquette.wire.headers import FollowTablesRequestHeader, FollowTablesResponseHeader
from roquette.wire.json_body import decode_body, encode_body

if TYPE_CHECKING:
    from roquette.broker.replication.follower import Source

# Repairs that a master makes at its start when it was a replica before: tables come beside the log, and may be ahead of it or behind it by what was under way when the master died.


log = logging.getLogger("roquette.broker.replication")

FILE: Final = "replicaOf.json"


class ReplicaOf(msgspec.Struct):
    """replicaOf.json.

    Attributes:
        master: whose tables these are; empty: this broker's own.
        lacks: which of them this store has never had, though its log is a master's.
    """

    master: str = ""
    lacks: list[str] = []


class OffsetTakeOver(Feature):
    """Offsets that point behind their queues' ends go back to them: what will come there has not been consumed. Topics that
    the log has messages of get default settings: their table had not come yet. Deleted ones stay deleted
    (`DeletedTopics`)."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._saved = core.saved
        self._deletions = core.deletions
        self._lacks: list[str] = []
        self._start: Start | None = None  # there is something to do

    def load(self, start: Start) -> None:
        """Outside of a group only a broker that has copied tables looks."""
        found = self._core.files.load(FILE, ReplicaOf)
        was_replica = found is not None and bool(found.master)
        if was_replica or self._core.live.current.enable_controller_mode:
            self._start = start
        if found is not None and found.lacks and self._core.store.max_physical_offset:
            self._lacks = self._saved.lacks = found.lacks
            log.error(
                "master without %s, which it never got: consumers may begin anew, and replicas keep theirs",
                ", ".join(found.lacks),
            )

    def health(self) -> dict[str, str]:
        """Return what this master has never had."""
        return {"tablesNotCopied": ",".join(self._lacks)} if self._lacks else {}

    async def prepare(self) -> None:
        """After the tables, whose changes are followed already."""
        core = self._core
        if self._start is None:
            return
        cut = core.tables.offsets.cut(core.store.max_offset)
        if cut:
            log.warning("%d consumer offsets pointed behind their queues' ends", cut)
        for topic in core.store.topics():
            self._make_topic(topic, self._start.now_ms)
        written = self._saved.turn_written(core.store.max_physical_offset)
        if await self._saved.topics_saved() and written:
            await run_blocking(core.files.save, FILE, ReplicaOf("", self._lacks))

    def _make_topic(self, name: str, now_ms: int) -> None:
        store, topics = self._core.store, self._core.tables.topics
        queues = store.queues_of(name)
        if topics.find(name) is not None or self._deletions.is_system(name):
            return
        if any(store.max_offset(name, queue) for queue in queues):
            count = max(queues) + 1
            config = TopicConfig(topic_name=name, read_queue_nums=count, write_queue_nums=count)
            topics.put(config, now_ms)
            log.warning("topic made anew out of its queues topic=%s queues=%d", name, count)


TIMEOUT_MS: Final = 10_000
LOOK_S: Final = 0.2  # for a master, while there is none
PAGE: Final = 2_000  # topics or groups, as Apache's slaves ask
MOST_PAGES: Final = 1_000
RETRY_S: Final = 1.0
PROGRESS_S: Final = 2.0  # delivered delay levels, orderly pops
APACHE_S: Final = 10.0
TIMER: Final = "timercheck"
A_TURN: Final = 1_000  # keys of the offsets
LOG_S: Final = 0.05  # the own log is looked at so often at least
KINDS: Final = {
    "tables": ("topics", "groups", "deleted", "modes", "users"),
    "offsets": ("offsets",),
    "progress": ("progress", "queues"),
    "timer": ("timer",),
}
TABLES: Final = tuple(table for kind in KINDS.values() for table in kind)
KEPT: Final = ("topics", "groups", "offsets")  # a master that never had them takes none of ours
_decode_change: Final = msgspec.msgpack.Decoder(Change).decode
_NOT_SERVED: Final = frozenset(
    (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR, ResponseCode.NO_PERMISSION)
)
_NOT_FOLLOWED: Final = (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.INVALID_PARAMETER)
W = TypeVar("W", TopicConfigAndMappingSerializeWrapper, SubscriptionGroupWrapper)


class _Moved(Exception):
    """The master is another one, or none: what was asked is of no interest any more."""


class MetadataCopy(Feature):
    """Follows the tables of a master.

    Attributes:
        missing: which of `TABLES` have not been taken over yet from the present master.
    """

    def __init__(self, core: BrokerCore, source: "Source") -> None:
        self._core = core
        self._source = source
        self._deleted = core.saved.deleted
        self._outbound = core.outbound
        self._noise = RateLimited(log, core.clock)
        self._log_moved = asyncio.Event()
        self._files: dict[str, bytes] = {}  # what was written last
        self._of = Copied()  # whose tables `missing` counts
        self._wanted = set(TABLES)
        self._never: set[str] = set()  # of `KEPT`: this store has not had them yet
        self._theirs: set[str] = set()  # and the master neither
        source.lacks_tables = lambda: bool(self.missing)
        core.tables.offsets.followed = -1

    @property
    def missing(self) -> set[str]:
        """See above."""
        return self._wanted if self._of == self._source.copied else set(TABLES)

    def load(self, start: Start) -> None:
        """Take back what the file says of copies that the log has lost: the next master finds them in the log. A store
        without tables of its own has never had any."""
        files, end = self._core.files, self._core.store.max_physical_offset
        known = files.load(FILE, ReplicaOf)
        if known is None and files.load(TOPICS, TopicConfigSerializeWrapper) is None:
            known = ReplicaOf(lacks=list(KEPT))
            files.save(FILE, known)
        self._never.update(known.lacks if known is not None else ())
        try:
            progress = files.load(DELAYS, DelayProgress)
        except StoreError:  # damaged: the master's comes in its place
            return
        if progress is not None and progress.log_offset > end:
            files.save(DELAYS, DelayProgress(offset_table={}, log_offset=0))

    async def start(self, tasks: Tasks) -> None:
        """Copy for as long as the broker runs."""
        for name, copy in (
            ("tables", self._follow_tables),
            ("offsets", self._follow_offsets),
            ("progress", self._copy_progress),
            ("timer", self._copy_timer),
        ):
            tasks.keep(f"copy-{name}", self._loop(name, copy))

    def turn_written(self, log_end: int) -> bool:
        """The log may have grown."""
        self._log_moved.set()
        if log_end >= self._deleted.due and "deleted" not in self.missing:
            self._deleted.obey()
        return True

    def health(self) -> dict[str, str]:
        """Return what a take-over now would lack."""
        return {"tablesNotCopied": ",".join(sorted(self.missing)) or "none"}

    # One loop for each kind of thing: one that waits does not keep the others.

    def _loop(self, name: str, copy: Callable[[Copied, str], Awaitable[str]]) -> Work:
        own = str(self._core.address)

        async def run(health: Health) -> None:
            master, since = Copied(), ""
            while True:
                if master != self._source.copied:
                    master, since = self._source.copied, ""
                if not master.address or master.address == own:
                    await asyncio.sleep(LOOK_S)
                    continue
                try:
                    since = await copy(master, since)
                    health.worked()
                except _Moved:
                    pass
                except (ClientError, StoreError, OSError, msgspec.MsgspecError) as error:
                    words = "%s not copied master=%s error=%s"
                    self._noise.warning(name, words, name, master.address, error)
                    since = ""
                    self._wanted.update(KINDS[name])  # until they have come whole again
                    await asyncio.sleep(RETRY_S)

        return run

    async def _ask(self, master: Copied, code: int, ext: bytes = b"") -> Command:
        reply = await self._outbound.ask(master.address, code, ext, timeout_ms=TIMEOUT_MS)
        if self._source.copied != master:
            raise _Moved
        return reply

    async def _follow(self, master: Copied, what: str, since: str) -> Command | None:
        """FOLLOW_TABLES; None: the master is not one of ours, or an older one that does not tell that."""
        header = FollowTablesRequestHeader(what=what, since=since)
        try:
            return await self._ask(master, RequestCode.FOLLOW_TABLES, encode_ext(header))
        except BrokerError as error:
            if error.code in _NOT_FOLLOWED:
                return None
            raise

    async def _whole(
        self, master: Copied, code: int, what: str, kind: type[W]
    ) -> tuple[W, Command]:
        """A table that Apache's masters give in parts, and the first answer."""
        table: W | None = None
        for _ in range(MOST_PAGES):
            begin = 0 if table is None else len(_rows(table))
            version = "" if table is None else encode_body(table.data_version).decode()
            fields = {
                f"{what.lower()}Seq": str(begin),
                f"max{what}Num": str(PAGE),
                "dataVersion": version,
            }
            answer = await self._ask(master, code, encode_dict(fields))
            part = decode_body(kind, answer.body)
            if table is None or table.data_version != part.data_version:  # changed: from the start
                table, first = part, answer
            else:
                _rows(table).update(_rows(part))
                _bans(table).update(_bans(part))
            total = whole_number(ext_dict(answer.ext).get(f"total{what}Num"), 2**31 - 1)
            if not _rows(part) or len(_rows(table)) >= total:
                if not _rows(table):
                    break
                return table, first
        raise BrokerError(
            ResponseCode.SYSTEM_ERROR, f"no {what}s in its table", address=master.address
        )

    def _took(self, master: Copied, table: str) -> None:
        if (
            self._source.copied != master
        ):  # while it was written: what has come from the next one counts
            raise _Moved
        if self._of != master:
            self._of, self._wanted = master, set(TABLES)
        self._wanted.discard(table)
        if table not in self._theirs:
            self._never.discard(table)

    async def _note_master(self, master: Copied) -> None:
        """The tables are not this broker's own any more (`TakeOver`)."""
        known = ReplicaOf(master.address, sorted(self._never))
        await self._write(FILE, self._core.files.encode(FILE, known))

    def _hear_lacks(self, lacks: str) -> None:
        self._theirs = set(KEPT).intersection(lacks.split(","))
        if kept := self._theirs - self._never:
            words = "the master never had all of its %s: what this broker knows besides stays"
            self._noise.warning("lacks", words, ", ".join(sorted(kept)))

    # Topics, groups, request modes

    async def _follow_tables(self, master: Copied, since: str) -> str:
        copies = {
            "topics": self._copy_topics,
            "groups": self._copy_groups,
            "deleted": self._copy_deleted,
            "modes": self._copy_modes,
            "users": self._copy_users,
        }
        answer = await self._follow(master, "tables", since)
        if answer is None:
            for name, copy in copies.items():
                if name not in {"users", "deleted"}:  # Apache's masters tell nobody
                    await copy(master)
                self._took(master, name)
            await asyncio.sleep(APACHE_S)
            return ""
        header = decode_ext(FollowTablesResponseHeader, answer.ext)
        told = header.since
        self._hear_lacks(header.lacks)
        known = set(since.split(";"))
        for version in told.split(";"):
            name = version.partition("=")[0]
            if version not in known and name in copies:
                await copies[name](master)
                self._took(master, name)
        for name in ("users", "deleted"):
            if f"{name}=" not in told:  # an older master
                self._took(master, name)
        await self._note_master(master)
        return told

    async def _copy_topics(self, master: Copied) -> None:
        code, kind = RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigAndMappingSerializeWrapper
        table, first = await self._whole(master, code, "Topic", kind)
        topics, now_ms = self._core.tables.topics, self._core.clock.now_ms()
        async for config in paced(table.topic_config_table.values()):
            known = topics.find(config.topic_name)
            if known is None:
                self._deleted.made(config.topic_name)
            if known is None or known.shown != Topic(config).shown:
                topics.put(config, now_ms)
        end = whole_number(ext_dict(first.ext).get(LOG_END), 2**63 - 1)
        async for topic in paced(topics.all()):
            if topic.name not in table.topic_config_table and "topics" not in self._theirs:
                self._drop_topic(topic.name, end)
        topics.data_version = table.data_version

    def _drop_topic(self, name: str, log_end: int) -> None:
        """The master has deleted a topic. What the log has of it is gone, what came behind `log_end` is of a later
        topic of the same name; -1: it does not say, and the queues stay, as with Apache's slaves."""
        core = self._core
        core.tables.topics.delete(name, core.clock.now_ms())
        core.stats.forget_topic(name)
        if log_end >= 0:
            self._deleted.follow({name: log_end})
        core.shell.forget_topic(name)
        log.info("topic deleted as at the master topic=%s", name)

    async def _copy_deleted(self, master: Copied) -> None:
        if (answer := await self._follow(master, "deleted", "")) is not None:
            begin, marks = msgspec.msgpack.decode(answer.body, type=tuple[int, dict[str, int]])
            self._deleted.follow(marks, begin)
            await self._deleted.file.try_save()

    async def _copy_groups(self, master: Copied) -> None:
        code, kind = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupWrapper
        table, _ = await self._whole(master, code, "Group", kind)
        groups = self._core.tables.groups
        if "groups" in self._theirs:
            own = {group.group_name: group for group in groups.all()}
            table.subscription_group_table = own | table.subscription_group_table
        for name in groups.replace(table):
            self._core.stats.forget_group(name)
            self._core.shell.forget_group(name, False)

    async def _copy_modes(self, master: Copied) -> None:
        answer = await self._ask(master, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        table = decode_body(MessageRequestModeSerializeWrapper, answer.body)
        self._core.tables.modes.load(table.message_request_mode_map)
        self._core.saved.modes.mark()
        await self._core.saved.modes.try_save()

    async def _copy_users(self, master: Copied) -> None:
        """Users and rules with their passwords, where this broker's credentials are a super user's at the master."""
        credentials = self._core.access.settings.credentials
        if credentials is None:
            return
        secret, once = credentials.secret_key.encode(), self._core.entropy.secret(16)
        header = FollowTablesRequestHeader(what="users", once=once)
        try:
            answer = await self._ask(master, RequestCode.FOLLOW_TABLES, encode_ext(header))
            kept = await run_blocking(lambda: decode_kept(unseal(secret, once, answer.body)))
            await self._core.access.users.follow(kept)
        except (BrokerError, RemoteProtocolError) as error:  # no super user there; an older version
            words = "users are not copied, this broker's own files count master=%s error=%s"
            self._noise.warning("users", words, master.address, error)
        except Refused as error:
            raise BrokerError(error.code, error.remark, address=master.address) from None

    # Consumer offsets

    async def _follow_offsets(self, master: Copied, since: str) -> str:
        await self._note_master(master)
        answer = await self._follow(master, "offsets", since)
        if answer is None:
            whole = await self._ask(master, RequestCode.GET_ALL_CONSUMER_OFFSET)
            await self._take_offsets(whole.body, -1)
            self._took(master, "offsets")
            await asyncio.sleep(APACHE_S)
            return ""
        header = decode_ext(FollowTablesResponseHeader, answer.ext)
        await self._reached(master, header.log_end)
        if header.whole:
            self._hear_lacks(header.lacks)
            await self._take_offsets(answer.body, header.log_end)
            self._took(master, "offsets")
            await self._note_master(master)
        elif answer.body:
            self._core.tables.offsets.follow(_decode_change(answer.body))
            self._core.shell.end_turn()
        return header.since

    async def _take_offsets(self, body: bytes, log_end: int) -> None:
        """Make the table the master's."""
        table = decode_body(ConsumerOffsetSerializeWrapper, body)
        offsets = self._core.tables.offsets
        resets = table.reset_offset_table or {}
        own = [] if "offsets" in self._theirs else offsets.keys()
        keys = dict.fromkeys([*table.offset_table, *resets, *own])
        changes = 0
        async for key in paced(keys):
            change = offsets.difference(key, table.offset_table.get(key, {}), resets.get(key, {}))
            if change is not None:
                offsets.follow(change)
                changes += 1
                if changes % A_TURN == 0:
                    self._core.shell.end_turn()
        offsets.followed = max(log_end, offsets.followed or 0)
        offsets.data_version = table.data_version
        self._core.shell.end_turn()

    async def _reached(self, master: Copied, log_end: int) -> None:
        """Wait until the own log is as long as the master's was."""
        while self._core.store.max_physical_offset < log_end:
            if self._source.copied != master:
                raise _Moved
            self._log_moved.clear()
            try:
                async with asyncio.timeout(LOG_S):
                    await self._log_moved.wait()
            except TimeoutError:
                pass

    # Progress of deliveries: files that a master reads at its start

    async def _copy_progress(self, master: Copied, since: str) -> str:
        answer = await self._ask(master, RequestCode.GET_ALL_DELAY_OFFSET)
        progress = decode_body(DelayProgress, answer.body)
        end = progress.log_offset
        await self._reached(master, end if end >= 0 else await self._log_end(master))
        await self._write(DELAYS, self._core.files.encode(DELAYS, progress))
        orders = await self._follow(master, "orders", "")
        if orders is not None:
            decode_body(ConsumerOrderInfoSerializeWrapper, orders.body)
            await self._reached(master, decode_ext(FollowTablesResponseHeader, orders.ext).log_end)
            await self._write(ORDERS, orders.body)
        try:
            metrics = await self._ask(master, RequestCode.GET_TIMER_METRICS)
        except BrokerError as error:
            if error.code not in _NOT_SERVED:  # it has no timer
                raise
        else:
            decode_body(TimerMetricsSerializeWrapper, metrics.body)
            await self._write(TIMER_METRICS, metrics.body)
        self._took(master, "progress")
        since = await self._copy_queues(master, since)
        await asyncio.sleep(APACHE_S if orders is None else PROGRESS_S)
        return since

    async def _copy_queues(self, master: Copied, since: str) -> str:
        """Copy where queues go on whose messages have all expired."""
        answer = await self._follow(master, "queues", since)
        if answer is not None:
            header = decode_ext(FollowTablesResponseHeader, answer.ext)
            since, end = header.since, header.log_end
            if header.whole:
                found = msgspec.msgpack.decode(answer.body, type=dict[str, dict[int, int]])
                await self._reached(master, end)
                deleted = self._deleted.marks
                async for topic in paced(found, 10):
                    if deleted.get(topic, -1) < end:
                        for queue_id, offset in found[topic].items():
                            self._core.store.go_on_from(topic, queue_id, offset, end)
        self._took(master, "queues")
        return since

    async def _copy_timer(self, master: Copied, since: str) -> str:
        """Copy where the timer would begin as master (`begin_at`)."""
        storage, core = self._core.timer_store, self._core
        if storage is not None and (answer := await self._timer_answer(master)) is not None:
            told = ext_dict(answer.ext)
            data = answer.body
            if LOG_END in told:
                data = TimerCheckpoint(
                    read_ms=int(told["readMs"]),
                    queue_offset=int(told["queueOffset"]),
                    commit_offset=int(told["commitOffset"]),
                    precision_ms=storage.precision_ms,
                ).encode()
            end = int(told[LOG_END]) if LOG_END in told else await self._log_end(master)
            await self._reached(master, end)
            if self._files.get(TIMER) != data:
                layout = core.store.layout
                await run_blocking(begin_at, core.disk_files, layout, storage.log, data)
                self._files[TIMER] = data
        self._took(master, "timer")
        await asyncio.sleep(APACHE_S)
        return ""

    async def _timer_answer(self, master: Copied) -> Command | None:
        """GET_TIMER_CHECK_POINT; None: it has no timer, or nothing to say now."""
        try:
            answer = await self._ask(master, RequestCode.GET_TIMER_CHECK_POINT)
        except BrokerError as error:
            if error.code in _NOT_SERVED:
                return None
            raise
        ours = "readMs" in ext_dict(answer.ext)
        return answer if ours or decode_timer_checkpoint(answer.body).read_ms > 0 else None

    async def _log_end(self, master: Copied) -> int:
        """Ask where the log of an Apache master ends now."""
        info = await self._outbound.runtime_info(master.address, TIMEOUT_MS)
        return max(0, whole_number(info.get("commitLogMaxOffset"), 2**63 - 1))

    async def _write(self, name: str, data: bytes) -> None:
        if self._files.get(name) != data:
            await run_blocking(self._core.files.write, name, data)
            self._files[name] = data


def _rows(table: W) -> dict[str, Any]:
    if isinstance(table, SubscriptionGroupWrapper):
        return table.subscription_group_table
    return table.topic_config_table


def _bans(table: W) -> dict[str, dict[str, int]]:
    return table.forbidden_table if isinstance(table, SubscriptionGroupWrapper) else {}
