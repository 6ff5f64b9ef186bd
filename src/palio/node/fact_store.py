"""`FactStore`: what is known of all brokers; the newest version of a subject counts.

This is the memory of a `ClusterState`. How facts come and go is for that to say.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from math import inf

from palio.node.fact_verifier import LEAVING, LINKS, REMOVED, is_subscription
from palio.node.limits import MAX_BROKERS, MAX_FACTS
from palio.protocol.messages import Fact


class FactStore:
    """The facts that one broker knows, its own among them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.routing_version = 0
        """Grows whenever ways through the network may be others."""
        self._facts: dict[tuple[str, str], Fact] = {}
        self._about: dict[str, tuple[Fact, ...]] = {}
        """By durable subscription, the newest fact of each origin, in the order of origins."""
        self._counts: dict[str, int] = {}
        """By origin, how many facts there are."""
        self._versions: dict[str, int] = {}
        """By broker, the newest that was known."""
        self._removed: dict[str, int] = {}
        """By broker that is gone for good, up to which version."""
        self._incarnations: dict[str, int] = {}
        """By broker, the newest incarnation that was known: it begins with that version."""
        self.restarted: dict[str, None] = {}
        """Brokers that are in another incarnation. The caller takes it out."""
        self._lost_disks: dict[str, float] = {}
        """Brokers that have lost their disks, and may be held here to what they said before that;
        with when they were reminded."""

    def fact(self, origin: str, subject: str) -> Fact | None:
        """The newest fact about a subject of an origin."""
        return self._facts.get((origin, subject))

    def facts_about(self, subject: str) -> tuple[Fact, ...]:
        """Claims of each broker to a durable subscription."""
        return self._about.get(subject, ())

    def facts(self) -> list[Fact]:
        """All facts, of all brokers."""
        return list(self._facts.values())

    def links(self, origin: str, subject: str = LINKS) -> tuple[str, ...]:
        """The neighbours that a broker says it has."""
        fact = self._facts.get((origin, subject))
        return () if fact is None else fact.links

    @property
    def brokers(self) -> list[str]:
        """All brokers that were ever known and are not retired."""
        return sorted({self.name, *self._versions} - self.removed)

    @property
    def broker_count(self) -> int:
        """How many brokers were ever known; asked at each alarm, so nothing is put in order."""
        return len(self._versions)

    @property
    def is_alone(self) -> bool:
        """True if `brokers` has no other; asked for each message, so nothing is put in order."""
        if not self._removed:
            return self._versions.keys() <= {self.name}
        retired = self.removed
        return all(name == self.name or name in retired for name in self._versions)

    @property
    def removed(self) -> set[str]:
        """The brokers that are gone for good, and were not learned of since that was said."""
        return {name for name, until in self._removed.items() if self._version(name) <= until}

    def is_leaving(self, broker: str) -> bool:
        """Return whether a broker has said that it is about to go."""
        fact = self.fact(broker, LEAVING)
        return fact is not None and bool(fact.filter)

    # --- what is new ---

    def _version(self, origin: str) -> int:
        return self._versions.get(origin, 0)

    def _is_new_fact(self, fact: Fact) -> bool:
        """Return whether a fact would change anything."""
        if fact.origin == self.name and (self.name, fact.subject) not in self._facts:
            return True
        return fact.version > self._version(fact.origin) or self._removes_broker(fact)

    def _history_start(self, origin: str) -> int:
        """From which version on a broker remembers what it said (see `ClusterState`)."""
        links = self._facts.get((origin, LINKS))
        return 0 if links is None else links.claimed_us

    def _is_from_lost_disk(self, fact: Fact) -> bool:
        """Return whether another broker said that before it lost its disk."""
        origin = fact.origin
        begin = 0 if origin == self.name else self._history_start(origin)
        return self._removed.get(origin, 0) < fact.version < begin

    def _is_missing_from_lost_disk(self, fact: Fact) -> bool:
        """Return whether a fact that is not known here is of that kind."""
        return (fact.origin, fact.subject) not in self._facts and self._is_from_lost_disk(fact)

    def _facts_from_lost_disk(self, origin: str) -> list[Fact]:
        """Return the facts of that kind, of one broker."""
        mine = (fact for fact in self._facts.values() if fact.origin == origin)
        found = sorted(filter(self._is_from_lost_disk, mine), key=_version)
        if not found:
            self._lost_disks.pop(origin, None)
        return found

    def _removes_broker(self, fact: Fact) -> bool:
        """Return whether a fact retires more of a broker than is retired already."""
        name = fact.subject.removeprefix(REMOVED)
        return name != fact.subject and self._removed.get(name, 0) < fact.claimed_us

    def _limit_problem(self, fact: Fact) -> str:
        """Return the facts beyond the limits."""
        named = {fact.origin}
        if fact.subject.startswith(REMOVED):
            named.add(fact.subject.removeprefix(REMOVED))
        fresh = named - self._versions.keys()
        if fresh and len(self._versions) + len(fresh) > MAX_BROKERS:
            return f"{MAX_BROKERS} brokers are the most (MAX_BROKERS)"
        is_new = (fact.origin, fact.subject) not in self._facts
        if is_new and self._counts.get(fact.origin, 0) >= MAX_FACTS:
            return f"a broker says {MAX_FACTS} things of itself at most (MAX_FACTS)"
        return ""

    def _store(self, fact: Fact) -> None:
        """From now on this counts."""
        known = self._facts.get((fact.origin, fact.subject))
        if known is None:
            self._counts[fact.origin] = self._counts.get(fact.origin, 0) + 1
        elif fact.subject == LINKS and known.claimed_us < fact.claimed_us:
            self._lost_disks[fact.origin] = -inf
        self._facts[fact.origin, fact.subject] = fact
        if fact.subject == LINKS:
            self._note_incarnation(fact.origin, fact.claim.number)
        if is_subscription(fact.subject):
            others = (each for each in self.facts_about(fact.subject) if each.origin != fact.origin)
            self._about[fact.subject] = tuple(sorted((*others, fact), key=_origin))
        self._versions[fact.origin] = max(fact.version, self._version(fact.origin))
        is_same = known is not None and known.filter == fact.filter
        if fact.subject == LINKS or (fact.subject == LEAVING and not is_same):
            self.routing_version += 1  # links that are sent again may have been gone

    def _note_incarnation(self, broker: str, incarnation: int) -> None:
        """A broker is in that incarnation, as it says itself; its facts may come later."""
        is_known = broker in self._incarnations
        if self._incarnations.get(broker, 0) < incarnation and (
            is_known or len(self._incarnations) < MAX_BROKERS
        ):
            self._incarnations[broker] = incarnation
            self.restarted[broker] = None

    def _drop(self, fact: Fact) -> None:
        """This counts no longer."""
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
    """Over which neighbour the way to each broker goes, and over whom after that.

    Breadth first over links that both ends list, neighbours by name; over brokers that are
    about to go only where there is no other way.

    >>> said = {"b": ("a", "c"), "c": ("b", "d"), "d": ()}
    >>> paths = ShortestPaths("a", ["b"], lambda broker: said.get(broker, ()))
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
        """By broker, the neighbour over which the way to it begins."""
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
            ways = last if is_leaving(broker) else queue
            ways.extend((beyond, broker) for beyond in links(broker) if broker in links(beyond))

    def path(self, broker: str) -> tuple[str, ...]:
        """The brokers on the way to one, which is the last; none if there is no way."""
        way: list[str] = []
        while broker in self._before:
            way.append(broker)
            broker = self._before[broker]
        return tuple(reversed(way))
