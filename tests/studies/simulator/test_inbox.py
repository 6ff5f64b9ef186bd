"""What waits for a busy broker, and for how long."""

from __future__ import annotations

from palio.model.row_parcels import RowParcel
from palio.routing.acyclic import Acyclic
from palio.routing.messages import Batch, Update
from palio.routing.protocol import Peer
from palio.simulation import line
from palio_studies.simulator import Network
from palio_studies.simulator.inbox import Envelope, Inbox, Service

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
    waiting = [inbox.take().message for _ in range(len(inbox))]
    assert [isinstance(each, Batch) for each in waiting] == [True, False, True]


def test_without_joining_all_wait_for_themselves() -> None:
    inbox = Inbox(joining=False)
    inbox.put(update(ALICE, 1))
    inbox.put(update(ALICE, 2))
    assert len(inbox) == 2


EVENT_US = 1_000
REQUEST_US = 50_000


class Divided:
    """Events and requests wait in lines of their own, or in one."""

    def __init__(self, *, lines: int) -> None:
        self.lines = lines

    def line(self, letter: Envelope) -> int:
        return int(isinstance(letter.message, RowParcel)) % self.lines

    def time_us(self, broker: str, letter: Envelope) -> int:
        assert broker == "b1"
        return EVENT_US if isinstance(letter.message, RowParcel) else REQUEST_US


def heard_ms(service: Service) -> float:
    """How long an event takes that comes when its broker begins to work on a request."""
    network = Network.of(line(1), Acyclic, service=service)
    alice, bob = network.client("alice", "b1"), network.client("bob", "b1")
    alice.subscribe("x = 1")
    network.run()
    start_us = network.agenda.now_us
    bob.subscribe("x = 2")
    bob.publish({"x": 1})
    network.run()
    (delivery,) = alice.received
    return (delivery.time_us - start_us) / 1000


def test_of_one_line_a_broker_works_on_one_message_at_a_time() -> None:
    assert heard_ms(Divided(lines=1)) == (REQUEST_US + EVENT_US) / 1000


def test_what_waits_in_another_line_is_not_waited_for() -> None:
    assert heard_ms(Divided(lines=2)) == EVENT_US / 1000


def test_a_broker_that_crashes_loses_what_waits_in_all_of_its_lines() -> None:
    network = Network.of(line(1), Acyclic, service=Divided(lines=2))
    alice = network.client("alice", "b1")
    alice.subscribe("x = 1")
    alice.subscribe("x = 2")
    alice.publish({"x": 1})
    alice.publish({"x": 1})
    network.crash("b1")
    network.run()
    assert network.costs.lost == 4
    assert network.costs.steps == 0
