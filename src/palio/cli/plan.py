"""`palio plan`: plans of multicast groups, made, compared and shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

from palio import files
from palio.cli import inputs
from palio.cli.reporting import show, tell
from palio.errors import InvalidInput

if TYPE_CHECKING:
    from palio.multicast.listed import ListedGroups
    from palio.multicast.observing import Observed
    from palio.multicast.planners import PlanLimits
    from palio.multicast.plans import GroupPlan, PlanReport
    from palio.multicast.traffic import GroupTraffic
    from palio.routing.trees import Graph

__all__ = ["Inputs", "PlanChange", "compare", "make", "show_plan"]

AT_ONCE: Final = 1_024
"""Events by themselves, or batches, that are read at once."""

TOLD_EVERY: Final = 500_000
"""Events after which it is told how far it has come."""


class Inputs(NamedTuple):
    """The files that say what a plan is for."""

    destinations: Path | None
    events: Path | None
    subscriptions: Path | None
    network: Path | None
    on_spark: bool = False
    """Whether events are matched on Spark."""


class PlanChange(NamedTuple):
    """A plan that is to be changed, rather than made anew."""

    of: Path | None
    groups: int
    """Groups that may be others."""


def make(
    given: Inputs, method: str, limits: PlanLimits, out: Path, change: PlanChange, *, as_json: bool
) -> int:
    """Make a plan, write it, and say what it costs."""
    from palio.multicast.documents import encode
    from palio.multicast.planners import planned

    before = None if change.of is None else _old(change.of)
    traffic, limits = _read(given, limits)
    if before is None:
        made, report = planned(traffic, method, limits)
    else:
        made, report = _changed(before, traffic, change, limits)
    _tell_judged(report, traffic)
    with files.replaced(out, shared=True) as file:
        file.write(encode(made, report.row()))
    if as_json:
        show({**report.row(), "out": str(out)})
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
    before: ListedGroups, traffic: GroupTraffic, change: PlanChange, limits: PlanLimits
) -> tuple[GroupPlan, PlanReport]:
    from palio.multicast.judging import judged
    from palio.multicast.merging import replanned

    prices = limits.prices_of(traffic)
    return judged(lambda some: replanned(before, some, change.groups), traffic, prices)


def _tell_judged(report: PlanReport, traffic: GroupTraffic) -> None:
    """By which events costs were found: by those that it is made of a plan looks too good."""
    from palio.multicast.judging import LEAST_HELD_OUT

    if report.held_out:
        tell(
            f"costs: {report.held_out:,.0f} of {traffic.events:,.0f} events, held out of plans "
            "made of the others; the plan itself is made of all"
        )
    else:
        tell(
            f"costs: the events that plans are made of, so events to come cost more; of "
            f"{2 * LEAST_HELD_OUT} events on half are held out"
        )


def _plan_in(path: Path) -> tuple[GroupPlan, dict[str, Any]]:
    from palio.multicast.documents import decode

    return decode(inputs.text_of(str(path), is_text=False).encode())


def compare(given: Inputs, limits: PlanLimits, *, as_json: bool) -> int:
    """What each method costs, the cheapest first."""
    from palio.multicast.clustered import ClusteredGroups
    from palio.multicast.clusters import regionalism
    from palio.multicast.planners import compare

    traffic, limits = _read(given, limits)
    plans, cannot = compare(traffic, limits)
    clustered = [made for made, _ in plans if isinstance(made, ClusteredGroups)]
    if clustered:
        share = regionalism(traffic, clustered[0].clusters)
        tell(f"{share:.0%} of what is wanted together stays in a cluster, beyond chance")
    reports = [report for _, report in plans]
    _tell_judged(reports[0], traffic)
    if as_json:
        show({"plans": [each.row() for each in reports], "impossible": cannot})
        return 0
    show(_table(reports))
    for name, reason in cannot.items():
        show(f"{name}: not possible: {reason}")
    return 0


def show_plan(
    path: Path, to: str | None, publisher: str | None, picture: Path | None, *, as_json: bool
) -> int:
    """What a plan is, the way of an event, and a picture."""
    from palio.multicast.plans import explain

    made, report = _plan_in(path)
    if publisher is not None and to is None:
        raise InvalidInput("--from is the begin of the way that --to asks for")
    way = None if to is None else explain(made, [each for each in to.split(",") if each], publisher)
    if picture is not None:
        _draw(made, picture)
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


# --- what is read ---


def _read(given: Inputs, limits: PlanLimits) -> tuple[GroupTraffic, PlanLimits]:
    brokers, graph, prices = _network(given.network)
    if (given.destinations is None) == (given.events is None):
        raise InvalidInput("say either where events went (--destinations), or --events")
    if (given.events is None) != (given.subscriptions is None):
        raise InvalidInput("--events and --subscriptions go together")
    if given.destinations is not None:
        traffic = _traffic_of(given.destinations, brokers)
    else:
        assert given.events is not None and given.subscriptions is not None  # for types
        find = _found_on_spark if given.on_spark else _observed
        traffic = find(given.events, given.subscriptions, brokers)
    if not len(traffic):
        raise InvalidInput("no event goes to any broker; there is nothing to plan for")
    tell(f"{len(traffic):,} sets of destinations; an event goes to {traffic.destinations:.1f} "
         f"of {len(traffic.brokers):,} brokers")  # fmt: skip
    return traffic, type(limits)(**{**vars(limits), "graph": graph, "prices": prices})


def _network(path: Path | None) -> tuple[list[str], Graph | None, tuple[float, ...] | None]:
    """The brokers of a file, the graph of their links, and what each costs."""
    if path is None:
        return [], None, None
    document = _json(path)
    if not isinstance(document, dict) or not all(
        isinstance(each, dict) for each in document.values()
    ):
        raise InvalidInput(f"{path}: an object with one for each broker is expected")
    graph: dict[str, dict[str, int]] = {name: {} for name in document}
    prices = []
    for name, each in document.items():
        price = each.get("price", 1)
        links = each.get("links", {})
        if set(each) - {"price", "links"} or not _is_number(price) or not isinstance(links, dict):
            raise InvalidInput(f"{path}: of broker {name!r:.80} a price and links may be said")
        prices.append(float(price))
        for other, weight in links.items():
            if other not in graph or type(weight) is not int or weight < 1:
                raise InvalidInput(
                    f"{path}: the link from {name!r:.80} to {other!r:.80} leads to a broker of the "
                    "file, and weighs a whole number, 1 or more"
                )
            graph[name][other] = graph[other][name] = weight
    has_links = any(graph.values())
    has_prices = any(price != 1 for price in prices)
    return list(document), graph if has_links else None, tuple(prices) if has_prices else None


def _traffic_of(path: Path, brokers: list[str]) -> GroupTraffic:
    from palio.multicast.traffic import GroupTraffic

    counted: list[tuple[list[str], float]] = []
    for line, row in _rows(path):
        names, count = row.get("brokers"), row.get("count", 1)
        if (
            not _is_names(names)
            or not _is_number(count)
            or count < 0
            or set(row) - {"brokers", "count"}
        ):
            raise InvalidInput(
                f'{path}, line {line}: {{"brokers": [names], "count": events}} is expected'
            )
        counted.append((names, float(count)))
    known = brokers or sorted({name for names, _ in counted for name in names})
    return GroupTraffic.of(known, counted)


def _observed(events: Path, subscriptions: Path, brokers: list[str]) -> GroupTraffic:
    """What the subscriptions of a file make of the events of another."""
    from palio.language.parsing import parse_filter
    from palio.multicast.observing import Observed

    wishes = []
    for line, row in _rows(subscriptions):
        broker, text = row.get("subscriber"), row.get("filter")
        values = row.get("parameters") or {}
        if not (isinstance(broker, str) and isinstance(text, str) and isinstance(values, dict)):
            raise InvalidInput(
                f"{subscriptions}, line {line}: a subscriber, which is the broker, and a filter "
                "are expected"
            )
        wishes.append((line, broker, text, values))
    observed = Observed(brokers or sorted({broker for _, broker, _, _ in wishes}))
    for line, broker, text, values in wishes:
        try:
            observed.subscribe(parse_filter(text), broker, values)
        except InvalidInput as error:
            raise InvalidInput(f"{subscriptions}, line {line}: {error}") from None
    told = 0
    for _ in _taken(events, observed):
        if observed.tally.events >= told + TOLD_EVERY:
            told = observed.tally.events
            tell(f"{told:,} events")
    tell(f"{observed.tally.events:,} events, of which nobody wants {observed.tally.unwanted:,}")
    return observed.traffic()


def _found_on_spark(events: Path, subscriptions: Path, brokers: list[str]) -> GroupTraffic:
    """The same, for events in Parquet that are too many for one process."""
    from palio.cli.spark_session import spark_session
    from palio.spark.grouping import group_traffic

    if not events.exists():
        raise InvalidInput(f"cannot read events from {str(events)!r}: no such file or directory")
    with spark_session():
        return group_traffic(str(events), str(subscriptions), brokers or None)


def _taken(path: Path, observed: Observed) -> Iterator[None]:
    """Take in the events of a file, and stop after each part."""
    from palio.cli.event_files import events_of, gathered

    source = events_of(str(path))
    while part := list(islice(source, AT_ONCE)):
        for each in gathered(part):
            if isinstance(each, list):
                observed.take_rows(each)
            else:
                observed.take(each)
            yield


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines, each with its line."""
    for number, line in enumerate(inputs.text_of(str(path), is_text=False).splitlines(), start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except (RecursionError, ValueError) as error:
                raise InvalidInput(f"{path}, line {number}: this is no JSON: {error}") from None
            if not isinstance(row, dict):
                raise InvalidInput(f"{path}, line {number}: an object is expected")
            yield number, row


def _json(path: Path) -> Any:
    try:
        return json.loads(inputs.text_of(str(path), is_text=False))
    except (RecursionError, ValueError) as error:
        raise InvalidInput(f"{path}: this is no JSON: {error}") from None


_ENDLESS: Final = 1e300
"""No count and no price is so large."""


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _ENDLESS


def _is_names(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


# --- the picture ---

DRAWN_GROUPS: Final = 400
"""Groups in a picture: more would be narrower than a dot."""


def _draw(plan: GroupPlan, path: Path) -> None:
    """Brokers by groups: a dot where one is in the other, from the least group to the largest."""
    import numpy as np
    from matplotlib.figure import Figure

    from palio.multicast.broker_sets import masks_of, sizes_of

    if path.suffix not in {".svg", ".png"}:
        raise InvalidInput(f"a picture is .svg or .png, not {path.suffix!r:.20}")
    shown = np.unique(
        np.linspace(0, plan.group_count - 1, min(DRAWN_GROUPS, plan.group_count)).astype(np.int64)
    )
    members = plan.members(shown)
    masks = masks_of(members[np.argsort(sizes_of(members), kind="stable")], len(plan.brokers))
    figure = Figure(figsize=(9, 2 + min(8, 0.12 * len(plan.brokers))), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(1, 4))
    upper.bar(range(len(masks)), masks.sum(axis=1), width=1.0, color="tab:blue")
    upper.set_ylabel("brokers")
    upper.set_title(f"{plan.method}: {plan.group_count:,} groups, {len(shown):,} shown")
    lower.imshow(masks.T, aspect="auto", cmap="Blues", interpolation="nearest", vmin=0, vmax=1.3)
    lower.set_xlabel("groups, by size")
    lower.set_ylabel("brokers")
    if len(plan.brokers) <= 30:
        lower.set_yticks(range(len(plan.brokers)), plan.brokers)
    figure.savefig(path, dpi=120)
