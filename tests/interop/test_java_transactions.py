"""Apache's TransactionMQProducer and request-reply, 4.9.8 and 5.5.0: commit, roll back, checks, kills, refusals."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.bench import create_topic
from tests.interop.conftest import Cluster, flavours
from tests.interop.driver import ClientError, Driver
from tests.interop.peers import Server, call, start_broker, start_namesrv

from roquette.message.properties import decode_properties, encode_properties
from roquette.message.record import decode_records
from roquette.message.record_layout import StoredRecord

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

HALF, LOST = "RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
SETTINGS = {
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "transactionCheckMax": "3",
    "transactionOpBatchInterval": "200",
    "autoCreateTopicEnable": "true",
}
COMMIT, ROLLBACK = 8, 12


@pytest.fixture(scope="module", params=flavours())
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Servers whose checks come each second."""
    folder = tmp_path_factory.mktemp(f"transactions-{request.param}")
    namesrv = start_namesrv(request.param, folder / "namesrv")
    try:
        broker = start_broker(request.param, folder / "broker", namesrv.address, settings=SETTINGS)
        try:
            yield Cluster(request.param, namesrv, broker, folder)
        finally:
            broker.discard()
    finally:
        namesrv.discard()


@contextlib.contextmanager
def producing(
    java: Driver, namesrv: Server, name: str, group: str, topic: str | None = None
) -> Iterator[str]:
    """A TransactionMQProducer; one that is told a topic asks for its route, and so finds the broker."""
    java("tproducer", name=name, namesrv=namesrv.address, group=group, topic=topic)
    try:
        yield name
    finally:
        java("tdrop", name=name)


@contextlib.contextmanager
def reading(
    java: Driver, namesrv: Server, name: str, topic: str
) -> Iterator[Callable[..., list[Any]]]:
    """A lite pull consumer of a topic; called, it gives what has come."""
    java("lite", name=name, namesrv=namesrv.address, group=f"G_{name}", topic=topic)
    try:
        yield lambda count, timeout=50_000: java("poll", name=name, min=count, timeout=timeout)[
            "messages"
        ]
    finally:
        java("stop", name=name)


