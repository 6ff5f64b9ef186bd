"""`FactStore`: stores the newest fact of each origin and subject, and derives links, removals and
paths.

`LocalFacts` adds the facts of the broker itself, and `ClusterState` the exchange with peers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from math import inf

from palio.node.fact_verifier import LEAVING, LINKS, REMOVED, is_subscription
from palio.node.limits import MAX_BROKERS, MAX_FACTS
from palio.protocol.messages import Fact


class FactStore:
    """The facts that one broker has, its own among them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.routing_version = 0
        """Grows whenever paths through the network may have changed."""
        self._facts: dict[tuple[str, str], Fact] = {}
        # By durable subscription, the newest fact of each origin, in the order of origins.
        self._about: dict[str, tuple[Fact, ...]] = {}
        # By origin, the number of its facts.
        self._counts: dict[str, int] = {}
        # By broker, the newest version.
        self._versions: dict[str, int] = {}
        # By removed broker, the version up to which its facts have ended.
        self._removed: dict[str, int] = {}
        # By broker, the first version of its newest incarnation.
        self._incarnations: dict[str, int] = {}
        self.restarted: dict[str, None] = {}
        """Brokers that began another incarnation. The caller takes them out."""
        # By broker that has lost its disk, while older facts of it are stored here: when it was
        # last sent these.
        self._reclaimed: dict[str, int] = {}
        # Own subjects that were taken over from an earlier incarnation, with their versions there.
        self._lost_disks: dict[str, float] = {}

    def fact(self, origin: str, subject: str) -> Fact | None:
        """Return the newest fact of an origin about a subject."""
        return self._facts.get((origin, subject))

    def facts_about(self, subject: str) -> tuple[Fact, ...]:
        """Return the claims of all brokers to a durable subscription."""
        return self._about.get(subject, ())

    def facts(self) -> list[Fact]:
        """Return all facts of all brokers."""
        return list(self._facts.values())

    def links(self, origin: str, subject: str = LINKS) -> tuple[str, ...]:
        """Return the peers that a broker announces."""
        fact = self._facts.get((origin, subject))
        return () if fact is None else fact.links

    @property
    def brokers(self) -> list[str]:
        """All brokers of the network, also unreachable ones, without those removed."""
        return sorted({self.name, *self._versions} - self.removed)

    @property
    def broker_count(self) -> int:
        """The number of brokers ever known. Read at each alarm, so it sorts nothing."""
        return len(self._versions)

    @property
    def is_alone(self) -> bool:
        """True if `brokers` has no other. Read for each message, so it sorts nothing."""
        if not self._removed:
            return self._versions.keys() <= {self.name}
        retired = self.removed
        return all(name == self.name or name in retired for name in self._versions)

    @property
    def removed(self) -> set[str]:
        """The brokers that were removed and have published nothing since."""
        return {name for name, until in self._removed.items() if self._version(name) <= until}

    def is_leaving(self, broker: str) -> bool:
        """Return whether a broker announces that it is about to stop."""
        fact = self.fact(broker, LEAVING)
        return fact is not None and bool(fact.filter)

    # --- changes ---

    def _version(self, origin: str) -> int:
        return self._versions.get(origin, 0)

    def _is_new_fact(self, fact: Fact) -> bool:
        """Return whether a fact would change anything."""
        if fact.origin == self.name and (
            (self.name, fact.subject) not in self._facts or self._is_newer_history(fact)
        ):
            return True
        return fact.version > self._version(fact.origin) or self._removes_broker(fact)

    def _history_start(self, origin: str) -> int:
        """Return the version from which on a broker remembers its facts (see `ClusterState`)."""
        links = self._facts.get((origin, LINKS))
        return 0 if links is None else links.claimed_us

    def _is_newer_history(self, fact: Fact) -> bool:
        """Return whether an own fact of an earlier incarnation is newer than the one that was taken
        over: peers may have different ones, and the newest counts whichever comes first.
        """
        reclaimed = self._reclaimed.get(fact.subject)
        return reclaimed is not None and reclaimed < fact.version < self._history_start(self.name)

    def _is_from_lost_disk(self, fact: Fact) -> bool:
        """Return whether another broker published a fact before it lost its disk."""
        origin = fact.origin
        begin = 0 if origin == self.name else self._history_start(origin)
        return self._removed.get(origin, 0) < fact.version < begin

    def _is_missing_from_lost_disk(self, fact: Fact) -> bool:
        """Return whether a fact is one of those, and not stored here."""
        return (fact.origin, fact.subject) not in self._facts and self._is_from_lost_disk(fact)

    def _facts_from_lost_disk(self, origin: str) -> list[Fact]:
        """Return the stored facts that a broker published before it lost its disk."""
        mine = (fact for fact in self._facts.values() if fact.origin == origin)
        lost = sorted(filter(self._is_from_lost_disk, mine), key=_version)
        if not lost:
            self._lost_disks.pop(origin, None)
        return lost

    def _removes_broker(self, fact: Fact) -> bool:
        """Return whether a fact removes a broker, or more facts of a removed one."""
        name = fact.subject.removeprefix(REMOVED)
        return name != fact.subject and self._removed.get(name, 0) < fact.claimed_us

    def _limit_problem(self, fact: Fact) -> str:
        """Return which limit a fact would exceed; empty if none."""
        named = {fact.origin}
        if fact.subject.startswith(REMOVED):
            named.add(fact.subject.removeprefix(REMOVED))
        fresh = named - self._versions.keys()
        if fresh and len(self._versions) + len(fresh) > MAX_BROKERS:
            return f"{MAX_BROKERS} brokers are the most (MAX_BROKERS)"
        is_new = (fact.origin, fact.subject) not in self._facts
        if is_new and self._counts.get(fact.origin, 0) >= MAX_FACTS:
            return f"a broker publishes {MAX_FACTS} facts about itself at most (MAX_FACTS)"
        return ""

    def _store(self, fact: Fact) -> None:
        """Make a fact the newest of its subject."""
        previous = self._facts.get((fact.origin, fact.subject))
        if previous is None:
            self._counts[fact.origin] = self._counts.get(fact.origin, 0) + 1
        elif fact.subject == LINKS and previous.claimed_us < fact.claimed_us:
            self._lost_disks[fact.origin] = -inf
        self._facts[fact.origin, fact.subject] = fact
        if fact.subject == LINKS:
            self._note_incarnation(fact.origin, fact.claim.number)
        if is_subscription(fact.subject):
            others = (each for each in self.facts_about(fact.subject) if each.origin != fact.origin)
            self._about[fact.subject] = tuple(sorted((*others, fact), key=_origin))
        self._versions[fact.origin] = max(fact.version, self._version(fact.origin))
        is_same = previous is not None and previous.filter == fact.filter
        if fact.subject == LINKS or (fact.subject == LEAVING and not is_same):
            self.routing_version += 1  # the same links may have been down meanwhile

    def _note_incarnation(self, broker: str, incarnation: int) -> None:
        """Note the incarnation that a broker announces; its facts may follow later."""
        has_space = broker in self._incarnations or len(self._incarnations) < MAX_BROKERS
        if has_space and self._incarnations.get(broker, 0) < incarnation:
            self._incarnations[broker] = incarnation
            self.restarted[broker] = None

    def _drop(self, fact: Fact) -> None:
        """Delete a fact."""
        del self._facts[fact.origin, fact.subject]
        left = tuple(each for each in self.facts_about(fact.subject) if each.origin != fact.origin)
        if left:
            self._about[fact.subject] = left
        else:
            self._about.pop(fact.subject, None)
        self._counts[fact.origin] -= 1


