"""Apache's own mqadmin (rocketmq-tools 5.5.0) against a cluster: acceptance 2.

Every command runs in one JVM, and what it prints is compared with what it prints about Apache's 5.5.0
servers in the same state. expected/mqadmin.json keeps what does not fit a test's text: columns, topic names,
keys of brokerStatus and getBrokerConfig. ROQUETTE_INTEROP_PROVE=1 runs these tests on Apache's servers as
well; ROQUETTE_INTEROP_RECORD=1 with it writes the file again.

Fields compared:
  clusterList           columns; cluster, broker, id, address, version, activated; with -m totals of today
  topicList             the set of topics, and with -c cluster, topic and group
  topicRoute            the whole JSON; with -l columns and row
  topicStatus           columns; broker, queue, smallest and greatest offset, last update
  updateTopic           the whole text; then the route
  deleteTopic           the whole text; then code and text of the missing route
  updateSubGroup        the whole text; then every field of the stored group (getConsumerConfig)
  brokerStatus          names of keys; numbers of messages, bytes and offsets, version, capacities
  haStatus              labels; no replica
  consumerProgress      columns; per queue both offsets and the difference, sums; the table of groups
  consumerConnection    columns; client, language, version, subscriptions, type, model, where it began
  producerConnection    client, language, version
  getBrokerConfig       names of settings, and the value of every one this test did not set
  sendMessage           columns; broker, queue, result; the message is found again
  queryMsgById          labels; every value, what the group did with the message
  queryMsgByKey         columns; ids, queues and offsets in order
  queryMsgByUniqueKey   labels; every value
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.conftest import SETTINGS, flavours
from tests.interop.driver import Driver
from tests.interop.peers import Server, call, start_broker, start_namesrv

from roquette.access.model import AccessSettings
from roquette.base.log_settings import LogSettings
from roquette.base.options import options_of
from roquette.broker.floor.config import BrokerConfig
from roquette.proxy.settings import ProxySettings
from roquette.remoting.certificates import TlsSettings
from roquette.remoting.settings import DoorSettings
from roquette.store.format.config import StoreConfig

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

EXPECTED = Path(__file__).parent / "expected" / "mqadmin.json"
RECORD = os.environ.get("ROQUETTE_INTEROP_RECORD") == "1"
SENT = 6
SOON_S = 60.0

# System topics that only Apache has: transactions in RocksDB, timer messages.
APACHES_TOPICS = {
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
    "rmq_sys_wheel_timer",
}
GOLDEN = Path(__file__).parents[1] / "golden" / "settings" / "cases.json"
# Keys of brokerStatus that Apache 5.5.0 no longer has and 4.9 had; and what only our broker watches.
OUR_STATUS_KEYS = {"brokerVersion", "getTransferedTps"}
OUR_STATUS_KEYS |= {"offsetRegressions", "offsetRegressionsRefused"}
OUR_STATUS_KEYS |= {
    "duplicateClientIds",
    "subscriptionConflicts",
    "messagesRefused",
    "roquetteForm",
    "refusedNames",
    "descriptorLimit",
    "openDescriptors",
    "wrongProtocolConnections",
    "wrongProtocolLast",
}
OUR_STATUS_KEYS |= {
    "setAside",
    "setAsideLast",
    "logSetAside",
    "commitLogConfirmOffset",
    "replicas",
    "replicasExpected",
    "replicasInStep",
    "replicaLagBytes",
    "replicaAhead",
    "tablesUnwritten",
    "tablesRemedy",
}
OUR_TASKS = "task_"  # one line for each task of the broker
APACHES_SETTINGS = {
    key
    for kind, each in json.loads(GOLDEN.read_text()).items()
    if kind != "AuthConfig"  # Apache's brokers do not show it
    for key in each
}
_SHARED = TlsSettings, DoorSettings, AccessSettings, LogSettings
_SETTINGS = BrokerConfig, StoreConfig, ProxySettings, *_SHARED
OUR_SETTINGS = {key for kind in _SETTINGS for key in options_of(kind)} - APACHES_SETTINGS
# Settings whose default deviates from Apache's on purpose.
OUR_DEFAULTS = {"enablePropertyFilter", "haTransferBatchSize"}


class Cluster:
    """Servers in a known state: SENT messages in T1, all consumed by CG, whose member stays."""

    def __init__(self, java: Driver, namesrv: Server, broker: Server, folder: Path) -> None:
        self.java = java
        self.flavour = broker.flavour
        self.namesrv = namesrv.address
        self.broker = broker.address
        self.folder = folder
        self.sent: list[dict[str, Any]] = []
        self.clients: dict[str, str] = {}

    def mqadmin(self, verb: str, *words: str) -> str:
        """What the command prints, with the servers' addresses as NAMESRV and BROKER."""
        printed = self.java.mqadmin(verb, "-n", self.namesrv, *words)
        return printed.replace(self.namesrv, "NAMESRV").replace(self.broker, "BROKER").strip()

    def routed(self, topic: str) -> bytes:
        """The name server's route of a topic, b"" if none; quicker than the command."""
        answer = call(self.namesrv, 105, {"topic": topic})
        assert answer is not None
        return answer[1] if answer[0]["code"] == 0 else b""

    def consumed(self) -> int:
        """Sum of the group's offsets in T1."""
        printed = self.mqadmin("consumerProgress", "-g", "CG")
        rows = table(printed) if "#Topic" in printed else []  # at first it prints an error
        return sum(int(row["Consumer Offset"]) for row in rows if row["Topic"] == "T1")

    def fill(self) -> None:
        common = {"namesrv": self.namesrv, "topic": "T1"}
        self.clients["p"] = self.java("producer", name="p", group="PG", **common)["clientId"]
        sending = {"name": "p", "topic": "T1", "count": SENT, "keys": "k", "oneKey": 1, "tags": "a"}
        self.sent = self.java("send", **sending)["results"]
        answer = self.java("consumer", name="c", group="CG", expression="a || b", **common)
        self.clients["c"] = answer["clientId"]
        assert len(self.java("dump", name="c", min=SENT, timeout=60_000)["messages"]) == SENT
        until(lambda: self.consumed() == SENT)  # the offsets are stored every five seconds
        self.java("send", name="p", topic="unread")
        until(lambda: self.routed("unread"))


