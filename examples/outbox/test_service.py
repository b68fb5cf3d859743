"""How an application is tested: a broker inside of the test, the application in its loop, the broker's clock in our hand."""

import asyncio
import json
from pathlib import Path

import pytest
from examples.outbox.service import app

from roquette_testing import EmbeddedBroker


def test_orders_are_taken_once_and_billed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_DATABASE", f"sqlite:///{tmp_path / 'shop.db'}")

    async def main() -> None:
        async with EmbeddedBroker() as broker, broker.client(group="shop") as mq:
            async with app.serving(mq):
                for number in (7, 8, 7):
                    await mq.send("order-requests", json.dumps({"number": number}))
                await mq.send("order-requests", b"no order")
                await broker.assert_delivered_async("order-requests", group="shop")
                await broker.assert_delivered_async("new-orders", group="billing")
                await broker.assert_dead_lettered_async("shop", body=b"no order")
                reply = await mq.request("order-counts", b"how many?")
                assert json.loads(reply.body) == {"orders": 2}
            bills = sorted(json.loads(bill.body)["order"] for bill in broker.messages("bills"))
            assert bills == [7, 8]

    asyncio.run(main())
