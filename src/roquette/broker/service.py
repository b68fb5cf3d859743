"""The broker: its parts, the order in which they start and stop, and the beats that drive them."""

import asyncio
import logging

from roquette.base.clock import Clock
from roquette.base.entropy import Entropy
from roquette.base.executor import run_blocking
from roquette.base.files import Files
from roquette.base.lifecycle import Health, Tasks
from roquette.broker.cluster.addresses import advertised_host, free_ports
from roquette.broker.cluster.auto_creation import AutoCreation
from roquette.broker.cluster.cluster_queues import ClusterQueues
from roquette.broker.cluster.outbound import Outbound
from roquette.broker.cluster.registration import Registration
from roquette.broker.cluster.route_agreement import Agreement
from roquette.broker.config import BrokerConfig, LiveConfig
from roquette.broker.delays.delay_levels import DelayLevels
from roquette.broker.delays.delivered_copies import note_delivered
from roquette.broker.files.config_files import ConfigFiles, Saver
from roquette.broker.files.lost_topics import restore_topics
from roquette.broker.files.table_files import Changes
from roquette.broker.listeners import Doors
from roquette.broker.operation.disk_watch import BEAT_S as DISK_BEAT_S
from roquette.broker.operation.disk_watch import DiskWatch
from roquette.broker.operation.item_stats import ItemStats, StatsFeed
from roquette.broker.operation.stats import BrokerStats
from roquette.broker.operation.store_maintenance import StoreWork
from roquette.broker.pop.driver import PopDriver
from roquette.broker.pop.files import PopFiles
from roquette.broker.pop.state import PopState
from roquette.broker.processor_table import processor_table
from roquette.broker.pulling.filters import SubscriptionFilters
from roquette.broker.pulling.hold_table import HoldTable
from roquette.broker.pulling.slow_readers import BEAT_S as SLOW_READERS_BEAT_S
from roquette.broker.pulling.slow_readers import disable_slow_readers
from roquette.broker.pulling.waiting_pulls import WaitingPulls
from roquette.broker.records import set_aside
from roquette.broker.records.log_sync import LogSync
from roquette.broker.records.steps import keep_stepping
from roquette.broker.records.stored_times import BrokerClock
from roquette.broker.records.writer import MessageWriter
from roquette.broker.tables.backward_commits import Regressions
from roquette.broker.tables.consumers import ConsumerTable
from roquette.broker.tables.deletions import Deletions, follow_deletions
from roquette.broker.tables.duplicate_clients import MemberWatch
from roquette.broker.tables.groups import GroupTable
from roquette.broker.tables.locks import LockTable
from roquette.broker.tables.offsets import OffsetTable
from roquette.broker.tables.producers import ProducerTable
from roquette.broker.tables.topics import TopicTable, system_topics
from roquette.broker.timers.delivery import Timers
from roquette.broker.timers.timer_loop import TimerLoop, rules_of
from roquette.broker.transactions.checks import CheckPlan, TransactionChecks
from roquette.broker.transactions.half_messages import Transactions
from roquette.broker.wiring import Parts, build_processors
from roquette.errors import StoreError
from roquette.message.message_id import host_bytes
from roquette.remoting.client import RemotingClient
from roquette.remoting.dispatcher import RequestContext
from roquette.store.config import FlushDiskType, StoreConfig
from roquette.store.message_store import MessageStore
from roquette.store.recovery import RecoveryReport
from roquette.store.reput import parse_delay_levels
from roquette.store.timer.timer_store import TimerStore

log = logging.getLogger("roquette.broker")

SHORT_BEAT_S = 0.1
DELAY_FIRST_S = 1.0
RECHECK_BEAT_S = 5.0
ALLOCATION_BEAT_S = 0.2
HOUSEKEEPING_BEAT_S = 10.0


