"""`Echoes`: answers for facts: those that neighbours owe here, and those that are owed to them.

Whoever learns a fact passes it on, and answers whoever it came from once all others have answered.
An answer is for the facts it names and for nothing else: a broker that knew a fact from elsewhere
answers at once, and may still owe an answer for an older one.

Nobody waits in a circle. An answer waits for answers to messages that were sent after the fact was
learned, and these wait, at other brokers, for what was learned from such a message: always for
something later. Whoever has not said what it knows (`Known`) is waited for too.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import TypeAlias

from palio.node.limits import MAX_FACTS, MAX_UNANSWERED
from palio.protocol.messages import Fact

__all__ = ["Echoes", "KnownNeighbour", "Owed", "PendingSettle"]

_Key: TypeAlias = tuple[str, int]
"""The origin and the version of a fact."""


class Owed:
    """An answer that is owed for facts of one origin, which came in one message."""

    __slots__ = ("awaited", "is_given", "origin", "subjects", "to", "unreached")

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.subjects: dict[int, str] = {}
        """By version, what the facts are about."""
        self.to: dict[str, tuple[int, ...]] = {}
        """Who is to be answered, for which versions."""
        self.awaited: set[tuple[str, _Key]] = set()
        """Which neighbours are yet to answer, and for which facts."""
        self.unreached: dict[str, None] = {}
        self.is_given = False


class PendingSettle:
    """A ticket of `Registry.settle`: have all heard what this broker told, up to a version?"""

    __slots__ = ("about", "since", "ticket", "unreached", "version")

    def __init__(self, since: int, version: int, ticket: int, about: frozenset[str]) -> None:
        self.since = since
        """Answers for older versions may name brokers that have been reached since."""
        self.version = version
        self.ticket = ticket
        self.about = about
        """The subjects that it is asked about."""
        self.unreached: dict[str, None] = {}


class KnownNeighbour:
    """What a neighbour has, and what it is yet to answer for."""

    __slots__ = (
        "asked_at",
        "awaited",
        "is_equal",
        "known_at",
        "own",
        "promised",
        "unbelieved",
    )

    def __init__(self, now: float) -> None:
        self.asked_at = now
        """When it was told what is known here."""
        self.known_at = now
        """When it said what it knows."""
        self.unbelieved: dict[str, None] = {}
        """Origins of which it said something that was not believed."""
        self.is_equal = False
        """Whether it has said what it knows and was sent the rest."""
        self.awaited: dict[_Key, dict[Owed, None]] = {}
        """Facts of others that it is to answer for, with the answers that wait for that."""
        self.own: OrderedDict[int, int] = OrderedDict()
        """Versions of this broker's facts that it is to answer for, in their order; and the oldest
        that each stands for, as it lacked all from there on..."""
        self.promised: dict[int, int] = {}
        """...and those that it is told once they are on the disk, in place of what they outdo."""


class Echoes:
    """What is owed. `neighbours` are those of the registry, which come and go.

    >>> near = {"a": KnownNeighbour(0.0), "c": KnownNeighbour(0.0)}
    >>> for each in near.values():
    ...     each.is_equal = True
    >>> echoes = Echoes("b", near)
    >>> fact = Fact("a", 5, "links")
    >>> owed = echoes.owe([fact], "a")
    >>> echoes.sent("c", [fact])
    >>> echoes.answered("c", "a", [5], ["d"])
    >>> [(each.to, list(each.unreached)) for each in echoes.take()]
    [({'a': (5,)}, ['d'])]
    """

    def __init__(self, name: str, neighbours: Mapping[str, KnownNeighbour]) -> None:
        self._name = name
        self._neighbours = neighbours
        self._owed: dict[_Key, Owed] = {}
        self._done: list[Owed] = []
        self._questions: deque[PendingSettle] = deque()

    # --- what is owed to neighbours ---

    def owe(self, facts: Iterable[Fact], source: str) -> dict[str, Owed]:
        """Answers are owed for facts, which are new: by origin. They are yet to be `sent`."""
        found: dict[str, Owed] = {}
        for fact in facts:
            key = fact.origin, fact.version
            if key not in self._owed:  # else it comes again, under another subject
                self._owed[key] = found.setdefault(fact.origin, Owed(fact.origin))
            owed = self._owed[key]
            owed.subjects[fact.version] = fact.subject
            if fact.version not in owed.to.get(source, ()):
                owed.to[source] = (*owed.to.get(source, ()), fact.version)
        self._give_up()
        return found

    def is_owed(self, source: str, fact: Fact) -> bool:
        """Whether a neighbour will be answered for a fact."""
        owed = self._owed.get((fact.origin, fact.version))
        return owed is not None and fact.version in owed.to.get(source, ())

    def take(self) -> list[Owed]:
        """Take out the answers that can be given."""
        done, self._done = self._done, []
        return done

    def look(self, owed: Iterable[Owed]) -> None:
        """These may wait for nobody."""
        strangers = {name for name, state in self._neighbours.items() if not state.is_equal}
        for each in owed:
            if not each.awaited and strangers <= {each.origin, *each.to}:
                self._give(each)

    def _give(self, owed: Owed) -> None:
        if not owed.is_given:
            owed.is_given = True
            self._forget(owed)
            self._done.append(owed)

    def _forget(self, owed: Owed) -> None:
        for version in owed.subjects:
            if self._owed.get((owed.origin, version)) is owed:
                del self._owed[owed.origin, version]

    def _give_up(self) -> None:
        """Where neighbours answer for nothing, the oldest answers are given without theirs."""
        while len(self._owed) > MAX_UNANSWERED:
            owed = next(iter(self._owed.values()))
            silent = {name for name, state in self._neighbours.items() if not state.is_equal}
            for name, key in owed.awaited:
                awaited = self._neighbours[name].awaited
                del awaited[key][owed]
                if not awaited[key]:
                    del awaited[key]
                silent.add(name)
            owed.unreached |= dict.fromkeys(sorted(silent))
            owed.unreached = {name: None for name in owed.unreached if name not in owed.to}
            self._give(owed)

    # --- what neighbours owe ---

    def sent(self, name: str, facts: Iterable[Fact]) -> None:
        """Facts are sent to a neighbour. It answers for all but its own."""
        state = self._neighbours[name]
        for fact in facts:
            if fact.origin == self._name:
                state.own[fact.version] = state.promised.pop(fact.version, fact.version)
            elif fact.origin != name:
                owed = self._owed.get((fact.origin, fact.version))
                if owed is not None:
                    self._await(state, (fact.origin, fact.version), owed, name)
        while len(state.own) > MAX_FACTS:
            version, _ = state.own.popitem(last=False)
            self._count_out(name, version)

    def _count_out(self, name: str, since: float) -> None:
        """A neighbour is not waited for, by those who ask about a version or what came after."""
        for question in self._questions:
            if question.version >= since:
                question.unreached[name] = None

    def _await(self, state: KnownNeighbour, key: _Key, owed: Owed, name: str) -> None:
        waiting = state.awaited.setdefault(key, {})
        if owed not in waiting and key[1] not in owed.to.get(name, ()):
            owed.awaited.add((name, key))
            waiting[owed] = None

    def linked(
        self,
        name: str,
        versions: Mapping[str, int],
        newest: Callable[[str, str], Fact | None],
        untold: Iterable[int],
    ) -> None:
        """A neighbour has said what it knows, and was sent the rest: of each subject the `newest`,
        or it will be, of what is `untold` yet. That is awaited in place of what it has outdone.
        """
        state = self._neighbours[name]
        for (origin, version), owed in self._owed.items():
            if origin != name and version > versions.get(origin, 0) and name not in owed.to:
                fact = newest(origin, owed.subjects[version])
                if fact is not None and fact.version > versions.get(origin, 0):
                    self._await(state, (origin, fact.version), owed, name)
        lacks = versions.get(self._name, 0) + 1
        state.own = OrderedDict((each, min(state.own[each], lacks)) for each in sorted(state.own))
        state.promised = {each: min(state.promised.get(each, lacks), lacks) for each in untold}
        self.look(dict.fromkeys(self._owed.values()))

    def answered(
        self, name: str, origin: str, versions: Iterable[int], unreached: Iterable[str] = ()
    ) -> None:
        """A neighbour answers for facts of another broker; some beyond it were not reached."""
        state = self._neighbours[name]
        for version in versions:
            waiting = state.awaited.pop((origin, version), {})
            for owed in waiting:
                owed.unreached |= dict.fromkeys(unreached)
                owed.awaited.discard((name, (origin, version)))
            self.look(waiting)

    def answered_own(
        self, name: str, versions: Iterable[int], unreached: Iterable[str] = ()
    ) -> int | None:
        """A neighbour answers for what this broker said: the newest that was awaited, if any."""
        state = self._neighbours[name]
        found = [each for each in versions if state.own.pop(each, None) is not None]
        newest = max(found, default=None)
        for question in self._questions:
            if newest is not None and question.since <= newest:
                question.unreached |= dict.fromkeys(unreached)
        return newest

    def leave(self, name: str, gone: KnownNeighbour, untold: float) -> None:
        """A neighbour is gone: it answers for nothing more, and is owed nothing. `untold`: from
        which version on this broker has yet to tell what it said.
        """
        waiting = []
        for key, each in gone.awaited.items():
            for owed in each:
                owed.awaited.discard((name, key))
                waiting.append(owed)
        for owed in waiting if gone.is_equal else self._owed.values():
            if name not in owed.to:
                owed.unreached[name] = None
        asked_since = min(untold, _oldest(gone)) if gone.is_equal else 0
        self._count_out(name, asked_since)
        for owed in dict.fromkeys(self._owed.values()):
            if owed.to.pop(name, None) and not owed.to:
                self._forget(owed)
        self.look(dict.fromkeys(self._owed.values()))

    # --- what this broker asks ---

    def ask(self, question: PendingSettle) -> None:
        """Somebody waits until all have answered, behind those who asked before."""
        self._questions.append(question)

    def call_off(self, subject: str, newest: int) -> list[PendingSettle]:
        """What this broker said of a subject is not told: nothing newer than `newest` is to be
        answered. Take out the questions about just that.
        """
        found = [each for each in self._questions if subject in each.about]
        for question in self._questions:
            question.version = min(question.version, newest)
            question.since = min(question.since, newest)
        self._questions = deque(each for each in self._questions if subject not in each.about)
        return found

    def told(self, newest: int) -> None:
        """All up to a version was told, or never will be: of that nothing is promised any more."""
        for name, state in self._neighbours.items():
            for version in [each for each in state.promised if each <= newest]:
                self._count_out(name, state.promised.pop(version))

    def answers(self, untold: float) -> Iterator[PendingSettle]:
        """Take out the questions that all neighbours have answered. `untold`: from which version on
        this broker has yet to tell what it said.
        """
        for state in self._neighbours.values():
            untold = min(untold, _oldest(state) if state.is_equal else 0)
        while self._questions and (self._questions[0].version < untold or not self._neighbours):
            yield self._questions.popleft()


def _oldest(state: KnownNeighbour) -> float:
    """From which version on a neighbour is to answer for what this broker said."""
    return min(next(iter(each.values()), inf) for each in (state.own, state.promised))
