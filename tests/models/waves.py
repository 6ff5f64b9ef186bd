"""The wave: "is everything before this in force everywhere?" (W1 to W3).

Brokers a, b and c, of which a has said a request and then asks. Requests, `Query` and `Answered` go
along the tree in use, through lanes that are queues. Once the tree changes, with a link that is cut
or without; each broker goes over to the new version when it hears of it, in any order.

W1  A broker passes `Query` on over a link after all that it had to say there.
W2  It answers when all its other links of the tree have answered or are gone; those that are behind
    a link that is gone are named.
W3  `Query` names the version of the tree. Who goes by another says so, and those behind it are
named.

What the search found missing in the first wording, each with the error of `ERRORS` that shows it:

names one
    Who names only the neighbour on a link that is gone, or that goes by another version, says
    nothing of the brokers behind it. Named are all that lie there in the tree of the Query, which
    its version tells.
drops at once
    A broker that has answered and then goes over to the new tree must keep what it was told over
    links that left the tree, until it was told everything over those that came: until a wave along
    the new tree has passed it. Else the asker, which goes by the old tree still, believes that a
    broker has what it has just dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from tests.models.log import BROKERS, NAMES, changed

ASKER: Final = 0
ALL: Final = frozenset(BROKERS)

Links: TypeAlias = frozenset[frozenset[int]]


def links(text: str) -> Links:
    """The links of "ab bc"."""
    return frozenset(frozenset(map(NAMES.index, link)) for link in text.split())


class Request(NamedTuple):
    """What is to be in force everywhere."""

    word: str = "the request"


class Query(NamedTuple):
    """A question, and by which version of the tree it goes."""

    id: int
    version: int


class Answered(NamedTuple):
    """All behind this link have it, but for some; None says: I go by another version."""

    id: int
    unreached: frozenset[int] | None


class Wave(NamedTuple):
    """A question that a broker has passed on."""

    ask: Query
    source: int
    awaited: frozenset[int]
    unreached: frozenset[int]


class Broker(NamedTuple):
    """One broker: its tree, from whom it has the request, and the wave that it is in."""

    version: int = 1
    sources: frozenset[int] = frozenset()
    told: frozenset[int] = frozenset()
    """To whom it has passed the request on."""
    wave: Wave | None = None


class State(NamedTuple):
    """All brokers, the lanes between them, and what a knows."""

    brokers: tuple[Broker, ...]
    lanes: tuple[tuple[tuple[int, int], tuple[Request | Query | Answered, ...]], ...]
    """Those that are not empty, by the two ends."""
    is_cut: bool = False
    asked: int = 0
    is_calm: bool = False
    """When a asked, all went by the new tree, and no link was to be cut any more."""
    wrong: str = ""


Step: TypeAlias = tuple[tuple[object, ...], State]

ERRORS: Final[Mapping[str, str]] = {
    "asks first": "W1: Query is passed on before what there was to say",
    "answers first": "W2: a broker answers before those behind it have",
    "waits for ever": "W2: a broker waits for a link that is gone",
    "names one": "W2: only the neighbour on a link that is gone is named",
    "any version": "W3: Query is passed on along whatever tree a broker has",
    "drops at once": "W3: what came over a link that left the tree is dropped",
}
"""Errors that tests plant, each with the invariant that it breaks."""


@dataclass(frozen=True)
class Waves:
    """The model, within bounds: a `Model[State]`."""

    old: str = "ab bc"
    new: str = "ab ac"
    cut: str = ""
    """A link that breaks at any time."""
    asks: int = 2
    error: str = ""

    def initial(self) -> State:
        """The request has been said at a, and nobody else knows of it."""
        asker = Broker(sources=frozenset({ASKER}))
        return State((asker, Broker(), Broker()), ())

    def broken(self, state: State) -> str:
        """What an answer that came to a was wrong about."""
        return state.wrong

    def is_quiet(self, state: State) -> bool:
        """Every question was answered, and the request is in force everywhere."""
        is_answered = not any(broker.wave for broker in state.brokers)
        return is_answered and all(broker.sources for broker in state.brokers) and not state.lanes

    def describe(self, state: State) -> str:
        """Each broker, and what is in the lanes."""
        lines = [
            f"{name}: tree {broker.version}, has the request from "
            f"{[NAMES[each] for each in broker.sources]}, wave {broker.wave}"
            for name, broker in zip(NAMES, state.brokers, strict=True)
        ]
        lines += [f"{NAMES[u]} to {NAMES[v]}: {list(lane)}" for (u, v), lane in state.lanes]
        return "\n    ".join(lines)

    def tree(self, version: int) -> Links:
        """The links of a version."""
        return links(self.old if version == 1 else self.new)

    def neighbours(self, state: State, at: int) -> frozenset[int]:
        """The other ends of a broker's links of the tree that are up."""
        mine = self.tree(state.brokers[at].version) - (links(self.cut) if state.is_cut else set())
        return frozenset(other for link in mine if at in link for other in link - {at})

    def behind(self, version: int, at: int, other: int) -> frozenset[int]:
        """Who lies behind a link, in a version of the tree."""
        if self.error == "names one":
            return frozenset({other})
        found = {other}
        for _ in BROKERS:
            for link in self.tree(version):
                if link & found and at not in link:
                    found |= link
        return frozenset(found)

    def actions(self, state: State) -> Iterator[Step]:
        """Everything that may happen in a state."""
        if state.wrong:
            return
        for at in BROKERS:
            broker = state.brokers[at]
            for other in self.untold(state, at):
                yield ("the request:", NAMES[at], "tells", NAMES[other]), tell(state, at, other)
            if broker.version == 1:
                yield (NAMES[at], "goes over to the new tree"), self.gone_over(state, at)
        if state.asked < self.asks and not state.brokers[ASKER].wave:
            ask = Query(state.asked + 1, state.brokers[ASKER].version)
            is_new = all(broker.version == 2 for broker in state.brokers)
            is_calm = is_new and (state.is_cut or not self.cut)
            after = state._replace(asked=ask.id, is_calm=is_calm)
            yield ("Query", ask.id, "of tree", ask.version), self.asked(after, ASKER, ASKER, ask)
        for (source, at), lane in state.lanes:
            after = with_lane(state, source, at, lane[1:])
            yield (
                (lane[0], "from", NAMES[source], "at", NAMES[at]),
                self.arrived(after, source, at, lane[0]),
            )
        if self.cut and not state.is_cut:
            yield ("the link", self.cut, "is cut"), self.after_cut(state)

    def untold(self, state: State, at: int) -> frozenset[int]:
        """Whom a broker has yet to tell of the request."""
        broker = state.brokers[at]
        others = self.neighbours(state, at) - broker.told
        return frozenset(other for other in others if broker.sources - {other})

    def arrived(
        self, state: State, source: int, at: int, message: Request | Query | Answered
    ) -> State:
        """A message at the end of its lane."""
        broker = state.brokers[at]
        if isinstance(message, Request):
            heard = broker._replace(sources=broker.sources | {source})
            return with_broker(state, at, heard)
        if isinstance(message, Query):
            if message.version != broker.version and self.error != "any version":
                return sent(state, at, source, Answered(message.id, None))
            return self.asked(state, source, at, message)
        wave = broker.wave
        if wave is None or wave.ask.id != message.id or source not in wave.awaited:
            return state
        unreached = message.unreached
        if unreached is None:
            unreached = self.behind(wave.ask.version, at, source)
        return self.answered(state, at, frozenset({source}), unreached)

    def asked(self, state: State, source: int, at: int, ask: Query) -> State:
        """Pass a question on, behind all that there is to say (W1)."""
        here = self.neighbours(state, at) - {source}
        mine = [link for link in self.tree(ask.version) if at in link and source not in link - {at}]
        others = frozenset(other for link in mine for other in link - {at})
        if self.error == "any version":
            others = here
        for other in here:
            if self.error != "asks first" and other in self.untold(state, at):
                state = tell(state, at, other)
            state = sent(state, at, other, ask)
        wave = Wave(ask, source, others, frozenset())
        state = with_broker(state, at, state.brokers[at]._replace(wave=wave))
        gone = others - here
        if self.error == "waits for ever":
            gone = frozenset()
        elif self.error == "answers first":
            gone = others
        names: frozenset[int] = frozenset()
        if self.error != "answers first":
            names = names.union(*(self.behind(ask.version, at, other) for other in gone))
        return self.answered(state, at, gone, names)

    def answered(
        self, state: State, at: int, whom: frozenset[int], unreached: frozenset[int]
    ) -> State:
        """Some of those who are awaited have answered, or are gone (W2)."""
        broker = state.brokers[at]
        if broker.wave is None:
            return state
        wave = broker.wave._replace(
            awaited=broker.wave.awaited - whom, unreached=broker.wave.unreached | unreached
        )
        if wave.awaited:
            return with_broker(state, at, broker._replace(wave=wave))
        state = with_broker(state, at, broker._replace(wave=None))
        if wave.source != at:
            return sent(state, at, wave.source, Answered(wave.ask.id, wave.unreached))
        for other in ALL - wave.unreached:
            if not state.brokers[other].sources:
                return state._replace(wrong=f"{NAMES[other]} has no request, and is not named")
        if state.is_calm and wave.unreached:
            return state._replace(wrong="a broker is named, and nothing was in its way")
        return state

    def gone_over(self, state: State, at: int) -> State:
        """A broker goes by the new tree: links leave its tree, and others come."""
        before = self.neighbours(state, at)
        broker = state.brokers[at]._replace(version=2)
        state = with_broker(state, at, broker)
        left = before - self.neighbours(state, at)
        broker = broker._replace(told=broker.told - left)
        if self.error == "drops at once":
            broker = broker._replace(sources=broker.sources - left)
        return self.parted(with_broker(state, at, broker), at, left)

    def parted(self, state: State, at: int, left: frozenset[int]) -> State:
        """A wave does not wait for links that are gone."""
        wave = state.brokers[at].wave
        if wave is None or self.error == "waits for ever":
            return state
        gone = left & wave.awaited
        names: frozenset[int] = frozenset()
        names = names.union(*(self.behind(wave.ask.version, at, other) for other in gone))
        return self.answered(state, at, gone, names) if gone else state

    def after_cut(self, state: State) -> State:
        """A link is gone, with all that was in its lanes. Both ends notice."""
        (link,) = links(self.cut)
        one, other = sorted(link)
        state = state._replace(is_cut=True)
        for at, end in ((one, other), (other, one)):
            state = with_lane(state, at, end, ())
            broker = state.brokers[at]
            wave = broker.wave
            if wave and wave.source == end:
                wave = None  # nobody is left to be answered
            broker = broker._replace(told=broker.told - {end}, wave=wave)
            state = self.parted(with_broker(state, at, broker), at, frozenset({end}))
        return state


def with_broker(state: State, at: int, broker: Broker) -> State:
    """The state with another broker."""
    return state._replace(brokers=changed(state.brokers, at, broker))


def with_lane(
    state: State, at: int, other: int, lane: tuple[Request | Query | Answered, ...]
) -> State:
    """The state with another lane."""
    lanes = dict(state.lanes) | {(at, other): lane}
    return state._replace(
        lanes=tuple(sorted((key, value) for key, value in lanes.items() if value))
    )


def sent(state: State, at: int, other: int, message: Request | Query | Answered) -> State:
    """A message is behind all others in a lane."""
    lane = dict(state.lanes).get((at, other), ())
    return with_lane(state, at, other, (*lane, message))


def tell(state: State, at: int, other: int) -> State:
    """The request is in a lane."""
    broker = state.brokers[at]
    state = with_broker(state, at, broker._replace(told=broker.told | {other}))
    return sent(state, at, other, Request())
