from __future__ import annotations

import pytest

from palio.errors import InvalidInput
from palio.simulation.matchings import MATCHINGS, selectors_of
from tests.routing.helpers import parse


@pytest.mark.parametrize("name", MATCHINGS)
def test_every_matching_can_be_had(name: str) -> None:
    new = selectors_of(name)
    selector, other = new(), new()
    selector.add(4, parse("a > :low"), {"low": 1}, 7)
    selector.bind(4, {"low": 3}, parse("a > 3"))
    assert selector.match_event({"a": 4}) == [4]
    assert selector.match_event({"a": 2}) == other.match_event({"a": 4}) == []
    assert (len(selector), len(other)) == (1, 0)
    selector.remove(4)
    assert len(selector) == 0


def test_another_name_is_told_the_choices() -> None:
    with pytest.raises(InvalidInput, match="'rete' is no matching; choose one of index, poset"):
        selectors_of("rete")
