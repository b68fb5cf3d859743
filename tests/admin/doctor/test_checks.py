"""Every check on written-down facts: a sickness each that it finds, alone, and a state near to it that is none."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from msgspec.structs import replace
from tests.admin.doctor.scripted import ADDRESSES, CLUSTER, GROUP, NOW_MS, QUEUES, TOPIC, healthy
from tests.typed import parsed, typed

from roquette.admin.doctor.checks.diagnosis import CHECKS, LEFT_OUT, MAX_EACH, diagnose, is_healthy
from roquette.admin.doctor.examination import delays_ms
from roquette.admin.doctor.findings import Finding, Intent, Severity, remedies_of
from roquette.admin.facts import ClusterFacts, DelayLevel, FilterProbe
from roquette.base.metric_families import TROUBLES
from roquette.message.message import MessageQueue
from roquette.wire.bodies import (
    ENDED,
    LOST,
    REFUSED,
    SILENT,
    BrokerLeft,
    ClusterInfo,
    ConsumerRunningInfo,
    PopProcessQueueInfo,
    SubscriptionData,
    TopicConfig,
    TopicOffset,
)

Change = Callable[[ClusterFacts], None]
APART_S = 60


@dataclass
class Case:
    """A change of healthy facts. `earlier`: of the look before, when there are two."""

    code: str
    now: Change
    sees: str  # a part of the evidence
    earlier: Change | None = None
    intent: Intent | None = None
    severity: Severity | None = None


def running(facts: ClusterFacts, number: int) -> ConsumerRunningInfo:
    found = facts.groups[0].members[number].running
    assert found is not None
    return found


def die(facts: ClusterFacts) -> None:
    facts.brokers[1].error, facts.brokers[1].connected = "connection refused", False


def in_container(facts: ClusterFacts) -> None:
    facts.brokers[1].address = "172.17.0.2:10911"


def unreachable_container(facts: ClusterFacts) -> None:
    die(facts)
    facts.brokers[1].address = "172.20.0.3:10911"


def disagree(facts: ClusterFacts) -> None:
    facts.name_servers[1].routes[TOPIC] = None


def unknown(facts: ClusterFacts) -> None:
    server = facts.name_servers[1]
    del server.cluster.broker_addr_table["broker-b"]
    route = server.routes[TOPIC]
    assert route is not None
    route.queue_datas = [data for data in route.queue_datas if data.broker_name != "broker-b"]


def not_told(facts: ClusterFacts) -> None:
    unknown(facts)
    facts.brokers[1].settings["namesrvAddr"] = "192.168.1.1:9876"


def nobody_online(facts: ClusterFacts) -> ClusterFacts:
    facts.groups = []
    return facts


def new_topic(facts: ClusterFacts) -> None:
    facts.brokers[0].topics["new"] = TopicConfig("new", 4, 4, 6)
    facts.brokers[0].queues[MessageQueue("new", "broker-a", 0)] = TopicOffset(0, 5, NOW_MS)


def old_topic(facts: ClusterFacts) -> None:
    facts.brokers[0].topics["old"] = TopicConfig("old", 4, 4, 6)
    facts.brokers[0].runtime["bootTimestamp"] = str(NOW_MS - 60_000)
    ends = TopicOffset(0, 5, NOW_MS - 3_600_000)
    facts.brokers[0].queues[MessageQueue("old", "broker-a", 0)] = ends


def orphan(facts: ClusterFacts) -> None:
    for broker in facts.brokers:
        broker.topics["%DLQ%gone"] = TopicConfig("%DLQ%gone", 1, 1, 6)
    facts.brokers[0].queues[MessageQueue("%DLQ%gone", "broker-a", 0)] = TopicOffset(0, 7, 5)


def same_id(facts: ClusterFacts) -> None:
    facts.groups[0].members[0].addresses["broker-a"] = ["10.0.0.1:5", "10.0.0.2:6"]


def conflict(facts: ClusterFacts) -> None:
    running(facts, 1).subscription_set[0] = SubscriptionData(topic=TOPIC, sub_string="C")


def lost_queue(facts: ClusterFacts) -> None:
    del running(facts, 0).mq_table[MessageQueue(TOPIC, "broker-a", 1)]


def too_many(facts: ClusterFacts) -> None:
    for broker in facts.brokers:
        broker.topics[TOPIC].read_queue_nums = 0
        broker.offsets[GROUP, TOPIC] = dict.fromkeys(range(QUEUES), 1002)
    facts.brokers[0].topics[TOPIC].read_queue_nums = 1


def standing(facts: ClusterFacts) -> None:
    for state in running(facts, 0).mq_table.values():
        state.commit_offset, state.cached_msg_count = 1000, 32


def not_pulled(facts: ClusterFacts) -> None:
    for state in running(facts, 0).mq_table.values():
        state.cached_msg_count, state.last_pull_timestamp = 0, NOW_MS - 600_000


def orderly(facts: ClusterFacts, *, got: bool) -> None:
    for number in (0, 1):
        running(facts, number).properties["PROP_CONSUMEORDERLY"] = "true"
        for state in running(facts, number).mq_table.values():
            state.locked = True
    if not got:
        running(facts, 0).mq_table[MessageQueue(TOPIC, "broker-a", 0)].locked = False


def filtered(facts: ClusterFacts, *, last: bool) -> None:
    facts.groups[0].probes = [
        FilterProbe(MessageQueue(TOPIC, name, 0), "A||B", 32, last and name == "broker-b")
        for name in ADDRESSES
    ]


def illegal(facts: ClusterFacts) -> None:
    facts.brokers[0].offsets[GROUP, TOPIC][1] = 99_999


def expired(facts: ClusterFacts) -> None:
    facts.brokers[0].queues[MessageQueue(TOPIC, "broker-a", 1)].min_offset = 1601
    facts.brokers[0].queues[MessageQueue(TOPIC, "broker-a", 1)].max_offset = 1700


def slow(facts: ClusterFacts) -> None:
    for queue, ends in facts.brokers[0].queues.items():
        ends.max_offset += 50_000 if queue.topic == TOPIC else 0


def dead(facts: ClusterFacts, count: int, age_ms: int = 30_000) -> None:
    topic = f"%DLQ%{GROUP}"
    for broker in facts.brokers:
        broker.topics[topic] = TopicConfig(topic, 1, 1, 6)
    ends = TopicOffset(0, count, facts.at_ms - age_ms)
    facts.brokers[0].queues[MessageQueue(topic, "broker-a", 0)] = ends


def dead_and_seen(facts: ClusterFacts, *, seen: int = 9) -> None:
    dead(facts, 9, 86_400_000)
    facts.brokers[0].offsets["TOOLS_CONSUMER", f"%DLQ%{GROUP}"] = {0: seen}


def fewer_queues(facts: ClusterFacts, *, read: bool) -> None:
    for broker in facts.brokers:
        broker.topics[TOPIC].read_queue_nums = broker.topics[TOPIC].write_queue_nums = 1
        if read:
            broker.offsets[GROUP, TOPIC] = dict.fromkeys(range(QUEUES), 1002)
    for number in (0, 1):
        running(facts, number).mq_table.clear()
        running(facts, number).properties["PROP_CONSUME_TYPE"] = "CONSUME_ACTIVELY"


def away(facts: ClusterFacts, waited_h: float, *, at: int = 1000) -> None:
    """The group has no member, and messages wait for it."""
    facts.groups, facts.offline = [], [GROUP]
    for broker in facts.brokers:
        broker.offsets[GROUP, TOPIC] = dict.fromkeys(range(QUEUES), at)
        for number in range(QUEUES):
            broker.queues[MessageQueue(TOPIC, broker.name, number)].max_offset = 1002
        broker.waits[GROUP, TOPIC] = int(waited_h * 3_600_000)


def away_too_long(facts: ClusterFacts) -> None:
    away(facts, 0)
    facts.brokers[1].offsets[GROUP, TOPIC][1] = 102
    facts.brokers[1].queues[MessageQueue(TOPIC, "broker-b", 1)].min_offset = 1002


def behind(facts: ClusterFacts, waited_h: float) -> None:
    facts.brokers[1].waits[GROUP, TOPIC] = int(waited_h * 3_600_000)


def runtime(key: str, value: str) -> Change:
    def change(facts: ClusterFacts) -> None:
        facts.brokers[0].runtime[key] = value

    return change


def trouble(kinds: str, words: str) -> Change:
    def change(facts: ClusterFacts) -> None:
        facts.brokers[0].runtime |= {"groupTroubleKinds": kinds, "groupTrouble": words}

    return change


def rotten(left: int, mended: int) -> Change:
    def change(facts: ClusterFacts) -> None:
        facts.brokers[0].runtime |= {
            "rottenMessages": str(left),
            "mendedMessages": str(mended),
            "rottenFiles": "/s/commitlog/0",
        }

    return change


def setting(key: str, value: str) -> Change:
    def change(facts: ClusterFacts) -> None:
        facts.brokers[0].settings[key] = value

    return change


def late(facts: ClusterFacts, due: int) -> None:
    facts.brokers[0].delays = [DelayLevel(3, 10_000, 10, 40, due)]


def half(facts: ClusterFacts, age_ms: int) -> None:
    facts.brokers[0].half_born_ms = facts.at_ms - age_ms


def filling(facts: ClusterFacts, hours: int) -> None:
    """50 GiB came in `hours`, 40 GiB are free."""
    facts.brokers[0].runtime |= {
        "commitLogMaxOffset": str(50 << 30),
        "earliestMessageTimeStamp": str(NOW_MS - hours * 3_600_000),
    }


def ahead(facts: ClusterFacts) -> None:
    facts.brokers[0].ahead_ms = (7_000, 8_100)


def refuse(facts: ClusterFacts) -> None:
    facts.brokers[0].error = "did not answer within 3 s"


def silent_server(facts: ClusterFacts) -> None:
    facts.name_servers[1].error = "connection refused"


def keep_back(facts: ClusterFacts) -> None:
    facts.brokers[0].refused = ["topics: not you"]


def standing_still(facts: ClusterFacts) -> None:
    facts.groups[0].members[0].running, facts.groups[0].members[0].silent = None, True


def gone(*those: BrokerLeft, there: bool = False) -> Change:
    """Of name servers' memory; without `there`, broker-b is not registered any more either."""

    def change(facts: ClusterFacts) -> None:
        for server in facts.name_servers:
            server.cluster.brokers_left = list(those)
            if not there:
                del server.cluster.broker_addr_table["broker-b"]
                server.routes = {}
        if not there:
            del facts.brokers[1]
            facts.groups.clear()

    return change


