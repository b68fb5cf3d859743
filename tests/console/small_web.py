"""A console over a simulated cluster, asked in process as a browser asks: ASGI, in virtual time."""

import html
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx

from roquette.base.entropy import Entropy
from roquette.client.client import Client
from roquette.client.client_base import Outside
from roquette.client.settings import config_of
from roquette.console.app import Console, ConsoleSettings
from roquette.console.views import all_views
from roquette.wire.signature import Credentials
from roquette_testing.cluster import SimCluster, simulate

NAMESRV, PERSON, CONSOLE = "10.0.0.1", "10.0.0.9", "10.0.0.8"
HOST = "http://127.0.0.1"
HOSTILE = '"><script>alert(1)</script>\u202e%'
"""What somebody puts where text may be."""


@dataclass
class Pages:
    """A browser at a console: its pages of one cluster, which the console calls `context`."""

    browser: httpx.AsyncClient
    context: str

    async def get(self, path: str, **headers: str) -> httpx.Response:
        """A page below the cluster's part."""
        return await self.browser.get(f"/c/{self.context}{path}", headers=headers)

    async def main(self, path: str, status: int = 200, **headers: str) -> str:
        """The text of a page's view."""
        answer = await self.get(path, **headers)
        assert answer.status_code == status, (path, answer.status_code, text_of(answer.text)[-600:])
        return text_of(re.sub(r".*?(<main)", r"\1", answer.text, count=1, flags=re.DOTALL))

    async def press(self, path: str, button: str = "", **more: str) -> httpx.Response:
        """The button of a plan that the page at `path` shows."""
        page = (await self.get(path)).text
        form = next(
            each
            for each in re.findall(r"<form[^>]*method=\"post\".*?</form>", page, re.DOTALL)
            if button in text_of(each) and "/sign-out" not in each
        )
        action = html.unescape(re.search(r'action="([^"]*)"', form)[1])
        fields = dict(re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', form))
        return await self.post(action, **fields, **more)

    async def post(self, address: str, **fields: Any) -> httpx.Response:
        """A form of our own page."""
        head = {"sec-fetch-site": "same-origin"}
        return await self.browser.post(address, data=fields, headers=head)


@dataclass
class Web(Pages):
    """The same in process, and what is behind it."""

    cluster: SimCluster
    mq: Client
    console: Console


def text_of(markup: str) -> str:
    """The words of a page."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", markup)))


def table_of(page: str, caption: str) -> list[dict[str, str]]:
    """The rows of a page's table by their heads; none where it is not there."""
    table = re.search(rf"<caption[^>]*>{re.escape(caption)}</caption>.*?</table>", page, re.DOTALL)
    if table is None:
        return []
    (first, *lines) = re.findall(r"<tr.*?</tr>", table[0], re.DOTALL)
    heads, *rows = (
        [text_of(cell).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", line, re.DOTALL)]
        for line in (first, *lines)
    )
    return [dict(zip(heads, row, strict=True)) for row in rows]


def tiles_of(page: str) -> dict[str, str]:
    """The numbers on top of a page, by their labels, with the word about each."""
    found = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd><dd[^>]*>(.*?)</dd>", page, re.DOTALL)
    return {text_of(label): text_of(f"{value} {words}").strip() for label, value, words in found}


def browse(
    scenario: Callable[[Web], Awaitable[None]], *, brokers: int = 1, seed: int = 1, **settings: Any
) -> None:
    """Run a scenario with a browser at a console of a cluster."""

    async def run(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMESRV)
        for number in range(brokers):
            await cluster.add_broker(f"10.0.0.{2 + number}", f"broker-{'abc'[number]}")
        mq = await cluster.client(PERSON)
        await open_web(cluster, mq, scenario, **settings)

    simulate(run, seed=seed)


async def open_web(
    cluster: SimCluster,
    mq: Client,
    scenario: Callable[[Web], Awaitable[None]],
    connect: Callable[..., Client] | None = None,
    prove: Callable[[Client], Awaitable[bool]] | None = None,
    **settings: Any,
) -> None:
    """ViewAsk a console, which is ended at last."""

    def ours(context: str, credentials: Credentials | None) -> Client:
        config = config_of(cluster.name_servers, {"credentials": credentials}, {})
        outside = Outside(cluster.clock, Entropy(7), cluster.host(CONSOLE).files)
        return Client._within(outside, config, group="TOOLS_PRODUCER")

    made = ConsoleSettings(contexts=("dev",), **settings)
    console = Console(made, all_views(), connect or ours, cluster.clock, prove)
    transport = httpx.ASGITransport(app=console.app)
    async with httpx.AsyncClient(transport=transport, base_url=HOST) as browser:
        try:
            await scenario(Web(browser, "dev", cluster, mq, console))
        finally:
            await console.close()
