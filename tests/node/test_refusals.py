"""A message that the other end cannot take: it goes no further, and nothing else waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from palio.errors import DamagedFrame, IllegalMessage
from palio.node.complaints import COMPLAIN_EVERY_S
from palio.node.effects import Moment, Report, Send
from palio.node.limits import SESSION_TRIES
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.settings import Settings
from palio.protocol import messages as requests
from palio.protocol.limits import DAMAGE_TRIES, FRAME_TRIES, MAX_REASON_CHARS, PROTOCOL_VERSION
from palio.protocol.messages import (
    Answer,
    Ask,
    Carry,
    Deliver,
    Done,
    Echo,
    Facts,
    Failed,
    Forward,
    Hello,
    Known,
    Message,
    Probe,
    Route,
    Took,
    Welcome,
)
from palio.routing.acyclic import Acyclic
from palio.routing.advertised import Advertised
from palio.routing.algorithms import Algorithm, GraphKind
from palio.routing.flooded import Flooded
from palio.routing.general import General
from palio.routing.messages import Batch, Flood, LinkState
from palio.routing.protocol import Router
from palio.routing.source_trees import SourceTrees
from palio.simulation.topologies import line
from palio.simulation.world import World
from palio.testing import Network
from tests.node.events import heard, reports

QUICK: Final = Settings(heartbeat_s=1.0, client_grace_s=4.0, peer_grace_s=2.0)
BAD: Final = "y = 666"

LONG_S: Final = 20.0
"""Far more than all the tries of a message and of a session take in a world (0.2 s a try)."""


def world_of(size: int, router: Callable[[str], Router] = Acyclic) -> World:
    return World.of(line(size), router, settings=QUICK)


def is_bad(message: Message) -> bool:
    """Whether a request about `BAD` is in it."""
    match message:
        case Route(Batch() | Flood() as control):
            return any("666" in str(getattr(each, "filter", "")) for each in control.requests)
        case Facts(facts):
            return any("666" in each.filter for each in facts)
        case Forward(parcel) | Carry(parcel) | Deliver(parcel) | Probe(_, parcel):
            return 666 in parcel.batch.to_pydict().get("x", [])
    return False


def sent_bad(world: World) -> list[str]:
    """Who sends what cannot be read, each time."""
    tries: list[str] = []

    def spoils(who: str, message: Message) -> bool:
        if is_bad(message):
            tries.append(f"{who} {type(message).__name__}")
            return True
        return False

    world.spoils = spoils
    return tries


@pytest.mark.parametrize("router", [Acyclic, General, Flooded, SourceTrees])
def test_a_subscription_that_a_neighbour_cannot_read_stops_nobody_else(
    router: Callable[[str], Router],
) -> None:
    world = world_of(3, router)
    bad, good, publisher = (
        world.client(*each) for each in (("bad", "b1"), ("good", "b1"), ("p", "b3"))
    )
    world.run(1.0)
    tries = sent_bad(world)
    bad.subscribe(BAD)
    good.subscribe("x > 0")
    world.run(LONG_S)
    assert tries == ["b1 Route"] * FRAME_TRIES
    publisher.publish({"x": 1})
    world.run(1.0)
    assert heard(good) == [1]
    asked = good.settle()
    world.run(1.0)
    # Who wants what of a flood is not known.
    hidden = ("b2",) if router in (Flooded, SourceTrees) else ()
    assert good.answers[asked] == Done(asked, hidden)
    asked = bad.settle()
    world.run(1.0)
    assert bad.answers[asked] == Done(asked, ("b2",))
    assert world.nodes["b1"].status()["peers"]["b2"]["missing"] == 1
    ((refuser, said), *_), ((sender, told),) = (
        reports(world, "cannot_take"),
        reports(world, "message_refused"),
    )
    assert (refuser, said["neighbour"]) == ("b2", "b1")
    assert (sender, told["neighbour"], told["message"]) == ("b1", "b2", "Route")
    assert told["owners"] == ["bad"]
    assert "cannot be read" in told["reason"]


@pytest.mark.parametrize("router", [Acyclic, General, SourceTrees])
def test_a_wider_filter_that_cannot_be_read_takes_nothing_from_others(
    router: Callable[[str], Router],
) -> None:
    """What it covers is said in its stead, whether it was there before or comes later. Until that
    is in force something may be lost, and a gap is told.
    """
    world = world_of(3, router)
    bad, before, after, publisher = (
        world.client(*each)
        for each in (("bad", "b1"), ("before", "b1"), ("after", "b1"), ("p", "b3"))
    )
    before.subscribe("x BETWEEN 0 AND 9")
    world.run(1.0)
    sent_bad(world)
    key = bad.subscribe("x != 666")
    world.run(LONG_S)
    assert before.gaps
    after.subscribe("x BETWEEN 1 AND 5")
    asked = after.settle()
    world.run(1.0)
    assert after.answers[asked] == Done(asked, ("b2",) if router is SourceTrees else ())
    publisher.publish({"x": 1})
    world.run(1.0)
    assert heard(before) == heard(after) == [1]
    bad.unsubscribe(key)
    publisher.publish({"x": 2})
    world.run(3.0)
    publisher.publish({"x": 3})
    world.run(1.0)
    assert heard(before) == heard(after) == [1, 2, 3]
    asked = after.settle()
    world.run(1.0)
    assert after.answers[asked] == Done(asked)


def test_who_asks_while_it_is_tried_is_not_told_that_all_is_in_force() -> None:
    world = world_of(2)
    bad, good = world.client("bad", "b1"), world.client("good", "b1")
    world.run(1.0)
    good.settle()  # from now on nobody has to be asked about ways
    world.run(1.0)
    sent_bad(world)
    bad.subscribe("x != 666")
    world.run(0.15)
    good.subscribe("x BETWEEN 0 AND 9")
    asked = good.settle()
    world.run(LONG_S)
    assert good.answers[asked] == Done(asked, ("b2",))
    asked = good.settle()
    world.run(1.0)
    assert good.answers[asked] == Done(asked)


def test_an_advertisement_that_cannot_be_read_takes_nothing_from_others() -> None:
    world = world_of(2, Advertised)
    bad, good, listener = (
        world.client(*each) for each in (("bad", "b1"), ("good", "b1"), ("a", "b2"))
    )
    listener.subscribe("x > 0")
    world.run(1.0)
    sent_bad(world)
    bad.ask(lambda id: requests.Advertise(id, 1, "x != 666"))
    good.ask(lambda id: requests.Advertise(id, 1, "x BETWEEN 6 AND 9"))
    world.run(LONG_S)
    good.publish({"x": 7})
    world.run(1.0)
    assert heard(listener) == [7]
    asked = good.settle()
    world.run(1.0)
    assert good.answers[asked] == Done(asked, ("b2",)), "any publisher may be unheard"


def test_what_was_refused_is_not_changed_any_more_and_can_be_withdrawn() -> None:
    world = world_of(2)
    bad, publisher = world.client("bad", "b1"), world.client("p", "b2")
    world.run(1.0)
    tries = sent_bad(world)
    key = bad.subscribe("x > :low AND y = 666", {"low": 0})
    world.run(LONG_S)
    before = len(tries)
    for low in range(1, 5):
        bad.update(key, low=low)
        world.run(1.0)
    assert before == len(tries) == FRAME_TRIES
    assert len(reports(world, "peer_down")) == 0
    bad.unsubscribe(key)
    world.run(1.0)
    assert world.nodes["b1"].status()["peers"]["b2"]["missing"] == 0
    bad.subscribe("x > 0")
    asked = bad.settle()
    world.run(1.0)
    assert bad.answers[asked] == Done(asked)
    publisher.publish({"x": 5})
    world.run(1.0)
    assert heard(bad) == [5]


@pytest.mark.parametrize("router", [Acyclic, SourceTrees])
def test_of_a_table_all_but_the_refused_is_in_force(router: Callable[[str], Router]) -> None:
    world = world_of(2, router)
    members = [world.client(f"m{each}", "b1") for each in range(20)]
    for each, member in enumerate(members):
        member.subscribe(f"x = {each}")
    bad, publisher = world.client("bad", "b1"), world.client("p", "b2")
    bad.subscribe(BAD)
    world.run(1.0)
    world.cut("b1", "b2")
    world.run(5.0)
    before = len(reports(world, "peer_down"))
    sent_bad(world)
    world.heal("b1", "b2")
    world.run(LONG_S)
    assert len(reports(world, "peer_down")) == before
    for each in range(20):
        publisher.publish({"x": each})
    world.run(1.0)
    assert [heard(member) for member in members] == [[each] for each in range(20)]


def test_live_events_that_a_neighbour_cannot_read_are_dropped_and_counted() -> None:
    world = world_of(2)
    listener, publisher = world.client("a", "b2"), world.client("p", "b1")
    listener.subscribe("x > 0")
    world.run(1.0)
    tries = sent_bad(world)
    publisher.publish({"x": 666})
    publisher.publish({"x": 1})
    world.run(LONG_S)
    assert tries == ["b1 Forward"] * FRAME_TRIES
    assert heard(listener) == [1]
    assert world.nodes["b1"].status()["peers"]["b2"]["dropped"] == 1


def test_durable_events_that_a_neighbour_cannot_read_stay_in_custody() -> None:
    world = world_of(2)
    listener, publisher = world.client("a", "b2"), world.client("p", "b1")
    listener.subscribe("x > 0", durable="d")
    world.run(2.0)
    tries: list[str] = []
    world.spoils = spoils_only(tries, Carry)
    publisher.publish({"x": 666}, durable=True)
    publisher.publish({"x": 1}, durable=True)
    world.run(LONG_S)
    assert tries == ["b1 Carry"] * FRAME_TRIES
    assert (heard(listener), publisher.accepted_durable) == ([1], 2)
    assert world.nodes["b1"].status()["custody_entries"] == 1
    world.spoils = lambda _who, _message: False
    world.cut("b1", "b2")
    world.run(5.0)
    world.heal("b1", "b2")
    world.run(5.0)
    assert heard(listener) == [1, 666]
    assert world.nodes["b1"].status()["custody_entries"] == 0


class Lacking:
    """The last broker of a line cannot read a durable subscription that was made at the first."""

    def __init__(self, size: int) -> None:
        self.world = world_of(size)
        self.link = f"b{size - 1}", f"b{size}"
        self.bad, self.good = self.world.client("bad", "b1"), self.world.client("good", "b1")
        self.publisher = self.world.client("p", f"b{size}")
        self.world.run(1.0)
        self.tries: list[str] = []
        self.world.spoils = spoils_only(self.tries, Facts, who=f"b{size - 1}")
        self.key = self.bad.subscribe(BAD, durable="d")

    def change(self) -> None:
        """To what can be read."""
        self.bad.ask(lambda id: requests.Replace(id, self.key, "x > 0"))

    def link_anew(self) -> None:
        self.world.cut(*self.link)
        self.world.run(5.0)
        self.world.heal(*self.link)
        self.world.run(LONG_S)

    def unreached(self) -> tuple[str, ...]:
        """Whom another client's question did not reach."""
        asked = self.good.settle()
        self.world.run(1.0)
        answer = self.good.answers[asked]
        assert isinstance(answer, Done)
        return answer.unreached


