"""What waits for a busy broker."""

from __future__ import annotations

from palio.model.row_parcels import RowParcel
from palio.routing.messages import Batch, Update
from palio.routing.protocol import Peer
from palio_studies.simulator.inbox import Envelope, Inbox, work_of

ALICE, BOB = Peer.client("alice"), Peer.client("bob")


def update(sender: Peer, version: int, epoch: int = 0) -> Envelope:
    return Envelope(sender.name, sender, epoch, Batch((Update(0, {"x": version}, version),)))


def test_waiting_batches_of_one_sender_and_link_become_one() -> None:
    inbox = Inbox(joining=True)
    for letter in (update(ALICE, 1), update(BOB, 1), update(ALICE, 2), update(ALICE, 3, epoch=1)):
        inbox.put(letter)
    assert [inbox.take().message for _ in range(len(inbox))] == [
        Batch((Update(0, {"x": 2}, 2),)),
        Batch((Update(0, {"x": 1}, 1),)),
        Batch((Update(0, {"x": 3}, 3),)),
    ]


def test_events_between_keep_batches_apart() -> None:
    inbox = Inbox(joining=True)
    inbox.put(update(ALICE, 1))
    inbox.put(Envelope("alice", ALICE, 0, RowParcel("alice", [{"a": 1}, {"a": 2}])))
    inbox.put(update(ALICE, 2))
    assert [work_of(inbox.take().message) for _ in range(len(inbox))] == [1, 2, 1]


def test_without_joining_all_wait_for_themselves() -> None:
    inbox = Inbox(joining=False)
    inbox.put(update(ALICE, 1))
    inbox.put(update(ALICE, 2))
    assert len(inbox) == 2
