"""The real node behind real sockets, on a real disk."""

from __future__ import annotations

import asyncio
import gc
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from palio import Client, connect
from palio.errors import InvalidConfiguration, InvalidInput, NotStored
from palio.matching import warming
from palio.matching.kernels import registry
from palio.model.masks import unpack_mask
from palio.node.authority import Authority
from palio.node.limits import RELEASE_S
from palio.protocol.messages import (
    Accepted,
    Acknowledge,
    Advertise,
    Answer,
    Bye,
    Deliver,
    Done,
    Failed,
    Query,
    Redirect,
    Refused,
    Settle,
    Subscribe,
    Welcome,
)
from palio.routing.algorithms import find_algorithm
from palio.routing.patterns.router import Patterned
from palio.server import keyfiles, tokens
from palio.server import run as run_module
from palio.server.credentials import Credentials, load
from palio.server.limits import GC_THRESHOLDS
from palio.server.run import (
    Engines,
    Running,
    new_router,
    run,
    running,
)
from palio.server.settings import (
    Auth,
    Broker,
    Configuration,
    Grant,
    Http,
    Limits,
    Listen,
    Peers,
    Tls,
)
from tests.node.signing import Keyring
from tests.server.certificates import certificate
from tests.server.helpers import PATIENCE_S, Peer, hello, publish

HOST: Final = "127.0.0.1"


def configured(name: str = "b1", **sections: Any) -> Configuration:
    sections.setdefault("broker", Broker(name=name))
    return Configuration(**{"listen": Listen(host=HOST, port=0)} | sections)


@asynccontextmanager
async def broker(
    name: str = "b1", **sections: Any
) -> AsyncIterator[tuple[Running, tuple[str, int]]]:
    async with running(configured(name, **sections)) as found:
        yield found, (found.host, found.port)


def on_disk(directory: Path, name: str = "b1") -> Broker:
    return Broker(name=name, data_dir=str(directory))


def xs(delivered: Deliver) -> list[int]:
    chosen = unpack_mask(delivered.rows, len(delivered.parcel))
    return [int(x) for x in delivered.parcel.select(chosen).batch.column("x").to_numpy()]


