"""May a group subscribe like this (46), and what does one subscribe to (345).

Apache: ClientManageProcessor.checkClientConfig, AdminBrokerProcessor.querySubscriptionByConsumer.
"""

from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Feature, Lane
from roquette.broker.floor.requests import decode_request
from roquette.broker.floor.tables.filters import is_tag_type
from roquette.errors import ExpressionError, Refused
from roquette.remoting.outcomes import Reply
from roquette.remoting.promises import Promise
from roquette.remoting.request import RequestContext, Row, row
from roquette.wire.bodies import CheckClientRequestBody, QuerySubscriptionResponseBody
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.headers import QuerySubscriptionByConsumerRequestHeader
from roquette.wire.json_body import encode_body


class SubscriptionProcessor(Feature):
    """Subscriptions, looked at."""

    def __init__(self, core: BrokerCore) -> None:
        self._live = core.live
        self._filters = core.tables.filters
        self._consumers = core.tables.consumers

    def rows(self) -> list[Row]:
        """What it serves."""
        return [
            row(
                RequestCode.CHECK_CLIENT_CONFIG,
                self.check_client_config,
                None,
                Lane.CLIENT_MANAGER,
                Promise.NOTHING,
            ),
            row(
                RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
                self.query_subscription,
                QuerySubscriptionByConsumerRequestHeader,
                Lane.ADMIN,
                Promise.NOTHING,
            ),
        ]

    def check_client_config(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """CHECK_CLIENT_CONFIG: a consumer asks before it starts, so that a wrong selector ends there."""
        data = decode_request(CheckClientRequestBody, body).subscription_data if body else None
        if data is None or is_tag_type(data.expression_type):
            return Reply()
        if not self._live.current.enable_property_filter:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {data.expression_type}",
            )
        try:
            self._filters.build(data.sub_string, data.expression_type)
        except ExpressionError as error:
            raise Refused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"Invalid MessageSelector. {error}"
            ) from None
        return Reply()

    def query_subscription(
        self, ctx: RequestContext, header: QuerySubscriptionByConsumerRequestHeader, body: bytes
    ) -> Reply:
        """QUERY_SUBSCRIPTION_BY_CONSUMER: what the group's members registered for a topic, null if nothing."""
        online = self._consumers.find(header.group)
        data = online.subscriptions.get(header.topic or "") if online is not None else None
        answer = QuerySubscriptionResponseBody(
            subscription_data=data, group=header.group, topic=header.topic
        )
        return Reply(b"", encode_body(answer))