@pytest.fixture(scope="module", params=flavours())
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp(f"mqadmin-{request.param}")
    settings = dict(SETTINGS)
    if request.param == "apache":
        settings["timerWheelEnable"] = "true"  # Apache's deleteTopic throws without it
    namesrv = start_namesrv(request.param, folder / "namesrv")
    broker = java = None
    try:
        broker = start_broker(request.param, folder / "broker", namesrv.address, settings=settings)
        # A JVM of its own: sendMessage and queryMsgByUniqueKey keep their client, which they shut
        # down: each works once in a JVM.
        java = Driver("5.5.0", folder / "java")
        found = Cluster(java, namesrv, broker, folder)
        found.fill()
        yield found
    finally:
        if java is not None:
            java.stop()
        for server in (broker, namesrv):
            if server is not None:
                server.discard()


def until(condition: Callable[[], object]) -> None:
    """Wait until it is true."""
    end = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)


def columns(header: str) -> list[str]:
    """The names of a table's columns; each begins with '#'."""
    return [name.strip() for name in header.split("#")[1:]]


def table(printed: str) -> list[dict[str, str]]:
    """The rows under the first line with columns; two blanks or more separate values."""
    lines = printed.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("#"))
    names = columns(lines[start])
    rows = []
    for line in lines[start + 1 :]:
        values = re.split(r"\s{2,}", line.strip())
        if len(values) != len(names):
            break
        rows.append(dict(zip(names, values, strict=True)))
    return rows


def labels(printed: str, separator: str = ":") -> dict[str, str]:
    """Lines `name<separator> value`."""
    pairs = (line.split(separator, 1) for line in printed.splitlines() if separator in line)
    return {pair[0].strip(): pair[1].strip() for pair in pairs}


def compare(cluster: Cluster, what: str, value: Any) -> None:
    """`value` is what Apache's servers gave when expected/mqadmin.json was recorded."""
    known = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    if RECORD and cluster.flavour == "apache":
        known[what] = value
        EXPECTED.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    assert value == known[what]


