"""What a test of a consuming client has: a topic, a group, a producer, and the consumers it starts on them."""

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tests.interop.conftest import Cluster
from tests.interop.driver import LineClient
from tests.interop.peers import call

PATIENCE_S = 60  # machines are slow when everything runs at once
NOTICED_S = 18  # a client that is not told rebalances every 20 s


class Bench:
    """A topic with four queues and what a test starts on it."""

    def __init__(self, client: LineClient, cluster: Cluster, name: str) -> None:
        self.client = client
        self.cluster = cluster
        self.name = name
        self.topic = f"T_{name}"
        self.group = f"G_{name}"
        self.running: list[str] = []
        self.sent: list[str] = []

    def create(self, topic: str = "", queues: int = 4, perm: int = 6) -> None:
        """Make the topic (another one if named) on the broker, and wait until its route is told."""
        create_topic(self.cluster, topic or self.topic, queues=queues, perm=perm)

    def send(self, count: int, body: str = "m", **more: Any) -> list[Any]:
        """Send `count` messages; their results."""
        results: list[Any] = self.client(
            "send", name=self.name, topic=self.topic, count=count, body=body, **more
        )["results"]
        assert [result["status"] for result in results] == ["SEND_OK"] * len(results)
        self.sent += [f"{body}-{i}" for i in range(count)]
        return results

    def consumer(self, suffix: str = "1", command: str = "consumer", **more: Any) -> str:
        """Start a push consumer (or a lite one); its name."""
        name = f"{self.name}-{suffix}"
        wanted = {"group": self.group, "topic": self.topic, **more}
        self.client(command, name=name, namesrv=self.cluster.namesrv.address, **wanted)
        self.running.append(name)
        return name

    def stop(self, name: str) -> None:
        """Stop one: it leaves the group and stores its offsets."""
        self.running.remove(name)
        self.client("stop", name=name)

    def seen(self, name: str, count: int = 0, nudge: bool = False) -> list[Any]:
        """What a consumer has got, once `count` messages are there or patience ends.

        With `nudge` it rebalances often, where a test is not about when that happens.
        """
        wait = {"min": count, "timeout": PATIENCE_S * 1000, "nudge": nudge}
        found: list[Any] = self.client("dump", name=name, **wait)["messages"]
        return found

    def until_all_seen(self, *names: str, before: Sequence[Any] = (), nudge: bool = False) -> None:
        """Wait until these consumers have got all that was sent, but for what was seen `before`, and nothing else.

        Delivery is at least once: after a rebalance a message may have come twice, and that is no failure.
        """

        def found() -> set[str]:
            seen = [message for name in names for message in self.seen(name, nudge=nudge)]
            return set(bodies([*before, *seen]))

        until(lambda: found() >= set(self.sent))
        assert found() == set(self.sent)

    def queues(self, name: str, nudge: bool = False) -> set[int]:
        """Ids of the queues of the topic a consumer holds."""
        held = self.client("dump", name=name, nudge=nudge)["queues"]
        return {int(queue.rsplit("@", 1)[1]) for queue in held if queue.startswith(self.topic)}

    def committed(self, queues: int = 4) -> list[int]:
        """The group's offset in every queue of the topic, -1 where there is none."""
        found = []
        for queue in range(queues):
            fields = {"consumerGroup": self.group, "topic": self.topic, "queueId": str(queue)}
            answer = call(self.cluster.broker.address, 14, {**fields, "setZeroIfNotFound": "false"})
            assert answer is not None
            found.append(int(answer[0]["extFields"]["offset"]) if not answer[0]["code"] else -1)
        return found

    def size(self, queue: int, topic: str = "") -> int:
        """How many messages a queue had: the offset after its last one (GET_MAX_OFFSET)."""
        fields = {"topic": topic or self.topic, "queueId": str(queue)}
        answer = call(self.cluster.broker.address, 30, fields)
        assert answer is not None and answer[0]["code"] == 0, answer
        return int(answer[0]["extFields"]["offset"])

    def lag(self) -> dict[str, Any]:
        """examineConsumeStats of the group."""
        return self.client("lag", name=self.name, group=self.group, topic=self.topic)


def create_topic(cluster: Cluster, topic: str, *, queues: int = 4, perm: int = 6) -> None:
    """UPDATE_AND_CREATE_TOPIC, as an administrator would; returns when the name server tells the route."""
    fields = {"topic": topic, "defaultTopic": "TBW102", "perm": str(perm), "order": "false"}
    fields |= {"readQueueNums": str(queues), "writeQueueNums": str(queues)}
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"}
    answer = call(cluster.broker.address, 17, fields)
    assert answer is not None and answer[0]["code"] == 0, answer
    until_routed(cluster, topic, queues=queues, perm=perm)


def until_routed(cluster: Cluster, topic: str, *, queues: int = 4, perm: int = 6) -> None:
    """Wait until the name server tells a topic's route at the cluster's broker. Who sends before takes the default topic's at first, and
    spreads the messages anew when the topic's own comes."""
    asked = {"topic": topic, "acceptStandardJsonOnly": "true"}

    def told() -> bool:
        answer = call(cluster.namesrv.address, 105, asked)
        if answer is None or answer[0]["code"] != 0:
            return False
        return any(
            (data["brokerName"], data["writeQueueNums"], data["perm"])
            == (cluster.broker.name, queues, perm)
            for data in json.loads(answer[1])["queueDatas"]
        )

    until(told)


def until(what: Callable[[], Any], within_s: float = PATIENCE_S) -> Any:
    """Wait until `what()` is true; its value."""
    end = time.monotonic() + within_s
    while not (value := what()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)
    return value


def bodies(messages: list[Any]) -> Counter[str]:
    return Counter(message["body"] for message in messages)
