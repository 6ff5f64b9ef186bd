"""Means over seeds, and how sure one can be of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite, sqrt
from typing import Final, NamedTuple

import numpy as np

from palio.errors import InvalidInput

_QUANTILES: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's t for 95% on two sides, with 1 to 30 degrees of freedom."""

LEAST_RUNS: Final = 3
"""Of two runs the interval is 12.7 standard errors wide each way, and covers the picture."""

_NORMAL: Final = 1.960
"""...and with more."""


def _quantile(freedom: int) -> float:
    return _QUANTILES[freedom - 1] if freedom <= len(_QUANTILES) else _NORMAL


class Mean(NamedTuple):
    """A mean, and half the width of its 95% interval: infinite where there was one run only.

    >>> print(mean_of([9.0, 10.0, 11.0]))
    10 ±2.5
    """

    value: float
    half: float
    runs: int

    @property
    def low(self) -> float:
        """Where the interval begins."""
        return self.value - self.half

    @property
    def bar(self) -> float:
        """How far its bar goes in pictures: nowhere where there were fewer than `LEAST_RUNS`."""
        return self.half if self.runs >= LEAST_RUNS and isfinite(self.half) else 0.0

    @property
    def high(self) -> float:
        """Where it ends."""
        return self.value + self.half

    @property
    def error(self) -> float:
        """The standard error, where there was more than one run."""
        return self.half / _quantile(self.runs - 1)

    def __str__(self) -> str:
        value = f"{self.value:,.3g}" if abs(self.value) < 1000 else f"{self.value:,.0f}"
        return value if self.half in (0.0, inf) else f"{value} ±{self.half:,.2g}"


def mean_of(values: Sequence[float]) -> Mean:
    """The mean of what several seeds gave."""
    if not values:
        raise InvalidInput("no values, so no mean; is an experiment missing from the results?")
    count = len(values)
    value = float(np.mean(values))
    if count == 1:
        return Mean(value, inf, 1)
    spread = float(np.std(values, ddof=1))
    return Mean(value, _quantile(count - 1) * spread / sqrt(count), count)


def fitted_exponent(xs: Sequence[float], ys: Sequence[float]) -> Mean:
    """The e of y = c * x**e that fits best, by least squares over the logarithms; all above 0.

    >>> print(fitted_exponent([1, 10, 100, 1000], [3, 30, 300, 3000]).value.__round__(6))
    1.0
    """
    if len(xs) < 2 or min(*xs, *ys) <= 0:
        raise InvalidInput("an exponent is fitted to two points or more, all of them above 0")
    along, up = np.log(xs), np.log(ys)
    slope, offset = np.polyfit(along, up, 1)
    freedom = len(xs) - 2
    if not freedom:
        return Mean(float(slope), inf, len(xs))
    residual = float(np.sum((up - slope * along - offset) ** 2)) / freedom
    error = sqrt(residual / float(np.sum((along - along.mean()) ** 2)))
    return Mean(float(slope), _quantile(freedom) * error, len(xs))
