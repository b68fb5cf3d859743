"""What every feature of a broker is made from: the store, the tables, the times, and the running broker."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from roquette.access.assemble import Access
from roquette.access.settings import OPEN_TO_ALL, AccessSettings
from roquette.base.clock import Clock
from roquette.base.entropy import Entropy
from roquette.base.executor import run_blocking
from roquette.base.exposition import Table
from roquette.base.files import Files
from roquette.base.lifecycle import Tasks
from roquette.broker.floor.clock import BrokerClock, StoredTimes
from roquette.broker.floor.config import LiveConfig
from roquette.broker.floor.config_files import ConfigFiles
from roquette.broker.floor.disk_watch import DiskWatch
from roquette.broker.floor.log_sync import LogSync
from roquette.broker.floor.losses import Losses
from roquette.broker.floor.replica_state import ReplicaState
from roquette.broker.floor.stats import BrokerStats
from roquette.broker.floor.tables.backward_commits import BackwardCommitPolicy
from roquette.broker.floor.tables.cold_reads import ColdReads
from roquette.broker.floor.tables.consumers import ConsumerTable
from roquette.broker.floor.tables.duplicate_clients import DuplicateClientDetector
from roquette.broker.floor.tables.filters import SubscriptionFilters
from roquette.broker.floor.tables.groups import GroupTable
from roquette.broker.floor.tables.locks import LockTable
from roquette.broker.floor.tables.offsets import OffsetTable
from roquette.broker.floor.tables.producers import ProducerTable
from roquette.broker.floor.tables.topics import TopicTable
from roquette.broker.floor.timer_rules import rules_of
from roquette.broker.floor.writer import MessageWriter
from roquette.remoting.account import Account
from roquette.remoting.protection import UNPROTECTED, Protection
from roquette.remoting.request import Peer, RequestContext
from roquette.store.config import FlushDiskType
from roquette.store.message_store import MessageStore
from roquette.store.queues.queue_read import QueueRead
from roquette.store.reput import parse_delay_levels
from roquette.store.results import Found
from roquette.store.timer.timer_store import TimerStore
from roquette.wire.proof import Prover


class Shell(Protocol):
    """The running broker, as its features see it."""

    @property
    def tasks(self) -> Tasks:
        """What features start ends with the broker."""

    def end_turn(self) -> None:
        """Let out what was appended and changed, in the one order of `Broker.end_turn`."""

    def wake(self) -> None:
        """Run again what waits for messages that have become visible."""

    def wake_soon(self) -> None:
        """The same when this turn is over: what runs again may append."""

    def rerun(self, job: RequestContext, may_hold: bool) -> None:
        """Run a request again, now; `may_hold`: it may go on waiting."""

    def fail(self, why: str) -> None:
        """The broker cannot go on."""

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: every feature forgets it."""

    def forget_group(self, group: str, clean_offset: bool) -> None:
        """A group was deleted, with its progress when `clean_offset`: every feature forgets it."""

    def runtime_info(self, now_ms: int) -> dict[str, str]:
        """The features' lines of GET_BROKER_RUNTIME_INFO."""

    def unready(self) -> str:
        """Why clients are not served now, as the features say; "": they are."""

    def measures(self, now_ms: int) -> Iterable[Table]:
        """The features' metrics."""

    def strangers(self) -> tuple[int, str]:
        """How many connections spoke none of the ports' protocols since the start, and the last one's host:port."""

    def peers(self) -> list[Peer]:
        """Who is connected."""

    def refusals(self) -> dict[str, int]:
        """Requests and connections refused since the start, by why."""

    def kept(self) -> Account:
        """What is kept for peers."""

    def lanes(self) -> list[tuple[str, int, int, int]]:
        """Name, size, capacity, age of the oldest request in ms: what the main port's lanes hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a broker is found.

    Attributes:
        host: the host it advertises.
        store_host: host and port as records carry them.
    """

    host: str
    port: int
    fast_port: int
    store_host: bytes

    def __str__(self) -> str:
        """The address for clients and name servers: host:port."""
        return f"{self.host}:{self.port}"


class Identity:
    """Who the broker is among those of its name; after a change call `Registration.identity_changed`.

    Attributes:
        broker_id: 0: the master.
        epoch: of its group's newest master as far as it knows; 0: the group elects nobody.
        ha_port: where it listens for replicas.
        stays: when it stops, no name server is told: a broker of another role follows at its address.
    """

    __slots__ = ("broker_id", "epoch", "ha_port", "stays")

    def __init__(self, broker_id: int, epoch: int, ha_port: int) -> None:
        self.broker_id = broker_id
        self.epoch = epoch
        self.ha_port = ha_port
        self.stays = False


