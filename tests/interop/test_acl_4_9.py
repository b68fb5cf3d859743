"""ACL 1.0 with Apache's clients 4.9.8: the same plain_acl.yml, the same requests, the same decisions as Apache's broker.

ROQUETTE_INTEROP_PROVE=1 runs the decisions at Apache's 4.9.7 as well (the newest whose broker Maven Central has; its acl
module is that of 4.9.8). What is stricter here than there is marked `ours`.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.interop.conftest import flavours
from tests.interop.driver import Driver, JavaError
from tests.interop.peers import (
    Server,
    call,
    start_apache_broker,
    start_roquette_broker,
    start_roquette_namesrv,
)
from tests.interop.ways import signed

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

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


@dataclass
class Guarded:
    """A broker with FILE, and where it has it."""

    flavour: str
    namesrv: Server
    broker: Server
    file: Path

    def ask(
        self,
        who: tuple[str, str],
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> tuple[int, str, dict[str, Any], bytes]:
        """Code, remark, ext fields and body of the answer."""
        wanted = fields or {}
        found = call(
            self.broker.address, code, signed(who, wanted, body) if who[0] else wanted, body
        )
        assert found is not None
        header, data = found
        return header["code"], header.get("remark") or "", header.get("extFields") or {}, data


@pytest.fixture(scope="module", params=flavours())
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    """A broker with ACL 1.0; the name server asks nobody."""
    folder = tmp_path_factory.mktemp(f"acl-{request.param}")
    file = folder / "broker" / "conf" / "plain_acl.yml"
    file.parent.mkdir(parents=True)
    file.write_text(FILE)
    namesrv = start_roquette_namesrv(folder / "namesrv")
    wanted = {"aclEnable": "true", "autoCreateTopicEnable": "false"}
    try:
        if request.param == "apache":
            broker = start_apache_broker(
                folder / "broker", namesrv.address, settings=wanted, version="4.9.7"
            )
        else:
            broker = start_roquette_broker(
                folder / "broker", namesrv.address, settings=wanted | {"aclFile": str(file)}
            )
        made = Guarded(request.param, namesrv, broker, file)
        try:
            for topic in ("T_acl", "T_both", "T_secret", "T_new"):
                assert made.ask(OPERATOR, 17, topic_fields(topic))[0] == 0
            yield made
        finally:
            broker.discard()
    finally:
        namesrv.discard()


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
OURS = "stricter than Apache's"
# Who asks what, and what is wrong with it; "" is allowed.
CASES: dict[str, tuple[tuple[str, str], int, dict[str, str], bytes, str]] = {
    "send": (WRITER, 310, send("T_acl"), b"x", ""),
    "send, first form": (WRITER, 10, {
        "producerGroup": "P", "topic": "T_acl", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
        "queueId": "0", "sysFlag": "0", "bornTimestamp": "1", "flag": "0"}, b"x", ""),
    "send unsigned": (NOBODY, 310, send("T_acl"), b"x", "No accessKey is configured"),
    "send unknown": (MALLORY, 310, send("T_acl"), b"x", "No acl config for mallory"),
    "send forged": (FORGED, 310, send("T_acl"), b"x", "Check signature failed for accessKey=writer-app"),
    "send to a topic without right": (WRITER, 310, send("T_new"), b"x", "No default permission for topic:T_new"),
    "send without PUB": (READER, 310, send("T_acl"), b"x", "No default permission for topic:T_acl"),
    "send to a retry topic": (WRITER, 310, send("%RETRY%G_acl", "G_acl"), b"x", "No default permission for group:G_acl"),
    "send as admin": (OPERATOR, 310, send("T_new"), b"x", ""),
    "send from a listed address": (LISTED, 310, send("T_acl"), b"x", ""),
    "pull": (READER, 11, pull("T_acl", "G_acl"), b"", ""),
    "pull what is denied": (READER, 11, pull("T_secret", "G_acl"), b"", "No default permission for topic:T_secret"),
    "pull by another group": (READER, 11, pull("T_acl", "G_other"), b"", "No default permission for group:G_other"),
    "heartbeat": (READER, 34, {}, heartbeat("G_acl", "T_acl"), ""),
    "heartbeat of another group": (READER, 34, {}, heartbeat("G_other", "T_acl"), "No default permission for group:G_other"),
    "heartbeat of a producer": (WRITER, 34, {}, b'{"clientID":"p","producerDataSet":[{"groupName":"P"}],"consumerDataSet":[]}', ""),
    "commit": (READER, 15, OFFSET, b"", ""),
    "commit by another group": (READER, 15, OFFSET | {"consumerGroup": "G_other"}, b"", "No default permission for group:G_other"),
    "members": (READER, 38, {"consumerGroup": "G_none"}, b"", "No default permission for group:G_none"),
    "unregister": (READER, 35, {"clientID": "c9", "consumerGroup": "G_acl"}, b"", ""),
    "create a topic": (WRITER, 17, topic_fields("T_mine"), b"", "Need admin permission for request code=17, but accessKey=writer-app is not"),
    "change settings": (READER, 25, {}, b"flushDiskType=ASYNC_FLUSH", "Need admin permission for request code=25, but accessKey=reader-app is not"),
    "delete a topic": (WRITER, 215, {"topic": "T_acl"}, b"", "Need admin permission for request code=215, but accessKey=writer-app is not"),
    "delete a group": (READER, 207, {"groupName": "G_acl"}, b"", "Need admin permission for request code=207, but accessKey=reader-app is not"),
    "settings unsigned": (NOBODY, 26, {}, b"", "No accessKey is configured"),
    "settings": (READER, 26, {}, b"", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_decisions_are_those_of_apaches_broker(guarded: Guarded, case: str) -> None:
    who, code, fields, body, wrong = CASES[case]
    answer, remark, _, _ = guarded.ask(who, code, fields, body)
    if wrong:
        assert answer == 1, remark
        assert remark.partition(", org.apache")[0] == (
            f"org.apache.rocketmq.acl.common.AclException: {wrong}"
        )
    else:
        assert "AclException" not in remark, (answer, remark)


STRICTER: dict[str, tuple[tuple[str, str], int, dict[str, str], str]] = {
    "an address administers nothing": (("listed-app", "guessed"), 17, topic_fields("T_listed"), "Check signature failed"),
    "accounts are an admin's": (WRITER, 50, {"accessKey": "mallory", "secretKey": "12345678", "admin": "true"}, "Need admin"),
    "offsets of others": (WRITER, 222, {"topic": "T_acl", "group": "G_acl", "timestamp": "-1", "isForce": "true"}, "Need admin"),
    "batches need PUB": (READER, 320, send("T_acl"), "No default permission for topic:T_acl"),
    "secrets are not listed": (READER, 54, {}, "Need admin"),
}  # fmt: skip


@pytest.mark.parametrize("case", STRICTER)
def test_what_apache_lets_through_and_we_do_not(guarded: Guarded, case: str) -> None:
    who, code, fields, wrong = STRICTER[case]
    if guarded.flavour == "apache":
        if code in (50, 222):
            pytest.skip("it would do it")
        assert "AclException" not in guarded.ask(who, code, fields)[1]
        return
    answer, remark, _, _ = guarded.ask(who, code, fields)
    assert answer == 1 and wrong in remark


def keys(who: tuple[str, str]) -> dict[str, str]:
    return {"accessKey": who[0], "secretKey": who[1]}


def test_java_sends_and_reads_with_its_keys(
    guarded: Guarded, drivers: Callable[[str], Driver]
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
    "who, said", [(FORGED, "Check signature failed"), (READER, "No default permission")]
)
def test_java_is_refused_at_once(
    guarded: Guarded, drivers: Callable[[str], Driver], who: tuple[str, str], said: str
) -> None:
    java = drivers("4.9.8")
    java("producer", name="acl-f", namesrv=guarded.namesrv.address, **keys(who))
    try:
        with pytest.raises(JavaError) as caught:
            java("send", name="acl-f", topic="T_both", count=1)
        assert said in str(caught.value) and caught.value.code == 1
    finally:
        java("drop", name="acl-f")


def test_mqadmin_changes_accounts(guarded: Guarded, drivers: Callable[[str], Driver]) -> None:
    java = drivers("4.9.8")
    conf = java.process.folder / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "logback_tools.xml").write_text("<configuration></configuration>")

    def mqadmin(command: str, *words: str, who: tuple[str, str] = OPERATOR) -> str:
        (conf / "tools.yml").write_text(f"accessKey: {who[0]}\nsecretKey: {who[1]}\n")
        arguments = [command, "-n", guarded.namesrv.address, "-b", guarded.broker.address, *words]
        answer = java("mqadmin", word={f"{place:02}": word for place, word in enumerate(arguments)})
        return str(answer["out"]) + str(answer["err"])

    new = ("mqadmins-own", "12345678")
    assert guarded.ask(new, 310, send("T_acl"), b"x")[0] == 1
    words = ("-a", new[0], "-s", new[1], "-t", "T_acl=PUB,T_both=SUB", "-i", "DENY", "-m", "false")
    assert "success" in mqadmin("updateAclConfig", *words)
    assert guarded.ask(new, 310, send("T_acl"), b"x")[0] == 0
    assert guarded.ask(new, 310, send("T_both"), b"x")[0] == 1
    refused = mqadmin("updateAclConfig", *words, who=READER)
    if guarded.flavour == "roquette":
        assert "Need admin permission" in refused
    shown = mqadmin("clusterAclConfigVersion")
    assert "plain_acl.yml" in shown and guarded.broker.name in shown and "success" in shown
    assert "success" in mqadmin("updateGlobalWhiteAddr", "-g", "10.10.103.*,10.9.9.9")
    code, _, _, body = guarded.ask(OPERATOR, 54)
    listed = json.loads(body)
    assert code == 0 and listed["globalWhiteAddrs"] == ["10.10.103.*", "10.9.9.9"]
    mine = next(one for one in listed["plainAccessConfigs"] if one["accessKey"] == new[0])
    assert mine["topicPerms"] == ["T_acl=PUB", "T_both=SUB"]
    if guarded.flavour == "roquette":
        assert {one["secretKey"] for one in listed["plainAccessConfigs"]} == {"******"}
    assert "success" in mqadmin("deleteAclConfig", "-a", new[0])
    assert guarded.ask(new, 310, send("T_acl"), b"x")[0] == 1
    text = guarded.file.read_text()
    assert "10.9.9.9" in text and new[0] not in text and "operator" in text


def test_an_edit_of_the_file_counts_without_a_restart(guarded: Guarded) -> None:
    late = ("late-account", "secret-of-late")
    added = f"accounts:\n  - accessKey: {late[0]}\n    secretKey: {late[1]}\n    admin: true\n"
    guarded.file.write_text(FILE.replace("accounts:\n", added))
    end = time.monotonic() + 60
    while guarded.ask(late, 26)[0] != 0:
        assert time.monotonic() < end, guarded.broker.process.tail()
        time.sleep(0.1)
    guarded.file.write_text("accounts: [")
    time.sleep(2.5)
    assert guarded.ask(late, 26)[0] == 0  # what is broken is not taken
