"""Deliberate protocol bugs, each a change that a tired programmer could make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from unittest.mock import patch

import numpy as np
from msgspec import structs

from palio.matching.protocol import RowMask
from palio.model.parcels import Parcel
from palio.routing.acyclic import Acyclic, Hierarchical
from palio.routing.advertised import Advertised
from palio.routing.flooded import Flooded
from palio.routing.forwarding import Forwarding
from palio.routing.forwarding_router import ForwardingRouter
from palio.routing.general import General
from palio.routing.messages import Batch, Flood, LinkState, LinkTable, Subscribe
from palio.routing.peer_requests import Ledger
from palio.routing.poset import SUBSCRIPTIONS
from palio.routing.protocol import Peer
from palio.routing.proxies import Proxies
from palio.routing.source_trees import SourceTrees
from palio_studies.simulator.network import RouterFactory
from tests import mutations

HIERARCHY: Final = partial(General, inner=Proxies)


@dataclass(frozen=True)
class Mutation(mutations.Mutation):
    """A bug, and the algorithm under which it shows."""

    routing: RouterFactory = Acyclic


def _skip_every_third_forward(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Ledger) -> Any:
        found = right(self)
        for requests in found.values():
            del requests[2::3]
        return found

    return wrong


def _no_nst(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Forwarding, node: Any) -> Any:
        return self._all_bits if right(self, node) else 0

    return wrong


def _only_subscriber_left_out(_: Callable[..., Any]) -> Callable[..., Any]:
    """NST never becomes empty: a neighbour that subscribed is never told of others."""

    def wrong(self: Forwarding, node: Any) -> int:
        told = self._all_bits
        for peer in node.subscribers:
            told &= ~self.bit(peer)
        return told if node.subscribers else 0

    return wrong


def _never_reforward(_: Callable[..., Any]) -> Callable[..., Any]:
    """What an unsubscription uncovers is forgotten."""

    def wrong(self: Forwarding, node: Any, bits: int) -> list[Any]:
        if node.forwards & bits:
            self._forward_less(node, bits)
        return []

    return wrong


def _keep_covered_forwards(right: Callable[..., Any]) -> Callable[..., Any]:
    """forwards of covered filters are not reduced when a wider one is sent."""

    def wrong(self: Forwarding, node: Any, bits: int) -> None:
        with patch.object(type(self._frontier), "covered", lambda *_: iter(())):
            right(self, node, bits)

    return wrong


def _ignore_updates(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, peer, step: None


def _update_only_table(right: Callable[..., Any]) -> Callable[..., Any]:
    """The summary changes, what is delivered here does not."""

    def wrong(self: Ledger, peer: Any, step: Any) -> None:
        selector = self._selector
        if selector is None or not peer.is_client:
            right(self, peer, step)
            return
        with patch.object(selector, "bind", lambda *_: None):
            right(self, peer, step)

    return wrong


def _updates_backwards(right: Callable[..., Any]) -> Callable[..., Any]:
    """The last of several updates of a key loses against the first."""

    def wrong(self: Ledger, peer: Any, step: Any) -> None:
        entry = self.entries[peer].get(step.key)
        if entry is not None and entry.version:
            return
        right(self, peer, step)

    return wrong


def _swap_updates(right: Callable[..., Any]) -> Callable[..., Any]:
    """Two updates of one batch go to each other's keys."""

    def wrong(self: Ledger, peer: Any, old: Any, new: Any) -> Any:
        keys = self._sent_keys[peer]
        others = [each for each in keys if each != old]
        if others:
            keys[old], keys[others[0]] = keys[others[0]], keys[old]
        return right(self, peer, old, new)

    return wrong


def _drop_before_put(right: Callable[..., Any]) -> Callable[..., Any]:
    """A filter replaced under its key is not taken out of the selector."""

    def wrong(self: Ledger, peer: Any, key: int) -> None:
        selector = self._selector
        if selector is None:
            right(self, peer, key)
            return
        with patch.object(selector, "remove", lambda *_: None):
            right(self, peer, key)

    return wrong


