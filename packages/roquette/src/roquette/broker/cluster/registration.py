"""Registers this broker with every name server: at start, every 30 s, and at once when topics change.

One task per name server, so that a dead one does not delay the others. Each remembers which topics its server has not
acknowledged yet, so a lost incremental registration is made good by the next one.
Apache: BrokerController.registerBrokerAll, registerIncrementBrokerData.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from roquette.base.lifecycle import Health
from roquette.broker.cluster.route_agreement import RouteConsistencyCheck
from roquette.broker.floor.config import BrokerConfig, name_servers
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.outbound import NameServerAnswer
from roquette.broker.floor.table_files import SETTLE_S
from roquette.errors import BrokerError, ClientError
from roquette.message.names import PERM_WRITE
from roquette.wire.bodies import (
    MASTER_ID,
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from roquette.wire.codes import DRAIN_NOTES, RequestCode
from roquette.wire.header_codec import encode_ext
from roquette.wire.headers import (
    BrokerHeartbeatRequestHeader,
    GetKVConfigRequestHeader,
    RegisterBrokerRequestHeader,
    UnRegisterBrokerRequestHeader,
)

log = logging.getLogger("roquette.broker.registration")

SHORTEST_PERIOD_MS = 10_000
LONGEST_PERIOD_MS = 60_000
FIRST_RETRY_S = 0.5
LAST_RETRY_S = 2.0  # a name server that comes back must not wait for what it is there for
UNREGISTER_MS = 3_000
UNSPLIT = (
    4_000  # topics of one registration at most: some ms of work, and far below a frame's 16 MiB
)
READ_WRITE = 6
NOWHERE = (
    "namesrvAddr is empty: this broker is registered nowhere, and no client finds it; "
    "roquette broker -n HOST:PORT names a name server"
)


class _Server:
    """State of one name server: what it has acknowledged."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.everything = True  # the next registration carries all topics
        self.pending: dict[str, None] = {}  # changed topics it has not acknowledged
        self.wanted = 0  # number of the newest change
        self.version: DataVersion | None = None  # of the last full registration it acknowledged
        self.told = 0  # number of the newest change it acknowledged
        self.reachable: bool | None = None
        self.error: ClientError | None = None  # of the last registration
        self.asked = False  # whether it has a drain's note of us
        self.master = ("", "")  # what it last told a replica: address and HA address
        self.wake = asyncio.Event()
        self.waiters: list[asyncio.Future[None]] = []
        self.task: asyncio.Task[None] | None = None


