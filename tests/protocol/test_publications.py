from __future__ import annotations

import pytest

from palio.errors import Closed, NotPermitted, PalioError, Unreachable
from palio.model.events import to_batches
from palio.protocol.messages import Accepted, Failure, Message, Parcel, Publish, Refused, StoredAt
from palio.protocol.publications import Publications
from palio.simulation.member import Publication


class Sender:
    """Publications, what was sent of them, and their receipts."""

    def __init__(self, window: int = 1 << 20) -> None:
        self.sent: list[Message] = []
        self.publications = Publications(self.sent.append, window=window)

    def publish(self, *sizes: int, durable: bool = False) -> Publication:
        """Publish so many events, a part after another."""
        first = self.publications.next
        receipt = Publication(first, first + sum(sizes) - 1, durable=durable, now=lambda: 0.0)
        for place, size in enumerate(sizes, start=1):
            self.publish_part(receipt, size, is_last=place == len(sizes))
        return receipt

    def publish_part(self, receipt: Publication, size: int, *, is_last: bool) -> None:
        (batch,) = to_batches([{"x": n} for n in range(size)])
        parcel, durable = Parcel.of("", batch), receipt.durable
        self.publications.publish(parcel, [receipt], durable=durable, is_last=is_last)

    def take_sent(self) -> list[tuple[int, StoredAt]]:
        """Numbers and level of what was sent since the last call."""
        sent = [(each.first_seq, each.durable) for each in self.sent if isinstance(each, Publish)]
        self.sent.clear()
        return sent


def test_each_level_is_answered_up_to_a_number() -> None:
    sender = Sender()
    light, durable, later = sender.publish(2), sender.publish(3, durable=True), sender.publish(1)
    assert sender.take_sent() == [(1, False), (3, True), (6, False)]
    sender.publications.accepted(Accepted(5, "memory"))
    assert (light.levels, durable.levels, later.levels) == (["memory"], [], [])
    sender.publications.accepted(Accepted(6, "memory"))
    sender.publications.accepted(Accepted(5, "durable"))
    assert (durable.levels, later.levels) == (["durable"], ["memory"])
    assert sender.publications.is_idle


def test_what_is_refused_is_told_to_whom_it_concerns() -> None:
    sender = Sender()
    receipts = [sender.publish(2) for _ in range(3)]
    refused = Refused(2, 3, Failure("NotPermitted", "no"))
    sender.publications.refused(refused)
    assert [each.refused for each in receipts] == [[refused], [refused], []]


def test_there_is_room_up_to_the_window() -> None:
    sender = Sender()
    sender.publish(1)
    one = sender.publications._unanswered_bytes
    for window, has_room in ((one, False), (one + 1, True)):
        sender = Sender(window)
        assert sender.publications.has_room
        sender.publish(1)
        assert sender.publications.has_room is has_room
        sender.publications.accepted(Accepted(1, "memory"))
        assert sender.publications.has_room


def test_while_a_client_moves_only_the_broker_that_is_left_answers() -> None:
    sender = Sender()
    publications = sender.publications
    first, second = sender.publish(1), sender.publish(1)
    stored, durable = sender.publish(1, durable=True), sender.publish(1, durable=True)
    sender.take_sent()
    publications.cross()
    new = sender.publish(1)
    assert sender.take_sent() == [], "it would overtake what went by the other broker"
    publications.accepted(Accepted(3, "durable"), behind=True)
    publications.accepted(Accepted(1, "memory"), behind=True)
    publications.refused(Refused(2, 2, Failure("NotPermitted", "no")), behind=True)
    assert (first.levels, len(second.refused), stored.levels) == (["memory"], 1, ["durable"])
    assert publications.oldest == 2
    publications.left()
    assert (second.levels, type(second.error)) == ([""], Unreachable)
    assert sender.take_sent() == [(4, True), (5, False)]
    publications.accepted(Accepted(5, "memory"))
    publications.accepted(Accepted(4, "durable"))
    assert (durable.levels, new.levels) == (["durable"], ["memory"])
    assert publications.is_idle


def test_a_session_that_is_lost_while_another_is_left_loses_what_was_sent() -> None:
    sender = Sender()
    sent = sender.publish(1)
    sender.take_sent()
    sender.publications.cross()
    waiting = sender.publish(1)
    sender.publications.renew()
    assert (sent.levels, waiting.levels) == ([""], [])
    assert sender.take_sent() == [(2, False)]


def test_a_move_that_comes_to_nothing_sends_nothing_again() -> None:
    sender = Sender()
    for durable in (True, False):
        sender.publish(1, durable=durable)
    sender.take_sent()
    sender.publications.left()
    assert sender.take_sent() == []


def test_what_was_published_before_the_first_session_goes_in_order() -> None:
    sender = Sender()
    for durable in (True, False, True):
        sender.publish(1, durable=durable)
    sender.take_sent()
    sender.publications.begin()
    assert sender.take_sent() == [(1, True), (2, False), (3, True)]


@pytest.mark.parametrize("durable", [False, True])
def test_a_publication_in_parts_is_answered_once_and_after_its_error(durable: bool) -> None:
    sender = Sender()
    publications, error = sender.publications, NotPermitted("no")
    receipt = Publication(1, 2, durable=durable, now=lambda: 0.0)
    sender.publish_part(receipt, 1, is_last=False)
    publications.end(error)
    assert (receipt.error, receipt.levels) == (error, []), "its last part is not here yet"
    sender.publish_part(receipt, 1, is_last=True)
    publications.end(Closed("over"))
    assert receipt.levels == [""]
    assert publications.is_idle
    assert publications.has_room


def test_the_end_answers_each_receipt_once() -> None:
    sender = Sender()
    receipts = [sender.publish(1, 1, 1), sender.publish(2, durable=True)]
    error: PalioError = Closed("over")
    sender.publications.end(error)
    sender.publications.end(error)
    assert [(each.error, each.levels) for each in receipts] == [(error, [""])] * 2
