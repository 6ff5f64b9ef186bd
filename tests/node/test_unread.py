"""A filter that a broker cannot read counts as everything there: more comes, nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from palio.errors import DamagedFrame, IllegalMessage
from palio.language.parsing import parse_filter
from palio.node.effects import Close, Moment, Report, Send
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.rate_limited_log import LOG_INTERVAL_S
from palio.node.settings import Settings
from palio.protocol import messages as requests
from palio.protocol.limits import DAMAGE_TRIES, PROTOCOL_VERSION
from palio.protocol.messages import (
    Carry,
    Digest,
    Done,
    Failed,
    Forward,
    Hello,
    Message,
    Route,
    Welcome,
)
from palio.routing.acyclic import Acyclic
from palio.routing.advertised import Advertised
from palio.routing.algorithms import Algorithm, GraphKind
from palio.routing.flooded import Flooded
from palio.routing.general import General
from palio.routing.messages import Batch, LinkState, Subscribe
from palio.routing.protocol import Router
from palio.routing.source_trees import SourceTrees
from palio.simulation.member import Member
from palio.simulation.topologies import line
from palio.simulation.world import World
from palio.testing import Network
from tests.node.events import heard, reports
from tests.older import NEWER, older_brokers

QUICK: Final = Settings(heartbeat_s=1.0, client_grace_s=4.0, peer_grace_s=2.0)

ROUTERS: Final = (Acyclic, General, Flooded, SourceTrees)

BAD: Final = f"x != {NEWER}"
"""It covers what others want."""

LONG_S: Final = 20.0


class House:
    """A line of three, of which the middle cannot read `BAD`; whoever publishes is at its end."""

    def __init__(self, router: Callable[[str], Router] = Acyclic) -> None:
        self.world = World.of(line(3), router, settings=QUICK)
        self.bad, self.good = self.world.client("bad", "b1"), self.world.client("good", "b1")
        self.publisher = self.world.client("p", "b3")
        self.passed = 0
        """Events that the middle was sent."""
        self.world.spoils = self._count
        self.world.run(1.0)

    def _count(self, sender: str, message: Message) -> bool:
        self.passed += sender == "b3" and isinstance(message, Forward | Carry)
        return False

    def settled(self, member: Member) -> Any:
        asked = member.settle()
        self.world.run(1.0)
        return member.answers[asked]

    def publish(self, *xs: int, durable: bool = False) -> None:
        for x in xs:
            self.publisher.publish({"x": x}, durable=durable)
        self.world.run(1.0)

    def goes_through(self, x: int) -> bool:
        """Whether an event is sent on by the last broker."""
        before = self.passed
        self.publish(x)
        return self.passed > before


@pytest.fixture(autouse=True)
def older() -> Iterator[None]:
    with older_brokers("b2"):
        yield


@pytest.mark.parametrize("router", ROUTERS)
def test_nothing_is_lost_and_more_comes_until_it_is_withdrawn(
    router: Callable[[str], Router],
) -> None:
    house = House(router)
    house.good.subscribe("x BETWEEN 0 AND 9")
    key = house.bad.subscribe(f"{BAD} AND x > 5")
    assert isinstance(house.settled(house.bad), Done)
    assert house.settled(house.good) == Done(2, ())
    house.publish(1, 7, 70)
    assert (heard(house.good), heard(house.bad)) == ([1, 7], [7, 70])
    assert house.goes_through(-1), "nobody wants it, as far as can be read"
    house.bad.unsubscribe(key)
    house.world.run(1.0)
    assert not house.goes_through(-2)
    assert house.goes_through(2)
    assert (heard(house.good), heard(house.bad)) == ([1, 7, 2], [7, 70])
    assert not reports(house.world, "peer_down")


@pytest.mark.parametrize("router", ROUTERS)
def test_what_it_is_replaced_by_counts(router: Callable[[str], Router]) -> None:
    house = House(router)
    key = house.bad.subscribe(BAD)
    house.settled(house.bad)
    assert house.goes_through(-1)
    house.bad.ask(lambda id: requests.Replace(id, key, "x > 100"))
    house.settled(house.bad)
    assert not house.goes_through(-2)
    house.publish(101)
    house.bad.ask(lambda id: requests.Replace(id, key, f"x > 1000 AND {BAD}"))
    house.settled(house.bad)
    house.publish(102, 1001)
    assert heard(house.bad) == [-1, 101, 1001]


@pytest.mark.parametrize("router", ROUTERS)
def test_what_follows_of_its_parameters_changes_nothing_of_that(
    router: Callable[[str], Router],
) -> None:
    house = House(router)
    key = house.bad.subscribe(f"x > :low AND {BAD}", {"low": 0})
    house.settled(house.bad)
    for low in (5, 10, 3):
        house.bad.update(key, low=low)
        house.settled(house.bad)
        house.publish(4, 7, 12)
    assert heard(house.bad) == [7, 12, 12, 4, 7, 12]
    assert not reports(house.world, "peer_down")


@pytest.mark.parametrize("router", ROUTERS)
def test_a_table_that_is_told_anew_is_read_likewise(router: Callable[[str], Router]) -> None:
    house = House(router)
    members = [house.world.client(f"m{each}", "b1") for each in range(5)]
    for each, member in enumerate(members):
        member.subscribe(f"x = {each} AND {BAD}" if each == 2 else f"x = {each}")
    house.world.run(1.0)
    house.world.cut("b1", "b2")
    house.world.run(5.0)
    house.world.heal("b1", "b2")
    house.world.run(5.0)
    house.publish(*range(5))
    assert [heard(member) for member in members] == [[each] for each in range(5)]


def test_people_are_told_and_not_too_often() -> None:
    house = House()
    for low in range(100):
        house.bad.subscribe(f"x > {low} AND {BAD}")
    house.world.run(2 * LOG_INTERVAL_S)
    told = reports(house.world, "filter_unreadable")
    assert 1 <= len(told) <= 3
    (broker, first), *_ = told
    assert (broker, first["source"]) == ("b2", "b1")
    assert NEWER in first["filter"]
    assert "update this broker" in first["remedy"]


@pytest.mark.parametrize("bad", [True, False])
def test_an_advertisement_that_cannot_be_read_is_of_everything(bad: bool) -> None:
    """And passed on as it is: whoever can read it knows better."""
    house = House(Advertised)
    key = 1
    text = f"x != {NEWER}" if bad else "x > 0"
    house.publisher.ask(lambda id: requests.Advertise(id, key, text))
    house.world.run(1.0)
    house.good.subscribe("x > 7")
    other = house.bad.subscribe("y = 1")
    assert house.settled(house.good) == Done(2, ())
    house.publish(5, 8)
    assert heard(house.good) == [8]
    first, middle, last = (node._core.router for node in house.world.nodes.values())
    assert isinstance(first, Advertised)
    assert isinstance(middle, Advertised)
    assert isinstance(last, Advertised)
    told = list(map(str, middle.subscriptions.table.nodes))
    assert told == ["x > 7"], "the first knows that nobody offers `y`"
    house.bad.unsubscribe(other)
    house.publisher.ask(lambda id: requests.Unadvertise(id, key))
    house.world.run(1.0)
    assert first.advertisements.table.nodes == {}
    assert last.subscriptions.table.nodes == {}


def test_what_a_client_of_an_older_broker_asks_for_is_its_own_error() -> None:
    house = House()
    asker = house.world.client("asker", "b2")
    house.world.run(1.0)
    asked = asker.ask(lambda id: requests.Subscribe(id, 9, "x RESEMBLES 666"))
    house.world.run(1.0)
    answer = asker.answers[asked]
    assert isinstance(answer, Failed)
    assert answer.failure.kind == "ParseError"


# --- durable subscriptions ---


@pytest.mark.parametrize("where", ["b1", "b2"])
def test_a_claim_that_cannot_be_read_is_of_everything(where: str) -> None:
    """The events of an older broker's clients go where it lives, and to nobody who did not ask."""
    house = House()
    keeper = house.world.client("keeper", "b3")
    publisher = house.world.client("q", "b2") if where == "b2" else house.publisher
    house.world.run(1.0)
    owner = keeper if where == "b2" else house.bad
    key = owner.subscribe(f"x > 5 AND {BAD}", durable="d")
    assert house.settled(owner) == Done(2, ())
    for x in (1, 7):
        publisher.publish({"x": x}, durable=True)
    house.world.run(2.0)
    assert heard(owner) == [7]
    owner.unsubscribe(key, forget=True)
    house.world.run(1.0)
    publisher.publish({"x": 8}, durable=True)
    house.world.run(2.0)
    assert {each.status()["custody_entries"] for each in house.world.nodes.values()} == {0}
    assert ("b2", "b1" if where == "b1" else "b3") in {
        (broker, said["source"]) for broker, said in reports(house.world, "filter_unreadable")
    }


