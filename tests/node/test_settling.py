"""`Settling`: a question is answered once all that it takes have answered."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from palio.model.filters import TRUE
from palio.node.authority import Principal
from palio.node.cluster_state import ClusterState
from palio.node.effects import Moment, Send
from palio.node.fact_verifier import LINKS, LOSS_REPORT
from palio.node.limits import FACTS_BURST, SHOWN_CHARS
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.operations import Append
from palio.node.sessions import Budget, Durable, Session
from palio.node.settings import Settings
from palio.node.settling import Settling
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import Digest, Done, Fact, Facts, Hello, Route, Settle
from palio.protocol.streams import Stream
from palio.routing.acyclic import Hierarchical
from palio.routing.algorithms import find_algorithm
from palio.routing.general import General
from palio.routing.messages import Batch, Join, Leave, LinkState, Settled, TreePlan
from palio.routing.protocol import Peer
from palio.simulation.randomness import Randomness
from palio.simulation.topologies import line, parse_topology
from palio.simulation.world import World
from tests.conftest import seeds
from tests.node.alone import Alone, lives
from tests.node.events import begin

AT = Moment(0.0, 0)


class Desk:
    """Disk and tables, each answering when told to, and a cluster_state of b1 - b2 - b3."""

    def __init__(self) -> None:
        self.cluster_state = ClusterState("b1")
        self.cluster_state.begin(1)
        self.cluster_state.peer_up("b2", AT)
        self.cluster_state.receive("b2", Digest({}), AT)
        self.learn(Fact("b2", 1, LINKS, ("b1", "b3")), Fact("b3", 1, LINKS, ("b2",)))
        self.cluster_state.mark_durable(99)
        self.asked: list[tuple[Peer, int]] = []
        self.disk: list[Callable[[], None]] = []
        self.facts: list[Callable[[], None]] = []
        self.told: list[tuple[str, ...]] = []
        self.settling = Settling(
            self.cluster_state,
            lambda peer, wave: self.asked.append((peer, wave)),
            self.disk.append,
            self.facts.append,
        )
        peer = Peer.session("s1")
        self.session = Session(
            "s1", peer, Principal("p"), 1, Stream(), Budget(1_000), owner="p", publisher="p/1"
        )

    def learn(self, *facts: Fact) -> None:
        self.cluster_state.receive("b2", Facts(facts), AT)

    def ask(self) -> None:
        """Up to the wave."""
        self.settling.when_in_force(self.session, self.told.append)
        self.disk.pop()()
        self.facts.pop()()

    def answer(self, *unreached: str) -> None:
        self.settling.answered(self.asked[-1][1], unreached)


def test_the_disk_is_asked_then_what_is_said_is_written_and_then_the_tables_are_asked() -> None:
    desk = Desk()
    desk.settling.when_in_force(desk.session, desk.told.append)
    assert (len(desk.settling), len(desk.disk), desk.facts, desk.asked) == (1, 1, [], [])
    desk.disk[0]()
    assert (len(desk.facts), desk.asked) == (1, [])
    desk.facts[0]()
    ((peer, wave),) = desk.asked
    assert peer == desk.session.peer
    desk.settling.answered(wave, ("b3", "b2"))
    assert desk.told == [("b2", "b3")]
    assert len(desk.settling) == 0
    assert not desk.session.waves


def test_of_names_that_nobody_has_heard_of_one_is_told_and_not_all_of_it() -> None:
    desk = Desk()
    for unreached in (("x" * 999, "y"), ("x", "b3")):
        desk.settling.when_through(desk.session.peer, desk.told.append)
        desk.answer(*unreached)
    assert desk.told == [("x" * SHOWN_CHARS,), ("b3",)]


def test_who_does_not_believe_a_broker_is_named_to_that_one_and_nobody_else() -> None:
    desk = Desk()
    for unreached in (("b3/b1",), ("b3/b2",), ("b1",)):
        desk.ask()
        desk.answer(*unreached)
    assert desk.told == [("b3",), (), ()]


def test_who_was_cut_off_as_it_was_asked_is_named_though_it_is_back() -> None:
    desk = Desk()
    desk.learn(Fact("b2", 2, LINKS, ("b1",)))
    desk.ask()
    desk.learn(Fact("b2", 3, LINKS, ("b1", "b3")))
    desk.answer()
    assert desk.told == [("b3",)]


def test_tables_are_asked_again_if_links_have_come_or_gone_meanwhile() -> None:
    """Also if all are as they were: what was told over a link that was gone may be lost."""
    desk = Desk()
    desk.ask()
    desk.learn(Fact("b2", 2, LINKS, ("b1", "b3")))
    desk.answer()
    assert (len(desk.asked), desk.told) == (2, [])
    desk.answer()
    assert (len(desk.asked), desk.told) == (2, [()])


def test_what_could_not_be_written_is_waited_for_by_those_who_ask_about_it() -> None:
    desk = Desk()
    desk.session.durables[0] = Durable("ann/d", "ann", TRUE, {}, 1.0)
    desk.cluster_state.announce("ann/d", filter="TRUE")
    desk.cluster_state.mark_write_failed(99, publish_anyway=(LINKS,))
    desk.ask()
    assert desk.asked == []
    desk.session.durables.clear()
    desk.ask()
    desk.answer()
    assert desk.told == [()]
    desk.session.durables[0] = Durable("ann/d", "ann", TRUE, {}, 1.0)
    desk.cluster_state.mark_durable(99)
    desk.settling.written()
    desk.facts.pop()()
    desk.answer()
    assert desk.told == [(), ()]


def test_nobody_waits_for_what_an_ended_session_has_asked() -> None:
    desk = Desk()
    for _ in range(2):
        desk.settling.when_in_force(desk.session, desk.told.append)
    desk.settling.when_known(desk.session.peer, desk.told.append)
    desk.settling.end(desk.session)
    assert len(desk.settling) == 1
    desk.disk[0]()
    desk.facts[0]()
    desk.answer()
    assert desk.told == [()]
    assert len(desk.facts) == 1


# --- one wave for tables and facts ---


def links(alone: Alone) -> list[object]:
    """What is said to b2 of facts, tables and waves, in order."""
    said: list[object] = []
    for link, message in alone.said:
        if link == 2 and isinstance(message, Facts | Digest):
            said.append(type(message))
        elif link == 2 and isinstance(message, Route):
            control = message.control
            is_wave = isinstance(control, Batch) and control.wave is not None
            said.append("wave" if is_wave else type(control))
    return said


def answer(alone: Alone) -> int:
    """Neighbours answer all waves; how many there were."""
    said, alone.said = alone.said, []
    waves = [
        (link, message.control.wave)
        for link, message in said
        if isinstance(message, Route) and isinstance(message.control, Batch)
    ]
    for link, wave in waves:
        if wave is not None:
            alone.tell(link, Route(Settled(wave)))
    return len([wave for _, wave in waves if wave is not None])


def rest(alone: Alone) -> None:
    """All that is asked is answered, and all is on the disk."""
    while answer(alone):
        alone.sync()


def asked(alone: Alone, wave: int = 7) -> None:
    alone.tell(2, Route(Batch((), fresh=True, wave=wave)))


def settled(alone: Alone) -> list[Settled]:
    return [each.control for each in alone.heard(Route) if isinstance(each.control, Settled)]


def test_a_link_is_used_once_the_other_end_has_said_what_it_knows() -> None:
    alone = Alone()
    alone.said.clear()
    alone.do(alone.node.lost(2, alone.at))
    alone.node._peers.end_neighbour(alone.node._core.neighbours["b2"])
    alone.greet(2, "broker", "b2")
    assert links(alone) == [Digest]
    alone.tell(2, Digest({}))
    assert links(alone) == [Digest, Batch, Facts, "wave"]  # asked by the broker itself


def test_a_wave_follows_facts_that_wait_to_be_told_together() -> None:
    alone = Alone()
    alone.greet(3, "broker", "b3")
    alone.tell(3, Digest({}))
    alone.sync()
    rest(alone)
    for version in range(1, FACTS_BURST + 9):
        alone.tell(3, Facts((Fact("b3", version, LOSS_REPORT),)))
    alone.said.clear()
    alone.tell(3, Route(Batch((), fresh=True, wave=7)))
    assert links(alone) == [Facts, "wave"]


def test_waves_that_are_asked_for_while_one_is_on_its_way_go_together() -> None:
    alone = Alone()
    rest(alone)
    for id in range(9):
        alone.tell(2, Facts((Fact("b3", 1 + id, LOSS_REPORT),)))
        alone.tell(1, Settle(id))
        alone.sync()
    assert answer(alone) == 1
    assert [each.id for each in alone.heard(Done)] == [0]
    assert answer(alone) == 1
    assert [each.id for each in alone.heard(Done)] == [*range(1, 9)]


def test_a_wave_goes_to_where_a_fact_came_from() -> None:
    """Whoever told us may have others behind it that lack it."""
    alone = Alone()
    rest(alone)
    alone.tell(1, Settle(0))
    alone.sync()
    assert [each.id for each in alone.heard(Done)] == [0]
    assert answer(alone) == 0
    alone.tell(2, Facts((Fact("b2", 5, LOSS_REPORT),)))
    alone.sync()
    alone.tell(1, Settle(1))
    alone.sync()
    assert alone.heard(Done) == []
    assert answer(alone) == 1
    assert [each.id for each in alone.heard(Done)] == [1]


def test_a_wave_is_answered_once_what_came_before_is_on_the_disk() -> None:
    alone = Alone()
    alone.tell(2, lives("b2", 3))
    asked(alone)
    assert settled(alone) == []
    alone.sync()
    assert settled(alone) == [Settled(7)]


def test_a_full_disk_keeps_no_wave_waiting() -> None:
    alone = Alone()
    alone.tell(2, lives("b2", 3))
    asked(alone)
    alone.sync(fails=True)
    assert settled(alone) == [Settled(7)]


def test_an_answer_says_that_an_origin_is_not_believed() -> None:
    alone = Alone()
    alone.tell(2, Facts((Fact("b3", 1 << 62, LINKS),)))
    asked(alone)
    assert settled(alone) == [Settled(7, ("b1/b3",))]


def test_a_wave_that_waits_for_the_disk_is_moot_once_its_link_has_left_the_tree() -> None:
    node = Node("b2", General("b2"), MemoryStore())
    say = partial(node.receive, 1, at=AT)
    begin(node, AT)
    node.accept(1, AT)
    said = [
        *say(Hello("broker", "b1", PROTOCOL_VERSION)),
        *say(Digest({})),
        *say(Route(LinkState("b1", 1, ("b2",)))),
        *say(Route(TreePlan("b1", 1, (("b1", "b2"),)))),
        *say(Route(Join())),
        *say(Route(Batch((), fresh=True, wave=7))),
    ]
    tickets = [each.ticket for each in said if isinstance(each, Append)]
    assert tickets
    said += say(Route(Leave()))
    for ticket in tickets:
        said += node.stored(ticket, AT)
    controls = [
        each.message.control
        for each in said
        if isinstance(each, Send) and isinstance(each.message, Route)
    ]
    assert any(isinstance(each, Leave) for each in controls)
    assert not any(isinstance(each, Settled) for each in controls)


@pytest.mark.parametrize("routing", ["flooded", "source-trees", "acyclic", "general"])
def test_what_is_settled_is_known_everywhere(routing: str) -> None:
    check_known(World.of(line(4), find_algorithm(routing).new, settings=Settings(routing=routing)))


def test_what_is_settled_is_known_also_below_in_a_hierarchy() -> None:
    """Those below are told of no subscription."""
    world = World(settings=Settings(routing="hierarchical"))
    for name, parent in (("b1", ""), ("b2", "b1"), ("b3", "b2"), ("b4", "b1")):
        world.add_broker(name, Hierarchical, parent)
        if parent:
            world.connect(name, parent)
    world.run(1.0)
    check_known(world)


def check_known(world: World) -> None:
    """A durable subscription is known to all brokers as soon as it is settled."""
    for broker in ("b1", "b2", "b4"):
        owner = world.client(f"of {broker}", broker)
        owner.subscribe("TRUE", durable="d")
        id = owner.settle()
        while id not in owner.answers:
            world.run(0.001)
        assert owner.answers[id] == Done(id)
        known = [each._core.durability.cluster_state for each in world.nodes.values()]
        assert len(known) == 4
        assert all(each.fact(broker, f"of {broker}/d") for each in known)


SHAPES = {
    "general": ("ring:5", "random:6x3", "grid:3x2"),
    "source-trees": ("ring:5", "random:6x3"),
    "acyclic": ("line:5", "random-tree:6"),
    "flooded": ("random-tree:6",),
}


class Storm:
    """A network of which links break and are mended, and brokers are killed and start again."""

    def __init__(self, seed: int) -> None:
        self.random = random = Randomness(seed)
        routing = random.choice(sorted(SHAPES))
        self.topology = parse_topology(random.choice(SHAPES[routing]), random)
        settings = Settings(
            routing=routing,
            heartbeat_s=0.3,
            peer_heartbeat_s=0.3,
            peer_grace_s=random.choice((0.0, 1.0)),
        )
        new = find_algorithm(routing).new
        self.world = World.of(self.topology, new, seed=seed, settings=settings)
        for one, other in self.topology.edges:
            self.world.delay(one, other, random.choice((0.001, 0.02, 0.1)))
        brokers = self.topology.brokers
        self.home, *self.others = random.sample(brokers, len(brokers))
        self.owner = self.world.client("ann", self.home)
        self.broken: list[tuple[str, str]] = []
        self.asked: dict[int, tuple[str, dict[str, Node]]] = {}
        """By question, what it is about, and the brokers that ran when it was asked."""
        self.world.run(2.0)

    def step(self, number: int) -> None:
        """Something breaks, is mended, or is asked; then time passes."""
        world = self.world
        match self.random.below(10):
            case 0:
                self.broken.append(self.random.choice(self.topology.edges))
                world.cut(*self.broken[-1])
            case 1:
                name = self.random.choice(self.others)
                if name in world.nodes:
                    world.kill(name)
            case 2 | 3 if self.broken:
                world.heal(*self.broken.pop())
            case 4 | 5:
                for name in [each for each in self.others if each not in world.nodes]:
                    world.start(name)
            case _:
                self.owner.subscribe(f"x = {number}", durable=f"d{number}")
                self.asked[self.owner.settle()] = (f"ann/d{number}", dict(world.nodes))
        for _ in range(self.random.below(100)):
            world.run(0.005)
            for id in [each for each in self.asked if each in self.owner.answers]:
                subject, ran = self.asked.pop(id)
                if self.owner.answers[id] == Done(id):
                    self.check(subject, ran)

    def check(self, subject: str, ran: dict[str, Node]) -> None:
        """All brokers that ran all the while know what is settled, and have it on their disks."""
        for name, node in self.world.nodes.items():
            if ran.get(name) is node:
                fact = node._core.durability.cluster_state.fact(self.home, subject)
                assert fact, f"{name} does not know {subject}"
                assert fact in self.world.disks[name].facts(), f"{name} has not written {subject}"


@pytest.mark.parametrize("seed", seeds(12, nightly=300))
def test_what_is_settled_is_known_whatever_breaks(seed: int) -> None:
    storm = Storm(seed)
    for number in range(50):
        storm.step(number)
