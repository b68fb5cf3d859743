"""The server processes that scripts rely on: the ready line, the exit code, what stays behind."""

import os
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager

import msgspec
import pytest
from tests.typed import parsed

from roquette.broker.floor.table_files import SETTLE_S

RUN = "from roquette.apps.main import main; main()"


@contextmanager
def process(*arguments, **environ):
    child = subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environ,
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()


def address(child, part):
    line = child.stdout.readline()
    found = re.search(rf"{part}=([\d.]+):(\d+)", line)
    assert line.startswith("ready "), line
    assert found, line
    return found[1], int(found[2])


def call(where, code, ext, body=b""):
    with socket.create_connection(where, 30) as connection:
        stream = connection.makefile("rwb")
        return send(stream, code, ext, body)


def send(stream, code, ext, body=b""):
    head = msgspec.json.encode(
        {"code": code, "opaque": 1, "flag": 0, "language": "JAVA", "version": 479, "extFields": ext}
    )
    stream.write(struct.pack(">ii", 4 + len(head) + len(body), len(head)) + head + body)
    stream.flush()
    (size,) = struct.unpack(">i", stream.read(4))
    data = stream.read(size)
    (length,) = struct.unpack(">i", data[:4])
    return msgspec.json.decode(data[4 : 4 + length]), data[4 + length :]


def send_ext(topic):
    return {
        "a": "pg", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0",
        "i": "WAIT\x01true\x02",
    }  # fmt: skip


SMALL = [
    word
    for pair in ("mappedFileSizeCommitLog=1048576", "maxHashSlotNum=100", "maxIndexNum=1000")
    for word in ("--set", pair)
]


def test_dev_serves_routes_of_what_was_sent_and_ends_clean(tmp_path):
    with process("dev", "--namesrv-port", "0", "--broker-port", "0", "--store", tmp_path) as child:
        line = child.stdout.readline()
        found = re.fullmatch(r"ready namesrv=127\.0\.0\.1:(\d+) broker=127\.0\.0\.1:(\d+)\n", line)
        name_server, broker = ("127.0.0.1", int(found[1])), ("127.0.0.1", int(found[2]))
        began = time.monotonic()
        sent, _ = call(broker, 310, send_ext("New"), b"x")
        late = time.monotonic() - began >= SETTLE_S  # a sender waits no longer for the name server
        route, body = call(name_server, 105, {"topic": "New"})
        while late and route["code"] and time.monotonic() - began < 60:
            route, body = call(name_server, 105, {"topic": "New"})
        child.send_signal(signal.SIGTERM)
        code = child.wait(60)

        assert sent["code"] == route["code"] == 0
        assert f"127.0.0.1:{found[2]}".encode() in body
        assert code == 0
        rest = child.stdout.read()
        assert f"roquette produce -n 127.0.0.1:{found[1]} orders hello world\n" in rest
        assert f"What is sent is kept in {tmp_path}." in rest
        for words in re.findall(r"^    (roquette .*)$", rest, re.MULTILINE):
            parsed(shlex.split(words))
        assert not (tmp_path / "abort").exists()


def ask_http(where, text=b"GET / HTTP/1.0\r\n\r\n"):
    with socket.create_connection(where, 60) as connection:
        connection.sendall(text)
        answer = b""
        while part := connection.recv(4096):
            answer += part
        return answer


def first_frame(where):
    """The type of the first HTTP/2 frame that comes after a client's preface and settings."""
    with socket.create_connection(where, 60) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04" + bytes(5))
        answer = b""
        while len(answer) < 9:
            answer += connection.recv(4096)
        frames = []
        while len(answer) >= 9:
            frames.append(answer[3])
            answer = answer[9 + int.from_bytes(answer[:3], "big") :]
        return frames


GOAWAY = 7


