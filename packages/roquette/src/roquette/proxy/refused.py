"""The rpcs of the protocol that are not served: each is refused in words."""

from collections.abc import Iterable
from typing import Any, Final

from roquette.proxy.call import Rpc, RpcCall
from roquette.proxy.service import Part
from roquette.proxy.statuses import GRPC_UNIMPLEMENTED
from roquette.wire.proto import service_pb2 as s

_PULL: Final = (
    "{} is not served, as Apache's proxy has none: receive messages with a push or simple consumer"
)
_LITE: Final = "{} is not served: there are no lite topics here"
REFUSED: Final = (
    Rpc("PullMessage", s.PullMessageRequest, s.PullMessageResponse, lambda call, _: _refuse(call, _PULL), streams=True),
    Rpc("UpdateOffset", s.UpdateOffsetRequest, s.UpdateOffsetResponse, lambda call, _: _refuse(call, _PULL)),
    Rpc("GetOffset", s.GetOffsetRequest, s.GetOffsetResponse, lambda call, _: _refuse(call, _PULL)),
    Rpc("QueryOffset", s.QueryOffsetRequest, s.QueryOffsetResponse, lambda call, _: _refuse(call, _PULL)),
    Rpc(
        "SyncLiteSubscription", s.SyncLiteSubscriptionRequest, s.SyncLiteSubscriptionResponse,
        lambda call, _: _refuse(call, _LITE),
    ),
)  # fmt: skip


def _refuse(call: RpcCall, text: str) -> None:
    call.finish(GRPC_UNIMPLEMENTED, text.format(call.rpc.name))


class RefusedRpcs(Part):
    """Answers them with gRPC's UNIMPLEMENTED."""

    def rpcs(self) -> Iterable[Rpc[Any]]:
        """All of them."""
        return REFUSED
