"""`Core`: what all parts of a node share, and what follows once each of them has done its part.

The parts change tables and leave words in outboxes; `settle_up`, called at the end of every input,
turns them into effects, until there is nothing left to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from traceback import format_tb
from typing import Final, NamedTuple

import msgspec

from palio.errors import SubscriptionEnded
from palio.model.parcels import Parcel
from palio.node.assembling import Assembling
from palio.node.authority import Authority, hearable
from palio.node.claims import claim_of, is_outdated
from palio.node.cluster_state import AddressBook
from palio.node.durability import Durability, MatcherFactory
from palio.node.effects import ANYBODY, Effect, Heading, Moment, Report, Store
from palio.node.fact_batcher import FactBatcher, FactWriter
from palio.node.fact_verifier import (
    LOG,
    LOSS_REPORT,
    OF_AN_INCARNATION,
    FactVerifier,
    is_subscription,
)
from palio.node.identity import Identity
from palio.node.limits import MAX_EARLY, SHOWN_CHARS
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
from palio.protocol.failures import failure
from palio.protocol.messages import (
    NO_SESSION_EPOCH,
    Carry,
    Deliver,
    Done,
    Ended,
    EntriesStored,
    Fact,
    Facts,
    Message,
    Route,
    SessionEpoch,
    unpack_mask,
)
from palio.routing.messages import Batch, Control, Flood, Leave, Settled
from palio.routing.patterns.messages import Composite, TooLate
from palio.routing.protocol import Peer, Router, Send

_FAULTS: Final = ("cannot_take", "journal_failed")
"""RateLimitedLog of what no sound broker says."""


class Callbacks(NamedTuple):
    """An append, and those that wait for it."""

    then: Callable[[], None]
    """Called when it is on the disk..."""
    otherwise: Callable[[str], None]
    """...or with the reason if it could not be written."""


class Core:
    """Tables, the effects of the current input, and promises to be kept later."""

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
        """True if the current input may have led to more than `out` holds, or to a timer. Live
        events mostly do not, and then nobody is asked: see `Node.receive`."""
        self.out: list[Effect] = []
        self.budget = Budget(settings.memory_bytes)
        self.sessions: dict[str, Session] = {}
        self.neighbours: dict[str, Neighbour] = {}
        self.awaiting_digest: dict[Neighbour, float] = {}
        """Those that have yet to say what they know, and since when."""
        self.by_peer: dict[Peer, tuple[Session, int]] = {}
        """Places in the routing table: whose they are, and the key of a durable subscription."""
        self.settling = Settling(
            self.durability.cluster_state, self._send_wave, self._when_flushed, self.when_written
        )
        self._after_facts: list[Callable[[], None]] = []
        """Calls that wait for facts of this broker to be written."""
        self._routing_version = router.routing_version
        self.catch_up_deadline = inf
        """Until then a broker that has lost its disk waits to hear from its network."""
        self._until_ready: list[Callable[[], None]] = []
        """Calls that wait for that."""
        self._paths_at = -1
        """The state of the map when durable events were last told of it."""
        self._wave_peer: Peer | None = None
        """The place in the routing table from which this broker itself sends waves."""
        self.publisher_endpoints = PublisherEndpoints(router, self.route)
        cluster_state = self.durability.cluster_state
        self.absences = Absences(cluster_state.together)
        self.loss_reports = LossReports(
            name, self._when_in_force_beyond, self._are_joined, self.absences.judge
        )
        self.has_published = False
        """True if clients have published anything here."""
        self.table_sync = TableSync(self._say, self.resume_sending)
        self.lag = Lag()
        self.fact_batcher = FactBatcher(self._send_facts, self.lag)
        self.fact_writer = FactWriter(self.durability.cluster_state, self.append)
        self.on_facts: Callable[[list[Fact]], None] = lambda _facts: None
        """Told of what brokers have announced that is new."""
        self.rate_limited_log = RateLimitedLog()
        self.rate_limiters = RateLimiters()

    def report(self, level: str, event: str, **details: object) -> None:
        """Log something."""
        self.out.append(Report(level, event, details))

    def fault(self, kind: str, error: Exception) -> str:
        """Log what this broker has failed, and where; what it was."""
        problem = f"{type(error).__name__}: {error}"
        where = format_tb(error.__traceback__, -1)[0].split("\n")[0].strip()
        self.report("error", "failed", message=kind, error=problem, where=where)
        return problem

    def warn(self, event: str, source: str, count: int, **details: object) -> None:
        """Log something that a neighbour may not do or have, or that cannot be taken."""
        told = self.rate_limited_log.note(event, source, count, self.at.now, **details)
        if told is not None:
            self.report(_level(event), event, **told)

    def flush_warnings(self) -> None:
        """Time has passed: tell what has come together."""
        for event, told in self.rate_limited_log.due(self.at.now):
            self.report(_level(event), event, **told)

    def warn_unreadable(self, source: str, texts: Sequence[str]) -> None:
        """Log filters that this broker cannot read, and takes for everything."""
        remedy = "each is taken for everything; update this broker"
        self.warn("unread", source, len(texts), filter=texts[0][:SHOWN_CHARS], remedy=remedy)

    # --- the journal ---

    def begin(self) -> None:
        """The broker starts, with what its disk has."""
        durability, cluster_state, now = self.durability, self.durability.cluster_state, self.at.now
        events = durability.events
        self.absences.begin(each for each in cluster_state.brokers if each != self.name)
        for claim in events.claims:
            if claim.home == self.name:
                durable = durability.stored(claim, self.settings.lease_s)
                durable.away_since = now
                durability.enter(durable)
            durability.say(claim)  # it may have stopped before that was said
        self._apply_facts([each for each in cluster_state.facts() if each.origin != self.name])
        if not events.is_ready:
            has_to_wait = bool(self.settings.peers) and self.settings.has_disk
            self.catch_up_deadline = now + (self.settings.peer_grace_s if has_to_wait else 0.0)
        else:
            log = cluster_state.fact(self.name, LOG)
            if log is not None and 0 < log.claimed_us < events.streams.log_number:
                cluster_state.hear_of_log(log.claimed_us)  # the journal was cut short
                self._report_own_loss()
            self.announce_log()

    def announce_log(self) -> None:
        """Inform the network which log this broker has."""
        cluster_state, log = (
            self.durability.cluster_state,
            self.durability.events.streams.log_number,
        )
        said = cluster_state.fact(self.name, LOG)
        if said is None or said.claimed_us != log:
            cluster_state.announce(LOG, claimed_us=log)

    def when_ready(self, action: Callable[[], None]) -> None:
        """Do something durable once this broker takes that, which is soon after it has started; or
        at once if too much waits, to be refused.
        """
        is_ready = self.durability.events.is_ready
        if is_ready or len(self._until_ready) >= MAX_EARLY:
            action()
        else:
            self._until_ready.append(action)

    def _finish_catch_up(self) -> None:
        """This broker takes what is durable, or its disk refuses that: what has waited is done."""
        if self.durability.events.is_ready:
            self.announce_log()
        early, self._until_ready = self._until_ready, []
        for action in early:
            self.keep(action)

    def _catch_up(self) -> None:
        """A broker without its disk takes what is durable once it knows its network, or has nobody
        to hear that from; whom it is to tell of the loss it knows then, too.
        """
        cluster_state, events = self.durability.cluster_state, self.durability.events
        if not cluster_state.has_caught_up and self.at.now < self.catch_up_deadline:
            return
        self.catch_up_deadline = inf
        if events.is_ready:
            self._report_own_loss()
            return
        claims = [claim_of(each) for each in cluster_state.facts() if is_subscription(each.subject)]
        lost, cluster_state.lost_log = cluster_state.lost_log, 0
        log = max(self.at.wall_us, lost + 1)
        loss = self._loss(self.name) if lost else None
        callbacks = Callbacks(self._finish_catch_up, partial(self._retry_own_loss, lost))
        now, wall_us = self.at.now, self.at.wall_us
        self.perform(events.uncork(now, wall_us, claims, log, loss, callbacks))

    def append(
        self,
        operations: Iterable[Operation],
        then: Callable[[], None] | None = None,
        otherwise: Callable[[str], None] | None = None,
    ) -> None:
        """Write, and do something once it is on the disk, or if it cannot be written. Where nothing
        is to be written it waits for all that is being written.
        """
        events, callbacks = (
            self.durability.events,
            Callbacks(then or _nothing, otherwise or _never_mind),
        )
        written = tuple(operations)
        if written:
            self.perform(events.append(self.at.now, written, callbacks))
        else:
            self.perform(events.barrier(callbacks))

    def failed(self, ticket: int, reason: str) -> None:
        """See `Node.failed`."""
        self.warn("journal_failed", "", 1, reason=reason)
        self.perform(self.durability.events.refused(self.at.now, ticket, reason))

    def writable(self) -> None:
        """See `Node.writable`."""
        events = self.durability.events
        self.perform(events.writable(self.at.now))
        self.fact_writer.again()
        if not events.is_ready:
            self.catch_up_deadline = self.at.now

    def perform(self, actions: Iterable[Action]) -> None:
        """Carry out what durable events lead to. Appends go first: what else there is to do may
        append as well, and appends reach the disk in their order (L1).
        """
        self.has_follow_up = True
        actions = tuple(actions)
        self.out += [each for each in actions if isinstance(each, Append)]
        for each in actions:
            match each:
                case Transmit(broker, message):
                    self.send_towards(broker, message)
                case Kept(Callbacks() as waiter):
                    self.keep(waiter.then)
                case NotKept(Callbacks() as waiter, reason):
                    self.keep(partial(waiter.otherwise, reason))
                case QueueReady(subject):
                    durable = self.durability.here.get(subject)
                    if durable is not None:
                        self.pump(durable)
                case ClaimStored(_, claim):
                    self._apply_claim(claim)
                case Damaged(entry, home):
                    self._report_damage(entry, home=home)
                case Impossible(broker, what):
                    self.warn("message_refused", broker[:SHOWN_CHARS], 1, reason=what)

    def keep(self, callbacks: Callable[[], None]) -> None:
        """Do what was to be done then. A fault of that ends nothing else."""
        try:
            callbacks()
        except Exception as error:  # noqa: BLE001  # a fault of ours is told, and ends nobody else
            self.fault("Append", error)

    # --- neighbours, and waves ---

    def attach_link(self, neighbour: Neighbour) -> None:
        """A broker has sent what it knows (`Digest`), if it had not before: from now on the routing
        tables use the link, and no wave crosses it without what the broker lacked (W1).
        """
        if not neighbour.is_taken_in:
            neighbour.is_taken_in = True
            del self.awaiting_digest[neighbour]
            self.route(self.router.attach(neighbour.peer))
            self.loss_reports.joined()

    def settle(self, session: Session, id: int) -> None:
        """Answer a client once all it asked for is in force everywhere, and on the disk here."""
        self.settling.when_in_force(
            session, lambda unreached: session.say(self.out, Done(id, unreached))
        )

    def when_written(self, then: Callable[[], None]) -> None:
        """Do something once what this broker has announced of itself is on the disk, or cannot be.
        It is written at the end of an input.
        """
        self._after_facts.append(then)

    def when_known(self, then: Callable[[tuple[str, ...]], None]) -> None:
        """Do something once all brokers know what this one has announced of itself, but for
        some.
        """
        self.settling.when_known(self._wave_source(), then)

    def _when_in_force_beyond(self, then: Callable[[], None]) -> None:
        """Do something once all that this broker has told its neighbours is in force beyond."""
        self.settling.when_through(self._wave_source(), lambda _unreached: then())

    def _wave_source(self) -> Peer:
        if self._wave_peer is None:
            self._wave_peer = Peer.session(f"broker {self.name}")
            self.route(self.router.attach(self._wave_peer))
        return self._wave_peer

    def _send_wave(self, peer: Peer, wave: int) -> None:
        self._enqueue_facts()
        self.route(self.router.receive(peer, Batch((), wave=wave)))

    def _answer_wave(self, neighbour: Neighbour, settled: Settled) -> None:
        """Answer a wave once what was learned before is on our own disk: after a crash we still
        know it (W2 in `tests.models.fact_waves`). If the link leaves the tree by then, both ends
        have given the wave up.
        """
        uses = neighbour.uses

        def answer() -> None:
            if self.neighbours.get(neighbour.name) is neighbour and neighbour.uses == uses:
                self._flush_facts_to(neighbour)
                named = self.durability.cluster_state.unreached(neighbour.name)
                unreached = tuple(sorted(named.union(settled.unreached)))
                self.table_sync.tell(neighbour, Route(Settled(settled.wave, unreached)))

        if self.fact_writer.is_writing or self.durability.cluster_state.news:
            self._after_facts.append(answer)
        else:
            answer()

    def _when_flushed(self, then: Callable[[], None]) -> None:
        self.perform(self.durability.events.flush())
        self.append((), then, lambda _reason: then())

    # --- saying things ---

    def route(self, sends: Iterable[Send]) -> None:
        """Carry what the router says."""
        self.has_follow_up = True
        if self.router.routing_version != self._routing_version:
            self._routing_version = self.router.routing_version
            self.loss_reports.ways_changed("events take other ways")
        for peer, control in sends:
            if peer.is_client:
                if isinstance(control, Settled):
                    self.settling.answered(control.wave, control.unreached)
                elif isinstance(control, Composite | TooLate):
                    session, _ = self.by_peer[peer]
                    session.hear_pattern(self.out, control, self.settings.queue_bytes)
                continue
            neighbour = self.neighbours.get(peer.name)
            if neighbour is None or not neighbour.is_taken_in:
                continue  # said to one that has gone: it may be back in another session
            if isinstance(control, Settled):
                self._answer_wave(neighbour, control)
                continue
            if isinstance(control, Batch | Flood) and control.wave is not None:
                self._flush_facts_to(neighbour)
            told = self.assembling.told(neighbour.principal, control)
            if told is not None:
                self.table_sync.tell(neighbour, Route(told))
                self.tree_changed(neighbour, told)

    def tree_changed(self, neighbour: Neighbour, control: Control) -> None:
        """A broker says, or is told, that a link comes into the tree of a graph or leaves it."""
        neighbour.uses += isinstance(control, Leave)
        if not neighbour.changes_tree(control):
            return
        if neighbour.is_joining:
            self.loss_reports.joined()
        else:
            self.loss_reports.ways_changed(f"the tree changes at the link to {neighbour.name!r}")

    def _are_joined(self) -> None:
        """Tables are in force."""
        for neighbour in self.neighbours.values():
            neighbour.is_joining = False
        self.absences.join(has_published=self.has_published)

    def _say(self, neighbour: Neighbour, portion: Message) -> None:
        neighbour.tell(self.out, portion)

    def settle_up(self) -> None:
        """Say and write what the last input led to. What it did not change is not looked at."""
        cluster_state = self.durability.cluster_state
        while cluster_state.outbox or cluster_state.news or self._after_facts:
            self._store_and_send_facts()
            waiting, self._after_facts = self._after_facts, []
            for then in waiting:
                self._when_flushed(then)
        if cluster_state.unbelieved:
            self._warn_unbelieved()
        events = self.durability.events
        if cluster_state.lost_log and events.is_ready and not events.log.is_refusing:
            self.catch_up_deadline = min(
                self.catch_up_deadline, self.at.now + self.settings.peer_grace_s
            )
        if self.catch_up_deadline < inf:
            self._catch_up()
        if cluster_state.ways != self._paths_at:
            self._paths_at = cluster_state.ways
            renewed, cluster_state.renewed = cluster_state.renewed, {}
            self.absences.renew(renewed.keys())
            self.absences.look(cluster_state.reached)
            self.perform(self.durability.events.streams.ways_changed(self.at.now, self._path_to))
        interests = self.durability.interests
        if interests.unread:
            unread, interests.unread = interests.unread, {}
            for broker, text in unread.items():
                self.warn_unreadable(broker, [text])

    def _store_and_send_facts(self) -> None:
        """Write what the cluster_state learned, and send what it says."""
        cluster_state = self.durability.cluster_state
        self._enqueue_facts()
        news, cluster_state.news = cluster_state.news, []
        if news:
            for fact in news:
                if fact.subject == LOSS_REPORT and fact.origin != self.name:
                    why = fact.filter[:SHOWN_CHARS]
                    shown = why if why.isprintable() else ascii(why)
                    self.loss_reports.hear(f"{fact.origin} says: {shown}")
            self._apply_facts(news)
            self.on_facts(news)
            mine = [fact.version for fact in news if fact.origin == self.name]
            self._write_facts(max(mine, default=0), news)

    def _enqueue_facts(self) -> None:
        """Have neighbours told what the cluster_state says. The next wave is to follow it
        everywhere, also to where it came from: who told us may have others behind it that lack it
        (W4).
        """
        cluster_state = self.durability.cluster_state
        if cluster_state.outbox or cluster_state.news:
            self.router.unsettle()
        outbox, cluster_state.outbox = cluster_state.outbox, []
        for name, message in outbox:
            neighbour = self.neighbours.get(name)
            if neighbour is not None and isinstance(message, Facts):
                self.fact_batcher.put(neighbour, message)
            elif neighbour is not None:
                self.table_sync.tell(neighbour, message)

    def _flush_facts_to(self, neighbour: Neighbour) -> None:
        """Send a neighbour all facts that are due there: a wave follows (W1)."""
        self._enqueue_facts()
        self.fact_batcher.flush(neighbour)
        assert neighbour.before is None, f"W1: facts for {neighbour.name} wait, and a wave goes"

    def _apply_facts(self, news: Sequence[Fact]) -> None:
        """Brokers have said something: of durable subscriptions, of their logs, of who is gone."""
        now, durability = self.at.now, self.durability
        events, cluster_state = durability.events, durability.cluster_state
        actions, refused = durability.learn(now, news)
        self.perform(actions)
        for fact in refused:
            self.warn("claim_refused", fact.origin[:SHOWN_CHARS], 1, subscription=fact.subject)
        for fact in news:
            if fact.subject == LOG and fact.origin != self.name:
                self.perform(events.renew(now, fact.origin, fact.claimed_us))
        for broker in events.gone:
            if broker not in cluster_state.retired:
                events.come_back(broker)
        for broker in cluster_state.retired.difference(events.gone):
            self.perform(events.remove(now, broker))

    def report_loss(self, broker: str) -> None:
        """A broker has lost its disk, and what it was to bring: all that are durable are told."""
        now, wall_us, loss = self.at.now, self.at.wall_us, self._loss(broker)
        self.perform(self.durability.events.report_loss(now, wall_us, loss))

    def _report_own_loss(self) -> None:
        """An earlier incarnation of this broker had a log that is lost. If its number is above
        that of the present one, as the clock was put back, another one is begun.
        """
        cluster_state, events = self.durability.cluster_state, self.durability.events
        lost, cluster_state.lost_log = cluster_state.lost_log, 0
        if lost < events.streams.log_number:
            self.report_loss(self.name)
            return
        now, wall_us, loss = self.at.now, self.at.wall_us, self._loss(self.name)
        callbacks = Callbacks(self.announce_log, partial(self._retry_own_loss, lost))
        self.perform(events.begin_log(now, wall_us, lost + 1, loss, callbacks))

    def _retry_own_loss(self, lost: int, _reason: str) -> None:
        """The disk refused what is lost with a log, and the log that actions: it is tried again."""
        cluster_state = self.durability.cluster_state
        cluster_state.lost_log = max(lost, cluster_state.lost_log)
        self._finish_catch_up()

    def _loss(self, broker: str) -> Parcel:
        self.report("error", "log_lost", broker=broker)
        wall_us = self.at.wall_us
        return LossMarker.at(broker, wall_us, Heading(ANYBODY, 0, 0, wall_us), 0).parcel

    def _warn_unbelieved(self) -> None:
        """Facts that were not believed are told of."""
        cluster_state = self.durability.cluster_state
        unbelieved, cluster_state.unbelieved = cluster_state.unbelieved, []
        for name, fact, reason in unbelieved:
            origin, subject = fact.origin[:SHOWN_CHARS], fact.subject[:SHOWN_CHARS]
            self.warn("fact_refused", name, 1, origin=origin, subject=subject, reason=reason)

    def _report_damage(self, entry: int, **whose: str) -> None:
        """An entry that nobody can read any more: whose events were in it, if that is known."""
        heading, known = self.durability.events.heading(entry), {}
        if heading.publisher != ANYBODY:
            known = heading._asdict()
            del known["wall_us"]
        self.report("error", "entry_lost", entry=entry, **known, **whose)

    def _send_facts(self, neighbour: Neighbour, facts: Facts) -> None:
        if self.neighbours.get(neighbour.name) is neighbour:
            self.table_sync.tell(neighbour, facts)

    def _write_facts(self, version: int, facts: list[Fact]) -> None:
        cluster_state = self.durability.cluster_state

        def untold(_reason: str) -> None:
            """A full disk does not keep a broker from telling what live events go by."""
            cluster_state.tell(version, only=OF_AN_INCARNATION)

        def told() -> None:
            cluster_state.tell(version)
            self.settling.written()

        self.fact_writer.write(facts, told, untold)

    # --- durable subscriptions ---

    def _apply_claim(self, claim: Claim) -> None:
        """A claim is on the disk: who lives here is entered, who has gone is told."""
        durability, subject = self.durability, claim.subject
        durability.interests.learn(claim)
        if claim.is_over:
            durability.bookmarks.drop(subject)  # also if somebody has started over meanwhile
        durable = durability.here.get(subject)
        if claim.home == self.name:
            if durable is None:
                durable = durability.stored(claim, self.settings.lease_s)
                durable.away_since = self.at.now
                durability.enter(durable)
            durable.claim = claim
        elif durable is not None and claim == durability.newest(subject):
            self._handle_moved(durable, claim)
        durability.say(claim)

    def _handle_moved(self, durable: Durable, claim: Claim) -> None:
        """Another broker has claimed what is here, or its owner has ended it there."""
        durability = self.durability
        if durable.claim is not None and is_outdated(claim, durable.claim):
            # That was before its owner came here, and is heard only now: claim it above that.
            record = durability.record(durable)
            self.perform(durability.events.open(self.at.now, durable.claim, record, None))
            return
        self.evict(durable)
        durability.remove(durable.subject)
        durability.bookmarks.drop(durable.subject)
        event = "durable_ended" if claim.is_over else "durable_moved"
        self.report("info", event, subscription=durable.subject, to=claim.home)

    def end_durable(self, subject: str, callbacks: Callbacks | None = None) -> None:
        """A durable subscription is over, by the word of its owner."""
        durable, claim = self.durability.here[subject], self.durability.newest(subject)
        session_epoch = durable.session_epoch
        if session_epoch == NO_SESSION_EPOCH and claim is not None:
            session_epoch = SessionEpoch(claim.client, claim.session_epoch)
        self._end(subject, session_epoch, callbacks)

    def end_lease(self, subject: str) -> None:
        """A durable subscription is over as nobody has come for it: its owner is informed if it
        comes later (`Claim.is_lapsed`).
        """
        self._end(subject, NO_SESSION_EPOCH, None)

    def _end(self, subject: str, session_epoch: SessionEpoch, callbacks: Callbacks | None) -> None:
        events = self.durability.events
        self.perform(events.end(self.at.now, Claim(subject, 0, "", *session_epoch), callbacks))

    def evict(self, durable: Durable) -> None:
        """It is heard elsewhere now, or over: whoever has it here is told."""
        if durable.session is not None:
            problem = (
                f"{durable.subject} is heard elsewhere now, or was ended there; subscribe again to "
                "have it back"
            )
            durable.session.say(
                self.out, Ended((durable.key,), failure(SubscriptionEnded(problem)))
            )
        self.release(durable)

    def release(self, durable: Durable) -> None:
        """The owner of a durable subscription is here no longer."""
        session = durable.session
        if session is not None:
            session.let_go(durable.key)
            session.durables.pop(durable.key, None)
            session.stalled.pop(durable, None)
            durable.session, durable.away_since = None, self.at.now
            del self.by_peer[durable.peer]
            self.route(self.router.detach(durable.peer))

    def pump(self, durable: Durable) -> None:
        """Send what waits for a durable subscription to its owner, as far as the window allows."""
        session, events = durable.session, self.durability.events
        if session is None or durable.claim is None:  # what waits may be for one before it
            return
        while session.link is not None and session.has_room:
            if not durable.has_room:
                return  # it goes on with the next acknowledgement
            delivery = events.delivery(durable.subject, durable.sent)
            if delivery is None:
                return
            durable.send(delivery.offset, delivery.parcel.held_bytes)
            if delivery.is_damaged:
                self._report_damage(delivery.entry, subscription=durable.subject)
            notice = LossMarker.of(delivery.parcel)
            if notice is not None:
                for message in notice.told(durable.key, delivery.offset):
                    session.say(self.out, message)
            else:
                whole = Deliver(delivery.parcel, delivery.rows, durable.key, delivery.offset)
                session.say(self.out, _permitted(session, whole))
        session.stalled[durable] = None

    # --- towards other brokers ---

    def _path_to(self, broker: str) -> object:
        """Return what tells the way to a broker from others: its first link, in this session."""
        hop = self.durability.cluster_state.next_hop(broker)
        neighbour = None if hop is None else self.neighbours.get(hop)
        return None if neighbour is None else neighbour.id

    def send_towards(self, broker: str, message: Carry | EntriesStored, sender: str = "") -> None:
        """Send what goes to another broker to the next on the way, if there is one. What is lost
        is sent again by its origin.
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
            neighbour.say(self.out, message)

    def _receivable(self, neighbour: Neighbour, carry: Carry) -> Carry:
        """Return the part of carried events that a neighbour may receive: the rest has no way to
        its homes that its grant allows. The entry goes on without it, as those behind it are to
        follow it.
        """
        if neighbour.principal.may_receive_all:
            return carry
        notice = LossMarker.of(carry.parcel)
        if notice is not None and neighbour.principal.hears_something:
            return msgspec.structs.replace(carry, parcel=notice.anonymous.parcel)
        mask = hearable(neighbour.principal, carry.parcel)
        withheld = len(mask) - int(mask.sum())
        if withheld:
            self.warn("withheld", neighbour.name, withheld, homes=[carry.home])
        return without(carry, mask)

    def resume_sending(self, party: PeerSession) -> None:
        """The window has opened, or the party is back: go on with what waits for it."""
        if isinstance(party, Neighbour):
            self.table_sync.resume(party)
        party.send_waiting(self.out)
        if isinstance(party, Session):
            while party.stalled and party.link is not None and party.has_room:
                durable = next(iter(party.stalled))
                del party.stalled[durable]
                self.pump(durable)


def _permitted(session: Session, delivery: Deliver) -> Deliver:
    """A delivery without rows that its receiver may not receive, now that it is sent: what waited
    may have been assigned under a wider grant.
    """
    if session.principal.may_receive_all:
        return delivery
    parcel = delivery.parcel
    mask = unpack_mask(delivery.rows, len(parcel)) & hearable(session.principal, parcel)
    return Deliver(parcel.select(mask), None, delivery.key, delivery.entry)


def _level(complaint: str) -> str:
    return "error" if complaint in _FAULTS else "warning"


def _nothing() -> None:
    pass


def _never_mind(_reason: str) -> None:
    pass
