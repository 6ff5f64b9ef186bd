"""What may be a time in seconds: a number with an end."""

from __future__ import annotations

from typing import Final

from palio.errors import InvalidInput
from palio.protocol.limits import MAX_SECONDS

__all__ = ["check_seconds"]

_YEARS: Final = round(MAX_SECONDS / (365 * 86_400))


def check_seconds(given: object, what: str, *, least: float = 0.0) -> float:
    """The time as a float, if it is one of at least `least`; `what` says which, for the error.

    >>> check_seconds(90, "lease_s")
    90.0
    >>> check_seconds(float("nan"), "lease_s")
    Traceback (most recent call last):
        ...
    palio.errors.InvalidInput: lease_s is nan; it is a number of seconds from 0 to 315360000 ...
    """
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if not is_number or not least <= given <= MAX_SECONDS:  # type: ignore[operator]  # a number
        raise InvalidInput(
            f"{what} is {given!r:.40}; it is a number of seconds from {least:g} to "
            f"{MAX_SECONDS:.0f} ({_YEARS} years, MAX_SECONDS)"
        )
    return float(given)  # type: ignore[arg-type]  # a number
