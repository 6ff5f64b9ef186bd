"""Errors as data, and back: how one end's error is told to the other."""

from __future__ import annotations

from palio import errors
from palio.errors import PalioError
from palio.node.messages import Failure

__all__ = ["error_of", "failure"]


def failure(error: Exception) -> Failure:
    """An error as data."""
    details = {
        name: value
        for name, value in vars(error).items()
        if isinstance(value, str | int | float | bool) or value is None
    }
    return Failure(type(error).__name__, str(error), details)


def error_of(failure: Failure) -> PalioError:
    """The error that a broker told of, of the class that it named.

    >>> error_of(Failure("NotPermitted", "not for you"))
    NotPermitted('not for you')
    """
    kind = getattr(errors, failure.kind, PalioError)
    if not (isinstance(kind, type) and issubclass(kind, PalioError)):
        kind = PalioError
    error: PalioError = kind.__new__(kind)
    error.__dict__.update(failure.details)
    # Classes take different arguments, and the broker has put them into words already.
    error.args = (failure.message,)
    return error
