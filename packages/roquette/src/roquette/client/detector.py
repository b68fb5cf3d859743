"""Probes of brokers that did not answer a send, so that they get sends again when they answer. Apache: startDetector."""

import asyncio

from roquette.client import calls
from roquette.client.core.latency import LatencyTable
from roquette.client.operations import AHEAD
from roquette.client.session import Session
from roquette.errors import ClientError


class Detector:
    """Of one producer; `step` runs at an interval."""

    def __init__(self, session: Session, table: LatencyTable) -> None:
        self._session = session
        self._table = table

    async def step(self) -> None:
        """Ask each broker that is isolated once."""
        names = self._table.isolated()
        for start in range(0, len(names), AHEAD):
            await asyncio.gather(*map(self._probe, names[start : start + AHEAD]))

    async def _probe(self, name: str) -> None:
        session = self._session
        queue = session.queue_at(name)
        if queue is not None:
            limit_ms = session.config.detect_timeout_ms
            try:
                address = session.master_of(queue)
                await session.api.call(address, calls.max_offset(queue), timeout_ms=limit_ms)
            except ClientError:
                return
        self._table.reached(name)  # it answers, or no route names it any more