@pytest.mark.parametrize("size", [2, 3])
def test_a_fact_that_was_refused_is_named_in_later_sessions_too(size: int) -> None:
    """Though the neighbour has heard of newer ones, until it takes one about the same."""
    lacking = Lacking(size)
    world, bad = lacking.world, lacking.bad
    world.run(LONG_S)
    assert lacking.tries == [f"b{size - 1} Facts"] * FRAME_TRIES
    lacking.tries.clear()
    for number in range(2):
        lacking.good.subscribe(f"x > {number}", durable="d")  # newer, and taken
        world.run(1.0)
        lacking.link_anew()
        assert lacking.unreached() == (f"b{size}",)
    assert not lacking.tries, "it is not sent again"
    world.spoils = lambda _who, _message: False
    bad.unsubscribe(lacking.key, forget=True)
    bad.subscribe(BAD, durable="d")
    world.run(1.0)
    assert lacking.unreached() == ()
    lacking.link_anew()
    assert lacking.unreached() == ()
    lacking.publisher.publish({"y": 666}, durable=True)
    world.run(2.0)
    assert len(bad.heard) == 1


@pytest.mark.parametrize("size", [2, 3])
def test_who_has_the_newer_one_lacks_nothing_though_its_answer_was_lost(size: int) -> None:
    lacking = Lacking(size)
    world = lacking.world
    world.run(LONG_S)
    assert lacking.unreached() == (f"b{size}",)
    world.hold(*lacking.link[::-1], 1.0)
    lacking.change()
    world.run(0.5)
    lacking.link_anew()
    assert lacking.unreached() == ()


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("wait_s", [0.0, 0.01, 0.1, 0.3])
def test_who_was_sent_the_newer_one_before_it_refused_lacks_nothing(
    size: int, wait_s: float
) -> None:
    lacking = Lacking(size)
    lacking.world.run(wait_s)
    lacking.change()
    lacking.world.run(LONG_S)
    assert lacking.unreached() == ()


