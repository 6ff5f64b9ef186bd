"""A broker that is somebody else's by now: random messages, and what must not come of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from palio.errors import PalioError, SubscriptionEnded
from palio.language.parsing import parse_advertisement, parse_filter
from palio.model.events import rows
from palio.node.identity import Identity, fact_text, handshake_text
from palio.node.settings import Settings
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import (
    NO_SESSION_EPOCH,
    UNCOUNTED,
    Addressed,
    Adopt,
    Advertise,
    Carry,
    Challenge,
    ClaimNumbers,
    Digest,
    Done,
    EntriesStored,
    Fact,
    Facts,
    FlowAcks,
    FlowStatus,
    Forward,
    Hello,
    Message,
    Ping,
    Pong,
    Probe,
    Probed,
    Route,
    Seek,
    SessionEpoch,
    Share,
    Sought,
    Welcome,
)
from palio.protocol.streams import Stream
from palio.routing import messages as routing
from palio.routing.algorithms import find_algorithm
from palio.routing.general import General
from palio.routing.patterns.messages import SubscribePattern
from palio.simulation.member import Member
from palio.simulation.pipes import End
from palio.simulation.topologies import line
from palio.simulation.world import EPOCH_US, World
from tests.conftest import seeds
from tests.node.events import parcel
from tests.node.signing import Keyring

QUICK = Settings(heartbeat_s=1.0, client_grace_s=4.0, peer_grace_s=2.0)
MAY_HEAR, MAY_PUBLISH, SECRET = "kind = 'public'", "kind = 'noise'", "kind = 'secret'"
BROKERS = ("b1", "b2", "b3")


class Mallory:
    """Speaks to b2 as a broker, with whatever token there is, and remembers what it is told."""

    def __init__(self, world: World, identity: Identity, *, routes: bool = True) -> None:
        self.world = world
        self._routes = routes
        """Whether it takes part in live routing: what it says of that may cost it its link."""
        self.end: End | None = None
        self.identity = identity
        self.is_neighbour = False
        self.told: list[Message] = []
        self.stream = Stream()
        self.version = EPOCH_US
        world.clients["mallory"] = self

    def connect(self) -> None:
        if self.end is None:
            self.end = self.world.open_client("mallory", "b2")
            self.stream, self.is_neighbour = Stream(), False
            self.say(self._hello())

    def lost(self, end: End) -> None:  # noqa: ARG002  # it has but one
        self.end = None

    def illegal(self, end: End, error: PalioError) -> None:  # noqa: ARG002  # it reads all it can
        end.pipe.break_off()

    def say(self, message: Message) -> None:
        if self.end is not None:
            self.end.send(message)

    def _hello(self) -> Hello:
        return Hello("broker", "mallory", PROTOCOL_VERSION, self.identity.token, nonce="n")

    def receive(self, end: End, message: Message) -> None:
        if end is not self.end:
            return
        self.told.append(message)
        if type(message) not in UNCOUNTED:
            self.stream.arrive(message)
            ack = self.stream.ack()
            if ack is not None:
                self.say(ack)
        if isinstance(message, Ping):
            self.say(Pong())
        elif isinstance(message, Challenge):
            text = handshake_text("mallory", "mallory", "b2", "n", message.nonce)
            self.say(msgspec.structs.replace(self._hello(), proof=self.identity.sign(text)))
        elif isinstance(message, Welcome):
            self.is_neighbour = True
            wanted = routing.Subscribe(1, parse_filter("EXISTS kind"))
            self.say(Digest({}))
            if self._routes:
                self.say(Route(routing.LinkState("mallory", 1, ("b2",))))
                self.say(Route(routing.Join()))
                self.say(Route(routing.Batch((wanted,), fresh=True)))
            self._introduce()

    def _introduce(self) -> None:
        """As an honest broker would, so that facts of its own are believed."""
        token = Fact("mallory", self.version + 1, "/token", (self.identity.token,))
        links = Fact("mallory", self.version + 2, "links", ("b2", "b1", "b3"))
        self.version += 2
        self.say(Facts((self.signed(token), self.signed(links))))

    def signed(self, fact: Fact) -> Fact:
        return msgspec.structs.replace(fact, signature=self.identity.sign(fact_text(fact)))

    def claim(self, filter: str, claimed_us: int, session_epoch: SessionEpoch) -> None:
        """Say that bob's subscription is its own, or that it is over."""
        self.version += 1
        numbers = ClaimNumbers(self.version, 0, 1)
        claim = Fact(
            "mallory", self.version, "bob/d", (), filter, claimed_us, session_epoch, numbers
        )
        self.say(Facts((self.signed(claim),)))

    @property
    def facts(self) -> list[Fact]:
        """What it has heard of others."""
        return [
            fact for message in self.told if isinstance(message, Facts) for fact in message.facts
        ]

    def events(self) -> list[dict[str, Any]]:
        """What it was sent."""
        return [
            dict(row)
            for message in self.told
            if isinstance(message, Forward | Carry)
            for row in rows(message.parcel.batch)
        ]

    # --- what it says ---

    def act(self) -> None:
        random = self.world.random
        kinds = (
            self._fact,
            self._fact,
            self._claim,
            self._answer,
            self._events,
            self._probe,
            self._route,
        )
        self.say(random.choice(kinds)())

    def _fact(self) -> Message:
        random = self.world.random
        if self.facts and random.chance(0.4):  # a genuine one, altered
            fact = random.choice(self.facts)
            changes: list[dict[str, Any]] = [
                {"version": fact.version + random.choice((1, 1_000, 10**9, 10**15))},
                {"filter": ""},
                {"links": ("mallory",)},
                {"origin": "mallory"},
                {"subject": "bob/d"},
                {"claimed_us": fact.claimed_us + 10**9},
                {"session_epoch": SessionEpoch("bob/1", 10**9)},
            ]
            return Facts((msgspec.structs.replace(fact, **random.choice(changes)),))
        origin = random.choice((*BROKERS, "b9", "mallory"))
        version = random.choice((1, EPOCH_US, EPOCH_US + 10**9, EPOCH_US + 10**14, 1 << 62))
        subject = random.choice(("links", "bob/d", "/token", "/removed/b3"))
        if origin == "mallory":
            self.version += 1
            version, subject = self.version, random.choice(("links", "bob/d", "eve/d"))
        links = random.choice(((), ("mallory", "b2"), (self.identity.token,)))
        filter = random.choice(("", "kind = 'secret'", "EXISTS kind"))
        if subject == "bob/d":
            links, filter = random.choice(((), ("mallory",))), random.choice(("", MAY_HEAR, SECRET))
        claim = random.choice((0, EPOCH_US + 10**9))
        session_epoch = random.choice(
            (NO_SESSION_EPOCH, SessionEpoch("bob/1", 10**9), SessionEpoch("eve/1", 1))
        )
        numbers = ClaimNumbers(random.choice((0, 1, 2, 10**9)), 0, random.choice((0, 1, 10**9)))
        fact = Fact(origin, version, subject, links, filter, claim, session_epoch, numbers)
        return Facts((self.signed(fact),))

    def _claim(self) -> Message:
        """A durable subscription of its own, to more than it may receive."""
        self.version += 1
        return Facts((self.signed(Fact("mallory", self.version, "eve/d", (), "EXISTS kind", 5)),))

    def _answer(self) -> Message:
        random = self.world.random
        origin = random.choice((*BROKERS, "b9"))
        answers: tuple[Message, ...] = (
            Route(routing.Settled(random.below(5), ("b9", f"b9/{origin}"))),
            EntriesStored(origin, random.below(3), "b1", EPOCH_US, random.below(9)),
            Adopt("bob/d", 1_000.0, SessionEpoch("bob/1", 10**9)),
            Probed(random.below(5), ({"broker": "b1"},)),
            Seek(random.below(5), parse_filter("kind = 'secret'")),
            FlowStatus(origin, random.below(3), "b1", random.below(3), 1, 5, 3, is_cast=True),
            FlowAcks(
                origin, random.below(3), "b1", random.below(3), 1, 0, ((1, random.below(99)),)
            ),
            Sought(random.below(5), has_source=random.chance(0.5)),
        )
        return random.choice(answers)

    def _events(self) -> Message:
        random = self.world.random
        kind = random.choice(("secret", "noise", "public"))
        sent = parcel({"kind": kind, "x": -1}, publisher=random.choice(("ann/1", "mallory/1")))
        homes = tuple(random.sample((*BROKERS, "b9", "mallory"), random.between(1, 3)))
        to = tuple((home, random.below(3)) for home in homes)
        shares = (Share("bob/d", random.below(3), None),)
        events: tuple[Message, ...] = (
            Forward(sent),
            Forward(sent, source=homes[0], addressed=Addressed(to, random.below(3))),
            Carry(sent, homes[0], EPOCH_US, homes[-1], EPOCH_US, random.below(9), 0, shares),
        )
        return random.choice(events)

    def _probe(self) -> Message:
        random = self.world.random
        bad = random.chance(0.1)
        path = ("x",) * 200 if bad else ("mallory",)
        publisher = random.choice((f"$probe/{path[0]}/1", "ann/1"))
        return Probe(1, parcel({"kind": "secret", "x": 1}, publisher=publisher), path)

    def _route(self) -> Message:
        random = self.world.random
        version = random.choice((1, 1 << 40, (1 << 64) - 1))
        return Route(routing.LinkState(random.choice(("b8", "b9")), version, ("mallory",)))