def _cancel_only_equal(_: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Ledger, peer: Any, bound: Any) -> None:
        for key, entry in list(self.entries[peer].items()):
            if entry.bound == bound:
                self._drop(peer, key)

    return wrong


def _keep_what_left(right: Callable[..., Any]) -> Callable[..., Any]:
    """A peer that leaves is forgotten, what it asked for is not withdrawn."""

    def wrong(self: Ledger, peer: Any) -> None:
        with patch.object(Forwarding, "remove", lambda *_: None):
            right(self, peer)

    return wrong


def _echo_events(right: Callable[..., Any]) -> Callable[..., Any]:
    """Events go back to whom they came from."""

    def wrong(self: ForwardingRouter, sender: Any, events: Any) -> Any:
        found = right(self, sender, events)
        for destination, mask in self.selector.route(events).items():
            found[self.subscriptions.peer_of(destination)] = mask
        return found

    return wrong


def _no_fresh_state(right: Callable[..., Any]) -> Callable[..., Any]:
    """A new neighbour is not sent what is there already."""

    def wrong(self: ForwardingRouter, peer: Any) -> Any:
        return [
            send._replace(message=Batch((), fresh=True))
            if isinstance(send.message, Batch) and send.message.fresh
            else send
            for send in right(self, peer)
        ]

    return wrong


def _master_only_if_wanted(_: Callable[..., Any]) -> Callable[..., Any]:
    return ForwardingRouter.route


def _no_overlap_recheck(_: Callable[..., Any]) -> Callable[..., Any]:
    """A new advertisement does not draw the subscriptions that wait for it."""

    def wrong(self: Advertised, sender: Any) -> None:
        if not sender.is_client:
            entries = self.advertisements.entries[sender].values()
            self._overlaps.set_offers(sender, [each.bound for each in entries])

    return wrong


def _unadvertised_events_pass(_: Callable[..., Any]) -> Callable[..., Any]:
    return ForwardingRouter.route


def _no_seen_window(_: Callable[..., Any]) -> Callable[..., Any]:
    """Numbers are not looked at, and events of links outside the tree are taken."""

    def wrong(self: General, sender: Any, events: Any) -> Any:
        return self.inner.route(sender, events)

    return wrong


def _older_link_states_win(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: General, sender: Any, states: tuple[LinkState, ...]) -> Any:
        known = self._states.known
        fresh = [
            each for each in states if each.origin not in known or known[each.origin].version < 2
        ]
        return right(self, sender, fresh) if fresh else []

    return wrong


def _link_states_not_flooded(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: General, sender: Any, states: tuple[LinkState, ...]) -> Any:
        sends = right(self, sender, states)
        return [each for each in sends if not isinstance(each.message, LinkState | LinkTable)]

    return wrong


def _flood_stops_at_the_first(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Flooded, sender: Any, flood: Flood) -> Any:
        return right(self, sender, flood)[:1]

    return wrong


def _to_the_first_neighbour_only(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: SourceTrees, flood: Flood, sender: Any, wave: Any) -> Any:
        return right(self, flood, sender, wave)[:1]

    return wrong


def _old_trees(right: Callable[..., Any]) -> Callable[..., Any]:
    """Trees are not worked out anew when links change elsewhere."""

    def wrong(self: SourceTrees, sender: Any, states: tuple[LinkState, ...]) -> Any:
        trees = dict(self._trees)
        sends = right(self, sender, states)
        self._trees.update(trees)
        return sends

    return wrong


def _no_summaries_for_the_new(right: Callable[..., Any]) -> Callable[..., Any]:
    """A new neighbour is told of links, but not what others ask for."""

    def wrong(self: SourceTrees, peer: Any) -> Any:
        return [
            each
            for each in right(self, peer)
            if not isinstance(each.message, Flood) or each.message.origin == self.name
        ]

    return wrong


def _covering_across_origins(right: Callable[..., Any]) -> Callable[..., Any]:
    """What another origin's wish covers is passed over, though that one may lie elsewhere."""

    def wrong(self: SourceTrees, sender: Any, flood: Flood) -> Any:
        others = [
            entry.bound
            for peer, entries in self._tables.remote.entries.items()
            if peer.name != flood.origin
            for entry in entries.values()
        ]
        kept = tuple(
            each
            for each in flood.requests
            if not isinstance(each, Subscribe)
            or not any(SUBSCRIPTIONS(other, each.filter) for other in others)
        )
        return right(self, sender, structs.replace(flood, requests=kept))

    return wrong


