"""Plans of multicast groups: how long it takes to make one and to use it.

    python -m benchmarks.multicast [--sets 1200000] [--groups 1000]

100 brokers in ten regions. Each event is at home in a region: its brokers want it with probability
0.5, others with 0.03. How often each set occurs follows a Pareto distribution.

Then plans from subscriptions alone, beside plans from traffic: 100 subscriptions a broker, which
name values of 15 attributes, of the later ones the more rarely, as popular as they are in events.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Iterable
from statistics import median
from time import perf_counter, process_time
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.model.filters import Conjunction, Constraint, Filter
from palio.multicast.broker_sets import Words, words_of
from palio.multicast.drawn_events import drawn_events
from palio.multicast.listed import flooding
from palio.multicast.merging import approximated
from palio.multicast.plans import measure
from palio.multicast.traffic import GroupTraffic, Observed

BROKERS: Final = 100
REGIONS: Final = 10
AT_ONCE: Final = 100_000
EVENTS: Final = 4_096


def destinations(random: np.random.Generator, events: int) -> Words:
    """Where so many events go."""
    parts = []
    for first in range(0, events, AT_ONCE):
        count = min(AT_ONCE, events - first)
        homes = random.integers(0, REGIONS, count)[:, None]
        chances = np.where(np.arange(BROKERS) % REGIONS == homes, 0.5, 0.03)
        parts.append(words_of(random.random((count, BROKERS)) < chances))
    return np.concatenate(parts)


# --- from subscriptions alone ---

ATTRIBUTES: Final = 15
VALUES: Final = 10
LEARNED: Final = 20_000
JUDGED: Final = 2_000


def waste_by_source(random: np.random.Generator, decay: float, groups: int) -> dict[str, float]:
    """The waste of plans for events to come, by what they were made from."""
    brokers = [f"b{place}" for place in range(BROKERS)]
    zipf = 1 / np.arange(1, VALUES + 1)
    zipf /= zipf.sum()
    shape = 100 * BROKERS, ATTRIBUTES
    named = random.random(shape) < 0.98 * decay ** np.arange(ATTRIBUTES)
    wishes = np.where(named, random.choice(VALUES, shape, p=zipf), -1)

    def events(count: int) -> pa.RecordBatch:
        drawn = random.choice(VALUES, (ATTRIBUTES, count), p=zipf)
        return pa.record_batch({f"a{place:02}": values for place, values in enumerate(drawn)})

    def traffic(batches: Iterable[pa.RecordBatch], attributes: int = ATTRIBUTES) -> GroupTraffic:
        """Where events go if subscriptions name only so many attributes, the most popular."""
        observed = Observed(brokers)
        for place, filter in enumerate(filters_of(wishes[:, :attributes])):
            observed.subscribe(filter, brokers[place // 100])
        for batch in batches:
            observed.take(batch)
        return observed.traffic()

    learned, to_come = traffic([events(LEARNED)]), traffic([events(JUDGED)])
    filters = filters_of(wishes)
    plans = {
        "traffic": learned,
        "subscriptions": traffic(drawn_events(filters)),
        **{
            f"subscriptions, {kept} attributes": traffic(drawn_events(filters), kept)
            for kept in (4, 8, 11)
        },
    }
    return {"wanted": to_come.destinations} | {
        source: measure(approximated(each, groups), to_come).waste for source, each in plans.items()
    }


def filters_of(wishes: npt.NDArray[np.int64]) -> list[Filter]:
    """Filters of rows that have a value of each attribute, or -1."""
    return [
        Filter.of(
            [Conjunction.of(Constraint.of(f"a{place:02}", "=", int(row[place])) for place in names)]
        )
        for row in wishes
        for names in [np.flatnonzero(row >= 0).tolist()]
    ]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--sets", type=int, default=1_200_000)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    random = np.random.default_rng(given.seed)
    names = [f"b{place}" for place in range(BROKERS)]
    sets = destinations(random, given.sets)
    traffic = GroupTraffic.counted(names, sets, random.pareto(1.2, len(sets)) + 0.01)
    approximated(GroupTraffic.counted(names, sets[:100]), 10)  # compiles what is not on disk
    began = process_time()
    plan = approximated(traffic, given.groups)
    print(f"{len(traffic):,} sets to {plan.group_count:,} groups: {process_time() - began:.1f} s")
    for what, some in (("known", sets[:EVENTS]), ("new", destinations(random, EVENTS))):
        took = []
        for _ in range(9):
            began = perf_counter()
            plan.sends(some)
            took.append(perf_counter() - began)
        print(f"sends of {EVENTS:,} events, {what} sets: {median(took) * 1e3:.2f} ms")
    for each in (plan, flooding(traffic.brokers)):
        report = measure(each, traffic)
        print(f"{report.method}: precision {report.precision:.3f}, waste {report.waste:.1f}")
    for decay in (0.897, 0.846, 0.749):  # 0.01%, 0.1% and 1% of pairs match
        found = waste_by_source(random, decay, 512)
        print("waste by source:", ", ".join(f"{name} {each:.2f}" for name, each in found.items()))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"at most {peak:.2f} GB")


if __name__ == "__main__":
    main()
