"""A request is in force when it is answered by `Done`, and without effect when by `Failed`."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, Final

import pytest

import palio
from palio.model.events import to_batches
from palio.model.filters import FALSE, TRUE
from palio.multicast.documents import pack
from palio.multicast.listed import flooding
from palio.node import consumers, durability, requests
from palio.node.authority import NamedAuthority, Principal
from palio.node.effects import Effect, Moment, Send
from palio.node.fact_verifier import PLAN
from palio.node.limits import MAX_RELEASES, RELEASE_S, RIPE_S
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.operations import Ack, Append, Discard, Put
from palio.node.settings import Settings
from palio.protocol.limits import MAX_NAME_BYTES, PROTOCOL_VERSION, TOGETHER_CHARS
from palio.protocol.messages import (
    Acknowledge,
    Advertise,
    Apply,
    Bookmarked,
    Bye,
    Deliver,
    Done,
    Failed,
    Gap,
    Gaps,
    Hello,
    Message,
    Parcel,
    Publish,
    Query,
    RemoveBroker,
    Replace,
    Settle,
    StreamAck,
    Subscribe,
    SubscribeAll,
    Unadvertise,
    Unsubscribe,
    Update,
)
from palio.routing.acyclic import Acyclic
from palio.routing.flooded import Flooded
from palio.routing.patterns import legal
from palio.routing.patterns.router import Patterned
from palio.routing.protocol import Router

AT: Final = Moment(1.0, 1_000_000)
ALICE, BOB = 1, 2
PLAN_TEXT: Final = pack(flooding(("b1", "b2")))


class House:
    """A broker with two clients, whose disk answers when the test says so."""

    def __init__(
        self, store: MemoryStore | None = None, router: Router | None = None, **options: Any
    ) -> None:
        self.store = store or MemoryStore()
        self.node = Node("b1", router or Acyclic("b1"), self.store, **options)
        self.appends: list[Append] = []
        self.published = 0
        self.at = AT
        self.note(self.node.start(AT))
        for link, name in ((ALICE, "alice"), (BOB, "bob")):
            self.note(self.node.accept(link, AT, name))
            self.say(link, Hello("client", name, PROTOCOL_VERSION, incarnation="x"))
        self.write()

    def note(self, effects: list[Effect]) -> list[Effect]:
        self.appends += [each for each in effects if isinstance(each, Append)]
        return effects

    def say(self, link: int, message: Message) -> list[Message]:
        """What the client that says something hears at once."""
        return heard(self.note(self.node.receive(link, message, self.at)), link)

    def write(self, link: int = ALICE) -> list[Message]:
        """All that waits comes to the disk; what a client hears of it."""
        said: list[Message] = []
        while self.appends:
            append = self.appends.pop(0)
            self.store.write((*append.released, *append.operations))
            said += heard(self.note(self.node.stored(append.ticket, self.at)), link)
        return said

    def fill(self, link: int = ALICE) -> list[Message]:
        """The disk is full: nothing of what waits is written; what a client hears of it."""
        said: list[Message] = []
        pending, self.appends = self.appends, []
        for ticket, *_ in pending:
            said += heard(self.note(self.node.failed(ticket, "no space", self.at)), link)
        return said

    def recover(self) -> None:
        """The disk takes writes again."""
        self.note(self.node.writable(self.at))

    def wait(self, seconds: float) -> list[Message]:
        """Time passes, and all that is due is written; what Alice hears of it."""
        until, said = self.at.now + seconds, list[Message]()
        while self.at.now < until:
            self.at = self.at._replace(now=max(self.at.now, min(until, self.node.wake_at)))
            said += heard(self.note(self.node.tick(self.at)), ALICE)
            said += self.write()
        return said

    def publish(self, x: int, *, by: int = BOB, durable: bool = False) -> list[Effect]:
        self.published += 1
        (batch,) = to_batches([{"x": x}])
        parcel = Parcel("", batch)
        publish = Publish(parcel, self.published, durable)
        return self.note(self.node.receive(by, publish, self.at))

    def hears(self, *xs: int, link: int = ALICE, by: int = BOB) -> list[int]:
        """Which of some events a client gets when another one publishes them."""
        got: list[int] = []
        for x in xs:
            got += [
                int(x)
                for each in heard(self.publish(x, by=by), link)
                if isinstance(each, Deliver)
                for x in each.parcel.batch.column("x").to_numpy()
            ]
        return got


def heard(effects: list[Effect], link: int) -> list[Message]:
    return [each.message for each in effects if isinstance(each, Send) and each.link == link]


def refused(said: list[Message], kind: str) -> Failed:
    (failed,) = said
    assert isinstance(failed, Failed)
    assert failed.failure.kind == kind
    return failed


# --- subscriptions ---


def test_a_subscription_is_in_force_when_it_is_answered() -> None:
    house = House()
    assert house.say(ALICE, Subscribe(5, 1, "x > :low", {"low": 2})) == [Done(5)]
    assert house.hears(1, 2, 3) == [3]
    assert house.say(ALICE, Update(6, 1, {"low": 0})) == [Done(6)]
    assert house.hears(1, 2, 3) == [1, 2, 3]
    assert house.say(ALICE, Replace(7, 1, "x = 2")) == [Done(7)]
    assert house.hears(1, 2, 3) == [2]
    assert house.say(ALICE, Unsubscribe(8, 1)) == [Done(8)]
    assert house.hears(1, 2, 3) == []


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (Subscribe(5, 1, "x = 1"), "IllegalMessage"),
        (Subscribe(5, 2, "x >"), "ParseError"),
        (Subscribe(5, 2, "x > :low"), "InvalidBinding"),
        (Subscribe(5, 2, "x = 1", durable="n" * (MAX_NAME_BYTES + 1)), "LimitExceeded"),
        (Subscribe(5, 2, "x = 1", durable="a/b"), "InvalidInput"),
        (Subscribe(5, 2, "x = 1", durable="a\0b"), "InvalidInput"),
        (Subscribe(5, 2, "x = 1", durable=".."), "InvalidInput"),
        (Subscribe(5, 2, "x = 1", durable="d", lease_s=-1.0), "InvalidInput"),
        (Subscribe(5, 2, "x = 1", durable="d", lease_s=1e308), "InvalidInput"),
        (Subscribe(5, 2, "x = 1", durable="d", lease_s=float("nan")), "InvalidInput"),
        (Update(5, 9, {"low": 1}), "Closed"),
        (Update(5, 1, {"high": 1}), "InvalidBinding"),
        (Update(5, 1, {"low": [1]}), "InvalidBinding"),
        (Update(5, 1, {"low": "a" * 70_000}), "InvalidBinding"),
        (Replace(5, 9, "x = 1"), "Closed"),
        (Replace(5, 1, "x > :high"), "InvalidBinding"),
        (Replace(5, 1, "x >"), "ParseError"),
        (Advertise(5, 1, "x >"), "ParseError"),
        (RemoveBroker(5, "nobody"), "InvalidInput"),
        (RemoveBroker(5, "b1"), "InvalidInput"),
        (Apply(5, "plan"), "NotSupported"),
        (Query(5, "weather"), "InvalidInput"),
        (Query(5, "trace", {"x": [1]}), "InvalidEvent"),
    ],
)
def test_what_is_refused_changes_nothing(request_: Message, kind: str) -> None:
    house = House()
    house.say(ALICE, Subscribe(1, 1, "x > :low", {"low": 1}))
    refused(house.say(ALICE, request_), kind)
    assert house.hears(1, 2) == [2]
    assert house.say(ALICE, Update(6, 1, {"low": 0})) == [Done(6)]  # and the session goes on
    assert house.hears(1, 2) == [1, 2]
    assert not house.store.load().subscriptions


def test_what_is_not_there_may_be_taken_away() -> None:
    house = House()
    assert house.say(ALICE, Unsubscribe(1, 7)) == [Done(1)]
    assert house.say(ALICE, Unadvertise(2, 7)) == [Done(2)]
    assert house.say(ALICE, Acknowledge(7, 1)) == []


def test_subscriptions_of_a_session_have_a_limit() -> None:
    house = House(settings=Settings(max_subscriptions=2))
    assert house.say(ALICE, Subscribe(1, 1, "x = 1")) == [Done(1)]
    assert house.say(ALICE, Subscribe(2, 2, "x = 2")) == [Done(2)]
    failed = refused(house.say(ALICE, Subscribe(3, 3, "x = 3")), "LimitExceeded")
    assert failed.failure.details["limit"] == "MAX_SUBSCRIPTIONS"
    house.say(ALICE, Unsubscribe(4, 1))
    assert house.say(ALICE, Subscribe(5, 3, "x = 3")) == [Done(5)]


def test_settling_is_answered_once_what_was_asked_is_on_the_disk() -> None:
    house = House()
    house.say(ALICE, Subscribe(1, 1, "x = 1", durable="d"))
    assert house.say(ALICE, Settle(2)) == []
    assert house.write()[-1] == Done(2, ())


# --- durable subscriptions ---


def test_a_durable_subscription_is_answered_when_it_is_on_the_disk() -> None:
    house = House()
    assert house.say(ALICE, Subscribe(5, 1, "x > 1", durable="d")) == []
    assert house.write() == [Done(5)]
    (stored,) = house.store.load().subscriptions
    assert (stored.subject, stored.owner, stored.filter) == ("alice/d", "alice", "x > 1")
    assert house.say(ALICE, Replace(6, 1, "x > 2")) == []
    assert house.write() == [Done(6)]
    assert [each.filter for each in house.store.load().subscriptions] == ["x > 2"]


def test_a_durable_subscription_that_cannot_be_written_is_refused_and_gone() -> None:
    house = House()
    house.say(ALICE, Subscribe(5, 1, "x > 1", durable="d"))
    refused(house.fill(), "NotStored")
    assert house.hears(2) == []
    house.write()
    assert house.say(ALICE, Subscribe(6, 1, "x > 1")) == [Done(6)]  # the key is free again
    assert not house.store.load().subscriptions


@pytest.mark.parametrize(
    "change", [Replace(6, 1, "x > 2"), Update(6, 1, {"low": 2})], ids=["replace", "update"]
)
def test_a_change_that_cannot_be_written_is_undone(change: Message) -> None:
    house = House()
    house.say(ALICE, Subscribe(5, 1, "x > :low", {"low": 1}, durable="d"))
    house.write()
    house.say(ALICE, change)
    refused(house.fill(), "NotStored")
    house.write()
    assert house.hears(1, 2) == [2]
    assert [each.filter for each in house.store.load().subscriptions] == ["x > :low"]


def test_whoever_takes_a_durable_subscription_up_has_it_from_then_on() -> None:
    house = House()
    house.say(ALICE, Subscribe(5, 1, "x > 0", durable="d"))
    house.write()
    carol = 3
    house.note(house.node.accept(carol, AT))
    house.say(carol, Hello("client", "alice", PROTOCOL_VERSION, incarnation="y"))
    house.say(carol, Subscribe(6, 1, "x > 0", durable="d"))
    assert house.write(carol) == [Done(6)]
    assert house.hears(1, link=ALICE) == []
    assert house.hears(2, link=carol) == [2]


def test_a_durable_subscription_that_its_owner_has_ended_begins_anew() -> None:
    house = House()
    house.say(ALICE, Subscribe(1, 1, "x > 0", durable="d"))
    house.write()
    house.say(ALICE, Unsubscribe(2, 1, forget=True))
    house.write()
    house.say(ALICE, Subscribe(3, 1, "x > 0", durable="d"))
    assert house.write() == [Done(3)], "nothing is told as lost"
    house.publish(1, durable=True)
    assert [type(each) for each in house.write()] == [Deliver]


def test_a_durable_subscription_whose_lease_is_over_says_so_when_it_is_taken_up() -> None:
    house = House()
    house.say(ALICE, Subscribe(1, 1, "x > 0", durable="d", lease_s=5.0))
    house.write()
    house.say(ALICE, Unsubscribe(2, 1))
    house.publish(1, durable=True)
    house.write()
    house.wait(7.0)
    assert not house.store.held()
    assert house.node.status()["durable_subscriptions"] == 0
    house.say(ALICE, Subscribe(3, 1, "x > 0", durable="d"))
    assert house.write() == [Done(3), Gaps((Gap("*", 0, 0, 0, 1),))]
    house.say(ALICE, Unsubscribe(4, 1))
    house.say(ALICE, Subscribe(5, 1, "x > 0", durable="d"))
    assert house.write() == [Done(5)], "that is told once"


def test_the_end_of_a_durable_subscription_is_answered_when_it_is_on_the_disk() -> None:
    house = House()
    house.say(ALICE, Subscribe(1, 1, "x > 0", durable="d"))
    house.write()
    assert house.say(ALICE, Unsubscribe(2, 1, forget=True)) == []
    assert house.hears(1) == []
    assert house.write() == [Done(2)]
    stored = house.store.load()
    assert not stored.subscriptions
    (said,) = (each for each in stored.facts if each.subject == "alice/d")
    assert (said.filter, said.session_epoch.publisher) == ("", "alice/x"), "others are told when"


def test_an_end_that_cannot_be_written_is_refused_and_undone() -> None:
    house = House()
    house.say(ALICE, Subscribe(1, 1, "x > 0", durable="d"))
    house.write()
    house.say(ALICE, Unsubscribe(2, 1, forget=True))
    refused(house.fill(), "NotStored")
    house.recover()
    house.publish(1, durable=True)
    house.write()
    assert [each.subject for each in house.store.load().subscriptions] == ["alice/d"]
    house.say(ALICE, Subscribe(3, 2, "x > 0", durable="d"))
    done, heard_ = house.write()
    assert (done, isinstance(heard_, Deliver)) == (Done(3), True)
    house.say(ALICE, Unsubscribe(4, 2, forget=True))
    assert house.write() == [Done(4)]
    assert not house.store.load().subscriptions


def test_an_end_of_which_the_network_is_not_told_yet_is_told_once_there_is_room() -> None:
    """The first of two writes comes to the disk: the subscription is over, and that is not told."""
    house = House()
    house.say(ALICE, Subscribe(1, 1, "x > 0", durable="d"))
    house.write()
    house.say(ALICE, Unsubscribe(2, 1, forget=True))
    append = house.appends.pop(0)
    house.store.write(append.operations)
    assert heard(house.note(house.node.stored(append.ticket, AT)), ALICE) == [Done(2)]
    assert house.fill() == []
    assert [each.filter for each in house.store.load().facts if each.subject == "alice/d"] == [
        "x > 0"
    ]
    house.recover()
    house.wait(10.0)
    stored = house.store.load()
    assert not stored.subscriptions
    assert [each.filter for each in stored.facts if each.subject == "alice/d"] == [""]


def test_one_that_is_let_go_and_not_forgotten_waits() -> None:
    house = House()
    house.say(ALICE, Subscribe(1, 1, "x > 0", durable="d"))
    house.write()
    assert house.say(ALICE, Unsubscribe(2, 1)) == [Done(2)]
    assert house.hears(1) == []
    assert [each.subject for each in house.store.load().subscriptions] == ["alice/d"]


def delivered(house: House, *xs: int) -> list[Deliver]:
    """What a durable subscription of Alice's is sent of some events."""
    house.say(ALICE, Subscribe(1, 1, "x > 0", durable="d"))
    house.write()
    for x in xs:
        house.publish(x, durable=True)
    return [each for each in house.write() if isinstance(each, Deliver)]


