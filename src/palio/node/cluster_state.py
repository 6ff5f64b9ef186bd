"""`ClusterState`: gossips the cluster state, so that every broker has the links and the durable
subscriptions of all brokers.

A *fact* has an origin, a version and a subject. A broker numbers the facts about itself; of each
subject the newest version counts. Facts are flooded over all links. Two invariants ensure that a
broker with one version of an origin has all earlier ones, too. So for anti-entropy a `Digest` of
one version per origin is enough:

- Facts of one origin cross a link in the order of their versions.
- Nothing is sent over a new link before the other end has sent its `Digest`. Until then routers do
  not use the link, and it is not announced.

**Durability.** A broker publishes only facts that its disk has, so a crash never makes it forget
what others have received. A broker that starts with an empty disk takes its versions from the wall
clock, above those of earlier incarnations. It requests its own old facts from its peers, and
republishes durable subscriptions, plans and removals. It announces its *start version*, the first
version of its new history (`Fact.claimed_us` of its links). Its peers may lack an old fact that
other brokers have. Those brokers send it the facts below the start version that it has not
republished (`_send_lost_facts`).

**Confirmation.** The wave of the routing tables confirms that all brokers have a fact. On each link
of a tree, the wave follows all facts that are due there. A broker answers after it has written the
facts that it received before the wave (`tests.models.fact_waves`). `unconfirmed` lists the names
that this broker adds to the answer.

**Verification.** `palio.node.fact_verifier` decides which facts are accepted. A rejected fact is
neither stored nor forwarded. When the peer that sent it starts a wave, the answer lists this broker
with the fact's origin: facts of that origin are unconfirmed here. Further facts of that origin are
refused from that peer, because accepting them would leave a gap. After `RETRY_REJECTED_S` the peer
is asked for the facts that are still missing.

**Superseded facts.** A broker may receive facts about itself with versions above its own: from an
earlier incarnation, or forged. It publishes all its facts under higher versions, at a limited rate
(`tick`).

**Removal.** Any broker can remove another that will not come back. All facts that the removed
broker had published until then stop counting. The removal takes the wall clock for its version.
That is above all versions of the removed broker, which start at a wall-clock time and grow far more
slowly; versions years ahead are rejected. A broker that receives its own removal is alive, and
publishes everything under versions above it.
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
    """The state of anti-entropy with one peer."""

    __slots__ = ("digest_at", "is_synced", "newest_rejected", "rejected", "requested_at")

    def __init__(self, now: float) -> None:
        self.requested_at = now
        """When this broker last sent its digest."""
        self.digest_at = now
        """When the peer last sent its digest."""
        self.is_synced = False
        """True once the peer has sent its digest and was sent the facts that it lacked."""
        self.rejected: dict[str, None] = {}
        """Origins whose facts are refused from this peer until the next request."""
        self.newest_rejected: dict[str, int] = {}
        """By origin, the newest rejected version from this peer."""


class ClusterState(LocalFacts):
    """The facts of a network as one broker has them.

    The caller takes messages to send out of `outbox`, and newly learned facts out of `new_facts`.

    >>> a, b, at = ClusterState("a"), ClusterState("b"), Moment(0.0, 0)
    >>> a.peer_up("b", at), b.peer_up("a", at)
    (None, None)
    >>> def exchange():
    ...     a.mark_durable(99), b.mark_durable(99)  # their disks have it
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
        """Facts that failed verification: sender, fact, reason. The caller takes them out."""
        self._peers: dict[str, _PeerSync] = {}
        self._paths: ShortestPaths | None = None
        # The `routing_version` for which the paths were computed.
        self._paths_version = 0
        self.has_pending_updates = False
        """True if changed links have yet to be announced."""
        # By peer whose link has ended, this broker's version at that time. Other brokers use the
        # link until newer links are published, even if the peer has connected again meanwhile.
        self._ended_links: dict[str, int] = {}
        self._is_corked = False
        # Peers that were asked for facts of an earlier incarnation of this broker.
        self._asked_for_history: dict[str, None] = {}
        # By origin, the version that the first peer had and this broker lacks; None before that
        # peer's digest has arrived.
        self._missing: dict[str, int] | None = None
        self._earlier_log = 0
        self.lost_log = 0
        """The number of a durable log that an earlier incarnation of this broker had, and that is
        lost; 0 for none. The caller resets it after reporting the loss."""

    # --- brokers and paths ---

    def knows(self, broker: str) -> bool:
        """Return whether a broker of that name is, or was, in the network."""
        return broker in self._versions or broker in self._peers

    def may_receive(self, broker: str, filter: str) -> bool:
        """Return whether a broker may receive all that a filter matches."""
        return self.fact_verifier.may_receive(self.fact(broker, TOKEN), filter)

    def by_distance(self) -> Iterable[str]:
        """Return the reachable brokers, the nearest first."""
        return self._shortest.hops

    @property
    def reached(self) -> KeysView[str]:
        """The brokers to which this broker has a path."""
        return self._shortest.hops.keys()

    def reached_without_self(self, broker: str) -> KeysView[str]:
        """Return the brokers that another broker reaches by paths without this one."""
        return ShortestPaths(self.name, [broker], self.links).hops.keys()

    def next_hop(self, broker: str) -> str | None:
        """Return the peer on the shortest path to a broker; None without a path."""
        return self._shortest.hops.get(broker)

    def path(self, broker: str) -> tuple[str, ...]:
        """Return the brokers on the shortest path to a broker, which is the last of them."""
        return self._shortest.path(broker)

    def reachable_over(self, neighbours: Iterable[str]) -> KeysView[str]:
        """Return the brokers that paths over any of these peers reach."""
        synced = [each for each in neighbours if self._peers[each].is_synced]
        return ShortestPaths(self.name, synced, self.links).hops.keys()

    @property
    def _shortest(self) -> ShortestPaths:
        if self._paths is None or self._paths_version != self.routing_version:
            self._paths_version = self.routing_version
            near = [name for name, state in self._peers.items() if state.is_synced]
            self._paths = ShortestPaths(self.name, near, self.links, self.is_leaving)
        return self._paths

    @property
    def has_synced(self) -> bool:
        """True if this broker has all facts that its first peer had."""
        return self._missing is not None and not self._missing

    # --- own facts ---

    def flush_pending(self) -> None:
        """Publish changed links and superseded facts now, instead of step by step."""
        self.uncork()
        self._republish(len(self._republishing))

    def mark_durable(self, version: int) -> None:
        """Publish this broker's facts up to a version: they are on the disk."""
        self._flood_own(self._unpublished.mark_written(version))

    def mark_write_failed(self, version: int, *, publish_anyway: Collection[str]) -> None:
        """Handle a failed write of this broker's facts up to a version.

        Facts with a subject in `publish_anyway` are published although they are not on the disk.
        `tick` writes the others under newer versions.
        """
        published, failed = self._unpublished.mark_refused(version, publishable=publish_anyway)
        self._flood_own(published)
        self._republishing += [each for each in failed if each not in self._republishing]

    def _flood_own(self, facts: Sequence[Fact]) -> None:
        if facts:
            self._flood(facts, None)
        for links in (fact for fact in facts if fact.subject == LINKS):
            ended = self._ended_links.items()
            self._ended_links = {name: at for name, at in ended if at >= links.version}

    def has_unwritten(self, subjects: Collection[str]) -> bool:
        """Return whether the newest fact of this broker on any of these subjects failed to be
        written.
        """
        return not self._unpublished.unwritten.keys().isdisjoint(subjects)

    def unreachable(self) -> list[str]:
        """Return the brokers to which this broker has no path."""
        return [each for each in self.brokers if each != self.name and each not in self.reached]

    def unconfirmed(self, asker: str) -> set[str]:
        """Return the names to add to a wave's answer to a peer.

        Former peers are listed until this broker has published that their links ended. For each
        origin whose facts from the asking peer were rejected, "this broker/origin" is listed.
        """
        newest_rejected = self._peers[asker].newest_rejected
        for origin in [each for each, at in newest_rejected.items() if at <= self._version(each)]:
            del newest_rejected[origin]
        if len(newest_rejected) >= MAX_BROKERS:
            return {*self._ended_links, self.name}
        origins = (f"{self.name}/{origin}" for origin in newest_rejected)
        return {*self._ended_links, *origins} - {asker}

    def tick(self, at: Moment) -> None:
        """Publish some superseded facts, and request rejected facts from peers that are due."""
        if self._is_superseded:
            self._republish_all()
        self._republish(REPUBLISHED_PER_TICK)
        for name, state in self._peers.items():
            if state.rejected and at.now - state.requested_at >= RETRY_REJECTED_S:
                state.rejected.clear()
                state.requested_at = at.now
                self.outbox.append((name, Digest(dict(self._versions), self._incarnation)))

    # --- peers ---

    def peer_up(self, neighbour: str, at: Moment) -> None:
        """Start to synchronize with a peer, over a new link."""
        self._peers[neighbour] = _PeerSync(at.now)
        digest = dict(self._versions)
        if self.is_new and neighbour not in self._asked_for_history:
            digest.pop(self.name, None)
            self._asked_for_history[neighbour] = None
        self.outbox.append((neighbour, Digest(digest, self._incarnation)))

    def peer_down(self, neighbour: str) -> None:
        """Remove a peer whose link has ended, and announce the change."""
        gone = self._peers.pop(neighbour)
        if self._missing:
            self._missing = None  # synchronize with the next peer instead
        if gone.is_synced:
            self._ended_links[neighbour] = self._version(self.name)
            self._on_links_changed()

    def receive(self, neighbour: str, message: Digest | Facts, at: Moment) -> None:
        """Handle a peer's digest or facts."""
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
        """Announce link changes only in `uncork` from now on, not one by one."""
        self._is_corked = True

    def uncork(self) -> None:
        """Announce the links if they have changed.

        A peer that disconnected and connected again counts as a change: a wave that was sent
        meanwhile may not have reached it. The new fact makes the sender of the wave repeat it.
        """
        if self.has_pending_updates:
            self.has_pending_updates = False
            synced = (name for name, state in self._peers.items() if state.is_synced)
            self._announce(LINKS, tuple(sorted(synced)))

    def _synchronize(self, neighbour: str, digest: Digest, at: Moment) -> None:
        """Send a peer the facts that its digest lacks; from now on new facts are sent as well."""
        state, versions = self._peers[neighbour], digest.versions
        if state.is_synced and at.now - state.digest_at < MIN_DIGEST_INTERVAL_S:
            raise IllegalMessage(neighbour, "Digest repeated too soon (MIN_DIGEST_INTERVAL_S)")
        if len(versions) > MAX_BROKERS:
            raise IllegalMessage(neighbour, f"Digest of more than {MAX_BROKERS} (MAX_BROKERS)")
        is_new, state.is_synced, state.digest_at = not state.is_synced, True, at.now
        self._note_incarnation(neighbour, digest.incarnation)
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
        # After the facts are queued: no broker may route over the link before the peer has them.
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
        """Mark facts of the first peer's digest as received, and note a durable log of this broker
        that is lost.
        """
        for fact in facts:
            if self._missing and fact.version >= self._missing.get(fact.origin, inf):
                del self._missing[fact.origin]
            if (fact.origin, fact.subject) == (self.name, LOG) and not self._problem(fact, at):
                self.note_log(fact.claimed_us)

    def note_log(self, log: int) -> None:
        """Note the number of a log that this broker had; any but the present one is lost."""
        mine = self.fact(self.name, LOG)
        is_mine = mine is not None and mine.claimed_us == log
        if log > self._earlier_log and not is_mine:
            self.lost_log = self._earlier_log = log

    def _accept_new(self, neighbour: str, facts: Sequence[Fact], at: Moment) -> list[Fact]:
        """Store and return the acceptable new facts; forward facts that their origin has lost."""
        fresh: list[Fact] = []
        lost_facts: dict[str, list[Fact]] = {}
        for fact in facts:
            if not self._is_new_fact(fact):
                hop = self.next_hop(fact.origin) if self._is_missing_from_lost_disk(fact) else None
                if hop not in (None, neighbour) and not self._problem(fact, at):
                    lost_facts.setdefault(hop, []).append(fact)
            elif self._may_accept(neighbour, fact, at):
                if fact.origin == self.name:
                    self._supersede(fact)
                else:
                    self._accept(fact)
                    fresh.append(fact)
        self.outbox += [(hop, Facts(tuple(lost))) for hop, lost in lost_facts.items()]
        return fresh

    def _send_lost_facts(self, origin: str, towards: str, at: Moment) -> None:
        """Send an origin, over a peer, the facts that it published before it lost its disk."""
        lost = self._facts_from_lost_disk(origin)
        if lost:
            self._lost_disks[origin] = at.now
            self.outbox.append((towards, Facts(tuple(lost))))

    def _problem(self, fact: Fact, at: Moment) -> str:
        """Return why a fact fails verification; empty if it is genuine."""
        token = next(iter(self.links(fact.origin, TOKEN)), "")
        return self.fact_verifier.check(fact, token, at)

    def _may_accept(self, neighbour: str, fact: Fact, at: Moment) -> bool:
        """Return whether a fact from a peer may be stored; note a rejected one."""
        state, origin = self._peers[neighbour], fact.origin
        # A peer that forges origins must not fill the memory: at the limit all its facts are
        # refused until the next request.
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
    """The addresses that brokers announce for themselves, in facts (`ADDRESS`).

    An address is unproven: the broker may be unreachable there, or another program may listen. The
    dialler must authenticate the broker that answers.

    >>> cluster_state = ClusterState("b1")
    >>> book = AddressBook(cluster_state)
    >>> book.announce("palio://north.example:7400")
    >>> print(book.of("b1"), book.of("b2"))
    palio://north.example:7400 None
    """

    def __init__(self, cluster_state: ClusterState) -> None:
        self._cluster_state = cluster_state

    def announce(self, url: str) -> None:
        """Announce the URL at which this broker can be reached; empty if there is none."""
        if self._announced(self._cluster_state.name) != url:
            self._cluster_state.announce(ADDRESS, filter=url)

    def of(self, broker: str) -> Address | None:
        """Return the address of a broker; None if it has announced none, or an invalid one."""
        url = self._announced(broker)
        if not url or len(url) > MAX_URL_CHARS:
            return None
        try:
            return parse_address(url)
        except InvalidConfiguration:
            return None

    def _announced(self, broker: str) -> str:
        fact = self._cluster_state.fact(broker, ADDRESS)
        return "" if fact is None else fact.filter
