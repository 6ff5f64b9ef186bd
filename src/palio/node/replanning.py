"""`Replanning`: brokers change the plan of multicast groups in use as traffic drifts.

Each broker regularly reports, in a fact, which brokers it sends to (`TRAFFIC`). The broker that
announced the plan changes a few groups by all reports, and announces the result like an applied
plan. So one broker decides; if it is gone, the plan stays unchanged.
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
"""Seconds between two reports of a broker, and between two changes of a plan: brokers take 5 s at
most to join the groups of one (`JOIN_S`)."""


class Replanning:
    """The part of one broker in changes of the plan; none if the settings do not ask for it."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._sample = SentSample()
        self.wake_at = inf
        """When the next report is due."""
        self._silent: tuple[str, ...] = ()
        """The participants that had not reported when a plan was last due."""
        self._warned: tuple[str, ...] = ()

    def begin(self) -> None:
        """Start over with a plan that came into force."""
        core, current = self._core, self._core.plans.current
        is_on = core.settings.replan and current is not None and can_replan(current.plan)
        self._sample = SentSample()
        self._silent = self._warned = ()
        self.wake_at = core.at.now + REPLAN_S if is_on else inf

    def count(self, brokers: tuple[str, ...]) -> None:
        """Count an event that is sent to brokers."""
        if self.wake_at < inf:
            self._sample.add(brokers)

    def tick(self, now: float, others: Callable[[], Iterable[str]]) -> None:
        """Report if that is due, and change the plan if this broker states it."""
        current = self._core.plans.current
        if now < self.wake_at or current is None:
            return
        self.wake_at = now + REPLAN_S
        name, cluster_state = self._core.name, self._core.durability.cluster_state
        sample, self._sample = self._sample, SentSample()
        earlier = self._reported(name, current)
        if sample.events or earlier is None or earlier.events:  # else it was reported
            report = sample.report(current.id, current.plan.brokers)
            cluster_state.announce(TRAFFIC, filter=report)
        if current.origin == name:
            reports = {each: self._reported(each, current) for each in (name, *others())}
            self._warn(tuple(sorted(each for each in reports if reports[each] is None)))
            self._replan(current, [each for each in reports.values() if each], len(reports))

    def _warn(self, silent: tuple[str, ...]) -> None:
        """Log participants that report nothing for two periods: the plan stays as long as that."""
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
        """State a plan for what all have reported: without a report a broker might lose by it."""
        new = changed(current.plan, reports) if len(reports) == brokers else None
        if new is None:
            return
        core = self._core
        text = pack(new, {REPLANS: current.replans + 1})
        epoch_us = core.plans.next_epoch(core.at.wall_us)
        core.durability.cluster_state.announce(PLAN, filter=text, claimed_us=epoch_us)
        core.report("info", "plan_changed", epoch_us=epoch_us, replans=current.replans + 1)
