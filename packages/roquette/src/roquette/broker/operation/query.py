"""Find messages again: by key through the index (12), by offset id (33). Apache: QueryMessageProcessor."""

import asyncio

from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Feature, Lane
from roquette.broker.floor.set_aside import topic_of
from roquette.errors import Refused
from roquette.message.record_view import SOUND, RecordView
from roquette.remoting.promises import Promise
from roquette.remoting.request import Reply, RequestContext, Row, Task, row
from roquette.store.index.index import KeySearch
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import encode_ext, ext_dict
from roquette.wire.headers import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)

ENTRIES_A_TURN = 2_000
_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


class QueryProcessor(Feature):
    """Args: default_max: how many records a unique-key query returns at most (defaultQueryMaxNum)."""

    def __init__(self, core: BrokerCore, max_bytes: int = 8 << 20) -> None:
        self._store = core.store
        self._default_max = core.live.store.default_query_max_count
        self._max_bytes = max_bytes

    def rows(self) -> list[Row]:
        """What it serves."""
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
    """Whether a whole record is one of this topic."""
    view = RecordView()
    if view.find(record, 0) != SOUND:
        return False
    return record[view.topic_at : view.topic_at + view.topic_size] == topic