def test_every_port_of_dev_speaks_everything():
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("", 0)) as free:
        ports = taken.getsockname()[1], free.getsockname()[1]
        free.close()
        with process(
            "dev", "--namesrv-port", "0", "--broker-port", "0",
            "--grpc-port", str(ports[0]), "--remoting-port", str(ports[1]),
        ) as child:  # fmt: skip
            words = dict(word.split("=") for word in child.stdout.readline().split()[1:])
            addresses = [("127.0.0.1", int(words[k].split(":")[1])) for k in ("namesrv", "broker")]
            further = "127.0.0.1", ports[1]
            told = [ask_http(where) for where in (*addresses, further)]
            health = ask_http(addresses[1], b"GET /healthz HTTP/1.0\r\n\r\n")
            refused = ask_http(addresses[1], b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n")
            http2 = [first_frame(where) for where in (*addresses, further)]
            code = call(further, 26, {})[0]["code"]
            routed, route = call(further, 105, {"topic": "TBW102"})
            child.send_signal(signal.SIGTERM)
            ended = child.wait(60)
            errors = child.stderr.read()

    assert b"name server" in told[0]
    assert b"RocketMQ broker" in told[1]
    assert told[1] == told[2]
    assert health.startswith(b"HTTP/1.1 200")
    assert b"proxyProtocolTrusted" in refused
    assert all(GOAWAY not in frames for frames in http2)
    assert code == ended == routed["code"] == 0
    assert words["broker"].encode() in route
    assert f"no further port {ports[0]}" in errors


def test_servers_listen_at_names_and_brokers_advertise_them():
    with process(
        "namesrv", "--listen", "localhost:0", "--set", "kvConfigPath=/dev/null/x"
    ) as names:
        _, port = address(names, "namesrv")
        words = [
            "--listen",
            "localhost:0",
            "-n",
            f"localhost:{port}",
            "--set",
            "brokerIP1=localhost",
            *SMALL,
        ]
        with (
            tempfile.TemporaryDirectory() as store,
            process("broker", *words, "--store", store) as broker,
        ):
            line = broker.stdout.readline()
            (own,) = re.findall(r"broker=localhost:(\d+)", line)
            sent, _ = call(("127.0.0.1", int(own)), 310, send_ext("New"), b"x")
            _, info = call(("127.0.0.1", port), 106, {})
            broker.send_signal(signal.SIGTERM)
            assert broker.wait(60) == 0
    assert f'"localhost:{own}"'.encode() in info
    assert sent["extFields"]["msgId"].startswith("7F000001" + f"{int(own):08X}")


def test_a_name_without_an_address_is_told():
    with process("namesrv", "--listen", f"{'a' * 300}:0") as names:
        assert names.wait(60) == 1
        assert "has no address" in names.stderr.read()


def listening(pid):
    """The addresses at which a process listens, as the system knows them."""
    names = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    own = {name[8:-1] for name in names if name.startswith("socket:[")}
    found = []
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}") as lines:
            fields = [line.split() for line in lines][1:]
        found += [one[1].partition(":")[0] for one in fields if one[3] == "0A" and one[9] in own]
    return found


@pytest.mark.promise("Security", "`roquette dev` listens at 127.0.0.1 alone")
def test_all_that_dev_listens_at_is_this_machine():
    with process("dev", "--namesrv-port", "0", "--broker-port", "0") as child:
        assert child.stdout.readline().startswith("ready ")
        found = listening(child.pid)
        child.send_signal(signal.SIGTERM)
        child.wait(60)

    assert len(found) >= 4  # name server, broker, its second port, the one for replicas
    assert set(found) == {"0100007F"}


def test_dev_without_a_store_leaves_nothing(tmp_path):
    with process("dev", "--namesrv-port", "0", "--broker-port", "0", TMPDIR=str(tmp_path)) as child:
        assert child.stdout.readline().startswith("ready ")
        child.send_signal(signal.SIGTERM)

        assert child.wait(60) == 0
        assert list(tmp_path.iterdir()) == []


def test_a_broker_takes_files_environment_and_flags_in_that_order(tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=from-file\nbrokerClusterName=c1\nregionId=r1\nnoSuchKey=1\n")
    store = tmp_path / "store"
    with process(
        "broker", "-c", file, "--listen", "127.0.0.1:0", "--store", store, *SMALL,
        "--set", "regionId=r3", ROQUETTE_BROKER_CLUSTER_NAME="c2", ROQUETTE_REGION_ID="r2",
    ) as child:  # fmt: skip
        where = address(child, "broker")
        _, body = call(where, 26, {})
        shown = dict(line.split("=", 1) for line in body.decode().splitlines())
        child.send_signal(signal.SIGTERM)
        child.wait(60)

        assert (shown["brokerName"], shown["brokerClusterName"], shown["regionId"]) == (
            "from-file",
            "c2",
            "r3",
        )
        assert "unknown key noSuchKey" in child.stderr.read()


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--set", "listenPort=abc"], "listenPort in --set must be a whole number"),
        (["--listen", "nowhere"], "--listen 'nowhere' is not of the form HOST:PORT"),
        (["-c", "/no/such/file"], "cannot be read"),
        (["--set", "brokerRole=SLAVE"], "a master has 0, a SLAVE another one"),
    ],
)
def test_a_wrong_setting_is_one_line_and_exit_code_1(tmp_path, arguments, words):
    with process("broker", "--store", tmp_path / "s", *arguments) as child:
        assert child.wait(60) == 1
        errors = child.stderr.read().strip().splitlines()

        assert words in errors[-1]
        assert "Traceback" not in "\n".join(errors)


def test_two_brokers_cannot_share_a_store(tmp_path):
    with process("broker", "--listen", "127.0.0.1:0", "--store", tmp_path, *SMALL) as first:
        address(first, "broker")
        with process("broker", "--listen", "127.0.0.1:0", "--store", tmp_path, *SMALL) as second:
            assert second.wait(60) == 1
            assert "another process uses this store" in second.stderr.read()
