"""Transactions: a half message that nobody sees until its producer says what became of it.

Apache: DefaultMQProducerImpl.sendMessageInTransaction, endTransaction and checkTransactionState. What a producer does
not say, or says in vain, a broker asks some producer of its group later: the checks of `Client.on_check`.
"""

import asyncio
import dataclasses
import enum
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Final, Self

from roquette.base.lifecycle import Health
from roquette.client.calls import Call, nothing
from roquette.client.consumer_options import verdict
from roquette.client.core.namespace import Namespace
from roquette.client.producer import Producer
from roquette.client.receipt import SendReceipt
from roquette.client.session import Session
from roquette.client.trace import EndOfTransaction, MessageTrace, store_host
from roquette.errors import (
    BrokerError,
    ClientError,
    ConfigError,
    CorruptRecord,
    NotDurable,
    TransactionLost,
)
from roquette.message import properties as names
from roquette.message.message import Message, ReceivedMessage, received
from roquette.message.message_id import decode_offset_message_id
from roquette.message.names import DEFAULT_PRODUCER_GROUP
from roquette.message.record import decode_records
from roquette.message.sysflag import TRANSACTION_COMMIT, TRANSACTION_NOT, TRANSACTION_ROLLBACK
from roquette.remoting.request import Outcome, Peer, RequestContext, Row, Silent
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import encode_ext
from roquette.wire.headers import CheckTransactionStateRequestHeader, EndTransactionRequestHeader

log = logging.getLogger("roquette.client")

Check = Callable[[ReceivedMessage], "Awaitable[bool | None] | bool | None"]
"""What became of a half message: True: deliver it. False: drop it. None: not known yet, ask again."""

MOST_CHECKS: Final = 64  # at the same time; the broker asks again for those that find no place
_END_MS: Final = 3_000
_AGAIN_S: Final = 1.0


class TransactionState(enum.Enum):
    """State of a transaction.

    Attributes:
        OPEN: its half message is stored and nothing was said of it.
        COMMITTED: the broker delivers the message. ROLLED_BACK: it drops it.
        LEFT_TO_CHECK: what was said did not arrive, or nothing was; the broker will ask.
        LOST: it was to be committed, and the broker has dropped it before.
    """

    OPEN = "open"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    LEFT_TO_CHECK = "left to the check"
    LOST = "lost"


_FLAGS: Final = {
    TransactionState.COMMITTED: TRANSACTION_COMMIT,
    TransactionState.ROLLED_BACK: TRANSACTION_ROLLBACK,
}
_ANSWERS: Final = {True: TRANSACTION_COMMIT, False: TRANSACTION_ROLLBACK, None: TRANSACTION_NOT}


