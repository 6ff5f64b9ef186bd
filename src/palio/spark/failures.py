"""What was wrong, out of the traces in which Spark tells that a job has failed."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["first_cause"]

_OURS: Final = re.compile(r"palio\.errors\..*")


def first_cause(trace: str) -> str:
    """The line of a failure's trace that says what was wrong: a worker's error, or the root cause.

    >>> first_cause(
    ...     "An error occurred.\\n: Job aborted\\nCaused by: java.io.IOException: disk full"
    ... )
    'java.io.IOException: disk full'
    """
    lines = [line.strip() for line in trace.splitlines() if line.strip()]
    told = [found[0] for line in lines if (found := _OURS.search(line))]
    roots = [line for line in lines if line.startswith("Caused by: ")]
    return ["", *lines[:1], *roots, *told][-1].removeprefix("Caused by: ")
