"""Status of an rpc's end: codes of the v5 protocol, and what answers of brokers become.

Application errors travel in `status.code` of the rpc's own reply, under the gRPC status OK.
"""

from typing import Final

import msgspec

from roquette.errors import RoquetteError
from roquette.wire.codes import ResponseCode
from roquette.wire.proto.definition_pb2 import Code, Status

PROXY_TIMEOUT: Final = (
    10_002  # the remoting code of Apache's proxy for a broker that did not answer
)

# gRPC's own statuses, of transport and framing.
GRPC_OK: Final = 0
GRPC_INVALID_ARGUMENT: Final = 3
GRPC_UNIMPLEMENTED: Final = 12
GRPC_INTERNAL: Final = 13
GRPC_UNAVAILABLE: Final = 14

_OF_REMOTING: Final[dict[int, int]] = {
    ResponseCode.SUCCESS: Code.OK,
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.NO_PERMISSION: Code.FORBIDDEN,
    PROXY_TIMEOUT: Code.PROXY_TIMEOUT,
}


class RpcError(RoquetteError):
    """An rpc ends with a status that is not OK.

    Attributes:
        code: of `Code`. grpc: when not 0, the gRPC status the call ends with instead of a reply.
    """

    def __init__(self, code: int, text: str, grpc: int = GRPC_OK) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.grpc = grpc


def status(code: int, text: str) -> Status:
    """A status message."""
    return Status(code=code, message=text)  # type: ignore[arg-type]


def code_of(answer: int) -> int:
    """The status code for a response code of the remoting protocol (Apache: ResponseBuilder)."""
    return _OF_REMOTING.get(answer, Code.INTERNAL_SERVER_ERROR)


def no_topic(name: str) -> RpcError:
    """A topic is not there."""
    return RpcError(
        Code.TOPIC_NOT_FOUND,
        f"CODE: 17  DESC: No topic route info in name server for the topic: {name}\n"
        "For more information, please visit the url, "
        "https://rocketmq.apache.org/docs/bestPractice/06FAQ",
    )


# Answers of brokers to sends and recalls, as far as the proxy reads them. Interpreted: msgspec builds them from the JSON.


class SendAnswer(msgspec.Struct, rename="camel", gc=False):
    """Answer to a send; numbers are words."""

    msg_id: str = ""
    queue_offset: str = "0"
    transaction_id: str | None = None
    recall_handle: str | None = None


class Recalled(msgspec.Struct, rename="camel", gc=False):
    """Answer to a recall."""

    msg_id: str = ""


sent: Final = msgspec.json.Decoder(SendAnswer).decode
recalled: Final = msgspec.json.Decoder(Recalled).decode
