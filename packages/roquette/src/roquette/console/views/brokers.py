"""How are the brokers? Every process with its rates, disk and state."""

from typing import Final

from roquette.console import parts
from roquette.console.ask import View, ViewAsk
from roquette.console.views.overview import brokers_grid

PATHS: Final = ("/brokers",)


async def show(ask: ViewAsk) -> View:
    """The view."""
    states = await ask.cluster.brokers()
    silent = sum(1 for each in states if not each.answers)
    masters = [each for each in states if each.answers and each.broker_id == 0]
    body = [
        parts.heading("Brokers"),
        parts.tiles(
            (
                "Brokers",
                str(len({s.broker for s in states})),
                parts.counted(len(states), "process"),
            ),
            (
                "Silent",
                str(silent),
                parts.dot("bad", "see below") if silent else parts.dot("ok", "all answer"),
            ),
            ("In", parts.rate(sum(max(0.0, s.in_tps) for s in masters)), "messages a second"),
            ("Out", parts.rate(sum(max(0.0, s.out_tps) for s in masters)), "messages a second"),
            ("Fullest disk", _fullest([s.disk_used for s in states]), "of its partition"),
        ),
        parts.panel("Brokers", brokers_grid(ask, states)),
    ]
    return View(title="Brokers", place="brokers", body=body, command=("cluster",), live_s=2)


def _fullest(used: list[float]) -> str:
    known = [each for each in used if each >= 0]
    return f"{max(known):.0%}" if known else parts.UNKNOWN
