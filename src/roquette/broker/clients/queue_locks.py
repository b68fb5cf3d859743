"""Queue locks of orderly consumers: 41 and 42 (Apache: AdminBrokerProcessor.lockBatchMQ)."""

from roquette.broker.clients.heartbeat import decode_request
from roquette.broker.tables.locks import LockTable
from roquette.errors import Refused
from roquette.remoting.dispatcher import RequestContext
from roquette.remoting.outcomes import Reply
from roquette.wire.bodies import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from roquette.wire.codes import ResponseCode
from roquette.wire.json_body import encode_body


class LockProcessor:
    """Serves lock and unlock of many queues at once."""

    def __init__(self, locks: LockTable) -> None:
        self._locks = locks

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
