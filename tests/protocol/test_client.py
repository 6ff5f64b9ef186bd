from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from palio.errors import Closed, IllegalMessage, NotPermitted
from palio.model.events import stamped, to_batches
from palio.model.masks import pack_mask
from palio.model.patterns import Occurrence
from palio.node.settings import Settings
from palio.protocol.client import Crossing
from palio.protocol.messages import (
    UNCOUNTED,
    Assembled,
    Deliver,
    Done,
    Gap,
    Parcel,
    Query,
    Unsubscribe,
    Update,
)
from palio.protocol.requests import DONE, Outcome
from palio.protocol.transitions import ALLOWED, Speaker, State
from palio.simulation.member import ClientWorld, Member
from palio.simulation.topologies import line
from palio.simulation.world import World
from tests.node.events import heard

QUICK = Settings(heartbeat_s=1.0, client_grace_s=2.0, peer_grace_s=2.0)


def world_of(size: int) -> World:
    return World.of(line(size), settings=QUICK)


def lose_session(world: World, member: Member) -> None:
    """Stay away until the broker has forgotten the session; it does not come back by itself."""
    member.vanish()
    world.run(QUICK.client_grace_s + 1.0)


def test_a_client_hears_all_that_a_broker_may_say() -> None:
    member = world_of(1).client("a", "b1")
    legal = ALLOWED[Speaker.BROKER, State.ESTABLISHED] - UNCOUNTED
    assert set(member.core._handlers) == legal


def test_a_durable_subscription_that_takes_the_name_of_one_that_was_forgotten_stays() -> None:
    """Both are said while the session is lost: the end of the one is not that of the other."""
    world = world_of(1)
    owner, publisher = world.client("a", "b1"), world.client("p", "b1")
    key = owner.subscribe("x > 0", durable="d")
    world.run(1.0)
    lose_session(world, owner)
    owner.unsubscribe(key, forget=True)
    owner.subscribe("x > 5", durable="d")
    owner.connect()
    world.run(2.0)
    publisher.publish({"x": 1}, {"x": 9}, durable=True)
    world.run(2.0)
    assert heard(owner) == [9]
    assert world.nodes["b1"].status()["custody_entries"] == 0


def test_requests_of_a_session_that_was_lost_are_answered_once_by_the_next() -> None:
    world = world_of(1)
    member = world.client("a", "b1")
    key = member.subscribe("x > :low", {"low": 0})
    world.run(1.0)
    lose_session(world, member)
    asked = [member.update(key, low=5), member.settle(), member.ask(lambda id: Query(id, "status"))]
    gone = member.subscribe("x < 0")
    member.unsubscribe(gone)
    member.connect()
    world.run(2.0)
    assert [len(member.outcomes[id]) for id in member.requested] == [1] * len(member.requested)
    assert member.answers[asked[1]] == Done(asked[1])
    member.publish({"x": 3}, {"x": 7})
    world.run(1.0)
    assert heard(member) == [7]


def test_who_is_told_of_an_end_by_a_new_session_may_subscribe_at_once() -> None:
    """It is said once: a key that is said twice is refused, and the subscription withdrawn."""
    world = world_of(1)
    member, publisher = world.client("a", "b1"), world.client("p", "b1")
    key = member.subscribe("x > 0")
    world.run(1.0)
    lose_session(world, member)
    again: list[int] = []

    def subscribe_again(_outcome: Outcome) -> None:
        again.append(member.subscribe("x > 5"))

    member.core.table.unsubscribe(Unsubscribe(0, key), subscribe_again)
    member.connect()
    world.run(2.0)
    publisher.publish({"x": 3}, {"x": 7})
    world.run(1.0)
    assert (len(again), member.errors, heard(member)) == (1, [], [7])


def test_what_was_not_durable_and_not_answered_is_unknown_and_the_rest_goes_again() -> None:
    world = world_of(1)
    member = world.client("a", "b1")
    world.run(1.0)
    lose_session(world, member)
    member.publish({"x": 1})
    member.publish({"x": 2}, durable=True)
    member.connect()
    world.run(2.0)
    light, durable = member.publications
    assert (light.levels, type(light.error).__name__) == ([""], "Unreachable")
    assert (durable.levels, durable.error) == (["durable"], None)


