"""Explain the plan of each compiled layer of an index for a batch; `Segment` chooses it."""

from __future__ import annotations

from dataclasses import dataclass

from palio.matching.compiled import CompiledLayer

PLANS = {
    "few": "event by event: bucketed bitmaps, then exact tests",
    "many": "blocks of 512 events: a vector for each predicate, ANDed along shared prefixes",
    "fallback": "plain Python until the kernels are compiled",
}


@dataclass(frozen=True)
class LayerPlan:
    """The plan for one layer: counts, the cost estimate of each plan in microseconds, and the
    choice.
    """

    filters: int
    rows: int
    predicates: int
    guarded: bool
    lookups: int
    """Text tests that are found by their literals."""
    scans: int
    """Text tests that are tried on every distinct text."""
    plan: str
    cost_us: dict[str, float]

    @classmethod
    def of(cls, layer: CompiledLayer, events: int) -> LayerPlan:
        """The plan that a layer would choose."""
        segment = layer.segment
        costs = segment.costs.of(events)
        choice = "fallback" if segment.kernels is None else min(costs, key=lambda name: costs[name])
        return cls(
            layer.filters,
            layer.rows,
            segment.predicate_count,
            layer.is_guarded,
            len(segment.compiled.universe.tests) - len(segment.texts.scans),
            len(segment.texts.scans),
            choice,
            {name: cost / 1000 for name, cost in costs.items()},
        )

    def __str__(self) -> str:
        costs = ", ".join(f"{name} {cost:.0f} us" for name, cost in self.cost_us.items())
        texts = "".join(
            f", {count} text tests {how}"
            for count, how in (
                (self.lookups, "found by their literals"),
                (self.scans, "tried on every distinct text"),
            )
            if count
        )
        guarded = ", then residual conditions on what is left" if self.guarded else ""
        return (
            f"{self.filters} filters, {self.rows} rows, {self.predicates} predicates{texts}: "
            f"{PLANS[self.plan]}{guarded} (estimated: {costs})"
        )


@dataclass(frozen=True)
class Plan:
    """The plan by which a batch would be matched. `str` of it is for people."""

    events: int
    layers: tuple[LayerPlan, ...]
    recent: int = 0
    """Filters that changed lately, which are compared one by one and not compiled."""

    def __str__(self) -> str:
        lines = [f"{self.events} events", *(f"  {layer}" for layer in self.layers)]
        if self.recent:
            lines.append(f"  {self.recent} filters that changed lately, compared one by one")
        return "\n".join(lines)
