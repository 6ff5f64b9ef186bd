"""Any graph (siena 4.3): one spanning tree, elected and repaired, under an algorithm for trees.

Of the two sound designs for graphs this is the one with a single tree. Every broker floods the list
of its live links and what they weigh; one of them decides which are the tree, and changes none that
is in use without need (`plans`); and the algorithm within (`Acyclic` or `Advertised`) sees the
links of the tree and no others. Why this one and not a tree for every source: routing state stays
that of a tree however many origins there are, covering prunes across origins, and advertisements,
parameters, patterns and waves work unchanged, with one proof for all. The price is a longer way for
some events.

A link of the tree is in use from when both ends said `Join` until one says `Leave`; a `Leave` is
answered by `Leave`, and only then may the link be joined again, so what is said within one use
never meets the next. While trees change, a publisher's numbers must grow: what does not is a
duplicate or out of order, and goes nowhere.
"""

from __future__ import annotations

from collections.abc import Callable

from palio.matching.protocol import RowMask
from palio.model.filters import Filter
from palio.model.parcels import Parcel
from palio.routing.acyclic import Acyclic
from palio.routing.graphs import ALL_NEW, NONE_NEW, LastNumbers, LinkNews, LinkStates
from palio.routing.messages import (
    Batch,
    Control,
    Flood,
    Join,
    Leave,
    LinkState,
    Settled,
    TreePlan,
)
from palio.routing.plans import Plans
from palio.routing.protocol import IllegalMessage, Peer, Role, Router, Send, narrowed
from palio.routing.trees import edge_of, is_other_weight

__all__ = ["General"]


class _Link:
    """A link to a neighbour, and its use by the tree."""

    __slots__ = ("closing", "mine", "theirs", "up", "wanted")

    def __init__(self) -> None:
        self.wanted = False  # our tree holds it
        self.mine = False  # we said Join
        self.theirs = False  # they said Join
        self.closing = False  # we said Leave and were not yet answered
        self.up = False  # both joined, and the inner router knows


