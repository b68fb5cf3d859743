"""Who may ask at all: hosts, origins, methods, rate, what headers say; read-only; people and their sessions."""

import asyncio
import re
from typing import Any

import pytest
from tests.access.attackers import settings as closed
from tests.console.small_web import CONSOLE, NAMESRV, PERSON, Web, browse, open_web, text_of

from roquette.admin.access import AclRow, put_rules, save_user
from roquette.admin.who import is_open, prove
from roquette.base.entropy import Entropy
from roquette.client.client import Client
from roquette.client.client_base import Outside
from roquette.client.settings import config_of
from roquette.console.guard import HEADERS
from roquette.wire.signature import Credentials
from roquette_testing.cluster import SimCluster, simulate


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:8082", 200),
        ("LOCALHOST:8082", 200),
        ("[::1]:8082", 200),
        ("console.example", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("evil.example:8082", 421),
        ("", 421),
    ],
)
def test_only_the_names_it_is_known_by(host: str, status: int) -> None:
    async def scenario(web: Web) -> None:
        answer = await web.get("/topics", host=host)
        assert answer.status_code == status
        assert {(name, answer.headers[name.decode()].encode()) for name, _ in HEADERS} == set(
            HEADERS
        )

    browse(scenario, hosts=("console.example",))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"origin": "http://127.0.0.1"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({}, 403),
    ],
)
def test_what_another_site_causes_changes_nothing(headers: dict[str, str], status: int) -> None:
    async def scenario(web: Web) -> None:
        answer = await web.browser.post(
            "/c/dev/topics/orders/produce", data={"body": "x"}, headers=headers
        )
        assert answer.status_code == status
        assert bool(web.console.deeds.audit.lines) == (status == 200)

    browse(scenario)


def test_more_than_a_person_asks_waits_and_live_parts_do_not_count() -> None:
    async def scenario(web: Web) -> None:
        answers = [(await web.browser.get("/healthz")).status_code for _ in range(100)]
        assert answers.count(200) in range(60, 70) and answers[-1] == 429
        assert (await web.get("/", **{"roquette-live": "1"})).status_code == 200

    browse(scenario)


def test_a_read_only_console_has_plans_and_no_acts() -> None:
    async def scenario(web: Web) -> None:
        await web.mq.send("orders", b"x")
        plan = (await web.get("/act/topic-delete?topic=orders")).text
        assert "read-only" in text_of(plan) and 'method="post"' not in plan
        mark = {"mark": "x", "typed": "orders"}
        for path in (
            "/act/topic-delete?topic=orders",
            "/topics/orders/produce",
            "/doctor",
            "/apply",
        ):
            assert (await web.post(f"/c/dev{path}", **mark)).status_code == 403

    browse(scenario, read_only=True)


def test_what_is_no_route_is_not_found_and_what_is_too_much_is_refused() -> None:
    async def scenario(web: Web) -> None:
        for path in ("/nowhere", "/topics/a/b/c", "/static/../app.py"):
            assert (await web.get(path)).status_code == 404
        assert (await web.browser.get("/c/other/topics")).headers["location"] == "/"
        big = await web.post("/c/dev/topics/orders/produce", body="x" * (1 << 20))
        assert big.status_code == 413
        assert (
            await web.browser.request("PUT", "/c/dev/topics", headers={"sec-fetch-site": "none"})
        ).status_code == 405

    browse(scenario)


def connecting(cluster: SimCluster) -> Any:
    """Makes clients that are somebody."""

    def connect(context: str, credentials: Credentials | None) -> Client:
        config = config_of(cluster.name_servers, {"credentials": credentials}, {})
        outside = Outside(cluster.clock, Entropy(7), cluster.host(CONSOLE).files)
        return Client._within(outside, config, group="TOOLS_PRODUCER")

    return connect


def test_people_are_users_of_the_cluster_which_alone_judges_them() -> None:
    async def run(cluster: SimCluster) -> None:
        cluster.access = closed()
        await cluster.add_namesrv(NAMESRV)
        await cluster.add_broker("10.0.0.2", "broker-a")
        root = next(iter(_people(closed())))
        admin = await cluster.client(PERSON, credentials=root)
        servers = [f"{NAMESRV}:9876"]
        told = await admin.session.run(
            save_user(
                "viewer",
                servers,
                create=True,
                password="secret-of-viewer",
                user_type="Normal",
                user_status="enable",
            )
        )
        assert not any(each.error for each in told)
        rule = AclRow("User:viewer", "Custom", "Topic:orders", "Get", "", "Allow")
        await admin.session.run(put_rules([rule], servers))
        await admin.send("orders", b"x")
        connect = connecting(cluster)
        assert not await is_open(lambda who: connect("dev", who))

        async def scenario(web: Web) -> None:
            away = await web.get("/topics/orders")
            assert (away.status_code, away.headers["location"]) == (
                303,
                "/sign-in?to=%2Fc%2Fdev%2Ftopics%2Forders",
            )
            assert (await web.browser.get("/c/dev/find")).status_code == 401
            for name, secret in (
                ("viewer", "wrong"),
                ("nobody", "secret-of-viewer"),
                ("viewer", ""),
                ("", "x"),
            ):
                refused = await web.post("/sign-in", name=name, secret=secret)
                assert refused.status_code == 401 and "set-cookie" not in refused.headers
            signed = await web.post(
                "/sign-in?to=%2Fc%2Fdev%2Ftopics%2Forders", name="viewer", secret="secret-of-viewer"
            )
            assert (signed.status_code, signed.headers["location"]) == (303, "/c/dev/topics/orders")
            cookie = signed.headers["set-cookie"]
            assert "HttpOnly" in cookie and "SameSite=strict" in cookie
            assert "secret-of-viewer" not in cookie
            topics = await web.get("/topics")
            assert topics.status_code in (200, 502)
            assert "Sign out" in topics.text and "viewer" in topics.text
            sent = await web.post("/c/dev/topics/orders/produce", body="x")
            assert "Not sent" in text_of(sent.text), "the cluster refuses it"
            everywhere = " ".join(f"{line}" for line in web.console.deeds.audit.lines)
            assert "secret-of-viewer" not in everywhere and "viewer" in everywhere
            await web.post("/sign-out")
            web.browser.cookies.clear()
            assert (await web.get("/topics")).status_code == 303
            guesses = (web.post("/sign-in", name="viewer", secret="guess") for _ in range(9))
            answers = await asyncio.gather(*guesses)  # side by side
            assert sum("wait a minute" in text_of(each.text) for each in answers) >= 4

        await open_web(cluster, admin, scenario, connect, prove, sign_in=True)

    simulate(run)


def _people(settings: Any) -> list[Credentials]:
    found = re.search(
        r'"username":\s*"([^"]+)",\s*"password":\s*"([^"]+)"', settings.init_authentication_user
    )
    assert found is not None
    return [Credentials(found[1], found[2])]


def test_an_open_cluster_is_known_as_one() -> None:
    async def run(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMESRV)
        await cluster.add_broker("10.0.0.2", "broker-a")
        connect = connecting(cluster)
        assert await is_open(lambda who: connect("dev", who))

    simulate(run)