def test_what_was_acknowledged_is_not_sent_again_and_leaves_the_disk() -> None:
    house = House()
    first, second = delivered(house, 1, 2)
    assert len(house.store.held()) == 2
    house.say(ALICE, Acknowledge(1, first.entry))
    assert house.node.wake_at == AT.now + RELEASE_S
    assert not house.appends, "nobody waits for it"
    house.wait(RELEASE_S)
    assert house.node.wake_at == AT.now + 2 * RELEASE_S, "what nobody needs any more goes then"
    house.wait(RELEASE_S)
    assert house.node.wake_at > AT.now + 3 * RELEASE_S
    assert [each.entry for each in house.store.held()] == [second.entry]
    house.say(ALICE, Subscribe(2, 9, "x > 0", durable="d"))  # taken up anew
    again = [each.entry for each in house.write() if isinstance(each, Deliver)]
    assert again == [second.entry]


def test_an_acknowledgement_is_written_with_what_comes_next() -> None:
    """But not at once: those of some time go together."""
    house = House()
    first, second, _ = delivered(house, 1, 2, 3)
    house.say(ALICE, Acknowledge(1, first.entry))
    over = Discard((first.entry,))  # once it is on the disk that nobody needs it
    for later, written in (
        (0.9 * RIPE_S, ()),
        (RIPE_S, (Ack("alice/d", first.entry),)),
        (RIPE_S, ()),
        (2 * RIPE_S, (over,)),
        (3 * RIPE_S, ()),
    ):
        house.at = AT._replace(now=AT.now + later)
        house.publish(4, durable=True)
        (append,) = house.appends
        assert Put in {type(each) for each in append.operations}
        assert append.released == written
        house.write()
    house.say(ALICE, Acknowledge(1, second.entry))
    house.say(ALICE, Settle(2))
    append = house.appends[0]
    assert append.operations == ()
    assert append.released == (Ack("alice/d", second.entry),)
    assert house.write() == [Done(2)], "settled is who is on the disk"


