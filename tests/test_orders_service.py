"""The example of a web service, where FastAPI is installed: it is none of Palio's dependencies."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from tests.cli.brokers import broker
from tests.client.helpers import turns


async def test_an_order_is_taken_packed_and_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("fastapi")
    import httpx

    with broker("b1", tmp_path / "data") as url:
        monkeypatch.setenv("PALIO_URL", url)
        service: Any = importlib.reload(importlib.import_module("examples.orders_service"))
        transport = httpx.ASGITransport(service.app)
        async with (
            service.lifespan(service.app),
            httpx.AsyncClient(transport=transport, base_url="http://service") as client,
        ):
            packed = await service.app.state.client.subscribe("EXISTS packed")
            assert (await client.get("/health")).json() == {"connected": True}
            assert (await client.get("/orders/1")).status_code == 404
            order = {"id": "1", "price": "9.50", "items": ["tea", "cup"]}
            answer = await client.post("/orders", json=order)
            assert (answer.status_code, answer.json()) == (202, {"id": "1", "held": "durable"})
            assert await packed.receive(timeout=30) == {"packed": "1", "parcels": 2}
            while "1" not in service.app.state.done:
                await turns()
            assert (await client.get("/orders/1")).json() == {"packed": "1", "parcels": 2}
            assert (await client.post("/orders", json={"id": "2"})).status_code == 422