class BrokerTables:
    """What the broker knows of topics, groups, offsets and clients."""

    def __init__(self, live: LiveConfig, clock: Clock) -> None:
        now_ms, bounds = clock.now_ms(), live.bounds
        self.topics = TopicTable(now_ms, bound=bounds.topics, retry_bound=bounds.retry_topics)
        self.groups = GroupTable(
            now_ms, lambda: live.current.auto_create_subscription_group, bounds=bounds
        )
        self.backward_commits = BackwardCommitPolicy(self.groups, clock)
        self.offsets = OffsetTable(
            now_ms, bounds.offsets, bounds.pulled, self.backward_commits.permits
        )
        self.filters = SubscriptionFilters()
        self.duplicates = DuplicateClientDetector(clock)
        self.consumers = ConsumerTable(self.filters, self.duplicates, bounds.consumers)
        self.producers = ProducerTable(bounds.producers)
        self.locks = LockTable(bound=bounds.locks)
        self.cold_reads = ColdReads(clock, bounds.thresholds)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCore:
    """The parts that all features share. A feature takes what it uses of it when it is made.

    Attributes:
        files: those under `config/` of the store.
        timer_store: None: timerWheelEnable=false.
    """

    live: LiveConfig
    clock: BrokerClock
    entropy: Entropy
    address: Address
    identity: Identity
    disk_files: Files
    files: ConfigFiles
    store: MessageStore
    timer_store: TimerStore | None
    disk: DiskWatch
    writer: MessageWriter
    log_sync: LogSync
    replicas: ReplicaState
    tables: BrokerTables
    stats: BrokerStats
    shell: Shell
    protection: Protection
    access: Access

    @property
    def times(self) -> StoredTimes:
        """Wall times of records on the steady time."""
        return self.clock.times

    @property
    def answers_wait(self) -> bool:
        """Whether answers wait for the disk or for replicas."""
        return self.replicas.waits or self.live.store.flush_disk_type is FlushDiskType.SYNC_FLUSH

    @property
    def name(self) -> str:
        """The broker's name."""
        return self.live.current.broker_name

    async def log_safe(self) -> bool:
        """Wait until the log is on the disk up to now; False after the timeout."""
        return await self.log_sync.on_disk(self.store.max_physical_offset)

    async def read_cold(self, read: QueueRead) -> Found:
        """Read messages that are not in memory, beside the loop."""
        began_ms = self.clock.steady_ms()
        found = await run_blocking(read.run)
        self.stats.get_durations.add(self.clock.steady_ms() - began_ms, 1)
        return found

    def delivered(self, topic: str, size: int) -> None:
        """Count a message that the broker put on its own account: a delayed, revived or committed one."""
        known = self.tables.topics.find(topic)
        if known is not None:
            known.put_count += 1
        self.stats.put(1, size)


def build_core(
    live: LiveConfig,
    tables: BrokerTables,
    store: MessageStore,
    address: Address,
    world: tuple[Files, BrokerClock, Entropy],
    shell: Shell,
    identity: Identity | None = None,
    protection: Protection = UNPROTECTED,
    access: AccessSettings = OPEN_TO_ALL,
) -> BrokerCore:
    """The core around an open store. `identity`: None takes what the settings say."""
    if identity is None:
        ha_port = live.current.ha_listen_port or address.port + 1
        identity = Identity(live.current.broker_id, 0, ha_port)
    files, clock, entropy = world
    stats = BrokerStats(clock.now_ms(), live.bounds.counted)
    disk = DiskWatch(store, clock, Losses(store, tables.offsets, stats))
    replicas = ReplicaState(live)
    timer_store = rules = None
    if live.store.timer_wheel_enable:
        timer_store = TimerStore(files, store, live.store)
        rules = rules_of(timer_store, live, entropy)
    prover = Prover(clock.now_ms, entropy.secret(16))
    cluster = live.current.broker_cluster_name
    rights = Access(access, files, store.layout.config, clock, cluster, prover)
    rights.proofs.addresses = frozenset((str(address),))
    delay_ms = parse_delay_levels(live.store.delay_levels)
    return BrokerCore(
        live=live,
        clock=clock,
        entropy=entropy,
        address=address,
        identity=identity,
        disk_files=files,
        files=ConfigFiles(files, store.layout.config, store.disk.reserve.release),
        store=store,
        timer_store=timer_store,
        disk=disk,
        writer=MessageWriter(store, delay_ms, disk.ratios_text, rules),
        log_sync=LogSync(store, clock, live, replicas, shell),
        replicas=replicas,
        tables=tables,
        stats=stats,
        shell=shell,
        protection=rights.protect(protection),
        access=rights,
    )
