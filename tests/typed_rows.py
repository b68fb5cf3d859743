"""Rows that the type checker must refuse: `make check` fails when one is not an error any more (warn_unused_ignores)."""

from roquette.remoting.promises import Promise
from roquette.remoting.request import Reply, RequestContext, row
from roquette.wire.headers import (
    GetKVConfigRequestHeader,
    GetRouteInfoRequestHeader,
    RegisterTopicRequestHeader,
)


def find_route(ctx: RequestContext, header: GetRouteInfoRequestHeader, body: bytes) -> Reply:
    return Reply()


def find_either(
    ctx: RequestContext,
    header: GetRouteInfoRequestHeader | GetKVConfigRequestHeader,
    body: bytes,
) -> Reply:
    return Reply()


def list_all(ctx: RequestContext, header: None, body: bytes) -> Reply:
    return Reply()


def no_outcome(ctx: RequestContext, header: None, body: bytes) -> bytes:
    return body


row(1, find_route, GetRouteInfoRequestHeader, 0, Promise.NOTHING)
row(1, find_either, GetKVConfigRequestHeader, 0, Promise.NOTHING)
row(1, list_all, None, 0, Promise.NOTHING)

row(1, find_route, RegisterTopicRequestHeader, 0, Promise.NOTHING)  # type: ignore[arg-type]
row(1, find_either, RegisterTopicRequestHeader, 0, Promise.NOTHING)  # type: ignore[arg-type]
row(1, find_route, None, 0, Promise.NOTHING)  # type: ignore[arg-type]
row(1, list_all, GetRouteInfoRequestHeader, 0, Promise.NOTHING)  # type: ignore[arg-type]
row(1, no_outcome, None, 0, Promise.NOTHING)  # type: ignore[arg-type]
