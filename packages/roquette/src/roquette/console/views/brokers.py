"""How are the brokers? Every process with its rates, disk and state."""

from typing import Final

from roquette.console import parts
from roquette.console.ask import View, ViewAsk
from roquette.console.views.overview import brokers_grid

PATHS: Final = ("/brokers",)


async def show(ask: ViewAsk) -> View:
    states = await ask.cluster.brokers()
    silent = sum(1 for each in states if not each.answers)
    masters = [each for each in states if each.answers and each.broker_id == 0]
    sent = sum(max(0.0, state.in_tps) for state in masters)
    read = sum(max(0.0, state.out_tps) for state in masters)
    fullest = max((each.disk_used for each in states), default=-1.0)
    count = parts.counted(len(states), "process")
    all_well = parts.dot("bad", "see below") if silent else parts.dot("ok", "all answer")
    body = [
        parts.heading("Brokers"),
        parts.tiles(
            ("Brokers", str(len({s.broker for s in states})), count),
            ("Silent", str(silent), all_well),
            ("In", parts.rate(sent), "messages a second"),
            ("Out", parts.rate(read), "messages a second"),
            (
                "Fullest disk",
                f"{fullest:.0%}" if fullest >= 0 else parts.UNKNOWN,
                "of its partition",
            ),
        ),
        parts.panel("Brokers", brokers_grid(ask, states)),
    ]
    return View("Brokers", "brokers", body, ("cluster",), 2)
