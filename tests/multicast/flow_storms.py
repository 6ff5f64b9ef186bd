"""Storms over flows alone: brokers that send to each other by datagrams and by links that fail.

A flow is known by the lives of its two ends. Whatever happens, what comes out of one is in order
and nothing twice; and once all is calm, all has come that was sent to a receiver in the
incarnation that its sender knew, but for what its receiver was told is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from math import inf
from types import ModuleType
from typing import Final, ParamSpec, TypeAlias
from unittest.mock import patch

import pyarrow as pa

from palio.model.parcels import Parcel
from palio.model.shapes import Shape
from palio.multicast import flow_paths, inflows, outflows
from palio.multicast.broker_sets import numbered, rows_of
from palio.multicast.datagrams import Datagram
from palio.multicast.epochs import Epoch
from palio.multicast.inflows import FlowAck, Inflows
from palio.multicast.listed import ListedGroups
from palio.multicast.outflow import ByLinks, FlowState
from palio.multicast.outflows import Outflows
from palio.simulation.agenda import FAULT, MESSAGE, TIMER, US, Agenda, to_us_rounded_up
from palio.simulation.medium import Medium, Weather
from palio.simulation.randomness import Randomness

CALM_S: Final = 30.0
"""In so long after the last fault everything comes, and silence falls."""

ONE_BYTES: Final = 4_000
"""More than an event takes."""

LITTLE: Final[dict[ModuleType, dict[str, int]]] = {
    outflows: {
        "FIRST_WINDOW": 8,
        "LEAST_WINDOW": 2,
        "MAX_WAITING_BYTES": 30_000,
        "MAX_HISTORY_BYTES": 60_000,
        "MAX_LOST": 20,
        "MAX_TOGETHER": 5,
        "MAX_REPAIRED": 5,
    },
    flow_paths: {"MAX_ROUTES": 2},
    inflows: {
        "MAX_HELD_BYTES": 10_000,
        "MAX_RANGES": 3,
        "MAX_TOGETHER": 5,
    },
}

MILD: Final = (0, 1, 11, 11, 99, 99, 99, 99)
"""Of what can happen in a step: the weather, a plan, something published."""

MOST_ACTIONS: Final = 2_000_000
FIELDS: Final[list[tuple[str, pa.DataType]]] = [("x", pa.int64()), ("text", pa.utf8())]
SHAPE: Final = Shape.of(pa.schema(FIELDS))

P = ParamSpec("P")
Action: TypeAlias = Callable[[], None]


class Party:
    """A broker, as far as flows go, in all its lives."""

    def __init__(self, storm: FlowStorm, name: str) -> None:
        self.storm = storm
        self.name = name
        self.incarnation = 0
        self.runs = False
        self.paused: list[Action] | None = None
        self.version = 0
        """Of what it states: its incarnation and the plans that it has joined."""
        self.came: dict[tuple[int, str, int], list[int]] = {}
        """By its incarnation, sender and the sender's incarnation, what came, in order."""
        self.sent: dict[tuple[int, str], list[tuple[int, int]]] = {}
        """By its incarnation and receiver, what was sent, with the incarnation of the receiver
        that it knew."""
        self.start()

    def start(self) -> None:
        self.incarnation += 1
        self.runs = True
        self.out = Outflows(self.name, self.incarnation)
        self.into = Inflows(self.name, self._arrived)
        self.epochs: dict[int, Epoch] = {}
        self.known: dict[str, tuple[int, int]] = {}
        """The version and incarnation of others, as it has learned them."""
        self.timer_at = inf
        self.port = self.storm.medium.port(self.name)
        self.port.listener = self.alive(self._heard)
        self.state()

    def alive(self, action: Callable[P, None]) -> Callable[P, None]:
        """The same, in this incarnation alone, behind what waits in a pause."""
        incarnation = self.incarnation

        def done(*args: P.args, **named: P.kwargs) -> None:
            if not self.runs or self.incarnation != incarnation:
                return
            if self.paused is not None:
                self.paused.append(partial(done, *args, **named))
                return
            action(*args, **named)
            self.speak()

        return done

    def kill(self) -> None:
        self.runs = False
        self.paused = None
        self.storm.medium.leave(self.name)

    def pause(self, seconds: float) -> None:
        self.paused = self.paused or []
        self.storm.after(seconds, self.alive_even_paused(self.go_on))

    def alive_even_paused(self, action: Action) -> Action:
        incarnation = self.incarnation
        return lambda: action() if self.incarnation == incarnation else None

    def go_on(self) -> None:
        held, self.paused = self.paused or [], None
        for action in held:
            action()

    # --- facts ---

    def state(self) -> None:
        """Others learn its incarnation and its plans, some sooner than others."""
        self.version += 1
        storm = self.storm
        for other in storm.parties.values():
            if other is not self:
                storm.tell(self, other)
                storm.tell(other, self)

    def learn(self, name: str, version: int, incarnation: int, plans: tuple[int, ...]) -> None:
        if version > self.known.get(name, (0, 0))[0]:
            self.known[name] = (version, incarnation)
            self.out.begin(name, incarnation)
            self.out.join(name, plans)

    def forget(self, name: str) -> None:
        """It takes another for gone."""
        self.known.pop(name, None)
        self.out.end(name)

    def adopt(self, epoch: Epoch) -> None:
        """It learns of a plan."""
        if epoch.id in self.epochs or any(id > epoch.id for id in self.epochs):
            return
        random, later = self.storm.random, self.storm.after
        before = [*self.epochs]
        self.epochs[epoch.id] = epoch
        self.port.tune(epoch.id, epoch.groups_of(self.name))
        self.state()
        later(5 * random.uniform(), self.alive(partial(self._use, epoch)))
        later(8 * random.uniform(), self.alive(partial(self._leave, before)))

    def _use(self, epoch: Epoch) -> None:
        if epoch.id == max(self.epochs):
            self.out.use(epoch)

    def _leave(self, plans: list[int]) -> None:
        for plan in plans:
            if self.epochs.pop(plan, None) is not None:
                self.port.tune(plan, ())
        self.state()

    # --- events ---

    def publish(self, size: int, brokers: list[str], *, is_small: bool) -> None:
        self.storm.published += 1
        x = self.storm.published
        reached = tuple(name for name in brokers if self.out.can_reach(name))
        for name in reached:
            log = self.sent.setdefault((self.incarnation, name), [])
            log.append((x, self.known[name][1]))
        name = f"{self.name}/{self.incarnation}"
        parcel = Parcel.lone(name, SHAPE, (x, "a" * size)).stamped(name, x, 0)
        self.out.send(parcel, reached, is_small=is_small, now=self.storm.now)

    def _arrived(self, parcel: Parcel, durable: bool) -> None:
        del durable
        sender, incarnation = parcel.publisher.split("/")
        assert parcel.values is not None
        self.came.setdefault((self.incarnation, sender, int(incarnation)), []).append(
            parcel.values[0]
        )

    # --- what comes and goes ---

    def _heard(self, datagram: Datagram) -> None:
        epoch = self.epochs.get(datagram.plan)
        if epoch is not None:
            place = epoch.place(self.name, datagram.group)
            self.into.datagram(datagram, place, self.storm.now)

    def told(self, what: FlowState | Repair, sender: str, incarnation: int) -> None:
        """Something came by links."""
        now = self.storm.now
        if isinstance(what, FlowState):
            if what.receiver_life == self.incarnation:
                self.into.state(
                    sender,
                    incarnation,
                    stage=what.stage,
                    number=what.number,
                    gone=what.gone,
                    now=now,
                )
        else:
            self.into.event(sender, incarnation, what.number, what.parcel, durable=False, now=now)

    def asked(self, hearing: FlowAck, receiver: str, incarnation: int) -> None:
        """A receiver says how far it has got."""
        if hearing.sender_incarnation == self.incarnation:
            self.out.receive_ack(
                receiver,
                incarnation,
                stage=hearing.stage,
                number=hearing.number,
                lacking=hearing.lacking,
                now=self.storm.now,
            )

    def tick(self, at: float) -> None:
        if at == self.timer_at:
            self.timer_at = inf
            self.out.tick(self.storm.now)
            self.into.tick(self.storm.now)

    def speak(self) -> None:
        """Send what is to be said, and see to it that `tick` is called in time."""
        storm = self.storm
        self._check_room()
        said, self.out.outgoing = self.out.outgoing, []
        for each in said:
            if isinstance(each, Datagram):
                self.port.cast(each)
            elif isinstance(each, FlowState):
                storm.link(self.name, each.receiver, "told", each, self.name, self.incarnation)
            else:
                self._by_links(each)
        self.out.moved.clear()
        heard, self.into.outgoing = self.into.outgoing, []
        for hearing in heard:
            self._answer(hearing)
        at = min(self.out.wake_at, self.into.wake_at)
        if at < self.timer_at:
            self.timer_at = at
            due = max(storm.agenda.now_us, to_us_rounded_up(at))
            storm.agenda.at(due, TIMER, self.alive(partial(self.tick, at)))

    def _check_room(self) -> None:
        """What is kept is bounded, but for the last event; tests may have set other limits."""
        flows = self.into._flows.values()
        kept = {
            vars(outflows)["MAX_HISTORY_BYTES"]: self.out._history_bytes,
            vars(outflows)["MAX_WAITING_BYTES"]: self.out._pending_bytes,
            vars(inflows)["MAX_HELD_BYTES"]: max((flow.held_bytes for flow in flows), default=0),
        }
        for most, found in kept.items():
            if found > most + ONE_BYTES:
                self.storm.fail(f"{self.name} keeps {found} bytes, more than {most}")

    def _by_links(self, said: ByLinks) -> None:
        for name, number in said.to:
            what = Repair(said.parcel, number)
            self.storm.link(self.name, name, "told", what, self.name, self.incarnation)

    def _answer(self, hearing: FlowAck) -> None:
        self.storm.link(self.name, hearing.sender, "asked", hearing, self.name, self.incarnation)


