"""What each page costs in a cluster of 100 brokers, 5,000 topics and 2,000 groups: requests, bytes and nodes; and what every
answer has, at any size: headers, links that answer, commands that can be typed, the same bytes while nothing happens."""

import asyncio
import gzip
import random
import re
import shlex
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from html import unescape
from typing import Any
from urllib.parse import parse_qs

import pytest
from starlette.routing import Mount
from tests.admin import test_requests_at_size as size
from tests.cli.test_documented_commands import wrong
from tests.console.small_web import NAMESRV, Web, browse, open_web, text_of
from tests.console.test_views import LIVE, PATHS, fill
from tests.records import encode_record
from tools.commands_page import ROOT_COMMAND, below

from roquette.admin import catalogue
from roquette.admin.doctor.findings import Finding, Remedy, Severity
from roquette.admin.facts import About, BrokerFacts, ClusterFacts
from roquette.client.calls import Call, Pulled
from roquette.client.core.route_cache import broker_error
from roquette.client.session import BrokerApi
from roquette.console.app import STATIC
from roquette.console.bodies import MOST, body_of
from roquette.console.guard import HEADERS
from roquette.console.look import (
    EXAMINE_S,
    EXAMINE_SHARE,
    Behind,
    ClusterRate,
    Examination,
    Look,
    SharedLooks,
    WatchedCluster,
    examined,
)
from roquette.errors import ConfigError
from roquette.wire.bodies import (
    ConsumerConnection,
    ConsumerRunningInfo,
    TopicConfig,
    TopicOffset,
)
from roquette.wire.bodies.clients import Connection, SubscriptionData
from roquette.wire.bodies.tables import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from roquette.wire.codes import RequestCode as R
from roquette.wire.codes import ResponseCode
from roquette.wire.header_codec import ext_dict
from roquette_testing.cluster import SimCluster, simulate

WIDE, BIG = size.topic(4_999), size.topic(4_998)
"""A topic on all brokers, which all groups read; one whose messages are large and have many properties."""
CROWD = size.GROUP_NAMES[0]
"""A group of 300 members, which reads WIDE."""
NODES = 3_000
MOST_BYTES, MOST_WIRE = 600_000, 30_000
"""Of a page; on the wire."""
FINDINGS = [
    Finding(
        f"code-{number % 9}",
        Severity.ERROR,
        About(topic=size.topic(number)),
        "seen",
        "why",
        "what to do",
        tuple(Remedy(name, name, "undo", setting="a", value=str(number)) for name in size.NAMES),
    )
    for number in range(5_000)
]
MEMBERS = ConsumerConnection(
    [Connection(f"10.1.0.{n}@{n}#1", f"10.1.0.{n}:4000", "JAVA", 455) for n in range(300)],
    {name: SubscriptionData(topic=name) for name in size.ON[size.NAMES[0]]},
    message_model="CLUSTERING",
)


def brokers_of(topic: str) -> list[str]:
    return size.NAMES if topic == WIDE else NARROW(topic)


NARROW = size.brokers_of


def readers(broker: str, ext: dict[str, str]) -> list[str]:
    return size.GROUP_NAMES if ext["topic"] == WIDE else size.readers(ext["topic"])


def progress(broker: str, ext: dict[str, str]) -> Any:
    if ext["consumerGroup"] != CROWD:
        return size.stats(broker, ext)
    queues = [size.MessageQueue(WIDE, broker, queue) for queue in range(size.EACH)]
    return size.ConsumeStats({each: size.OffsetWrapper(9, 4) for each in queues}, 0.5)


def pulled(broker: str, ext: dict[str, str]) -> Pulled:
    """Messages of a queue; BIG's have 64 KB and 60 properties."""
    at, most, topic = int(ext["queueOffset"]), int(ext["maxMsgNums"]), ext["topic"]
    is_big = topic == BIG
    words = "".join(f"name{n}\x01{'v' * 40}\x02" for n in range(60 if is_big else 2)).encode()
    host = bytes((10, 0, 0, 9, 0, 0, 42, 159))
    body = b"x" * 65_536 if is_big else b"body"
    offsets = range(at, min(9, at + most))
    records = [
        encode_record(
            topic.encode(), int(ext["queueId"]), 0, offset, 1_000 * offset, 0, offset, host, offset,
            host, 0, 0, body, words,
        )
        for offset in offsets
    ]  # fmt: skip
    return Pulled(b"".join(records), min(9, at + most), 2, 9)


