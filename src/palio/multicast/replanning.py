"""Re-plan by what brokers send: a sample of it, reports of the samples, and the plan they lead to.

Each broker samples the sets of brokers that it sends events to. The first half of all samples
proposes changes of the plan, and the second half judges them: a set that occurs by chance in the
one does not occur in the other. So equal traffic leads to a plan that stays, and no change is made
that wastes more for the traffic it was judged by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from typing import Annotated, Final, TypeAlias

import msgspec
import numpy as np

from palio.multicast.broker_sets import Words, words_in
from palio.multicast.listed import ListedGroups
from palio.multicast.merging import replanned
from palio.multicast.plans import GroupPlan, measure
from palio.multicast.traffic import GroupTraffic

SAMPLED: Final = 128
"""Events of a sample: its report has 5 KB for 128 brokers."""

CHANGES: Final = 16
"""Groups that are replaced at once; most of what pays is done by the first."""

LEAST_SAVED: Final = 0.01
"""The share of the cost that a change has to save. Every change sends the plan to all brokers.
"""

MOST_REPLANNED: Final = 128
"""Brokers, and groups, of a plan that brokers change by themselves: a change takes 20 ms at the
worst, in which its broker does nothing else."""

MOST_SETS: Final = 256
"""Sets that a change is made for, those with the most events."""

_SEED: Final = 1
_ENDLESS: Final = 1 << 53  # a float counts up to it

_Set: TypeAlias = Annotated[str, msgspec.Meta(pattern=f"^[0-9a-f]{{1,{MOST_REPLANNED // 4}}}$")]
_Half: TypeAlias = Annotated[
    dict[_Set, Annotated[int, msgspec.Meta(ge=1, le=SAMPLED)]], msgspec.Meta(max_length=SAMPLED)
]


class TrafficReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The traffic of one broker since it received a plan."""

    plan: int
    events: Annotated[int, msgspec.Meta(ge=0, le=_ENDLESS)]
    halves: tuple[_Half, _Half]
    """By set of brokers, in hexadecimal digits of one bit each, its sampled events."""


class SentSample:
    """A uniform sample of the sets of brokers that events were sent to.

    >>> sample = SentSample()
    >>> sample.add(("b1", "b3"))
    >>> sample.report(7, ["b1", "b2", "b3"])
    '{"plan":7,"events":1,"halves":[{},{"5":1}]}'
    """

    def __init__(self) -> None:
        self.events = 0
        self._sample: list[tuple[str, ...]] = []
        self._random = np.random.default_rng(_SEED)

    def add(self, brokers: tuple[str, ...]) -> None:
        """Add the receivers of an event: each event is in the sample with equal probability."""
        self.events += 1
        if len(self._sample) < SAMPLED:
            self._sample.append(brokers)
        else:
            place = int(self._random.integers(self.events))
            if place < SAMPLED:
                self._sample[place] = brokers

    def report(self, plan: int, brokers: Sequence[str]) -> str:
        """Encode the sample for the brokers of a plan; others are left out."""
        bits = {name: 1 << place for place, name in enumerate(brokers)}
        sets = [f"{sum(bits.get(name, 0) for name in names):x}" for names in self._sample]
        middle = len(sets) // 2
        halves = Counter(sets[:middle]), Counter(sets[middle:])
        return msgspec.json.encode(TrafficReport(plan, self.events, halves)).decode()


def read_report(text: str) -> TrafficReport | None:
    """Decode a report; None if it is malformed.

    >>> read_report('{"plan":7,"events":2,"halves":[{"5":1},{"4":1}]}').plan, read_report("?")
    (7, None)
    """
    try:
        return msgspec.json.decode(text, type=TrafficReport)
    except (msgspec.DecodeError, RecursionError):
        return None


def can_replan(plan: GroupPlan) -> bool:
    """Return whether brokers may change a plan by themselves."""
    is_small = max(len(plan.brokers), plan.group_count) <= MOST_REPLANNED
    return is_small and isinstance(plan, ListedGroups) and plan.method == "approximated"


def changed(plan: GroupPlan, reports: Iterable[TrafficReport]) -> ListedGroups | None:
    """Change a plan for the traffic of some reports; None if that does not pay.

    >>> from palio.multicast.merging import approximated
    >>> brokers = ("b1", "b2", "b3", "b4")
    >>> old = approximated(GroupTraffic.of(brokers, [(["b1", "b2"], 1)]), groups=2)
    >>> new = changed(old, [TrafficReport(7, 20, ({"c": 10}, {"c": 10}))])
    >>> new.groups.tolist(), changed(new, [TrafficReport(8, 20, ({"c": 10}, {"c": 10}))])
    ([[12], [15]], None)
    """
    if not isinstance(plan, ListedGroups) or not can_replan(plan):
        return None
    several = list(reports)
    proposing, judging = (
        _traffic(plan.brokers, [(report, report.halves[half]) for report in several])
        for half in range(2)
    )
    if not len(proposing) or not len(judging):
        return None
    new = replanned(plan, proposing, CHANGES)
    before, after = (measure(each, judging, plan.prices).price for each in (plan, new))
    return new if after <= (1 - LEAST_SAVED) * before else None


def _traffic(
    brokers: tuple[str, ...], samples: Iterable[tuple[TrafficReport, Mapping[str, int]]]
) -> GroupTraffic:
    """Weigh each sample by the events that it stands for, and keep the sets with the most."""
    totals: dict[int, float] = {}
    everyone = (1 << len(brokers)) - 1
    for report, half in samples:
        weight = report.events / max(1, sum(half.values()))
        for digits, count in half.items():
            bits = int(digits, 16) & everyone
            totals[bits] = totals.get(bits, 0.0) + weight * count
    top = nlargest(MOST_SETS, totals.items(), key=lambda item: (item[1], item[0]))
    octets = b"".join(bits.to_bytes(8 * words_in(len(brokers)), "little") for bits, _ in top)
    rows: Words = np.frombuffer(octets, "<u8").reshape(len(top), words_in(len(brokers)))
    return GroupTraffic.counted(brokers, rows, np.array([count for _, count in top], np.float64))
