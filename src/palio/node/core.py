"""`Core`: the state that all components of a node share, and the work at the end of each input.

Components change tables and fill outboxes while they handle an input. `settle_up` runs once at the
end: it drains the outboxes into effects, and repeats until no outbox has anything left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from traceback import format_tb
from typing import Final, NamedTuple, Protocol

import msgspec

from palio.node.assembling import Assembling
from palio.node.authority import Authority, receivable
from palio.node.claims import is_outdated
from palio.node.cluster_state import AddressBook
from palio.node.durability import Durability, MatcherFactory
from palio.node.effects import ANYBODY, Effect, Moment, Report, Store
from palio.node.fact_batcher import FactBatcher, FactWriter
from palio.node.fact_verifier import (
    LOG,
    LOSS_REPORT,
    OF_AN_INCARNATION,
    FactVerifier,
)
from palio.node.identity import Identity
from palio.node.limits import SHOWN_CHARS
from palio.node.loss_markers import LossMarker
from palio.node.loss_reports import Absences, LossReports
from palio.node.operations import (
    Action,
    Append,
    Claim,
    ClaimStored,
    Damaged,
    Impossible,
    Kept,
    NotKept,
    Operation,
    QueueReady,
    Transmit,
)
from palio.node.plans import Plans
from palio.node.publisher_endpoints import PublisherEndpoints
from palio.node.rate_limited_log import RateLimitedLog
from palio.node.rate_limiters import RateLimiters
from palio.node.sessions import Budget, Durable, Neighbour, PeerSession, Session
from palio.node.settings import Settings
from palio.node.settling import Settling
from palio.node.streams import without
from palio.node.table_sync import TableSync
from palio.node.throttle import Lag
from palio.protocol.messages import (
    NO_SESSION_EPOCH,
    Carry,
    Done,
    EntriesStored,
    Fact,
    Facts,
    Message,
    Route,
    SessionEpoch,
)
from palio.routing.messages import Batch, Control, Flood, Leave, Settled
from palio.routing.patterns.messages import Composite, TooLate
from palio.routing.protocol import Peer, Router, Send

_FAULTS: Final = ("message_rejected", "append_refused")
"""Warnings that are logged as errors: a correct broker with a sound disk causes none of them."""


class Callbacks(NamedTuple):
    """Functions for the outcome of an append; `on_failure` gets the reason of the disk."""

    on_success: Callable[[], None]
    on_failure: Callable[[str], None]


class DurableConsumers(Protocol):
    """The part of `Consumers` that the core calls."""

    dead_letters: int
    redelivered: int

    def pump(self, durable: Durable) -> None:
        """Send the backlog of a durable subscription."""

    def evict(self, durable: Durable) -> None:
        """Detach a durable subscription that has moved or ended."""


class DurableStart(Protocol):
    """The part of `CatchUp` that the core and its modules call."""

    due_at: float

    def begin(self) -> None:
        """Begin with what the disk has."""

    def check(self) -> None:
        """Begin durable service, or report a lost log, if it is time."""

    def when_ready(self, action: Callable[[], None]) -> None:
        """Call `action` once this broker accepts durable requests."""

    def announce_log(self) -> None:
        """Announce the number of this broker's log, if the network does not have it."""

    def report_loss(self, broker: str) -> None:
        """Queue a loss marker for every durable subscription: a broker's disk is lost."""


