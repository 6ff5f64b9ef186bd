"""`Memberships`: the multicast addresses that this machine hears for a broker.

Linux lets a socket join 20 addresses (net.ipv4.igmp_max_memberships), and gives what comes for any
address that somebody has joined to every socket that is bound to the port. So sockets that are
never read join, and the one that is read hears all.
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

from palio.server.multicast.interfaces import Interface

__all__ = ["Memberships"]


class Memberships:
    """Addresses joined on one interface."""

    def __init__(self, interface: Interface) -> None:
        self._index = interface.index
        self._family = interface.family
        self._joined: dict[str, socket.socket] = {}
        self._holders: dict[socket.socket, int] = {}
        """The sockets that have joined, and how many addresses each."""
        self._to_leave: list[str] = []
        self._to_join: list[str] = []
        self.failed = 0
        """How many of the addresses that were last aimed at could not be joined."""

    def __len__(self) -> int:
        return len(self._joined)

    @property
    def sockets(self) -> int:
        """How many it takes."""
        return len(self._holders)

    def aim(self, wanted: set[str]) -> None:
        """These addresses shall be joined, and no others; `step` does it."""
        self._to_leave = list(self._joined.keys() - wanted)
        self._to_join = sorted(wanted - self._joined.keys(), reverse=True)
        self.failed = 0

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to do."""
        return not self._to_leave and not self._to_join

    def step(self) -> bool:
        """Leave or join one address; whether there was one."""
        if self._to_leave:
            self._leave(self._to_leave.pop())
        elif self._to_join:
            self.failed += not self._join(self._to_join.pop())
        else:
            return False
        return True

    def close(self) -> None:
        """Leave all."""
        for holder in self._holders:
            holder.close()
        self._holders.clear()
        self._joined.clear()
        self.aim(set())

    def _join(self, address: str) -> bool:
        emptiest = min(self._holders, key=self._holders.__getitem__, default=None)
        if emptiest is not None and self._joins(emptiest, address):
            return True
        try:
            fresh = socket.socket(self._family, socket.SOCK_DGRAM)
        except OSError:  # no more files
            return False
        if self._joins(fresh, address):
            return True
        fresh.close()
        return False

    def _joins(self, holder: socket.socket, address: str) -> bool:
        try:
            self._set(holder, address, is_member=True)
        except OSError:  # it has joined as many as it may; the interface is gone
            return False
        self._joined[address] = holder
        self._holders[holder] = self._holders.get(holder, 0) + 1
        return True

    def _leave(self, address: str) -> None:
        holder = self._joined.pop(address)
        self._holders[holder] -= 1
        if self._holders[holder]:
            with suppress(OSError):  # the interface is gone, and the membership with it
                self._set(holder, address, is_member=False)
        else:
            del self._holders[holder]
            holder.close()

    def _set(self, holder: socket.socket, address: str, *, is_member: bool) -> None:
        if self._family == socket.AF_INET6:
            request = socket.inet_pton(socket.AF_INET6, address) + struct.pack("=i", self._index)
            option = socket.IPV6_JOIN_GROUP if is_member else socket.IPV6_LEAVE_GROUP
            holder.setsockopt(socket.IPPROTO_IPV6, option, request)
        else:
            request = socket.inet_aton(address) + struct.pack("=4xi", self._index)
            option = socket.IP_ADD_MEMBERSHIP if is_member else socket.IP_DROP_MEMBERSHIP
            holder.setsockopt(socket.IPPROTO_IP, option, request)
