"""`Interface`: the network interface on which a broker sends and receives datagrams."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from array import array
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Final

from palio.errors import InvalidConfiguration

_SIOCGIFCONF: Final = 0x8912
_SIOCGIFFLAGS: Final = 0x8913
_SIOCGIFMTU: Final = 0x8921
_IFF_UP: Final = 0x1
_IFF_LOOPBACK: Final = 0x8
_IFREQ: Final = struct.Struct("16s24x")
"""A request about an interface: its name, and what is asked."""
_MAX_ADDRESSES: Final = 4_096
"""Addresses of IPv4 that a machine may have; one that is not among these must be given by name."""


@dataclass(frozen=True)
class Interface:
    """One of this machine's interfaces, and which of its addresses datagrams come from."""

    name: str
    index: int
    address: str
    is_loopback: bool
    packet_bytes: int
    """The largest packet that it takes, headers included."""

    @property
    def family(self) -> socket.AddressFamily:
        """`AF_INET` or `AF_INET6`."""
        return socket.AF_INET6 if ":" in self.address else socket.AF_INET

    @property
    def payload_bytes(self) -> int:
        """The largest datagram that goes in one packet."""
        return self.packet_bytes - (48 if self.family == socket.AF_INET6 else 28)


def find_interface(wanted: str, group: str, port: int) -> Interface:
    """The interface of a name or an address; without one, that of the way to a multicast group.

    `InvalidConfiguration` lists the interfaces, if that is none of them.

    >>> find_interface("127.0.0.1", "239.195.0.0", 7433).is_loopback
    True
    """
    family = socket.AF_INET6 if ":" in group else socket.AF_INET
    addresses = list(_addresses(family))
    address = wanted or _on_the_way(family, group, port)
    for name, candidate in addresses:
        if name == wanted or candidate == _plain(address):
            return _described(name, candidate)
    version = "IPv6" if family == socket.AF_INET6 else "IPv4"
    listed = ", ".join(f"{name} ({address})" for name, address in addresses) or "none"
    raise InvalidConfiguration(
        f"{wanted or address!r:.80} is no interface with an address of {version}; there are: "
        f"{listed:.400}"
    )


def multicast_sender(interface: Interface, *, ttl: int = 1, loop: bool = True) -> socket.socket:
    """A socket that sends to groups on an interface, from a port of its own."""
    made = socket.socket(interface.family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        if interface.family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, interface.index)
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, ttl)
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, loop)
            made.bind((interface.address, 0, 0, interface.index))
        else:
            way = struct.pack("=8xi", interface.index)
            made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, way)
            made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
            made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, loop)
            made.bind((interface.address, 0))
    except BaseException:
        made.close()
        raise
    return made


def _on_the_way(family: socket.AddressFamily, group: str, port: int) -> str:
    with closing(socket.socket(family, socket.SOCK_DGRAM)) as trial:
        try:
            trial.connect((group, port))
        except OSError as error:
            raise InvalidConfiguration(
                f"there is no way to {group} ({error.strerror}); name the interface"
            ) from None
        return str(trial.getsockname()[0])


def _plain(address: str) -> str:
    """An address as `_addresses` writes it; a name stays as it is."""
    try:
        return str(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        return address


def _described(name: str, address: str) -> Interface:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asking:
        request = _IFREQ.pack(name.encode())
        (flags,) = struct.unpack_from("=16xH", fcntl.ioctl(asking, _SIOCGIFFLAGS, request))
        (most,) = struct.unpack_from("=16xi", fcntl.ioctl(asking, _SIOCGIFMTU, request))
    if not flags & _IFF_UP:
        raise InvalidConfiguration(f"the interface {name} is down; ip link set {name} up")
    loopback = bool(flags & _IFF_LOOPBACK)
    return Interface(name, socket.if_nametoindex(name), address, loopback, most)


def _addresses(family: socket.AddressFamily) -> Iterator[tuple[str, str]]:
    """Interfaces with their addresses, those that reach furthest first."""
    if family == socket.AF_INET6:
        addresses = []
        for line in Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines():
            packed, _, _, _, _, name = line.split()
            address = ipaddress.IPv6Address(int(packed, 16))
            addresses.append((address.is_link_local, name, str(address)))
        yield from ((name, address) for _, name, address in sorted(addresses))
        return
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asking:
        room = array("B", bytes(_MAX_ADDRESSES * _IFREQ.size))
        request = struct.pack("@iP", len(room), room.buffer_info()[0])
        used: int = struct.unpack("@iP", fcntl.ioctl(asking, _SIOCGIFCONF, request))[0]
    listed = room.tobytes()
    for place in range(0, used, _IFREQ.size):
        name = listed[place : place + 16].partition(b"\0")[0].decode()
        yield name.partition(":")[0], socket.inet_ntoa(listed[place + 20 : place + 24])


# --- addresses of groups ---


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
        """The address of a group."""
        return str(self._first + (plan + group) % self._size)