def of_apache(facts: ClusterFacts) -> None:
    for server in facts.name_servers:
        server.cluster.brokers_left = None


def short(have: int) -> Change:
    def change(facts: ClusterFacts) -> None:
        facts.brokers[0].runtime |= {"replicasExpected": "2", "replicasInStep": str(have)}

    return change


def replica_alone(facts: ClusterFacts) -> None:
    facts.brokers[1].broker_id = 1
    facts.groups.clear()
    for server in facts.name_servers:
        data = server.cluster.broker_addr_table["broker-b"]
        data.broker_addrs = {1: data.broker_addrs[0]}


def no_brokers(facts: ClusterFacts) -> None:
    facts.brokers.clear()
    facts.groups.clear()
    for server in facts.name_servers:
        server.cluster, server.routes = ClusterInfo(), {}


def unwritten(facts: ClusterFacts) -> None:
    """The task that fails is no finding of its own."""
    facts.brokers[0].runtime |= {
        "tablesUnwritten": "topics.json: Permission denied",
        "tablesRemedy": "chown -R 7 /s/config",
        "task_offsets": TASK % (9, "300.0", 0),
    }


B_AT = ADDRESSES["broker-b"]
LEFT_B = BrokerLeft(CLUSTER, "broker-b", 0, B_AT, ENDED, 61_000)
TWIN = BrokerLeft(CLUSTER, "broker-b", 0, "192.168.1.9:10911", REFUSED, 900, "192.168.1.9")


