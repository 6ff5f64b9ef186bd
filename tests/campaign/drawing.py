"""`draw`: the script of a seed.

Of the kinds of faults each seed has only some, so that what a few of them do together is not always
hidden by the others, and what is promised only without some of them is tried as well.
"""

from __future__ import annotations

from typing import Any, Final

from palio.routing.algorithms import ALGORITHMS, Algorithm, GraphKind, find_algorithm
from palio.simulation.randomness import Randomness
from palio.simulation.topologies import Topology, connected_random, grid, line, random_tree, ring
from tests.campaign.faults import (
    CAST_FAULTS,
    CLIENT_FAULTS,
    FAULTS,
    REFUSALS,
    UPKEEP,
)
from tests.campaign.grants import TEAM
from tests.campaign.hostile import HARMS, HOSTILE
from tests.campaign.operators import AFTERWARDS
from tests.campaign.scripts import Border, Script, Step

GATEWAY: Final = "gateway"
"""The name under which two networks that a gateway joins are drawn."""

ROUTINGS: Final = (*ALGORITHMS, GATEWAY)
"""What a campaign may be about."""

STEPS: Final = 45
LONGEST_S: Final = 8.0
"""The longest that something is broken: the grace of clients and of neighbours is less."""
HEAL: Final = frozenset({"cut", "partition", "silence", "one way", "crash", "pause", "delay"})
"""Faults that last, and after which ways are found anew."""
STOPS: Final = frozenset({"crash", "torn"})
"""Faults after which a broker has what its disk has."""
APART: Final = frozenset({"cut", "partition", "silence", "one way", "swizzle"})
"""Faults by which brokers do not hear of each other for a while."""
PUBLISHERS: Final = 3
STREAM: Final = 20
"""Events of a stream..."""
STREAM_GAP_S: Final = 0.04
"""...and how long each is behind the one before."""
OFFER: Final = "EXISTS kind AND EXISTS x AND EXISTS s OR EXISTS kind AND EXISTS x"
"""What clients advertise: all that they publish, with each attribute of it."""

CANCELS: Final = ("kind < 2", "EXISTS kind", "kind = 0", "x >= 0", "x < 5")
SETTLING_S: Final = 4.0
"""When faults begin: until then most clients have what they asked for."""


def draw(seed: int, routing: str = "", *, steps: int = STEPS) -> Script:
    """What happens under a seed; with a `routing`, under that.

    >>> draw(7) == draw(7), draw(7, "proxies").routing
    (True, 'proxies')
    """
    return _Draft(seed, routing, steps).script()