def queue_of(broker: Server, topic: str, queue_id: int = 0) -> list[StoredRecord]:
    """Every record of a queue, as the broker gives them to a raw pull."""
    found: list[StoredRecord] = []
    while True:
        fields = {
            "consumerGroup": "TOOLS_CONSUMER",
            "topic": topic,
            "queueId": str(queue_id),
            "queueOffset": str(len(found)),
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        answer = call(broker.address, 11, fields)
        assert answer is not None
        if answer[0]["code"] != 0:
            return found
        found += decode_records(answer[1], True)


def lost(broker: Server, topic: str) -> list[StoredRecord]:
    """What was discarded of a topic."""
    return [
        record
        for record in queue_of(broker, LOST)
        if decode_properties(record.properties).get("REAL_TOPIC") == topic
    ]


def until(probe: Callable[[], Any], timeout_s: float = 60) -> Any:
    """What `probe` gives, once it gives something."""
    end = time.monotonic() + timeout_s
    while not (found := probe()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.1)
    return found


@pytest.mark.also("closed")
@pytest.mark.feature("transactions")
def test_commit_rollback_and_checks(java: Driver, servers: Cluster, name: str) -> None:
    topic, group = f"T_{name}", f"PG_{name}"
    common: dict[str, Any] = {"name": name, "topic": topic, "tags": "red"}
    with producing(java, servers.namesrv, name, group):
        sent = java(
            "tsend", **common, body="now", local="commit", count=5, keys="k", flag=7,
            # 4.9.8 drops the delay, 5.5.0 refuses it.
            delay=3 if java.version == "4.9.8" else None,
        )  # fmt: skip
        java("tsend", **common, body="never", local="rollback", count=5)
        java("tsend", **common, body="later", local="unknown", check="commit", count=3, keys="k")
        java("tsend", **common, body="third", local="unknown", check="commit", **{"from": 2})
        java("tsend", **common, body="back", local="unknown", check="rollback", count=2)
        java("tsend", **common, body="lost", local="unknown", check="unknown", property={"x": "ü"})
        java("tsend", **common, body="big", local="commit", size=9000)
        results = sent["results"]
        assert [(r["status"], r["state"]) for r in results] == [("SEND_OK", "COMMIT_MESSAGE")] * 5
        wanted = {*(f"now-{i}" for i in range(5)), *(f"later-{i}" for i in range(3)), "third-0"}
        with reading(java, servers.namesrv, name, topic) as poll:
            found = poll(10)
            by_body = {m["body"]: m for m in found if m["size"] < 9000}
            assert set(by_body) == wanted and len(found) == 10
            [record] = until(lambda: lost(servers.broker, topic))
            assert poll(1, 1500) == []
        first = by_body["now-0"]
        assert (first["tags"], first["keys"], first["flag"]) == ("red", "k-0", 7)
        assert first["msgId"] == results[0]["msgId"] and first["sysFlag"] & 0xC == COMMIT
        assert (first["topic"], first["queueId"]) == (topic, results[0]["queueId"])
        named = first["properties"]
        assert (named["TRAN_MSG"], named["PGROUP"]) == ("true", group)
        assert "REAL_TOPIC" not in named and "REAL_QID" not in named
        assert named["__transactionId__"] == first["msgId"] and "DELAY" not in named
        assert by_body["third-0"]["properties"]["TRANSACTION_CHECK_TIMES"] in ("2", "3")
        checks = java("tchecks", name=name)["checks"]
        counts: dict[str, int] = {}
        for check in checks:
            counts[check["body"]] = counts.get(check["body"], 0) + 1
            assert check["topic"] == topic and check["tags"] == "red"
            assert check["transactionId"] == check["properties"]["UNIQ_KEY"]
        # As often as it takes; again where an answer took longer than a second, three times at most.
        least = {"third-0": 2, "lost-0": 3, "back-0": 1, "back-1": 1}
        least |= {f"later-{i}": 1 for i in range(3)}
        # On a busy machine a check may overtake an end, which nobody answers.
        ended = {body for body in counts if body.startswith(("now-", "never-", "big-"))}
        assert set(counts) - ended == set(least)
        assert all(least.get(body, 1) <= count <= 3 for body, count in counts.items()), counts
        assert record.body == b"lost-0"
        of_lost = decode_properties(record.properties)
        assert (of_lost["x"], of_lost["TRANSACTION_CHECK_TIMES"]) == ("ü", "3")


@pytest.mark.feature("transactions")
def test_another_producer_of_the_group_is_asked(java: Driver, servers: Cluster, name: str) -> None:
    """#386: it has sent nothing yet; its heartbeat alone makes it known."""
    topic, group = f"T_{name}", f"PG_{name}"
    create_topic(servers, topic)
    with (
        producing(java, servers.namesrv, f"{name}_2", group, topic) as second,
        reading(java, servers.namesrv, name, topic) as poll,
    ):  # it is there before: three checks, one a second, would else be over before a busy machine has started it
        with producing(java, servers.namesrv, f"{name}_1", group) as first:
            java("tsend", name=first, topic=topic, local="unknown", check="commit", count=3)
        assert sorted(m["body"] for m in poll(3)) == ["m-0", "m-1", "m-2"]
        asked = [check["body"] for check in java("tchecks", name=second)["checks"]]
        assert set(asked) == {"m-0", "m-1", "m-2"} and len(asked) <= 9, asked


@pytest.mark.feature("transactions")
def test_an_own_immunity_time(java: Driver, servers: Cluster, name: str) -> None:
    if servers.flavour == "apache":
        pytest.skip("counts passes within the immunity time as checks, and discards it unasked")
    topic, group = f"T_{name}", f"PG_{name}"
    with producing(java, servers.namesrv, name, group):
        began = time.monotonic()
        java("tsend", name=name, topic=topic, local="unknown", check="commit", immunity=4)
        with reading(java, servers.namesrv, name, topic) as poll:
            assert [m["body"] for m in poll(1)] == ["m-0"]
        assert time.monotonic() - began > 3.5  # others are asked after a second or two


def half_message(broker: Server, topic: str, key: str) -> dict[str, str]:
    """Send one as a frame; what ends it."""
    # Immune: no pass of checks puts it elsewhere while the test is at it.
    named = {"UNIQ_KEY": key, "TRAN_MSG": "true", "PGROUP": f"PG_{topic}"}
    named["CHECK_IMMUNITY_TIME_IN_SECONDS"] = "60"
    fields = {
        "a": f"PG_{topic}",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": "1",
        "f": "4",
        "g": str(int(time.time() * 1000)),
        "h": "0",
        "i": encode_properties(named),
        "j": "0",
        "k": "false",
    }
    answer = call(broker.address, 310, fields, b"body")
    assert answer is not None and answer[0]["code"] == 0, answer
    told = answer[0]["extFields"]
    assert told["queueId"] == "1"
    return {
        "producerGroup": f"PG_{topic}",
        "tranStateTableOffset": told["queueOffset"],
        "commitLogOffset": str(int(told["msgId"][-16:], 16)),
        "commitOrRollback": str(COMMIT),
        "fromTransactionCheck": "false",
        "msgId": key,
        "transactionId": key,
    }


def test_ends_that_are_refused(servers: Cluster, name: str) -> None:
    fields = half_message(servers.broker, name, "key-1")

    def end(**changes: str) -> tuple[int, str | None]:
        answer = call(servers.broker.address, 37, fields | changes)
        assert answer is not None
        return answer[0]["code"], answer[0].get("remark")

    for kind in (COMMIT, ROLLBACK):
        wrong = {"commitOrRollback": str(kind)}
        assert end(**wrong, producerGroup="other") == (1, "The producer group wrong")
        table = str(int(fields["tranStateTableOffset"]) + 1)
        refusal = (1, "The transaction state table offset wrong")
        assert end(**wrong, tranStateTableOffset=table) == refusal
        refusal = (1, "Find prepared transaction message failed")
        assert end(**wrong, commitLogOffset="8000000") == refusal
    assert queue_of(servers.broker, name, 1) == []
    assert end() == (0, None)
    [record] = queue_of(servers.broker, name, 1)
    assert record.prepared_offset == int(fields["commitLogOffset"])
    assert record.sys_flag & 0xC == COMMIT
    if servers.flavour == "roquette":  # Apache's broker commits it again
        assert end()[0] == 1 and len(queue_of(servers.broker, name, 1)) == 1


@pytest.mark.feature("transactions")
def test_checks_of_a_discarded_message_begin_anew(
    java: Driver, servers: Cluster, name: str
) -> None:
    topic, group = f"T_{name}", f"PG_{name}"
    with producing(java, servers.namesrv, name, group):
        # Three unknown checks discard it; asked a fourth time, the producer knows.
        java("tsend", name=name, topic=topic, local="unknown", check="commit", **{"from": 4})
        [record] = until(lambda: lost(servers.broker, topic))
        message_id = record.store_host.hex().upper() + f"{record.physical_offset:016X}"
        answer = call(servers.broker.address, 323, {"topic": LOST, "msgId": message_id})
        assert answer is not None and answer[0]["code"] == 0, answer
        with reading(java, servers.namesrv, name, topic) as poll:
            assert [m["body"] for m in poll(1)] == ["m-0"]
    answer = call(servers.broker.address, 323, {"topic": LOST, "msgId": "7" * 32})
    text = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."
    assert answer is not None and (answer[0]["code"], answer[0]["remark"]) == (1, text)


@pytest.mark.feature("transactions")
def test_a_killed_broker_forgets_no_half_message(java: Driver, tmp_path: Path, name: str) -> None:
    """kill -9 between half and end: what the producer says afterwards, and what it is asked, ends them."""
    topic, group = f"T_{name}", f"PG_{name}"
    namesrv = start_namesrv("roquette", tmp_path / "namesrv")
    settings = SETTINGS | {"transactionCheckMax": "15"}  # until the producer finds the broker again
    broker = start_broker("roquette", tmp_path / "broker", namesrv.address, settings=settings)
    try:
        with producing(java, namesrv, name, group):
            common: dict[str, Any] = {"name": name, "topic": topic}
            java("tsend", **common, body="before", local="commit", count=10)
            java("tsend", **common, body="asked", local="unknown", check="commit", count=10)
            java("tsendlater", **common, body="said", local="commit", check="commit", count=5)
            wanted = {
                f"{w}-{i}"
                for w, n in (("before", 10), ("asked", 10), ("said", 5))
                for i in range(n)
            }
            # By their names: checks put copies of those that are open into this queue.
            until(lambda: {record.body.decode() for record in queue_of(broker, HALF)} >= wanted)
            broker.process.kill()
            broker = start_broker(
                "roquette", tmp_path / "broker", namesrv.address, settings=settings
            )
            time.sleep(1.5)  # checks begin before the producers have decided
            java("trelease", name=name)
            with reading(java, namesrv, name, topic) as poll:
                found = [m["body"] for m in poll(25)] + [m["body"] for m in poll(1, 3000)]
            assert sorted(found) == sorted(wanted)
            assert lost(broker, topic) == []
    finally:
        broker.discard()
        namesrv.discard()


@pytest.mark.long
@pytest.mark.parametrize("first", ["apache", "roquette"])
def test_the_store_changes_hands(java: Driver, tmp_path: Path, name: str, first: str) -> None:
    """Half messages of one broker are ended at the other, on the same store.

    Apache's runs a last pass when it stops, and forgets that: its copies and what they stand for are both open.
    """
    second = {"apache": "roquette", "roquette": "apache"}[first]
    topic, group = f"T_{name}", f"PG_{name}"
    quiet = SETTINGS | {"transactionCheckInterval": "600000"}
    namesrv = start_namesrv("roquette", tmp_path / "namesrv")
    store = {"storePathRootDir": str(tmp_path / "store")}
    store["storePathCommitLog"] = str(tmp_path / "store" / "commitlog")
    wanted: list[str] = []
    asking = SETTINGS | {"transactionCheckMax": "15"}  # checks begin before the producer is there
    turns = ((first, quiet), (second, asking))
    try:
        for turn, (flavour, settings) in enumerate(turns):
            folder = tmp_path / f"{turn}"
            broker = start_broker(flavour, folder, namesrv.address, settings=settings | store)
            try:
                with producing(java, namesrv, f"{name}_{turn}", group):
                    common = {"name": f"{name}_{turn}", "topic": topic, "body": f"{turn}"}
                    java("tsend", **common, local="rollback", count=3)
                    java("tsend", **common, local="commit", count=3)
                    java("tsend", **common, local="unknown", check="commit", count=6)
                    wanted += [f"{turn}-{i}" for count in (3, 6) for i in range(count)]
                    if settings is asking:
                        with reading(java, namesrv, f"{name}_{turn}", topic) as poll:
                            found = poll(len(wanted), 20000)
                            while more := poll(1, 3000):
                                found += more
                        bodies = sorted(m["body"] for m in found)
                        assert bodies == sorted(wanted) or (
                            first == "apache" and set(bodies) == set(wanted)
                        )
            finally:
                assert broker.stop() in (0, 143)
    finally:
        namesrv.discard()


@contextlib.contextmanager
def replying(java: Driver, namesrv: Server, name: str, topic: str, **more: Any) -> Iterator[None]:
    """A consumer that answers requests."""
    java("producer", name=f"{name}_r", namesrv=namesrv.address, group=f"RG_{name}")
    java(
        "replier", name=name, producer=f"{name}_r", namesrv=namesrv.address, topic=topic,
        group=f"G_{name}", **more,
    )  # fmt: skip
    try:
        yield
    finally:
        java("replierstop", name=name)
        java("drop", name=f"{name}_r")


def answered(asker: Driver, broker: Server, **words: str) -> dict[str, Any]:
    """The answer to a request. Asked again once: Java's client leaves out the heartbeat that tells the broker where
    the answer goes when another heartbeat is on its way (sendHeartbeatToAllBrokerWithLock). The next one comes half a
    minute later; then the broker lists the producer (GET_PRODUCER_CONNECTION_LIST)."""
    try:
        return asker("request", timeout=15000, **words)
    except ClientError as error:
        if "wait reply message timeout" not in str(error):
            raise
    group = {"producerGroup": f"PG_{words['name']}"}
    until(lambda: (told := call(broker.address, 204, group)) and not told[0]["code"])
    return asker("request", timeout=20000, **words)


@pytest.mark.also("closed")
@pytest.mark.parametrize("asking", ["4.9.8", "5.5.0"])
@pytest.mark.feature("request-reply")
def test_a_request_gets_its_reply(
    drivers: Callable[[str], Driver], java: Driver, servers: Cluster, name: str, asking: str
) -> None:
    topic = f"T_{name}"
    asker = drivers(asking)
    asker("producer", name=name, namesrv=servers.namesrv.address)
    try:
        # The topic is there before the consumer looks; who asks learns of it by asking, and says who it is.
        java("producer", name=f"{name}_t", namesrv=servers.namesrv.address)
        java("send", name=f"{name}_t", topic=topic)
        java("drop", name=f"{name}_t")
        with replying(java, servers.namesrv, name, topic, size=9000):
            for number in range(3):
                question = {"name": name, "topic": topic, "body": f"q{number}"}
                answer = answered(asker, servers.broker, **question)
                assert answer["size"] == 9000 + len(f"reply to q{number}")
                assert answer["topic"] == "DefaultCluster_REPLY_TOPIC"
                assert "PUSH_REPLY_TIME" in answer["properties"]
            done = [r for r in java("replies", name=name)["replies"] if "request" in r]
            assert {r["status"] for r in done} == {"SEND_OK"}
            assert {r["request"]["CLUSTER"] for r in done} == {"DefaultCluster"}
    finally:
        asker("drop", name=name)


@pytest.mark.feature("request-reply", "refusals")
def test_who_asked_has_gone(java: Driver, servers: Cluster, name: str) -> None:
    topic = f"T_{name}"
    client_id = java("producer", name=name, namesrv=servers.namesrv.address)["clientId"]
    java("send", name=name, topic=topic)
    with replying(java, servers.namesrv, name, topic, wait=3000):  # time enough to go
        with pytest.raises(Exception, match="RequestTimeoutException"):
            java("request", name=name, topic=topic, body="q", timeout=1000)
        java("drop", name=name)
        [failure] = until(
            lambda: [r for r in java("replies", name=name)["replies"] if r.get("remark")
                     and client_id in r["remark"]]
        )  # fmt: skip
        assert failure["code"] == 1
        assert failure["remark"] == f"push reply message fail, channel of <{client_id}> not found."
