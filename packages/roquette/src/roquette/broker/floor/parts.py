"""The parts of a broker that stand alone: settings, times, store, tables, the log's writer, and the running broker."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from roquette.access.assemble import Access
from roquette.base.clock import Clock
from roquette.base.entropy import Entropy
from roquette.base.files import Files
from roquette.base.lifecycle import Tasks
from roquette.base.metric_families import MetricTable
from roquette.broker.floor.clock import BrokerClock
from roquette.broker.floor.config import LiveConfig
from roquette.broker.floor.config_files import ConfigFiles
from roquette.broker.floor.disk_watch import DiskWatch
from roquette.broker.floor.item_stats import ItemStats
from roquette.broker.floor.log_sync import LogSync, ReplicaState
from roquette.broker.floor.stats import BrokerStats
from roquette.broker.floor.tables.bounds import LockTable
from roquette.broker.floor.tables.cold_reads import ColdReads
from roquette.broker.floor.tables.consumers import ConsumerTable, ProducerTable
from roquette.broker.floor.tables.duplicate_clients import DuplicateClientDetector
from roquette.broker.floor.tables.filters import SubscriptionFilters
from roquette.broker.floor.tables.groups import BackwardCommitPolicy, GroupTable, RequestModes
from roquette.broker.floor.tables.offsets import OffsetTable
from roquette.broker.floor.tables.topics import TopicTable
from roquette.broker.floor.writer import MessageWriter
from roquette.remoting.account import MemoryAccount
from roquette.remoting.request import Peer, RequestContext
from roquette.remoting.settings import Protection
from roquette.store.message_store import MessageStore
from roquette.store.timer_store import TimerStore


class Shell(Protocol):
    """The running broker, as its features see it."""

    @property
    def tasks(self) -> Tasks:
        """Tasks of features: what they start here ends with the broker."""

    def end_turn(self) -> None:
        """Let out what was appended and changed, in the one order of `Turn.end`."""

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
        """Return why clients are not served now, as the features say; "": they are."""

    def measures(self, now_ms: int) -> Iterable[MetricTable]:
        """The features' metrics."""

    def strangers(self) -> tuple[int, str]:
        """Return how many connections spoke none of the ports' protocols since the start, and the last one's host:port."""

    def peers(self) -> list[Peer]:
        """Return the peers that are connected."""

    def refusals(self) -> dict[str, int]:
        """Requests and connections refused since the start, by why."""

    def kept(self) -> MemoryAccount:
        """Return the account of what is kept for peers."""

    def lanes(self) -> list[tuple[str, int, int, int]]:
        """Name, size, capacity, age of the oldest request in ms: what the main port's lanes hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Place where a broker is found.

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
    """Identity of the broker among those of its name; after a change call `Registration.identity_changed`.

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
    """Tables of what the broker knows of topics, groups, offsets and clients."""

    def __init__(self, live: LiveConfig, clock: Clock) -> None:
        now_ms, bounds = clock.now_ms(), live.bounds
        self.topics = TopicTable(now_ms, bound=bounds.topics, retry_bound=bounds.retry_topics)
        self.modes = RequestModes(bounds.modes)
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


@dataclass(slots=True, kw_only=True)
class BrokerParts:
    """Parts of a broker around its open store, as `build_core` makes them: none of them needs the whole.

    Attributes:
        files: those under `config/` of the store.
        timer_store: None: timerWheelEnable=false.
        items: counters by name and key, as VIEW_BROKER_STATS_DATA shows them.
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
    items: ItemStats
    shell: Shell
    protection: Protection
    access: Access
