from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from palio.errors import InvalidConfiguration
from palio.server.multicast.interfaces import Interface, find_interface, multicast_sender
from tests.server.bridges import INTERFACE, Bridge, why_no_bridge

REASON = why_no_bridge()
on_a_bridge = pytest.mark.skipif(bool(REASON), reason=REASON or "there is one")
GROUP, GROUP6, PORT = "239.195.0.0", "ff15::", 7433


@pytest.fixture(scope="module")
def bridge() -> Iterator[Bridge]:
    with Bridge(1) as found:
        yield found


@pytest.mark.parametrize("wanted", ["lo", "127.0.0.1"])
def test_loopback_by_name_and_by_address(wanted: str) -> None:
    found = find_interface(wanted, GROUP, PORT)
    assert (found.name, found.address, found.is_loopback) == ("lo", "127.0.0.1", True)
    assert found.index == socket.if_nametoindex("lo")


@pytest.mark.parametrize("wanted", ["nothing0", "192.0.2.1", "::1"])
def test_what_is_no_interface(wanted: str) -> None:
    with pytest.raises(
        InvalidConfiguration, match=rf"'{wanted}' is no interface.*lo \(127\.0\.0\.1"
    ):
        find_interface(wanted, GROUP, PORT)


@on_a_bridge
@pytest.mark.parametrize("wanted", ["", INTERFACE, "fd77::1", "fd77:0::0001"])
def test_an_interface_of_ipv6(bridge: Bridge, wanted: str) -> None:
    with bridge.spaces[0].inside():
        found = find_interface(wanted, GROUP6, PORT)
    assert (found.name, found.address, found.is_loopback) == (INTERFACE, "fd77::1", False)
    assert found.family == socket.AF_INET6
    assert found.payload_bytes == 1_452


@on_a_bridge
@pytest.mark.parametrize("wanted", [INTERFACE, "10.77.0.1"])
def test_an_interface_of_ipv4(bridge: Bridge, wanted: str) -> None:
    with bridge.spaces[0].inside():
        found = find_interface(wanted, GROUP, PORT)
    assert (found.name, found.address, found.is_loopback) == (INTERFACE, "10.77.0.1", False)
    assert found.payload_bytes == 1_472


@on_a_bridge
def test_without_a_way_to_the_groups_the_interface_must_be_named(bridge: Bridge) -> None:
    with (
        bridge.spaces[0].inside(),
        pytest.raises(InvalidConfiguration, match=r"no way to 239\.195\.0\.0 .*name the interface"),
    ):
        find_interface("", GROUP, PORT)


@on_a_bridge
def test_an_interface_that_is_down() -> None:
    with Bridge(1) as found:
        found.ip(0, f"link set {INTERFACE} down")
        with (
            found.spaces[0].inside(),
            pytest.raises(InvalidConfiguration, match=f"ip link set {INTERFACE} up"),
        ):
            find_interface("10.77.0.1", GROUP, PORT)


def test_an_address_that_is_gone_is_no_place_to_send_from() -> None:
    gone = Interface("lo", 1, "192.0.2.1", is_loopback=True, packet_bytes=65_536)
    with pytest.raises(OSError, match="assign"):
        multicast_sender(gone)
