"""Every view in process: what it says, of what somebody named as badly as may be, and when servers are away."""

import asyncio
import re
from html import unescape
from typing import Any

import pytest
from tests.console.small_web import HOSTILE, Web, browse, text_of, tiles_of

from roquette import ReceivedMessage, StartFrom
from roquette.console.act_table import ACTS
from roquette.errors import BrokerError

PATHS = [
    "/",
    "/topics",
    "/topics?q=ord",
    "/topics?kind=system",
    "/topics?q=nowhere",
    "/topics/orders",
    "/topics/orders/messages",
    "/topics/orders/messages?filter=paid",
    "/topics/orders/messages?kind=sql&filter=amount+%3E+7",
    "/topics/orders/messages?before=-3",
    "/topics/orders/messages?cursor=broker-a:0:1,broker-a:1:1",
    "/topics/orders/tail",
    "/topics/orders/produce",
    "/topics/orders/settings",
    "/groups",
    "/groups?order=behind",
    "/groups/billing",
    "/groups/nobody",
    "/groups/billing/settings",
    "/groups/billing/stacks",
    "/messages",
    "/messages?q=k1&topic=orders",
    "/dead",
    "/dead/billing",
    "/brokers",
    "/brokers/broker-a",
    "/brokers/broker-a/settings",
    "/brokers/broker-a/members",
    "/names",
    "/clients",
    "/access",
    "/doctor",
    "/apply",
    "/apply?file=topics%3A%0A++orders%3A%0A++++queues%3A+8%0A",
    "/apply?file=topics%3A%0A++orders%3A%0A++++writeQueueNums%3A+8%0A",
    "/jobs",
    "/audit",
    *(f"/act/{name}" for name in ACTS),
    "/act/group-seek?group=billing&topic=orders&to=first",
    "/act/topic-delete?topic=orders",
    "/act/topic-create?topic=new&queues=4",
    "/act/topic-resize?topic=orders&queues=2",
    "/act/group-delete?group=billing",
    "/act/broker-drain?name=broker-a",
    "/act/broker-config-set?broker=broker-a&changes=fileReservedTime%3D48",
]
LIVE = {
    "/",
    "/topics",
    "/topics/orders",
    "/groups",
    "/groups/billing",
    "/brokers",
    "/brokers/broker-a",
    "/names",
    "/clients",
}
# A member's stacks are refused where nobody is online: in words.
IN_WORDS = {"/groups/billing/stacks": 502}


async def fill(web: Web) -> None:
    """Topics, messages and a group, with what nobody should name anything."""
    for number in range(12):
        await web.mq.send(
            "orders",
            f'{{"n": {number}, "text": {HOSTILE!r}}}'.encode(),
            tag="paid" if number % 2 else HOSTILE.split()[0],
            key=f"k{number}",
            properties={"amount": str(number), "note": HOSTILE},
        )
    await web.mq.send("bytes", bytes(range(256)) * 3)
    async with web.mq.consume("orders", group="billing", start_from=StartFrom.FIRST) as messages:
        async for message in messages:
            message.ack()
            break


def test_every_view_answers_and_shows_what_is_named_badly_as_text() -> None:
    async def scenario(web: Web) -> None:
        await fill(web)
        for path in PATHS:
            await asyncio.sleep(0.1)  # the rate of requests is bounded
            answer = await web.get(path)
            page = answer.text
            assert answer.status_code == IN_WORDS.get(path, 200), (path, text_of(page)[-500:])
            assert page.startswith("<!doctype html>") and "<title>" in page, path
            assert "<script>alert" not in page, path
            assert len(page) < 200_000 and page.count("<") < 6_000, (path, len(page))
            _links_are_ours(path, page)

    browse(scenario)


def _links_are_ours(path: str, page: str) -> None:
    links = {unescape(each) for each in re.findall(r'(?:href|action)="([^"]*)"', page)}
    assert all(each.startswith(("/c/dev/", "/static/", "#", "/sign-out")) for each in links), path


def test_a_live_part_is_small_and_the_same_while_nothing_happens() -> None:
    async def scenario(web: Web) -> None:
        await fill(web)
        for path in sorted(LIVE):
            whole = (await web.get(path)).text
            part = await web.get(path, **{"roquette-live": "1"})
            assert part.text.startswith("<main") and len(part.text) < len(whole), path
            assert 'data-live="' in part.text, path
        for path in ("/topics/orders", "/groups/billing", "/topics"):
            first = await web.get(path, **{"roquette-live": "1"})
            again = await web.get(
                path, **{"roquette-live": "1", "if-none-match": first.headers["etag"]}
            )
            assert (again.status_code, again.text) == (304, ""), path

    browse(scenario)


@pytest.mark.parametrize("away", ["broker", "name server"])
def test_when_servers_are_away_a_page_says_so(away: str) -> None:
    async def scenario(web: Web) -> None:
        await fill(web)
        assert (await web.get("/")).status_code == 200
        web.cluster.kill("10.0.0.2" if away == "broker" else "10.0.0.1")
        for path in PATHS:
            await asyncio.sleep(0.1)  # the rate of requests is bounded
            answer = await web.get(path)
            assert answer.status_code in (200, 404, 502, 504), (path, answer.status_code)
            assert "Traceback" not in answer.text, path
            assert "<h1" in answer.text, path

    browse(scenario)


