"""Names of topics and groups as clients write them, checked.

A resource's namespace counts for nothing, as in Apache's proxy (docs/compatibility.md): a client finds the same topics behind either.
"""

from functools import lru_cache
from typing import Final

from roquette.message.names import (
    client_group_error,
    client_topic_error,
    is_system_group,
    is_system_topic,
)
from roquette.proxy.statuses import RpcError
from roquette.wire.proto.definition_pb2 import Code, Resource

KEPT: Final = 2_048  # names whose check is remembered


def topic_of(resource: Resource) -> str:
    """The name of a topic that clients may use; raises RpcError."""
    name, error = _topic(resource.name)
    if error is not None:
        raise RpcError(Code.ILLEGAL_TOPIC, error)
    return name


@lru_cache(maxsize=KEPT)
def _topic(name: str) -> tuple[str, str | None]:
    """The name, as one object for all who use it, and what is wrong with it."""
    error = client_topic_error(name)
    return name, "cannot access system topic" if error is None and is_system_topic(name) else error


def group_of(resource: Resource) -> str:
    """The name of a consumer group that clients may use; raises RpcError."""
    name, error = _group(resource.name)
    if error is not None:
        raise RpcError(Code.ILLEGAL_CONSUMER_GROUP, error)
    return name


@lru_cache(maxsize=KEPT)
def _group(name: str) -> tuple[str, str | None]:
    error = client_group_error(name)
    if error is None and is_system_group(name):
        error = "cannot use system consumer group"
    return name, error
