"""How connections to brokers are secured."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TypeAlias

from palio.errors import InvalidConfiguration

__all__ = ["TLS", "tls_context"]

TLS: TypeAlias = ssl.SSLContext | str | Path | bool | None
"""A context, the file of the authorities to trust, True for those of the system, or none."""


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
