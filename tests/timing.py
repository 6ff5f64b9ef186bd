"""Limits of time for tests that run beside others, on machines of any speed."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from palio.language.parsing import parse

WORK_S: Final = 0.025
"""What the work of `slowness` takes on the machine on which the limits of tests were found."""


def slowness() -> float:
    """How much slower this machine is now than the one on which the limits were found; 1 if it is
    not. What is timed is what brokers do with most inputs.
    """
    texts = [f"n{number} = 1 OR n LIKE '%{number}%_' AND m != {number}" for number in range(400)]
    begun = time.thread_time()
    for text in texts:
        parse(text)
    return max(1.0, (time.thread_time() - begun) / WORK_S)


@contextmanager
def within(most_s: float, what: object = "") -> Iterator[None]:
    """What is done inside takes so much processor time at most, and more where a machine is slower.

    Garbage is left until afterwards: in a process that has run thousands of tests one collection
    alone takes a second, whatever was done here.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    begun = time.process_time()
    try:
        yield
        spent = time.process_time() - begun
    finally:
        if was_enabled:
            gc.enable()
    if spent > most_s and spent > (limit := most_s * slowness()):
        pytest.fail(f"{what or 'it'} took {spent:.3f} s of {limit:.3f} s")
