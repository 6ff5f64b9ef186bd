"""Records that hold a secret are printed without it: in logs, tracebacks and notebooks."""

from __future__ import annotations

from typing import Any

__all__ = ["shown_without"]


def shown_without(record: Any, *secrets: str) -> str:
    """The `repr` of a dataclass, a named tuple or a struct without some fields.

    >>> from typing import NamedTuple
    >>> class Door(NamedTuple):
    ...     url: str
    ...     token: str
    >>> shown_without(Door("palio://localhost", "eyJh..."), "token")
    "Door(url='palio://localhost', token=...)"
    """
    names: tuple[str, ...] = type(record).__match_args__
    fields = [
        f"{name}=..." if name in secrets and value else f"{name}={value!r}"
        for name, value in ((name, getattr(record, name)) for name in names)
    ]
    return f"{type(record).__name__}({', '.join(fields)})"