class Transaction:
    """One message that is delivered only if what belongs to it has succeeded; made by `Client.transaction`.

    Leaving the `async with` block commits it; an exception in the block rolls it back, and goes on. A block that is
    cancelled leaves the message to the check: nobody knows how far its work came. So is one whose commit did not
    reach the broker: that is logged, and no error, since the work itself is done. One whose message a check has dropped
    before raises TransactionLost.

    Attributes:
        state: where it is.
    """

    def __init__(
        self, session: Session, producer: Producer, message: Message, checks: "Checks"
    ) -> None:
        self._checks = checks
        self._session = session
        self._producer = producer
        own = message.properties.get(names.UNIQ_KEY) or producer.new_id()
        self._id = own  # known before it is sent: the broker may ask before it answers
        named = {**message.properties, names.UNIQ_KEY: own}
        self._message = dataclasses.replace(message, properties=named)
        self._receipt: SendReceipt | None = None
        self.state = TransactionState.OPEN

    @property
    def receipt(self) -> SendReceipt:
        """Of the half message."""
        assert self._receipt is not None, "the transaction has not begun: use 'async with'"
        return self._receipt

    @property
    def message_id(self) -> str:
        """The message's id, the same that consumers and checks see."""
        return self.receipt.message_id

    async def __aenter__(self) -> Self:
        self._checks.open.add(self._id)
        try:
            self._receipt = receipt = await self._producer.send_half(self._message)
        finally:
            if self._receipt is None:
                self._checks.open.discard(self._id)
        if receipt.status != "SEND_OK":  # so does Apache's client: nothing is built on it
            await self.rollback()
            raise NotDurable(receipt.status, receipt.queue.broker_name)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.state is not TransactionState.OPEN:
            return
        if error is None:
            await self.commit()
        elif isinstance(error, Exception):
            await self.rollback()
        else:
            self.state = TransactionState.LEFT_TO_CHECK
            self._checks.open.discard(self._id)

    async def commit(self) -> None:
        """Let the message be delivered, now; the end of the block does it otherwise.

        Raises:
            TransactionLost: the broker has dropped it before.
        """
        await self._end(TransactionState.COMMITTED)

    async def rollback(self) -> None:
        """Drop the message, now."""
        await self._end(TransactionState.ROLLED_BACK)

    async def _end(self, wanted: TransactionState) -> None:
        if self.state is not TransactionState.OPEN:
            raise ConfigError(f"the transaction has ended: {self.state.value}")
        self.state = TransactionState.LEFT_TO_CHECK
        with self._producer.under_way.lot:
            try:
                await self._tell(wanted)
            finally:
                self._checks.open.discard(self._id)

    async def _tell(self, wanted: TransactionState) -> None:
        receipt = self.receipt
        header = EndTransactionRequestHeader(
            topic=self._session.namespace.wrap(self._message.topic),
            producer_group=self._producer.group,
            tran_state_table_offset=receipt.queue_offset,
            commit_log_offset=decode_offset_message_id(receipt.offset_message_id)[1],
            commit_or_rollback=_FLAGS[wanted],
            msg_id=receipt.message_id,
            transaction_id=receipt.transaction_id or receipt.message_id,
        )
        call = Call(RequestCode.END_TRANSACTION, nothing, header)
        self._checks.trace.transaction_ended(
            EndOfTransaction(
                group=self._producer.shown_group,
                topic=self._message.topic,
                message_id=receipt.message_id,
                tag=self._message.tag,
                keys=self._message.keys,
                store_host=store_host(receipt),
                transaction_id=header.transaction_id or receipt.message_id,
                commit=wanted is TransactionState.COMMITTED,
                from_check=False,
            )
        )
        try:
            address = self._session.master_of(receipt.queue)
            await self._session.api.call(address, call, timeout_ms=_END_MS)
        except ClientError as error:
            if not isinstance(error, BrokerError) or (ended := _ended_before(error)) is None:
                words = "the end of a transaction did not arrive, the broker will ask for it id=%s wanted=%s error=%s"
                log.warning(words, receipt.message_id, wanted.value, error)
                return
            if wanted is TransactionState.COMMITTED and ended is not wanted:
                self.state = TransactionState.LOST
                lost = TransactionLost(self._message.topic, receipt.message_id, error.remark)
                raise lost from None
            self.state = ended
            if ended is not wanted:
                log.error("delivered, although rolled back: a check said so id=%s", self._id)
        else:
            self.state = wanted


def _ended_before(error: BrokerError) -> TransactionState | None:
    """Return how the half message had ended, if that is why a broker refuses to end it; Apache's says so once the log forgets it."""
    if error.code != ResponseCode.SYSTEM_ERROR:
        return None
    if "has been committed already" in error.remark:
        return TransactionState.COMMITTED
    gone = "been rolled back or discarded" in error.remark or "Find prepared" in error.remark
    return TransactionState.ROLLED_BACK if gone else None