class Core:
    """The tables of a node, the effects of the current input, and callbacks that are pending."""

    def __init__(
        self,
        name: str,
        router: Router,
        store: Store,
        settings: Settings,
        authority: Authority,
        identity: Identity,
        new_id: Callable[[], str],
        matcher: MatcherFactory,
    ) -> None:
        self.name = name
        self.router = router
        self.assembling = Assembling(router)
        self.settings = settings
        self.authority = authority
        self.identity = identity
        self.new_id = new_id
        fact_verifier = FactVerifier(name, identity, authority)
        self.durability = Durability(name, store, matcher, fact_verifier)
        self.plans = Plans(self.durability.cluster_state)
        self.address_book = AddressBook(self.durability.cluster_state)
        self.at = Moment(0.0, 0)
        self.has_follow_up = True
        """True if the current input may have led to more than `out` holds, or to a timer. Most live
        events lead to neither: `Node` then skips `settle_up`, which saves time on the hot path."""
        self.out: list[Effect] = []
        self.budget = Budget(settings.memory_bytes)
        self.sessions: dict[str, Session] = {}
        self.neighbours: dict[str, Neighbour] = {}
        self.awaiting_digest: dict[Neighbour, float] = {}
        """Neighbours whose `Digest` has not come yet, with the time of their handshake."""
        self.by_peer: dict[Peer, tuple[Session, int]] = {}
        """By endpoint in the routing table: the session, and the key of a durable subscription; -1
        for the endpoint of the session itself, which receives its live events."""
        self.settling = Settling(
            self.durability.cluster_state, self._send_wave, self._when_flushed, self.when_written
        )
        self._after_facts: list[Callable[[], None]] = []
        """Calls to be made once this broker's own facts are on the disk, or refused."""
        self._routing_version = router.routing_version
        self._map_version = -1
        """The version of the network map by which durable events were last sent."""
        self._wave_peer: Peer | None = None
        """The endpoint in the routing table from which this broker itself sends waves."""
        self.publisher_endpoints = PublisherEndpoints(router, self.route)
        cluster_state = self.durability.cluster_state
        self.absences = Absences(cluster_state.reached_without_self)
        self.loss_reports = LossReports(
            name, self._when_in_force_beyond, self._are_joined, self.absences.judge
        )
        self.has_published = False
        """True if clients have published anything here."""
        self.table_sync = TableSync(self._send_chunk, self.resume_sending)
        self.lag = Lag()
        self.fact_batcher = FactBatcher(self._send_facts, self.lag)
        self.fact_writer = FactWriter(self.durability.cluster_state, self.append)
        self.on_facts: Callable[[list[Fact]], None] = lambda _facts: None
        """Called with facts that are new here."""
        self.consumers: DurableConsumers
        self.catch_up: DurableStart
        """Set by `Node`, as the consumers are."""
        self.rate_limited_log = RateLimitedLog()
        self.rate_limiters = RateLimiters()

    def report(self, level: str, event: str, **details: object) -> None:
        """Write an event to the log."""
        self.out.append(Report(level, event, details))

    def fault(self, kind: str, error: Exception) -> str:
        """Log an exception of this broker's own code with its location; return its text."""
        problem = f"{type(error).__name__}: {error}"
        where = format_tb(error.__traceback__, -1)[0].split("\n")[0].strip()
        self.report("error", "internal_error", message=kind, error=problem, where=where)
        return problem

    def warn(self, event: str, source: str, count: int, **details: object) -> None:
        """Log a denied or invalid action of a neighbour, or of the disk, at a limited rate."""
        line = self.rate_limited_log.note(event, source, count, self.at.now, **details)
        if line is not None:
            self.report(_level(event), event, **line)

    def flush_warnings(self) -> None:
        """Log warnings that were accumulated, where their interval is over."""
        for event, line in self.rate_limited_log.due(self.at.now):
            self.report(_level(event), event, **line)

    def warn_unreadable(self, source: str, texts: Sequence[str]) -> None:
        """Log filters that this broker cannot parse, and treats as TRUE."""
        remedy = "each is taken for everything; update this broker"
        self.warn(
            "filter_unreadable", source, len(texts), filter=texts[0][:SHOWN_CHARS], remedy=remedy
        )

    # --- the journal ---

    def begin(self) -> None:
        """Start from the content of the disk."""
        durability, cluster_state, now = self.durability, self.durability.cluster_state, self.at.now
        events = durability.events
        self.absences.begin(broker for broker in cluster_state.brokers if broker != self.name)
        for claim in events.claims:
            if claim.home == self.name:
                durable = durability.stored(claim, self.settings.lease_s)
                durable.disconnected_at = now
                durability.enter(durable)
            durability.announce(claim)  # the broker may have stopped before it announced the claim
        self._apply_facts([fact for fact in cluster_state.facts() if fact.origin != self.name])
        self.catch_up.begin()

    def sweep_history(self) -> None:
        """Keep the history as the settings say. It is complete from the time when all brokers of
        the network know of it.
        """
        history = self.durability.history
        keep_s = self.settings.history_s if self.settings.has_disk else 0.0
        self.perform(history.sweep(self.at, keep_s))
        if history.is_kept and not history.kept_from_us and not history.is_settling:
            history.is_settling = True
            self.when_known(self._history_known)

    def _history_known(self, unreached: tuple[str, ...]) -> None:
        history = self.durability.history
        history.is_settling = False
        if history.is_kept and not unreached and not history.kept_from_us:
            self.perform(history.keep_from(self.at, self.at.wall_us))

    def append(
        self,
        operations: Iterable[Operation],
        on_success: Callable[[], None] | None = None,
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        """Write operations, and call back with the outcome. Without operations it is a barrier: the
        callbacks wait for all appends in flight.
        """
        callbacks = Callbacks(on_success or _ignore_success, on_failure or _ignore_failure)
        events, written = self.durability.events, tuple(operations)
        if written:
            self.perform(events.append(self.at.now, written, callbacks))
        else:
            self.perform(events.barrier(callbacks))

    def failed(self, ticket: int, reason: str) -> None:
        """Handle an `Append` that the disk refused."""
        self.warn("append_refused", "", 1, reason=reason)
        self.perform(self.durability.events.refused(self.at.now, ticket, reason))

    def writable(self) -> None:
        """Resume appends, after one that the disk refused."""
        events = self.durability.events
        self.perform(events.writable(self.at.now))
        self.fact_writer.retry()
        if not events.is_ready:
            self.catch_up.due_at = self.at.now

    def perform(self, actions: Iterable[Action]) -> None:
        """Carry out actions of durable events. Appends go first: other actions may append as well,
        and the disk must get appends in the order of their tickets (L1).
        """
        self.has_follow_up = True
        actions = tuple(actions)
        self.out += [action for action in actions if isinstance(action, Append)]
        for action in actions:
            match action:
                case Transmit(broker, message):
                    self.send_towards(broker, message)
                case Kept(Callbacks() as waiter):
                    self.call(waiter.on_success)
                case NotKept(Callbacks() as waiter, reason):
                    self.call(partial(waiter.on_failure, reason))
                case QueueReady(subject):
                    durable = self.durability.here.get(subject)
                    if durable is not None:
                        self.consumers.pump(durable)
                case ClaimStored(_, claim):
                    self._apply_claim(claim)
                case Damaged(entry, home):
                    self.report_damage(entry, home=home)
                case Impossible(broker, reason):
                    self.warn("ack_rejected", broker[:SHOWN_CHARS], 1, reason=reason)

    def call(self, callback: Callable[[], None]) -> None:
        """Call back; a fault is logged, and ends nothing."""
        try:
            callback()
        except Exception as error:  # noqa: BLE001  # our fault ends no session
            self.fault("Append", error)

    # --- neighbours, and waves ---

    def attach_link(self, neighbour: Neighbour) -> None:
        """Add the link of a neighbour to the routing tables, once its `Digest` has come. Only from
        then on may waves cross it: all facts that the neighbour lacks are queued before them (W1).
        """
        if not neighbour.is_taken_in:
            neighbour.is_taken_in = True
            del self.awaiting_digest[neighbour]
            self.route(self.router.attach(neighbour.peer))
            self.loss_reports.peer_joined()

    def settle(self, session: Session, id: int) -> None:
        """Answer a client once its requests are in force at all brokers, and on the disk here."""
        self.settling.when_in_force(
            session, lambda unreached: session.send(self.out, Done(id, unreached))
        )

    def when_written(self, callback: Callable[[], None]) -> None:
        """Call back once this broker's own facts are on the disk, or refused. They are written at
        the end of an input.
        """
        self._after_facts.append(callback)

    def when_known(self, callback: Callable[[tuple[str, ...]], None]) -> None:
        """Call back once all brokers have this one's own facts, with the names of those that could
        not be reached.
        """
        self.settling.when_known(self._wave_source(), callback)

    def _when_in_force_beyond(self, callback: Callable[[], None]) -> None:
        """Call back once the updates sent to neighbours are in force at all brokers behind them."""
        self.settling.when_through(self._wave_source(), lambda _unreached: callback())

    def _wave_source(self) -> Peer:
        if self._wave_peer is None:
            self._wave_peer = Peer.session(f"broker {self.name}")
            self.route(self.router.attach(self._wave_peer))
        return self._wave_peer

    def _send_wave(self, peer: Peer, wave: int) -> None:
        self._enqueue_facts()
        self.route(self.router.receive(peer, Batch((), wave=wave)))

    def _answer_wave(self, neighbour: Neighbour, settled: Settled) -> None:
        """Answer a wave once all facts learned before it are on the disk, so that they outlive a
        crash (W2 in `tests.models.fact_waves`). If the link has left the tree by then, both ends
        have dropped the wave.
        """
        uses = neighbour.uses

        def answer() -> None:
            if self.neighbours.get(neighbour.name) is neighbour and neighbour.uses == uses:
                self._flush_facts_to(neighbour)
                named = self.durability.cluster_state.unconfirmed(neighbour.name)
                unreached = tuple(sorted(named.union(settled.unreached)))
                self.table_sync.send(neighbour, Route(Settled(settled.wave, unreached)))

        if self.fact_writer.is_writing or self.durability.cluster_state.new_facts:
            self._after_facts.append(answer)
        else:
            answer()

    def _when_flushed(self, callback: Callable[[], None]) -> None:
        self.perform(self.durability.events.flush())
        self.append((), callback, lambda _reason: callback())

    # --- sending ---

    def route(self, sends: Iterable[Send]) -> None:
        """Deliver the router's messages to neighbours and sessions."""
        self.has_follow_up = True
        if self.router.routing_version != self._routing_version:
            self._routing_version = self.router.routing_version
            self.loss_reports.paths_changed("events take other paths")
        for peer, control in sends:
            if peer.is_client:
                if isinstance(control, Settled):
                    self.settling.answered(control.wave, control.unreached)
                elif isinstance(control, Composite | TooLate):
                    session, _ = self.by_peer[peer]
                    session.deliver_pattern(self.out, control, self.settings.queue_bytes)
                continue
            neighbour = self.neighbours.get(peer.name)
            if neighbour is None or not neighbour.is_taken_in:
                continue  # it left; a new session of it gets the whole table
            if isinstance(control, Settled):
                self._answer_wave(neighbour, control)
                continue
            if isinstance(control, Batch | Flood) and control.wave is not None:
                self._flush_facts_to(neighbour)
            permitted = self.assembling.restrict_outgoing(neighbour.principal, control)
            if permitted is not None:
                self.table_sync.send(neighbour, Route(permitted))
                self.note_tree_change(neighbour, permitted)

    def note_tree_change(self, neighbour: Neighbour, control: Control) -> None:
        """Track control messages, in either direction, that add a link to the tree or remove it.
        Events may be lost on the old path, so subscribers are to be informed.
        """
        neighbour.uses += isinstance(control, Leave)
        if not neighbour.changes_tree(control):
            return
        if neighbour.is_joining:
            self.loss_reports.peer_joined()
        else:
            self.loss_reports.paths_changed(f"the tree changes at the link to {neighbour.name!r}")

    def _are_joined(self) -> None:
        """Mark the tables of all neighbours as in force."""
        for neighbour in self.neighbours.values():
            neighbour.is_joining = False
        self.absences.tables_in_force(has_published=self.has_published)

    def _send_chunk(self, neighbour: Neighbour, chunk: Message) -> None:
        neighbour.send_portion(self.out, chunk)

    def settle_up(self) -> None:
        """Send and store the results of the last input. State that did not change costs nothing."""
        cluster_state = self.durability.cluster_state
        while cluster_state.outbox or cluster_state.new_facts or self._after_facts:
            self._store_and_send_facts()
            callbacks, self._after_facts = self._after_facts, []
            for callback in callbacks:
                self._when_flushed(callback)
        if cluster_state.rejected_facts:
            self._warn_rejected_facts()
        self.catch_up.check()
        if cluster_state.routing_version != self._map_version:
            self._map_version = cluster_state.routing_version
            renewed, cluster_state.restarted = cluster_state.restarted, {}
            self.absences.forget(renewed.keys())
            self.absences.update(cluster_state.reached)
            self.perform(self.durability.events.streams.paths_changed(self.at.now, self._path_to))
        interests = self.durability.interests
        if interests.unread:
            unread, interests.unread = interests.unread, {}
            for broker, text in unread.items():
                self.warn_unreadable(broker, [text])

    def _store_and_send_facts(self) -> None:
        """Write facts that are new here, and send them on."""
        cluster_state = self.durability.cluster_state
        self._enqueue_facts()
        news, cluster_state.new_facts = cluster_state.new_facts, []
        if news:
            for fact in news:
                if fact.subject == LOSS_REPORT and fact.origin != self.name:
                    why = fact.filter[:SHOWN_CHARS]
                    shown = why if why.isprintable() else ascii(why)
                    self.loss_reports.note_here(f"{fact.origin}: {shown}")
            self._apply_facts(news)
            self.on_facts(news)
            mine = [fact.version for fact in news if fact.origin == self.name]
            self._write_facts(max(mine, default=0), news)

    def _enqueue_facts(self) -> None:
        """Queue the outgoing facts of the cluster state for the neighbours. The next wave follows
        them everywhere, also to their sender: brokers behind the sender may lack them (W4).
        """
        cluster_state = self.durability.cluster_state
        if cluster_state.outbox or cluster_state.new_facts:
            self.router.unsettle()
        outbox, cluster_state.outbox = cluster_state.outbox, []
        for name, message in outbox:
            neighbour = self.neighbours.get(name)
            if neighbour is not None and isinstance(message, Facts):
                self.fact_batcher.put(neighbour, message)
            elif neighbour is not None:
                self.table_sync.send(neighbour, message)

    def _flush_facts_to(self, neighbour: Neighbour) -> None:
        """Send a neighbour all facts that are due there, ahead of a wave (W1)."""
        self._enqueue_facts()
        self.fact_batcher.flush(neighbour)
        assert neighbour.before is None, f"W1: a wave overtakes facts for {neighbour.name}"

    def _apply_facts(self, news: Sequence[Fact]) -> None:
        """Apply new facts about claims, about logs, and about removed brokers."""
        now, durability = self.at.now, self.durability
        events, cluster_state = durability.events, durability.cluster_state
        actions, refused = durability.learn(now, news)
        self.perform(actions)
        for fact in refused:
            self.warn("claim_rejected", fact.origin[:SHOWN_CHARS], 1, subscription=fact.subject)
        for fact in news:
            if fact.subject == LOG and fact.origin != self.name:
                self.perform(events.renew(now, fact.origin, fact.claimed_us))
        for broker in events.gone:
            if broker not in cluster_state.removed:
                events.reinstate(broker)
        for broker in cluster_state.removed.difference(events.gone):
            self.perform(events.remove(now, broker))

    def _warn_rejected_facts(self) -> None:
        """Log facts that failed verification."""
        cluster_state = self.durability.cluster_state
        unbelieved, cluster_state.rejected_facts = cluster_state.rejected_facts, []
        for name, fact, reason in unbelieved:
            origin, subject = fact.origin[:SHOWN_CHARS], fact.subject[:SHOWN_CHARS]
            self.warn("fact_rejected", name, 1, origin=origin, subject=subject, reason=reason)

    def report_damage(self, entry: int, **whose: str) -> None:
        """Log an unreadable entry, with the publisher and numbers of its events where known."""
        heading, details = self.durability.events.heading(entry), {}
        if heading.publisher != ANYBODY:
            details = heading._asdict()
            del details["wall_us"]
        self.report("error", "entry_lost", entry=entry, **details, **whose)

    def _send_facts(self, neighbour: Neighbour, facts: Facts) -> None:
        if self.neighbours.get(neighbour.name) is neighbour:
            self.table_sync.send(neighbour, facts)

    def _write_facts(self, version: int, facts: list[Fact]) -> None:
        cluster_state = self.durability.cluster_state

        def publish_live(_reason: str) -> None:
            # A full disk must not stop live events, which are routed by facts of an incarnation.
            cluster_state.mark_write_failed(version, publish_anyway=OF_AN_INCARNATION)

        def publish() -> None:
            cluster_state.mark_durable(version)
            self.settling.written()

        self.fact_writer.write(facts, publish, publish_live)

    # --- durable subscriptions ---

    def _apply_claim(self, claim: Claim) -> None:
        """Apply a claim that is on the disk: add or detach the subscription, and announce it."""
        durability, subject = self.durability, claim.subject
        durability.interests.learn(claim)
        durability.history.learn(claim)
        if claim.is_over:
            durability.bookmarks.drop(subject)  # also if the name was taken by a new one meanwhile
        durable = durability.here.get(subject)
        if claim.home == self.name:
            if durable is None:
                durable = durability.stored(claim, self.settings.lease_s)
                durable.disconnected_at = self.at.now
                durability.enter(durable)
            durable.claim = claim
        elif durable is not None and claim == durability.newest(subject):
            self._handle_moved(durable, claim)
        durability.announce(claim)

    def _handle_moved(self, durable: Durable, claim: Claim) -> None:
        """Give up a durable subscription that another broker has claimed or ended."""
        durability = self.durability
        if durable.claim is not None and is_outdated(claim, durable.claim):
            # The owner left that broker before it came here, and the claim arrives late. It has
            # the greater number all the same, so this broker must claim with a greater one.
            record = durability.record(durable)
            self.perform(durability.events.open(self.at.now, durable.claim, record, None))
            return
        self.consumers.evict(durable)
        durability.remove(durable.subject)
        durability.bookmarks.drop(durable.subject)
        self.report(
            "info",
            "durable_ended" if claim.is_over else "durable_moved",
            subscription=durable.subject,
            to=claim.home,
        )

    def end_durable(self, subject: str, callbacks: Callbacks | None = None) -> None:
        """End a durable subscription at its owner's request."""
        durable, claim = self.durability.here[subject], self.durability.newest(subject)
        session_epoch = durable.session_epoch
        if session_epoch == NO_SESSION_EPOCH and claim is not None:
            session_epoch = SessionEpoch(claim.client, claim.session_epoch)
        self._end(subject, session_epoch, callbacks)

    def end_lease(self, subject: str) -> None:
        """End a durable subscription whose lease has expired. Its owner is informed if it comes
        back (`Claim.is_lapsed`).
        """
        self._end(subject, NO_SESSION_EPOCH, None)

    def _end(self, subject: str, session_epoch: SessionEpoch, callbacks: Callbacks | None) -> None:
        events = self.durability.events
        self.perform(events.end(self.at.now, Claim(subject, 0, "", *session_epoch), callbacks))

    # --- towards other brokers ---

    def _path_to(self, broker: str) -> object:
        """Return the identity of the path to a broker: the session of its first link, None if no
        path leads there. A new session of the same neighbour counts as another path.
        """
        hop = self.durability.cluster_state.next_hop(broker)
        neighbour = None if hop is None else self.neighbours.get(hop)
        return None if neighbour is None else neighbour.id

    def send_towards(self, broker: str, message: Carry | EntriesStored, sender: str = "") -> None:
        """Forward a message to the next hop on the path to a broker, but never back to `sender`.
        Without a next hop it is dropped: its origin retransmits.
        """
        hop = self.durability.cluster_state.next_hop(broker)
        neighbour = None if hop is None else self.neighbours.get(hop)
        if neighbour is None or neighbour.name == sender:
            return
        if isinstance(message, Carry):
            neighbour.carry(
                self.out, self._receivable(neighbour, message), self.settings.queue_bytes
            )
        else:
            neighbour.send(self.out, message)

    def _receivable(self, neighbour: Neighbour, carry: Carry) -> Carry:
        """Return an entry with only the events that a neighbour may receive. It is forwarded even
        without any: the home accepts the entries behind it only after this one (D1).
        """
        if neighbour.principal.may_receive_all:
            return carry
        marker = LossMarker.of(carry.parcel)
        if marker is not None and neighbour.principal.receives_something:
            return msgspec.structs.replace(carry, parcel=marker.anonymous.parcel)
        mask = receivable(neighbour.principal, carry.parcel)
        withheld = len(mask) - int(mask.sum())
        if withheld:
            self.warn("events_withheld", neighbour.name, withheld, homes=[carry.home])
        return without(carry, mask)

    def resume_sending(self, session: PeerSession) -> None:
        """Send a session's backlog: its window has opened, or it has reconnected."""
        if isinstance(session, Neighbour):
            self.table_sync.resume(session)
        session.send_waiting(self.out)
        if isinstance(session, Session):
            while session.stalled and session.link is not None and session.has_room:
                durable = next(iter(session.stalled))
                del session.stalled[durable]
                self.consumers.pump(durable)


def _level(event: str) -> str:
    return "error" if event in _FAULTS else "warning"


def _ignore_success() -> None:
    pass


def _ignore_failure(_reason: str) -> None:
    pass