class Broker:
    """One broker in one event loop.

    Args:
        config: `broker_name` is set, and `broker_ip1` when the bind address is not a specific one.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        *,
        files: Files,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._files = files
        self._clock = BrokerClock(clock)
        self._entropy = entropy
        self._tasks = Tasks()
        now_ms = clock.now_ms()
        self.live = LiveConfig(config, store_config, now_ms)
        self.host = advertised_host(config)
        self.port = config.listen_port
        self.fast_port = 0
        self.failure: str | None = None
        self._failed: asyncio.Event = asyncio.Event()
        bounds = self.live.bounds
        self.topics = TopicTable(now_ms, bound=bounds.topics, retry_bound=bounds.retry_topics)
        self.groups = GroupTable(
            now_ms, lambda: self.live.current.auto_create_subscription_group, bounds=bounds
        )
        self.offsets = OffsetTable(now_ms, bounds.offsets, bounds.pulled)
        self.filters = SubscriptionFilters()
        self.members = MemberWatch(clock)
        self.consumers = ConsumerTable(self.filters, self.members, bounds.consumers)
        self.producers = ProducerTable(bounds.producers)
        self.locks = LockTable(bound=bounds.locks)
        self.stats = BrokerStats(now_ms, bounds.counted)
        self.items = ItemStats()
        self.regressions = Regressions(self.groups, clock)
        self.offsets.moved_back = self.regressions.allow
        self.sync_flush = store_config.flush_disk_type is FlushDiskType.SYNC_FLUSH

    @property
    def address(self) -> str:
        """What clients and name servers are told: host:port."""
        return f"{self.host}:{self.port}"

    # Start: ports are chosen, the store recovers, tables load, and only then is anything accepted.

    async def start(self) -> None:
        """Recover, accept, register.

        Raises:
            StoreError, ConfigError, OSError: it cannot start; what was opened is closed again.
        """
        self._loop = asyncio.get_running_loop()
        if self.port == 0:
            self.port, self.fast_port = await free_ports(self.live.current.bind_address)
        else:
            self.fast_port = self.port - 2
        store_host = host_bytes(self.host, self.port)
        self.store = MessageStore(self.live.store, self._files, store_host)
        report = await run_blocking(self.store.open, self._clock.now_ms())
        self._clock.watch(self.store)
        log.info("store open root=%s report=%s", self.store.layout.root, report)
        self._build(store_host)
        started = False
        try:
            self._load(report)
            await run_blocking(note_delivered, self.store, self.delays, self.timer)
            await self._doors.open(self.port, self.fast_port)
            started = True
        finally:
            if not started:
                await self._doors.close()
                await self._client.close()
                self.store.close(self._clock.now_ms())
        self._start_beats()
        await self.registration.start()
        log.info(
            "broker started name=%s address=%s fast_port=%d",
            self.name,
            self.address,
            self.fast_port,
        )

    @property
    def name(self) -> str:
        """The broker's name."""
        return self.live.current.broker_name

    def _build(self, store_host: bytes) -> None:
        store, config, times = self.store, self.live.current, self._clock.times
        config_files = ConfigFiles(self._files, store.layout.config, store.disk.reserve.release)
        self._config_files = config_files
        self.disk = DiskWatch(store, self._clock)
        delay_ms = parse_delay_levels(self.live.store.delay_levels)
        timer_store: TimerStore | None = None
        if self.live.store.timer_wheel_enable:
            timer_store = TimerStore(self._files, store, self.live.store)
        self.writer = MessageWriter(
            store,
            delay_ms,
            self.disk.ratios_text,
            None if timer_store is None else rules_of(timer_store, self.live, self._entropy),
        )
        aside = self.writer.aside
        self._aside_file = Saver(config_files, set_aside.FILE, aside.to_file)
        aside.changed = self._aside_file.mark
        self.delays = DelayLevels(
            store, self.writer, delay_ms, times, self._clock.now_ms(), self._delivered
        )
        self.log_sync = LogSync(
            store, self._clock, self.live.store.sync_flush_timeout_ms, self._fail, self._wake
        )
        self._store_work = StoreWork(store, self._files, self._clock, self.log_sync, self.stats)
        self.timer: TimerLoop | None = None
        if timer_store is not None:
            timers = Timers(store, timer_store, self.writer, self._clock.now_ms(), self._delivered)
            self.timer = TimerLoop(
                timers, self.live, self.log_sync, self._clock, config_files, self._end_turn
            )
        self._build_transactions(store_host)
        self._client = RemotingClient(
            self._clock,
            on_lost=lambda name: self.registration.connection_lost(name),  # noqa: PLW0108 - later
        )
        outbound = Outbound(self._client)
        self.registration = Registration(
            self.live,
            self.topics,
            outbound,
            self._tasks,
            lambda: (self.address, f"{self.host}:{self.port + 1}"),
            self._set_order,
            Agreement(self.live, self.topics, outbound, self._clock),
        )
        self.pop = PopState(
            self.live, store, self.writer, self.topics, self.groups, self.offsets, times, store_host
        )
        self._pop_driver = PopDriver(self.pop, self._clock, self._loop, self._rerun, self._end_turn)
        self.holds = HoldTable(config.max_held_pulls, store.properties_at)
        self._waiting = WaitingPulls(self.holds, self._rerun)
        self._cluster_queues = ClusterQueues(self.live, self.topics, outbound, self._clock)
        self.pop_files = PopFiles(config_files, self.pop, self._clock)
        self.pop.modes_changed = self.pop_files.mode_file.mark
        self.changes = Changes(
            config_files,
            self._tasks,
            self._clock,
            self.live,
            self.topics,
            self.groups,
            self.offsets,
            self.delays,
            self.registration,
            store,
        )
        self.changes.also(self.pop_files.mode_file)
        self.changes.guard(
            lambda: self.pop.reviver.snapshot(self._clock.now_ms()),
            lambda: self.log_sync.wait(store.max_physical_offset),
        )
        self.auto_creation = AutoCreation(
            self.live, self.topics, outbound, self.changes, self._tasks, self._clock
        )
        self._build_deletions()
        processors = build_processors(self._parts(store_host))
        self._heartbeat = processors.heartbeat
        self._doors = Doors(
            processor_table(processors),
            config,
            self._clock,
            self._loop,
            self.log_sync,
            end_turn=self._end_turn,
            held=self._waiting.held,
            on_lost=self._heartbeat.connection_lost,
        )
        self.live.changed.append(lambda keys: self._doors.limit(self.live.current))

    def _build_transactions(self, store_host: bytes) -> None:
        self.transactions = Transactions(self.store, self.writer, store_host, self._delivered)
        times = self._clock.times
        self.checks = TransactionChecks(
            CheckPlan(
                self.transactions, self.producers, self.topics, lambda: self.name, store_host, times
            ),
            self.transactions,
            self.store,
            self.offsets,
            self.topics,
            self.live,
            self.log_sync,
            self._clock,
            self._end_turn,
        )

    def _build_deletions(self) -> None:
        """What goes with a topic or a group, and the counters that know of them."""
        self.deletions = Deletions(
            self.live,
            self.topics,
            self.groups,
            self.offsets,
            self.stats,
            self.store,
            self._waiting.wake_topic,
        )
        self.deletions.topic_gone.append(self.pop.topic_gone)
        self.deletions.group_gone.append(self.pop.group_gone)
        store = self.store
        self.feed = StatsFeed(
            self.items,
            self.stats,
            self.live.current.broker_cluster_name,
            self.deletions.is_system,
            lambda topic: [(q, store.max_offset(topic, q)) for q in store.queues_of(topic)],
        )
        follow_deletions(
            self.deletions, self.feed, lambda: None if self.timer is None else self.timer.metrics
        )

    def _parts(self, store_host: bytes) -> Parts:
        return Parts(
            live=self.live,
            times=self._clock.times,
            store=self.store,
            writer=self.writer,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            consumers=self.consumers,
            filters=self.filters,
            members=self.members,
            producers=self.producers,
            locks=self.locks,
            stats=self.stats,
            items=self.items,
            regressions=self.regressions,
            deletions=self.deletions,
            delays=self.delays,
            timer=self.timer,
            transactions=self.transactions,
            changes=self.changes,
            auto_creation=self.auto_creation,
            log_sync=self.log_sync,
            pop=self.pop,
            cluster_queues=self._cluster_queues.find,
            save_request_modes=self.pop_files.save_modes,
            entropy=self._entropy,
            host=self.host,
            store_host=store_host,
            sync_flush=self.sync_flush,
            read_cold=self._store_work.read_cold,
            lanes=lambda: self._doors.lanes(),  # noqa: PLW0108 - the doors come later
            address=lambda: self.address,
            wake=self._waiting.wake_group,
            clean_files=self.disk.clean_manually,
            disk=self.disk.usage,
            health=self._tasks.health,
            delivered=self._delivered,
        )

    def _load(self, report: RecoveryReport) -> None:
        now_ms = self._clock.now_ms()
        self.changes.load(0 if report.damaged_bytes else self.store.max_physical_offset)
        self.writer.aside.load(self._config_files.load(set_aside.FILE, set_aside.SetAsideFile))
        is_system = self.deletions.is_system
        restore_topics(self.topics, self.store, is_system, now_ms, clean=not report.abnormal)
        steady_ms = self._clock.steady_ms()
        self.pop.orders.start(now_ms, steady_ms)
        self.pop_files.load()
        self.pop.reviver.recover(now_ms, steady_ms)
        timer_wheel = self.timer is not None
        self.topics.add_system(system_topics(self.live.current, timer_wheel=timer_wheel))
        self.changes.watch()
        self.checks.load(report.last_record_offset)

    # The turn: what was appended is written before any reply leaves, then held pulls see it.

    def _end_turn(self) -> None:
        began_ms = self._clock.steady_ms()
        if not self._write_log():
            return
        self.stats.put_took(self._clock.steady_ms() - began_ms)
        popped = self.pop.waiting
        self._wake()
        if popped and not self._write_log():  # check-points of the pops that were woken
            return
        if self.offsets.moved and not self.changes.end_turn(self.store.max_physical_offset):
            self._doors.drop_replies()
        if self.sync_flush and self.store.synced_offset < self.store.max_physical_offset:
            self.log_sync.request()  # whoever appended it: only a sync makes it safe, and visible
        else:
            self.log_sync.kick()

    def _write_log(self) -> bool:
        try:
            self.store.write_pending()
        except StoreError as error:
            self._doors.drop_replies()
            self.log_sync.abandon(str(error))
            return False
        return True

    def _sample_rates(self) -> None:
        self.feed.sample(self._clock.steady_ms(), self.topics.all())

    def _wake(self) -> None:
        """Who waits for what has come, and may be seen, runs again."""
        arrivals = self.store.take_arrivals()
        if arrivals:
            self._waiting.arrived(arrivals)
            if self.pop.waiting:
                self._pop_driver.arrived(arrivals)

    def _rerun(self, job: RequestContext, may_hold: bool) -> None:
        self._doors.rerun(job, may_hold)

    def _delivered(self, topic: str, size: int) -> None:
        found = self.topics.find(topic)
        if found is not None:
            found.put_count += 1
        self.stats.put(1, size)

    def _set_order(self, names: list[str]) -> None:
        """Topics the name servers list as ordered become so here (updateOrderTopicConfig)."""
        for name in names:
            self.topics.set_order(name, self._clock.now_ms())

    # Beats.

    def _start_beats(self) -> None:
        config, store, clock = self.live.current, self.live.store, self._clock
        beat = self._tasks.every
        beat("hold-expiry", SHORT_BEAT_S, lambda: self._waiting.expire(clock.steady_ms()))
        beat("pop-expiry", SHORT_BEAT_S, self._pop_driver.expire)
        beat("sync-expiry", SHORT_BEAT_S, self.log_sync.expire)
        beat("store-check", SHORT_BEAT_S, self._store_work.check)
        beat("hold-recheck", RECHECK_BEAT_S, lambda: self._waiting.recheck(self.store.max_offset))
        beat("request-expiry", RECHECK_BEAT_S, self._doors.expire_requests)
        beat("log-sync", store.flush_interval_ms / 1000, self.log_sync.request)
        beat("queue-flush", store.queue_flush_interval_ms / 1000, self._store_work.flush_queues)
        beat("allocation", ALLOCATION_BEAT_S, self._store_work.allocate)
        beat("disk", DISK_BEAT_S, self.disk.look)
        beat("retention", store.clean_interval_ms / 1000, self.disk.clean)
        beat("housekeeping", HOUSEKEEPING_BEAT_S, self._housekeeping)
        beat("transaction-checks", SHORT_BEAT_S, self.checks.tick)
        beat("stats", 1.0, lambda: self.stats.sample(clock.now_ms(), clock.steady_ms()))
        self._sample_rates()
        beat("rates", 10.0, self._sample_rates)
        beat("slow-readers", SLOW_READERS_BEAT_S, self._disable_slow_readers)
        beat("durations", 60.0, self.stats.turn_durations)
        beat("offsets", config.flush_consumer_offset_interval / 1000, self.changes.save_offsets)
        beat("delay-offsets", config.flush_delay_offset_interval / 1000, self.changes.save_delays)
        beat("set-aside", SHORT_BEAT_S, self._aside_file.try_save)
        beat("order-info", config.flush_consumer_offset_interval / 1000, self.pop_files.save_orders)
        self._tasks.keep("delay-levels", self._deliver_delayed)
        self._tasks.keep("revive", self._pop_driver.revive)
        if self.timer is not None:
            self.timer.start(self._tasks)

    def _housekeeping(self) -> None:
        steady_ms = self._clock.steady_ms()
        self._heartbeat.expire(steady_ms)
        self.locks.expire(steady_ms)
        self.pop.clean(steady_ms)
        self.live.bounds.tell(log)

    def _disable_slow_readers(self) -> None:
        disable_slow_readers(
            self.live.current, self.store, self.groups, self.offsets, self._clock.now_ms()
        )

    async def _deliver_delayed(self, health: Health) -> None:
        await asyncio.sleep(DELAY_FIRST_S)
        await keep_stepping(
            self.delays.step, self._clock, self._end_turn, "delayed messages wait", health
        )

    # End.

    def _fail(self, why: str) -> None:
        if self.failure is None:
            log.error("broker cannot go on reason=%s", why)
            self.failure = why
            self._failed.set()

    async def wait_failed(self) -> str:
        """Wait until the broker cannot go on; returns the reason. The caller stops it then."""
        await self._failed.wait()
        return self.failure or ""

    async def stop(self) -> None:
        """Leave the name servers, stop to accept, finish what is in hand, persist, close the store."""
        await self.registration.stop()
        self._waiting.drain()
        self._pop_driver.drain()
        await asyncio.sleep(0)
        if self.failure is None:
            self.log_sync.request()
        await self.log_sync.finish()
        await asyncio.sleep(0)
        await self._doors.close()
        await self._tasks.stop()
        if self.timer is not None:
            await self.timer.finish()
        await self._client.close()
        await self.log_sync.finish()
        await run_blocking(self._close)
        log.info("broker stopped name=%s", self.name)

    def _close(self) -> None:
        if self.failure is None:
            self.store.flush_all()  # progress files speak of what is on the disk only
            self.changes.save_all_now()
            self.pop_files.save_all_now()
            self._aside_file.try_save_now()
            if self.timer is not None:
                self.timer.save_now(self._clock.now_ms())
        self.store.close(self._clock.now_ms())
