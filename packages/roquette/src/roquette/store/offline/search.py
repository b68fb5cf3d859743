"""Looking for messages in the log itself: by topic, queue, key, tag, id, time and body."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from roquette.base.files import ReadFiles
from roquette.message.properties import KEYS, TAGS, UNIQ_KEY, property_value
from roquette.message.record_layout import StoredRecord
from roquette.store.format.log_reader import LogReader
from roquette.store.offline.describe import plain_body
from roquette.store.offline.store_dir import LogFile, StoreDir
from roquette.store.offline.walk import DamagedStretch, FileEnd, first_record, walk_files


@dataclass(frozen=True, slots=True)
class Query:
    """What a message must be like; None and empty let all pass.

    Attributes:
        since_ms, until_ms: store times, both included.
        message_id: a unique id, compared without regard to case.
        body: searched in the body as it was sent.
    """

    topic: str | None = None
    queue: int | None = None
    key: str | None = None
    tag: str | None = None
    message_id: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    body: re.Pattern[bytes] | None = None

    def wants(self, record: StoredRecord) -> bool:
        """Is it such a message? Topic, queue and time were looked at before."""
        properties = record.properties
        if self.tag is not None and property_value(properties, TAGS) != self.tag:
            return False
        if self.key is not None and self.key not in (property_value(properties, KEYS) or "").split(
            " "
        ):
            return False
        if self.message_id is not None:
            found = property_value(properties, UNIQ_KEY) or ""
            if found.upper() != self.message_id.upper():
                return False
        return self.body is None or self.body.search(plain_body(record)[0]) is not None

    def header_filter(self) -> Callable[[LogReader], bool]:
        """The part of the query that a record's header answers, before it is decoded."""
        topic = self.topic.encode() if self.topic is not None else None
        queue = self.queue
        since = self.since_ms if self.since_ms is not None else -(1 << 62)
        until = self.until_ms if self.until_ms is not None else 1 << 62

        def wanted(reader: LogReader) -> bool:
            if queue is not None and reader.queue_id != queue:
                return False
            if not since <= reader.store_ms <= until:
                return False
            at = reader.topic_at
            return topic is None or reader.data[at : at + reader.topic_size] == topic

        return wanted


def files_of(files: ReadFiles, store: StoreDir, query: Query) -> list[LogFile]:
    """The files of the log that may hold such messages; a clock that was set back is allowed an hour."""
    if query.since_ms is None and query.until_ms is None:
        return store.log
    slack = 3_600_000
    firsts: list[int | None] = []
    for file in store.log:
        record = first_record(files, file.path, file.base, store.segment_size)
        firsts.append(record.store_timestamp_ms if record is not None else None)
    chosen: list[LogFile] = []
    for place, file in enumerate(store.log):
        first = firsts[place]
        following = firsts[place + 1] if place + 1 < len(firsts) else None
        if query.until_ms is not None and first is not None and first - slack > query.until_ms:
            continue
        since = query.since_ms
        if since is not None and following is not None and following + slack < since:
            continue
        chosen.append(file)
    return chosen


def search(
    files: ReadFiles,
    store: StoreDir,
    query: Query,
    on_file: Callable[[LogFile], None] | None = None,
    check_crc: bool = True,
) -> Iterator[StoredRecord | DamagedStretch]:
    """Messages that fit, in the order of the log, and the damaged stretches met on the way."""
    log = files_of(files, store, query)
    wanted = query.header_filter()
    for found in walk_files(
        files, log, store.segment_size, check_crc=check_crc, wanted=wanted, on_file=on_file
    ):
        if isinstance(found, FileEnd):
            continue
        if isinstance(found, DamagedStretch) or query.wants(found):
            yield found
