"""Sub-commands of mqadmin that say what Apache's say: run against a broker, and compared with Apache's own words."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Roquette
from tests.interop.mqadmin_commands import COMMANDS, facts

from roquette.cli.java_flags import flags_of
from roquette.cli.java_output import DIRECT
from roquette.errors import ClientError, ConfigError

OF_APACHE = json.loads(
    (Path(__file__).parents[1] / "interop" / "expected" / "mqadmin_commands.json").read_text()
)
BROKER = "create subscription group to {} success."


def address_of(roquette: Roquette) -> str:
    found: str = json.loads(roquette("cluster", "-o", "json").stdout)[0]["address"]
    return found


def mqadmin(roquette: Roquette, name: str, words: str) -> str:
    done = roquette("mqadmin", name, *words.split())
    assert done.exit_code == 0, (name, words, done.output, done.exception)
    return done.stdout


@pytest.mark.parametrize("name", ["updateTopic", "updateSubGroup", "wipeWritePerm", "addWritePerm"])
def test_they_say_what_apaches_tool_says_of_apaches_broker(
    roquette: Roquette, namesrv: str, name: str
) -> None:
    """The runs of the table of 89; the expected facts are Apache's, of two brokers, of which one is here."""
    (command,) = [one for one in COMMANDS if one.name == name]
    address = address_of(roquette)
    broker = json.loads(roquette("cluster", "-o", "json").stdout)[0]["broker"]
    for words, theirs in zip(command.runs, OF_APACHE[name], strict=True):
        asked = words.replace("broker-b", broker).format(a=address)
        printed = mqadmin(roquette, name, asked).replace(f"[{broker}]", "[broker-b]")
        printed = printed.replace(address, "BROKER_A").replace(namesrv, "NAMESRV")
        assert facts(command, printed) == [line for line in theirs if "BROKER_B" not in line]


def test_a_topic_gets_queues_apart_an_order_and_attributes(roquette: Roquette) -> None:
    address = address_of(roquette)
    name = json.loads(roquette("cluster", "-o", "json").stdout)[0]["broker"]
    asked = f"-b {address} -t apart -r 6 -w 2 -o true -u true --attributes +message.type=FIFO"
    assert mqadmin(roquette, "updateTopic", asked).splitlines() == [
        f"set broker orderConf. isOrder=true, orderConf=[{name}:2]",
        f"create topic to {address} success.",
        "TopicConfig [topicName=apart, readQueueNums=6, writeQueueNums=2, perm=RW-, topicFilterType=SINGLE_TAG, "
        "topicSysFlag=1, order=true, attributes={+message.type=FIFO}]",
    ]
    (row,) = json.loads(roquette("topic", "describe", "apart", "-o", "json").stdout)["brokers"]
    assert (row["read_queues"], row["write_queues"], row["perm"]) == (6, 2, "RW-")
    mqadmin(roquette, "updateTopic", "-c DefaultCluster -t apart -r 4 -w 4 -a -message.type")


def test_a_group_gets_all_its_settings(roquette: Roquette) -> None:
    address = address_of(roquette)
    policy = '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":5000,"max":7200000,"multiplier":2}}'
    asked = f"-b {address} -g all -s false -m true -d true -o true -q 3 -r 5 -i 1 -w 2 -a false -p {policy}"
    first, second = mqadmin(roquette, "updateSubGroup", asked).splitlines()
    assert first == BROKER.format(address)
    assert second == (
        "SubscriptionGroupConfig{groupName=all, consumeEnable=false, consumeFromMinEnable=true, "
        "consumeBroadcastEnable=true, consumeMessageOrderly=true, retryQueueNums=3, retryMaxTimes=5, "
        "groupRetryPolicy=GroupRetryPolicy{type=EXPONENTIAL, exponentialRetryPolicy=ExponentialRetryPolicy"
        "{initial=5000, max=7200000, multiplier=2}, customizedRetryPolicy=null}, brokerId=1, "
        "whichBrokerWhenConsumeSlowly=2, notifyConsumerIdsChangedEnable=false, groupSysFlag=0, "
        "consumeTimeoutMinute=15, subscriptionDataSet=null, attributes={}}"
    )
    assert "all" in roquette("group", "list", "-o", "json").stdout


def test_a_brokers_status_is_a_sorted_table(roquette: Roquette) -> None:
    address = address_of(roquette)
    lines = mqadmin(roquette, "brokerStatus", f"-b {address}").splitlines()
    assert lines == sorted(lines)
    keys = {line[:32] for line in lines}
    assert "brokerVersionDesc".ljust(32) in keys and "commitLogMaxOffset".ljust(32) in keys
    of_cluster = mqadmin(roquette, "brokerStatus", "-c DefaultCluster").splitlines()
    assert {line[:57] for line in of_cluster} == {f"{address:<24} {key}" for key in keys}


@pytest.mark.parametrize(
    ("name", "words", "text"),
    [
        ("updateTopic", "-b h:1", "-t is missing"),
        ("updateTopic", "-t T", "-b or -c is missing"),
        ("updateTopic", "-t T -b name", "not an address"),
        ("updateTopic", "-t T -b h:1", "no broker at h:1"),
        ("updateTopic", "-t T -c nowhere", "no cluster nowhere"),
        ("updateTopic", "-t T -b h:1 -r many", "-r many is not a number"),
        ("updateTopic", "-t T -b h:1 -a x=1", "attribute x=1"),
        ("updateTopic", "-t a/b -b h:1", "illegal characters"),
        ("updateSubGroup", "-g G -b h:1 -p {}x", "-p is not a retry policy"),
        ("brokerStatus", "-c nowhere", "no broker of cluster nowhere"),
        ("wipeWritePerm", "", "-b is missing"),
        ("addWritePerm", "-b b -c c", "-c is not understood"),
    ],
)
def test_what_cannot_be_done_is_said(roquette: Roquette, name: str, words: str, text: str) -> None:
    done = roquette("mqadmin", name, *words.split())
    assert isinstance(done.exception, ConfigError) and text in str(done.exception)


def test_a_silent_name_server_is_told_and_the_others_do_it(
    roquette: Roquette, namesrv: str
) -> None:
    done = roquette("mqadmin", "wipeWritePerm", "-b", "nobody", "-n", f"{namesrv};127.0.0.1:1")
    assert isinstance(done.exception, ClientError) and "127.0.0.1:1" in str(done.exception)
    assert done.stdout.splitlines() == [
        f"wipe write perm of broker[nobody] in name server[{namesrv}] OK, 0",
        "wipe write perm of broker[nobody] in name server[127.0.0.1:1] Failed",
    ]


def test_long_names_mean_their_own_letters() -> None:
    words = ["-attributes", "+a=b", "--notifyConsumerIdsChanged", "false", "-g", "G"]
    letters, long, _ = DIRECT["updateSubGroup"]
    assert flags_of(words, letters, long) == {"A": "+a=b", "a": "false", "g": "G"}
    letters, long, _ = DIRECT["updateTopic"]
    assert flags_of(["--attributes", "+a=b"], letters, long) == {"a": "+a=b"}
