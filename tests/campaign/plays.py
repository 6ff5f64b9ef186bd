"""`Play`: a script, carried out on a virtual network, up to the calm after it."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from palio.node.settings import Outside, Settings
from palio.protocol.messages import Apply, Done, Message, Pong
from palio.routing.algorithms import find_algorithm
from palio.routing.protocol import Router
from palio.simulation.agenda import FAULT, US
from palio.simulation.computers import AccessPolicy
from palio.simulation.world import World
from tests.campaign.actors import Actor
from tests.campaign.casting import packed_plan
from tests.campaign.faults import DISK_FAULTS, FAULTS, Faults
from tests.campaign.grants import access_with
from tests.campaign.hostile import HOSTILE, Hostile
from tests.campaign.scripts import Script, Step
from tests.campaign.workers import Crew, job
from tests.older import older_brokers

CONVERGES_S: Final = 60.0
"""So long after the last fault all is as if nothing had happened: clients are connected, what they
want is in force everywhere, brokers are linked, and nothing durable waits. The longest of it is a
client that comes back: it waits up to 5 s between two tries, and then for its heartbeat and its
grace."""

LOOK_S: Final = 2.0
"""How often that is looked at."""

WORK: Final = frozenset({"crew", "hire", "fire", "late", "jobs"})
"""Steps of the workers of a group."""

MOST_ACTIONS: Final = 3_000_000
"""What one play may do: a tenth of it is much."""

LAPSES_S: Final = 1.0
"""After so long all are told of what was lost before all was whole: brokers tell their clients, and
each other, with their next look round."""

SETTINGS: Final = Settings(heartbeat_s=1.0, client_grace_s=4.0, peer_grace_s=2.0)


class PublishedEvent(NamedTuple):
    """One event that an actor published."""

    at_s: float
    publisher: str
    seq: int
    row: dict[str, Any]
    durable: bool
    announced: bool
    """Whether it was known everywhere that its publisher publishes such events."""


class Play:
    """One script on one network.

    >>> steps = (Step(0.0, "join", ("alice", "b1")), Step(0.1, "publish", ("alice", False, {})))
    >>> play = Play(Script(1, "acyclic", ("b1",), (), steps))
    >>> play.run()
    >>> play.converged_s, len(play.published)
    (2.0, 1)
    """

    def __init__(self, script: Script, access: AccessPolicy | None = None) -> None:
        self.script = script
        self.actors: dict[str, Actor] = {}
        self.hostile: dict[str, Hostile] = {}
        self.crew: Crew | None = None
        self.published: list[PublishedEvent] = []
        self.seen: Counter[tuple[str, str]] = Counter()
        """How often each kind of fault happened in each phase."""
        self.converged_s: float | None = None
        """How long it took after the last fault; None while it did not happen."""
        self.began_s = 0.0
        """When the first step was due."""
        self.world = self._world(access or (access_with(script.brokers) if script.grants else None))
        is_smooth = script.routing != "source-trees"  # by that a change of ways is told as a gap
        self.faults = Faults(
            self.world, script.edges, is_meshed=script.discovery, is_smooth=is_smooth
        )

    def _world(self, access: AccessPolicy | None) -> World:
        script = self.script
        settings = replace(
            SETTINGS,
            window_bytes=script.window_bytes,
            queue_bytes=script.queue_bytes,
            memory_bytes=script.memory_bytes,
            multicast=script.multicast,
            discovery=script.discovery,
            routing=script.routing if script.gate is None else "",
        )
        world = World(script.seed, settings=settings, sync_s=script.sync_s, access=access)
        world.agenda.limit = MOST_ACTIONS
        world.spoils = _is_spoilt
        for name in script.brokers:
            self._add_broker(world, name)
        for edge in script.edges:
            world.connect(*edge)
        world.run(1.0)
        return world

    def _add_broker(self, world: World, name: str) -> None:
        script, gate = self.script, self.script.gate
        is_gate = gate is not None and name == gate.broker
        beyond = gate.beyond if gate is not None else ()
        routing = gate.routing if gate is not None and name in beyond else script.routing
        above = [one for one, below in script.edges if below == name]
        outer, parent = (
            next((each for each in above if (each in beyond) is wanted), "")
            for wanted in (True, name in beyond)
        )
        outside = None
        if gate is not None and is_gate:
            outer = outer if find_algorithm(gate.routing).has_parents else ""
            outside = Outside(gate.routing, frozenset(beyond), outer)
        is_below = bool(parent) and script.seed % 2 == 0
        if not find_algorithm(routing).has_parents:
            parent = ""
        router = partial(self._router, world, routing, outside, is_below)
        world.add_broker(name, router, parent, outside)

    @staticmethod
    def _router(
        world: World,
        routing: str,
        outside: Outside | None,
        is_below: bool,
        name: str,
    ) -> Router:
        """One that says what it says with the versions of this incarnation, by its own clock. Where
        brokers find out who is above, it `is_below` others by half of all seeds.
        """
        algorithm = find_algorithm(routing)
        if outside is not None:
            return algorithm.new_gateway(name, find_algorithm(outside.routing), outside.brokers)
        incarnation = world.wall_of(name)
        return algorithm.new_assembling(name, incarnation=incarnation, has_parent=is_below)

    # --- running ---

    def run(self) -> None:
        """Carry out all steps, let what is broken heal, and wait until the network has converged.

        It gives up after `CONVERGES_S`.
        """
        with older_brokers():
            self._run()

    def _run(self) -> None:
        world = self.world
        self.began_s = world.now
        begin_us = world.agenda.now_us
        for step in self.script.steps:
            at_us = begin_us + round(step.at_s * US)
            world.agenda.at(at_us, FAULT, partial(self._perform, step))
        world.run(self.script.until_s + 0.001)
        while self.faults.is_broken:
            world.run(max(0.001, self.faults.until_s - world.now + 0.001))
        calm_s = world.now
        while world.now - calm_s < CONVERGES_S:
            self._ask_all()
            world.run(LOOK_S)
            if self._is_converged():
                self.converged_s = round(world.now - calm_s, 3)
                world.run(LAPSES_S)
                return

    def _perform(self, step: Step) -> None:
        self._look()
        if step.what in FAULTS:
            self.seen[step.what, self.phase] += 1
            self.faults.cause(step.what, step.words)
        elif step.what == "join":
            self._join(*step.words)
        elif step.what == "harm":
            self._harm(*step.words)
        elif step.what in WORK:
            self._work(step.what, *step.words)
        elif (actor := self.actors.get(step.words[0])) is not None:
            self._do(actor, step.what, *step.words[1:])

    def _look(self) -> None:
        for actor in self.actors.values():
            actor.look()

    @property
    def phase(self) -> str:
        """What is going on, for the table of what was tried."""
        interests = [each for actor in self.actors.values() for each in actor.interests.values()]
        if any(len(each.versions) == 1 and each.settled is None for each in interests):
            return "subscribing"
        if self.faults.is_broken:
            return "broken"
        if self.world.now - self.faults.healed_s < 3.0:
            return "healing"
        if any(each.question is not None for each in interests):
            return "changing"
        if any(node.status()["custody_entries"] for node in self.world.nodes.values()):
            return "carrying"
        return "calm"

    # --- what clients do ---

    def _do(self, actor: Actor, what: str, *words: Any) -> None:
        match what, words:
            case "hear", (name, text, values, durable):
                actor.hear_of(name, text, values, durable=durable)
            case "tune", (name, least):
                actor.tune(name, least=least)
            case "publish", (durable, *events):
                self.publish(actor, tuple(events), durable=durable)
            case "apply", (members, groups):
                plan = packed_plan(members, groups)
                actor.ask(lambda id: Apply(id, plan))
            case _:
                getattr(actor, what.replace(" ", "_"))(*words)

    def _join(self, name: str, broker: str, identity: str = "") -> None:
        if name not in self.actors:
            actor = self.actors[name] = Actor(self.world, name, broker, identity)
            self.world.clients[name] = actor
            actor.connect()

    def _work(self, what: str, who: str, *words: Any) -> None:
        """What concerns the workers of a group."""
        match what, words:
            case "crew", (broker, is_ordered) if self.crew is None:
                self.crew = Crew(self.world, broker, is_ordered=is_ordered)
                self.crew.hire(who)
            case "hire", () if self.crew is not None:
                self.crew.hire(who)
            case "fire", (seconds, is_told) if self.crew is not None:
                self.crew.fire(who, seconds, is_told=is_told)
            case "late", (seconds,) if self.crew is not None:
                self.crew.delay(who, seconds)
            case "jobs", (count, customers) if who in self.actors:
                first = len(self.published)
                jobs = [
                    job(first + number, number % customers, is_poison=number % 5 == 4)
                    for number in range(count)
                ]
                self.publish(self.actors[who], tuple(jobs), durable=True)

    def _harm(self, name: str, broker: str, kind: str) -> None:
        if name not in self.hostile:
            self.hostile[name] = Hostile(self.world, name, broker)
            self.world.clients[name] = self.hostile[name]
        self.hostile[name].harm(kind)

    def publish(self, actor: Actor, events: tuple[dict[str, Any], ...], *, durable: bool) -> None:
        """Publish events, and note who is owed them."""
        last = actor.publish(*events, durable=durable)
        announced = self._is_announced(actor)
        for seq, row in enumerate(events, last - len(events) + 1):
            for each in self.actors.values():
                each.look()
                each.note_publication(len(self.published))
            event = PublishedEvent(self.world.now, f"{actor.name}/1", seq, row, durable, announced)
            self.published.append(event)

    def _is_announced(self, actor: Actor) -> bool:
        """Whether it is known everywhere that a client publishes such events. Where it advertises
        nothing itself, or one of its identity has ended that, it goes by what the others do.
        """
        others = [
            each
            for each in self.actors.values()
            if actor.identity and each.identity == actor.identity
        ]
        if actor.has_offered and not any(each.has_withdrawn for each in others):
            others = []
        return actor.is_connected and all(each.is_announced for each in (actor, *others))

    # --- convergence ---

    def _ask_all(self) -> None:
        self._asked = {name: actor.settle() for name, actor in self.actors.items()}

    def _is_converged(self) -> bool:
        self._look()
        for name, actor in self.actors.items():
            id = self._asked[name]
            if not actor.is_connected or actor.answers.get(id) != Done(id):
                return False
            if actor.unsettled:
                for each in actor.unsettled:
                    actor.ask_settled(each)
                return False
        if self.crew is not None and not self.crew.is_idle:
            return False
        is_open = self.faults.operators.under_way or self.unlinked or self.surplus
        return not (is_open or self.unanswered or self.unanswered_requests or self.waiting)

    @property
    def surplus(self) -> list[tuple[str, str]]:
        """Links that were found or added, and are there still."""
        return [
            (name, peer)
            for name, node in self.world.nodes.items()
            for peer in node.status()["peers"]
            if not {(name, peer), (peer, name)} & set(self.script.edges)
        ]

    @property
    def unlinked(self) -> list[tuple[str, str]]:
        """Brokers of which not both hold their link for whole: one of them has not found out yet
        that it broke, and what is asked meanwhile is answered without it.
        """
        up = {
            (name, peer)
            for name, node in self.world.nodes.items()
            for peer, state in node.status()["peers"].items()
            if state["up"]
        }
        return [
            (one, other)
            for one, other in self.script.edges
            if not {(one, other), (other, one)} <= up
        ]

    @property
    def unanswered(self) -> list[tuple[str, int, int]]:
        """Publications that were neither accepted nor refused: whose, the first and the last."""
        return [
            (actor.name, each.first, each.last)
            for actor in self.actors.values()
            for each in actor.publications
            if each.error is None and not each.refused
            if ("durable" if each.durable else "memory") not in each.levels
        ]

    @property
    def unanswered_requests(self) -> dict[str, list[int]]:
        """By client, the numbers of requests of which it was told nothing."""
        open_requests = {
            name: [id for id in actor.requested if id not in actor.outcomes]
            for name, actor in self.actors.items()
        }
        return {name: numbers for name, numbers in open_requests.items() if numbers}

    @property
    def waiting(self) -> dict[str, int]:
        """What durable events wait though nobody is away: by durable subscription, or by the broker
        that has them in custody or on its disk. What a hostile client hears durably waits for it:
        it acknowledges nothing.
        """
        lines: Counter[str] = Counter()
        kept: Counter[str] = Counter()
        for name, node in self.world.nodes.items():
            status = node.status()
            lines.update(status["custody_waiting"])
            kept[name] = status["custody_entries"]
            if not self.script.faults & DISK_FAULTS:
                kept[name] = max(kept[name], len(self.world.disks[name].held()))
        left = {
            f"{actor.name}/{each.name}"
            for actor in self.actors.values()
            for each in actor.ended_untold
        } | self.faults.lost_ends
        may_wait = {line for line in lines if line in left or line.startswith(HOSTILE)}
        if any(lines[line] for line in may_wait):
            kept.clear()  # what waits at its home; nothing is to be on its way there
        for name, node in self.world.nodes.items():
            for home, count in node.status()["custody_carried"].items():
                kept[f"{name} to {home}"] = count
        return {name: count for name, count in (lines + kept).items() if name not in may_wait}

    @property
    def unsettled(self) -> dict[str, str]:
        """By client, what it was answered when it asked whether all is in force."""
        return {
            name: str(actor.answers.get(self._asked[name], "no answer"))
            for name, actor in self.actors.items()
            if actor.answers.get(self._asked[name]) != Done(self._asked[name])
        }


def _is_spoilt(sender: str, message: Message) -> bool:
    """Some of what hostile clients say is no message."""
    return isinstance(message, Pong) and sender.startswith(HOSTILE)
