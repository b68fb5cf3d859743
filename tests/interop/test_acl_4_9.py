"""Apache's clients 4.9.8, signing as for access control 1.0, at users and rules made of their plain_acl.yml.

`roquette acl import` makes them. That access control 2.0 decides as Apache's does is shown by test_access_peers.py.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.interop.conftest import Cluster
from tests.interop.driver import Driver, JavaError
from tests.interop.peers import call, start_broker, start_roquette_namesrv
from tests.interop.ways import ADMIN, instead_of_the_administrator

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

NO_PERMISSION = 16
OPERATOR = ("operator", "secret-of-operator")
WRITER = ("writer-app", "secret-of-writer")
READER = ("reader-app", "secret-of-reader")
LISTED = ("listed-app", "secret-of-listed")
MALLORY = ("mallory", "secret-of-mallory")
FORGED = ("writer-app", "guessed-secret")
NOBODY = ("", "")

FILE = """
globalWhiteRemoteAddresses:
  - 10.10.103.*
accounts:
  - accessKey: operator
    secretKey: secret-of-operator
    whiteRemoteAddress:
    admin: true
  - accessKey: writer-app
    secretKey: secret-of-writer
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms:
      - T_acl=PUB
      - T_both=PUB|SUB
  - accessKey: reader-app
    secretKey: secret-of-reader
    defaultTopicPerm: SUB
    defaultGroupPerm: DENY
    topicPerms: [T_secret=DENY]
    groupPerms: [G_acl=SUB, G_other=DENY]
  - accessKey: listed-app
    secretKey: secret-of-listed
    whiteRemoteAddress: 127.0.0.*
    admin: true