def _summary_of_before(right: Callable[..., Any]) -> Callable[..., Any]:
    """A fresh summary is added to the one from before instead of taking its place."""

    def wrong(self: SourceTrees, sender: Any, flood: Flood) -> Any:
        with patch.object(self._tables.remote, "forget", lambda *_: None):
            return right(self, sender, flood)

    return wrong


def _nothing_is_sporadic(_: Callable[..., Any]) -> Callable[..., Any]:
    """What nobody offered goes only where it is known to be wanted."""

    def wrong(self: Proxies, sender: Peer, parcel: Parcel) -> RowMask:
        del self, sender
        return np.zeros(len(parcel), np.bool_)

    return wrong


def _links_keep_their_way_up(right: Callable[..., Any]) -> Callable[..., Any]:
    """A link that a plan turns is not left and joined anew."""

    def wrong(self: General, peer: Peer, link: Any) -> Any:
        if link.our_join is not None and link.wanted:
            link.upward = link.our_join.upward
        return right(self, peer, link)

    return wrong


MUTATIONS: Final = [
    Mutation("skip a forward", Ledger, "outgoing", _skip_every_third_forward),
    Mutation("drop NST", Forwarding, "_eligible", _no_nst),
    Mutation("NST of all subscribers", Forwarding, "_eligible", _only_subscriber_left_out),
    Mutation("forget a re-forward", Forwarding, "_release", _never_reforward),
    Mutation("keep covered forwards", Forwarding, "_grow", _keep_covered_forwards),
    Mutation("ignore UPD", Ledger, "_update", _ignore_updates),
    Mutation("UPD changes the summary only", Ledger, "_update", _update_only_table),
    Mutation("apply UPD out of order", Ledger, "_update", _updates_backwards),
    Mutation("UPD to another's key", Ledger, "_write_update", _swap_updates),
    Mutation("leave dropped filters selected", Ledger, "_drop", _drop_before_put),
    Mutation("cancel equal filters only", Ledger, "_drop_covered", _cancel_only_equal),
    Mutation("keep what a peer asked for when it left", Ledger, "forget", _keep_what_left),
    Mutation("send events back", ForwardingRouter, "route", _echo_events),
    Mutation("tell a new neighbour nothing", ForwardingRouter, "attach", _no_fresh_state, General),
    Mutation("up only if wanted", Hierarchical, "route", _master_only_if_wanted, Hierarchical),
    Mutation(
        "all is expected",
        Proxies,
        "_sporadic",
        _nothing_is_sporadic,
        HIERARCHY,
    ),
    Mutation(
        "links never turn",
        General,
        "_settle",
        _links_keep_their_way_up,
        HIERARCHY,
    ),
    Mutation("no look at new offers", Advertised, "_applied", _no_overlap_recheck, Advertised),
    Mutation("unadvertised events", Advertised, "route", _unadvertised_events_pass, Advertised),
    Mutation("no window of numbers", General, "route", _no_seen_window, General),
    Mutation("old link states win", General, "_learn", _older_link_states_win, General),
    Mutation("link states not flooded", General, "_learn", _link_states_not_flooded, General),
    Mutation("flood to one only", Flooded, "_accept_flood", _flood_stops_at_the_first, Flooded),
    Mutation("flood one way", SourceTrees, "_flood", _to_the_first_neighbour_only, SourceTrees),
    Mutation("keep old trees", SourceTrees, "_learn", _old_trees, SourceTrees),
    Mutation(
        "links only for the new", SourceTrees, "attach", _no_summaries_for_the_new, SourceTrees
    ),
    Mutation(
        "cover across origins", SourceTrees, "_receive_flood", _covering_across_origins, SourceTrees
    ),
    Mutation("add up summaries", SourceTrees, "_receive_flood", _summary_of_before, SourceTrees),
]
