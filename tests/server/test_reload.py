"""What a running broker takes of changed files and settings, and what stays as it is."""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from cryptography import x509
from msgspec.structs import replace

from palio.errors import InvalidConfiguration
from palio.protocol.messages import Accepted, Bye, Deliver, Failed, Subscribe, Welcome
from palio.server.keyfiles import load_private_key, public_key_text
from palio.server.reload import LIVE, change
from palio.server.run import Running, running
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
from palio.server.tokens import inspect
from tests.node.signing import Keyring
from tests.server.certificates import certificate
from tests.server.helpers import Peer, hello, publish, until

ALL: Final = Grant(allow_publish="TRUE", allow_subscribe="TRUE", monitor=True)


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    return certificate(tmp_path, "ca")


def secured(ca: Path, **sections: Any) -> Configuration:
    """A broker with a certificate of its own, to which clients show theirs."""
    north = ca.with_name("north.pem")
    if not north.exists():
        certificate(ca.parent, "north", ca)
    return Configuration(
        broker=Broker(name="north"),
        listen=Listen(port=0),
        tls=Tls(cert=str(north), key=str(north.with_suffix(".key")), ca=str(ca)),
        **{"auth": Auth(grants={"alice": ALL, "bob": ALL})} | sections,
    )


def as_client(ca: Path, name: str = "") -> dict[str, Any]:
    context = ssl.create_default_context(cafile=str(ca))
    if name:
        own = ca.with_name(f"{name}.pem")
        if not own.exists():
            certificate(ca.parent, name, ca)
        context.load_cert_chain(own, own.with_suffix(".key"))
    return {"ssl": context, "server_hostname": "localhost"}


async def served(host: str, port: int, ca: Path) -> int:
    """The number of the certificate that is shown at a port."""
    _, writer = await asyncio.open_connection(host, port, **as_client(ca))
    with closing(writer):
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return x509.load_der_x509_certificate(shown).serial_number


async def is_admitted(address: tuple[str, int], client: dict[str, Any]) -> bool:
    peer = await Peer.connect(address, **client)
    peer.send(hello())
    try:
        await peer.next(Welcome)
    except (ConnectionError, ssl.SSLError):
        return False
    finally:
        peer.close()
    return True


def number(path: Path) -> int:
    return x509.load_pem_x509_certificate(path.read_bytes()).serial_number


def details(caplog: pytest.LogCaptureFixture, event: str) -> dict[str, Any]:
    """Those of the newest record of an event."""
    found = [each for each in caplog.records if each.getMessage() == event]
    assert found, [each.getMessage() for each in caplog.records]
    return dict(found[-1].__dict__["details"])


async def reload(found: Running, configuration: Configuration) -> None:
    await found.reloader.reload(lambda: configuration)


async def test_a_renewed_certificate_is_served_and_sessions_go_on(ca: Path) -> None:
    given = secured(ca, http=Http(port=0))
    north = ca.with_name("north.pem")
    async with running(given) as found:
        assert found.http is not None
        web = int(found.http.address.rpartition(":")[2])
        alice, bob = [
            await Peer.client((found.host, found.port), name, **as_client(ca, name))
            for name in ("alice", "bob")
        ]
        before = number(north)
        certificate(ca.parent, "north", ca)
        assert await served(found.host, found.port, ca) == before != number(north)
        await reload(found, given)
        for port in (found.port, web):
            assert await served(found.host, port, ca) == number(north)
        await alice.subscribe("x > 1")
        bob.send(publish(1, 2))
        assert (await bob.next(Accepted)) == Accepted(1, "memory")
        assert len((await alice.next(Deliver)).parcel) == 1
        alice.close()
        bob.close()


