"""Errors as answers of HTTP: a status, and a JSON object with problem, place and remedy."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import JSONResponse

from palio.errors import (
    Closed,
    GroupElsewhere,
    InvalidInput,
    LimitExceeded,
    NotAdvertised,
    NotAuthenticated,
    NotPermitted,
    NotStored,
    PalioError,
    ParseError,
    SubscriptionEnded,
    Unreachable,
)
from palio.protocol.messages import Failure
from palio.server.http.access import Encoded
from palio.server.local_client import Declined


class NotFound(PalioError):
    """There is nothing at this address, or nothing of the caller's."""


class MethodNotAllowed(PalioError):
    """There is something at this address, which does not take this method."""


class Misdirected(PalioError):
    """A request was sent to a name that is not this broker's."""


_STATUSES: Final[dict[type[BaseException], int]] = {
    NotFound: 404,
    Misdirected: 421,
    NotAuthenticated: 401,
    NotPermitted: 403,
    NotAdvertised: 409,
    GroupElsewhere: 409,
    SubscriptionEnded: 409,
    LimitExceeded: 413,
    Encoded: 415,
    MethodNotAllowed: 405,
    InvalidInput: 400,
    NotStored: 503,
    Unreachable: 503,
    Closed: 503,
}
"""The first that fits counts."""


def status_of(kind: type[BaseException]) -> int:
    """The status for a class of error.

    >>> status_of(ParseError), status_of(PalioError)
    (400, 500)
    """
    return next(
        (status for error_kind, status in _STATUSES.items() if issubclass(kind, error_kind)), 500
    )


def status_of_error(error: PalioError) -> int:
    """The status for an error, also for one of the node's."""
    return status_of(error.type if isinstance(error, Declined) else type(error))


def described(error: PalioError | Failure) -> dict[str, Any]:
    """An error as JSON."""
    if isinstance(error, Failure):
        return {"type": error.kind, "message": error.message, **error.details}
    if isinstance(error, Declined):
        return {"type": error.kind, "message": str(error), **error.details}
    fields: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, ParseError):
        fields |= {"line": error.line, "column": error.column}
    if isinstance(error, LimitExceeded):
        fields |= {"limit": error.limit, "maximum": error.maximum}
    return fields


def answer(error: PalioError) -> JSONResponse:
    """The response for an error."""
    status = status_of_error(error)
    headers = {"www-authenticate": "Bearer"} if status == 401 else None
    return JSONResponse({"error": described(error)}, status, headers)
