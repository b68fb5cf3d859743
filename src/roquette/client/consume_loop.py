"""The task that pulls one queue for a push consumer: long polling, flow control, offset correction."""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from roquette.base.javatypes import java_hash
from roquette.base.lifecycle import Health
from roquette.client.core.process_queue import ProcessQueue
from roquette.client.core.retry_policy import broker_error
from roquette.errors import BrokerError, ClientError, CorruptRecord
from roquette.message.message import ReceivedMessage, received
from roquette.message.properties import RETRY_TOPIC
from roquette.message.record import decode_records
from roquette.message.sysflag import COMPRESSED, PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from roquette.wire.bodies import SubscriptionData
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.header_codec import decode_ext, encoder
from roquette.wire.headers import PullMessageRequestHeader, PullMessageResponseHeader

if TYPE_CHECKING:
    from roquette.client.push_consumer import PushConsumer

log = logging.getLogger("roquette.client")

FLOW_CONTROL_PAUSE_S: Final = 0.02
_encode_header = encoder(PullMessageRequestHeader)


async def pull_loop(consumer: "PushConsumer", state: ProcessQueue, health: Health) -> None:
    """Pull until the queue is given up."""
    config = consumer.session.config
    broker_id = 0
    while not state.dropped:
        if over_threshold(consumer, state) or (consumer.options.orderly and not state.locked):
            await asyncio.sleep(config.pull_pause_ms / 1000)
            continue
        try:
            reply, header = await _pull(consumer, state, broker_id)
            if state.dropped:
                return
            broker_id = header.suggest_which_broker_id
            if reply.code == ResponseCode.PULL_OFFSET_MOVED:
                await _move(consumer, state, header.next_begin_offset)
                return
            _take(consumer, state, reply, header)
            health.worked()
        except BrokerError as error:
            flow = error.code == ResponseCode.FLOW_CONTROL
            if not flow:
                consumer.session.noise.warning(
                    f"pull-{state.queue.topic}", "pull failed queue=%s error=%s", state.queue, error
                )
            await asyncio.sleep(FLOW_CONTROL_PAUSE_S if flow else config.pull_retry_ms / 1000)
        except (ClientError, CorruptRecord) as error:
            consumer.session.noise.warning(
                f"pull-{state.queue.topic}", "pull failed queue=%s error=%s", state.queue, error
            )
            broker_id = 0
            await asyncio.sleep(config.pull_retry_ms / 1000)


def over_threshold(consumer: "PushConsumer", state: ProcessQueue) -> bool:
    """Enough is waiting for the handlers (DefaultMQPushConsumerImpl.pullMessage's flow control)."""
    config = consumer.session.config
    return (
        state.count > config.pull_threshold_count
        or state.size > config.pull_threshold_bytes
        or state.must_wait()
        or (not consumer.options.orderly and state.span() > config.pull_threshold_span)
    )


async def _pull(
    consumer: "PushConsumer", state: ProcessQueue, broker_id: int
) -> tuple[Command, PullMessageResponseHeader]:
    session, queue = consumer.session, state.queue
    wanted = consumer.expression(queue.topic)
    commit = consumer.committed_offset(state) if broker_id == 0 else 0
    flags = PULL_SUSPEND | PULL_SUBSCRIPTION | (PULL_COMMIT_OFFSET if commit > 0 else 0)
    ext = _encode_header(
        PullMessageRequestHeader(
            consumer_group=consumer.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=state.next_offset,
            max_msg_nums=session.config.pull_batch,
            sys_flag=flags,
            commit_offset=commit,
            suspend_timeout_millis=session.config.pull_hold_ms,
            subscription=wanted.sub_string,
            sub_version=wanted.sub_version,
            expression_type=wanted.expression_type,
            bname=queue.broker_name,
        )
    )
    route = session.known_route(queue.topic)
    address = route.address_for_read(queue.broker_name, broker_id) if route is not None else None
    address = address or session.master_of(queue)
    state.last_pull_ms = session.clock.now_ms()
    session.greet_soon(address)
    reply = await session.remoting.invoke(
        address, RequestCode.PULL_MESSAGE, ext, b"", timeout_ms=session.config.pull_timeout_ms
    )
    if reply.code not in (
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    ):
        raise broker_error(reply.code, reply.remark, address)
    return reply, decode_ext(PullMessageResponseHeader, reply.ext)


def _take(
    consumer: "PushConsumer", state: ProcessQueue, reply: Command, header: PullMessageResponseHeader
) -> None:
    if reply.code != ResponseCode.SUCCESS:
        state.next_offset = header.next_begin_offset
        return
    messages: list[ReceivedMessage] = []
    unreadable: list[ReceivedMessage] = []
    for record in decode_records(reply.body):
        try:
            message = received(record, state.queue.broker_name)
        except CorruptRecord as error:
            record.sys_flag &= ~COMPRESSED
            unreadable.append(received(record, state.queue.broker_name))
            log.warning("body is unreadable queue=%s error=%s", state.queue, error)
            continue
        if not consumer.wanted(message):
            continue
        original = message.properties.get(RETRY_TOPIC)
        if original is not None and message.topic != original:
            message.topic = original  # a returned message shows the topic it was sent to
        messages.append(message)
    state.take(messages + unreadable, header.next_begin_offset)
    consumer.submit(state, messages)
    for message in unreadable:
        consumer.bury(state, message)


async def _move(consumer: "PushConsumer", state: ProcessQueue, offset: int) -> None:
    """The broker says our offset is outside the queue: go on where it says (pullKernel's OFFSET_ILLEGAL)."""
    log.warning("offset moved queue=%s from=%d to=%d", state.queue, state.next_offset, offset)
    await consumer.restart(state, offset)
    await consumer.persist()


def subscription(topic: str, expression: str, now_ms: int) -> SubscriptionData:
    """`*` or `a || b` as brokers want it (FilterAPI.buildSubscriptionData)."""
    words = [word.strip() for word in expression.split("||")]
    tags = [word for word in words if word] if expression.strip() not in ("", "*") else []
    return SubscriptionData(
        topic=topic,
        sub_string=expression if tags else "*",
        tags_set=tags,
        code_set=[java_hash(tag) for tag in tags],
        sub_version=now_ms,
        expression_type="TAG",
    )
