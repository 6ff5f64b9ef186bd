"""Messages that are handed over part by part count once, and as they are as a whole."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from palio.language.parsing import parse_filter
from palio.model.masks import pack_mask, unpack_mask
from palio.node.authority import Limits, NamedAuthority, Principal
from palio.node.effects import Close, Effect, Send
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import (
    Accepted,
    Deliver,
    Forward,
    Hello,
    Message,
    Parcel,
    Publish,
    Refused,
    Welcome,
)
from palio.routing.acyclic import Acyclic
from palio.routing.protocol import SelectorFactory
from palio.routing.reference_selector import ReferenceSelector
from tests.node.served import AT, SELECTORS, Served


def in_parts(served: Served, link: int, message: Message, *ends: int) -> list[Effect]:
    """Hand a message in part by part, and then the rest."""
    effects = [each for end in ends for each in served.say(link, message, end)]
    return effects + served.say(link, message)


def heard_at(effects: list[Effect], link: int) -> list[tuple[int, int]]:
    """The events and their numbers. Each part has a time of its own."""
    return [
        (event["x"], event["$seq"])
        for each in effects
        if isinstance(each, Send) and each.link == link
        if isinstance(each.message, Deliver | Forward)
        for event in each.message.parcel.select(
            unpack_mask(each.message.rows, len(each.message.parcel))
        ).batch.to_pylist()
    ]


@pytest.mark.parametrize("selector", SELECTORS, ids=["rows", "index"])
@pytest.mark.parametrize("ends", [(1,), (5,), (3, 4, 9), (9, 9)])
@pytest.mark.parametrize("durable", [False, True])
def test_a_publication_in_parts_is_heard_as_it_is_as_one(
    selector: SelectorFactory, ends: tuple[int, ...], durable: bool
) -> None:
    whole, parts = Served(selector, ["x > 2", "x < 8"]), Served(selector, ["x > 2", "x < 8"])
    message = Publish(Parcel("", pa.record_batch({"x": range(10)})), 1, durable)
    expected, found = whole.say(0, message), in_parts(parts, 0, message, *ends)
    for link in (1, 2, 3):
        assert heard_at(found, link) == heard_at(expected, link) != []
    answers = [each.message for each in found if isinstance(each, Send) and each.link == 0]
    assert answers[-1] == Accepted(10, "durable" if durable else "memory")
    assert parts.node.status()["published"] == 10
    again = parts.say(0, message)  # number 1 was published before
    assert [type(each) for each in again][-1] is Close


def test_what_was_taken_of_a_message_is_not_taken_again_when_it_comes_again() -> None:
    served = Served(ReferenceSelector, ["TRUE"])
    session = served.welcome.session
    message = Publish(Parcel("", pa.record_batch({"x": range(10)})), 1)
    effects = served.node.receive(0, message, AT, up_to=4)
    served.node.lost(0, AT)
    served.node.accept(7, AT)
    greeting = Hello("client", "p", PROTOCOL_VERSION, incarnation="x", session=session)
    (welcome,) = [each.message for each in served.say(7, greeting) if isinstance(each, Send)][:1]
    assert isinstance(welcome, Welcome)
    assert (welcome.resumed, welcome.received) == (True, 0)
    effects += in_parts(served, 7, message, 2, 6)
    assert heard_at(effects, 1) == [(x, 1 + x) for x in range(10)]
    effects = served.say(7, Publish(Parcel("", pa.record_batch({"x": [77]})), 11))
    assert heard_at(effects, 1) == [(77, 11)]


def test_a_neighbours_message_in_parts_is_passed_on_once_each_row() -> None:
    served = Served(ReferenceSelector, ["TRUE"])
    parcel = Parcel("", pa.record_batch({"x": range(10)})).stamped("q/1", 1, 1)
    rows = pack_mask(np.arange(10) != 5)
    effects = in_parts(served, 3, Forward(parcel, rows), 4, 4, 5, 6)
    assert heard_at(effects, 1) == [(x, 1 + x) for x in range(10) if x != 5]


def test_what_was_taken_of_one_message_is_not_left_out_of_another() -> None:
    served = Served(ReferenceSelector, ["TRUE"])
    first, other = (
        Parcel("", pa.record_batch({"x": range(10)})).stamped(publisher, 1, 1)
        for publisher in ("q/1", "r/1")
    )
    effects = served.node.receive(3, Forward(first), AT, up_to=4)
    effects += served.say(3, Forward(other))  # the first was taken out of the session
    assert heard_at(effects, 1) == [(x, 1 + x) for x in [*range(4), *range(10)]]


def test_what_comes_in_the_stead_of_a_message_that_was_admitted_is_looked_at() -> None:
    served = Served(ReferenceSelector, ["TRUE"])
    first, other = (
        Publish(
            Parcel("", pa.record_batch({"t": pa.array([us, us], pa.timestamp("us", "UTC"))})), 1
        )
        for us in (0, 1 << 62)
    )
    served.node.receive(0, first, AT, up_to=1)
    refused, accepted = [each.message for each in served.say(0, other) if isinstance(each, Send)]
    assert isinstance(refused, Refused)
    assert (refused.first_seq, refused.last_seq) == (2, 2)
    assert accepted == Accepted(2, "memory")


def test_a_publication_that_is_too_much_is_refused_as_a_whole() -> None:
    granted = Principal("p", parse_filter("TRUE"), limits=Limits(events_per_s=2))
    node = Node("b1", Acyclic("b1"), MemoryStore(), authority=NamedAuthority({"p": granted}))
    node.start(AT)
    node.accept(1, AT, "p")
    node.receive(1, Hello("client", "p", PROTOCOL_VERSION, incarnation="x"), AT)

    def answers(first: int, *ends: int) -> list[Message]:
        message = Publish(Parcel("", pa.record_batch({"x": range(10)})), first)
        effects = [each for end in ends for each in node.receive(1, message, AT, up_to=end)]
        effects += node.receive(1, message, AT)
        return [each.message for each in effects if isinstance(each, Send)]

    assert answers(1, 4) == [Accepted(4, "memory"), Accepted(10, "memory")]
    refused, accepted = answers(11, 4, 7)
    assert isinstance(refused, Refused)
    assert (refused.first_seq, refused.last_seq, refused.failure.kind) == (11, 20, "NotPermitted")
    assert accepted == Accepted(20, "memory")
