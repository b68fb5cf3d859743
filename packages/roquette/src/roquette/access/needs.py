"""THE table: which right a request needs, for every request code of every server of ours.

`NEEDS` is complete by `tests/access/test_needs.py`: a row of a server without an entry fails, and `Guard` refuses a code
without one. docs/reference/access-table.md is made of it (tools/access_page.py). The rights are Apache's 5.5.0
(DefaultAuthorizationContextBuilder, and the @RocketMQAction of each header); `note` says where they are not, mostly since
Apache asks for nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from roquette.access.model import (
    Action,
    Actions,
    Needed,
    Resource,
    ResourceType,
    group_resource,
    topic_resource,
)
from roquette.errors import RemoteProtocolError
from roquette.message.names import RETRY_PREFIX
from roquette.wire.bodies.clients import (
    BatchAckMessageRequestBody,
    CheckClientRequestBody,
    HeartbeatData,
    LockBatchRequestBody,
    QueryAssignmentRequestBody,
    SetMessageRequestModeRequestBody,
)
from roquette.wire.bodies.route import TopicList
from roquette.wire.bodies.tables import (
    CreateTopicListRequestBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
)
from roquette.wire.codes import RequestCode as R
from roquette.wire.json_body import decode_request_body

MAX_NEEDED: Final = 10_000  # resources of one request
PUB: Final = (Action.PUB,)
SUB: Final = (Action.SUB,)
GET: Final = (Action.GET,)
CREATE: Final = (Action.CREATE,)
UPDATE: Final = (Action.UPDATE,)
DELETE: Final = (Action.DELETE,)
READ: Final = (Action.SUB, Action.GET)
LISTED: Final = (Action.GET, Action.LIST)
ROUTE: Final = (Action.PUB, Action.SUB, Action.GET)
OFFSET: Final = (Action.SUB, Action.UPDATE)
_CHANGING: Final = frozenset((Action.CREATE, Action.UPDATE, Action.DELETE))


@dataclass(frozen=True, slots=True)
class Right:
    """One thing a request needs.

    Attributes:
        kind: of the resource. actions: one of them must be allowed.
        field: the header's attribute that names the resource; "" is the server's own cluster.
        split: what separates several names in it.
        popped_by: the attribute of the group that pops: it may be given its POP retry topic `%RETRY%g_t` for `t`.
    """

    kind: ResourceType
    actions: Actions
    field: str = ""
    split: str = ""
    popped_by: str = ""

    def needed(self, header: Any, own: Resource) -> Iterator[Needed]:
        """The resources a header names; none where it names none."""
        if not self.field:
            yield own, self.actions
            return
        value: str | None = getattr(header, self.field)
        if self.kind is ResourceType.CLUSTER:
            yield Resource(ResourceType.CLUSTER, value) if value else own, self.actions
            return
        if self.popped_by and value and value.startswith(RETRY_PREFIX):
            value = value.removeprefix(f"{RETRY_PREFIX}{getattr(header, self.popped_by)}_")
        resource = topic_resource if self.kind is ResourceType.TOPIC else group_resource
        for name in (value or "").split(self.split) if self.split else (value,):
            if name:
                yield resource(name), self.actions

    def __str__(self) -> str:
        if not self.field:
            return f"Cluster: {_words(self.actions)}"
        return f"{self.kind.value} `{self.field}`: {_words(self.actions)}"


def _words(actions: Actions) -> str:
    return " or ".join(action.value for action in actions)


class Need:
    """Reader of the permissions that a request needs.

    Attributes:
        rights: by its header. body: by its body, whose meaning is `asks`.
        otherwise: a right on the cluster where header and body name nothing; () lets any account through then.
        touches: on the topic of the message that it names by its place in the log (`RequestContext.may_touch`).
        changes: whether it is an operator's act, which the audit shows.
        cache_key: takes all that the answer depends on out of a header; None: more than the header counts.
        note: where we differ from Apache.
    """

    __slots__ = (
        "asks", "body", "cache_key", "changes", "note", "of", "otherwise", "rights", "touches",
    )  # fmt: skip

    def __init__(
        self,
        *rights: Right,
        body: "Callable[[bytes], Iterable[Needed]] | None" = None,
        asks: str = "",
        otherwise: Actions = UPDATE,
        touches: Actions = (),
        note: str = "",
    ) -> None:
        self.rights: Final = rights
        self.body: Final = body
        self.asks: Final = asks
        self.otherwise: Final = otherwise
        self.touches: Final = touches
        self.note: Final = note
        everything = [right.actions for right in rights] + ([BODIES[body]] if body else [])
        self.changes: Final = any(_CHANGING.issuperset(actions) for actions in everything)
        fields = [name for right in rights for name in (right.field, right.popped_by) if name]
        whole = bool(fields) and body is None and not touches
        self.cache_key: Final[Callable[[Any], Any] | None] = attrgetter(*fields) if whole else None
        only = rights[0] if len(rights) == 1 and body is None else None
        self.of: Callable[[Any, bytes, Resource], list[Needed]] = self._of
        if only is not None and only.kind is ResourceType.TOPIC and not only.split:
            self.of = self._of_topic

    def _of_topic(self, header: Any, body: bytes, own: Resource) -> list[Needed]:
        """The same for one topic, which most requests name: sends are judged here."""
        right = self.rights[0]
        name = getattr(header, right.field)
        if not name:
            return self._nothing(own)
        return [(topic_resource(name), right.actions)]

    def _of(self, header: Any, body: bytes, own: Resource) -> list[Needed]:
        """All that a request needs, each once.

        Raises:
            RemoteProtocolError: its body cannot be read, or names more than `MAX_NEEDED` resources.
        """
        found: dict[Needed, None] = {}
        for right in self.rights:
            found.update(dict.fromkeys(right.needed(header, own)))
        if self.body is not None:
            for needed in self.body(body):
                found[needed] = None
                if len(found) > MAX_NEEDED:
                    raise RemoteProtocolError(f"more than {MAX_NEEDED} topics and groups")
        return list(found) or self._nothing(own)

    def _nothing(self, own: Resource) -> list[Needed]:
        return [(own, self.otherwise)] if self.otherwise else []

    def __str__(self) -> str:
        """For docs: what is needed."""
        parts = [str(right) for right in self.rights] + ([self.asks] if self.asks else [])
        if self.touches:
            parts.append(f"Topic of the message: {_words(self.touches)}")
        return "; ".join(parts) or "an account"


def _heartbeat(body: bytes) -> Iterator[Needed]:
    for consumer in decode_request_body(HeartbeatData, body).consumer_data_set:
        yield group_resource(consumer.group_name), SUB
        for subscription in consumer.subscription_data_set:
            yield topic_resource(subscription.topic), SUB


def _locks(body: bytes) -> Iterator[Needed]:
    request = decode_request_body(LockBatchRequestBody, body)
    yield group_resource(request.consumer_group), SUB
    for queue in request.mq_set:
        yield topic_resource(queue.topic), SUB


def _acks(body: bytes) -> Iterator[Needed]:
    for ack in decode_request_body(BatchAckMessageRequestBody, body).acks:
        yield group_resource(ack.consumer_group), SUB
        yield topic_resource(ack.topic), SUB


def _assignment(body: bytes) -> Iterator[Needed]:
    request = decode_request_body(QueryAssignmentRequestBody, body)
    yield group_resource(request.consumer_group), SUB
    yield topic_resource(request.topic), SUB


def _client_check(body: bytes) -> Iterator[Needed]:
    if not body:
        return
    request = decode_request_body(CheckClientRequestBody, body)
    if request.group:
        yield group_resource(request.group), SUB
    if request.subscription_data is not None:
        yield topic_resource(request.subscription_data.topic), SUB


def _mode(body: bytes) -> Iterator[Needed]:
    request = decode_request_body(SetMessageRequestModeRequestBody, body)
    yield group_resource(request.consumer_group), UPDATE
    yield topic_resource(request.topic), UPDATE


def _new_topics(body: bytes) -> Iterator[Needed]:
    for topic in decode_request_body(CreateTopicListRequestBody, body).topic_config_list:
        yield topic_resource(topic.topic_name), CREATE


def _new_group(body: bytes) -> Iterator[Needed]:
    yield group_resource(decode_request_body(SubscriptionGroupConfig, body).group_name), CREATE


def _new_groups(body: bytes) -> Iterator[Needed]:
    for group in decode_request_body(SubscriptionGroupList, body).group_config_list:
        yield group_resource(group.group_name), CREATE


def _watched(body: bytes) -> Iterator[Needed]:
    for topic in decode_request_body(TopicList, body).topic_list:
        yield topic_resource(topic), ROUTE


BODIES: Final[dict[Callable[[bytes], Iterable[Needed]], Actions]] = {
    _heartbeat: SUB, _locks: SUB, _acks: SUB, _assignment: SUB, _client_check: SUB, _mode: UPDATE,
    _new_topics: CREATE, _new_group: CREATE, _new_groups: CREATE, _watched: ROUTE,
}  # fmt: skip
"""What each reader of a body asks for."""

UNCHECKED: Final = "Apache asks for nothing"


def _topic(actions: Actions, field: str = "topic") -> Right:
    return Right(ResourceType.TOPIC, actions, field)


def _popped() -> Right:
    return Right(ResourceType.TOPIC, SUB, "topic", popped_by="consumer_group")


def _group(actions: Actions, field: str = "consumer_group") -> Right:
    return Right(ResourceType.GROUP, actions, field)


def _cluster(actions: Actions, field: str = "", note: str = "") -> Need:
    return Need(Right(ResourceType.CLUSTER, actions, field), otherwise=actions, note=note)


_SEND = "a retry topic is its own group's; Apache asks for the group the sender names"
_PULL = "a retry topic is its group's; Apache asks for the consumer's group alone"
_READ = "Sub is enough: who may read the topic may know where it ends"
_TOUCH = "Apache believes the topic that the request names, and hands out any message"
_POPPED = "Apache takes POP's retry topic `%RETRY%g_t` for that of a group `g_t`"

NEEDS: Final[dict[int, Need]] = {
    # messages
    R.SEND_MESSAGE: Need(_topic(PUB), note=_SEND),
    R.SEND_MESSAGE_V2: Need(_topic(PUB), note=_SEND),
    R.SEND_BATCH_MESSAGE: Need(_topic(PUB), note=_SEND),
    R.SEND_REPLY_MESSAGE: Need(_topic(PUB), note=UNCHECKED),
    R.SEND_REPLY_MESSAGE_V2: Need(_topic(PUB), note=UNCHECKED),
    R.RECALL_MESSAGE: Need(_topic(PUB)),
    R.END_TRANSACTION: Need(_topic(PUB), otherwise=(), touches=PUB, note=_TOUCH),
    R.CONSUMER_SEND_MSG_BACK: Need(_group(SUB, "group"), touches=SUB, note=_TOUCH),
    R.PULL_MESSAGE: Need(_topic(SUB), _group(SUB), note=_PULL),
    R.LITE_PULL_MESSAGE: Need(_topic(SUB), _group(SUB), note=UNCHECKED),
    R.POP_MESSAGE: Need(_topic(SUB), _group(SUB)),
    R.PEEK_MESSAGE: Need(_topic(SUB), _group(SUB)),
    R.ACK_MESSAGE: Need(_popped(), _group(SUB), note=_POPPED),
    R.BATCH_ACK_MESSAGE: Need(body=_acks, asks="each Topic and each Group: Sub", note=UNCHECKED),
    R.CHANGE_MESSAGE_INVISIBLETIME: Need(_popped(), _group(SUB), note=_POPPED),
    R.NOTIFICATION: Need(_topic(SUB), _group(SUB)),
    R.POLLING_INFO: Need(_topic(GET), _group(GET)),
    R.QUERY_MESSAGE: Need(_topic(READ)),
    R.VIEW_MESSAGE_BY_ID: Need(_topic(GET), otherwise=(), touches=READ, note=_TOUCH),
    R.RESUME_CHECK_HALF_MESSAGE: Need(_topic(UPDATE), otherwise=(), touches=UPDATE, note=_TOUCH),
    # clients
    R.HEART_BEAT: Need(body=_heartbeat, asks="each Group and each Topic subscribed to: Sub", otherwise=()),
    R.UNREGISTER_CLIENT: Need(_group(SUB), otherwise=()),
    R.CHECK_CLIENT_CONFIG: Need(body=_client_check, asks="Group and Topic: Sub", otherwise=(), note=UNCHECKED),
    R.GET_CONSUMER_LIST_BY_GROUP: Need(_group(READ)),
    R.QUERY_CONSUMER_OFFSET: Need(_topic(READ), _group(READ)),
    R.UPDATE_CONSUMER_OFFSET: Need(_topic(OFFSET), _group(OFFSET)),
    R.LOCK_BATCH_MQ: Need(body=_locks, asks="Group and each Topic: Sub"),
    R.UNLOCK_BATCH_MQ: Need(body=_locks, asks="Group and each Topic: Sub"),
    R.QUERY_ASSIGNMENT: Need(body=_assignment, asks="Group and Topic: Sub", note=UNCHECKED),
    R.SEARCH_OFFSET_BY_TIMESTAMP: Need(_topic(READ), note=_READ),
    R.GET_MAX_OFFSET: Need(_topic(READ), note=_READ),
    R.GET_MIN_OFFSET: Need(_topic(READ), note=_READ),
    R.GET_EARLIEST_MSG_STORETIME: Need(_topic(READ), note=_READ),
    R.GET_ROUTEINFO_BY_TOPIC: Need(_topic(ROUTE)),
    R.WATCH_ROUTES: Need(body=_watched, asks="each Topic: Pub or Sub or Get", otherwise=(), note="ours"),
    # operators: topics and groups
    R.UPDATE_AND_CREATE_TOPIC: Need(_topic(CREATE)),
    R.UPDATE_AND_CREATE_TOPIC_LIST: Need(body=_new_topics, asks="each Topic: Create", otherwise=CREATE, note=UNCHECKED),
    R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Need(body=_new_group, asks="Group: Create", note=UNCHECKED),
    R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Need(body=_new_groups, asks="each Group: Create", otherwise=CREATE, note=UNCHECKED),
    R.DELETE_TOPIC_IN_BROKER: Need(_topic(DELETE)),
    R.DELETE_SUBSCRIPTIONGROUP: Need(_group(DELETE, "group_name")),
    R.GET_TOPIC_CONFIG: Need(_topic(GET)),
    R.GET_TOPIC_STATS_INFO: Need(_topic(GET)),
    R.GET_SUBSCRIPTIONGROUP_CONFIG: Need(_group(GET, "group")),
    R.UPDATE_AND_GET_GROUP_FORBIDDEN: Need(_topic(UPDATE), _group(UPDATE, "group")),
    R.QUERY_TOPIC_CONSUME_BY_WHO: Need(_topic(GET)),
    R.QUERY_TOPICS_BY_CONSUMER: Need(_group(GET, "group")),
    R.QUERY_SUBSCRIPTION_BY_CONSUMER: Need(_topic(GET), _group(GET, "group")),
    R.QUERY_CONSUME_TIME_SPAN: Need(_topic(GET), _group(GET, "group")),
    R.QUERY_CONSUME_QUEUE: Need(_topic(GET), _group(GET)),
    R.QUERY_CORRECTION_OFFSET: Need(_topic(GET), _group(GET, "compare_group"), Right(ResourceType.GROUP, GET, "filter_groups", ",")),
    R.GET_CONSUME_STATS: Need(_group(GET), _topic(GET), Right(ResourceType.TOPIC, GET, "topic_list", ";")),
    R.GET_CONSUMER_CONNECTION_LIST: Need(_group(GET)),
    R.GET_CONSUMER_RUNNING_INFO: Need(_group(GET)),
    R.CONSUME_MESSAGE_DIRECTLY: Need(_group(SUB), _topic(SUB), touches=SUB, note=_TOUCH),
    R.INVOKE_BROKER_TO_RESET_OFFSET: Need(_topic(UPDATE), _group(UPDATE, "group")),
    R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Need(_topic(GET), _group(GET, "group")),
    R.CLONE_GROUP_OFFSET: Need(_group(UPDATE, "dest_group"), _group(READ, "src_group"), _topic(UPDATE), note="Apache does not ask for the source"),
    R.SET_MESSAGE_REQUEST_MODE: Need(body=_mode, asks="Group and Topic: Update", note=UNCHECKED),
    # operators: the cluster
    R.GET_ALL_TOPIC_CONFIG: _cluster(GET, note=UNCHECKED),
    R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _cluster(GET, note=UNCHECKED),
    R.GET_ALL_CONSUMER_OFFSET: _cluster(GET, note=UNCHECKED),
    R.GET_ALL_DELAY_OFFSET: _cluster(GET, note=UNCHECKED),
    R.GET_ALL_MESSAGE_REQUEST_MODE: _cluster(GET, note=UNCHECKED),
    R.GET_TIMER_CHECK_POINT: _cluster(GET, note=UNCHECKED),
    R.GET_TIMER_METRICS: _cluster(GET, note=UNCHECKED),
    R.UPDATE_BROKER_CONFIG: _cluster(UPDATE, note=UNCHECKED),
    R.GET_BROKER_CONFIG: _cluster(GET, note=UNCHECKED),
    R.GET_BROKER_RUNTIME_INFO: _cluster(GET, note=UNCHECKED),
    R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _cluster(LISTED, note=UNCHECKED),
    R.CLEAN_EXPIRED_CONSUMEQUEUE: _cluster(UPDATE, note=UNCHECKED),
    R.CLEAN_UNUSED_TOPIC: _cluster(UPDATE, note=UNCHECKED),
    R.DELETE_EXPIRED_COMMITLOG: _cluster(UPDATE, note=UNCHECKED),
    R.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: _cluster(UPDATE, note=UNCHECKED),
    R.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: _cluster(UPDATE, note=UNCHECKED),
    R.GET_COLD_DATA_FLOW_CTR_INFO: _cluster(GET, note=UNCHECKED),
    R.RESET_MASTER_FLUSH_OFFSET: _cluster(UPDATE),
    R.POP_ROLLBACK: _cluster(UPDATE, note=UNCHECKED),
    R.SET_COMMITLOG_READ_MODE: _cluster(UPDATE, note=UNCHECKED),
    R.GET_PRODUCER_CONNECTION_LIST: _cluster(GET),
    R.GET_ALL_PRODUCER_INFO: _cluster(GET),
    R.VIEW_BROKER_STATS_DATA: _cluster(GET),
    R.GET_BROKER_CONSUME_STATS: _cluster(GET),
    R.GET_BROKER_HA_STATUS: _cluster(GET, note=UNCHECKED),
    R.GET_BROKER_EPOCH_CACHE: _cluster(GET, note=UNCHECKED),
    # who acts as a broker, and who sees all of the name server
    R.REGISTER_BROKER: _cluster(UPDATE, "cluster_name"),
    R.UNREGISTER_BROKER: _cluster(UPDATE, "cluster_name"),
    R.BROKER_HEARTBEAT: _cluster(UPDATE, "cluster_name"),
    R.QUERY_DATA_VERSION: _cluster(UPDATE, "cluster_name", note="Apache: Get; but who asks so lives"),
    R.GET_BROKER_MEMBER_GROUP: _cluster(GET, "cluster_name"),
    R.NOTIFY_MIN_BROKER_ID_CHANGE: _cluster(UPDATE),
    R.FOLLOW_TABLES: _cluster(UPDATE, note="ours"),
    R.GET_HA_TICKET: _cluster(UPDATE, note="ours: a replica's ticket for its HA connection; a super user's alone"),
    R.PUT_KV_CONFIG: _cluster(UPDATE),
    R.GET_KV_CONFIG: _cluster(GET),
    R.DELETE_KV_CONFIG: _cluster(UPDATE),
    R.GET_KVLIST_BY_NAMESPACE: _cluster(GET),
    R.GET_BROKER_CLUSTER_INFO: _cluster(GET, note=UNCHECKED),
    R.WIPE_WRITE_PERM_OF_BROKER: _cluster(UPDATE),
    R.ADD_WRITE_PERM_OF_BROKER: _cluster(UPDATE),
    R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _cluster(LISTED, note=UNCHECKED),
    R.GET_TOPICS_BY_CLUSTER: _cluster(LISTED, note=UNCHECKED),
    R.GET_SYSTEM_TOPIC_LIST_FROM_NS: _cluster(LISTED, note=UNCHECKED),
    R.GET_UNIT_TOPIC_LIST: _cluster(LISTED, note=UNCHECKED),
    R.GET_HAS_UNIT_SUB_TOPIC_LIST: _cluster(LISTED, note=UNCHECKED),
    R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _cluster(LISTED, note=UNCHECKED),
    R.DELETE_TOPIC_IN_NAMESRV: _cluster(UPDATE, "cluster_name"),
    R.REGISTER_TOPIC_IN_NAMESRV: _cluster(UPDATE),
    R.UPDATE_NAMESRV_CONFIG: _cluster(UPDATE, note=UNCHECKED),
    R.GET_NAMESRV_CONFIG: _cluster(GET, note=UNCHECKED),
    # the controller
    R.CONTROLLER_ELECT_MASTER: _cluster(UPDATE, "cluster_name"),
    R.CONTROLLER_GET_REPLICA_INFO: _cluster(GET),
    R.CONTROLLER_GET_METADATA_INFO: _cluster(GET, note=UNCHECKED),
    R.CONTROLLER_GET_SYNC_STATE_DATA: _cluster(GET, note=UNCHECKED),
    R.UPDATE_CONTROLLER_CONFIG: _cluster(UPDATE, note=UNCHECKED),
    R.GET_CONTROLLER_CONFIG: _cluster(GET, note=UNCHECKED),
    R.CLEAN_BROKER_DATA: _cluster(UPDATE, "cluster_name"),
    R.GET_REGISTER: _cluster(GET, "cluster_name", note="ours; the cluster is in the key"),
    R.PUT_REGISTER_IF: _cluster(UPDATE, "cluster_name", note="ours; the cluster is in the key"),
    # users and policies
    **{code: _cluster(UPDATE) for code in (
        R.AUTH_CREATE_USER, R.AUTH_UPDATE_USER, R.AUTH_DELETE_USER, R.AUTH_CREATE_ACL, R.AUTH_UPDATE_ACL, R.AUTH_DELETE_ACL,
    )},
    **{code: _cluster(GET) for code in (R.AUTH_GET_USER, R.AUTH_LIST_USER, R.AUTH_GET_ACL, R.AUTH_LIST_ACL)},
}  # fmt: skip
"""By request code."""
