"""What the multicast paper concludes of subscriptions that change, and what it left open."""

from __future__ import annotations

from typing import Final

from palio_studies.multicast_drift import ANEW, FEW, KEPT
from palio_studies.multicast_link_claims import listed
from palio_studies.multicast_ways import CLUSTERED
from palio_studies.results import Results
from palio_studies.study import Claim, Evidence

__all__ = ["DRIFT_CLAIMS"]

STEADY: Final = 0.1
"""By so much what does not depend on subscriptions may differ from one half of the periods to the
other: events are drawn anew."""
ALTERED: Final = 1.05
NEARLY: Final = 1.1


def _means(results: Results, column: str, match: float, first: int, last: int) -> dict[str, float]:
    """By method the mean of a column over some periods."""
    rows = [
        row for row in results.rows("drift", match=match) if first <= int(row["period"]) <= last
    ]
    means = Results({"drift": rows}).mean("drift", column, by=["method"])
    return {str(name): mean.value for (name,), mean in means.items()}


def _later(results: Results, column: str, match: float) -> dict[str, float]:
    """The same from the second period on: in the first all plans are the same."""
    return _means(results, column, match, 2, _periods(results, match))


def _periods(results: Results, match: float) -> int:
    return max(int(each) for each in results.values("drift", "period", match=match))


def _matches(results: Results) -> list[float]:
    return [float(each) for each in results.values("drift", "match")]


def _fixed_in(results: Results, match: float, first: int, last: int) -> dict[str, float]:
    """CGM and neighbours beside the ideal plan, flooding by the events that anybody wants."""
    links, sent = (_means(results, column, match, first, last) for column in ("links", "sent"))
    found = {name: links[name] / links["ideal"] for name in (CLUSTERED, "neighbours")}
    return {**found, "flooding": links["flooding"] / sent["flooding"]}


def _fixed_stay(results: Results) -> Evidence:
    found = []
    for match in _matches(results):
        last = _periods(results, match)
        early = _fixed_in(results, match, 1, last // 2)
        late = _fixed_in(results, match, last // 2 + 1, last)
        found += [(f"{name} at {match:g}%", late[name] / early[name]) for name in early]
    return Evidence(
        all(abs(ratio - 1) < STEADY for _, ratio in found) if found else None,
        f"links in the later periods, of those in the earlier: {listed(found)}",
    )


def _waste_alters(results: Results) -> Evidence:
    found = []
    for match in _matches(results):
        waste = _later(results, "waste", match)
        found.append((f"at {match:g}%", waste[KEPT] / waste[ANEW]))
    return Evidence(
        all(ratio >= ALTERED for _, ratio in found) if found else None,
        f"the first plan's waste, of that of plans made anew each period: {listed(found)}",
    )


def _few_suffice(results: Results) -> Evidence:
    found, says = [], []
    for match in _matches(results):
        waste, moved = (_later(results, column, match) for column in ("waste", "moved"))
        found.append((waste[FEW] / waste[ANEW], moved[FEW] / moved[ANEW]))
        says.append(f"at {match:g}% {found[-1][0]:.2f} times the waste, {found[-1][1]:.0%} moved")
    return Evidence(
        all(ratio < NEARLY and share < 0.5 for ratio, share in found) if found else None,
        f"{'; '.join(says)}, of plans made anew" if says else "drift was not run",
    )


def _anew_pays(results: Results) -> Evidence:
    found, holds = [], True
    for match in _matches(results):
        links, took = (_later(results, column, match) for column in ("links", "replan_links"))
        learned = min(int(each) for each in results.values("drift", "learned", match=match))
        for name in (ANEW, FEW):
            saved = links[KEPT] - links[name]
            holds &= saved * learned > took[name]
            after = f"{took[name] / saved:,.0f} events" if saved > 0 else "never"
            found.append(f"{name} at {match:g}%: {after}")
    return Evidence(
        holds if found else None, f"a plan has paid for itself after: {'; '.join(found)}"
    )


DRIFT_CLAIMS: Final = (
    Claim(
        "drift-fixed",
        "Flooding, CGM and neighbour matching are resilient to subscriptions that change: their "
        "groups are fixed at configuration.",
        f"links in the later periods differ by less than {STEADY:.0%} from those in the earlier, "
        "beside the ideal's",
        _fixed_stay,
    ),
    Claim(
        "drift-waste",
        "Subscriptions that change alter what the groups of an approximation waste.",
        f"a plan that is kept wastes {ALTERED} times what plans made anew do, or more",
        _waste_alters,
    ),
    Claim(
        "drift-few",
        "(Left open by the paper:) to make all groups anew is the worst case, not the rule.",
        f"plans of which a few groups become others waste less than {NEARLY} times what plans made "
        "anew do, and move less than half of the memberships",
        _few_suffice,
    ),
    Claim(
        "drift-pays",
        "(Left open by the paper:) a new plan pays.",
        "it spares more links than it takes, within as many events as it was made of",
        _anew_pays,
    ),
)