def test_a_bookmark_is_told_before_anything_else_to_who_takes_up_the_subscription() -> None:
    house = House()
    delivered(house, 1)
    house.say(ALICE, Acknowledge(1, 0, bookmark=b"here"))
    house.publish(2)  # live events are for who is here, at once
    house.say(ALICE, Unsubscribe(2, 1))
    again = [*house.say(ALICE, Subscribe(3, 2, "x > 0", durable="d")), *house.write()]
    kinds = [type(each) for each in again]
    assert (again[0], kinds) == (Bookmarked(2, b"here"), [Bookmarked, Done, Deliver])
    house.say(ALICE, Unsubscribe(4, 2, forget=True))
    again = [*house.say(ALICE, Subscribe(5, 3, "x > 0", durable="d")), *house.write()]
    assert Bookmarked not in {type(each) for each in again}
    house.say(ALICE, Unsubscribe(6, 3))
    again = [*house.say(ALICE, Subscribe(7, 4, "x > 0", durable="d")), *house.write()]
    assert Bookmarked not in {type(each) for each in again}


def test_a_bookmark_stays_where_the_disk_refuses_who_takes_the_subscription_up() -> None:
    house = House()
    delivered(house, 1)
    house.say(ALICE, Acknowledge(1, 0, bookmark=b"here"))
    house.say(ALICE, Unsubscribe(2, 1))
    house.say(ALICE, Subscribe(3, 1, "x > 0", durable="d"))
    refused(house.fill(), "NotStored")
    house.recover()
    assert house.say(ALICE, Subscribe(4, 1, "x > 0", durable="d")) == [Bookmarked(1, b"here")]


