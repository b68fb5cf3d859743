"""Clients and their groups: 35, 38, 40, 203, 204, 307, 309."""

import msgspec

from roquette.wire.numbers import Int32, Int64


class UnregisterClientRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    consumer_group: str


class NotifyConsumerIdsChangedRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    consumer_group: str | None = None


class GetConsumerConnectionListRequestHeader(
    msgspec.Struct, gc=False, kw_only=True, rename="camel"
):
    consumer_group: str


class GetProducerConnectionListRequestHeader(
    msgspec.Struct, gc=False, kw_only=True, rename="camel"
):
    producer_group: str


class GetConsumerRunningInfoRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyResultRequestHeader(
    msgspec.Struct, gc=False, kw_only=True, rename="camel"
):
    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


class ResetOffsetRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str
    group: str
    queue_id: Int32 = -1
    offset: Int64 | None = None
    timestamp: Int64
    is_force: bool


class GetConsumerStatusRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str
    group: str
    client_addr: str | None = None
