"""One sender and its receivers, with nothing but a list between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from palio.model.parcels import Parcel
from palio.model.row_parcels import RowParcel
from palio.multicast.datagrams import Datagram
from palio.multicast.epochs import Epoch
from palio.multicast.inflows import Inflows
from palio.multicast.listed import flooding
from palio.multicast.outflow import ByLinks, FlowState
from palio.multicast.outflows import FlowMessage, Outflows


def event(number: int, size: int = 0) -> RowParcel:
    """The how many-th event of a publisher."""
    return RowParcel("p", [{"x": number, "text": "a" * size}], first_seq=number)


class Pair:
    """A sender `s`, with a share of its memory, and receivers; `loses` says what of what the sender
    says does not arrive.
    """

    def __init__(
        self,
        *receivers: str,
        loses: Callable[[FlowMessage, str], bool] | None = None,
        share: float = 1.0,
    ) -> None:
        self.now = 0.0
        self.loses = loses or (lambda _said, _receiver: False)
        self.sender = Outflows("s", incarnation=1, share=share)
        self.came: dict[str, list[int]] = {name: [] for name in receivers}
        self.outgoing: list[FlowMessage] = []
        self.receivers: dict[str, Inflows] = {}
        self.epoch = Epoch(7, flooding(("s", *receivers)))
        for name in receivers:
            self.receivers[name] = Inflows(name, partial(self._arrived, name))
            self.sender.begin(name, 5)
            self.sender.join(name, (7,))
        self.sender.use(self.epoch)

    def _arrived(self, name: str, parcel: Parcel, durable: bool) -> None:
        del durable
        assert parcel.event is not None
        self.came[name].append(parcel.event["x"])

    def restart(self, name: str) -> None:
        """A receiver forgets everything."""
        self.receivers[name] = Inflows(name, partial(self._arrived, name))

    def send(self, *numbers: int, to: Sequence[str] = (), is_small: bool = True) -> None:
        for number in numbers:
            brokers = tuple(to) or tuple(self.receivers)
            self.sender.send(event(number), brokers, is_small=is_small, now=self.now)
        self.deliver()

    def deliver(self) -> None:
        """What was said arrives, and what is said to that, until all is silent."""
        while self.sender.outgoing or any(each.outgoing for each in self.receivers.values()):
            said, self.sender.outgoing = self.sender.outgoing, []
            self.outgoing += said
            for each in said:
                self._hand(each)
            for name, receiver in self.receivers.items():
                heard, receiver.outgoing = receiver.outgoing, []
                for hearing in heard:
                    self.sender.receive_ack(
                        name,
                        5,
                        stage=hearing.stage,
                        number=hearing.number,
                        lacking=hearing.lacking,
                        now=self.now,
                    )

    def _hand(self, said: FlowMessage) -> None:
        if isinstance(said, Datagram):
            for name in self.epoch.members(said.group):
                if name in self.receivers and not self.loses(said, name):
                    place = self.epoch.place(name, said.group)
                    self.receivers[name].datagram(said, place, self.now)
        elif isinstance(said, FlowState):
            if not self.loses(said, said.receiver):
                self.receivers[said.receiver].state(
                    "s", 1, stage=said.stage, number=said.number, gone=said.gone, now=self.now
                )
        else:
            for name, number in said.to:
                if not self.loses(said, name):
                    self.receivers[name].event(
                        "s", 1, number, said.parcel, durable=said.durable, now=self.now
                    )

    def wait(self, seconds: float, step_s: float = 0.01) -> None:
        """Time passes, a step at a time."""
        until = self.now + seconds
        while self.now < until:
            self.now += step_s
            self.sender.tick(self.now)
            for receiver in self.receivers.values():
                receiver.tick(self.now)
            self.deliver()

    def settle(self) -> None:
        """The flows have begun."""
        self.deliver()
        self.wait(0.2)
        self.outgoing.clear()

    @property
    def datagrams(self) -> list[Datagram]:
        """Those with an event that the sender sent."""
        return [each for each in self.outgoing if isinstance(each, Datagram) and each.parcel]

    @property
    def links(self) -> list[ByLinks]:
        """What the sender sent by links."""
        return [each for each in self.outgoing if isinstance(each, ByLinks)]
