"""`Faults`: everything that can break in a virtual network, each for a time.

Each kind of fault is one method, which takes what a script's step says. What is broken already is
broken for longer, and heals by itself. What people do to a network is told of here as well, though
it breaks nothing by itself (`Operators`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations
from math import inf
from typing import Any, Final

from palio.simulation.agenda import FAULT, US
from palio.simulation.disks import Disk
from palio.simulation.medium import Weather
from palio.simulation.world import World
from tests.campaign.actors import Actor
from tests.campaign.on_disks import ends_only_on, events_in, events_on, lacks_claims
from tests.campaign.operators import Operators
from tests.older import NEWER

UNREADABLE_FILTER: Final = f"x != {NEWER}"
"""What no other broker can read. It matches most events, and covers some other filters..."""

READABLE_FILTER: Final = "x > 2"
"""...and what takes its place."""

FAULTS: Final[Mapping[str, str]] = {
    "delay": "a link gets slow",
    "clog": "one way of a link carries nothing, then all at once",
    "reset": "a connection breaks; both ends are told",
    "half-open": "a connection breaks; one end is told, the other finds out",
    "damage": "a bit of what is sent over a connection turns round on its way",
    "cut": "a link is gone",
    "partition": "all links between two parts are gone",
    "silence": "the same, and nobody is told",
    "one way": "nothing comes from one part to the other, but back it does",
    "swizzle": "the links of a broker go, and come back in another order",
    "crash": "a broker stops dead, and starts again",
    "torn": "it does so in the middle of a write",
    "pause": "a broker does nothing for a while",
    "wipe": "a broker stops, and starts with an empty disk",
    "flip": "a bit of an entry on a disk turns round",
    "fsync": "a disk takes what is written, and cannot sync it",
    "full": "a disk is full",
    "spotty": "a disk refuses some of the next writes",
    "clock": "the clock on a broker's wall jumps",
    "lossy": "datagrams are lost, doubled and late",
    "deaf": "a broker hears no datagrams",
    "unheard": "two brokers do not hear each other's datagrams",
    "stall": "a client reads nothing",
    "away": "a client stays away, perhaps beyond its grace",
    "unreadable": "what some client asks for cannot be read by any other broker",
    "unread claim": "the same of a durable subscription",
    "drain": "a broker is drained, and perhaps stopped and replaced",
    "part": "a broker is told to part from a neighbour, and to link to it again",
    "link": "a broker is told to link to another as well, and to part from it again",
}
"""What each means, for people."""

UNNOTICED_S: Final = 4.0
"""An end of a link that was not told that it broke has found out by then, after 3 heartbeats of
silence, and is linked again."""

REFUSALS: Final = ("fsync", "full", "spotty")
"""Those by which a disk does not take what is written."""

DISK_FAULTS: Final = frozenset({"wipe", "flip", *REFUSALS})
"""Those after which something durable may be missing, if that is told."""

UNREAD: Final = ("unreadable", "unread claim")
"""Those by which more is sent, and nothing is lost."""

CLIENT_FAULTS: Final = ("stall", "away", "unreadable", "unread claim")
"""Those that are a client's: no link goes down for them."""

UPKEEP: Final = ("drain", "part", "link")
"""Those that are none: what people do to a network while it runs."""

CAST_FAULTS: Final = ("lossy", "deaf", "unheard")
"""Those of the way of datagrams: nothing is lost for them, and nobody is told of a loss."""

TOLD_S: Final = 2.0
"""After so long a link has told each end what the other knows."""


class Blank:
    """A broker that has lost its disk, or has stopped before that took what others had said, until
    it is linked to one that has not, or to one that is: it knows of nobody, or not of all. A link
    that is gone within `TOLD_S` may have told it nothing.
    """

    def __init__(self, broker: str, from_s: float) -> None:
        self.broker = broker
        self.from_s = from_s
        self.until_s = inf


