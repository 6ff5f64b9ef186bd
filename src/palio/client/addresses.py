"""Where brokers are: `palio://host:port`, or `palios://` with TLS."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from palio.errors import InvalidConfiguration

__all__ = ["DEFAULT_PORT", "TLS", "Address", "parse_address", "tls_context"]

DEFAULT_PORT: Final = 7400

TLS: TypeAlias = ssl.SSLContext | str | Path | bool | None
"""A context, the file of the authorities to trust, True for those of the system, or none."""


class Address(NamedTuple):
    """A broker's address."""

    host: str
    port: int
    is_secure: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"palio{'s' if self.is_secure else ''}://{host}:{self.port}"


def parse_address(url: str) -> Address:
    """An address from its text.

    >>> print(parse_address("palio://localhost"))
    palio://localhost:7400
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidConfiguration(f"{url!r:.200} is no address of a broker: {error}") from None
    if parts.scheme not in ("palio", "palios") or not parts.hostname:
        raise InvalidConfiguration(
            f"{url!r:.200} is no address of a broker; write palio://host:{DEFAULT_PORT}, "
            "or palios:// for TLS"
        )
    return Address(parts.hostname, DEFAULT_PORT if port is None else port, parts.scheme == "palios")


def tls_context(tls: TLS, *, is_secure: bool) -> ssl.SSLContext | None:
    """How to secure a connection to an address; None where it is to be open."""
    if tls is None and not is_secure:
        return None
    if tls is False:
        if is_secure:
            raise InvalidConfiguration("palios:// is TLS, and tls=False asks for none")
        return None
    if isinstance(tls, ssl.SSLContext):
        return tls
    authorities = None if tls is None or tls is True else str(tls)
    try:
        return ssl.create_default_context(cafile=authorities)
    except OSError as error:
        raise InvalidConfiguration(
            f"cannot read the authorities in {authorities!r}: {error}"
        ) from None
