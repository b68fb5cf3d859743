"""A console on loopback as a browser sees it: what is behind it, windows of Debian's Chromium, and axe.

usage: python -m tests.console.browser            (pictures of docs/console.md, into docs/images)
"""

import asyncio
import functools
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from playwright.sync_api import Browser, Page, Response, sync_playwright
from tests.console.test_views import fill
from tests.interop.peers import ROOT, absent, made
from tests.pipelines.browser import chromium

from roquette import StartFrom
from roquette.admin.contexts import Login
from roquette.apps.console import ConsoleTarget, opened
from roquette.base.clock import SystemClock
from roquette.client.calls import ask_all
from roquette.client.client import Client
from roquette.client.client_base import Outside
from roquette.client.operator_calls import put_group, put_topic
from roquette.client.settings import config_of
from roquette.console.app import ConsoleSettings
from roquette.message.message import ReceivedMessage
from roquette.wire.bodies import SubscriptionGroupConfig, TopicConfig
from roquette_testing import embedded
from roquette_testing.embedded import EmbeddedBroker

FLAGS: Final = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
IMAGES: Final = ROOT / "docs" / "images"
WIDTHS: Final = {1440: 900, 1024: 768, 390: 844}
HOURS: Final = 3


class Earlier:
    """Where a broker's time begins, so that messages can be old."""

    real = SystemClock()  # not what this inherits from: it may be compiled

    def now_ms(self) -> int:
        """Wall time of some hours ago."""
        return self.real.now_ms() - HOURS * 3_600_000

    def steady_ms(self) -> int:
        """As it is."""
        return self.real.steady_ms()

    def lease_ms(self) -> int:
        """As it is."""
        return self.real.lease_ms()


class BrokersTime(Earlier):
    """The broker's time for those who send at it."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker

    def now_ms(self) -> int:
        """Wall time."""
        return self._broker.now_ms()


@dataclass
class Shown:
    """A console, its address below which all pages are, and the broker behind it."""

    broker: EmbeddedBroker
    base: str
    left: list[Any] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def client(self) -> Client:
        """A client whose time is the broker's."""
        config = config_of(self.broker.name_servers, {"local_host": "127.0.0.1"}, {})
        return Client._within(Outside(BrokersTime(self.broker)), config, group="shop")

    def send(self, topic: str, *bodies: str) -> None:
        """Messages that come now."""

        async def sending() -> None:
            async with self.client() as mq:
                for body in bodies:
                    await mq.send(topic, body)

        self.broker.call(sending())


@contextmanager
def shown(*, much: bool, options: ConsoleSettings | None = None) -> Iterator[Shown]:
    """A console of a cluster in this process; `much`: with all that is in `much_in`, else with nothing."""
    with patch.object(embedded, "SystemClock", Earlier), EmbeddedBroker() as broker:
        target = ConsoleTarget(broker.name_servers, Login())
        console = opened({"dev": target}, options or ConsoleSettings(listen="127.0.0.1:0"))
        web = Shown(broker, f"{broker.call(console.__aenter__())}c/dev")
        try:
            if much:
                much_in(web)
            else:
                broker.clock.advance(hours=HOURS)
            yield web
        finally:
            broker.run(web.over.set)
            for each in reversed(web.left):
                broker.call(each.close())
            broker.call(console.__aexit__(None, None, None))


def much_in(web: Shown) -> None:
    """Topics and groups by the page, groups behind by minutes and hours, members at work, dead letters; and bad names."""
    broker = web.broker
    broker.call(_first(web))
    broker.clock.advance(hours=HOURS - 1)
    broker.call(_then(web, 40))
    broker.clock.advance(minutes=52)
    broker.call(_then(web, 60))
    broker.clock.advance(minutes=8)
    broker.call(_last(web))


async def _first(web: Shown) -> None:
    async with web.client() as mq:
        await fill(SimpleNamespace(mq=mq))  # type: ignore[arg-type]
        await _names(web, mq)
        await mq.send("checkout", '{"order": 999}')
        for group in ("billing", "search-index", "reports"):
            async with mq.consume("checkout", group=group, start_from=StartFrom.FIRST) as messages:
                async for message in messages:
                    message.ack()
                    break
    await _then(web, 30)


