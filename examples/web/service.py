"""Takes orders over HTTP: uvicorn examples.web.service:web, with NAMESRV_ADDR in the environment."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

from examples.web.orders import ORDERS, STATUS, Order, OrderStatus
from fastapi import Depends, FastAPI, HTTPException, Request

import roquette


@asynccontextmanager
async def lifespan(web: FastAPI) -> AsyncGenerator[None, None]:
    """One client for the process: it begins with it, and its end waits for what was sent."""
    async with roquette.Client() as mq:
        web.state.mq = mq
        yield


async def client(request: Request) -> roquette.Client:
    """The client, for whoever names it."""
    mq: roquette.Client = request.app.state.mq
    return mq


Queue = Annotated[roquette.Client, Depends(client)]
web = FastAPI(lifespan=lifespan)


@web.post("/orders", status_code=202)
async def order(order: Order, mq: Queue) -> dict[str, str]:
    """Accept an order: 202 once the broker has it, 503 when that is not known."""
    try:
        receipt = await mq.send(ORDERS, order.model_dump_json(), key=str(order.number))
    except roquette.ClientError as error:
        raise HTTPException(503, f"the order was not accepted: {error}") from error
    return {"message": receipt.message_id}


@web.get("/orders/{number}")
async def status(number: int, mq: Queue) -> OrderStatus:
    """Ask a worker how far an order is; 504 when none answers."""
    try:
        reply = await mq.request(STATUS, str(number), timeout=2)
    except roquette.RequestTimeout as error:
        raise HTTPException(504, "no worker answers") from error
    return OrderStatus.model_validate_json(reply.body)
