"""Durable patterns over brokers: whoever is killed, what is found is what one monitor finds."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from palio.client.connection import Client, connect
from palio.client.events import Event, Gap, LateGap
from palio.client.subscription import Subscription
from palio.errors import JournalDamaged, SubscriptionEnded
from palio.language.parsing import parse_pattern
from palio.model.patterns import Monitor, Occurrence
from palio.node.effects import Entry
from palio.node.memory import MemoryStore
from palio.testing import Network
from palio.testing.fleet import Fleet
from tests.client.virtual import in_virtual_time
from tests.conftest import NIGHTLY, seeds
from tests.server.helpers import Changing

ACTS: Final = 30

PATTERNS: Final = (
    "n = 1 THEN n = 2",
    "n = 1 THEN n = 1",
    "n > 0 THEN n = 2 THEN n < 2 WITHIN 20s",
    "n = 0 THEN n >= 1 WITHIN 3s",
)

PATIENT_S: Final = 20.0
"""A window that is longer than a broker is away: nothing is late."""

Parts = list[tuple[str, int]]


def parts(event: Event) -> Parts:
    return [(each.publisher, each.seq) for each in event.parts]


def due_of(text: str, published: Sequence[Event]) -> list[Parts]:
    """What one monitor finds that never stops."""
    monitor = Monitor(parse_pattern(text))
    whole = [Occurrence(each.time, each.publisher, each.seq, each) for each in published]
    found = [*monitor.push(whole), *monitor.flush()]
    return [[(each.publisher, each.seq) for each in one] for one in found]


def known(lives: Sequence[list[Parts]]) -> list[Parts]:
    """What was heard in all lives, in order, each once."""
    return list(
        map(list, dict.fromkeys(tuple(each) for incarnation in lives for each in incarnation))
    )


def check(lives: Sequence[list[Parts]], due: list[Parts]) -> None:
    """Nothing else, in order, and in one incarnation nothing twice and nothing left out."""
    assert known(lives) == due
    for incarnation in filter(None, lives):
        begin = due.index(incarnation[0])
        assert incarnation == due[begin : begin + len(incarnation)]


class Bob:
    """Who hears a durable pattern in one incarnation after the other."""

    def __init__(self, net: Network, text: str, rng: random.Random) -> None:
        self.net = net
        self.text = text
        self.rng = rng
        self.lives: list[list[Parts]] = []
        self.gaps: list[Gap] = []
        self.client: Client | None = None
        self._hearing: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        self.client = await self.net.connect("b2", name="bob", timeout=None)
        heard = await self.client.subscribe(
            self.text, durable_name="d", reorder_timeout=PATIENT_S, on_gap=self.gaps.append
        )
        self.lives.append([])
        self._hearing = asyncio.create_task(self._hear(heard, self.lives[-1]))

    async def _hear(self, heard: Subscription, incarnation: list[Parts]) -> None:
        async for event in heard:
            incarnation.append(parts(event))
            if self.rng.random() < 0.3:  # it takes its time to deal with it
                await asyncio.sleep(self.rng.uniform(0, 3))

    async def die(self) -> None:
        """Be killed, or leave as one should."""
        assert self.client is not None
        assert self._hearing is not None
        if self.rng.random() < 0.5:
            await self.client.close()
            await self._hearing
            return
        self.net.cut("bob", "b2")
        self._hearing.cancel()
        await self.client.close()
        self.net.heal("bob", "b2")


async def storm(seed: int) -> tuple[list[Parts], Bob]:
    """What is due, and what Bob heard."""
    rng = random.Random(seed)
    text = rng.choice(PATTERNS)
    async with Network("line:2", seed=seed) as net:
        publishers = [await net.connect(broker, timeout=None) for broker in ("b1", "b2", "b2")]
        witness = await net.connect("b1", name="witness")
        all_of_it = await witness.subscribe("EXISTS n", durable_name="all")
        bob = Bob(net, text, rng)
        await bob.begin()
        await witness.settled()
        assert bob.client is not None
        await bob.client.settled()
        count = 0
        for _ in range(ACTS):
            act = rng.random()
            if act < 0.6:
                values = [rng.randrange(4) for _ in range(rng.choice((1, 1, 1, 4)))]
                await rng.choice(publishers).publish([{"n": n} for n in values], durable=True)
                count += len(values)
            elif act < 0.65:  # events overtake others
                net.delay("b1", "b2", rng.choice((0.001, 0.4, 0.8)))
            elif act < 0.75:
                await bob.die()
                await asyncio.sleep(rng.uniform(0, 2))
                await bob.begin()
            else:
                victim = rng.choice(("b2", "b2", "b1"))
                net.kill(victim)
                if rng.random() < 0.3:
                    await bob.die()
                    net.restart(victim)
                    await net.up()
                    await bob.begin()
                else:
                    await asyncio.sleep(rng.uniform(0, 3))
                    net.restart(victim)
                    await net.up()
            await asyncio.sleep(rng.choice((0.0, 0.01, 0.3, 3.0, 18.0)))
        seen = [await all_of_it.receive(timeout=60) for _ in range(count)]
        due = due_of(text, seen)
        for _ in range(60):
            if len(known(bob.lives)) >= len(due):
                break
            await asyncio.sleep(PATIENT_S / 4)
        assert not [each for each in bob.gaps if isinstance(each, LateGap)]
    return due, bob


@pytest.mark.parametrize("seed", seeds(8, nightly=1_000))
def test_what_is_found_is_what_one_monitor_finds_whoever_is_killed(seed: int) -> None:
    @in_virtual_time
    async def lived() -> None:
        due, bob = await storm(seed)
        check(bob.lives, due)

    lived()


# --- one thing at a time ---

TWO: Final = "n = 1 THEN n = 2"


async def put(client: Client, *values: int, **more: Any) -> None:
    for n in values:
        await client.publish({"n": n, **more}, durable=True)


async def kept(net: Network, broker: str = "b1") -> int:
    """Entries that a broker keeps for Bob's pattern."""
    await asyncio.sleep(2)
    waiting: int = net.node(broker).status()["custody_waiting"]["bob/d"]
    return waiting