def test_what_is_not_acknowledged_holds_up_its_own_queue_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumers, "WINDOW_BYTES", 1)  # one entry at a time
    house = House()
    (first,) = delivered(house, 1, 2, 3)
    assert house.say(ALICE, StreamAck(2)) == [], "the session has room, the subscription has not"
    (second,) = house.say(ALICE, Acknowledge(1, first.entry))
    assert isinstance(second, Deliver)
    (third,) = house.say(ALICE, Acknowledge(1, 0, held=second.entry))
    assert isinstance(third, Deliver)


def test_a_bookmark_without_room_forgets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durability, "MAX_OWN_BOOKMARKS_BYTES", 8)
    house = House()
    (only,) = delivered(house, 1)
    house.say(ALICE, Acknowledge(1, only.entry, bookmark=b"a" * 9))
    house.note(house.node.tick(AT._replace(now=AT.now + RELEASE_S)))
    house.write()
    assert [each.entry for each in house.store.held()] == [only.entry]
    assert house.node.status()["rejections"] == {"bookmark_rejected": 1}
    house.say(ALICE, Acknowledge(1, only.entry, bookmark=b"a" * 8))
    house.note(house.node.tick(AT._replace(now=AT.now + 2 * RELEASE_S)))
    house.write()
    assert house.store.load().bookmarks == {"alice/d": b"a" * 8}