def test_after_the_end_every_request_is_answered_at_once() -> None:
    world = world_of(1)
    member = world.client("a", "b1")
    world.run(1.0)
    waiting: list[Outcome] = []
    member.core.table.ask(Query(0, "status"), waiting.append)
    member.core.end()
    member.core.table.ask(Query(0, "status"), waiting.append)
    world.run(1.0)
    assert [type(each) for each in waiting] == [Closed, Closed]


@pytest.mark.parametrize("durable", ["", "d"])
@pytest.mark.parametrize("broker", ["b1", "b2"])
def test_a_move_gives_on_once_what_both_brokers_deliver(broker: str, durable: str) -> None:
    world = world_of(2)
    member, publisher = world.client("a", "b1"), world.client("p", broker)
    member.subscribe("x > 0", durable=durable)
    world.run(2.0)
    member.move_over("b2")
    for x in range(1, 40):
        publisher.publish({"x": x})
        world.run(0.01)
    world.run(2.0)
    assert sorted(heard(member)) == list(range(1, 40))
    assert not member.gaps
    sessions = {name: node.status()["sessions"] for name, node in world.nodes.items()}
    assert sessions["b1"] == (broker == "b1"), "the old broker was left"


@pytest.mark.parametrize("is_away", [True, False])
def test_who_leaves_a_broker_that_is_away_is_told_that_something_may_be_lost(is_away: bool) -> None:
    world = World(settings=QUICK)
    for name in ("b1", "b2"):  # neither knows of the other, so that no broker tells of a loss
        world.add_broker(name)
    member = world.client("a", "b1")
    member.subscribe("x > 0")
    world.run(1.0)
    if is_away:
        world.kill("b1")
    member.move_over("b2")
    world.run(1.0)
    assert member.broker == "b2"
    assert member.gaps == ([Gap("*", 0, 0, 0)] if is_away else [])


def test_who_is_forgotten_by_the_broker_that_it_leaves_is_told_so() -> None:
    world = world_of(2)
    member = world.client("a", "b1")
    member.subscribe("x > 0")
    world.run(1.0)
    member.move_over("b2")
    left = member.core.session
    world.run(0.025)  # it is welcome at the new broker, and leaves the old one
    assert member.core.session is not left
    member.core.renewed(left, is_first=False)
    world.run(1.0)
    assert member.gaps == [Gap("*", 0, 0, 0)]


def test_a_client_that_moves_and_is_turned_away_ends_in_both_sessions() -> None:
    world = world_of(2)
    member = world.client("a", "b1")
    world.run(1.0)
    member.move_over("b2")
    member.core.session.end(NotPermitted("no more"))
    world.run(5.0)
    assert world.nodes["b2"].status()["sessions"] == 0
    assert not member.is_connected
    assert {type(each) for each in member.errors} == {NotPermitted}


def test_what_is_published_during_a_move_is_answered() -> None:
    world = world_of(2)
    member, hearer = world.client("a", "b1"), world.client("h", "b2")
    hearer.subscribe("x > 0")
    world.run(1.0)
    member.move_over("b2")
    for x in range(1, 40):
        member.publish({"x": x})
        world.run(0.003)
    world.run(2.0)
    assert [each.levels for each in member.publications] == [["memory"]] * 39
    assert sorted(heard(hearer)) == list(range(1, 40))


@pytest.mark.parametrize("over", [False, True])
def test_what_waits_and_comes_again_by_another_filter_is_heard_once(*, over: bool) -> None:
    world = world_of(2)
    member, publisher = world.client("a", "b1"), world.client("p", "b1")
    member.acknowledges = False
    key = member.subscribe("x > :low", {"low": 0}, durable="d")
    world.run(1.0)
    publisher.publish({"x": 1}, {"x": 2}, {"x": 3}, durable=True)
    world.run(1.0)
    member.update(key, low=1)
    world.run(1.0)
    (member.move_over if over else member.move)("b2")
    world.run(2.0)
    assert heard(member) == [1, 2, 3]


