"""A topic made by its first message comes to every writable master of the cluster at once.

In Apache it exists on the broker that got the message, until the others are hit by chance. Here that broker asks
the other masters which offer the same template with permission to write, as the name servers know them, and
answers the sender when all have it, after 500 ms at most; who is late is logged, and still tried for a while.

No loops: a broker that receives the request creates the topic and does not forward it. Two brokers that get first messages at once, from producers
with different queue counts, both end with the larger one (TopicTable.merge_auto_created): the request says
that the topic is an auto-created one, and so does our answer to the question for a topic's settings. Apache's
brokers say nothing of the kind: what exists there stays as it is.
"""

import asyncio
import logging

from roquette.base.logs import RateLimited
from roquette.broker.floor.config import name_servers
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.tables.bounds import SLOW_BROKERS
from roquette.broker.floor.tables.topics import Topic
from roquette.errors import ClientError
from roquette.message.names import DLQ_PREFIX, PERM_WRITE, RETRY_PREFIX
from roquette.wire.bodies import TopicConfig, TopicRouteData

log = logging.getLogger("roquette.broker.auto_creation")

WHOLE_S = 0.5  # the sender waits so long at most: file, name servers and other brokers together
TRIED_MS = 3_000  # each question to others
SLOW_S = 10.0  # who kept a sender waiting is asked without waiting for so long
MOST_AT_ONCE = 256  # topics on their way to other brokers; further ones stay where they were made


class _Round:
    """One new topic on its way: whom the sender waits for."""

    def __init__(self, config: TopicConfig, template: str) -> None:
        self.config = config
        self.template = template
        self.asked: dict[str, None] = {}  # broker names
        self.awaited: dict[str, None] = {}  # name servers and brokers without an answer
        self.done = asyncio.Event()

    def answered(self, who: str) -> None:
        self.awaited.pop(who, None)
        if not self.awaited:
            self.done.set()


class AutoCreation:
    """Work that follows the creation of a topic by a send: file, name servers, the other masters."""

    def __init__(self, core: BrokerCore) -> None:
        self._live = core.live
        self._topics = core.tables.topics
        self._tasks = core.shell.tasks
        self._clock = core.clock
        self._outbound = core.outbound
        self._changes = core.saved
        self._noise = RateLimited(log, core.clock)
        self._slow: dict[str, float] = {}  # who was late -> loop time until which nobody waits
        self._rounds = 0

    async def created(self, topic: Topic, template: str) -> bool:
        """Wait until `topic`, made after `template`, is on disk and known, 500 ms at most for the others; False
        when it could not be written."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WHOLE_S
        round_ = self._start(topic, template)
        saved = await self._changes.settled(WHOLE_S)
        if round_ is None:
            return saved
        try:
            async with asyncio.timeout_at(deadline):
                await round_.done.wait()
        except TimeoutError:
            for who in round_.awaited:
                while len(self._slow) >= SLOW_BROKERS:
                    del self._slow[next(iter(self._slow))]
                self._slow[who] = loop.time() + SLOW_S
            late = ",".join(round_.awaited)
            self._noise.warning(late, "auto-created topic=%s is late at %s", topic.name, late)
        return saved

    def _start(self, topic: Topic, template: str) -> _Round | None:
        config = self._live.current
        servers = name_servers(config)
        if (
            not config.auto_create_topic_on_all_brokers
            or not servers
            or not topic.auto_created_ms
            or topic.name.startswith((RETRY_PREFIX, DLQ_PREFIX))
        ):
            return None
        if self._rounds >= MOST_AT_ONCE:
            self._noise.warning(
                "many", "topic=%s is created here only: too many at once", topic.name
            )
            return None
        self._rounds += 1
        round_ = _Round(topic.to_config(), template)
        self._tasks.start(f"auto-create-{topic.name}", self._run(round_, servers))
        return round_

    async def _run(self, round_: _Round, servers: list[str]) -> None:
        try:
            for server in servers:
                self._await(round_, server)
            if not round_.awaited:
                round_.done.set()
            await asyncio.gather(*(self._through(round_, server) for server in servers))
        finally:
            self._rounds -= 1
            round_.done.set()

    def _await(self, round_: _Round, who: str) -> None:
        until = self._slow.get(who)
        if until is None or until <= asyncio.get_running_loop().time():
            self._slow.pop(who, None)
            round_.awaited[who] = None

    async def _through(self, round_: _Round, server: str) -> None:
        """Ask the brokers that one name server knows, except those another one has named before."""
        route = None
        try:
            route = await self._outbound.route(server, round_.template, TRIED_MS)
        except ClientError as error:
            self._noise.warning(server, "no route for auto-creation namesrv=%s: %s", server, error)
        config = self._live.current
        calls = []
        for name, address in _writable_masters(route, config.broker_cluster_name):
            if name != config.broker_name and name not in round_.asked:
                round_.asked[name] = None
                self._await(round_, name)
                calls.append(self._ask(round_, name, address))
        round_.answered(server)
        await asyncio.gather(*calls)

    async def _ask(self, round_: _Round, name: str, address: str) -> None:
        """Bring the topic to one broker; what exists there and was not just auto-created stays."""
        config = round_.config
        try:
            theirs, auto = await self._outbound.topic_config(address, config.topic_name, TRIED_MS)
            if theirs is None or (auto and _smaller(theirs, config)):
                await self._outbound.auto_create_topic(address, config, TRIED_MS)
            if theirs is not None and auto:
                self._topics.merge_auto_created(theirs, self._clock.now_ms())
            elif theirs is not None and _counts(theirs) != _counts(config):
                log.info("topic=%s has other queues on broker=%s", config.topic_name, name)
        except ClientError as error:
            self._noise.warning(
                name, "auto-created topic=%s missed broker=%s: %s", config.topic_name, name, error
            )
        round_.answered(name)


def _writable_masters(route: TopicRouteData | None, cluster: str) -> list[tuple[str, str]]:
    """Names and addresses of the cluster's masters on which the routed topic may be written."""
    if route is None:
        return []
    open_ = {data.broker_name for data in route.queue_datas if data.perm & PERM_WRITE}
    return [
        (data.broker_name, data.broker_addrs[0])
        for data in route.broker_datas
        if data.cluster == cluster and data.broker_name in open_ and 0 in data.broker_addrs
    ]


def _counts(config: TopicConfig) -> tuple[int, int]:
    return config.read_queue_nums, config.write_queue_nums


def _smaller(theirs: TopicConfig, ours: TopicConfig) -> bool:
    """Return True when their topic would gain queues."""
    return (
        theirs.read_queue_nums < ours.read_queue_nums
        or theirs.write_queue_nums < ours.write_queue_nums
    )
