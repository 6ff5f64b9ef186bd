"""The wave along the tree answers for facts, too, which are flooded over all links (W1, W2, W4).

Broker a says a fact, and asks along the tree whether all have it. Brokers pass facts on over all
their links, and the question over those of the tree. A line, which is one end of such a link, is
clean while nothing was learned since a wave that was answered without a name: clean lines are not
asked.

W1  Over a link a question goes behind all facts that are due there, and never before the other end
    has said what it knows (`Digest`): till then the link is in use by nobody.
W2  A broker answers when its other lines have, and when what it has learned is on its disk. It
    names a neighbour that is gone, or was, until it has told the others of its links anew.
W4  What is learned makes all lines unclean, also the one that it came by. An answer counts for the
    map by which the asker asked: if it was told of links meanwhile, it asks again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from tests.models.log import changed

ASKER: Final = 0
FACT: Final = "the fact"
NAMES: Final = "abcd"

Link: TypeAlias = tuple[int, int]
"""From one end to the other."""


class Digest(NamedTuple):
    """What a broker has, said first over a new link."""

    facts: frozenset[str]


class Said(NamedTuple):
    """A fact."""

    fact: str


class Query(NamedTuple):
    """A question."""

    id: int


class Answered(NamedTuple):
    """All behind this link have what there was, but for some."""

    id: int
    unreached: frozenset[int]


Message: TypeAlias = Digest | Said | Query | Answered


class Wave(NamedTuple):
    """A question that a broker has passed on."""

    id: int
    source: int
    awaited: frozenset[int]
    unreached: frozenset[int]


class Broker(NamedTuple):
    """One broker: what it knows, and which of its lines are clean."""

    facts: frozenset[str] = frozenset()
    stored: frozenset[str] = frozenset()
    links: frozenset[int] = frozenset()
    """Whom it is linked to, and has heard `Digest` of."""
    clean: frozenset[int] = frozenset()
    asked: frozenset[int] = frozenset()
    """Lines of which nothing was learned since a question went over them."""
    wave: Wave | None = None
    lost: frozenset[int] = frozenset()
    """Neighbours that went, of which it has not told yet."""
    has_pending_updates: bool = False
    """Whether it has yet to tell of its links."""


class State(NamedTuple):
    """All brokers, what is due on links, and what is in them."""

    brokers: tuple[Broker, ...]
    due: frozenset[tuple[Link, str]] = frozenset()
    lanes: tuple[tuple[Link, tuple[Message, ...]], ...] = ()
    """Those that are not empty."""
    asks: int = 0
    map: str = ""
    """The newest list of links that the asker knew as it asked."""
    named: frozenset[int] = frozenset()
    """To whom no way led then."""
    breaks: int = 0
    changes: int = 0
    """How often b has told of its links."""
    wrong: str = ""


Step: TypeAlias = tuple[tuple[object, ...], State]

ERRORS: Final[Mapping[str, str]] = {
    "overtakes": "W1: a question overtakes facts that are due",
    "before Digest": "W1: a link is in use before the other end has said what it knows",
    "before the disk": "W2: a broker answers for what is not on its disk",
    "forgets who is gone": "W2: nobody names who is gone until others know that",
    "forgets who is back": "W2: nobody names who was gone and has come back meanwhile",
    "learned is not said": "W4: what came by a line leaves that line clean",
    "any map": "W4: an answer counts though the map has changed",
}
"""Errors that tests plant, each with the invariant that it breaks."""


@dataclass(frozen=True)
class FactWaves:
    """The model, within bounds: a `Model[State]`."""

    tree: str = "ab bc cd"
    others: str = "ac"
    """Links over which facts go besides."""
    breaks: int = 0
    """How often the link between b and c breaks, and comes back."""
    asks: int = 1
    error: str = ""

    def initial(self) -> State:
        """All lines are clean, and a has just said its fact."""
        brokers = [Broker() for _ in range(1 + max(map(NAMES.index, self.tree.replace(" ", ""))))]
        for link in f"{self.tree} {self.others}".split():
            one, other = map(NAMES.index, link)
            for at, end in ((one, other), (other, one)):
                brokers[at] = brokers[at]._replace(links=brokers[at].links | {end})
        for at, broker in enumerate(brokers):
            clean = frozenset(other for other in broker.links if self.is_tree(at, other))
            brokers[at] = broker._replace(clean=clean)
        state = State(tuple(brokers))
        stored = state.brokers[ASKER]._replace(stored=frozenset({FACT}))
        state = state._replace(brokers=changed(state.brokers, ASKER, stored))
        return self.learned(state, ASKER, FACT, ASKER)

    def broken(self, state: State) -> str:
        """What an answer was wrong about."""
        return state.wrong

    def is_quiet(self, state: State) -> bool:
        """Every question was answered, and all brokers have the fact."""
        brokers = state.brokers
        return not any(b.wave for b in brokers) and all(FACT in b.stored for b in brokers)

    def describe(self, state: State) -> str:
        """Each broker, and what is in the lanes."""
        lines = [f"{name}: {b}" for name, b in zip(NAMES, state.brokers, strict=False)]
        lines += [f"{NAMES[u]} to {NAMES[v]}: {list(lane)}" for (u, v), lane in state.lanes]
        return "\n    ".join(lines)

    def is_tree(self, u: int, v: int) -> bool:
        """Whether a link is of the tree."""
        return "".join(sorted(NAMES[u] + NAMES[v])) in self.tree.split()

    def actions(self, state: State) -> Iterator[Step]:
        """Everything that may happen in a state."""
        if state.wrong:
            return
        for link, fact in sorted(state.due):
            yield ("due:", *map(NAMES.__getitem__, link), fact), tell(state, link, fact)
        for at, broker in enumerate(state.brokers):
            if broker.facts - broker.stored:
                after = with_broker(state, at, broker._replace(stored=broker.facts))
                yield (NAMES[at], "has written"), self.answer(after, at)
        if state.asks < self.asks and not state.brokers[ASKER].wave:
            yield ("a asks",), self.ask(state._replace(asks=state.asks + 1))
        for (u, v), lane in state.lanes:
            after = with_lane(state, (u, v), lane[1:])
            words = (lane[0], "from", NAMES[u], "at", NAMES[v])
            yield words, self.arrived(after, u, v, lane[0])
        if self.breaks:
            yield from self.link_changes(state)

    def arrived(self, state: State, u: int, v: int, message: Message) -> State:
        """A message at the end of its lane."""
        broker = state.brokers[v]
        match message:
            case Digest(facts):
                lacking = frozenset(((v, u), fact) for fact in broker.facts - facts)
                state = state._replace(due=state.due | lacking)
                return state if u in broker.links else self.attached(state, v, u)
            case Said(fact):
                return self.learned(state, v, fact, u)
            case Query(id):
                return self.asked(state, u, v, id)
            case Answered(id, unreached):
                wave = broker.wave
                if wave is None or wave.id != id or u not in wave.awaited:
                    return state
                if not unreached and u in broker.asked:
                    broker = broker._replace(clean=broker.clean | {u})
                wave = wave._replace(
                    awaited=wave.awaited - {u}, unreached=wave.unreached | unreached
                )
                return self.answer(with_broker(state, v, broker._replace(wave=wave)), v)

    def learned(self, state: State, at: int, fact: str, source: int) -> State:
        """A fact is passed on, if it is new, and no line is clean any more."""
        broker = state.brokers[at]
        if fact in broker.facts:
            return state
        to = broker.links - {source}
        kept = {source} if self.error == "learned is not said" else set()
        broker = broker._replace(
            facts=broker.facts | {fact}, clean=broker.clean & kept, asked=broker.asked & kept
        )
        due = frozenset(((at, other), fact) for other in to)
        return with_broker(state._replace(due=state.due | due), at, broker)

    def ask(self, state: State) -> State:
        """The asker asks, by the map that it has."""
        newest = max((fact for fact in state.brokers[ASKER].facts if fact != FACT), default="")
        beyond = frozenset(range(2, len(state.brokers)))
        named = beyond if newest.endswith("cut") else frozenset()
        return self.asked(state._replace(map=newest, named=named), ASKER, ASKER, state.asks)

    def asked(self, state: State, source: int, at: int, id: int) -> State:
        """Pass a question on over the lines that are not clean, behind all that is due (W1)."""
        broker = state.brokers[at]
        lines = frozenset(other for other in broker.links - {source} if self.is_tree(at, other))
        lines -= broker.clean
        for other in sorted(lines):
            for link, fact in sorted(state.due):
                if link == (at, other) and self.error != "overtakes":
                    state = tell(state, link, fact)
            state = sent(state, (at, other), Query(id))
        wave = Wave(id, source, lines, frozenset())
        broker = broker._replace(wave=wave, asked=broker.asked | lines)
        return self.answer(with_broker(state, at, broker), at)

    def answer(self, state: State, at: int) -> State:
        """Answer, if nothing is awaited any more (W2)."""
        broker = state.brokers[at]
        wave = broker.wave
        if wave is None or wave.awaited:
            return state
        if broker.facts - broker.stored and self.error != "before the disk":
            return state
        state = with_broker(state, at, broker._replace(wave=None))
        lost = broker.lost
        if self.error == "forgets who is gone":
            lost = frozenset()
        elif self.error == "forgets who is back":
            lost -= broker.links
        named = wave.unreached | lost
        if wave.source != at:
            for link, fact in sorted(state.due):
                if link == (at, wave.source):
                    state = tell(state, link, fact)
            return sent(state, (at, wave.source), Answered(wave.id, named))
        named |= state.named
        newest = max((fact for fact in state.brokers[at].facts if fact != FACT), default="")
        if not named and newest != state.map and self.error != "any map":
            return self.ask(state)
        if not named and not all(FACT in other.stored for other in state.brokers):
            return state._replace(wrong="a broker lacks the fact, and is not named")
        if named and not self.breaks:
            return state._replace(wrong="a broker is named, and nothing was in its way")
        return state

    # --- the link that breaks ---

    def link_changes(self, state: State) -> Iterator[Step]:
        """The link between b and c breaks or comes back; b says what links it has."""
        b, c = state.brokers[1], state.brokers[2]
        lanes = dict(state.lanes)
        is_down = 2 not in b.links and 1 not in c.links and not {(1, 2), (2, 1)} & lanes.keys()
        if is_down:
            yield ("the link comes up",), self.up(state)
        elif state.breaks < self.breaks:
            yield ("the link breaks",), self.down(state._replace(breaks=state.breaks + 1))
        if b.has_pending_updates:
            what = "up" if 2 in b.links else "cut"
            fact = f"links {state.changes} {what}"
            b = b._replace(has_pending_updates=False, lost=frozenset(), stored=b.stored | {fact})
            after = with_broker(state._replace(changes=state.changes + 1), 1, b)
            yield ("b says:", fact), self.learned(after, 1, fact, 1)

    def up(self, state: State) -> State:
        """Each end says first what it has."""
        for at, other in ((1, 2), (2, 1)):
            state = sent(state, (at, other), Digest(state.brokers[at].facts))
        if self.error == "before Digest":
            state = self.attached(self.attached(state, 1, 2), 2, 1)
        return state

    def attached(self, state: State, at: int, other: int) -> State:
        """A link is in use from now on."""
        broker = state.brokers[at]
        broker = broker._replace(links=broker.links | {other}, has_pending_updates=at == 1)
        return with_broker(state, at, broker)

    def down(self, state: State) -> State:
        """A link is gone, with all that was in it and due there. Both ends notice."""
        for at, other in ((1, 2), (2, 1)):
            state = with_lane(state, (at, other), ())
            due = frozenset(each for each in state.due if each[0] != (at, other))
            broker = state.brokers[at]
            before, wave = broker.links, broker.wave
            if wave is not None and wave.source == other:
                wave = None  # nobody is left to be answered
            elif wave is not None and other in wave.awaited:
                wave = wave._replace(
                    awaited=wave.awaited - {other}, unreached=wave.unreached | {other}
                )
            broker = broker._replace(
                links=broker.links - {other},
                clean=broker.clean - {other},
                asked=broker.asked - {other},
                wave=wave,
            )
            if at == 1 and other in before:
                broker = broker._replace(lost=broker.lost | {other}, has_pending_updates=True)
            state = self.answer(with_broker(state._replace(due=due), at, broker), at)
        return state


def with_broker(state: State, at: int, broker: Broker) -> State:
    """The state with another broker."""
    return state._replace(brokers=changed(state.brokers, at, broker))


def with_lane(state: State, link: Link, lane: tuple[Message, ...]) -> State:
    """The state with another lane."""
    lanes = dict(state.lanes) | {link: lane}
    return state._replace(
        lanes=tuple(sorted((key, value) for key, value in lanes.items() if value))
    )


def sent(state: State, link: Link, message: Message) -> State:
    """A message is behind all others in a lane."""
    return with_lane(state, link, (*dict(state.lanes).get(link, ()), message))


def tell(state: State, link: Link, fact: str) -> State:
    """A fact that was due is in its lane."""
    return sent(state._replace(due=state.due - {(link, fact)}), link, Said(fact))