def test_a_subscription_that_ends_takes_its_bookmark_along() -> None:
    house = House()
    delivered(house, 1)
    house.say(ALICE, Acknowledge(1, 0, bookmark=b"here"))
    house.say(ALICE, Unsubscribe(2, 1, forget=True))
    house.write()
    house.wait(RELEASE_S)
    assert not house.store.load().bookmarks


@pytest.mark.parametrize("more", [-1, 0])
def test_of_many_entries_that_are_over_the_journal_is_told_at_once(more: int) -> None:
    house = House()
    sent = delivered(house, *range(1, MAX_RELEASES + more + 1))
    house.say(ALICE, Acknowledge(1, sent[-1].entry))
    house.wait(RELEASE_S)
    due_at = house.node.wake_at
    assert due_at == pytest.approx(house.at.now + (RELEASE_S if more else 0.0))
    house.wait(RELEASE_S)
    assert not house.store.held()


def test_a_broker_that_stops_writes_what_was_acknowledged() -> None:
    house = House()
    (only,) = delivered(house, 1)
    house.say(ALICE, Acknowledge(1, only.entry))
    house.note(house.node.close(AT))
    house.write()
    again = House(house.store)
    again.say(ALICE, Subscribe(2, 1, "x > 0", durable="d"))
    assert again.write() == [Done(2)]
    again.wait(RELEASE_S)
    assert not again.store.held(), "that is found out as it starts"


