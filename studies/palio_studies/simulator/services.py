"""How long brokers of the virtual network work on messages, and what waits for what."""

from __future__ import annotations

from typing import Protocol

from palio_studies.simulator.inbox import Envelope, work_of


class Service(Protocol):
    """What a network asks when a message comes to a broker."""

    def line(self, letter: Envelope) -> int:
        """The line in which it waits. A broker works on one message of each line at a time, so two
        lines are two processors.
        """

    def time_us(self, broker: str, letter: Envelope) -> int:
        """How long the broker works on it, asked once, when that begins."""


class SteadyService:
    """One line, and the same time for each request and event.

    >>> from palio.model.row_parcels import RowParcel
    >>> from palio.routing.protocol import Peer
    >>> events = RowParcel("p", [{"x": 1}, {"x": 2}])
    >>> SteadyService(500).time_us("b1", Envelope("p", Peer.client("p"), 0, events))
    1000
    """

    def __init__(self, service_us: int) -> None:
        self._service_us = service_us

    def line(self, letter: Envelope) -> int:
        """See `Service`."""
        del letter
        return 0

    def time_us(self, broker: str, letter: Envelope) -> int:
        """See `Service`."""
        del broker
        return self._service_us * work_of(letter.message)
