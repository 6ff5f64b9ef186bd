"""`Plans`: decides which links are the one tree of a graph, and keeps the plans of others.

If every broker computed the tree by itself, trees would differ whenever a broker joins. So of the
brokers that reach each other the one with the least name decides. It makes a plan, floods it, and
keeps links in use as far as possible (`trees`). Its successor continues from the existing plans, so
the tree stays when another broker comes to decide.

1. A broker *occurs* in a plan as its origin, or at an end of one of its links. Of the plans in
   which it occurs, the one with the highest version is *in force* for it (of equal versions, that
   of the lesser name). A link is in use when the same plan is in force at both its ends.
2. The deciding broker makes a new plan, with a version above all others, unless one plan is in
   force for all brokers that it reaches, and equals its own decision. As a plan in force everywhere
   equals each broker's decision, plans change for ever only if links do.
3. A plan is *calm* if a link in use is replaced or turned by it (`changes`).
4. Two components that meet follow their own plans until there is one for both. A link to a broker
   outside the plan stays as it is. Of several links to one outside component a single one stays, as
   two would close a circle.
5. With *ranks* a plan names the root. If some reachable brokers have a parent and others have none,
   the root is one of the latter. It stays root while it is reachable; else the middle of the tree
   becomes root.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from collections.abc import Set as AbstractSet
from typing import Final

from palio.routing.graphs import MAX_ORIGINS, MAX_VERSION
from palio.routing.messages import Join, Leave, Reached, TreePlan
from palio.routing.trees import (
    Edge,
    Graph,
    edge_of,
    middle,
    parents_below,
    shortest_paths,
    spanning_tree,
)

MAX_PLANNED: Final = 50_000
"""Links and origins of all kept plans; beyond, those of the least versions are evicted. Few plans
are in force at a time in a network, so a neighbour that sends more has invented some."""

_NONE: Final = TreePlan("", 0, ())


def brokers_in(plan: TreePlan) -> set[str]:
    """Collect the brokers that occur in a plan.

    >>> sorted(brokers_in(TreePlan("a", 1, (("b", "c"),))))
    ['a', 'b', 'c']
    """
    return {plan.origin, *(end for link in plan.links for end in link)}


class Plans:
    """The plans that one broker has received, and its own decisions.

    >>> plans, graph = Plans("a"), {"a": {"b": 1}, "b": {"a": 1}}
    >>> plans.decide(graph)
    TreePlan(origin='a', version=1, links=(('a', 'b'),), calm=False, root='')
    >>> plans.decide(graph), plans.tree
    (None, frozenset({('a', 'b')}))
    """

    def __init__(self, name: str, *, has_ranks: bool = False) -> None:
        self.name = name
        self.has_ranks = has_ranks
        self._newest: dict[str, TreePlan] = {}  # by origin
        self._in_force: dict[str, TreePlan] = {}  # by broker

    @property
    def in_force(self) -> TreePlan:
        """The plan that is in force here."""
        return self.in_force_for(self.name)

    def in_force_for(self, broker: str) -> TreePlan:
        """Return the plan in force for another broker, by the plans received here."""
        return self._in_force.get(broker, _NONE)

    @property
    def tree(self) -> frozenset[Edge]:
        """The links of the plan in force here."""
        return frozenset(self.in_force.links)

    def is_as_wanted(self, graph: Graph, below: AbstractSet[str] = frozenset()) -> bool:
        """Return whether the plan in force equals this broker's own decision."""
        wanted = spanning_tree(graph, self._used(), self.name)
        return self.tree == wanted and self.in_force.root == self._root(wanted, graph, below)

    def is_whole(self, graph: Graph) -> bool:
        """Return whether one plan is in force for all reachable brokers, and its live links connect
        them (W3 in `tests.models.waves`). Before the first plan no broker has a link in use.
        """
        plan = self._in_force.get(self.name, _NONE)
        reached = shortest_paths(graph, self.name).distances
        if len(reached) == 1:
            return True
        links = sum(one in reached and other in graph[one] for one, other in plan.links)
        is_tree = links == len(reached) - 1
        return is_tree and all(self._in_force.get(broker) is plan for broker in reached)

    def is_superseded_at(self, plan: TreePlan, link: Edge, broker: str) -> bool:
        """Return whether a newer plan, without a link of this one, is in force for a broker."""
        newer = self.in_force_for(broker)
        return _rank(newer) < _rank(plan) and link not in newer.links

    def keeps_outside_link(self, plan: TreePlan, link: Edge, outsider: str) -> bool:
        """Return whether a link to a broker outside a plan stays in use.

        The outsider's component follows a plan of its own. Of the links to it the first one stays.
        """
        inside, their_links = brokers_in(plan), self.in_force_for(outsider).links
        if link not in their_links or inside.isdisjoint(link):
            return True
        neighbours: dict[str, list[str]] = {}
        for one, other in their_links:
            neighbours.setdefault(one, []).append(other)
            neighbours.setdefault(other, []).append(one)
        # The outsider's component is what its plan reaches without passing through ours.
        outside, unvisited = {outsider}, [outsider]
        while unvisited:
            brokers = set(neighbours[unvisited.pop()]) - inside - outside
            outside |= brokers
            unvisited += brokers
        return link == min(
            edge for edge in their_links if (edge[0] in outside) != (edge[1] in outside)
        )

    def all(self) -> list[TreePlan]:
        """List the plans, by origin, that a new neighbour is sent."""
        return [plan for _, plan in sorted(self._newest.items())]

    def learn(self, plan: TreePlan) -> bool:
        """Keep a plan if it is newer and valid; return whether it is in force for any broker."""
        newest = self._newest.get(plan.origin, _NONE)
        # A version at the limit would leave the next deciding broker none above it.
        if not newest.version < plan.version < MAX_VERSION or len(plan.links) > MAX_ORIGINS:
            return False
        if not (_has_ranks(plan) if self.has_ranks else not plan.root):
            return False
        self._newest[plan.origin] = plan
        self._update_in_force()
        return plan.origin in self._newest

    def decide(
        self,
        graph: Graph,
        below: AbstractSet[str] = frozenset(),
        is_half_gone: Callable[[Edge], bool] = lambda _edge: False,
    ) -> TreePlan | None:
        """Make a plan to flood, if this broker decides and a new one is due.

        `below` are the brokers with a parent. While only one end has given up a broken link
        (`is_half_gone`) and another path joins its ends, no plan is due. The other end has events
        yet to send over that path, and later events that overtook them would make them duplicates.
        No path leads to a lost broker once all its neighbours have given it up.
        """
        if any(neighbour < self.name for neighbour in graph[self.name]):
            return None  # most brokers need not search the graph to know that another decides
        reached = shortest_paths(graph, self.name).distances
        if self.name != min(reached):
            return None
        used = set(self._used())
        wanted = spanning_tree(graph, used, self.name)
        root = self._root(wanted, graph, below)
        if self._is_in_force(wanted, root, reached):
            return None
        if any(is_half_gone(edge) and reached.keys() >= set(edge) for edge in used):
            return None
        version = max((plan.version for plan in self._newest.values()), default=0) + 1
        # Links that are only added, or only removed, need no rounds: no event changes its path.
        is_exchange = not wanted >= used and not wanted <= used
        is_calm = is_exchange or self._may_turn(wanted, root)
        plan = TreePlan(self.name, version, tuple(sorted(wanted)), is_calm, root)
        self._newest[self.name] = plan
        self._update_in_force()
        return plan

    def _root(self, links: Collection[Edge], graph: Graph, below: AbstractSet[str]) -> str:
        """Choose the root of a tree: that of the newest plan whose root is still eligible, else the
        middle.
        """
        if not self.has_ranks or not links:
            return ""
        tree: dict[str, dict[str, int]] = {}
        for one, other in links:
            cost = graph[one][other]
            tree.setdefault(one, {})[other] = cost
            tree.setdefault(other, {})[one] = cost
        eligible = (tree.keys() - below) or tree.keys()
        for plan in sorted(self._newest.values(), key=_rank):
            if plan.root in eligible and self._in_force.get(plan.root) is plan:
                return plan.root
        return middle(tree, eligible)

    def _may_turn(self, links: Collection[Edge], root: str) -> bool:
        """Return whether a link may lead up in the other direction now.

        This broker may have no plan yet for links between brokers outside the plan in force here,
        so such links may turn.
        """
        if not root:
            return False
        # By link its lower end in the newest plan: later entries replace those of older plans.
        lower = {
            edge_of(below, above): below
            for plan in sorted(self._newest.values(), key=_rank, reverse=True)
            for below, above in parents_below(plan.root, plan.links).items()
        }
        above, inside = parents_below(root, links), brokers_in(self.in_force)
        for link in links:
            below = lower.get(link)
            if below is None and inside.isdisjoint(link):
                return True
            if below is not None and edge_of(below, above[below]) != link:
                return True
        return False

    def _is_in_force(self, wanted: Collection[Edge], root: str, reached: Collection[str]) -> bool:
        """Return whether one plan with this tree and root is in force for all reachable brokers."""
        plan = self._in_force.get(self.name, _NONE)
        if plan is _NONE:
            return not wanted
        return (
            set(plan.links) == wanted
            and plan.root == root
            and all(self._in_force.get(broker) is plan for broker in reached)
        )

    def _used(self) -> list[Edge]:
        """List the links in use, by rule 1."""
        return [
            link
            for plan in self._newest.values()
            for link in plan.links
            if all(self._in_force.get(end) is plan for end in link)
        ]

    def _update_in_force(self) -> None:
        """Compute the plan in force for each broker, and drop plans that are in force for none."""
        self._in_force = {}
        budget = MAX_PLANNED
        for plan in sorted(self._newest.values(), key=_rank):
            budget -= 1 + len(plan.links)
            if budget < 0:
                del self._newest[plan.origin]
                continue
            brokers = [broker for broker in brokers_in(plan) if broker not in self._in_force]
            self._in_force.update(dict.fromkeys(brokers, plan))
            if not brokers:
                del self._newest[plan.origin]