def drained(facts: ClusterFacts) -> None:
    facts.name_servers[1].drained = ["broker-a"]
    facts.brokers[0].settings["brokerPermission"] = "6"


PIPELINE = "archive-lake-1a2b3c4d"
TASK = "failures=%d wellAgo=%ss setAside=%d lastError=OSError(28)"
PRODUCTION, NONE_LOST = Intent(production=True), Intent(none_lost=True)
E, W, N = Severity.ERROR, Severity.WARNING, Severity.NOTE

SICK = [
    Case("RQ-D001", die, "192.168.1.12:10911: connection refused"),
    Case("RQ-D002", in_container, "advertised 172.17.0.2:10911, reached", severity=W),
    Case("RQ-D002", unreachable_container, "not reached: connection refused", severity=E),
    Case(
        "RQ-D003",
        disagree,
        "1 topic with different routes; orders: 192.168.1.1:9876 says broker-a: 2 queues",
    ),
    Case("RQ-D004", unknown, "name server 192.168.1.2:9876 does not know it"),
    Case("RQ-D005", new_topic, "on broker-a, not on broker-b"),
    Case("RQ-D006", old_topic, "last written 3540 s before broker-a started"),
    Case("RQ-D007", orphan, "7 messages on broker-a, broker-b"),
    Case("RQ-D008", same_id, "2 connections at broker-a: 10.0.0.1:5, 10.0.0.2:6", severity=E),
    Case(
        "RQ-D009", conflict, "one (1 in all) wants orders: A||B; other (1 in all) wants orders: C"
    ),
    Case("RQ-D010", lost_queue, "1 queue without a consumer among 2 members: broker-a/1"),
    Case("RQ-D010", lost_queue, "2 messages wait", lost_queue),
    Case("RQ-D011", too_many, "2 members, 1 queue in"),
    Case("RQ-D012", standing, "at 1000 for 60 s with 32 messages in hand", standing),
    Case("RQ-D012", not_pulled, "not pulled from for 600 s"),
    Case("RQ-D013", lambda facts: orderly(facts, got=False), "1 queue locked"),
    Case("RQ-D014", lambda facts: filtered(facts, last=False), "none of the newest 32 messages"),
    Case("RQ-D015", illegal, "broker-a/1; the first is at 99999, the queue ends at 1002"),
    Case("RQ-D004", not_told, "name server 192.168.1.2:9876 does not know it"),
    Case("RQ-D016", lambda f: slow(nobody_online(f)), "by 0 members", nobody_online),
    Case("RQ-D016", slow, "messages in 60 s; 40.0/s consumed by 2 members", lambda facts: None),
    Case("RQ-D017", lambda f: dead(f, 9), "6 more in 60 s", lambda f: dead(f, 3)),
    Case("RQ-D017", lambda f: dead(f, 9), "the last one came 30 s ago"),
    Case("RQ-D018", lambda f: late(f, 25), "level 3: 15 messages are due and wait"),
    Case("RQ-D018", runtime("timerReadBehind", "400"), "timers are 400 s behind"),
    Case("RQ-D019", lambda f: half(f, 400_000), "begun 400 s ago; producers are asked every 30 s"),
    Case("RQ-D020", lambda f: filling(f, 10), "40% used, 1.42 MiB/s written: 85% in 9.0 h"),
    Case("RQ-D020", runtime("commitLogDiskRatio", "0.87"), "87% of the disk", severity=W),
    Case("RQ-D020", runtime("commitLogDiskRatio", "0.95"), "95% of the disk", severity=E),
    Case("RQ-D021", setting("diskMaxUsedSpaceRatio", "90"), "90: broker broker-a; 75: broker"),
    Case("RQ-D022", runtime("openDescriptors", "60000"), "60000 of 65536", severity=W),
    Case("RQ-D022", runtime("openDescriptors", "65000"), "65000 of 65536", severity=E),
    Case("RQ-D023", setting("flushDiskType", "ASYNC_FLUSH"), "ASYNC", intent=NONE_LOST, severity=E),
    Case(
        "RQ-D024", setting("autoCreateTopicEnable", "true"), "true", intent=PRODUCTION, severity=W
    ),
    Case("RQ-D024", setting("autoCreateTopicEnable", "true"), "true", severity=N),
    Case("RQ-D025", setting("authenticationEnabled", "false"), "are off", severity=N),
    Case(
        "RQ-D025", setting("authenticationEnabled", "false"), "off", intent=PRODUCTION, severity=W
    ),
    Case("RQ-D026", ahead, "its clock is at least 7.0 s ahead of this machine's"),
    Case("RQ-D027", runtime("brokerVersionDesc", "V5_3_0"), "V5_3_0: broker broker-a; V5_5_0"),
    Case("RQ-D028", runtime("wrongProtocolConnections", "4"), "4 connections since", severity=N),
    Case(
        "RQ-D028", runtime("wrongProtocolConnections", "4"), "4 connections in 60 s", lambda f: None
    ),
    Case(
        "RQ-D029", runtime("task_timer", TASK % (3, "300.0", 0)), "last went well 300 s", severity=E
    ),
    Case("RQ-D029", runtime("task_timer", TASK % (0, "0.1", 2)), "2 entries set aside", severity=W),
    Case("RQ-D029", runtime("task_timer", TASK % (2, "0.1", 0)), "2 failures", lambda f: None),
    Case("RQ-D030", silent_server, "connection refused"),
    Case("RQ-D031", refuse, "did not answer within 3 s"),
    Case("RQ-D032", runtime("messagesRefused", "the disk is full"), "the disk is full"),
    Case("RQ-D035", keep_back, "not told: topics: not you"),
    Case("RQ-D036", runtime("logSetAside", "8 bytes in 1 files in /s/replaced"), "8 bytes in 1"),
    Case("RQ-D037", runtime("replicaAhead", "10.0.1.2 was 8 bytes ahead"), "8 bytes ahead"),
    Case("RQ-D037", runtime("followsRefused", "its log has 8 bytes"), "has 8 bytes"),
    *(
        Case("RQ-D038", trouble(f"{kind},office", f"words of {kind}"), f"words of {kind}")
        for kind in TROUBLES
    ),
    Case("RQ-D039", rotten(2, 1), "2 messages have rotted", severity=E),
    Case("RQ-D039", rotten(0, 7), "7 were mended from another member: /s/commitlog/0", severity=W),
    Case("RQ-D040", gone(LEFT_B), f"{B_AT} ended in order 1 min 1 s ago", severity=W),
    Case("RQ-D040", gone(replace(LEFT_B, why=LOST)), f"{B_AT} lost its connection 1", severity=E),
    Case("RQ-D040", gone(replace(LEFT_B, why=SILENT, ago_ms=7_260_000)), "fell silent 2 h 1 min"),
    Case("RQ-D040", gone(LEFT_B), "ended in order", gone(LEFT_B), severity=W),
    Case("RQ-D040", lambda f: None, "no name server", intent=Intent(brokers=("broker-a", "x"))),
    Case("RQ-D041", short(1), "2 of 3 members are in step"),
    Case("RQ-D041", short(0), "1 of 3 members are in step", short(1)),
    Case("RQ-D040", replica_alone, "no name server knows its master"),
    Case("RQ-D040", gone(TWIN, there=True), "the one on 192.168.1.9 that names 192.168.1.9:10911"),
    Case("RQ-D042", unwritten, "topics.json: Permission denied"),
    Case("RQ-D043", no_brokers, "no name server knows a broker"),
    Case("RQ-D055", drained, "brokerPermission=6"),
    Case("RQ-D055", setting("brokerPermission", "4"), "brokerPermission=4"),
    Case("RQ-D056", of_apache, "it does not tell who has left"),
    Case("RQ-D034", standing_still, "connected from 192.168.1.3:500"),
    Case("RQ-D034", standing_still, "does not answer", standing_still),
    Case("RQ-D047", lambda f: fewer_queues(f, read=False), "4 messages wait in queues that nobody"),
    Case(
        "RQ-D048", lambda f: away(f, 0.5), "8 messages wait in 4 queues, the first for 30 min 0 s"
    ),
    Case("RQ-D048", lambda f: away(f, 9), "first for 9 h 0 min", lambda f: away(f, 9)),
    Case("RQ-D049", away_too_long, "900 messages were deleted before they were consumed"),
    Case(
        "RQ-D050",
        lambda f: behind(f, 49),
        "has been there for 49 h 0 min, and may be deleted in 23 h 0",
    ),
    Case("RQ-D051", lambda f: dead(f, 9, 3_600_000), "9 dead letters that nobody has read; the la"),
    Case("RQ-D051", lambda f: dead_and_seen(f, seen=4), "5 dead letters that nobody has read"),
    Case("RQ-D033", expired, "601 messages of 1 queue deleted"),
]


