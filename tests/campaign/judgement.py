"""`play`: carry out a script on the virtual clock, and hold what clients heard against what they
were owed.

>>> from tests.campaign.drawing import draw
>>> play(draw(7)).breaches
()
"""

from __future__ import annotations

import traceback
from typing import Final

import msgspec

from palio.simulation.computers import AccessPolicy
from tests.campaign.plays import Play
from tests.campaign.scripts import Breach, Script
from tests.campaign.verdicts import verdicts

PHASES: Final = ("subscribing", "broken", "healing", "changing", "carrying", "calm")
"""When a fault may come, as the table has it."""


class Ending(msgspec.Struct, frozen=True):
    """What came of a script."""

    breaches: tuple[Breach, ...]
    seen: dict[tuple[str, str], int] = {}
    """How often each kind of fault happened, by kind and phase."""
    converged_s: float | None = None
    """How long after the last fault all was whole again."""
    published: int = 0
    heard: int = 0


def play(script: Script, access: AccessPolicy | None = None) -> Ending:
    """Carry out a script and judge it. An error in the network is a failure too."""
    try:
        performance = Play(script, access)
        performance.run()
        breaches = tuple(verdicts(performance))
    except Exception as error:  # noqa: BLE001  # whatever a broker or a client fails with was found
        where = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{error!r} in {where.name}, {where.filename.rpartition('/')[2]}:{where.lineno}"
        return Ending((Breach(f"raised {type(error).__name__}", what),))
    return Ending(
        breaches,
        dict(performance.seen),
        performance.converged_s,
        len(performance.published),
        sum(len(actor.heard) for actor in performance.actors.values()),
    )
