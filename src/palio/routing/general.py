"""`General`: routing on any graph (siena 4.3) by one spanning tree, under an algorithm for trees.

Every broker floods its live links and their costs. One broker decides which links are the tree, and
exchanges those in use only where it must (`plans`). The inner router sees the links of the tree and
no others. In a hierarchy (`Ranked`) it also learns which link leads up to the root of the plan.

Why one tree and not one for each source: routing state stays that of a tree for any number of
origins, and covering prunes across origins. Advertisements, parameters, patterns and waves work
unchanged, with one proof for all. The price is a longer path for some events.

A tree link is in use from when both ends joined it until one leaves it (`TreeLink`). While one link
replaces another, or turns, no event is in flight (`changes`). While the tree changes otherwise, an
event whose number does not grow is a duplicate or out of order, and is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from palio.matching.protocol import RowMask
from palio.model.filters import Filter
from palio.model.parcels import Parcel
from palio.routing.acyclic import Acyclic
from palio.routing.changes import NOT_IN_USE, Change
from palio.routing.graphs import ALL_NEW, NONE_NEW, LastNumbers, LinkNews, LinkStates
from palio.routing.messages import (
    LAST_ROUND,
    Batch,
    Control,
    Flood,
    Join,
    Leave,
    LinkState,
    LinkTable,
    Reached,
    Settled,
    TreePlan,
)
from palio.routing.plans import Plans, TreeLink, brokers_in
from palio.routing.protocol import IllegalMessage, Peer, Ranked, Role, Router, Send, narrowed
from palio.routing.trees import edge_of, is_notable_change, parents_below, shortest_paths


class General:
    """One broker of any graph, with a router for trees inside.

    >>> broker = General("b1")
    >>> [send.message.neighbours for send in broker.attach(Peer.broker("b2"))]
    [('b2',)]
    """

    follows_sources = False

    def __init__(self, name: str, inner: Callable[[str], Router] = Acyclic) -> None:
        self.name = name
        self.routing_version = 0
        self._self = Peer.broker(name)
        self.inner = inner(name)
        self._ranked = self.inner if isinstance(self.inner, Ranked) else None
        self.has_parent = False
        """In a hierarchy, whether this broker is to be below others. Set before any is attached."""
        self._links: dict[Peer, TreeLink] = {}
        self._local_peers: dict[Peer, None] = {}  # clients, and the other half of a gateway
        self._link_costs: dict[Peer, int] = {}
        """The costs of links, also of links that are down: they come back unchanged."""
        self._states = LinkStates(name)
        self._plans = Plans(name, has_ranks=self._ranked is not None)
        self._followed = self._plans.in_force
        """The plan by which this broker joins and leaves links; differs from the plan in force
        while a change is in its first round."""
        self._parent = ""
        self._change: Change | None = None
        self._rerouted: dict[Peer, None] = {}
        self._pending_waves: dict[Peer, list[int]] = {}  # by requester, until the tree is whole
        # Both are computed when first asked for, and None until then:
        self._is_agreed: bool | None = None  # the plan in force here is in force everywhere
        self._is_wanted: bool | None = None  # this broker would make no other plan
        self._numbers = LastNumbers()
        self._is_corked = False

    @property
    def is_advertised(self) -> bool:
        """True if only advertised events count."""
        return self.inner.is_advertised

    @property
    def takes_advertisements(self) -> bool:
        """True if advertisements mean anything."""
        return self.inner.takes_advertisements

    @property
    def peers(self) -> list[Peer]:
        """All attached peers: clients, then neighbours."""
        return [*self._local_peers, *self._links]

    @property
    def tree(self) -> frozenset[tuple[str, str]]:
        """The spanning tree as this broker sees it."""
        return self._plans.tree

    @property
    def root(self) -> str:
        """Name of the broker above all others."""
        return "" if self._ranked is None else self._plans.in_force.root or self.name

    @property
    def parent(self) -> str:
        """Name of the broker above this one."""
        return self._parent

    def parents(self) -> dict[str, str]:
        """Map each broker to its parent by the plan in force."""
        plan = self._plans.in_force
        above = parents_below(plan.root, plan.links) if plan.root else {}
        return {child: parent for child, parent in above.items() if child != parent}

    def sources(self, filter: Filter) -> bool | Peer:
        """Find out if anybody may publish what a filter wants.

        While the parent of this broker is undecided, there may be sources above it.
        """
        source = self.inner.sources(filter)
        if self._ranked is None or source is True:
            return source
        return True if source in self._rerouted or not (source or self._is_whole()) else source

    @property
    def is_changing(self) -> bool:
        """True on the way to another tree."""
        return self._change is not None or bool(self._rerouted)

    @property
    def rerouted(self) -> Collection[Peer]:
        """Neighbours whose tree link broke: events take detours until the tree has changed."""
        return self._rerouted

    @property
    def is_in_order(self) -> bool:
        """True if the paths are as wanted."""
        if not self._is_whole():
            return False
        if self._is_wanted is None:
            self._is_wanted = self._plans.is_as_wanted(self._states.graph, self._states.below)
        return self._is_wanted

    def cork(self) -> None:
        """Keep changes of links for `uncork`."""
        self._is_corked = True

    @property
    def has_pending_updates(self) -> bool:
        """True if changes of links are pending until `uncork`."""
        return self._states.has_news

    def uncork(self) -> list[Send]:
        """Flood pending changes of links, and update the tree. Until then waves are held."""
        return self._states.news(self._links) + self._update_tree()

    def holds(self, sender: Peer) -> bool:
        """Return whether what a peer publishes must wait."""
        return self._change is not None and sender in self._local_peers

    def give_up(self) -> list[Send]:
        """End a change of the tree at once."""
        if self._change is None:
            return self._end_reroutes() + self._update_tree()
        plan = self._change.plan
        self._abandon_change()
        return self._follow(plan) + self._update_tree()

    def attach(self, peer: Peer) -> list[Send]:
        """Add a peer that has connected. A neighbour is sent all plans and link states."""
        if peer in self._local_peers or peer in self._links:
            raise ValueError(f"{peer} is attached already; detach it first")
        if peer.is_client or peer.role is Role.SIDE:
            self._local_peers[peer] = None
            return self.inner.attach(peer)
        self._links[peer] = TreeLink()
        sends = self._end_reroutes(peer) if peer in self._rerouted else []
        plans = [Send(peer, plan) for plan in self._plans.all()]
        known = [Send(peer, state) for state in self._states.others()]
        return sends + plans + known + self._links_changed()

    def detach(self, peer: Peer) -> list[Send]:
        """Forget a peer that is gone."""
        if peer in self._local_peers:
            del self._local_peers[peer]
            self._pending_waves.pop(peer, None)
            return self.inner.detach(peer)
        if peer not in self._links:
            raise ValueError(f"{peer} is not attached")
        link = self._links.pop(peer)
        if self._change is not None:
            self._change.skip_link(peer)
        self._renew()
        sends: list[Send] = []
        if link.up and peer.name in shortest_paths(self._states.graph, self.name).parents:
            self._rerouted[peer] = None
        elif link.up:
            sends = self._down(peer)
        return sends + self._flood_link_states()

    def receive(self, sender: Peer, message: Control) -> list[Send]:
        """Act on a message of a peer."""
        if sender in self._local_peers:
            return self._receive(sender, message)
        link = self._links.get(sender)
        if link is None:
            raise IllegalMessage(sender, "it is not attached")
        match message:
            case LinkState():
                return self._learn(sender, (message,))
            case LinkTable(states):
                return self._learn(sender, states)
            case TreePlan():
                return self._accept_plan(sender, message)
            case Join():
                return self._joined(sender, link, message)
            case Leave():
                return self._left(sender, link, message)
            case Batch() | Flood() | Settled() | Reached():
                if link.closing:
                    return []  # they sent it before our Leave arrived
                if not link.up:
                    raise IllegalMessage(sender, "the link is not in the tree")
                if isinstance(message, Reached):
                    return self._handle_reached(sender, link, message)
                return self._receive(sender, message)
            case _:
                raise IllegalMessage(sender, f"{type(message).__name__} has no meaning here")

    def _receive(self, sender: Peer, message: Control) -> list[Send]:
        """Pass a message to the inner router, but hold its wave until the tree is whole.

        The tree may lack brokers that are about to join. A wave that went now would report a
        request as in force everywhere, without them.
        """
        if not isinstance(message, Batch) or message.wave is None or self._is_whole():
            return self.inner.receive(sender, message)
        self._pending_waves.setdefault(sender, []).append(message.wave)
        return self.inner.receive(sender, Batch(message.requests, message.fresh))

    def _is_whole(self) -> bool:
        graph = self._states.graph
        if self.has_pending_updates:
            return False
        if self._is_agreed is None:
            self._is_agreed = self._plans.is_whole(graph)
        return (
            self._is_agreed
            and not self.is_changing
            and all(peer.name in graph[self.name] for peer in self._links)
            and all(link.up == link.wanted and not link.closing for link in self._links.values())
        )

    def _resume_waves(self) -> list[Send]:
        """Send pending waves, if the tree is whole now."""
        if not self._pending_waves or not self._is_whole():
            return []
        pending, self._pending_waves = self._pending_waves, {}
        return [
            send
            for sender, waves in pending.items()
            for wave in waves
            for send in self.inner.receive(sender, Batch((), wave=wave))
        ]

    def unsettle(self) -> None:
        """Have the next wave go to all neighbours."""
        self.inner.unsettle()

    def route(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """Select the peers that events go to, and none for duplicates of earlier events."""
        if sender not in self._local_peers and sender != self._self:
            link = self._links.get(sender)
            if link is None or not link.up:
                return {}
        new = self._numbers.unseen(parcel)
        if new is ALL_NEW:
            return self.inner.route(sender, parcel)
        if new is NONE_NEW or not new.any():
            return {}
        return narrowed(self.inner.route(sender, parcel), new)

    def announced(self, sender: Peer, parcel: Parcel) -> RowMask | None:
        """Select the events that count, as advertised."""
        return self.inner.announced(sender, parcel)

    def has_alternate_path(self, neighbour: Peer) -> bool:
        """Return whether events may take another path to a neighbour."""
        del neighbour
        return True

    # --- link state ---

    def set_link_cost(self, peer: Peer, cost: int) -> list[Send]:
        """Set the cost of the link to a neighbour."""
        if not is_notable_change(self._link_costs.get(peer, 1), cost):
            return []
        self._link_costs[peer] = cost
        return self._links_changed() if peer in self._links else []

    def _links_changed(self) -> list[Send]:
        """Report a change of our own links."""
        self._renew()
        return self._flood_link_states()

    def _renew(self) -> None:
        costs = {peer.name: self._link_costs.get(peer, 1) for peer in self._links}
        self._states.renew(costs, has_parent=self.has_parent)

    def _learn(self, sender: Peer, states: Iterable[LinkState]) -> list[Send]:
        verdicts = {self._states.learn(state, sender) for state in states}
        if LinkNews.MINE in verdicts:
            self._renew()
        return self._flood_link_states() if verdicts != {LinkNews.OLD} else []

    def _flood_link_states(self) -> list[Send]:
        """Flood new link states and update the tree, at once or at `uncork`."""
        return [] if self._is_corked else self.uncork()

    def _update_tree(self) -> list[Send]:
        """Decide on a tree, if this broker is to; join links that are new in it, and leave others.

        A change that has begun finishes first, unless other brokers may have abandoned it.
        """
        self._is_agreed = self._is_wanted = None
        sends: list[Send] = []
        change = self._change
        if change is not None and not change.is_compatible_with(self._plans.in_force):
            self._abandon_change()
        if self._change is None:
            states = self._states
            plan = self._plans.decide(states.graph, states.below, states.is_half_gone)
            if plan is not None:
                sends += [Send(peer, plan) for peer in self._links]
            plan = self._plans.in_force
            if plan.calm and plan != self._followed:
                self._change = Change(plan, has_offers=self.takes_advertisements)
            else:
                sends += self._follow(plan)
        elif self._change.round:
            sends += self._follow(self._followed)
        return sends + self._answer_other_changes() + self._advance_change() + self._resume_waves()

    def _follow(self, plan: TreePlan) -> list[Send]:
        """Join the links of a plan. Keep those to brokers that do not occur in it, unless one leads
        up and the plan has another link to the parent.
        """
        sends: list[Send] = []
        if plan != self._followed:
            sends = self._end_reroutes()
            above = parents_below(plan.root, plan.links).get(self.name, "") if plan.root else ""
            self._parent = "" if above == self.name else above
        self._followed = plan
        tree, brokers = frozenset(plan.links), brokers_in(plan)
        for peer, link in self._links.items():
            if edge_of(self.name, peer.name) in tree:
                link.wanted = True
                link.upward = None if self._ranked is None else peer.name == self._parent
            else:
                link.wanted = (
                    link.our_join is not None
                    and peer.name not in brokers
                    and not (link.upward and self._parent)
                    and self._plans.keeps_outside_link(
                        plan, edge_of(self.name, peer.name), peer.name
                    )
                )
            sends += self._settle(peer, link)
        return sends

    def _abandon_change(self) -> None:
        """Abandon a change. Held events go now, and some may be lost: a gap is reported."""
        self._change = None
        self.routing_version += 1

    def _answer_other_changes(self) -> list[Send]:
        """Release neighbours that change to a plan which is not in force here.

        They would wait for this broker in vain. So it reports all rounds at once, and before it is
        asked, as some would never ask.
        """
        sends, our_plan, change = [], self._plans.in_force, self._change
        for peer, link in self._links.items():
            their_plan = self._plans.in_force_for(peer.name)
            if not (link.up and their_plan.calm) or their_plan is our_plan:
                continue
            plan = _number(their_plan)
            if plan != link.answered and (change is None or not change.is_to(plan)):
                link.answered = plan
                sends.append(Send(peer, Reached(*plan, LAST_ROUND)))
        return sends

    def _advance_change(self) -> list[Send]:
        """Go through as many rounds of the change as neighbours allow."""
        sends: list[Send] = []
        while self._change is not None:
            change, before = self._change, self._change.round
            sends += change.advance(self._rounds_in(change))
            if change.round == before:
                break
            if before == 0:
                sends += self._follow(change.plan)
            if change.is_over:
                self._change = None
                sends += self._update_tree()
        return sends

    def _rounds_in(self, change: Change) -> dict[Peer, int]:
        """Map each link that counts in this round of a change to the round that it has sent.

        A broker that restarted and decided by itself meanwhile does not join, and does not count.
        """
        tree, brokers = frozenset(change.plan.links), brokers_in(change.plan)
        rounds: dict[Peer, int] = {}
        for peer, link in self._links.items():
            edge = edge_of(self.name, peer.name)
            if link.up:
                if edge in tree if change.round else peer.name in brokers:
                    rounds[peer] = change.round_of(link.last_reached)
            elif (
                change.round
                and edge in tree
                and not self._plans.is_superseded_at(change.plan, edge, peer.name)
            ):
                rounds[peer] = NOT_IN_USE
        return rounds

    def _handle_reached(self, sender: Peer, link: TreeLink, message: Reached) -> list[Send]:
        if link.last_reached is None or message.version >= link.last_reached.version:
            link.last_reached = message
        plan = message.origin, message.version
        if (self._change is not None and self._change.is_to(plan)) or (
            plan == _number(self._plans.in_force) != _number(self._followed)
        ):
            return self._advance_change() + self._resume_waves()
        if link.answered == plan or message.round == LAST_ROUND:
            return []  # it may be such an answer itself, and answers to answers would never end
        link.answered = plan
        return [Send(sender, Reached(*plan, LAST_ROUND))]

    def _accept_plan(self, sender: Peer, plan: TreePlan) -> list[Send]:
        if not self._plans.learn(plan):
            return []
        flood = [Send(peer, plan) for peer in self._links if peer != sender]
        return flood + self._update_tree()

    def _settle(self, peer: Peer, link: TreeLink) -> list[Send]:
        """Join or leave one link as the tree wants it, as far as the other end allows."""
        sends = [Send(peer, each) for each in link.updates(calm=self.is_changing)]
        if link.is_joined != link.up:
            link.up = not link.up
            sends += self._up(peer, link) if link.up else self._down(peer)
        return sends

    def _up(self, peer: Peer, link: TreeLink) -> list[Send]:
        """Add a link to the tree of the inner router."""
        if self._ranked is not None and link.upward:
            self._ranked.above = peer
        return self.inner.attach(peer)

    def _joined(self, sender: Peer, link: TreeLink, message: Join) -> list[Send]:
        if link.closing:
            return []  # they sent it before our Leave arrived; their Leave follows
        if link.their_join is not None:
            raise IllegalMessage(sender, "it joined the link twice")
        if (message.upward is None) != (self._ranked is None):
            raise IllegalMessage(sender, "it joined a hierarchy without a rank, or the reverse")
        link.their_join = message
        return self._settle(sender, link) + self._advance_change() + self._resume_waves()

    def _left(self, sender: Peer, link: TreeLink, message: Leave) -> list[Send]:
        link.their_join = None
        if link.closing:
            link.closing = False
            return self._settle(sender, link) + self._advance_change() + self._resume_waves()
        link.our_join = None
        sends = [Send(sender, Leave(message.calm))]
        if link.up:
            link.up = False
            sends += self._down(sender)
        return sends + self._settle(sender, link) + self._advance_change() + self._resume_waves()

    def _end_reroutes(self, *peers: Peer) -> list[Send]:
        """End the detours to some neighbours, or to all."""
        ended = peers or tuple(self._rerouted)
        for peer in ended:
            del self._rerouted[peer]
        return [send for peer in ended for send in self._down(peer)]

    def _down(self, peer: Peer) -> list[Send]:
        """Remove a link from the tree; a requester beyond it has to restart its wave."""
        self._pending_waves.pop(peer, None)
        link = self._links.get(peer)
        if link is not None:
            link.reset()
        if self._change is not None:
            self._change.reset_link(peer)
        return self.inner.detach(peer)


def _number(plan: TreePlan) -> tuple[str, int]:
    """Return the origin and version that identify a plan in `Reached`."""
    return plan.origin, plan.version
