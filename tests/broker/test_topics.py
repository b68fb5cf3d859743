"""The topic table: templates, versions, system topics."""

from roquette.broker.floor.config import BrokerConfig, system_topics
from roquette.broker.floor.tables.topics import TopicTable
from roquette.wire.bodies import TopicConfig

CONFIG = BrokerConfig(broker_name="broker-a")


def table():
    topics = TopicTable(1)
    topics.add_system(system_topics(CONFIG))
    return topics


def create(topics, name="New", *, template="TBW102", queues=4, enabled=True):
    return topics.auto_create(
        name, default_topic=template, queues=queues, sys_flag=0, enabled=enabled, now_ms=9
    )


def test_a_new_topic_takes_the_smaller_queue_count_and_loses_inherit():
    assert create(table(), queues=4).write_queues == 4
    assert create(table(), queues=40).write_queues == 8
    assert create(table()).perm == 6


def test_no_template_no_topic():
    topics = table()
    topics.put(TopicConfig(topic_name="Plain", perm=6), 2)

    assert create(topics, template="nope") is None
    assert create(topics, template="Plain") is None
    assert create(topics, queues=0) is None
    assert create(topics, enabled=False) is None
    assert create(topics, template="broker-a", enabled=False) is not None


def test_every_change_moves_the_version_and_tells():
    topics = table()
    told = []
    topics.changed.append(told.append)
    create(topics)
    topics.put(TopicConfig(topic_name="New", perm=2), 10)
    topics.delete("New", 11)

    assert told == ["New", "New", "New"]
    assert (topics.data_version.counter, topics.data_version.timestamp) == (3, 11)
    assert topics.delete("New", 12) is False


def test_a_topic_is_open_while_its_name_its_permission_and_the_broker_allow_sends():
    topics = table()
    topic = create(topics)
    assert topic.open
    assert not topics.find("SCHEDULE_TOPIC_XXXX").open
    topics.put(TopicConfig(topic_name="New", perm=4), 10)
    assert not topic.open
    topics.put(TopicConfig(topic_name="New", perm=6), 11)
    topics.set_writable(False)
    assert not topic.open and not create(topics, "Newer").open
    topics.set_writable(True)
    assert topic.open and topics.find("Newer").open


def test_auto_created_topics_of_two_brokers_end_with_the_larger_queue_count():
    topics = table()
    create(topics, "Young")
    topics.put(TopicConfig(topic_name="Set", write_queue_nums=1, read_queue_nums=1), 9)
    version = topics.data_version
    for name in ("Young", "Set"):
        topics.merge_auto_created(
            TopicConfig(topic_name=name, write_queue_nums=2, read_queue_nums=2), 10
        )
    assert topics.data_version is version, "nothing changes"

    for name in ("Young", "Set", "Absent"):
        topics.merge_auto_created(
            TopicConfig(topic_name=name, write_queue_nums=6, read_queue_nums=6), 60_000
        )
    assert [topics.find(n).write_queues for n in ("Young", "Set", "Absent")] == [6, 1, 6]
    assert topics.find("Absent").is_young(60_001) and not topics.find("Set").is_young(60_001)

    topics.merge_auto_created(
        TopicConfig(topic_name="Young", write_queue_nums=8, read_queue_nums=8), 120_001
    )
    assert topics.find("Young").write_queues == 6, "it is a minute old"


def test_a_changed_topic_keeps_its_counters():
    topics = table()
    topic = create(topics)
    topic.put_count = 5
    topics.put(TopicConfig(topic_name="New", write_queue_nums=2, read_queue_nums=2), 10)

    assert (topic.put_count, topic.write_queues) == (5, 2)


def test_system_topics_are_apaches():
    found = {
        t.topic_name: (t.read_queue_nums, t.write_queue_nums, t.perm) for t in system_topics(CONFIG)
    }

    assert found == {
        "SELF_TEST_TOPIC": (1, 1, 6),
        "TBW102": (8, 8, 7),
        "BenchmarkTest": (1024, 1024, 6),
        "DefaultCluster": (16, 16, 7),
        "broker-a": (1, 1, 7),
        "OFFSET_MOVED_EVENT": (1, 1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
        "DefaultCluster_REPLY_TOPIC": (1, 1, 6),
        "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 8, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1, 1),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 1, 6),
    }


def test_a_topic_prints_as_apache_prints_it():
    assert str(create(table())) == (
        "TopicConfig [topicName=New, readQueueNums=4, writeQueueNums=4, perm=RW-, "
        "topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false, attributes={}]"
    )
