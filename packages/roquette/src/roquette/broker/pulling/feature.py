"""Messages go out by queue and offset, and requests wait for those that are still to come."""

import logging
from collections.abc import Iterable

from roquette.broker.floor.config import BrokerConfig
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Beat, Feature, Lane, MasterSource
from roquette.broker.floor.tables.groups import GroupTable
from roquette.broker.floor.tables.offsets import OffsetTable
from roquette.broker.pulling.hold_table import HeldPull, HoldTable
from roquette.broker.pulling.pull import PullProcessor
from roquette.remoting.promises import Promise
from roquette.remoting.request import Row, row
from roquette.store.format.results import Arrival
from roquette.store.message_store import MessageStore
from roquette.wire.codes import RequestCode
from roquette.wire.headers import PullMessageRequestHeader

# Groups that read far behind the end of the log lose their right to consume, where that is switched on.
# Apache: BrokerController.protectBroker (disableConsumeIfConsumerReadSlowly, consumerFallbehindThreshold), every three minutes. An operator gives the right back with UPDATE_AND_CREATE_SUBSCRIPTIONGROUP.


log = logging.getLogger("roquette.broker")

BEAT_S = 180.0


def bytes_behind(store: MessageStore, topic: str, queue_id: int, queue_offset: int) -> int:
    """Return how much of the log lies between the message a group pulled last and the end; 0 at the end."""
    low = store.min_offset(topic, queue_id)
    units = store.queue_units(topic, queue_id, max(low, queue_offset), 1)
    return 0 if units is None else store.max_physical_offset - units[0][0]


def disable_slow_readers(
    config: BrokerConfig,
    store: MessageStore,
    groups: GroupTable,
    offsets: OffsetTable,
    now_ms: int,
) -> list[str]:
    """Take consumeEnable from groups that are too far behind; returns their names."""
    if not config.disable_consume_if_consumer_read_slowly:
        return []
    disabled: list[str] = []
    for topic, group, queues in offsets.pulled_pairs():
        for queue_id, offset in queues.items():
            behind = bytes_behind(store, topic, queue_id, offset)
            if behind <= config.consumer_fallbehind_threshold:
                continue
            if groups.disable_consume(group, now_ms):
                log.warning(
                    "group disabled, it reads slowly group=%s topic=%s queue_id=%d behind_bytes=%d",
                    group,
                    topic,
                    queue_id,
                    behind,
                )
                disabled.append(group)
            break
    return disabled


EXPIRY_BEAT_S = 0.1
RECHECK_BEAT_S = 5.0


class PullFeature(Feature):
    """Serves pulls, and drives the table of those that wait.

    Attributes:
        holds: the pulls that wait.
    """

    def __init__(self, core: BrokerCore, source: MasterSource | None = None) -> None:
        """`source`: the master of a replica; without, the broker is a master."""
        self._core = core
        self.holds = HoldTable(core.live.current.max_held_pulls, core.store.properties_at)
        self._pull = PullProcessor(core, self.holds, source)
        self._all_holds = (self.holds, self._pull.cold.waiting)

    def rows(self) -> list[Row]:
        """Return the rows of the requests it serves."""
        pull, header = self._pull.pull_message, PullMessageRequestHeader
        return [
            row(RequestCode.PULL_MESSAGE, pull, header, Lane.PULL, Promise.PROCESS),
            row(RequestCode.LITE_PULL_MESSAGE, pull, header, Lane.LITE_PULL, Promise.PROCESS),
        ]

    def beats(self) -> list[Beat]:
        """Deadlines; readers whose filters match nothing are sent on; groups that read too slowly."""
        return [
            Beat("hold-expiry", EXPIRY_BEAT_S, self._expire),
            Beat("hold-recheck", RECHECK_BEAT_S, self._recheck),
            Beat("slow-readers", BEAT_S, self._disable_slow_readers),
        ]

    def _expire(self) -> None:
        now_ms = self._core.clock.steady_ms()
        for holds in self._all_holds:
            self._answer(holds.expire(now_ms))

    def _recheck(self) -> None:
        self._answer(self.holds.behind(self._core.store.max_offset))

    def _disable_slow_readers(self) -> None:
        core = self._core
        disable_slow_readers(
            core.live.current,
            core.store,
            core.tables.groups,
            core.tables.offsets,
            core.clock.now_ms(),
        )

    def arrived(self, arrivals: list[Arrival]) -> None:
        """Answer the pulls that wait for these messages."""
        if not len(self.holds):
            return
        on_arrival = self.holds.on_arrival
        for arrival in arrivals:
            due = on_arrival(
                arrival.topic,
                arrival.queue_id,
                arrival.queue_offset,
                arrival.tags_code,
                arrival.physical_offset,
                arrival.size,
            )
            if due:
                self._answer(due)

    def forget_topic(self, topic: str) -> None:
        """Pulls of a deleted topic learn that it is gone."""
        for holds in self._all_holds:
            self._answer(holds.take(topic, lambda pull: True))

    def wake_group(self, topic: str, group: str) -> None:
        """Answer the pulls of a group on a topic."""

        def of_group(pull: HeldPull) -> bool:
            return pull.job is not None and pull.job.header.consumer_group == group

        for holds in self._all_holds:
            self._answer(holds.take(topic, of_group))

    def drain(self) -> None:
        """Answer all pulls."""
        for holds in self._all_holds:
            self._answer(holds.drain())

    def _answer(self, due: Iterable[HeldPull]) -> None:
        for pull in due:
            assert pull.job is not None
            self._core.shell.rerun(pull.job, False)