@in_virtual_time
async def test_a_partial_match_keeps_no_event_but_those_that_wait_their_time() -> None:
    async with Network() as net:
        bob = await net.connect("b1", name="bob")
        heard = await bob.subscribe(TWO, durable_name="d")
        await put(bob, 1, *[1] * 50)
        assert net.node("b1").status()["custody_waiting"]["bob/d"] > 0
        assert await kept(net) == 0
        await bob.close()
        bob = await net.connect("b1", name="bob")
        heard = await bob.subscribe(TWO, durable_name="d")
        await put(bob, 2)
        assert [part.seq for part in (await heard.receive(timeout=5)).parts] == [1, 1]


@in_virtual_time
async def test_an_occurrence_is_dealt_with_as_a_whole_and_in_order() -> None:
    async with Network() as net:
        bob = await net.connect("b1", name="bob")
        heard = await bob.subscribe(TWO, durable_name="d", ack="manual")
        await put(bob, 1, 2, 1, 2, 1)
        one, two = [await heard.receive(timeout=5) for _ in range(2)]
        two.ack()
        assert await kept(net) == 4, "those of the first, which holds back what comes after"
        one.ack()
        assert await kept(net) == 0
        await bob.close()
        bob = await net.connect("b1", name="bob")
        heard = await bob.subscribe(TWO, durable_name="d")
        await put(bob, 2)
        assert [part.seq for part in (await heard.receive(timeout=5)).parts] == [5, 1]


@in_virtual_time
async def test_who_closes_leaves_what_waits_its_time_to_the_next() -> None:
    async with Network() as net:
        ann, bob = await net.connect("b1"), await net.connect("b1", name="bob")
        heard = await bob.subscribe(TWO, durable_name="d", reorder_timeout=60)
        await put(ann, 1, 2)
        await asyncio.sleep(1)
        await bob.close()
        assert await drain_closed(heard) == []
        bob = await net.connect("b1", name="bob")
        heard = await bob.subscribe(TWO, durable_name="d", reorder_timeout=5)
        assert len((await heard.receive(timeout=60)).parts) == 2


async def drain_closed(heard: Subscription) -> list[Event]:
    return [each async for each in heard]


