"""Names of topics and groups as clients write them: checked, and with their namespace."""

from roquette.message.names import (
    client_group_error,
    client_topic_error,
    is_system_group,
    is_system_topic,
)
from roquette.proxy.statuses import RpcError
from roquette.wire.proto.definition_pb2 import Code, Resource


def name_of(resource: Resource) -> str:
    """The name of a topic or group in its namespace (Apache: NamespaceUtil.wrapNamespace)."""
    space, name = resource.resource_namespace, resource.name
    return f"{space}%{name}" if space and not name.startswith(f"{space}%") else name


def topic_of(resource: Resource) -> str:
    """The name of a topic that clients may use; raises RpcError."""
    name = name_of(resource)
    error = client_topic_error(name)
    if error is not None:
        raise RpcError(Code.ILLEGAL_TOPIC, error)
    if is_system_topic(name):
        raise RpcError(Code.ILLEGAL_TOPIC, "cannot access system topic")
    return name


def group_of(resource: Resource) -> str:
    """The name of a consumer group that clients may use; raises RpcError."""
    name = name_of(resource)
    error = client_group_error(name)
    if error is not None:
        raise RpcError(Code.ILLEGAL_CONSUMER_GROUP, error)
    if is_system_group(name):
        raise RpcError(Code.ILLEGAL_CONSUMER_GROUP, "cannot use system consumer group")
    return name