def found(case: Case) -> list[Finding]:
    """What is found when there are two looks, or the one."""
    if case.earlier is None:
        facts = healthy()
        case.now(facts)
        return diagnose(facts, intent=case.intent)
    before, facts = healthy(), healthy(APART_S)
    case.earlier(before)
    case.now(facts)
    return diagnose(facts, before, case.intent)


@pytest.mark.parametrize("case", SICK, ids=lambda case: f"{case.code} {case.sees[:20]}")
def test_a_sickness_is_found_and_no_other(case: Case) -> None:
    (finding,) = found(case)

    assert finding.code == case.code
    assert case.sees in finding.evidence
    assert finding.severity is (
        case.severity or next(c.severity for c in CHECKS if c.code == case.code)
    )
    assert finding.subject
    for kind in ("broker", "group", "topic"):  # what its words name is a name, for links
        named = re.findall(rf"\b{kind} ([^\s,]+)", finding.subject)
        assert named == list(filter(None, [getattr(finding.about, kind)])), finding.subject
    assert finding.cause
    assert finding.fix


def test_every_check_has_a_sickness() -> None:
    assert {case.code for case in SICK} == {check.code for check in CHECKS}
    assert len({check.code for check in CHECKS}) == len(CHECKS)


@pytest.mark.parametrize("intent", [Intent(), PRODUCTION, Intent(production=True, none_lost=True)])
def test_nothing_is_found_in_a_healthy_cluster(intent: Intent) -> None:
    assert diagnose(healthy(), intent=intent) == []
    assert diagnose(healthy(APART_S), healthy(), intent) == []


