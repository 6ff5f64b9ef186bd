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
(`_remind_of`).

Whether all brokers have what one has said is asked by the wave of the routing tables: it goes along
a tree, behind all facts that are due on each link, and the answer behind what was learned and
written (`tests.models.fact_waves`). What a broker adds to the answer is said here (`unreached`).

What is believed of others, and what not, is for `palio.node.fact_verifier` to say. A fact that is
not believed is not kept and not passed on; answers to the neighbour that said it name this broker
for its origin. Nothing more of that origin is taken from that neighbour, since it would have a
hole, until the neighbour is asked again for what is lacking (`ASK_AGAIN_S`). Others may have told
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
from palio.node.limits import ASK_AGAIN_S, KNOWN_AGAIN_S, MAX_BROKERS, REPEATED_AT_ONCE
from palio.node.local_facts import LocalFacts
from palio.protocol.addresses import Address, parse_address
from palio.protocol.limits import MAX_URL_CHARS, PORTION_BYTES, PORTION_FACTS
from palio.protocol.messages import Digest, Fact, Facts, Message


class _Neighbour:
    """The facts that a neighbour has, and those of it that are not believed."""

    __slots__ = ("asked_at", "doubted", "is_equal", "known_at", "unbelieved")

    def __init__(self, now: float) -> None:
        self.asked_at = now
        """When it was informed what is known here."""
        self.known_at = now
        """When it said what it knows."""
        self.is_equal = False
        """True if it has sent what it knows and was sent the rest."""
        self.unbelieved: dict[str, None] = {}
        """Origins of which nothing more is taken from it, until it is asked again..."""
        self.doubted: dict[str, int] = {}
        """...and the newest version of each that it said and that is yet to be believed."""


