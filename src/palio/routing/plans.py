"""`Plans`: which links are the one tree of a graph, as one broker of it decides.

Trees that every broker computes by itself would be others whenever one joins. So one broker of
those that can reach each other decides, the one with the least name: it makes a plan, which is
flooded, and which keeps the links that are in use as far as that is possible (`trees`). The broker
that decides next, since it joined or the other is gone, continues from the plans that there are.
That a name is the least makes no other tree.

1. A broker *occurs* in a plan as its origin, or at an end of one of its links. Of the plans in
   which it occurs, the one with the highest version is *in force* for it (of two of a version, that
   of the lesser name). A link is in use when the same plan is in force at both its ends.
2. Who decides makes a new plan, of a version above all others, unless one plan is in force for all
   whom it can reach and is what it would decide. So there is no end of plans only if links come and
   go without end: a plan that is known everywhere is what all would decide.
3. A plan is *calm* if a link in use makes way for another, or turns round (`changes`).
4. Two parts that find each other go by their own plans until there is one for both; a link to a
   broker that does not occur in the plan stays as it is. Where several links lead to a part that
   does not occur in it, one of them stays: with two, there would be a circle.
5. With *ranks* a plan says who is the root. If some whom it can reach have a parent and others have
   none, it is one of those. It remains as long as it is there, and else is the middle of the tree.
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
"""Links and origins of all plans that are kept: those with the lesser versions are forgotten. In a
network few plans are in force at a time; who sends more has made some up."""

_NONE: Final = TreePlan("", 0, ())


def brokers_in(plan: TreePlan) -> set[str]:
    """The brokers that occur in a plan.

    >>> sorted(brokers_in(TreePlan("a", 1, (("b", "c"),))))
    ['a', 'b', 'c']
    """
    return {plan.origin, *(end for link in plan.links for end in link)}


class Plans:
    """The plans that one broker knows of, and its own decision.

    >>> plans, graph = Plans("a"), {"a": {"b": 1}, "b": {"a": 1}}
    >>> plans.decide(graph)
    TreePlan(origin='a', version=1, links=(('a', 'b'),), calm=False, root='')
    >>> plans.decide(graph), plans.tree
    (None, frozenset({('a', 'b')}))
    """

    def __init__(self, name: str, *, has_ranks: bool = False) -> None:
        self.name = name
        self.has_ranks = has_ranks
        self._newest: dict[str, TreePlan] = {}
        """By origin."""
        self._in_force: dict[str, TreePlan] = {}
        """By broker."""

    @property
    def in_force(self) -> TreePlan:
        """The plan that is in force here."""
        return self.in_force_for(self.name)

    def in_force_for(self, broker: str) -> TreePlan:
        """The plan that is in force for another broker, as far as is known here."""
        return self._in_force.get(broker, _NONE)

    @property
    def tree(self) -> frozenset[Edge]:
        """Its links."""
        return frozenset(self.in_force.links)

    def is_as_wanted(self, graph: Graph, below: AbstractSet[str] = frozenset()) -> bool:
        """Return whether this broker would make no other plan than that."""
        wanted = spanning_tree(graph, self._used(), self.name)
        return self.tree == wanted and self.in_force.root == self._root(wanted, graph, below)

    def is_whole(self, graph: Graph) -> bool:
        """Return whether all whom this broker reaches go by the plan that is in force here, and
        its links that are there connect them (W3 in `tests.models.waves`). As long as there is
        none, none of them has a link in use.
        """
        mine = self._in_force.get(self.name, _NONE)
        reached = shortest_paths(graph, self.name).distances
        if len(reached) == 1:
            return True
        links = sum(one in reached and other in graph[one] for one, other in mine.links)
        is_tree = links == len(reached) - 1
        return is_tree and all(self._in_force.get(each) is mine for each in reached)

    def is_past(self, plan: TreePlan, link: Edge, broker: str) -> bool:
        """Return whether a newer plan is in force for a broker, which does not hold a link of that
        one.
        """
        newer = self.in_force_for(broker)
        return _rank(newer) < _rank(plan) and link not in newer.links

    def holds_on_to(self, plan: TreePlan, link: Edge, outsider: str) -> bool:
        """Return whether a link stays to a broker that does not occur in a plan: of those to its
        part, which goes by a plan of its own, the first one does.
        """
        inside, theirs = brokers_in(plan), self.in_force_for(outsider).links
        if link not in theirs or inside.isdisjoint(link):
            return True
        near: dict[str, list[str]] = {}
        for one, other in theirs:
            near.setdefault(one, []).append(other)
            near.setdefault(other, []).append(one)
        part, news = {outsider}, [outsider]
        while news:
            more = [each for each in near[news.pop()] if each not in inside and each not in part]
            part.update(more)
            news += more
        return link == min(edge for edge in theirs if (edge[0] in part) != (edge[1] in part))

    def all(self) -> list[TreePlan]:
        """The plans, by origin, that a new neighbour is sent."""
        return [plan for _, plan in sorted(self._newest.items())]

    def learn(self, plan: TreePlan) -> bool:
        """Keep a plan if it is news, and could be one."""
        known = self._newest.get(plan.origin, _NONE)
        if not known.version < plan.version < MAX_VERSION or len(plan.links) > MAX_ORIGINS:
            return False
        if not (_has_ranks(plan) if self.has_ranks else not plan.root):
            return False
        self._newest[plan.origin] = plan
        self._look_again()
        return plan.origin in self._newest

    def decide(
        self,
        graph: Graph,
        below: AbstractSet[str] = frozenset(),
        is_half_gone: Callable[[Edge], bool] = lambda _edge: False,
    ) -> TreePlan | None:
        """The plan to flood, if it is for this broker to make one. `below`: those with a parent.

        A link in use that broke is in use until both ends have given it up (`is_half_gone`), where
        another way leads from one to the other: the later one has events yet to be sent round, and
        what takes another way before these makes them duplicates. Of a broker that is gone no way
        leads to it once all others have given it up.
        """
        if any(neighbour < self.name for neighbour in graph[self.name]):
            return None  # seen at once
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
        is_exchange = not wanted >= used and not wanted <= used
        is_calm = is_exchange or self._may_turn(wanted, root)
        plan = TreePlan(self.name, version, tuple(sorted(wanted)), is_calm, root)
        self._newest[self.name] = plan
        self._look_again()
        return plan

    def _root(self, links: Collection[Edge], graph: Graph, below: AbstractSet[str]) -> str:
        """The root of a tree. That of the newest plan which has one that may be it, remains."""
        if not self.has_ranks or not links:
            return ""
        tree: dict[str, dict[str, int]] = {}
        for one, other in links:
            weight = graph[one][other]
            tree.setdefault(one, {})[other] = weight
            tree.setdefault(other, {})[one] = weight
        able = (tree.keys() - below) or tree.keys()
        for plan in sorted(self._newest.values(), key=_rank):
            if plan.root in able and self._in_force.get(plan.root) is plan:
                return plan.root
        return middle(tree, able)

    def _may_turn(self, links: Collection[Edge], root: str) -> bool:
        """Return whether a link may lead up the other way so far. Of links between brokers that
        the plan in force here does not know, nothing may be known yet.
        """
        if not root:
            return False
        lower = {
            edge_of(below, above): below
            for plan in sorted(self._newest.values(), key=_rank, reverse=True)
            for below, above in parents_below(plan.root, plan.links).items()
        }
        above, mine = parents_below(root, links), brokers_in(self.in_force)
        for link in links:
            below = lower.get(link)
            if below is None and mine.isdisjoint(link):
                return True
            if below is not None and edge_of(below, above[below]) != link:
                return True
        return False

    def _is_in_force(self, wanted: Collection[Edge], root: str, reached: Collection[str]) -> bool:
        """Return whether all whom this broker reaches go by one plan, which is what it wants."""
        mine = self._in_force.get(self.name, _NONE)
        if mine is _NONE:
            return not wanted
        return (
            set(mine.links) == wanted
            and mine.root == root
            and all(self._in_force.get(broker) is mine for broker in reached)
        )

    def _used(self) -> list[Edge]:
        return [
            link
            for plan in self._newest.values()
            for link in plan.links
            if all(self._in_force.get(end) is plan for end in link)
        ]

    def _look_again(self) -> None:
        """Find out which plan is in force for whom, and drop plans that are in force for nobody."""
        self._in_force = {}
        room = MAX_PLANNED
        for plan in sorted(self._newest.values(), key=_rank):
            room -= 1 + len(plan.links)
            if room < 0:
                del self._newest[plan.origin]
                continue
            new = [end for end in brokers_in(plan) if end not in self._in_force]
            self._in_force.update(dict.fromkeys(new, plan))
            if not new:
                del self._newest[plan.origin]


def _rank(plan: TreePlan) -> tuple[int, str]:
    """Order plans: the lesser one counts."""
    return -plan.version, plan.origin


def _has_ranks(plan: TreePlan) -> bool:
    """Return whether the links of a plan are a tree that its root is in, so that each end of a
    link has a rank. Without links there is no root.
    """
    if not plan.links:
        return not plan.root
    return len(parents_below(plan.root, plan.links)) == len(plan.links) + 1


class TreeLink:
    """One end of a link: what the tree wants of it, and what was sent.

    A link is in use from when both ends sent `Join`, and agreed on which is above, until one says
    `Leave`. A `Leave` is answered by `Leave`, and only then may the link be joined again, so what
    is sent within one use never meets the next. A link that turns is left and joined again.

    >>> link = TreeLink()
    >>> link.wanted = True
    >>> list(link.to_say(calm=False)), link.is_joined
    ([Join(calm=False, upward=None)], False)
    >>> link.theirs = Join()
    >>> link.is_joined
    True
    """

    __slots__ = ("answered", "closing", "heard", "mine", "theirs", "up", "upward", "wanted")

    def __init__(self) -> None:
        self.wanted = False
        """Our tree holds it..."""
        self.upward: bool | None = None
        """...and the way up that it has there; None where trees have no root."""
        self.mine: Join | None = None
        """We said this."""
        self.theirs: Join | None = None
        """They said this."""
        self.closing = False
        """We said Leave and were not yet answered."""
        self.up = False
        """Both joined, and the inner router knows."""
        self.heard: Reached | None = None
        """The last round they reported in this use..."""
        self.answered = ("", 0)
        """...and of which plan it was answered from outside its change."""

    @property
    def is_joined(self) -> bool:
        """True if both ends joined, and agree on which is above."""
        mine, theirs = self.mine, self.theirs
        if mine is None or theirs is None:
            return False
        return mine.upward is None or mine.upward != theirs.upward

    def to_say(self, *, calm: bool) -> Iterator[Join | Leave]:
        """Yield the messages that make the link what the tree wants, as far as the other end
        allows.
        """
        if self.wanted and self.mine is None and not self.closing:
            self.mine = Join(calm, self.upward)
            yield self.mine
        if self.mine is not None and not (self.wanted and self.mine.upward == self.upward):
            self.mine, self.theirs, self.closing = None, None, True
            yield Leave(calm)

    def forget(self) -> None:
        """A use of the link is over, and what was sent of plans in it."""
        self.heard, self.answered = None, ("", 0)
