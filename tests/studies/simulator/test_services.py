from __future__ import annotations

from palio.language.parsing import parse_filter
from palio.model.row_parcels import RowParcel
from palio.routing.acyclic import Acyclic
from palio.routing.messages import Batch, Subscribe
from palio.routing.protocol import Peer
from palio.simulation import line
from palio_studies.simulator import Network
from palio_studies.simulator.inbox import Envelope
from palio_studies.simulator.services import Service, SteadyService

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


def test_a_steady_service_takes_as_long_for_each_request() -> None:
    requests = tuple(Subscribe(key, parse_filter(f"x = {key}")) for key in range(3))
    service = SteadyService(100)
    alice = Peer.client("alice")
    asked = Envelope("alice", alice, 0, Batch(requests))
    said = Envelope("alice", alice, 0, RowParcel("alice", [{"x": 1}]))
    assert service.time_us("b1", asked) == 300
    assert service.line(asked) == service.line(said)
