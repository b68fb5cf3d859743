"""Real servers for Spark jobs: Roquette's, and Apache's where Java and Maven are."""

import contextlib
import os
import time
from pathlib import Path

from tests.interop.peers import call, start_broker, start_namesrv

from roquette.errors import RouteNotFound
from roquette.message.message import MessageQueue
from roquette.spark.source.queues import queue_bounds


def environment() -> dict[str, str]:
    """For jobs in processes of their own: they import this source tree."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}


class Place:
    """A name server and a broker of one flavour."""

    def __init__(self, flavour: str, folder: Path, **settings: str) -> None:
        self.namesrv = start_namesrv(flavour, folder / "namesrv")
        try:
            self.broker = start_broker(
                flavour, folder / "broker", self.namesrv.address, settings=settings
            )
        except BaseException:
            self.namesrv.discard()
            raise
        self.address = self.namesrv.address

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
