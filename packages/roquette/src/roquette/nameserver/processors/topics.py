"""A name server's lists of topics, and changes of one topic by an operator."""

from typing import Final

from roquette.base.executor import run_blocking
from roquette.errors import Refused
from roquette.nameserver.floor.core import NameServerCore, NameServerLane, decode_or_refuse
from roquette.remoting.outcomes import Outcome, Reply, Task
from roquette.remoting.promises import Promise as P
from roquette.remoting.request import RequestContext, Row, row
from roquette.wire import headers
from roquette.wire.bodies import TopicList, TopicRouteData
from roquette.wire.codes import RequestCode as R
from roquette.wire.codes import ResponseCode
from roquette.wire.json_body import encode_body

MANY: Final = 20_000  # topics: longer lists are encoded in the executor, off the event loop


class TopicListProcessor:
    """Lists of topics, and their removal."""

    def __init__(self, core: NameServerCore) -> None:
        self._core = core
        self._routes = core.routes

    def rows(self) -> list[Row]:
        """What is served."""
        h, lane = headers, NameServerLane.BROKERS
        return [
            row(R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, self.all_topics, None, lane, P.NOTHING),
            row(
                R.GET_TOPICS_BY_CLUSTER,
                self.of_cluster,
                h.GetTopicsByClusterRequestHeader,
                lane,
                P.NOTHING,
            ),
            row(R.GET_SYSTEM_TOPIC_LIST_FROM_NS, self.system_topics, None, lane, P.NOTHING),
            row(R.GET_UNIT_TOPIC_LIST, self.unit_topics, None, lane, P.NOTHING),
            row(R.GET_HAS_UNIT_SUB_TOPIC_LIST, self.unit_sub_topics, None, lane, P.NOTHING),
            row(
                R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
                self.unit_sub_not_unit_topics,
                None,
                lane,
                P.NOTHING,
            ),
            row(
                R.DELETE_TOPIC_IN_NAMESRV,
                self.delete,
                h.DeleteTopicFromNamesrvRequestHeader,
                lane,
                P.MEMORY,
            ),
            row(
                R.REGISTER_TOPIC_IN_NAMESRV,
                self.register,
                h.RegisterTopicRequestHeader,
                lane,
                P.MEMORY,
            ),
        ]

    def all_topics(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER."""
        if not self._core.config.enable_all_topic_list:
            raise Refused(ResponseCode.SYSTEM_ERROR, "disable")
        return _topic_list(self._routes.topics())

    def of_cluster(
        self, ctx: RequestContext, header: headers.GetTopicsByClusterRequestHeader, body: bytes
    ) -> Outcome:
        """GET_TOPICS_BY_CLUSTER."""
        self._check_enabled()
        return _topic_list(self._routes.topics_of_cluster(header.cluster))

    def system_topics(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """GET_SYSTEM_TOPIC_LIST_FROM_NS."""
        topics, address = self._routes.system_topics()
        return _topic_list(topics, address)

    def unit_topics(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """GET_UNIT_TOPIC_LIST."""
        self._check_enabled()
        return _topic_list(self._routes.topics_with_flags(unit=True))

    def unit_sub_topics(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """GET_HAS_UNIT_SUB_TOPIC_LIST."""
        self._check_enabled()
        return _topic_list(self._routes.topics_with_flags(unit_sub=True))

    def unit_sub_not_unit_topics(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST."""
        self._check_enabled()
        return _topic_list(self._routes.topics_with_flags(unit=False, unit_sub=True))

    def delete(
        self, ctx: RequestContext, header: headers.DeleteTopicFromNamesrvRequestHeader, body: bytes
    ) -> Reply:
        """DELETE_TOPIC_IN_NAMESRV."""
        self._routes.delete_topic(header.topic, header.cluster_name or None)
        return Reply()

    def register(
        self, ctx: RequestContext, header: headers.RegisterTopicRequestHeader, body: bytes
    ) -> Reply:
        """REGISTER_TOPIC_IN_NAMESRV."""
        route: TopicRouteData = decode_or_refuse(TopicRouteData, body)
        self._routes.register_topic(header.topic, route.queue_datas)
        return Reply()

    def _check_enabled(self) -> None:
        if not self._core.config.enable_topic_list:
            raise Refused(ResponseCode.SYSTEM_ERROR, "disable")


def _topic_list(topics: list[str], address: str | None = None) -> Outcome:
    answer = TopicList(topic_list=topics, broker_addr=address)
    if len(topics) > MANY:
        return Task(_encoded(answer))
    return Reply(body=encode_body(answer))


async def _encoded(answer: TopicList) -> Reply:
    return Reply(body=await run_blocking(encode_body, answer))