async def _names(web: Shown, mq: Client) -> None:
    names = [f"team-{team}_{what}" for team in range(30) for what in ("events", "jobs", "audit")]
    names.append("a-topic-with-a-name-as-long-as-names-may-be-" + "x" * 83)
    address = web.broker.broker.address
    await mq.session.run(
        ask_all(
            [
                *((address, put_topic(TopicConfig(topic_name=each))) for each in names),
                *(
                    (address, put_group(SubscriptionGroupConfig(group_name=f"{each}-readers")))
                    for each in names[:-1]
                ),
            ]
        )
    )


async def _then(web: Shown, count: int) -> None:
    """What a shop says, and the groups that read some of it."""
    async with web.client() as mq:
        for number in range(count):
            await mq.send(
                "checkout",
                f'{{"order": {1000 + number}, "customer": "c{number % 7}", "amount": {number * 7.25:.2f}}}',
                tag=("paid", "created", "shipped")[number % 3],
                key=f"order-{1000 + number}",
                properties={"region": ("eu", "us")[number % 2]},
            )
        read = 0
        async with mq.consume("checkout", group="search-index") as messages:
            async for message in messages:
                message.ack()
                read += 1
                if read == count // 2:
                    break


async def _last(web: Shown) -> None:
    """Members that stay, some at work, one stuck, and one that refuses all."""

    async def slow(message: ReceivedMessage) -> None:
        await asyncio.sleep(0.5)

    async def stuck(message: ReceivedMessage) -> None:
        await web.over.wait()

    async def refuse(message: ReceivedMessage) -> bool:
        return False

    async with web.client() as mq:
        for number in range(12):
            await mq.send("refunds", f'{{"refund": {number}}}', key=f"refund-{number}", tag="card")
    for topic, handler, group, more in (
        ("checkout", slow, "billing", {}),
        ("checkout", stuck, "reports", {"tag": "paid"}),
        ("refunds", refuse, "refunding", {"max_reconsume_times": 0}),
    ):
        # A client of its own has an id of its own.
        owner = web.client()
        web.left.append(owner)
        await owner.start()
        await owner.subscribe(
            topic,
            handler,
            group=group,
            start_from=StartFrom.FIRST,
            **more,  # type: ignore[arg-type]
        )


# Windows.


@functools.cache
def axe() -> str:
    """axe-core's source, of npm: package-lock.json says what it must be."""
    if shutil.which("npm") is None:
        absent("needs npm for axe-core; not found: npm")
    here = Path(__file__).parent / "axe"
    sources = [here / name for name in ("package.json", "package-lock.json")]
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund")
    built = made("axe", sources, ("npm", "ci", *quiet))
    return (built / "node_modules" / "axe-core" / "axe.min.js").read_text()


