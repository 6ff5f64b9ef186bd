"""The kinds of matching behind a router, by the name that a user chooses: brokers and the simulator
read it. The answers of all of them are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from palio.errors import InvalidInput

if TYPE_CHECKING:
    from palio.matching.protocol import Matcher
    from palio.routing.protocol import SelectorFactory

__all__ = ["MATCHINGS", "selectors_of"]

MATCHINGS: Final = {
    "index": "the compiled engine",
    "poset": "a walk from wider to narrower filters",
    "reference": "one filter after the other",
}
"""What each does; the first is the default of brokers."""


def selectors_of(matching: str, new_index: Callable[[], Matcher] | None = None) -> SelectorFactory:
    """What makes the selectors of a router. `new_index` makes the engine of `index`, which loads
    its compiled code as it is told there.

    >>> type(selectors_of("poset")()).__name__
    'PosetSelector'
    """
    from palio.routing.poset_selector import PosetSelector
    from palio.routing.protocol import Matching
    from palio.routing.reference_selector import ReferenceSelector

    if matching == "poset":
        return PosetSelector
    if matching == "reference":
        return ReferenceSelector
    if matching != "index":
        raise InvalidInput(f"{matching!r:.80} is no matching; choose one of {', '.join(MATCHINGS)}")
    if new_index is None:
        from palio.matching.index import Index

        new_index = Index
    make = new_index
    return lambda: Matching(make())
