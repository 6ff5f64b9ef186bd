"""Deliberate bugs of brokers that send by multicast: of lives, plans and repair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from palio.multicast.inflows import Inflows
from palio.multicast.outflows import Outflows
from palio.node.addressed_forwarding import AddressedForwarding
from palio.node.multicasting import Multicasting
from palio.node.sessions import Neighbour
from palio.simulation.medium import Port
from tests.mutations import Mutation


def _numbers_go_on(right: Callable[..., Any]) -> Callable[..., Any]:
    """A sender that starts anew is thought to count on where it was."""

    def wrong(self: Inflows, sender: str, incarnation: int, **named: Any) -> None:
        if sender in self._flows:
            self._flows[sender].incarnation = incarnation
        right(self, sender, incarnation, **named)

    return wrong


def _met_once(right: Callable[..., Any]) -> Callable[..., Any]:
    """Who says that it lives anew is not met again."""

    def wrong(self: Multicasting, name: str) -> None:
        if self._out.can_reach(name) and name in self.participants:
            self._out.join(name, self.participants[name].joined)
        else:
            right(self, name)

    return wrong


def _not_behind(_: Callable[..., Any]) -> Callable[..., Any]:
    """That a flow begins overtakes the events before it."""

    def wrong(self: Neighbour, out: Any, message: Any) -> None:
        self.send(out, message)

    return wrong


def _as_it_comes(_: Callable[..., Any]) -> Callable[..., Any]:
    """What comes by links is handed on at once."""

    def wrong(self: Inflows, *args: Any, durable: bool, now: float) -> None:
        del now
        self._arrived(args[-1], durable)

    return wrong


def _first_addressee(right: Callable[..., Any]) -> Callable[..., Any]:
    """What is for several brokers goes on to the first of them."""

    def wrong(
        self: AddressedForwarding,
        source: str,
        parcel: Any,
        addressed: Any,
        *args: Any,
        **named: Any,
    ) -> None:
        right(self, source, parcel, replace(addressed, to=addressed.to[:1]), *args, **named)

    return wrong


def _always_reached(_: Callable[..., Any]) -> Callable[..., Any]:
    """Events go by flows that have not begun."""
    return lambda self, broker: broker in self._flows


def _not_for_others(right: Callable[..., Any]) -> Callable[..., Any]:
    """What is said of the flows of others is not passed on."""

    def wrong(self: AddressedForwarding, source: str, to: str, message: Any, before: str) -> None:
        if not before:
            right(self, source, to, message, before)

    return wrong


def _never(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *_args: False


def _late_by_a_plan(right: Callable[..., Any]) -> Callable[..., Any]:
    """The groups of a new plan are joined as the next one comes."""
    waiting: dict[int, tuple[int, Any]] = {}

    def wrong(self: Port, plan: int, groups: Any) -> None:
        if not groups:
            right(self, plan, groups)
            return
        before = waiting.get(id(self))
        waiting[id(self)] = plan, groups
        if before is not None:
            right(self, *before)

    return wrong


def _passed_on_twice(right: Callable[..., Any]) -> Callable[..., Any]:
    """Events without numbers are heard by who passes them on, too."""

    def wrong(self: Multicasting, neighbour: Any, message: Any, parcel: Any) -> None:
        if all(name != self.name for name, _ in message.addressed.to):
            self._arrive(parcel, message.durable)
        right(self, neighbour, message, parcel)

    return wrong


MUTATIONS: Final = (
    Mutation("numbers go on in a new incarnation", Inflows, "state", _numbers_go_on),
    Mutation("a new incarnation is not met", Multicasting, "_update_flow", _met_once),
    Mutation("a flow begins before what went before it", Neighbour, "send_behind", _not_behind),
    Mutation("events by links have no order", Inflows, "event", _as_it_comes),
    Mutation("only the first addressee", AddressedForwarding, "pass_on", _first_addressee),
    Mutation("flows are used that have not begun", Outflows, "can_reach", _always_reached),
    Mutation("flows of others are not helped", AddressedForwarding, "relay", _not_for_others),
    Mutation("nobody has ever joined", Multicasting, "_have_joined", _never),
    Mutation("groups are joined a plan too late", Port, "tune", _late_by_a_plan),
    Mutation("who passes events on hears them", Multicasting, "forward", _passed_on_twice),
)