@contextmanager
def windows() -> Iterator[Browser]:
    """Chromium."""
    path = chromium()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Window:
    """A window at a console, and everything that its browser complains of."""

    def __init__(self, browser: Browser, web: Shown, width: int = 1440, **more: Any) -> None:
        self.web = web
        self.context = browser.new_context(
            viewport={"width": width, "height": WIDTHS[width]},
            timezone_id="UTC",
            locale="en-GB",
            reduced_motion="reduce",
            **more,
        )
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(15_000)
        self.complaints: list[str] = []
        self.page.on("console", lambda said: self._heard(said.type, said.text))
        self.page.on("pageerror", lambda error: self._heard("error", str(error)))
        self._cdp = self.context.new_cdp_session(self.page)

    def _heard(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(f"{self.page.url}: {text}")

    def __enter__(self) -> "Window":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def open(self, path: str) -> Response:
        """A page below the cluster's part; once more when more were asked for than a person asks."""
        for _ in range(20):
            answer = self.page.goto(self.web.base + path)
            assert answer is not None
            if answer.status != 429:
                return answer
            self.complaints.clear()
            self.page.wait_for_timeout(250)
        raise AssertionError(path)

    def resize(self, width: int) -> None:
        """Another width."""
        self.page.set_viewport_size({"width": width, "height": WIDTHS[width]})

    def colours(self, scheme: str) -> None:
        """Light or dark, as the system says."""
        self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]

    def violations(self) -> list[str]:
        """What axe finds wrong. It is evaluated by the debugger: our policy refuses scripts that are not ours."""
        self._evaluate(f"window.axe || (() => {{ {axe()}; }})(), 0")
        kinds = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
        found = self._evaluate(
            f"axe.run(document, {{runOnly: {kinds}, resultTypes: ['violations']}}).then(r =>"
            " r.violations.flatMap(v => v.nodes.map(n => `${v.id}: ${n.html.slice(0, 160)}"
            " ${n.failureSummary.replace(/\\s+/g, ' ').slice(0, 260)}`)))"
        )
        return list(found)

    def _evaluate(self, words: str) -> Any:
        answer = self._cdp.send(
            "Runtime.evaluate",
            {"expression": words, "awaitPromise": True, "returnByValue": True},
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def sideways(self) -> list[str]:
        """What is wider than the window, beyond what scrolls in a box of its own."""
        return self.page.evaluate(
            """() => document.documentElement.scrollWidth <= innerWidth ? [] :
            [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1
              && !e.closest('.scroll, .side, .tabs, .clusters, pre')).map(e => e.outerHTML.slice(0, 120)).concat('the page')"""
        )

    def tab_to(self, text: str, most: int = 150) -> None:
        """Press Tab until what has the focus says this."""
        for _ in range(most):
            self.page.keyboard.press("Tab")
            if text in self.focused():
                return
        raise AssertionError(f"Tab never comes to {text!r}: it is at {self.focused()!r}")

    def focused(self) -> str:
        """The name of what has the focus."""
        return self.page.evaluate(
            """() => { const e = document.activeElement;
            return `${e.localName}[${e.name || ''}] ${e.getAttribute('aria-label') || ''} ${e.innerText || ''}`; }"""
        )

    def text(self) -> str:
        """The words of the view."""
        return " ".join(self.page.inner_text("#view").split())

    def tile(self, label: str) -> int:
        """The number of a tile."""
        words = self.page.inner_text(f".tiles div:has(dt:text-is('{label}')) dd >> nth=0")
        return int("".join(each for each in words if each.isdigit()))

    def until(self, holds: Callable[[], bool], what: str, most_s: float = 15) -> None:
        """Wait for it."""
        for _ in range(int(most_s * 20)):
            if holds():
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"{what}: {self.text()[:600]}")


# Pictures of docs/console.md: path, width, height, colours.
PICTURES: Final = {
    "topic": ("/topics/checkout", 1100, 600, "light"),
    "phone": ("/topics/checkout", 390, 760, "dark"),
    "message": ("/messages?q=order-1007&topic=checkout", 1100, 700, "dark"),
    "seek": ("/act/group-seek?group=search-index&topic=checkout&to=@-1h", 1100, 770, "light"),
    "dead-letters": ("/dead/refunding", 1000, 480, "dark"),
    "overview": ("/", 1100, 560, "light"),
}


def picture(window: Window, name: str, place: Path) -> None:
    """One of them, as a PNG."""
    path, width, height, scheme = PICTURES[name]
    window.page.set_viewport_size({"width": width, "height": height})
    window.colours(scheme)
    window.open(path)
    if name == "message":
        window.page.click(".message summary >> nth=-1")
        window.page.click("text=What became of it >> nth=-1")
        window.page.wait_for_url("**/messages/**")
    if name == "overview":  # so long that the chart and the doctor have something to show
        for number in range(40):
            window.web.send("refunds", *(["-"] * (number * 7 % 23 + 3)))
            window.page.wait_for_timeout(500)
        window.until(lambda: "examined" in window.text(), "the doctor does not come", 60)
    window.page.wait_for_timeout(300)
    window.page.screenshot(path=place)


def main() -> None:
    """Make them all."""
    with shown(much=True) as web, windows() as browser, Window(browser, web) as window:
        for name in PICTURES:
            picture(window, name, IMAGES / f"console-{name}.png")


if __name__ == "__main__":
    main()
