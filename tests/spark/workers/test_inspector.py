"""Topics made over plain sockets."""

import pytest
from tests.client.sink_cluster import SinkCluster

from roquette.errors import BrokerError, ConnectError
from roquette_spark.workers.inspector import ClusterInspector


def test_a_topic_is_made_on_every_master() -> None:
    with SinkCluster({"T": {"a": 2, "b": 3}}) as cluster:
        inspector = ClusterInspector(cluster.address)
        assert inspector.writable_queues("T") == {"a": 2, "b": 3}
        assert inspector.writable_queues("new") == {}

        assert inspector.create_topic("new", 5) == {"a": 5, "b": 5}
        assert cluster.topics["new"] == {"a": 5, "b": 5}


def test_what_goes_wrong_is_told() -> None:
    with SinkCluster({"T": {"a": 1}}) as cluster:
        cluster.refuse_topics = True
        with pytest.raises(BrokerError, match="not you"):
            ClusterInspector(cluster.address).create_topic("new", 5)
    with pytest.raises(ConnectError, match=r"127.0.0.1:1"):
        ClusterInspector("127.0.0.1:1").create_topic("new", 5)