def spoils_only(tries: list[str], kind: type, who: str = "") -> Callable[[str, Message], bool]:
    """What is bad of a kind, of all brokers or of one, arrives as bytes that nobody can read."""

    def spoils(sender: str, message: Message) -> bool:
        if isinstance(message, kind) and is_bad(message) and (not who or sender == who):
            tries.append(f"{sender} {kind.__name__}")
            return True
        return False

    return spoils


def test_a_trace_ends_at_a_neighbour_that_cannot_read_it() -> None:
    world = world_of(2)
    listener, asker = world.client("a", "b2"), world.client("p", "b1")
    listener.subscribe("x > 0")
    world.run(1.0)
    sent_bad(world)
    asked = asker.ask(lambda id: Ask(id, "trace", {"x": 666}))
    world.run(LONG_S)
    answer = asker.answers[asked]
    assert isinstance(answer, Answer)
    assert {"broker": "b2", "unreachable": True} in answer.data["hops"]


@pytest.mark.parametrize("kind", [Took, Known, Echo])
def test_what_nothing_can_take_the_place_of_begins_a_new_session(kind: type) -> None:
    """One message of this kind is spoilt as often as it is tried; the next session has another."""
    world = world_of(2)
    listener, publisher = world.client("a", "b2"), world.client("p", "b1")
    world.run(1.0)
    tries = 0
    world.cut("b1", "b2")
    world.run(5.0)

    def spoils(_who: str, message: Message) -> bool:
        nonlocal tries
        tries += isinstance(message, kind)
        return isinstance(message, kind) and tries <= FRAME_TRIES

    world.spoils = spoils
    world.heal("b1", "b2")
    listener.subscribe("x > 0", durable="d")
    world.run(LONG_S)
    publisher.publish({"x": 1}, durable=True)
    world.run(LONG_S)
    assert tries > FRAME_TRIES or kind is Took
    world.cut("b1", "b2")
    world.run(5.0)
    world.heal("b1", "b2")
    world.run(5.0)
    assert heard(listener) == [1]
    assert not any(node.status()["custody_entries"] for node in world.nodes.values())


