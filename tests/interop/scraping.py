"""Prometheus over a simulated cluster: scrapes of its servers in virtual time, and what Prometheus' own engine makes of them."""

import asyncio
import json
import subprocess
from dataclasses import dataclass
from typing import Any

from tests.interop.clients import prometheus_program

from roquette.base.metric_boards import prometheus_rules
from roquette_testing.cluster import SimCluster

PORT, WATCHER = 5557, "10.0.99.1"
EVERY_S, PATIENCE_S = 60, 10


def shown(ip: str) -> dict[str, str]:
    """The setting of a server that is scraped."""
    return {"metrics_listen": f"{ip}:{PORT}"}


class Scraper:
    """Scrapes these servers; what they answered is kept, with the right time."""

    def __init__(self, cluster: SimCluster, ips: tuple[str, ...]) -> None:
        self._cluster = cluster
        self._ips = ips
        self.scrapes: list[dict[str, Any]] = []

    async def watch(self, minutes: float) -> None:
        """Scrape for so long."""
        for _ in range(round(minutes * 60 / EVERY_S)):
            clock = self._cluster.clock.now_ms()
            texts = await asyncio.gather(*(self._ask(ip) for ip in self._ips))
            found = {f"{ip}:{PORT}": text for ip, text in zip(self._ips, texts, strict=True)}
            self.scrapes.append({"at_ms": clock, "texts": found})
            await asyncio.sleep(EVERY_S - (self._cluster.clock.now_ms() - clock) / 1000)

    async def _ask(self, ip: str) -> str | None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self._cluster.run_on(WATCHER, _get(ip))
        except (OSError, TimeoutError):
            return None


async def _get(ip: str) -> str:
    reader, writer = await asyncio.open_connection(ip, PORT)
    try:
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    if not head.startswith(b"HTTP/1.1 200"):
        raise ConnectionError(head)
    return body.decode()


@dataclass
class Seen:
    """What Prometheus has made of it: alerts that fired, each with its labels and annotations; series each query has."""

    alerts: list[dict[str, Any]]
    series: dict[str, int]

    @property
    def names(self) -> set[str]:
        """Of the alerts."""
        return {each["labels"]["alertname"] for each in self.alerts}


def judged(scrapes: list[dict[str, Any]], queries: list[str] | None = None) -> Seen:
    """Rules after each scrape, queries after the last."""
    task = {"rules": json.dumps(prometheus_rules()), "queries": queries or []}
    said = subprocess.run(
        [str(prometheus_program())],
        input="\n".join(json.dumps(each) for each in (task, *scrapes)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    series = {each["query"]: each["series"] for each in found["answers"] or ()}
    return Seen(found["alerts"] or [], series)
