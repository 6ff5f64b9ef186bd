"""The map: facts that all brokers know of each other (M1 to M4).

Facts of different origins have nothing to do with each other, so there is one origin here, a, with
two keys: `home`, which is kept on disks, and `load`, which is not. Brokers a, b and c are linked in
a circle. A link is a queue in each direction; it may break, which loses what is in it, and come
back. Brokers stop and start, with their disks or without.

M1  Only its origin writes a key, and stamps grow.
M2  Who knows a digest `(incarnation, n)` knows every fact up to n, or a newer one of its key.
M3  A greater incarnation outdoes every fact of a smaller one once its opening is known whole. A
    broker that starts opens one above all that its neighbours know of it.
M4  Kept facts are on the disk before they are told. A broker that starts has those, but its digest
    says nothing: the facts that were not kept have to come again.

What the search found missing in the first wording, each with the error of `ERRORS` that shows it:

stamp is claim
    Facts in stamp order are not enough where only the newest of a key is sent. Of home@1, load@2,
    home@3 a lane sends load@2 first, and its receiver does not know home@1. So the digest of a
    neighbour moves only by a claim, and that is said when a lane has nothing more to say.
same number
    A broker without its disk may open the very number that it had before, which a neighbour that
    was away knows: the digests are equal, and the maps are not. So an incarnation has a nonce, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from tests.models.log import BROKERS, NAMES, changed

ORIGIN: Final = 0
HOME: Final = "home"
LOAD: Final = "load"
KEYS: Final = (HOME, LOAD)

Facts: TypeAlias = tuple[tuple[int, str], ...]
"""Stamps and keys, in the order of stamps: the newest of each key. A stamp stands for its value."""


class Incarnation(NamedTuple):
    """A number, and a nonce, so that no two are the same."""

    number: int
    nonce: int


class Known(NamedTuple):
    """What a broker knows of the origin."""

    incarnation: Incarnation = Incarnation(0, 0)
    opening: int = 0
    """How many facts the incarnation began with."""
    claimed: int = 0
    """The digest: all facts up to this stamp are known."""
    facts: Facts = ()
    former: Facts = ()
    """Facts of the incarnation before, which hold until the opening is known whole (M3)."""


class Digest(NamedTuple):
    """What a broker knows already; the first message over a link."""

    incarnation: Incarnation
    claimed: int


class Fact(NamedTuple):
    """One fact, or none, and what its receiver may claim once it has that."""

    incarnation: Incarnation
    opening: int
    stamp: int
    key: str
    claimed: int


class Lane(NamedTuple):
    """What one end of a link has for the other."""

    has_digest: bool = True
    """It has come from there, so facts may go."""
    dirty: frozenset[str] = frozenset()
    claimed: tuple[Incarnation, int] = (Incarnation(0, 0), 0)
    """What the other end was told to claim."""
    messages: tuple[Digest | Fact, ...] = ()


class State(NamedTuple):
    """All brokers, and a lane for each direction of each link; None where the link is down."""

    known: tuple[Known, ...]
    lanes: tuple[Lane | None, ...]
    writes: int
    breaks: int
    starts: int
    losses: int
    nonce: int = 1
    wrong: str = ""


Step: TypeAlias = tuple[tuple[object, ...], State]

WAYS: Final = tuple((u, v) for u in BROKERS for v in BROKERS if u != v)

ERRORS: Final[Mapping[str, str]] = {
    "stamp is claim": "M2: the stamp of each fact is claimed as soon as that is sent",
    "claims first": "M2: a lane claims what its broker knows before it has said it",
    "outdoes at once": "M3: the first fact of an incarnation outdoes those of the one before",
    "opens at zero": "M3: a broker without its disk stays below what neighbours know of it",
    "same number": "M3: two incarnations of the same number are the same",
    "digest from disk": "M4: a broker that starts claims what it claimed before",
}
"""Errors that tests plant, each with the invariant that it breaks."""


@dataclass(frozen=True)
class Gossip:
    """The model, within bounds: a `Model[State]`."""

    writes: int = 3
    breaks: int = 0
    starts: int = 0
    losses: int = 0
    error: str = ""

    def initial(self) -> State:
        """All links are up, and the origin has said nothing yet."""
        first = Known(Incarnation(1, 0))
        lanes = (Lane(claimed=(first.incarnation, 0)),) * len(WAYS)
        return State((first,) * 3, lanes, self.writes, self.breaks, self.starts, self.losses)

    def broken(self, state: State) -> str:
        """A digest says the truth (M2): what others know up to it, its broker knows, or newer."""
        if state.wrong:
            return state.wrong
        for at, one in enumerate(state.known):
            for other in state.known:
                if other.incarnation != one.incarnation:
                    continue
                newest = {key: stamp for stamp, key in one.facts}
                for stamp, key in other.facts:
                    if newest.get(key, 0) < stamp <= one.claimed:
                        return f"{NAMES[at]} claims {one.claimed}, and does not know {key}@{stamp}"
        return ""

    def is_quiet(self, state: State) -> bool:
        """All links are up, nothing is on its way, and all have the same map."""
        for lane in state.lanes:
            if lane is None or lane.messages or lane.dirty or not lane.has_digest:
                return False
        first = state.known[ORIGIN]
        return not state.writes and all(
            (each.incarnation, each.facts, each.claimed, each.former)
            == (first.incarnation, first.facts, first.claimed, ())
            for each in state.known
        )

    def describe(self, state: State) -> str:
        """What each broker knows, and what is on its way."""
        lines = [f"{name}: {each}" for name, each in zip(NAMES, state.known, strict=True)]
        for (u, v), lane in zip(WAYS, state.lanes, strict=True):
            lines.append(f"{NAMES[u]} to {NAMES[v]}: {lane or 'down'}")
        return "\n    ".join(lines)

    def actions(self, state: State) -> Iterator[Step]:
        """Everything that may happen in a state."""
        if state.wrong:
            return
        if state.writes:
            for key in KEYS:
                yield ("a writes", key), self.written(state, key)
        for u, v in WAYS:
            yield from self.on_link(state, u, v)
        for at in (0, 1):  # c is as b
            if state.starts:
                after = state._replace(starts=state.starts - 1)
                yield (NAMES[at], "stops, and starts"), self.started(after, at, True)
            if state.losses:
                after = state._replace(losses=state.losses - 1)
                yield (NAMES[at], "loses its disk, and starts"), self.started(after, at, False)

    def on_link(self, state: State, u: int, v: int) -> Iterator[Step]:
        """What may happen on one direction of a link."""
        lane = state.lanes[WAYS.index((u, v))]
        if lane is None:
            if u < v:
                yield ("Digest: the link comes up", NAMES[u], NAMES[v]), self.up(state, u, v)
            return
        if lane.messages:
            first, *rest = lane.messages
            after = with_lane(state, u, v, lane._replace(messages=tuple(rest)))
            words = (type(first).__name__, first, "from", NAMES[u], "at", NAMES[v])
            if isinstance(first, Digest):
                yield words, self.digest_arrives(after, u, v, first)
            else:
                yield words, self.fact_arrives(after, u, v, first)
        elif lane.has_digest:
            yield from self.sent(state, u, v, lane)
        if state.breaks and u < v:
            after = down(state._replace(breaks=state.breaks - 1), u, v)
            yield ("the link breaks:", NAMES[u], NAMES[v]), after

    def written(self, state: State, key: str) -> State:
        """The origin writes a key: a greater stamp than all before (M1)."""
        known = state.known[ORIGIN]
        stamp = known.claimed + 1
        known = known._replace(claimed=stamp, facts=newer(known.facts, stamp, key))
        state = state._replace(known=changed(state.known, ORIGIN, known), writes=state.writes - 1)
        return made_dirty(state, ORIGIN, -1, frozenset({key}))

    def sent(self, state: State, u: int, v: int, lane: Lane) -> Iterator[Step]:
        """A lane says the oldest of what is dirty; with nothing dirty, it claims (M2)."""
        known = state.known[u]
        claim = (known.incarnation, known.claimed)
        stamp, key = next((each for each in known.facts if each[1] in lane.dirty), (0, ""))
        dirty = lane.dirty - {key}
        if not key and lane.claimed >= claim:
            return
        claimed = known.claimed
        if self.error == "stamp is claim" and key:
            claimed = stamp
        elif dirty and self.error != "claims first":
            claimed = 0
        fact = Fact(known.incarnation, known.opening, stamp, key, claimed)
        lane = Lane(True, dirty, max(lane.claimed, (known.incarnation, claimed)), (fact,))
        words = ("Facts:", NAMES[u], "says", f"{key}@{stamp}", "to", NAMES[v], "claim", claimed)
        yield words, with_lane(state, u, v, lane)

    def digest_arrives(self, state: State, u: int, v: int, digest: Digest) -> State:
        """v knows now what u has, and makes dirty what u lacks."""
        state = self.outdone(state, v, digest.incarnation)
        known = state.known[v]
        lane = state.lanes[WAYS.index((v, u))]
        if lane is None:
            return state
        dirty: frozenset[str] = frozenset()
        if digest.incarnation <= known.incarnation:
            is_same = digest.incarnation == known.incarnation
            begin = digest.claimed if is_same else 0
            dirty = frozenset(key for stamp, key in known.facts if stamp > begin)
        claimed = (digest.incarnation, digest.claimed)
        ready = lane._replace(has_digest=True, dirty=dirty, claimed=claimed)
        return with_lane(state, v, u, ready)

    def fact_arrives(self, state: State, u: int, v: int, fact: Fact) -> State:
        """v learns a fact, or that it knows all up to a stamp, and passes that on."""
        state = self.outdone(state, v, fact.incarnation)
        known = state.known[v]
        if fact.incarnation < known.incarnation or v == ORIGIN:
            return state
        before = in_force(known)
        had = known.facts
        if fact.incarnation > known.incarnation:
            known = Known(fact.incarnation, fact.opening, former=before)
            if self.error == "outdoes at once":
                known = known._replace(former=())
            had = ()
            state = without_dirty(state, v)
        if fact.key:
            known = known._replace(facts=newer(known.facts, fact.stamp, fact.key))
        known = known._replace(claimed=max(known.claimed, fact.claimed))
        if known.claimed >= known.opening:
            known = known._replace(former=())
        state = state._replace(known=changed(state.known, v, known))
        for stamp, key in before if state.losses == self.losses else ():
            is_kept = key == HOME and any(key == other for _, other in state.known[ORIGIN].facts)
            if is_kept and all(key != other for _, other in in_force(known)):
                return state._replace(wrong=f"{NAMES[v]} forgets {key}@{stamp} for a moment")
        back = state.lanes[WAYS.index((v, u))]
        if back is not None and back.has_digest:
            claimed = max(back.claimed, (fact.incarnation, fact.claimed))
            is_newest = (fact.stamp, fact.key) in known.facts
            dirty = back.dirty - {fact.key} if is_newest else back.dirty
            state = with_lane(state, v, u, back._replace(claimed=claimed, dirty=dirty))
        is_news = (fact.stamp, fact.key) in known.facts and (fact.stamp, fact.key) not in had
        return made_dirty(state, v, u, frozenset({fact.key} if is_news else ()))

    def outdone(self, state: State, at: int, incarnation: Incarnation) -> State:
        """The origin meets a greater incarnation of its own, and outdoes that (M3)."""
        known = state.known[ORIGIN]
        if at != ORIGIN or incarnation <= known.incarnation or self.error == "opens at zero":
            return state
        return self.opened(state, incarnation.number + 1, known.facts)

    def opened(self, state: State, number: int, facts: Facts) -> State:
        """The origin opens an incarnation, with all its facts."""
        again = tuple((stamp, key) for stamp, (_, key) in enumerate(facts, 1))
        nonce = 0 if self.error == "same number" else -state.nonce  # any number may be drawn
        known = Known(Incarnation(number, nonce), len(again), len(again), again)
        state = state._replace(known=changed(state.known, ORIGIN, known), nonce=state.nonce + 1)
        state = without_dirty(state, ORIGIN)
        return made_dirty(state, ORIGIN, -1, frozenset(key for _, key in again))

    def started(self, state: State, at: int, has_disk: bool) -> State:
        """A broker starts with what its disk has: kept facts, and no claim (M4)."""
        for other in BROKERS:
            if other != at:
                state = down(state, at, other)
        known = state.known[at]
        kept = tuple((stamp, key) for stamp, key in known.facts if key == HOME and has_disk)
        if at == ORIGIN:
            number = known.incarnation.number + 1 if has_disk else 1
            return self.opened(state, number, kept)
        former = tuple((stamp, key) for stamp, key in in_force(known) if key == HOME and has_disk)
        again = Known(former=former) if has_disk else Known()
        if self.error == "digest from disk" and has_disk:
            again = known._replace(facts=kept)
        return state._replace(known=changed(state.known, at, again))

    def up(self, state: State, u: int, v: int) -> State:
        """A link comes up: each end says what it knows already."""
        for one, other in ((u, v), (v, u)):
            known = state.known[one]
            digest = Digest(known.incarnation, known.claimed)
            state = with_lane(state, one, other, Lane(has_digest=False, messages=(digest,)))
        return state


def in_force(known: Known) -> Facts:
    """The facts that count for a broker."""
    return known.former if known.former and known.claimed < known.opening else known.facts


def newer(facts: Facts, stamp: int, key: str) -> Facts:
    """Facts with another one, unless a newer one of its key is there."""
    if any(key == other and stamp < known for known, other in facts):
        return facts
    return tuple(sorted([(stamp, key), *((s, other) for s, other in facts if other != key)]))


def with_lane(state: State, u: int, v: int, lane: Lane | None) -> State:
    """The state with another lane."""
    return state._replace(lanes=changed(state.lanes, WAYS.index((u, v)), lane))


def down(state: State, u: int, v: int) -> State:
    """A link is gone, with all that was in it."""
    return with_lane(with_lane(state, u, v, None), v, u, None)


def without_dirty(state: State, at: int) -> State:
    """A broker has nothing more to say of an incarnation that was outdone."""
    for other in BROKERS:
        lane = state.lanes[WAYS.index((at, other))] if other != at else None
        if lane is not None:
            state = with_lane(state, at, other, lane._replace(dirty=frozenset()))
    return state


def made_dirty(state: State, at: int, source: int, keys: frozenset[str]) -> State:
    """All lanes of a broker have to say keys, but the one to where they came from."""
    for other in BROKERS:
        lane = state.lanes[WAYS.index((at, other))] if other != at else None
        if lane is not None and lane.has_digest and other != source:
            state = with_lane(state, at, other, lane._replace(dirty=lane.dirty | keys))
    return state
