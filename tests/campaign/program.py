"""The campaign as a program: play many seeds, and print a short test of the first that fails."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from itertools import islice
from multiprocessing import active_children, get_context, parent_process
from queue import SimpleQueue
from threading import Thread
from types import FrameType
from typing import Final, NamedTuple

from msgspec.structs import replace

from tests.campaign.drawing import GATEWAY, ROUTINGS, draw
from tests.campaign.faults import FAULTS
from tests.campaign.judgement import PHASES, Ending, play
from tests.campaign.scripts import Breach, Script
from tests.campaign.shrinking import as_test, shrink

PROGRESS_S: Final = 60.0
"""How often a line tells the progress where there is no terminal."""

INTERRUPTED: Final = 130
"""The status that shells give to what Ctrl-C ended."""

TOLD_CHARACTERS: Final = 300
"""How much of a breach is told: a pool may hang on a process killed amid more than 16 KiB."""

AHEAD: Final = 2
"""How many seeds a process is handed before it has played them."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

EXAMPLES: Final = """\
examples:
  make campaign ARGS="--seeds 1000 --jobs 2"
  make campaign ARGS="--first-seed 4711 --seeds 1 --algorithm proxies"

Each seed draws brokers, clients and faults: links that break, brokers that stop, disks that fail,
clocks that jump. Ends with 1 if a promise is broken, and prints a short test of that.
"""


class Failure(NamedTuple):
    """A seed that fails, and with what."""

    seed: int
    breach: Breach


class Tally:
    """Totals over many seeds.

    >>> tally = Tally()
    >>> tally.add(draw(7), play(draw(7)))
    >>> tally.seeds, tally.failures
    (1, [])
    """

    def __init__(self) -> None:
        self.seeds = self.published = self.heard = 0
        self.slowest_s = 0.0
        self.algorithms: Counter[str] = Counter()
        self.seen: Counter[tuple[str, str]] = Counter()
        self.failures: list[Failure] = []

    def add(self, script: Script, ending: Ending) -> None:
        """Count one seed."""
        self.seeds += 1
        self.published += ending.published
        self.heard += ending.heard
        self.slowest_s = max(self.slowest_s, ending.converged_s or 0.0)
        self.algorithms[script.routing if script.gate is None else GATEWAY] += 1
        self.seen.update(ending.seen)
        self.failures += [Failure(script.seed, breach) for breach in ending.breaches[:1]]

    def __str__(self) -> str:
        """How often each kind of fault happened in each phase, and the totals."""
        width = max(map(len, FAULTS))
        lines = [" " * width + "".join(f"{phase:>13}" for phase in PHASES)]
        for kind in FAULTS:
            counts = "".join(f"{self.seen[kind, phase]:>13,}" for phase in PHASES)
            lines.append(f"{kind:<{width}}{counts}")
        seeds = ", ".join(f"{name} {count:,}" for name, count in sorted(self.algorithms.items()))
        return "\n".join(
            [
                *lines,
                "",
                f"{self.seeds:,} seeds ({seeds})",
                (
                    f"{self.published:,} events published, {self.heard:,} heard; "
                    f"whole again after {self.slowest_s:g} s at the latest"
                ),
                f"{len(self.failures):,} failed",
            ]
        )


class Progress:
    """Lines on stderr: on a terminal the last one is rewritten with each seed."""

    def __init__(self, seeds: int) -> None:
        self.seeds = seeds
        self.is_terminal = sys.stderr.isatty()
        self.last_s = time.monotonic()

    def tell(self, line: str, end: str = "\n") -> None:
        """Print a line in the place of the last one."""
        sys.stderr.write((f"\r{line}\x1b[K" if self.is_terminal else line) + end)
        sys.stderr.flush()

    def played(self, tally: Tally) -> None:
        """Print how many seeds were played, if it is time to."""
        if self.is_terminal or time.monotonic() - self.last_s >= PROGRESS_S:
            self.last_s = time.monotonic()
            failed = len(tally.failures)
            line = f"{tally.seeds:,} of {self.seeds:,} seeds played, {failed:,} failed"
            self.tell(line, "" if self.is_terminal and tally.seeds < self.seeds else "\n")


