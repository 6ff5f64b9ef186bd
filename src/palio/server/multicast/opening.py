"""Opens the multicast way of a broker as its settings say."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

from palio import files
from palio.errors import InvalidConfiguration, InvalidInput, UnsafeFile
from palio.protocol.datagrams import SALT_BYTES, UNSHARED, GroupKey, Opener, Sealer
from palio.server.multicast.interfaces import GroupAddresses, Interface, find_interface
from palio.server.multicast.sockets import GroupSockets
from palio.server.settings import Multicast

__all__ = ["open_groups"]

logger: Final = logging.getLogger("palio.server")


def open_groups(
    settings: Multicast, broker: str, is_lost: Callable[[], bool] | None = None
) -> GroupSockets | None:
    """The sockets for groups; None if there shall be no multicast. `InvalidConfiguration` says what
    stands in the way.
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
    logger.info("multicast is open", extra={"details": details})
    return opened


def _key(settings: Multicast, interface: Interface) -> GroupKey:
    if not settings.key:
        if interface.is_loopback:
            return UNSHARED
        raise InvalidConfiguration(
            f"multicast.key: other machines hear what is sent on {interface.name}; name a file "
            "with a key, the same for all brokers (openssl rand -hex 32), or set "
            "multicast.interface = 127.0.0.1"
        )
    try:
        return GroupKey.read(files.read_secret(Path(settings.key), "the group key").decode())
    except (OSError, UnicodeDecodeError, UnsafeFile, InvalidInput, InvalidConfiguration) as error:
        raise InvalidConfiguration(f"multicast.key: {error}") from None