def _rank(plan: TreePlan) -> tuple[int, str]:
    """Order plans, the one that takes precedence first."""
    return -plan.version, plan.origin


def _has_ranks(plan: TreePlan) -> bool:
    """Return whether the links of a plan are a tree with its root, so that each link leads up at
    one end. A plan without links has no root.
    """
    if not plan.links:
        return not plan.root
    return len(parents_below(plan.root, plan.links)) == len(plan.links) + 1


class TreeLink:
    """One end of a link: the state that the tree wants, and the handshake with the other end.

    A link is in use from when both ends sent `Join`, and agreed on which is above, until one sends
    `Leave`. The other end answers by `Leave`, and only then may the link be joined again. So no
    message of one use arrives in the next. A link that turns is left and joined again.

    >>> link = TreeLink()
    >>> link.wanted = True
    >>> list(link.updates(calm=False)), link.is_joined
    ([Join(calm=False, upward=None)], False)
    >>> link.their_join = Join()
    >>> link.is_joined
    True
    """

    __slots__ = (
        "answered",
        "closing",
        "last_reached",
        "our_join",
        "their_join",
        "up",
        "upward",
        "wanted",
    )

    def __init__(self) -> None:
        self.wanted = False
        """True if our tree has the link."""
        self.upward: bool | None = None
        """True if it leads up in our tree; None where trees have no root."""
        self.our_join: Join | None = None
        self.their_join: Join | None = None
        self.closing = False
        """True from our Leave to its answer."""
        self.up = False
        """True if the inner router uses the link."""
        self.last_reached: Reached | None = None
        """The last round that the other end reported in this use."""
        self.answered = ("", 0)
        """The plan for which this broker, outside its change, sent all rounds."""

    @property
    def is_joined(self) -> bool:
        """True if both ends joined, and agree on which is above."""
        ours, theirs = self.our_join, self.their_join
        if ours is None or theirs is None:
            return False
        return ours.upward is None or ours.upward != theirs.upward

    def updates(self, *, calm: bool) -> Iterator[Join | Leave]:
        """Yield the messages that bring the link to its wanted state, if the other end allows it
        yet.
        """
        if self.wanted and self.our_join is None and not self.closing:
            self.our_join = Join(calm, self.upward)
            yield self.our_join
        if self.our_join is not None and not (self.wanted and self.our_join.upward == self.upward):
            self.our_join, self.their_join, self.closing = None, None, True
            yield Leave(calm)

    def reset(self) -> None:
        """Forget the rounds of a use that is over."""
        self.last_reached, self.answered = None, ("", 0)
