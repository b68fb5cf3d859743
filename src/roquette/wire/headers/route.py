"""Routes, cluster and name-server settings: 100 to 106, 205, 219, 327."""

import msgspec

from roquette.wire.numbers import Int32


class GetRouteInfoRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's GetRouteInfoRequestHeader."""

    topic: str
    accept_standard_json_only: bool | None = None


class PutKVConfigRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's PutKVConfigRequestHeader."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's GetKVConfigRequestHeader."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's GetKVConfigResponseHeader."""

    value: str | None = None


class DeleteKVConfigRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's DeleteKVConfigRequestHeader."""

    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's GetKVListByNamespaceRequestHeader."""

    namespace: str


class WipeWritePermOfBrokerRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's WipeWritePermOfBrokerRequestHeader."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's WipeWritePermOfBrokerResponseHeader."""

    wipe_topic_count: Int32


class AddWritePermOfBrokerRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's AddWritePermOfBrokerRequestHeader."""

    broker_name: str


class AddWritePermOfBrokerResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's AddWritePermOfBrokerResponseHeader."""

    add_topic_count: Int32
