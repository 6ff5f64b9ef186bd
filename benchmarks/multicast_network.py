"""What multicast spares the broker at which events are published, beside the same by links.

    python -m benchmarks.multicast_network [--brokers 12] [--events 1000] [--rate 100]

Brokers are processes, each in a network namespace of its own, all at one bridge: it takes Linux and
the permission to make namespaces. The first is linked to all others, and at each of those a client
hears every event. Links are TLS. Datagrams are lost in the shell of each receiver, by a seed.
Brokers match by `poset`: the engine compiles once it has had some work, and for as long as that
takes twelve processes do nothing else. Bytes are those that leave the interface of the first
broker, CPU is what its process took, less what it takes while nothing is published; times are from
publishing to receiving, those of the slowest receiver.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import msgspec

from benchmarks.multicast_ends import Heard
from palio.client.connection import Client, connect
from palio.errors import Unreachable
from palio.multicast import documents
from palio.multicast.listed import flooding
from palio.server.settings import (
    Broker,
    Configuration,
    Listen,
    Log,
    Multicast,
    Peers,
    Tls,
)
from tests.node.signing import Keyring
from tests.server.bridges import INTERFACE, Bridge, why_no_bridge
from tests.server.certificates import certificate

READY_S: Final = 60.0
"""Seconds that a broker may take to start, and all to know of each other, on a busy machine."""
GROUPS: Final = {4: "239.195.0.0/16", 6: "ff18::/112"}
ALL: Final[dict[str, Any]] = {
    "allow_publish": "TRUE",
    "allow_subscribe": "TRUE",
    "monitor": True,
    "operate": True,
}
IDLE_S: Final = 2.0
QUIET_S: Final = 0.04
"""Of each second: what a broker takes that has nothing to do is half of it."""
LOADING: Final = 12_000
"""Events after which a broker with ten filters or more has loaded the engine's kernels."""

WARMING: Final = 200
"""Events before those that count."""
TICKS: Final = os.sysconf("SC_CLK_TCK")


class Ways(NamedTuple):
    """How events travel."""

    version: int = 4
    """Of IP, for datagrams; 0 for links only."""
    loss: float = 0.0
    """The share of datagrams that each receiver loses."""
    routing: str = "flooded"
    is_wanted: bool = True
    """Whether anybody wants events: without, what is measured is the publisher's broker alone."""


class Measured(NamedTuple):
    """A run."""

    heard: list[Heard]
    """By each receiver."""
    bytes_an_event: float
    cpu_us: float
    """For an event, of the publisher's broker..."""
    system_us: float
    """...and of that in the system, which brings to eleven namespaces what a network card would
    send once."""