class Repair:
    """An event by links, with its number in one flow."""

    def __init__(self, parcel: Parcel, number: int) -> None:
        self.parcel = parcel
        self.number = number


@contextmanager
def little_room() -> Iterator[None]:
    """Limits that storms come up against all the time."""
    with ExitStack() as stack:
        for module, limits in LITTLE.items():
            for name, limit in limits.items():
                stack.enter_context(patch.object(module, name, limit))
        yield


class FlowStorm:
    """One random incarnation of some brokers."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random = Randomness(seed)
        self.agenda = Agenda()
        self.agenda.limit = MOST_ACTIONS
        self.medium = Medium(self.agenda, random.branch(), latency_s=0.002)
        self.names = [f"b{number}" for number in range(1, random.between(2, 6) + 1)]
        self.is_mild = random.chance(0.3)
        """Whether only the weather and plans change."""
        self.plans = 0
        self.published = 0
        self.latency_us: dict[tuple[str, str], int] = {}
        self.busy_us: dict[tuple[str, str], int] = {}
        """When the last of what is on a link arrives."""
        self.down: dict[frozenset[str], None] = {}
        self.cut: list[tuple[str, str]] = []
        self.parties: dict[str, Party] = {}
        for name in self.names:
            self.parties[name] = Party(self, name)

    @property
    def now(self) -> float:
        return self.agenda.now_us / US

    def after(self, seconds: float, action: Action) -> None:
        self.agenda.at(self.agenda.now_us + round(seconds * US), FAULT, action)

    def pass_time(self, seconds: float) -> None:
        self.agenda.run(self.agenda.now_us + round(seconds * US))

    # --- links ---

    def tell(self, one: Party, other: Party) -> None:
        """A fact reaches another, somehow and some time."""
        if one.runs and other.runs:
            plans = tuple(one.epochs)
            learn = other.alive(partial(other.learn, one.name, one.version, one.incarnation, plans))
            self.after(0.01 + self.random.uniform() ** 4 * 3, learn)

    def link(self, one: str, other: str, what: str, *args: object) -> None:
        """Something goes by links, in order; while they are down it is lost."""
        if frozenset((one, other)) in self.down:
            return
        way = (one, other)
        at_us = self.agenda.now_us + self.latency_us.get(way, 5_000)
        at_us = self.busy_us[way] = max(at_us, self.busy_us.get(way, 0))
        party = self.parties[other]
        if party.runs:
            bring = party.alive(partial(getattr(party, what), *args))

            def arrive() -> None:
                if frozenset(way) not in self.down:
                    bring()

            self.agenda.at(at_us, MESSAGE, arrive)

    # --- what happens ---

    def run(self, steps: int = 40) -> None:
        self._plan()
        self.pass_time(2.0)
        for _ in range(steps):
            self._step()
            self.pass_time(self.random.uniform() ** 3)
        self._calm()
        self._check()

    def _step(self) -> None:  # noqa: C901, PLR0912  # one case for each thing that can happen
        random, medium = self.random, self.medium
        party = self.parties[random.choice(self.names)]
        other = random.choice(self.names)
        match random.choice(MILD) if self.is_mild else random.below(22):
            case 0:
                medium.weather = Weather(
                    loss=random.uniform() ** 2 * 0.6,
                    doubled=random.uniform() * 0.3,
                    late=random.uniform() * 0.5,
                )
            case 1:
                medium.weather = Weather()
            case 2:
                medium.deafen(party.name)
                self.after(random.uniform() * 8, partial(medium.undeafen, party.name))
            case 3:
                medium.cut(party.name, other)
                self.cut.append((party.name, other))
            case 4 if self.cut:
                medium.heal(*self.cut.pop())
            case 5 | 6:
                pair = frozenset((party.name, other))
                self.down[pair] = None
                self.after(random.uniform() * 3, partial(self.down.pop, pair, None))
            case 7:
                self.latency_us[party.name, other] = round(random.uniform() ** 3 * 2 * US)
            case 8:
                if party.runs:
                    party.kill()
                    for each in self.parties.values():
                        if each is not party and random.chance(0.3):
                            self.after(
                                random.uniform(), each.alive(partial(each.forget, party.name))
                            )
            case 9 | 10:
                if not party.runs:
                    party.start()
            case 11:
                self._plan()
            case 12:
                if party.runs:
                    party.pause(random.uniform() ** 2 * 20)
            case 13 if party.name != other:
                party.alive(partial(party.forget, other))()
                party.alive(partial(self.tell, self.parties[other], party))()
            case _:
                self._publish(party)

    def _plan(self) -> None:
        random = self.random
        self.plans += 1
        brokers = random.sample(
            self.names, random.between(max(1, len(self.names) - 1), len(self.names))
        )
        groups = [
            random.sample(brokers, random.between(1, len(brokers)))
            for _ in range(random.between(1, 4))
        ]
        sets = rows_of(groups, numbered(brokers))
        epoch = Epoch(self.plans, ListedGroups("ideal", tuple(brokers), sets))
        for party in self.parties.values():
            self.after(random.uniform() ** 3 * 3, party.alive(partial(party.adopt, epoch)))
        self.epoch = epoch

    def _publish(self, party: Party) -> None:
        random = self.random
        others = [name for name in self.names if name != party.name]
        spacing = random.choice([0.0, 0.0001, 0.002, 0.05])
        at = 0.0
        for _ in range(random.choice([1, 3, 20, 300])):
            brokers = random.sample(others, random.between(1, len(others)))
            publish = partial(
                party.publish,
                round(random.uniform() ** 4 * 2_000),
                brokers,
                is_small=random.chance(0.95),
            )
            self.after(at, party.alive(publish))
            at += spacing * random.uniform()

    def _calm(self) -> None:
        """No more faults, but that one broker may stay deaf."""
        self.medium.weather = Weather()
        for pair in self.cut:
            self.medium.heal(*pair)
        deaf = self.random.choice(self.names) if self.random.chance(0.3) else ""
        for name, party in self.parties.items():
            self.medium.undeafen(name)
            if not party.runs:
                party.start()
            elif party.paused is not None:
                party.go_on()
        if deaf:
            self.after(10.0, partial(self.medium.deafen, deaf))  # after `undeafen` of before
        self.down.clear()
        self.latency_us.clear()
        for party in self.parties.values():
            party.alive(partial(party.adopt, self.epoch))()
        for party in self.parties.values():
            party.alive(party.state)()
        self.pass_time(CALM_S)
        for party in self.parties.values():
            others = [name for name in self.names if name != party.name]
            reached = [name for name in others if party.out.can_reach(name)]
            if reached != others:
                self.fail(f"{party.name} reaches only {reached}")
            for _ in range(5):
                party.alive(partial(party.publish, 10, others, is_small=True))()
        self.pass_time(CALM_S)

    # --- what must have come of it ---

    def fail(self, what: str) -> None:
        raise AssertionError(f"flow storm {self.seed}: {what}")

    def _check(self) -> None:
        for receiver in self.parties.values():
            missing = 0
            for (incarnation, name, sent_in), came in receiver.came.items():
                self._check_order(receiver, incarnation, name, sent_in, came)
            for sender in self.parties.values():
                came = receiver.came.get(
                    (receiver.incarnation, sender.name, sender.incarnation), []
                )
                sent = sender.sent.get((sender.incarnation, receiver.name), [])
                due = {x for x, incarnation in sent if incarnation == receiver.incarnation} - set(
                    came
                )
                if due and not receiver.into.lost:
                    self.fail(f"{receiver.name} never heard {sorted(due)} of {sender.name}")
                missing += len(due)
            if missing > receiver.into.lost:
                self.fail(f"{receiver.name} misses {missing}, was told {receiver.into.lost}")
        for party in self.parties.values():
            self._check_rest(party)

    def _check_order(
        self, receiver: Party, incarnation: int, sender: str, sent_in: int, came: list[int]
    ) -> None:
        where = f"{receiver.name}/{incarnation} from {sender}/{sent_in}"
        if came != sorted(set(came)):
            self.fail(f"{where}: twice or out of order: {came}")
        sent = {x for x, _ in self.parties[sender].sent.get((sent_in, receiver.name), [])}
        if not set(came) <= sent:
            self.fail(f"{where}: never sent: {sorted(set(came) - sent)}")

    def _check_rest(self, party: Party) -> None:
        """All is quiet, and nothing is kept."""
        out, into = party.out, party.into
        kept = {
            "under way": out._in_flight,
            "history": out._history_bytes,
            "waiting": len(out._pending),
            "waiting bytes": out._pending_bytes,
            "held": sum(flow.held_bytes for flow in into._flows.values()),
        }
        if any(kept.values()):
            self.fail(f"{party.name} keeps {kept}")
        if min(out.wake_at, into.wake_at) < inf:
            self.fail(f"{party.name} does not rest: {out.wake_at}, {into.wake_at}")
