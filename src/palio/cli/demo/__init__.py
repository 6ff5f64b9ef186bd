"""`palio demo`: a market on three brokers, one of which is killed, and an audit at the end.

Here are its options; the rest is loaded when it runs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from palio.cli.application import AsJson


def demo(
    seconds: Annotated[
        float, typer.Option(min=0.1, max=600, help="How long the market is open.")
    ] = 6.0,
    rate: Annotated[int, typer.Option(min=1, max=2_000, help="Quotes a second.")] = 200,
    seed: Annotated[int, typer.Option(help="Another seed, other prices.")] = 1,
    as_json: AsJson = False,
) -> int:
    """Watch quotes find their subscribers.

    Three brokers run on this machine; the limit of one subscription follows the market, and one
    broker is killed and started again. Each delivery is checked: ends with 1 if what was promised
    and what was received disagree.
    """  # at most 1.2 million quotes: the audit keeps the number of each
    from palio.cli.demo.market import play

    return play(seconds, rate, seed, as_json=as_json)
