"""Deliberate bugs of the pattern layer, each a change that a tired programmer could make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from palio.routing.patterns.assembly import Assembly
from palio.routing.patterns.delegation import Delegation
from palio.routing.patterns.messages import AssemblyProgress, UnsubscribePattern
from palio.routing.patterns.providers import Providers
from palio.routing.patterns.router import Patterned
from palio.routing.patterns.subscriptions import AssemblyPlace
from tests.routing.mutations import Mutation

Method = Callable[..., Any]


def _no_window(right: Method) -> Method:
    """Events take their part in the order in which they come."""
    return lambda self, name, inner, window: right(self, name, inner, window * 0)


def _part(**left_out: Any) -> Callable[[Method], Method]:
    """A part of what a monitor knows stays behind when it moves."""

    def mutation(right: Method) -> Method:
        def wrong(self: Assembly) -> AssemblyProgress:
            known = right(self)
            parts = {name: getattr(known, name) for name in ("taken", "held", "after")}
            return AssemblyProgress(**{**parts, **left_out})

        return wrong

    return mutation


def _forget_what_was_collected(right: Method) -> Method:
    def wrong(self: Assembly, progress: AssemblyProgress) -> None:
        self._order.clear()
        self._held.clear()
        right(self, progress)

    return wrong


def _collected_twice(right: Method) -> Method:
    """What the other monitor has seen already takes its part once more."""

    def wrong(self: Assembly, progress: AssemblyProgress) -> None:
        collected = list(self._held.values())
        right(self, progress)
        self._after = None
        self.push(collected)

    return wrong


def _any_provider_will_do(_: Method) -> Method:
    """A pattern is delegated to the first of several providers."""

    def wrong(self: Providers, subscription: Any) -> Any:
        providers = [peer for each in self.factors(subscription) for peer in each.providers]
        return next((peer for peer in sorted(providers) if not peer.is_client), None)

    return wrong


def _never_recalled(right: Method) -> Method:
    def wrong(self: Delegation, subscription: Any) -> Any:
        return [] if subscription.stage is AssemblyPlace.THERE else right(self, subscription)

    return wrong


def _provider_not_told(right: Method) -> Method:
    def wrong(self: Delegation, subscription: Any) -> Any:
        sends = right(self, subscription)
        return [each for each in sends if not isinstance(each.message, UnsubscribePattern)]

    return wrong


def _lost_for_good(_: Method) -> Method:
    """A monitor that went down with its provider is not started again."""
    return lambda self, subscription: []


def _steps_stay_subscribed(_: Method) -> Method:
    def wrong(_self: Delegation, subscription: Any) -> list[Any]:
        subscription.assembly = None
        return []

    return wrong


PATTERN_MUTATIONS: Final = [
    Mutation("no reorder window", Patterned, "__init__", _no_window),
    Mutation("the partial match stays behind", Assembly, "stop", _part(taken=())),
    Mutation("what is held back stays behind", Assembly, "stop", _part(held=())),
    Mutation("forget what was collected", Assembly, "resume", _forget_what_was_collected),
    Mutation("take what was collected twice", Assembly, "resume", _collected_twice),
    Mutation("delegate to any provider", Providers, "goal", _any_provider_will_do),
    Mutation("never recall", Delegation, "settle", _never_recalled),
    Mutation("the provider is not told", Delegation, "_end_subscription", _provider_not_told),
    Mutation("lost with its provider", Delegation, "_restart", _lost_for_good),
    Mutation("steps stay subscribed", Delegation, "_disassemble", _steps_stay_subscribed),
]