class General:
    """One broker of any graph, with a router for trees inside.

    >>> broker = General("b1")
    >>> [send.message for send in broker.attach(Peer.broker("b2"))]
    [LinkState(origin='b1', version=1, neighbours=('b2',), weights=(1,))]
    """

    follows_sources = False
    ways = 0

    def __init__(self, name: str, inner: Callable[[str], Router] = Acyclic) -> None:
        self.name = name
        self.inner = inner(name)
        self._links: dict[Peer, _Link] = {}
        self._local: dict[Peer, None] = {}  # clients, and the other half of a gateway
        self._weights: dict[Peer, int] = {}
        """What links weigh, also those that are down: they come back as they were."""
        self._states = LinkStates(name)
        self._plans = Plans(name)
        self._waves: dict[Peer, list[int]] = {}
        """Those that wait, by who asked."""
        self._is_agreed: bool | None = None
        """Whether all go by the plan in force here; None if that is yet to be found out."""
        self._numbers = LastNumbers()

    @property
    def is_advertised(self) -> bool:
        """See `Router`."""
        return self.inner.is_advertised

    @property
    def takes_advertisements(self) -> bool:
        """See `Router`."""
        return self.inner.takes_advertisements

    @property
    def peers(self) -> list[Peer]:
        """All attached peers: clients, then neighbours."""
        return [*self._local, *self._links]

    @property
    def tree(self) -> frozenset[tuple[str, str]]:
        """The spanning tree as this broker sees it."""
        return self._plans.tree

    def sources(self, filter: Filter) -> bool | Peer:
        """See `Router`."""
        return self.inner.sources(filter)

    def attach(self, peer: Peer) -> list[Send]:
        """See `Router`. A neighbour is told all plans and link states."""
        if peer in self._local or peer in self._links:
            raise ValueError(f"{peer} is attached already; detach it first")
        if peer.is_client or peer.role is Role.SIDE:
            self._local[peer] = None
            return self.inner.attach(peer)
        self._links[peer] = _Link()
        plans = [Send(peer, plan) for plan in self._plans.all()]
        known = [Send(peer, state) for state in self._states.others()]
        return plans + known + self._links_changed()

    def detach(self, peer: Peer) -> list[Send]:
        """See `Router`."""
        if peer in self._local:
            del self._local[peer]
            self._waves.pop(peer, None)
            return self.inner.detach(peer)
        if peer not in self._links:
            raise ValueError(f"{peer} is not attached")
        link = self._links.pop(peer)
        sends = self._down(peer) if link.up else []
        return sends + self._links_changed()

    def receive(self, sender: Peer, message: Control) -> list[Send]:
        """See `Router`."""
        if sender in self._local:
            return self._receive(sender, message)
        link = self._links.get(sender)
        if link is None:
            raise IllegalMessage(sender, "it is not attached")
        match message:
            case LinkState():
                return self._learn(sender, message)
            case TreePlan():
                return self._heed(sender, message)
            case Join():
                return self._joined(sender, link)
            case Leave():
                return self._left(sender, link)
            case Batch() | Flood() | Settled():
                if link.closing:
                    return []  # said before they knew that we left
                if not link.up:
                    raise IllegalMessage(sender, "the link is not in the tree")
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
        if self._is_agreed is None:
            self._is_agreed = self._plans.is_whole(graph)
        return (
            self._is_agreed
            and all(peer.name in graph[self.name] for peer in self._links)
            and all(link.up == link.wanted and not link.closing for link in self._links.values())
        )

    def _go_on(self) -> list[Send]:
        """Waves that waited go their way, if the tree is whole now."""
        if not self._waves or not self._is_whole():
            return []
        waiting, self._waves = self._waves, {}
        return [
            send
            for sender, waves in waiting.items()
            for wave in waves
            for send in self.inner.receive(sender, Batch((), wave=wave))
        ]

    def route(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """See `Router`. Notes the numbers: asked again about the same events it gives nothing."""
        if sender not in self._local:
            link = self._links.get(sender)
            if link is None or not link.up:
                return {}
        new = self._numbers.news(parcel)
        if new is ALL_NEW:
            return self.inner.route(sender, parcel)
        if new is NONE_NEW or not new.any():
            return {}
        return narrowed(self.inner.route(sender, parcel), new)

    def announced(self, sender: Peer, parcel: Parcel) -> RowMask | None:
        """See `Router`."""
        return self.inner.announced(sender, parcel)

    # --- link state ---

    def weigh(self, peer: Peer, weight: int) -> list[Send]:
        """See `Router`."""
        if not is_other_weight(self._weights.get(peer, 1), weight):
            return []
        self._weights[peer] = weight
        return self._links_changed() if peer in self._links else []

    def _links_changed(self) -> list[Send]:
        """Flood our own list of links, and look at the tree again."""
        weights = {peer.name: self._weights.get(peer, 1) for peer in self._links}
        state = self._states.renew(weights)
        return [Send(peer, state) for peer in self._links] + self._look_again()

    def _learn(self, sender: Peer, state: LinkState) -> list[Send]:
        match self._states.learn(state):
            case LinkNews.OLD:
                return []
            case LinkNews.MINE:
                return self._links_changed()
        flood = [Send(peer, state) for peer in self._links if peer != sender]
        return flood + self._look_again()

    def _look_again(self) -> list[Send]:
        """Decide on a tree, if that is for us; join what came into it, leave what fell out."""
        self._is_agreed = None
        plan = self._plans.decide(self._states.graph)
        sends = [] if plan is None else [Send(peer, plan) for peer in self._links]
        tree = self.tree
        for peer, link in self._links.items():
            is_elsewhere = link.mine and not self._plans.occurs(peer.name)
            link.wanted = is_elsewhere or edge_of(self.name, peer.name) in tree
            sends += self._settle(peer, link)
        return sends + self._go_on()

    def _heed(self, sender: Peer, plan: TreePlan) -> list[Send]:
        if not self._plans.learn(plan):
            return []
        flood = [Send(peer, plan) for peer in self._links if peer != sender]
        return flood + self._look_again()

    def _settle(self, peer: Peer, link: _Link) -> list[Send]:
        """Make one link what the tree wants it to be, as far as the other end allows."""
        sends: list[Send] = []
        if link.wanted and not link.mine and not link.closing:
            link.mine = True
            sends.append(Send(peer, Join()))
        if not link.wanted and link.mine:
            link.mine, link.theirs, link.closing = False, False, True
            sends.append(Send(peer, Leave()))
        up = link.mine and link.theirs
        if up != link.up:
            link.up = up
            sends += self.inner.attach(peer) if up else self._down(peer)
        return sends

    def _joined(self, sender: Peer, link: _Link) -> list[Send]:
        if link.closing:
            return []  # said before they knew that we left; their Leave follows
        if link.theirs:
            raise IllegalMessage(sender, "it joined the link twice")
        link.theirs = True
        return self._settle(sender, link) + self._go_on()

    def _left(self, sender: Peer, link: _Link) -> list[Send]:
        link.theirs = False
        if link.closing:
            link.closing = False
            return self._settle(sender, link) + self._go_on()
        link.mine = False
        sends = [Send(sender, Leave())]
        if link.up:
            link.up = False
            sends += self._down(sender)
        return sends + self._settle(sender, link) + self._go_on()

    def _down(self, peer: Peer) -> list[Send]:
        """The tree does without a link, and whoever asked over it begins anew."""
        self._waves.pop(peer, None)
        return self.inner.detach(peer)
