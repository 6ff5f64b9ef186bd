"""The programs of docs/reference/http.md that read and write Arrow are run as they stand."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from pathlib import Path
from typing import Any, Final

import httpx
import pyarrow as pa
import pytest

from tests.server.fronts import WAIT_S, broker, listening
from tests.server.helpers import until
from tests.server.http.test_arrow import QUOTES, put

PAGE: Final = Path(__file__).parents[3] / "docs" / "reference" / "http.md"
DURABLE: Final = {"filters": [{"palio": "EXISTS price"}], "config": {"durable": True}}


def program(word: str, client: httpx.AsyncClient, id: str = "") -> str:
    """The blocks of code of the page, from `From Python` on, that have a word; with an address."""
    _, _, page = PAGE.read_text("utf-8").partition("### From Python\n")
    blocks: list[list[str]] = [[]]
    for line in page.splitlines():
        if line.startswith("    ") or not line:
            blocks[-1].append(line.removeprefix("    "))
        elif blocks[-1]:
            blocks.append([])
    (text,) = [block for lines in blocks if word in (block := "\n".join(lines))]
    address = str(client.base_url).rstrip("/")
    return text.replace("http://localhost:7480", address).replace("/ID/", f"/{id}/")


class Said(list[Any]):
    """What a program prints; more than that ends it."""

    def __init__(self) -> None:
        super().__init__()
        self.has_ended = threading.Event()

    def __call__(self, value: Any) -> None:
        self.append(value)
        if self.has_ended.is_set():
            raise EOFError


async def run(word: str, client: httpx.AsyncClient, id: str = "", said: Said | None = None) -> Said:
    said = Said() if said is None else said
    scope: dict[str, Any] = {"print": said, "pyarrow": pa}
    for each in ("def publish", word):
        text = program(each, client, id)
        await asyncio.to_thread(exec, text, scope)  # our own page
    return said


async def subscribed(client: httpx.AsyncClient) -> str:
    made = await client.post("/subscriptions", json=DURABLE)
    return str(made.json()["id"])


async def test_pyarrow(tmp_path: Path) -> None:
    async with broker(tmp_path) as server, listening(server) as client:
        heard = Said()
        heard.has_ended.set()
        hearing = asyncio.create_task(run("for batch in pyarrow", client, said=heard))
        await until(lambda: bool(server.node.status()["subscriptions"]))
        (answer,) = await run("writer.write_table", client)
        assert b'"accepted":2' in answer
        with pytest.raises(EOFError):
            await asyncio.wait_for(hearing, WAIT_S)
        assert heard[0]["symbol"] == ["IBM"]
        assert heard[0]["price"] == [9.5]


@pytest.mark.parametrize("word", ["read_pandas", "duckdb.sql"])
async def test_pandas_and_duckdb(word: str, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("duckdb")
    async with broker(tmp_path) as server, listening(server) as client:
        id = await subscribed(client)
        await put(client, QUOTES, query="?durable=true")
        (read,) = await run(word, client, id)
        if word == "read_pandas":
            assert read["price"].tolist() == [9.5, 8.0, 12.0]
        else:
            assert sorted(read.fetchall()) == [("IBM", 10.75), ("MSFT", 8.0)]


async def test_polars(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    async with broker(tmp_path) as server, listening(server) as client:
        id = await subscribed(client)
        (read,) = await run("write_ipc_stream", client, id)
        assert read["symbol"].to_list() == ["IBM"]
        assert read["price"].to_list() == [8.0]


async def test_javascript(tmp_path: Path) -> None:
    modules = Path(os.environ.get("NODE_PATH", "node_modules"))
    node = shutil.which("node")
    if node is None or not (modules / "apache-arrow").exists():
        pytest.skip("needs node, and apache-arrow in $NODE_PATH")
    async with broker(tmp_path) as server, listening(server) as client:
        text = program("tableToIPC", client, await subscribed(client))
        running = await asyncio.create_subprocess_exec(
            *(node, "--input-type=module", "--eval", text),
            cwd=modules.parent,
            stdout=asyncio.subprocess.PIPE,
        )
        printed, _ = await asyncio.wait_for(running.communicate(), WAIT_S)
        assert running.returncode == 0
        assert printed.decode().strip() == '[["IBM",9.5],["MSFT",12.5]]'