def restarted(facts: ClusterFacts) -> None:
    """The topic was written to after the broker with it alone had started."""
    old_topic(facts)
    facts.brokers[0].queues[MessageQueue("old", "broker-a", 0)].last_update_timestamp = NOW_MS


def young(facts: ClusterFacts) -> None:
    lost_queue(facts)
    for number in (0, 1):
        running(facts, number).properties["PROP_CONSUMER_START_TIMESTAMP"] = str(NOW_MS - 5_000)


def nothing_waits(facts: ClusterFacts) -> None:
    lost_queue(facts)
    facts.brokers[0].offsets[GROUP, TOPIC][1] = 1002


def pops(facts: ClusterFacts) -> None:
    """One pops from all queues of a broker."""
    info = running(facts, 0)
    info.mq_table.clear()
    info.mq_pop_table = {MessageQueue(TOPIC, "broker-a", -1): PopProcessQueueInfo()}


def reader(facts: ClusterFacts) -> None:
    """A reader that chooses its queues."""
    running(facts, 0).mq_table.clear()
    running(facts, 0).properties["PROP_CONSUME_TYPE"] = "CONSUME_ACTIVELY"


def silent_member(facts: ClusterFacts) -> None:
    facts.groups[0].members[0].running = None


def broadcasting(facts: ClusterFacts) -> None:
    facts.groups[0].model = "BROADCASTING"
    lost_queue(facts)


