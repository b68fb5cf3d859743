"""Acts: a plan with a URL, a mark that comes back, what was done, the way back, and a line of the audit for each."""

import asyncio
import json
import re
from html import unescape
from typing import Any

import pytest
from tests.console.small_web import Web, browse, table_of, text_of

from roquette import StartFrom
from roquette.admin.groups import group_lag
from roquette.admin.topics import describe_topic
from roquette.client.calls import ask
from roquette.client.operator_calls import put_group
from roquette.errors import RouteNotFound
from roquette.wire.bodies.tables import SubscriptionGroupConfig


async def read_all(web: Web, topic: str, group: str, count: int) -> None:
    async with web.mq.consume(topic, group=group, start_from=StartFrom.FIRST) as messages:
        async for message in messages:
            message.ack()
            count -= 1
            if not count:
                break


def test_a_seek_shows_what_comes_again_does_it_and_says_the_way_back() -> None:
    async def scenario(web: Web) -> None:
        for number in range(8):
            await web.mq.send("orders", str(number).encode())
        await read_all(web, "orders", "billing", 8)
        path = "/act/group-seek?group=billing&topic=orders&to=first"
        plan = await web.main(path)
        assert (
            "Do it: 8 again, 0 never" in plan
            and "roquette group seek billing --topic orders --to first" in plan
        )

        done = text_of((await web.press(path, "Do it")).text)

        assert "Done" in done and "The way back" in done
        back = re.findall(
            r"roquette group seek billing --topic orders --to (\d+) --queue (\d+) --broker broker-a",
            done,
        )
        assert sum(int(offset) for offset, _ in back) == 8
        rows = await web.mq.session.run(group_lag("billing", topic="orders"))
        assert sum(row.lag for row in rows) == 8
        lines = [(each.command, each.result) for each in web.console.deeds.audit.lines]
        assert lines == [
            ("roquette group seek billing --topic orders --to first", r) for r in ("begun", "done")
        ]
        assert "roquette group seek billing" in await web.main("/audit")

    browse(scenario)


def test_a_plan_that_has_changed_is_shown_again_and_not_done() -> None:
    async def scenario(web: Web) -> None:
        await web.mq.send("orders", b"x")
        path = "/act/topic-delete?topic=orders"
        page = (await web.get(path)).text
        mark = re.search(r'name="mark" value="(\w+)"', page)[1]
        for fields in (
            {"mark": "0" * 24, "typed": "orders"},
            {"mark": mark, "typed": "other"},
            {"mark": mark},
            {},
        ):
            answer = text_of((await web.post(f"/c/dev{path}", **fields)).text)
            assert "Not done" in answer, fields
        assert (await web.mq.session.run(describe_topic("orders"))).messages == 1
        assert not web.console.deeds.audit.lines
        done = text_of((await web.post(f"/c/dev{path}", mark=mark, typed="orders")).text)
        assert "Done" in done
        with pytest.raises(RouteNotFound):
            await web.mq.session.run(describe_topic("orders"))

    browse(scenario)


def test_traffic_alone_does_not_change_a_plan() -> None:
    async def scenario(web: Web) -> None:
        for number in range(6):
            await web.mq.send("orders", str(number).encode())
        await read_all(web, "orders", "billing", 2)
        path = "/act/group-seek?group=billing&topic=orders&to=@-1h"
        page = (await web.get(path)).text
        action = unescape(re.search(r'class="deed" method="post" action="([^"]*)"', page)[1])
        assert "to=%40-1h" not in action, "a time that is counted from now is pinned"
        mark = re.search(r'name="mark" value="(\w+)"', page)[1]
        await web.mq.send("orders", b"more")
        await read_all(web, "orders", "billing", 1)

        assert "Done" in text_of((await web.post(action, mark=mark)).text)

    browse(scenario)


