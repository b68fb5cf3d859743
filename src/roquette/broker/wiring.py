"""Every processor gets what it works with, and nothing else: the one place that knows all of them."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from roquette.base.entropy import Entropy
from roquette.base.lifecycle import Health
from roquette.broker.clients.client_calls import ClientCallProcessor
from roquette.broker.clients.heartbeat import HeartbeatProcessor
from roquette.broker.clients.queue_locks import LockProcessor
from roquette.broker.clients.subscriptions import SubscriptionProcessor
from roquette.broker.cluster.auto_creation import AutoCreation
from roquette.broker.config import LiveConfig
from roquette.broker.delays.delay_levels import DelayLevels
from roquette.broker.files.table_files import Changes
from roquette.broker.operation.clean_up import UpkeepProcessor
from roquette.broker.operation.consume_stats import ConsumeStatsProcessor
from roquette.broker.operation.group_admin import GroupProcessor
from roquette.broker.operation.item_stats import ItemStats
from roquette.broker.operation.offset_admin import OffsetAdminProcessor
from roquette.broker.operation.offset_requests import OffsetProcessor
from roquette.broker.operation.query import QueryProcessor
from roquette.broker.operation.settings import NO_TIMER, AdminProcessor
from roquette.broker.operation.stats import BrokerStats
from roquette.broker.operation.topic_admin import TopicProcessor
from roquette.broker.pop.acknowledge import AckProcessor
from roquette.broker.pop.assignment import AssignmentProcessor
from roquette.broker.pop.checks import PopChecks
from roquette.broker.pop.hand_out import PopProcessor
from roquette.broker.pop.inspect import PopInfoProcessor
from roquette.broker.pop.reading import PopOffsets
from roquette.broker.pop.state import PopState
from roquette.broker.processor_table import Processors
from roquette.broker.pulling.filters import SubscriptionFilters
from roquette.broker.pulling.pull import PullProcessor
from roquette.broker.records.log_sync import LogSync
from roquette.broker.records.stored_times import StoredTimes
from roquette.broker.records.writer import MessageWriter
from roquette.broker.sending.reply import ReplyProcessor
from roquette.broker.sending.send import SendProcessor
from roquette.broker.sending.send_back import SendBackProcessor
from roquette.broker.tables.backward_commits import Regressions
from roquette.broker.tables.consumers import ConsumerTable
from roquette.broker.tables.deletions import Deletions
from roquette.broker.tables.duplicate_clients import MemberWatch
from roquette.broker.tables.groups import GroupTable
from roquette.broker.tables.locks import LockTable
from roquette.broker.tables.offsets import OffsetTable
from roquette.broker.tables.producers import ProducerTable
from roquette.broker.tables.topics import TopicTable
from roquette.broker.timers.recall import RecallProcessor
from roquette.broker.timers.timer_loop import TimerLoop
from roquette.broker.transactions.end_transaction import TransactionProcessor
from roquette.broker.transactions.half_messages import Transactions
from roquette.message.message import MessageQueue
from roquette.message.message_id import UniqueIds
from roquette.remoting.outcomes import Later, Reply
from roquette.store.message_store import MessageStore
from roquette.store.queues.queue_read import QueueRead
from roquette.store.results import Found
from roquette.store.upkeep.disk_guard import Usage
from roquette.wire.bodies import SubscriptionData


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a broker that processors work with. Only `build_processors` reads it."""

    live: LiveConfig
    times: StoredTimes
    store: MessageStore
    writer: MessageWriter
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    consumers: ConsumerTable
    filters: SubscriptionFilters
    members: MemberWatch
    producers: ProducerTable
    locks: LockTable
    stats: BrokerStats
    items: ItemStats
    regressions: Regressions
    deletions: Deletions
    delays: DelayLevels
    timer: TimerLoop | None  # None: timerWheelEnable=false
    transactions: Transactions
    changes: Changes
    auto_creation: AutoCreation
    log_sync: LogSync
    pop: PopState
    cluster_queues: Callable[[str], Awaitable[list[MessageQueue] | None]]
    save_request_modes: Callable[[], Awaitable[None]]  # raises Refused
    entropy: Entropy
    host: str  # the advertised host
    store_host: bytes  # host and port as records carry them
    sync_flush: bool
    read_cold: Callable[[QueueRead], Awaitable[Found]]
    lanes: Callable[[], list[tuple[str, int, int, int]]]
    disk: Callable[[], tuple[Usage, Usage]]  # of the commit log's disk, of the root's
    address: Callable[[], str]  # host:port, as clients know it
    wake: Callable[[str, str], None]  # answers the held pulls of a topic and group
    clean_files: Callable[[bool], Awaitable[None]]  # True: of the log too, at any hour
    health: Callable[[], list[Health]]  # of the supervised tasks
    delivered: Callable[[str, int], None]  # a message was put: its topic and record size


