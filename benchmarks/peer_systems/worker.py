"""The process of the clients: publisher and subscribers of one system, on one event loop.

`benchmarks.peers` writes a `Job` to its standard input and reads what it found from its standard
output.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec
import uvloop

from benchmarks.peer_systems.bench import Bench, Figures, Job
from benchmarks.peer_systems.groups import Group
from benchmarks.peer_systems.registry import SYSTEMS
from benchmarks.peer_systems.rows import Durable, Many, OneSubscriber, moved


async def run(job: Job) -> dict[str, Figures]:
    """The rows of a job."""
    bench, rows = Bench(job, SYSTEMS[job.system]()), set(job.rows)
    found: dict[str, Figures] = {}
    if rows & {"quiet", "turn", "burst"}:
        one = await OneSubscriber.ready(bench)
        for name, measure in (("quiet", one.quiet), ("turn", one.turn), ("burst", one.burst)):
            if name in rows:
                found[name] = await bench.repeated(measure)
        await one.close()
    if "alone" in rows:
        found["alone"] = await moved(bench)
    if rows & {"filters", "fanout", "beside"}:
        found |= await _many(bench, rows)
    if rows & {"durable", "durable-64"}:
        durable = await Durable.ready(bench)
        for name, measure in (("durable", durable.one), ("durable-64", durable.many)):
            if name in rows:
                found[name] = await bench.repeated(measure)
        if job.system != "echo":
            await durable.compared()
        await durable.close()
    if "groups" in rows:
        group = await Group.ready(bench)
        found["groups"] = await bench.repeated(group.load) | group.compared()
        await group.close()
    return found


async def _many(bench: Bench, rows: set[str]) -> dict[str, Figures]:
    many = Many(bench)
    found = {"filters": await many.subscribe()}
    if "fanout" in rows:
        found["fanout"] = await bench.repeated(many.load)
        found["fanout-quiet"] = await bench.repeated(many.quiet)
        found["fanout"] |= await many.compared()
    if "beside" in rows:
        found["beside"] = await moved(bench)
    await many.close()
    return found


def main() -> None:
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(run(job))
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
