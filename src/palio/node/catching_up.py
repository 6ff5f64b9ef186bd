"""`CatchUp`: begins durable service on a disk that is new or lost, and reports the loss.

A broker whose disk has all durable subscriptions begins at once. One with a new disk first waits
for the facts of its network, as it must know the durable subscriptions that it is to serve, and
notify of events that an earlier incarnation had accepted and lost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf

from palio.model.parcels import Parcel
from palio.node.claims import claim_of
from palio.node.core import Callbacks, Core
from palio.node.effects import ANYBODY, Heading
from palio.node.fact_verifier import LOG, is_subscription
from palio.node.limits import MAX_EARLY
from palio.node.loss_markers import LossMarker


class CatchUp:
    """Begins the durable service of one broker, and the calls that wait for it."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._cluster_state = core.durability.cluster_state
        self._events = core.durability.events
        self.due_at = inf
        """A broker without its disk waits until then for the facts of its network."""
        self._until_ready: list[Callable[[], None]] = []
        """Calls that wait until this broker accepts durable requests."""

    def begin(self) -> None:
        """Begin with what the disk has."""
        core, events = self._core, self._events
        if not events.is_ready:
            has_to_wait = bool(core.settings.peers) and core.settings.has_disk
            self.due_at = core.at.now + (core.settings.peer_grace_s if has_to_wait else 0.0)
            return
        log = self._cluster_state.fact(core.name, LOG)
        if log is not None and 0 < log.claimed_us < events.streams.log_number:
            self._cluster_state.note_log(log.claimed_us)  # the journal was cut short
            self._report_own_loss()
        self.announce_log()
        core.sweep_history()

    def when_ready(self, action: Callable[[], None]) -> None:
        """Call `action` once this broker accepts durable requests, which is soon after its start.
        Beyond MAX_EARLY pending actions call it at once: it is then refused.
        """
        if self._events.is_ready or len(self._until_ready) >= MAX_EARLY:
            action()
        else:
            self._until_ready.append(action)

    def check(self) -> None:
        """Begin durable service, or report a lost log, if it is time.

        It is once the network's facts have come, or nobody could send them. Only then does the
        broker know all durable subscriptions that must be notified of the loss.
        """
        core, cluster_state, events = self._core, self._cluster_state, self._events
        if cluster_state.lost_log and events.is_ready and not events.log.is_refusing:
            self.due_at = min(self.due_at, core.at.now + core.settings.peer_grace_s)
        if self.due_at == inf or not (cluster_state.has_synced or core.at.now >= self.due_at):
            return
        self.due_at = inf
        if events.is_ready:
            self._report_own_loss()
            return
        claims = [claim_of(fact) for fact in cluster_state.facts() if is_subscription(fact.subject)]
        lost, cluster_state.lost_log = cluster_state.lost_log, 0
        log = max(core.at.wall_us, lost + 1)
        loss = self._loss(core.name) if lost else None
        callbacks = Callbacks(self._finish, partial(self._retry_own_loss, lost))
        core.perform(events.catch_up(*core.at, claims, log, loss, callbacks))

    def _finish(self) -> None:
        """Run the actions that waited for durable service, whether or not it could begin."""
        if self._events.is_ready:
            self.announce_log()
            self._core.sweep_history()
        actions, self._until_ready = self._until_ready, []
        for action in actions:
            self._core.call(action)

    def announce_log(self) -> None:
        """Announce the number of this broker's log, if the network does not have it."""
        log = self._events.streams.log_number
        fact = self._cluster_state.fact(self._core.name, LOG)
        if fact is None or fact.claimed_us != log:
            self._cluster_state.announce(LOG, claimed_us=log)

    # --- losses ---

    def report_loss(self, broker: str) -> None:
        """Queue a loss marker for every durable subscription: a broker's disk is lost, and with it
        the events that it had yet to send.
        """
        core = self._core
        core.perform(self._events.report_loss(*core.at, self._loss(broker)))

    def _report_own_loss(self) -> None:
        """Report the lost log of an earlier incarnation of this broker. Log numbers come from the
        clock: if that was set back, the lost log has the greater number, and another is begun.
        """
        core, cluster_state, events = self._core, self._cluster_state, self._events
        lost, cluster_state.lost_log = cluster_state.lost_log, 0
        if lost < events.streams.log_number:
            self.report_loss(core.name)
            return
        loss = self._loss(core.name)
        callbacks = Callbacks(self.announce_log, partial(self._retry_own_loss, lost))
        core.perform(events.begin_log(*core.at, lost + 1, loss, callbacks))

    def _retry_own_loss(self, lost: int, _reason: str) -> None:
        """Remember a lost log for the next attempt: the disk refused its report and the new log."""
        self._cluster_state.lost_log = max(lost, self._cluster_state.lost_log)
        self._finish()

    def _loss(self, broker: str) -> Parcel:
        core, wall_us = self._core, self._core.at.wall_us
        core.report("error", "journal_lost", broker=broker)
        return LossMarker.at(broker, wall_us, Heading(ANYBODY, 0, 0, wall_us), 0).parcel
