"""Well-formed requests that ask for what must not be: names, paths, settings, queues, answers nobody reads."""

import time
from pathlib import Path

import pytest
from tests.bad_input.conftest import Servers
from tests.bad_input.neighbour import Neighbour, wait_until
from tests.real_servers import (
    RawConnection,
    ServerProcess,
    broker_arguments,
    frame,
    pull_fields,
    send_fields,
    server,
)

MIB = 1 << 20
TRICKS = [
    "../../evil", "..", ".", "/etc/passwd", "a/b", "a\\b", "C:\\evil", "evil\0", "e vil", "a;b", "a$b",
    "ümlaut", "a" * 128, "a\nb", "%2e%2e%2fevil/", "topic\r\nINFO forged=line", "*", "~",
]  # fmt: skip


def files(store: Path) -> set[str]:
    """What lies beside and inside the store, logs of messages left out."""
    return {str(found.relative_to(store.parent)) for found in store.parent.rglob("*")}


@pytest.mark.promise("Security", "no name becomes a path before it was checked")
@pytest.mark.parametrize("topic", TRICKS)
def test_illegal_topic_names_make_no_topic_and_no_file(servers: Servers, topic: str) -> None:
    create = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    before = files(servers.store)
    with Neighbour(servers.broker), RawConnection(servers.broker.address) as connection:
        for code, ext in (
            (17, create),
            (310, send_fields(topic)),
            (11, pull_fields(topic, 0, 0)),
            (215, {"topic": topic}),
            (30, {"topic": topic, "queueId": 0}),
            (29, {"topic": topic, "queueId": 0, "timestamp": 0}),
            (
                12,
                {
                    "topic": topic,
                    "key": "../k",
                    "maxNum": 9,
                    "beginTimestamp": 0,
                    "endTimestamp": 1,
                },
            ),
        ):
            head, _ = connection.call(code, ext, b"x")
            assert head["code"] != 0 or code in (30, 29), (code, head)
    assert before <= files(servers.store), "a name deleted files"
    new = {name for name in files(servers.store) - before if "Neighbour" not in name}
    assert not [name for name in new if "evil" in name or "passwd" in name or topic in name]
    assert not Path("/tmp/evil").exists()
    for line in servers.broker.lines:
        assert not line.startswith("INFO forged"), "a name wrote its own log line"


def test_topics_cannot_be_made_by_a_pull_a_query_or_an_offset(servers: Servers) -> None:
    with RawConnection(servers.broker.address) as connection:
        assert connection.call(11, pull_fields("Nobody", 0, 0))[0]["code"] == 17
        assert connection.call(200, {"topic": "Nobody"})[0]["code"] != 0
        _, topics = connection.call(21, {})
    assert b"Nobody" not in topics


@pytest.mark.parametrize(
    "setting",
    [
        "storePathRootDir=/evil", "storePathCommitLog=/evil", "rocketmqHome=/evil",
        "brokerName=evil", "brokerIP1=203.0.113.9", "listenPort=1",
        "configBlackList=", "kvConfigPath=/evil", "messageStorePlugIn=java.lang.Runtime",
        "fetchNameSrvAddrByAddressServer=true", "tlsConfigFile=/evil", "noSuchKey=1",
        "sendThreadPoolQueueCapacity=many", "maxMessageSize=-5",
    ],
)  # fmt: skip
def test_settings_with_paths_addresses_and_nonsense_cannot_be_changed(
    servers: Servers, setting: str
) -> None:
    """CVE-2023-33246 and CVE-2023-37582: settings that name a path or command, changed from outside."""
    key, _, value = setting.partition("=")
    for victim, update, show in ((servers.broker, 25, 26), (servers.namesrv, 318, 319)):
        with Neighbour(victim), RawConnection(victim.address) as connection:
            _, before = connection.call(show, {})
            head, _ = connection.call(update, {}, setting.encode())
            _, after = connection.call(show, {})
            assert head["code"] != 0 or before == after, (key, value, head)
            assert value == "" or f"{key}={value}".encode() not in after
    assert not Path("/evil").exists()


