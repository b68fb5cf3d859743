"""OpenTelemetry over the interceptors, seen by the SDK's own exporters in memory."""

import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from roquette import (
    App,
    Client,
    ConfigError,
    Message,
    OpenTelemetry,
    ReceivedMessage,
    StartFrom,
)
from roquette.errors import MessageIllegal
from roquette_testing.cluster import SimCluster, simulate

sdk = pytest.importorskip("opentelemetry.sdk")

from opentelemetry import baggage, context, trace  # noqa: E402
from opentelemetry.sdk.metrics import MeterProvider  # noqa: E402
from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: E402
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (  # noqa: E402
    InMemorySpanExporter,
)


class Seen:
    """What the SDK was told."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        meters = MeterProvider([self._reader])
        self.interceptor = OpenTelemetry(tracer_provider=tracers, meter_provider=meters)

    def spans(self, name: str) -> list[Any]:
        return [span for span in self._spans.get_finished_spans() if span.name == name]

    def points(self, name: str) -> list[Any]:
        data: Any = self._reader.get_metrics_data()
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


def scene(case: Callable[[Client, Seen], Awaitable[None]]) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv("10.0.0.1")
        await cluster.add_broker("10.0.1.1", "broker-a")
        mq = await cluster.client("10.0.2.1")
        await mq.send("orders", b"makes the topic", tag="none")
        seen = Seen()
        mq.intercept(seen.interceptor)
        await case(mq, seen)

    simulate(scenario, seed=1)


def test_a_handler_runs_in_a_span_below_that_of_the_send() -> None:
    async def case(mq: Client, seen: Seen) -> None:
        inside: list[Any] = []
        app = App()

        @app.consumer("orders", group="g", tag="t")
        def handle(message: ReceivedMessage) -> bool:
            inside.append(trace.get_current_span().get_span_context())
            inside.append(baggage.get_baggage("who"))
            assert seen.interceptor.context_of(message)
            if message.reconsume_times == 0:
                raise KeyError("k")
            return message.reconsume_times > 1

        async with app.serving(mq):
            token = context.attach(baggage.set_baggage("who", "me"))
            receipt = await mq.send("orders", b"abc", key=["a", "b"], tag="t", shard_key="s")
            context.detach(token)
            while len(inside) < 6:
                await _pause()

        (sent,) = seen.spans("send orders")
        assert sent.kind is trace.SpanKind.PRODUCER
        assert dict(sent.attributes) == {
            "messaging.system": "rocketmq",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": "orders",
            "messaging.destination.partition.id": f"broker-a:{receipt.queue.queue_id}",
            "messaging.message.id": receipt.message_id,
            "messaging.message.body.size": 3,
            "messaging.rocketmq.message.tag": "t",
            "messaging.rocketmq.message.keys": ("a", "b"),
            "messaging.rocketmq.message.group": "s",
            "messaging.rocketmq.message.type": "fifo",
        }
        handled = seen.spans("process orders")
        assert [span.parent.span_id for span in handled] == [sent.context.span_id] * 3
        assert [span.context.span_id for span in handled] == [c.span_id for c in inside[::2]]
        assert inside[1::2] == ["me"] * 3
        assert {span.context.trace_id for span in handled} == {sent.context.trace_id}
        assert [span.attributes.get("error.type") for span in handled] == [
            "KeyError",
            "_OTHER",
            None,
        ]
        assert handled[0].events[0].name == "exception"
        assert handled[0].attributes["messaging.consumer.group.name"] == "g"
        assert trace.get_current_span() is trace.INVALID_SPAN

    scene(case)


def test_a_popped_job_has_a_span_that_ends_in_any_task(caplog: pytest.LogCaptureFixture) -> None:
    async def case(mq: Client, seen: Seen) -> None:
        await mq.send("orders", b"x", tag="x")
        async with mq.pop("orders", group="g") as jobs:
            async for job in jobs:
                assert trace.get_current_span() is trace.INVALID_SPAN
                await job.ack()
                if job.body == b"x":
                    break
        await _pause()
        (sent,) = seen.spans("send orders")
        below = [s for s in seen.spans("process orders") if s.parent is not None]
        assert [span.parent.span_id for span in below] == [sent.context.span_id]

    scene(case)
    assert "detach" not in caplog.text


def test_a_batch_handler_runs_in_a_span_with_a_link_to_each_sender() -> None:
    async def case(mq: Client, seen: Seen) -> None:
        inside: list[Any] = []

        def handle(messages: list[ReceivedMessage]) -> int:
            inside.append((len(messages), trace.get_current_span().get_span_context().span_id))
            assert baggage.get_all() == {}
            return len(messages) - 1 if len(inside) == 1 else len(messages)

        (queue, *_) = await mq.queues("orders")
        await mq.send_batch("orders", [b"1", b"2", b"3"], queue=queue)
        await mq.subscribe(
            "orders", handle, group="g", batch=32, start_from=StartFrom.FIRST, orderly=True
        )
        while sum(count for count, _ in inside) < 5:
            await _pause()
        await _pause()
        calls = [span for span in seen.spans("process orders") if span.parent is None]
        calls = [span for span in calls if "messaging.batch.message_count" in span.attributes]
        assert [span.context.span_id for span in calls] == [own for _, own in inside]
        whole = max(calls, key=lambda span: len(span.links))
        senders = [span.context.span_id for span in seen.spans("send orders")]
        assert sorted(link.context.span_id for link in whole.links) == sorted(senders)
        assert "error.type" in calls[0].attributes, "not all of its messages were accepted"
        assert trace.get_current_span() is trace.INVALID_SPAN

    scene(case)


def test_metrics_count_and_time_sends_and_handlers() -> None:
    async def case(mq: Client, seen: Seen) -> None:
        for _ in range(3):
            await mq.send("orders", b"x")
        await (await mq.send_nowait("orders", b"y"))
        await mq.send_batch("orders", [b"1", b"2"])
        await mq.send(Message("orders", b"later", delay_level=1))
        with pytest.raises(MessageIllegal):
            await mq.send("orders", b"z", delay_level=99)
        handled = 0

        async def handle(message: ReceivedMessage) -> None:
            nonlocal handled
            await _pause()
            handled += 1

        await mq.subscribe("orders", group="g", handler=handle)
        while handled < 8:
            await _pause()
        await _pause()

        good, bad = sorted(
            seen.points("messaging.client.sent.messages"), key=lambda p: -int(p.value)
        )
        assert (good.value, bad.value) == (7, 1)
        assert bad.attributes["error.type"] == "roquette.errors.MessageIllegal"
        (took,) = seen.points("messaging.process.duration")
        assert took.count == 8 and took.min >= 0.1
        assert took.explicit_bounds[0] == 0.005
        assert sum(p.count for p in seen.points("messaging.client.operation.duration")) == 8
        (consumed,) = seen.points("messaging.client.consumed.messages")
        assert consumed.value == 8
        kinds = {s.attributes["messaging.rocketmq.message.type"] for s in seen.spans("send orders")}
        assert kinds == {"normal", "delay"}

    scene(case)


async def _pause() -> None:
    import asyncio

    await asyncio.sleep(0.1)


def test_without_opentelemetry_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "opentelemetry"]:
        monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(ConfigError, match=r"roquette\[otel\]"):
        OpenTelemetry()


def test_a_client_imports_neither_opentelemetry_nor_pydantic() -> None:
    line = (
        "import sys, roquette; roquette.Client, roquette.App, roquette.OpenTelemetry; "
        "print([m for m in sys.modules if m.split('.')[0] in ('opentelemetry', 'pydantic')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", line], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
