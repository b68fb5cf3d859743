"""Code -> processor, header, lane and promise: everything a name server serves, in one table."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from roquette.nameserver.processors import (
    BrokerProcessor,
    ConfigProcessor,
    RouteProcessor,
    TopicProcessor,
)
from roquette.remoting.dispatcher import Row
from roquette.remoting.promises import Promise as P
from roquette.wire import headers
from roquette.wire.codes import RequestCode

CLIENT_LANE: Final = 0
BROKER_LANE: Final = 1


def rows(
    route: RouteProcessor, broker: BrokerProcessor, topic: TopicProcessor, config: ConfigProcessor
) -> list[Row]:
    """What a name server serves."""
    code, h, lane = RequestCode, headers, BROKER_LANE
    served: list[tuple[RequestCode, Callable[..., Any], type[msgspec.Struct] | None, int, P]] = [
        (
            code.GET_ROUTEINFO_BY_TOPIC,
            route.find_route,
            h.GetRouteInfoRequestHeader,
            CLIENT_LANE,
            P.NOTHING,
        ),
        (code.REGISTER_BROKER, broker.register, h.RegisterBrokerRequestHeader, lane, P.MEMORY),
        (
            code.UNREGISTER_BROKER,
            broker.unregister,
            h.UnRegisterBrokerRequestHeader,
            lane,
            P.MEMORY,
        ),
        (
            code.QUERY_DATA_VERSION,
            broker.query_data_version,
            h.QueryDataVersionRequestHeader,
            lane,
            P.NOTHING,
        ),
        (code.BROKER_HEARTBEAT, broker.heartbeat, h.BrokerHeartbeatRequestHeader, lane, P.MEMORY),
        (
            code.GET_BROKER_MEMBER_GROUP,
            broker.find_members,
            h.GetBrokerMemberGroupRequestHeader,
            lane,
            P.NOTHING,
        ),
        (code.GET_BROKER_CLUSTER_INFO, broker.cluster_info, None, lane, P.NOTHING),
        (
            code.WIPE_WRITE_PERM_OF_BROKER,
            broker.wipe_write_perm,
            h.WipeWritePermOfBrokerRequestHeader,
            lane,
            P.MEMORY,
        ),
        (
            code.ADD_WRITE_PERM_OF_BROKER,
            broker.add_write_perm,
            h.AddWritePermOfBrokerRequestHeader,
            lane,
            P.MEMORY,
        ),
        (code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, topic.all_topics, None, lane, P.NOTHING),
        (
            code.GET_TOPICS_BY_CLUSTER,
            topic.of_cluster,
            h.GetTopicsByClusterRequestHeader,
            lane,
            P.NOTHING,
        ),
        (code.GET_SYSTEM_TOPIC_LIST_FROM_NS, topic.system_topics, None, lane, P.NOTHING),
        (code.GET_UNIT_TOPIC_LIST, topic.unit_topics, None, lane, P.NOTHING),
        (code.GET_HAS_UNIT_SUB_TOPIC_LIST, topic.unit_sub_topics, None, lane, P.NOTHING),
        (
            code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
            topic.unit_sub_not_unit_topics,
            None,
            lane,
            P.NOTHING,
        ),
        (
            code.DELETE_TOPIC_IN_NAMESRV,
            topic.delete,
            h.DeleteTopicFromNamesrvRequestHeader,
            lane,
            P.MEMORY,
        ),
        (
            code.REGISTER_TOPIC_IN_NAMESRV,
            topic.register,
            h.RegisterTopicRequestHeader,
            lane,
            P.MEMORY,
        ),
        (code.PUT_KV_CONFIG, config.put, None, lane, P.FILE),
        (code.GET_KV_CONFIG, config.get, h.GetKVConfigRequestHeader, lane, P.NOTHING),
        (code.DELETE_KV_CONFIG, config.delete, None, lane, P.FILE),
        (
            code.GET_KVLIST_BY_NAMESPACE,
            config.list_namespace,
            h.GetKVListByNamespaceRequestHeader,
            lane,
            P.NOTHING,
        ),
        (code.UPDATE_NAMESRV_CONFIG, config.update_settings, None, lane, P.MEMORY),
        (code.GET_NAMESRV_CONFIG, config.get_settings, None, lane, P.NOTHING),
    ]
    return [Row(*entry) for entry in served]
