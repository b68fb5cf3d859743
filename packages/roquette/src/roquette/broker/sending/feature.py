"""Messages come in: sends, batches, returned messages, replies."""

from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Feature, Lane
from roquette.broker.floor.tables.topics import Created
from roquette.broker.floor.writer import Put
from roquette.broker.sending.reply import ReplyProcessor
from roquette.broker.sending.send import SendProcessor
from roquette.broker.sending.send_back import SendBackProcessor
from roquette.remoting.promises import Promise
from roquette.remoting.request import Row, row
from roquette.wire.codes import RequestCode
from roquette.wire.headers import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)


class SendFeature(Feature):
    """Serves what appends messages for clients."""

    def __init__(self, core: BrokerCore, put_half: Put, created: Created) -> None:
        """`put_half`: stores a message that no consumer sees yet. `created`: waits for a topic that a send has made."""
        self._send = SendProcessor(core, put_half, created)
        self._send_back = SendBackProcessor(core)
        self._reply = ReplyProcessor(core, self._send)

    def rows(self) -> list[Row]:
        """What it serves."""
        send, back, reply = self._send, self._send_back.send_back, self._reply.send_reply
        v1, v2, returned = (
            SendMessageRequestHeader,
            SendMessageRequestHeaderV2,
            ConsumerSendMsgBackRequestHeader,
        )
        code = RequestCode
        return [
            row(code.SEND_MESSAGE, send.send_message, v1, Lane.SEND, Promise.LOG),
            row(code.SEND_MESSAGE_V2, send.send_message, v2, Lane.SEND, Promise.LOG),
            row(code.SEND_BATCH_MESSAGE, send.send_batch, v2, Lane.SEND, Promise.LOG),
            row(code.CONSUMER_SEND_MSG_BACK, back, returned, Lane.SEND, Promise.LOG),
            row(code.SEND_REPLY_MESSAGE, reply, v1, Lane.REPLY, Promise.LOG),
            row(code.SEND_REPLY_MESSAGE_V2, reply, v2, Lane.REPLY, Promise.LOG),
        ]
