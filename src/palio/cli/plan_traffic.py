"""Reads the inputs of `palio plan`: the traffic of a plan, and the network that carries it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

from palio.cli import inputs
from palio.cli.reporting import print_status
from palio.errors import InvalidInput

if TYPE_CHECKING:
    from palio.multicast.planners import PlanLimits
    from palio.multicast.traffic import GroupTraffic, Observed
    from palio.routing.trees import Graph

AT_ONCE: Final = 1_024
"""Events by themselves, or batches, that are read at once."""

REPORT_EVERY: Final = 500_000
"""Events after which progress is printed."""


class TrafficFiles(NamedTuple):
    """The files with the traffic of a plan."""

    destinations: Path | None
    events: Path | None
    subscriptions: Path | None
    network: Path | None
    on_spark: bool = False
    """Whether events are matched on Spark."""

    def read(self, limits: PlanLimits) -> tuple[GroupTraffic, PlanLimits]:
        """Read the traffic, and the limits with the network's file."""
        brokers, graph, prices = _network(self.network)
        if (self.destinations is None) == (self.subscriptions is None):
            raise InvalidInput("give either --destinations (of events), or --subscriptions")
        if self.events is None and self.on_spark:
            raise InvalidInput("--spark matches events; name them by --events")
        if self.events is not None and self.subscriptions is None:
            raise InvalidInput("--events go with --subscriptions, not with --destinations")
        if self.destinations is not None:
            traffic = _traffic_of(self.destinations, brokers)
        else:
            assert self.subscriptions is not None  # for types
            if self.on_spark:
                assert self.events is not None  # for types
                traffic = _found_on_spark(self.events, self.subscriptions, brokers)
            else:
                traffic = _observed(self.events, self.subscriptions, brokers)
        if not len(traffic):
            raise InvalidInput("no event goes to any broker; there is nothing to plan for")
        print_status(
            f"{len(traffic):,} sets of destinations; an event goes to {traffic.destinations:.1f} "
            f"of {len(traffic.brokers):,} brokers"
        )
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
            raise InvalidInput(f"{path}: broker {name!r:.80} may have only a price and links")
        prices.append(float(price))
        for other, cost in links.items():
            if other not in graph or type(cost) is not int or cost < 1:
                raise InvalidInput(
                    f"{path}: the link from {name!r:.80} to {other!r:.80} leads to a broker of the "
                    "file, and its cost is a whole number, 1 or more"
                )
            graph[name][other] = graph[other][name] = cost
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


def _observed(events: Path | None, subscriptions: Path, brokers: list[str]) -> GroupTraffic:
    """Match the subscriptions of a file with events of another file, or drawn from them."""
    from palio.language.parsing import parse_filter
    from palio.multicast.drawn_events import drawn_events, without_residuals
    from palio.multicast.traffic import Observed

    rows = []
    for line, row in _rows(subscriptions):
        broker, text = row.get("subscriber"), row.get("filter")
        values = row.get("parameters") or {}
        if not (isinstance(broker, str) and isinstance(text, str) and isinstance(values, dict)):
            raise InvalidInput(
                f"{subscriptions}, line {line}: a subscriber, which is the broker, and a filter "
                "are expected"
            )
        rows.append((line, broker, text, values))
    observed = Observed(brokers or sorted({broker for _, broker, _, _ in rows}))
    filters = []
    for line, broker, text, values in rows:
        try:
            filter = parse_filter(text).bind(values)
            if events is None:
                filter = without_residuals(filter)
                filters.append(filter)
            observed.subscribe(filter, broker)
        except InvalidInput as error:
            raise InvalidInput(f"{subscriptions}, line {line}: {error}") from None
    if events is None:
        for batch in drawn_events(filters):
            observed.take(batch)
        print_status(f"{observed.tally.events:,} events drawn from the subscriptions")
        return observed.traffic()
    reported = 0
    for _ in _taken(events, observed):
        if observed.tally.events >= reported + REPORT_EVERY:
            reported = observed.tally.events
            print_status(f"{reported:,} events")
    print_status(
        f"{observed.tally.events:,} events, of which nobody wants {observed.tally.unwanted:,}"
    )
    return observed.traffic()


def _found_on_spark(events: Path, subscriptions: Path, brokers: list[str]) -> GroupTraffic:
    """The same, for events in Parquet that are too many for one process."""
    from palio.cli.spark import spark_session
    from palio.spark.grouping import group_traffic

    if not events.exists():
        raise InvalidInput(f"cannot read events from {str(events)!r}: no such file or directory")
    with spark_session():
        return group_traffic(str(events), str(subscriptions), brokers or None)


def _taken(path: Path, observed: Observed) -> Iterator[None]:
    """Take in the events of a file, and stop after each part."""
    source = inputs.events_of(str(path))
    while part := list(islice(source, AT_ONCE)):
        for each in inputs.gathered(part):
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