def rules(broker: str, ext: dict[str, str]) -> list[AclInfo]:
    """Sixty of each of 300 users."""
    entries = [
        PolicyEntryInfo(resource=f"Topic:{size.topic(n)}", actions=["Pub"], decision="Allow")
        for n in range(60)
    ]
    policies = [PolicyInfo(policy_type="Custom", entries=entries)]
    return [AclInfo(subject=f"User:u{n}", policies=policies) for n in range(300)]


ANSWERS = size.ANSWERS | {
    R.QUERY_TOPIC_CONSUME_BY_WHO: readers,
    R.GET_CONSUME_STATS: progress,
    R.GET_CONSUMER_CONNECTION_LIST: lambda broker, ext: (
        MEMBERS if ext["consumerGroup"] == CROWD else size.MEMBER
    ),
    R.GET_CONSUMER_RUNNING_INFO: lambda broker, ext: ConsumerRunningInfo(
        jstack="at work\n" * 5_000
    ),
    R.PULL_MESSAGE: pulled,
    R.GET_ALL_TOPIC_CONFIG: lambda broker, ext: {
        name: TopicConfig(name, size.EACH, size.EACH) for name in size.ON[broker]
    },
    R.GET_BROKER_RUNTIME_INFO: lambda broker, ext: {f"fact{n}": "7" * 20 for n in range(120)},
    R.GET_BROKER_CONFIG: lambda broker, ext: {
        "useServerSideResetOffset": "true",
        **{f"setting{n}": f"of {broker}" for n in range(250)},
    },
    R.QUERY_CONSUMER_OFFSET: lambda broker, ext: 4,
    R.AUTH_LIST_USER: lambda broker, ext: [UserInfo(username=f"u{n}") for n in range(300)],
    R.AUTH_LIST_ACL: rules,
}


KNOWN = {"", f"{NAMESRV}:9876", *size.ADDRESSES}


