"""The outcome of an evaluation: a value, and perhaps an error beside it (CESQL 3.3).

Every CESQL operator and function is total: where it errs it still returns a value. `Result`
carries both. Inside the evaluator an error travels as the exception `Failed`, because evaluation
stops at the first one ("fail fast", CESQL 4.1, which 1.2 asks of an engine that filters).
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

__all__ = ["Error", "ErrorKind", "Failed", "Result", "Value"]

Value: TypeAlias = bool | int | str
"""The three types of CESQL: Boolean, Integer (32 bits, signed) and String."""

ErrorKind: TypeAlias = Literal[
    "parse",
    "math",
    "cast",
    "missingFunction",
    "functionEvaluation",
    "missingAttribute",
    "generic",
]
"""The error types of CESQL 3.3, spelled as its conformance tests spell them."""


class Error(NamedTuple):
    """The first error of an evaluation: its kind for programs, a message for people."""

    kind: ErrorKind
    message: str


class Result(NamedTuple):
    """The value of an expression, and the error that occurred on the way or None.

    >>> from palio.language import cesql
    >>> value, error = cesql.evaluate("5 / 0", {})
    >>> value, error.kind
    (0, 'math')
    """

    value: Value
    error: Error | None = None

    @property
    def matches(self) -> bool:
        """Whether an event with this result passes a filter: true, and no error (CESQL 1.2)."""
        return self.value is True and self.error is None


class Failed(Exception):
    """An error on its way up.

    `value` is what the failing operator itself returns, or None for the zero value of its type.
    """

    def __init__(self, kind: ErrorKind, message: str, value: Value | None = None) -> None:
        super().__init__(message)
        self.error = Error(kind, message)
        self.value = value