def test_a_job_goes_on_while_nobody_looks_and_shows_what_it_found() -> None:
    async def scenario(web: Web) -> None:
        for _ in range(4):
            await web.mq.send("orders", b"x")
        answer = await web.press("/act/broker-drain?name=broker-a&wait=true", "Do it")
        assert answer.status_code == 303
        assert "at work" in await web.main("/jobs")
        again = await web.press("/act/broker-drain?name=broker-a&wait=true", "Do it")
        assert "the same job is at work already" in text_of(again.text)
        job = web.console.deeds.jobs.get(1, "dev")
        assert job is not None
        await asyncio.sleep(1.0)
        assert (await web.post("/c/dev/jobs/1")).status_code == 303
        for _ in range(200):
            if job.state != "at work":
                break
            await asyncio.sleep(0.1)
        text = await web.main("/jobs/1")
        assert "stopped" in text and "What it told" in text
        assert "Done" in text_of(
            (await web.press("/act/broker-restore?name=broker-a", "Do it")).text
        )

    browse(scenario, brokers=2)


def test_a_certificate_fills_while_one_watches_and_an_end_is_told_as_by_the_command() -> None:
    async def scenario(web: Web) -> None:
        for _ in range(8):
            await web.mq.send("orders", b"x")
        await read_all(web, "orders", "billing", 1)
        await web.press("/act/topic-resize?topic=orders&queues=2&wait=true", "Do it")
        rows: list[dict[str, str]] = []
        while not rows:
            await asyncio.sleep(10)
            rows = table_of((await web.get("/jobs/1")).text, "So far")
        assert {row["proven"] for row in rows} == {"no"}
        await web.post("/c/dev/jobs/1")  # stopped: what is left is still there to see
        await asyncio.sleep(1)
        page = (await web.get("/jobs/1")).text
        assert "stopped" in page and table_of(page, "So far") == rows
        await web.press("/act/topic-resize?topic=orders&queues=2&wait=true", "Do it")
        await read_all(web, "orders", "billing", 7)
        while "at work" in await web.main("/jobs/2"):
            await asyncio.sleep(10)
        rows = table_of((await web.get("/jobs/2")).text, "What it found")
        assert {row["queue"] for row in rows} == {"2", "3"}
        assert {row["proven"] for row in rows} == {"yes"}
        await web.press("/act/broker-drain?name=broker-a&wait=true", "Do it")
        while "at work" in (text := await web.main("/jobs/3")):
            await asyncio.sleep(10)
        assert "broker-a has nothing left for anybody" in text

    browse(scenario, brokers=2)


def test_dead_letters_are_chosen_and_each_has_a_row() -> None:
    async def scenario(web: Web) -> None:
        for number in range(5):
            await web.mq.send(
                "%DLQ%billing", f"letter {number}".encode(), properties={"ORIGIN": "x"}
            )
        text = await web.main("/dead/billing")
        assert "letter 4" in text
        page = (await web.get("/dead/billing")).text
        places = re.findall(r'name="at" value="([^"]+)"', page)
        assert len(places) == 5
        chosen = "&".join(f"at={each}" for each in places[:2])
        plan = f"/act/dlq-resend?group=billing&{chosen}&to=again"
        assert "send 2 dead letters of billing again to again" in await web.main(plan)
        done = text_of((await web.press(plan, "Do it")).text)
        assert "Done" in done and done.count("again") > 2, done
        assert (await web.mq.session.run(describe_topic("again"))).messages == 2
        file = await web.browser.get("/c/dev/dead/billing/letters.jsonl")
        lines = [json.loads(line) for line in file.text.splitlines()]
        assert (lines[0]["is"], len(lines)) == ("whole", 6)
        assert (
            file.headers["content-disposition"]
            == 'attachment; filename="billing-dead-letters.jsonl"'
        )

    browse(scenario)


