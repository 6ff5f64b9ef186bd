"""The cluster_state: what it says of each algorithm is so, on whole brokers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import pytest

import palio
from palio.client.connection import Client
from palio.client.subscription import Subscription
from palio.errors import InvalidInput, NotSupported
from palio.routing.algorithms import ALGORITHMS, Algorithm, GraphKind, find_algorithm
from palio.simulation.randomness import Randomness
from palio.simulation.topologies import Topology, connected_random, random_tree
from palio.testing import Network, run
from tests.cli.brokers import process
from tests.conftest import seeds, share

CONCEPTS = Path(__file__).parents[2] / "docs/concepts/routing.md"
EVENTS = (
    "kind IS NOT NULL AND n IS NOT NULL AND name IS NOT NULL",
    "kind IS NOT NULL AND n IS NOT NULL AND name IS NOT NULL AND x IS NOT NULL",
)
"""What publishers advertise where they have to: an event has no attributes but these."""


class Interest(NamedTuple):
    """A filter as a user writes it, and what it means as Python has it."""

    text: str
    means: Callable[[Mapping[str, Any], Mapping[str, int]], bool]


INTERESTS = (
    Interest("kind = :kind AND x >= :low",
         lambda e, v: e["kind"] == v["kind"] and _x(e) >= v["low"]),
    Interest("x BETWEEN :low AND 9 OR kind = :kind",
         lambda e, v: v["low"] <= _x(e) <= 9 or e["kind"] == v["kind"]),
    Interest("NOT (x < :low) AND kind <> :kind",
         lambda e, v: "x" in e and e["x"] >= v["low"] and e["kind"] != v["kind"]),
    Interest("name LIKE 'a%' AND x > :low",
         lambda e, v: e["name"][:1] == "a" and _x(e) > v["low"]),
    Interest("x IS NULL AND kind = :kind", lambda e, v: "x" not in e and e["kind"] == v["kind"]),
    Interest("kind IN (0, 2) AND n % 3 = :kind", lambda e, v: e["kind"] in {0, 2}
         and e["n"] % 3 == v["kind"]),
    Interest("x * 2 < :low + kind", lambda e, v: "x" in e and e["x"] * 2 < v["low"] + e["kind"]),
)  # fmt: skip


def _x(event: Mapping[str, Any]) -> float:
    """What satisfies no comparison where it is missing."""
    return float(event.get("x", "nan"))


class Hearer:
    """A subscription, what it wants now, and the numbers of the events that it is to hear."""

    def __init__(
        self, subscription: Subscription, interest: Interest, values: dict[str, int]
    ) -> None:
        self.subscription = subscription
        self.interest = interest
        self.values = values
        self.due: list[int] = []


class Life:
    """Clients at random brokers, what they published, and who must have heard it."""

    def __init__(self, algorithm: Algorithm, seed: int) -> None:
        self.algorithm = algorithm
        self.seed = seed
        self.random = Randomness(seed)
        self.topology = self._topology()
        self.hearers: list[Hearer] = []
        self.published = 0

    def _topology(self) -> Topology:
        size = self.random.between(3, 7)
        if self.algorithm.graph is GraphKind.ALONE:
            return Topology.of(1, ())
        if self.algorithm.graph is GraphKind.TREE:
            return random_tree(size, self.random.branch())
        return connected_random(size, 2, self.random.branch())

    async def run(self) -> None:
        """On whole brokers in virtual time."""
        async with Network(
            self.topology, routing=self.algorithm.name, seed=self.seed, delay_s=0.005
        ) as net:
            await self.live([await net.connect(*each) for each in self._places()])

    async def run_in_processes(self, folder: Path) -> None:
        """On brokers that are started as a user starts them."""
        with ExitStack() as stack:
            urls: dict[str, str] = {}
            for name in self.topology.brokers:
                urls[name] = stack.enter_context(self._served(name, folder, urls))
            clients = [
                await palio.connect(urls[broker], name=f"{broker}-{number}")
                for number, (broker,) in enumerate(self._places())
            ]
            until = perf_counter() + 30.0
            while len((await clients[0].admin.topology())["brokers"]) < len(urls):
                assert perf_counter() < until, "the brokers do not find each other"
                await asyncio.sleep(0.05)
            await self.live(clients)
            for client in clients:
                await client.close()

    @contextmanager
    def _served(self, name: str, folder: Path, urls: Mapping[str, str]) -> Iterator[str]:
        """A broker that dials its neighbours, as far as they are there; its address."""
        edges = [edge for edge in self.topology.edges if name in edge]
        near = [one if other == name else other for one, other in edges]
        dialled = [word for each in near if each in urls for word in ("--peer", urls[each])]
        has_parents = self.algorithm.has_parents or self.algorithm.finds_parents
        above = [one for one, other in edges if other == name and has_parents][:1]
        parent = [word for each in above for word in ("--parent", each)]
        where = ("--listen", "127.0.0.1:0", "--data", str(folder / name), "--json")
        words = ("--name", name, "--routing", self.algorithm.name, *where, *parent, *dialled)
        with process("serve", *words) as started:
            assert started.stdout is not None
            yield json.loads(started.stdout.readline())["listening"]["palio"]

    def _places(self) -> list[tuple[str]]:
        return [(self.random.choice(self.topology.brokers),) for _ in range(5)]

    async def live(self, clients: list[Client]) -> None:
        """Clients ask, publish, and change what they ask for."""
        if self.algorithm.takes_advertisements:
            for client in clients:
                if self.algorithm.is_advertised or self.random.chance(0.5):
                    for each in EVENTS:
                        await client.advertise(each)
        for client in clients:
            await client.settled()
        for number, client in enumerate(clients):
            await self._hear(client, durable="kept" if number % 2 else "")
        await self._round(clients)
        for hearer in self.hearers:  # what is still in a queue when one changes is tried again
            changed = {name: self.random.below(10) for name in hearer.values}
            await hearer.subscription.update(changed)
            hearer.values = changed
        over = self.hearers.pop(self.random.below(len(self.hearers)))
        await over.subscription.unsubscribe()
        await self._hear(self.random.choice(clients))
        await self._round(clients)
        await self._check_patterns(clients)

    async def _check_patterns(self, clients: list[Client]) -> None:
        """Brokers assemble one, if they do."""
        asked = clients[0].subscribe("n = -1 THEN n = -2", match_at="brokers")
        if not self.algorithm.assembles:
            with pytest.raises(NotSupported, match="advertised"):
                await asked
            return
        pattern = await asked
        await pattern.settled()
        for n in (-1, -2):
            await clients[n].publish({"kind": 9, "n": n, "name": "b"})
        found = await pattern.receive(timeout=10.0)
        assert [part["n"] for part in found.parts] == [-1, -2]

    async def _hear(self, client: Client, durable: str = "") -> None:
        interest = self.random.choice(INTERESTS)
        known = palio.parse(interest.text).variables
        values = {"low": self.random.below(10), "kind": self.random.below(3)}
        values = {name: value for name, value in values.items() if name in known}
        subscription = await client.subscribe(interest.text, values, durable_name=durable)
        self.hearers.append(Hearer(subscription, interest, values))

    async def _round(self, clients: list[Client]) -> None:
        """All is in force, some publish, and each hears what it is to hear."""
        for hearer in self.hearers:
            await hearer.subscription.settled()
        for _ in range(20):
            event = {"kind": self.random.below(3), "n": self.published, "name": "ab"}
            if self.random.chance(0.8):
                event["x"] = self.random.below(12)
            if self.random.chance(0.5):
                event["name"] = "ba"
            durable = self.random.chance(0.3)
            await self.random.choice(clients).publish(event, durable=durable)
            for hearer in self.hearers:
                if hearer.interest.means(event, hearer.values):
                    hearer.due.append(self.published)
            self.published += 1
        for hearer in self.hearers:
            await self._check(hearer)

    async def _check(self, hearer: Hearer) -> None:
        found: list[int] = []
        with suppress(TimeoutError):
            while True:
                patience = 5.0 if len(found) < len(hearer.due) else 0.3
                found.append((await hearer.subscription.receive(timeout=patience))["n"])
        asked = f"seed {self.seed}: {hearer.interest.text} with {hearer.values}"
        assert sorted(found) == hearer.due, asked
        hearer.due.clear()


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("seed", seeds(3, nightly=2_000))
def test_each_algorithm_delivers_exactly_what_was_asked_for(name: str, seed: int) -> None:
    run(Life(ALGORITHMS[name], seed).run())


@pytest.mark.parametrize("name", share(ALGORITHMS, 1))
@pytest.mark.parametrize("seed", seeds(1, nightly=20))
async def test_and_so_it_does_in_processes_of_their_own(
    name: str, seed: int, tmp_path: Path
) -> None:
    await Life(ALGORITHMS[name], seed).run_in_processes(tmp_path)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_with_a_count_it_hears_so_many_and_nothing_is_left_of_it(name: str) -> None:
    async def main() -> tuple[list[int], list[int]]:
        size = 1 if ALGORITHMS[name].graph is GraphKind.ALONE else 3
        async with Network(f"line:{size}", routing=name) as net:
            alice, bob = await net.connect("b1"), await net.connect(f"b{size}")
            if ALGORITHMS[name].takes_advertisements:
                await alice.advertise("x >= 0")
            few, all_of_them = (
                await bob.subscribe("x > 0", max_events=3),
                await bob.subscribe("x >= 0"),
            )
            await bob.settled()
            await alice.settled()
            for x in range(3):
                await alice.publish([{"x": x}, {"x": x + 10}])
            await bob.settled()
            heard = [(await all_of_them.receive())["x"] for _ in range(6)]
            assert net.node(bob.broker).status()["subscriptions"] == 1
            return [each["x"] async for each in few], heard

    assert run(main()) == ([10, 1, 11], [0, 10, 1, 11, 2, 12])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_is_said_of_advertisements_is_so(name: str) -> None:
    algorithm = ALGORITHMS[name]
    router = algorithm.new("b1")
    assert router.is_advertised == algorithm.is_advertised
    assert router.takes_advertisements == algorithm.takes_advertisements

    async def advertise() -> None:
        async with Network("line:1", routing=name) as net:
            client = await net.connect("b1")
            if algorithm.takes_advertisements:
                await client.advertise("x > 1")
                return
            with pytest.raises(
                NotSupported, match="one of general-advertised, advertised, proxies"
            ):
                await client.advertise("x > 1")

    run(advertise())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_network_of_the_wrong_shape_is_refused(name: str) -> None:
    shape = ALGORITHMS[name].graph
    if shape is not GraphKind.GRAPH:
        with pytest.raises(InvalidInput, match=r"needs a tree|for one broker"):
            Network("ring:3", routing=name)
    if shape is GraphKind.ALONE:
        with pytest.raises(InvalidInput, match="line:1"):
            Network("line:2", routing=name)
    Network("line:1", routing=name)


def test_a_name_that_is_none() -> None:
    with pytest.raises(InvalidInput, match="'magic' is no routing algorithm; choose one of gen"):
        find_algorithm("magic")
    with pytest.raises(InvalidInput, match="no routing"):
        Network("line:1", routing="magic")


def test_the_documentation_lists_every_algorithm() -> None:
    text = CONCEPTS.read_text(encoding="utf-8")
    rows = [
        f"| `{each.name}` | {each.graph.value} | {each.summary} | {_said(each)} |"
        for each in ALGORITHMS.values()
    ]
    assert "\n".join(rows) in text, "\n" + "\n".join(rows)


def _said(algorithm: Algorithm) -> str:
    facts = {
        "`advertise`": algorithm.takes_advertisements,
        "`parent`": algorithm.has_parents or algorithm.finds_parents,
        "gateways": algorithm.joins,
    }
    return ", ".join(fact for fact, is_so in facts.items() if is_so) or "-"


def test_names_of_algorithms_cost_no_command_anything() -> None:
    """The command line lists them: to import each router would take 0.3 s."""
    import subprocess
    import sys

    code = "import sys, palio.routing.algorithms; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "False"


def test_events_of_source_trees_take_the_short_way() -> None:
    """Round a ring the one tree of `general` is a long way for two that have a link."""

    async def hops(routing: str) -> int:
        found = 0
        async with Network("ring:6", routing=routing) as net:
            for number, (one, other) in enumerate(net.topology.edges):
                alice, bob = await net.connect(one), await net.connect(other)
                heard = await bob.subscribe(f"x = {number}")
                await heard.settled()
                trace = await alice.admin.trace({"x": number})
                found = max(found, len(trace["hops"]))
        return found

    assert run(hops("source-trees")) == 2
    assert run(hops("general")) == 6


def test_a_broker_of_source_trees_starts_anew_and_is_heard() -> None:
    async def main() -> list[int]:
        async with Network("ring:4", routing="source-trees") as net:
            alice, bob = await net.connect("b1", name="alice"), await net.connect("b3", name="bob")
            heard = await bob.subscribe("x > 0")
            await heard.settled()
            await alice.publish({"x": 1})
            found = [(await heard.receive())["x"]]
            net.kill("b3")
            net.restart("b3")
            await net.up()
            await heard.settled()
            await alice.publish({"x": 2})
            return [*found, (await heard.receive())["x"]]

    assert run(main()) == [1, 2]


def test_more_subscriptions_than_a_message_has_reach_a_broker_that_joins() -> None:
    """Parts of a summary are put together before they are applied."""

    async def main() -> int:
        async with Network("line:3", routing="source-trees") as net:
            net.kill("b3")
            alice = await net.connect("b1")
            standing = [await alice.subscribe(f"x = {number}") for number in range(700)]
            net.restart("b3")
            await net.up()
            await standing[-1].settled()
            carol = await net.connect("b3")
            await carol.publish([{"x": 3}, {"x": 699}, {"x": 700}])
            first, last = await standing[3].receive(), await standing[699].receive()
            return int(first["x"] + last["x"])

    assert run(main()) == 702