def test_what_servers_refuse_to_tell_is_said_in_their_words_and_the_page_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise BrokerError(1, "The authorizationMetadataProvider is not configured.")

    for name in (
        "console.views.access.list_acls",
        "console.views.access.show_user",
        "console.acts.plan_of",
    ):
        monkeypatch.setattr(f"roquette.{name}", refuse)

    async def scenario(web: Web) -> None:
        act = "/act/acl-allow?user=bob&actions=pub&resources=orders"
        for path, stays in (("/access", "May do"), ("/access/bob", "bob"), (act, "Show the plan")):
            text = await web.main(path)
            assert "The authorizationMetadataProvider is not configured." in text
            assert stays in text and "asks again by itself" not in text

    browse(scenario)


def test_the_overview_counts_the_topics_that_the_list_has() -> None:
    async def scenario(web: Web) -> None:
        await fill(web)
        while "being examined" in await web.main("/"):
            await asyncio.sleep(1)
        assert tiles_of((await web.get("/")).text)["Topics"] == "2 1 name server"
        assert "2 of 2" in await web.main("/topics")

    browse(scenario)


def test_an_act_leaves_what_the_doctor_saw_until_it_has_looked_again() -> None:
    async def scenario(web: Web) -> None:
        while "being examined" in await web.main("/"):
            await asyncio.sleep(1)
        await web.press("/act/topic-create?topic=new&queues=4", "Do it")
        assert "being examined" not in await web.main("/")
        assert "new" in await web.main("/topics"), "what is asked at once is new"

    browse(scenario)


def test_the_palette_finds_topics_groups_brokers_views_and_ids() -> None:
    async def scenario(web: Web) -> None:
        await fill(web)

        async def found(words: str) -> str:
            return text_of((await web.browser.get("/c/dev/find", params={"q": words})).text)

        assert "orders topic" in await found("ord")
        assert "billing group" in await found("bill")
        assert "broker-a broker" in await found("BROKER-A")
        assert "Doctor view" in await found("doc")
        assert "message id or key" in await found("0A0000010000000000000001")
        assert "Nothing has this name" in await found("zzz")
        assert "<script>" not in (await web.browser.get("/c/dev/find", params={"q": HOSTILE})).text

    browse(scenario)


def test_a_journey_shows_the_sender_the_topic_and_each_group() -> None:
    async def scenario(web: Web) -> None:
        await fill(web)
        page = (await web.get("/messages?q=k3&topic=orders")).text
        way = unescape(re.search(r'href="(/c/dev/messages/[^"]+)"', page)[1])
        text = text_of((await web.browser.get(way)).text)
        assert "Journey" in text and "sent" in text and "stored" in text and "billing" in text
        assert HOSTILE in text

    browse(scenario)


def test_a_dead_letter_leads_to_the_journey_of_what_died_and_was_sent_again() -> None:
    async def refuse(message: ReceivedMessage) -> bool:
        return False

    async def scenario(web: Web) -> None:
        await web.mq.send("orders", b"x", key="k1")
        more: dict[str, Any] = {"start_from": StartFrom.FIRST, "max_reconsume_times": 0}
        await web.mq.subscribe("orders", refuse, group="billing", **more)
        page = ""
        while 'name="at"' not in page:
            await asyncio.sleep(1)
            page = (await web.get("/dead/billing")).text
        place = re.search(r'name="at" value="([^"]+)"', page)[1]
        plan = f"/act/dlq-resend?group=billing&at={place}"
        assert "Done" in text_of((await web.press(plan, "Do it")).text)

        way = unescape(re.search(r'href="/c/dev(/messages/[^"]+)"', page)[1])
        assert way.endswith("?topic=orders")
        text = await web.main(way)
        for step in ("sent", "stored", "dead letter", "sent again"):
            assert f" {step} " in text, (step, text)
        assert "resent was sent again at" in text

    browse(scenario)


def test_newest_messages_come_page_by_page_each_once() -> None:
    async def scenario(web: Web) -> None:
        for number in range(95):
            await web.mq.send("many", str(number).encode())
        path, seen = "/topics/many/messages?most=40", []
        while path:
            page = (await web.get(path)).text
            seen += [int(each) for each in re.findall(r'class="preview">(\d+)<', page)]
            more = re.search(r'href="/c/dev(/[^"]*before=[^"]+)" rel="next"', page)
            path = unescape(more[1]) if more else ""
        assert sorted(seen) == list(range(95))
        assert seen[0] == 94

    browse(scenario)


def test_an_empty_filter_says_what_the_newest_messages_have() -> None:
    async def scenario(web: Web) -> None:
        await web.mq.send("orders", b"x", tag="paid", properties={"amount": "811.33"})
        text = await web.main("/topics/orders/messages?kind=sql&filter=amount+%3E+900.0")
        assert "Why it is empty" in text and "811.33" in text
        text = await web.main("/topics/orders/messages?filter=Paid")
        assert "upper and lower case" in text and "paid" in text

    browse(scenario)
