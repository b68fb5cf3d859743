"""Who has asked is told at once which routes have changed, and nobody else is."""

import asyncio

from tests.nameserver.test_epochs import body_of as epoch_body
from tests.nameserver.test_service import ADDRESS, BROKER, Case, Run, body_of, namesrv  # noqa: F401

from roquette.client import calls
from roquette.remoting.client import RemotingClient
from roquette.remoting.request import Row, Silent
from roquette.wire.bodies import TopicList
from roquette.wire.json_body import decode_body


class Watcher:
    def __init__(self, case: Case, host: str) -> None:
        self.case = case
        self.told: list[tuple[float, list[str]]] = []
        rows = [Row(13006, self.changed, None, 0)]
        self.remoting = RemotingClient(case.clock, rows=rows, local_host=host)

    async def watch(self, *topics: str) -> int:
        call = calls.watch_routes(list(topics))
        return (await self.remoting.invoke(ADDRESS, call.code, call.ext, call.body)).code

    def changed(self, ctx: object, header: None, body: bytes) -> Silent:
        topics = decode_body(TopicList, body).topic_list
        self.told.append((self.case.loop.time(), sorted(topics)))
        return Silent()

    async def topics(self) -> list[str]:
        """What was told in the next half second."""
        began = self.case.loop.time()
        self.told.clear()
        await asyncio.sleep(0.5)
        assert all(at - began < 0.1 for at, _ in self.told)
        return [topic for _, topics in self.told for topic in topics]


def test_changes_are_told_at_once_to_those_who_asked(namesrv: Run) -> None:  # noqa: F811
    async def scenario(case: Case) -> None:
        one, two = Watcher(case, "10.0.5.1"), Watcher(case, "10.0.5.2")
        assert await one.watch("T", "new") == 0
        assert await two.watch("U") == 0
        await case.register()
        assert (await one.topics(), len(two.told)) == (["T"], 1), "its broker has appeared"
        await case.register()
        assert await one.topics() == [], "a heartbeat changes nothing"
        await case.register(body_of("T", "U", "new", counter=2))
        assert await one.topics() == ["new"]
        await case.register(body_of("T", "U", counter=3, perm=4))
        assert (await one.topics(), two.told[0][1]) == (["T"], ["U"])
        await case.call(205, brokerName="broker-a")
        assert await one.topics() == ["T", "new"]
        await one.watch("U")
        await case.call(216, topic="T")
        assert await one.topics() == [], "it asked for something else since"
        await case.call(216, topic="U")
        assert await one.topics() == ["U"]
        for watcher in (one, two):
            await watcher.remoting.close()
        await asyncio.sleep(0.1)
        watches = case.server.core.routes.watches
        assert not (len(watches) or watches._watchers or watches._topics)

    namesrv(scenario)


def test_a_new_master_and_a_lost_one_are_told(namesrv: Run) -> None:  # noqa: F811
    async def scenario(case: Case) -> None:
        watcher = Watcher(case, "10.0.5.1")
        await case.register(epoch_body(5), brokerId=0)
        await watcher.watch("T")
        fields = {"brokerName": "broker-a", "clusterName": "c", "haServerAddr": "", "brokerId": 0}
        await case.call(103, epoch_body(6), brokerAddr="10.0.2.1:10911", **fields)
        assert await watcher.topics() == ["T"]
        case.client.drop(ADDRESS)
        assert await watcher.topics() == ["T"]
        assert (await case.route()).code == 17
        await watcher.remoting.close()

    namesrv(scenario)


def test_more_topics_than_a_client_may_watch_are_refused(namesrv: Run) -> None:  # noqa: F811
    async def scenario(case: Case) -> None:
        watcher = Watcher(case, "10.0.5.1")
        assert await watcher.watch(*(f"t{n}" for n in range(5_001))) == 29
        assert await watcher.watch("x" * 2_000) == 29
        assert len(case.server.core.routes.watches) == 0
        await case.register(brokerAddr=BROKER)
        await watcher.remoting.close()

    namesrv(scenario)
