"""The 89 sub-commands of Apache's mqadmin 5.5.0: how each is run here, and what comes of it.

docs/reference/mqadmin.md has the same table for people; tests/interop/test_mqadmin_commands.py runs every one of them and
compares what it prints with what it printed about Apache's servers.
"""

import re
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What a command gives about Roquette's servers."""

    SAME = "same facts"
    REFUSED = "refused"
    GROUPS = "with replication"


@dataclass(frozen=True)
class Command:
    """One sub-command, and the arguments it is run with, in the state that `Yard.fill` makes.

    Attributes:
        runs: blank-separated arguments of each run; {a} and {b} are brokers, {n} the name server, {files} a folder,
            {id}, {unique}, {queue} and {home} the first message sent, its queue and that queue's broker.
        skip: a regular expression of lines that are left out; the note says why.
        erase: a regular expression of what differs from run to run, left out within lines.
        note: what is different, or the reason of a refusal.
        differs: a regular expression of keys that may have other values; all others of the keys that both servers
            have are the same (settings and counters).
        files: the files it writes are compared, too.
    """

    number: int
    name: str
    runs: tuple[str, ...]
    outcome: Outcome = Outcome.SAME
    note: str = ""
    skip: str = ""
    erase: str = ""
    differs: str = ""
    files: str = ""


S, R, G = Outcome.SAME, Outcome.REFUSED, Outcome.GROUPS
ROCKSDB_TOPICS = r"RMQ_SYS_ROCKSDB_|rmq_sys_wheel_timer"
OWN_TOPICS = (
    "without Apache's RocksDB topics; the group of transactions is there before the first one"
)
OF_CLUSTER = "-c DefaultCluster"
RULE = "-s User:bob -r Topic:b* -a Pub -d Allow"
NO_CONTROLLER = "needs a name server with a controller; tests/interop/test_mqadmin_controller.py"