class MulticastNetwork:
    """Brokers b1, b2 and so on; the others are linked to b1."""

    def __init__(self, count: int, folder: Path, ways: Ways, *, seed: int = 1) -> None:
        self.names = tuple(f"b{number}" for number in range(1, count + 1))
        self._ways = ways
        self._seed = seed
        self._folder = folder
        self._key = folder / "group.key"
        self._key.write_text(secrets.token_hex(32), encoding="ascii")
        self._key.chmod(0o600)
        self._ca = certificate(folder, "ca")
        self._ring = Keyring(folder)
        self._token = self._ring.token("measuring", **ALL)
        self._open = AsyncExitStack()
        self._bridge = self._open.enter_context(Bridge(count))
        self._brokers: list[Process] = []
        self._configurations = [self._configuration(place) for place in range(count)]

    async def __aenter__(self) -> Self:
        try:
            for place in range(len(self.names)):
                await self._start(place)
            with self._bridge.spaces[0].inside():  # where nothing else is opened meanwhile
                self.publisher = await self._connected()
            if self._ways.is_wanted:
                await asyncio.gather(
                    *(self._ask(place, f"hear {self._token}") for place in self._receivers)
                )
                await self._until_all_hear()
            if self._ways.version:
                await self._plan()
            return self
        except BaseException:
            await self.stop()
            raise

    async def publish(self, events: int, rate: float, *, idling_s: float = 0.0) -> Measured:
        """Publish numbers from 1 on, so many a second; of CPU, what idling takes does not count."""
        publishing = self._brokers[0]
        sent, cpu = self._bridge.sent_bytes(0), _cpu_s(publishing)
        system = _system_s(publishing)
        began = time.monotonic()
        receipts = []
        for number in range(1, events + 1):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            event = {
                "number": number,
                "sent_ns": time.monotonic_ns(),
                "symbol": "IBM",
                "price": 9.5,
            }
            receipts.append(self.publisher.publish_nowait(event))
        await asyncio.gather(*receipts)
        heard = [Heard(0, 0, 0, 0.0, 0.0)]
        if self._ways.is_wanted:
            answers = [self._ask(place, f"heard {events}") for place in self._receivers]
            heard = [msgspec.convert(each, Heard) for each in await asyncio.gather(*answers)]
        took = time.monotonic() - began
        return Measured(
            heard,
            (self._bridge.sent_bytes(0) - sent) / events,
            (_cpu_s(publishing) - cpu - idling_s * took) / events * 1e6,
            (_system_s(publishing) - system) / events * 1e6,
        )

    async def warm(self, rate: float) -> None:
        """The first events take longer than others: the engine loads its kernels when it has had
        some work.
        """
        unwanted = {"number": -1, "sent_ns": 0, "symbol": "IBM", "price": 9.5}
        await self.publisher.publish([unwanted] * LOADING)
        await self.publish(WARMING, rate)
        async with asyncio.timeout(READY_S):
            while await _idling_s(self._brokers) > QUIET_S * len(self._brokers):
                pass

    async def idling_s(self) -> float:
        """What the publisher's broker takes in a second while it has nothing to do."""
        return await _idling_s(self._brokers[:1])

    async def stop(self) -> None:
        """End all processes."""
        await self._open.aclose()
        for process in self._brokers:
            if process.returncode is None:
                process.terminate()
        await asyncio.gather(*(process.wait() for process in self._brokers))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    # --- brokers ---

    @property
    def _receivers(self) -> range:
        return range(1, len(self.names))

    def _configuration(self, place: int) -> Configuration:
        name, address, version = self.names[place], Bridge.address(place), self._ways.version
        cert = certificate(self._folder, name, self._ca, address=address)
        multicast = (
            Multicast(groups=GROUPS[version], interface=INTERFACE, key=str(self._key))
            if version
            else Multicast()
        )
        return Configuration(
            broker=Broker(name=name, routing=self._ways.routing),
            listen=Listen(host=address),
            tls=Tls(cert=str(cert), key=str(cert.with_suffix(".key")), ca=str(self._ca)),
            auth=self._ring.equip(name, **ALL),
            peers=Peers(urls=(f"palios://{Bridge.address(0)}",) if place else ()),
            multicast=multicast,
            log=Log(level="error"),
        )

    async def _start(self, place: int) -> None:
        file = self._folder / f"{self.names[place]}.json"
        file.write_bytes(msgspec.json.encode(self._configurations[place]))
        loss = self._ways.loss if place else 0.0
        process = await asyncio.create_subprocess_exec(
            *self._bridge.spaces[place].launcher,
            *(sys.executable, "-m", "benchmarks.multicast_ends", str(file)),
            *(str(loss), str(self._seed + place)),
            stdin=PIPE,
            stdout=PIPE,
        )
        self._brokers.append(process)
        await self._answer(place)

    async def _ask(self, place: int, command: str) -> Any:
        process = self._brokers[place]
        assert process.stdin is not None
        process.stdin.write(f"{command}\n".encode())
        return await self._answer(place)

    async def _answer(self, place: int) -> Any:
        process = self._brokers[place]
        assert process.stdout is not None
        async with asyncio.timeout(2 * READY_S):
            line = await process.stdout.readline()
        if not line:
            raise Unreachable(f"broker {self.names[place]} has ended")
        return json.loads(line)

    async def _connected(self) -> Client:
        url = f"palios://{Bridge.address(0)}"
        return await self._open.enter_async_context(
            connect(url, tls=str(self._ca), token=self._token)
        )

    async def _until_all_hear(self) -> None:
        async with asyncio.timeout(READY_S):
            while True:
                hops = (await self.publisher.admin.trace({"number": 1}))["hops"]
                if len({hop["broker"] for hop in hops if hop.get("matched")}) == len(
                    self._receivers
                ):
                    return
                await asyncio.sleep(0.05)

    async def _plan(self) -> None:
        """One group of all, of which the publisher's broker knows that all have joined it."""
        await self.publisher.admin.apply_plan(documents.encode(flooding(self.names)))
        async with asyncio.timeout(READY_S):
            while True:
                flows = (await self.publisher.admin.status())["multicast"]
                if flows["used"] and len(flows["by_datagrams"]) == len(self._receivers):
                    return
                await asyncio.sleep(0.05)


def _cpu_s(process: Process) -> float:
    return sum(_times_s(process))


def _system_s(process: Process) -> float:
    return _times_s(process)[1]


def _times_s(process: Process) -> tuple[float, float]:
    """What it took for itself, and in the system."""
    text = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8")
    user, system = text.rpartition(")")[2].split()[11:13]
    return int(user) / TICKS, int(system) / TICKS


async def _idling_s(processes: Sequence[Process]) -> float:
    """What they take in a second while nothing is to be done."""
    before = sum(map(_cpu_s, processes))
    await asyncio.sleep(IDLE_S)
    return (sum(map(_cpu_s, processes)) - before) / IDLE_S


async def measure(count: int, events: int, rate: float, ways: Ways) -> Measured:
    """One network, from its start to its end."""
    with tempfile.TemporaryDirectory() as folder:
        async with MulticastNetwork(count, Path(folder), ways) as network:
            await network.warm(rate)
            return await network.publish(events, rate, idling_s=await network.idling_s())


def _row(name: str, found: Measured) -> str:
    def total(field: str) -> int:
        return sum(getattr(each, field) for each in found.heard)

    p50, p99 = (max(getattr(each, field) for each in found.heard) for field in ("p50_ms", "p99_ms"))
    return (
        f"| {name} | {total('lost')} | {total('twice')} | {total('disordered')} "
        f"| {found.bytes_an_event:,.0f} | {found.cpu_us:,.0f} | {found.system_us:,.0f} "
        f"| {p50:.1f} | {p99:.1f} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--brokers", type=int, default=12)
    parser.add_argument("--events", type=int, default=1_000)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--routing", default="flooded")
    parser.add_argument("--version", type=int, default=4, choices=(4, 6))
    parser.add_argument("--loss", type=float, nargs="*", default=[0.0, 0.01, 0.1])
    given = parser.parse_args()
    reason = why_no_bridge()
    if reason:
        raise SystemExit(f"no bridge of network namespaces: {reason}")
    print(
        "| way | lost | twice | out of order | bytes an event | CPU us an event | in the system "
        "| p50 ms | p99 ms |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    runs = [
        ("nobody wants it", Ways(0, routing=given.routing, is_wanted=False)),
        ("links", Ways(0, routing=given.routing)),
    ]
    runs += [
        (f"multicast, {loss:.0%} lost", Ways(given.version, loss, given.routing))
        for loss in given.loss
    ]
    for name, ways in runs:
        print(_row(name, asyncio.run(measure(given.brokers, given.events, given.rate, ways))))


if __name__ == "__main__":
    main()