class _Shown:
    """A token whose key somebody does not have."""

    def __init__(self, token: str) -> None:
        self.token = token

    def sign(self, data: bytes) -> bytes:
        return bytes(64) if data else b""


def town(seed: int, ring: Keyring) -> tuple[World, Member, Member]:
    """Three brokers in a line; bob's durable subscription at the far end, and ann."""
    world = World.of(line(3), General, seed=seed, settings=QUICK, access=ring.access)
    bob, ann = world.client("bob", "b3"), world.client("ann", "b1")
    bob.subscribe("kind = 'secret'", durable="d")
    bob.subscribe("kind = 'noise'")
    id = bob.settle()
    world.run(3.0)
    assert bob.answers[id] == Done(id)
    return world, bob, ann


def unsound_facts(world: World) -> list[Fact]:
    """Facts that some broker has of another, which has not said so."""
    return [
        fact
        for node in world.nodes.values()
        for fact in node._core.durability.cluster_state.facts()
        if fact.origin != "mallory" and not has_said(world, fact)
    ]


def has_said(world: World, fact: Fact) -> bool:
    """Whether its origin has said this, or something newer of the same subject."""
    origin = world.nodes.get(fact.origin)
    if origin is None:
        return False
    own = origin._core.durability.cluster_state.fact(fact.origin, fact.subject)
    return own == fact or (own is not None and own.version > fact.version)


