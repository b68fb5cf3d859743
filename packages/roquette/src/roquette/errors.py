"""Every error of ours, in one tree, so that callers branch on flags and not on texts.

RoquetteError
+- LocalProtocolError            our misuse of the wire                     (a bug)
+- ConfigError                   a setting is wrong: says which, where, what to do
+- StoreError
|  +- CorruptRecord  OffsetOutOfRange  StoreFull  StoreShort  StoreClosed  MessageIllegal (BatchTooLarge)
+- ExpressionError               a filter expression is not one: says what is wrong where
+- AgreementError                the record of a group could not be read or written; what became of it is unknown
+- Refused(code, remark)         server side only: becomes the response
|  +- RefusedForNow              the store takes nothing at present: the same may be taken later
+- Retry                         an application asks for a message again
+- ClientError
   +- ConnectError (Unreachable)  RequestTimeout  TooManyRequests  ClientClosed  NotSent
   +- RemoteProtocolError        the peer broke the protocol                (close the connection)
   +- RouteNotFound(topic)  TransactionLost(topic, message_id, remark)  NotDurable(status)
   +- JobExpired(message_id)  JobSettled
   +- BrokerError(code, remark, retriable, stale_route)
"""

from collections.abc import Sequence
from datetime import timedelta


class RoquetteError(Exception):
    """Root of everything Roquette raises on purpose. Each can be pickled and copied, and has its fields then."""

    def __reduce__(self) -> tuple[object, ...]:
        """Its text and fields, since they are not what `__init__` takes."""
        return _again, (type(self), self.args), self.__dict__ or None


def _again(kind: type[RoquetteError], args: tuple[object, ...]) -> RoquetteError:
    error = kind.__new__(kind)
    error.args = args
    return error


class LocalProtocolError(RoquetteError):
    """We tried to put something on the wire that the protocol does not allow."""


class ConfigError(RoquetteError):
    """A setting is missing, malformed or out of range."""


class StoreError(RoquetteError):
    """The store cannot do what was asked."""


class CorruptRecord(StoreError):
    """Bytes in a store file are not the record they should be."""


class OffsetOutOfRange(StoreError):
    """An offset points outside what the store holds."""


class StoreFull(StoreError):
    """Too little disk is left: writes are refused until space is freed."""


class StoreShort(StoreError):
    """The system had no descriptor or no memory for a file: nothing was done, the same may be taken later."""


class StoreClosed(StoreError):
    """The store is not open, or a failed sync has ended its life."""


class MessageIllegal(StoreError):
    """A message breaks a size limit of the store (Apache's PutMessageStatus.MESSAGE_ILLEGAL)."""


class BatchTooLarge(MessageIllegal):
    """A batch has more messages or keys than one turn of the loop takes."""


class ExpressionError(RoquetteError):
    """A subscription's filter expression cannot be used: what is wrong, and at which column."""


class AgreementError(RoquetteError):
    """A group's record could not be read or written: what became of the call is unknown, or it stands no more."""


class Refused(RoquetteError):
    """A processor's way to answer with an error: becomes a response with this code and remark."""

    def __init__(self, code: int, remark: str, ext: bytes = b"") -> None:
        super().__init__(code, remark)
        self.code = code
        self.remark = remark
        self.ext = ext


class RefusedForNow(Refused):
    """The store takes nothing at present, whatever it is: the disk is full, or the store is closed."""


def is_transient(error: Exception) -> bool:
    """Whether an error is of the moment (disk, memory, a store that takes nothing), not of what was worked on."""
    return isinstance(
        error, (RefusedForNow, StoreFull, StoreShort, StoreClosed, OSError, MemoryError)
    )


class ClientError(RoquetteError):
    """Root of what our client raises to applications."""

    retriable = False
    stale_route = False
    receipts: Sequence[object] = ()
    """Of a batch that was sent in parts: what was stored of it all the same, in its order."""
    outcomes: Sequence[object] = ()
    """Of such a batch: for each message its receipt, or the ClientError that its part ended with; NotSent if none was made."""


class RemoteProtocolError(ClientError):
    """The peer sent what is not the protocol: bytes after which the connection must be closed, or an answer
    that cannot be decoded. Servers raise it too, for what clients send."""


class ConnectError(ClientError):
    """No connection to an address could be made, or it broke before the answer came."""

    retriable = True
    stale_route = True


class NotSent(ClientError):
    """A message of a batch that was never sent, since parts of the batch before its own had failed."""

    def __init__(self) -> None:
        super().__init__("not sent: a part of the batch before this one was not stored")


class Unreachable(ConnectError):
    """No connection could be made: nothing was sent."""


class RequestTimeout(ClientError):
    """The peer did not answer in time; whether it acted is unknown."""

    retriable = True
    stale_route = True


class TooManyRequests(ClientError):
    """A local bound on requests in flight is reached."""

    retriable = True


class NotDurable(ClientError):
    """A message is stored, but not as safely as its broker promises: not on the disk, or not at a replica, in time."""

    def __init__(self, status: str, broker_name: str) -> None:
        super().__init__(f"stored by {broker_name}, but {status}")
        self.status = status


class TransactionLost(ClientError):
    """A transaction's work succeeded, and its message will not come: a check had dropped it before the commit."""

    def __init__(self, topic: str, message_id: str, remark: str) -> None:
        super().__init__(
            f"message {message_id} to {topic} is not delivered, although its transaction was committed: {remark} "
            "(a check answered False while the block was at work, or too many of them None: see on_check)"
        )
        self.topic = topic
        self.message_id = message_id
        self.remark = remark


class ClientClosed(ClientError):
    """The client was closed while, or before, the call was made."""


class MessageExpired(ClientError):
    """A popped message's time was over before it was settled: it comes again, perhaps to another consumer."""

    def __init__(self, message_id: str) -> None:
        super().__init__(
            f"the invisible time of message {message_id} is over: it comes again (extend it earlier, pop with a longer "
            "time, or with renew=True)"
        )
        self.message_id = message_id


class MessageSettled(ClientError):
    """A message was acknowledged, given back or sent to the dead letters before, or is not at work here."""


class Retry(RoquetteError):
    """Raised by a handler, or within a loop's `async with`: the message comes again, and that is no fault to be logged.

    Args:
        after: seconds, or a timedelta; None: as the group's settings say. See `ReceivedMessage.retry`.
    """

    def __init__(self, after: float | timedelta | None = None) -> None:
        seconds = after.total_seconds() if isinstance(after, timedelta) else after
        if seconds is not None and not seconds >= 0:
            raise ValueError(f"after={after!r} is in the past")
        super().__init__(after)
        self.after_s = seconds


class RouteNotFound(ClientError):
    """No name server knows a route for the topic."""

    stale_route = True

    def __init__(self, topic: str, remark: str = "") -> None:
        super().__init__(remark or f"No route info of this topic: {topic}")
        self.topic = topic


class BrokerError(ClientError):
    """A server answered with a code other than success."""

    def __init__(
        self,
        code: int,
        remark: str,
        *,
        address: str = "",
        retriable: bool = False,
        stale_route: bool = False,
    ) -> None:
        super().__init__(
            f"CODE: {code}  DESC: {remark}" + (f"  BROKER: {address}" if address else "")
        )
        self.code = code
        self.remark = remark
        self.address = address
        self.retriable = retriable
        self.stale_route = stale_route