# --- grants ---


def test_a_subscription_is_narrowed_to_what_its_owner_may_hear() -> None:
    allow_subscribe = palio.parse_filter("x < 3")
    house = House(
        authority=NamedAuthority(
            {
                "alice": Principal("alice", FALSE, allow_subscribe),
                "bob": Principal("bob", TRUE, TRUE),
            }
        )
    )
    assert house.say(ALICE, Subscribe(1, 1, "x > 1")) == [Done(1)]
    assert house.hears(1, 2, 3) == [2]
    refused(house.say(ALICE, Advertise(2, 1, "x > 1")), "NotPermitted")


def test_brokers_are_retired_by_who_may_operate() -> None:
    house = House(
        authority=NamedAuthority(
            {"alice": Principal("alice", TRUE, TRUE), "bob": Principal("bob", may_operate=True)}
        )
    )
    refused(house.say(ALICE, RemoveBroker(1, "b9")), "NotPermitted")
    failed = refused(house.say(BOB, RemoveBroker(1, "b9")), "InvalidInput")
    assert "there is no broker 'b9'" in failed.failure.message


def test_a_plan_is_applied_by_who_may_operate_and_answered_once_it_is_on_the_disk() -> None:
    operator = Principal("bob", may_operate=True)
    authority = NamedAuthority({"alice": Principal("alice", TRUE, TRUE), "bob": operator})
    house = House(router=Flooded("b1"), authority=authority)
    refused(house.say(ALICE, Apply(1, PLAN_TEXT)), "NotPermitted")
    assert house.say(BOB, Apply(1, PLAN_TEXT)) == []
    assert house.write(BOB) == [Done(1)]
    assert house.say(BOB, Apply(2, "")) == []
    assert house.write(BOB) == [Done(2)]
    assert stated(house) == ("", AT.wall_us + 1)
    assert house.say(BOB, Apply(3, PLAN_TEXT)) == []
    assert house.write(BOB) == [Done(3)]
    assert stated(House(house.store)) == (PLAN_TEXT, AT.wall_us + 2)


def stated(house: House) -> tuple[str, int]:
    (fact,) = [each for each in house.store.load().facts if each.subject == PLAN]
    return fact.filter, fact.claimed_us


