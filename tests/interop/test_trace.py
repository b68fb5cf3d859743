"""Our client's message trace, read by Apache's mqadmin: at Apache's broker and at ours, in either topic."""

import asyncio
import re
import time
from collections.abc import Iterator

import pytest
from tests.interop.conftest import SETTINGS
from tests.interop.driver import Driver
from tests.interop.peers import start_broker, start_namesrv

from roquette import Client, ReceivedMessage, SendReceipt, StartFrom

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


@pytest.fixture(scope="module", params=["apache", "roquette"])
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Driver]]:
    folder = tmp_path_factory.mktemp(f"trace-{request.param}")
    namesrv = start_namesrv(request.param, folder / "namesrv")
    broker = java = None
    try:
        settings = (
            {**SETTINGS, "traceTopicEnable": "true"} if request.param == "apache" else SETTINGS
        )
        broker = start_broker(
            request.param, folder / "broker", namesrv.address, settings=dict(settings)
        )
        java = Driver("5.5.0", folder / "java")
        yield namesrv.address, java
    finally:
        if java is not None:
            java.stop()
        for server in (broker, namesrv):
            if server is not None:
                server.discard()


@pytest.mark.parametrize("topic", ["RMQ_SYS_TRACE_TOPIC", "our_trace"])
def test_mqadmin_shows_what_our_client_sent_and_handled(
    topic: str, servers: tuple[str, Driver]
) -> None:
    name_server, java = servers

    half: list[str] = []

    async def run() -> SendReceipt:
        async with Client(
            name_server,
            trace=True,
            trace_topic=topic if topic == "our_trace" else None,
            group="tracer",
        ) as mq:
            got = asyncio.Event()

            async def handle(message: ReceivedMessage) -> None:
                if message.message_id == sent.message_id:
                    got.set()

            sent = await mq.send("traced", b"1", key="k", tag="t")
            await mq.subscribe(
                "traced", group=f"g_{topic}", handler=handle, start_from=StartFrom.FIRST
            )
            async with asyncio.timeout(60):
                await got.wait()
            async with mq.transaction("traced", b"2", key="k") as tx:
                half.append(tx.message_id)
        return sent

    sent = asyncio.run(run())
    end = time.monotonic() + 60
    while True:
        printed = java.mqadmin(
            "queryMsgTraceById", "-n", name_server, "-i", sent.message_id, "-t", topic
        )
        if "#ConsumerGroup" in printed or time.monotonic() > end:
            break
        time.sleep(0.5)

    printed_half = java.mqadmin("queryMsgTraceById", "-n", name_server, "-i", half[0], "-t", topic)
    for each in (printed, printed_half):  # the second is in a batch with an EndTransaction
        assert re.search(r"^Pub +tracer +[\d.]+ .* \d+ms +success", each, re.MULTILINE), each
    assert re.search(rf"^Sub +g_{topic} +[\d.]+ .* \d+ms +success", printed, re.MULTILINE), printed
