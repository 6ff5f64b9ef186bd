"""From where sessions publish and advertise: each for itself, or together under an identity."""

from __future__ import annotations

from typing import Any, Final

import pytest

from palio.model.events import to_batches
from palio.model.filters import TRUE
from palio.node import publisher_endpoints
from palio.node.authority import NamedAuthority, Principal
from palio.node.effects import Moment, Send
from palio.node.limits import MAX_ADVERTISEMENTS
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import (
    Accepted,
    Advertise,
    Bye,
    Deliver,
    Done,
    Failed,
    Hello,
    Message,
    Parcel,
    Publish,
    Refused,
    Subscribe,
    Unadvertise,
    Welcome,
    Withdraw,
    Withdrawn,
)
from palio.routing.acyclic import Acyclic
from palio.routing.advertised import Advertised

NOW: Final = Moment(1.0, 1_000_000)
LISTENER, ONE, TWO, OTHER = range(1, 5)


class House:
    """A broker with a listener to everything; `ONE` and `TWO` act as ann, `OTHER` as nobody."""

    def __init__(self, **options: Any) -> None:
        self.node = Node("b1", Advertised("b1"), MemoryStore(), **options)
        self.node.start(NOW)
        self.numbers = dict.fromkeys((ONE, TWO, OTHER), 0)
        self.greet(LISTENER, "listener")
        self.say(LISTENER, Subscribe(1, 1, "TRUE"))
        self.greet(ONE, "one", "ann")
        self.greet(TWO, "two", "ann")
        self.greet(OTHER, "other")

    def greet(
        self, link: int, name: str, identity: str = "", *, session: str = "", proven: str = ""
    ) -> list[Message]:
        self.node.accept(link, NOW, proven)
        hello = Hello("client", name, PROTOCOL_VERSION, session=session, identity=identity)
        return self.say(link, hello)

    def say(self, link: int, message: Message, *, hearer: int = 0) -> list[Message]:
        """What one hears of what one says, or what another `hearer` does."""
        effects = self.node.receive(link, message, NOW)
        sends = [each for each in effects if isinstance(each, Send)]
        return [each.message for each in sends if each.link == (hearer or link)]

    def delivers(self, link: int, *xs: int) -> list[int]:
        """Which events come to the listener when one publishes them."""
        first = self.numbers[link] + 1
        self.numbers[link] += len(xs)
        (batch,) = to_batches([{"x": x} for x in xs])
        said = self.say(link, Publish(Parcel("", batch), first), hearer=LISTENER)
        parcels = [each.parcel for each in said if isinstance(each, Deliver)]
        return [row["x"] for parcel in parcels for row in parcel.rows]


def test_what_one_session_of_an_identity_advertises_another_publishes() -> None:
    house = House()
    assert house.say(ONE, Advertise(1, 1, "x > 0")) == [Done(1)]
    assert house.delivers(TWO, 1, -1, 2) == [1, 2]
    assert house.delivers(ONE, 3) == [3]
    assert house.delivers(OTHER, 4) == []


def test_what_nobody_advertised_is_refused_and_the_rest_published() -> None:
    house = House()
    house.say(ONE, Advertise(1, 1, "x > 0"))
    (batch,) = to_batches([{"x": x} for x in (1, -1, -2, 3, -4)])
    first, second, accepted = house.say(TWO, Publish(Parcel("", batch), 11))
    assert isinstance(first, Refused)
    assert isinstance(second, Refused)
    assert [(each.first_seq, each.last_seq) for each in (first, second)] == [(12, 13), (15, 15)]
    assert first.failure.kind == "NotAdvertised"
    assert first.failure.details == {"count": 3, "of": 5}
    assert "3 of 5 events were not published" in first.failure.message
    assert "identity 'ann'" in first.failure.message
    assert accepted == Accepted(15, "memory")


@pytest.mark.parametrize("durable", [False, True])
def test_who_advertises_nothing_publishes_nothing(durable: bool) -> None:
    house = House()
    (batch,) = to_batches([{"x": 1}])
    refused, accepted = house.say(OTHER, Publish(Parcel("", batch), 1, durable))
    assert isinstance(refused, Refused)
    assert "advertisement of this session" in refused.failure.message
    assert accepted == Accepted(1, "durable" if durable else "memory")


def test_an_advertisement_ends_with_the_session_that_made_it() -> None:
    house = House()
    house.say(ONE, Advertise(1, 1, "x > 0"))
    house.say(TWO, Advertise(1, 1, "x > 5"))
    assert house.delivers(TWO, 1, 6) == [1, 6]
    house.say(ONE, Bye("closed"))
    assert house.delivers(TWO, 1, 6) == [6]
    house.say(TWO, Bye("closed"))
    house.greet(ONE, "one", "ann")
    assert house.delivers(ONE, 6) == []


def test_two_sessions_advertise_the_same_and_each_withdraws_its_own() -> None:
    house = House()
    house.say(ONE, Advertise(1, 1, "x > 0"))
    house.say(TWO, Advertise(1, 1, "x > 0"))
    house.say(ONE, Unadvertise(2, 1))
    assert house.delivers(ONE, 1) == [1]
    house.say(TWO, Unadvertise(2, 1))
    assert house.delivers(ONE, 1) == []


def test_an_advertisement_under_a_key_in_use_replaces_the_one_before() -> None:
    house = House()
    house.say(ONE, Advertise(1, 1, "x > 0"))
    house.say(ONE, Advertise(2, 1, "x > 5"))
    assert house.delivers(TWO, 1, 6) == [6]


