"""The campaign: lives of whole networks under faults, drawn from seeds, and what is promised there.

Each seed draws brokers, an algorithm, what clients do and what breaks (`draw`); `play` carries that
out on the virtual clock and holds what clients heard against what they were owed. Of a seed that
fails, `shrink` makes a short script, and `as_test` a test.

>>> outcome = play(draw(7))
>>> outcome.breaches
()
"""

from __future__ import annotations

import traceback
from typing import Final

import msgspec

from palio.simulation.campaign.drawing import GATEWAY, ROUTINGS, draw
from palio.simulation.campaign.faults import FAULTS
from palio.simulation.campaign.plays import CONVERGES_S, Play
from palio.simulation.campaign.scripts import Border, Breach, Script, Step
from palio.simulation.campaign.shrinking import as_test, shrink
from palio.simulation.campaign.verdicts import verdicts
from palio.simulation.doors import Doors

__all__ = [
    "CONVERGES_S",
    "FAULTS",
    "GATEWAY",
    "PHASES",
    "ROUTINGS",
    "Border",
    "Breach",
    "Ending",
    "Script",
    "Step",
    "as_test",
    "draw",
    "play",
    "shrink",
]

PHASES: Final = ("subscribing", "broken", "healing", "changing", "carrying", "calm")
"""When a fault may come, as the table has it."""


class Ending(msgspec.Struct, frozen=True):
    """What came of a script."""

    script: Script
    breaches: tuple[Breach, ...]
    seen: dict[tuple[str, str], int] = {}
    """How often each kind of fault happened, by kind and phase."""
    converged_s: float | None = None
    """How long after the last fault all was whole again."""
    published: int = 0
    heard: int = 0


def play(script: Script, doors: Doors | None = None) -> Ending:
    """Carry out a script and judge it. An error in the network is a failure too."""
    try:
        performance = Play(script, doors)
        performance.run()
        breaches = tuple(verdicts(performance))
    except Exception as error:  # noqa: BLE001  # whatever a broker or a client fails with was found
        where = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{error!r} in {where.name}, {where.filename.rpartition('/')[2]}:{where.lineno}"
        return Ending(script, (Breach(f"raised {type(error).__name__}", what),))
    return Ending(
        script,
        breaches,
        dict(performance.seen),
        performance.converged_s,
        len(performance.published),
        sum(len(actor.heard) for actor in performance.actors.values()),
    )
