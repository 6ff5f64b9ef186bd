"""SIGTERM under load: a broker ends well, whatever its clients are doing at that moment."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

import palio
from palio.errors import PalioError
from tests.conftest import share

ROUNDS: Final = share(range(30), 1)
PATIENCE_S: Final = 120.0
CLIENTS: Final = 6


def retrieved(future: asyncio.Future[Any]) -> None:
    """Nobody asks what became of a publication."""
    if not future.cancelled():
        future.exception()


async def load(url: str, ready: asyncio.Semaphore) -> None:
    """Hear everything and publish as much as the broker takes, until it is gone."""
    client = palio.connect(url)
    with suppress(PalioError):
        await client.open()
        heard = await client.subscribe("x >= 0")
        for number in range(1_000_000):
            client.publish_nowait({"x": number, "text": "x" * 500}).add_done_callback(retrieved)
            if number % 100 == 0:
                await asyncio.sleep(0)
            if number == 1_000:
                await heard.receive()
                ready.release()


@pytest.mark.parametrize("number", ROUNDS)
async def test_a_broker_under_load_ends_with_0_and_no_traceback(
    number: int, tmp_path: Path
) -> None:
    command = ("serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"), "--json")
    broker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "palio", *command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    tasks: list[asyncio.Task[Any]] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert broker.stdout is not None
            told = json.loads(await broker.stdout.readline())
            url = told["listening"]["palio"]
            ready = asyncio.Semaphore(0)
            tasks = [asyncio.create_task(load(url, ready)) for _ in range(CLIENTS)]
            for _ in tasks:
                await ready.acquire()
            broker.send_signal(signal.SIGTERM)
            for each in tasks[: number % CLIENTS]:  # some leave at the same moment
                each.cancel()
            _, errors = await broker.communicate()
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if broker.returncode is None:
            broker.kill()
            await broker.wait()
    assert b"Traceback" not in errors, errors.decode()
    assert broker.returncode == 0, errors.decode()
