"""Take a waiting timer message back (370), and what replicas ask of the timer (60, 61).

Apache: RecallMessageProcessor, AdminBrokerProcessor.getTimerCheckPoint and getTimerMetrics.
"""

from typing import Final

from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.timer_rules import delete_key
from roquette.broker.timers.timer_loop import TimerLoop
from roquette.errors import Refused
from roquette.message import properties
from roquette.message.draft import Draft
from roquette.message.names import PERM_WRITE
from roquette.message.recall_handle import RecallHandle, decode_handle
from roquette.remoting.outcomes import Later, Reply
from roquette.remoting.request import RequestContext
from roquette.wire.codes import ResponseCode
from roquette.wire.header_codec import encode_dict
from roquette.wire.headers import RecallMessageRequestHeader

_TAG: Final = "_RECALL_TAG_"
_BODY: Final = b"0"


class RecallProcessor:
    """Serves recalls and the timer's state."""

    def __init__(self, core: BrokerCore, timer: TimerLoop | None) -> None:
        self._live = core.live
        self._writer = core.writer
        self._topics = core.tables.topics
        self._answers_wait = core.log_sync.answers_wait
        self._timer = timer

    def recall(
        self, ctx: RequestContext, header: RecallMessageRequestHeader, body: bytes
    ) -> Reply | Later:
        """RECALL_MESSAGE: a message that takes another one away follows it into its slot."""
        config = self._live.current
        region = {"MSG_REGION": config.region_id}
        if not config.recall_message_enable:
            raise self._refuse(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if ctx.now_ms < config.start_accept_send_request_time_stamp or not (
            config.broker_permission & PERM_WRITE or config.allow_recall_when_broker_not_writeable
        ):
            raise self._refuse(
                ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available"
            )
        if self._topics.find(header.topic) is None:
            raise self._refuse(
                ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist"
            )
        handle = self._checked(header, ctx.now_ms)
        named = {
            properties.TAGS: _TAG,
            properties.TIMER_DEL_UNIQKEY: delete_key(handle.topic, handle.uniq_key),
            properties.UNIQ_KEY: handle.uniq_key,
            properties.TIMER_DELIVER_MS: handle.timestamp,
            properties.BORN_TIMESTAMP: str(ctx.now_ms),
        }
        if header.producer_group:
            named[properties.PGROUP] = header.producer_group
        draft = Draft(handle.topic, 0, b"", _BODY, ctx.now_ms, ctx.peer.host)
        try:
            done = self._writer.put(draft, named, ctx.now_ms)
        except Refused:
            raise self._refuse(ResponseCode.SYSTEM_ERROR, "recall failed, execute error") from None
        reply = Reply(encode_dict({"msgId": handle.uniq_key} | region))
        return Later(done.end_offset, reply) if self._answers_wait else reply

    def _checked(self, header: RecallMessageRequestHeader, now_ms: int) -> RecallHandle:
        handle = decode_handle(header.recall_handle)
        if handle is None:
            raise self._illegal("recall handle is invalid")
        if handle.topic != header.topic:
            raise self._illegal("recall failed, topic not match")
        if handle.broker_name != self._live.current.broker_name:
            raise self._illegal("recall failed, broker service not available")
        text = handle.timestamp
        timestamp = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else -1
        if not 0 < timestamp - now_ms < self._live.store.timer_max_delay_sec * 1000:
            raise self._illegal("recall failed, timestamp invalid")
        return handle

    def _illegal(self, remark: str) -> Refused:
        return self._refuse(ResponseCode.ILLEGAL_OPERATION, remark)

    def _refuse(self, code: int, remark: str) -> Refused:
        return Refused(int(code), remark, encode_dict({"MSG_REGION": self._live.current.region_id}))

    def timer_checkpoint(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_TIMER_CHECK_POINT: seven int64, how far the timer is; for replicas of ours where they would begin."""
        if self._timer is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        return Reply(encode_dict(self._timer.beginning()), self._timer.checkpoint_body())

    def timer_metrics(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_TIMER_METRICS: waiting messages by topic."""
        if self._timer is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The timer message store is null")
        return Reply(b"", self._timer.metrics_body())