async def linked(peer: Peer, count: int) -> None:
    """Wait until the broker of a client has so many neighbours."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            peer.send(Query(900, "status"))
            peers = (await peer.next(Answer)).data["peers"]
            if sum(each["up"] for each in peers.values()) == count:
                return


async def test_what_matches_is_delivered_and_nothing_else() -> None:
    async with broker() as (found, address):
        alice, bob = await Peer.client(address), await Peer.client(address, "bob")
        await alice.subscribe("x > 1")
        bob.send(publish(1, 1, 2, 3))
        assert (await bob.next(Accepted)) == Accepted(3, "memory")
        assert xs(await alice.next(Deliver)) == [2, 3]
        assert found.server.traffic.node_s > 0
        assert found.addresses == {"palio": f"palio://{HOST}:{found.port}"}
        alice.close()
        bob.close()


async def test_without_a_disk_a_durable_subscription_is_refused() -> None:
    async with broker() as (_, address):
        alice = await Peer.client(address)
        alice.send(Subscribe(1, 1, "x > 1", durable="all"))
        assert "broker.data_dir" in (await alice.next(Failed)).failure.message
        await alice.subscribe("x > 1", key=2)
        alice.close()


async def test_a_durable_event_outlives_its_broker(tmp_path: Path) -> None:
    async with broker(broker=on_disk(tmp_path)) as (_, address):
        alice, bob = await Peer.client(address), await Peer.client(address, "bob")
        await alice.subscribe("x > 1", durable="all")
        alice.close()
        bob.send(publish(1, 1, 2, 3, durable=True))
        assert (await bob.next(Accepted)) == Accepted(3, "durable")
        bob.close()
    async with broker(broker=on_disk(tmp_path)) as (_, address):
        alice = await Peer.client(address)
        await alice.subscribe("x > 1", durable="all")
        delivered = await alice.next(Deliver)
        assert delivered.entry > 0
        assert xs(delivered) == [2, 3]
        alice.send(Acknowledge(delivered.key, delivered.entry), Query(7, "status"))
        assert (await alice.next(Answer)).data["epoch"] == 1
        alice.close()
    async with broker(broker=on_disk(tmp_path)) as (_, address):
        alice = await Peer.client(address)
        await alice.subscribe("x > 1", durable="all")
        alice.send(Query(7, "status"))
        assert (await alice.next(Answer)).data["custody_entries"] == 0
        alice.close()


async def test_a_full_journal_refuses_what_is_durable_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palio.server.journal.writer.PROBE_S", 4 * RELEASE_S)
    small = Broker(name="b1", data_dir=str(tmp_path), journal_bytes=1 << 20)
    async with broker(broker=small) as (_, address), asyncio.timeout(PATIENCE_S):
        url = f"palio://{address[0]}:{address[1]}"
        async with connect(url, name="ann") as ann, connect(url, name="bob") as bob:
            durable = await ann.subscribe("n >= 0", durable_name="d")
            live = await ann.subscribe("n = -1")
            kept = 0
            while await is_kept(bob, {"n": kept, "pad": "x" * 50_000}):
                kept += 1
            assert kept > 10
            await bob.publish({"n": -1})
            assert (await live.receive())["n"] == -1
            assert [(await durable.receive())["n"] for _ in range(kept)] == list(range(kept))
            durable.ack()
            while not await is_kept(bob, {"n": kept, "pad": "x" * 50_000}):
                pass
            assert (await durable.receive())["n"] == kept


async def is_kept(client: Client, event: dict[str, Any]) -> bool:
    """Whether a broker stores a durable event."""
    try:
        await client.publish(event, durable=True)
    except NotStored:
        return False
    return True


@pytest.mark.parametrize("routing", ["general", "acyclic", "advertised", "flooded"])
async def test_brokers_that_dial_each_other_are_one_network(routing: Any) -> None:
    def named(name: str) -> Broker:
        return Broker(name=name, routing=routing)

    async with broker(broker=named("b1")) as (_, one):
        peers = Peers(urls=(f"palio://{HOST}:{one[1]}",))
        async with broker(broker=named("b2"), peers=peers) as (_, two):
            alice, bob = await Peer.client(one), await Peer.client(two, "bob")
            await linked(alice, 1)
            await linked(bob, 1)
            await alice.subscribe("x > 1")
            alice.send(Settle(5))
            assert (await alice.next(Done)) == Done(5)
            if routing == "advertised":
                bob.send(Advertise(6, 1, "x BETWEEN 0 AND 5 OR x = 9 AND z = 1"), Settle(7))
                assert (await bob.next(Done)) == Done(6)
                assert (await bob.next(Done)) == Done(7)
                await alice.subscribe("x IS NOT NULL", key=2)
                alice.send(Settle(8))
                assert (await alice.next(Done)) == Done(8)
                bob.send(publish(1, 1, 7, 2, 9))
                assert xs(await alice.next(Deliver)) == [1, 2, 9]
            else:
                bob.send(publish(1, 1, 2))
                assert xs(await alice.next(Deliver)) == [2]
            alice.close()
            bob.close()


async def test_a_broker_that_stops_says_goodbye() -> None:
    async with broker() as (_, address):
        alice = await Peer.client(address)
    said = await alice.until_closed()
    assert said == [Redirect(), Bye("closed", "the broker is going down")]


# --- TLS ---


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    ca = certificate(directory, "ca")
    for name in ("b1", "b2", "alice", "mallory"):
        certificate(directory, name, ca)
    return ca


def tls(ca: Path, name: str) -> Tls:
    cert = ca.with_name(f"{name}.pem")
    return Tls(cert=str(cert), key=str(cert.with_suffix(".key")), ca=str(ca))


def as_client(ca: Path, name: str = "") -> dict[str, Any]:
    context = ssl.create_default_context(cafile=str(ca))
    if name:
        cert = ca.with_name(f"{name}.pem")
        context.load_cert_chain(cert, cert.with_suffix(".key"))
    return {"ssl": context, "server_hostname": "localhost"}


ALL: Final = Grant(allow_publish="TRUE", allow_subscribe="TRUE", monitor=True, operate=True)


async def test_a_certificate_shows_who_connects(authority: Path) -> None:
    auth = Auth(grants={"alice": Grant(allow_publish="x < 3", allow_subscribe="TRUE")})
    async with broker(tls=tls(authority, "b1"), auth=auth) as (_, address):
        alice = await Peer.client(address, "anything", **as_client(authority, "alice"))
        again = await Peer.client(address, "too", **as_client(authority, "alice"))
        await again.subscribe("x > 0")
        alice.send(publish(1, 1, 2, 3))
        assert (await alice.next(Refused)).first_seq == 3
        assert xs(await again.next(Deliver)) == [1, 2]
        alice.close()
        again.close()
        for name in ("mallory", ""):
            other = await Peer.connect(address, **as_client(authority, name))
            other.send(hello("alice"))
            (said,) = await other.until_closed()
            assert isinstance(said, Bye)
            assert said.code == "NotAuthenticated"


@pytest.mark.parametrize("subject", [("alice", "mallory"), ("mallory", "alice"), ("alice",) * 2])
async def test_of_two_common_names_neither_counts(
    authority: Path, tmp_path: Path, subject: tuple[str, ...]
) -> None:
    cert = certificate(tmp_path, "two", authority, subject=subject)
    context = ssl.create_default_context(cafile=str(authority))
    context.load_cert_chain(cert, cert.with_suffix(".key"))
    async with broker(tls=tls(authority, "b1"), auth=Auth(grants={"alice": ALL})) as (_, address):
        other = await Peer.connect(address, ssl=context, server_hostname="localhost")
        other.send(hello("alice"))
        (said,) = await other.until_closed()
    assert isinstance(said, Bye)
    assert f"'{'/'.join(subject)}' was granted nothing" in said.reason


@pytest.mark.parametrize("door", ["native", "http"])
async def test_of_tls_1_2_only_ciphers_that_seal_and_check_in_one_are_taken(
    authority: Path, door: str
) -> None:
    listen = Listen(host=HOST, port=0)
    async with broker(listen=listen, http=Http(port=0), tls=tls(authority, "b1")) as (found, _):
        port = int(found.addresses["palio" if door == "native" else door].rpartition(":")[2])

        async def chosen(cipher: str) -> str:
            context = ssl.create_default_context(cafile=str(authority))
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            context.set_ciphers(cipher)
            _, writer = await asyncio.open_connection(
                HOST, port, ssl=context, server_hostname="localhost"
            )
            try:
                return str(writer.get_extra_info("cipher")[0])
            finally:
                writer.close()

        for good in ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"):
            assert await chosen(good) == good
        for bad in ("ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA384"):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await chosen(bad)


async def test_a_token_shows_who_connects(tmp_path: Path) -> None:
    keyfiles.create_key(tmp_path / "key")
    now = int(datetime.now(UTC).timestamp())
    claims = tokens.Claims("alice", "1", iat=now, exp=now + 60, allow_subscribe="x = 1")
    token = tokens.sign(claims, keyfiles.load_private_key(tmp_path / "key"))
    async with broker(auth=Auth(keys=str(tmp_path / "key.pub"))) as (_, address):
        alice = await Peer.connect(address)
        alice.send(hello(token=token))
        assert (await alice.next(Welcome)).publisher.startswith("alice/")
        alice.close()
        mallory = await Peer.connect(address)
        mallory.send(hello(token=token[:-4] + "AAAA"))
        (said,) = await mallory.until_closed()
        assert isinstance(said, Bye)
        assert said.code == "NotAuthenticated"


async def test_a_broker_says_where_it_is_as_clients_write_it(authority: Path) -> None:
    async with broker() as (plain, (host, port)), broker(tls=tls(authority, "b1")) as (secured, _):
        assert plain.addresses == {"palio": f"palio://{host}:{port}"}
        assert secured.addresses["palio"].startswith("palios://127.0.0.1:")


async def test_brokers_know_each_other_by_keys_and_clients_by_certificates(
    authority: Path, tmp_path: Path
) -> None:
    (tmp_path / "keys").mkdir()
    ring = Keyring(tmp_path / "keys")
    auth, other = (replace(ring.equip(name), grants={"alice": ALL}) for name in ("b1", "b2"))
    disks = [on_disk(tmp_path / name, name) for name in ("b1", "b2")]
    async with broker(broker=disks[0], tls=tls(authority, "b1"), auth=auth) as (_, one):
        peers = Peers(urls=(f"palios://localhost:{one[1]}",))
        second: dict[str, Any] = {"tls": tls(authority, "b2"), "auth": other, "peers": peers}
        async with broker(broker=disks[1], **second) as (_, two):
            alice = await Peer.client(one, **as_client(authority, "alice"))
            bob = await Peer.client(two, **as_client(authority, "alice"))
            await linked(alice, 1)
            await alice.subscribe("x > 1")
            alice.send(Settle(5))
            assert (await alice.next(Done)) == Done(5)
            bob.send(publish(1, 1, 2))
            assert xs(await alice.next(Deliver)) == [2]
            await alice.subscribe("x > 5", key=2, durable="all")
            alice.send(Settle(6))
            assert (await alice.next(Done)) == Done(6)
            bob.send(publish(3, 6, 7, durable=True))
            while (delivered := await alice.next(Deliver)).key != 2:
                pass
            assert xs(delivered) == [6, 7]
            alice.close()
            bob.close()


# --- what is found before anyone connects ---


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        ({"tls": Tls(cert="/none", key="/none")}, r"tls\.cert"),
        ({"auth": Auth(token_file="/none", broker_key="/none")}, r"auth\.token_file"),
        ({"auth": Auth(keys="/none")}, "/none"),
        ({"listen": Listen(host="192.0.2.1", port=0)}, r"listen\.host: "),
    ],
)
async def test_what_cannot_be_run_with(sections: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        async with running(configured(**sections)):
            pytest.fail("it ran")


async def test_a_configuration_that_was_not_loaded_is_checked_too() -> None:
    open_to_all = Configuration(listen=Listen(host="0.0.0.0", port=0))  # refused
    with pytest.raises(InvalidConfiguration, match=r"listen\.host"):
        async with running(open_to_all):
            pass


async def test_a_token_that_others_may_read_is_refused(tmp_path: Path) -> None:
    auth = Keyring(tmp_path).equip("b1")
    (tmp_path / "b1.token").chmod(0o644)
    with pytest.raises(InvalidConfiguration, match=r"auth\.token_file: .* chmod 600"):
        async with running(configured(auth=auth)):
            pytest.fail("it ran")


async def test_a_port_in_use_is_told_and_the_journal_let_go(tmp_path: Path) -> None:
    async with broker() as (_, address):
        taken = configured(broker=on_disk(tmp_path), listen=Listen(port=address[1]))
        with pytest.raises(
            InvalidConfiguration, match=r"listen\.host, listen\.port: .*address already in use"
        ):
            async with running(taken):
                pytest.fail("it ran")
    async with broker(broker=on_disk(tmp_path)):
        pass


async def test_all_doors_of_a_broker_share_one_authority(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Authority] = []

    def counted(configuration: Configuration) -> Credentials:
        credentials = load(configuration)
        made.append(credentials.authority)
        return credentials

    monkeypatch.setattr(run_module, "load", counted)
    async with running(configured(listen=Listen(port=0), http=Http(port=0))) as found:
        assert found.http is not None
    assert len(made) == 1


async def test_limits_reach_the_server_and_the_node() -> None:
    limits = Limits(max_connections=1, heartbeat_s=3.5)
    async with broker(limits=limits) as (_, address):
        alice = await Peer.connect(address)
        alice.send(hello())
        assert (await alice.next(Welcome)).heartbeat_s == 3.5
        other = await Peer.connect(address)
        (said,) = await other.until_closed()
        assert isinstance(said, Bye)
        assert said.code == "LimitExceeded"
        alice.close()


@pytest.mark.parametrize(
    ("routing", "name"),
    [
        ("general", "General"),
        ("acyclic", "Acyclic"),
        ("advertised", "Advertised"),
        ("hierarchical", "Hierarchical"),
        ("proxies", "General"),
        ("flooded", "Flooded"),
        ("centralized", "Centralized"),
        ("source-trees", "SourceTrees"),
        ("general-advertised", "General"),
    ],
)
def test_the_routing_that_a_configuration_names(routing: Any, name: str) -> None:
    router = new_router(Configuration(broker=Broker(name="b7", routing=routing)), Engines())
    assert isinstance(router, Patterned) == find_algorithm(routing).assembles
    plain = router.inner if isinstance(router, Patterned) else router
    assert (type(plain).__name__, plain.name) == (name, "b7")


# --- starting ---


async def test_a_process_that_is_a_broker_seldom_looks_for_garbage() -> None:
    ready = asyncio.Event()
    before = gc.get_threshold()
    task = asyncio.create_task(run(configured(), lambda _found: ready.set()))
    async with asyncio.timeout(PATIENCE_S):
        await ready.wait()
    assert gc.get_threshold() == GC_THRESHOLDS
    gc.set_threshold(*before)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_broker_loads_its_kernels_once_it_has_filters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of routing, too; what is subscribed meanwhile is matched in Python."""
    asked, may_end = threading.Event(), threading.Event()

    def warm() -> None:
        asked.set()
        may_end.wait(PATIENCE_S)

    monkeypatch.setattr(registry, "_loaded", [])
    monkeypatch.setattr(registry, "_missed", [0])
    monkeypatch.setattr(warming, "WARM_PAIRS", warming.ADDED_PAIRS)
    monkeypatch.setattr(warming, "warm", warm)
    async with broker() as (_, address):
        alice = await Peer.client(address)
        assert not asked.is_set()
        for low in range(3):
            await alice.subscribe(f"x > {low}", key=1 + low)
        assert await asyncio.to_thread(asked.wait, PATIENCE_S)
        alice.send(publish(1, 0, 1, 2))
        assert xs(await alice.next(Deliver)) == [1, 2]
        may_end.set()
        alice.close()


@pytest.mark.parametrize(
    ("listen", "url", "told"),
    [
        (Listen(host="localhost", port=0), "", "palio://localhost:{port}"),
        (Listen(host=HOST, port=0), "palio://north.example:1", "palio://north.example:1"),
    ],
)
async def test_a_broker_tells_where_it_can_be_reached(listen: Listen, url: str, told: str) -> None:
    async with broker(broker=Broker(name="b1", url=url), listen=listen) as (found, address):
        peer = await Peer.client(address)
        peer.send(Query(1, "topology"))
        known = (await peer.next(Answer)).data["brokers"]["b1"]
        assert known["url"] == told.format(port=found.port)
        peer.close()
