"""`GroupSockets`: the `MulticastPort` of a server, over UDP.

```
  Host --cast--> seal --> one socket that sends on an interface, from a port of its own
  Host --tune--> Memberships: sockets that join and are never read
  Host <--datagram-- Server <-- open <-- one socket that receives what they have joined
```

1. A datagram that cannot be sent at once is dropped and counted: receivers request it.
2. Reading is bounded as it is for connections (see `scheduler`). Meanwhile datagrams are in the
   system's buffer; those that do not fit are lost and counted.
3. Where other brokers on the machine receive too, a broker's own datagrams return to it. They are
   dropped unopened.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import struct
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, Protocol

from palio import files
from palio.errors import InvalidConfiguration
from palio.multicast.datagrams import Datagram
from palio.protocol.datagrams import SALT_BYTES, UNSHARED, GroupKey, Opener, Sealer
from palio.protocol.limits import MAX_MTU
from palio.server.counters import Datagrams
from palio.server.limits import BUFFER_BYTES
from palio.server.multicast.interfaces import (
    GroupAddresses,
    Interface,
    find_interface,
    multicast_sender,
)
from palio.server.scheduler import LoopScheduler
from palio.server.settings import Multicast

_SO_MEMINFO: Final = 55
_DROPS: Final = struct.Struct("=32xI")
"""The ninth number of `SO_MEMINFO`."""


class Owner(Protocol):
    """The receiver of datagrams."""

    scheduler: LoopScheduler

    def receive_datagram(self, datagram: Datagram) -> None:
        """Process a datagram."""


class GroupSockets:
    """The sockets of one broker, open until `close`."""

    def __init__(
        self,
        groups: GroupAddresses,
        interface: Interface,
        port: int,
        sealer: Sealer,
        opener: Opener,
        *,
        ttl: int = 1,
        loop: bool = True,
        is_lost: Callable[[], bool] | None = None,
    ) -> None:
        self.interface = interface
        self.counters = Datagrams()
        self._groups = groups
        self._port = port
        self._sealer = sealer
        self._opener = opener
        self._is_lost = is_lost
        """For measurements: makes it drop datagrams as if they were lost."""
        self._memberships = Memberships(interface)
        self._joined: dict[int, tuple[int, ...]] = {}  # groups by plan
        self._sending = multicast_sender(interface, ttl=ttl, loop=loop)
        self._own = self._sending.getsockname()
        try:
            with closing(multicast_sender(interface)) as trial:
                trial.connect((groups.address(0, 0), port))  # fails if there is no route
            self._receiving = _listener(interface, port)
        except BaseException:
            self._sending.close()
            raise
        self._owner: Owner | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_reading = self._is_behind = False

    def start(self, owner: Owner) -> None:
        """Begin to read, on the loop that is running."""
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._read_or_not()

    def close(self) -> None:
        """Leave all groups, and send and receive nothing more. May be called twice."""
        if self._loop is not None:
            self._loop.remove_reader(self._receiving)
        self._owner = self._loop = None
        self._memberships.close()
        self._receiving.close()
        self._sending.close()

    # --- `MulticastPort` ---

    def cast(self, datagram: Datagram) -> None:
        """Send to a group (rule 1)."""
        counters = self.counters
        to = self._groups.address(datagram.plan, datagram.group), self._port
        for piece in self._sealer.seal(datagram):
            try:
                self._sending.sendto(piece, to)
            except OSError:  # no buffer space, or no route
                counters.unsent += 1
            else:
                counters.sent += 1
                counters.sent_bytes += len(piece)

    def tune(self, plan: int, groups: tuple[int, ...]) -> None:
        """Join these groups of a plan, and leave its others, step by step (`proceed`)."""
        self._joined[plan] = groups
        if not groups:
            del self._joined[plan]
        address = self._groups.address
        self._memberships.aim(
            {address(number, group) for number, joined in self._joined.items() for group in joined}
        )
        self._fall_behind()

    # --- receiving ---

    def proceed(self) -> None:
        """Join, leave and read for as long as this turn allows (rule 2)."""
        self._is_behind = False
        if self._owner is None:
            return
        scheduler = self._owner.scheduler
        until = scheduler.slice()
        is_all = False
        try:
            is_all = until > 0.0 and self._advance(until, self._owner)
        finally:
            if until:
                scheduler.spend(until)
            if is_all:
                self._read_or_not()
            else:
                self._fall_behind()

    def _advance(self, until: float, owner: Owner) -> bool:
        """Join, leave and read; return whether all was done in time."""
        clock, counters, now = owner.scheduler.clock, self.counters, asyncio.get_running_loop().time
        while self._memberships.step():
            if clock() > until:
                return False
        while self._owner is owner:  # a datagram may end it
            try:
                piece, sender = self._receiving.recvfrom(MAX_MTU)
            except BlockingIOError:
                return True
            except OSError:  # an error of the interface, which comes once
                continue
            if sender == self._own:
                continue
            if self._is_lost is None or not self._is_lost():
                counters.received += 1
                counters.received_bytes += len(piece)
                datagram = self._opener.open(piece, now())
                if datagram is not None:
                    owner.receive_datagram(datagram)
            if clock() > until:
                return False
        return True

    def _fall_behind(self) -> None:
        if self._owner is not None and not self._is_behind:
            self._is_behind = True
            self._read_or_not()
            self._owner.scheduler.wait(self)

    def _read_or_not(self) -> None:
        """Watch the socket, unless a turn is scheduled already."""
        wanted = not self._is_behind
        if self._loop is None or self._is_reading is wanted:
            return
        self._is_reading = wanted
        if wanted:
            self._loop.add_reader(self._receiving, self.proceed)
        else:
            self._loop.remove_reader(self._receiving)

    # --- figures ---

    @property
    def is_settled(self) -> bool:
        """True if no address is left to join or leave."""
        return self._memberships.is_settled

    @property
    def joined(self) -> int:
        """Addresses that are joined."""
        return len(self._memberships)

    @property
    def unjoined(self) -> int:
        """Addresses that could not be joined."""
        return self._memberships.failed

    @property
    def buffer_bytes(self) -> int:
        """Bytes that the system buffers for this broker until they are read."""
        return self._receiving.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)

    @property
    def dropped(self) -> dict[str, int]:
        """Datagrams lost here, by reason: not sent, overflown in the buffer, or not opened."""
        meminfo = self._receiving.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _DROPS.size)
        (overflown,) = _DROPS.unpack(meminfo)
        return {"unsent": self.counters.unsent, "overflown": overflown, **self._opener.dropped}


def _listener(interface: Interface, port: int) -> socket.socket:
    """Open a socket that receives all datagrams to a port on an interface."""
    listener = socket.socket(interface.family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.name.encode())
        if interface.family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(("", port))
    except BaseException:
        listener.close()
        raise
    return listener


# --- memberships ---
#
# Linux lets a socket join 20 addresses (net.ipv4.igmp_max_memberships), and delivers datagrams to
# any address that the machine has joined to every socket bound to the port. So sockets that are
# never read join, and the one that is read receives all.


class Memberships:
    """Addresses joined on one interface."""

    def __init__(self, interface: Interface) -> None:
        self._index = interface.index
        self._family = interface.family
        self._joined: dict[str, socket.socket] = {}
        self._holders: dict[socket.socket, int] = {}  # number of addresses by socket
        self._to_leave: list[str] = []
        self._to_join: list[str] = []
        self.failed = 0
        """Addresses of the last `aim` that could not be joined."""

    def __len__(self) -> int:
        return len(self._joined)

    @property
    def sockets(self) -> int:
        """The number of sockets in use."""
        return len(self._holders)

    def aim(self, wanted: set[str]) -> None:
        """Set the addresses to be joined, and no others; `step` joins and leaves them."""
        self._to_leave = list(self._joined.keys() - wanted)
        self._to_join = sorted(wanted - self._joined.keys(), reverse=True)
        self.failed = 0

    @property
    def is_settled(self) -> bool:
        """True if there is nothing to do."""
        return not self._to_leave and not self._to_join

    def step(self) -> bool:
        """Leave or join one address; return False if there was none."""
        if self._to_leave:
            self._leave(self._to_leave.pop())
        elif self._to_join:
            self.failed += not self._join(self._to_join.pop())
        else:
            return False
        return True

    def close(self) -> None:
        """Leave all addresses."""
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
        except OSError:  # the socket is full, or the interface is gone
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


# --- settings ---

logger: Final = logging.getLogger("palio.server")


def open_groups(
    settings: Multicast, broker: str, is_lost: Callable[[], bool] | None = None
) -> GroupSockets | None:
    """Open the sockets for groups; None without multicast. Raise `InvalidConfiguration` if they
    cannot be opened.
    """
    if not settings.groups:
        return None
    groups = GroupAddresses(settings.groups)
    try:
        interface = find_interface(settings.interface, str(groups.network[0]), settings.port)
    except InvalidConfiguration as error:
        raise InvalidConfiguration(f"multicast.interface: {error}") from None
    if settings.mtu > interface.payload_bytes:
        raise InvalidConfiguration(
            f"multicast.mtu: {interface.name} takes at most {interface.payload_bytes} bytes in "
            f"a packet, and {settings.mtu} are set"
        )
    key = _key(settings, interface)
    try:
        opened = GroupSockets(
            groups,
            interface,
            settings.port,
            Sealer(key, settings.mtu, salt=secrets.token_bytes(SALT_BYTES)),
            Opener(key, broker),
            ttl=settings.ttl,
            loop=settings.loop,
            is_lost=is_lost,
        )
    except OSError as error:
        raise InvalidConfiguration(
            f"multicast.port, multicast.interface: {settings.port} on {interface.name} "
            f"({interface.address}): {error.strerror or error}"
        ) from None
    except ImportError as error:
        raise InvalidConfiguration(
            f"multicast.groups needs a package that is not installed ({error}); "
            "pip install 'palio[server]'"
        ) from None
    details = {
        "interface": interface.name,
        "address": interface.address,
        "buffer_bytes": opened.buffer_bytes,
    }
    logger.info("multicast_opened", extra={"details": details})
    return opened


def _key(settings: Multicast, interface: Interface) -> GroupKey:
    if not settings.key:
        if interface.is_loopback:
            return UNSHARED
        raise InvalidConfiguration(
            f"multicast.key: other machines receive datagrams on {interface.name}; name a file "
            "with a key, the same for all brokers (openssl rand -hex 32), or set "
            "multicast.interface = 127.0.0.1"
        )
    return read_group_key(Path(settings.key))


def read_group_key(path: Path) -> GroupKey:
    """Read the key that all brokers share."""
    return GroupKey.read(files.read_secret(path, "the group key").decode())