def test_a_message_is_produced_by_a_form_and_what_is_wrong_is_said() -> None:
    async def scenario(web: Web) -> None:
        sent = await web.post(
            "/c/dev/topics/orders/produce", body="hello", tag="a", keys="k1 k2", properties="x=1"
        )
        assert "Sent to broker-a" in text_of(sent.text)
        text = await web.main("/topics/orders/messages")
        assert "hello" in text and "k1 k2" in text
        for fields, words in (
            ({"body": "x", "properties": "nothing"}, "not of the form KEY=VALUE"),
            ({"body": "x", "delay": "soon"}, "could not convert"),
        ):
            assert words in text_of((await web.post("/c/dev/topics/orders/produce", **fields)).text)

    browse(scenario)


def test_a_file_is_applied_when_its_plan_is_still_the_same() -> None:
    async def scenario(web: Web) -> None:
        await web.mq.send("orders", b"x")
        file = "topics:\n  orders:\n    write_queues: 6\n    read_queues: 6\n"
        path = f"/c/dev/apply?{_query(file=file)}"
        page = (await web.browser.get(path)).text
        if "There is no such plan" in page:  # the words of the file's keys are told by the error
            pytest.fail(text_of(page)[-900:])
        mark = re.search(r'name="mark" value="(\w+)"', page)[1]
        assert "Not done" in text_of((await web.post(path, mark="0" * 24)).text)
        assert "1 of 1 step done" in text_of((await web.post(path, mark=mark)).text)
        assert "The cluster is as the file says" in text_of((await web.browser.get(path)).text)

    browse(scenario)


def test_the_file_that_a_topics_settings_begin_with_is_what_is_there() -> None:
    async def scenario(web: Web) -> None:
        await web.mq.send("orders", b"x")
        page = (await web.get("/topics/orders/settings")).text
        link = re.search(r'href="([^"]*/apply[?][^"]*)"', page)
        assert link is not None
        text = text_of((await web.browser.get(unescape(link[1]))).text)
        assert "The cluster is as the file says" in text

    browse(scenario)


def test_the_file_that_a_groups_settings_begin_with_is_what_is_there() -> None:
    async def scenario(web: Web) -> None:
        config = SubscriptionGroupConfig(group_name="billing", retry_max_times=3)
        await web.mq.session.run(ask("10.0.0.2:10911", put_group(config)))
        page = (await web.get("/groups/billing/settings")).text
        link = re.search(r'href="([^"]*/apply[?][^"]*)"', page)
        assert link is not None
        text = text_of((await web.browser.get(unescape(link[1]))).text)
        assert "retryMaxTimes: 3" in text and "The cluster is as the file says" in text

    browse(scenario)


def test_the_button_of_a_seek_is_red_where_the_group_never_gets_something() -> None:
    async def scenario(web: Web) -> None:
        for number in range(8):
            await web.mq.send("orders", str(number).encode())
        await read_all(web, "orders", "billing", 3)
        back = (await web.get("/act/group-seek?group=billing&topic=orders&to=first")).text
        assert 'class="go"' in back and 'class="danger"' not in back
        on = (await web.get("/act/group-seek?group=billing&topic=orders&to=last")).text
        assert 'class="danger"' in on and 'class="go"' not in on
        never = re.search(r"Do it: 0 again, (\d+) never", text_of(on))[1]
        assert f"The group never gets {never} messages." in text_of(on)

    browse(scenario)


def _query(**words: Any) -> str:
    from urllib.parse import urlencode

    return urlencode(words)


def test_what_is_wrong_in_a_form_is_a_sentence() -> None:
    async def scenario(web: Web) -> None:
        for path, words in (
            ("/act/topic-create?topic=a+b", "illegal characters"),
            ("/act/topic-create?topic=x&queues=0", "queues is at least 1"),
            ("/act/topic-create?topic=x&queues=many", "queues is a number"),
            ("/act/group-seek?group=g&topic=nowhere&to=first", "no broker has"),
            ("/act/group-seek?group=g&topic=t&to=yesterday", "say"),
            ("/act/broker-config-set?changes=x", "not of the form KEY=VALUE"),
        ):
            assert words in await web.main(path), path
        assert "there is no act" in await web.main("/act/rm-rf", 502)

    browse(scenario)