def system_topics(facts: ClusterFacts) -> None:
    for name in ("TBW102", "broker-a", CLUSTER, f"{CLUSTER}_REPLY_TOPIC", "RMQ_SYS_TRACE_TOPIC"):
        facts.brokers[0].topics[name] = TopicConfig(name, 1, 1, 6)


def other_cluster(facts: ClusterFacts) -> None:
    facts.brokers[1].cluster = "Other"
    facts.brokers[1].settings["fileReservedTime"] = "24"
    facts.brokers[1].runtime["brokerVersionDesc"] = "V4_9_0"
    facts.brokers[0].topics["new"] = TopicConfig("new", 4, 4, 6)


def pop_retry(facts: ClusterFacts) -> None:
    for broker in facts.brokers:
        for name in (f"%RETRY%{GROUP}_{TOPIC}", f"%RETRY%{GROUP}+{TOPIC}"):
            broker.topics[name] = TopicConfig(name, 1, 1, 6)


def same_tags(facts: ClusterFacts) -> None:
    running(facts, 1).subscription_set[0] = SubscriptionData(topic=TOPIC, sub_string="B || A")


def docker_inside(facts: ClusterFacts) -> None:
    in_container(facts)
    facts.name_servers[0].address = "172.17.0.9:9876"


def on_loopback(facts: ClusterFacts) -> None:
    for server in facts.name_servers:
        server.address = "127.0.0.1:9876"
    for broker in facts.brokers:
        broker.address = "127.0.0.1:10911"
        broker.settings |= {"autoCreateTopicEnable": "true", "authenticationEnabled": "false"}


def acl_of_4(facts: ClusterFacts) -> None:
    for broker in facts.brokers:
        broker.settings |= {"authenticationEnabled": "false", "aclEnable": "true"}


