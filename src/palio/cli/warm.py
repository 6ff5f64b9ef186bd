"""`palio warm`: compile the kernels of matching and routing before anyone waits for them."""

from __future__ import annotations

from time import perf_counter

from palio.cli.reporting import show

__all__ = ["warm"]


def warm(*, as_json: bool) -> int:
    """Compile the kernels, or find them compiled, and say how long it took."""
    from palio.matching import warming
    from palio.routing import kernels

    def tell(done: int, of: int) -> None:
        show(f"{done} of {of} kernels")

    start = perf_counter()
    is_told = not (as_json or kernels.are_on_disk())
    if is_told:
        show("compiling them takes about a minute, once; until then engines run in plain Python")
    if warming.warm_unless_busy(tell if is_told else None) is None and is_told:
        show("another process compiles them; this one waits for it")
    kernels.warm()
    seconds = perf_counter() - start
    if as_json:
        show({"seconds": round(seconds, 3)})
    else:
        show(f"The kernels are compiled and cached: {seconds:.1f} s")
    return 0