@in_virtual_time
async def test_what_one_publisher_sends_late_all_at_once_makes_no_other_late() -> None:
    """Its home was away, and then has all of one publisher before anything of the next."""
    async with Network("star:3") as net:
        publishers = [await net.connect(each) for each in ("b2", "b3")]
        bob = await net.connect("b1", name="bob", timeout=None)
        heard = await bob.subscribe(
            "n = 1 THEN n = 2 THEN n = 3", durable_name="d", reorder_timeout=20
        )
        await bob.settled()
        net.kill("b1")
        for n in (1, 2, 3) * 3:
            await put(publishers[n % 2], n)
            await asyncio.sleep(30)
        net.restart("b1")
        found = [await heard.receive(timeout=200) for _ in range(3)]
        assert [[part["n"] for part in each.parts] for each in found] == [[1, 2, 3]] * 3
        assert heard.late == 0


@in_virtual_time
async def test_a_slow_consumer_holds_up_the_broker_and_makes_nothing_late() -> None:
    async with Network() as net:
        ann, bob = await net.connect("b1"), await net.connect("b1", name="bob")
        heard = await bob.subscribe(TWO, durable_name="d", queue_size=1, reorder_timeout=0.5)
        for _ in range(20):
            await put(ann, 1, 2, text="x" * 500_000)
        await asyncio.sleep(5)
        assert heard.pending < 20
        for _ in range(20):
            await asyncio.sleep(2)
            assert [each["n"] for each in (await heard.receive(timeout=20)).parts] == [1, 2]
        assert heard.late == 0


@in_virtual_time
async def test_who_takes_and_does_not_acknowledge_is_sent_no_more_than_its_queue_holds() -> None:
    async with Network() as net:
        ann, bob = await net.connect("b1"), await net.connect("b1", name="bob")
        heard = await bob.subscribe(TWO, durable_name="d", queue_size=2, ack="manual")
        for _ in range(20):
            await put(ann, 1, 2, text="x" * 500_000)
        await asyncio.sleep(20)
        assert 2 <= heard.pending < 12
        for _ in range(heard.pending):
            await heard.receive(timeout=1)
        with pytest.raises(TimeoutError):
            await heard.receive(timeout=20)
        heard.ack()
        assert (await heard.receive(timeout=20)).seq > 4
        assert heard.late == 0


@in_virtual_time
async def test_more_than_a_window_of_bytes_may_wait_its_time() -> None:
    async with Network() as net:
        ann, bob = await net.connect("b1"), await net.connect("b1", name="bob")
        heard = await bob.subscribe(TWO, durable_name="d", reorder_timeout=60)
        begin = asyncio.get_running_loop().time()
        for n in (*[1] * 29, 2):
            await put(ann, n, text="x" * 500_000)
        assert (await heard.receive(timeout=90))["n"] == 2
        assert asyncio.get_running_loop().time() - begin < 65
        assert heard.late == 0


@in_virtual_time
async def test_parameters_and_patterns_may_change() -> None:
    async with Network() as net:
        ann, bob = await net.connect("b1"), await net.connect("b1", name="bob")
        heard = await bob.subscribe("n = :first THEN n = 9", {"first": 1}, durable_name="d")
        await put(ann, 1)
        await asyncio.sleep(2)
        await heard.update(first=2)
        await put(ann, 9, 2, 9)
        assert [each["n"] for each in (await heard.receive(timeout=5)).parts] == [2, 9]
        await put(ann, 2)
        await asyncio.sleep(2)
        await heard.replace("n = 9 THEN n = 9")
        await put(ann, 9, 9)
        assert [each.seq for each in (await heard.receive(timeout=5)).parts] == [6, 7]
        await asyncio.sleep(1)
        await bob.close()
        bob = await net.connect("b1", name="bob")
        heard = await bob.subscribe("n = 9 THEN n = 9", durable_name="d")
        assert [each.seq for each in (await heard.receive(timeout=5)).parts] == [6, 7]