def build_processors(p: Parts) -> Processors:
    """All processors of one broker."""

    def create_topic(
        name: str,
        queues: int,
        perm: int,
        now_ms: int,
        *,
        sys_flag: int = 0,
        subscribed: Iterable[SubscriptionData] = (),
    ) -> None:
        if queues <= 0:
            return
        topics = [p.topics.find(data.topic) for data in subscribed]
        order = any(topic is not None and topic.order for topic in topics)
        if p.topics.find(name) is None:
            p.topics.ensure(
                name, queues=queues, perm=perm, sys_flag=sys_flag, order=order, now_ms=now_ms
            )
        elif order:
            p.topics.set_order(name, now_ms)

    def logged(reply: Reply) -> Reply | Later:
        return Later(p.store.max_physical_offset, reply) if p.sync_flush else reply

    name = p.live.current.broker_name
    pop, ack, pop_info, assignment = _pop(p)
    send = _send(p)
    return Processors(
        send=send,
        reply=ReplyProcessor(
            p.live,
            p.store,
            p.writer,
            p.producers,
            send,
            p.store_host,
            p.delivered,
            p.log_sync.wait if p.sync_flush else None,
        ),
        send_back=SendBackProcessor(
            p.live,
            p.store,
            p.writer,
            p.topics,
            p.groups,
            p.stats,
            p.entropy,
            broker_address=p.host,
            sync_flush=p.sync_flush,
            durable=p.log_sync.wait,
            topics_saved=p.changes.topics_saved,
        ),
        pull=PullProcessor(
            p.live,
            p.store,
            p.topics,
            p.groups,
            p.consumers,
            p.offsets,
            p.filters,
            p.stats,
            broker_address=p.host,
            read_cold=p.read_cold,
        ),
        pop=pop,
        ack=ack,
        pop_info=pop_info,
        assignment=assignment,
        offsets=OffsetProcessor(p.store, p.topics, p.groups, p.offsets),
        heartbeat=HeartbeatProcessor(
            p.consumers,
            p.producers,
            p.groups,
            create_topic,
            settings=lambda: p.live.current,
        ),
        locks=LockProcessor(p.locks),
        transaction=TransactionProcessor(p.live, p.transactions, p.times, logged),
        query=QueryProcessor(p.store, default_max=p.live.store.default_query_max_count),
        topics=TopicProcessor(
            p.topics,
            p.offsets,
            p.consumers,
            p.store,
            p.items,
            p.changes,
            p.deletions,
            p.live,
        ),
        subscriptions=SubscriptionProcessor(p.live, p.filters, p.consumers),
        groups=GroupProcessor(
            p.groups, p.offsets, p.consumers, p.producers, p.deletions, p.changes
        ),
        offset_admin=OffsetAdminProcessor(
            p.live,
            p.store,
            p.topics,
            p.groups,
            p.offsets,
            p.consumers,
            wake=p.wake,
            saved=p.changes.offsets_set,
            delays=p.delays.to_wrapper,
        ),
        client_calls=ClientCallProcessor(p.live, p.store, p.topics, p.groups, p.consumers),
        consume_stats=ConsumeStatsProcessor(
            p.store,
            p.topics,
            p.groups,
            p.offsets,
            p.consumers,
            p.items,
            broker_name=name,
            address=p.address,
        ),
        admin=AdminProcessor(
            p.live,
            p.store,
            p.stats,
            lanes=p.lanes,
            delay_progress=p.delays.progress,
            disk=p.disk,
            more=lambda: _watched(p),
            timer=p.timer.runtime_info if p.timer is not None else lambda _: NO_TIMER,
        ),
        recall=RecallProcessor(
            p.live,
            p.writer,
            p.topics,
            sync_flush=p.sync_flush,
            checkpoint=p.timer.checkpoint_body if p.timer is not None else lambda: None,
            metrics=p.timer.metrics_body if p.timer is not None else lambda: None,
        ),
        upkeep=UpkeepProcessor(p.deletions, p.clean_files, p.changes.queues_dropped),
    )


def _watched(p: Parts) -> dict[str, str]:
    """What only this broker counts, for GET_BROKER_RUNTIME_INFO."""
    return {
        "duplicateClientIds": str(p.members.duplicates),
        "subscriptionConflicts": str(p.members.conflicts),
        "offsetRegressions": str(p.regressions.accepted),
        "offsetRegressionsRefused": str(p.regressions.refused),
        "refusedNames": p.live.bounds.shown(),
        **p.writer.aside.shown(),
        **_tasks(p.health(), p.writer.aside.counts),
    }


def _tasks(all_health: list[Health], aside: dict[str, int]) -> dict[str, str]:
    """One line a task: failures since the start, seconds since it last went well, entries set aside, last error."""
    return {
        f"task_{health.name}": f"failures={health.failures} wellAgo={health.age_s():.1f}s "
        f"setAside={aside.get(health.name, 0)} lastError={health.last_error or 'none'}"
        for health in all_health
    }


def _send(p: Parts) -> SendProcessor:
    ids = UniqueIds(p.store_host[:-4], p.entropy.process_id, p.entropy.below(1 << 32))
    return SendProcessor(
        p.live,
        p.store,
        p.writer,
        p.topics,
        p.groups,
        p.locks,
        p.stats,
        p.transactions,
        ids,
        p.entropy,
        host_hex=p.store_host.hex().upper(),
        broker_address=p.host,
        sync_flush=p.sync_flush,
        created=p.auto_creation.created,
        durable=p.log_sync.wait,
    )


def _pop(p: Parts) -> tuple[PopProcessor, AckProcessor, PopInfoProcessor, AssignmentProcessor]:
    checks = PopChecks(p.live, p.topics, p.groups, p.host)
    places = PopOffsets(p.live, p.store, p.offsets, p.pop.orders)
    return (
        PopProcessor(
            p.live,
            p.store,
            p.topics,
            p.offsets,
            p.stats,
            p.entropy,
            p.pop,
            checks,
            places,
            p.filters,
            read_cold=p.read_cold,
            durable=p.log_sync.wait,
            sync_flush=p.sync_flush,
        ),
        AckProcessor(p.store, p.offsets, p.pop, checks, p.stats, sync_flush=p.sync_flush),
        PopInfoProcessor(
            p.live, p.store, p.topics, p.stats, p.entropy, p.pop, checks, places, p.filters
        ),
        AssignmentProcessor(
            p.live,
            p.topics,
            p.groups,
            p.consumers,
            p.pop,
            queues_of=p.cluster_queues,
            save_modes=p.save_request_modes,
        ),
    )
