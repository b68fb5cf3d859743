"""Code -> processor, header and lane: everything a name server serves, in one table."""

from typing import Final

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
    code, lane = RequestCode, BROKER_LANE
    return [
        Row(
            code.GET_ROUTEINFO_BY_TOPIC,
            route.find_route,
            headers.GetRouteInfoRequestHeader,
            CLIENT_LANE,
        ),
        Row(code.REGISTER_BROKER, broker.register, headers.RegisterBrokerRequestHeader, lane),
        Row(code.UNREGISTER_BROKER, broker.unregister, headers.UnRegisterBrokerRequestHeader, lane),
        Row(
            code.QUERY_DATA_VERSION,
            broker.query_data_version,
            headers.QueryDataVersionRequestHeader,
            lane,
        ),
        Row(code.BROKER_HEARTBEAT, broker.heartbeat, headers.BrokerHeartbeatRequestHeader, lane),
        Row(
            code.GET_BROKER_MEMBER_GROUP,
            broker.find_members,
            headers.GetBrokerMemberGroupRequestHeader,
            lane,
        ),
        Row(code.GET_BROKER_CLUSTER_INFO, broker.cluster_info, None, lane),
        Row(
            code.WIPE_WRITE_PERM_OF_BROKER,
            broker.wipe_write_perm,
            headers.WipeWritePermOfBrokerRequestHeader,
            lane,
        ),
        Row(
            code.ADD_WRITE_PERM_OF_BROKER,
            broker.add_write_perm,
            headers.AddWritePermOfBrokerRequestHeader,
            lane,
        ),
        Row(code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, topic.all_topics, None, lane),
        Row(
            code.GET_TOPICS_BY_CLUSTER,
            topic.of_cluster,
            headers.GetTopicsByClusterRequestHeader,
            lane,
        ),
        Row(code.GET_SYSTEM_TOPIC_LIST_FROM_NS, topic.system_topics, None, lane),
        Row(code.GET_UNIT_TOPIC_LIST, topic.unit_topics, None, lane),
        Row(code.GET_HAS_UNIT_SUB_TOPIC_LIST, topic.unit_sub_topics, None, lane),
        Row(code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, topic.unit_sub_not_unit_topics, None, lane),
        Row(
            code.DELETE_TOPIC_IN_NAMESRV,
            topic.delete,
            headers.DeleteTopicFromNamesrvRequestHeader,
            lane,
        ),
        Row(
            code.REGISTER_TOPIC_IN_NAMESRV, topic.register, headers.RegisterTopicRequestHeader, lane
        ),
        Row(code.PUT_KV_CONFIG, config.put, None, lane),
        Row(code.GET_KV_CONFIG, config.get, headers.GetKVConfigRequestHeader, lane),
        Row(code.DELETE_KV_CONFIG, config.delete, None, lane),
        Row(
            code.GET_KVLIST_BY_NAMESPACE,
            config.list_namespace,
            headers.GetKVListByNamespaceRequestHeader,
            lane,
        ),
        Row(code.UPDATE_NAMESRV_CONFIG, config.update_settings, None, lane),
        Row(code.GET_NAMESRV_CONFIG, config.get_settings, None, lane),
    ]
