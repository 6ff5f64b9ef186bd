"""Deliberate bugs of flows: of repair, and of plans that change."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Final

from palio.multicast.epochs import Epoch
from palio.multicast.inflows import Inflows
from palio.multicast.outflows import Outflows
from tests.mutations import Mutation, nothing


def _tails_untold(_: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Outflows, _now: float, _after_s: float = 0.0) -> None:
        self._tail_at = inf

    return wrong


def _gaps_passed_over(right: Callable[..., Any]) -> Callable[..., Any]:
    """What comes too early is handed on, as if nothing was lacking."""

    def wrong(self: Inflows, flow: Any, number: int, *args: Any, **named: Any) -> None:
        flow.next = max(flow.next, number)
        right(self, flow, number, *args, **named)

    return wrong


def _twice(right: Callable[..., Any]) -> Callable[..., Any]:
    """What is sent again is taken for new."""

    def wrong(self: Inflows, flow: Any, number: int, *args: Any, **named: Any) -> None:
        right(self, flow, max(flow.next, number), *args, **named)

    return wrong


def _heard_too_far(right: Callable[..., Any]) -> Callable[..., Any]:
    """A receiver says that it has what it is waiting for."""

    def wrong(self: Inflows, flow: Any, lacking: Any = ()) -> None:
        right(self, flow, lacking)
        last = self.outgoing[-1]
        self.outgoing[-1] = last._replace(number=min(last.number + 1, flow.top))

    return wrong


def _next_number(right: Callable[..., Any]) -> Callable[..., Any]:
    """What is sent again bears the number after its own."""

    def wrong(self: Outflows, flow: Any, number: int, sent: Any, now: float) -> None:
        right(self, flow, min(number + 1, flow.number), sent, now)

    return wrong


def _last_only(right: Callable[..., Any]) -> Callable[..., Any]:
    """Of all that is lacking, the first range is forgotten."""

    def wrong(self: Outflows, flow: Any, lacking: Any, now: float) -> None:
        right(self, flow, tuple(lacking)[1:], now)

    return wrong


def _old_ways(right: Callable[..., Any]) -> Callable[..., Any]:
    """After a change of plans events take the groups that they took before."""

    def wrong(self: Outflows, epoch: Any) -> None:
        ways = dict(self.paths._routes)
        right(self, epoch)
        self.paths._routes.update(ways)

    return wrong


def _neighbours_place(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Epoch, broker: str, group: int) -> int:
        found: int = right(self, broker, group)
        return max(found - 1, 0) if found >= 0 else found

    return wrong


def _plan_of_before(right: Callable[..., Any]) -> Callable[..., Any]:
    """Datagrams are those of the plan in use, under the number of the one before."""

    def wrong(self: Outflows, *args: Any, **named: Any) -> None:
        epoch = self.paths.epoch
        assert epoch is not None
        id, epoch.id = epoch.id, max(1, epoch.id - 1)
        right(self, *args, **named)
        epoch.id = id

    return wrong


def _window_not_released(right: Callable[..., Any]) -> Callable[..., Any]:
    """The window waits for receivers to whom nothing is cast any more."""

    def wrong(self: Outflows, flow: Any) -> None:
        flow.released = flow.number
        right(self, flow)

    return wrong


def _gone_untold(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Outflows, flow: Any, count: int) -> None:
        gone = flow.gone
        right(self, flow, count)
        flow.gone = gone

    return wrong


def _same_life(right: Callable[..., Any]) -> Callable[..., Any]:
    """A receiver that starts anew is taken for the one that it was."""

    def wrong(self: Outflows, broker: str, incarnation: int) -> None:
        if broker in self._flows:
            self._flows[broker].incarnation = incarnation
        right(self, broker, incarnation)

    return wrong


MUTATIONS: Final = (
    Mutation("nothing is sent again", Outflows, "_resend", nothing),
    Mutation("tails are not told", Outflows, "_report_tails", _tails_untold),
    Mutation("gaps are passed over", Inflows, "_event", _gaps_passed_over),
    Mutation("what is sent again is taken for new", Inflows, "_event", _twice),
    Mutation("more is said to be heard than was", Inflows, "_send_ack", _heard_too_far),
    Mutation("what is sent again has another number", Outflows, "_resend", _next_number),
    Mutation("the first that is lacking is forgotten", Outflows, "_repair", _last_only),
    Mutation("a new plan is used with old ways", Outflows, "use", _old_ways),
    Mutation("a member reads its neighbour's counts", Epoch, "place", _neighbours_place),
    Mutation("datagrams bear the number of the plan before", Outflows, "_cast", _plan_of_before),
    Mutation(
        "the window waits for who is sent nothing", Outflows, "_update_cast", _window_not_released
    ),
    Mutation("nobody is told what is gone", Outflows, "_lose", _gone_untold),
    Mutation("a new incarnation is taken for the old", Outflows, "begin", _same_life),
)