HARMLESS: dict[str, Change] = {
    "RQ-D002 who asks is in the same network": docker_inside,
    "RQ-D005 of another cluster": other_cluster,
    "RQ-D005 the system's own": system_topics,
    "RQ-D007 retries of POP": pop_retry,
    "RQ-D008 one address for each broker": lambda facts: None,
    "RQ-D009 the same tags in another order": same_tags,
    "RQ-D010 members that have just come": young,
    "RQ-D010 nothing waits": nothing_waits,
    "RQ-D010 popped": pops,
    "RQ-D010 chosen by a reader": reader,
    "RQ-D010 a member that tells nothing": silent_member,
    "RQ-D010 everybody gets all": broadcasting,
    "RQ-D013 all are locked": lambda facts: orderly(facts, got=True),
    "RQ-D014 something passes in one queue": lambda facts: filtered(facts, last=True),
    "RQ-D017 RQ-D051 dead letters of the day before, seen": dead_and_seen,
    "RQ-D018 they are not due": lambda facts: late(facts, 10),
    "RQ-D019 a young transaction": lambda facts: half(facts, 100_000),
    "RQ-D020 retention comes before": lambda facts: filling(facts, 90),
    "RQ-D022 descriptors": runtime("openDescriptors", "50000"),
    "RQ-D023 without a claim": setting("flushDiskType", "ASYNC_FLUSH"),
    "RQ-D024 RQ-D025 on this machine only": on_loopback,
    "RQ-D025 access control of 4.x": acl_of_4,
    "RQ-D040 it is there at another name server": gone(LEFT_B, there=True),
    "RQ-D041 all are in step": short(2),
    "RQ-D047 all are read": lambda facts: fewer_queues(facts, read=True),
    "RQ-D048 not for long": lambda facts: away(facts, 0.1),
    "RQ-D048 RQ-D049 nothing waits": lambda facts: away(facts, 0, at=1002),
    "RQ-D050 a third of the time is left": lambda facts: behind(facts, 47),
    "RQ-D029 a failure long mended": runtime("task_timer", TASK % (3, "1.0", 0)),
}


@pytest.mark.parametrize("state", HARMLESS)
def test_what_is_no_sickness(state: str) -> None:
    facts = healthy()
    HARMLESS[state](facts)

    assert diagnose(facts) == []


PASSING: dict[str, tuple[Change, Change]] = {
    "RQ-D003 in one look only": (lambda facts: None, disagree),
    "RQ-D004 in one look only": (lambda facts: None, unknown),
    "RQ-D034 in one look only": (lambda facts: None, standing_still),
    "RQ-D010 in one look only": (lambda facts: None, lost_queue),
    "RQ-D012 it went on": (standing, lambda facts: None),
    "RQ-D016 a long lag that shrinks": (slow, lambda facts: None),
    "RQ-D048 somebody who is no member reads": (
        lambda f: away(f, 9, at=999),
        lambda f: away(f, 9),
    ),
    "RQ-D017 no more of them": (lambda f: dead(f, 9), lambda f: dead(f, 9)),
    "RQ-D040 in one look only": (lambda facts: None, gone(LEFT_B)),
    "RQ-D041 in one look only": (lambda facts: None, short(0)),
    "RQ-D040 a master in one look only": (lambda facts: None, replica_alone),
    "RQ-D028 those were before": (runtime("wrongProtocolConnections", "4"),) * 2,
}


@pytest.mark.parametrize("state", PASSING)
def test_what_passes_is_no_sickness(state: str) -> None:
    before, now = healthy(), healthy(APART_S)
    earlier, later = PASSING[state]
    earlier(before)
    later(now)

    assert diagnose(now, before) == []


def test_what_a_pipelines_group_lacks_its_pipeline_brings() -> None:
    def of_a_pipeline(waited_h: float) -> ClusterFacts:
        facts = healthy()
        away_too_long(facts)
        away(facts, waited_h)
        facts.brokers[1].offsets[GROUP, TOPIC][1] = 102
        facts.offline = [PIPELINE]
        for broker in facts.brokers:
            broker.offsets[PIPELINE, TOPIC] = broker.offsets.pop((GROUP, TOPIC))
            broker.waits[PIPELINE, TOPIC] = broker.waits.pop((GROUP, TOPIC))
        return facts

    assert {each.code for each in diagnose(of_a_pipeline(25))} == {"RQ-D049"}
    found = {each.code: each.fix for each in diagnose(of_a_pipeline(49))}
    assert found.keys() == {"RQ-D048", "RQ-D049", "RQ-D050"}
    for fix in found.values():
        assert "run its pipeline, which goes on from its checkpoint" in fix
        assert "seek" not in fix and "consumers" not in fix


def test_a_topic_written_to_since_did_not_come_back() -> None:
    facts = healthy()
    restarted(facts)

    assert [finding.code for finding in diagnose(facts)] == ["RQ-D005"]


