from __future__ import annotations

import math
from typing import Any

import pytest

from palio.errors import InvalidInput
from palio.protocol.limits import MAX_SECONDS, check_seconds


@pytest.mark.parametrize("seconds", [0, 0.5, 60, MAX_SECONDS])
def test_a_time_with_an_end(seconds: float) -> None:
    assert check_seconds(seconds, "lease_s") == seconds


@pytest.mark.parametrize(
    "seconds",
    [math.nextafter(MAX_SECONDS, math.inf), 1e308, 10**400, math.inf, math.nan, -0.1, -math.inf],
)
def test_one_without_an_end_or_before_now(seconds: float) -> None:
    with pytest.raises(InvalidInput, match=r"lease_s is .*from 0 to 315360000 \(10 years"):
        check_seconds(seconds, "lease_s")


@pytest.mark.parametrize("given", [None, "60", True, [1]])
def test_a_time_is_a_number(given: Any) -> None:
    with pytest.raises(InvalidInput, match="lease_s is"):
        check_seconds(given, "lease_s")


def test_some_times_have_a_least() -> None:
    assert check_seconds(1.0, "interval", least=1.0) == 1.0
    with pytest.raises(InvalidInput, match="from 1 to"):
        check_seconds(0.9, "interval", least=1.0)
