"""What `/readyz` of a real broker says while something keeps it from serving clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from palio.server.run import Running, running
from palio.server.settings import Configuration
from tests.server.fronts import EVENT, WAIT_S, publish_one

NOBODY: Final = "palio://127.0.0.1:1"


@asynccontextmanager
async def broker(
    name: str, *peers: str, data_dir: str = "", **sections: Any
) -> AsyncIterator[tuple[Running, httpx.AsyncClient]]:
    wanted = {
        "broker": {"name": name, "data_dir": data_dir},
        "listen": {"port": 0},
        "http": {"port": 0},
        "peers": {"urls": list(peers)},
    }
    async with (
        running(msgspec.convert(wanted | sections, Configuration)) as found,
        httpx.AsyncClient(base_url=found.addresses["http"], timeout=WAIT_S) as client,
    ):
        yield found, client


async def asked(client: httpx.AsyncClient) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """The status, and the reasons and warnings by code: the peers that they name."""
    answer = await client.get("/readyz")
    document = answer.json()
    assert document["status"] == ("ready" if answer.status_code == 200 else "not ready")
    assert (await client.get("/healthz")).json() == {"status": "ok"}, "it lives all the same"
    reasons, warnings = (
        {each["code"]: each.get("peers") for each in document[field]}
        for field in ("reasons", "warnings")
    )
    return answer.status_code, reasons, warnings


async def test_one_peer_away_of_two_is_a_warning_and_both_are_a_reason() -> None:
    async with broker("b2", NOBODY) as (_, client):
        assert await asked(client) == (503, {"peers_disconnected": [NOBODY]}, {})
    async with AsyncExitStack() as stack:
        one, _ = await stack.enter_async_context(broker("b1"))
        address = one.addresses["palio"]
        async with broker("b2", NOBODY, address) as (_, client):
            found = await asked(client)
            while found[0] != 200:
                found = await asked(client)
            assert found == (200, {}, {"peers_disconnected": [NOBODY]})
            await stack.aclose()
            while found[0] == 200:
                found = await asked(client)
            assert found == (503, {"peers_disconnected": [NOBODY, "b1"]}, {})


async def test_a_broker_with_a_new_disk_is_not_ready_until_it_has_heard_of_its_peers(
    tmp_path: Path,
) -> None:
    limits = {"peer_grace_s": 60.0}
    async with broker("b2", NOBODY, data_dir=str(tmp_path), limits=limits) as (_, client):
        status, reasons, _ = await asked(client)
        assert (status, [*reasons]) == (503, ["catching_up", "peers_disconnected"])


async def test_a_broker_whose_disk_refuses_writes_is_not_ready(tmp_path: Path) -> None:
    async with broker("b1", data_dir=str(tmp_path)) as (_, client):
        assert await asked(client) == (200, {}, {})
        await client.post("/subscriptions", json={"config": {"durable": True}})
        (tmp_path / "journal.sqlite").unlink()
        refused = await publish_one(client, EVENT, "?durable=true")
        assert (refused.status_code, refused.json()["error"]["type"]) == (503, "NotStored")
        assert await asked(client) == (503, {"storage_unwritable": None}, {})


async def test_a_broker_that_drains_is_not_ready() -> None:
    async with broker("b1") as (found, client):
        found.server.host.leave()
        assert await asked(client) == (503, {"draining": None}, {})
