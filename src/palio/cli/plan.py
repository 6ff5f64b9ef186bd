"""`palio plan`: plans of multicast groups, made, compared, shown and put in use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import typer

from palio import files
from palio.cli import inputs
from palio.cli.application import AsJson, with_broker
from palio.cli.connecting import BrokerAccess, ProgressLine
from palio.cli.reporting import print_status, show
from palio.cli.topology import describe_plan
from palio.errors import InvalidInput, NotPermitted, Unsettled

if TYPE_CHECKING:
    from palio.client.answers import PlanInUse, Topology
    from palio.client.connection import Client
    from palio.multicast.listed import ListedGroups
    from palio.multicast.planners import PlanLimits
    from palio.multicast.plans import GroupPlan, PlanReport
    from palio.multicast.traffic import GroupTraffic

AGAIN_S: Final = 0.1
"""How often it is asked who has joined."""

plan_commands: Final = typer.Typer(
    no_args_is_help=True, help="Plan which multicast groups carry events to brokers."
)


Method: TypeAlias = Literal[
    "best", "ideal", "flooding", "clustered", "threshold", "neighbours", "approximated", "hybrid"
]
"""Methods for making a plan."""

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
    typer.Option(
        "--events", metavar="FILE", help="With --subscriptions: events, as JSON lines or Parquet."
    ),
]
Subscriptions = Annotated[
    Path | None,
    typer.Option(
        "--subscriptions",
        metavar="FILE",
        help='JSON lines such as {"id": 1, "subscriber": "b1", "filter": "price < 10"}, as for '
        "`palio match`; the subscriber is the broker. Without --events, events are drawn from "
        "what subscriptions name.",
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
    out: Annotated[
        Path, typer.Option("--output", metavar="PLAN", help="Where the plan is written.")
    ],
    destinations: Destinations = None,
    events: Events = None,
    subscriptions: Subscriptions = None,
    on_spark: OnSpark = False,
    network: Network = None,
    method: Annotated[Method, typer.Option(help="How; `best` takes the cheapest.")] = "best",
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
    """Make a plan for the traffic of a file, and print its cost."""
    from palio.cli.plan_traffic import TrafficFiles
    from palio.multicast.documents import encode
    from palio.multicast.planners import PlanLimits, planned

    before = None if change is None else _old(change)
    limits = PlanLimits(
        groups=groups, cluster_size=cluster_size, threshold=threshold, send_price=send_price
    )
    sources = TrafficFiles(destinations, events, subscriptions, network, on_spark)
    traffic, limits = sources.read(limits)
    if before is None:
        plan, report = planned(traffic, method, limits)
    else:
        plan, report = _changed(before, traffic, changes, limits)
    _print_basis(report, traffic)
    with files.replaced(out, shared=True) as file:
        file.write(encode(plan, report.row()))
    if as_json:
        show({**report.row(), "output": str(out)})
    else:
        show(_table([report]))
        show(f"The plan is in {out}.")
    return 0


def _old(path: Path) -> ListedGroups:
    """A plan that can be changed group by group."""
    from palio.multicast.listed import ListedGroups

    made, _ = _plan_in(path)
    if not isinstance(made, ListedGroups) or made.method != "approximated":
        raise InvalidInput(
            f"{path}: only an approximated plan changes by groups, not {made.method}"
        )
    return made


def _changed(
    before: ListedGroups, traffic: GroupTraffic, groups: int, limits: PlanLimits
) -> tuple[GroupPlan, PlanReport]:
    from palio.multicast.merging import replanned
    from palio.multicast.plans import judged

    prices = limits.prices_of(traffic)
    return judged(lambda some: replanned(before, some, groups), traffic, prices)


def _print_basis(report: PlanReport, traffic: GroupTraffic) -> None:
    """By which events costs were found: by those that it is made of a plan looks too good."""
    from palio.multicast.plans import LEAST_HELD_OUT

    if report.held_out:
        print_status(
            f"costs: {report.held_out:,.0f} of {traffic.events:,.0f} events, held out of plans "
            "made of the others; the plan itself is made of all"
        )
    else:
        print_status(
            f"costs: the events that plans are made of, so events to come cost more; of "
            f"{2 * LEAST_HELD_OUT} events on half are held out"
        )


def _plan_in(path: Path) -> tuple[GroupPlan, dict[str, Any]]:
    from palio.multicast.documents import decode

    return decode(inputs.text_of(str(path), is_text=False).encode())


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
    """Compare what each method costs for the traffic of a file, the cheapest first."""
    from palio.cli.plan_traffic import TrafficFiles
    from palio.multicast import planners
    from palio.multicast.clustered import ClusteredGroups, regionalism

    limits = planners.PlanLimits(
        groups=groups, cluster_size=cluster_size, threshold=threshold, send_price=send_price
    )
    sources = TrafficFiles(destinations, events, subscriptions, network, on_spark)
    traffic, limits = sources.read(limits)
    plans, cannot = planners.compare(traffic, limits)
    clustered = [made for made, _ in plans if isinstance(made, ClusteredGroups)]
    if clustered:
        share = regionalism(traffic, clustered[0].clusters)
        print_status(f"{share:.0%} of what is wanted together stays in a cluster, beyond chance")
    reports = [report for _, report in plans]
    _print_basis(reports[0], traffic)
    if as_json:
        show({"plans": [each.row() for each in reports], "impossible": cannot})
        return 0
    show(_table(reports))
    for name, reason in cannot.items():
        show(f"{name}: not possible: {reason}")
    return 0


@plan_commands.command("show")
def show_plan(
    plan: PlanFile,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="BROKERS", help="The way of an event to b1,b2,..."),
    ] = None,
    publisher: Annotated[
        str | None, typer.Option("--source", metavar="BROKER", help="With --to: where it begins.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show what a plan is and costs, and the way of an event."""
    from palio.multicast.plans import explain

    made, report = _plan_in(plan)
    if publisher is not None and to is None:
        raise InvalidInput("--source requires --to")
    way = None if to is None else explain(made, [each for each in to.split(",") if each], publisher)
    if as_json:
        show({"method": made.method, "brokers": len(made.brokers), "groups": made.group_count}
             | {"report": report, "way": way})  # fmt: skip
        return 0
    if way is not None:
        show("\n".join(way))
        return 0
    joins = made.joins
    show(f"{made.method}: {made.group_count:,} groups for {len(made.brokers):,} brokers")
    show(f"a broker joins {joins.mean():,.1f} of them, {joins.max():,} at most")
    for name, value in report.items():
        if name in {"sends", "links", "precision", "waste", "price"}:
            show(f"{name}: {value:.3f}")
    if report.get("held_out"):
        show(f"found by {report['held_out']:,.0f} events, held out of a plan made of the others")
    return 0


