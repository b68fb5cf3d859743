"""A whole cluster in one process and in virtual time: name servers, brokers, clients, one seed.

    def test_something() -> None:
        async def scenario(cluster: SimCluster) -> None:
            await cluster.add_namesrv("10.0.0.1")
            await cluster.add_broker("10.0.1.1", "broker-a")
            mq = await cluster.client("10.0.2.1")
            await mq.send("orders", b"1")
            cluster.kill("10.0.1.1")

        simulate(scenario, seed=1)

Each host runs one process. Clocks are the loop's, files a `FaultyFiles` per host, which survives the process.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from roquette.access.model import OPEN_TO_ALL
from roquette.apps.features import broker_features
from roquette.apps.group_features import group_master_features, group_replica_features
from roquette.base.clock import LoopClock
from roquette.base.entropy import Entropy
from roquette.broker.floor.config import BrokerConfig
from roquette.broker.group.member import GroupMember
from roquette.broker.service import Broker, Features
from roquette.client.client import Client
from roquette.client.client_base import Outside
from roquette.client.settings import ClientSettings, config_of
from roquette.nameserver.floor.config import NamesrvConfig
from roquette.nameserver.service import NameServer
from roquette.store.format.config import StoreConfig
from roquette_testing.faulty_files import FaultyFiles
from roquette_testing.memory_network import Process
from roquette_testing.sim_loop import SimLoop, run

T = TypeVar("T")

START_MS = 1_700_000_000_000
NAMESRV_PORT = 9876
BROKER_PORT = 10911
SMALL_STORE: dict[str, Any] = {
    "root_dir": "/store",
    "segment_size": 1 << 20,
    "queue_file_size": 20 * 1000,
    "max_hash_slots": 100,
    "max_index_entries": 1000,
    "timer_log_file_size": 1 << 16,
}


class Host:
    """One machine: its files, its clock, and the process that runs on it."""

    def __init__(self, ip: str, files: FaultyFiles, process: Process, clock: LoopClock) -> None:
        self.ip = ip
        self.files = files
        self.process = process
        self.clock = clock
        self.begin: Callable[[], Awaitable[Any]] | None = None  # starts its service again
        self.service: Any = None


class SimCluster:
    """Hosts by IPv4 text, and the faults that befall them.

    Attributes:
        clock: the right time. Hosts have clocks of their own.
        access: of the servers that start from now on.
    """

    def __init__(self, loop: SimLoop, start_ms: int = START_MS) -> None:
        self.loop = loop
        self.network = loop.network
        self.start_ms = start_ms
        self.clock = LoopClock(loop, start_ms)
        self.hosts: dict[str, Host] = {}
        self.access = OPEN_TO_ALL

    # Building

    def host(self, ip: str) -> Host:
        """The machine at `ip`, installed on first use."""
        found = self.hosts.get(ip)
        if found is None:
            files = FaultyFiles(self._draw_seed())
            clock = LoopClock(self.loop, self.start_ms)
            found = self.hosts[ip] = Host(ip, files, self.loop.new_process(ip), clock)
        return found

    def _draw_seed(self) -> int:
        return self.loop.random.getrandbits(32)

    def _entropy(self) -> Entropy:
        return Entropy(self._draw_seed(), process_id=1000 + self._draw_seed() % 30_000)

    async def add_namesrv(self, ip: str, **settings: Any) -> NameServer:
        """Start a name server; `settings` are fields of NamesrvConfig. `access` of the cluster holds for it."""
        values: dict[str, Any] = {
            "bind_address": ip,
            "listen_port": NAMESRV_PORT,
            "kv_config_path": "/kv/kvConfig.json",
            "controller_store_path": "/controller",
        }
        config = NamesrvConfig(**values | settings)
        host = self.host(ip)

        async def begin() -> NameServer:
            server = NameServer(config, files=host.files, clock=host.clock, access=self.access)
            await server.start()
            return server

        return await self._begin(host, begin)

    async def add_broker(
        self,
        ip: str,
        name: str = "",
        *,
        name_servers: str | None = None,
        store: dict[str, Any] | None = None,
        features: Features = broker_features,
        **settings: Any,
    ) -> Broker:
        """Start a broker; `settings` are fields of BrokerConfig, `store` of StoreConfig."""
        servers = self.name_servers if name_servers is None else name_servers
        config, store_config = _settings(ip, name or f"broker-{ip}", servers, settings, store)
        host = self.host(ip)

        async def begin() -> Broker:
            broker = Broker(
                config,
                store_config,
                features,
                files=host.files,
                clock=host.clock,
                entropy=self._entropy(),
            )
            broker.access = self.access
            await broker.start()
            return broker

        return await self._begin(host, begin)

    async def add_member(
        self, ip: str, name: str, *, store: dict[str, Any] | None = None, **settings: Any
    ) -> GroupMember:
        """Start a broker of the group `name`; its record stands at the first name server, which must be a controller
        (`controller="embedded"`), unless `controller_addr` says otherwise."""
        servers = self.name_servers
        group: dict[str, Any] = {
            "enable_controller_mode": True,
            "controller_addr": servers.split(";")[0],
            "broker_role": "SYNC_MASTER",
        }
        config, store_config = _settings(ip, name, servers, group | settings, store)
        host = self.host(ip)

        async def begin() -> GroupMember:
            member = GroupMember(
                config,
                store_config,
                master_features=group_master_features,
                replica_features=group_replica_features,
                files=host.files,
                clock=host.clock,
                entropy=self._entropy(),
            )
            member.access = self.access
            await member.start()
            return member

        return await self._begin(host, begin)

    async def client(
        self, ip: str, *, name_servers: str | None = None, group: str | None = None, **settings: Any
    ) -> Client:
        """Start a client on its own host; `settings` are ClientSettings."""
        values: ClientSettings = {"local_host": ip, "offset_root": "/offsets", **settings}  # type: ignore[typeddict-item]
        config = config_of(self.name_servers if name_servers is None else name_servers, values, {})
        host = self.host(ip)
        options: dict[str, Any] = {} if group is None else {"group": group}

        async def begin() -> Client:
            outside = Outside(host.clock, self._entropy(), host.files)
            return await Client._within(outside, config, **options).start()

        return await self._begin(host, begin)

    async def _begin(self, host: Host, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        assert host.service is None, f"{host.ip} already runs something"
        host.begin = begin
        service = await self.loop.run_in(host.process, begin())
        host.service = service
        return service

    @property
    def name_servers(self) -> str:
        """The addresses of all name servers, as clients and brokers take them."""
        return ";".join(
            f"{ip}:{NAMESRV_PORT}"
            for ip, host in self.hosts.items()
            if isinstance(host.service, NameServer)
        )

    async def run_on(self, ip: str, work: Awaitable[T]) -> T:
        """Run `work` as part of the process on a host: it dies with it."""

        async def awaited() -> T:
            return await work

        return await self.loop.run_in(self.host(ip).process, awaited())

    # Faults

    def kill(self, ip: str, *, power_loss: bool = False) -> None:
        """SIGKILL; with `power_loss` the machine goes down too, and with it what was not synced."""
        host = self.hosts[ip]
        self.loop.kill(host.process)
        if power_loss:
            host.files = host.files.crash()
        else:
            host.files.kill()
        host.service = None

    async def restart(self, ip: str) -> Any:
        """Start again what ran on a killed or stopped host, on the same files."""
        host = self.hosts[ip]
        assert host.begin is not None, f"nothing ever ran on {ip}"
        host.process = self.loop.new_process(ip)
        host.service = await self.loop.run_in(host.process, _as_coroutine(host.begin))
        return host.service

    async def stop(self, ip: str) -> None:
        """A clean end, as SIGTERM asks for."""
        host = self.hosts[ip]
        service, host.service = host.service, None
        end = service.close() if isinstance(service, Client) else service.stop()
        await self.loop.run_in(host.process, end)
        host.files.kill()

    def partition(self, a: str, b: str) -> None:
        """Nothing passes between two hosts until `heal`."""
        self.network.partition(a, b)

    def cut_way(self, a: str, b: str) -> None:
        """Lose what host `a` sends to host `b` until `heal`; the other way all passes."""
        self.network.cut_way(a, b)

    def pause(self, ip: str, seconds: float) -> None:
        """SIGSTOP for so long: what arrives waits in the sockets, timers are late, nobody else notices."""
        self.loop.pause(self.hosts[ip].process, seconds)

    def set_rate(self, ip: str, rate: float) -> None:
        """A host's clocks and timers run so fast from now on: 1.01 is one per cent too fast."""
        self.loop.set_rate(ip, rate)

    def slow_disk(self, ip: str, seconds: float) -> None:
        """Each sync, and each other file call in a thread of that host, takes so long from now on (0: as usual)."""
        self.loop.slow_disk(ip, seconds)

    def isolate(self, ip: str) -> None:
        """Nothing passes between a host and all others until `heal`."""
        self.network.isolate(ip)

    def heal(self) -> None:
        """End every partition."""
        self.network.heal()

    def set_clock(self, ip: str, offset_ms: int) -> None:
        """Somebody sets a host's wall clock so far ahead of the right time (behind it when negative)."""
        self.loop.trace("clock", ip, offset_ms)
        self.host(ip).clock.offset_ms = offset_ms

    async def move_clocks(self, ips: Sequence[str], most_s: float = 20.0) -> None:
        """Set the clocks of these hosts, for ever: by fractions of a second to hours, ahead and back."""
        rng = self.loop.random
        while True:
            await asyncio.sleep(rng.uniform(0, most_s))
            offset_ms = int(rng.choice((-1, 1)) * 10 ** rng.uniform(2, 7.3))
            self.set_clock(rng.choice(ips), rng.choice((offset_ms, offset_ms, 0)))

    def reset(self, ip: str) -> None:
        """Break every connection of a host."""
        self.network.reset(ip)


def _settings(
    ip: str, name: str, servers: str, settings: dict[str, Any], store: dict[str, Any] | None
) -> tuple[BrokerConfig, StoreConfig]:
    values: dict[str, Any] = {
        "broker_name": name,
        "bind_address": ip,
        "listen_port": BROKER_PORT,
        "namesrv_addr": servers,
    }
    return BrokerConfig(**values | settings), StoreConfig(**SMALL_STORE | (store or {}))


async def _as_coroutine(begin: Callable[[], Awaitable[T]]) -> T:
    return await begin()


def simulate(
    scenario: Callable[[SimCluster], Coroutine[Any, Any, None]],
    seed: int = 1,
    start_ms: int = START_MS,
) -> SimLoop:
    """Run a scenario against an empty cluster; returns the loop, whose fingerprint tells runs apart."""

    async def main(loop: SimLoop) -> None:
        await scenario(SimCluster(loop, start_ms))

    return run(main, seed)
