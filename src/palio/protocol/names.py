"""Names of brokers, clients, durable subscriptions, principals and incarnations.

Names are joined with `/` (`owner/incarnation`, `owner/durable`), shown on terminals, written to
logs and compared byte by byte. So one rule holds for all, and each entry point checks it: settings,
tokens and certificates, clients and other brokers.
"""

from __future__ import annotations

from typing import Final

from palio.errors import InvalidInput, LimitExceeded
from palio.protocol.limits import MAX_NAME_BYTES

_RULE: Final = (
    f"a name has 1 to {MAX_NAME_BYTES} bytes, all printing, no / and no \\, no blank at its ends, "
    "and is neither . nor .."
)
"""The rules for a name, for an error about another."""


def check_name(name: object, what: str) -> str:
    """Return a valid name; `what` is its bearer in the error about an invalid one.

    >>> check_name("north-1.example", "a broker")
    'north-1.example'
    >>> check_name("../etc", "a broker")
    Traceback (most recent call last):
        ...
    palio.errors.InvalidInput: a broker cannot be called '../etc': a name has 1 to 200 bytes, ...
    """
    if not isinstance(name, str):
        raise InvalidInput(f"{what} is called by a text, not by {type(name).__name__}: {_RULE}")
    is_plain = name.isprintable() and name == name.strip() and name not in ("", ".", "..")
    if not is_plain or "/" in name or "\\" in name:
        raise InvalidInput(f"{what} cannot be called {name!r:.80}: {_RULE}")
    size = len(name.encode())  # what prints has no surrogates
    if size > MAX_NAME_BYTES:
        raise LimitExceeded(
            f"the name of {what} in bytes",
            limit="MAX_NAME_BYTES",
            maximum=MAX_NAME_BYTES,
            actual=size,
        )
    return name
