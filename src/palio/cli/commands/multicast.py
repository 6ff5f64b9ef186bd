"""Commands about plans of multicast groups."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from palio.cli.application import AsJson, Authorities, Broker, TokenFile, app, door_of
from palio.errors import InvalidInput

__all__ = ["Method"]

plan_commands: Final = typer.Typer(
    no_args_is_help=True, help="Plan which multicast groups carry events to brokers."
)
app.add_typer(plan_commands, name="plan")


class Method(StrEnum):
    """The ways to make a plan."""

    BEST = "best"
    IDEAL = "ideal"
    FLOODING = "flooding"
    CLUSTERED = "clustered"
    THRESHOLD = "threshold"
    NEIGHBOURS = "neighbours"
    APPROXIMATED = "approximated"
    HYBRID = "hybrid"


Destinations = Annotated[
    Path | None,
    typer.Option(
        "--destinations",
        metavar="FILE",
        help='Where events went: JSON lines such as {"brokers": ["b1", "b2"], "count": 7}.',
    ),
]
Events = Annotated[
    Path | None,
    typer.Option("--events", metavar="FILE", help="Events, as JSON lines or Parquet."),
]
Subscriptions = Annotated[
    Path | None,
    typer.Option(
        "--subscriptions",
        metavar="FILE",
        help='With --events. JSON lines such as {"id": 1, "subscriber": "b1", "filter": '
        '"price < 10"}, as for `palio match`; the subscriber is the broker.',
    ),
]
OnSpark = Annotated[
    bool, typer.Option("--spark", help="Match --events, a path of Parquet files, on Spark.")
]
Network = Annotated[
    Path | None,
    typer.Option(
        "--network",
        metavar="FILE",
        help='Brokers, as JSON: {"b1": {"price": 1.5, "links": {"b2": 10}}, ...}. '
        "Without it the brokers are those that are named, and links are not known.",
    ),
]
Groups = Annotated[int, typer.Option("--groups", min=1, help="Groups that there may be.")]
ClusterSize = Annotated[
    int | None, typer.Option("--cluster-size", min=1, help="Brokers of a cluster.")
]
Threshold = Annotated[
    int | None,
    typer.Option(
        "--threshold", min=1, help="Destinations beyond which all of a cluster gets an event."
    ),
]
SendPrice = Annotated[
    float,
    typer.Option(
        "--send-price", min=0.0, help="What a send costs, measured by a broker that gets an event."
    ),
]
PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan that `make` wrote.")]


@plan_commands.command()
def make(  # noqa: PLR0913, PLR0917  # typer makes an option of each
    out: Annotated[Path, typer.Option("--out", metavar="PLAN", help="Where the plan is written.")],
    destinations: Destinations = None,
    events: Events = None,
    subscriptions: Subscriptions = None,
    on_spark: OnSpark = False,
    network: Network = None,
    method: Annotated[Method, typer.Option(help="How; `best` takes the cheapest.")] = Method.BEST,
    groups: Groups = 1_000,
    cluster_size: ClusterSize = None,
    threshold: Threshold = None,
    send_price: SendPrice = 1.0,
    change: Annotated[
        Path | None,
        typer.Option("--change", metavar="PLAN", help="Change this plan, if it is approximated."),
    ] = None,
    changes: Annotated[
        int, typer.Option("--changes", min=0, help="With --change: groups that may be others.")
    ] = 10,
    as_json: AsJson = False,
) -> int:
    """Make a plan for the traffic of a file, and say what it costs."""
    from palio.cli.plan import Inputs, PlanChange, make
    from palio.multicast.planners import PlanLimits

    inputs = Inputs(destinations, events, subscriptions, network, on_spark)
    limits = PlanLimits(
        groups=groups, cluster_size=cluster_size, threshold=threshold, send_price=send_price
    )
    return make(inputs, method.value, limits, out, PlanChange(change, changes), as_json=as_json)


@plan_commands.command()
def compare(  # noqa: PLR0913, PLR0917  # typer makes an option of each
    destinations: Destinations = None,
    events: Events = None,
    subscriptions: Subscriptions = None,
    on_spark: OnSpark = False,
    network: Network = None,
    groups: Groups = 1_000,
    cluster_size: ClusterSize = None,
    threshold: Threshold = None,
    send_price: SendPrice = 1.0,
    as_json: AsJson = False,
) -> int:
    """What each method costs for the traffic of a file, the cheapest first."""
    from palio.cli.plan import Inputs, compare
    from palio.multicast.planners import PlanLimits

    inputs = Inputs(destinations, events, subscriptions, network, on_spark)
    limits = PlanLimits(
        groups=groups, cluster_size=cluster_size, threshold=threshold, send_price=send_price
    )
    return compare(inputs, limits, as_json=as_json)


@plan_commands.command()
def show(
    plan: PlanFile,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="BROKERS", help="The way of an event to b1,b2,..."),
    ] = None,
    publisher: Annotated[
        str | None, typer.Option("--from", metavar="BROKER", help="With --to: where it begins.")
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", metavar="FILE", help="Draw brokers by groups, as SVG or PNG."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """What a plan is and costs, and the way of an event."""
    from palio.cli.plan import show_plan

    return show_plan(plan, to, publisher, picture, as_json=as_json)


@plan_commands.command(
    epilog="Example: palio plan apply plan.json --at palio://b1.example:7741 --timeout 60"
)
def apply(
    plan: Annotated[
        Path | None,
        typer.Argument(metavar="PLAN", help="A plan that `make` wrote.", show_default=False),
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="No plan is to be in use.")] = False,
    at: Broker = None,
    timeout_s: Annotated[
        float,
        typer.Option("--timeout", min=0.0, metavar="SECONDS", help="How long brokers may take."),
    ] = 30.0,
    token_file: TokenFile = None,
    ca: Authorities = None,
    as_json: AsJson = False,
) -> int:
    """Put a plan in use on a network, and wait until all brokers have joined its groups.

    Brokers send by it once they have joined; until then by the plan before it, or by links. Ends
    with 1 if some have not joined in time: they get events by links, and join when they can.
    """
    from palio.cli.plan_apply import apply_plan, end_plan

    door = door_of(at, token_file, ca)
    if none == (plan is not None):
        raise InvalidInput("name a plan, or say --none")
    if plan is None:
        return end_plan(door, as_json=as_json)
    return apply_plan(plan, door, timeout_s, as_json=as_json)
