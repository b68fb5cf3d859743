"""Assignment of queues to consumers, by pull or pop, when the broker decides: 400, 401, 402.

Apache: QueryAssignmentProcessor, MessageRequestModeManager, TopicRouteInfoManager.
"""

from collections.abc import Awaitable, Callable

from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Feature, Lane, decode_request
from roquette.broker.floor.tables.groups import POP, PULL, assign
from roquette.errors import Refused
from roquette.message.message import MessageQueue
from roquette.message.names import RETRY_PREFIX
from roquette.remoting.promises import Promise
from roquette.remoting.request import Outcome, Reply, RequestContext, Row, Task, row
from roquette.wire.bodies import (
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.json_body import encode_body

Queues = Callable[[str], Awaitable[list[MessageQueue] | None]]


class AssignmentFeature(Feature):
    """Assigns queues and keeps the modes.

    Attributes:
        modes: who pulls and who pops.
    """

    def __init__(self, core: BrokerCore, queues: Queues) -> None:
        """`queues`: of a topic in the whole cluster; None: no name server knows it."""
        self._live = core.live
        self._topics = core.tables.topics
        self._groups = core.tables.groups
        self._consumers = core.tables.consumers
        self._queues = queues
        self.modes = core.tables.modes
        self._file = core.saved.modes

    def rows(self) -> list[Row]:
        """Return the rows of the requests it serves."""
        code, balance = RequestCode, Lane.LOAD_BALANCE
        nothing, assign_queues = Promise.NOTHING, self.query_assignment
        return [
            row(code.QUERY_ASSIGNMENT, assign_queues, None, balance, nothing),
            row(code.SET_MESSAGE_REQUEST_MODE, self.set_request_mode, None, balance, Promise.FILE),
            row(
                code.GET_ALL_MESSAGE_REQUEST_MODE,
                self.all_request_modes,
                None,
                Lane.ADMIN,
                nothing,
            ),
        ]

    def forget_topic(self, topic: str) -> None:
        """Its modes go."""
        if self.modes.forget(topic=topic):
            self._file.mark()

    def forget_group(self, group: str, clean_offset: bool) -> None:
        """Its modes go."""
        if self.modes.forget(group=group):
            self._file.mark()

    def query_assignment(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """QUERY_ASSIGNMENT."""
        return Task(self._assign(decode_request(QueryAssignmentRequestBody, body)))

    async def _assign(self, request: QueryAssignmentRequestBody) -> Reply:
        config = self._live.current
        mode = self.modes.find(
            request.topic,
            request.consumer_group,
            default_mode=config.default_message_request_mode,
            default_share=config.default_pop_share_queue_num,
        )
        queues = await self._queues(request.topic)
        if (
            queues is not None
            and request.message_model == "CLUSTERING"
            and config.server_load_balancer_enable
        ):
            group = self._consumers.find(request.consumer_group)
            clients = group.client_ids() if group is not None else []
            queues = assign(mode, request.strategy_name, queues, clients, request.client_id)
        answer = QueryAssignmentResponseBody()
        if queues is not None:
            answer.message_queue_assignments = [
                MessageQueueAssignment(queue, mode.mode) for queue in queues
            ]
        return Reply(b"", encode_body(answer))

    def set_request_mode(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """SET_MESSAGE_REQUEST_MODE; answered when the file is written."""
        request = decode_request(SetMessageRequestModeRequestBody, body)
        if request.topic.startswith(RETRY_PREFIX):
            raise Refused(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._topics.find(request.topic) is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{request.topic}] not exist")
        if self._groups.find(request.consumer_group, ctx.now_ms) is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist"
            )
        if request.mode not in (PULL, POP):
            raise Refused(
                ResponseCode.INVALID_PARAMETER, f"mode[{request.mode}] is not PULL or POP"
            )
        self.modes.put(request)
        return Task(self._saved())

    async def _saved(self) -> Reply:
        self._file.mark()
        await self._file.confirm()
        return Reply()

    def all_request_modes(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_ALL_MESSAGE_REQUEST_MODE: what replicas copy."""
        return Reply(b"", encode_body(self.modes.to_wrapper()))