def test_a_move_that_is_taken_back_takes_its_durable_subscription_back() -> None:
    """Though the other broker hears last of it: what was said there is slow."""
    world = world_of(2)
    member, publisher = world.client("a", "b1"), world.client("p", "b1")
    member.subscribe("x > 0", durable="d")
    world.run(1.0)
    world.delay("a", "b2", 0.2)
    member.move("b2")
    while member.core.session.broker != "b2":
        world.run(0.01)
    member.move("b1")
    world.run(2.0)
    publisher.publish({"x": 1}, durable=True)
    world.run(1.0)
    assert member.core.session.broker == "b1"
    assert heard(member) == [1]
    homes = [node.status()["durable_subscriptions"] for node in world.nodes.values()]
    assert homes == [1, 0]


def test_what_the_session_that_is_left_says_late_takes_no_durable_subscription() -> None:
    """Both are at one broker, which hears last what was said first."""
    world = world_of(2)
    member, publisher = world.client("a", "b1"), world.client("p", "b1")
    world.run(1.0)
    world.delay("b1", "b2", 0.5)  # so long it takes until the one session is left
    member.cut()
    member.subscribe("x > 0", durable="d")
    member.move_over("b1")
    world.run(5.0)
    publisher.publish({"x": 1}, durable=True)
    world.run(2.0)
    assert world.nodes["b1"].status()["sessions"] == 2, "the member's and the publisher's"
    assert heard(member) == [1]


def test_a_second_move_knows_what_came_before_the_first() -> None:
    world = world_of(2)
    member = world.client("a", "b1")
    world.run(1.0)
    (batch,) = to_batches([{"x": 1}])
    message = Deliver(Parcel("p", stamped(batch, 1, 0)))
    for broker in ("b2", "b1"):
        member.move_over(broker)
        member.core.process(member.core.session, message)
        world.run(1.0)
    assert member.broker == "b1"
    assert heard(member) == [1]


def test_after_the_end_only_the_last_part_of_a_publication_is_answered() -> None:
    world = world_of(1)
    member = world.client("a", "b1")
    world.run(1.0)
    member.core.end()
    (batch,) = to_batches([{"x": 1}])
    publication = member.published(1, 2, durable=False)
    for is_last in (False, True):
        member.core.publish(Parcel.of("", batch), [publication], durable=False, is_last=is_last)
        assert publication.levels == [""] * is_last
    assert isinstance(publication.error, Closed)


class Named(Member):
    """A client that notes for whom its broker says that an event is."""

    def __init__(self, world: ClientWorld, name: str, broker: str) -> None:
        super().__init__(world, name, broker)
        self.named: list[tuple[list[int], list[int]]] = []

    def deliver_named(
        self, message: Deliver, keys: Sequence[int], unconfirmed: Collection[int]
    ) -> None:
        super().deliver_named(message, keys, unconfirmed)
        self.named.append((list(keys), sorted(unconfirmed)))


def named_member(world: World) -> Named:
    member = world.clients["a"] = Named(world, "a", "b1")
    member.connect()
    return member


def test_of_an_event_by_itself_the_broker_says_for_which_subscriptions_it_is() -> None:
    world = world_of(2)
    member, publisher = named_member(world), world.client("p", "b2")
    low, high = member.subscribe("x > 0"), member.subscribe("x > 5")
    member.subscribe("x > 0", durable="d")
    world.run(1.0)
    for x in (1, 6):
        publisher.publish({"x": x})
        world.run(1.0)
    publisher.publish({"x": 6}, {"x": 7})
    world.run(1.0)
    assert member.named == [([low], []), ([low, high], [])]
    assert heard(member).count(7) == 2, "of several it is not said, nor to a durable subscription"


def test_what_is_changed_is_unconfirmed_until_the_broker_has_answered() -> None:
    world = world_of(1)
    member, publisher = named_member(world), world.client("p", "b1")
    first, other = member.subscribe("x > :low", {"low": 0}), member.subscribe("x > 0")
    publisher.publish({"x": 1})
    world.run(1.0)
    publisher.publish({"x": 2})
    member.update(first, low=1)
    member.update(first, low=5)
    world.run(1.0)
    publisher.publish({"x": 3})
    world.run(1.0)
    lose_session(world, member)
    member.connect()
    world.run(1.0)
    publisher.publish({"x": 4})
    world.run(1.0)
    assert member.named[-3:] == [([first, other], [first]), ([other], []), ([other], [])]


