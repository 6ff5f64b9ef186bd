"""Who may be a broker, and how two of them show each other who they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from palio.errors import NotAuthenticated
from palio.model.filters import TRUE
from palio.node.authority import NamedAuthority, Principal
from palio.node.effects import Close, Effect, Moment, Send
from palio.node.identity import NOBODY, Identity, handshake_text
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.settings import Settings
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import Bye, Challenge, Digest, Done, Hello, Message, Welcome
from palio.routing.acyclic import Acyclic
from palio.server.tokens import TokenAuthority
from palio.simulation.topologies import line
from palio.simulation.world import EPOCH_US, World
from tests.node.events import begin
from tests.node.signing import Keyring

QUICK = Settings(heartbeat_s=1.0, client_grace_s=4.0, peer_grace_s=2.0)
AT = Moment(1.0, EPOCH_US)


@pytest.fixture
def ring(tmp_path: Path) -> Keyring:
    return Keyring(tmp_path)


def network(ring: Keyring, size: int = 2) -> World:
    return World.of(line(size), access=ring.access, settings=QUICK)


def reasons(world: World, event: str) -> list[str]:
    return [str(each.details["reason"]) for _, each in world.reports if each.event == event]


def count(world: World, event: str) -> int:
    return sum(each.event == event for _, each in world.reports)


def guarded(ring: Keyring, name: str = "north") -> Node:
    node = Node(
        name,
        Acyclic(name),
        MemoryStore(),
        authority=ring.authority(),
        identity=ring.identity(name),
    )
    begin(node, AT)
    return node


def sent(effects: list[Effect]) -> list[Message]:
    return [each.message for each in effects if isinstance(each, Send)]


def refusal(effects: list[Effect]) -> str:
    """Why a connection was closed."""
    assert any(isinstance(each, Close) for each in effects)
    (bye,) = [each for each in sent(effects) if isinstance(each, Bye)]
    assert bye.code in ("NotAuthenticated", "IllegalMessage")
    return bye.reason


def greet(node: Node, identity: Identity, **fields: Any) -> Hello:
    node.accept(1, AT)
    return Hello(
        "broker", fields.pop("name", "south"), PROTOCOL_VERSION, identity.token, nonce="n1"
    )


def proven(hello: Hello, challenge: Challenge, identity: Identity) -> Hello:
    text = handshake_text(hello.name, hello.name, "north", hello.nonce, challenge.nonce)
    return msgspec.structs.replace(hello, proof=identity.sign(text))


# --- the grant ---


@pytest.mark.parametrize("grants", [{}, {"allow_publish": "TRUE", "allow_subscribe": "TRUE"}])
def test_a_token_without_that_grant_makes_no_broker(ring: Keyring, grants: Any) -> None:
    node = guarded(ring)
    node.accept(1, AT)
    hello = Hello("broker", "south", PROTOCOL_VERSION, ring.token("south", **grants))
    assert "--broker-key south.pub" in refusal(node.receive(1, hello, AT)).replace("NAME", "south")
    assert node.status()["peers"] == {}


@pytest.mark.parametrize("has_keys", [True, False])
def test_a_certificate_makes_no_broker_at_either_end(ring: Keyring, has_keys: bool) -> None:
    """One that a client may do everything with, neither."""
    named = {"south": Principal("south", TRUE, TRUE)}
    keyed = TokenAuthority(ring.public, named=named)
    node = Node(
        "north",
        Acyclic("north"),
        MemoryStore(),
        authority=keyed if has_keys else NamedAuthority(named),
        identity=ring.identity("north") if has_keys else NOBODY,
    )
    begin(node, AT)
    bare = "south" if has_keys else "north"
    node.accept(1, AT, "south")
    answered = refusal(node.receive(1, Hello("broker", "south", PROTOCOL_VERSION), AT))
    node.dial(2, AT)
    welcomed = refusal(node.receive(2, Welcome("south", "s", resumed=False, received=0), AT))
    for reason in (answered, welcomed):
        assert f"the broker '{bare}' has no token to show" in reason
        assert "palio token create NAME --broker-key NAME.pub" in reason
    assert node.status()["peers"] == {}


def test_an_authority_of_certificates_knows_no_broker(ring: Keyring) -> None:
    south = ring.identity("south")
    authority = NamedAuthority({"south": Principal("south", TRUE, TRUE)})
    with pytest.raises(NotAuthenticated, match=r"a certificate makes no broker; .* auth\.keys"):
        authority.authenticate_broker(south.token, AT)
    with pytest.raises(NotAuthenticated, match="a certificate makes no broker"):
        authority.verified(south.token, b"said", south.sign(b"said"), AT)


def test_a_broker_that_was_dialled_needs_that_grant_too(ring: Keyring) -> None:
    node = guarded(ring)
    for link, (token, problem) in enumerate(
        [
            (ring.free("south"), "'south' may not be a broker"),
            (ring.identity("east").token, "'east' is not the broker 'south'"),
            ("", "the broker 'south' has no token to show"),
        ]
    ):
        node.dial(link, AT)
        welcome = Welcome("south", "s", resumed=False, received=0, token=token)
        assert problem in refusal(node.receive(link, welcome, AT))
    assert node.status()["peers"] == {}


def test_the_token_of_a_broker_makes_no_client(ring: Keyring) -> None:
    node = guarded(ring)
    node.accept(1, AT)
    hello = Hello("client", "south", PROTOCOL_VERSION, ring.identity("south").token)
    assert "no client's" in refusal(node.receive(1, hello, AT))


# --- the proof ---


def test_who_has_the_key_is_let_in_and_shown_the_same(ring: Keyring) -> None:
    node, south = guarded(ring), ring.identity("south")
    hello = greet(node, south)
    (challenge,) = sent(node.receive(1, hello, AT))
    assert isinstance(challenge, Challenge)
    welcome = sent(node.receive(1, proven(hello, challenge, south), AT))[0]
    assert isinstance(welcome, Welcome)
    text = handshake_text("north", "south", "north", hello.nonce, challenge.nonce)
    shown = ring.authority().verified(welcome.token, text, welcome.proof, AT)
    assert shown.name == "north"


@pytest.mark.parametrize("what", ["nothing", "other key", "other nonce", "other name", "replayed"])
def test_a_token_without_its_key_is_worth_nothing(ring: Keyring, what: str) -> None:
    node, south = guarded(ring), ring.identity("south")
    hello = greet(node, south)
    (challenge,) = sent(node.receive(1, hello, AT))
    assert isinstance(challenge, Challenge)
    match what:
        case "nothing":
            again = hello
        case "other key":
            again = proven(hello, challenge, ring.identity("mallory"))
        case "other nonce":
            again = proven(hello, Challenge("north", "another"), south)
        case "other name":
            text = handshake_text("south", "south", "east", hello.nonce, challenge.nonce)
            again = msgspec.structs.replace(hello, proof=south.sign(text))
        case _:
            good = proven(hello, challenge, south)
            assert isinstance(sent(node.receive(1, good, AT))[0], Welcome)
            node.accept(2, AT)
            node.receive(2, hello, AT)
            assert "signature" in refusal(node.receive(2, good, AT))
            return
    assert "signature" in refusal(node.receive(1, again, AT))
    assert node.status()["peers"] == {}


def test_nobody_takes_the_name_or_the_session_of_another(ring: Keyring) -> None:
    world = network(ring)
    north = world.nodes["b1"]
    session = north._core.neighbours["b2"].id
    mallory = ring.identity("mallory")
    for link, hello in enumerate(
        (
            Hello("broker", "b2", PROTOCOL_VERSION, mallory.token, nonce="n"),
            Hello("broker", "b2", PROTOCOL_VERSION, session=session),
            Hello("broker", "b2", PROTOCOL_VERSION, ring.free("b2"), session=session),
        )
    ):
        north.accept(900 + link, world.at)
        refusal(north.receive(900 + link, hello, world.at))
    (closed,) = north.dial(989, world.at, "b2")  # which is linked
    assert closed == Close(989, "duplicate")
    north.dial(990, world.at)
    stolen = Welcome("b2", session, resumed=True, received=0)
    refusal(north.receive(990, stolen, world.at))
    assert world.nodes["b1"].status()["peers"]["b2"]["up"]


def test_a_challenge_is_answered_once_and_only_by_who_has_a_token(ring: Keyring) -> None:
    south = guarded(ring, "south")
    south.dial(1, AT)
    (again,) = sent(south.receive(1, Challenge("north", "n2"), AT))
    assert isinstance(again, Hello)
    assert again.proof
    assert "Challenge" in refusal(south.receive(1, Challenge("north", "n3"), AT))
    for link, challenge in enumerate((Challenge("south", "n"), Challenge("north", "")), 2):
        south.dial(link, AT)
        assert "Challenge" in refusal(south.receive(link, challenge, AT))
    bare = Node("bare", Acyclic("bare"), MemoryStore())
    bare.dial(1, AT)
    assert "Challenge" in refusal(bare.receive(1, Challenge("north", "n2"), AT))


# --- networks ---


def test_brokers_with_keys_stay_linked_without_certificates(ring: Keyring) -> None:
    world = network(ring, 3)
    bob = world.client("bob", "b3")
    bob.subscribe("x > 1")
    id = bob.settle()
    world.run(30.0)
    assert bob.answers[id] == Done(id)
    assert count(world, "peer_up") == 4
    assert count(world, "peer_down") == 0
    assert count(world, "connection_rejected") == 0


def test_a_link_is_resumed_by_who_proves_to_be_the_same(ring: Keyring) -> None:
    world = network(ring)
    world.cut("b1", "b2")
    world.run(1.0)
    world.heal("b1", "b2")
    world.run(5.0)
    assert count(world, "peer_down") == 0
    assert world.nodes["b2"].status()["peers"]["b1"]["up"]


@pytest.mark.parametrize("bare", ["b1", "b2"])
def test_the_end_without_a_token_is_told_what_is_missing(ring: Keyring, bare: str) -> None:
    ring.nobody(bare)
    world = network(ring)
    assert not any(each["up"] for each in world.nodes["b1"].status()["peers"].values())
    told = reasons(world, "connection_rejected") + reasons(world, "rejected_by_peer")
    assert any("auth.token_file" in each for each in told), told


def test_a_neighbour_whose_token_ends_is_parted_with_whoever_dialled(ring: Keyring) -> None:
    for name in ("b1", "b3"):
        ring.identities[name] = ring.broker(name, exp=EPOCH_US // 1_000_000 + 10)
    world = network(ring, 3)
    assert count(world, "peer_up") == 4
    world.run(20.0)
    assert not any(each["up"] for each in world.nodes["b2"].status()["peers"].values())
    assert any("has expired" in each for each in reasons(world, "connection_rejected"))


def test_nothing_is_told_to_who_is_no_broker(ring: Keyring) -> None:
    node = guarded(ring)
    hello = greet(node, ring.identity("south"))
    said = sent(node.receive(1, hello, AT))
    said += sent(node.receive(1, Digest({}), AT))
    assert not [each for each in said if not isinstance(each, Challenge | Bye)]