class Faults:
    """What is broken in a world, and until when."""

    def __init__(
        self,
        world: World,
        edges: tuple[tuple[str, str], ...],
        *,
        is_meshed: bool = False,
        is_smooth: bool = True,
    ) -> None:
        self.world = world
        self.edges = edges
        self.ways = tuple(combinations(world.disks, 2)) if is_meshed else edges
        """Who may be linked: with `is_meshed` brokers link to others than is drawn."""
        self.operators = Operators(world, edges, self, is_smooth=is_smooth)
        self.flipped: set[tuple[str, int]] = set()
        """Events of which some copy was damaged: publisher and number."""
        self.wiped: set[tuple[str, int]] = set()
        """Events that were on a disk that was lost."""
        self.lost_ends: set[str] = set()
        """Durable subscriptions that a broker had ended, and told nobody of, when it lost its
        disk: others keep them until their lease is over."""
        self.blanks: list[Blank] = []
        self._refusing: set[str] = set()
        """Brokers whose disks have refused something."""
        self.stops: list[tuple[str, float]] = []
        """Which broker stopped, and when: what it had in memory alone is gone."""
        self.breaks: list[tuple[float, float]] = []
        """From when until when something was broken, of each fault."""
        self.healed_s = float("-inf")
        """When something last came to its end."""
        self._until: dict[tuple[str, ...], float] = {}
        world.changed = self._see_links

    def _see_links(self) -> None:
        now = self.world.now
        blanks = {each.broker: each for each in self.blanks if each.until_s > now - TOLD_S}
        if not blanks:
            return
        linked = [edge for edge in self.edges if self.world.is_linked(*edge)]
        is_whole = bool(linked) and len(linked) == len(self.edges)
        ended = set(blanks) if is_whole else _told(linked, set(blanks))
        for broker, blank in blanks.items():
            blank.until_s = min(blank.until_s, now) if broker in ended else inf

    @property
    def is_broken(self) -> bool:
        """Whether something is broken now."""
        return any(until > self.world.now for until in self._until.values())

    @property
    def until_s(self) -> float:
        """When all is whole, as far as it is planned."""
        return max(self._until.values(), default=0.0)

    def cause(self, kind: str, words: tuple[Any, ...]) -> None:
        """Break something as a step says: each kind of fault is a method of that name."""
        self._changes(kind)
        if kind in UPKEEP:
            getattr(self.operators, kind)(*words)
            return
        cause = getattr(self, "_" + kind.replace(" ", "_").replace("-", "_"))
        if kind not in CLIENT_FAULTS:
            cause(*words)
        elif isinstance(actor := self.world.clients.get(words[0]), Actor):
            cause(actor, *words[1:])

    def _changes(self, kind: str) -> None:
        """Something begins or ends, by which events that are under way may be lost."""
        if kind not in (*UPKEEP, *REFUSALS, *UNREAD, "restart"):
            self._note(0.0)

    def _note(self, seconds: float) -> None:
        self.breaks.append((self.world.now, self.world.now + seconds))

    def broke(self, from_s: float, to_s: float) -> bool:
        """Whether anything was broken at some time between these two."""
        return any(begin <= to_s and from_s <= end for begin, end in self.breaks)

    def _for(
        self,
        seconds: float,
        what: tuple[str, ...],
        undo: Callable[[], object],
        *,
        broken_s: float = inf,
    ) -> None:
        """Break something for no longer than `broken_s`, and undo it after a time (see `lasts`)."""
        self._note(min(seconds, broken_s))
        self.lasts(seconds, what, undo)

    # --- what `Operators` tells ---

    def lasts(self, seconds: float, what: tuple[str, ...], undo: Callable[[], object]) -> None:
        """Undo something once it has lasted so long, unless it is to last longer by then."""
        world = self.world
        self._until[what] = max(self._until.get(what, 0.0), world.now + seconds)

        def over() -> None:
            if self._until.get(what, 0.0) <= world.now:
                self._until.pop(what, None)
                self.healed_s = world.now
                self._changes(what[0])
                undo()

        world.agenda.at(world.agenda.now_us + round(seconds * US) + 1, FAULT, over)

    def broken(self, from_s: float) -> None:
        """Something was broken from then until now."""
        self.breaks.append((from_s, self.world.now))

    def stopped(self, broker: str) -> None:
        """A broker has stopped."""
        self.stops.append((broker, self.world.now))

    def replaced(self, broker: str) -> None:
        """A broker that does not run has an empty disk from now on."""
        self.blanks.append(Blank(broker, self.world.now))
        self.world.disks[broker] = Disk(self.world.random.branch())

    # --- links ---

    def _delay(self, one: str, other: str, takes_s: float, seconds: float) -> None:
        self.world.delay(one, other, takes_s)
        usual_s = self.world.latency_us / US
        self._for(seconds, ("delay", one, other), lambda: self.world.delay(one, other, usual_s))

    def _clog(self, sender: str, receiver: str, seconds: float) -> None:
        self.world.hold(sender, receiver, seconds)
        self._for(seconds, ("clog", sender, receiver), lambda: None)

    def _reset(self, one: str, other: str) -> None:
        self.world.drop(one, other)

    def _half_open(self, one: str, other: str) -> None:
        self._note(UNNOTICED_S)
        self.world.half_open(one, other)

    def _damage(self, sender: str, receiver: str) -> None:
        self.world.damage(sender, receiver)

    def _cut(self, one: str, other: str, seconds: float) -> None:
        self.world.cut(one, other)
        self._for(seconds, ("cut", *sorted((one, other))), lambda: self.world.heal(one, other))

    def _partition(self, part: tuple[str, ...], seconds: float) -> None:
        for one, other in self._across(part):
            self._cut(one, other, seconds)

    def _silence(self, part: tuple[str, ...], seconds: float) -> None:
        for one, other in self._across(part):
            self._clog(one, other, seconds)
            self._clog(other, one, seconds)

    def _one_way(self, part: tuple[str, ...], seconds: float) -> None:
        for one, other in self._across(part):
            sender, receiver = (one, other) if one in part else (other, one)
            self._clog(sender, receiver, seconds)

    def _across(self, part: tuple[str, ...]) -> list[tuple[str, str]]:
        return [(one, other) for one, other in self.ways if (one in part) != (other in part)]

    def _swizzle(self, broker: str, all_seconds: tuple[float, ...]) -> None:
        links = [edge for edge in self.edges if broker in edge]
        for (one, other), seconds in zip(links, all_seconds, strict=False):
            self._cut(one, other, seconds)

    # --- brokers ---

    def _crash(self, broker: str, seconds: float) -> None:
        self._stop(broker)
        self._for(seconds, ("crash", broker), lambda: self._start(broker))

    def _stop(self, broker: str) -> None:
        if broker in self.world.nodes:
            self.world.kill(broker)
            self.stopped(broker)
            if broker in self._refusing and lacks_claims(broker, self.world.disks):
                self.blanks.append(Blank(broker, self.world.now))

    def _start(self, broker: str) -> None:
        if broker not in self.world.nodes:
            self.world.start(broker)

    def _torn(self, broker: str, seconds: float) -> None:
        """At its next write; if there is none in that time, nothing happens."""
        disk = self.world.disks[broker]

        def disarm() -> None:
            disk.written = lambda: None

        def tear() -> None:
            disarm()
            if disk is self.world.disks[broker]:
                self._crash(broker, seconds)

        def plan() -> None:
            self.world.agenda.at(self.world.agenda.now_us, FAULT, tear)

        disk.written = plan
        self._for(seconds, ("torn", broker), disarm)

    def _pause(self, broker: str, seconds: float) -> None:
        if broker in self.world.nodes:
            self.world.pause(broker, seconds)
            self._for(seconds, ("pause", broker), lambda: None)

    def _wipe(self, broker: str, seconds: float) -> None:
        self.wiped |= events_on(self.world.disks[broker])
        self.lost_ends |= ends_only_on(broker, self.world.disks)
        for client in self.world.clients.values():
            if isinstance(client, Actor):
                client.forget_home(broker)
        self._stop(broker)
        self.replaced(broker)
        self._for(seconds, ("crash", broker), lambda: self._start(broker))

    # --- disks and clocks ---

    def _flip(self, broker: str, which: int) -> None:
        disk = self.world.disks[broker]
        entries = disk.held()
        if entries:
            entry = entries[which % len(entries)]
            disk.flip(entry.entry)
            self.flipped |= events_in(entry)

    def _fsync(self, broker: str, seconds: float) -> None:
        self.world.disks[broker].fails_to_sync = True
        self._refuses(broker, "fsync", seconds, lambda disk: setattr(disk, "fails_to_sync", False))

    def _full(self, broker: str, seconds: float) -> None:
        self.world.disks[broker].is_full = True
        self._refuses(broker, "full", seconds, lambda disk: setattr(disk, "is_full", False))

    def _spotty(self, broker: str, refusals: tuple[bool, ...], seconds: float) -> None:
        self.world.disks[broker].refusals = deque(refusals)
        self._refuses(broker, "spotty", seconds, lambda disk: disk.refusals.clear())

    def _refuses(
        self, broker: str, kind: str, seconds: float, undo: Callable[[Disk], object]
    ) -> None:
        """A disk does not take what is written. What is live goes on, so nothing is broken."""
        self._refusing.add(broker)
        disks = self.world.disks  # of a broker that is given another disk that one is whole, too
        self.lasts(seconds, (kind, broker), lambda: undo(disks[broker]))

    def _clock(self, broker: str, ahead_s: float) -> None:
        self.world.set_clock(broker, ahead_s)

    # --- datagrams ---

    def _lossy(self, loss: float, doubled: float, late: float, seconds: float) -> None:
        medium = self.world.medium
        medium.weather = Weather(loss, doubled, late)
        self._for(seconds, ("lossy",), lambda: setattr(medium, "weather", Weather()))

    def _deaf(self, broker: str, seconds: float) -> None:
        medium = self.world.medium
        medium.deafen(broker)
        self._for(seconds, ("deaf", broker), lambda: medium.undeafen(broker))

    def _unheard(self, one: str, other: str, seconds: float) -> None:
        medium = self.world.medium
        medium.cut(one, other)
        self._for(seconds, ("unheard", *sorted((one, other))), lambda: medium.heal(one, other))

    # --- clients ---

    def _stall(self, actor: Actor, seconds: float) -> None:
        actor.stall(seconds)
        self._for(seconds, ("stall", actor.name), lambda: None)

    def _away(self, actor: Actor, seconds: float) -> None:
        actor.stay_away(seconds)
        self._for(seconds, ("away", actor.name), lambda: None)

    def _unreadable(self, actor: Actor, key: str, seconds: float) -> None:
        self._ask_newer(("unreadable", actor.name, key), actor, seconds, durable=False)

    def _unread_claim(self, actor: Actor, key: str, seconds: float) -> None:
        self._ask_newer(("unread claim", actor.name, key), actor, seconds, durable=True)

    def _ask_newer(
        self, what: tuple[str, str, str], actor: Actor, seconds: float, *, durable: bool
    ) -> None:
        """A subscription that no other broker can read, until another filter takes its place."""
        key = what[-1]
        if key in actor.interests:
            actor.change(key, UNREADABLE_FILTER)
        else:
            actor.hear_of(key, UNREADABLE_FILTER, durable=durable)
        self.lasts(seconds, what, lambda: actor.change(key, READABLE_FILTER))


def _told(linked: Iterable[tuple[str, str]], ignorant: set[str]) -> set[str]:
    """Of brokers that know of nobody, those to which links lead from one that does.

    >>> _told([("b1", "b2"), ("b3", "b4"), ("b4", "b5")], {"b1", "b2", "b4", "b5"}) == {"b4", "b5"}
    True
    """
    told: set[str] = set()
    while True:
        more = {
            end
            for edge in linked
            for end, other in (edge, edge[::-1])
            if end in ignorant - told and other not in ignorant - told
        }
        if not more:
            return told
        told |= more