def test_a_change_that_was_refused_is_never_confirmed_until_all_is_said_again() -> None:
    world = world_of(1)
    member, publisher = named_member(world), world.client("p", "b1")
    key = member.subscribe("x > :low", {"low": 0})
    world.run(1.0)
    member.ask(lambda id: Update(id, key, {"high": 1}))
    member.update(key, low=0)
    world.run(1.0)
    publisher.publish({"x": 1})
    world.run(1.0)
    lose_session(world, member)
    member.connect()
    world.run(1.0)
    publisher.publish({"x": 2})
    world.run(1.0)
    assert member.named == [([key], [key]), ([key], [])]
    member.unsubscribe(key)
    assert not member.core.table.unconfirmed


def test_of_several_events_nobody_may_say_for_whom_they_are() -> None:
    world = world_of(1)
    member = world.client("a", "b1")
    world.run(1.0)
    (batch,) = to_batches([{"x": 1}, {"x": 2}])
    with pytest.raises(IllegalMessage, match="several events"):
        member.core.process(
            member.core.session, Deliver(Parcel("p", stamped(batch, 1, 0)), subscriptions=(1,))
        )


def test_while_a_client_moves_it_finds_out_itself() -> None:
    world = world_of(2)
    member, publisher = named_member(world), world.client("p", "b1")
    member.subscribe("x > 0")
    world.run(1.0)
    member.core.move(member.core.session)
    publisher.publish({"x": 1})
    world.run(1.0)
    assert (heard(member), member.named) == ([1], [])


def test_who_asked_together_is_told_together_each_once() -> None:
    world = world_of(1)
    member = world.client("a", "b1")
    world.run(1.0)
    for x in range(3):
        member.subscribe(f"x = {x}")
    world.run(1.0)
    assert [member.outcomes[id] for id in member.requested] == [
        [Done(1, others=(2, 3))],
        [DONE],
        [DONE],
    ]
    assert not member.core.table.unconfirmed


def delivered(first: int, *rows: bool, publisher: str = "p", key: int = -1) -> Deliver:
    batch = pa.record_batch({"x": pa.array(range(len(rows)), pa.int64())})
    parcel = Parcel(publisher, stamped(batch, first, 0))
    return Deliver(parcel, pack_mask(np.array(rows)), key)


def first_time(crossing: Crossing, message: Deliver) -> list[bool]:
    fresh = crossing.first_time(message)
    if fresh is None:
        return [False] * len(message.parcel)
    assert fresh.rows is None
    return [number in fresh.parcel.seqs for number in message.parcel.seqs]


def test_what_comes_on_both_ways_is_given_on_once() -> None:
    crossing, every = Crossing(), (True, True, True)
    assert first_time(crossing, delivered(1, *every)) == [True, True, True]
    assert first_time(crossing, delivered(3, *every)) == [False, True, True]
    assert first_time(crossing, delivered(3, *every)) == [False, False, False]
    assert first_time(crossing, delivered(1, *every, publisher="q")) == [True, True, True]


def test_what_comes_for_two_subscriptions_is_given_on_to_each() -> None:
    crossing = Crossing()
    for key in (-1, 1, 2):
        assert first_time(crossing, delivered(1, True, key=key)) == [True]
        assert first_time(crossing, delivered(1, True, key=key)) == [False]


def test_a_row_that_was_not_for_us_may_come_later() -> None:
    crossing = Crossing()
    assert first_time(crossing, delivered(1, True, False)) == [True, False]
    assert first_time(crossing, delivered(1, True, True)) == [False, True]


def test_an_occurrence_that_both_brokers_found_is_given_on_once() -> None:
    crossing = Crossing()

    def found(key: int, *numbers: int) -> bool:
        at = datetime(2024, 1, 1, tzinfo=UTC)
        parts = tuple(Occurrence(at, "p", number, {"x": number}) for number in numbers)
        return crossing.is_found_first(Assembled(key, parts))

    assert [found(1, 1, 2), found(1, 1, 2), found(2, 1, 2), found(1, 1, 3)] == [
        True,
        False,
        True,
        True,
    ]
