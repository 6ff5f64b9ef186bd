from __future__ import annotations

from typing import Any

import pytest

import palio
from palio.client.subscribing import check_match_at
from palio.errors import InvalidInput

TWO = palio.parse("x = 1 THEN x = 2")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (("anybody", TWO, None, ""), "'client' or 'brokers', not 'anybody'"),
        (("brokers", palio.parse("x = 1"), None, ""), "'x = 1' is one filter"),
        (("brokers", TWO, 0.0, ""), "reorder_timeout= is for patterns that the client assembles"),
        (("brokers", TWO, None, "d"), "leave durable_name= out"),
    ],
)
def test_brokers_assemble_patterns_and_nothing_else(given: Any, error: str) -> None:
    assert check_match_at("brokers", TWO, None, "")
    assert not check_match_at("client", TWO, 1.0, "d")
    with pytest.raises(InvalidInput, match=error):
        check_match_at(*given)
