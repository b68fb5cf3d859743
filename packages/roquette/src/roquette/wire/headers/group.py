"""Subscription groups: 207, 208, 343, 345, 352."""

import msgspec


class DeleteSubscriptionGroupRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    group_name: str
    clean_offset: bool = False


class GetConsumeStatsRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetSubscriptionGroupConfigRequestHeader(
    msgspec.Struct, gc=False, kw_only=True, rename="camel"
):
    group: str


class QueryTopicsByConsumerRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    group: str


class QuerySubscriptionByConsumerRequestHeader(
    msgspec.Struct, gc=False, kw_only=True, rename="camel"
):
    group: str
    topic: str | None = None
