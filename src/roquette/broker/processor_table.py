"""What this broker serves: code, processor, header, lane, promise. One table; anything else is not supported."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import msgspec

from roquette.broker.clients.client_calls import ClientCallProcessor
from roquette.broker.clients.heartbeat import HeartbeatProcessor
from roquette.broker.clients.queue_locks import LockProcessor
from roquette.broker.clients.subscriptions import SubscriptionProcessor
from roquette.broker.config import BrokerConfig
from roquette.broker.operation.clean_up import UpkeepProcessor
from roquette.broker.operation.consume_stats import ConsumeStatsProcessor
from roquette.broker.operation.group_admin import GroupProcessor
from roquette.broker.operation.offset_admin import OffsetAdminProcessor
from roquette.broker.operation.offset_requests import OffsetProcessor
from roquette.broker.operation.query import QueryProcessor
from roquette.broker.operation.settings import AdminProcessor
from roquette.broker.operation.topic_admin import TopicProcessor
from roquette.broker.pop.acknowledge import AckProcessor
from roquette.broker.pop.assignment import AssignmentProcessor
from roquette.broker.pop.hand_out import PopProcessor
from roquette.broker.pop.inspect import PopInfoProcessor
from roquette.broker.pulling.pull import PullProcessor
from roquette.broker.sending.reply import ReplyProcessor
from roquette.broker.sending.send import SendProcessor
from roquette.broker.sending.send_back import SendBackProcessor
from roquette.broker.timers.recall import RecallProcessor
from roquette.broker.transactions.end_transaction import TransactionProcessor
from roquette.remoting.dispatcher import Row
from roquette.remoting.lanes import LaneLimits
from roquette.remoting.promises import Promise as P
from roquette.wire import headers as h
from roquette.wire.codes import RequestCode as R


class Lane(IntEnum):
    """Classes of work, each with a bounded queue of its own (Apache: one thread pool each)."""

    SEND = 0
    PULL = 1
    LITE_PULL = 2
    CONSUMER_MANAGER = 3
    HEARTBEAT = 4
    CLIENT_MANAGER = 5
    QUERY = 6
    ADMIN = 7
    ACK = 8
    END_TRANSACTION = 9
    REPLY = 10
    LOAD_BALANCE = 11


NOT_ON_FAST_PORT = frozenset((Lane.PULL, Lane.LITE_PULL))


def lane_limits(c: BrokerConfig) -> list[LaneLimits]:
    """Capacity and longest wait per lane, in the order of `Lane`; 0 where Apache cleans no queue."""
    rows = [
        ("send", c.send_thread_pool_queue_capacity, c.wait_time_mills_in_send_queue),
        ("pull", c.pull_thread_pool_queue_capacity, c.wait_time_mills_in_pull_queue),
        ("litePull", c.lite_pull_thread_pool_queue_capacity, c.wait_time_mills_in_lite_pull_queue),
        ("consumerManager", c.consumer_manager_thread_pool_queue_capacity, 0),
        ("heartbeat", c.heartbeat_thread_pool_queue_capacity, c.wait_time_mills_in_heartbeat_queue),
        ("clientManager", c.client_manager_thread_pool_queue_capacity, 0),
        ("query", c.query_thread_pool_queue_capacity, 0),
        (
            "adminBroker",
            c.admin_broker_thread_pool_queue_capacity,
            c.wait_time_mills_in_admin_broker_queue,
        ),
        ("ack", c.ack_thread_pool_queue_capacity, c.wait_time_mills_in_ack_queue),
        (
            "EndTransaction",
            c.end_transaction_pool_queue_capacity,
            c.wait_time_mills_in_transaction_queue,
        ),
        ("reply", c.reply_thread_pool_queue_capacity, 0),
        ("loadBalance", c.load_balance_thread_pool_queue_capacity, 0),
    ]
    fast = c.broker_fast_failure_enable
    return [LaneLimits(name, capacity, wait if fast else 0) for name, capacity, wait in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Processors:
    """Every processor of a broker."""

    send: SendProcessor
    send_back: SendBackProcessor
    reply: ReplyProcessor
    pull: PullProcessor
    pop: PopProcessor
    ack: AckProcessor
    pop_info: PopInfoProcessor
    assignment: AssignmentProcessor
    offsets: OffsetProcessor
    heartbeat: HeartbeatProcessor
    locks: LockProcessor
    transaction: TransactionProcessor
    query: QueryProcessor
    topics: TopicProcessor
    groups: GroupProcessor
    subscriptions: SubscriptionProcessor
    offset_admin: OffsetAdminProcessor
    client_calls: ClientCallProcessor
    consume_stats: ConsumeStatsProcessor
    upkeep: UpkeepProcessor
    admin: AdminProcessor
    recall: RecallProcessor


def _row(code: R, process: Any, header: type[msgspec.Struct] | None, lane: Lane, promise: P) -> Row:
    return Row(code, process, header, lane, promise)


def processor_table(p: Processors) -> list[Row]:
    """The rows of the main port."""
    return [
        _row(R.SEND_MESSAGE, p.send.send_message, h.SendMessageRequestHeader, Lane.SEND, P.LOG),
        _row(
            R.SEND_MESSAGE_V2, p.send.send_message, h.SendMessageRequestHeaderV2, Lane.SEND, P.LOG
        ),
        _row(
            R.SEND_BATCH_MESSAGE, p.send.send_batch, h.SendMessageRequestHeaderV2, Lane.SEND, P.LOG
        ),
        _row(
            R.CONSUMER_SEND_MSG_BACK,
            p.send_back.send_back,
            h.ConsumerSendMsgBackRequestHeader,
            Lane.SEND,
            P.LOG,
        ),
        _row(
            R.SEND_REPLY_MESSAGE, p.reply.send_reply, h.SendMessageRequestHeader, Lane.REPLY, P.LOG
        ),
        _row(
            R.SEND_REPLY_MESSAGE_V2,
            p.reply.send_reply,
            h.SendMessageRequestHeaderV2,
            Lane.REPLY,
            P.LOG,
        ),
        _row(R.PULL_MESSAGE, p.pull.pull_message, h.PullMessageRequestHeader, Lane.PULL, P.PROCESS),
        _row(
            R.LITE_PULL_MESSAGE,
            p.pull.pull_message,
            h.PullMessageRequestHeader,
            Lane.LITE_PULL,
            P.PROCESS,
        ),
        *_transaction_rows(p.transaction),
        *_pop_rows(p.pop, p.ack, p.pop_info, p.assignment),
        *_offset_rows(p.offsets),
        *_client_rows(p.heartbeat, p.locks),
        *_query_rows(p.query),
        *_topic_rows(p.topics),
        *_group_rows(p.groups),
        *_subscription_rows(p.subscriptions),
        *_offset_admin_rows(p.offset_admin),
        *_client_call_rows(p.client_calls),
        *_consume_stats_rows(p.consume_stats),
        _row(R.CLEAN_EXPIRED_CONSUMEQUEUE, p.upkeep.clean_queues, None, Lane.ADMIN, P.PROCESS),
        _row(R.CLEAN_UNUSED_TOPIC, p.upkeep.clean_topics, None, Lane.ADMIN, P.FILE),
        _row(R.DELETE_EXPIRED_COMMITLOG, p.upkeep.clean_log, None, Lane.ADMIN, P.PROCESS),
        _row(R.UPDATE_BROKER_CONFIG, p.admin.update_config, None, Lane.ADMIN, P.MEMORY),
        _row(R.GET_BROKER_CONFIG, p.admin.get_config, None, Lane.ADMIN, P.NOTHING),
        _row(R.GET_BROKER_RUNTIME_INFO, p.admin.runtime_info, None, Lane.ADMIN, P.NOTHING),
        _row(R.RECALL_MESSAGE, p.recall.recall, h.RecallMessageRequestHeader, Lane.SEND, P.LOG),
        _row(R.GET_TIMER_CHECK_POINT, p.recall.timer_checkpoint, None, Lane.ADMIN, P.NOTHING),
        _row(R.GET_TIMER_METRICS, p.recall.timer_metrics, None, Lane.ADMIN, P.NOTHING),
    ]


def fast_table(rows: list[Row]) -> list[Row]:
    """The rows of the port listenPort-2: everything but pulls."""
    return [row for row in rows if row.lane not in NOT_ON_FAST_PORT]


def _transaction_rows(p: TransactionProcessor) -> list[Row]:
    return [
        _row(
            R.END_TRANSACTION,
            p.end_transaction,
            h.EndTransactionRequestHeader,
            Lane.END_TRANSACTION,
            P.LOG,
        ),
        _row(
            R.RESUME_CHECK_HALF_MESSAGE,
            p.resume_check,
            h.ResumeCheckHalfMessageRequestHeader,
            Lane.ADMIN,
            P.LOG,
        ),
    ]


def _pop_rows(
    pop: PopProcessor, ack: AckProcessor, info: PopInfoProcessor, assignment: AssignmentProcessor
) -> list[Row]:
    lane = Lane.PULL
    return [
        _row(R.POP_MESSAGE, pop.pop_message, h.PopMessageRequestHeader, lane, P.LOG),
        _row(R.PEEK_MESSAGE, info.peek_message, h.PeekMessageRequestHeader, lane, P.NOTHING),
        _row(R.NOTIFICATION, info.notification, h.NotificationRequestHeader, lane, P.NOTHING),
        _row(R.POLLING_INFO, info.polling_info, h.PollingInfoRequestHeader, lane, P.NOTHING),
        _row(R.ACK_MESSAGE, ack.ack_message, h.AckMessageRequestHeader, Lane.ACK, P.LOG),
        _row(R.BATCH_ACK_MESSAGE, ack.batch_ack, None, Lane.ACK, P.LOG),
        _row(
            R.CHANGE_MESSAGE_INVISIBLETIME,
            ack.change_invisible_time,
            h.ChangeInvisibleTimeRequestHeader,
            Lane.ACK,
            P.LOG,
        ),
        _row(R.QUERY_ASSIGNMENT, assignment.query_assignment, None, Lane.LOAD_BALANCE, P.NOTHING),
        _row(
            R.SET_MESSAGE_REQUEST_MODE, assignment.set_request_mode, None, Lane.LOAD_BALANCE, P.FILE
        ),
        _row(
            R.GET_ALL_MESSAGE_REQUEST_MODE,
            assignment.all_request_modes,
            None,
            Lane.ADMIN,
            P.NOTHING,
        ),
    ]


def _offset_rows(p: OffsetProcessor) -> list[Row]:
    lane = Lane.CONSUMER_MANAGER
    return [
        _row(
            R.QUERY_CONSUMER_OFFSET,
            p.query_consumer_offset,
            h.QueryConsumerOffsetRequestHeader,
            lane,
            P.NOTHING,
        ),
        _row(
            R.UPDATE_CONSUMER_OFFSET,
            p.update_consumer_offset,
            h.UpdateConsumerOffsetRequestHeader,
            lane,
            P.PROCESS,
        ),
        _row(
            R.SEARCH_OFFSET_BY_TIMESTAMP,
            p.search_offset,
            h.SearchOffsetRequestHeader,
            Lane.ADMIN,
            P.NOTHING,
        ),
        _row(R.GET_MAX_OFFSET, p.max_offset, h.GetMaxOffsetRequestHeader, Lane.ADMIN, P.NOTHING),
        _row(R.GET_MIN_OFFSET, p.min_offset, h.GetMinOffsetRequestHeader, Lane.ADMIN, P.NOTHING),
        _row(
            R.GET_EARLIEST_MSG_STORETIME,
            p.earliest_store_time,
            h.GetEarliestMsgStoretimeRequestHeader,
            Lane.ADMIN,
            P.NOTHING,
        ),
    ]


def _client_rows(p: HeartbeatProcessor, locks: LockProcessor) -> list[Row]:
    return [
        _row(R.HEART_BEAT, p.heart_beat, None, Lane.HEARTBEAT, P.MEMORY),
        _row(
            R.UNREGISTER_CLIENT,
            p.unregister_client,
            h.UnregisterClientRequestHeader,
            Lane.CLIENT_MANAGER,
            P.MEMORY,
        ),
        _row(
            R.GET_CONSUMER_LIST_BY_GROUP,
            p.consumer_list,
            h.GetConsumerListByGroupRequestHeader,
            Lane.CONSUMER_MANAGER,
            P.NOTHING,
        ),
        _row(R.LOCK_BATCH_MQ, locks.lock_batch, None, Lane.CLIENT_MANAGER, P.MEMORY),
        _row(R.UNLOCK_BATCH_MQ, locks.unlock_batch, None, Lane.CLIENT_MANAGER, P.MEMORY),
    ]


def _subscription_rows(p: SubscriptionProcessor) -> list[Row]:
    return [
        _row(R.CHECK_CLIENT_CONFIG, p.check_client_config, None, Lane.CLIENT_MANAGER, P.NOTHING),
        _row(
            R.QUERY_SUBSCRIPTION_BY_CONSUMER,
            p.query_subscription,
            h.QuerySubscriptionByConsumerRequestHeader,
            Lane.ADMIN,
            P.NOTHING,
        ),
    ]


def _query_rows(p: QueryProcessor) -> list[Row]:
    return [
        _row(R.QUERY_MESSAGE, p.query_message, h.QueryMessageRequestHeader, Lane.QUERY, P.NOTHING),
        _row(
            R.VIEW_MESSAGE_BY_ID, p.view_message, h.ViewMessageRequestHeader, Lane.QUERY, P.NOTHING
        ),
    ]


def _topic_rows(p: TopicProcessor) -> list[Row]:
    return [
        _row(
            R.UPDATE_AND_CREATE_TOPIC,
            p.create_topic,
            h.CreateTopicRequestHeader,
            Lane.ADMIN,
            P.FILE,
        ),
        _row(R.UPDATE_AND_CREATE_TOPIC_LIST, p.create_topics, None, Lane.ADMIN, P.FILE),
        _row(R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, p.system_list, None, Lane.ADMIN, P.NOTHING),
        _row(R.GET_ALL_TOPIC_CONFIG, p.all_topics, None, Lane.ADMIN, P.NOTHING),
        _row(R.GET_TOPIC_CONFIG, p.one_topic, h.GetTopicConfigRequestHeader, Lane.ADMIN, P.NOTHING),
        _row(
            R.GET_TOPIC_STATS_INFO, p.stats, h.GetTopicStatsInfoRequestHeader, Lane.ADMIN, P.NOTHING
        ),
        _row(
            R.DELETE_TOPIC_IN_BROKER, p.delete_topic, h.DeleteTopicRequestHeader, Lane.ADMIN, P.FILE
        ),
        _row(
            R.QUERY_TOPIC_CONSUME_BY_WHO,
            p.consumed_by,
            h.QueryTopicConsumeByWhoRequestHeader,
            Lane.ADMIN,
            P.NOTHING,
        ),
    ]


def _group_rows(p: GroupProcessor) -> list[Row]:
    lane = Lane.ADMIN
    return [
        _row(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, p.create_group, None, lane, P.FILE),
        _row(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, p.create_groups, None, lane, P.FILE),
        _row(R.GET_ALL_PRODUCER_INFO, p.all_producers, None, lane, P.NOTHING),
        _row(
            R.UPDATE_AND_GET_GROUP_FORBIDDEN,
            p.forbidden,
            h.UpdateGroupForbiddenRequestHeader,
            lane,
            P.FILE,
        ),
        _row(R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, p.all_groups, None, lane, P.NOTHING),
        _row(
            R.GET_SUBSCRIPTIONGROUP_CONFIG,
            p.one_group,
            h.GetSubscriptionGroupConfigRequestHeader,
            lane,
            P.NOTHING,
        ),
        _row(
            R.DELETE_SUBSCRIPTIONGROUP,
            p.delete_group,
            h.DeleteSubscriptionGroupRequestHeader,
            lane,
            P.FILE,
        ),
        _row(
            R.GET_CONSUMER_CONNECTION_LIST,
            p.consumer_connections,
            h.GetConsumerConnectionListRequestHeader,
            lane,
            P.NOTHING,
        ),
        _row(
            R.GET_PRODUCER_CONNECTION_LIST,
            p.producer_connections,
            h.GetProducerConnectionListRequestHeader,
            lane,
            P.NOTHING,
        ),
        _row(
            R.QUERY_TOPICS_BY_CONSUMER,
            p.topics_of_consumer,
            h.QueryTopicsByConsumerRequestHeader,
            lane,
            P.NOTHING,
        ),
    ]


def _offset_admin_rows(p: OffsetAdminProcessor) -> list[Row]:
    lane = Lane.ADMIN
    return [
        _row(
            R.INVOKE_BROKER_TO_RESET_OFFSET,
            p.reset_offset,
            h.ResetOffsetRequestHeader,
            lane,
            P.FILE,
        ),
        _row(R.CLONE_GROUP_OFFSET, p.clone_offset, h.CloneGroupOffsetRequestHeader, lane, P.FILE),
        _row(
            R.QUERY_CORRECTION_OFFSET,
            p.correction_offset,
            h.QueryCorrectionOffsetHeader,
            lane,
            P.NOTHING,
        ),
        _row(R.GET_ALL_CONSUMER_OFFSET, p.all_offsets, None, lane, P.NOTHING),
        _row(R.GET_ALL_DELAY_OFFSET, p.all_delay_offsets, None, lane, P.NOTHING),
    ]


def _client_call_rows(p: ClientCallProcessor) -> list[Row]:
    lane = Lane.ADMIN
    return [
        _row(
            R.GET_CONSUMER_RUNNING_INFO,
            p.running_info,
            h.GetConsumerRunningInfoRequestHeader,
            lane,
            P.NOTHING,
        ),
        _row(
            R.CONSUME_MESSAGE_DIRECTLY,
            p.consume_directly,
            h.ConsumeMessageDirectlyResultRequestHeader,
            lane,
            P.NOTHING,
        ),
        _row(
            R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            p.consumer_status,
            h.GetConsumerStatusRequestHeader,
            lane,
            P.NOTHING,
        ),
    ]


def _consume_stats_rows(p: ConsumeStatsProcessor) -> list[Row]:
    lane = Lane.ADMIN
    return [
        _row(R.GET_CONSUME_STATS, p.consume_stats, h.GetConsumeStatsRequestHeader, lane, P.NOTHING),
        _row(
            R.GET_BROKER_CONSUME_STATS,
            p.all_consume_stats,
            h.GetConsumeStatsInBrokerHeader,
            lane,
            P.NOTHING,
        ),
        _row(
            R.QUERY_CONSUME_TIME_SPAN,
            p.time_span,
            h.QueryConsumeTimeSpanRequestHeader,
            lane,
            P.NOTHING,
        ),
        _row(
            R.QUERY_CONSUME_QUEUE,
            p.consume_queue,
            h.QueryConsumeQueueRequestHeader,
            lane,
            P.NOTHING,
        ),
        _row(
            R.VIEW_BROKER_STATS_DATA,
            p.stats_data,
            h.ViewBrokerStatsDataRequestHeader,
            lane,
            P.NOTHING,
        ),
    ]