def test_a_plan_that_cannot_be_written_or_used_is_refused() -> None:
    house = House()
    failed = refused(house.say(ALICE, Apply(1, PLAN_TEXT)), "NotSupported")
    assert "flooded or source-trees" in failed.failure.message
    house = House(router=Flooded("b1"))
    assert house.say(ALICE, Apply(1, PLAN_TEXT)) == []
    refused(house.fill(), "NotStored")
    refused(house.say(ALICE, Apply(2, PLAN_TEXT)), "NotStored")
    house.recover()
    refused(house.say(ALICE, Apply(2, "plan")), "FileDamaged")
    assert house.say(ALICE, Apply(3, PLAN_TEXT)) == []
    assert house.write() == [Done(3)]


# --- subscriptions that come together ---


def all_of(*filters: str, first: int = 1) -> SubscribeAll:
    """Subscriptions under keys from 1 on, with ids from 11 on."""
    numbered = enumerate(filters, start=first)
    return SubscribeAll(tuple(Subscribe(10 + key, key, each) for key, each in numbered))


def test_subscriptions_that_come_together_are_in_force_and_answered_as_one() -> None:
    house = House()
    assert house.say(ALICE, all_of("x = 1", "x = 2", "x > 8")) == [Done(11, others=(12, 13))]
    assert house.hears(1, 2, 3, 9) == [1, 2, 9]
    assert house.say(ALICE, Unsubscribe(20, 2)) == [Done(20)]
    assert house.hears(1, 2) == [1]


def test_of_subscriptions_that_come_together_the_illegal_one_is_refused_alone() -> None:
    house = House()
    house.say(ALICE, Subscribe(1, 2, "x = 7"))
    for wrong, kind in (("x = ", "ParseError"), ("x < :y", "InvalidBinding")):
        requests = all_of("x = 1", "x = 5", wrong).requests  # key 2 is in use
        said = house.say(ALICE, SubscribeAll((*requests, Subscribe(14, 1, "x = 6"))))
        done, in_use, refused, again = said
        assert done == Done(11)
        for each, id, name in (
            (in_use, 12, "IllegalMessage"),
            (refused, 13, kind),
            (again, 14, "IllegalMessage"),
        ):
            assert isinstance(each, Failed)
            assert (each.id, each.failure.kind) == (id, name)
        assert house.hears(1, 5, 6, 7) == [1, 7]
        house.say(ALICE, Unsubscribe(20, 1))


def test_a_limit_counts_each_of_the_subscriptions_that_come_together() -> None:
    house = House(settings=Settings(max_subscriptions=3))
    house.say(ALICE, Subscribe(1, 9, "x = 0"))
    assert house.say(ALICE, all_of("x = 1", "x = 2")) == [Done(11, others=(12,))]
    house.say(ALICE, Unsubscribe(20, 9))
    done, refused = house.say(ALICE, all_of("x = 3", "x = 4", first=3))
    assert done == Done(13)
    assert isinstance(refused, Failed)
    assert (refused.id, refused.failure.details["limit"]) == (14, "MAX_SUBSCRIPTIONS")


def test_where_there_is_no_room_for_a_pattern_what_was_heard_before_is_heard_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(legal, "MAX_DELEGATED", 1)
    house = House(router=Patterned("b1"))
    house.say(BOB, Advertise(1, 1, "EXISTS x"))
    pattern = "x = 1 THEN x = 2"
    assert house.say(ALICE, Subscribe(1, 1, pattern, assembled=True)) == [Done(1)]
    assert house.say(ALICE, Subscribe(2, 2, "x = 5")) == [Done(2)]
    (refused,) = house.say(ALICE, Replace(3, 2, pattern, assembled=True))
    assert isinstance(refused, Failed)
    assert refused.failure.details["limit"] == "MAX_DELEGATED"
    assert house.hears(5, 6) == [5]
    assert house.say(ALICE, Unsubscribe(4, 1)) == [Done(4)]
    assert house.say(ALICE, Replace(5, 2, pattern, assembled=True)) == [Done(5)]
    assert house.hears(5) == []


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_subscriptions_that_come_together_have_so_many_characters_at_the_most(more: int) -> None:
    house = House()
    said = house.say(ALICE, all_of("x = 2", "x = 1".ljust(TOGETHER_CHARS - 5 + more)))
    if more <= 0:
        assert said == [Done(11, others=(12,))]
    else:
        (bye,) = said
        assert isinstance(bye, Bye)
        assert "TOGETHER_CHARS" in bye.reason