class CountedServers(BrokerApi):
    """Plays all servers, and counts what they are asked; what they do not know they refuse as an old broker does."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()

    async def call(self, address: str, call: Call[Any], **options: Any) -> Any:
        assert address in KNOWN, f"{address} is no server of the cluster"
        self.requests[R(call.code).name] += 1
        if call.code not in ANSWERS:
            code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            raise broker_error(code, f"request type {call.code} not supported", address)
        broker = size.ADDRESSES.get(address, "")
        return ANSWERS[call.code](broker, ext_dict(call.ext) if call.ext else {})


def at_size(
    scenario: Callable[[Web, CountedServers, WatchedCluster], Awaitable[None]], **settings: Any
) -> None:
    """Run a scenario with a browser at the console of the large cluster."""
    servers = CountedServers()

    async def counted(web: Web) -> None:
        people = web.console.people
        watched = await people.cluster(people.person_of(""), "dev")
        watched.client.session.api = servers
        await scenario(web, servers, watched)

    async def run(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMESRV)
        await open_web(cluster, None, counted, **settings)  # type: ignore[arg-type]

    simulate(run)


BOUNDS = {
    "/": 2 + size.BROKERS,
    "/doctor": 0,
    "/brokers": 2 + size.BROKERS,
    "/topics": 2 + catalogue.MOST_ASKED,
    "/topics?q=TOPIC-49": 2 + catalogue.MOST_ASKED,
    "/groups": 1 + size.BROKERS + catalogue.MOST_ASKED,
    "/dead": 2 + catalogue.MOST_ASKED,
    "/clients": 1_000,
    "/find?q=top": 1_000,
    "/access": 1_000,
    f"/topics/{size.topic(7)}": 1_000,
    f"/topics/{WIDE}": 1_000,
    f"/topics/{WIDE}/settings": 1_000,
    f"/topics/{WIDE}/produce": 0,
    f"/topics/{WIDE}/tail": 0,
    f"/topics/{size.topic(7)}/messages": 1_000,
    f"/topics/{WIDE}/messages": 1_000,
    f"/topics/{WIDE}/messages?filter=paid": 1_000,
    f"/topics/{BIG}/messages": 1_000,
    f"/topics/{BIG}/messages?most=200": 1_000,
    f"/groups/{CROWD}": 1_000,
    f"/groups/{size.GROUP_NAMES[9]}": 1_000,
    f"/groups/{CROWD}/settings": 1_000,
    f"/groups/{CROWD}/stacks": 1_000,
    "/brokers/broker-07": 1_000,
    "/brokers/broker-07/settings": 1_000,
    "/brokers/broker-07/members": 1_000,
    f"/act/group-seek?group={CROWD}&topic={WIDE}&to=first": 1_000,
    f"/act/topic-resize?topic={WIDE}&queues=2": 1_000,
    f"/act/topic-delete?topic={WIDE}": 1_000,
    f"/messages/{size.FOUND.message_id}?topic={size.FOUND.topic}": 30 * size.BROKERS,
    f"/messages/{size.FOUND.message_id}": 400,
    "/names": 2 + size.TOPICS + 2 + size.BROKERS,
}
"""Requests of each page that nobody looked at before: 400 of a list, besides those for names, and 1,000 of a page. A message's
journey and the comparison of name servers have bounds of their own; what the doctor looks at, no page waits for."""


def test_a_page_at_size_asks_within_its_bound_and_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "brokers_of", brokers_of)
    too_much: list[str] = []

    async def scenario(web: Web, servers: CountedServers, watched: WatchedCluster) -> None:
        looked = Look(Examination(ClusterFacts(), FINDINGS, [], 0), 1, 1.0, 1e9)
        watched.examined = lambda: looked  # type: ignore[method-assign]
        watched.rates.extend(ClusterRate(n * 2_000, 997.3 * (n % 7), n * 31.7) for n in range(300))
        watched.by_broker.update({at: deque(range(60)) for at in size.ADDRESSES})
        for path, bound in BOUNDS.items():
            watched.looks.forget()
            servers.requests.clear()
            answer = await web.get(path)
            await asyncio.sleep(0.1)  # the rate of requests is bounded
            asked, many = servers.requests.total(), nodes(answer.text)
            wire = len(gzip.compress(answer.content, 5))
            found = f"{path}: {answer.status_code}, {asked} requests, {many} nodes, {len(answer.content)} B, {wire} B"
            if (
                answer.status_code != 200
                or asked > bound
                or many > NODES
                or len(answer.content) > MOST_BYTES
                or wire > MOST_WIRE
            ):
                too_much.append(found)

    at_size(scenario)
    assert not too_much, "\n".join(too_much)


def test_a_message_of_an_unknown_topic_is_looked_for_by_a_job_that_leads_to_its_journey() -> None:
    async def scenario(web: Web, servers: CountedServers, watched: WatchedCluster) -> None:
        path = f"/messages/{size.FOUND.message_id}"
        page = await web.main(path)
        assert "In which topic?" in page and "look at all 5 000 topics" in page
        begun = await web.press(path, "look at all")
        job = web.console.deeds.jobs.get(1, "dev")
        assert begun.headers["location"] == "/c/dev/jobs/1" and job is not None
        while job.state == "at work":
            await asyncio.sleep(0.1)
        told = [text for _, text in job.sentences]
        assert told[:2] == ["looked at 256 of 5,000 topics", "looked at 512 of 5,000 topics"]
        assert len(told) == size.WANTED // 256, "it ends where it is found"
        shown = await web.get("/jobs/1")
        link = f"{path}?topic={size.FOUND.topic}"
        assert f'href="/c/dev{link}"' in shown.text
        assert "Journey" in await web.main(link)

    at_size(scenario)


def test_no_page_asks_a_server_that_an_address_names() -> None:
    stranger = "0A00F00D00000050" + "00" * 8  # a place at 10.0.240.13, port 80

    async def scenario(web: Web, servers: CountedServers, watched: WatchedCluster) -> None:
        for path in (
            f"/messages/{stranger}?topic={size.topic(7)}",
            f"/messages/{stranger}",
            f"/topics/{size.topic(7)}/body?place={stranger}",
            f"/act/msg-resend?message={stranger}",
            f"/act/msg-resend?message={stranger}&topic={size.topic(7)}",
        ):
            text = text_of((await web.get(path)).text)
            assert "it names no broker" in text or "not-found" in text or "In which" in text, path

    at_size(scenario)


def test_a_read_only_console_names_the_command_that_looks_at_all_topics() -> None:
    async def scenario(web: Web, servers: CountedServers, watched: WatchedCluster) -> None:
        page = await web.main(f"/messages/{size.FOUND.message_id}")
        assert "In which topic?" in page and "Do it" not in page
        assert f"roquette explain {size.FOUND.message_id}" in page

    at_size(scenario, read_only=True)


def test_the_examination_asks_for_a_group_where_it_reads() -> None:
    """A request of each topic at each of its brokers, and of each group at each of those; 192,000 more were for nothing."""

    async def scenario(web: Web, servers: CountedServers, watched: WatchedCluster) -> None:
        assert watched.examined() is None
        while (looked := watched.examined()) is None:
            await asyncio.sleep(1)
        assert len(looked.value.facts.groups) == size.GROUPS
        of_topics, of_groups = size.TOPICS * size.EACH, size.GROUPS * size.EACH
        asked = servers.requests
        assert asked["GET_TOPIC_STATS_INFO"] == of_topics
        assert of_groups <= asked["GET_CONSUMER_CONNECTION_LIST"] <= of_groups + size.BROKERS
        assert asked.total() <= of_topics + of_groups + 2_000 + 10 * size.BROKERS

    at_size(scenario)


@pytest.mark.parametrize(("took", "again"), [(0.1, 30), (0.6, 120), (2, 180), (20, 400)])
def test_a_dear_examination_is_made_more_rarely(took: float, again: float) -> None:
    async def run(cluster: SimCluster) -> None:
        looks, begun = SharedLooks(cluster.clock), []

        async def ask() -> int:
            begun.append(asyncio.get_running_loop().time())
            await asyncio.sleep(took)
            return len(begun)

        while len(begun) < 2:
            looks.soon("examination", ask, EXAMINE_S, EXAMINE_SHARE)
            await asyncio.sleep(0.05)
        assert begun[1] - begun[0] == pytest.approx(again + took, abs=0.2)

    simulate(run)


def test_what_pages_say_of_an_examination_is_made_of_it_once() -> None:
    queue = size.MessageQueue("orders", "b", 0)
    broker = BrokerFacts(
        cluster="c", name="b", broker_id=0, address="x", topics={"orders": TopicConfig("orders")}
    )
    broker.queues = {
        queue: TopicOffset(0, 9, 1),
        size.MessageQueue("orders", "b", 1): TopicOffset(0, 5, 1),
    }
    broker.offsets = {
        ("g", "orders"): {0: 4, 1: 5},
        ("h", "orders"): {0: 2, 1: 0},
        ("i", "orders"): {0: 9, 1: 5},
    }
    broker.waits = {("h", "orders"): 7_000}
    looked = examined(ClusterFacts(brokers=[broker]))
    assert looked.behind == [Behind("h", "orders", 12, 7_000), Behind("g", "orders", 5, -1)]
    assert looked.topics == 1


def nodes(page: str) -> int:
    """Elements of a page."""
    return len(re.findall(r"<[a-z]", page))


async def weight(web: Web, path: str, **headers: str) -> int:
    """Bytes of an answer's body on the wire."""
    asked = web.browser.build_request("GET", path, headers={"accept-encoding": "gzip", **headers})
    answer = await web.browser.send(asked, stream=True)
    return sum([len(piece) async for piece in answer.aiter_raw()])


