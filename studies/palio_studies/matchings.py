"""The kinds of matching behind a simulated router, by the name that a user chooses.

The answers of all of them are the same, and what they cost is compared. Brokers use the index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from palio.errors import InvalidInput

if TYPE_CHECKING:
    from palio.routing.protocol import SelectorFactory

MATCHINGS: Final = {
    "index": "the compiled engine",
    "poset": "a walk from wider to narrower filters",
    "reference": "one filter after the other",
}
"""What each does; the first is what brokers use."""


def selectors_of(matching: str) -> SelectorFactory:
    """What makes the selectors of a router.

    >>> type(selectors_of("poset")()).__name__
    'PosetSelector'
    """
    from palio.routing.protocol import Matching
    from palio.routing.reference_selector import ReferenceSelector
    from palio_studies.simulator.poset_selector import PosetSelector

    if matching == "poset":
        return PosetSelector
    if matching == "reference":
        return ReferenceSelector
    if matching != "index":
        raise InvalidInput(f"{matching!r:.80} is no matching; choose one of {', '.join(MATCHINGS)}")
    from palio.matching.index import Index

    return lambda: Matching(Index())
