"""A real broker on a thread of the test's own process, and the command as a process."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from palio.node.limits import PEER_GRACE_S
from palio.server.run import running
from palio.server.settings import Auth, Broker, Configuration, Limits, Listen, Peers

PROGRAM: Final = "from palio.cli.main import run; run()"

PATIENCE_S: Final = 30.0
"""How long a test waits for what must come; none waits so long unless it fails."""


@contextmanager
def broker(
    name: str = "b1",
    data: Path | None = None,
    *peers: str,
    peer_grace_s: float = PEER_GRACE_S,
    keys: Path | None = None,
    routing: str = "general",
    history_s: float = 0.0,
    latest_by: tuple[str, ...] = (),
) -> Iterator[str]:
    """A broker on a free port; its address. With `keys` it wants tokens."""
    started, addresses = threading.Event(), list[str]()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    configuration = Configuration(
        broker=Broker(
            name=name,
            data_dir="" if data is None else str(data),
            routing=routing,
            latest_by=latest_by,
        ),
        listen=Listen(port=0),
        auth=Auth(keys="" if keys is None else str(keys)),
        peers=Peers(urls=peers),
        limits=Limits(peer_grace_s=peer_grace_s, history_s=history_s),
    )

    async def serve() -> None:
        async with running(configuration) as served:
            addresses.append(served.addresses["palio"])
            started.set()
            await stop.wait()

    def is_no_pulse(record: logging.LogRecord) -> bool:
        """A busy machine is not told of between the lines of a command in this process."""
        return record.getMessage() != "loop_blocked"

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    logger = logging.getLogger("palio.server")
    logger.addFilter(is_no_pulse)
    thread.start()
    try:
        assert started.wait(PATIENCE_S)
        yield addresses[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
        logger.removeFilter(is_no_pulse)


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command as a process, which ends with the block whatever happens there."""
    started = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()