async def test_another_authority_of_certificates_counts_from_now_on(
    ca: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = certificate(tmp_path / "other", "ca")
    given = secured(ca)
    async with running(given) as found:
        address = (found.host, found.port)
        stranger = ssl.create_default_context(cafile=str(ca))
        mallory = certificate(tmp_path / "other", "bob", other)
        stranger.load_cert_chain(mallory, mallory.with_suffix(".key"))
        bob: dict[str, Any] = {"ssl": stranger, "server_hostname": "localhost"}
        alice = as_client(ca, "alice")
        assert [await is_admitted(address, each) for each in (alice, bob)] == [True, False]
        await reload(found, replace(given, tls=replace(given.tls, ca=str(other))))
        assert [await is_admitted(address, each) for each in (alice, bob)] == [False, True]


async def test_a_changed_limit_takes_effect(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    given = Configuration(listen=Listen(port=0), limits=Limits(max_subscriptions=1))
    async with running(given) as found:
        alice = await Peer.client((found.host, found.port))
        await alice.subscribe("x > 1")
        alice.send(Subscribe(2, 2, "x > 2"))
        assert "MAX_SUBSCRIPTIONS = 1" in (await alice.next(Failed)).failure.message
        limits = Limits(max_subscriptions=2, max_connections=1, heartbeat_s=1.5)
        await reload(found, replace(given, limits=limits))
        await alice.subscribe("x > 2", key=3)
        other = await Peer.connect((found.host, found.port))
        (said,) = await other.until_closed()
        assert isinstance(said, Bye)
        assert said.reason.startswith("1 connections are the most")
        alice.close()
    assert details(caplog, "reload_applied") == {
        "settings": ["limits.max_connections", "limits.max_subscriptions"]
    }
    assert details(caplog, "reload_ignored") == {
        "settings": ["limits.heartbeat_s"],
        "remedy": "restart the broker",
    }


async def test_a_file_that_is_broken_changes_nothing(
    ca: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = secured(ca)
    north = ca.with_name("north.pem")
    async with running(given) as found:
        before = number(north)
        certificate(ca.parent, "north", ca)
        north.with_suffix(".key").write_text("-----BEGIN")
        await reload(found, replace(given, limits=Limits(max_connections=1)))
        assert details(caplog, "reload_failed")["reason"].startswith("tls.key: it cannot be loaded")
        for _ in range(3):
            assert await served(found.host, found.port, ca) == before
        assert found.server.limiter.most == given.limits.max_connections

        def unreadable() -> Configuration:
            raise InvalidConfiguration("palio.toml:1: no setting is called x")

        await found.reloader.reload(unreadable)
        assert details(caplog, "reload_failed")["reason"].startswith("palio.toml:1: ")
        certificate(ca.parent, "north", ca)
        await reload(found, given)
        assert await served(found.host, found.port, ca) == number(north)


async def test_a_grant_that_is_taken_away_ends_its_sessions_alone(ca: Path) -> None:
    given = secured(ca, limits=Limits(heartbeat_s=0.05))
    async with running(given) as found:
        address = (found.host, found.port)
        alice = await Peer.client(address, "a", **as_client(ca, "alice"))
        bob = await Peer.client(address, "b", **as_client(ca, "bob"))
        grants = {"alice": replace(ALL), "bob": Grant(allow_publish="x < 1")}
        await reload(found, replace(given, auth=Auth(grants=grants)))
        said = (await bob.until_closed())[-1]
        assert isinstance(said, Bye)
        assert "no longer listed" in said.reason
        await alice.subscribe("x > 1")
        alice.close()


async def test_tokens_and_revocations_count_at_once_at_every_port(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    ring = Keyring(tmp_path / "keys")
    auth = replace(ring.equip("north"), revoked="")
    given = Configuration(
        broker=Broker(name="north"), listen=Listen(port=0), http=Http(port=0), auth=auth
    )
    token = ring.token("ann", allow_subscribe="TRUE")
    async with running(given) as found, httpx.AsyncClient() as http:
        assert found.http is not None

        async def status() -> int:
            assert found.http is not None
            headers = {"authorization": f"Bearer {token}"}
            return (
                await http.get(f"{found.http.address}/subscriptions", headers=headers)
            ).status_code

        ann = await Peer.connect((found.host, found.port))
        ann.send(hello("ann", token=token))
        await ann.next(Welcome)
        assert await status() == 200
        ring.revoked.write_text(f"{inspect(token)[1].jti}\n")
        await reload(found, replace(given, auth=replace(auth, revoked=str(ring.revoked))))
        assert await status() == 401
        await ann.until_closed()


async def test_the_brokers_own_token_needs_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "keys").mkdir()
    ring = Keyring(tmp_path / "keys")
    auth = ring.equip("north")
    given = Configuration(broker=Broker(name="north"), listen=Listen(port=0), auth=auth)
    key, token_file = load_private_key(Path(auth.broker_key)).public_key(), Path(auth.token_file)
    renewed = ring.token("north", broker=public_key_text(key))
    async with running(given) as found:
        await asyncio.to_thread(token_file.write_text, renewed)
        await reload(found, given)
    assert details(caplog, "reload_ignored")["settings"] == ["auth.token_file"]


async def test_metrics_and_names_are_those_of_the_new_certificate(ca: Path) -> None:
    given = secured(ca, http=Http(port=0))
    async with running(given) as found:
        assert found.http is not None
        renewed = certificate(ca.parent, "palio.example", ca)
        tls = Tls(cert=str(renewed), key=str(renewed.with_suffix(".key")), ca=str(ca))
        async with httpx.AsyncClient(verify=as_client(ca)["ssl"]) as http:
            headers = {"host": "palio.example"}
            url = f"{found.http.address}/healthz"
            assert (await http.get(url, headers=headers)).status_code == 421
            await reload(found, replace(given, tls=tls))
            assert (await http.get(url, headers=headers)).status_code == 200


async def test_brokers_are_dialled_by_the_new_certificates(ca: Path, tmp_path: Path) -> None:
    """A broker whose peer's certificate it could not verify links once it trusts another CA."""
    (tmp_path / "keys").mkdir()
    (tmp_path / "other").mkdir()
    other = certificate(tmp_path / "other", "ca")
    ring = Keyring(tmp_path / "keys")
    north = replace(secured(ca), auth=replace(ring.equip("north"), grants={"alice": ALL}))
    async with running(north) as first:
        south = Configuration(
            broker=Broker(name="south"),
            listen=Listen(port=0),
            auth=ring.equip("south"),
            tls=Tls(ca=str(other)),
            peers=Peers(urls=(f"palios://localhost:{first.port}",)),
        )
        async with running(south) as second:
            await until(lambda: second.server.traffic.dial_failures > 0)
            await reload(second, replace(south, tls=Tls(ca=str(ca))))
            await until(lambda: second.server.traffic.dialled > 0)


def test_what_makes_another_broker_is_not_changed() -> None:
    open_broker, named = Configuration(), Configuration(auth=Auth(grants={"a": ALL}))
    assert change(open_broker, named) == (open_broker, [], ["auth.grants"])
    plain, tls = Configuration(), Configuration(tls=Tls(cert="a", key="b", ca="c"))
    assert change(plain, tls) == (plain, [], ["tls.cert", "tls.key", "tls.ca"])
    moved = Configuration(broker=Broker(name="b"), limits=Limits(lease_s=5.0))
    kept = Configuration(limits=Limits(lease_s=5.0))
    assert change(plain, moved) == (kept, ["limits.lease_s"], ["broker.name"])
    assert change(plain, plain) == (plain, [], [])


def test_the_documentation_lists_what_is_reloaded() -> None:
    page = (Path(__file__).parents[2] / "docs/howto/operations.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in LIVE)