@pytest.mark.feature("admin", client="Java 5.5.0")
def test_cluster_list(cluster: Cluster) -> None:
    printed = cluster.mqadmin("clusterList")
    compare(cluster, "clusterList columns", columns(printed.splitlines()[0]))
    (row,) = table(printed)
    same = {"Cluster Name", "Broker Name", "BID", "Addr", "Version", "ACTIVATED"}
    assert {name: value for name, value in row.items() if name in same} == {
        "Cluster Name": "DefaultCluster",
        "Broker Name": "broker-a",
        "BID": "0",
        "Addr": "BROKER",
        "Version": "V5_5_0",
        "ACTIVATED": "true",
    }
    assert re.fullmatch(r"\d+-0\(0\.0w, 0\.0, 0\.0\)", row["Timer(Progress)"])
    assert re.fullmatch(r"[\d.]+\(0,\d+ms\)", row["InTPS(LOAD)"])
    assert 0 < float(row["SPACE"]) < 1
    (totals,) = table(cluster.mqadmin("clusterList", "-m"))
    compare(cluster, "clusterList -m columns", list(totals))
    assert (totals["InTotalYest"], totals["OutTotalYest"]) == ("0", "0")
    assert int(totals["InTotalToday"]) >= SENT + 1
    assert int(totals["OutTotalToday"]) >= SENT


@pytest.mark.feature("admin", client="Java 5.5.0")
def test_topic_list(cluster: Cluster) -> None:
    ours = {"T1", "unread", "%RETRY%CG"}
    listed = set(cluster.mqadmin("topicList").split())
    assert ours <= listed
    compare(cluster, "topicList", sorted(listed - APACHES_TOPICS - {"sent"}))
    printed = cluster.mqadmin("topicList", "-c").splitlines()
    compare(cluster, "topicList -c columns", columns(printed[0]))
    rows = {tuple(line.split()) for line in printed[1:]}
    assert ("DefaultCluster", "T1", "CG") in rows
    assert ("DefaultCluster", "unread") in rows
    assert {row[1] for row in rows} == {
        topic for topic in listed if not topic.startswith("%RETRY%")
    }


@pytest.mark.feature("admin", client="Java 5.5.0")
def test_topic_route(cluster: Cluster) -> None:
    printed = cluster.mqadmin("topicRoute", "-t", "T1")
    assert json.loads(re.sub(r"(\s)(\d+):", r'\1"\2":', printed)) == {
        "brokerDatas": [
            {
                "brokerAddrs": {"0": "BROKER"},
                "brokerName": "broker-a",
                "cluster": "DefaultCluster",
                "enableActingMaster": False,
            }
        ],
        "filterServerTable": {},
        "queueDatas": [
            {
                "brokerName": "broker-a",
                "perm": 6,
                "readQueueNums": 4,
                "topicSysFlag": 0,
                "writeQueueNums": 4,
            }
        ],
    }
    (row,) = table(cluster.mqadmin("topicRoute", "-t", "T1", "-l"))
    assert row == {
        "ClusterName": "DefaultCluster",
        "BrokerName": "broker-a",
        "BrokerAddrs": "{0=BROKER}",
        "ReadQueue": "4",
        "WriteQueue": "4",
        "Perm": "6",
    }


@pytest.mark.feature("admin", client="Java 5.5.0")
def test_topic_status(cluster: Cluster) -> None:
    printed = cluster.mqadmin("topicStatus", "-t", "T1")
    rows = table(printed)
    assert [list(row.values())[:4] for row in rows] == [
        ["broker-a", str(queue), "0", str(count)] for queue, count in per_queue(cluster)
    ]
    compare(cluster, "topicStatus columns", list(rows[0]))
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d [\d:]{8},\d{3}", r["Last Updated"]) for r in rows)
    assert re.search(r"^Topic Put TPS: [\d.]+$", printed, re.MULTILINE)


def per_queue(cluster: Cluster) -> list[tuple[int, int]]:
    """Every queue of T1 and how many of the first messages it got."""
    ids = [result["queueId"] for result in cluster.sent]
    return [(queue, ids.count(queue)) for queue in range(4)]


@pytest.mark.feature("admin", client="Java 5.5.0")
def test_update_topic(cluster: Cluster) -> None:
    everywhere = ["-c", "DefaultCluster", "-t", "made", "-r", "5", "-w", "3"]
    compare(cluster, "updateTopic -c", cluster.mqadmin("updateTopic", *everywhere))
    one = ["-b", cluster.broker, "-t", "readable", "-r", "2", "-w", "2", "-p", "4"]
    typed = ["-a", "+message.type=NORMAL"]
    compare(cluster, "updateTopic -b", cluster.mqadmin("updateTopic", *one, *typed))
    route = ["topicRoute", "-l", "-t"]
    until(lambda: cluster.routed("made") and cluster.routed("readable"))
    (made,) = table(cluster.mqadmin(*route, "made"))
    assert (made["ReadQueue"], made["WriteQueue"], made["Perm"]) == ("5", "3", "6")
    (readable,) = table(cluster.mqadmin(*route, "readable"))
    assert (readable["ReadQueue"], readable["WriteQueue"], readable["Perm"]) == ("2", "2", "4")
    cluster.mqadmin("updateTopic", *everywhere[:4], "-r", "2", "-w", "2")
    until(lambda: b'"writeQueueNums":2' in cluster.routed("made"))
    wrong = cluster.mqadmin("updateTopic", "-b", cluster.broker, "-t", "not/this", "-r", "1")
    compare(cluster, "updateTopic of a wrong name", cause(wrong))
    for topic in ("made", "readable"):
        cluster.mqadmin("deleteTopic", "-c", "DefaultCluster", "-t", topic)