def test_groups_and_topics_of_billions_of_queues_are_refused(servers: Servers) -> None:
    create = {
        "topic": "Wide", "defaultTopic": "TBW102", "readQueueNums": 2**31 - 1, "perm": 6,
        "writeQueueNums": 2**31 - 1, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    with Neighbour(servers.broker), RawConnection(servers.broker.address) as connection:
        head, _ = connection.call(17, create)
        assert (head["code"], "readQueueNums" in head["remark"]) == (29, True)
        for count in (2**31 - 1, -1, 65_537):
            body = b'{"groupName":"Wide","retryQueueNums":%d}' % count
            head, _ = connection.call(200, {}, body)
            assert (head["code"], "retryQueueNums" in head["remark"]) == (29, True)
        fields = send_fields("WideByDefault") | {"d": 2**31 - 1}
        head, _ = connection.call(310, fields, b"x")
        assert head["code"] == 0
        _, route = connection.call(202, {"topic": "WideByDefault"})
        assert route.count(b"queueId") <= 8, "no more than the template has"


@pytest.mark.promise("Security", "no name becomes a path before it was checked")
def test_kv_entries_cannot_leave_their_file(servers: Servers) -> None:
    with RawConnection(servers.namesrv.address) as connection:
        for namespace in ("../../evil", "/etc", "a" * 100_000):
            connection.call(100, {"namespace": namespace, "key": "../k", "value": "../v"})
    root = servers.store.parent
    assert not [found for found in root.rglob("*") if "evil" in found.name]
    assert servers.namesrv.child.poll() is None


def test_a_reader_that_does_not_read_is_held_back(servers: Servers) -> None:
    """Answers of many MiB to a peer that reads none of them: memory stays bounded, others go on."""
    with RawConnection(servers.broker.address) as connection:
        for _ in range(8):
            assert connection.call(310, send_fields("Slow"), b"x" * 500_000)[0]["code"] == 0
        wait_until(
            lambda: (
                connection.call(30, {"topic": "Slow", "queueId": 0})[0]["extFields"]["offset"]
                == "8"
            )
        )
        before = servers.broker.anonymous_memory()
        with Neighbour(servers.broker), RawConnection(servers.broker.address) as lazy:
            lazy.socket.settimeout(1.0)
            request = frame(11, pull_fields("Slow", 0, 0))
            try:
                for _ in range(3000):  # 4 MB of answer each, nothing is read
                    lazy.socket.sendall(request)
            except TimeoutError:
                pass  # the server has stopped to read from us
            time.sleep(0.5)
            assert servers.broker.anonymous_memory() - before < 64 * MIB
        assert connection.call(998, {})[0]["code"] == 3


def test_unfinished_frames_of_many_peers_cost_their_bytes_and_go_away(
    victim: ServerProcess,
) -> None:
    before = victim.anonymous_memory()
    half = frame(310, send_fields("T"), b"x" * MIB)[: MIB // 2]
    connections = [RawConnection(victim.address) for _ in range(40)]
    try:
        with Neighbour(victim):
            for connection in connections:
                connection.socket.sendall(half)
            time.sleep(0.2)
            assert victim.anonymous_memory() - before < 2 * 40 * (MIB // 2) + 16 * MIB
    finally:
        for connection in connections:
            connection.close()
    wait_until(lambda: victim.anonymous_memory() - before < 24 * MIB)


def test_floods_of_noise_write_few_log_lines(tmp_path: Path) -> None:
    with server(broker_arguments(tmp_path / "store")) as broker:
        start = len(broker.lines)
        for number in range(300):
            with RawConnection(broker.address) as connection:
                connection.socket.sendall(b"\xff" * (8 + number))
                assert connection.told_off()
        with RawConnection(broker.address) as connection:
            for code in range(5000, 5300):
                assert connection.call(code, {})[0]["code"] == 3
            for number in range(300):
                assert connection.call(310, {"topic": f"T{number}"})[0]["code"] == 1
        assert len(broker.lines) - start < 30


def test_of_a_silent_crowd_beyond_the_limit_the_first_go_and_who_speaks_stays(
    tmp_path: Path,
) -> None:
    arguments = broker_arguments(tmp_path / "store", {"maxConnections": 20})
    with server(arguments) as broker, RawConnection(broker.address) as guest:
        assert guest.call(998, {})[0]["code"] == 3
        crowd = [RawConnection(broker.address) for _ in range(40)]
        try:
            for connection in crowd[:15]:
                assert connection.closed_by_peer()
            assert guest.call(998, {})[0]["code"] == 3, "who was inside stays"
        finally:
            for connection in crowd:
                connection.close()
        wait_until(lambda: not refused(broker))


def refused(broker: ServerProcess) -> bool:
    """Whether a new connection is turned away."""
    with RawConnection(broker.address) as connection:
        try:
            return connection.call(998, {})[0]["code"] != 3
        except (EOFError, OSError):
            return True
