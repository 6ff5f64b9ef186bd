from __future__ import annotations

from collections.abc import Iterator

import pytest

from palio.server.multicast.interfaces import Interface, find_interface
from palio.server.multicast.sockets import Memberships
from tests.server.bridges import INTERFACE, Bridge, why_no_bridge

REASON = why_no_bridge()


def addresses(first: int, last: int, version: int = 4) -> set[str]:
    form = "239.195.1.{}" if version == 4 else "ff15::{}"
    return {form.format(number) for number in range(first, last + 1)}


def settle(memberships: Memberships, wanted: set[str]) -> int:
    """How many steps it took."""
    memberships.aim(wanted)
    steps = 0
    while memberships.step():
        steps += 1
    return steps


@pytest.fixture
def joined() -> Iterator[Memberships]:
    found = Memberships(find_interface("lo", "239.195.0.0", 7433))
    yield found
    found.close()


def test_a_socket_for_each_twenty(joined: Memberships) -> None:
    """As many as Linux lets one have, unless it was told otherwise."""
    assert settle(joined, addresses(1, 20)) == 20
    assert (len(joined), joined.sockets) == (20, 1)
    assert settle(joined, addresses(1, 21)) == 1
    assert (len(joined), joined.sockets) == (21, 2)
    assert settle(joined, addresses(1, 50)) == 29
    assert (len(joined), joined.sockets, joined.failed) == (50, 3, 0)


def test_room_that_became_free_is_used_again(joined: Memberships) -> None:
    settle(joined, addresses(1, 60))
    settle(joined, addresses(1, 9) | addresses(21, 29) | addresses(41, 49))
    assert (len(joined), joined.sockets) == (27, 3)
    settle(joined, addresses(1, 60))
    assert (len(joined), joined.sockets) == (60, 3)
    settle(joined, set())
    assert (len(joined), joined.sockets) == (0, 0)


def test_another_aim_before_the_first_was_reached(joined: Memberships) -> None:
    joined.aim(addresses(1, 30))
    for _ in range(10):
        joined.step()
    assert settle(joined, addresses(5, 12)) == 7 + 5  # in the order of their texts
    assert len(joined) == 8


def test_what_cannot_be_joined_is_counted(joined: Memberships) -> None:
    settle(joined, {"239.195.1.1", "10.0.0.1", "10.0.0.2"})
    assert (len(joined), joined.failed) == (1, 2)
    settle(joined, {"239.195.1.1"})
    assert (len(joined), joined.failed) == (1, 0)


def test_an_interface_that_is_gone() -> None:
    gone = Memberships(Interface("gone0", 9_999, "10.0.0.1", is_loopback=False, packet_bytes=1_500))
    settle(gone, addresses(1, 2))
    assert (len(gone), gone.sockets, gone.failed) == (0, 0, 2)


@pytest.mark.skipif(bool(REASON), reason=REASON or "there is a bridge")
def test_memberships_of_ipv6() -> None:
    with Bridge(1) as bridge, bridge.spaces[0].inside():
        found = Memberships(find_interface(INTERFACE, "ff15::", 7433))
        settle(found, addresses(1, 50, 6))
        assert (len(found), found.failed) == (50, 0)
        settle(found, addresses(26, 50, 6))
        assert len(found) == 25
        found.close()
