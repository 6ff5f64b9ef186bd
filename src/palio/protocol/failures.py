"""Convert errors to data and back, so that one end can report its error to the other."""

from __future__ import annotations

from typing import TypeGuard

from palio import errors
from palio.errors import (
    DamagedFrame,
    IllegalMessage,
    InvalidInput,
    LimitExceeded,
    NotAuthenticated,
    NotPermitted,
    PalioError,
    Unreachable,
)
from palio.protocol.messages import Bye, Failure


def failure(error: Exception) -> Failure:
    """Encode an error as data."""
    details = {
        name: value
        for name, value in vars(error).items()
        if isinstance(value, str | int | float | bool) or value is None
    }
    return Failure(type(error).__name__, str(error), details)


def class_of(kind: str) -> type[PalioError]:
    """Return the class of `palio.errors` that a failure names; `PalioError` if unknown.

    >>> class_of("NotPermitted").__name__, class_of("annotations").__name__
    ('NotPermitted', 'PalioError')
    """
    # The other end chose the name: it may be that of a module, or of no error.
    named = getattr(errors, kind, PalioError)
    return named if isinstance(named, type) and issubclass(named, PalioError) else PalioError


def error_of(failure: Failure) -> PalioError:
    """Decode the error that a broker reported, with the class that it named.

    >>> error_of(Failure("NotPermitted", "not for you"))
    NotPermitted('not for you')
    """
    kind = class_of(failure.kind)
    error: PalioError = kind.__new__(kind)
    error.__dict__.update(failure.details)
    # Constructors differ between classes, and the message already contains their arguments.
    error.args = (failure.message,)
    return error


def farewell(bye: Bye) -> PalioError:
    """Return the reason for which the other end closed the connection, as an error.

    >>> farewell(Bye("NotAuthenticated", "the token has expired"))
    NotAuthenticated('the token has expired')
    >>> farewell(Bye("closed", "it shuts down"))
    Unreachable('the broker closed the session: it shuts down')
    """
    if hasattr(errors, bye.code):
        return error_of(Failure(bye.code, bye.reason))
    return Unreachable(f"the broker closed the session: {bye.reason or bye.code}")


def is_final(error: Exception) -> TypeGuard[PalioError]:
    """Return whether the next attempt to connect would meet the same error.

    >>> is_final(NotAuthenticated("who are you?")), is_final(ConnectionRefusedError())
    (True, False)
    """
    final = NotAuthenticated | NotPermitted | IllegalMessage | InvalidInput
    return isinstance(error, final) and not isinstance(error, DamagedFrame | LimitExceeded)
