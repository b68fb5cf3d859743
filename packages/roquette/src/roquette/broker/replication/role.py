"""What a replica answers to what only a master does: each such request is refused in words that name the master.

Which requests those are follows from what their rows promise: what goes to the log or to a file of the tables is the
master's. Apache's codes and texts where it has some of its own (SendMessageProcessor.rejectRequest, PullMessageProcessor,
EndTransactionProcessor, RecallMessageProcessor, AdminBrokerProcessor.validateSlave, resetOffsetInner).
"""

from collections.abc import Iterable
from typing import Final

from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Feature, Lane, MasterSource, words_of_master
from roquette.errors import Refused
from roquette.remoting.promises import Promise
from roquette.remoting.request import Outcome, RequestContext, Row
from roquette.wire.codes import RequestCode, ResponseCode

_R, _A = RequestCode, ResponseCode
_NO_SEND: Final = (
    _A.SERVICE_NOT_AVAILABLE,  # SYSTEM_BUSY in Apache, which is no reason to look for the master
    "service not available now. It may be caused by one of the following reasons: the broker is a slave",
)
_NO_CHANGE: Final = (
    _A.SYSTEM_ERROR,
    "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
)
_TEXTS: Final = {
    _R.END_TRANSACTION: (_A.SLAVE_NOT_AVAILABLE, "a slave broker ends no transaction"),
    _R.RECALL_MESSAGE: (_A.SLAVE_NOT_AVAILABLE, "recall failed, broker service not available"),
    _R.INVOKE_BROKER_TO_RESET_OFFSET: (_A.SYSTEM_ERROR, "Can not reset offset in slave broker"),
    **dict.fromkeys(
        (
            _R.UPDATE_AND_CREATE_TOPIC,
            _R.UPDATE_AND_CREATE_TOPIC_LIST,
            _R.DELETE_TOPIC_IN_BROKER,
            _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            _R.DELETE_SUBSCRIPTIONGROUP,
        ),
        _NO_CHANGE,
    ),
}
_SENDS: Final = frozenset((Lane.SEND, Lane.REPLY, Lane.ACK, Lane.PULL))
_ONE_MASTER: Final = frozenset((_R.LOCK_BATCH_MQ, _R.UNLOCK_BATCH_MQ))
"""Two clients must not get them of two brokers: a replica serves them while nobody is master."""


class ReplicaRole(Feature):
    """Refuses.

    Args:
        absent: a master's features that the replica has not; they are asked for their rows and nothing else.
    """

    def __init__(self, core: BrokerCore, absent: Iterable[Feature], source: MasterSource) -> None:
        core.tables.backward_commits.never = True
        self._absent = list(absent)
        self._source = source

    def rows(self) -> list[Row]:
        """Refusals of everything that the absent features serve."""
        return [self._refusal(one) for feature in self._absent for one in feature.rows()]

    def admit(self, row: Row) -> Row:
        """What is served in place of a row of the features that are there."""
        if row.promise in {Promise.LOG, Promise.FILE}:
            return self._refusal(row)
        return self._without_master(row) if row.code in _ONE_MASTER else row

    def _refusal(self, row: Row) -> Row:
        def refuse(ctx: RequestContext, header: None, body: bytes) -> Outcome:
            raise self._refused(ctx.command.code, row.lane)

        refusal = Row(row.code, refuse, None, row.lane)
        refusal.decode, refusal.coerce = row.decode, row.coerce  # the guard reads the header
        return refusal

    def _without_master(self, row: Row) -> Row:
        process = row.process

        def serve(ctx: RequestContext, header: None, body: bytes) -> Outcome:
            if self._source.master_address:
                raise self._refused(ctx.command.code, row.lane)
            outcome: Outcome = process(ctx, header, body)
            return outcome

        return Row(row.code, serve, None, row.lane, row.promise)

    def _refused(self, code: int, lane: int) -> Refused:
        answer, words = _TEXTS.get(
            RequestCode(code),
            _NO_SEND if lane in _SENDS else (_A.NO_PERMISSION, "a slave broker does not do this"),
        )
        return Refused(int(answer), f"{words}{words_of_master(self._source)}")
