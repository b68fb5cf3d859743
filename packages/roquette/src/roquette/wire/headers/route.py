"""Routes, cluster and name-server settings: 100 to 106, 205, 219, 327."""

import msgspec

from roquette.wire.numbers import Int32


class GetRouteInfoRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str
    accept_standard_json_only: bool | None = None
    outside: bool | None = None  # of ours: brokers ask for both addresses of each broker


class PutKVConfigRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    namespace: str
    key: str


class GetKVConfigResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    value: str | None = None


class DeleteKVConfigRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    namespace: str


class WipeWritePermOfBrokerRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    broker_name: str


class WipeWritePermOfBrokerResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    wipe_topic_count: Int32


class AddWritePermOfBrokerRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    broker_name: str


class AddWritePermOfBrokerResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    add_topic_count: Int32
