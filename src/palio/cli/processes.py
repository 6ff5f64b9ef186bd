"""`results`: what a function returns for many arguments, in several processes, until a signal.

A handler that raises is not safe amid the locks of a pool: they stay locked, and nothing ends. So
`one_signal` takes note, and the pool is looked after every `LOOK_S`.
"""

from __future__ import annotations

import os
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
    program is about to end. Yields what tells whether one has come; `at_once` it is raised, too.
    """
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        came.append(number)
        if at_once:
            raise KeyboardInterrupt

    before = {each: signal.signal(each, note) for each in _SIGNALS}
    try:
        yield lambda: bool(came)
    finally:
        if not came:
            for each, handler in before.items():
                signal.signal(each, handler)


def results(
    function: Callable[[Argument], Result],
    arguments: Iterable[Argument],
    jobs: int,
    has_ended: Callable[[], bool],
) -> Iterator[Result]:
    """As they come. `KeyboardInterrupt` once `has_ended`: calls that have begun are given up then,
    and their processes are gone. An error if one of these dies by itself.

    >>> list(results(abs, [-1, -2], 1, lambda: False))
    [1, 2]
    """
    if jobs == 1:
        yield from map(function, arguments)
        return
    others = set(active_children())
    left, open = iter(arguments), set[Future[Result]]()
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_end_with_parent) as pool:
        try:
            while not has_ended():
                with _ctrl_c_later():
                    more = islice(left, AHEAD * jobs - len(open))
                    open |= {pool.submit(function, each) for each in more}
                if not open:
                    return
                done, open = wait(open, LOOK_S, FIRST_COMPLETED)
                for each in done:
                    yield each.result()
        except BrokenProcessPool as error:
            if not has_ended():  # by a signal to all of them
                raise PalioError(
                    f"one of {jobs} processes was killed; if memory is short, use fewer (--jobs)"
                ) from error
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(active_children()) - others:
            process.terminate()
    raise KeyboardInterrupt


@contextmanager
def _ctrl_c_later() -> Iterator[None]:
    """Processes that begin in here never hear Ctrl-C: it is for the one that has the terminal."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    """A process whose parent was killed has nobody to work for."""
    parent = parent_process()

    def look() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    Thread(target=look, daemon=True).start()
