"""Subscription groups: 207, 208, 343, 345, 352."""

import msgspec


class DeleteSubscriptionGroupRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's DeleteSubscriptionGroupRequestHeader."""

    group_name: str
    clean_offset: bool = False


class GetConsumeStatsRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's GetConsumeStatsRequestHeader."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetSubscriptionGroupConfigRequestHeader(
    msgspec.Struct, gc=False, kw_only=True, rename="camel"
):
    """Apache's GetSubscriptionGroupConfigRequestHeader."""

    group: str


class QueryTopicsByConsumerRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's QueryTopicsByConsumerRequestHeader."""

    group: str


class QuerySubscriptionByConsumerRequestHeader(
    msgspec.Struct, gc=False, kw_only=True, rename="camel"
):
    """Apache's QuerySubscriptionByConsumerRequestHeader."""

    group: str
    topic: str | None = None