@pytest.mark.parametrize("seed", seeds(2, nightly=60))
@pytest.mark.parametrize("standing", ["none", "client", "stolen", "broker"])
def test_whatever_it_says_it_gets_and_brings_no_more_than_its_grant(
    seed: int, standing: str, tmp_path: Path
) -> None:
    ring = Keyring(tmp_path)
    world, bob, ann = town(seed, ring)
    shown = {"none": "", "client": ring.free("mallory"), "stolen": ring.identity("b3").token}
    granted: Identity = ring.broker("mallory", allow_publish=MAY_PUBLISH, allow_subscribe=MAY_HEAR)
    mallory = Mallory(world, granted if standing == "broker" else _Shown(shown[standing]))
    for step in range(40):
        mallory.connect()
        for _ in range(3 if mallory.is_neighbour or standing != "broker" else 0):
            mallory.act()
        if step % 4 == 0:
            ann.publish({"kind": "secret", "x": step}, durable=True)
            ann.publish({"kind": "public", "x": step}, durable=world.random.chance(0.5))
        world.run(0.1 + world.random.uniform() * 0.3)
        assert unsound_facts(world) == []
    world.run(40.0)
    was_let_in = any(each.details.get("peer") == "mallory" for _, each in world.reports)
    assert was_let_in is (standing == "broker")
    assert bool(mallory.facts) is was_let_in
    assert all(event["kind"] == "public" for event in mallory.events())
    assert "bob/d" in world.nodes["b3"]._core.durability.here
    heard = [(row["kind"], row["x"]) for _, _, row in bob.heard]
    assert [x for kind, x in heard if kind == "secret"] == list(range(0, 40, 4))
    assert {kind for kind, x in heard if x == -1} <= {"noise"}
    assert not [each for _, each in world.reports if each.event == "entry_lost"]


