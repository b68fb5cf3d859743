"""The console in a process of its own, asked as a browser asks, at real servers: what its pages say, and what is so."""

import asyncio
import contextlib
import html
import json
import os
import re
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Set
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from tests.console.small_web import Pages, table_of, text_of, tiles_of
from tests.console.test_views import PATHS, fill
from tests.interop.conftest import SETTINGS
from tests.interop.drain_and_resize import GROUP, TOPIC, yard
from tests.interop.driver import Driver, JavaError
from tests.interop.peers import Process, Server, call, start_broker, start_namesrv
from tests.interop.test_up import Terminal, terminal  # noqa: F401

from roquette import Client
from roquette.apps.local_group import load_group

pytestmark = [pytest.mark.interop, pytest.mark.long, pytest.mark.timeout(600)]

LOOK_S = 0.5
LATE = "late-readers"


@contextlib.asynccontextmanager
async def console(folder: Path, namesrv: str) -> AsyncIterator[Pages]:
    """A console of these servers; at its end it has complained of nothing."""
    words = ("console", "-n", namesrv, "--listen", "127.0.0.1:0", "--audit-log", "audit.jsonl")
    process = Process([str(Path(sys.executable).with_name("roquette")), *words], folder, {})
    try:
        address = process.line_with("ready ", 60).partition("=")[2].rstrip("/")
        async with httpx.AsyncClient(base_url=address, timeout=30) as browser:
            yield Pages(browser, "cluster")
    finally:
        code = process.stop()
    said = process.log.read_text().splitlines()
    assert (code, said) == (0, [f"ready console={address}/"]), process.tail()


def noted(folder: Path) -> list[tuple[str, str, str]]:
    """What the console's file of the audit has: what was done, how it ended, and the way back."""
    lines = map(json.loads, (folder / "audit.jsonl").read_text().splitlines())
    return [(line["command"], line["result"], line["back"]) for line in lines]


async def until(
    look: Callable[[], Any],
    holds: Callable[[str], Any],
    most_s: float = 120,
    every_s: float = LOOK_S,
) -> list[str]:
    """Look at a page as often as it asks for itself, until this holds; all that was seen."""
    seen: list[str] = []
    end = time.monotonic() + most_s
    while True:
        seen.append(await look())
        if holds(seen[-1]):
            return seen
        assert time.monotonic() < end, text_of(seen[-1])
        await asyncio.sleep(every_s)


class Watched:
    """A page that is open in a browser: its live part, which is not sent again while it is the same."""

    def __init__(self, pages: Pages, path: str) -> None:
        self._pages, self._path = pages, path
        self._mark = self._text = ""

    async def look(self) -> str:
        """The markup as it is now."""
        head = {"roquette-live": "1", "if-none-match": self._mark}
        answer = await self._pages.get(self._path, **head)
        assert answer.status_code in (200, 304), text_of(answer.text)
        if answer.status_code == 200:
            self._mark, self._text = answer.headers["etag"], answer.text
        return self._text


def command_on(page: str) -> list[str]:
    """The words of the command that a page names, behind `roquette`."""
    words = shlex.split(text_of(re.search(r'class="command">.*?</code>', page, re.DOTALL)[0]))
    assert words[1:3] == ["$", "roquette"], words
    return words[3:]


