"""Tests in virtual time."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from palio.testing import run

Arguments = ParamSpec("Arguments")

PATIENCE_S = 600.0
"""Virtual seconds after which a test that hangs fails."""


def in_virtual_time(
    test: Callable[Arguments, Coroutine[Any, Any, None]],
) -> Callable[Arguments, None]:
    """Run an asynchronous test in a loop whose clock jumps."""

    @functools.wraps(test)
    def inside(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        run(asyncio.wait_for(test(*args, **kwargs), PATIENCE_S))

    return inside
