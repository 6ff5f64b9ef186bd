from __future__ import annotations

import socket

import pytest

from palio.errors import InvalidConfiguration
from palio.server.multicast.interfaces import GroupAddresses


def test_groups_have_addresses_of_their_own_until_there_are_more_than_addresses() -> None:
    groups = GroupAddresses("239.195.0.0/24")
    found = [groups.address(5, group) for group in range(256)]
    assert len(set(found)) == 256
    assert groups.address(5, 256) == found[0]
    assert groups.address(6, 0) == found[1]
    assert groups.family == socket.AF_INET


def test_addresses_of_ipv6() -> None:
    groups = GroupAddresses("ff18::1:0/112")
    assert groups.address(1 << 60, 3) == "ff18::1:3"
    assert groups.family == socket.AF_INET6


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("10.0.0.0/8", "not multicast"),
        ("128.0.0.0/1", "not multicast"),
        ("fe80::/64", "not multicast"),
        ("239.195.0.1/16", "host bits"),
        ("239.195.0.0/33", "write a network of multicast addresses"),
        ("groups", "write a network of multicast addresses"),
    ],
)
def test_what_is_no_network_of_multicast_addresses(text: str, problem: str) -> None:
    with pytest.raises(InvalidConfiguration, match=problem):
        GroupAddresses(text)
