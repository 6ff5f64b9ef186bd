"""Where a durable subscription lives: of several claims, and of an end, the later counts."""

from __future__ import annotations

import pytest

from palio.node.authority import Principal
from palio.node.effects import Moment
from palio.node.homes import NOWHERE
from palio.node.sessions import Budget, Session
from palio.node.settings import Settings
from palio.protocol.limits import WINDOW_BYTES
from palio.protocol.messages import NO_VISIT, Bye, Done, Fact, Facts, Subscribe, Visit
from palio.protocol.streams import Stream
from palio.routing.acyclic import Acyclic
from palio.routing.protocol import Peer
from palio.simulation.topologies import line
from palio.simulation.world import World
from tests.node.alone import Alone
from tests.node.place import Place

QUICK = Settings(heartbeat_s=1.0, client_grace_s=4.0, peer_grace_s=2.0)


def session() -> Session:
    """Of the owner of a subscription, who is here."""
    peer, stream = Peer.session("s1"), Stream(WINDOW_BYTES)
    return Session(
        "s1", peer, Principal("p"), 1, stream, Budget(1 << 20), owner="alice", publisher="alice/1"
    )


@pytest.mark.parametrize(
    ("claimed_us", "visit", "is_over"),
    [
        (4, Visit("alice/1", 1), False),
        (6, Visit("alice/1", 1), False),
        (4, Visit("alice/1", 3), True),
        (6, Visit("alice/1", 3), True),
        (4, Visit("alice/1", 2), False),
        (5, Visit("alice/1", 2), True),
        (4, Visit("alice/2", 9), False),
        (6, Visit("alice/2", 1), True),
        (6, Visit("alice/1", 0), True),
        (4, NO_VISIT, False),
        (6, NO_VISIT, True),
    ],
)
def test_of_two_homes_that_of_the_later_visit_counts_or_else_of_the_later_time(
    claimed_us: int, visit: Visit, *, is_over: bool
) -> None:
    place = Place()
    place.durability.registry.join("b2", Moment(0.0, 1))
    durable = place.put("alice/d", "x > 3", 1, Visit("alice/1", 1))
    durable.session = session()
    place.put("alice/d", "x > 3", 5, Visit("alice/1", 2))
    claim = Fact("b2", 1, "alice/d", (), "x > 3", claimed_us, visit)
    assert place.hear(claim) == ([("alice/d", "b2")] if is_over else [])
    mine = place.durability.registry.fact("b1", "alice/d")
    assert mine is not None
    assert (mine.claimed_us > claimed_us, mine.visit.number == 2) == (not is_over,) * 2


@pytest.mark.parametrize(
    ("claimed_us", "visit", "is_over"),
    [
        (4, Visit("alice/1", 2), True),
        (4, Visit("alice/1", 1), False),
        (6, Visit("alice/1", 1), True),
        (6, Visit("alice/1", 0), True),
        (4, Visit("bob/1", 7), False),
        (6, Visit("bob/1", 1), True),
        (6, NO_VISIT, False),
    ],
    ids=["later visit", "same visit, before", "adopted", "not counted", "before", "after", "lost"],
)
def test_what_was_ended_elsewhere_is_over_if_that_was_later(
    claimed_us: int, visit: Visit, *, is_over: bool
) -> None:
    """A broker that has lost its disk says that nothing lives there, and ends nothing."""
    first = Place()
    first.put("alice/d", "x > 3", 5, Visit("alice/1", 1))
    for place in (first, Place(first.store)):  # also after a restart
        place.durability.registry.join("b2", Moment(0.0, 1))
        end = Fact("b2", 1, "alice/d", claimed_us=claimed_us, visit=visit)
        assert place.hear(end) == ([("alice/d", NOWHERE)] if is_over else [])
        assert place.durability.moved(["alice/d"]) == ([("alice/d", NOWHERE)] if is_over else [])


def test_an_owner_that_came_back_after_an_end_elsewhere_keeps_what_it_asked_for() -> None:
    """The broker did not know of that end, and claims again: it would believe it after a restart,
    for which visit the owner came last is in its claim alone.
    """
    place = Place()
    place.durability.registry.join("b2", Moment(0.0, 1))
    place.put("alice/d", "x > 3", 1, Visit("alice/1", 1))
    place.put("alice/d", "x > 3", 2, Visit("alice/1", 3))
    end = Fact("b2", 1, "alice/d", claimed_us=9, visit=Visit("alice/1", 2))
    assert place.hear(end) == []
    mine = place.durability.registry.fact("b1", "alice/d")
    assert mine is not None
    assert (mine.visit.number, mine.claimed_us) == (3, 10)
    assert Place(place.store).durability.moved(["alice/d"]) == []


@pytest.mark.parametrize("is_away", [False, True], ids=["unconnected", "home away"])
def test_what_its_owner_has_ended_at_another_broker_is_over_where_it_was(*, is_away: bool) -> None:
    """Its owner has left that broker, which was away then; or has no connection as it ends it, and
    goes elsewhere after that.
    """
    world = World.of(line(2), Acyclic, settings=QUICK)
    owner, publisher = world.client("ann", "b1"), world.client("p", "b2")
    key = owner.subscribe("x > 0", durable="d")
    world.run(2.0)
    if is_away:
        world.kill("b1")
        owner.move("b2")
        world.run(4.0)
    else:
        owner.vanish()
    asked = owner.unsubscribe(key, forget=True)
    owner.move("b2")
    world.run(2.0)
    assert owner.answers[asked] == Done(asked)
    if is_away:
        world.start("b1")
    world.run(6.0)
    publisher.publish({"x": 1}, durable=True)
    world.run(2.0)
    assert [node.status()["durable_subscriptions"] for node in world.nodes.values()] == [0, 0]
    assert [node.status()["custody_entries"] for node in world.nodes.values()] == [0, 0]
    assert not world.disks["b1"].load().subscriptions


def test_an_end_says_by_which_visit_the_subscription_was_there() -> None:
    first = Place()
    first.put("alice/d", "x > 3", 5, Visit("alice/1", 4))
    place = Place(first.store)
    place.write(place.durability.end("alice/d"))
    place.learn()
    said = place.durability.registry.fact("b1", "alice/d")
    assert said is not None
    assert (said.filter, said.visit, said.claimed_us) == ("", Visit("alice/1", 4), 5)


@pytest.mark.parametrize(("visit", "moves"), [(1, False), (2, False), (3, True)])
def test_of_two_claims_of_one_client_that_of_the_later_visit_counts(
    visit: int, moves: bool
) -> None:
    """Whatever the clocks say, and though it has left since. Of one visit the clocks decide."""
    alone = Alone()
    alone.tell(1, Subscribe(1, 1, "x = 1", durable="d", visit=2))
    alone.sync()
    alone.tell(1, Bye("done"))
    alone.sync()
    claim = Fact("b2", 5, "alice/d", (), "x = 1", 900_000_000, Visit("alice/1", visit))
    alone.tell(2, Facts((claim, Fact("b2", 6, "links", ("b1",)))))
    alone.sync()
    assert [each.event for each in alone.reports if each.event == "durable_moved"] == (
        ["durable_moved"] if moves or visit == 2 else []
    )
