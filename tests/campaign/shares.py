"""`share`: what a run takes of a list of trials that are too many for each run."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import TypeVar

from tests.conftest import NIGHTLY, SEED

__all__ = ["share"]

Trial = TypeVar("Trial")


def share(trials: Iterable[Trial], count: int) -> list[Trial]:
    """Some of these trials, which rotate with the seed of the run; at night all of them."""
    trials = list(trials)
    return trials if NIGHTLY else Random(SEED).sample(trials, count)
