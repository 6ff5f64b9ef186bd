"""Networks of real brokers with keys: what strangers try at them, and that they hold."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from palio import connect, files
from palio.client.connection import Client
from palio.client.subscription import Subscription
from palio.errors import InvalidBinding, InvalidConfiguration
from palio.node.authority import Principal
from palio.node.effects import Moment
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import Bye, Carry, Digest, Fact, Facts, Hello, Message, Route
from palio.server.run import Running, running
from palio.server.settings import Auth, Broker, Configuration, Limits, Listen, Peers
from palio.server.tokens import TokenAuthority
from tests.node.signing import Keyring
from tests.server.helpers import Peer, until

FAR: Final = 10_000_000_000


@pytest.fixture
def ring(tmp_path: Path) -> Keyring:
    return Keyring(tmp_path)


def configuration(
    ring: Keyring, name: str, *peers: Running, port: int = 0, **limits: Any
) -> Configuration:
    return Configuration(
        broker=Broker(name=name, data_dir=str(ring.directory / f"{name}.data")),
        listen=Listen(host="127.0.0.1", port=port),
        auth=ring.equip(name),
        peers=Peers(urls=tuple(f"palio://{peer.host}:{peer.port}" for peer in peers)),
        limits=Limits(**{"heartbeat_s": 0.5, "peer_grace_s": 2.0} | limits),
    )


@asynccontextmanager
async def three(ring: Keyring) -> AsyncIterator[list[Running]]:
    """North, mid and south in a line; the later ones dial."""
    async with AsyncExitStack() as stack:
        found: list[Running] = []
        for name in ("north", "mid", "south"):
            settings = configuration(ring, name, *found[-1:])
            found.append(await stack.enter_async_context(running(settings)))
        await until(lambda: all(ups(each) == min(2, 1 + at % 2) for at, each in enumerate(found)))
        yield found


def ups(broker: Running) -> int:
    peers: dict[str, Any] = broker.server.node.status()["peers"]
    return sum(each["up"] for each in peers.values())


def client(ring: Keyring, at: Running, name: str, **claims: Any) -> Client:
    claims = claims or {"allow_publish": "TRUE", "allow_subscribe": "TRUE"}
    return connect(
        f"palio://{at.host}:{at.port}", name=name, token=ring.token(name, exp=FAR, **claims)
    )


def events(caplog: pytest.LogCaptureFixture, *names: str) -> list[str]:
    return [each.message for each in caplog.records if each.message in names]


async def test_three_brokers_with_keys_deliver_everything_over_links_that_stay(
    ring: Keyring, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[str] = []
    check = TokenAuthority.check

    def checked(self: TokenAuthority, principal: Principal, at: Moment) -> None:
        looked_at.append(principal.name)
        check(self, principal, at)

    monkeypatch.setattr(TokenAuthority, "check", checked)
    caplog.set_level(logging.INFO, logger="palio.node")
    async with three(ring) as (north, _, south):
        async with client(ring, south, "bob") as bob, client(ring, north, "ann") as ann:
            orders = await bob.subscribe("x >= 0", durable_name="orders")
            await orders.settled()
            for x in range(20):
                await ann.publish({"x": x}, durable=True)
            assert [(await orders.receive())["x"] for _ in range(20)] == list(range(20))
        before = len(looked_at)
        await until(lambda: len(looked_at) > before + 30)
        assert events(caplog, "peer_down", "connection_rejected", "fact_rejected") == []
        assert len(events(caplog, "peer_up")) == 4
    # All stop, and begin again with what is on their disks.
    async with three(ring) as (north, _, south):
        async with client(ring, north, "ann") as ann:
            for x in range(20, 40):
                await ann.publish({"x": x}, durable=True)
        async with client(ring, south, "bob") as bob:
            orders = await bob.subscribe("x >= 0", durable_name="orders")
            heard = [(await orders.receive())["x"]]
            while heard[-1] < 39:
                heard.append((await orders.receive())["x"])
            # The word that the last one had been dealt with may not have come before the end.
            assert [x for x in heard if x != 19] == list(range(20, 40))
    assert events(caplog, "connection_rejected", "fact_rejected") == []


# --- parameters of which a grant leaves some out ---

TWO_SIDES: Final = "(a = 1 AND b > :x) OR (a = 2 AND b > :y)"


@asynccontextmanager
async def one(ring: Keyring) -> AsyncIterator[Running]:
    async with running(configuration(ring, "north")) as north:
        yield north


async def heard_of(sub: Subscription, ann: Client, end: int = 9) -> list[tuple[int, int]]:
    """What comes of events on both sides, up to one that ends them."""
    await sub.settled()
    for a in (1, 2):
        await ann.publish([{"a": a, "b": b} for b in range(6)], durable=True)
    await ann.publish({"a": 3, "b": end}, durable=True)
    found: list[tuple[int, int]] = []
    while (event := await sub.receive())["b"] != end:
        found.append((event["a"], event["b"]))
    return found


@pytest.mark.parametrize("durable", ["", "d"])
@pytest.mark.parametrize("side", [1, 2, 0])
async def test_what_is_updated_are_the_parameters_of_what_a_client_wrote(
    ring: Keyring, durable: str, side: int
) -> None:
    """Also where the grant has left out an alternative, and with it its parameter; or both."""
    allow_subscribe = f"a = {side} OR a = 3" if side else "a = 3"
    grants = {"allow_publish": "FALSE", "allow_subscribe": allow_subscribe}
    async with (
        one(ring) as north,
        client(ring, north, "ann") as ann,
        client(ring, north, "bob", **grants) as bob,
    ):
        values = {"x": 0, "y": 0}
        sub = await bob.subscribe(f"{TWO_SIDES} OR a = 3", values, durable_name=durable)
        for name, value in (("x", 3), ("y", 4), ("x", 2)):
            values[name] = value
            await sub.update(**{name: value})
            expected = [(1, b) for b in range(values["x"] + 1, 6) if side == 1]
            expected += [(2, b) for b in range(values["y"] + 1, 6) if side == 2]
            assert await heard_of(sub, ann) == expected
        await sub.update(x=4, y=1)
        expected = [(1, 5)] if side == 1 else [(2, b) for b in range(2, 6) if side == 2]
        assert await heard_of(sub, ann) == expected
        with pytest.raises(InvalidBinding, match="no parameter :z"):
            await sub.update(z=1)


async def test_an_absorbed_parameter_is_updated_as_any_other(ring: Keyring) -> None:
    """What may be heard is all heard anyway: of the parameter nothing is left."""
    grants = {"allow_publish": "FALSE", "allow_subscribe": "a = 3"}
    async with (
        one(ring) as north,
        client(ring, north, "ann") as ann,
        client(ring, north, "bob", **grants) as bob,
    ):
        sub = await bob.subscribe("a = 3 OR b = :p", {"p": 1})
        await sub.update(p=2)
        assert await heard_of(sub, ann) == []


async def test_an_update_goes_by_the_grant_of_now(ring: Keyring) -> None:
    """A durable subscription that was narrowed by another token knows other parameters."""
    async with one(ring) as north, client(ring, north, "ann") as ann:
        for side in (1, 2):
            grants = {"allow_publish": "FALSE", "allow_subscribe": f"a = {side} OR a = 3"}
            async with client(ring, north, "bob", **grants) as bob:
                values = {"x": 0, "y": 0}
                sub = await bob.subscribe(f"{TWO_SIDES} OR a = 3", values, durable_name="d")
                await sub.update(x=4)
                await sub.update(y=4)
                heard = await heard_of(sub, ann, end=10 + side)
                # The word that the last one had been dealt with may not have come before the end.
                assert [each for each in heard if each[0] != 3] == [(side, 5)]


# --- strangers ---


async def greeted(at: Running, hello: Hello, *then: Message) -> list[Message]:
    """Greet as a broker and say some more; all that is answered until the broker hangs up."""
    peer = await Peer.connect((at.host, at.port))
    peer.send(hello, *then)
    return await peer.until_closed()


async def test_a_token_without_a_grant_is_no_broker_and_learns_nothing(ring: Keyring) -> None:
    async with three(ring) as (north, _, south), client(ring, south, "bob") as bob:
        orders = await bob.subscribe("symbol = 'SECRET-DEAL'", durable_name="orders")
        await orders.settled()
        for token in (
            ring.token("nobody", exp=FAR),
            ring.token("nobody", allow_publish="TRUE", allow_subscribe="TRUE", exp=FAR),
            tokens_of(ring, "mid"),
            "",
        ):
            for name in ("nobody", "mid"):
                hello = Hello("broker", name, PROTOCOL_VERSION, token, nonce="n")
                said = await greeted(north, hello, Digest({}), hello)
                assert isinstance(said[-1], Bye)
                assert not [each for each in said if isinstance(each, Digest | Facts | Route)]
        assert set(north.server.node.status()["peers"]) == {"mid"}


def tokens_of(ring: Keyring, name: str) -> str:
    return (ring.directory / f"{name}.token").read_text().strip()


async def test_nobody_takes_durable_events_or_subscriptions_by_forged_facts(ring: Keyring) -> None:
    async with (
        three(ring) as (north, mid, south),
        client(ring, south, "bob") as bob,
        client(ring, south, "ann") as ann,
    ):
        orders = await bob.subscribe("symbol = 'SECRET-DEAL'", durable_name="orders")
        await orders.settled()
        now_us = south.server.moment().wall_us
        taken = Fact("nobody", 2, "bob/orders", (), "symbol = 'SECRET-DEAL'", now_us + 10**9)
        links = Fact("nobody", 1, "links", ("south",))
        ended = Fact("south", now_us + 10**6, "bob/orders")
        hello = Hello("broker", "nobody", PROTOCOL_VERSION, ring.token("nobody", exp=FAR))
        for at in (north, mid, south):
            said = await greeted(at, hello, Digest({}), Facts((links, taken)), Facts((ended,)))
            assert not [each for each in said if isinstance(each, Carry)]
        for x in range(4):
            await ann.publish({"symbol": "SECRET-DEAL", "x": x}, durable=True)
        assert [(await orders.receive())["x"] for _ in range(4)] == [0, 1, 2, 3]
        shown = south.server.node._core.durability.cluster_state.facts()  # type: ignore[attr-defined]  # the real node
        assert {each.origin for each in shown} == {"north", "mid", "south"}


# --- settings ---


async def refused(auth: Auth, name: str = "north") -> str:
    settings = Configuration(
        broker=Broker(name=name), listen=Listen(host="127.0.0.1", port=0), auth=auth
    )
    with pytest.raises(InvalidConfiguration) as caught:
        async with running(settings):
            pytest.fail("it ran")
    return str(caught.value)


async def test_a_token_that_is_not_the_brokers_own_keeps_it_from_starting(ring: Keyring) -> None:
    good, other = ring.equip("north"), ring.equip("south")
    keys, token, key = str(ring.public), good.token_file, good.broker_key
    assert "bound to another key" in await refused(
        Auth(keys=keys, token_file=token, broker_key=other.broker_key)
    )
    assert "is of the broker 'north', and this is 'south'" in await refused(good, "south")
    with files.create(ring.directory / "plain") as file:
        file.write(ring.token("north", exp=FAR).encode())
    plain = Auth(keys=keys, token_file=str(ring.directory / "plain"), broker_key=key)
    assert "palio token create north --broker-key north.pub" in await refused(plain)
    foreign = Ed25519PrivateKey.generate().public_key()
    (ring.directory / "foreign.pub").write_bytes(
        foreign.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    untrusted = Auth(keys=str(ring.directory / "foreign.pub"), token_file=token, broker_key=key)
    assert "auth.keys" in await refused(untrusted)
    os.chmod(key, 0o640)
    assert "may be read by others" in await refused(good)
