"""Requests of operators to a broker's store: messages by key or place, cold reads, and room that is given back."""

import asyncio
import logging
from typing import Final

from roquette.base.config import read_changes
from roquette.base.executor import run_blocking
from roquette.base.lifecycle import Tasks
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.disk_watch import BEAT_S as DISK_BEAT_S
from roquette.broker.floor.feature import Beat, Feature, Lane
from roquette.broker.floor.set_aside import topic_of
from roquette.errors import ConfigError, Refused, StoreError
from roquette.message.names import MAX_GROUP
from roquette.message.record_view import SOUND, RecordView
from roquette.remoting.promises import Promise
from roquette.remoting.request import Outcome, Reply, RequestContext, Row, Task, row
from roquette.store.index.index import KeySearch
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import encode_ext, ext_dict
from roquette.wire.headers import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    SetCommitLogReadModeRequestHeader,
    ViewMessageRequestHeader,
)
from roquette.wire.json_body import encode_body

# Runs what the store plans: flushes, allocation and deletion, on other threads.


SHORT_BEAT_S = 0.1
ALLOCATION_BEAT_S = 0.2


class StoreMaintenance(Feature):
    """The beats of the store's files."""

    def __init__(self, core: BrokerCore) -> None:
        self._store = core.store
        self._files = core.disk_files
        self._clock = core.clock
        self._live = core.live
        self._log_sync = core.log_sync
        self._disk = core.disk

    def beats(self) -> list[Beat]:
        """The log's sync, queues and index, files that will be needed, space."""
        store = self._live.store
        return [
            Beat("sync-expiry", SHORT_BEAT_S, self._log_sync.expire),
            Beat("store-check", SHORT_BEAT_S, self.check),
            Beat("log-sync", store.flush_interval_ms / 1000, self._log_sync.request),
            Beat("queue-flush", store.queue_flush_interval_ms / 1000, self.flush_queues),
            Beat("allocation", ALLOCATION_BEAT_S, self.allocate),
            Beat("disk", DISK_BEAT_S, self._disk.look),
            Beat("retention", store.clean_interval_ms / 1000, self._disk.clean),
        ]

    async def start(self, tasks: Tasks) -> None:
        """See what is gone already of what groups have not read."""
        await self._disk.losses.begin()

    async def flush_queues(self) -> None:
        """Bring consume queues and index to the disk."""
        plan = self._store.plan_queue_flush(self._clock.steady_ms())
        if plan is not None:
            await run_blocking(plan.run)
            try:
                self._store.queues_flushed(plan)
            except StoreError as error:
                self._log_sync.abandon(str(error))

    async def allocate(self) -> None:
        """Make the files that will be needed next."""
        plan = self._store.plan_allocation()
        if plan is not None:
            await run_blocking(plan.run)
            self._store.allocated(plan)

    def check(self) -> None:
        """After a failed sync of any file the disk's content is unknown: accept nothing more."""
        error = self._files.sync_error or self._store.failure
        if error is not None:
            self._store.fail(f"the disk failed: {error}")
            self._log_sync.abandon(f"the disk failed: {error}")


# Clean-up by request: queue files (306), queues of unknown topics (316), expired log files (329).
# Apache: AdminBrokerProcessor.cleanExpiredConsumeQueue, cleanUnusedTopic, deleteExpiredCommitLog.


log = logging.getLogger("roquette.broker")