def cause(printed: str) -> str:
    """The first line of the innermost exception of a stack trace, without its class."""
    lines = printed.splitlines()
    last = max(i for i, line in enumerate(lines) if line.startswith("Caused by:"))
    return lines[last].split(": ", 2)[2]


@pytest.mark.feature("admin", client="Java 5.5.0")
def test_delete_topic(cluster: Cluster) -> None:
    cluster.mqadmin("updateTopic", "-c", "DefaultCluster", "-t", "short")
    until(lambda: cluster.routed("short"))
    printed = cluster.mqadmin("deleteTopic", "-c", "DefaultCluster", "-t", "short")
    compare(cluster, "deleteTopic", printed)
    until(lambda: not cluster.routed("short"))
    compare(cluster, "topicRoute afterwards", cause(cluster.mqadmin("topicRoute", "-t", "short")))
    assert "short" not in cluster.mqadmin("topicList").split()


@pytest.mark.feature("admin", client="Java 5.5.0")
def test_update_sub_group(cluster: Cluster) -> None:
    everywhere = ["-c", "DefaultCluster", "-g", "made", "-r", "7", "-q", "2", "-d", "true"]
    compare(cluster, "updateSubGroup -c", cluster.mqadmin("updateSubGroup", *everywhere))
    one = ["-b", cluster.broker, "-g", "stopped", "-s", "false", "-m", "true", "-i", "3"]
    compare(cluster, "updateSubGroup -b", cluster.mqadmin("updateSubGroup", *one))
    for group in ("made", "stopped"):
        stored = cluster.mqadmin("getConsumerConfig", "-g", group)
        compare(cluster, f"getConsumerConfig of {group}", labels(stored, "="))
        deleted = cluster.mqadmin("deleteSubGroup", "-b", cluster.broker, "-g", group)
        compare(cluster, f"deleteSubGroup of {group}", deleted)


@pytest.mark.feature("admin", client="Java 5.5.0")
def test_ha_status(cluster: Cluster) -> None:
    status = labels(cluster.mqadmin("brokerStatus", "-b", cluster.broker))
    lines = cluster.mqadmin("haStatus", "-b", cluster.broker).splitlines()
    assert lines[0] == "#MasterAddr\tBROKER"
    assert int(lines[1].split()[1]) >= int(status["commitLogMaxOffset"])
    assert lines[2:4] == ["#SlaveNum\t0", "#InSyncSlaveNum\t0"]
    assert len(lines) == 5 and lines[4].startswith("#SlaveAddr")


@pytest.mark.feature("admin", client="Java 5.5.0")
def test_broker_status(cluster: Cluster) -> None:
    status = labels(cluster.mqadmin("brokerStatus", "-b", cluster.broker))
    compare_keys(cluster, "brokerStatus keys", status, OUR_STATUS_KEYS)
    assert status["brokerVersionDesc"] == "V5_5_0"
    assert status["brokerActive"] == "true"
    count, size = int(status["putMessageTimesTotal"]), int(status["putMessageSizeTotal"])
    assert count == int(status["msgPutTotalTodayNow"]) >= SENT + 1
    assert int(status["msgGetTotalTodayNow"]) >= SENT
    assert int(status["commitLogMaxOffset"]) == size > 200 * count  # whole records, not bodies
    assert float(status["putMessageAverageSize"]) == pytest.approx(size / count)
    assert abs(int(status["bootTimestamp"]) / 1000 - time.time()) < 600
    assert abs(int(status["earliestMessageTimeStamp"]) / 1000 - time.time()) < 600
    assert re.fullmatch(r"\[ 0 days, 0 hours, \d+ minutes, \d+ seconds \]", status["runtime"])
    assert 0 < float(status["commitLogDiskRatio"]) < 1
    fixed = ["dispatchBehindBytes", "commitLogMinOffset", "putMessageFailedTimes"]
    fixed += ["startAcceptSendRequestTimeStamp", "remainTransientStoreBufferNumbs"]
    fixed += [key for key in status if key.endswith("QueueCapacity") and key not in OUR_STATUS_KEYS]
    compare_values(cluster, "brokerStatus values", {key: status[key] for key in fixed})
    whole = cluster.mqadmin("brokerStatus", "-c", "DefaultCluster").splitlines()
    assert len(whole) == len(status)
    assert all(line.startswith("BROKER ") for line in whole)


