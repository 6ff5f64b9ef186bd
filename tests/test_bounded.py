from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palio.bounded import Bounded


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 6), st.integers())))
def test_it_has_the_newest_of_what_was_set(most: int, entries: list[tuple[int, int]]) -> None:
    """As a list of the entries that are left, oldest first, would have it."""
    found = Bounded[int, int](most)
    expected: list[tuple[int, int]] = []
    for key, value in entries:
        found[key] = value
        places = [each for each, _ in expected]
        if key in places:
            expected[places.index(key)] = key, value
        else:
            expected = [*expected, (key, value)][-most:]
        assert list(found.items()) == expected
