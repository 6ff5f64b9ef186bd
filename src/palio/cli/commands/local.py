"""The commands `palio simulate` and `palio demo`, whose parts stand elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from palio.cli.application import AsJson
from palio.routing.algorithms import ALGORITHMS
from palio.simulation.matchings import MATCHINGS

__all__ = ["demo", "simulate"]


def simulate(  # noqa: PLR0913, PLR0917  # typer makes an option of each
    topology: Annotated[
        str,
        typer.Option(
            metavar="SHAPE:SIZES",
            help="line:5, star:5, ring:12, tree:15x2 (brokers x fanout), grid:4x3, random-tree:20, "
            "random:20x10 (brokers x links beyond a tree), transit-stub:4x3x8 (backbone x stubs "
            "at each of it x brokers of a stub).",
        ),
    ] = "ring:12",
    routing: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"One of {', '.join(ALGORITHMS)}.",
        ),
    ] = "general",
    clients: Annotated[int, typer.Option(min=1, help="At brokers drawn at random.")] = 20,
    events: Annotated[int, typer.Option(min=0, help="Published one by one.")] = 100,
    patterns: Annotated[
        int,
        typer.Option(
            min=0, help="How many clients also ask for a sequence, which brokers assemble."
        ),
    ] = 0,
    matching: Annotated[
        str, typer.Option(metavar="NAME", help=f"One of {', '.join(MATCHINGS)}.")
    ] = "reference",
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same run.")] = 0,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write each step to this file, one line a step."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Run brokers on a virtual network and count what it costs.

    Clients subscribe, change a parameter and publish; messages are counted by class, with the
    virtual time from publication to delivery. No time is spent waiting: the clock is virtual.
    Every matching gives the same counts: the index is what brokers use, the poset a walk through
    filters from wider to narrower ones, the reference tries them one by one.
    """
    from palio.cli.simulate import simulate

    return simulate(
        topology,
        routing,
        seed=seed,
        clients=clients,
        events=events,
        patterns=patterns,
        matching=matching,
        trace=trace,
        as_json=as_json,
    )


def demo(
    seconds: Annotated[
        float, typer.Option(min=0.1, max=600, help="How long the market is open.")
    ] = 6.0,
    rate: Annotated[int, typer.Option(min=1, max=2_000, help="Quotes a second.")] = 200,
    seed: Annotated[int, typer.Option(help="Another seed, other prices.")] = 1,
    spark: Annotated[
        bool, typer.Option(help="Also match the quotes again, on Spark, if it is installed.")
    ] = True,
    as_json: AsJson = False,
) -> int:
    """Watch quotes find their subscribers.

    Three brokers run on this machine; the limit of one subscription follows the market, and one
    broker is killed and started again. Each delivery is checked: ends with 1 if what was promised
    and what was received disagree.
    """  # at most 1.2 million quotes: the audit keeps the number of each
    from palio.cli.demo.demo import demo

    return demo(seconds, rate, seed, spark=spark, as_json=as_json)