class _Draft:
    def __init__(self, seed: int, routing: str, steps: int) -> None:
        self.seed = seed
        self.count = steps
        self.random = random = Randomness(seed)
        self.gate: Border | None = None
        chosen = random.choice(ROUTINGS)
        self.shape = self._network(routing or chosen)
        self.assembles = self.gate is None and self.routing.assembles
        self.casts = self.gate is None and self.routing.is_destined and random.chance(0.6)
        self.kinds = self._kinds()
        is_upkept = not set(UPKEEP).isdisjoint(self.kinds)
        self.discovery = is_upkept or (self.gate is None and random.chance(0.3))
        self.moves = random.chance(0.8 if "spotty" in self.kinds else 0.3)
        if self.moves and not APART.isdisjoint(self.kinds) and random.chance(0.8):
            self.kinds.append("clock")
        self.harms = random.sample(tuple(HARMS), 3) if random.chance(0.25) else []
        self.listeners = [
            f"listener{number}" for number in range(random.between(2 if self.casts else 1, 3))
        ]
        self.publishers = [f"publisher{number}" for number in range(PUBLISHERS)]
        self.crew = [f"worker{number}" for number in range(random.between(2, 4))]
        if not random.chance(0.35):
            self.crew = []
        self.named = 0
        self.team = [name for name in self.listeners if random.chance(0.5)]
        if self.routing.takes_advertisements:
            self.team += [name for name in self.publishers if random.chance(0.5)]
        if len(self.team) < 2 or random.chance(0.5):
            self.team = []

    @property
    def upkept(self) -> tuple[str, ...]:
        """What people may do to such a network."""
        if self.gate is not None or len(self.shape.brokers) < 2:
            return ()
        is_graph = self.routing.graph is GraphKind.GRAPH
        return UPKEEP if is_graph else tuple(each for each in UPKEEP if each != "link")

    def _kinds(self) -> list[str]:
        """A few kinds of faults, none at all, or those of clients or disks alone."""
        random = self.random
        draw = random.uniform()
        if draw < (0.2 if self.assembles else 0.05):
            return []
        if draw < 0.15:
            return random.sample(CLIENT_FAULTS, random.between(1, 2))
        if draw < 0.2:
            return list(REFUSALS)  # of what is live nothing is lost
        if self.casts and draw < 0.4:
            return list(CAST_FAULTS)
        if draw < 0.5 and self.upkept:
            return list(self.upkept)  # and nothing breaks
        others = {*CAST_FAULTS, *UPKEEP}
        kinds = random.sample([each for each in FAULTS if each not in others], random.between(1, 6))
        if self.upkept and random.chance(0.25):
            kinds.append(random.choice(self.upkept))
        return [*kinds, random.choice(CAST_FAULTS)] if self.casts else kinds

    # --- the network ---

    def _network(self, routing: str) -> Topology:
        random = self.random
        if routing == GATEWAY:
            return self._joined()
        self.routing = find_algorithm(routing)
        return self._shape(self.routing, random.between(2, 7))

    def _shape(self, routing: Algorithm, size: int) -> Topology:
        random = self.random
        if routing.graph is GraphKind.ALONE:
            return line(1)
        if routing.graph is GraphKind.TREE:
            return line(size) if random.chance(0.3) else random_tree(size, random.branch())
        match random.below(3):
            case 0:
                return ring(max(3, size))
            case 1:
                return grid(2, max(2, size // 2))
            case _:
                return connected_random(max(3, size), 2, random.branch())

    def _joined(self) -> Topology:
        """Two networks: the first broker of the one hangs below some broker of the other."""
        random = self.random
        joining = [each for each in ALGORITHMS.values() if each.joins and not each.is_advertised]
        self.routing, outer = random.choice(joining), random.choice(joining)
        inner, beyond = (self._shape(each, random.between(2, 4)) for each in (self.routing, outer))
        outside = {name: f"o{name}" for name in beyond.brokers}
        above = outside[random.choice(beyond.brokers)]
        self.gate = Border(inner.brokers[0], outer.name, tuple(outside.values()))
        return Topology(
            (*outside.values(), *inner.brokers),
            (
                *((outside[one], outside[other]) for one, other in beyond.edges),
                (above, inner.brokers[0]),
                *inner.edges,
            ),
        )

    # --- what happens ---

    def script(self) -> Script:
        """The whole."""
        random = self.random
        tiny = random.chance(0.3)
        steps = self._beginning()
        at_s = SETTLING_S
        for _ in range(self.count):
            if random.chance(0.03):
                steps += self._stream(at_s)
            elif self.kinds and random.chance(0.35):
                if random.chance(0.4):  # something is on its way when it breaks
                    steps.append(self._publication(at_s))
                    at_s = round(at_s + random.uniform() * 0.05, 3)
                steps += self._fault(at_s)
                if steps[-1].what in UPKEEP and random.chance(0.6):
                    steps += self._stream(round(at_s + 2 * random.uniform(), 3))
                if steps[-1].what in HEAL and random.chance(0.25):
                    steps += self._as_it_heals(steps[-1])
            else:
                steps.append(self._deed(at_s))
            at_s = round(at_s + random.uniform() * 0.8, 3)
        return Script(
            self.seed,
            self.routing.name,
            self.shape.brokers,
            self.shape.edges,
            tuple(sorted(steps, key=lambda each: each.at_s)),
            sync_s=random.choice([0.0005, 0.005, 0.05, 0.3]),
            window_bytes=6_000 if tiny else 1 << 20,
            queue_bytes=12_000 if tiny else 1 << 20,
            grants=random.chance(0.2) and not self.crew,  # nobody may publish jobs
            gate=self.gate,
            multicast=self.casts,
            discovery=self.discovery,
            memory_bytes=self._memory_bytes(tiny=tiny),
        )

    def _memory_bytes(self, *, tiny: bool) -> int:
        """What waits for all receivers. Where clients are hostile it is more than some of them may
        have been sent and not have seen (`UNACKED_BYTES` each): events of others give way to that.
        """
        least = self.random.choice((8_000, 20_000, 60_000, 1 << 30)) if tiny else 1 << 30
        return 1 << 30 if self.harms else least

    def _beginning(self) -> list[Step]:
        random = self.random
        names = [*self.listeners, *self.publishers]
        places = [random.choice(self.shape.brokers) for _ in names]
        if self.casts:  # listeners are apart, so that events are for several brokers
            apart = random.sample(self.shape.brokers, min(len(places), len(self.shape.brokers)))
            places[: len(apart)] = apart
        if self.team and not self.casts:  # an identity is known where its clients are together
            together = random.choice(self.shape.brokers)
            places = [
                together if name in self.team and random.chance(0.7) else place
                for name, place in zip(names, places, strict=True)
            ]
        self.places = dict(zip(names, places, strict=True))
        steps = [
            Step(0.0, "join", (name, place, *([TEAM] if name in self.team else [])))
            for name, place in zip(names, places, strict=True)
        ]
        if self.routing.takes_advertisements:
            steps += [Step(0.2, "offer", (name, OFFER)) for name in names]
        for name in self.listeners:
            steps += [self._hear(round(0.5 + random.uniform(), 3), name) for _ in range(3)]
        if self.assembles:
            steps += [
                Step(0.5, "seek", (name, "pair", self._pattern()))
                for name in self.listeners
                if random.chance(0.6)
            ]
        if self.crew:
            words = (self.crew[0], random.choice(self.shape.brokers), random.chance(0.5))
            steps.append(Step(0.3, "crew", words))
            steps += [Step(0.4, "hire", (name,)) for name in self.crew[1:]]
        if self.casts:  # groups are for events that several brokers want
            steps += [
                Step(0.5, "hear", (name, "wide", f"x >= {random.below(2)}", {}, False))
                for name in self.listeners
            ]
            steps.append(self._plan(SETTLING_S / 2))
        return steps

    def _hear(self, at_s: float, client: str) -> Step:
        self.named += 1
        durable = self.random.chance(0.6)
        name = f"{'durable' if durable else 'live'}{self.named}"
        if self.random.chance(0.3):
            values = {"least": self.random.below(5)}
            return Step(at_s, "hear", (client, name, "x >= :least", values, durable))
        return Step(at_s, "hear", (client, name, self._text(), {}, durable))

    def _pattern(self) -> str:
        random = self.random
        return random.choice(
            (
                f"kind = {random.below(3)} THEN x >= {random.below(4)} WITHIN 4s",
                f"x < {random.between(1, 4)} THEN s = 'a'",
                "kind = 0 THEN kind = 1 THEN EXISTS s WITHIN 3s",
                f"s = 'b' THEN kind < 2 AND x = {random.below(4)}",
            )
        )

    def _text(self) -> str:
        random = self.random
        if random.chance(0.1):  # its client assembles it
            return self._pattern()
        return random.choice(
            (
                f"kind = {random.below(3)} AND x >= {random.below(4)}",
                f"kind = {random.below(3)}",
                f"x < {random.below(6)} OR s = 'a'",
                f"kind IN (0, {random.between(1, 2)}) AND s >= 'b'",
                f"NOT kind = {random.below(3)} AND EXISTS s",
                f"x BETWEEN {random.below(3)} AND {random.between(3, 5)}",
            )
        )

    def _event(self) -> dict[str, Any]:
        random = self.random
        event: dict[str, Any] = {"kind": random.below(3), "x": random.below(6)}
        if random.chance(0.5):
            event["s"] = random.choice(("a", "b", "ab"))
        return event

    def _plan(self, at_s: float) -> Step:
        """Some groups of most brokers, or of none."""
        random = self.random
        brokers = self.shape.brokers
        members = random.sample(brokers, random.between(max(1, len(brokers) - 2), len(brokers)))
        if random.chance(0.1):
            groups = []
        else:
            groups = [random.sample(members, random.between(1, len(members))) for _ in range(3)]
            groups.append(members)  # so there is one for whoever wants an event
        words = (random.choice(self.publishers), tuple(members), tuple(map(tuple, groups)))
        return Step(at_s, "apply", words)

    def _deed(self, at_s: float) -> Step:
        random = self.random
        if self.casts and random.chance(0.1):
            return self._plan(at_s)
        listener = random.choice(self.listeners)
        name = f"{random.choice(('durable', 'live'))}{random.between(1, max(1, self.named))}"
        if self.harms and random.chance(0.15):
            name = f"{HOSTILE}{random.below(2)}"
            broker = random.choice(self.shape.brokers)
            return Step(at_s, "harm", (name, broker, random.choice(self.harms)))
        if self.team and random.chance(0.08):
            return self._as_a_team(at_s)
        if self.crew and random.chance(0.3):
            return self._work(at_s)
        if self.assembles and random.chance(0.05):
            return Step(at_s, "seek", (listener, f"pair{random.below(3)}", self._pattern()))
        match random.below(12):
            case 0:
                return Step(at_s, "change", (listener, name, self._text()))
            case 1:
                return Step(at_s, "tune", (listener, name, random.below(6)))
            case 2:
                return Step(at_s, "end", (listener, name))
            case 3:
                return self._hear(at_s, listener)
            case 4 if self.moves:
                who = random.choice([*self.listeners, *self.publishers])
                verb = random.choice(("move", "move over"))
                return Step(at_s, verb, (who, random.choice(self.shape.brokers)))
            case _:
                return self._publication(at_s)

    def _work(self, at_s: float) -> Step:
        """Jobs, and what workers do beside them."""
        random = self.random
        who, seconds = random.choice(self.crew), round(random.uniform() * 4, 3)
        match random.below(6):
            case 0:
                return Step(at_s, "fire", (who, seconds, random.chance(0.5)))
            case 1:
                return Step(at_s, "late", (who, seconds / 4))
            case _:
                words = (random.choice(self.publishers), random.between(1, 20), 3)
                return Step(at_s, "jobs", words)

    def _as_a_team(self, at_s: float) -> Step:
        """What a client may do for all of its identity."""
        random = self.random
        who = random.choice(self.team)
        if not self.routing.takes_advertisements or random.chance(0.5):
            return Step(at_s, "cancel", (who, random.choice(CANCELS)))
        if random.chance(0.6):
            return Step(at_s, "offer", (who, OFFER))
        return Step(at_s, "withdraw", (who, OFFER))

    def _publication(self, at_s: float) -> Step:
        random = self.random
        most = 30 if self.casts and random.chance(0.3) else 6
        events = [self._event() for _ in range(random.between(1, most))]
        words = (random.choice(self.publishers), random.chance(0.6), *events)
        return Step(at_s, "publish", words)

    def _stream(self, at_s: float, who: str = "", *, durable: bool = False) -> list[Step]:
        """Events that follow one another closely, so that whatever happens meets some of them."""
        random = self.random
        if not who:
            who, durable = random.choice(self.publishers), random.chance(0.4)
        times = [round(at_s + STREAM_GAP_S * number, 3) for number in range(STREAM)]
        return [Step(each, "publish", (who, durable, self._event())) for each in times]

    def _as_it_heals(self, fault: Step) -> list[Step]:
        """Somebody asks for something, and somebody publishes, as a fault comes to its end and the
        network finds its ways again.
        """
        at_s = round(fault.at_s + float(fault.words[-1]), 3)
        wish_at_s = round(at_s + self.random.uniform() * 0.5, 3)
        return [self._hear(wish_at_s, self.random.choice(self.listeners)), *self._stream(at_s)]

    # --- what breaks ---

    def _fault(self, at_s: float) -> list[Step]:
        """A fault, at last, and before it perhaps what shows whether it does harm."""
        random = self.random
        kind = random.choice(self.kinds)
        fault = Step(at_s, kind, self._words(kind))
        if kind in STOPS and random.chance(0.4):
            return self._while_one_is_away(fault)
        if kind in APART and self.moves and random.chance(0.6):
            return self._while_one_moves(fault)
        if kind == "spotty":
            return self._while_much_is_written(fault)
        return [fault]

    def _while_one_is_away(self, stop: Step) -> list[Step]:
        """A client leaves amid durable events for it, and its broker stops before it is back."""
        random = self.random
        listener, who = random.choice(self.listeners), random.choice(self.publishers)
        at_s = stop.at_s + STREAM_GAP_S * STREAM + 0.5
        away_s = round(stop.at_s + random.uniform() * STREAM_GAP_S * STREAM, 3)
        return [
            *self._stream(stop.at_s, who, durable=True),
            Step(away_s, "away", (listener, round(at_s - away_s + 1.0, 3))),
            Step(round(at_s, 3), stop.what, (self.places[listener], *stop.words[1:])),
        ]

    def _while_one_moves(self, fault: Step) -> list[Step]:
        """A client changes what it hears durably, and moves before its brokers hear of each other,
        one of which is ahead of time.
        """
        random = self.random
        listener = random.choice(self.listeners)
        at_s, seconds = fault.at_s, random.uniform()
        number = random.between(1, max(1, self.named))
        steps = [
            Step(round(at_s + 0.1, 3), "change", (listener, f"durable{number}", self._text())),
            Step(round(at_s + 0.2 + seconds, 3), "move", (listener, self._place())),
            fault,
        ]
        if "clock" in self.kinds:
            clock = (self.places[listener], random.choice((2.0, 600.0)))
            steps.insert(0, Step(at_s, "clock", clock))
        return steps

    def _while_much_is_written(self, fault: Step) -> list[Step]:
        """A client moves to a broker or away from it, or changes what it hears, amid durable events
        of which its disk refuses some; and perhaps it stops before it has said that again.
        """
        random = self.random
        broker, at_s = fault.words[0], fault.at_s
        listener, soon_s = random.choice(self.listeners), round(at_s + random.uniform() * 0.4, 3)
        name = f"durable{random.between(1, max(1, self.named))}"
        steps = [fault, *self._stream(at_s, random.choice(self.publishers), durable=True)]
        if self.moves and random.chance(0.6):
            verb = random.choice(("move", "move over"))
            to = random.choice((broker, self._place()))
            steps.append(Step(soon_s, verb, (listener, to)))
        else:
            deed = random.choice(("change", "end", "hear"))
            words = {"change": (listener, name, self._text()), "end": (listener, name)}
            hear = self._hear(soon_s, listener)
            steps.append(hear if deed == "hear" else Step(soon_s, deed, words[deed]))
        if random.chance(0.5):
            stop_s = round(at_s + 3 * random.uniform() ** 3, 3)
            steps.append(Step(stop_s, "crash", (broker, round(random.uniform() * 3, 3))))
        return steps

    def _place(self) -> str:
        return self.random.choice(self.shape.brokers)

    def _words(self, kind: str) -> tuple[Any, ...]:
        random, edges = self.random, self.shape.edges
        seconds = round(random.uniform() ** 2 * LONGEST_S, 3)
        broker = random.choice(self.shape.brokers)
        client = random.choice([*self.listeners, *self.publishers])
        link = random.choice(edges) if edges else (client, broker)
        link = (link[1], link[0]) if random.chance(0.5) else link
        part = tuple(random.sample(self.shape.brokers, max(1, len(self.shape.brokers) // 2)))
        to_client = (client, broker) if random.chance(0.3) else link
        words: dict[str, tuple[Any, ...]] = {
            "delay": (*link, round(random.uniform() * 0.5, 3), seconds),
            "clog": (*to_client, seconds),
            "reset": to_client,
            "damage": to_client if random.chance(0.5) else to_client[::-1],
            "half-open": to_client,
            "cut": (*to_client, seconds),
            "partition": (part, seconds),
            "silence": (part, seconds),
            "one way": (part, seconds),
            "swizzle": (broker, tuple(round(random.uniform() * 5, 3) for _ in edges)),
            "flip": (broker, random.below(100)),
            "spotty": (broker, tuple(random.chance(0.5) for _ in range(8)), seconds),
            "clock": (broker, random.choice((-3600.0, -5.0, -0.1, 0.0, 2.0, 600.0, 90_000.0))),
            "lossy": (*(round(random.uniform() * most, 2) for most in (0.6, 0.3, 0.5)), seconds),
            "deaf": (broker, seconds),
            "unheard": (broker, random.choice(self.shape.brokers), seconds),
            "stall": (client, seconds),
            "away": (client, seconds),
            "unreadable": (client, f"poison{random.below(2)}", 2 * seconds),
            "unread claim": (client, f"claim{int(random.chance(0.5))}", 2 * seconds),
            "drain": (broker, random.choice(AFTERWARDS), seconds + 2.0),
            "part": (*link, seconds),
            "link": (broker, random.choice(self.shape.brokers), seconds),
        }
        return words.get(kind, (broker, seconds))