def test_all_clocks_apart_by_as_much_are_this_machines_own() -> None:
    facts = healthy()
    for broker in facts.brokers:
        broker.ahead_ms = (-9_000, -8_000)
    (finding,) = diagnose(facts)

    assert (finding.code, finding.subject) == ("RQ-D026", "this machine")
    assert "8.0 s behind" in finding.evidence


def test_errors_come_first_and_notes_are_healthy() -> None:
    facts = healthy()
    for change in (setting("autoCreateTopicEnable", "true"), runtime("messagesRefused", "full")):
        change(facts)
    findings = diagnose(facts)

    assert [finding.severity for finding in findings] == [E, N]
    assert not is_healthy(findings)
    assert is_healthy(findings[1:])
    assert is_healthy([])


def test_a_thousand_findings_of_one_code_are_counted() -> None:
    facts = healthy()
    for number in range(1_000):
        facts.brokers[0].topics[f"t{number}"] = TopicConfig(f"t{number}", QUEUES, QUEUES, 6)
    findings = diagnose(facts)

    assert len(findings) == MAX_EACH + 1
    assert findings[-1].subject == f"{1_000 - MAX_EACH} more"


def test_what_was_left_out_is_told() -> None:
    facts = healthy()
    facts.left_out = ["5 of 5005 topics"]
    (finding,) = diagnose(facts)

    assert (finding.code, finding.severity) == (LEFT_OUT, N)
    assert "5 of 5005 topics" in finding.evidence


def test_what_can_be_mended_says_how_it_is_taken_back() -> None:
    facts = healthy()
    new_topic(facts)
    setting("autoCreateTopicEnable", "true")(facts)
    remedies = remedies_of(diagnose(facts))

    assert [remedy.words for remedy in remedies] == [
        "create topic new with 4 queues on broker broker-b",
        "set autoCreateTopicEnable=false on broker broker-a",
    ]
    assert all(remedy.undo for remedy in remedies)


OUTSIDE = {
    *("RQ-D001", "RQ-D002", "RQ-D030", "RQ-D031"),  # start a process, open a way
    *("RQ-D008", "RQ-D009", "RQ-D013", "RQ-D034"),  # mend the application
    *("RQ-D018", "RQ-D019", "RQ-D022", "RQ-D026", "RQ-D027", "RQ-D028", "RQ-D029", "RQ-D032"),
    *("RQ-D023", "RQ-D035", "RQ-D042", "RQ-D043"),  # the next start; who asks; on that machine
}
"""What no command of ours cures: its fix says what does."""


def test_what_is_to_be_typed_is_a_command_of_ours_with_all_its_words() -> None:
    told: dict[str, list[str]] = {}
    for case in SICK:
        for one in found(case):
            texts = [one.fix, *(remedy.undo for remedy in one.remedies)]
            told.setdefault(one.code, []).extend(words for text in texts for words in typed(text))

    assert {code for code, commands in told.items() if not commands} == OUTSIDE & set(told)
    for commands in told.values():
        for words in commands:
            parsed(words)


@pytest.mark.parametrize("value", ["", "x", "-1", "0", "1e999", "nan", "9" * 30, "²", "[ 1 days ]"])
def test_no_answer_of_a_broker_breaks_a_check(value: str) -> None:
    """Each key of the run-time table and of the settings by itself, in one look and in two."""
    keys = [
        (name, key)
        for name in ("runtime", "settings")
        for key in getattr(healthy().brokers[0], name)
    ]
    extra = ("transactionCheckInterval", "transactionTimeOut", "diskSpaceWarningLevelRatio")
    for name, key in keys + [("settings", key) for key in extra]:
        before, now = healthy(), healthy(APART_S)
        for facts in (before, now):
            half(facts, 400_000)
            filling(facts, 10)
            getattr(facts.brokers[0], name)[key] = value
        assert all(finding.evidence for finding in diagnose(now))
        assert all(finding.evidence for finding in diagnose(now, before))


@pytest.mark.parametrize("words", ["", "1s 5s", "x 1 s 3d", "²s 5m"])
def test_delay_levels_that_are_none_are_left_out(words: str) -> None:
    assert all(delay > 0 for delay in delays_ms(words))
    assert delays_ms("1s 5m 2h 3d") == [1_000, 300_000, 7_200_000, 259_200_000]
