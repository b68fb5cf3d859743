"""Apache's clients at closed servers: who is refused is told so at once, in Apache's words.

What users with the right can do is shown by the tests with the marker `also`, which run on closed servers as they are.
"""

import contextlib
import itertools
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.bench import create_topic
from tests.interop.clients import GoClient, NodeClient
from tests.interop.conftest import PROVE, Cluster
from tests.interop.driver import ClientError, Driver, LineClient
from tests.interop.peers import SMALL_JVM, call, class_path, start_broker, start_namesrv
from tests.interop.ways import ADMIN, WAYS, instead_of_the_administrator, property_file

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(180),
    pytest.mark.also("closed", "signed"),
]

NO_PERMISSION = 16
AT_ONCE_S = 15.0  # a client that waits for an answer gives up after 20 s
NO_CONNECTION = re.compile("connect to|send request to|No name server|No route info")
number = itertools.count(1)


def closed(way: str) -> list[object]:
    proving = [pytest.param(f"apache-{way}", marks=pytest.mark.long)] if PROVE else []
    return [f"roquette-{way}", *proving]


def servers(flavour: str, folder: Path) -> Iterator[Cluster]:
    namesrv = start_namesrv(flavour, folder / "namesrv")
    try:
        broker = start_broker(flavour, folder / "broker", namesrv.address)
        try:
            yield Cluster(flavour, namesrv, broker, folder)
        finally:
            broker.discard()
    finally:
        namesrv.discard()


@pytest.fixture(scope="module", params=closed("closed"))
def cluster(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Cluster]:
    """TLS with certificates at both ends, users and policies."""
    yield from servers(request.param, tmp_path_factory.mktemp("closed"))


@pytest.fixture(scope="module", params=closed("signed"))
def signed(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Cluster]:
    """Users and policies; plain connections beside TLS."""
    yield from servers(request.param, tmp_path_factory.mktemp("signed"))


def refused(client: Any, namesrv: str, topic: str, **way: Any) -> ClientError:
    """What a sender is told, soon."""
    began = time.monotonic()
    name = f"refused-{next(number)}"
    with pytest.raises(ClientError) as caught:
        client("producer", name=name, namesrv=namesrv, retries=0, **way)  # Node's says it already
        client("send", name=name, topic=topic)
    with contextlib.suppress(ClientError):
        client("drop", name=name)
    assert time.monotonic() - began < AT_ONCE_S
    return caught.value


def test_java_is_told_that_a_user_has_no_right(
    drivers: Callable[[str], Driver], cluster: Cluster
) -> None:
    create_topic(cluster, "U_others")
    error = refused(drivers("5.5.0"), cluster.namesrv.address, "U_others")
    expected = (
        "User:alice has no permission to access Topic:U_others from 127.0.0.1, no matched policies."
    )
    assert expected in str(error)
    assert error.code == NO_PERMISSION


@pytest.mark.parametrize(
    ("way", "keys", "why"),
    [
        ({"secretKey": "not-hers"}, ("alice", "not-hers"), "check signature failed."),
        ({"accessKey": "nobody"}, ("nobody", "x"), "User:nobody is not found."),
        ({"accessKey": None}, None, "username cannot be null."),
    ],
    ids=["wrong secret", "unknown user", "unsigned"],
)
def test_a_signature_that_is_no_good(
    drivers: Callable[[str], Driver],
    cluster: Cluster,
    way: dict[str, Any],
    keys: tuple[str, str] | None,
    why: str,
) -> None:
    """Our name server refuses as the broker does, and the client tells of its refusal only that there is no route."""
    create_topic(cluster, "T_signatures")
    error = refused(drivers("5.5.0"), cluster.namesrv.address, "T_signatures", **way)
    asked = {"topic": "T_signatures", "queueId": "0"}
    guarded = [(cluster.broker.address, 30), (cluster.namesrv.address, 105)]
    if cluster.broker.flavour == "apache":  # whose name server has no users
        assert (error.code, why in str(error)) == (NO_PERMISSION, True), error
        guarded.pop()
    else:
        assert "No route info of this topic" in str(error), error
    for address, code in guarded:
        with instead_of_the_administrator(address, keys):
            answer = call(address, code, asked)
        assert answer is not None
        assert (answer[0]["code"], answer[0]["remark"]) == (NO_PERMISSION, why)


@pytest.mark.parametrize("make", [GoClient, NodeClient])
def test_other_clients_are_told(signed: Cluster, tmp_path: Path, make: type[LineClient]) -> None:
    create_topic(signed, "U_others")
    create_topic(signed, "T_signatures")
    client = make(tmp_path)  # type: ignore[call-arg,arg-type]
    try:
        error = refused(client, signed.namesrv.address, "U_others")
        if make is GoClient:  # Node's error does not say why
            assert "User:alice has no permission to access Topic:U_others" in str(error), error
        refused(client, signed.namesrv.address, "T_signatures", secretKey="not-hers")
    finally:
        client.stop()


def mqadmin(folder: Path, namesrv: str, *words: str) -> str:
    """Apache's command line as an operator runs it: keys in conf/tools.yml, TLS by -Dtls.enable."""
    (folder / "conf").mkdir(parents=True, exist_ok=True)
    (folder / "conf" / "tools.yml").write_text("accessKey: {}\nsecretKey: {}\n".format(*ADMIN))
    way = WAYS[namesrv]
    command = [
        *("java", *SMALL_JVM, f"-Duser.home={folder}", f"-Drocketmq.home.dir={folder}"),
        *(f"-D{key}={value}" for key, value in way.tls_settings().items()),
        *("-cp", class_path("client55"), "org.apache.rocketmq.tools.command.MQAdminStartup"),
        *(words[0], "-n", namesrv, *words[1:]),
    ]
    env = {**os.environ, "ROCKETMQ_HOME": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False, env=env)
    return done.stdout + done.stderr


def test_mqadmin_with_its_own_files(
    drivers: Callable[[str], Driver], cluster: Cluster, tmp_path: Path
) -> None:
    namesrv, broker = cluster.namesrv.address, cluster.broker.address
    listed = mqadmin(tmp_path, namesrv, "clusterList")
    assert broker in listed and cluster.broker.name in listed, listed
    words = dict(enumerate(("updateTopic", "-b", broker, "-t", "U_of_alice")))
    told = drivers("5.5.0")("mqadmin", word=words, **WAYS[broker].arguments())
    assert "User:alice has no permission to access Topic:U_of_alice" in told["out"] + told["err"]


@pytest.mark.parametrize(
    "way",
    [{"trusts": "another"}, {"shows": "another"}, {"shows": ""}],
    ids=["the servers' authority unknown", "one's own authority unknown", "no certificate"],
)
def test_java_without_a_certificate_that_is_believed(
    drivers: Callable[[str], Driver], cluster: Cluster, way: dict[str, str]
) -> None:
    """Both ends look: a client that trusts nobody's CA, and one that shows nothing the servers believe."""
    file = property_file(**way, name="-".join(map("".join, way.items())))
    error = refused(drivers("5.5.0"), cluster.namesrv.address, "T_certificates", tls=str(file))
    assert NO_CONNECTION.search(str(error)), error
    assert cluster.broker.process.popen.poll() is None


def test_java_in_the_clear_where_tls_is_enforced(
    drivers: Callable[[str], Driver], cluster: Cluster
) -> None:
    error = refused(drivers("5.5.0"), cluster.namesrv.address, "T_plain", tls=None)
    assert NO_CONNECTION.search(str(error)), error
    assert cluster.namesrv.process.popen.poll() is None
