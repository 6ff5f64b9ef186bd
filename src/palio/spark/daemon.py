"""The process that Spark forks its Python workers from, with the kernels loaded beforehand.

Set as `spark.python.daemon.module` by `palio.spark.session`. Loading compiled code takes a second
or two, and every worker forked afterwards has it for nothing and shares its memory. Code that was
never compiled on this machine is left alone: that takes a minute, during which Spark would wait
for its first worker, and small jobs do not need it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["prepare"]


def prepare() -> bool:
    """Load the kernels if they are compiled and on disk; whether they are loaded."""
    from palio.matching import (
        kernels,
        kernels_arrow,
        kernels_bits,
        kernels_build,
        kernels_count,
        kernels_single,
    )

    everything: list[Any] = [
        kernels_build.program_of,
        kernels_bits.match_blocks,
        kernels_count.count_ranges,
        kernels_single.match_events,
        kernels_arrow.code_batch,
    ]
    if not all(map(_is_on_disk, everything)):
        return False
    kernels.warm()
    return True


def _is_on_disk(kernel: Any) -> bool:
    """Whether numba's cache has an index of a kernel's compiled versions."""
    place, code = kernel.stats.cache_path, kernel.py_func.__code__
    name = f"*.{code.co_name}-{code.co_firstlineno}.*.nbi"
    return place is not None and any(Path(place).glob(name))


if __name__ == "__main__":
    from pyspark.daemon import manager

    prepare()
    manager()