# In the order of the runs: those that change something have things of their own, those that spoil Apache's broker
# (static topics end its exportMetadata) come last.
COMMANDS: tuple[Command, ...] = (
    Command(1, "updateTopic", (f"{OF_CLUSTER} -t made -r 5 -w 3", "-b {a} -t one -p 4")),
    Command(2, "updateTopicList", ("-b {a} -f {files}/topics.json",)),
    Command(3, "deleteTopic", (f"-t made {OF_CLUSTER}",)),
    Command(4, "updateSubGroup", (f"{OF_CLUSTER} -g made -r 7 -q 2",)),
    Command(5, "updateSubGroupList", ("-b {a} -f {files}/groups.json",)),
    Command(6, "setConsumeMode", ("-b {a} -t T1 -g LG0 -m POP -q 3",)),
    Command(7, "deleteSubGroup", ("-b {a} -g LG1 -r true",)),
    Command(
        8,
        "updateBrokerConfig",
        ("-b {a} -k flushConsumerOffsetInterval -v 4000", "-b {a} -k maxMessageSize -v 4194304"),
    ),
    Command(9, "updateTopicPerm", ("-t L0 -b {a} -p 4", f"-t T1 {OF_CLUSTER} -p 6")),
    Command(10, "topicRoute", ("-t T1", "-t T1 -l", "-t nowhere")),
    Command(11, "topicStatus", ("-t T1", "-t nowhere")),
    Command(12, "topicClusterList", ("-t T1",)),
    Command(
        16,
        "brokerStatus",
        ("-b {a}",),
        differs=".*",
        note="Roquette shows more keys; tests/interop/test_mqadmin.py compares keys and values",
    ),
    Command(
        17,
        "queryMsgById",
        ("-t T1 -i {id}",),
    ),
    Command(
        18,
        "queryMsgByKey",
        ("-t T1 -k k",),
    ),
    Command(
        19,
        "queryMsgByUniqueKey",
        ("-t T1 -i {unique}",),
    ),
    Command(
        20,
        "queryMsgByOffset",
        ("-t T1 -b {home} -i {queue} -o 0",),
    ),
    Command(21, "queryMsgTraceById", ("-i {unique}",)),
    Command(
        22,
        "printMsg",
        ("-t T1",),
    ),
    Command(
        23,
        "printMsgByQueue",
        ("-t T1 -a broker-a -i 0 -p true -d true -f true",),
    ),
    Command(24, "sendMsgStatus", ("-b broker-a -c 2",)),
    Command(25, "brokerConsumeStats", ("-b {a}",)),
    Command(26, "producerConnection", ("-g PG -t T1", "-g nobody -t T1"), erase="BROKER_[AB]"),
    Command(27, "consumerConnection", ("-g CG", "-g nobody")),
    Command(28, "consumerProgress", ("-g CG",)),
    Command(29, "consumerStatus", ("-g CG",)),
    Command(30, "cloneGroupOffset", ("-s CG -d CG2 -t T1 -o true",)),
    Command(31, "producer", ("-b {a}",)),
    Command(
        32,
        "clusterList",
        ("", "-m"),
        erase=r"\d+-\d+(?=\()|(?<=broker-[ab] 0 0 )\d+",
        note="InTotalToday counts messages to topics named like brokers, too",
    ),
    Command(33, "topicList", ("", "-c"), skip=ROCKSDB_TOPICS + "|RMQ_SYS_TRANS_", note=OWN_TOPICS),
    Command(34, "updateKvConfig", ("-s N -k K -v V",)),
    Command(35, "deleteKvConfig", ("-s N -k K",)),
    Command(
        36,
        "wipeWritePerm",
        ("-b broker-b",),
        note="the count lacks Apache's RocksDB topics",
        erase=r"\d+$",
    ),
    Command(
        37,
        "addWritePerm",
        ("-b broker-b",),
        note="the count lacks Apache's RocksDB topics",
        erase=r"\d+$",
    ),
    Command(38, "resetOffsetByTime", ("-g CG -t T1 -s -1",)),
    Command(39, "skipAccumulatedMessage", ("-g CG -t T1",)),
    Command(
        40, "updateOrderConf", ("-t T1 -m put -v broker-a:4", "-t T1 -m get", "-t T1 -m delete")
    ),
    Command(41, "cleanExpiredCQ", ("-b {a}",)),
    Command(42, "deleteExpiredCommitLog", ("-b {a}",)),
    Command(43, "cleanUnusedTopic", ("-b {a}",)),
    Command(44, "startMonitoring", ("",)),
    Command(
        45,
        "statsAll",
        ("-t T1",),
        note="Roquette's CID_RMQ_SYS_TRANS is listed before the first transaction, Apache's after it",
    ),
    Command(
        46,
        "allocateMQ",
        ("-t T1 -i 1.1.1.1,2.2.2.2",),
        erase=r'"brokerName":"broker-.","queueId":\d',
    ),
    Command(47, "checkMsgSendRT", ("-t T1 -a 2 -s 16",), erase=r"(?<=true )\d+"),
    Command(48, "clusterRT", (f"{OF_CLUSTER} -a 1 -s 16 -i 1",), note="runs until it is ended"),
    Command(
        50, "updateNamesrvConfig", ("-k productEnvName -v test", "-k needWaitForService -v false")
    ),
    Command(
        49,
        "getNamesrvConfig",
        ("",),
        differs=r"ThreadPoolNums$|^listenPort$|^kvConfigPath$|^unRegister",
        note="without the settings of Netty; sizes of thread pools are what they are here: 1",
    ),
    Command(
        51,
        "getBrokerConfig",
        ("-b {a}",),
        differs=r"Port$|^storePath|^haTransferBatchSize$|^enablePropertyFilter$",
        note="every key that is served; two defaults differ (docs/reference/settings.md)",
    ),
    Command(52, "getConsumerConfig", ("-g CG",)),
    Command(53, "queryCq", ("-t T1 -q {queue} -i 0 -c 2 -b {at}",)),
    Command(54, "sendMessage", ("-t T1 -p hello -k kk",), erase=r"broker-[ab] \d"),
    Command(
        55,
        "consumeMessage",
        ("-t T1 -b broker-a -i 0 -o 0 -c 1",),
        erase=r"MAX_OFFSET=\d+",
    ),
    Command(
        58,
        "exportMetadata",
        (f"{OF_CLUSTER} -f {{files}}/topics -t", f"{OF_CLUSTER} -f {{files}}/all"),
        files="topics/topic.json all/metadata.json",
        erase=r'"order":(true|false)',
        note="without `order`, which follows updateOrderConf with a later registration",
    ),
    Command(
        59, "exportConfigs", (f"{OF_CLUSTER} -f {{files}}/configs",), files="configs/configs.json"
    ),
    Command(60, "exportMetrics", (f"{OF_CLUSTER} -f {{files}}/metrics",)),
    Command(
        76,
        "createUser",
        (
            "-b {a} -u bob -p b0b-secret1 -t Normal",
            "-b {b} -u bob -p b0b-secret1 -t Normal",
            "-b {a} -u carl -p carls-1 -t Normal",
        ),
    ),
    Command(77, "updateUser", ("-b {a} -u bob -s disable",)),
    Command(
        79,
        "getUser",
        ("-b {a} -u bob",),
        note="without the password (CVE-2024-23321)",
        erase="b0b-secret1|carls-1|null",
    ),
    Command(
        80,
        "listUser",
        ("-b {a}",),
        note="without the passwords (CVE-2024-23321)",
        erase="b0b-secret1|carls-1|null",
    ),
    Command(
        81,
        "copyUser",
        ("-f {a} -t {b} -u carl",),
        R,
        "passwords are not told (CVE-2024-23321): copy the file of users, or create them again",
    ),
    Command(82, "createAcl", (f"-b {{a}} {RULE} -i 10.0.0.1",)),
    Command(83, "updateAcl", (f"-b {{a}} {RULE} -i 10.0.0.2",)),
    Command(85, "getAcl", ("-b {a} -s User:bob",)),
    Command(86, "listAcl", ("-b {a}",)),
    Command(87, "copyAcl", ("-f {a} -t {b} -s User:bob",)),
    Command(84, "deleteAcl", ("-b {a} -s User:bob",)),
    Command(78, "deleteUser", ("-b {a} -u bob",)),
    Command(
        13,
        "addBroker",
        ("-c {a} -b /nowhere",),
        note="refused by both: neither is a broker container",
        erase=": Roquette has no broker containers",
    ),
    Command(
        14,
        "removeBroker",
        ("-c {a} -b DefaultCluster:broker-a:0",),
        note="refused by both: neither is a broker container",
        erase=": Roquette has no broker containers",
    ),
    Command(
        15,
        "resetMasterFlushOffset",
        ("-b {a} -o 0",),
        note="nothing at a master, of either kind; our replicas ask their master, and have nothing to set",
    ),
    Command(
        63,
        "haStatus",
        ("-b {a}",),
        G,
        "the same facts of replicas of both kinds; tests/interop/test_replication.py",
    ),
    Command(64, "getSyncStateSet", ("-a {n} -b broker-a",), G, NO_CONTROLLER),
    Command(65, "getBrokerEpoch", ("-b broker-a",), G, "of groups that elect their master"),
    Command(66, "getControllerMetaData", ("-a {n}",), G, NO_CONTROLLER),
    Command(67, "getControllerConfig", ("-a {n}",), G, NO_CONTROLLER),
    Command(
        68, "updateControllerConfig", ("-a {n} -k orderMessageEnable -v false",), G, NO_CONTROLLER
    ),
    Command(69, "electMaster", (f"-a {{n}} -b 1 -bn broker-a {OF_CLUSTER}",), G, NO_CONTROLLER),
    Command(
        70, "cleanBrokerMetadata", (f"-a {{n}} -bn broker-a {OF_CLUSTER} -b 2",), G, NO_CONTROLLER
    ),
    Command(
        61,
        "exportMetadataInRocksDB",
        ("-p /nowhere -t topics",),
        note="asks no server: it reads a directory",
    ),
    Command(71, "dumpCompactionLog", ("-f /nowhere",), note="asks no server: it reads a file"),
    Command(
        62,
        "exportPopRecord",
        ("-b {a} -d true",),
        note="there is nothing to move from RocksDB: the records are in the log, as in Apache's broker without it",
    ),
    Command(
        73,
        "updateColdDataFlowCtrGroupConfig",
        ("-b {a} -g CG -v 1024", f"{OF_CLUSTER} -g CG2 -v 2048"),
    ),
    Command(72, "getColdDataFlowCtrInfo", ("-b {a}", OF_CLUSTER)),
    Command(74, "removeColdDataFlowCtrGroupConfig", ("-b {a} -g CG", f"{OF_CLUSTER} -g CG2")),
    Command(
        75,
        "setCommitLogReadAheadMode",
        ("-b {a} -m 1", "-b {a} -m 7", f"{OF_CLUSTER} -m 0"),
    ),
    Command(
        88,
        "rocksDBConfigToJson",
        ("-b {a} -t topics",),
        note="Apache's broker without RocksDB says the same",
    ),
    Command(89, "checkRocksdbCqWriteProgress", (OF_CLUSTER,), R, "no RocksDB"),
    Command(56, "updateStaticTopic", (f"{OF_CLUSTER} -t S1 -qn 4",), R, "no static topics"),
    Command(57, "remappingStaticTopic", (f"{OF_CLUSTER} -t S1",), R, "no static topics"),
)

