"""Reads the inputs of `palio plan`: the traffic of a plan, and the network that carries it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeVar

import msgspec

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


_Number = Annotated[float, msgspec.Meta(ge=0, le=1e300)]
"""A count or a price: none is so large."""


class _Destinations(msgspec.Struct, forbid_unknown_fields=True):
    """A line of `--destinations`."""

    brokers: list[str]
    count: _Number = 1.0


class _Interest(msgspec.Struct):
    """A line of `--subscriptions`; the subscriber is the broker."""

    subscriber: str
    filter: str
    parameters: dict[str, Any] | None = None


class _Broker(msgspec.Struct, forbid_unknown_fields=True):
    """A broker of `--network`."""

    price: _Number = 1.0
    links: dict[str, Annotated[int, msgspec.Meta(ge=1)]] = {}


_Kind = TypeVar("_Kind")


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
    text = inputs.text_of(str(path), is_text=False)
    brokers = _decoded(text, dict[str, _Broker], str(path))
    graph: dict[str, dict[str, int]] = {name: {} for name in brokers}
    for name, each in brokers.items():
        for other, cost in each.links.items():
            if other not in graph:
                raise InvalidInput(
                    f"{path}: the link from {name!r:.80} leads to {other!r:.80}, no broker of the "
                    "file"
                )
            graph[name][other] = graph[other][name] = cost
    prices = tuple(each.price for each in brokers.values())
    has_links = any(graph.values())
    has_prices = any(price != 1 for price in prices)
    return list(brokers), graph if has_links else None, prices if has_prices else None


def _traffic_of(path: Path, brokers: list[str]) -> GroupTraffic:
    from palio.multicast.traffic import GroupTraffic

    counted = [(row.brokers, row.count) for _, row in _rows(path, _Destinations)]
    known = brokers or sorted({name for names, _ in counted for name in names})
    return GroupTraffic.of(known, counted)


def _observed(events: Path | None, subscriptions: Path, brokers: list[str]) -> GroupTraffic:
    """Match the subscriptions of a file with events of another file, or drawn from them."""
    from palio.language.parsing import parse_filter
    from palio.multicast.drawn_events import drawn_events, without_residuals
    from palio.multicast.traffic import Observed

    rows = list(_rows(subscriptions, _Interest))
    observed = Observed(brokers or sorted({row.subscriber for _, row in rows}))
    filters = []
    for line, row in rows:
        try:
            filter = parse_filter(row.filter).bind(row.parameters or {})
            if events is None:
                filter = without_residuals(filter)
                filters.append(filter)
            observed.subscribe(filter, row.subscriber)
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


def _rows(path: Path, kind: type[_Kind]) -> Iterator[tuple[int, _Kind]]:
    """The objects of a file of JSON lines, each with its line."""
    for number, line in enumerate(inputs.text_of(str(path), is_text=False).splitlines(), start=1):
        if line.strip():
            yield number, _decoded(line, kind, f"{path}, line {number}")


def _decoded(text: str, kind: type[_Kind], place: str) -> _Kind:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{place}: {error}") from None
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidInput(f"{place}: this is no JSON: {error}") from None