def test_a_link_that_only_says_what_cannot_be_read_begins_anew_and_says_so() -> None:
    world = world_of(2, General)
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
    assert "message_refused" in said
    assert said.count("cannot_take") <= 2 * (LONG_S / COMPLAIN_EVERY_S + 1), (
        "no more than once in ten seconds"
    )


# --- clients ---


@pytest.mark.parametrize("durable", ["", "d"])
def test_events_that_a_client_cannot_read_are_a_gap(durable: str) -> None:
    world = world_of(1)
    listener, publisher = world.client("a", "b1"), world.client("p", "b1")
    key = listener.subscribe("x > 0", durable=durable)
    world.run(1.0)
    tries = sent_bad(world)
    publisher.publish({"x": 666}, durable=bool(durable))
    publisher.publish({"x": 1}, durable=bool(durable))
    world.run(LONG_S)
    assert tries == ["b1 Deliver"] * FRAME_TRIES
    assert heard(listener) == [1]
    (gap,) = listener.gaps
    assert (gap.publisher, gap.count, gap.key) == ("p/1", 1, key if durable else -1)


def test_an_entry_without_events_that_a_client_cannot_read_is_a_gap() -> None:
    world = world_of(1)
    listener, publisher = world.client("a", "b1"), world.client("p", "b1")
    key = listener.subscribe("x > 0", durable="d")
    world.run(1.0)
    listener.broker = "nowhere"
    listener.cut()
    publisher.publish({"x": 1}, durable=True)
    world.run(1.0)
    world.kill("b1")
    world.disks["b1"].flip(1)
    world.start("b1")
    listener.broker = "b1"
    world.spoils = lambda _, message: isinstance(message, Deliver)
    world.run(LONG_S)
    assert {gap.count for gap in listener.gaps if gap.key == key} == {1, 0}
    assert world.nodes["b1"].status()["sessions"] == 2