class UpkeepProcessor(Feature):
    """Answers when the files are gone."""

    def __init__(self, core: BrokerCore) -> None:
        self._disk = core.disk
        self._saved = core.saved
        self._deletions = core.deletions

    def rows(self) -> list[Row]:
        """Return the rows of the requests it serves."""
        return [
            row(
                RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
                self.clean_queues,
                None,
                Lane.ADMIN,
                Promise.PROCESS,
            ),
            row(RequestCode.CLEAN_UNUSED_TOPIC, self.clean_topics, None, Lane.ADMIN, Promise.FILE),
            row(
                RequestCode.DELETE_EXPIRED_COMMITLOG,
                self.clean_log,
                None,
                Lane.ADMIN,
                Promise.PROCESS,
            ),
        ]

    def clean_queues(self, ctx: RequestContext, header: None, body: bytes) -> Task:
        """CLEAN_EXPIRED_CONSUMEQUEUE: queue and index files whose records the log no longer has."""
        return Task(self._clean(False))

    def clean_log(self, ctx: RequestContext, header: None, body: bytes) -> Task:
        """DELETE_EXPIRED_COMMITLOG: files older than fileReservedTime, at any hour."""
        log.info("expired files of the log are deleted on request by=%s", ctx.peer.remote)
        return Task(self._clean(True))

    async def _clean(self, log_too: bool) -> Reply:
        await self._disk.clean_manually(log_too)
        return Reply()

    def clean_topics(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """CLEAN_UNUSED_TOPIC: queues of topics that are no longer configured."""
        gone = self._deletions.delete_unused_topics()
        if gone:
            log.info("queues of unknown topics dropped topics=%s", ",".join(gone))
        return self._saved.queues_dropped(gone, Reply())


# Requests of operators about reads of the log's cold part (2001 to 2003), and whether the log is read ahead (2004).
# Apache: AdminBrokerProcessor.updateColdDataFlowCtrGroupConfig and its neighbours.


INTERVAL_S: Final = 5.0
NORMAL, RANDOM = 0, 1  # of madvise
MAX_THRESHOLD: Final = 2**63 - 1


class ColdReadFeature(Feature):
    """Shows and sets what groups may read of the log's cold part; pulls go by it."""

    def __init__(self, core: BrokerCore) -> None:
        self._live = core.live
        self._cold = core.tables.cold_reads

    def rows(self) -> list[Row]:
        """Return the rows of the requests it serves."""
        codes, lane, memory = RequestCode, Lane.ADMIN, Promise.MEMORY
        header = SetCommitLogReadModeRequestHeader
        return [
            row(codes.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, self.set_thresholds, None, lane, memory),
            row(codes.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, self.remove_threshold, None, lane, memory),
            row(codes.GET_COLD_DATA_FLOW_CTR_INFO, self.show, None, lane, Promise.NOTHING),
            row(codes.SET_COMMITLOG_READ_MODE, self.set_read_mode, header, lane, memory),
        ]

    def beats(self) -> list[Beat]:
        """Intervals of counting."""
        return [Beat("cold-reads", INTERVAL_S, self._end_interval)]

    def _end_interval(self) -> None:
        self._cold.end_interval(self._live.current)

    def set_thresholds(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """UPDATE_COLD_DATA_FLOW_CTR_CONFIG: lines `group=bytes`; lines that are wrong are left out, as in Apache."""
        try:
            lines = read_changes(body)
        except ConfigError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        wrong = []
        for group, text in lines.items():
            size = _whole(text)
            if size is None or len(group) > MAX_GROUP:
                wrong.append(group)
            else:
                self._cold.set_threshold(group, size)
        log.info(
            "thresholds of cold reads set count=%d wrong=%d", len(lines) - len(wrong), len(wrong)
        )
        if wrong:
            log.warning("no threshold for cold reads group=%.200s", wrong[0])
        return Reply()

    def remove_threshold(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """REMOVE_COLD_DATA_FLOW_CTR_CONFIG: the body is the group's name; one without a threshold is fine."""
        self._cold.remove_threshold(body.decode("utf-8", "replace"))
        return Reply()

    def show(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_COLD_DATA_FLOW_CTR_INFO: what was read in this interval, and the thresholds."""
        return Reply(b"", encode_body(self._cold.shown(self._live.current)))

    def set_read_mode(
        self, ctx: RequestContext, header: SetCommitLogReadModeRequestHeader, body: bytes
    ) -> Reply:
        """SET_COMMITLOG_READ_MODE: 0 reads the log ahead, 1 does not: dataReadAheadEnable."""
        mode = _whole(header.read_ahead_mode or "")
        if mode is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "set commitlog readahead mode failed")
        if mode not in (NORMAL, RANDOM):
            raise Refused(
                ResponseCode.SYSTEM_ERROR, "set commitlog readahead mode param value error"
            )
        self._live.update({"dataReadAheadEnable": "true" if mode == NORMAL else "false"})
        return Reply(remark=f"set commitlog readahead mode success, mode: {mode}")


def _whole(text: str) -> int | None:
    """A number as Java's Long.valueOf reads it; None: it is not one."""
    digits = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
        return None
    number = int(text)
    return number if -MAX_THRESHOLD - 1 <= number <= MAX_THRESHOLD else None


# Find messages again: by key through the index (12), by offset id (33). Apache: QueryMessageProcessor.


ENTRIES_A_TURN = 2_000
_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


class QueryProcessor(Feature):
    """Args: default_max: how many records a unique-key query returns at most (defaultQueryMaxNum)."""

    def __init__(self, core: BrokerCore, max_bytes: int = 8 << 20) -> None:
        self._store = core.store
        self._default_max = core.live.store.default_query_max_count
        self._max_bytes = max_bytes

    def rows(self) -> list[Row]:
        """Return the rows of the requests it serves."""
        return [
            row(
                RequestCode.QUERY_MESSAGE,
                self.query_message,
                QueryMessageRequestHeader,
                Lane.QUERY,
                Promise.NOTHING,
            ),
            row(
                RequestCode.VIEW_MESSAGE_BY_ID,
                self.view_message,
                ViewMessageRequestHeader,
                Lane.QUERY,
                Promise.NOTHING,
            ),
        ]

    def query_message(
        self, ctx: RequestContext, header: QueryMessageRequestHeader, body: bytes
    ) -> Reply | Task:
        """QUERY_MESSAGE: records of the topic whose index entry matches the hash of topic#key; the client
        verifies the key. Another topic's may have the same hash: who asks has no right to it.

        A long chain of entries is followed in pieces, and others are served between them.
        """
        count = header.max_num
        if ext_dict(ctx.command.ext).get(_UNIQUE_KEY_QUERY) == "true":
            count = self._default_max
        search = self._store.search(
            header.topic,
            header.key,
            max(0, min(count, 1000)),
            header.begin_timestamp,
            header.end_timestamp,
        )
        if search is None or search.step(ENTRIES_A_TURN):
            return self._answer([] if search is None else search.found, header.topic)
        return Task(self._go_on(search, header.topic))

    async def _go_on(self, search: KeySearch, topic: str) -> Reply:
        done = False
        while not done:
            await asyncio.sleep(0)
            done = search.step(ENTRIES_A_TURN)
        return self._answer(search.found, topic)

    def _answer(self, offsets: list[int], topic: str) -> Reply:
        wanted = topic.encode()
        found = [each for each in self._store.records_of(offsets) if is_of_topic(each, wanted)]
        ext = encode_ext(
            QueryMessageResponseHeader(
                index_last_update_timestamp=self._store.index_last_timestamp_ms,
                index_last_update_phyoffset=self._store.index_last_physical_offset,
            )
        )
        if not found:
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                ext,
            )
        kept: list[bytes] = []
        size = 0
        for record in found:
            size += len(record)
            if kept and size > self._max_bytes:
                break
            kept.append(record)
        return Reply(ext, kept)

    def view_message(
        self, ctx: RequestContext, header: ViewMessageRequestHeader, body: bytes
    ) -> Reply:
        """VIEW_MESSAGE_BY_ID: the record at a commit-log offset."""
        found = self._store.records_of([header.offset]) if header.offset >= 0 else []
        if not found:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}"
            )
        if ctx.may_touch is not None:
            ctx.may_touch(topic_of(found[0]))
        return Reply(b"", found[0])


def is_of_topic(record: bytes, topic: bytes) -> bool:
    """Return True when a whole record is one of this topic."""
    view = RecordView()
    if view.find(record, 0) != SOUND:
        return False
    return record[view.topic_at : view.topic_at + view.topic_size] == topic
