"""Any graph (siena 4.3): one spanning tree, elected and repaired, under an algorithm for trees.

Of the two sound designs for graphs this is the one with a single tree. Every broker floods the list
of its live links and what they cost; one of them decides which are the tree, and changes none that
is in use without need (`plans`); and the algorithm within sees the links of the tree and no others.
A hierarchy within (`Ranked`) also learns which link leads up to the root of the plan.

Why this one and not a tree for every source: routing state stays that of a tree however many
origins there are, covering prunes across origins, and advertisements, parameters, patterns and
waves work unchanged, with one proof for all. The price is a longer way for some events.

A link of the tree is in use from when both ends joined it until one leaves it (`TreeLink`). Where a
link makes way for another, or turns, no event is under way (`changes`). While trees change
otherwise, an event whose number does not grow is a duplicate, or out of order, and goes nowhere.
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
        self._local: dict[Peer, None] = {}  # clients, and the other half of a gateway
        self._link_costs: dict[Peer, int] = {}
        """The costs of links, also those that are down: they come back as they were."""
        self._states = LinkStates(name)
        self._plans = Plans(name, has_ranks=self._ranked is not None)
        self._followed = self._plans.in_force
        """The plan by which links are joined and left."""
        self._above = ""
        """The broker that is above this one by that plan."""
        self._change: Change | None = None
        """The way to another plan, step by step."""
        self._parted: dict[Peer, None] = {}
        self._waves: dict[Peer, list[int]] = {}
        """Those that wait, by who asked."""
        self._is_agreed: bool | None = None
        """True if all go by the plan in force here; None if that is yet to be found out."""
        self._is_wanted: bool | None = None
        """True if that is the plan that this broker would make; None likewise."""
        self._numbers = LastNumbers()
        self._bides = False

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
        return [*self._local, *self._links]

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
        return self._above

    def parents(self) -> dict[str, str]:
        """Return the parent of each broker. As the plan in force has it."""
        plan = self._plans.in_force
        above = parents_below(plan.root, plan.links) if plan.root else {}
        return {below: each for below, each in above.items() if below != each}

    def sources(self, filter: Filter) -> bool | Peer:
        """Find out if anybody may publish what a filter wants. While it is open who is above there
        may be some.
        """
        found = self.inner.sources(filter)
        if self._ranked is None or found is True:
            return found
        return True if found in self._parted or not (found or self._is_whole()) else found

    @property
    def is_changing(self) -> bool:
        """True on the way to another tree."""
        return self._change is not None or bool(self._parted)

    @property
    def parted(self) -> Collection[Peer]:
        """Neighbours to whom a link of the tree broke: events go round until it is another."""
        return self._parted

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
        self._bides = True

    @property
    def has_pending_updates(self) -> bool:
        """True if changes of links wait for `uncork`."""
        return self._states.has_news

    def uncork(self) -> list[Send]:
        """Flood changes of links, and follow them. Until then no wave continues."""
        return self._states.news(self._links) + self._look_again()

    def holds(self, sender: Peer) -> bool:
        """Return whether what a peer publishes must wait."""
        return self._change is not None and sender in self._local

    def give_up(self) -> list[Send]:
        """End a change of the tree at once."""
        if self._change is None:
            return self._let_go() + self._look_again()
        plan = self._change.plan
        self._break_off()
        return self._follow(plan) + self._look_again()

    def attach(self, peer: Peer) -> list[Send]:
        """Add a peer that has connected. A neighbour is sent all plans and link states."""
        if peer in self._local or peer in self._links:
            raise ValueError(f"{peer} is attached already; detach it first")
        if peer.is_client or peer.role is Role.SIDE:
            self._local[peer] = None
            return self.inner.attach(peer)
        self._links[peer] = TreeLink()
        sends = self._let_go(peer) if peer in self._parted else []
        plans = [Send(peer, plan) for plan in self._plans.all()]
        known = [Send(peer, state) for state in self._states.others()]
        return sends + plans + known + self._links_changed()

    def detach(self, peer: Peer) -> list[Send]:
        """Forget a peer that is gone."""
        if peer in self._local:
            del self._local[peer]
            self._waves.pop(peer, None)
            return self.inner.detach(peer)
        if peer not in self._links:
            raise ValueError(f"{peer} is not attached")
        link = self._links.pop(peer)
        if self._change is not None:
            self._change.lose(peer)
        self._renew()
        sends: list[Send] = []
        if link.up and peer.name in shortest_paths(self._states.graph, self.name).parents:
            self._parted[peer] = None
        elif link.up:
            sends = self._down(peer)
        return sends + self._told()

    def receive(self, sender: Peer, message: Control) -> list[Send]:
        """Act on a message of a peer."""
        if sender in self._local:
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
                return self._heed(sender, message)
            case Join():
                return self._joined(sender, link, message)
            case Leave():
                return self._left(sender, link, message)
            case Batch() | Flood() | Settled() | Reached():
                if link.closing:
                    return []  # said before they knew that we left
                if not link.up:
                    raise IllegalMessage(sender, "the link is not in the tree")
                if isinstance(message, Reached):
                    return self._heard(sender, link, message)
                return self._receive(sender, message)
            case _:
                raise IllegalMessage(sender, f"{type(message).__name__} has no meaning here")

    def _receive(self, sender: Peer, message: Control) -> list[Send]:
        """Hand a message on. A wave waits until the tree is whole, as far as is known here: what is
        in force wherever this broker reaches would else be so without those that join just now.
        """
        if not isinstance(message, Batch) or message.wave is None or self._is_whole():
            return self.inner.receive(sender, message)
        self._waves.setdefault(sender, []).append(message.wave)
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

    def _go_on(self) -> list[Send]:
        """Waves that waited proceed, if the tree is whole now."""
        if not self._waves or not self._is_whole():
            return []
        waiting, self._waves = self._waves, {}
        return [
            send
            for sender, waves in waiting.items()
            for wave in waves
            for send in self.inner.receive(sender, Batch((), wave=wave))
        ]

    def unsettle(self) -> None:
        """Have the next wave go to all neighbours."""
        self.inner.unsettle()

    def route(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """Select the peers that events go to. It notes their numbers, and selects nothing for the
        same events again.
        """
        if sender not in self._local and sender != self._self:
            link = self._links.get(sender)
            if link is None or not link.up:
                return {}
        new = self._numbers.news(parcel)
        if new is ALL_NEW:
            return self._onward(sender, parcel)
        if new is NONE_NEW or not new.any():
            return {}
        return narrowed(self._onward(sender, parcel), new)

    def _onward(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """Select the peers for events of which some are new."""
        return self.inner.route(sender, parcel)

    def announced(self, sender: Peer, parcel: Parcel) -> RowMask | None:
        """Select the events that count, as advertised."""
        return self.inner.announced(sender, parcel)

    def has_alternate_path(self, neighbour: Peer) -> bool:
        """Return whether events may take another path to a neighbour."""
        del neighbour
        return True

    # --- link state ---

    def set_link_cost(self, peer: Peer, cost: int) -> list[Send]:
        """Set what the link to a neighbour weighs."""
        if not is_notable_change(self._link_costs.get(peer, 1), cost):
            return []
        self._link_costs[peer] = cost
        return self._links_changed() if peer in self._links else []

    def _links_changed(self) -> list[Send]:
        """Our own list of links is another."""
        self._renew()
        return self._told()

    def _renew(self) -> None:
        costs = {peer.name: self._link_costs.get(peer, 1) for peer in self._links}
        self._states.renew(costs, has_parent=self.has_parent)

    def _learn(self, sender: Peer, states: Iterable[LinkState]) -> list[Send]:
        found = {self._states.learn(each, sender) for each in states}
        if LinkNews.MINE in found:
            self._renew()
        return self._told() if found != {LinkNews.OLD} else []

    def _told(self) -> list[Send]:
        """Flood what is new, and look at the tree again: now, unless that is to wait."""
        return [] if self._bides else self.uncork()

    def _look_again(self) -> list[Send]:
        """Decide on a tree, if that is for us; join what came into it, leave what fell out.

        A change that has begun is gone through first, unless others may have gone another way.
        """
        self._is_agreed = self._is_wanted = None
        sends: list[Send] = []
        change = self._change
        if change is not None and not change.leads_to(self._plans.in_force):
            self._break_off()
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
        return sends + self._excuses() + self._step() + self._go_on()

    def _follow(self, plan: TreePlan) -> list[Send]:
        """Hold the links that a plan holds, and those to brokers that do not occur in it, unless
        they lead up and the plan has another link for that.
        """
        sends: list[Send] = []
        if plan != self._followed:
            sends = self._let_go()
            above = parents_below(plan.root, plan.links).get(self.name, "") if plan.root else ""
            self._above = "" if above == self.name else above
        self._followed = plan
        tree, brokers = frozenset(plan.links), brokers_in(plan)
        for peer, link in self._links.items():
            if edge_of(self.name, peer.name) in tree:
                link.wanted = True
                link.upward = None if self._ranked is None else peer.name == self._above
            else:
                link.wanted = (
                    link.mine is not None
                    and peer.name not in brokers
                    and not (link.upward and self._above)
                    and self._plans.holds_on_to(plan, edge_of(self.name, peer.name), peer.name)
                )
            sends += self._settle(peer, link)
        return sends

    def _break_off(self) -> None:
        """A change comes to nothing. What was held may be lost, now that it proceeds."""
        self._change = None
        self.routing_version += 1

    def _excuses(self) -> list[Send]:
        """Neighbours that are on the way to a plan that is not in force here wait in vain for this
        broker: it reports that it has reached all, before they ask, as some never would.
        """
        sends, mine, change = [], self._plans.in_force, self._change
        for peer, link in self._links.items():
            theirs = self._plans.in_force_for(peer.name)
            if not (link.up and theirs.calm) or theirs is mine:
                continue
            plan = _number(theirs)
            if plan != link.answered and (change is None or not change.is_to(plan)):
                link.answered = plan
                sends.append(Send(peer, Reached(*plan, LAST_ROUND)))
        return sends

    def _step(self) -> list[Send]:
        """Go as far in the change as neighbours allow."""
        sends: list[Send] = []
        while self._change is not None:
            change, before = self._change, self._change.round
            sends += change.go_on(self._heard_in(change))
            if change.round == before:
                break
            if before == 0:
                sends += self._follow(change.plan)
            if change.is_over:
                self._change = None
                sends += self._look_again()
        return sends

    def _heard_in(self, change: Change) -> dict[Peer, int]:
        """The links that count in this round of a change, and the round that each has sent. Who has
        started over and decided by itself meanwhile does not join, and is not waited for.
        """
        tree, brokers = frozenset(change.plan.links), brokers_in(change.plan)
        found: dict[Peer, int] = {}
        for peer, link in self._links.items():
            edge = edge_of(self.name, peer.name)
            if link.up:
                if edge in tree if change.round else peer.name in brokers:
                    found[peer] = change.heard(link.heard)
            elif (
                change.round
                and edge in tree
                and not self._plans.is_past(change.plan, edge, peer.name)
            ):
                found[peer] = NOT_IN_USE
        return found

    def _heard(self, sender: Peer, link: TreeLink, message: Reached) -> list[Send]:
        if link.heard is None or message.version >= link.heard.version:
            link.heard = message
        plan = message.origin, message.version
        if (self._change is not None and self._change.is_to(plan)) or (
            plan == _number(self._plans.in_force) != _number(self._followed)
        ):
            return self._step() + self._go_on()
        if link.answered == plan or message.round == LAST_ROUND:
            return []  # that may be such an answer: two of them would go back and forth for ever
        link.answered = plan
        return [Send(sender, Reached(*plan, LAST_ROUND))]

    def _heed(self, sender: Peer, plan: TreePlan) -> list[Send]:
        if not self._plans.learn(plan):
            return []
        flood = [Send(peer, plan) for peer in self._links if peer != sender]
        return flood + self._look_again()

    def _settle(self, peer: Peer, link: TreeLink) -> list[Send]:
        """Make one link what the tree wants it to be, as far as the other end allows."""
        sends = [Send(peer, each) for each in link.to_say(calm=self.is_changing)]
        if link.is_joined != link.up:
            link.up = not link.up
            sends += self._up(peer, link) if link.up else self._down(peer)
        return sends

    def _up(self, peer: Peer, link: TreeLink) -> list[Send]:
        """The tree has a link more."""
        if self._ranked is not None and link.upward:
            self._ranked.above = peer
        return self.inner.attach(peer)

    def _joined(self, sender: Peer, link: TreeLink, message: Join) -> list[Send]:
        if link.closing:
            return []  # said before they knew that we left; their Leave follows
        if link.theirs is not None:
            raise IllegalMessage(sender, "it joined the link twice")
        if (message.upward is None) != (self._ranked is None):
            raise IllegalMessage(sender, "it joined a hierarchy without a rank, or the reverse")
        link.theirs = message
        return self._settle(sender, link) + self._step() + self._go_on()

    def _left(self, sender: Peer, link: TreeLink, message: Leave) -> list[Send]:
        link.theirs = None
        if link.closing:
            link.closing = False
            return self._settle(sender, link) + self._step() + self._go_on()
        link.mine = None
        sends = [Send(sender, Leave(message.calm))]
        if link.up:
            link.up = False
            sends += self._down(sender)
        return sends + self._settle(sender, link) + self._step() + self._go_on()

    def _let_go(self, *peers: Peer) -> list[Send]:
        """Events go round to neighbours no longer, to these or to all."""
        gone = peers or tuple(self._parted)
        for peer in gone:
            del self._parted[peer]
        return [send for peer in gone for send in self._down(peer)]

    def _down(self, peer: Peer) -> list[Send]:
        """The tree does without a link, and a requester beyond it starts over."""
        self._waves.pop(peer, None)
        link = self._links.get(peer)
        if link is not None:
            link.forget()
        if self._change is not None:
            self._change.forget(peer)
        return self.inner.detach(peer)


def _number(plan: TreePlan) -> tuple[str, int]:
    """Return the name of a plan in `Reached`."""
    return plan.origin, plan.version
