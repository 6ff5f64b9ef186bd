"""`palio campaign`: networks under faults drawn from seeds, and what is promised there."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import typer

from palio.cli.processes import one_signal, results
from palio.cli.reporting import show, tell
from palio.errors import InvalidInput, PalioError
from palio.simulation.campaign import (
    FAULTS,
    PHASES,
    ROUTINGS,
    Ending,
    as_test,
    draw,
    play,
    shrink,
)

__all__ = ["CampaignTally", "campaign"]

TOLD_AFTER_S: Final = 60.0
"""How often a line tells how far it is, where there is no terminal."""


class CampaignTally:
    """What many seeds came to.

    >>> tally = CampaignTally()
    >>> tally.add(play(draw(7)))
    >>> tally.document["seeds"], tally.document["failed"]
    (1, [])
    """

    def __init__(self) -> None:
        self.seeds = self.published = self.heard = 0
        self.slowest_s = 0.0
        self.routings: Counter[str] = Counter()
        self.seen: Counter[tuple[str, str]] = Counter()
        self.failed: list[Ending] = []

    def add(self, outcome: Ending) -> None:
        """Count one of them."""
        gate = outcome.script.gate
        self.seeds += 1
        self.published += outcome.published
        self.heard += outcome.heard
        self.slowest_s = max(self.slowest_s, outcome.converged_s or 0.0)
        self.routings[outcome.script.routing if gate is None else "gateway"] += 1
        self.seen.update(outcome.seen)
        if outcome.breaches:
            self.failed.append(outcome)

    @property
    def document(self) -> dict[str, Any]:
        """All of it, for programs."""
        return {
            "seeds": self.seeds,
            "failed": [
                {"seed": each.script.seed, "kind": breach.kind, "what": breach.what}
                for each in sorted(self.failed, key=lambda one: one.script.seed)
                for breach in each.breaches[:1]
            ],
            "published": self.published,
            "heard": self.heard,
            "slowest_s": self.slowest_s,
            "routings": dict(sorted(self.routings.items())),
            "faults": {
                kind: {phase: self.seen[kind, phase] for phase in PHASES} for kind in FAULTS
            },
        }

    @property
    def table(self) -> str:
        """How often each kind of fault happened in each phase."""
        wide = max(map(len, FAULTS))
        lines = [f"{'':<{wide}}" + "".join(f"{phase:>13}" for phase in PHASES)]
        for kind in FAULTS:
            counts = "".join(f"{self.seen[kind, phase]:>13,}" for phase in PHASES)
            lines.append(f"{kind:<{wide}}{counts}")
        ways = ", ".join(f"{name} {count:,}" for name, count in sorted(self.routings.items()))
        return "\n".join(
            [
                *lines,
                "",
                f"{self.seeds:,} seeds ({ways})",
                (
                    f"{self.published:,} events published, {self.heard:,} heard; "
                    f"whole again after {self.slowest_s:g} s at the latest"
                ),
                f"{len(self.failed):,} failed",
            ]
        )


def campaign(seeds: int, first: int, routing: str, jobs: int, *, as_json: bool) -> int:
    """Play all seeds, tell at once which fail, and show of the first of these a short test."""
    if routing and routing not in ROUTINGS:
        raise InvalidInput(
            f"{routing!r:.80} is no routing algorithm; choose one of {', '.join(ROUTINGS)}"
        )
    tally = CampaignTally()
    with one_signal(at_once=jobs == 1) as has_ended:
        try:
            with _progress(seeds) as played:
                every = range(first, first + seeds)
                for outcome in results(partial(_outcome, routing), every, jobs, has_ended):
                    tally.add(outcome)
                    played(tally)
                    for breach in outcome.breaches[:1]:
                        tell(f"seed {outcome.script.seed}: {breach.kind}: {breach.what:.300}")
        except (KeyboardInterrupt, PalioError):
            if tally.seeds and not as_json:
                show(tally.table)
            raise
    if as_json:
        show(tally.document)
    else:
        show(tally.table)
    if not tally.failed:
        return 0
    worst = min(tally.failed, key=lambda each: each.script.seed)
    if not as_json:
        show("\n" + _short_test(worst))
    return 1


def _outcome(routing: str, seed: int) -> Ending:
    return play(draw(seed, routing))


def _short_test(outcome: Ending) -> str:
    """The shortest script that fails as this one does."""
    kind = outcome.breaches[0].kind
    tell(f"seed {outcome.script.seed} fails; looking for a short test")
    short = play(shrink(outcome.script, kind, lambda script: play(script).breaches))
    return as_test(short.script, next(each for each in short.breaches if each.kind == kind))


@contextmanager
def _progress(seeds: int) -> Iterator[Callable[[CampaignTally], None]]:
    """Tell how far it is: by a bar on a terminal, elsewhere by a line now and then."""
    is_terminal = sys.stderr.isatty()
    last = time.monotonic()
    with typer.progressbar(
        length=seeds, label="Playing", file=sys.stderr, hidden=not is_terminal
    ) as bar:

        def played(tally: CampaignTally) -> None:
            nonlocal last
            bar.update(1)
            if not is_terminal and time.monotonic() - last >= TOLD_AFTER_S:
                last = time.monotonic()
                tell(f"{tally.seeds:,} of {seeds:,} seeds played, {len(tally.failed):,} failed")

        yield played