class Checks:
    """The checks of one client, by topic, and what brokers ask them. `serve` them when there is a session.

    Attributes:
        open: ids of transactions that are at work in this client: nobody else can know what becomes of them.
    """

    def __init__(self, trace: MessageTrace) -> None:
        self.trace = trace
        self.open: set[str] = set()
        self._checks: dict[str, Check] = {}
        self._running = 0
        self._session: Session | None = None
        self._group = ""

    def __contains__(self, topic: str) -> bool:
        return topic in self._checks

    def row(self) -> Row:
        """Its place in the table of what this client serves."""
        return Row(
            RequestCode.CHECK_TRANSACTION_STATE,
            self._begin_check,
            CheckTransactionStateRequestHeader,
            0,
        )

    def add(self, topic: str, check: Check) -> None:
        """Answer for the half messages to a topic from now on."""
        self._checks[topic] = check
        if self._session is not None:
            self._start_announcing(self._session, topic)

    def serve(self, session: Session, group: str) -> None:
        """Answer for a producer group."""
        self._session, self._group = session, group
        for topic in self._checks:
            self._start_announcing(session, topic)

    def _start_announcing(self, session: Session, topic: str) -> None:
        """Heartbeats go to the brokers of known routes, and brokers ask whom heartbeats name."""
        session.tasks.keep(f"check-{topic}", partial(self._announce, session, topic))

    async def _announce(self, session: Session, topic: str, health: Health) -> None:
        while True:
            try:
                await session.route(session.namespace.wrap(topic))
                await session.heartbeat()
                return
            except ClientError as error:
                session.noise.warning(
                    f"check-{topic}", "no route to check topic=%s: %s", topic, error
                )
            await asyncio.sleep(_AGAIN_S)

    def _begin_check(
        self, ctx: RequestContext, header: CheckTransactionStateRequestHeader, body: bytes
    ) -> Outcome:
        """CHECK_TRANSACTION_STATE: one way; the answer is an END_TRANSACTION."""
        session = self._session
        try:
            (record,) = decode_records(body)
            message = received(record, "")
        except (CorruptRecord, ValueError) as error:
            log.warning("a half message cannot be read broker=%s error=%s", ctx.peer.remote, error)
            return Silent()
        topic = message.properties.get(names.REAL_TOPIC, message.topic)
        if session is not None:
            topic = session.namespace.shown(topic)
        check = _is_open if message.message_id in self.open else self._checks.get(topic)
        if session is None or check is None:
            log.warning("nobody answers the check of a half message: call on_check(%r)", topic)
        elif self._running < MOST_CHECKS:
            self._running += 1
            message.topic = topic
            work = self._check(session.namespace, check, message, header, ctx.peer)
            task = session.tasks.start("check", work)
            task.add_done_callback(self._ended)
        return Silent()

    def _ended(self, task: object) -> None:
        self._running -= 1

    async def _check(
        self,
        space: Namespace,
        check: Check,
        message: ReceivedMessage,
        header: CheckTransactionStateRequestHeader,
        peer: Peer,
    ) -> None:
        decision: bool | None = None
        try:
            answer = check(message)
            decision = verdict(await answer if isinstance(answer, Awaitable) else answer)
        except Exception:
            log.exception("check failed, the broker asks again id=%s", message.message_id)
        end = EndTransactionRequestHeader(
            topic=space.wrap(message.topic),
            producer_group=message.properties.get(names.PGROUP, self._group),
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=_ANSWERS[decision],
            from_transaction_check=True,
            msg_id=message.message_id,
            transaction_id=header.transaction_id,
        )
        try:
            peer.notify(RequestCode.END_TRANSACTION, encode_ext(end))
        except ClientError as error:
            log.debug("the answer to a check did not leave: %s", error)
        self.trace.transaction_ended(
            EndOfTransaction(
                group=space.shown(end.producer_group),
                topic=message.topic,
                message_id=message.message_id,
                tag=message.tag,
                keys=message.keys,
                store_host=message.store_host,
                transaction_id=header.transaction_id or message.message_id,
                commit=decision,
                from_check=True,
            )
        )


def _is_open(message: ReceivedMessage) -> None:
    """The check of a transaction at work: not known yet."""


def check_transactional(message: Message, group: str) -> None:
    """Raises ConfigError: the message, or the group, is not one for transactions."""
    if group == DEFAULT_PRODUCER_GROUP:
        raise ConfigError(
            "a transaction needs a producer group of its own, whose members answer checks: Client(..., group='shop')"
        )
    if message.delay_level or message.deliver_at_ms:
        raise ConfigError("a message of a transaction cannot be delayed")
