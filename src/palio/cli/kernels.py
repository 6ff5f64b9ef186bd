"""`palio warm`: compile the kernels of matching and routing before anyone waits for them."""

from __future__ import annotations

from time import perf_counter

from palio.cli.reporting import show

__all__ = ["warm"]


def warm(*, as_json: bool) -> int:
    """Compile the kernels, or find them compiled, and say how long it took."""
    from palio.routing import kernels

    start = perf_counter()
    kernels.warm()
    seconds = perf_counter() - start
    if as_json:
        show({"seconds": round(seconds, 3)})
    else:
        show(f"The kernels are compiled and cached: {seconds:.1f} s")
    return 0
