"""OpenTelemetry: spans, metrics and context over the interceptors; its packages are imported when one is made.

Names are those of OpenTelemetry's semantic conventions for messaging, with their part for RocketMQ.
"""

import asyncio
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from roquette.client.handler import inside_handler
from roquette.client.interceptors import Handled, Sent
from roquette.client.receipt import SendReceipt
from roquette.errors import ConfigError
from roquette.message import properties as names
from roquette.message.message import Message, ReceivedMessage

BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)


class OpenTelemetry:
    """An interceptor: a span and metrics for each message that is sent and each that is handled.

        mq.intercept(roquette.OpenTelemetry())

    Senders put W3C's traceparent, tracestate and baggage (or what the global propagator writes) into the message's
    properties; the span around a handler is their child, and current in the handler. What is current in a batch handler is a
    span of the call, with a link to each message's sender. Loops over messages (`consume`,
    `pop`) have such a span, too, but it is not current in the loop: `context_of(message)` is the sender's context.

    Args:
        tracer_provider, meter_provider: instead of the global ones.

    Raises:
        ConfigError: OpenTelemetry is not installed: `pip install roquette[otel]`.
    """

    def __init__(self, *, tracer_provider: Any = None, meter_provider: Any = None) -> None:
        try:
            self._trace: Any = import_module("opentelemetry.trace")
            self._context: Any = import_module("opentelemetry.context")
            self._propagate: Any = import_module("opentelemetry.propagate")
            metrics: Any = import_module("opentelemetry.metrics")
        except ImportError as error:
            raise ConfigError(
                f"OpenTelemetry is not installed ({error}): pip install 'roquette[otel]'"
            ) from None
        version = import_module("roquette").__version__
        self._tracer = self._trace.get_tracer("roquette", version, tracer_provider)
        meter = metrics.get_meter("roquette", version, meter_provider)
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}")
        self._took = _histogram(meter, "messaging.client.operation.duration")
        self._consumed = meter.create_counter("messaging.client.consumed.messages", "{message}")
        self._handled = _histogram(meter, "messaging.process.duration")

    def context_of(self, message: ReceivedMessage) -> Any:
        """The context that its sender put into a message."""
        return self._propagate.extract(message.properties)

    def on_send(self, message: Message, group: str) -> Sent | None:
        labels = _labels("send", message.topic)
        attributes = {
            **labels,
            **_of_message(message.body, message.tag, message.keys, message.shard_key),
            "messaging.rocketmq.message.type": _kind(message),
        }
        if message.delay_level:
            attributes["messaging.rocketmq.message.delay_time_level"] = message.delay_level
        if message.deliver_at_ms:
            attributes["messaging.rocketmq.message.delivery_timestamp"] = message.deliver_at_ms
        span = self._tracer.start_span(
            f"send {message.topic}", kind=self._trace.SpanKind.PRODUCER, attributes=attributes
        )
        self._propagate.inject(message.properties, self._trace.set_span_in_context(span))
        loop = asyncio.get_running_loop()
        began_s = loop.time()

        def sent(receipt: SendReceipt | None, error: BaseException | None) -> None:
            if receipt is not None:
                span.set_attribute("messaging.message.id", receipt.message_id)
                partition = f"{receipt.queue.broker_name}:{receipt.queue.queue_id}"
                span.set_attribute("messaging.destination.partition.id", partition)
            self._end(span, labels, error)
            self._sent.add(1, labels)
            self._took.record(loop.time() - began_s, labels)

        return sent

    def on_receive(self, message: ReceivedMessage, group: str) -> Handled | None:
        labels = {**_labels("process", message.topic), "messaging.consumer.group.name": group}
        key = message.properties.get(names.SHARDING_KEY)
        attributes = {
            **labels,
            **_of_message(message.body, message.tag, message.keys, key),
            "messaging.message.id": message.message_id,
            "messaging.destination.partition.id": f"{message.queue.broker_name}:{message.queue.queue_id}",
        }
        context = self.context_of(message)
        span = self._tracer.start_span(
            f"process {message.topic}",
            context=context,
            kind=self._trace.SpanKind.CONSUMER,
            attributes=attributes,
        )
        task, token = asyncio.current_task(), None
        if (
            inside_handler()
        ):  # a popped job is not the work of the task that was given it: it ends anywhere
            token = self._context.attach(self._trace.set_span_in_context(span, context))
        loop = asyncio.get_running_loop()
        began_s = loop.time()

        def handled(accepted: bool, error: BaseException | None) -> None:
            if token is not None and asyncio.current_task() is task:
                self._context.detach(token)
            self._end(span, labels, error, accepted=accepted)
            self._consumed.add(1, labels)
            self._handled.record(loop.time() - began_s, labels)

        return handled

    def on_batch(self, messages: Sequence[ReceivedMessage], group: str) -> Handled:
        """See Interceptors: a span of the whole call, current in the handler, with a link to each message's sender."""
        labels = {**_labels("process", messages[0].topic), "messaging.consumer.group.name": group}
        senders = [
            self._trace.get_current_span(self.context_of(message)).get_span_context()
            for message in messages
        ]
        span = self._tracer.start_span(
            f"process {messages[0].topic}",
            context=self._context.Context(),
            kind=self._trace.SpanKind.CONSUMER,
            attributes={**labels, "messaging.batch.message_count": len(messages)},
            links=[self._trace.Link(sender) for sender in senders if sender.is_valid],
        )
        token = self._context.attach(self._trace.set_span_in_context(span, self._context.Context()))

        def handled(accepted: bool, error: BaseException | None) -> None:
            self._context.detach(token)
            self._end(span, labels, error, accepted=accepted)

        return handled

    def _end(
        self,
        span: Any,
        labels: dict[str, Any],
        error: BaseException | None,
        *,
        accepted: bool = True,
    ) -> None:
        """End a span; labels get the type of the error."""
        if error is not None or not accepted:
            kind = type(error)
            name = "_OTHER" if error is None else f"{kind.__module__}.{kind.__qualname__}"
            labels["error.type"] = name.removeprefix("builtins.")
            span.set_attribute("error.type", labels["error.type"])
            reason = "the handler did not accept it" if error is None else str(error)
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, reason))
            if error is not None:
                span.record_exception(error)
        span.end()


def _histogram(meter: Any, name: str) -> Any:
    return meter.create_histogram(name, "s", explicit_bucket_boundaries_advisory=BUCKETS_S)


def _labels(operation: str, topic: str) -> dict[str, Any]:
    return {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }


def _of_message(
    body: bytes, tag: str | None, keys: tuple[str, ...], shard_key: str | None
) -> dict[str, Any]:
    found: dict[str, Any] = {"messaging.message.body.size": len(body)}
    if tag:
        found["messaging.rocketmq.message.tag"] = tag
    if keys:
        found["messaging.rocketmq.message.keys"] = keys
    if shard_key:
        found["messaging.rocketmq.message.group"] = shard_key
    return found


def _kind(message: Message) -> str:
    if message.properties.get(names.TRAN_MSG) == "true":
        return "transaction"
    if message.delay_level or message.deliver_at_ms:
        return "delay"
    return "fifo" if message.shard_key else "normal"