def test_a_first_visit_is_30_kb_and_a_live_part_that_changed_4() -> None:
    async def scenario(web: Web) -> None:
        await fill(web)
        files = {"/c/dev/"} | {f"/static/{each.name}" for each in STATIC.iterdir()}
        assert sum([await weight(web, each) for each in files]) + 400 * len(files) <= 30_000
        watched = web.console.people.person_of("").clusters["dev"]
        noise = [random.Random(seed).choices(range(5_000, 9_999), k=304) for seed in (1, 2)]
        watched.rates.extend(  # brokers tell the mean of ten seconds
            ClusterRate(at * 2_000, *(sum(each[at : at + 5]) / 5 for each in noise))
            for at in range(300)
        )
        for path in sorted(LIVE):
            live = await weight(web, f"/c/dev{path}", **{"roquette-live": "1"})
            assert live <= 4_096, path

    browse(scenario)


def test_json_is_not_made_much_longer_than_it_came() -> None:
    deep = b"[" * 900 + b"1," * 30_000 + b"1" + b"]" * 900
    assert len(body_of(deep).text) <= MOST * 5
    assert body_of(deep).whole and body_of(b'{"a": [1]}').kind == "JSON"


# What every answer has


PARAMETERS = {"topic": "orders", "group": "billing", "broker": "broker-a", "message": "k1", "number": "1", "user": "u", "name": "topic-create", "context": "dev"}  # fmt: skip


