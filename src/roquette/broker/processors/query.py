"""Find messages again: by key through the index (12), by offset id (33). Apache: QueryMessageProcessor."""

from roquette.errors import Refused
from roquette.remoting.dispatcher import RequestContext
from roquette.remoting.outcomes import Reply
from roquette.store.message_store import MessageStore
from roquette.wire.codes import ResponseCode
from roquette.wire.header_codec import encode_ext, ext_dict
from roquette.wire.headers import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)

_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


class QueryProcessor:
    """Args: default_max: how many records a unique-key query returns at most (defaultQueryMaxNum)."""

    def __init__(
        self, store: MessageStore, *, default_max: int = 32, max_bytes: int = 8 << 20
    ) -> None:
        self._store = store
        self._default_max = default_max
        self._max_bytes = max_bytes

    def query_message(
        self, ctx: RequestContext, header: QueryMessageRequestHeader, body: bytes
    ) -> Reply:
        """QUERY_MESSAGE: records whose index entry matches the hash of topic#key; the client verifies."""
        count = header.max_num
        if ext_dict(ctx.command.ext).get(_UNIQUE_KEY_QUERY) == "true":
            count = self._default_max
        found = self._store.query(
            header.topic,
            header.key,
            max(0, min(count, 1000)),
            header.begin_timestamp,
            header.end_timestamp,
        )
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
        record = self._store.record_at(header.offset) if header.offset >= 0 else None
        if record is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}"
            )
        return Reply(b"", record)