# --- what it says of a durable subscription of somebody else ---


def secrets(member: Member) -> list[int]:
    return [row["x"] for _, _, row in member.heard if row["kind"] == "secret"]


def acted(mallory: Mallory, session_epoch: SessionEpoch, how: str) -> None:
    """Mallory, whose grant is narrow, says that bob's subscription is its own, or over."""
    filter, world = {"wide": "EXISTS kind", "ended": ""}.get(how, MAY_HEAR), mallory.world
    ahead = 10**9
    for visited in (
        session_epoch,
        SessionEpoch(session_epoch.publisher, session_epoch.number + 5),
        SessionEpoch("eve/1", 1),
    ):
        ahead += 10**6
        mallory.claim(filter, EPOCH_US + ahead, visited)
        world.run(0.5)
        if how == "handed on":
            mallory.say(Adopt("bob/d", 1_000.0, visited))
            world.run(0.5)


@pytest.mark.parametrize("how", ["wide", "narrow", "ended", "handed on"])
@pytest.mark.parametrize("is_there", [True, False], ids=["there", "away"])
def test_by_a_claim_beyond_its_grant_it_takes_nothing_from_anybody(
    is_there: bool, how: str, tmp_path: Path
) -> None:
    ring = Keyring(tmp_path)
    world, bob, ann = town(1, ring)
    identity = ring.broker("mallory", allow_publish="FALSE", allow_subscribe=MAY_HEAR)
    mallory = Mallory(world, identity, routes=False)
    mallory.connect()
    world.run(2.0)
    (home,) = world.nodes["b3"]._core.durability.cluster_state.facts_about("bob/d")
    if not is_there:
        bob.suspend()
        world.run(6.0)
    ann.publish(*({"kind": "secret", "x": x} for x in range(5)), durable=True)
    world.run(1.0)
    acted(mallory, home.session_epoch, how)
    ann.publish(*({"kind": "secret", "x": x} for x in range(5, 10)), durable=True)
    world.run(10.0)
    if not is_there:
        bob.resume("b3")
        world.run(5.0)
    assert ann.accepted_durable == 10
    assert secrets(bob) == list(range(10))
    assert mallory.end is not None
    mallory.end.pipe.break_off()
    bob.move("b1")
    world.run(5.0)
    ann.publish({"kind": "secret", "x": 10}, durable=True)
    world.run(10.0)
    assert secrets(bob) == list(range(11)), "it moves as ever"
    assert not any(node.status()["custody_entries"] for node in world.nodes.values())
    assert mallory.events() == []


