"""Every limit of the model and the languages, in one place, each with its reason.

A limit is checked where input enters, raises `palio.errors.LimitExceeded` with its own name, and is
tested at limit - 1, limit and limit + 1.
"""

from __future__ import annotations

from typing import Final, Protocol

from palio.errors import LimitExceeded

MAX_TEXT_CHARS: Final = 262_144
"""Characters of a filter text: one `IN` list of full size with 20-character members fits."""

MAX_TOKENS: Final = 4_096
"""Words and signs of a filter text, a list of constants being one: reading them takes 50 ms."""

MAX_NAME_CHARS: Final = 256
"""Characters of an attribute's or a variable's name: few paths of JSON come near 200."""

MAX_STRING_CHARS: Final = 65_536
"""Characters (or bytes) of one string or bytes operand."""

MAX_LIKE_CHARS: Final = 256
"""Characters of a LIKE pattern: it is tried at each place of a text, so costs are a product."""

MAX_IN_VALUES: Final = 10_000
"""Members of one `IN` or `NOT IN` list; larger sets belong in a join, not in a filter."""

MAX_DEPTH: Final = 64
"""Levels of nesting, so that no recursion over a filter comes near the interpreter's own limit."""

MAX_CONJUNCTIONS: Final = 128
"""Conjunctions of one filter, its `NOT`s and `OR`s multiplied out: comparing them is quadratic."""

MAX_CONSTRAINTS: Final = 1_024
"""Constraints and residuals of one filter in all its conjunctions together: four tokens each."""

MAX_CONSTANTS: Final = 16_384
"""Members of all lists of one filter together: one list of full size, and some beside it."""

MAX_PATTERN_STEPS: Final = 32
"""Filters in one pattern: a monitor keeps one partial match, so this bounds its memory."""

MAX_PATTERN_PENDING: Final = 100_000
"""Events that one pattern's reorder window may hold back before the oldest are released early."""

MAX_TEXT_TESTS: Final = 32
"""`CONTAINS`, `LIKE` and such on one attribute of one conjunction: each is held against each."""

MAX_COMPARISONS: Final = 16_384
"""Comparisons of constraints that `covers` or `overlaps` makes; beyond, the answers are that a
filter does not cover, and that it may overlap."""

MAX_RESIDUAL_COST: Final = 1_000
"""Cost units (about one elementary operation each) of all residual expressions of one filter."""

MAX_COMPUTED_CHARS: Final = 4_096
"""Characters (or bytes) of a text that a residual computes with or makes; `LENGTH` takes any. A
unit of cost is about a microsecond then, for any letters."""

MAX_JSON_PARTS: Final = 65_536
"""Values of one JSON document, at all its levels: a broker reads them in about 20 ms, in which it
serves no other client."""

MAX_ATTRIBUTES: Final = 4_096
"""Attributes of one event after flattening; `$seq` and `$time`, which a broker adds, do not
count."""

MAX_EVENT_TEXT_BYTES: Final = 1 << 20
"""Bytes of all texts (and bytes) of one event: every `CONTAINS` and `LIKE` is held against them in
one step. All literals are searched for at once, in 20 to 40 ms for this much; a `LIKE` with more to
find (`MAX_SCANS`) takes 2 to 6 ms of its own. More belongs in a store that the event points
to."""

MAX_STREAM_MESSAGES: Final = 1_024
"""Messages of one Arrow stream, schema and dictionaries included. Each batch is validated with the
whole of its dictionaries, which takes a millisecond for the longest."""

MAX_LONE_BYTES: Final = 64 << 10
"""Bytes of an event that travels as its values; a larger one travels as a batch, which brokers need
not decode."""


def check_limit(quantity: str, limit: str, maximum: int, actual: int) -> None:
    """Refuse what is larger than a limit, which errors name.

    >>> check_limit("a filter's text", "MAX_TEXT_CHARS", MAX_TEXT_CHARS, 20)
    """
    if actual > maximum:
        raise LimitExceeded(quantity, limit=limit, maximum=maximum, actual=actual)


class Weighed(Protocol):
    """A side of a comparison: a conjunction without variables, or a domain."""

    @property
    def intervals(self) -> int:
        """The number of intervals of values that it names."""

    @property
    def text_tests(self) -> int:
        """The number of tests of texts that are no intervals."""

    @property
    def weight(self) -> float:
        """The cost that it adds to a comparison, however small the other side is."""


class Effort:
    """Work that is left for a relation between two filters.

    To compare two filters at the limits, alternative by alternative, takes half a second, and a
    broker compares all that its clients subscribe to. A comparison that runs out of effort gives
    the answer that is always sound: that one filter does not cover the other, that two alternatives
    do not merge, that an advertisement and a filter may overlap.

    >>> effort = Effort(3)
    >>> effort.spend(2), effort.spend(2), effort.is_spent
    (True, False, True)
    >>> effort.spent
    4
    """

    def __init__(self, left: float = MAX_COMPARISONS) -> None:
        self._given = self._left = left

    @property
    def spent(self) -> float:
        """The work that was taken."""
        return self._given - self._left

    @property
    def is_spent(self) -> bool:
        """True if nothing is left."""
        return self._left < 0

    def spend(self, units: float) -> bool:
        """Take some; False if there was not so much."""
        self._left -= units
        return self._left >= 0

    def compare(self, one: Weighed, other: Weighed) -> bool:
        """Take what it is to compare two: every interval is held against every test of texts."""
        units = one.weight + other.weight
        tests = one.text_tests + other.text_tests
        if tests:
            units += tests * (one.intervals + other.intervals)
        return self.spend(units)
