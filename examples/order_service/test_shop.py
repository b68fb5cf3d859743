"""Run with `pytest examples/order_service --roquette-seeds 1000`: which seed sells more than there is?"""

import asyncio

import pytest
from examples.order_service.shop import OrderService

from roquette_testing import World


@pytest.mark.parametrize("locked", [True])
async def test_no_article_is_sold_twice(roquette_world: World, locked: bool) -> None:
    await oversell(roquette_world, locked=locked)


async def oversell(world: World, *, locked: bool) -> None:
    """Two customers want the last two articles, a third comes too late."""

    async def database() -> None:
        await asyncio.sleep(world.random.uniform(0, 0.002))

    shop = await world.client("shop")
    service = OrderService(2, locked=locked, pause=database)
    await service.start(shop)
    customer = await world.client("customer", send_attempts=10, send_timeout=60)
    for number, topic in enumerate(("orders", "express", "orders")):
        await customer.send(topic, b"one", key=f"order-{number}")
        await asyncio.sleep(world.random.uniform(0, 10))
    await world.calm()
    await world.until(lambda: len(service.sold) + len(service.refused) == 3)
    assert len(service.sold) == 2, f"sold {service.sold} of two articles"
    assert service.stock == 0