async def head_of(web: Web, method: str, path: str) -> tuple[int, set[tuple[bytes, bytes]]]:
    """Status and headers of an answer, even of one that does not end."""
    begun: asyncio.Future[tuple[int, set[tuple[bytes, bytes]]]] = asyncio.Future()
    sent = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict[str, Any]:
        return sent.pop() if sent else await asyncio.Future()

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            begun.set_result((message["status"], set(message["headers"])))

    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"sec-fetch-site", b"same-origin")],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "scheme": "http", "root_path": "",
        "http_version": "1.1",
    }  # fmt: skip
    task = asyncio.ensure_future(web.console.app(scope, receive, send))
    await asyncio.wait((task, begun), return_when=asyncio.FIRST_COMPLETED)
    task.cancel()
    await asyncio.wait((task,))
    return await begun


def test_every_route_answers_with_all_headers() -> None:
    async def scenario(web: Web) -> None:
        await fill(web)
        asked = 0
        for route in web.console.app.routes:
            path = re.sub(r"{(\w+)(:path)?}", lambda m: PARAMETERS[m[1]], route.path)
            if isinstance(route, Mount):
                path += "/console.js"
            for method in sorted(getattr(route, "methods", None) or {"GET"}):
                await asyncio.sleep(0.1)
                status, headers = await head_of(web, method, path)
                assert status < 500 or status in (502, 504), (method, path, status)
                assert set(HEADERS) <= headers, (method, path)
                asked += 1
        assert asked > 60

    browse(scenario)


def test_a_cluster_that_cannot_be_asked_at_all_is_said_everywhere() -> None:
    def refuse(context: str, credentials: Any) -> Any:
        raise ConfigError("no such host")

    async def run(cluster: SimCluster) -> None:
        await open_web(cluster, None, scenario, refuse)  # type: ignore[arg-type]

    async def scenario(web: Web) -> None:
        for path in ("/", "/find?q=o", "/topics/orders/stream", "/dead/g/letters.jsonl"):
            answer = await web.get(path)
            assert (answer.status_code, "no such host" in answer.text) == (502, True), path

    simulate(run)


def test_every_link_answers_and_every_command_that_a_page_names_can_be_typed() -> None:
    async def scenario(web: Web) -> None:
        await fill(web)
        links: set[str] = set()
        commands: set[str] = set()
        for path in PATHS:
            await asyncio.sleep(0.1)
            page = (await web.get(path)).text
            links |= {unescape(each) for each in re.findall(r'href="(/[^"#]*)', page)}
            commands |= {unescape(each) for each in re.findall(r'data-copy="([^"]*)"', page)}
            shown = re.findall(r"<code>(roquette [^<]*)</code>", page)
            assert not [each for each in shown if wrong(unescape(each))], path
        assert len(links) > 60 and len(commands) > 30
        kinds: Counter[object] = Counter()
        for link in sorted(links - {f"/c/dev{path}" for path in PATHS}):
            where, _, query = link.partition("?")
            kind = (*where.split("/")[3:4], where.count("/"), *sorted(parse_qs(query)))
            kinds[kind] += 1
            if kinds[kind] > 2:  # as the two before it
                continue
            await asyncio.sleep(0.1)
            answer = await web.browser.get(link, follow_redirects=True)
            assert answer.status_code in (200, 502), (link, answer.status_code)
        for text in sorted(commands):
            parse(shlex.split(text)[1:])

    browse(scenario)


def parse(words: list[str]) -> None:
    """As the command line does; raises click's error for what it would refuse."""
    command: Any = ROOT_COMMAND
    while words and words[0] in below(command):
        command, words = below(command)[words[0]], words[1:]
    assert not below(command) or getattr(command, "invoke_without_command", False), words
    command.make_context("roquette", list(words))


def test_a_part_is_the_same_for_ten_seconds_of_quiet() -> None:
    """But for rates over time, and what a broker tells of its run."""
    steady = sorted(LIVE - {"/", "/brokers/broker-a"} | {"/audit", "/jobs"})

    async def scenario(web: Web) -> None:
        await fill(web)
        got = 0
        async with web.mq.consume("orders", group="billing") as messages:
            async for message in messages:
                message.ack()
                if (got := got + 1) == 11:
                    break

        async def marks() -> dict[str, str]:
            live = {"roquette-live": "1"}
            return {path: (await web.get(path, **live)).headers["etag"] for path in steady}

        for _ in range(60):  # until rates are of nothing, and lines of the last points, too
            await web.get("/brokers")
            await asyncio.sleep(2)
        await marks()
        await asyncio.sleep(2)
        before = await marks()
        for _ in range(5):
            await asyncio.sleep(2)
            assert await marks() == before

    browse(scenario)
