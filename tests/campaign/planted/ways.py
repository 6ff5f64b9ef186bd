"""Deliberate bugs of routing: of trees and their changes, proxies, parameters and flows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from unittest.mock import patch

from palio.routing.changes import Change
from palio.routing.forwarding import Forwarding
from palio.routing.general import General
from palio.routing.peer_requests import Ledger
from palio.routing.proxies import Proxies
from palio.routing.source_trees import SourceTrees
from tests.multicast.mutations import MUTATIONS as OF_FLOWS
from tests.mutations import Mutation, picked
from tests.routing.mutations import MUTATIONS as OF_ROUTERS

# --- trees ---


def _at_once(_: Callable[..., Any]) -> Callable[..., Any]:
    """Waves go through a tree that is not whole."""
    return lambda self, sender, message: self.inner.receive(sender, message)


def _goes_on_alone(right: Callable[..., Any]) -> Callable[..., Any]:
    """Links are exchanged while events may be under way on them."""

    def wrong(self: Change, heard: Any) -> Any:
        before = self.round
        sends = right(self, heard)
        self.round = before + 1
        return sends

    return wrong


def _kept_to_itself(right: Callable[..., Any]) -> Callable[..., Any]:
    """Who hears of a plan goes by it, and tells nobody."""

    def wrong(self: General, sender: Any, plan: Any) -> Any:
        return [each for each in right(self, sender, plan) if each.message is not plan]

    return wrong


def _trees_stay(_: Callable[..., Any]) -> Callable[..., Any]:
    """Trees that are known are not made again."""
    return lambda _self: None


# --- hierarchies ---


def _only_what_is_new(right: Callable[..., Any]) -> Callable[..., Any]:
    """A parent is told what begins from now on, not what stands."""

    def wrong(self: Proxies, peer: Any) -> Any:
        with patch.object(Forwarding, "reconsider", lambda *_: None):
            return right(self, peer)

    return wrong


# --- parameters ---


def _always_the_first(right: Callable[..., Any]) -> Callable[..., Any]:
    """Updates of a key are not counted: all but the first are old."""

    def wrong(self: Ledger, peer: Any, old: Any, new: Any) -> Any:
        self._versions[peer].clear()
        return right(self, peer, old, new)

    return wrong


ON_WAYS: Final = (
    Mutation("waves do not wait for the tree", General, "_receive", _at_once),
    Mutation("trees change under events", Change, "advance", _goes_on_alone),
    Mutation("plans are not passed on", General, "_accept_plan", _kept_to_itself),
    *picked(OF_ROUTERS, "no window of numbers"),
    Mutation("trees are never made again", SourceTrees, "_rebuild_trees", _trees_stay),
    *picked(OF_ROUTERS, "links only for the new", "all is expected"),
    Mutation("a parent is told what is new", Proxies, "attach", _only_what_is_new),
    Mutation("updates are not counted", Ledger, "_write_update", _always_the_first),
    *picked(OF_ROUTERS, "UPD changes the summary only"),
    *picked(OF_FLOWS, "gaps are passed over", "nobody is told what is gone"),
)
"""Of trees and their changes, proxies, parameters and flows."""
