"""Cold reads limited by group, asked for by raw requests: who is refused, who waits, and what operators are shown.

With ROQUETTE_INTEROP_PROVE=1 on Apache's broker, too.
"""

import json
import struct
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.interop.conftest import PROVE, SETTINGS
from tests.interop.peers import call, start_broker, start_namesrv
from tests.interop.ways import connect

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

PROVEN = [pytest.param("apache", marks=pytest.mark.long)] if PROVE else []
COLD = {
    "coldDataFlowControlEnable": "true",
    "accessMessageInMemoryHotRatio": "0",
    "cgColdReadThreshold": "1",
}
TOPIC = {
    "topic": "T", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
}  # fmt: skip
SENT = 4
SOON_S = 60.0


def send(address: str) -> None:
    fields = {
        "a": "p", "b": "T", "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1700000000000", "h": "0", "i": "",
        "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    answer = call(address, 310, fields, b"hello")
    assert answer is not None and answer[0]["code"] == 0, answer


def pull(address: str, group: str) -> tuple[int, str | None, bytes]:
    fields = {
        "consumerGroup": group, "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    answer = call(address, 11, fields)
    assert answer is not None
    return answer[0]["code"], answer[0].get("remark"), answer[1]


def heartbeat(group: str, kind: str) -> bytes:
    subscription = {"topic": "T", "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1}
    consumer = {
        "groupName": group, "consumeType": kind, "messageModel": "CLUSTERING", "unitMode": False,
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [subscription],
    }  # fmt: skip
    body = json.dumps({"clientID": group, "consumerDataSet": [consumer], "producerDataSet": []})
    head = json.dumps({"code": 34, "language": "JAVA", "version": 493, "opaque": 1, "flag": 0})
    text, data = head.encode(), body.encode()
    return struct.pack(">ii", 4 + len(text) + len(data), len(text)) + text + data


def sizes(records: bytes) -> list[int]:
    found, position = [], 0
    while position < len(records):
        found.append(int.from_bytes(records[position : position + 4], "big"))
        position += found[-1]
    return found


@pytest.mark.parametrize("flavour", ["roquette", *PROVEN])
def test_who_reads_too_much_of_the_logs_cold_part(flavour: str, tmp_path: Path) -> None:
    with ExitStack() as started:
        namesrv = start_namesrv(flavour, tmp_path / "namesrv")
        started.callback(namesrv.discard)
        settings = SETTINGS | COLD
        broker = start_broker(flavour, tmp_path / "broker", namesrv.address, settings=settings)
        started.callback(broker.discard)
        address = broker.address

        def shown() -> dict[str, Any]:
            answer = call(address, 2003)
            assert answer is not None and answer[0]["code"] == 0
            found: dict[str, Any] = json.loads(answer[1])
            return found

        assert call(address, 17, TOPIC) is not None
        for _ in range(SENT):
            send(address)
        for group, kind in (("push", "CONSUME_PASSIVELY"), ("pull", "CONSUME_ACTIVELY")):
            member = started.enter_context(connect(address))
            member.sendall(heartbeat(group, kind))
            assert member.recv(1)
        # An interval of 5 s may end between any two requests: ask until one refuses.
        end = time.monotonic() + SOON_S
        while (found := pull(address, "push"))[0] == 0:
            assert sizes(found[2]), "all of them"
            assert time.monotonic() < end
        assert found[:2] == (
            2,
            "This consumer group is reading cold data. It has been flow control",
        )
        info = shown()
        assert list(info) == [
            "runtimeTable",
            "configTable",
            "cgColdReadThreshold",
            "globalColdReadThreshold",
            "globalAcc",
        ]
        assert info["cgColdReadThreshold"] == 1
        reader = info["runtimeTable"]["push"]
        assert list(reader) == ["coldAcc", "createTimeMills", "lastColdReadTimeMills"]
        # One of a pull consumer waits, and gets one message.
        end = time.monotonic() + SOON_S
        while True:
            assert time.monotonic() < end
            began = time.monotonic()
            code, _, records = pull(address, "pull")
            assert code == 0
            if len(sizes(records)) == 1:
                break
            assert len(sizes(records)) == SENT
        assert time.monotonic() - began > 2.5
        # An operator lets it read more.
        assert call(address, 2001, None, b"push=1000000\n") is not None
        assert shown()["configTable"] == {"push": 1_000_000}
        assert [pull(address, "push")[0] for _ in range(3)] == [0, 0, 0]
        assert call(address, 2002, None, b"push") is not None
        assert shown()["configTable"] == {}
