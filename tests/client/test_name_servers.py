"""Name servers that a client looks up: over HTTP at an address server, or by a DNS name."""

import asyncio
from collections.abc import Callable

import pytest

from roquette.client.client import Client
from roquette.client.config import MOST
from roquette.errors import ConfigError, ConnectError
from roquette_testing.cluster import SimCluster, simulate

NAMESRV, OTHER, BROKER, WEB, MINE = "10.0.0.1", "10.0.0.2", "10.0.1.1", "10.0.9.1", "10.0.2.1"


def page(body: str, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


async def address_server(cluster: SimCluster, answer: Callable[[], bytes]) -> list[str]:
    """Serves what `answer` makes; the request lines it got."""
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.decode().split("\r\n")[0])
        writer.write(answer())
        writer.close()

    await cluster.run_on(WEB, asyncio.start_server(serve, WEB, 8080))
    return asked


def test_name_servers_come_from_an_address_server_which_is_asked_again() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMESRV)
        await cluster.add_namesrv(OTHER)
        await cluster.add_broker(BROKER, "broker-a")
        answers = [page(f" {NAMESRV}:9876\r\nnothing of this\n")]
        asked = await address_server(cluster, lambda: answers[0])
        mq = await cluster.client(MINE, name_servers=f"http://{WEB}:8080")
        await mq.send("orders", b"1")
        assert asked == ["GET /rocketmq/nsaddr HTTP/1.1"]
        assert mq.session.name_servers == [f"{NAMESRV}:9876"]

        answers[0] = page(f"{OTHER}:9876;{NAMESRV}:9876")
        await asyncio.sleep(121)
        assert mq.session.name_servers == [f"{OTHER}:9876", f"{NAMESRV}:9876"]

        for wrong in (
            page("gone", "404 Not Found"),
            page("no addresses"),
            page(""),
            page(";".join(f"10.1.0.{n}:9876" for n in range(MOST + 1))),
            b"",
            b"nonsense\r\n\r\n",
        ):
            answers[0] = wrong
            before = len(asked)
            await asyncio.sleep(121)
            assert len(asked) > before
            assert len(mq.session.name_servers) == 2
        cluster.kill(NAMESRV)
        await mq.queues("orders")

    simulate(scenario)


def test_when_none_answers_the_list_is_looked_up_again_at_once() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMESRV)
        await cluster.add_namesrv(OTHER)
        await cluster.add_broker(BROKER, "broker-a")
        answers = [f"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n{NAMESRV}:9876".encode()]
        asked = await address_server(cluster, lambda: answers[0])
        mq = await cluster.client(MINE, name_servers=f"http://{WEB}:8080/list?unit=a")
        await mq.send("orders", b"1")
        assert asked == ["GET /list?unit=a HTTP/1.1"]
        cluster.kill(NAMESRV)
        with pytest.raises(ConnectError, match=f"no name server of {NAMESRV}:9876 can be reached"):
            await mq.queues("orders")
        await asyncio.sleep(2)
        answers[0] = page(f"{OTHER}:9876")
        assert await mq.queues("orders")
        assert mq.session.name_servers == [f"{OTHER}:9876"]

    simulate(scenario)


def test_an_address_server_that_does_not_answer_is_named() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await cluster.client(MINE, name_servers=f"http://{WEB}:8080/list")
        with pytest.raises(ConnectError, match=f"http://{WEB}:8080/list gives no name servers: "):
            await mq.queues("orders")
        await cluster.add_namesrv(NAMESRV)
        await cluster.add_broker(BROKER, "broker-a")
        answers = [page("", "503 Busy")]
        asked = await address_server(cluster, lambda: answers[0])
        await asyncio.sleep(2)
        with pytest.raises(ConnectError, match="it answers with status 503"):
            await asyncio.gather(*(mq.queues(f"t{n}") for n in range(20)))
        assert len(asked) == 1, "callers share a look-up"
        answers[0] = page(f"{NAMESRV}:9876")
        await asyncio.sleep(2)
        assert await mq.queues("TBW102")

    simulate(scenario)


def test_each_address_of_a_dns_name_is_a_name_server() -> None:
    async def scenario(cluster: SimCluster) -> None:
        for ip in (NAMESRV, OTHER):
            await cluster.add_namesrv(ip)
        await cluster.add_broker(BROKER, "broker-a")
        cluster.loop.names["names.example"] = [NAMESRV, "10.0.0.3"]
        mq = await cluster.client(MINE, name_servers="dns://names.example")
        await mq.send("orders", b"1")
        assert mq.session.name_servers == [f"{NAMESRV}:9876", "10.0.0.3:9876"]
        cluster.kill(NAMESRV)
        cluster.loop.names["names.example"] = [OTHER]
        await asyncio.sleep(2)
        assert await mq.queues("orders")
        assert mq.session.name_servers == [f"{OTHER}:9876"]

    simulate(scenario)


@pytest.mark.parametrize(
    "wrong",
    [
        "http://",
        "http://a:b/c",
        "http://me:secret@a/c",
        "http://a/\r\nHost: b",
        "https://a/c",
        "dns://",
        "dns://a:0",
        "dns://a/b",
        "ftp://a:1",
        "a",
    ],
)
def test_what_is_no_place_of_name_servers_is_refused(wrong: str) -> None:
    async def scenario(cluster: SimCluster) -> None:
        with pytest.raises(ConfigError, match="host:port"):
            await Client(wrong, local_host=MINE).start()

    simulate(scenario)
