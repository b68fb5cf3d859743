"""The connections of a process that reads: kept between tasks and batches, never shared with a child."""

import os

from tests.client.fake_cluster import FakeCluster
from tests.spark.records import make_record

from roquette.message.message import MessageQueue
from roquette_spark.source.queues import open_reader
from roquette_spark.values.options import read_options

Q0 = MessageQueue("T", "broker-a", 0)


def test_a_process_keeps_its_connections_and_a_forked_one_makes_its_own() -> None:
    with FakeCluster({Q0: [make_record(0)]}) as cluster:
        given = {"namesrvAddr": cluster.address, "subscribe": "T"}
        for _ in range(3):
            assert open_reader(read_options(given)).max_offsets([Q0]) == {Q0: 1}
        before = cluster.connections
        child = os.fork()
        if child == 0:
            try:
                found = open_reader(read_options(given)).max_offsets([Q0])
                os._exit(0 if found == {Q0: 1} else 1)
            finally:
                os._exit(2)
        _, status = os.waitpid(child, 0)
        assert open_reader(read_options(given)).max_offsets([Q0]) == {Q0: 1}

    assert (before, os.waitstatus_to_exitcode(status), cluster.connections) == (1, 0, 2)
