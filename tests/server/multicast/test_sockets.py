"""Sockets of several brokers, at one bridge or on loopback, with datagrams that are sealed."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from benchmarks.namespaces import Namespace
from palio.errors import InvalidConfiguration
from palio.model.events import SEQ, TIME, to_batches
from palio.model.parcels import Parcel
from palio.multicast.datagrams import Datagram
from palio.node.effects import Cast, Effect, Tune
from palio.protocol.limits import MAX_MTU
from palio.protocol.messages import Message, Ping
from palio.server.journal.journal import Diskless
from palio.server.limits import BUFFER_BYTES
from palio.server.multicast.sockets import GroupSockets, open_groups
from palio.server.server import Server
from palio.server.settings import Multicast
from tests.server.bridges import INTERFACE, Bridge, why_no_bridge
from tests.server.helpers import PATIENCE_S, Changing, Scripted, until

REASON: Final = why_no_bridge()
on_a_bridge: Final = pytest.mark.skipif(bool(REASON), reason=REASON or "there is one")
PLAN: Final = 1_700_000_000_000_000
RMEM_MAX: Final = Path("/proc/sys/net/core/rmem_max")
GROUPS: Final = {4: "239.195.0.0/16", 6: "ff15::/112"}
OWN_GROUPS: Final = "239.194.0.0/16"
"""Joined by one test alone: what is joined is seen by all tests that run at once."""


@pytest.fixture(scope="module")
def bridge() -> Iterator[Bridge]:
    with Bridge(3) as found:
        yield found


@pytest.fixture
def key(tmp_path: Path) -> str:
    path = tmp_path / "group.key"
    path.write_text("ab" * 32, encoding="ascii")
    path.chmod(0o600)
    return str(path)


class Plain(NamedTuple):
    """What tests look at."""

    source: str
    group: int
    number: int
    events: list[dict[str, Any]]


def plain(datagram: Datagram) -> Plain:
    held = datagram.parcel
    events = [] if held is None else held.batch.drop_columns([SEQ, TIME]).to_pylist()
    return Plain(datagram.source, datagram.group, datagram.number, events)


def events(*rows: dict[str, Any]) -> Parcel:
    """As a broker sends them."""
    (batch,) = to_batches(rows)
    return Parcel.of("", batch).stamped("ann/1", 1, 1_700_000_000_000_000)


class Broker:
    """A scripted node with sockets for groups, and a server round it."""

    def __init__(self, name: str, sockets: GroupSockets, space: Namespace | None) -> None:
        self.name = name
        self._space = space
        self.node = Scripted()
        self.sockets = sockets
        self.server = Server(self.node, Diskless(), multicast=sockets)
        self._numbers = 0

    def cast(self, group: int, *rows: dict[str, Any]) -> Plain:
        self._numbers += 1
        held = events(*rows) if rows else None
        sent = Datagram(self.name, 1, PLAN, group, self._numbers, bytes(4), held)
        self.sockets.cast(sent)
        return plain(sent)

    async def join(self, *groups: int, plan: int = PLAN) -> None:
        """Join groups, and wait until that is done, which takes more sockets of the namespace;
        nobody else makes any meanwhile.
        """
        with nullcontext() if self._space is None else self._space.inside():
            self.sockets.tune(plan, groups)
            await until(lambda: self.sockets.is_settled)

    async def heard(self, times: int) -> list[Plain]:
        return [plain(call[1]) for call in await self.node.called("receive_datagram", times)]

    @property
    def has_heard(self) -> list[Plain]:
        return [plain(call[1]) for call in self.node.calls if call[0] == "receive_datagram"]


@asynccontextmanager
async def brokers(
    *settings: Multicast,
    spaces: Sequence[Namespace] = (),
    is_lost: Callable[[], bool] | None = None,
) -> AsyncIterator[list[Broker]]:
    found = []
    for place, each in enumerate(settings):
        space = spaces[place] if spaces else None
        with nullcontext() if space is None else space.inside():
            sockets = open_groups(each, f"b{place + 1}", is_lost)
        assert sockets is not None
        found.append(Broker(f"b{place + 1}", sockets, space))
        found[-1].server.start()
    try:
        yield found
    finally:
        for broker in found:
            await broker.server.stop()


def on_loopback(**given: Any) -> Multicast:
    options: dict[str, Any] = {"groups": GROUPS[4], "interface": "lo", "port": free_port()}
    return Multicast(**options | given)


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


@on_a_bridge
@pytest.mark.parametrize("version", [4, 6])
async def test_members_of_a_group_hear_what_is_sent_to_it(
    bridge: Bridge, key: str, version: int
) -> None:
    same = Multicast(groups=GROUPS[version], key=key, interface=INTERFACE)
    async with brokers(same, same, same, spaces=bridge.spaces) as (one, two, three):
        await two.join(5, 6)
        await three.join(6, 7)
        sent = {group: one.cast(group, {"x": group}, {"x": 0}) for group in (4, 5, 6, 7)}
        assert await two.heard(2) == [sent[5], sent[6]]
        assert await three.heard(2) == [sent[6], sent[7]]
        assert one.has_heard == []
        assert one.sockets.counters.sent == 4
        assert two.sockets.counters.received == 2
        assert two.sockets.counters.received_bytes < one.sockets.counters.sent_bytes
        assert two.server.traffic.events_in == 4


@on_a_bridge
@pytest.mark.parametrize("version", [4, 6])
async def test_fifty_groups_of_one_broker_and_then_others(
    bridge: Bridge, key: str, version: int
) -> None:
    same = Multicast(groups=GROUPS[version], key=key, interface=INTERFACE)
    async with brokers(same, same, spaces=bridge.spaces) as (one, two):
        await two.join(*range(50))
        sent = [one.cast(group) for group in range(60)]
        assert await two.heard(50) == sent[:50]
        assert two.sockets.joined == 50
        await two.join(*range(40, 60), plan=PLAN + 1_000)  # both plans are in use
        assert two.sockets.joined == 70
        await two.join()
        assert two.sockets.joined == 20
        await two.join(3)
        one.cast(2)
        last = one.cast(3)
        assert (await two.heard(51))[50:] == [last]


@on_a_bridge
@pytest.mark.parametrize("version", [4, 6])
async def test_other_keys_ports_and_interfaces_are_not_heard(
    bridge: Bridge, key: str, tmp_path: Path, version: int
) -> None:
    """What is sent with another key comes and cannot be opened; the others do not even come."""
    other = tmp_path / "other.key"
    other.write_text("cd" * 32, encoding="ascii")
    other.chmod(0o600)
    groups = GROUPS[version]
    async with brokers(
        Multicast(groups=groups, key=key, interface=INTERFACE),
        Multicast(groups=groups, key=str(other), interface=INTERFACE),
        Multicast(groups=groups, key=key, interface=INTERFACE, port=7_434),
        Multicast(groups=GROUPS[4], key=key, interface="lo"),
        Multicast(groups=groups, key=key, interface=INTERFACE),
        spaces=[bridge.spaces[place] for place in (0, 1, 1, 0, 1)],
    ) as (one, forger, ported, looped, sender):
        await one.join(1)
        for each in (forger, ported, looped):
            each.cast(1, {"x": 1})
        sent = sender.cast(1)
        assert await one.heard(1) == [sent]
        assert one.sockets.counters.received == 2
        assert one.sockets.dropped["forged"] == 1
        assert sum(one.sockets.dropped.values()) == 1


@on_a_bridge
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("loop", [True, False])
async def test_brokers_of_one_machine_hear_each_other_if_they_shall(
    bridge: Bridge, key: str, version: int, loop: bool
) -> None:
    same = Multicast(groups=GROUPS[version], key=key, interface=INTERFACE, loop=loop)
    spaces = [bridge.spaces[place] for place in (0, 0, 1)]
    async with brokers(same, same, same, spaces=spaces) as (one, neighbour, other):
        for each in (one, neighbour, other):
            await each.join(1)
        sent = one.cast(1)
        assert await other.heard(1) == [sent]
        last = other.cast(1)  # whatever came to the neighbour came before this
        assert await neighbour.heard(2 if loop else 1) == [sent, last][not loop :]
        assert await one.heard(1) == [last]
        assert one.sockets.counters.received == 1  # its own is not even opened


@on_a_bridge
@pytest.mark.parametrize("version", [4, 6])
async def test_datagrams_say_how_many_routers_they_may_pass(
    bridge: Bridge, key: str, version: int
) -> None:
    same = Multicast(groups=GROUPS[version], key=key, interface=INTERFACE, ttl=7)
    with bridge.spaces[1].inside():
        sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
    sniffer.bind((INTERFACE, 0x0800 if version == 4 else 0x86DD))
    sniffer.setblocking(False)
    with sniffer:
        async with brokers(same, spaces=bridge.spaces) as (one,):
            one.cast(1)
            async with asyncio.timeout(PATIENCE_S):
                packet = await asyncio.get_running_loop().sock_recv(sniffer, 2_048)
                while not is_ours(packet, version):
                    packet = await asyncio.get_running_loop().sock_recv(sniffer, 2_048)
            assert packet[8 if version == 4 else 7] == 7


def is_ours(packet: bytes, version: int) -> bool:
    header = 20 if version == 4 else 40
    return packet[header + 2 : header + 4] == (7_433).to_bytes(2, "big")


async def test_what_the_node_wants_is_done_and_what_comes_is_handed_to_it() -> None:
    """From its start on, and other brokers on loopback need no key."""
    sent = Datagram("b2", 1, PLAN, 1, 1, bytes(8), events({"x": 1}))

    def rule(_: int, message: Message) -> Sequence[Effect]:
        return [Tune(PLAN, (1, 2)), Cast(sent)] if isinstance(message, Ping) else ()

    same = on_loopback()
    async with brokers(same, same) as (one, two):
        await one.join(1)
        two.node.rule = rule
        front = Changing(PATIENCE_S)
        link = two.server.connect_local(lambda _: front.changed.set())
        link.send(Ping())
        assert await one.heard(1) == [plain(sent)]
        await until(lambda: two.sockets.joined == 2)


async def test_one_that_stops_leaves_its_groups_and_hears_nothing() -> None:
    same = on_loopback(groups=OWN_GROUPS)
    async with brokers(same, same) as (one, two):
        await one.join(1)
        await two.join(1)
        assert memberships()
        await one.server.close()
        assert one.sockets.joined == 0
        sent = two.cast(1)
        await one.server.stop()
        assert (one.has_heard, sent.number) == ([], 1)
    assert not memberships()


def memberships() -> list[str]:
    """The groups of `OWN_GROUPS` that are joined, as the system lists them, bytes reversed."""
    text = Path("/proc/net/igmp").read_text(encoding="ascii")
    return re.findall(r"\b[0-9A-F]{4}C2EF\b", text)


async def test_a_flood_does_not_keep_others_waiting_and_is_counted() -> None:
    """What the buffer of the system does not hold is lost, and what is read is read in turns."""
    same = on_loopback()
    async with brokers(same, same) as (one, two):
        await one.join(1)
        large = {"text": "x" * 1_000}
        count = 0
        while not one.sockets.dropped["overflown"] and count < 100_000:
            two.cast(1, large)  # nothing is read meanwhile
            count += 1
        lost = one.sockets.dropped["overflown"]
        assert 0 < lost < count
        turns = 0
        async with asyncio.timeout(PATIENCE_S):
            while len(one.has_heard) < count - lost:
                await asyncio.sleep(0)
                turns += 1
        assert turns > 3
        assert [each.number for each in one.has_heard] == list(range(1, count - lost + 1))


async def test_what_cannot_be_sent_is_dropped_and_counted() -> None:
    async with brokers(on_loopback()) as (one,):
        one.sockets.close()
        one.cast(1)
        assert (one.sockets.counters.sent, one.sockets.counters.unsent) == (0, 1)


async def test_datagrams_are_lost_as_a_measurement_says() -> None:
    """Every other."""
    same = on_loopback()
    told: list[bool] = []

    def is_lost() -> bool:
        told.append(len(told) % 2 == 0)
        return told[-1]

    async with brokers(same, same, is_lost=is_lost) as (one, two):
        await one.join(1)
        sent = [two.cast(1) for _ in range(10)]
        assert await one.heard(5) == sent[1::2]


async def test_the_buffer_is_as_large_as_the_system_allows() -> None:
    """Linux gives twice what it is asked, for its own use."""
    most = int(RMEM_MAX.read_text(encoding="ascii"))
    async with brokers(on_loopback()) as (one,):
        assert one.sockets.buffer_bytes == 2 * min(most, BUFFER_BYTES)


async def test_the_longest_datagram_is_read_whole() -> None:
    same = on_loopback(mtu=MAX_MTU)
    async with brokers(same, same) as (one, two):
        await one.join(1)
        sent = two.cast(1, {"text": "x" * 65_000})
        assert await one.heard(1) == [sent]


async def test_a_port_that_another_program_keeps_for_itself() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("0.0.0.0", 0))
        with pytest.raises(InvalidConfiguration, match=r"multicast\.port.*in use"):
            open_groups(on_loopback(port=other.getsockname()[1]), "b1")