# --- what is no message at all ---


@pytest.mark.parametrize("kind", [Digest, Route, Carry])
def test_what_cannot_be_taken_begins_a_new_session(kind: type) -> None:
    """One message of this kind is no message; in the next session another one is."""
    world = World.of(line(2), Acyclic, settings=QUICK)
    listener, publisher = world.client("a", "b2"), world.client("p", "b1")
    listener.subscribe("x > 0", durable="d")
    world.run(2.0)
    spoilt: list[Message] = []

    def spoils(who: str, message: Message) -> bool:
        if who == "b1" and isinstance(message, kind) and not spoilt:
            spoilt.append(message)
            return True
        return False

    world.cut("b1", "b2")
    world.run(5.0)
    world.spoils = spoils
    world.heal("b1", "b2")
    publisher.publish({"x": 1}, durable=True)
    world.run(LONG_S)
    assert len(spoilt) == 1
    assert heard(listener) == [1]
    ((broker, said),) = reports(world, "message_rejected")
    assert (broker, said["source"]) == ("b2", "b1")
    assert "cannot be read" in said["reason"]


def test_a_link_that_only_says_what_cannot_be_read_begins_anew_and_says_so() -> None:
    world = World.of(line(2), General, settings=QUICK)
    world.cut("b1", "b2")
    world.run(5.0)
    world.spoils = lambda _who, message: (
        isinstance(message, Route) and isinstance(message.control, LinkState)
    )
    before = len(world.reports)
    world.heal("b1", "b2")
    world.run(LONG_S)
    said = [each.event for _, each in world.reports[before:]]
    assert "peer_down" in said
    assert 1 <= said.count("message_rejected") <= 2 * (LONG_S / LOG_INTERVAL_S + 1)


