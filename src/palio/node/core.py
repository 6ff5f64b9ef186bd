"""`Core`: what all parts of a node share, and what follows once each of them has done its part.

The parts change tables and leave words in outboxes; `settle_up`, called at the end of every input,
turns them into effects, until there is nothing left to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from traceback import format_tb
from typing import Final, TypeAlias

import msgspec

from palio.errors import SubscriptionEnded
from palio.model.parcels import Parcel
from palio.node.allowances import Allowances
from palio.node.assembling import Assembling
from palio.node.authority import Authority, hearable
from palio.node.complaints import Complaints
from palio.node.custody import Lost
from palio.node.durability import Durability, MatcherFactory
from palio.node.effects import (
    ANYBODY,
    Append,
    DropSubscription,
    Effect,
    Forget,
    Moment,
    Operation,
    Report,
    Store,
)
from palio.node.fact_reports import Answers, FactReports, bundled
from palio.node.fact_writer import FactWriter
from palio.node.identity import Identity
from palio.node.lapses import Lapses
from palio.node.limits import SHOWN_CHARS
from palio.node.notices import Notice
from palio.node.outlets import Outlets
from palio.node.plans import Plans
from palio.node.releases import Releases
from palio.node.sessions import Budget, Durable, Neighbour, PeerSession, Session
from palio.node.settings import Settings
from palio.node.settling import Settling
from palio.node.telling import Telling
from palio.node.throttle import Lag
from palio.node.vouching import LAPSE, OF_A_LIFE, Vouching
from palio.node.whereabouts import Whereabouts
from palio.protocol.failures import failure
from palio.protocol.messages import (
    Carry,
    Deliver,
    Done,
    Echo,
    Ended,
    Fact,
    Facts,
    Message,
    Route,
    unpack_mask,
)
from palio.routing.messages import Batch, Settled
from palio.routing.patterns.messages import Composite, TooLate
from palio.routing.protocol import Peer, Router, Send

__all__ = ["Core"]


_FAULTS: Final = ("cannot_take", "journal_failed")
"""Complaints of what no sound broker says."""

_Promise: TypeAlias = tuple[Callable[[], None], Callable[[str], None]]
"""Two callbacks of an append: called when it is on the disk, or with the reason if it failed."""


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
        vouching = Vouching(name, identity, authority)
        self.durability = Durability(name, store, matcher, vouching)
        self.plans = Plans(self.durability.registry)
        self.whereabouts = Whereabouts(self.durability.registry)
        self.at = Moment(0.0, 0)
        self.out: list[Effect] = []
        self.budget = Budget(settings.memory_bytes)
        self.sessions: dict[str, Session] = {}
        self.neighbours: dict[str, Neighbour] = {}
        self.by_peer: dict[Peer, tuple[Session, int]] = {}
        """Places in the routing table: whose they are, and the key of a durable subscription."""
        self.settling = Settling(self.durability.registry, self._ask_tables, self._ask_disk)
        self._after_facts: list[Callable[[], None]] = []
        """What waits for facts of this broker that are yet to be written."""
        self._ways = router.ways
        self._sounder: Peer | None = None
        """The place in the routing table from which this broker itself sends waves."""
        self.outlets = Outlets(router, self.route)
        self.lapses = Lapses(self._sound)
        self.telling = Telling(self._say, self.flow)
        self.lag = Lag()
        self.fact_reports = FactReports(self._tell_facts, self._echo, self.lag)
        self.releases = Releases()
        self.fact_writer = FactWriter(self.durability.registry, self.append)
        self.facts_came: Callable[[list[Fact]], None] = lambda _facts: None
        """Told of what brokers have said that is new."""
        self.durables_moved: Callable[[Iterable[tuple[str, str]]], None] = lambda _moved: None
        """Told of durable subscriptions of this broker that live elsewhere now: their homes."""
        self._next_ticket = 1
        self._promises: dict[int, list[_Promise]] = {}
        self.failures = 0
        """Appends that could not be written."""
        self.complaints = Complaints()
        self.allowances = Allowances()

    def report(self, level: str, event: str, **details: object) -> None:
        """Tell people."""
        self.out.append(Report(level, event, details))

    def fault(self, kind: str, error: Exception) -> str:
        """Tell people on what this broker has failed, and where; what it was."""
        problem = f"{type(error).__name__}: {error}"
        where = format_tb(error.__traceback__, -1)[0].split("\n")[0].strip()
        self.report("error", "failed", message=kind, error=problem, where=where)
        return problem

    def complain(self, event: str, culprit: str, count: int, **details: object) -> None:
        """Tell people of something that a neighbour may not do or have, or that cannot be taken."""
        told = self.complaints.note(event, culprit, count, self.at.now, **details)
        if told is not None:
            self.report(_level(event), event, **told)

    def complain_again(self) -> None:
        """Time has passed: tell what has come together."""
        for event, told in self.complaints.due(self.at.now):
            self.report(_level(event), event, **told)

    def complain_unread(self, culprit: str, texts: Sequence[str]) -> None:
        """Tell people of filters that this broker cannot read, and takes for everything."""
        remedy = "each is taken for everything; update this broker"
        self.complain("unread", culprit, len(texts), filter=texts[0][:SHOWN_CHARS], remedy=remedy)

    # --- the journal ---

    def append(
        self,
        operations: Iterable[Operation],
        then: Callable[[], None] | None = None,
        otherwise: Callable[[str], None] | None = None,
        *,
        needs: tuple[int, ...] = (),
    ) -> int:
        """Write, and do something once it is on the disk, or if it cannot be written; not unless
        the appends are written that it `needs`. Its ticket; 0 if it has none of its own.

        What the journal may forget is written with it, if that has been some time. Where nothing is
        to be written it waits for what is being written: what it depends on may be among that.
        """
        written = tuple(operations)
        for each in written:
            if isinstance(each, DropSubscription):
                self.releases.end(each.subscription)
        released: tuple[Operation, ...] = ()
        if not written or self.releases.are_ripe(self.at.now):
            released = tuple(self.releases.take())
        promise = (then or _nothing, otherwise or _never_mind)
        if written or released:
            ticket = self._next_ticket
            self._promises[ticket] = [promise]
            oldest = next(iter(self._promises))
            self.out.append(Append(ticket, written, released, needs, oldest))
            self._next_ticket += 1
            return ticket
        if self._promises:
            self._promises[next(reversed(self._promises))].append(promise)
        else:
            promise[0]()
        return 0

    def stored(self, ticket: int) -> None:
        """See `Node.stored`."""
        for then, _ in self._promises.pop(ticket):
            self.keep(then)

    def failed(self, ticket: int, reason: str) -> None:
        """See `Node.failed`."""
        self.complain("journal_failed", "", 1, reason=reason)
        self.failures += 1
        for _, otherwise in self._promises.pop(ticket):
            self.keep(partial(otherwise, reason))

    def keep(self, promise: Callable[[], None]) -> None:
        """Do what was to be done then. A fault of that ends nothing else."""
        try:
            promise()
        except Exception as error:  # noqa: BLE001  # a fault of ours is told, and ends nobody else
            self.fault("Append", error)

    # --- waves ---

    def settle(self, session: Session, id: int) -> None:
        """Answer a client once all it asked for is in force everywhere, and on the disk here."""
        self.settling.when_in_force(
            session, lambda unreached: session.say(self.out, Done(id, unreached))
        )

    def when_written(self, then: Callable[[], None]) -> None:
        """Do something once what this broker has said of itself is on the disk, or cannot be. It is
        written at the end of an input.
        """
        self._after_facts.append(then)

    def _sound(self, then: Callable[[], None]) -> None:
        """Do something once all that this broker has told its neighbours is in force beyond."""
        if self._sounder is None:
            self._sounder = Peer.session(f"broker {self.name}")
            self.route(self.router.attach(self._sounder))
        self.settling.when_through(self._sounder, lambda _unreached: then())

    def _ask_tables(self, peer: Peer, wave: int) -> None:
        self.route(self.router.receive(peer, Batch((), wave=wave)))

    def _ask_disk(self, then: Callable[[], None]) -> None:
        self.append((), then, lambda _reason: then())

    # --- saying things ---

    def source_of(self, parcel: Parcel) -> str:
        """Where events were published, if a neighbour has to know."""
        return parcel.source or self.name if self.router.follows_sources else ""

    def route(self, sends: Iterable[Send]) -> None:
        """Carry what the router says."""
        is_other_tree = self.router.ways != self._ways
        self._ways = self.router.ways
        for peer, control in sends:
            if peer.is_client:
                if isinstance(control, Settled):
                    self.settling.answered(control.wave, control.unreached)
                elif isinstance(control, Composite | TooLate):
                    session, _ = self.by_peer[peer]
                    session.hear_pattern(self.out, control, self.settings.queue_bytes)
                continue
            neighbour = self.neighbours.get(peer.name)
            if neighbour is None:
                continue
            told = self.assembling.told(neighbour.principal, control)
            if told is not None:
                self.telling.tell(neighbour, Route(told))
                is_other_tree = is_other_tree or neighbour.changes_tree(told)
        if is_other_tree:
            self.lapses.ways_changed()

    def _say(self, neighbour: Neighbour, portion: Message) -> None:
        neighbour.tell(self.out, portion)

    def settle_up(self) -> None:
        """Say and write what the last input led to. What it did not change is not looked at."""
        registry, custody = self.durability.registry, self.durability.custody
        while registry.outbox or registry.news or registry.settled or self._after_facts:
            self._settle_registry()
            waiting, self._after_facts = self._after_facts, []
            for then in waiting:
                self._ask_disk(then)
        if registry.unbelieved:
            self._tell_unbelieved()
        custody.reroute(registry.next_hop, registry.ways)
        while custody.due:
            name = next(iter(custody.due))
            del custody.due[name]
            neighbour = self.neighbours.get(name)
            if neighbour is not None:
                self._pump_neighbour(neighbour)
        if custody.damaged:
            self._tell_damage()
        unread, self.durability.unread = self.durability.unread, {}
        for broker, text in unread.items():
            self.complain_unread(broker, [text])

    def _settle_registry(self) -> None:
        """Write what the registry learned, and send what it says."""
        registry = self.durability.registry
        outbox, registry.outbox = registry.outbox, []
        news, registry.news = registry.news, []
        if news:
            if any(fact.subject == LAPSE and fact.origin != self.name for fact in news):
                self.lapses.hear()
            operations, moved = self.durability.learn(news)
            self.facts_came(news)
            mine = [fact.version for fact in news if fact.origin == self.name]
            self._write_facts(operations, max(mine, default=0), news)
            self.durables_moved(moved)
        for name, message in outbox:
            neighbour = self.neighbours.get(name)
            if neighbour is not None and isinstance(message, Facts | Echo):
                self.fact_reports.put(neighbour, message)
            elif neighbour is not None:
                self.telling.tell(neighbour, message)
        settled, registry.settled = registry.settled, []
        for wave, unreached in settled:
            self.settling.answered(wave, unreached)

    def _tell_unbelieved(self) -> None:
        """Facts that were not believed are told of."""
        registry = self.durability.registry
        unbelieved, registry.unbelieved = registry.unbelieved, []
        for name, fact, reason in unbelieved:
            origin, subject = fact.origin[:SHOWN_CHARS], fact.subject[:SHOWN_CHARS]
            self.complain("fact_refused", name, 1, origin=origin, subject=subject, reason=reason)

    def _tell_damage(self) -> None:
        """Entries that nobody can read any more are told of: whose events were in them, if that is
        known.
        """
        custody = self.durability.custody
        damaged, custody.damaged = custody.damaged, []
        for entry, whose in damaged:
            heading, known = custody.heading(entry), {}
            if heading.publisher != ANYBODY:
                known = heading._asdict()
                del known["wall_us"]
            self.report("error", "entry_lost", entry=entry, **known, **whose)

    def _tell_facts(self, neighbour: Neighbour, facts: Facts) -> None:
        if self.neighbours.get(neighbour.name) is neighbour:
            self.telling.tell(neighbour, facts)

    def _echo(self, answers: Answers) -> None:
        """Answer for facts once they are on our own disk: after a crash we still know them."""

        def answer() -> None:
            for neighbour, said in answers.items():
                if self.neighbours.get(neighbour.name) is neighbour:
                    for message in bundled(chain.from_iterable(said.values())):
                        neighbour.say(self.out, message)

        self.fact_writer.when_written(answer)

    def _write_facts(
        self, operations: Iterable[Operation], version: int, facts: list[Fact]
    ) -> None:
        registry = self.durability.registry

        def untold(_reason: str) -> None:
            """A full disk does not keep a broker from telling what live events go by."""
            registry.tell(version, only=OF_A_LIFE)

        self.fact_writer.write(facts, operations, partial(registry.tell, version), untold)

    def not_kept(self, durable: Durable) -> None:
        """A durable subscription could not be written. One that is new here lives where it did, if
        it lived anywhere; unless its owner has asked again, and waits for an answer.
        """
        is_here = self.durability.here.get(durable.subject) is durable
        if durable.is_written or not is_here or durable.session is not None:
            return
        before = self.durability.lived_at(durable)
        if before:
            self.durables_moved([(durable.subject, before)])
        else:
            self.append(self.durability.undo(durable))

    def take_away(self, durable: Durable) -> None:
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

    # --- custody ---

    def _pump_neighbour(self, neighbour: Neighbour) -> None:
        """Carry what waits for a neighbour, as far as its window allows."""
        custody = self.durability.custody
        while neighbour.link is not None and neighbour.has_room:
            carry = custody.next_carry(neighbour.name)
            if carry is None:
                return
            permitted = self._hearable(neighbour, carry)
            if permitted is None:
                self.dismiss(custody.took(neighbour.name, (carry.flight,)))
            else:
                neighbour.say(self.out, permitted)

    def _hearable(self, neighbour: Neighbour, carry: Carry) -> Carry | None:
        """What a neighbour may hear of what is carried; None if that is nothing.

        The rest has no way to its homes that its grant allows: nobody waits for it.
        """
        if neighbour.principal.hears_all:
            return carry
        notice = Notice.of(carry.parcel)
        if notice is not None and neighbour.principal.hears_something:
            return msgspec.structs.replace(carry, parcel=notice.anonymous.parcel)
        mask = hearable(neighbour.principal, carry.parcel)
        withheld = len(mask) - int(mask.sum())
        if not withheld:
            return carry
        self.complain("withheld", neighbour.name, withheld, homes=list(carry.homes))
        some = carry.parcel.select(mask)
        return msgspec.structs.replace(carry, parcel=some) if mask.any() else None

    def pump(self, durable: Durable) -> None:
        """Send what waits for a durable subscription to its owner, as far as the window allows."""
        session, custody = durable.session, self.durability.custody
        if session is None:
            return
        while session.link is not None and session.has_room:
            delivery = custody.next_delivery(durable.subject, durable.key)
            if delivery is None:
                return
            if isinstance(delivery, Lost):
                for message in delivery.messages:
                    session.say(self.out, message)
            else:
                session.say(self.out, _permitted(session, delivery))
        session.stalled[durable] = None

    def flow(self, party: PeerSession) -> None:
        """The window has opened, or the party is back: go on with what waits for it."""
        if isinstance(party, Neighbour):
            self.telling.resume(party)
        party.send_waiting(self.out)
        if isinstance(party, Neighbour):
            self.durability.custody.due[party.name] = None
        elif isinstance(party, Session):
            while party.stalled and party.link is not None and party.has_room:
                durable = next(iter(party.stalled))
                del party.stalled[durable]
                self.pump(durable)

    def dismiss(self, entries: Iterable[int], acknowledged: Iterable[Forget] = ()) -> None:
        """Write off acknowledgements, and those entries that nobody needs any longer: soon, as
        nobody waits for that.
        """
        self.releases.add(self.at.now, (*acknowledged, *self.durability.custody.drop(entries)))
        if self.releases.are_many:
            self.append(())


def _permitted(session: Session, delivery: Deliver) -> Deliver:
    """A delivery without rows that its receiver may not hear, now that it is sent: what waited may
    have been assigned under a wider grant.
    """
    if session.principal.hears_all:
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