_SCRUBBED = (
    (r"\d{4}-\d\d-\d\d[ T#][\d:]{8}([.,:]\d+)?", "DATE"),
    (r"\b[0-9A-F]{24,64}\b", "ID"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"(?<![\d.])-?\d+\.\d+(E-?\d+)?(?![\d.])", "0.0"),
    (r"\d{9,}", "LONG"),
    (r"\d+ ?ms\b|(?<=rt=)\d+|#?(?<=PID: )\d+", "TIME"),
    (r"(?m)^\s*at .*\n|^\t\.\.\. \d+ more\n?", ""),  # where in the tool it happened
    (r"[ \t]+", " "),
)


def facts(command: Command, printed: str) -> list[str]:
    """What a run says, without times, ids and the order of lines."""
    for pattern, instead in (*_SCRUBBED, *([(command.erase, "")] if command.erase else [])):
        printed = re.sub(pattern, instead, printed)
    lines = [line.strip() for line in printed.splitlines()]
    if command.differs:
        lines = [f"{key.strip()}={rest.strip()}" for line in lines for key, rest in [split(line)]]
    return sorted(
        line for line in lines if line and not (command.skip and re.search(command.skip, line))
    )


def split(line: str) -> tuple[str, str]:
    """The key and the value of a line of settings or of counters."""
    key, _, rest = line.partition("=" if " = " in line else ":")
    return key, rest
