"""Queue locks of orderly consumers: 41 and 42 (Apache: AdminBrokerProcessor.lockBatchMQ)."""

from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Beat, Feature, Lane
from roquette.broker.floor.requests import decode_request
from roquette.errors import Refused
from roquette.remoting.outcomes import Reply
from roquette.remoting.promises import Promise
from roquette.remoting.request import RequestContext, Row, row
from roquette.wire.bodies import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.json_body import encode_body

EXPIRY_BEAT_S = 10.0


class LockProcessor(Feature):
    """Serves lock and unlock of many queues at once."""

    def __init__(self, core: BrokerCore) -> None:
        self._clock = core.clock
        self._locks = core.tables.locks

    def rows(self) -> list[Row]:
        """What it serves."""
        return [
            row(
                RequestCode.LOCK_BATCH_MQ,
                self.lock_batch,
                None,
                Lane.CLIENT_MANAGER,
                Promise.MEMORY,
            ),
            row(
                RequestCode.UNLOCK_BATCH_MQ,
                self.unlock_batch,
                None,
                Lane.CLIENT_MANAGER,
                Promise.MEMORY,
            ),
        ]

    def lock_batch(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """LOCK_BATCH_MQ: answers the queues that are now the client's."""
        request = decode_request(LockBatchRequestBody, body)
        refused = self._locks.bound.refused
        locked = self._locks.lock(
            request.consumer_group, request.client_id, request.mq_set, ctx.steady_ms
        )
        remark = None
        if self._locks.bound.refused != refused:
            remark = f"queues are not locked: {self._locks.bound.words()}"
            if not locked:
                raise Refused(ResponseCode.SYSTEM_BUSY, remark)
        return Reply(b"", encode_body(LockBatchResponseBody(lock_ok_mq_set=locked)), remark=remark)

    def unlock_batch(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """UNLOCK_BATCH_MQ."""
        request = decode_request(UnlockBatchRequestBody, body)
        self._locks.unlock(request.consumer_group, request.client_id, request.mq_set)
        return Reply()

    def beats(self) -> list[Beat]:
        """Expires locks that are not renewed."""
        return [Beat("lock-expiry", EXPIRY_BEAT_S, self._expire)]

    def _expire(self) -> None:
        self._locks.expire(self._clock.steady_ms())
