"""A worker of a group, as a process to be killed: it writes to a file what it has done.

python -m tests.server.group_worker URL FILE
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

from palio import connect
from palio.client.connection import Client
from palio.client.subscription import Subscription

ATTEMPTS: Final = 8
"""More than kills that one event may see: then only poison becomes a dead letter."""


async def join(client: Client) -> Subscription:
    """Subscribe with the others."""
    return await client.subscribe(
        "EXISTS job", durable_name="jobs", group=True, ack="manual", max_attempts=ATTEMPTS
    )


async def work(url: str, file: Path) -> None:
    """Do jobs for ever; a negative one is poison."""
    async with connect(url, name="workers") as client:
        jobs = await join(client)
        with file.open("ab", buffering=0) as done:
            async for event in jobs:
                if event["job"] < 0:
                    event.nack(reason="poison")
                    continue
                done.write(b"%d\n" % event["job"])
                event.ack()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], Path(sys.argv[2])))
