"""Errors as Arrow Flight tells them: the name of a class and a text, never where in the code.

Flight adds a traceback to whatever is raised that is none of its own errors, so all that leaves a
call is one of those. Its codes are few: `InvalidInput` and its kind arrive as `FlightServerError`
(UNKNOWN in gRPC), and the text begins with the name of the class.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Concatenate, Final, ParamSpec, TypeVar

import pyarrow as pa
import pyarrow.flight as pf

from palio.errors import NotAuthenticated, NotPermitted, PalioError, Unreachable
from palio.server.local_client import Declined

__all__ = ["telling", "told"]

logger: Final = logging.getLogger("palio.server")

_SAID_CHARS: Final = 1_000
"""The characters of an error's text: it travels in headers, three times over."""

_ERRORS: Final[dict[type[PalioError], type[pf.FlightError]]] = {
    NotAuthenticated: pf.FlightUnauthenticatedError,
    NotPermitted: pf.FlightUnauthorizedError,
    Unreachable: pf.FlightUnavailableError,
}

_Self = TypeVar("_Self")
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def told(
    call: Callable[Concatenate[_Self, _Given], _Result],
) -> Callable[Concatenate[_Self, _Given], _Result]:
    """A method whose every error is one of Flight's."""

    @functools.wraps(call)
    def guarded(self: _Self, /, *given: _Given.args, **named: _Given.kwargs) -> _Result:
        with telling():
            return call(self, *given, **named)

    return guarded


@contextmanager
def telling() -> Iterator[None]:
    """Every error that leaves the block is one of Flight's."""
    try:
        yield
    except pf.FlightError:
        raise
    except PalioError as error:
        raise _translated(error) from None
    except pa.ArrowException as error:  # of the client's stream: Arrow could not read it
        raise pf.FlightServerError(f"InvalidInput: {error}"[:_SAID_CHARS]) from None
    except Exception:
        logger.exception("a call of Flight failed")
        raise pf.FlightServerError("the broker failed on this call; its log says how") from None


def _translated(error: PalioError) -> pf.FlightError:
    kind = error.type if isinstance(error, Declined) else type(error)
    said = f"{kind.__name__}: {error}"[:_SAID_CHARS]
    for known, flights in _ERRORS.items():
        if issubclass(kind, known):
            return flights(said)
    return pf.FlightServerError(said)