def _table(reports: list[PlanReport]) -> str:
    names = ("groups", "joins", "sends", "links", "precision", "waste", "price")
    widths = (10, 10, 8, 8, 11, 9, 9)
    lines = [f"{'method':<14}" + "".join(map(str.rjust, names, widths))]
    lines += [
        f"{each.method:<14}{each.groups:>10,}{each.joins:>10,.1f}{each.sends:>8.2f}"
        f"{each.links:>8.2f}{each.precision:>11.3f}{each.waste:>9.2f}{each.price:>9.2f}"
        for each in reports
    ]
    return "\n".join(lines)


# --- a plan in use ---


@plan_commands.command()
@with_broker
def apply(
    access: BrokerAccess,
    plan: Annotated[
        Path | None,
        typer.Argument(metavar="PLAN", help="A plan that `make` wrote.", show_default=False),
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="No plan is to be in use.")] = False,
    timeout_s: Annotated[
        float,
        typer.Option("--timeout", min=0.0, metavar="SECONDS", help="How long brokers may take."),
    ] = 30.0,
    as_json: AsJson = False,
) -> int:
    """Put a plan in use on a network, and wait until all brokers have joined its groups.

    Brokers send by it once they have joined; until then by the plan before it, or by links. Ends
    with 1 if some have not joined in time: they get events by links, and join when they can.
    """
    from palio.multicast.documents import decode

    if none == (plan is not None):
        raise InvalidInput("name a plan, or use --none")
    if plan is None:
        return access.ask(lambda client: _end(client, as_json=as_json))
    document = inputs.text_of(str(plan), is_text=False).encode()
    made, _ = decode(document)
    return access.ask(lambda client: _apply(client, document, made, timeout_s, as_json=as_json))