@contextlib.contextmanager
def kept_free(address: str) -> Iterator[None]:
    """The ports of a killed broker refuse, and no other group that starts beside this one takes them."""
    host, _, port = address.rpartition(":")
    with contextlib.ExitStack() as held:
        for number in (int(port) - 2, int(port), int(port) + 1):
            listener = held.enter_context(socket.socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            end = time.monotonic() + 10
            while True:
                try:
                    listener.bind((host, number))
                    break
                except OSError:  # threads of the killed process end one after the other
                    assert time.monotonic() < end, f"{host}:{number} is not free"
                    time.sleep(0.01)
        yield


def seconds(words: str) -> float:
    """Of a span such as 3.1 s."""
    return float(re.search(r"([\d.]+)\ss", words)[1])


def test_a_take_over_is_watched_to_its_end(terminal: Terminal, tmp_path: Path) -> None:  # noqa: F811
    path = "/brokers/broker-a/members"

    def told(page: str) -> tuple[dict[str, Any], list[dict[str, str]]]:
        """What the command says that the page names, and the page's members, in one form."""
        words = command_on(page)
        assert words == ["broker", "status", "--name", "broker-a"]
        done = terminal.run(*words, "-o", "json", code=0 if "Healthy" in page else 10)
        return json.loads(done[0])[0], table_of(page, "Members")

    def agree(page: str) -> dict[str, Any]:
        """The page and the command say the same; what the command says."""
        state, rows = told(page)
        tiles = tiles_of(page)
        assert tiles["Master"] == f"broker {state['master']} epoch {state['epoch']}"
        assert tiles["In step"].startswith(f"{len(state['in_step'])} of 3")
        for row, member in zip(rows, state["members"], strict=True):
            assert row["Member"] == f"broker {member['broker_id']}"
            assert row["Role"] == member["role"]
            assert row["Address"] == member["address"]
            assert (row["Step"] == "in step") == member["in_step"]
            serves = member["role"] == "master"
            assert row["Epoch"] == (str(member["epoch"]) if serves else "–")
            assert (row["Lease"] != "–") == serves
        for problem in state["problems"]:
            assert problem.partition(": connect ")[0] in text_of(page)
        return state

    async def scenario() -> None:
        async with console(tmp_path / "console", load_group(str(terminal.folder)).namesrv) as pages:
            watched, names = Watched(pages, path), Watched(pages, "/names")
            whole = (await until(watched.look, lambda page: "Healthy" in page))[-1]
            before = await asyncio.to_thread(agree, whole)
            old = before["master"]
            part = load_group(str(terminal.folder)).brokers[old - 1]
            await until(watched.look, lambda page: "4\u202flooks" in page)
            os.kill(part.pid, signal.SIGKILL)
            killed = time.monotonic()
            with kept_free(part.address):
                seen = await until(
                    watched.look,
                    lambda page: (
                        tiles_of(page)["Master"].startswith("broker ")
                        and not tiles_of(page)["Master"].startswith(f"broker {old} ")
                    ),
                )
                gap = time.monotonic() - killed
                nobody = [page for page in seen if tiles_of(page)["Master"].startswith("nobody")]
                assert len(nobody) >= 2
                for page in nobody:
                    rows = {row["Member"]: row for row in table_of(page, "Members")}
                    assert "Nobody is master: sends wait" in page
                    assert rows[f"broker {old}"]["Role"] == "silent"
                    assert {row["Lease"] for row in rows.values()} == {"–"}
                after = (await until(watched.look, lambda page: f"not in step: [{old}]" in page))[
                    -1
                ]
                state = await asyncio.to_thread(agree, after)
                assert state["master"] != old and state["epoch"] > before["epoch"]
                silent = table_of(after, "Members")[old - 1]
                assert (silent["Role"], silent["Step"]) == ("silent", "not in step")
                assert silent["Behind"] == silent["Log end"] == "–"
                # The strip: the old master, nobody, the new one. What was watched is as long as it took.
                lines = [text_of(each) for each in re.findall(r"<li>.*?</li>", after)]
                spans = [re.search(r"(broker \d|nobody)\s+for", line) for line in lines]
                masters = [span[1] for span in spans if span]
                assert masters == [f"broker {old}", "nobody", f"broker {state['master']}"], lines
                longest = seconds(tiles_of(after)["Nobody for"])
                assert seconds(lines[1].partition("for")[2]) <= longest <= gap + 3 * LOOK_S
                # Nobody has opened another page: what changed is noted all the same.
                place = state["members"][state["master"] - 1]["address"]
                words = f"broker broker-a is master {place}"
                await until(names.look, lambda page: words in text_of(page), 15, every_s=2)
                overview = Watched(pages, "/")
                await until(overview.look, lambda page: "Brokers are missing" in page, every_s=2)
            await asyncio.to_thread(terminal.run, "up", "restart", str(old))
            healed = (await until(watched.look, lambda page: "Healthy" in page))[-1]
            state = await asyncio.to_thread(agree, healed)
            assert state["in_step"] == [1, 2, 3] and tiles_of(healed)["In step"][0] == "3"
            assert seconds(tiles_of(healed)["Nobody for"]) == longest

    asyncio.run(scenario())


class Load:
    """Messages that a Java producer sends all the time, while the block runs."""

    def __init__(self, sends: Callable[[], None]) -> None:
        self._sends, self._over = sends, threading.Event()
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            while not self._over.wait(0.05):
                self._sends()
        except BaseException as error:  # noqa: BLE001 - raised again below
            self._failed.append(error)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(120)
        for error in self._failed:
            raise error


def test_a_drain_and_a_resize_under_java_load_show_their_certificates(
    drivers: Callable[[str], Driver], tmp_path: Path
) -> None:
    java = drivers("5.5.0")
    lock = threading.Lock()  # of the driver, which answers one command after the other

    async def work(pages: Pages, number: int, holds: Callable[[str], Any]) -> list[str]:
        """Watch a job until it is over; the late group comes when the page says that it is waited for."""
        watched = Watched(pages, f"/jobs/{number}")
        seen = await until(watched.look, holds)
        assert "at work" in seen[-1]
        await asyncio.to_thread(late)
        return seen + await until(watched.look, lambda page: "at work" not in page, every_s=1)

    def late() -> None:
        with lock:
            java("reader", name="late-c", group=LATE, namesrv=found.namesrv, topic=TOPIC)

    def leaves(wanted: Set[str] = frozenset()) -> set[str]:
        """What the late group has got when it has gone: at least what is wanted of it."""
        end = time.monotonic() + 90
        while True:
            with lock:
                rows = java("read", name="late-c", min=1, timeout=10_000, nudge=True)["rows"]
                got = {str(row["body"]) for row in rows}
                if got and (got >= wanted or time.monotonic() > end):
                    rows = java("read", name="late-c", stop=True)["rows"]
                    return {str(row["body"]) for row in rows}
            time.sleep(0.2)

    def send() -> None:
        with lock:
            found.send()

    async def scenario(pages: Pages, folder: Path) -> None:
        await asyncio.to_thread(late)
        for _ in range(3):
            send()
        got = await asyncio.to_thread(leaves, found.sent)
        drain = "/act/broker-drain?name=broker-a&wait=true"
        plan = (await pages.get(drain)).text
        assert command_on(plan) == ["broker", "drain", "broker-a", "--wait"]
        assert "have clients send nothing to broker-a any more" in text_of(plan)
        broker = found.brokers["broker-a"]
        end = sum(at(broker, queue) for queue in range(4))
        with Load(send):
            while sum(at(broker, queue) for queue in range(4)) < end + 20:  # of the late group
                await asyncio.sleep(0.1)
            begun = await pages.press(drain, "Do it")
            assert begun.headers["location"].endswith("/jobs/1")
            seen = await work(pages, 1, lambda page: LATE in str(table_of(page, "So far")))
            waiting = table_of(next(page for page in seen if LATE in page), "So far")
            assert any(
                row["kind"] == "unread" and row["group"] == LATE and number(row["count"]) > 0
                for row in waiting
            )
            said = text_of(seen[-1])
            assert tiles_of(seen[-1])["State"].startswith("done")
            assert "broker-a refuses sends; waiting until what it has is consumed" in said
            assert "broker-a has nothing left for anybody" in said
            again = (await pages.get("/jobs/1")).text
            assert "broker-a has nothing left for anybody" in text_of(again)
            got |= await asyncio.to_thread(leaves)
            with lock:
                ends = {queue: at(broker, queue) for queue in range(4)}
            drained = table_of((await pages.get("/brokers")).text, "Brokers")
            assert [row["State"] for row in drained] == ["drained", "answers"]
            await asyncio.sleep(1)
            assert ends == {queue: at(broker, queue) for queue in range(4)}
            assert "Done" in text_of(
                (await pages.press("/act/broker-restore?name=broker-a", "Do it")).text
            )

            resize = f"/act/topic-resize?topic={TOPIC}&queues=2&wait=true"
            assert "Do it: change orders to 2 queues" in await pages.main(resize)
            begun = await pages.press(resize, "Do it")
            assert begun.headers["location"].endswith("/jobs/2")
            seen = await work(
                pages,
                2,
                lambda page: [r for r in table_of(page, "So far") if r["proven"] == "no"],
            )
            assert tiles_of(seen[-1])["State"].startswith("done")
            got |= await asyncio.to_thread(leaves)
            await asyncio.to_thread(late)
        certificate = table_of((await pages.get("/jobs/2")).text, "What it found")
        assert {row["proven"] for row in certificate} == {"yes"}
        assert sorted((row["broker"], row["queue"], row["group"]) for row in certificate) == [
            (broker, queue, group)
            for broker in ("broker-a", "broker-b")
            for queue in "23"
            for group in (LATE, GROUP)
        ]
        for row in certificate:
            end = number(row["end offset"])
            assert (
                end
                == number(row["group offset"])
                == at(found.brokers[row["broker"]], int(row["queue"]))
            )
        for address in found.brokers.values():
            answer = call(address, 351, {"topic": TOPIC})
            assert answer is not None
            config = json.loads(answer[1])
            assert (config["readQueueNums"], config["writeQueueNums"]) == (2, 2)
        assert len(found.sent) > 100 and found.lost() == set()
        got |= await asyncio.to_thread(leaves, found.sent - got)
        assert found.sent - got == set()
        back = "roquette broker restore broker-a"
        assert noted(folder) == [
            ("roquette broker drain broker-a --wait", "begun", back),
            ("roquette broker drain broker-a --wait", "done", back),
            ("roquette broker restore broker-a", "begun", ""),
            ("roquette broker restore broker-a", "done", ""),
            ("roquette topic resize orders --queues 2 --wait", "begun", ""),
            ("roquette topic resize orders --queues 2 --wait", "done", ""),
        ]
        rows = table_of((await pages.get("/audit")).text, "Audit")
        assert len(rows) == 6

    async def opened() -> None:
        async with console(tmp_path / "console", found.namesrv) as pages:
            await scenario(pages, tmp_path / "console")

    with yard(tmp_path, java) as found:
        asyncio.run(opened())


def test_a_dead_letter_of_a_java_group_is_sent_again_and_its_journey_seen(
    drivers: Callable[[str], Driver], started: list[Server], tmp_path: Path
) -> None:
    java, topic, group = drivers("5.5.0"), "parcels", "porters"
    started.append(start_namesrv("roquette", tmp_path / "namesrv"))
    namesrv = started[0].address
    settings = {**SETTINGS, "traceTopicEnable": "true"}
    started.append(start_broker("roquette", tmp_path / "broker", namesrv, settings=settings))
    common = {"namesrv": namesrv, "topic": topic, "group": group}

    def got(count: int) -> list[Any]:
        """What the group was given, when there is so much."""
        rows: list[Any] = java("read", name="porter", min=count, timeout=60_000, stop=True)["rows"]
        return rows

    async def scenario(pages: Pages) -> None:
        java("maker", name="sender", namesrv=namesrv, trace=True)
        sending = {"name": "sender", "topic": topic, "body": "parcel", "keys": "parcel"}
        java("send", count=3, **sending)
        java(
            "reader",
            name="porter",
            trace=True,
            failing="parcel-1",
            failUntil=99,
            maxReconsume=2,
            **common,
        )
        letters = Watched(pages, f"/dead/{group}")
        (page,) = (await until(letters.look, lambda page: 'name="at"' in page, every_s=5))[-1:]
        tries = [(row["body"], row["tries"], row["works"]) for row in got(5)]
        assert [each for each in tries if each[0] == "parcel-1"] == [
            ("parcel-1", number, False) for number in range(3)
        ]
        # Of which topic it is, how often it failed, its key, its body; no other letter.
        (row,) = re.findall(r"<summary>.*?</summary>", page, re.DOTALL)
        assert re.search(r"\bparcel-1 parcels ×3 parcel-1\b", re.sub(r"\s+", " ", text_of(row)))
        assert "failed 3" in page
        assert "porters 1" in await pages.main("/dead")

        (place,) = re.findall(r'name="at" value="([^"]+)"', page)
        plan = f"/act/dlq-resend?{urlencode({'group': group, 'at': place})}"
        assert "send 1 dead letter of porters again to parcels" in await pages.main(plan)
        done = (await pages.press(plan, "Do it")).text
        (sent,) = table_of(done, "What was done")
        assert "Done" in text_of(done) and sent["topic"] == topic

        java("reader", name="porter", **common)
        assert ("parcel-1", 0, sent["new id"]) in [
            (row["body"], row["tries"], row["id"]) for row in got(1)
        ]
        # From the letter to its journey, as its link leads.
        link = re.search(r'href="/c/cluster(/messages/[^"]+)"', page)
        assert link is not None
        watched = Watched(pages, html.unescape(link[1]))
        journey = (
            await until(
                watched.look, lambda page: lanes(page).get("porters", []).count("failed") == 3
            )
        )[-1]
        steps = lanes(journey)
        assert steps["sender"] == ["sent", "sent again"] and steps["topic"] == ["stored"]
        assert [each for each in steps["porters"] if each != "delayed"] == [
            "failed",
            "retry 1",
            "failed",
            "retry 2",
            "failed",
            "dead letter",
        ]
        assert sent["new id"] in journey
        again = await pages.main(f"/messages/{sent['new id']}?topic={topic}")
        assert "handled it" in again or "is past it" in again

    async def opened() -> None:
        async with console(tmp_path / "console", namesrv) as pages:
            await scenario(pages)
        assert [
            (what.partition(" --at")[0], how) for what, how, _ in noted(tmp_path / "console")
        ] == [
            ("roquette dlq resend porters", "begun"),
            ("roquette dlq resend porters", "done"),
        ]

    asyncio.run(opened())


REFUSED = {
    "acl-allow?user=bob&actions=pub&resources=orders": "authorizationMetadataProvider is not configured",
    "acl-rm?user=bob": "authorizationMetadataProvider is not configured",
    "broker-config-set?broker=broker-a&changes=noSuch%3D1": "broker-a: it has no setting noSuch",
    "namesrv-config-set?changes=noSuch%3D1": "it has no setting noSuch",
    "broker-promote?group=broker-a&member=1": "none of the name servers is a controller",
    "user-delete?name=bob": "An system error occurred, please try again later.",
    "group-delete?group=billing": "group billing has 1 members online",
}
"""Acts that Apache's servers do not do, and what is said of it: their words, or ours where they say nothing."""


def test_every_view_is_whole_at_apaches_servers_and_what_they_do_not_tell_is_not_known(
    drivers: Callable[[str], Driver], started: list[Server], tmp_path: Path
) -> None:
    started.append(start_namesrv("apache", tmp_path / "namesrv"))
    namesrv = started[0].address
    for name, more in (("m", {}), ("s", {"brokerId": "1", "brokerRole": "SLAVE"})):
        settings = {**SETTINGS, **more}
        started.append(start_broker("apache", tmp_path / name, namesrv, settings=settings))
    java = drivers("5.5.0")

    async def scenario(pages: Pages) -> None:
        async with Client(namesrv) as mq:
            await fill(SimpleNamespace(mq=mq))  # type: ignore[arg-type]
            await mq.send("later", b"x", key="late-1", delay_level=8)
        common = {"namesrv": namesrv, "topic": "orders"}
        java("consumer", name="reads", group="billing", **common)
        java(
            "consumer", name="refuses", group="undertakers", failUntil=99, maxReconsume=0, **common
        )
        letters = Watched(pages, "/dead/undertakers")
        (dead,) = (await until(letters.look, lambda page: page.count('name="at"') == 12))[-1:]
        overview = Watched(pages, "/")
        await until(
            overview.look, lambda page: tiles_of(page)["Behind"].startswith("0 "), every_s=2
        )

        (journey, *_) = re.findall(r'href="/c/cluster(/messages/[^"]+)"', dead)
        more = [
            "/dead/undertakers",
            "/topics?kind=dead",
            "/topics?kind=retry",
            html.unescape(journey),
        ]
        for path in [*PATHS, *more, "/access/bob", *(f"/act/{act}" for act in REFUSED)]:
            text = await pages.main(path)
            for words in ("does not answer", "asks again by itself", "Traceback"):
                assert words not in text, (path, text)
            await asyncio.sleep(0.05)  # the rate of requests is bounded

        tiles = tiles_of((await pages.get("/")).text)
        assert tiles["Topics"].startswith("3 ")
        assert tiles["Members"].startswith("2 ")
        rows = table_of((await pages.get("/brokers")).text, "Brokers")
        assert [(row["Role"], row["State"], row["Today"]) for row in rows] == [
            ("master", "answers", rows[0]["Today"]),
            ("replica 1", "answers", "0"),
        ]
        assert number(rows[0]["Today"]) == 13  # neither the delayed one nor what died
        (topics, groups) = [
            table_of((await pages.get(f"/{each}")).text, each.capitalize())
            for each in ("topics", "groups")
        ]
        assert {row["Topic"]: row["Messages"] for row in topics} == {
            "orders": "12",
            "bytes": "1",
            "later": "0",
        }
        assert {(row["Group"], row["Members"], row["Lag"]) for row in groups} == {
            ("billing", "1", "0"),
            ("undertakers", "1", "0"),
        }
        # Not known, and never 0.
        last = {row["Topic"]: row["Last message"] for row in topics}
        assert last["later"] == "–" and "–" not in (last["orders"], last["bytes"])
        assert "No election is known" in await pages.main("/brokers/broker-a/members")
        for path in ("/access", "/access/bob"):
            text = await pages.main(path)
            assert "Users and rules are not told An system error occurred" in text
            assert "0 users" not in text and "No users" not in text
        assert "RQ-D056" in await pages.main("/doctor")  # it does not tell who has left
        assert "It waits for its time" in await pages.main("/messages?q=late-1&topic=later")
        assert "waits at delay level 8" in await pages.main("/messages/late-1?topic=later")
        steps = lanes((await pages.get(html.unescape(journey))).text)
        assert steps["sender"] == ["sent"] and steps["topic"] == ["stored"]
        assert steps["undertakers"] == ["dead letter"] and steps["billing"] == ["passed"]

        for act, words in REFUSED.items():
            assert words in text_of(await did(pages, f"/act/{act}")), act

    async def did(pages: Pages, path: str) -> str:
        """The page that ends an act: of its plan where there is none, of its job where it is one."""
        typed = re.search(r"(?:name|group)=(\w+)$", path)
        page = (await pages.get(path)).text
        if "There is no such plan" in page:
            return page
        done = await pages.press(path, "Do it", **({"typed": typed[1]} if typed else {}))
        if done.status_code != 303:
            return done.text
        job = Watched(pages, done.headers["location"].removeprefix("/c/cluster"))
        return (await until(job.look, lambda page: "at work" not in page))[-1]

    async def opened() -> None:
        async with console(tmp_path / "console", namesrv) as pages:
            await scenario(pages)
        results = [how for _, how, _ in noted(tmp_path / "console") if how != "begun"]
        assert results and all(each.startswith("failed: ") for each in results), results

    try:
        asyncio.run(opened())
    finally:
        for name in ("reads", "refuses"):
            with contextlib.suppress(JavaError):
                java("stop", name=name)


def lanes(page: str) -> dict[str, list[str]]:
    """The steps of a journey by whom they concern, in the order of their times."""
    table = re.search(r'<table class="journey">.*?</table>', page, re.DOTALL)
    found: dict[str, list[str]] = {}
    for row in re.findall(r"<tr.*?</tr>", table[0], re.DOTALL)[1:] if table else ():
        who = text_of(re.search(r"<th.*?</th>", row, re.DOTALL)[0]).split()[0]
        found[who] = [text_of(each) for each in re.findall(r"<strong>(.*?)</strong>", row)]
    return found


def number(words: str) -> int:
    return int("".join(each for each in words if each.isdigit()))


def at(address: str, queue: int) -> int:
    """The offset behind a queue's last message."""
    answer = call(address, 30, {"topic": TOPIC, "queueId": str(queue)})
    assert answer is not None and answer[0]["code"] == 0, answer
    return int(answer[0]["extFields"]["offset"])
