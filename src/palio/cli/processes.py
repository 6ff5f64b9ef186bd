"""`results`: what a function returns for many arguments, in several processes, until a signal.

A handler that raises is not safe amid the locks of a pool: they stay locked, and nothing ends. So
`one_signal` takes note, and the pool is looked after every `LOOK_S`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing import active_children, get_context, parent_process
from threading import Thread
from types import FrameType
from typing import Final, TypeVar

from palio.errors import PalioError

__all__ = ["one_signal", "results"]

LOOK_S: Final = 0.2
"""How long it takes at most until somebody sees that a signal has come."""

AHEAD: Final = 2
"""How many calls are handed to a process before it has answered."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

Argument = TypeVar("Argument")
Result = TypeVar("Result")


@contextmanager
def one_signal(*, at_once: bool) -> Iterator[Callable[[], bool]]:
    """SIGTERM is as Ctrl-C, and either counts once: what comes after that changes nothing, as the
    program is about to end. `KeyboardInterrupt` at the end, or `at_once`; yields what tells whether
    one has come.
    """
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        if at_once and len(came) == 1:
            raise KeyboardInterrupt

    before = {each: signal.signal(each, note) for each in _SIGNALS}
    try:
        yield lambda: bool(came)
        if came:
            raise KeyboardInterrupt
    finally:
        for each, handler in before.items():
            signal.signal(each, signal.SIG_IGN if came else handler)


def results(
    function: Callable[[Argument], Result],
    arguments: Iterable[Argument],
    jobs: int,
    has_ended: Callable[[], bool],
) -> Iterator[Result]:
    """As they come. `KeyboardInterrupt` once `has_ended`, or an error if a call or a process fails:
    calls that have begun are given up then, and their processes are gone. Results are to be small:
    a process that is killed amid one of more than 16 KiB may leave the pool waiting for the rest.

    >>> list(results(abs, [-1, -2], 1, lambda: False))
    [1, 2]
    """
    if jobs == 1:
        for argument in arguments:
            if has_ended():
                raise KeyboardInterrupt
            yield function(argument)
        return
    others = set(active_children())
    left, open = iter(arguments), set[Future[Result]]()
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_end_with_parent)
    try:
        while True:
            if has_ended():
                raise KeyboardInterrupt
            with _signals_later():
                more = islice(left, AHEAD * jobs - len(open))
                open |= {pool.submit(function, each) for each in more}
            if not open:
                break
            done, open = wait(open, LOOK_S, FIRST_COMPLETED)
            for each in done:
                yield each.result()
    except BrokenProcessPool as error:
        raise PalioError(
            f"one of {jobs} processes was killed; if memory is short, use fewer (--jobs)"
        ) from error
    finally:
        for process in set(active_children()) - others if open else ():
            process.kill()
        pool.shutdown(cancel_futures=True)


@contextmanager
def _signals_later() -> Iterator[None]:
    """Processes that begin in here never hear Ctrl-C or SIGTERM, whoever sends it to all: a pool
    may wait for ever for one that dies as it begins.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    """A process whose parent was killed has nobody to work for."""
    parent = parent_process()
    assert parent is not None

    def look() -> None:
        parent.join()
        signal.raise_signal(signal.SIGKILL)

    Thread(target=look, daemon=True).start()
