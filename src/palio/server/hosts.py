"""`Hosts`: machines that settings list, by name, by address, or as "public". `Origins`: web pages.

| entry | stands for |
|---|---|
| `public` | every address of the public internet, under whatever name |
| `hooks.example` | this name, whatever its address |
| `*.example` | every name that ends so, whatever its address |
| `10.1.0.0/16`, `::1` | these addresses, under whatever name |
| `*` | everything |
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address
from typing import Final, TypeAlias

from palio.errors import InvalidConfiguration

Address: TypeAlias = IPv4Address | IPv6Address

PUBLIC: Final = "public"
"""The entry for the public internet."""

_NAME: Final = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_.-]{0,252})")

_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
"""All that is routed on the public internet; what is outside is local, reserved, or carries an
address of IPv4."""

_PROTOCOLS: Final = ipaddress.IPv4Network("192.0.0.0/24")
"""Protocol assignments: never a host of the public internet, though older Pythons think so."""

_PLATFORM: Final = IPv4Address("168.63.129.16")
"""The metadata service of Azure, which is among public addresses and is reached from within."""

_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""NAT64: the last 32 bits are an address of IPv4."""

_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")
"""The oldest way to write an address of IPv4 as one of IPv6."""


class Hosts:
    """Machines that are meant by a setting.

    >>> hosts = Hosts(["public", "*.corp.example", "10.1.0.0/16"])
    >>> hosts.allow("any.example", "93.184.216.34"), hosts.allow("any.example", "127.0.0.1")
    (True, False)
    >>> hosts.allow("a.corp.example", "127.0.0.1"), hosts.allow("any.example", "10.1.2.3")
    (True, True)
    """

    def __init__(self, entries: Iterable[str]) -> None:
        self._public = self._all = False
        self._names: set[str] = set()
        self._endings: tuple[str, ...] = ()
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        for entry in entries:
            self._enter(entry.strip().lower().rstrip("."))

    def allow(self, host: str, address: str) -> bool:
        """Return whether a host of this name at this address is meant."""
        return self._all or self.name(host) or self.contain(address)

    def name(self, host: str) -> bool:
        """Return whether a host is meant by its name, or by an address that is given as one."""
        name = host.lower().rstrip(".")
        if self._all or name in self._names or name.endswith(self._endings):
            return True
        return bool(self._networks) and self._within(address_of(name))

    def contain(self, address: str) -> bool:
        """Return whether a host is meant by its address."""
        host = address_of(address)
        return self._all or self._within(host) or (self._public and is_public(host))

    def _within(self, address: Address | None) -> bool:
        return address is not None and any(address in network for network in self._networks)

    def _enter(self, entry: str) -> None:
        if entry == "*":
            self._all = True
        elif entry == PUBLIC:
            self._public = True
        elif re.fullmatch(r"[0-9./]+|.*:.*", entry):
            try:
                self._networks.append(ipaddress.ip_network(entry.strip("[]")))
            except ValueError as error:
                raise InvalidConfiguration(f"{entry!r:.80}: {error}") from None
        elif _NAME.fullmatch(entry):
            if entry.startswith("*."):
                self._endings += (entry[1:],)
            else:
                self._names.add(entry)
        else:
            raise InvalidConfiguration(
                f'{entry!r:.80} is no host: give "public", a name, *.name, an address, a network '
                "such as 10.0.0.0/8, or *"
            )


def address_of(text: str) -> Address | None:
    """Parse an address of IPv4 or IPv6; None for a name; one within another is taken out.

    >>> address_of("::ffff:127.0.0.1"), address_of("localhost")
    (IPv4Address('127.0.0.1'), None)
    """
    try:
        address = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        within = address.ipv4_mapped or address.sixtofour
        if within is None and (
            address in _TRANSLATED or (address in _COMPATIBLE and int(address) > 0xFFFF)
        ):
            within = IPv4Address(int(address) & 0xFFFFFFFF)
        return within or address
    return address


def is_public(address: Address | None) -> bool:
    """Return whether an address is one of the public internet: it leads to no machine nearby.

    >>> [is_public(address_of(each)) for each in ("93.184.216.34", "169.254.169.254", "fd00::1")]
    [True, False, False]
    """
    if address is None or not address.is_global or address.is_multicast:
        return False
    if isinstance(address, IPv6Address):
        return address in _GLOBAL_UNICAST and address.teredo is None
    return not address.is_reserved and address not in _PROTOCOLS and address != _PLATFORM


_ORIGIN: Final = re.compile(
    r"https?://(\*\.)?([a-z0-9_]([a-z0-9_.-]{0,252})|\[[0-9a-f:.]+\])(:([0-9]{1,5}|\*))?"
)


class Origins:
    """Origins of web pages that a setting lists. A page's origin is scheme, name and port.

    >>> origins = Origins(["https://*.example", "http://localhost:*"])
    >>> [origins.allow(each) for each in ("https://app.example", "http://localhost:3000")]
    [True, True]
    >>> [origins.allow(each) for each in ("https://example", "https://app.example:8443", None)]
    [False, False, False]
    """

    def __init__(self, entries: Iterable[str]) -> None:
        patterns = []
        for entry in entries:
            if entry == "*":
                patterns.append(".*")
            elif _ORIGIN.fullmatch(entry.lower()):
                name, port, _ = re.escape(entry.lower()).partition(r":\*")
                patterns.append(name.replace(r"\*", "[a-z0-9_.-]+") + (":[0-9]+" if port else ""))
            else:
                raise InvalidConfiguration(
                    f"{entry!r:.80} is no origin; write scheme, name and port as in a browser: "
                    "https://app.example, https://*.example, http://localhost:*, or *"
                )
        self.pattern: Final = "|".join(patterns)
        """A regular expression that matches them; empty if there are none."""
        self._read = re.compile(self.pattern)

    def allow(self, origin: str | None) -> bool:
        """Return whether a page of this origin is meant."""
        return bool(self.pattern) and self._read.fullmatch(origin or "") is not None


NO_ORIGINS: Final = Origins(())
