"""What one session of an identity cancels, the others hear no longer, and are told so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from palio.model.events import to_batches
from palio.model.filters import TRUE
from palio.model.masks import unpack_mask
from palio.node import cancelling
from palio.node.authority import Authority, NamedAuthority, Principal
from palio.node.effects import Moment, Send
from palio.node.limits import CANCEL_SLICE, MAX_CANCELS
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.operations import Append
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import (
    Answer,
    Bye,
    Cancel,
    Deliver,
    Done,
    Ended,
    Failed,
    Hello,
    Message,
    Parcel,
    Publish,
    Replace,
    Subscribe,
    Unsubscribe,
    Update,
)
from palio.routing.acyclic import Acyclic
from tests.node.events import begin

NOW: Final = Moment(1.0, 1_000_000)
ONE, TWO, THREE, OTHER = range(1, 5)
SLICE: Final = CANCEL_SLICE // 66
"""Plain subscriptions of one constraint: one look and two comparisons each."""


class House:
    """A broker; `ONE`, `TWO` and `THREE` act as ann, `OTHER` as nobody."""

    def __init__(self, authority: Authority | None = None) -> None:
        self.node = Node("b1", Acyclic("b1"), MemoryStore(), authority=authority)
        begin(self.node, NOW)
        self.published = 0
        if authority is not None:
            return
        for link in (ONE, TWO, THREE):
            self.greet(link, f"c{link}", "ann")
        self.greet(OTHER, "other")

    def greet(self, link: int, name: str, identity: str = "", *, proven: str = "") -> list[Message]:
        self.node.accept(link, NOW, proven)
        return self.say(link, Hello("client", name, PROTOCOL_VERSION, identity=identity))

    def say(self, link: int, message: Message) -> list[Message]:
        """What one hears of what one says."""
        return self.all_said(link, message).get(link, [])

    def all_said(self, link: int, message: Message) -> dict[int, list[Message]]:
        """What all hear of what one says, disk and later turns included."""
        said: dict[int, list[Message]] = {}
        effects = self.node.receive(link, message, NOW)
        while effects:
            following = []
            for each in effects:
                if isinstance(each, Send):
                    said.setdefault(each.link, []).append(each.message)
                elif isinstance(each, Append):
                    following += self.node.stored(each.ticket, NOW)
            effects = following
        return said

    def hears(self, *event: dict[str, Any]) -> dict[int, int]:
        """How many of some events each link is sent."""
        first = self.published + 1
        self.published += len(event)
        (batch,) = to_batches(list(event))
        said = self.all_said(OTHER, Publish(Parcel("", batch), first))
        return {
            link: sum(
                int(unpack_mask(each.rows, len(each.parcel)).sum())
                for each in messages
                if isinstance(each, Deliver)
            )
            for link, messages in said.items()
            if any(isinstance(each, Deliver) for each in messages)
        }

    def ticks(self) -> Iterator[dict[int, list[Message]]]:
        """What is said tick by tick, while there is something unfinished."""
        while self.node.wake_at <= NOW.now:
            said: dict[int, list[Message]] = {}
            for each in self.node.tick(NOW):
                if isinstance(each, Send):
                    said.setdefault(each.link, []).append(each.message)
            yield said


def keys_of(messages: list[Message]) -> list[int]:
    return [key for each in messages if isinstance(each, Ended) for key in each.keys]


def test_a_session_cancels_what_others_of_its_identity_hear() -> None:
    house = House()
    house.say(ONE, Subscribe(1, 1, "x > 5"))
    house.say(ONE, Subscribe(2, 2, "y > 5"))
    house.say(TWO, Subscribe(1, 1, "x > :least", {"least": 7}))
    house.say(TWO, Subscribe(2, 2, "x > :least", {"least": 3}))
    house.say(OTHER, Subscribe(1, 1, "x > 9"))
    house.say(THREE, Subscribe(1, 1, "x > 8"))  # one's own is for the client itself to end
    assert house.hears({"x": 10}) == {ONE: 1, TWO: 1, THREE: 1, OTHER: 1}
    said = house.all_said(THREE, Cancel(7, "x > 4"))
    assert said[THREE] == [Answer(7, 2)]
    assert keys_of(said[ONE]) == [1]
    assert keys_of(said[TWO]) == [1]
    (ended,) = said[ONE]
    assert isinstance(ended, Ended)
    assert ended.failure.kind == "SubscriptionEnded"
    assert "acts as 'ann' cancelled what x > 4 covers" in ended.failure.message
    assert house.hears({"x": 10}) == {TWO: 1, THREE: 1, OTHER: 1}
    assert house.hears({"x": 6}) == {TWO: 1}
    assert house.hears({"y": 6}) == {ONE: 1}
    assert house.say(THREE, Cancel(8, "x > 4")) == [Answer(8, 0)]
    assert house.say(ONE, Subscribe(3, 1, "x > 5")) == [Done(3)]  # the key is free


def test_who_ends_for_good_what_another_has_just_cancelled_is_told_that_it_waits() -> None:
    house = House()
    house.say(ONE, Subscribe(1, 1, "x > 5", durable="mine", lease_s=60.0))
    assert house.say(TWO, Cancel(1, "x > 4")) == [Answer(1, 1)]
    (answer,) = house.say(ONE, Unsubscribe(2, 1, forget=True))
    assert isinstance(answer, Failed)
    assert answer.failure.kind == "SubscriptionEnded"
    assert "subscribe to it again, and forget it then" in answer.failure.message
    assert house.say(ONE, Unsubscribe(3, 1)) == [Done(3)]  # it is heard no longer
    house.say(ONE, Subscribe(4, 1, "x > 5", durable="mine", lease_s=60.0))
    assert Done(5) in house.say(ONE, Unsubscribe(5, 1, forget=True))
    assert house.node.status()["durable_subscriptions"] == 0


def test_what_counts_is_what_a_subscription_hears_now() -> None:
    house = House()
    house.say(ONE, Subscribe(1, 1, "x > :least", {"least": 7}))
    house.say(ONE, Update(2, 1, {"least": 2}))
    assert house.say(TWO, Cancel(1, "x > 4")) == [Answer(1, 0)]
    house.say(ONE, Replace(3, 1, "x > 6"))
    assert house.say(TWO, Cancel(2, "x > 4")) == [Answer(2, 1)]


def test_a_pattern_cancels_patterns_of_as_many_steps() -> None:
    house = House()
    house.say(ONE, Subscribe(1, 1, "x > 5 THEN y > :least", {"least": 5}))
    house.say(ONE, Subscribe(2, 2, "x > 5 THEN y > 5 WITHIN 1s"))
    house.say(ONE, Subscribe(3, 3, "x > 5 OR y > 5"))
    assert house.say(TWO, Cancel(1, "TRUE")) == [Answer(1, 1)]  # patterns are no filters
    assert house.say(TWO, Cancel(2, "x > 5 THEN y > 5 THEN z > 5")) == [Answer(2, 0)]
    assert house.say(TWO, Cancel(3, "x > 0 THEN y > 0 WITHIN 2s")) == [Answer(3, 1)]
    assert house.hears({"y": 6}) == {ONE: 1}
    assert house.say(TWO, Cancel(4, "x > 0 THEN y > 0")) == [Answer(4, 1)]
    assert house.hears({"y": 6}) == {}


def test_a_pattern_hears_what_any_step_wants_also_by_new_values() -> None:
    house = House()
    house.say(ONE, Subscribe(1, 1, "x > 5 THEN x > 7 AND y > :least", {"least": 5}))
    assert house.say(ONE, Update(2, 1, {"least": 2})) == [Done(2)]
    assert house.hears({"x": 6}, {"x": 5, "y": 9}, {"y": 9}) == {ONE: 1}
    assert house.say(ONE, Replace(3, 1, "x > 50 THEN y > :least", {"least": 5})) == [Done(3)]
    assert house.say(ONE, Update(4, 1, {"least": 2})) == [Done(4)]
    assert house.hears({"x": 6}, {"y": 3}) == {ONE: 1}


@pytest.mark.parametrize("forget", [False, True])
def test_a_durable_subscription_waits_for_its_owner_unless_it_is_forgotten(forget: bool) -> None:
    house = House()
    house.say(ONE, Subscribe(1, 1, "x > 5", durable="d"))
    assert house.say(TWO, Cancel(1, "x > 4", forget)) == [Answer(1, 1)]
    (batch,) = to_batches([{"x": 6}])
    house.say(OTHER, Publish(Parcel("", batch), 1, durable=True))
    said = house.say(ONE, Subscribe(2, 2, "x > 5", durable="d"))
    assert any(isinstance(each, Deliver) for each in said) == (not forget)


def test_who_acts_under_no_identity_cancels_nothing_of_others() -> None:
    house = House()
    house.greet(9, "another")
    house.say(9, Subscribe(1, 1, "x > 5"))
    (failed,) = house.say(OTHER, Cancel(1, "TRUE"))
    assert isinstance(failed, Failed)
    assert (failed.failure.kind, "no identity" in failed.failure.message) == ("InvalidInput", True)
    (failed,) = house.say(ONE, Cancel(1, "x > :most"))
    assert isinstance(failed, Failed)
    assert "parameter :most" in failed.failure.message
    (failed,) = house.say(ONE, Cancel(2, "x >"))
    assert isinstance(failed, Failed)
    assert failed.failure.kind == "ParseError"
    assert house.hears({"x": 6}) == {9: 1}


def test_who_may_act_under_an_identity_cancels_what_it_hears_and_nobody_else_does() -> None:
    granted = frozenset(("ann",))
    principals = {
        "ann": Principal("ann", allow_subscribe=TRUE),
        "planner": Principal("planner", identities=granted),
        "bob": Principal("bob", TRUE, TRUE, may_monitor=True),
    }
    house = House(NamedAuthority(principals))
    house.greet(ONE, "ann", "ann", proven="ann")
    house.say(ONE, Subscribe(1, 1, "x > 5"))
    (bye,) = house.greet(OTHER, "ann", "ann", proven="bob")
    assert isinstance(bye, Bye)
    assert "'bob' may not act as 'ann'" in bye.reason
    house.greet(TWO, "planner", "ann", proven="planner")
    (failed,) = house.say(TWO, Subscribe(1, 1, "x > 5"))  # what it hears is its own grant's
    assert isinstance(failed, Failed)
    assert failed.failure.kind == "NotPermitted"
    assert house.say(TWO, Cancel(2, "x > 5")) == [Answer(2, 1)]


@pytest.mark.parametrize(("count", "slices"), [(SLICE - 1, 1), (SLICE + 2, 2), (3 * SLICE, 3)])
def test_much_is_looked_at_in_slices_with_others_between(count: int, slices: int) -> None:
    house = House()
    for key in range(count):
        house.say(ONE, Subscribe(key, key, f"x > {key + 1}"))
    said = [house.all_said(TWO, Cancel(1, "x > 0")), *house.ticks()]
    told = [keys_of(each[ONE]) for each in said if keys_of(each.get(ONE, []))]
    assert len(told) in (slices, slices + 1)
    assert [key for keys in told for key in keys] == list(range(count))
    answers = [each for turn in said for each in turn.get(TWO, []) if isinstance(each, Answer)]
    assert answers == [Answer(1, count)]


def test_what_ends_meanwhile_is_not_counted() -> None:
    house = House()
    for link in (ONE, THREE):
        for key in range(2 * SLICE):
            house.say(link, Subscribe(key, key, f"x > {key + 1}"))
    house.say(TWO, Cancel(1, "x > 0"))
    house.say(ONE, Unsubscribe(0, 2 * SLICE - 1))
    house.say(THREE, Bye("closed"))
    said = [message for turn in house.ticks() for message in turn.get(TWO, [])]
    assert Answer(1, 2 * SLICE - 1) in said


def test_who_asked_may_leave_before_the_answer() -> None:
    house = House()
    for key in range(2 * SLICE):
        house.say(ONE, Subscribe(key, key, f"x > {key + 1}"))
    house.say(TWO, Cancel(1, "x > 0"))
    house.say(TWO, Bye("closed"))
    assert all(TWO not in turn for turn in house.ticks())
    assert house.hears({"x": 1_000_000}) == {}


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_so_many_cancellations_of_a_session_are_under_way_and_no_more(
    monkeypatch: pytest.MonkeyPatch, over: int
) -> None:
    monkeypatch.setattr(cancelling, "CANCEL_SLICE", 0)
    house = House()
    for key in range(MAX_CANCELS + 2):
        house.say(ONE, Subscribe(key, key, "y = 1"))
    said = [house.say(TWO, Cancel(1 + each, "x > 0")) for each in range(MAX_CANCELS + over)]
    refused = [each for turn in said for each in turn if isinstance(each, Failed)]
    assert [each.failure.details.get("limit") for each in refused] == ["MAX_CANCELS"] * (over > 0)
    answers = [each for turn in house.ticks() for each in turn.get(TWO, [])]
    assert sum(isinstance(each, Answer) for each in answers) == min(MAX_CANCELS, MAX_CANCELS + over)
