"""What comes over a link on its way from the origin of durable events to their home."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from palio.language.parsing import parse_filter
from palio.model.filters import FALSE, TRUE, Filter
from palio.model.masks import pack_mask
from palio.node.effects import Effect, Report, Send
from palio.node.limits import AHEAD_US
from palio.node.loss_markers import LossMarker
from palio.node.streams import UNREAD
from palio.protocol.messages import (
    Carry,
    Deliver,
    Digest,
    EntriesStored,
    Fact,
    Gaps,
    Message,
    Parcel,
    Publish,
    Share,
    Subscribe,
)
from palio.simulation.topologies import line, ring
from palio.simulation.world import World
from tests.node.alone import Alone, event, far, lives, parcel, subscribed
from tests.node.badges import signed
from tests.node.events import heard
from tests.node.events import parcel as events_of
from tests.node.test_grants import QUICK, Near

# --- a broker between ---


def between() -> Alone:
    """A broker b1 between b2 and b3, which is on link 3."""
    alone = Alone()
    alone.greet(3, "broker", "b3")
    alone.tell(3, Digest({}))
    alone.tell(3, far())
    alone.tell(2, lives("b2", 10, subject="eve/d"))
    alone.sync()
    return alone


def carry(origin: str = "b2", home: str = "b3", shares: Sequence[Share] = ()) -> Carry:
    return Carry(parcel(1), origin, 1, home, 7, 5, 3, tuple(shares))


def test_what_is_for_others_goes_on_and_is_kept_nowhere() -> None:
    alone = between()
    there = carry(shares=(Share("alice/d", 1, None),))
    back = EntriesStored("b3", 7, "b2", 1, 5)
    alone.tell(2, there)
    alone.tell(3, back)
    assert [said for said in alone.said if isinstance(said[1], Carry | EntriesStored)] == [
        (3, there),
        (2, back),
    ]
    alone.sync()
    assert not alone.disk.held()
    assert alone.node.status()["custody_entries"] == 0


def test_nothing_goes_back_where_it_came_from() -> None:
    """The ways of two brokers differ for a moment: it is sent again when they agree."""
    alone = between()
    alone.tell(3, carry("b2", "b3"))
    alone.tell(2, EntriesStored("b3", 7, "b2", 1, 5))
    assert not alone.heard(Carry)
    assert not alone.heard(EntriesStored)
    assert not alone.closed


def test_what_has_no_way_is_dropped() -> None:
    alone = between()
    alone.do(alone.node.lost(3, alone.at))
    alone.tell(2, carry())
    alone.sync()
    assert not alone.heard(Carry)
    assert alone.node.status()["custody_entries"] == 0
    assert not alone.closed


def test_of_brokers_that_nobody_has_heard_of_people_are_told_by_name() -> None:
    alone = subscribed()
    alone.tell(2, carry("b2", "b9"))
    alone.tell(2, carry("b8", "b1"))
    alone.tell(2, EntriesStored("b9", 1, "b1", 1, 5))
    assert [told["brokers"] for told in alone.told("broker_unknown")] == [["b9"]]
    assert alone.node.status()["rejections"]["broker_unknown"] == 3
    alone.sync()
    assert not alone.disk.held()
    assert not alone.closed


def test_what_waits_too_long_is_dropped_before_live_events_are() -> None:
    alone = between()
    neighbour = alone.node._core.neighbours["b3"]
    neighbour.stream.window = 1  # one message at a time
    size = carry().parcel.held_bytes
    for _ in range(8):
        neighbour.carry(alone.node._core.out, carry(), 4 * size)
    assert neighbour.queued_bytes <= 3 * size
    assert neighbour.dropped == 0, "nothing of it is lost: its origin sends it again"


def test_rows_that_are_none_of_the_entry_end_the_session() -> None:
    alone = subscribed()
    alone.carry(parcel(1), 5, rows=pack_mask(np.arange(9) < 8))
    assert 2 in alone.closed


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_claim_that_its_owner_could_not_outdo_ends_the_session(beyond: int) -> None:
    alone = subscribed()
    alone.carry(parcel(1), 5, number=alone.at.wall_us + AHEAD_US + beyond)
    assert (2 in alone.closed) is bool(beyond)


# --- what an origin cannot read ---


def test_a_home_looks_at_what_its_origin_could_not_read() -> None:
    alone = subscribed()
    alone.tell(1, Subscribe(2, 2, "x = 2", durable="other"))
    alone.sync()
    rows = events_of({"x": 1}, {"x": 3}, {"x": 1})
    alone.carry(rows, 5, rows=UNREAD, subjects=("alice/d", "alice/other", "gone/d"))
    alone.sync()
    (delivered,) = alone.heard(Deliver)
    assert (delivered.key, delivered.rows) == (1, pack_mask(np.array([True, False, True])))
    assert [each.offset for each in alone.heard(EntriesStored)] == [5]


def test_a_loss_is_told_also_where_an_origin_could_not_read_the_filter() -> None:
    alone = subscribed()
    lost = LossMarker("b2 0", 5, "pub", 1, 3, 2)
    alone.carry(lost.parcel, 5, rows=UNREAD)
    alone.sync()
    assert [gap.publisher for (gap,) in (each.gaps for each in alone.heard(Gaps))] == ["pub"]


def test_an_origin_says_that_it_cannot_read_a_filter() -> None:
    alone = Alone()
    alone.tell(2, far())
    alone.tell(2, lives("b3", 3, filter="x is whatever"))
    alone.tell(2, lives("b3", 4, subject="bob/d"))
    alone.sync()
    alone.tell(1, Publish(event(), 1, durable=True))
    alone.sync()
    (carried,) = alone.heard(Carry)
    rows = {share.subject: share.rows for share in carried.shares}
    assert rows == {"alice/d": UNREAD, "bob/d": None}


# --- grants ---

EVENTS = events_of({"x": 1}, {"x": 2}, {"x": 1})
MINE, OTHERS, ALL = (
    pack_mask(np.array(each, np.bool_)) for each in ((1, 0, 1), (0, 1, 0), (1, 1, 1))
)


def knowing(near: Near) -> Near:
    """One whose neighbours have said what there is: b is between n and m."""
    for link, name in enumerate(("n", "m")):
        near.say(signed(Fact(name, 10, "links", ("b",))), link)
    return near


def passed(near: Near, events: Parcel, *shares: Share) -> tuple[Carry, list[dict[str, Any]]]:
    """What m gets of what n brings for it, and what people are told."""
    effects = near.say(Carry(events, "n", 1, "m", 1, 5, 0, shares))
    return _carry(effects), [each.details for each in effects if isinstance(each, Report)]


def _carry(effects: list[Effect]) -> Carry:
    (found,) = (
        each.message for each in effects if isinstance(each, Send) and type(each.message) is Carry
    )
    return found


SOME = (Share("a/d", 1, MINE), Share("b/d", 1, OTHERS), Share("c/d", 1, None), Share("d/d", 1, b""))


@pytest.mark.parametrize("who", ["n may bring", "m may receive"])
def test_what_a_neighbour_may_not_bring_or_hear_is_taken_out(who: str) -> None:
    only = parse_filter("x = 1")
    near = knowing(Near(*((TRUE, only) if who == "n may bring" else (only, TRUE))))
    carried, told = passed(near, EVENTS, *SOME)
    assert [row["x"] for row in carried.parcel.rows] == [1, 1]
    both = pack_mask(np.array([True, True]))
    assert {share.subject: share.rows for share in carried.shares} == {
        "a/d": both,
        "c/d": both,
        "d/d": UNREAD,
    }
    assert (carried.offset, carried.previous) == (5, 0)
    kind = "grant_exceeded" if who == "n may bring" else "events_withheld"
    assert [each["count"] for each in told if "count" in each] == [1]
    assert near.node.status()["rejections"][kind] == 1


@pytest.mark.parametrize("who", ["n may bring", "m may receive"])
def test_an_entry_of_which_nothing_is_left_goes_on(who: str) -> None:
    """Those behind it in the stream are taken only after it."""
    near = knowing(Near(*((TRUE, FALSE) if who == "n may bring" else (FALSE, TRUE))))
    carried, _ = passed(near, EVENTS, *SOME[:3])
    assert (len(carried.parcel), carried.shares) == (0, ())
    assert (carried.offset, carried.previous) == (5, 0)


NOTICE = LossMarker("n 1", 5, "ann/1", 7, 9, 2)


@pytest.mark.parametrize(
    ("hears", "brings", "what"),
    [
        (TRUE, TRUE, NOTICE),
        (parse_filter("x = 1"), TRUE, NOTICE.anonymous),
        (TRUE, parse_filter("x = 1"), NOTICE.anonymous),
        (FALSE, TRUE, None),
        (TRUE, FALSE, None),
    ],
)
def test_who_may_bring_or_hear_some_events_does_not_say_or_learn_whose_are_lost(
    hears: Filter, brings: Filter, what: LossMarker | None
) -> None:
    near = knowing(Near(hears, brings))
    carried, told = passed(near, NOTICE.parcel, Share("a/d", 1, None))
    assert LossMarker.of(carried.parcel) == what
    assert bool(carried.shares) == bool(what)
    assert near.node.status()["rejections"].get("loss_reported", 0) == (brings is not FALSE)
    assert told


# --- on a network ---


@pytest.mark.parametrize("graph", [line(3), ring(4)], ids=["line", "ring"])
def test_brokers_between_keep_nothing_and_all_comes_once_and_in_order(graph: Any) -> None:
    world = World.of(graph, settings=QUICK)
    owner, publisher = world.client("owner", "b3"), world.client("p", "b1")
    owner.subscribe("x > 0", durable="d")
    world.run(3.0)
    for x in range(1, 51):
        publisher.publish({"x": x}, durable=True)
    world.run(5.0)
    assert heard(owner) == list(range(1, 51))
    assert {each.status()["custody_entries"] for each in world.nodes.values()} == {0}
    assert not world.disks["b2"].load().last_offset


def test_what_is_lost_on_its_way_is_sent_again() -> None:
    world = World.of(line(3), settings=QUICK)
    owner, publisher = world.client("owner", "b3"), world.client("p", "b1")
    owner.subscribe("x > 0", durable="d")
    world.run(3.0)
    world.kill("b2")
    for x in range(1, 11):
        publisher.publish({"x": x}, durable=True)
    world.run(5.0)
    assert publisher.accepted_durable == 10
    assert heard(owner) == []
    world.start("b2")
    world.run(10.0)
    assert heard(owner) == list(range(1, 11))
    assert {each.status()["custody_entries"] for each in world.nodes.values()} == {0}


def test_a_full_disk_between_holds_up_nothing() -> None:
    """And one at the home holds up durable events alone."""
    world = World.of(line(3), settings=QUICK)
    owner, publisher = world.client("owner", "b3"), world.client("p", "b1")
    live = world.client("live", "b3")
    owner.subscribe("d > 0", durable="d")
    live.subscribe("x > 0")
    world.run(3.0)
    for full, got in (("b2", [1, 2]), ("b3", [1, 2])):
        world.disks[full].is_full = True
        for number in (1, 2) if full == "b2" else (3, 4):
            publisher.publish({"d": number}, durable=True)
            publisher.publish({"x": number})
        world.run(3.0)
        assert [row["d"] for _, _, row in owner.heard] == got
        assert len(live.heard) == (2 if full == "b2" else 4)
    world.disks["b2"].is_full = world.disks["b3"].is_full = False
    world.run(5.0)
    assert [row["d"] for _, _, row in owner.heard] == [1, 2, 3, 4]
    assert not [each for _, each in world.reports if each.event == "peer_down"]
    assert {each.status()["custody_entries"] for each in world.nodes.values()} == {0}


def test_what_another_broker_says_again_without_need_is_answered() -> None:
    """Its home has it, and what it answered was lost."""
    seen: list[Message] = []
    world = World.of(line(3), settings=QUICK)
    owner, publisher = world.client("owner", "b3"), world.client("p", "b1")
    owner.subscribe("x > 0", durable="d")
    world.run(3.0)

    def spoils(who: str, message: Message) -> bool:
        if who == "b3" and isinstance(message, EntriesStored):
            seen.append(message)
            if len(seen) == 1:  # it goes to nobody's
                return True
        return False

    world.spoils = spoils
    publisher.publish({"x": 1}, durable=True)
    world.run(10.0)
    assert heard(owner) == [1]
    assert len(seen) > 1
    assert {each.status()["custody_entries"] for each in world.nodes.values()} == {0}
