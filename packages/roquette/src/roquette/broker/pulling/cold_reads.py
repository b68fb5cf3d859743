"""Pulls of groups that read too much of the log's cold part (coldDataFlowControlEnable). HOT: asked with each pull.

Apache: PullMessageProcessor.checkStoreRules, ColdDataPullRequestHoldService. A pull of a push consumer is refused; one
of a pull consumer waits, and then gets a single message.
"""

from typing import Final

from roquette.broker.floor.config import LiveConfig
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.tables.cold_reads import ColdReads
from roquette.broker.floor.tables.consumers import ConsumerTable
from roquette.broker.pulling.hold_table import HeldPull, HoldTable
from roquette.errors import Refused
from roquette.remoting.request import RequestContext
from roquette.store.message_store import MessageStore
from roquette.wire.codes import ResponseCode
from roquette.wire.headers import PullMessageRequestHeader

WAIT_MS: Final = 3_000
MAX_WAITING: Final = 10_000
REFUSED: Final = "This consumer group is reading cold data. It has been flow control"


class ColdPulls:
    """Counts cold reads, and holds back who has read too much.

    Attributes:
        waiting: pulls of pull consumers that wait; messages that arrive do not wake them.
    """

    def __init__(self, core: BrokerCore) -> None:
        self._live: LiveConfig = core.live
        self._store: MessageStore = core.store
        self._consumers: ConsumerTable = core.tables.consumers
        self._cold: ColdReads = core.tables.cold_reads
        self.waiting: HoldTable = HoldTable(MAX_WAITING)

    def slow_down(
        self, ctx: RequestContext, header: PullMessageRequestHeader
    ) -> HeldPull | int | None:
        """Return what becomes of a pull: it waits, it gets so many messages at most, or (None) it goes on as it is.

        Raises:
            Refused: a push consumer's group has read too much; it asks again.
        """
        group = header.consumer_group
        if not self._live.store.cold_data_flow_control_enable:
            return None
        if not self._cold.exceeds(group, self._live.current):
            return None
        if not self._store.lies_cold(header.topic, header.queue_id, header.queue_offset):
            return None
        online = self._consumers.find(group)
        kind = None if online is None else online.consume_type
        if kind == "CONSUME_PASSIVELY":
            raise Refused(ResponseCode.SYSTEM_BUSY, REFUSED)
        if kind == "CONSUME_POP":
            return None
        if ctx.may_hold:
            pull = HeldPull(
                header.topic, header.queue_id, header.queue_offset, None, ctx.steady_ms + WAIT_MS
            )
            if self.waiting.hold(pull):
                return pull
        return 1

    def count(self, header: PullMessageRequestHeader, size: int) -> None:
        """A pull has got `size` bytes: they count when its first message is cold."""
        if self._live.store.cold_data_flow_control_enable and self._store.lies_cold(
            header.topic, header.queue_id, header.queue_offset
        ):
            self._cold.count(header.consumer_group, size)