def compare_keys(cluster: Cluster, what: str, found: dict[str, str], ours: set[str]) -> None:
    """Every key stands under Apache's name, but for those of `ours`."""
    keys = [key for key in found if "/" not in key]  # one key holds the path of the log
    if cluster.flavour == "apache":
        compare(cluster, what, sorted(keys))
    known = set(json.loads(EXPECTED.read_text())[what])
    assert {key for key in keys if not key.startswith(OUR_TASKS)} - known <= ours
    assert not known & ours
    if what == "brokerStatus keys":
        assert not known - set(keys), "what Apache shows, we show"


def compare_values(cluster: Cluster, what: str, found: dict[str, str]) -> None:
    """Every value that both have is Apache's; null in the file means: of the machine or the test."""
    if RECORD and cluster.flavour == "apache":
        own = re.compile(r"/|NAMESRV|BROKER|\d+\.\d+\.\d+\.\d+")
        kept = {key: None if own.search(value) else value for key, value in found.items()}
        for key in kept:
            if key.endswith("ThreadPoolNums") or key in {"listenPort", "haListenPort"}:
                kept[key] = None
        compare(cluster, what, kept)
    known = json.loads(EXPECTED.read_text())[what]
    pairs = {key: (value, known.get(key)) for key, value in found.items()}
    assert not {k: v for k, v in pairs.items() if v[1] is not None and v[0] != v[1]}


@pytest.mark.feature("admin", "lag", client="Java 5.5.0")
def test_consumer_progress(cluster: Cluster) -> None:
    printed = cluster.mqadmin("consumerProgress", "-g", "CG")
    rows = [row for row in table(printed) if row["Topic"] == "T1"]
    compare(cluster, "consumerProgress -g columns", list(rows[0]))
    assert [list(row.values())[:7] for row in rows] == [
        ["T1", "broker-a", str(queue), str(count), str(count), "0", "0"]
        for queue, count in per_queue(cluster)
    ]
    sums = labels(printed.split("\n\n")[1])
    assert sorted(sums) == ["Consume Diff Total", "Consume Inflight Total", "Consume TPS"]
    assert (sums["Consume Diff Total"], sums["Consume Inflight Total"]) == ("0", "0")
    clients = table(cluster.mqadmin("consumerProgress", "-g", "CG", "-t", "T1", "-s", "true"))
    ip = cluster.clients["c"].split("@")[0]
    assert {row["Client IP"] for row in clients} == {ip}
    groups = {row["Group"]: row for row in table(cluster.mqadmin("consumerProgress"))}
    compare(cluster, "consumerProgress columns", list(groups["CG"]))
    del groups["CG"]["TPS"]
    assert list(groups["CG"].values()) == ["CG", "1", "V5_5_0", "PUSH", "CLUSTERING", "0"]


@pytest.mark.feature("admin", client="Java 5.5.0")
def test_consumer_connection(cluster: Cluster) -> None:
    printed = cluster.mqadmin("consumerConnection", "-g", "CG")
    (client,) = table(printed)
    compare(cluster, "consumerConnection columns", list(client))
    assert re.fullmatch(r"127\.0\.0\.1:\d+", client.pop("ClientAddr"))
    assert list(client.values()) == [cluster.clients["c"], "JAVA", "V5_5_0"]
    below = printed.split("Below is subscription:\n")[1]
    assert [list(row.values()) for row in table(below)] == [["%RETRY%CG", "*"], ["T1", "a || b"]]
    assert labels(below) == {
        "ConsumeType": "CONSUME_PASSIVELY",
        "MessageModel": "CLUSTERING",
        "ConsumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
    }
    missing = cluster.mqadmin("consumerConnection", "-g", "nobody")
    compare(cluster, "consumerConnection of nobody", cause(missing))