def greeted(node: Node, link: int, at: Moment, session: str = "") -> Welcome:
    node.accept(link, at)
    hello = Hello("client", "a", PROTOCOL_VERSION, incarnation="1", session=session)
    (welcome,) = [each.message for each in node.receive(link, hello, at) if isinstance(each, Send)]
    assert isinstance(welcome, Welcome)
    return welcome


@pytest.mark.parametrize(
    ("error", "resumes"), [(IllegalMessage("it", "x"), 0), (DamagedFrame("it", "x"), DAMAGE_TRIES)]
)
def test_a_session_goes_on_after_damage_alone_and_not_for_ever(
    error: IllegalMessage, resumes: int
) -> None:
    """A bit flips by chance; a frame that is too long for the other end is so each time."""
    node, at = Node("b1", Acyclic("b1"), MemoryStore()), Moment(0.0, 0)
    welcome = greeted(node, 0, at)
    resumed = []
    for link in range(DAMAGE_TRIES + 1):
        assert any(isinstance(each, Close) for each in node.illegal(link, error, at))
        welcome = greeted(node, link + 1, at, welcome.session)
        resumed.append(welcome.resumed)
    assert resumed.index(False) == max(0, resumes - 1)


# --- what this broker itself fails on ---


class Failing(Acyclic):
    """A router with a fault."""

    def receive(self, sender: Any, message: Any) -> Any:
        if any(
            NEWER in str(getattr(each, "filter", "")) for each in getattr(message, "requests", ())
        ):
            raise KeyError("nobody thought of that")
        return super().receive(sender, message)


async def test_what_a_broker_fails_on_is_refused_and_all_else_goes_on() -> None:
    failing = Algorithm(
        name="failing",
        summary="a router with a fault",
        graph=GraphKind.GRAPH,
        router=Failing,
    )
    async with Network("line:1", routing=failing) as network:
        client = await network.connect("b1")
        standing = await client.subscribe("x > 0")
        with pytest.raises(IllegalMessage, match=r"failed on this Subscribe \(KeyError"):
            await client.subscribe(BAD)
        await client.publish({"x": 1})
        assert (await standing.receive())["x"] == 1


def test_people_are_told_what_a_broker_failed_on_and_where() -> None:
    node = Node("b1", Failing("b1"), MemoryStore())
    at = Moment(0.0, 0)
    node.start(at)
    greeted(node, 1, at)
    together = requests.SubscribeAll(
        (requests.Subscribe(1, 1, "x > 0"), requests.Subscribe(2, 2, BAD))
    )
    effects = node.receive(1, together, at)
    (failed,) = [
        each for each in effects if isinstance(each, Report) and each.event == "internal_error"
    ]
    assert failed.details["message"] == "SubscribeAll"
    assert "KeyError" in failed.details["error"]
    assert "test_unread.py" in failed.details["where"]
    said = [each.message for each in effects if isinstance(each, Send)]
    assert [each.id for each in said if isinstance(each, Failed)] == [1, 2]
    assert not any(isinstance(each, Close) for each in effects)


def test_a_neighbours_session_ends_where_this_broker_fails() -> None:
    node = Node("b1", Failing("b1"), MemoryStore())
    at = Moment(0.0, 0)
    node.start(at)
    node.accept(1, at)
    node.receive(1, Hello("broker", "b2", PROTOCOL_VERSION), at)
    node.receive(1, Digest({}), at)
    batch = Batch((Subscribe(1, parse_filter(BAD)),), fresh=True)
    effects = node.receive(1, Route(batch), at)
    assert any(isinstance(each, Close) for each in effects)
    assert node.status()["peers"] == {}
