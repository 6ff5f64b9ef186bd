"""A web service with workers: FastAPI takes orders, workers pack them, a restart loses none.

    pip install fastapi uvicorn
    palio serve --data orders-broker
    uvicorn examples.orders_service:app
    curl localhost:8000/orders -H 'content-type: application/json' \
         -d '{"id": "1", "price": "9.50", "items": ["tea"]}'
    curl localhost:8000/orders/1

The service may start before the broker: it waits. An order is acknowledged to the caller once it is
on the broker's disk, and by the worker once it is packed: a worker that is killed before gets it
again when it is back.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

import palio

BROKER = os.environ.get("PALIO_URL", "palio://localhost:7400")


class Order(BaseModel):
    id: str
    price: Decimal
    items: list[str]


class Packed(BaseModel):
    packed: str
    """The number of the order."""
    parcels: int


class Packer(palio.Subscriber):
    """The worker: one order after another. All processes of the service share the orders, and one
    that fails five times is set aside.
    """

    def __init__(self, client: palio.Client) -> None:
        self.client = client

    @palio.on("EXISTS id AND EXISTS price", durable_name="pack", group=True, max_attempts=5)
    async def pack(self, event: Order) -> None:
        packed = Packed(packed=event.id, parcels=len(event.items))
        await self.client.publish(packed, durable=True)


async def follow(client: palio.Client, done: dict[str, Packed]) -> None:
    """The state of orders: each process of the service receives all packed ones."""
    async for packed in await client.subscribe("EXISTS packed", as_=Packed):
        done[packed.packed] = packed


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with palio.connect(BROKER, name="orders", retry=True) as client:
        app.state.client, app.state.done = client, {}
        await client.attach(Packer(client))
        following = asyncio.create_task(follow(client, app.state.done))
        yield
        following.cancel()


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def order(order: Order, request: Request) -> dict[str, str]:
    receipt = await request.app.state.client.publish(order, durable=True, timeout=5.0)
    return {"id": order.id, "held": receipt.level}


@app.get("/orders/{id}")
async def state(id: str, request: Request) -> Packed:
    if id not in request.app.state.done:
        raise HTTPException(404, "it is not packed yet")
    packed: Packed = request.app.state.done[id]
    return packed


@app.get("/health")
async def health(request: Request) -> dict[str, bool]:
    return {"connected": request.app.state.client.is_connected}