def test_a_durable_subscription_comes_by_itself() -> None:
    durable = Subscribe(1, 1, "x = 1", durable="d")
    (bye,) = House().say(ALICE, SubscribeAll((durable,)))
    assert isinstance(bye, Bye)


def residual(number: int) -> str:
    """A filter of cost 5."""
    return f"a > b * {number}"


def test_residuals_have_a_cost_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_PRINCIPAL_COST", 10)
    house = House()
    assert house.say(ALICE, Subscribe(1, 1, residual(2))) == [Done(1)]
    assert house.say(ALICE, Subscribe(2, 2, "a > b")) == [Done(2)]  # 10
    assert house.say(ALICE, Subscribe(3, 3, "x = 3")) == [Done(3)]
    failed = refused(house.say(ALICE, Subscribe(4, 4, "b > a")), "LimitExceeded")
    assert failed.failure.details["limit"] == "MAX_PRINCIPAL_COST"
    refused(house.say(ALICE, Replace(5, 3, "b > a")), "LimitExceeded")
    assert house.say(ALICE, Replace(6, 2, residual(3))) == [Done(6)]  # 10
    house.say(ALICE, Unsubscribe(7, 1))
    assert house.say(ALICE, Subscribe(8, 4, residual(4))) == [Done(8)]
    refused(house.say(ALICE, Subscribe(9, 5, "b > a")), "LimitExceeded")
    listed = Subscribe(10, 6, "a + 1 IN :some", {"some": [1, 2, 3, 4]})
    refused(house.say(ALICE, listed), "LimitExceeded")
    house.say(ALICE, Unsubscribe(11, 4))
    refused(house.say(ALICE, listed), "LimitExceeded")  # its values count
    house.say(ALICE, Unsubscribe(12, 2))
    assert house.say(ALICE, listed) == [Done(10)]


class _Looked(dict[Any, Any]):
    """A mapping that counts how often all of it is gone through."""

    times = 0

    def values(self) -> Any:
        self.times += 1
        return super().values()

    def items(self) -> Any:
        self.times += 1
        return super().items()


def test_a_subscription_is_admitted_without_a_look_at_all_others() -> None:
    house = House()
    core = house.node._core
    (session,) = (each for each in core.sessions.values() if each.link == ALICE)
    session._subscriptions = session.subscriptions = _Looked()  # type: ignore[misc]
    here = core.durability.here = _Looked()
    for number in range(4):
        assert house.say(ALICE, Subscribe(number, number, "a > b")) == [Done(number)]
        house.say(ALICE, Subscribe(9, 100 + number, "x = 1", durable=f"d{number}"))
    assert session._subscriptions.times == here.times == 0


def test_what_is_counted_is_what_a_recount_finds(rng: random.Random) -> None:
    house = House()
    core = house.node._core
    (session,) = (each for each in core.sessions.values() if each.link == ALICE)
    texts = ("a > b", "x = 1", "a + b > 3 OR b > a", "a + 1 IN :some")
    for number in range(300):
        key, text = rng.randrange(8), rng.choice(texts)
        values = {"some": list(range(rng.randint(1, 9)))} if ":" in text else {}
        durable = f"d{key}" if key >= 5 else ""
        request = rng.choice(
            (
                Subscribe(number, key, text, values, durable=durable),
                Replace(number, key, text, values),
                Update(number, key, {"some": list(range(rng.randint(1, 9)))}),
                Unsubscribe(number, key, forget=bool(durable) and rng.random() < 0.5),
            )
        )
        is_new = key not in session.subscriptions
        if is_new == isinstance(request, Subscribe):
            house.say(ALICE, request)
            house.write()
        costs = [each.cost for each in session.subscriptions.values()]
        assert session.cost == sum(costs)
        owners = Counter(each.owner for each in core.durability.here.values())
        assert core.durability.owned == owners
