from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from palio.errors import InvalidConfiguration, InvalidInput
from palio.multicast import kernels
from palio.protocol.limits import MAX_MTU
from palio.server.multicast.sockets import open_groups
from palio.server.run import running
from palio.server.settings import Broker, Configuration, Listen, Multicast
from tests.server.bridges import INTERFACE, Bridge, why_no_bridge

REASON = why_no_bridge()
on_a_bridge = pytest.mark.skipif(bool(REASON), reason=REASON or "there is one")


def multicast(**given: Any) -> Multicast:
    options: dict[str, Any] = {"groups": "239.195.0.0/16", "interface": "lo"}
    return Multicast(**options | given)


def written(path: Path, text: str, mode: int = 0o600) -> str:
    path.write_text(text, encoding="ascii")
    path.chmod(mode)
    return str(path)


def test_without_groups_there_is_no_multicast() -> None:
    assert open_groups(Multicast(), "b1") is None


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"interface": "nothing0"}, r"multicast\.interface: 'nothing0' is no interface"),
        ({"groups": "ff15::/112", "interface": "::1"}, r"on lo \(::1\): Network is unreachable"),
    ],
)
def test_what_stands_in_the_way(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidConfiguration, match=problem):
        open_groups(multicast(**given), "b1")


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [
        ("ab" * 32, 0o644, "chmod 600"),
        ("ab" * 31, 0o600, "64 hexadecimal digits"),
        ("", 0o600, "hexadecimal digits"),
    ],
)
def test_a_key_that_is_none(tmp_path: Path, text: str, mode: int, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        open_groups(multicast(key=written(tmp_path / "key", text, mode)), "b1")


@on_a_bridge
def test_off_loopback_a_key_is_needed(tmp_path: Path) -> None:
    with Bridge(1) as bridge, bridge.spaces[0].inside():
        with pytest.raises(InvalidConfiguration, match=r"multicast\.key: other machines receive"):
            open_groups(multicast(interface=INTERFACE), "b1")
        key = written(tmp_path / "key", "ab" * 32)
        found = open_groups(multicast(interface=INTERFACE, key=key), "b1")
        assert found is not None
        found.close()


@on_a_bridge
def test_a_datagram_fits_into_a_packet_of_the_interface(tmp_path: Path) -> None:
    key = written(tmp_path / "key", "ab" * 32)
    with Bridge(1) as bridge, bridge.spaces[0].inside():
        found = open_groups(multicast(interface=INTERFACE, key=key, mtu=1_472), "b1")
        assert found is not None
        found.close()
        with pytest.raises(InvalidConfiguration, match=r"mtu: eth0 .* 1472 bytes .* 1473 are set"):
            open_groups(multicast(interface=INTERFACE, key=key, mtu=1_473), "b1")
    found = open_groups(multicast(mtu=MAX_MTU), "b1")
    assert found is not None
    found.close()


async def test_a_broker_has_its_sockets_until_it_ends() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    configuration = Configuration(
        broker=Broker(name="b1", routing="flooded"),
        listen=Listen(port=0),
        multicast=multicast(port=port),
    )
    async with running(configuration) as found:
        assert is_bound(port)
        assert found.server.multicast is not None
    assert not is_bound(port)


async def test_a_broker_that_may_change_plans_loads_what_that_takes_beforehand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_loaded = threading.Event()
    monkeypatch.setattr(kernels, "load", is_loaded.set)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    configuration = Configuration(
        broker=Broker(name="b1", routing="flooded"),
        listen=Listen(port=0),
        multicast=multicast(port=port, replan=True),
    )
    async with running(configuration):
        assert await asyncio.to_thread(is_loaded.wait, 10.0)


async def test_a_broker_that_cannot_start_keeps_no_sockets() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as other:
        configuration = Configuration(
            broker=Broker(name="b1", routing="flooded"),
            listen=Listen(port=other.getsockname()[1]),
            multicast=multicast(port=port),
        )
        with pytest.raises(InvalidConfiguration, match=r"listen\.port"):
            async with running(configuration):
                pass
    assert not is_bound(port)


def is_bound(port: int) -> bool:
    """Whether a socket of this machine hears what comes to a port of UDP."""
    text = Path("/proc/net/udp").read_text(encoding="ascii")
    return f"00000000:{port:04X} " in text