"""


def ask(
    cluster: Cluster,
    who: tuple[str, str],
    code: int,
    fields: dict[str, str],
    body: bytes = b"",
) -> tuple[int, str]:
    """Code and remark of the broker's answer."""
    with instead_of_the_administrator(cluster.broker.address, who if who[0] else None):
        found = call(cluster.broker.address, code, fields, body)
    assert found is not None
    return found[0]["code"], found[0].get("remark") or ""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker with the users and rules of FILE; the name server asks nobody."""
    folder = tmp_path_factory.mktemp("acl")
    file, login = folder / "plain_acl.yml", folder / "login"
    file.write_text(FILE)
    login.write_text("accessKey={}\nsecretKey={}\n".format(*ADMIN))
    kept = {"kvConfigPath": str(folder / "kvConfig.json")}  # its users are beside it
    namesrv = start_roquette_namesrv(folder / "namesrv", settings=kept)
    try:
        settings = {"autoCreateTopicEnable": "false"}
        broker = start_broker(
            "roquette-signed", folder / "broker", namesrv.address, settings=settings
        )
        try:
            made = Cluster("roquette", namesrv, broker, folder)
            imported = roquette(made, login, "acl", "import", str(file))
            assert imported.count("white lists have no like") == 2, imported
            for topic in ("T_acl", "T_both", "T_secret", "T_new"):
                assert ask(made, OPERATOR, 17, topic_fields(topic))[0] == 0
            yield made
        finally:
            broker.discard()
    finally:
        namesrv.discard()


def roquette(cluster: Cluster, login: Path, *words: str) -> str:
    """What a verb says, on both outputs."""
    program = Path(sys.executable).parent / "roquette"
    command = [str(program), *words, "--namesrv", cluster.namesrv.address, "--login", str(login)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def topic_fields(topic: str) -> dict[str, str]:
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }


def send(topic: str, group: str = "P") -> dict[str, str]:
    return {
        "a": group, "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": str(int(time.time() * 1000)),
        "h": "0", "i": "", "j": "0", "k": "false", "l": "16",
    }  # fmt: skip


def pull(topic: str, group: str) -> dict[str, str]:
    return {
        "consumerGroup": group, "topic": topic, "queueId": "0", "queueOffset": "0", "maxMsgNums": "1",
        "sysFlag": "0", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0",
    }  # fmt: skip


def heartbeat(group: str, topic: str) -> bytes:
    subscription = {"topic": topic, "subString": "*", "classFilterMode": False, "subVersion": 1, "tagsSet": [], "codeSet": [], "expressionType": "TAG"}  # fmt: skip
    consumer = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False, "subscriptionDataSet": [subscription]}  # fmt: skip
    return json.dumps(
        {"clientID": "c1", "producerDataSet": [], "consumerDataSet": [consumer]}
    ).encode()


OFFSET = {"consumerGroup": "G_acl", "topic": "T_acl", "queueId": "0", "commitOffset": "0"}
NO_RIGHT = "has no permission to access"
# Who asks what, and what is wrong with it; "" is allowed.
CASES: dict[str, tuple[tuple[str, str], int, dict[str, str], bytes, str]] = {
    "send": (WRITER, 310, send("T_acl"), b"x", ""),
    "send, first form": (WRITER, 10, {
        "producerGroup": "P", "topic": "T_acl", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
        "queueId": "0", "sysFlag": "0", "bornTimestamp": "1", "flag": "0"}, b"x", ""),
    "send unsigned": (NOBODY, 310, send("T_acl"), b"x", "username cannot be null."),
    "send unknown": (MALLORY, 310, send("T_acl"), b"x", "User:mallory is not found."),
    "send forged": (FORGED, 310, send("T_acl"), b"x", "check signature failed."),
    "send to a topic without right": (WRITER, 310, send("T_new"), b"x", f"User:writer-app {NO_RIGHT} Topic:T_new"),
    "send without PUB": (READER, 310, send("T_acl"), b"x", f"User:reader-app {NO_RIGHT} Topic:T_acl"),
    "send as admin": (OPERATOR, 310, send("T_new"), b"x", ""),
    "pull": (READER, 11, pull("T_acl", "G_acl"), b"", ""),
    "pull what is denied": (READER, 11, pull("T_secret", "G_acl"), b"", f"User:reader-app {NO_RIGHT} Topic:T_secret"),
    "pull by another group": (READER, 11, pull("T_acl", "G_other"), b"", f"User:reader-app {NO_RIGHT} Group:G_other"),
    "heartbeat": (READER, 34, {}, heartbeat("G_acl", "T_acl"), ""),
    "heartbeat of another group": (READER, 34, {}, heartbeat("G_other", "T_acl"), f"User:reader-app {NO_RIGHT} Group:G_other"),
    "heartbeat of a producer": (WRITER, 34, {}, b'{"clientID":"p","producerDataSet":[{"groupName":"P"}],"consumerDataSet":[]}', ""),
    "commit": (READER, 15, OFFSET, b"", ""),
    "commit by another group": (READER, 15, OFFSET | {"consumerGroup": "G_other"}, b"", f"User:reader-app {NO_RIGHT} Group:G_other"),
    "members": (READER, 38, {"consumerGroup": "G_none"}, b"", f"User:reader-app {NO_RIGHT} Group:G_none"),
    "unregister": (READER, 35, {"clientID": "c9", "consumerGroup": "G_acl"}, b"", ""),
    "create a topic": (WRITER, 17, topic_fields("T_mine"), b"", f"User:writer-app {NO_RIGHT} Topic:T_mine"),
    "delete a topic": (WRITER, 215, {"topic": "T_acl"}, b"", f"User:writer-app {NO_RIGHT} Topic:T_acl"),
    "delete a group": (READER, 207, {"groupName": "G_acl"}, b"", f"User:reader-app {NO_RIGHT} Group:G_acl"),
    "an address is no proof": (("listed-app", "guessed"), 310, send("T_acl"), b"x", "check signature failed."),
    # what Apache lets through, and we do not
    "settings": (READER, 25, {}, b"flushDiskType=ASYNC_FLUSH", f"User:reader-app {NO_RIGHT} Cluster:"),
    "a retry topic is its group's": (WRITER, 310, send("%RETRY%G_acl", "G_acl"), b"x", f"User:writer-app {NO_RIGHT} Group:G_acl"),
    "offsets of others": (WRITER, 222, {"topic": "T_acl", "group": "G_acl", "timestamp": "-1", "isForce": "true"}, b"", f"User:writer-app {NO_RIGHT} "),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_the_accounts_of_4_9_may_after_the_import(guarded: Cluster, case: str) -> None:
    who, code, fields, body, wrong = CASES[case]
    answer, remark = ask(guarded, who, code, fields, body)
    if wrong:
        assert (answer, remark.startswith(wrong)) == (NO_PERMISSION, True), remark
    else:
        assert answer != NO_PERMISSION, remark


@pytest.mark.parametrize("code", [50, 51, 52, 53, 54])
def test_requests_of_access_control_1_are_answered_with_what_to_do(
    guarded: Cluster, code: int
) -> None:
    answer, remark = ask(guarded, OPERATOR, code, {"accessKey": "x"})
    assert (answer, "`roquette acl import conf/plain_acl.yml`" in remark) == (3, True), remark


def keys(who: tuple[str, str]) -> dict[str, str]:
    return {"accessKey": who[0], "secretKey": who[1]}


def test_java_sends_and_reads_with_its_keys(
    guarded: Cluster, drivers: Callable[[str], Driver]
) -> None:
    java, namesrv = drivers("4.9.8"), guarded.namesrv.address
    java("producer", name="acl-w", namesrv=namesrv, **keys(WRITER))
    java("lite", name="acl-r", namesrv=namesrv, group="G_acl", topic="T_both", **keys(READER))
    try:
        sent = java("send", name="acl-w", topic="T_both", count=4)["results"]
        assert [one["status"] for one in sent] == ["SEND_OK"] * 4
        found = java("poll", name="acl-r", min=4, timeout=50_000)["messages"]
        assert {one["msgId"] for one in found} == {one["msgId"] for one in sent}
    finally:
        java("stop", name="acl-r")
        java("drop", name="acl-w")


@pytest.mark.parametrize(
    "who, said", [(FORGED, "check signature failed."), (READER, "has no permission to access")]
)
def test_java_is_refused_at_once(
    guarded: Cluster, drivers: Callable[[str], Driver], who: tuple[str, str], said: str
) -> None:
    java = drivers("4.9.8")
    java("producer", name="acl-f", namesrv=guarded.namesrv.address, **keys(who))
    try:
        with pytest.raises(JavaError) as caught:
            java("send", name="acl-f", topic="T_both", count=1)
        assert said in str(caught.value) and caught.value.code == NO_PERMISSION
    finally:
        java("drop", name="acl-f")
