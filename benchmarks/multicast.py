"""Plans of multicast groups: how long it takes to make one and to use it.

    python -m benchmarks.multicast [--sets 1200000] [--groups 1000]

100 brokers in ten regions. Each event is at home in a region: its brokers want it with probability
0.5, others with 0.03. How often each set occurs follows a Pareto distribution.
"""

from __future__ import annotations

import argparse
import resource
from statistics import median
from time import perf_counter, process_time
from typing import Final

import numpy as np

from palio.multicast.broker_sets import Words, words_of
from palio.multicast.listed import flooding
from palio.multicast.merging import approximated
from palio.multicast.plans import measure
from palio.multicast.traffic import GroupTraffic

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
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"at most {peak:.2f} GB")


if __name__ == "__main__":
    main()
