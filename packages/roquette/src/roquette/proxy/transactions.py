"""The rpc EndTransaction, and the ids of transactions.

An id says itself where the half message is, so that a transaction ends at any proxy, and after a restart of this one. Apache keeps a
table instead (TransactionDataManager: 30 s, 15 entries of an id), and who ends later, or elsewhere, is refused there. Clients in
Java, Go, Python, Node and Rust hand an id back as they got it. Nothing is trusted: the broker compares the offsets, the producer
group (the topic's name) and the rights of who ends a half message. Apache: EndTransactionActivity, TransactionProcessor.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from roquette.message.sysflag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from roquette.proxy.backend import Backend
from roquette.proxy.service import BrokerAnswer, Part, Rpc, RpcCall
from roquette.proxy.statuses import RpcError, code_of, status
from roquette.proxy.validators import topic_of
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.headers import EndTransactionRequestHeader
from roquette.wire.proto.definition_pb2 import Code, TransactionResolution, TransactionSource
from roquette.wire.proto.service_pb2 import EndTransactionRequest, EndTransactionResponse

NOT_FOUND: Final = "cannot found transaction data"  # Apache's words
CHECKED: Final = "the broker asks about this transaction already; answer its check"
_VERSION: Final = "T1"
_MOST: Final = 1 << 63
_KINDS: Final[dict[int, int]] = {
    TransactionResolution.COMMIT: TRANSACTION_COMMIT,
    TransactionResolution.ROLLBACK: TRANSACTION_ROLLBACK,
}


class Half(NamedTuple):
    """Place of a half message.

    Attributes:
        log_offset: physical. queue_offset: in the queue of half messages.
    """

    broker: str
    log_offset: int
    queue_offset: int

    @property
    def id(self) -> str:
        """The id of its transaction, for clients: of the answer to a send, and of the command that asks about it."""
        return f"{_VERSION}-{self.log_offset:X}-{self.queue_offset:X}-{self.broker}"


def half_of(transaction_id: str) -> Half | None:
    """Return the place of a transaction's half message; None: not an id of ours."""
    words = transaction_id.split("-", 3)
    if len(words) != 4 or words[0] != _VERSION or not words[3]:
        return None
    try:
        log_offset, queue_offset = int(words[1], 16), int(words[2], 16)
    except ValueError:
        return None
    if not (0 <= log_offset < _MOST and 0 <= queue_offset < _MOST):
        return None
    return Half(words[3], log_offset, queue_offset)


class Transactions(Part):
    """EndTransaction; the answer is OK when the broker has written the end."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def rpcs(self) -> Iterable[Rpc[Any]]:
        """EndTransaction."""
        return (Rpc("EndTransaction", EndTransactionRequest, EndTransactionResponse, self.end),)

    def end(self, call: RpcCall, request: EndTransactionRequest) -> None:
        """Commit or roll back; who does not know is asked later, by the broker."""
        topic = topic_of(request.topic)
        transaction_id = request.transaction_id
        if not transaction_id.strip():
            raise RpcError(Code.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
        half = half_of(transaction_id)
        if half is None:
            raise RpcError(Code.INTERNAL_SERVER_ERROR, NOT_FOUND)
        kind = _KINDS.get(request.resolution)
        if kind is None:  # a broker says nothing to it
            call.reply(EndTransactionResponse(status=status(Code.OK, "OK")))
            return
        checked = request.source == TransactionSource.SOURCE_SERVER_CHECK
        header = EndTransactionRequestHeader(
            topic=topic,
            producer_group=topic,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.log_offset,
            commit_or_rollback=kind,
            from_transaction_check=checked,
            msg_id=request.message_id,
            transaction_id=request.message_id,
        )

        def ended(answer: BrokerAnswer) -> None:
            if answer.code == ResponseCode.SUCCESS:
                call.reply(EndTransactionResponse(status=status(Code.OK, "OK")))
            elif answer.code == ResponseCode.ILLEGAL_OPERATION:
                call.refuse(Code.INTERNAL_SERVER_ERROR, answer.remark or CHECKED)
            else:
                call.refuse(code_of(answer.code), answer.remark)

        code = RequestCode.END_TRANSACTION
        self._backend.ask(call.caller, half.broker, code, header, b"", ended)
