"""`Finder`: a broker that has lost a neighbour, and others with it, looks for a way to them.

It goes by what brokers have announced: where they can be reached (`ADDRESS`), who their neighbours
are (`LINKS`), and which of these they have found in this way (`FOUND`).

1. A neighbour is missed once it has been gone for a `peer_heartbeat_s`. A broker that misses one
   dials brokers that it cannot reach: first the neighbours of who is missed, then all others, at
   last who is missed itself. Each broker has an order of its own, so that not all dial the same.
2. Of brokers that reach each other and miss the same neighbour one begins, and the others wait for
   some heartbeats.
3. An address may be a lie. Whoever answers must have the name that was looked for. Of `CALLS`
   addresses at a time each is dialled `TRIES` times or for `CALL_BEATS`, then left alone for
   `REST_S`, and longer each time. After the first `FAST_CALLS` there is one a second.
4. Whoever is dialled takes such a call only from a broker that it cannot reach itself, and no more
   than `TAKEN` in a heartbeat: all that were lost dial one that is back, and one link leads to all.
5. A link that was found is a stand-in. Once nobody is missed, it ends if its other end can be
   reached without it (`palio.node.partings`). Where several stand in for each other, they end in an
   order that all agree on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from functools import partial
from hashlib import blake2b
from heapq import nsmallest
from math import inf
from typing import Final

from palio.errors import IllegalMessage
from palio.node.core import Core
from palio.node.effects import Dial, Undial
from palio.node.known_facts import ShortestWays
from palio.node.limits import MAX_PEERS
from palio.node.links import Links
from palio.node.partings import Partings
from palio.node.vouching import FOUND
from palio.protocol.addresses import Address, parse_address
from palio.protocol.messages import Bye
from palio.routing.algorithms import GraphKind
from palio.routing.trees import edge_of

CALLS: Final = 2
"""Addresses that are dialled at a time, until one answers."""

TRIES: Final = 3
"""So often an address is dialled before others have their turn..."""

CALL_BEATS: Final = 5
"""...or for so many heartbeats, if it takes connections and says nothing."""

REST_S: Final = 2.0
"""So long it is left alone then, and twice as long each time..."""

MAX_REST_S: Final = 60.0
"""...up to this: a broker that is gone for good costs others little."""

FAST_CALLS: Final = 10
"""Addresses that are dialled as soon as may be: more of them were perhaps made up."""

PACE_S: Final = 1.0
"""Seconds between two of those after them."""

TAKEN: Final = 3
"""Calls of others that look for a way, of which a broker takes so many in a heartbeat."""

MAX_WAIT_BEATS: Final = 10
"""Heartbeats that a broker waits for others that miss the same neighbour and may find it a way."""

STEADY_BEATS: Final = 3
"""Heartbeats for which nobody was missed before a stand-in ends."""

LOOKS_A_HEARTBEAT: Final = 5

FEW: Final = 3
"""Among many that are lost at once, the neighbours whose turn it is."""

NO_REST: Final = (0.0, 0.0)

LOOKED_AT: Final = 50
"""Brokers, in the order in which they are dialled, whose addresses are read at once."""


class _Call:
    """A broker that is dialled."""

    __slots__ = ("is_up", "name", "since", "tries", "url")

    def __init__(self, name: str, url: str, now: float) -> None:
        self.name = name
        self.url = url
        self.since = now
        self.tries = 0
        self.is_up = False


class Finder:
    """The brokers that one broker has lost, and where it looks for them."""

    def __init__(self, core: Core, links: Links, partings: Partings) -> None:
        self._core = core
        self._links = links
        self._partings = partings
        self._registry = core.durability.registry
        settings = core.settings
        self._is_on = (
            settings.find
            and settings.outside is None
            and settings.graph_with("") is GraphKind.GRAPH
        )
        self.kept = {str(parse_address(url)) for url in settings.peers}
        """Addresses that are dialled in any case."""
        self.shunned: dict[str, None] = {}
        """Brokers that this one is not to be linked to."""
        self._had: dict[str, bool] = {}
        """Neighbours that this broker has or had, and whether each is a stand-in."""
        self._missed: dict[str, float] = {}
        """Those that are not there, since when."""
        self._calls: dict[str, _Call] = {}
        """By name, brokers that are dialled."""
        self._rests: dict[str, tuple[float, float]] = {}
        """Those that are left alone: until when, and for how long."""
        self._taken: deque[float] = deque(maxlen=TAKEN)
        """When this broker took calls of others."""
        self._spare = ""
        """The stand-in that this broker is about to end, if any: it stays if somebody is missed."""
        self._alone_since = 0.0
        self._whole_since = 0.0
        self._begun = 0
        """Calls since somebody was missed."""
        self._next_at = 0.0
        self._look_at = 0.0
        self._state: object = None
        self._within_reach: Collection[str] = ()
        """The result for that state of the links."""

    @property
    def wake_at(self) -> float:
        """When `tick` is next to be called."""
        is_at_work = self._partings or (self._is_on and not self._registry.is_alone)
        return self._look_at if is_at_work else inf

    @property
    def urls(self) -> list[str]:
        """Where it dials."""
        return [call.url for call in self._calls.values()]

    def seeks(self, url: str) -> bool:
        """Return whether an address is dialled for no other reason than that somebody is missed."""
        return url not in self.kept and url in self.urls

    def begin(self) -> None:
        """The broker starts: its neighbours are those of its earlier life, if it remembers that."""
        registry, name = self._registry, self._core.name
        self._alone_since = self._whole_since = self._look_at = self._core.at.now
        found = registry.links(name, FOUND)
        self._had = dict.fromkeys(registry.links(name), False)
        self._had.update(dict.fromkeys(found, True))

    def shun(self, name: str) -> None:
        """A broker is not to be linked to this one any more, unless that is asked for."""
        self.forget(name)
        self.shunned[name] = None
        if len(self.shunned) > MAX_PEERS:
            del self.shunned[next(iter(self.shunned))]

    def forget(self, name: str) -> None:
        """The link to a neighbour has ended as it was to."""
        self._had.pop(name, None)
        self._missed.pop(name, None)

    # --- what came of calls ---

    def dialled(self, url: str) -> None:
        """A connection was made to an address; who answers is not known yet."""
        for call in list(self._calls.values()):
            if call.url == url:
                call.tries += 1
                if call.tries > TRIES:
                    self._give_up(call)

    def unreachable(self, url: str) -> None:
        """No connection could be made to an address."""
        for call in list(self._calls.values()):
            if call.url == url:
                call.tries += 1
                if call.tries >= TRIES:
                    self._give_up(call)

    def check(self, url: str, name: str) -> None:
        """Refuse who answers where another was looked for (`IllegalMessage`)."""
        for call in list(self._calls.values()):
            if call.url == url and call.name != name:
                self._give_up(call)
                raise IllegalMessage(name, f"{call.name!r} is said to be there, at {url}")

    def takes(self, name: str) -> bool:
        """Return whether to take the call of a broker that looks for a way: one that is unreached,
        unless there were many just now.
        """
        now = self._core.at.now
        is_many = len(self._taken) == TAKEN and now - self._taken[0] < self._beat_s
        if is_many or name in self._reached(self._up):
            return False
        self._taken.append(now)
        return True

    def _give_up(self, call: _Call) -> None:
        """Dial others for a while."""
        self._end(call)
        _, before = self._rests.get(call.name, (0.0, REST_S / 2))
        rest = min(2 * before, MAX_REST_S)
        self._rests[call.name] = (self._core.at.now + rest, rest)
        self._core.report("debug", "not_found", broker=call.name, url=call.url)

    def _end(self, call: _Call) -> None:
        del self._calls[call.name]
        if call.url not in self.kept:
            self._core.out.append(Undial(call.url))

    # --- looking ---

    def tick(self) -> bool:
        """Time has passed: whether it was time to look."""
        core = self._core
        if core.at.now < self.wake_at:
            return False
        self._look_at = core.at.now + self._beat_s / LOOKS_A_HEARTBEAT
        self._partings.go_on()
        if self._is_on:
            self._look()
        return True

    def _look(self) -> None:
        up = self._up
        self._look_at_calls()
        self._note(up)
        lacking = self._lacking(up)
        if lacking is None:
            self._begun, self._next_at = 0, 0.0
            self._rests.clear()
            self._give_back(up)
        else:
            self._whole_since = self._core.at.now
            if self._spare in self._calls:
                self._partings.stop(self._spare)
                self._spare = ""
            self._seek(up, lacking)
        self._tell()

    def _look_at_calls(self) -> None:
        now = self._core.at.now
        patience_s = CALL_BEATS * self._beat_s
        for call in list(self._calls.values()):
            neighbour = self._core.neighbours.get(call.name)
            link = None if neighbour is None or neighbour.link is None else neighbour.link
            state = None if link is None else self._links.get(link)
            was_up, call.is_up = call.is_up, state is not None and state.url == call.url
            if call.is_up:
                call.tries = 0
                if not was_up:
                    self._core.report("info", "found", broker=call.name, url=call.url)
            elif state is not None:  # it has dialled this broker meanwhile
                self._end(call)
            elif was_up:
                call.since = now
            elif now - call.since > patience_s:
                self._give_up(call)

    def _note(self, up: Collection[str]) -> None:
        """Work out which brokers are there, and which are missed."""
        registry, now = self._registry, self._core.at.now
        for name in up:
            # One that dials this broker by its configuration may be found first: what was found
            # makes way for that, and is no stand-in any more.
            found_us = self._core.name in registry.links(name, FOUND)
            self._had[name] = found_us or self._is_found(name)
            self._missed.pop(name, None)
        for name in [name for name in self._had if name in registry.retired]:
            self.forget(name)
        for name in self._had:
            neighbour = self._core.neighbours.get(name)
            if neighbour is None:
                self._missed.setdefault(name, now)
            elif name not in up:  # it may have been there since the last look
                self._missed[name] = neighbour.away_since

    def _lacking(self, up: Collection[str]) -> list[str] | None:
        """Those neighbours that are missed by now; None if all is well."""
        now, beat = self._core.at.now, self._beat_s
        if up or len(self._registry.brokers) < 2:
            self._alone_since = now
        for neighbour in self._core.neighbours.values():
            self._alone_since = max(self._alone_since, neighbour.away_since)
        lacking = [name for name, since in self._missed.items() if now - since > beat]
        if not lacking and now - self._alone_since <= beat:
            return None
        return lacking

    def _seek(self, up: list[str], lacking: list[str]) -> None:
        """Dial one more broker that cannot be reached, if it is time."""
        now = self._core.at.now
        reached = self._reached(up)
        for call in list(self._calls.values()):
            if not call.is_up and call.name in reached:
                self._end(call)
        for name in [name for name in lacking if name in reached and self._is_spared(name, up)]:
            self.forget(name)
            lacking.remove(name)
        under_way = sum(not call.is_up for call in self._calls.values())
        if under_way >= CALLS or now < self._next_at or self._is_for_others(lacking, reached):
            return
        found = self._next(lacking, reached)
        if found is not None:
            name, address = found
            self._calls[name] = _Call(name, str(address), now)
            self._begun += 1
            self._next_at = now + PACE_S if self._begun >= FAST_CALLS else 0.0
            self._core.out.append(Dial(str(address), name))
            missed = lacking[:FEW]
            level = "debug" if name in self._rests else "info"
            self._core.report(level, "finding", broker=name, url=str(address), missed=missed)

    def _is_spared(self, name: str, up: list[str]) -> bool:
        """Return whether one that is missed, and can be reached, need not come back: it was a
        stand-in, or one of ours is not needed for it, so that it would keep that for nothing. That
        it was a stand-in is perhaps not known here.
        """
        found = [each for each in self._found if each in up]
        if self._had[name] or not found:
            return self._had[name]
        if self._core.at.now - self._missed[name] <= self._steady_s:
            return False
        # What can be reached without any one of ours can be without the one that ends first.
        first = max(found, key=partial(edge_of, self._core.name))
        return name in self._ways_without(first, up)

    def _reached(self, up: list[str]) -> Collection[str]:
        state = (self._registry.ways, tuple(up))
        if state != self._state:
            self._state, self._within_reach = state, self._registry.reached_over(up)
        return self._within_reach

    def _is_for_others(self, lacking: list[str], reached: Collection[str]) -> bool:
        """Return whether another that misses the same neighbour is to begin, and there is yet
        time.
        """
        now, beat = self._core.at.now, self._beat_s
        waits = []
        for lost in lacking[:FEW]:
            mine = _draw(lost, self._core.name)
            rivals = (each for each in self._registry.links(lost) if each in reached)
            rank = sum(_draw(lost, each) < mine for each in rivals)
            waits.append(self._missed[lost] + beat * (1 + min(rank, MAX_WAIT_BEATS)))
        return bool(waits) and min(waits) > now

    def _next(self, lacking: list[str], reached: Collection[str]) -> tuple[str, Address] | None:
        """Whom to dial, and where; None if there is nobody."""
        core, registry = self._core, self._registry
        near = {name for lost in lacking for name in registry.links(lost)}

        def order(name: str) -> tuple[float, int, bytes]:
            nearness = 2 if name in lacking else int(name not in near)
            return self._rests.get(name, NO_REST)[1], nearness, _draw(core.name, name)

        unreached = [
            name
            for name in registry.brokers
            if name not in reached
            and name != core.name
            and name not in self._calls
            and name not in self.shunned
            and not registry.is_leaving(name)
            and self._rests.get(name, NO_REST)[0] <= core.at.now
        ]
        for name in nsmallest(LOOKED_AT, unreached, order):
            address = self._address(name)
            if address is not None:
                return name, address
            self._rests[name] = (core.at.now + MAX_REST_S, MAX_REST_S)
        return None

    def _address(self, name: str) -> Address | None:
        """Where to dial a broker; None if that is not known, or not to be done."""
        core = self._core
        own, address = core.whereabouts.of(core.name), core.whereabouts.of(name)
        if address is None or address == own or str(address) in self.kept:
            return None
        is_stripped = own is not None and own.is_secure and not address.is_secure
        return None if is_stripped else address

    # --- links that were found ---

    def _give_back(self, up: list[str]) -> None:
        """End a stand-in, if there is another way."""
        core = self._core
        ours = self._found
        if not ours or core.at.now - self._whole_since < self._steady_s:
            return
        if any(name in self._partings for name in ours):
            return
        spare = next((name for name in ours if name in self._ways_without(name, up)), None)
        if spare is not None:
            done = partial(self._given_back, spare)
            bye = Bye("closed", "the link is needed no longer")
            self._partings.begin(spare, bye, done)
            self._spare = spare

    @property
    def _found(self) -> list[str]:
        """The stand-ins that this broker has found."""
        return [each for each, is_one in self._had.items() if is_one and self._is_found(each)]

    @property
    def _up(self) -> list[str]:
        """The neighbours that are there."""
        return [name for name, each in self._core.neighbours.items() if each.link is not None]

    @property
    def _beat_s(self) -> float:
        return self._core.settings.peer_heartbeat_s

    @property
    def _steady_s(self) -> float:
        return STEADY_BEATS * self._beat_s

    def _ways_without(self, name: str, up: list[str]) -> Collection[str]:
        """The brokers that can be reached without one stand-in, and without those that end before
        it. Of a circle of stand-ins one may end so, and not two at once.
        """
        first = edge_of(self._core.name, name)

        def stays(one: str, other: str) -> bool:
            return edge_of(one, other) < first

        def links(broker: str) -> tuple[str, ...]:
            lasting = self._lasting_links(broker)
            every = self._registry.links(broker)
            return tuple(each for each in every if each in lasting or stays(broker, each))

        own = [each for each in up if not self._had[each] or stays(self._core.name, each)]
        return ShortestWays(self._core.name, own, links).hops

    def _lasting_links(self, broker: str) -> tuple[str, ...]:
        """The neighbours of a broker by links that are no stand-ins."""
        registry = self._registry
        found = registry.links(broker, FOUND)
        return tuple(
            each
            for each in registry.links(broker)
            if each not in found and broker not in registry.links(each, FOUND)
        )

    def _given_back(self, name: str) -> None:
        call = self._calls.get(name)
        if call is not None:
            self._end(call)
        self._spare = ""
        self.forget(name)
        self._core.report("info", "given_back", broker=name)

    def _tell(self) -> None:
        """Inform all brokers which neighbours of this one are stand-ins that it has found."""
        before = self._registry.links(self._core.name, FOUND)
        found = [
            name
            for name, is_stand_in in self._had.items()
            if is_stand_in and (name in before if name in self._missed else self._is_found(name))
        ]
        self._registry.say_links(FOUND, tuple(sorted(found)))

    def _is_found(self, name: str) -> bool:
        """Return whether this broker has found it, and it is there."""
        call = self._calls.get(name)
        return call is not None and call.is_up


def _draw(one: str, other: str) -> bytes:
    """Return a key that orders others for each broker in a way of its own."""
    return blake2b(f"{len(one)} {one} {other}".encode(), digest_size=8).digest()
