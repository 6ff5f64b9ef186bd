"""What stands for events that a journal cannot give back, and where it goes."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from palio.language.parsing import parse_filter
from palio.model.filters import FALSE, TRUE, Filter
from palio.model.parcels import Parcel
from palio.node.authority import Principal
from palio.node.carrying import Carrying
from palio.node.effects import ANYBODY, Heading
from palio.node.loss_markers import LossMarker, heading_of
from palio.node.sessions import Neighbour
from palio.protocol.limits import MAX_NUMBER, MAX_PUBLISHER_CHARS
from palio.protocol.messages import (
    Acknowledge,
    Carry,
    Deliver,
    EntriesStored,
    Gap,
    Gaps,
    Publish,
    Subscribe,
)
from palio.simulation.member import Member
from palio.simulation.world import World
from tests.node.alone import Alone, event, far, lives, parcel, subscribed
from tests.node.badges import broker
from tests.node.events import reports
from tests.node.test_grants import brings, hears, network

NOTICE = LossMarker("b1 1000000", 12, "ann/1", 7, 9, 2)


def test_a_notice_is_what_it_was_after_its_way() -> None:
    parcel = NOTICE.parcel
    assert parcel.values is not None
    assert parcel.shape.fits(parcel.values)
    assert LossMarker.of(parcel) == NOTICE
    assert LossMarker.of(Parcel(parcel.publisher, parcel.batch)) == NOTICE
    assert NOTICE.delivery_for(4, 5)[0] == Gaps((Gap("ann/1", 7, 9, 2, 4),))
    assert NOTICE.anonymous.delivery_for(4, 5)[0] == Gaps((Gap("*", 0, 0, 0, 4),))
    nothing = NOTICE.delivery_for(4, 5)[1]
    assert (len(nothing.parcel), nothing.key, nothing.entry) == (0, 4, 5)


def test_events_are_no_notice() -> None:
    assert LossMarker.of(Parcel("ann/1", pa.record_batch({"$seq": [1], "$events": [1]}))) is None


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("$first_seq", -1),
        ("$last_seq", 6),
        ("$last_seq", MAX_NUMBER + 1),
        ("$events", 4),
        ("$events", -1),
        ("$events", None),
        ("$publisher", "p" * (MAX_PUBLISHER_CHARS + 1)),
    ],
)
def test_a_broken_one_is_refused(column: str, value: object) -> None:
    batch = NOTICE.parcel.batch
    place = batch.schema.get_field_index(column)
    column_of_one = pa.array([value], batch.schema.types[place])
    broken = Parcel("b1 1", batch.set_column(place, batch.schema.field(place), column_of_one))
    with pytest.raises(ValueError, match="a loss marker"):
        LossMarker.of(broken)
    alone = subscribed()
    alone.carry(broken, 5)
    assert alone.closed
    alone.sync()
    assert not gaps(alone)
    assert not alone.disk.held()


def test_the_largest_number_is_one_and_the_longest_name_too() -> None:
    longest = NOTICE._replace(publisher="p" * MAX_PUBLISHER_CHARS)
    assert LossMarker.of(longest.parcel) == longest
    largest = NOTICE._replace(first_seq=MAX_NUMBER, last_seq=MAX_NUMBER, events=1)
    assert LossMarker.of(largest.parcel) == largest


def test_a_notice_of_several_rows_or_of_other_types_is_refused() -> None:
    batch = NOTICE.parcel.batch
    twice = pa.Table.from_batches([batch, batch]).combine_chunks().to_batches()[0]
    texts = pa.record_batch({name: ["1"] for name in batch.schema.names})
    for broken in (twice, texts):
        with pytest.raises(ValueError, match="one row"):
            LossMarker.of(Parcel("b1 1", broken))


def test_what_is_known_of_an_entry_that_cannot_be_read() -> None:
    assert heading_of(parcel(5, 8), 9) == Heading("p/1", 5, 8, 9)
    unknown = Heading(ANYBODY, 0, 0, 9)
    assert heading_of(NOTICE.parcel, 9) == unknown, "of its own numbers nobody is told"
    assert heading_of(Parcel("p", pa.record_batch({"x": [1]})), 9) == unknown


# --- at a broker ---


def gaps(alone: Alone) -> list[Gap]:
    """What the client was told that it lost."""
    return [gap for each in alone.heard(Gaps) for gap in each.gaps]


def test_a_notice_is_a_gap_of_those_whom_it_is_for_once_it_is_on_the_disk() -> None:
    alone = subscribed()
    alone.tell(1, Subscribe(4, 2, "x = 7", durable="other"))
    alone.sync()
    alone.carry(NOTICE.parcel, 5, subjects=("alice/other", "bob/x"))
    assert not gaps(alone)
    alone.sync()
    assert gaps(alone) == [Gap("ann/1", 7, 9, 2, 2)]
    alone.carry(NOTICE.parcel, 5, subjects=("alice/other", "bob/x"))
    alone.sync()
    assert len(gaps(alone)) == 1
    assert len(alone.heard(EntriesStored)) == 2
    assert not alone.told("entry_lost"), "it was told where it was lost"


def test_a_gap_is_told_until_it_is_acknowledged() -> None:
    alone = subscribed()
    alone.carry(NOTICE.parcel, 5)
    alone.sync()
    again = subscribed(alone.disk)
    assert gaps(again) == [Gap("ann/1", 7, 9, 2, 1)]
    (nothing,) = again.heard(Deliver)
    again.tell(1, Acknowledge(1, nothing.entry))
    again.rest()
    third = subscribed(again.disk)
    assert not gaps(third)
    assert not third.disk.held()


def test_an_entry_that_cannot_be_carried_is_logged_once() -> None:
    alone = Alone()
    alone.tell(2, lives("b3", 1))
    alone.sync()
    alone.tell(1, Publish(event(), 1, durable=True))  # there is no way to b3 yet
    alone.sync()
    (entry,) = alone.disk.held()
    alone.disk.flip(entry.entry)
    again = Alone(alone.disk)
    again.tell(2, far(2))
    again.sync()
    for _ in range(5):  # it is not answered
        again.tick()
    again.do(again.node.lost(2, again.at))
    again.greet(2, "broker", "b2")
    again.tell(2, far(5))
    again.sync()
    assert len(again.heard(Carry)) > 2
    assert [each.event for each in again.reports if each.level == "error"] == ["entry_lost"]


def test_a_notice_that_was_damaged_too_is_a_gap_of_anybody() -> None:
    alone = subscribed()
    alone.carry(NOTICE.parcel, 5)
    alone.sync()
    (entry,) = alone.disk.held()
    alone.disk.flip(entry.entry)
    assert gaps(subscribed(alone.disk)) == [Gap("*", 0, 0, 0, 1)]


# --- on a network ---


NOBODY = Principal("b1", key="b1")
FROM_NOBODY = {
    "what b1 may bring": {"b2": {"b1": replace(NOBODY, allow_subscribe=TRUE)}},
    "what b2 may receive": {"b1": {"b2": broker("b2", TRUE, FALSE)}},
    "denials": {
        "b2": {"b1": replace(NOBODY, allow_publish=TRUE, allow_subscribe=TRUE, deny_publish=TRUE)}
    },
}


def moves_away_from_a_damaged_entry(world: World) -> Member:
    """A durable subscription moves from b1 to b3, and what waited for it cannot be read."""
    bob, ann = world.client("bob", "b1"), world.client("ann", "b1")
    bob.subscribe("EXISTS x", durable="d")
    world.run(2.0)
    bob.suspend()
    world.run(1.0)
    ann.publish({"x": 1}, durable=True)
    world.run(1.0)
    (entry,) = world.disks["b1"].held()
    world.disks["b1"].flip(entry.entry)
    world.kill("b1")
    world.start("b1")
    world.run(3.0)
    bob.resume("b3")
    world.run(5.0)
    return bob


def limited(text: str) -> Filter:
    return parse_filter(text)


def test_who_may_bring_or_hear_some_events_does_not_say_or_learn_whose_they_were() -> None:
    assert Gap("ann/1", 1, 1, 1, 1) in moves_away_from_a_damaged_entry(network(3)).gaps
    for grants in ({"b2": brings("b1", limited("a = 1"))}, {"b1": hears("b2", "a = 1")}):
        world = network(3, **grants)
        bob = moves_away_from_a_damaged_entry(world)
        assert Gap("*", 0, 0, 0, 1) in bob.gaps
        assert all(each.publisher == "*" for each in bob.gaps)
        assert sum(node.status()["custody_entries"] for node in world.nodes.values()) == 0
        assert {name for name, _ in reports(world, "loss_reported")} == {"b2", "b3"}


@pytest.mark.parametrize("grants", FROM_NOBODY.values(), ids=FROM_NOBODY.keys())
def test_nothing_is_told_by_or_to_whom_all_is_withheld(
    grants: dict[str, dict[str, Principal]],
) -> None:
    world = network(3, **grants)
    bob = moves_away_from_a_damaged_entry(world)
    assert not [each for each in bob.gaps if each.key == 1]
    assert not reports(world, "loss_reported")
    assert not reports(world, "message_rejected")
    assert sum(node.status()["custody_entries"] for node in world.nodes.values()) == 0


def test_one_damaged_entry_is_told_once_to_each_though_all_have_moved_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of four brokers once had a subscription that lives at each other one now."""
    carried: list[str] = []
    carry = Carrying.carry

    def counting(self: Carrying, neighbour: Neighbour, message: Carry) -> None:
        if LossMarker.of(message.parcel) is not None:
            carried.append(neighbour.name)
        carry(self, neighbour, message)

    world = World(seed=1)
    homes = ("b1", "b2", "b3", "b4")
    for name in ("b0", "hub", *homes):
        world.add_broker(name)
    for name in ("b0", *homes):
        world.connect(name, "hub")
    world.run(3.0)
    members = [
        world.client(f"{one}-{other}", one) for one in homes for other in homes if one != other
    ]
    for each in members:
        each.subscribe("x = 1", durable="d")
    ann = world.client("ann", "b0")
    world.run(3.0)
    for each in members:
        each.move(each.name.partition("-")[2])
    world.run(5.0)
    world.cut("b0", "hub")
    ann.publish({"x": 1}, durable=True)
    world.run(1.0)
    for entry in world.disks["b0"].held():
        world.disks["b0"].flip(entry.entry)
    world.kill("b0")
    monkeypatch.setattr(Carrying, "carry", counting)
    world.start("b0")
    world.heal("b0", "hub")
    world.run(10.0)
    assert len(carried) <= 2 * len(homes) ** 2
    for each in members:
        assert [gap for gap in each.gaps if gap.key == 1] == [Gap("*", 0, 0, 0, 1)], each.name
    assert sum(node.status()["custody_entries"] for node in world.nodes.values()) == 0