class ClusterState(LocalFacts):
    """The facts of a network as one broker knows them.

    What is to be sent is left in `outbox`, and facts that are new in `news`. The caller takes
    them out.

    >>> a, b, at = ClusterState("a"), ClusterState("b"), Moment(0.0, 0)
    >>> a.join("b", at), b.join("a", at)
    (None, None)
    >>> def exchange():
    ...     a.tell(99), b.tell(99)  # all is on their disks
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
        self.unbelieved: list[tuple[str, Fact, str]] = []
        """Facts that neighbours said and that were not believed, with the reasons. Whoever calls
        takes it out."""
        self._neighbours: dict[str, _Neighbour] = {}
        self._found: ShortestPaths | None = None
        self._found_at = 0
        """The state of `ways` when that was found."""
        self.has_pending_updates = False
        """True if it has yet to report its links."""
        self._lost: dict[str, int] = {}
        """Neighbours that went, also those that are back: the others are yet to be told of its
        links under a version above this."""
        self._bides = False
        self._asked_back: dict[str, None] = {}
        """Neighbours that were asked what an earlier incarnation of this broker had said."""
        self._lacking: dict[str, int] | None = None
        """Facts that the first neighbour knew and this broker did not, by origin; None before it
        spoke.
        """
        self._former_log = 0
        self.lost_log = 0
        """The log of an earlier incarnation of this broker, once it has been learned of. Whoever
        reports that takes it out."""

    # --- what is known ---

    def has_heard_of(self, broker: str) -> bool:
        """Return whether there is or was such a broker, as far as is known."""
        return broker in self._versions or broker in self._neighbours

    def hears(self, broker: str, filter: str) -> bool:
        """Return whether a broker may receive all that a filter matches."""
        return self.fact_verifier.hears(self.fact(broker, TOKEN), filter)

    def by_distance(self) -> Iterable[str]:
        """The brokers to which a way leads, the nearest first."""
        return self._shortest.hops

    @property
    def reached(self) -> KeysView[str]:
        """The brokers to which a way leads."""
        return self._shortest.hops.keys()

    def together(self, broker: str) -> KeysView[str]:
        """The brokers that another reaches by ways that do not lead through this one."""
        return ShortestPaths(self.name, [broker], self.links).hops.keys()

    def next_hop(self, home: str) -> str | None:
        """The neighbour on the shortest way to a broker; None while there is no way."""
        return self._shortest.hops.get(home)

    def way(self, home: str) -> tuple[str, ...]:
        """The brokers on that way, the other one at its end."""
        return self._shortest.way(home)

    def reached_over(self, neighbours: Iterable[str]) -> KeysView[str]:
        """The brokers to which a way leads that begins with one of some neighbours."""
        known = [each for each in neighbours if self._neighbours[each].is_equal]
        return ShortestPaths(self.name, known, self.links).hops.keys()

    @property
    def _shortest(self) -> ShortestPaths:
        if self._found is None or self._found_at != self.ways:
            self._found_at = self.ways
            near = [name for name, state in self._neighbours.items() if state.is_equal]
            self._found = ShortestPaths(self.name, near, self.links, self.is_leaving)
        return self._found

    @property
    def has_caught_up(self) -> bool:
        """True if this broker knows what its first neighbour knew."""
        return self._lacking is not None and not self._lacking

    # --- what this broker says ---

    def say_all(self) -> None:
        """Say now what else would be said little by little."""
        self.uncork()
        self._repeat(len(self._repeating))

    def tell(self, version: int, *, only: Collection[str] = ()) -> None:
        """Note that this broker's facts up to a version are on its disk: the others may know.

        Or it could not be written: then they know of some subjects only, and the others are said
        again (`again`).
        """
        if only:
            told, failed = self._unpublished.refuse(version, told_all_the_same=only)
        else:
            told, failed = self._unpublished.write(version), []
        if told:
            self._flood(told, None)
        for links in (fact for fact in told if fact.subject == LINKS):
            self._lost = {name: at for name, at in self._lost.items() if at >= links.version}
        self._repeating += [each for each in failed if each not in self._repeating]

    def is_unwritten(self, subjects: Collection[str]) -> bool:
        """Return whether what this broker said of any of some subjects could not be written yet."""
        return not self._unpublished.unwritten.keys().isdisjoint(subjects)

    def cut_off(self) -> list[str]:
        """The brokers to which no way leads."""
        return [each for each in self.brokers if each != self.name and each not in self.reached]

    def unreached(self, asker: str) -> set[str]:
        """Return those to be named in an answer to a wave of a neighbour: brokers that are or were
        gone, as long as others do not know; and, for its origin, who does not believe what that
        neighbour has announced.
        """
        doubted = self._neighbours[asker].doubted
        for origin in [each for each, at in doubted.items() if at <= self._version(each)]:
            del doubted[origin]
        if len(doubted) >= MAX_BROKERS:
            return {*self._lost, self.name}
        return {*self._lost, *(f"{self.name}/{origin}" for origin in doubted)} - {asker}

    def again(self, at: Moment) -> None:
        """Time has passed: say again what was outdone, ask again for what was not believed."""
        if self._is_outdone:
            self._say_again()
        self._repeat(REPEATED_AT_ONCE)
        for name, state in self._neighbours.items():
            if state.unbelieved and at.now - state.asked_at >= ASK_AGAIN_S:
                state.unbelieved.clear()
                state.asked_at = at.now
                self.outbox.append((name, Digest(dict(self._versions), self._incarnation)))

    # --- neighbours ---

    def join(self, neighbour: str, at: Moment) -> None:
        """A link is up."""
        self._neighbours[neighbour] = _Neighbour(at.now)
        known = dict(self._versions)
        if self.is_new and neighbour not in self._asked_back:
            known.pop(self.name, None)
            self._asked_back[neighbour] = None
        self.outbox.append((neighbour, Digest(known, self._incarnation)))

    def leave(self, neighbour: str) -> None:
        """A link is down."""
        gone = self._neighbours.pop(neighbour)
        if self._lacking:
            self._lacking = None  # the next one is asked
        if gone.is_equal:
            self._lost[neighbour] = self._version(self.name)
            self._links_changed()

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
                self._learn(neighbour, facts, at)

    def _links_changed(self) -> None:
        self.ways += 1
        self.has_pending_updates = True
        if not self._bides:
            self.uncork()

    def cork(self) -> None:
        """From now on this broker reports its links with `uncork`, and not of each change."""
        self._bides = True

    def uncork(self) -> None:
        """Report its links, if they have changed: also of who went and is back, as those who asked
        while it was gone are to ask again.
        """
        if self.has_pending_updates:
            self.has_pending_updates = False
            equal = (name for name, state in self._neighbours.items() if state.is_equal)
            self._announce(LINKS, tuple(sorted(equal)))

    def _synchronize(self, neighbour: str, known: Digest, at: Moment) -> None:
        """Send what a neighbour lacks; from now on it is sent what comes."""
        state, versions = self._neighbours[neighbour], known.versions
        if state.is_equal and at.now - state.known_at < KNOWN_AGAIN_S:
            raise IllegalMessage(neighbour, "Digest again too soon (KNOWN_AGAIN_S)")
        if len(versions) > MAX_BROKERS:
            raise IllegalMessage(neighbour, f"Digest of more than {MAX_BROKERS} (MAX_BROKERS)")
        is_new, state.is_equal, state.known_at = not state.is_equal, True, at.now
        self._note_life(neighbour, known.incarnation)
        if self._lacking is None:
            theirs = {each: version for each, version in versions.items() if each != self.name}
            self._lacking = {each: v for each, v in theirs.items() if v > self._version(each)}
            if self.is_new and self.name in versions:
                self._lacking[self.name] = versions[self.name]
        lacking = [
            fact
            for fact in self._facts.values()
            if fact.version > versions.get(fact.origin, 0) and self.is_told(fact)
        ]
        if lacking:
            lacking.sort(key=lambda fact: fact.version)
            self.outbox.append((neighbour, Facts(tuple(lacking))))
        if is_new:
            self._links_changed()
        for origin in list(self._forgetful):
            if self.next_hop(origin) == neighbour:
                self._remind_of(origin, neighbour, at)

    def _learn(self, neighbour: str, facts: Sequence[Fact], at: Moment) -> None:
        self._note_lost_log(facts, at)
        fresh = self._sift(neighbour, facts, at)
        if not fresh:
            return
        self.news += fresh
        self._flood(fresh, neighbour)
        for origin in {fact.origin for fact in fresh} & self._forgetful.keys():
            if at.now - self._forgetful[origin] >= ASK_AGAIN_S:
                self._remind_of(origin, neighbour, at)

    def _note_lost_log(self, facts: Sequence[Fact], at: Moment) -> None:
        """Note what a neighbour knows of an earlier incarnation of this broker, and what still
        lacks.
        """
        for fact in facts:
            if self._lacking and fact.version >= self._lacking.get(fact.origin, inf):
                del self._lacking[fact.origin]
            if (fact.origin, fact.subject) == (self.name, LOG) and not self._doubt(fact, at):
                self.hear_of_log(fact.claimed_us)

    def hear_of_log(self, log: int) -> None:
        """This broker has had such a log: another one than it has is lost."""
        mine = self.fact(self.name, LOG)
        is_mine = mine is not None and mine.claimed_us == log
        if log > self._former_log and not is_mine:
            self.lost_log = self._former_log = log

    def _sift(self, neighbour: str, facts: Sequence[Fact], at: Moment) -> list[Fact]:
        """Take in what is new: that."""
        fresh: list[Fact] = []
        reminders: dict[str, list[Fact]] = {}
        for fact in facts:
            if not self._is_news(fact):
                hop = self.next_hop(fact.origin) if self._is_forgotten(fact) else None
                if hop not in (None, neighbour) and not self._doubt(fact, at):
                    reminders.setdefault(hop, []).append(fact)
            elif self._is_believed(neighbour, fact, at):
                if fact.origin == self.name:
                    self._correct(fact)
                else:
                    self._take_in(fact)
                    fresh.append(fact)
        self.outbox += [(hop, Facts(tuple(said))) for hop, said in reminders.items()]
        return fresh

    def _remind_of(self, origin: str, towards: str, at: Moment) -> None:
        """Send facts of an origin from before it lost its disk, which are kept here, towards it."""
        said = self._forgotten(origin)
        if said:
            self._forgetful[origin] = at.now
            self.outbox.append((towards, Facts(tuple(said))))

    def _doubt(self, fact: Fact, at: Moment) -> str:
        """Why a fact is not taken for its origin's; empty if it is."""
        token = next(iter(self.links(fact.origin, TOKEN)), "")
        return self.fact_verifier.check(fact, token, at)

    def _is_believed(self, neighbour: str, fact: Fact, at: Moment) -> bool:
        """Return whether a fact may be kept."""
        state, origin = self._neighbours[neighbour], fact.origin
        # With too many of them no more is taken of anybody, until the neighbour is asked again.
        if origin not in state.unbelieved and len(state.unbelieved) < MAX_BROKERS:
            problem = self._beyond(fact) or self._doubt(fact, at)
            if not problem:
                return True
            self.unbelieved.append((neighbour, fact, problem))
            state.unbelieved[origin] = None
        if origin in state.doubted or len(state.doubted) < MAX_BROKERS:
            state.doubted[origin] = max(fact.version, state.doubted.get(origin, 0))
        return False

    def _flood(self, facts: Sequence[Fact], source: str | None) -> None:
        message = Facts(tuple(facts))
        near = (name for name, state in self._neighbours.items() if state.is_equal)
        self.outbox += [(name, message) for name in near if name != source]


class AddressBook:
    """Where brokers can be reached, as each says of itself in a fact (`ADDRESS`).

    Nothing proves that a broker can be reached where it says, or that nobody else is there. Whoever
    dials such an address looks who answers.

    >>> cluster_state = ClusterState("b1")
    >>> known = AddressBook(cluster_state)
    >>> known.tell("palio://north.example:7400")
    >>> print(known.of("b1"), known.of("b2"))
    palio://north.example:7400 None
    """

    def __init__(self, cluster_state: ClusterState) -> None:
        self._cluster_state = cluster_state

    def tell(self, url: str) -> None:
        """Inform all brokers where this one can be reached; empty if it cannot."""
        if self._said_by(self._cluster_state.name) != url:
            self._cluster_state.announce(ADDRESS, filter=url)

    def of(self, broker: str) -> Address | None:
        """Where a broker can be reached; None if it has not said so, or not in a way to be read."""
        said = self._said_by(broker)
        if not said or len(said) > MAX_URL_CHARS:
            return None
        try:
            return parse_address(said)
        except InvalidConfiguration:
            return None

    def _said_by(self, broker: str) -> str:
        fact = self._cluster_state.fact(broker, ADDRESS)
        return "" if fact is None else fact.filter
