"""`palio simulate`: one scenario on a virtual network, and what it cost by class of message."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from palio.cli.application import AsJson
from palio.cli.reporting import show
from palio.routing.algorithms import ALGORITHMS
from palio_studies.names import MATCHINGS

command: Final = typer.Typer(rich_markup_mode=None, add_completion=False)  # as `palio`

_CLASSES: Final = {
    "Crossed links": {
        "notifications": "events, and composites of patterns",
        "subscribes": "subscriptions",
        "updates": "changes of parameters",
        "unsubscribes": "ends of subscriptions",
        "advertises": "advertisements",
        "unadvertises": "ends of advertisements",
        "waves": "waves and their echoes",
        "link_states": "link states, joins and leaves",
        "batches": "messages that carried all this but the events",
        "lost": "lost on the way, and sent again",
        "priced": "price of all links crossed",
    },
    "Reached clients": {
        "delivered": "events",
        "composites": "occurrences of patterns",
        "spurious": "dropped, since a parameter had just changed",
    },
    "At brokers": {
        "steps": "messages worked on",
        "stray": "events that came for nobody",
        "filters": "filters that events are held against, at all brokers together",
    },
}
"""The names of the counts, for people."""


@command.command()
def simulate(
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
    as_json: AsJson = False,
) -> int:
    """Run routers on a virtual network and count what it costs.

    Clients subscribe, change a parameter and publish; messages are counted by class, with the
    virtual time from publication to delivery. No time is spent waiting: the clock is virtual.
    Every matching gives the same counts: the index is what brokers use, the poset a walk through
    filters from wider to narrower ones, the reference tries them one by one.
    """
    from palio_studies.simulator import simulate as run

    found = run(
        topology,
        routing,
        seed=seed,
        clients=clients,
        events=events,
        patterns=patterns,
        matching=matching,
    )
    show(found if as_json else table(found))
    return 0


def table(found: dict[str, Any]) -> str:
    """The costs of a scenario for people; what did not occur is left out."""
    sizes = [f"{found[name]:,} {name}" for name in ("brokers", "links", "clients")]
    heading = f"{found['topology']}, {found['routing']}, seed {found['seed']}"
    lines = [f"{heading}: {', '.join(sizes)}, {found['published']:,} events published"]
    for title, names in _CLASSES.items():
        counted = {what: found[name] for name, what in names.items() if found[name]}
        lines += ["", title]
        lines += [f"{count:>12,.10g}  {what}" for what, count in counted.items()]
    lines += ["", "Virtual time"]
    for name, what in (("latency_ms", "an event"), ("composite_latency_ms", "an occurrence")):
        spread = found[name]
        if spread is not None:
            lines.append(
                f"{spread['mean']:>12,.1f}  ms from publication to delivery of {what}, the mean; "
                f"p50 {spread['p50']:,.1f}, p99 {spread['p99']:,.1f}"
            )
    lines += [f"{found['time_ms']:>12,.0f}  ms in all", "", f"trace {found['trace']}"]
    return "\n".join(lines)
