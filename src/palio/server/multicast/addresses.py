"""`GroupAddresses`: at which multicast address each group of a plan is."""

from __future__ import annotations

import ipaddress
import socket
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from palio.errors import InvalidConfiguration

__all__ = ["DEFAULT_GROUP_PORT", "GroupAddresses"]

DEFAULT_GROUP_PORT: Final = 7433
"""Not that of connections: around 7400 other systems send datagrams to groups, those of DDS."""


class GroupAddresses:
    """A network of multicast addresses, over which the groups of all plans are spread.

    Brokers agree on an address without asking each other: the group's number, moved on by the
    plan's. Where there are more groups than addresses some share one, and a receiver drops what is
    not for it.

    >>> groups = GroupAddresses("239.195.0.0/16")
    >>> groups.address(plan=7, group=250), groups.address(plan=7, group=250 + 65_536)
    ('239.195.1.1', '239.195.1.1')
    """

    def __init__(self, text: str) -> None:
        try:
            self.network: IPv4Network | IPv6Network = ipaddress.ip_network(text)
        except ValueError as error:
            raise InvalidConfiguration(
                f"{error}; write a network of multicast addresses, such as 239.195.0.0/16"
            ) from None
        if not self.network.is_multicast:
            raise InvalidConfiguration(
                f"{text!r:.80} has addresses that are not multicast; take some of your own "
                "organization (239.192.0.0/14, ff18::/16), such as 239.195.0.0/16"
            )
        self._first = self.network.network_address
        self._size = self.network.num_addresses

    @property
    def family(self) -> socket.AddressFamily:
        """`AF_INET` or `AF_INET6`."""
        return socket.AF_INET if self.network.version == 4 else socket.AF_INET6

    def address(self, plan: int, group: int) -> str:
        """Where a group is."""
        return str(self._first + (plan + group) % self._size)