class _Joining(NamedTuple):
    """How far brokers have come with a plan."""

    plan: PlanInUse | None
    by: dict[str, list[str]]
    """Brokers by what they do with it: `joined`, `links` or `waiting`."""

    @classmethod
    def of(cls, topology: Topology) -> _Joining:
        by: dict[str, list[str]] = {"joined": [], "links": [], "waiting": []}
        for name, each in topology["brokers"].items():
            standing = "joined" if each["multicast"] == "moved" else each["multicast"]
            by[standing or "waiting"].append(name)
        return cls(topology["plan"], by)


async def _end(client: Client, *, as_json: bool) -> int:
    unreached: tuple[str, ...] = ()
    try:
        await client.admin.apply_plan(None)
    except Unsettled as error:
        unreached = error.brokers
    if as_json:
        show({"plan": None, "waiting": list(unreached)})
    elif unreached:
        show(f"No plan is in use, but {', '.join(unreached)} have not been informed yet.")
    else:
        show("No plan is in use: brokers send by links.")
    return 1 if unreached else 0


async def _apply(
    client: Client, document: bytes, made: GroupPlan, timeout_s: float, *, as_json: bool
) -> int:
    import asyncio

    from palio.client.subscription import SETTLE_TIMEOUT_S

    until = asyncio.get_running_loop().time() + timeout_s
    try:
        await client.admin.apply_plan(document, timeout=min(timeout_s, SETTLE_TIMEOUT_S))
    except Unsettled as error:
        print_status(str(error))
    try:
        first = await client.admin.topology()
    except NotPermitted as error:
        print_status(f"the plan is applied; the brokers that joined are not shown: {error}")
        return 0
    doubts = _doubts(made, first)
    for problem, names in doubts.items():
        print_status(f"{problem}: {', '.join(names)}")
    applied = first["plan"]
    if applied is not None and not as_json:
        show(describe_plan(applied))
    joining = await _joined(client, applied, until)
    is_ours = joining.plan is not None and applied is not None and joining.plan == applied
    if as_json:
        show({"plan": applied, "in_use": is_ours, **joining.by, "doubts": doubts})
    else:
        for line in _outcome(joining, timeout_s, is_ours=is_ours):
            show(line)
    return 0 if is_ours and not joining.by["waiting"] else 1


async def _joined(client: Client, applied: PlanInUse | None, until: float) -> _Joining:
    """How it stands once all have joined, another plan counts, or time is over."""
    import asyncio

    line: ProgressLine | None = None
    while True:
        joining = _Joining.of(await client.admin.topology())
        waiting = len(joining.by["waiting"])
        total = sum(map(len, joining.by.values()))
        line = line or ProgressLine(f"of {total:,} brokers have joined")
        line.show(total - waiting)
        if not waiting or joining.plan != applied or asyncio.get_running_loop().time() >= until:
            line.end()
            return joining
        await asyncio.sleep(AGAIN_S)


def _outcome(joining: _Joining, timeout_s: float, *, is_ours: bool) -> Iterator[str]:
    by = joining.by
    if not is_ours:
        origin = "" if joining.plan is None else f" at {joining.plan['origin']}"
        yield f"Another plan was applied{origin} meanwhile, and counts."
        return
    if by["joined"]:
        yield f"{len(by['joined']):,} brokers have joined."
    if by["links"]:
        yield f"By links, for they have no multicast way: {', '.join(by['links'])}"
    if by["waiting"]:
        yield f"Not joined within {timeout_s:g} s: {', '.join(by['waiting'])}"


def _doubts(made: GroupPlan, topology: Topology) -> dict[str, list[str]]:
    """Warnings of what may not be meant, with the brokers that each concerns."""
    known = set(topology["brokers"])
    grouped = {name for name, count in zip(made.brokers, made.joins, strict=True) if count}
    found = {
        "brokers of the plan that are not known in this network": set(made.brokers) - known,
        "brokers that are in no group, and get events by links": known - grouped,
    }
    return {problem: sorted(names) for problem, names in found.items() if names}
