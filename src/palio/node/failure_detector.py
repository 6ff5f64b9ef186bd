"""`FailureDetector`: ends connections, sessions and leases that time out, and does other periodic
work of a broker.

`sweep` checks clients, sessions and leases. It runs in steps, between which the broker handles
other inputs. `tick` checks the peers, which are few, more often, because a network heals only after
a broken link is detected.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Final

from palio.errors import NotAuthenticated
from palio.node.core import Core
from palio.node.effects import Close, Send
from palio.node.limits import LOSS_REPORT_BURST, MAX_LOSS_REPORT_INTERVAL_S, SHOWN_CHARS
from palio.node.links import Link, Links
from palio.node.peers import Peers
from palio.node.publishing import Publishing
from palio.node.sessions import Durable, Neighbour, PeerSession
from palio.node.throttle import Throttle
from palio.protocol.limits import ANSWER_S, SILENT_BEATS
from palio.protocol.messages import Bye, Ping
from palio.routing.protocol import Hierarchy

CHECKS_PER_HEARTBEAT: Final = 5
"""Sweeps per heartbeat of clients; checks of peers per heartbeat of peers, while one of them is
disconnected."""

CALM_CHECKS_PER_HEARTBEAT: Final = 2
"""Checks of peers per heartbeat while all are connected. They are fewer, because an idle broker
spends most of its work on them."""

LEASE_STEPS: Final = 10
"""The cost of ending a lease in steps of a sweep: a disk write, and a fact for all brokers."""


class FailureDetector:
    """Checks all connections, sessions and leases of one broker, several times a heartbeat.

    A sweep also drives work that needs no timer of its own: it aborts changes of the tree that take
    too long, switches multicast plans, reports lost events, and writes what was postponed.
    """

    def __init__(self, core: Core, links: Links, peers: Peers, publishing: Publishing) -> None:
        self._core = core
        self._links = links
        self._peers = peers
        self._publishing = publishing
        self._peers_due_at = 0.0
        self._hierarchy = core.router if isinstance(core.router, Hierarchy) else None
        sweep_s = core.settings.heartbeat_s / CHECKS_PER_HEARTBEAT
        self._loss_reports = Throttle(
            sweep_s, MAX_LOSS_REPORT_INTERVAL_S, LOSS_REPORT_BURST, core.lag
        )
        # The parent in the hierarchy and the root, as logged last.
        self._logged_parent_and_root = "", core.name

    # --- peers ---

    @property
    def wake_at(self) -> float:
        """When `tick` is next to be called."""
        return self._peers_due_at if self._core.neighbours else inf

    def schedule(self) -> None:
        """Schedule the next check of peers: after the usual interval, or when one times out."""
        core, heartbeat_s = self._core, self._core.settings.peer_heartbeat_s
        checks, timeout_at = CALM_CHECKS_PER_HEARTBEAT, inf
        for neighbour in core.neighbours.values():
            if neighbour.link is None:
                checks = CHECKS_PER_HEARTBEAT
            elif (state := self._links.get(neighbour.link)) is not None:
                timeout_at = min(timeout_at, state.last_received_at + SILENT_BEATS * heartbeat_s)
        self._peers_due_at = min(core.at.now + heartbeat_s / checks, timeout_at)

    def tick(self) -> bool:
        """Check the peers if it is time; return whether it was."""
        core = self._core
        late = core.at.now - self.wake_at
        if late < 0.0:
            return False
        for neighbour in list(core.neighbours.values()):
            if neighbour.link is not None:
                self._check_idle(neighbour, neighbour.link, late, core.settings.peer_heartbeat_s)
            if self._has_expired(neighbour, core.settings.peer_grace_s):
                self._peers.end_neighbour(neighbour)
            elif neighbour.has_dropped():
                core.loss_reports.note(f"events for {neighbour.name!r} were dropped")
        self._peers.bypass_broken_links()
        self._peers.report_link_costs()
        self._log_parent_and_root()
        self.schedule()
        return True

    def _log_parent_and_root(self) -> None:
        """Log a new parent or root in the hierarchy, at most once a check."""
        if self._hierarchy is None or not self._hierarchy.root:
            return
        parent, root = self._hierarchy.parent, self._hierarchy.root
        if (parent, root) != self._logged_parent_and_root:
            self._logged_parent_and_root = parent, root
            self._core.report("info", "parent_changed", parent=parent, root=root)

    # --- the sweep ---

    def sweep(self, late: float) -> Iterator[int]:
        """Check everything, step by step; each step yields its cost, so that the caller can pause.

        The checks run on copies: between two steps, other inputs may end what was copied.
        """
        core = self._core
        for link, state in self._links.all():
            if self._links.get(link) is state:
                self._check_link(link, state, late)
            yield 1
        grace_s = core.settings.client_grace_s
        disconnected = [each for each in core.sessions.values() if each.link is None]
        for session in disconnected:
            is_current = core.sessions.get(session.id) is session
            if is_current and self._has_expired(session, grace_s):
                steps = 1 + len(session.subscriptions)
                self._peers.end_session(session)
                yield steps
        yield from self._peers.end_unacked()
        self._peers.break_cycles()
        self._publishing.publish_barrier.watch()
        self._publishing.multicasting.switch_plan()
        yield from self._report_losses()
        core.sweep_history()
        for subject, durable in list(core.durability.here.items()):
            is_current = core.durability.here.get(subject) is durable
            if is_current and _has_lease_expired(durable, core.at.now):
                backlog = len(core.durability.events.backlog(subject))
                core.report("warning", "lease_expired", subscription=subject, entries_lost=backlog)
                core.end_lease(subject)
                yield LEASE_STEPS
        core.durability.cluster_state.tick(core.at)
        core.flush_warnings()
        self._publishing.times.store_if_due()

    def _report_losses(self) -> Iterator[int]:
        """Report to other brokers and to clients here that live events may have been lost, at most
        once a sweep.
        """
        core = self._core
        why, reasons = core.loss_reports.take(may_report=self._loss_reports.due_at <= core.at.now)
        if why:
            core.report("warning", "events_lost", reason=why)
            self._loss_reports.record(core.at.now)
            core.durability.cluster_state.report_loss(why[:SHOWN_CHARS])
        if reasons:
            for session in list(core.sessions.values()):
                if session.subscriptions:
                    session.lapse(core.out, reasons)
                yield 1

    def _has_expired(self, session: PeerSession, grace: float) -> bool:
        return session.link is None and self._core.at.now - session.disconnected_at > grace

    def _check_link(self, link: int, state: Link, late: float) -> None:
        core, settings, session = self._core, self._core.settings, state.session
        if session is None:
            handshake_s = settings.handshake_timeout_s
            if state.dialed:
                handshake_s = max(handshake_s, ANSWER_S)
            if core.at.now - state.opened_at > handshake_s:
                self._links.close(
                    link, Bye("NotAuthenticated", "no handshake within limits.handshake_timeout_s")
                )
            return
        try:
            core.authority.check(session.principal, core.at)
        except NotAuthenticated as error:
            self._links.reject(link, error)
            return
        if not isinstance(session, Neighbour):
            self._check_idle(session, link, late, settings.heartbeat_s)

    def _check_idle(self, session: PeerSession, link: int, late: float, heartbeat_s: float) -> None:
        """Ping an idle peer or client, and close a connection that has timed out."""
        core, state = self._core, self._links.get(link)
        if state is None:
            return
        # A busy broker reads its connections late: its own delay must not make others time out.
        state.last_received_at = min(core.at.now, state.last_received_at + late)
        idle_s = core.at.now - state.last_received_at
        if core.at.now >= state.last_received_at + SILENT_BEATS * heartbeat_s:
            core.report("warning", "heartbeat_timeout", peer=str(session.peer))
            self._links.mark_lost(link)
            core.out.append(Close(link, "heartbeat timeout"))
            return
        session.send_ack(core.out)
        if isinstance(session, Neighbour):
            self._peers.ask(session, is_silent=idle_s > heartbeat_s)
        elif idle_s > heartbeat_s:
            core.out.append(Send(link, Ping()))


def _has_lease_expired(durable: Durable, now: float) -> bool:
    return not durable.consumers and now - durable.disconnected_at > durable.lease_s