@in_virtual_time
async def test_who_takes_it_up_elsewhere_goes_on_and_the_other_hears_no_more() -> None:
    async with Network() as net:
        ann = await net.connect("b1")
        bobs = [await net.connect("b1", name="bob") for _ in range(2)]
        first = await bobs[0].subscribe(TWO, durable_name="d")
        await put(ann, 1)
        await asyncio.sleep(2)
        second = await bobs[1].subscribe(TWO, durable_name="d")
        await put(ann, 2)
        assert len((await second.receive(timeout=5)).parts) == 2
        with pytest.raises(SubscriptionEnded, match="bob/d was taken over by another session"):
            await first.receive(timeout=5)


@in_virtual_time
async def test_two_that_take_it_from_each_other_find_each_occurrence_once() -> None:
    """The one that comes back goes on from where the other one was, not from where it was."""
    async with Network() as net:
        ann = await net.connect("b1")
        bobs = [net.client("b1", name="bob") for _ in range(2)]
        found: list[list[int]] = []
        for turn in range(6):
            bob = bobs[turn % 2]
            await bob.open()
            heard = await bob.subscribe(TWO, durable_name="d")
            await put(ann, 2, 1)
            event = await heard.receive(timeout=5) if turn else None
            heard.ack()
            await asyncio.sleep(2)
            found += [] if event is None else [[each.seq for each in event.parts]]
            await heard.unsubscribe()
        assert found == [[2 * turn, 2 * turn + 1] for turn in range(1, 6)]


@in_virtual_time
async def test_a_client_that_moves_takes_its_pattern_along() -> None:
    async with Network("line:2") as net:
        ann, bob = await net.connect("b1"), await net.connect("b1", name="bob")
        heard = await bob.subscribe(TWO, durable_name="d")
        await bob.settled()
        await put(ann, 1)
        await asyncio.sleep(2)
        await bob.move("palio://b2")
        await put(ann, 2, 1, 2)
        found = [await heard.receive(timeout=15) for _ in range(2)]
        assert [[each.seq for each in one.parts] for one in found] == [[1, 2], [3, 4]]


