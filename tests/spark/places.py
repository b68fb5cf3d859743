"""Real servers for Spark jobs: Roquette's, and Apache's where Java and Maven are."""

import asyncio
import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from tests.interop.peers import call, start_broker, start_namesrv
from tests.real_servers import RawConnection, pull_fields
from tools import workspace

from roquette import Client, Message, SendReceipt
from roquette.errors import RouteNotFound
from roquette.message.message import MessageQueue
from roquette.message.record import decode_records
from roquette.message.record_layout import StoredRecord
from roquette_spark.source.queues import queue_bounds

MAX_OFFSET, PULL = 30, 11


def environment() -> dict[str, str]:
    """For jobs in processes of their own: they import this source tree."""
    return {**os.environ, "PYTHONPATH": workspace.python_path()}


class Place:
    """A name server and a broker of one flavour."""

    def __init__(self, flavour: str, folder: Path, **settings: str) -> None:
        self._flavour, self._folder, self._settings = flavour, folder / "broker", settings
        self.namesrv = start_namesrv(flavour, folder / "namesrv")
        try:
            self.start_broker()
        except BaseException:
            self.namesrv.discard()
            raise
        self.address = self.namesrv.address

    def start_broker(self) -> None:
        """On the store that is there."""
        self.broker = start_broker(
            self._flavour, self._folder, self.namesrv.address, settings=self._settings
        )

    def restart_broker(self, away_s: float = 1.0) -> None:
        """kill -9; it comes back at another port."""
        self.broker.process.kill()
        time.sleep(away_s)
        self.start_broker()

    def discard(self) -> None:
        """End them after their last test."""
        try:
            self.broker.discard()
        finally:
            self.namesrv.discard()

    def create(self, topic: str, queues: int = 4) -> str:
        """Make a topic and wait until the name server knows it."""
        fields = {"topic": topic, "defaultTopic": "TBW102", "perm": "6", "topicSysFlag": "0"}
        fields |= {"readQueueNums": str(queues), "writeQueueNums": str(queues)}
        fields |= {"topicFilterType": "SINGLE_TAG", "order": "false"}
        answer = call(self.broker.address, 17, fields)
        assert answer is not None
        assert answer[0]["code"] == 0, answer
        end = time.monotonic() + 60
        while True:
            found = call(self.address, 105, {"topic": topic})
            if found is not None and found[0]["code"] == 0:
                return topic
            assert time.monotonic() < end, topic
            time.sleep(0.05)

    def settle(self, topic: str, count: int) -> None:
        """Wait until so many messages can be read: Apache's broker builds its queues a little later, and name
        servers hear of a new topic when it has some."""
        end = time.monotonic() + 60
        while True:
            with contextlib.suppress(RouteNotFound):
                if sum(queue_bounds(self.address, [topic])[1].values()) >= count:
                    return
            assert time.monotonic() < end, topic
            time.sleep(0.05)


def until_readable(namesrv: str, topic: str, ends: dict[MessageQueue, int]) -> None:
    """Wait until the name server tells of the topic, and its queues have these ends at least."""
    end = time.monotonic() + 60
    while True:
        with contextlib.suppress(RouteNotFound):
            there = queue_bounds(namesrv, [topic])[1]
            if all(there.get(queue, 0) >= least for queue, least in ends.items()):
                return
        assert time.monotonic() < end, (topic, ends)
        time.sleep(0.05)


def publish(namesrv: str, messages: Sequence[Message]) -> list[SendReceipt]:
    """Send them, and wait until they can be read; where each went."""

    async def send() -> list[SendReceipt]:
        async with Client(namesrv) as mq:
            first = await mq.send(messages[0])  # finds the route, makes the topic
            sending = [await mq.send_nowait(message) for message in messages[1:]]
            return [first, *[await each for each in sending]]

    receipts = asyncio.run(send())
    assert all(receipt.status == "SEND_OK" for receipt in receipts)
    ends: dict[MessageQueue, int] = {}
    for receipt in receipts:
        ends[receipt.queue] = max(ends.get(receipt.queue, 0), receipt.queue_offset + 1)
    for topic in {queue.topic for queue in ends}:
        until_readable(namesrv, topic, {q: end for q, end in ends.items() if q.topic == topic})
    return receipts


def stored(broker: str, topic: str, queues: int) -> dict[int, list[StoredRecord]]:
    """All messages of a topic at a broker by queue, in order, over raw frames."""
    host, _, port = broker.rpartition(":")
    found: dict[int, list[StoredRecord]] = {}
    with RawConnection((host, int(port)), 20.0) as connection:
        for queue in range(queues):
            answer = call(broker, MAX_OFFSET, {"topic": topic, "queueId": str(queue)})
            assert answer is not None and answer[0]["code"] == 0, answer
            end = int(answer[0]["extFields"]["offset"])
            lane = found[queue] = []
            while len(lane) < end:
                head, data = connection.call(PULL, pull_fields(topic, queue, len(lane)))
                assert head["code"] == 0, (queue, len(lane), end, head)
                lane += decode_records(data, check_crc=True)
    return found
