"""Groups of Java, Go and our clients under each allocation strategy: every member computes the same split."""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.bench import create_topic
from tests.interop.clients import GoClient
from tests.interop.conftest import Cluster
from tests.interop.driver import Driver, LineClient
from tests.interop.peers import Server, call, start_namesrv, start_roquette_broker

from roquette import Client, MessageQueue, StartFrom
from roquette.client.consumer import Consumer
from roquette.client.core.rebalance import STRATEGIES, Strategy, by_config, by_machine_room, nearby

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

TOPIC = "T_strategies"
QUEUES = [MessageQueue(TOPIC, room, n) for room in ("east@a", "west@b") for n in range(5)]
SOON_S = 60.0
GET_CONSUMER_LIST_BY_GROUP = 38
# What each member of a group by CONFIG has been told.
WRITTEN = {"java-east": QUEUES[:3], "java-west": QUEUES[3:5], "go": QUEUES[5:6], "ours": QUEUES[6:]}
ALL, NO_GO = ("java-east", "java-west", "go"), ("java-east", "java-west")


def share_nearby() -> Strategy:
    """Rooms as java/src/Strategies.java finds them."""
    return nearby(lambda broker: broker.partition("@")[0], lambda client: client.rpartition("-")[2])


# Group: strategy, what clients need to know of it, ours, other members. Go's consistent hash has another ring than
# Java's, its machine room nearby knows no rooms, and its machine room takes wrong queues when a room is left out.
CASES: dict[str, tuple[str, dict[str, str], Strategy, tuple[str, ...]]] = {
    "avg": ("AVG", {}, STRATEGIES["AVG"], ALL),
    "circle": ("AVG_BY_CIRCLE", {}, STRATEGIES["AVG_BY_CIRCLE"], ALL),
    "hash": ("CONSISTENT_HASH", {}, STRATEGIES["CONSISTENT_HASH"], NO_GO),
    "config": ("CONFIG", {}, by_config(WRITTEN["ours"]), ALL),
    "rooms": (
        "MACHINE_ROOM",
        {"rooms": "east,west"},
        by_machine_room(frozenset(("east", "west"))),
        ALL,
    ),
    "east": ("MACHINE_ROOM", {"rooms": "east"}, by_machine_room(frozenset(("east",))), NO_GO),
    "nearby": ("MACHINE_ROOM_NEARBY", {}, share_nearby(), NO_GO),
}


@pytest.fixture
def rooms(tmp_path: Path) -> Iterator[Cluster]:
    """A name server, and a broker in each of two machine rooms."""
    servers: list[Server] = []
    with contextlib.ExitStack() as ends:
        namesrv = start_namesrv("roquette", tmp_path / "namesrv")
        ends.callback(namesrv.discard)
        for name in ("east@a", "west@b"):
            servers.append(start_roquette_broker(tmp_path / name, namesrv.address, name=name))
            ends.callback(servers[-1].discard)
        cluster = Cluster("roquette", namesrv, servers[0], tmp_path)
        for server in servers:
            create_topic(Cluster("roquette", namesrv, server, tmp_path), TOPIC, queues=5)
        yield cluster


class Group:
    """The members of one group."""

    def __init__(self, case: str, cluster: Cluster, clients: dict[str, LineClient]) -> None:
        self.case = case
        self.group = f"G_{case}"
        self.cluster = cluster
        self.clients = {word: clients[word] for word in CASES[case][3]}
        self.ours: Consumer | None = None

    async def join(self, mq: Client) -> None:
        strategy, told, share, _ = CASES[self.case]
        for word, client in self.clients.items():
            queues = ";".join(f"{q.topic},{q.broker_name},{q.queue_id}" for q in WRITTEN[word])
            options: dict[str, Any] = {"group": self.group, "topic": TOPIC, "strategy": strategy}
            options |= {"namesrv": self.cluster.namesrv.address, "queues": queues, **told}
            await asyncio.to_thread(client, "consumer", name=f"{self.case}-{word}", **options)
        self.ours = await mq.subscribe(
            TOPIC,
            group=self.group,
            handler=lambda message: None,
            strategy=share,
            start_from=StartFrom.FIRST,
        )

    def ids(self) -> list[str]:
        """The client ids of the members, as the broker tells all of them."""
        asked = call(
            self.cluster.broker.address,
            GET_CONSUMER_LIST_BY_GROUP,
            {"consumerGroup": self.group},
        )
        assert asked is not None
        found: list[str] = json.loads(asked[1])["consumerIdList"]
        return sorted(found)

    async def shares(self) -> dict[str, list[MessageQueue]]:
        """What each member has now; the others are asked to look again."""
        found = {}
        for word, client in self.clients.items():
            told = await asyncio.to_thread(client, "dump", name=f"{self.case}-{word}", nudge=True)
            parts = (text.rsplit("@", 1) for text in told["queues"] if text.startswith(TOPIC))
            found[word] = sorted(
                MessageQueue(TOPIC, place.removeprefix(f"{TOPIC}@"), int(number))
                for place, number in parts
            )
        assert self.ours is not None
        found["ours"] = sorted(queue for queue in self.ours.queues if queue.topic == TOPIC)
        return found

    def wanted(self, own: str) -> dict[str, list[MessageQueue]]:
        """What our function gives each of them."""
        if self.case == "config":
            return dict(WRITTEN)
        ids, share = self.ids(), CASES[self.case][2]
        word_of = {own: "ours"} | {
            one: word for one in ids for word in self.clients if one.endswith(f"-{word}")
        }
        return {word_of[one]: sorted(share(one, ids, QUEUES)) for one in ids}


def test_members_of_all_kinds_compute_the_same_split(
    drivers: Callable[[str], Driver], go: GoClient, rooms: Cluster
) -> None:
    java = drivers("5.5.0")
    clients: dict[str, LineClient] = {"java-east": java, "java-west": java, "go": go}

    async def settled(group: Group, own: str) -> None:
        end = time.monotonic() + SOON_S
        while True:
            shares = await group.shares()
            ids = await asyncio.to_thread(group.ids)
            if len(ids) == len(shares) and shares == await asyncio.to_thread(group.wanted, own):
                break
            assert time.monotonic() < end, (group.case, shares, ids)
            await asyncio.sleep(0.1)
        held = sorted(queue for share in shares.values() for queue in share)
        whole = [q for q in QUEUES if group.case != "east" or q.broker_name == "east@a"]
        assert held == whole, "every queue belongs to exactly one member"

    async def main() -> None:
        groups = [Group(case, rooms, clients) for case in CASES]
        async with Client(rooms.namesrv.address, rebalance=0.5, instance_name="ours-west") as mq:
            for group in groups:
                await group.join(mq)
            for group in groups:
                await settled(group, mq.session.client_id)
            for group in groups:
                for word, client in group.clients.items():
                    await asyncio.to_thread(client, "stop", name=f"{group.case}-{word}")

    asyncio.run(main())
