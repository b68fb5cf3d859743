"""Topics made over plain sockets."""

import pytest
from tests.client.sink_cluster import SinkCluster

from roquette.client.blocking_topics import create_topic, writable_queues
from roquette.errors import BrokerError, ConnectError


def test_a_topic_is_made_on_every_master() -> None:
    with SinkCluster({"T": {"a": 2, "b": 3}}) as cluster:
        assert writable_queues(cluster.address, "T") == {"a": 2, "b": 3}
        assert writable_queues(cluster.address, "new") == {}

        assert create_topic(cluster.address, "new", 5) == {"a": 5, "b": 5}
        assert cluster.topics["new"] == {"a": 5, "b": 5}


def test_what_goes_wrong_is_told() -> None:
    with SinkCluster({"T": {"a": 1}}) as cluster:
        cluster.refuse_topics = True
        with pytest.raises(BrokerError, match="not you"):
            create_topic(cluster.address, "new", 5)
    with pytest.raises(ConnectError, match=r"127.0.0.1:1"):
        create_topic("127.0.0.1:1", "new", 5)
