"""`ClusterState`: the gossiped cluster state, what every broker knows of every other.

A broker numbers what it tells about itself: its links, and the durable subscriptions that live with
it. Such a *fact* has an origin, a version and a subject, and the newest version of a subject
counts. Facts are flooded over all links. Two rules make the newest version of an origin stand for
all before it, so that two brokers are made equal by comparing one number an origin:

- facts of one origin are sent over a link in the order of their versions;
- nothing is sent over a new link before the other end has sent what it knows (`Digest`), and till
  then routers do not use it, nor do others learn of it.

A broker tells what is on its disk and nothing else, so that after a crash it has not said more than
it remembers. One that begins with an empty disk numbers from the time of the wall on, above
whatever it may have said in an earlier incarnation, and asks its neighbours for that, to take it
back. Its links are claimed from that version on (`Fact.claimed_us`): whoever holds it to something
older that it does not take back, as its neighbours had forgotten that too, reminds it
(`_send_lost_facts`).

Whether all brokers have what one has said is asked by the wave of the routing tables: it goes along
a tree, behind all facts that are due on each link, and the answer behind what was learned and
written (`tests.models.fact_waves`). What a broker adds to the answer is said here (`unreached`).

What is believed of others, and what not, is for `palio.node.fact_verifier` to say. A fact that is
not believed is not kept and not passed on; answers to the neighbour that said it name this broker
for its origin. Nothing more of that origin is taken from that neighbour, since it would have a
hole, until the neighbour is asked again for what is lacking (`RETRY_REJECTED_S`). Others may have
told
it meanwhile.

A broker that learns of itself under versions above its own, made up or of an earlier incarnation,
says everything again above them, no more often than it is called to (`again`).

A broker that will not come back can be *retired* by any other: whatever it had announced until then
counts for nobody any longer. Versions begin at a time of the wall and grow far more slowly than
that, so the present time is above all of them, and none is believed that is years ahead. A broker
that learns of its own retirement is not gone, and says everything again, under versions above that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, KeysView, Sequence
from math import inf

from palio.errors import IllegalMessage, InvalidConfiguration
from palio.node.effects import Moment
from palio.node.fact_store import ShortestPaths
from palio.node.fact_verifier import ADDRESS, LINKS, LOG, TOKEN, FactVerifier
from palio.node.limits import (
    MAX_BROKERS,
    MIN_DIGEST_INTERVAL_S,
    REPUBLISHED_PER_TICK,
    RETRY_REJECTED_S,
)
from palio.node.local_facts import LocalFacts
from palio.protocol.addresses import Address, parse_address
from palio.protocol.limits import MAX_URL_CHARS, PORTION_BYTES, PORTION_FACTS
from palio.protocol.messages import Digest, Fact, Facts, Message


class _PeerSync:
    """The facts that a neighbour has, and those of it that are not believed."""

    __slots__ = ("digest_at", "is_synced", "newest_rejected", "rejected", "requested_at")

    def __init__(self, now: float) -> None:
        self.requested_at = now
        """When it was informed what is known here."""
        self.digest_at = now
        """When it said what it knows."""
        self.is_synced = False
        """True if it has sent what it knows and was sent the rest."""
        self.rejected: dict[str, None] = {}
        """Origins of which nothing more is taken from it, until it is asked again..."""
        self.newest_rejected: dict[str, int] = {}
        """...and the newest version of each that it said and that is yet to be believed."""


class ClusterState(LocalFacts):
    """The facts of a network as one broker knows them.

    What is to be sent is left in `outbox`, and facts that are new in `news`. The caller takes
    them out.

    >>> a, b, at = ClusterState("a"), ClusterState("b"), Moment(0.0, 0)
    >>> a.peer_up("b", at), b.peer_up("a", at)
    (None, None)
    >>> def exchange():
    ...     a.mark_durable(99), b.mark_durable(99)  # all is on their disks
    ...     while a.outbox or b.outbox:
    ...         for one, other in ((a, b), (b, a)):
    ...             sent, one.outbox = one.outbox, []
    ...             for _, message in sent:
    ...                 other.receive(one.name, message, at)
    >>> exchange()
    >>> a.announce("alice/orders", filter="x = 1")
    >>> exchange()
    >>> b.fact("a", "alice/orders").filter, b.next_hop("a")
    ('x = 1', 'a')
    """

    def __init__(
        self, name: str, facts: Iterable[Fact] = (), fact_verifier: FactVerifier | None = None
    ) -> None:
        super().__init__(name, facts, fact_verifier)
        self.outbox: list[tuple[str, Message]] = []
        self.rejected_facts: list[tuple[str, Fact, str]] = []
        """Facts that neighbours said and that were not believed, with the reasons. Whoever calls
        takes it out."""
        self._peers: dict[str, _PeerSync] = {}
        self._paths: ShortestPaths | None = None
        self._paths_version = 0
        """The state of `ways` when that was found."""
        self.has_pending_updates = False
        """True if it has yet to report its links."""
        self._ended_links: dict[str, int] = {}
        """Neighbours that went, also those that are back: the others are yet to be told of its
        links under a version above this."""
        self._is_corked = False
        self._asked_for_history: dict[str, None] = {}
        """Neighbours that were asked what an earlier incarnation of this broker had said."""
        self._missing: dict[str, int] | None = None
        """Facts that the first neighbour knew and this broker did not, by origin; None before it
        spoke.
        """
        self._earlier_log = 0
        self.lost_log = 0
        """The log of an earlier incarnation of this broker, once it has been learned of. Whoever
        reports that takes it out."""

    # --- what is known ---

    def knows(self, broker: str) -> bool:
        """Return whether there is or was such a broker, as far as is known."""
        return broker in self._versions or broker in self._peers

    def may_receive(self, broker: str, filter: str) -> bool:
        """Return whether a broker may receive all that a filter matches."""
        return self.fact_verifier.may_receive(self.fact(broker, TOKEN), filter)

    def by_distance(self) -> Iterable[str]:
        """The brokers to which a way leads, the nearest first."""
        return self._shortest.hops

    @property
    def reached(self) -> KeysView[str]:
        """The brokers to which a way leads."""
        return self._shortest.hops.keys()

    def reached_without_self(self, broker: str) -> KeysView[str]:
        """The brokers that another reaches by ways that do not lead through this one."""
        return ShortestPaths(self.name, [broker], self.links).hops.keys()

    def next_hop(self, home: str) -> str | None:
        """The neighbour on the shortest way to a broker; None while there is no way."""
        return self._shortest.hops.get(home)

    def path(self, home: str) -> tuple[str, ...]:
        """The brokers on that way, the other one at its end."""
        return self._shortest.path(home)

    def reachable_over(self, neighbours: Iterable[str]) -> KeysView[str]:
        """The brokers to which a way leads that begins with one of some neighbours."""
        known = [each for each in neighbours if self._peers[each].is_synced]
        return ShortestPaths(self.name, known, self.links).hops.keys()

    @property
    def _shortest(self) -> ShortestPaths:
        if self._paths is None or self._paths_version != self.routing_version:
            self._paths_version = self.routing_version
            near = [name for name, state in self._peers.items() if state.is_synced]
            self._paths = ShortestPaths(self.name, near, self.links, self.is_leaving)
        return self._paths

    @property
    def has_synced(self) -> bool:
        """True if this broker knows what its first neighbour knew."""
        return self._missing is not None and not self._missing

    # --- what this broker says ---

    def flush_pending(self) -> None:
        """Say now what else would be said little by little."""
        self.uncork()
        self._republish(len(self._republishing))

    def mark_durable(self, version: int, *, only: Collection[str] = ()) -> None:
        """Note that this broker's facts up to a version are on its disk: the others may know.

        Or it could not be written: then they know of some subjects only, and the others are said
        again (`again`).
        """
        if only:
            told, failed = self._unpublished.mark_refused(version, publishable=only)
        else:
            told, failed = self._unpublished.mark_written(version), []
        if told:
            self._flood(told, None)
        for links in (fact for fact in told if fact.subject == LINKS):
            self._ended_links = {
                name: at for name, at in self._ended_links.items() if at >= links.version
            }
        self._republishing += [each for each in failed if each not in self._republishing]

    def has_unwritten(self, subjects: Collection[str]) -> bool:
        """Return whether what this broker said of any of some subjects could not be written yet."""
        return not self._unpublished.unwritten.keys().isdisjoint(subjects)

    def unreachable(self) -> list[str]:
        """The brokers to which no way leads."""
        return [each for each in self.brokers if each != self.name and each not in self.reached]

    def unreached(self, asker: str) -> set[str]:
        """Return those to be named in an answer to a wave of a neighbour: brokers that are or were
        gone, as long as others do not know; and, for its origin, who does not believe what that
        neighbour has announced.
        """
        newest_rejected = self._peers[asker].newest_rejected
        for origin in [each for each, at in newest_rejected.items() if at <= self._version(each)]:
            del newest_rejected[origin]
        if len(newest_rejected) >= MAX_BROKERS:
            return {*self._ended_links, self.name}
        return {*self._ended_links, *(f"{self.name}/{origin}" for origin in newest_rejected)} - {
            asker
        }

    def tick(self, at: Moment) -> None:
        """Time has passed: say again what was outdone, ask again for what was not believed."""
        if self._is_superseded:
            self._republish_all()
        self._republish(REPUBLISHED_PER_TICK)
        for name, state in self._peers.items():
            if state.rejected and at.now - state.requested_at >= RETRY_REJECTED_S:
                state.rejected.clear()
                state.requested_at = at.now
                self.outbox.append((name, Digest(dict(self._versions), self._incarnation)))

    # --- neighbours ---

    def peer_up(self, neighbour: str, at: Moment) -> None:
        """A link is up."""
        self._peers[neighbour] = _PeerSync(at.now)
        known = dict(self._versions)
        if self.is_new and neighbour not in self._asked_for_history:
            known.pop(self.name, None)
            self._asked_for_history[neighbour] = None
        self.outbox.append((neighbour, Digest(known, self._incarnation)))

    def peer_down(self, neighbour: str) -> None:
        """A link is down."""
        gone = self._peers.pop(neighbour)
        if self._missing:
            self._missing = None  # the next one is asked
        if gone.is_synced:
            self._ended_links[neighbour] = self._version(self.name)
            self._on_links_changed()

    def receive(self, neighbour: str, message: Digest | Facts, at: Moment) -> None:
        """A neighbour says something."""
        match message:
            case Digest():
                self._synchronize(neighbour, message, at)
            case Facts(facts):
                if len(facts) > PORTION_FACTS:
                    reason = f"{len(facts)} facts at once; {PORTION_FACTS} are the most"
                    raise IllegalMessage(neighbour, f"{reason} (PORTION_FACTS)")
                if len(facts) > 1 and sum(len(each.filter) for each in facts) > PORTION_BYTES:
                    reason = f"facts whose filters have more than {PORTION_BYTES} characters"
                    raise IllegalMessage(neighbour, f"{reason} together (PORTION_BYTES)")
                self._receive_facts(neighbour, facts, at)

    def _on_links_changed(self) -> None:
        self.routing_version += 1
        self.has_pending_updates = True
        if not self._is_corked:
            self.uncork()

    def cork(self) -> None:
        """From now on this broker reports its links with `uncork`, and not of each change."""
        self._is_corked = True

    def uncork(self) -> None:
        """Report its links, if they have changed: also of who went and is back, as those who asked
        while it was gone are to ask again.
        """
        if self.has_pending_updates:
            self.has_pending_updates = False
            equal = (name for name, state in self._peers.items() if state.is_synced)
            self._announce(LINKS, tuple(sorted(equal)))

    def _synchronize(self, neighbour: str, known: Digest, at: Moment) -> None:
        """Send what a neighbour lacks; from now on it is sent what comes."""
        state, versions = self._peers[neighbour], known.versions
        if state.is_synced and at.now - state.digest_at < MIN_DIGEST_INTERVAL_S:
            raise IllegalMessage(neighbour, "Digest again too soon (MIN_DIGEST_INTERVAL_S)")
        if len(versions) > MAX_BROKERS:
            raise IllegalMessage(neighbour, f"Digest of more than {MAX_BROKERS} (MAX_BROKERS)")
        is_new, state.is_synced, state.digest_at = not state.is_synced, True, at.now
        self._note_incarnation(neighbour, known.incarnation)
        if self._missing is None:
            theirs = {each: version for each, version in versions.items() if each != self.name}
            self._missing = {each: v for each, v in theirs.items() if v > self._version(each)}
            if self.is_new and self.name in versions:
                self._missing[self.name] = versions[self.name]
        lacking = [
            fact
            for fact in self._facts.values()
            if fact.version > versions.get(fact.origin, 0) and self.is_published(fact)
        ]
        if lacking:
            lacking.sort(key=lambda fact: fact.version)
            self.outbox.append((neighbour, Facts(tuple(lacking))))
        if is_new:
            self._on_links_changed()
        for origin in list(self._lost_disks):
            if self.next_hop(origin) == neighbour:
                self._send_lost_facts(origin, neighbour, at)

    def _receive_facts(self, neighbour: str, facts: Sequence[Fact], at: Moment) -> None:
        self._note_lost_log(facts, at)
        fresh = self._accept_new(neighbour, facts, at)
        if not fresh:
            return
        self.new_facts += fresh
        self._flood(fresh, neighbour)
        for origin in {fact.origin for fact in fresh} & self._lost_disks.keys():
            if at.now - self._lost_disks[origin] >= RETRY_REJECTED_S:
                self._send_lost_facts(origin, neighbour, at)

    def _note_lost_log(self, facts: Sequence[Fact], at: Moment) -> None:
        """Note what a neighbour knows of an earlier incarnation of this broker, and what still
        lacks.
        """
        for fact in facts:
            if self._missing and fact.version >= self._missing.get(fact.origin, inf):
                del self._missing[fact.origin]
            if (fact.origin, fact.subject) == (self.name, LOG) and not self._problem(fact, at):
                self.note_log(fact.claimed_us)

    def note_log(self, log: int) -> None:
        """This broker has had such a log: another one than it has is lost."""
        mine = self.fact(self.name, LOG)
        is_mine = mine is not None and mine.claimed_us == log
        if log > self._earlier_log and not is_mine:
            self.lost_log = self._earlier_log = log

    def _accept_new(self, neighbour: str, facts: Sequence[Fact], at: Moment) -> list[Fact]:
        """Take in what is new: that."""
        fresh: list[Fact] = []
        reminders: dict[str, list[Fact]] = {}
        for fact in facts:
            if not self._is_new_fact(fact):
                hop = self.next_hop(fact.origin) if self._is_missing_from_lost_disk(fact) else None
                if hop not in (None, neighbour) and not self._problem(fact, at):
                    reminders.setdefault(hop, []).append(fact)
            elif self._may_accept(neighbour, fact, at):
                if fact.origin == self.name:
                    self._supersede(fact)
                else:
                    self._accept(fact)
                    fresh.append(fact)
        self.outbox += [(hop, Facts(tuple(said))) for hop, said in reminders.items()]
        return fresh

    def _send_lost_facts(self, origin: str, towards: str, at: Moment) -> None:
        """Send facts of an origin from before it lost its disk, which are kept here, towards it."""
        said = self._facts_from_lost_disk(origin)
        if said:
            self._lost_disks[origin] = at.now
            self.outbox.append((towards, Facts(tuple(said))))

    def _problem(self, fact: Fact, at: Moment) -> str:
        """Why a fact is not taken for its origin's; empty if it is."""
        token = next(iter(self.links(fact.origin, TOKEN)), "")
        return self.fact_verifier.check(fact, token, at)

    def _may_accept(self, neighbour: str, fact: Fact, at: Moment) -> bool:
        """Return whether a fact may be kept."""
        state, origin = self._peers[neighbour], fact.origin
        # With too many of them no more is taken of anybody, until the neighbour is asked again.
        if origin not in state.rejected and len(state.rejected) < MAX_BROKERS:
            problem = self._limit_problem(fact) or self._problem(fact, at)
            if not problem:
                return True
            self.rejected_facts.append((neighbour, fact, problem))
            state.rejected[origin] = None
        if origin in state.newest_rejected or len(state.newest_rejected) < MAX_BROKERS:
            state.newest_rejected[origin] = max(fact.version, state.newest_rejected.get(origin, 0))
        return False

    def _flood(self, facts: Sequence[Fact], source: str | None) -> None:
        message = Facts(tuple(facts))
        near = (name for name, state in self._peers.items() if state.is_synced)
        self.outbox += [(name, message) for name in near if name != source]


class AddressBook:
    """Where brokers can be reached, as each says of itself in a fact (`ADDRESS`).

    Nothing proves that a broker can be reached where it says, or that nobody else is there. Whoever
    dials such an address looks who answers.

    >>> cluster_state = ClusterState("b1")
    >>> book = AddressBook(cluster_state)
    >>> book.announce("palio://north.example:7400")
    >>> print(book.of("b1"), book.of("b2"))
    palio://north.example:7400 None
    """

    def __init__(self, cluster_state: ClusterState) -> None:
        self._cluster_state = cluster_state

    def announce(self, url: str) -> None:
        """Inform all brokers where this one can be reached; empty if it cannot."""
        if self._announced(self._cluster_state.name) != url:
            self._cluster_state.announce(ADDRESS, filter=url)

    def of(self, broker: str) -> Address | None:
        """Where a broker can be reached; None if it has not said so, or not in a way to be read."""
        said = self._announced(broker)
        if not said or len(said) > MAX_URL_CHARS:
            return None
        try:
            return parse_address(said)
        except InvalidConfiguration:
            return None

    def _announced(self, broker: str) -> str:
        fact = self._cluster_state.fact(broker, ADDRESS)
        return "" if fact is None else fact.filter
