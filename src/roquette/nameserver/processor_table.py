"""Code -> processor, header and lane: everything a name server serves, in one table."""

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
from roquette.wire import headers
from roquette.wire.codes import RequestCode

CLIENT_LANE: Final = 0
BROKER_LANE: Final = 1


def rows(
    route: RouteProcessor, broker: BrokerProcessor, topic: TopicProcessor, config: ConfigProcessor
) -> list[Row]:
    """What a name server serves."""
    code, h, lane = RequestCode, headers, BROKER_LANE
    served: list[tuple[RequestCode, Callable[..., Any], type[msgspec.Struct] | None, int]] = [
        (code.GET_ROUTEINFO_BY_TOPIC, route.find_route, h.GetRouteInfoRequestHeader, CLIENT_LANE),
        (code.REGISTER_BROKER, broker.register, h.RegisterBrokerRequestHeader, lane),
        (code.UNREGISTER_BROKER, broker.unregister, h.UnRegisterBrokerRequestHeader, lane),
        (code.QUERY_DATA_VERSION, broker.query_data_version, h.QueryDataVersionRequestHeader, lane),
        (code.BROKER_HEARTBEAT, broker.heartbeat, h.BrokerHeartbeatRequestHeader, lane),
        (
            code.GET_BROKER_MEMBER_GROUP,
            broker.find_members,
            h.GetBrokerMemberGroupRequestHeader,
            lane,
        ),
        (code.GET_BROKER_CLUSTER_INFO, broker.cluster_info, None, lane),
        (
            code.WIPE_WRITE_PERM_OF_BROKER,
            broker.wipe_write_perm,
            h.WipeWritePermOfBrokerRequestHeader,
            lane,
        ),
        (
            code.ADD_WRITE_PERM_OF_BROKER,
            broker.add_write_perm,
            h.AddWritePermOfBrokerRequestHeader,
            lane,
        ),
        (code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, topic.all_topics, None, lane),
        (code.GET_TOPICS_BY_CLUSTER, topic.of_cluster, h.GetTopicsByClusterRequestHeader, lane),
        (code.GET_SYSTEM_TOPIC_LIST_FROM_NS, topic.system_topics, None, lane),
        (code.GET_UNIT_TOPIC_LIST, topic.unit_topics, None, lane),
        (code.GET_HAS_UNIT_SUB_TOPIC_LIST, topic.unit_sub_topics, None, lane),
        (code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, topic.unit_sub_not_unit_topics, None, lane),
        (code.DELETE_TOPIC_IN_NAMESRV, topic.delete, h.DeleteTopicFromNamesrvRequestHeader, lane),
        (code.REGISTER_TOPIC_IN_NAMESRV, topic.register, h.RegisterTopicRequestHeader, lane),
        (code.PUT_KV_CONFIG, config.put, None, lane),
        (code.GET_KV_CONFIG, config.get, h.GetKVConfigRequestHeader, lane),
        (code.DELETE_KV_CONFIG, config.delete, None, lane),
        (
            code.GET_KVLIST_BY_NAMESPACE,
            config.list_namespace,
            h.GetKVListByNamespaceRequestHeader,
            lane,
        ),
        (code.UPDATE_NAMESRV_CONFIG, config.update_settings, None, lane),
        (code.GET_NAMESRV_CONFIG, config.get_settings, None, lane),
    ]
    return [Row(*entry) for entry in served]