class BrokerRegistrar:
    """Keeps the broker registered with all name servers.

    Args:
        agreement: asked once a period whether the name servers agree.

    Attributes:
        master_address, ha_address: of the master under whose name we are a replica, as the name servers say; empty:
            there is none.
        master_changed: called after they have changed.
    """

    def __init__(self, core: BrokerCore, agreement: RouteConsistencyCheck) -> None:
        self._core = core
        self._live = core.live
        self._topics = core.tables.topics
        self._tasks = core.shell.tasks
        self._outbound = core.outbound
        self._agreement = agreement
        self._servers: dict[str, _Server] = {}
        self._changes = 0
        self._running = False
        self.master_address = ""
        self.ha_address = ""
        self.master_changed: list[Callable[[], None]] = []

    async def start(self) -> None:
        """Begin; returns when every name server has answered, or after 500 ms."""
        self._running = True
        self._begin_epoch()
        self.refresh()
        if not self._servers:
            log.warning("%s", NOWHERE)
        self._tasks.keep("name-server-agreement", self._watch)
        config = self._live.current
        if config.enable_controller_mode:
            beat_s = config.broker_heartbeat_interval / 1000
            self._tasks.every("name-server-heartbeat", beat_s, self._beat)
        await self.settled()

    @property
    def trouble(self) -> str:
        """Reason why clients do not find this broker; "": a name server has it, and none refuses it."""
        failed = [server for server in self._servers.values() if not server.reachable]
        refused = [server for server in failed if isinstance(server.error, BrokerError)]
        if refused or len(failed) == len(self._servers):
            told = (
                f"{each.address}: {each.error or 'not asked yet'}" for each in refused or failed
            )
            how = "a name server refuses it" if refused else "it is registered at no name server"
            return f"{how}: {'; '.join(told)}" if self._servers else NOWHERE
        return ""

    async def _watch(self, health: Health) -> None:
        while True:
            await asyncio.sleep(self._period_s())
            await self._agreement.check()
            health.worked()

    def refresh(self) -> None:
        """Follow the configured list: begin with new name servers, drop removed ones."""
        if not self._running:
            return
        wanted = name_servers(self._live.current)
        for address in wanted:
            if address not in self._servers:
                server = self._servers[address] = _Server(address)
                server.wanted = self._changes + 1
                server.told = self._changes
                server.task = self._tasks.keep(f"register-{address}", partial(self._serve, server))
        for address in [a for a in self._servers if a not in wanted]:
            server = self._servers.pop(address)
            if server.task is not None:
                server.task.cancel()
            _release(server)

    def topic_changed(self, name: str) -> None:
        """A topic was created, changed or deleted: register it everywhere, now."""
        self._changes += 1
        for server in self._servers.values():
            server.pending[name] = None
            server.wanted = self._changes + 1
            server.wake.set()

    def all_changed(self) -> None:
        """Something that touches every topic changed (the broker's permission)."""
        self._changes += 1
        for server in self._servers.values():
            server.everything = True
            server.wanted = self._changes + 1
            server.wake.set()

    def again(self) -> None:
        """Register now: the answer says where the master is."""
        for server in self._servers.values():
            server.wake.set()

    def identity_changed(self) -> None:
        """`core.identity` has another id or epoch: register everywhere, now."""
        self._begin_epoch()
        self.all_changed()

    def _begin_epoch(self) -> None:
        identity = self._core.identity
        if identity.broker_id == MASTER_ID:  # a replica's table has its master's version
            self._topics.begin_epoch(identity.epoch, self._core.clock.now_ms())

    def _beat(self) -> None:
        config, identity = self._live.current, self._core.identity
        header = BrokerHeartbeatRequestHeader(
            cluster_name=config.broker_cluster_name,
            broker_addr=str(self._core.address),
            broker_name=config.broker_name,
            broker_id=identity.broker_id,
            epoch=identity.epoch,
        )
        for server in self._servers.values():
            self._outbound.heartbeat(server.address, header)

    def connection_lost(self, address: str) -> None:
        """A name server forgets us with our connection: register everything again."""
        server = self._servers.get(address)
        if server is not None and self._running:
            server.everything = True
            server.wake.set()

    def taken(self) -> dict[str, bool]:
        """By name server: whether it has taken the last registration."""
        return {server.address: server.reachable is True for server in self._servers.values()}

    async def settled(self, limit_s: float = SETTLE_S) -> None:
        """Wait until every name server that answered last knows all changes so far, for `limit_s` at most."""
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[None]] = []
        for server in self._servers.values():
            if server.told < server.wanted and server.reachable is not False:
                future = loop.create_future()
                server.waiters.append(future)
                futures.append(future)
        if not futures:
            return
        try:
            async with asyncio.timeout(limit_s):
                for future in futures:
                    await asyncio.shield(future)
        except TimeoutError:
            late = [s.address for s in self._servers.values() if s.told < s.wanted]
            if late:  # else they were told, or removed, at the last moment
                log.warning("name servers not told in time servers=%s", ";".join(late))

    async def stop(self) -> None:
        """Unregister everywhere, unless the broker `stays`; unreachable name servers will notice the closed connection."""
        self._running = False
        config = self._live.current
        address = str(self._core.address)
        header = UnRegisterBrokerRequestHeader(
            broker_name=config.broker_name,
            broker_addr=address,
            cluster_name=config.broker_cluster_name,
            broker_id=self._core.identity.broker_id,
        )
        calls = [
            self._outbound.unregister(server.address, header, UNREGISTER_MS)
            for server in self._servers.values()
            if server.reachable and not self._core.identity.stays
        ]
        for server in self._servers.values():
            if server.task is not None:
                server.task.cancel()
            _release(server)
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(outcome, BaseException):
                log.warning("unregistration failed error=%s", outcome)

    async def _serve(self, server: _Server, health: Health) -> None:
        server.everything = True
        failures = 0
        while True:
            done = await self._register(server)
            if done:
                health.worked()
            failures = 0 if done else min(failures + 1, 10)
            if done and (server.told < server.wanted or server.everything):
                continue
            period_s = self._period_s()
            wait_s = period_s if done else min(LAST_RETRY_S, FIRST_RETRY_S * 2 ** (failures - 1))
            server.wake.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await server.wake.wait()
                if not done:
                    await asyncio.sleep(0.05)  # a burst of changes is no burst of connects
            except TimeoutError:
                server.everything = True

    def _period_s(self) -> float:
        period_ms = self._live.current.register_name_server_period
        return min(max(period_ms, SHORTEST_PERIOD_MS), LONGEST_PERIOD_MS) / 1000

    async def _register(self, server: _Server) -> bool:
        """One registration; False when it failed and must be repeated."""
        config = self._live.current
        number = server.wanted
        everything = server.everything
        names = list(server.pending)
        server.everything = False
        version = self._version()
        wanted = [topic.name for topic in self._topics.all()] if everything else names
        try:
            if not server.asked and self._core.identity.broker_id == MASTER_ID:
                await self._stay_drained(server)
            config = self._live.current
            told = await self._tell(server, config, wanted, version)
        except ClientError as error:
            server.everything = server.everything or everything or isinstance(error, BrokerError)
            if server.reachable is not False:
                log.warning("registration failed namesrv=%s error=%s", server.address, error)
            server.reachable, server.error = False, error
            return False
        if not server.reachable:
            log.info(
                "registered namesrv=%s broker=%s address=%s topics=%d",
                server.address,
                config.broker_name,
                str(self._core.address),
                len(wanted),
            )
        server.reachable, server.error = True, None
        server.version = version if everything else None
        for name in names:
            server.pending.pop(name, None)
        server.told = max(server.told, number)
        if server.wanted > number:  # changed meanwhile: those topics must go again
            for name in names:
                server.pending[name] = None
        if server.told >= server.wanted:
            _release(server)
        if self._core.identity.broker_id == MASTER_ID:
            self._take_order_topics(told)
        else:
            self._take_master(server, told)
        return True

    async def _stay_drained(self, server: _Server) -> None:
        """A drain holds until it is taken back: a start does not, nor another master of the name."""
        config = self._live.current
        ext = encode_ext(GetKVConfigRequestHeader(namespace=DRAIN_NOTES, key=config.broker_name))
        timeout_ms = config.register_broker_timeout_mills
        try:
            await self._outbound.ask(
                server.address, RequestCode.GET_KV_CONFIG, ext, timeout_ms=timeout_ms
            )
        except BrokerError:
            pass  # there is none
        else:
            words = "the broker is drained, and takes no sends: roquette broker restore %s"
            log.warning(words, config.broker_name)
            closed = config.broker_permission & ~PERM_WRITE
            self._live.update({"brokerPermission": str(closed)})
        server.asked = True

    def _version(self) -> DataVersion:
        """That of the topics, with the group's epoch."""
        version, epoch = self._topics.data_version, self._core.identity.epoch
        if version.state_version == epoch:
            return version
        return DataVersion(
            counter=version.counter, state_version=epoch, timestamp=version.timestamp
        )

    async def _tell(
        self, server: _Server, config: BrokerConfig, wanted: list[str], version: DataVersion
    ) -> NameServerAnswer:
        """Register topics, in parts when there are many; the loop gets its turns between them.

        Apache's name server takes changes of a topic it knows only with another version than the last message's:
        parts that bring changes go with versions of their own, the last one with the true one.
        """
        size = config.split_registration_size if config.enable_split_registration else UNSPLIT
        size = min(max(2, size), UNSPLIT)  # of an unknown broker one single topic is refused
        parts = [wanted[start : start + size] for start in range(0, len(wanted), size)] or [[]]
        place, identity = self._core.address, self._core.identity
        address, ha_address = str(place), f"{place.host}:{identity.ha_port}"
        answer = NameServerAnswer(None, "", "")
        for number, names in enumerate(parts):
            header = RegisterBrokerRequestHeader(
                broker_name=config.broker_name,
                broker_addr=address,
                cluster_name=config.broker_cluster_name,
                ha_server_addr=ha_address,
                broker_id=identity.broker_id,
                enable_acting_master=False,  # without the field it would be a broker before 5.0
                compressed=config.compressed_register,
                outside_addr=config.outside_addr or None,
            )
            told = version
            if number < len(parts) - 1 and server.version != version:
                told = DataVersion(
                    counter=version.counter,
                    state_version=version.state_version,
                    timestamp=version.timestamp - 1 - number % 2,
                )
            answer = await self._outbound.register(
                server.address,
                header,
                self._body(config, names, told),
                config.register_broker_timeout_mills,
                part=len(parts) > 1,
            )
        return answer

    def _take_master(self, server: _Server, told: NameServerAnswer) -> None:
        """A replica believes the last name server that knows a master; none is there when none knows one."""
        found = server.master = told.master_address, told.ha_address
        if not found[0] and any(s.master[0] for s in self._servers.values() if s.reachable):
            return
        if found != (self.master_address, self.ha_address):
            log.info("name server says master=%s ha=%s", *found)
            self.master_address, self.ha_address = found
            for follow in self.master_changed:
                follow()

    def _take_order_topics(self, told: NameServerAnswer) -> None:
        table = told.order_topics
        if table is not None and table.table:
            for name in table.table:  # updateOrderTopicConfig
                self._topics.set_order(name, self._core.clock.now_ms())

    def _body(
        self, config: BrokerConfig, names: list[str], version: DataVersion
    ) -> RegisterBrokerBody:
        table = self._some(names)
        permission = config.broker_permission
        if permission & READ_WRITE != READ_WRITE:
            for topic in table.values():
                topic.perm &= permission
        wrapper = TopicConfigAndMappingSerializeWrapper(
            topic_config_table=table, data_version=version
        )
        return RegisterBrokerBody(topic_config_serialize_wrapper=wrapper, filter_server_list=[])

    def _some(self, names: list[str]) -> dict[str, TopicConfig]:
        found: dict[str, TopicConfig] = {}
        for name in names:
            topic = self._topics.find(name)
            if topic is not None:
                found[name] = topic.to_config()
        return found


def _release(server: _Server) -> None:
    for future in server.waiters:
        if not future.done():
            future.set_result(None)
    server.waiters.clear()
