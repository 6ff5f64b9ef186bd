"""Every exception that Palio raises on purpose, and nothing else.

A message has the problem, its place, and a remedy. The classes are few, so that a caller can decide
by type; the details are attributes, so that a program need not parse messages.

docs/reference/api.md lists the cause and the remedy of each; a test compares them.
"""

from __future__ import annotations

__all__ = [
    "Closed",
    "DamagedFrame",
    "FileDamaged",
    "GroupElsewhere",
    "HandlerFailed",
    "IllegalMessage",
    "InvalidBinding",
    "InvalidConfiguration",
    "InvalidEvent",
    "InvalidFilter",
    "InvalidInput",
    "JournalDamaged",
    "LimitExceeded",
    "NoAnswer",
    "NotAdvertised",
    "NotAuthenticated",
    "NotPermitted",
    "NotStored",
    "NotSupported",
    "PalioError",
    "ParseError",
    "SubscriptionEnded",
    "Unreachable",
    "UnsafeFile",
    "Unsettled",
]


class PalioError(Exception):
    """The root of the tree: `except PalioError` catches whatever Palio raises on purpose."""


class InvalidInput(PalioError, ValueError):
    """Something handed in from outside is wrong; nothing was changed by the call."""


class ParseError(InvalidInput):
    """A text could not be read.

    >>> import palio
    >>> try:
    ...     palio.parse("price < ")
    ... except palio.errors.ParseError as error:
    ...     print(error.line, error.column)
    1 9
    """

    def __init__(
        self,
        problem: str,
        *,
        text: str,
        line: int,
        column: int,
        offending: str = "",
        expected: tuple[str, ...] = (),
        hint: str = "",
    ) -> None:
        self.problem = problem
        self.text = text
        self.line = line
        self.column = column
        self.offending = offending
        self.expected = expected
        self.hint = hint
        """The words to write instead, if known; they are shown rather than all of `expected`."""
        super().__init__(self._render())

    def _render(self) -> str:
        parts = [f"line {self.line}, column {self.column}: {self.problem}"]
        if self.hint:
            parts.append(self.hint)
        elif self.expected:
            parts.append(f"expected {', '.join(self.expected)}")
        message = "; ".join(parts)
        lines = self.text.split("\n")
        if not 1 <= self.line <= len(lines):
            return message
        shown, caret = _window(lines[self.line - 1], self.column)
        return f"{message}\n  {shown}\n  {' ' * caret}^"


class InvalidFilter(InvalidInput):
    """A filter that can mean nothing: a mixed list, a null operand, an unknown function."""


class InvalidEvent(InvalidInput):
    """An event, or one value in it, does not fit the data model."""


class InvalidBinding(InvalidInput):
    """A parameter is missing, is not one of the filter's, or has a value of no use to it."""

    def __init__(self, message: str, *, name: str) -> None:
        self.name = name
        super().__init__(message)


class InvalidConfiguration(InvalidInput):
    """A setting that nobody knows, or a value that it cannot have; the message names its origin."""


class FileDamaged(InvalidInput):
    """A saved index or set is not what was written; the message names the file."""


class UnsafeFile(InvalidInput):
    """A path is a link where Palio would write, or a file with a secret is open to others."""


class LimitExceeded(InvalidInput):
    """Something is larger than a named limit (`palio.model.limits`)."""

    def __init__(
        self,
        what: str,
        *,
        limit: str,
        maximum: int,
        actual: int | None = None,
        remedy: str = "make it smaller or split it",
    ) -> None:
        self.limit = limit
        self.maximum = maximum
        self.actual = actual
        count = "" if actual is None else f" ({actual} found)"
        super().__init__(f"{what} exceeds {limit} = {maximum}{count}; {remedy}")


class NotSupported(InvalidInput):
    """The routing algorithm of the brokers does not do this; the message names those that do."""


class NotAuthenticated(PalioError):
    """A client or broker has shown no valid credential: it is missing, expired or revoked."""


class NotPermitted(PalioError):
    """The principal is known, and its grants do not go so far."""


class NotAdvertised(PalioError):
    """Events were not published, as no advertisement of their publisher announces them. `count` is
    their number among the events sent together; the others are published.
    """

    def __init__(self, whose: str, *, count: int, of: int) -> None:
        self.count = count
        self.of = of
        super().__init__(
            f"{count} of {of} events were not published, as no advertisement of {whose} at this "
            "broker announces them; advertise before you publish, in the same session or under the "
            "same identity at the same broker"
        )


class GroupElsewhere(PalioError):
    """A group of consumers is at another broker, `broker`, whose address is `url`, empty if it has
    announced none: all consumers of a group connect to its home.
    """

    def __init__(self, subscription: str, *, broker: str, url: str) -> None:
        self.broker = broker
        self.url = url
        super().__init__(
            f"the group {subscription!r} is at broker {broker!r}; connect to "
            f"{url or 'that broker'}, or wait until it is detected as down"
        )


class SubscriptionEnded(PalioError):
    """A subscription receives nothing more, though who made it has not unsubscribed: another who
    acts under the same identity has cancelled it, it is durable and was taken over elsewhere, or
    it has waited its time and nobody offers what it wants.
    """


class Unreachable(PalioError, ConnectionError):
    """No broker answers, or a connection was lost for longer than it may be resumed."""


class NoAnswer(Unreachable, TimeoutError):
    """The broker has not answered in time; the request may still take effect."""


class Unsettled(PalioError, TimeoutError):
    """A change was not in force everywhere in time: `brokers` could not be reached."""

    def __init__(self, brokers: tuple[str, ...]) -> None:
        self.brokers = brokers
        super().__init__(
            f"not in force beyond {', '.join(brokers)}, which could not be reached; "
            "it will be once they are back"
        )


class IllegalMessage(PalioError):
    """A peer sent what it may not. Nothing was changed; the connection is to be closed."""

    def __init__(self, sender: object, reason: str) -> None:
        self.sender = sender
        self.reason = reason
        super().__init__(f"{sender} sent an illegal message: {reason}")


class DamagedFrame(IllegalMessage):
    """A frame failed its checksum. The connection is closed; the session resumes on another one,
    and the message is retransmitted.
    """


class JournalDamaged(PalioError):
    """Stored data failed its checksum: it is not served, and what it covers is named."""


class NotStored(PalioError):
    """A broker could not write to its disk, or has none: what it was to keep, it has not taken."""


class Closed(PalioError):
    """The bus, client or subscription was already closed."""


class HandlerFailed(PalioError):
    """A callback of the application raised; the original is the `__cause__`."""


_WINDOW_CHARS = 72


def _window(line: str, column: int) -> tuple[str, int]:
    """The part of a long line round a column, and where the column falls in it."""
    at = max(0, min(column - 1, len(line)))
    if len(line) <= _WINDOW_CHARS:
        return line, at
    start = max(0, min(at - _WINDOW_CHARS // 2, len(line) - _WINDOW_CHARS))
    return line[start : start + _WINDOW_CHARS], at - start