@pytest.mark.feature("admin", client="Java 5.5.0")
def test_producer_connection(cluster: Cluster) -> None:
    (line,) = cluster.mqadmin("producerConnection", "-g", "PG", "-t", "T1").splitlines()
    number, client, address, language, version = line.split()
    assert (number, client) == ("0001", cluster.clients["p"])
    assert re.fullmatch(r"127\.0\.0\.1:\d+", address)
    assert (language, version) == ("JAVA", "V5_5_0")
    missing = cluster.mqadmin("producerConnection", "-g", "nobody", "-t", "T1")
    compare(cluster, "producerConnection of nobody", cause(missing))


@pytest.mark.feature("admin", client="Java 5.5.0")
def test_get_broker_config(cluster: Cluster) -> None:
    printed = cluster.mqadmin("getBrokerConfig", "-b", cluster.broker)
    assert printed.splitlines()[0] == "============BROKER============"
    settings = labels("\n".join(printed.splitlines()[1:]), " = ")
    compare_keys(cluster, "getBrokerConfig keys", settings, OUR_SETTINGS | {"haMasterAddress"})
    # At Apache's, what these tests set themselves.
    for key in OUR_DEFAULTS if cluster.flavour != "apache" else ("enablePropertyFilter",):
        del settings[key]
    compare_values(cluster, "getBrokerConfig values", settings)


@pytest.mark.feature("admin", client="Java 5.5.0")
def test_send_message(cluster: Cluster) -> None:
    words = ["-t", "sent", "-p", "hello", "-k", "kk", "-c", "a"]
    printed = cluster.mqadmin("sendMessage", *words)
    (row,) = table(printed)
    compare(cluster, "sendMessage columns", list(row))
    assert (row["Broker Name"], row["Send Result"]) == ("broker-a", "SEND_OK")
    assert int(row["QID"]) < 4
    by_key = ("queryMsgByKey", "-t", "sent", "-k", "kk")
    until(lambda: row["MsgId"] in cluster.mqadmin(*by_key))  # the index follows the log
    (found,) = cluster.java("unique", name="p", topic="sent", id=row["MsgId"])["messages"]
    assert (found["body"], found["tags"], found["keys"]) == ("hello", "a", "kk")
    assert found["queueId"] == int(row["QID"])


@pytest.mark.feature("admin", "query", client="Java 5.5.0")
def test_query_msg_by_id_and_unique_key(cluster: Cluster) -> None:
    sent = cluster.sent[2]
    words = ["-t", "T1", "-i"]
    by_id = labels(cluster.mqadmin("queryMsgById", *words, sent["offsetMsgId"]))
    compare(cluster, "queryMsgById labels", list(by_id))
    by_unique = labels(cluster.mqadmin("queryMsgByUniqueKey", *words, sent["msgId"]))
    compare(cluster, "queryMsgByUniqueKey labels", list(by_unique))
    assert by_id.pop("OffsetID") == sent["offsetMsgId"]
    assert by_id == by_unique
    assert int(sent["offsetMsgId"][16:], 16) == int(by_id["CommitLog Offset"])
    assert by_id["Topic"] == "T1"
    assert (by_id["Tags"], by_id["Keys"]) == ("[a]", "[k]")
    assert int(by_id["Queue ID"]) == sent["queueId"]
    assert int(by_id["Queue Offset"]) == sent["queueOffset"]
    assert (by_id["Reconsume Times"], by_id["System Flag"]) == ("0", "0")
    assert by_id["Born Host"].startswith("127.0.0.1:")
    assert by_id["Store Host"] == "BROKER"
    properties = by_id["Properties"].strip("{}").split(", ")
    unique = f"UNIQ_KEY={sent['msgId']}"
    assert unique in properties
    compare(cluster, "properties of a message", sorted(p for p in properties if p != unique))
    tracks = cluster.mqadmin("queryMsgById", *words, sent["offsetMsgId"]).splitlines()
    assert tracks[-1] == ("MessageTrack [consumerGroup=CG, trackType=CONSUMED, exceptionDesc=null]")


@pytest.mark.feature("admin", "query", client="Java 5.5.0")
def test_query_msg_by_key(cluster: Cluster) -> None:
    printed = cluster.mqadmin("queryMsgByKey", "-t", "T1", "-k", "k").splitlines()
    compare(cluster, "queryMsgByKey columns", columns(printed[0]))
    rows = [line.split() for line in printed[1:]]
    assert [row[:3] for row in rows] == [
        [sent["msgId"], str(sent["queueId"]), str(sent["queueOffset"])] for sent in cluster.sent
    ]
