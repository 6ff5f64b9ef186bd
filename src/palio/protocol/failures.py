"""Errors as data, and back: how one end's error is told to the other."""

from __future__ import annotations

from palio import errors
from palio.errors import PalioError
from palio.protocol.messages import Failure

__all__ = ["class_of", "error_of", "failure"]


def failure(error: Exception) -> Failure:
    """An error as data."""
    details = {
        name: value
        for name, value in vars(error).items()
        if isinstance(value, str | int | float | bool) or value is None
    }
    return Failure(type(error).__name__, str(error), details)


def class_of(kind: str) -> type[PalioError]:
    """The class of `palio.errors` that a failure names; `PalioError` if it is none of these.

    >>> class_of("NotPermitted").__name__, class_of("annotations").__name__
    ('NotPermitted', 'PalioError')
    """
    found = getattr(errors, kind, PalioError)
    return found if isinstance(found, type) and issubclass(found, PalioError) else PalioError


def error_of(failure: Failure) -> PalioError:
    """The error that a broker told of, of the class that it named.

    >>> error_of(Failure("NotPermitted", "not for you"))
    NotPermitted('not for you')
    """
    kind = class_of(failure.kind)
    error: PalioError = kind.__new__(kind)
    error.__dict__.update(failure.details)
    # Classes take different arguments, and the broker has put them into words already.
    error.args = (failure.message,)
    return error