def _origin(fact: Fact) -> str:
    return fact.origin


def _version(fact: Fact) -> int:
    return fact.version


class ShortestPaths:
    """The shortest path to each broker, by breadth-first search over links that both ends announce.

    Peers are taken by name, so that the result is deterministic. Brokers about to stop are expanded
    last: a path crosses them only where there is no other.

    >>> links = {"b": ("a", "c"), "c": ("b", "d"), "d": ()}
    >>> paths = ShortestPaths("a", ["b"], lambda broker: links.get(broker, ()))
    >>> paths.hops, paths.path("c"), paths.path("d")
    ({'b': 'b', 'c': 'b'}, ('b', 'c'), ())
    >>> ring = {"a": ("b", "d"), "b": ("a", "c"), "c": ("b", "d"), "d": ("a", "c")}
    >>> ShortestPaths("a", ["b", "d"], ring.__getitem__, {"b"}.__contains__).path("c")
    ('d', 'c')
    """

    def __init__(
        self,
        name: str,
        neighbours: Iterable[str],
        links: Callable[[str], tuple[str, ...]],
        is_leaving: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.hops: dict[str, str] = {}
        """By broker, the peer that is the first hop."""
        self._name = name
        self._before: dict[str, str] = {}
        queue = deque((neighbour, name) for neighbour in sorted(neighbours))
        last: deque[tuple[str, str]] = deque()
        while queue or last:
            broker, before = (queue or last).popleft()
            if broker in self._before or broker == name:
                continue
            self._before[broker] = before
            self.hops[broker] = self.hops.get(before, broker)
            frontier = last if is_leaving(broker) else queue
            frontier.extend((beyond, broker) for beyond in links(broker) if broker in links(beyond))

    def path(self, broker: str) -> tuple[str, ...]:
        """Return the brokers on the path to one, that one last; empty without a path."""
        path: list[str] = []
        while broker in self._before:
            path.append(broker)
            broker = self._before[broker]
        return tuple(reversed(path))
