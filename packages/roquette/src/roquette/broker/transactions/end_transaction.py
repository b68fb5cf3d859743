"""Ends a transaction (37), and restarts its checks (323). Both answer when what they wrote is as safe as a send.

Apache: EndTransactionProcessor, AdminBrokerProcessor.resumeCheckHalfMessage.
"""

from roquette.broker.floor.core import BrokerCore
from roquette.broker.transactions.checks import immunity_over
from roquette.broker.transactions.half_messages import HalfMessages
from roquette.errors import Refused
from roquette.message import names, properties, sysflag
from roquette.message.message_id import decode_offset_message_id
from roquette.message.properties import decode_properties
from roquette.message.record_layout import StoredRecord
from roquette.remoting.outcomes import Later, Reply, Silent
from roquette.remoting.request import RequestContext
from roquette.wire.codes import ResponseCode
from roquette.wire.headers import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)

_NOT_FOUND = "Find prepared transaction message failed"
_COMMITTED = "The half message has been committed already"
_ENDED = "The half message has been rolled back or discarded already"
_NOT_RESUMED = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."
_NO_HALF = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."


class TransactionProcessor:
    """Requests 37 and 323."""

    def __init__(self, core: BrokerCore, transactions: HalfMessages) -> None:
        self._core = core
        self._live = core.live
        self._transactions = transactions
        self._times = core.clock.times

    def end_transaction(
        self, ctx: RequestContext, header: EndTransactionRequestHeader, body: bytes
    ) -> Reply | Later | Silent:
        """END_TRANSACTION: commit or roll back; whoever does not know gets no answer and is asked later.

        A half message ends once. Who ends it again (Apache commits again) is refused, and told how it ended.
        """
        kind = header.commit_or_rollback
        if kind not in (sysflag.TRANSACTION_COMMIT, sysflag.TRANSACTION_ROLLBACK):
            return Silent()
        half = self._transactions.find(header.commit_log_offset)
        if half is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, _NOT_FOUND)
        _admit(ctx, half)
        timeout_ms = self._live.current.transaction_time_out
        age_ms = self._times.age_ms(half, ctx.steady_ms)
        if not header.from_transaction_check and immunity_over(half, age_ms, timeout_ms):
            return Reply(code=ResponseCode.ILLEGAL_OPERATION)
        _check(half, header)
        now = self._transactions.newest(half)
        if now is None:
            how = _COMMITTED if self._transactions.was_committed(half) else _ENDED
            raise Refused(ResponseCode.SYSTEM_ERROR, how)
        if kind == sysflag.TRANSACTION_COMMIT:
            self._transactions.commit(now, ctx.now_ms)
        else:
            self._transactions.roll_back(now, ctx.now_ms)
        return self._logged()

    def resume_check(
        self, ctx: RequestContext, header: ResumeCheckHalfMessageRequestHeader, body: bytes
    ) -> Reply | Later:
        """RESUME_CHECK_HALF_MESSAGE: a half message, most often a discarded one, is checked from the start.

        Apache takes any record and makes a half message of it, as often as it is asked.
        """
        try:
            _, physical_offset = decode_offset_message_id(header.msg_id or "")
        except ValueError:
            raise Refused(ResponseCode.SYSTEM_ERROR, _NO_HALF) from None
        record = self._transactions.record_at(physical_offset)
        if (
            record is None
            or record.topic not in (names.TRANS_HALF_TOPIC, names.TRANS_CHECK_MAX_TIME_TOPIC)
            or properties.REAL_TOPIC not in decode_properties(record.properties)
        ):
            raise Refused(ResponseCode.SYSTEM_ERROR, _NO_HALF)
        _admit(ctx, record)
        if not self._transactions.resume(record, ctx.now_ms):
            raise Refused(ResponseCode.SYSTEM_ERROR, _NOT_RESUMED)
        return self._logged()

    def _logged(self) -> Reply | Later:
        """The answer, once the log up to now is as safe as its flush mode says."""
        core = self._core
        return (
            Later(core.store.max_physical_offset, Reply())
            if core.log_sync.answers_wait
            else Reply()
        )


def _admit(ctx: RequestContext, half: StoredRecord) -> None:
    """Whoever ends a half message must have a right to its topic, whatever topic the request names."""
    if ctx.may_touch is not None:
        ctx.may_touch(decode_properties(half.properties).get(properties.REAL_TOPIC, ""))


def _check(half: StoredRecord, header: EndTransactionRequestHeader) -> None:
    """The request must name the half message by all it knows of it (checkPrepareMessage)."""
    if decode_properties(half.properties).get(properties.PGROUP) != header.producer_group:
        raise Refused(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
    if half.queue_offset != header.tran_state_table_offset:
        raise Refused(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
    if half.physical_offset != header.commit_log_offset:
        raise Refused(ResponseCode.SYSTEM_ERROR, "The commit log offset wrong")
