"""Handles the orders: roquette run examples.web.worker:app --health 8000."""

from examples.web.orders import ORDERS, STATUS, Order, OrderStatus

import roquette

app = roquette.App(group="web-workers")
seen: dict[int, Order] = {}  # what a database would be


@app.consumer(ORDERS)
async def handle(order: Order) -> None:
    """Handle an order; twice is as good as once."""
    seen[order.number] = order


@app.serve(STATUS, group="web-status")
async def status(number: int) -> OrderStatus:
    """How far it is."""
    return OrderStatus(number=number, state="handled" if number in seen else "unknown")