def test_an_answer_that_a_client_cannot_read_is_an_error() -> None:
    world = world_of(1)
    asker = world.client("a", "b1")
    world.run(1.0)
    world.spoils = lambda _who, message: isinstance(message, Answer)
    asked = asker.ask(lambda id: Ask(id, "status"))
    world.run(LONG_S)
    answer = asker.answers[asked]
    assert isinstance(answer, Failed)
    assert answer.failure.kind == "IllegalMessage"


# --- one broker, and an end that is not ours ---


def welcomes(error: IllegalMessage, count: int) -> list[Welcome]:
    """How a client is greeted that sends something illegal in every connection."""
    node, at = Node("b1", Acyclic("b1"), MemoryStore()), Moment(0.0, 0)
    found: list[Welcome] = []
    session = ""
    for attempt in range(1, count + 1):
        node.accept(attempt, at)
        hello = Hello("client", "a", PROTOCOL_VERSION, incarnation="1", session=session)
        effects = node.receive(attempt, hello, at)
        welcome = next(each.message for each in effects if isinstance(each, Send))
        assert isinstance(welcome, Welcome)
        found.append(welcome)
        session = welcome.session
        node.illegal(attempt, error, at)
    return found


def test_a_client_that_sends_on_what_cannot_be_read_loses_its_session() -> None:
    first, *again, last = welcomes(IllegalMessage("it", "x" * 10_000), SESSION_TRIES + 1)
    assert all(each.resumed for each in again)
    assert all(0 < len(each.refused) <= MAX_REASON_CHARS for each in again)
    assert not any(each.resumed or each.refused for each in (first, last))


def test_what_is_damaged_at_one_place_again_and_again_is_refused() -> None:
    """A bit flips by chance; a frame that is too long for the other end is so each time."""
    refused = [bool(each.refused) for each in welcomes(DamagedFrame("it", "x"), DAMAGE_TRIES + 2)]
    assert refused == [False] * DAMAGE_TRIES + [True] * 2


def test_a_message_that_was_refused_has_not_arrived() -> None:
    """Whether it cannot be read or is not legal: the sender is told which it was."""
    node = Node("b1", Acyclic("b1"), MemoryStore())
    at = Moment(0.0, 0)
    node.accept(1, at)
    node.receive(1, Hello("broker", "b2", PROTOCOL_VERSION), at)
    session = node._core.neighbours["b2"].id
    node.receive(1, Route(Batch((), fresh=True)), at)
    node.receive(1, Done(1), at)
    node.accept(2, at)
    effects = node.receive(2, Hello("broker", "b2", PROTOCOL_VERSION, session=session), at)
    welcome = next(each.message for each in effects if isinstance(each, Send))
    assert isinstance(welcome, Welcome)
    assert (welcome.resumed, welcome.received) == (True, 1)
    assert "not for brokers" in welcome.refused


# --- what this broker itself fails on ---


class Failing(Acyclic):
    """A router with a fault."""

    def receive(self, sender: Any, message: Any) -> Any:
        if any("666" in str(getattr(each, "filter", "")) for each in message.requests):
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
    node.accept(1, at)
    node.receive(1, Hello("client", "a", PROTOCOL_VERSION, incarnation="x"), at)
    told = [
        each
        for each in node.receive(1, requests.Subscribe(1, 1, BAD), at)
        if isinstance(each, Report)
    ]
    (failed,) = [each for each in told if each.event == "failed"]
    assert failed.details["message"] == "Subscribe"
    assert "KeyError" in failed.details["error"]
    assert "test_refusals.py" in failed.details["where"]
