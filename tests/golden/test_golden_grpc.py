"""Our broker answers raw requests of the v5 protocol as Apache's proxy does, but for the differences listed here."""

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.golden.grpc_steps import SETTINGS, Said, replies
from tests.interop.peers import call, start_namesrv, start_roquette_broker

GOLDEN: dict[str, Said] = json.loads((Path(__file__).parent / "grpc" / "replies.json").read_text())
POLL_S = 0.5  # Apache's shortest poll is 5 s

# What we say instead, its status code, and why.
_NO_EXCEPTIONS = "no Java exception is told"
_NOT_FOUND = "a topic that is missing has no type to conflict with"
_BAD_HANDLE = "a handle that cannot be read is invalid, and no error of ours"
_ENTRIES = "each message of a batch has an entry"
_BY_HEART = "a client lives by its heartbeats, also after a restart (rocketmq-clients#1137)"
_NONE_SERVED = "there is none here either, in other words"
_NO_LITE = "there are no lite topics here"
DIFFERS: dict[str, tuple[str, str]] = {
    "routes: domain name": ("OK", "a client is told the address by which it came"),
    "clients: push consumer, unknown group": ("OK", "the group may still be made"),
    "clients: no client id": ("INVALID_ARGUMENT", "a stream that cannot go on ends"),
    "clients: heartbeat of nobody": ("OK", _BY_HEART),
    "clients: heartbeat after termination": ("OK", _BY_HEART),
    "clients: termination of nobody": ("OK", "it is gone, as was asked"),
    "sends: batch": ("OK", _ENTRIES),
    "sends: fifo batch": ("OK", _ENTRIES),
    "sends: fifo batch of two groups": ("OK", _ENTRIES),
    "sends: unknown topic": ("TOPIC_NOT_FOUND", _NOT_FOUND),
    "sends: topic 'RMQ_SYS_x'": ("TOPIC_NOT_FOUND", _NOT_FOUND),
    "sends: priority -1": ("INTERNAL_SERVER_ERROR", _NO_EXCEPTIONS),
    "transactions: commit again": ("INTERNAL_SERVER_ERROR", "the broker says what it knows"),
    "transactions: another topic": ("INTERNAL_SERVER_ERROR", "the broker says what it knows"),
    "receives: without settings": ("OK", "the group's configuration serves (rocketmq#8714)"),
    "receives: batch of -1": ("MESSAGE_NOT_FOUND", _NO_EXCEPTIONS),
    "receives: unknown topic": ("TOPIC_NOT_FOUND", _NO_EXCEPTIONS),
    "receives: unknown broker": ("OK", "one message later: one was received without settings"),
    "receives: queue 9": ("OK", "one message later: one was received without settings"),
    "receives: bad SQL": ("ILLEGAL_FILTER_EXPRESSION", "an expression that is wrong is illegal"),
    "receipts: ack of garbage": ("INVALID_RECEIPT_HANDLE", _BAD_HANDLE),
    "receipts: ack of an empty handle": ("INVALID_RECEIPT_HANDLE", _BAD_HANDLE),
    "receipts: ack of one good and one bad": ("MULTIPLE_RESULTS", _BAD_HANDLE),
    "receipts: change of garbage": ("INVALID_RECEIPT_HANDLE", _BAD_HANDLE),
    "receipts: forward of garbage": ("INVALID_RECEIPT_HANDLE", _BAD_HANDLE),
    "receipts: forward of an expired handle": ("OK", "OK is called OK"),
    "receipts: forward": ("OK", "OK is called OK"),
    "rest: recall from an unknown topic": ("TOPIC_NOT_FOUND", _NOT_FOUND),
    "rest: PullMessage": ("UNIMPLEMENTED", _NONE_SERVED),
    "rest: UpdateOffset": ("UNIMPLEMENTED", _NONE_SERVED),
    "rest: GetOffset": ("UNIMPLEMENTED", _NONE_SERVED),
    "rest: QueryOffset": ("UNIMPLEMENTED", _NONE_SERVED),
    "rest: SyncLiteSubscription": ("UNIMPLEMENTED", _NO_LITE),
    "rest: SyncLiteSubscription of a bad topic": ("UNIMPLEMENTED", _NO_LITE),
    "rest: lite push consumer": ("INVALID_ARGUMENT", _NO_LITE),
}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Said]]:
    """What a broker of ours says."""
    folder = tmp_path_factory.mktemp("golden-grpc")
    namesrv = start_namesrv("roquette", folder / "namesrv")
    try:
        quick = {"grpcClientConsumerMinLongPollingTimeoutMillis": str(int(POLL_S * 1000))}
        settings = {**SETTINGS, **quick}
        broker = start_roquette_broker(folder / "broker", namesrv.address, settings=settings)
        try:
            yield replies(broker.address, partial(call, broker.address), POLL_S)
        finally:
            broker.discard()
    finally:
        namesrv.discard()


def told(said: Said) -> Said:
    """Without what only Java says: the class of an exception before its text, and a link."""
    text = json.dumps(said)
    text = re.sub(r'"org\.apache\.rocketmq\.[\w.]+Exception: ', '"', text)
    text = re.sub(r"CODE: 17  DESC: (.*?)\\nFor more information[^\"]*", r"\1", text)
    found: Said = json.loads(text)
    return found


def code_of(said: Said) -> Any:
    """The first status code, or gRPC's own."""
    statuses = [reply["status"]["code"] for reply in said["replies"] if "status" in reply]
    return statuses[0] if said["grpc"] == "OK" and statuses else said["grpc"]


@pytest.mark.parametrize("name", GOLDEN)
def test_the_same_is_said(name: str, ours: dict[str, Said]) -> None:
    if name in DIFFERS:
        assert code_of(ours[name]) == DIFFERS[name][0], DIFFERS[name][1]
        assert told(ours[name]) != told(GOLDEN[name]), "no difference any more"
    else:
        assert told(ours[name]) == told(GOLDEN[name])


def test_each_difference_is_one_of_the_list() -> None:
    assert set(DIFFERS) <= set(GOLDEN)