@pytest.mark.parametrize("where", ["at its broker", "at another"])
def test_an_owner_that_is_there_is_told_that_its_subscription_is_heard_elsewhere(
    where: str, tmp_path: Path
) -> None:
    """A broker that may receive all of it may take it over, as it may where its owner has gone."""
    ring = Keyring(tmp_path)
    world, bob, ann = town(1, ring)
    if where == "at another":
        mallory = Mallory(world, ring.broker("mallory"), routes=False)
        mallory.connect()
        world.run(2.0)
        (home,) = world.nodes["b3"]._core.durability.cluster_state.facts_about("bob/d")
        session_epoch = SessionEpoch(
            home.session_epoch.publisher, home.session_epoch.number + 1
        )  # as if bob had gone there
        mallory.claim("EXISTS kind", EPOCH_US + 10**9, session_epoch)
    else:
        bob.subscribe("kind = 'secret'", durable="d")
    world.run(3.0)
    (ended,) = (each for each in bob.errors if isinstance(each, SubscriptionEnded))
    assert "bob/d was taken over by another session" in str(ended)
    bob.subscribe("kind = 'secret'", durable="d")
    world.run(3.0)
    ann.publish({"kind": "secret", "x": 1}, durable=True)
    world.run(5.0)
    assert secrets(bob) == [1], "it is back"


# --- what it offers ---


OFFERS = {
    "everything": ("EXISTS kind AND EXISTS x", True, True),
    "in two": ("kind = 'noise' AND EXISTS x OR kind = 'secret' AND EXISTS x", True, True),
    "of others": ("kind = 'secret' AND EXISTS x", True, False),
    "its own": ("kind = 'noise' AND EXISTS x", False, True),
}
"""By what it is, whether it goes beyond the grant, and whether something of it is within."""


@pytest.mark.parametrize("offer", OFFERS)
def test_what_it_offers_beyond_its_grant_draws_nothing_to_it(offer: str, tmp_path: Path) -> None:
    """A sequence would be its to assemble, and it would not say that it does no longer."""
    text, is_beyond, is_within = OFFERS[offer]
    ring = Keyring(tmp_path)
    settings = msgspec.structs.replace(QUICK, routing="advertised")
    world = World.of(
        line(3), find_algorithm("advertised").new_assembling, settings=settings, access=ring.access
    )
    world.run(2.0)
    grants = {"allow_publish": MAY_PUBLISH, "allow_subscribe": MAY_HEAR}
    mallory = Mallory(world, ring.broker("mallory", **grants), routes=False)
    mallory.connect()
    world.run(1.0)
    advertised = routing.Advertise(1, parse_advertisement(text))
    mallory.say(Route(routing.Batch((advertised,), fresh=True)))
    world.run(1.0)
    bob = world.client("bob", "b3")
    bob.subscribe(f"{SECRET} AND x = 1 THEN {SECRET} AND x = 2", assembled=True)
    bob.subscribe(SECRET)
    bob.subscribe("kind = 'noise' AND x > 7")
    world.run(2.0)
    ann = world.client("ann", "b1")
    ann.ask(lambda id: Advertise(id, 1, "EXISTS kind AND EXISTS x"))
    world.run(2.0)
    ann.publish({"kind": "secret", "x": 1}, {"kind": "secret", "x": 2})
    world.run(5.0)
    assert [len(each.parts) for each in bob.assembled] == [2]
    assert secrets(bob) == [1, 2]
    said = [each.control for each in mallory.told if isinstance(each, Route)]
    assert not any(isinstance(each, SubscribePattern) for each in said)
    wanted = [
        each.filter
        for control in said
        if isinstance(control, routing.Batch)
        for each in control.requests
        if isinstance(each, routing.Subscribe)
    ]
    assert wanted == [parse_filter("kind = 'noise' AND x > 7")] * is_within
    mallory.say(Forward(parcel({"kind": "noise", "x": 8})))
    world.run(1.0)
    assert [row["x"] for _, _, row in bob.heard if row["kind"] == "noise"] == [8]
    told = [name for name, each in world.reports if each.event == "grant_exceeded"]
    assert told == ["b2"] * is_beyond
    mallory.say(Route(routing.Batch((routing.Unadvertise(1),))))
    world.run(1.0)
    assert mallory.end is not None
