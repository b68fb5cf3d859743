"""The shop as a service: order requests come as messages, orders and their messages agree, bills follow.

SHOP_DATABASE=sqlite:///shop.db roquette run examples.outbox.service:app -n 127.0.0.1:9876
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from examples.outbox.shop import GROUP, TOPIC, Shop
from sqlalchemy import create_engine
from sqlalchemy.exc import IntegrityError

import roquette


@dataclass
class OrderRequest:
    """What customers ask for."""

    number: int


@dataclass
class Bill:
    """What they get for it."""

    order: int
    cents: int


@asynccontextmanager
async def lifespan(mq: roquette.Client) -> AsyncGenerator[Shop, None]:
    """The shop, which answers the brokers' checks of its orders."""
    engine = create_engine(os.environ["SHOP_DATABASE"])
    yield Shop(mq, engine)
    engine.dispose()


app = roquette.App(group=GROUP, lifespan=lifespan)


@app.consumer("order-requests", drop_on=(IntegrityError,))
async def take(request: OrderRequest, *, shop: Shop) -> None:
    """Take an order; one that is there already was asked for twice, or its message came twice."""
    await shop.take(request.number)


@app.consumer(TOPIC, group="billing", publish="bills")
async def bill(order: str) -> Bill:
    """Bill an order that was taken."""
    return Bill(order=int(order.removeprefix("order ")), cents=995)


@app.serve("order-counts", group="counting")
async def count(*, shop: Shop) -> dict[str, int]:
    """How many orders there are, to whoever asks."""
    return {"orders": shop.count()}
