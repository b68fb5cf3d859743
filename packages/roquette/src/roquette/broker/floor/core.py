"""Core that every feature of a broker stands on: the parts, and how tables are kept, what goes, and who is called."""

from dataclasses import dataclass, field

from roquette.access.assemble import Access
from roquette.access.model import OPEN_TO_ALL, AccessSettings
from roquette.base.entropy import Entropy
from roquette.base.executor import run_blocking
from roquette.base.files import Files
from roquette.broker.floor.clock import BrokerClock
from roquette.broker.floor.config import LiveConfig
from roquette.broker.floor.config_files import ConfigFiles
from roquette.broker.floor.deletions import Deletions
from roquette.broker.floor.disk_watch import DiskWatch, Losses
from roquette.broker.floor.item_stats import ItemStats
from roquette.broker.floor.log_sync import LogSync, ReplicaState
from roquette.broker.floor.outbound import Outbound
from roquette.broker.floor.parts import Address, BrokerParts, BrokerTables, Identity, Shell
from roquette.broker.floor.stats import BrokerStats
from roquette.broker.floor.table_files import TablePersistence
from roquette.broker.floor.timer_rules import rules_of
from roquette.broker.floor.writer import MessageWriter
from roquette.remoting.settings import UNPROTECTED, Protection
from roquette.store.format.results import Found
from roquette.store.message_store import MessageStore
from roquette.store.queue_read import QueueRead
from roquette.store.reput import parse_delay_levels
from roquette.store.timer_store import TimerStore
from roquette.wire.signature import Prover


@dataclass(slots=True, kw_only=True)
class BrokerCore(BrokerParts):
    """The floor of all features. A feature takes what it uses of it when it is made.

    Attributes:
        outbound: calls to name servers and other brokers.
        deletions: deletes topics and groups, with what every feature keeps of them.
        saved: writes the tables, and has the outcomes that answer when that is done.
    """

    outbound: Outbound = field(init=False)
    deletions: Deletions = field(init=False)
    saved: TablePersistence = field(init=False)

    def __post_init__(self) -> None:
        self.outbound = Outbound(self.clock, self.protection.calls)
        self.deletions = Deletions(self)
        self.saved = TablePersistence(self, self.deletions)

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
    shell: Shell,
    *,
    files: Files,
    clock: BrokerClock,
    entropy: Entropy,
    identity: Identity | None = None,
    protection: Protection = UNPROTECTED,
    access: AccessSettings = OPEN_TO_ALL,
) -> BrokerCore:
    """The core around an open store. `identity`: None takes what the settings say."""
    if identity is None:
        ha_port = live.current.ha_listen_port or address.port + 1
        identity = Identity(live.current.broker_id, 0, ha_port)
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
        items=ItemStats(),
        shell=shell,
        protection=rights.protect(protection),
        access=rights,
    )
