"""What a query's progress says: lag; and a listener that mirrors a stream's progress to a consumer group, the last batch included.

The reader's own `commit` comes a batch late, and never for the last batch of an AvailableNow run.
"""

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from roquette.errors import ClientError, ConfigError
from roquette_spark.source.queues import open_reader
from roquette_spark.values.offsets import Offsets, decode_offsets
from roquette_spark.values.options import read_options

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

log = logging.getLogger("roquette_spark")

_CHOICES = frozenset(("subscribe", "topic", "subscribepattern", "assign"))


def lag_of(progress: "StreamingQueryProgress") -> Offsets:
    """Messages that wait in each queue of a query's progress, by `sources[].latestOffset` and `endOffset`.

    Other sources are left out; a queue that is new to the stream counts from 0. Before the first look at the ends there is no queue.
    """
    found: Offsets = {}
    for source in progress.sources:
        done = _offsets_of(source.endOffset)
        for queue, end in _offsets_of(source.latestOffset).items():
            found[queue] = max(0, end - done.get(queue, 0))
    return found


def _offsets_of(text: str | None) -> Offsets:
    """Of a source's text; none if it is another source's."""
    try:
        value = json.loads(text or "null")
        return decode_offsets(value) if isinstance(value, Mapping) else {}
    except (ValueError, ConfigError):
        return {}


class RocketMQOffsetCommitter(StreamingQueryListener):
    """Commits the end of every finished micro-batch, the offset of the next message to read, to the brokers.

        spark.streams.addListener(RocketMQOffsetCommitter(namesrvAddr="127.0.0.1:9876", group="billing"))

    Recovery does not look at these offsets: Spark's checkpoint is the truth. They let `group lag`, dashboards
    and consumers of the group see where the stream is. A commit that fails is a line in the log.

    Args:
        namesrvAddr: as the stream's option.
        group: whose offsets to store.
        query: name or id of the one query to follow; None follows all of the session that read RocketMQ.
        options: other options of the read that say how to reach the brokers.

    Raises:
        ConfigError: an option is wrong.
    """

    def __init__(
        self, namesrvAddr: str, group: str, query: str | None = None, **options: str
    ) -> None:
        if not group:
            raise ConfigError("rocketmq: RocketMQOffsetCommitter needs a group")
        given = {"namesrvAddr": namesrvAddr, "group": group, **options}
        if not _CHOICES.intersection(name.lower() for name in options):
            given["subscribePattern"] = (
                ".*"  # options need a choice of topics: here the offsets are it
            )
        self._options = read_options(given)
        self._query = query
        self._committed: Offsets = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to do."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A micro-batch is done and in the checkpoint."""
        progress = event.progress
        if self._query is not None and self._query not in (progress.name, str(progress.id)):
            return
        for source in progress.sources:
            self.commit(source.endOffset)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing to do."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Nothing to do: the last batch had its progress."""

    def commit(self, text: str | None) -> None:
        """Store the offsets of a source's text, if they are ours and have changed."""
        offsets = _offsets_of(text)
        changed = {q: offset for q, offset in offsets.items() if self._committed.get(q) != offset}
        try:
            open_reader(self._options).commit_offsets(changed)
        except ClientError as error:
            log.warning("offsets were not committed group=%s error=%s", self._options.group, error)
        else:
            self._committed |= changed