def main(arguments: Sequence[str]) -> int:
    """Play seeds, tell at once which fail, and print the totals; the status to exit with."""
    options = _parser().parse_args(arguments)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    tally, progress = Tally(), Progress(len(seeds))
    try:
        try:
            for seed, ending in _endings(options.algorithm, seeds, options.jobs):
                tally.add(draw(seed, options.algorithm), ending)
                for breach in ending.breaches:
                    progress.tell(f"seed {seed}: {breach.kind}: {breach.what}")
                progress.played(tally)
        finally:
            if tally.seeds:
                print(tally)
        if not tally.failures:
            return 0
        first = min(tally.failures)
        progress.tell(f"seed {first.seed} fails; looking for a short test")
        print("\n" + _short_test(draw(first.seed, options.algorithm), first.breach.kind))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenProcessPool:
        progress.tell("a process was killed; if memory is short, use fewer of them (--jobs)")
        return 2
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaign",
        description="Break networks of brokers, and see what holds.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for names, least, default, meaning in (
        (("--seeds",), 1, 100, "how many"),
        (("--first-seed",), 0, 0, "the first of them"),
        (("--jobs",), 1, 1, "processes"),
    ):
        parser.add_argument(
            *names,
            type=partial(_number, least),
            default=default,
            metavar="N",
            help=f"{meaning} (default: {default})",
        )
    parser.add_argument(
        "--algorithm",
        choices=ROUTINGS,
        default="",
        metavar="NAME",
        help=f"{', '.join(ROUTINGS)}; unless given, each seed draws one",
    )
    return parser


def _number(least: int, text: str) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not a number from {least} on")
    return int(text)


def _ending(algorithm: str, seed: int) -> tuple[int, Ending]:
    """A seed with its first breach."""
    ending = play(draw(seed, algorithm))
    told = [each._replace(what=each.what[:TOLD_CHARACTERS]) for each in ending.breaches[:1]]
    return seed, replace(ending, breaches=tuple(told))


def _endings(algorithm: str, seeds: range, jobs: int) -> Iterator[tuple[int, Ending]]:
    """All seeds in the order in which their plays end."""
    if jobs == 1:
        yield from map(partial(_ending, algorithm), seeds)
        return
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_end_with_parent)
    # The main thread must hold no lock of the pool when a signal comes: it waits for this queue.
    done: SimpleQueue[Future[tuple[int, Ending]]] = SimpleQueue()
    left = iter(seeds)

    def hand_out(count: int) -> None:
        with _signals_later():
            for seed in islice(left, count):
                pool.submit(_ending, algorithm, seed).add_done_callback(done.put)

    try:
        hand_out(AHEAD * jobs)
        for _ in seeds:
            future = done.get()
            hand_out(1)
            yield future.result()
    finally:
        for process in active_children():
            process.kill()
        pool.shutdown(cancel_futures=True)


@contextmanager
def _signals_later() -> Iterator[None]:
    """Be interrupted after this block only. Processes that begin in it inherit the mask: they never
    hear Ctrl-C, which a terminal sends to all.
    """
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)  # the mask is this thread's, and others may be told

    handlers = {number: signal.signal(number, note) for number in _SIGNALS}
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if came:
        _interrupt(came[0], None)


def _end_with_parent() -> None:
    """Kill this process once its parent is gone."""
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        signal.raise_signal(signal.SIGKILL)

    Thread(target=wait, daemon=True).start()


def _short_test(script: Script, kind: str) -> str:
    """A test of the shortest script that fails as this one does."""
    short = shrink(script, kind, lambda shorter: play(shorter).breaches)
    return as_test(short, next(each for each in play(short).breaches if each.kind == kind))


def run() -> None:
    """Run the program: SIGTERM is as Ctrl-C, and only the first signal counts."""
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    sys.exit(main(sys.argv[1:]))


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