@pytest.fixture
def bad(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Entries that journals cannot give back."""
    bad: list[int] = []
    whole = MemoryStore.entries

    def entries(self: MemoryStore, numbers: Sequence[int]) -> list[Entry]:
        if set(bad) & set(numbers):
            raise JournalDamaged(f"one of {numbers} is not what was written")
        return whole(self, numbers)

    monkeypatch.setattr(MemoryStore, "entries", entries)
    return bad


async def lost_while_away(net: Network, filter: str, bad: list[int]) -> None:
    """The one entry that waits for Bob cannot be given back."""
    ann, bob = await net.connect("b1"), await net.connect("b1", name="bob")
    await bob.subscribe(filter, durable_name="d")
    await bob.close()
    await put(ann, 1)
    assert await kept(net) == 1
    bad.append(1)
    net.kill("b1")
    net.restart("b1")


@pytest.mark.parametrize("filter", ["EXISTS n", TWO])
@in_virtual_time
async def test_a_gap_in_the_journal_is_acknowledged_though_nothing_comes_after_it(
    filter: str, bad: list[int]
) -> None:
    """Else it would be told with every session, and a drain would wait for it without end."""
    async with Network() as net:
        gaps: list[Gap] = []
        await lost_while_away(net, filter, bad)
        for _ in range(2):
            bob = await net.connect("b1", name="bob")
            heard = await bob.subscribe(filter, durable_name="d", on_gap=gaps.append)
            with pytest.raises(TimeoutError):
                await heard.receive(timeout=1)
            assert len(gaps) == 1
            assert await kept(net) == 0
            await bob.close()


@pytest.mark.parametrize("filter", ["EXISTS n", TWO])
@in_virtual_time
async def test_a_gap_in_the_journal_is_not_acknowledged_before_the_application_is_told(
    filter: str, bad: list[int]
) -> None:
    async with Network() as net:
        gaps: list[Gap] = []
        await lost_while_away(net, filter, bad)
        for _ in range(2):  # nobody takes anything: the program might be killed now
            bob = await net.connect("b1", name="bob")
            await bob.subscribe(filter, durable_name="d", on_gap=gaps.append)
            assert (await kept(net), gaps) == (1, [])
            await bob.close()


@in_virtual_time
async def test_a_gap_in_the_journal_makes_it_start_over(bad: list[int]) -> None:
    async with Network() as net:
        gaps: list[Gap] = []
        ann, bob = await net.connect("b1"), await net.connect("b1", name="bob", timeout=None)
        await bob.subscribe(TWO, durable_name="d")
        await put(ann, 1)
        await asyncio.sleep(2)
        await bob.close()
        await put(ann, 1, 2, 1, 2)
        bad.append(2)
        net.kill("b1")
        net.restart("b1")
        bob = await net.connect("b1", name="bob")
        heard = await bob.subscribe(TWO, durable_name="d", on_gap=gaps.append)
        assert [each.seq for each in (await heard.receive(timeout=5)).parts] == [4, 5]
        assert [(each.first_seq, each.is_certain) for each in gaps] == [(2, True)]


@in_virtual_time
async def test_live_events_take_part_and_are_in_the_bookmark_of_a_durable_one() -> None:
    async with Network() as net:
        ann, bob = await net.connect("b1"), await net.connect("b1", name="bob")
        heard = await bob.subscribe(TWO, durable_name="d")
        await ann.publish({"n": 1})
        await put(ann, 2)
        assert [each.seq for each in (await heard.receive(timeout=5)).parts] == [1, 2]
        heard.ack()
        await ann.publish({"n": 1})
        await put(ann, 1)
        await asyncio.sleep(2)
        await bob.close()
        bob = await net.connect("b1", name="bob")
        heard = await bob.subscribe(TWO, durable_name="d")
        await put(ann, 2)
        assert [each.seq for each in (await heard.receive(timeout=5)).parts] == [3, 5]


# --- real processes ---

KILLS: Final = 20 if NIGHTLY else 1


class Real(Changing):
    """A broker and `palio sub`, each a process that is killed with SIGKILL."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.fleet = Fleet(("b1",), folder)
        self.url = self.fleet.url("b1")
        self.lives: list[list[Parts]] = []
        self._sub: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Bob hears his pattern from now on."""
        options = ("--durable", "d", "--name", "bob", "--reorder", "0.3", "--json")
        self._sub = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "palio", "sub", REAL, "--broker", self.url, *options),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
        )
        assert self._sub.stderr is not None
        assert b"subscribed to" in await self._sub.stderr.readline()
        self.lives.append([])
        self._reading = asyncio.create_task(self._read(self.lives[-1]))

    async def _read(self, incarnation: list[Parts]) -> None:
        assert self._sub is not None
        assert self._sub.stdout is not None
        async for line in self._sub.stdout:
            if line.endswith(b"\n"):  # else it was killed before it had said so
                heard = json.loads(line)
                incarnation.append([(each["publisher"], each["seq"]) for each in heard["parts"]])
                self.changed.set()

    async def die(self) -> None:
        assert self._sub is not None
        assert self._reading is not None
        self._sub.kill()
        await self._reading
        await self._sub.wait()


REAL: Final = "n = 1 THEN n = 2 THEN n < 2"


def test_processes_that_are_killed_find_what_one_monitor_finds(tmp_path: Path, seed: int) -> None:
    rng, real, count = random.Random(seed), Real(tmp_path), 0

    async def lived() -> list[Parts]:
        nonlocal count
        async with real.fleet, connect(real.url, name="ann", timeout=None) as ann:
            all_of_it = await ann.subscribe("EXISTS n", durable_name="all")
            async with connect(real.url, name="bob") as bob:
                await bob.subscribe(REAL, durable_name="d")
            await real.begin()
            for kill in range(KILLS + 1):
                for _ in range(40):
                    await ann.publish({"n": rng.randrange(3)}, durable=True)
                    count += 1
                    await asyncio.sleep(rng.choice((0.0, 0.0, 0.03)))
                victim = "" if kill == KILLS else rng.choice(("broker", "client", "both"))
                if victim in ("client", "both"):
                    await real.die()
                if victim in ("broker", "both"):
                    await real.fleet.kill("b1")
                    await real.fleet.start("b1")
                if victim in ("client", "both"):
                    await real.begin()
            seen = [await all_of_it.receive(timeout=60) for _ in range(count)]
            due = due_of(REAL, seen)
            async with asyncio.timeout(60):
                await real.until(lambda: known(real.lives)[-1:] == due[-1:])
            await real.die()
        return due

    check(real.lives, asyncio.run(lived()))