def test_withdrawing_ends_all_that_is_covered_whoever_announced_it() -> None:
    house = House()
    for key, text in enumerate(["x > 5", "x > 0", "x < -5"]):
        house.say(ONE, Advertise(key, key, text))
    house.say(TWO, Advertise(9, 7, "x > 8"))
    house.say(OTHER, Advertise(1, 1, "x > 5"))
    assert house.say(TWO, Withdraw(10, "x > 3")) == [Withdrawn((7,)), Done(10)]
    assert house.delivers(TWO, 9) == [9]  # x > 0 is wider
    assert house.say(TWO, Withdraw(11, "x > 0"), hearer=ONE) == [Withdrawn((1,))]
    assert house.delivers(TWO, 9, -9) == [-9]
    assert house.delivers(OTHER, 9) == [9]  # who is nobody of ann's


def test_who_has_advertised_and_published_nothing_withdraws_too() -> None:
    house = House()
    house.say(ONE, Advertise(1, 1, "x > 0"))
    assert house.say(TWO, Withdraw(1, "EXISTS x"), hearer=ONE) == [Withdrawn((1,))]


def test_without_an_identity_one_withdraws_ones_own() -> None:
    house = House()
    assert house.say(OTHER, Withdraw(1, "x > 0")) == [Done(1)]
    house.say(OTHER, Advertise(2, 1, "x > 0"))
    house.say(ONE, Advertise(3, 1, "x > 0"))
    assert house.say(OTHER, Withdraw(4, "EXISTS x")) == [Withdrawn((1,)), Done(4)]
    assert house.delivers(OTHER, 1) == []
    assert house.delivers(ONE, 1) == [1]


@pytest.mark.parametrize("request_", [Advertise(1, 1, "x > 0"), Withdraw(1, "x > 0")])
def test_where_advertisements_mean_nothing_none_is_withdrawn(request_: Message) -> None:
    node = Node("b1", Acyclic("b1"), MemoryStore())
    node.start(NOW)
    node.accept(ONE, NOW)
    node.receive(ONE, Hello("client", "one", PROTOCOL_VERSION), NOW)
    (said,) = node.receive(ONE, request_, NOW)
    assert isinstance(said, Send)
    assert isinstance(said.message, Failed)
    assert said.message.failure.kind == "NotSupported"


def test_a_session_goes_on_under_its_identity_only() -> None:
    house = House()
    house.say(ONE, Advertise(1, 1, "x > 0"))
    (welcome,) = house.greet(5, "two", "ann")
    assert isinstance(welcome, Welcome)
    assert not welcome.resumed
    house.node.lost(5, NOW)
    for identity, is_resumed in (("bob", False), ("", False), ("ann", True)):
        (again,) = house.greet(6, "two", identity, session=welcome.session)
        assert isinstance(again, Welcome)
        assert again.resumed == is_resumed
        house.node.lost(6, NOW)


def test_who_shows_who_it_is_acts_under_its_own_name() -> None:
    principals = {name: Principal(name, TRUE, TRUE) for name in ("ann", "bob")}
    node = Node("b1", Advertised("b1"), MemoryStore(), authority=NamedAuthority(principals))
    node.start(NOW)
    node.accept(ONE, NOW, "ann")
    welcome, *_ = node.receive(ONE, Hello("client", "x", PROTOCOL_VERSION, identity="ann"), NOW)
    assert isinstance(welcome, Send)
    assert isinstance(welcome.message, Welcome)
    node.accept(TWO, NOW, "bob")
    effects = node.receive(TWO, Hello("client", "x", PROTOCOL_VERSION, identity="ann"), NOW)
    byes = [each.message for each in effects if isinstance(each, Send)]
    (bye,) = (each for each in byes if isinstance(each, Bye))
    assert bye.code == "NotPermitted"
    assert "'bob' may not act as 'ann'" in bye.reason


@pytest.mark.parametrize("identity", ["a/b", " ann", "x" * 201])
def test_an_identity_is_a_name(identity: str) -> None:
    house = House()
    (said,) = house.greet(5, "x", identity)
    assert isinstance(said, Bye)


def test_an_identity_advertises_so_much_at_a_broker() -> None:
    house = House()
    said: list[Message] = []
    for key in range(MAX_ADVERTISEMENTS):
        said = house.say(ONE, Advertise(key, key, f"x = {key} AND y = 1"))
    assert said == [Done(MAX_ADVERTISEMENTS - 1)]
    assert house.say(ONE, Advertise(1, 0, "x > 0")) == [Done(1)]  # in place of another
    (failed,) = house.say(TWO, Advertise(2, 1, "x = 1"))
    assert isinstance(failed, Failed)
    assert failed.failure.details["limit"] == "MAX_ADVERTISEMENTS"
    house.say(ONE, Unadvertise(3, 5))
    assert house.say(TWO, Advertise(4, 1, "x = 1")) == [Done(4)]


def test_what_takes_too_long_to_withdraw_is_refused_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One client would else hold a broker for seconds, with a thousand lists against a pattern."""
    house = House()
    for key in range(3):
        house.say(ONE, Advertise(key + 1, key, f"x > {key}"))
    most = 0
    while True:
        monkeypatch.setattr(publisher_endpoints, "MAX_WITHDRAW_COMPARISONS", most)
        said = house.say(TWO, Withdraw(10 + most, "EXISTS x"))
        refused = [each.failure for each in said if isinstance(each, Failed)]
        if not refused:
            break
        assert refused[0].kind == "LimitExceeded"
        assert "withdraw one by one" in refused[0].message
        assert house.delivers(TWO, 5) == [5]  # all go on
        most += 1
    assert most > 3
    assert Done(10 + most) in said
    assert house.delivers(TWO, 5) == []
