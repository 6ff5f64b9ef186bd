"""`Replanning`: adapts the plan of multicast groups to the traffic, while it is in use.

Each broker regularly reports the brokers to which it sends, in a fact (`TRAFFIC`). The broker that
announced the plan owns it. From all reports it computes a plan in which a few groups differ, and
announces that like a plan of an operator. So one broker decides; without it the plan stays as it
is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Final

from palio.multicast.documents import pack
from palio.multicast.replanning import SentSample, TrafficReport, can_replan, changed, read_report
from palio.node.core import Core
from palio.node.fact_verifier import PLAN, TRAFFIC
from palio.node.plans import REPLANS, NetworkPlan

REPLAN_S: Final = 30.0
"""Seconds between two reports of a broker, and between two changes of a plan. That is well above
the 5 s within which brokers join the groups of a new plan (`JOIN_S`)."""


class Replanning:
    """Reports the traffic of one broker, and changes the plan if that broker owns it.

    It does nothing unless the setting `replan` is on.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._sample = SentSample()
        self.wake_at = inf
        """When the next report is due."""
        self._silent: tuple[str, ...] = ()
        """The participants that had not reported when a plan was last due."""
        self._warned: tuple[str, ...] = ()

    def begin(self) -> None:
        """Start over with a new plan, which has come into force."""
        core, current = self._core, self._core.plans.current
        is_on = core.settings.replan and current is not None and can_replan(current.plan)
        self._sample = SentSample()
        self._silent = self._warned = ()
        self.wake_at = core.at.now + REPLAN_S if is_on else inf

    def count(self, brokers: tuple[str, ...]) -> None:
        """Count an event that is sent to these brokers."""
        if self.wake_at < inf:
            self._sample.add(brokers)

    def tick(self, now: float, others: Callable[[], Iterable[str]]) -> None:
        """If a report is due, send it, and change the plan if this broker owns it."""
        current = self._core.plans.current
        if now < self.wake_at or current is None:
            return
        self.wake_at = now + REPLAN_S
        name, cluster_state = self._core.name, self._core.durability.cluster_state
        sample, self._sample = self._sample, SentSample()
        earlier = self._reported(name, current)
        # A second empty report in a row would only repeat the first.
        if sample.events or earlier is None or earlier.events:
            report = sample.report(current.id, current.plan.brokers)
            cluster_state.announce(TRAFFIC, filter=report)
        if current.origin == name:
            reports = {each: self._reported(each, current) for each in (name, *others())}
            self._warn(tuple(sorted(each for each in reports if reports[each] is None)))
            self._replan(current, [each for each in reports.values() if each], len(reports))

    def _warn(self, silent: tuple[str, ...]) -> None:
        """Log participants without a report for two periods, because they block a new plan."""
        if silent and silent == self._silent and silent != self._warned:
            self._warned = silent
            self._core.report("warning", "replan_blocked", brokers=list(silent))
        self._silent = silent

    def _reported(self, broker: str, current: NetworkPlan) -> TrafficReport | None:
        """Return what a broker has reported since the plan came into force."""
        fact = self._core.durability.cluster_state.fact(broker, TRAFFIC)
        report = None if fact is None else read_report(fact.filter)
        return None if report is None or report.plan != current.id else report

    def _replan(self, current: NetworkPlan, reports: list[TrafficReport], brokers: int) -> None:
        """Announce a new plan for the reported traffic, once every broker has reported.

        Without a broker's report, the new plan could be worse for its traffic.
        """
        new = changed(current.plan, reports) if len(reports) == brokers else None
        if new is None:
            return
        core = self._core
        text = pack(new, {REPLANS: current.replans + 1})
        epoch_us = core.plans.next_epoch(core.at.wall_us)
        core.durability.cluster_state.announce(PLAN, filter=text, claimed_us=epoch_us)
        core.report("info", "plan_changed", epoch_us=epoch_us, replans=current.replans + 1)
