"""Headless Chromium for tests, driven by its own protocol over a WebSocket."""

from __future__ import annotations

import asyncio
import base64
import functools
import http.server
import json
import re
import shutil
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any, Final

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect

WAIT_S: Final = 20.0
"""Longer than anything here takes on a busy machine."""

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")


class Page:
    """A tab of the browser."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.complaints: list[str] = []
        """Errors of the console, and exceptions that nothing caught."""
        self._loaded = asyncio.Event()
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for text in self._socket:
            message = json.loads(text)
            if "id" in message:
                self._answers.pop(message["id"]).set_result(message)
            elif message["method"] == "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(message["params"]["exceptionDetails"]))
            elif message["method"] == "Page.loadEventFired":
                self._loaded.set()
            elif message["params"].get("type") in ("error", "assert"):  # of console.error
                self.complaints.append(json.dumps(message["params"]))

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the browser's protocol."""
        id = next(self._ids)
        answer = self._answers[id] = asyncio.get_running_loop().create_future()
        await self._socket.send(json.dumps({"id": id, "method": method, "params": params}))
        message = await asyncio.wait_for(answer, WAIT_S)
        assert "error" not in message, message
        result: dict[str, Any] = message["result"]
        return result

    async def run(self, script: str) -> Any:
        """Evaluate an expression in the page, await it, and return its value."""
        answer = await self.call(
            "Runtime.evaluate",
            expression=script,
            awaitPromise=True,
            returnByValue=True,
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, script: str) -> None:
        """Wait until an expression is true in the page."""
        looks = f"""new Promise((resolve) => {{
            const look = () => ({script} ? resolve(true) : setTimeout(look, 10));
            look();
        }})"""
        try:
            await self.run(looks)
        except TimeoutError:
            shown = await self.run("document.body.innerText")
            pytest.fail(f"never true: {script}; the page shows {shown!r}; {self.complaints}")

    async def open(self, url: str) -> None:
        """Load an address."""
        self._loaded.clear()
        await self.call("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), WAIT_S)

    async def picture(self) -> bytes:
        """Take a picture of what the page shows, as a PNG."""
        shot = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(shot["data"])


class Chromium:
    """A running browser."""

    def __init__(self, port: int) -> None:
        self._port = port

    @asynccontextmanager
    async def page(self) -> AsyncIterator[Page]:
        """Open a tab."""
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self._port}") as client:
            made = (await client.put("/json/new?about:blank")).json()
            async with connect(made["webSocketDebuggerUrl"], max_size=1 << 26) as socket:
                page = Page(socket)
                try:
                    for domain in ("Page", "Runtime"):
                        await page.call(f"{domain}.enable")
                    yield page
                finally:
                    page.reading.cancel()
            await client.get(f"/json/close/{made['id']}")


@contextmanager
def chromium(directory: Path) -> Iterator[Chromium]:
    """Start the browser; skip the test where there is none."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("web pages are tested in Chromium; install chromium")
    options = (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-first-run",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
        "--remote-debugging-port=0",
        f"--user-data-dir={directory}",
    )
    with subprocess.Popen((program, *options), stdout=DEVNULL, stderr=PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = (
                re.search(r"DevTools listening on ws://[^:]+:(\d+)/", line)
                for line in process.stderr
            )
            listening = next(filter(None, found), None)
            assert listening is not None, "Chromium ended before it listened"
            thread = threading.Thread(target=process.stderr.read)  # so that it never blocks
            thread.start()
            yield Chromium(int(listening[1]))
        finally:
            process.terminate()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def site(directory: Path, port: int = 0) -> Iterator[str]:
    """Serve the files of a directory at an origin of their own, and return that."""
    handler = functools.partial(_Quiet, directory=str(directory))
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://localhost:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
