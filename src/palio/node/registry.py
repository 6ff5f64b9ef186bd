"""`Registry`: what every broker of a network knows of every other, and who has been told.

A broker numbers what it tells about itself: its links, and the durable subscriptions that live with
it. Such a *fact* has an origin, a version and a subject, and the newest version of a subject
counts. Facts are flooded over all links. Two rules make the newest version of an origin stand for
all before it, so that two brokers are made equal by comparing one number an origin:

- facts of one origin are sent over a link in the order of their versions;
- nothing is sent over a new link before the other end has said what it knows (`Known`).

A broker tells what is on its disk and nothing else, so that after a crash it has not said more than
it remembers. One that begins with an empty disk numbers from the time of the wall on, above
whatever it may have said in an earlier life, and asks its neighbours for that, to take it back.
Its links are claimed from that version on (`Fact.claimed_us`): whoever holds it to something older
that it does not take back, as its neighbours had forgotten that too, reminds it (`_remind_of`).

A flood is an echo wave. Whoever learns a fact passes it on to its other neighbours and, once they
have all answered, answers the one it came from; whoever knew it already answers at once. When all
neighbours of the origin have answered, all brokers have it, but for those that were lost on the
way, and these are named.

What is believed of others, and what not, is for `palio.node.vouching` to say. A fact that is not
believed is not kept and not passed on; its wave is answered for without this broker. Nothing more
of its origin is taken from that neighbour, since it would have a hole, until the neighbour is asked
again for what is lacking (`ASK_AGAIN_S`). Others may have told it meanwhile.

A broker that hears of itself under versions above its own, made up or of an earlier life, says
everything again above them, no more often than it is called to (`again`).

A broker that will not come back can be *retired* by any other: whatever it had said until then
counts for nobody any longer. Versions begin at a time of the wall and grow far more slowly than
that, so the present time is above all of them, and none is believed that is years ahead. A broker
that learns of its own retirement is not gone, and says everything again, under versions above that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, KeysView, Sequence
from math import inf

from palio.errors import IllegalMessage
from palio.node.echoes import Echoes, KnownNeighbour, PendingSettle
from palio.node.effects import Moment
from palio.node.limits import ASK_AGAIN_S, KNOWN_AGAIN_S, MAX_BROKERS, REPEATED_AT_ONCE
from palio.node.said_facts import SaidFacts
from palio.node.vouching import LINKS, LOG, TOKEN, Vouching
from palio.node.ways import ShortestWays
from palio.protocol.limits import PORTION_BYTES, PORTION_FACTS
from palio.protocol.messages import Echo, Echoed, Fact, Facts, Known, Message

__all__ = ["Registry"]


class Registry(SaidFacts):
    """The facts of a network as one broker knows them.

    What is to be sent is left in `outbox`, facts that are new in `news`, and in `settled` the
    tickets of `settle` that are answered. Whoever calls takes them out.

    >>> a, b, at = Registry("a"), Registry("b"), Moment(0.0, 0)
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
    >>> a.settle(7)
    >>> exchange()
    >>> b.fact("a", "alice/orders").filter, a.settled, b.next_hop("a")
    ('x = 1', [(7, ())], 'a')
    """

    def __init__(
        self, name: str, facts: Iterable[Fact] = (), vouching: Vouching | None = None
    ) -> None:
        super().__init__(name, facts, vouching)
        self.outbox: list[tuple[str, Message]] = []
        self.settled: list[tuple[int, tuple[str, ...]]] = []
        self.unbelieved: list[tuple[str, Fact, str]] = []
        """Facts that neighbours said and that were not believed, with the reasons. Whoever calls
        takes it out."""
        self._neighbours: dict[str, KnownNeighbour] = {}
        self._echoes = Echoes(name, self._neighbours)
        self._found: ShortestWays | None = None
        self._found_at = 0
        """The state of `ways` when that was found."""
        self._asked_at = 0
        """The state of `ways` when all brokers were last asked for an answer..."""
        self._asked = 0
        """...for this version and those behind it..."""
        self._unreached: dict[str, None] = {}
        """...and those who were not reached. If a way leads there now, they are asked again, and
        not with each question: one may lack something for long."""
        self._may_ask_again = True
        self._put_off: list[tuple[int, frozenset[str]]] = []
        """Tickets of `settle` that wait for what could not be written."""
        self.is_behind = False
        """Whether its links are others than it has told."""
        self._lost: dict[str, None] = {}
        """Neighbours that are gone, which the others are yet to be told."""
        self._bides = False
        self._asked_back: dict[str, None] = {}
        """Neighbours that were asked what an earlier life of this broker had said."""
        self._lacking: dict[str, int] | None = None
        """What the first neighbour knew that this broker did not, by origin; None before it spoke.
        """
        self._former_log = 0
        self.lost_log = 0
        """The log of an earlier life of this broker, once it has been heard of. Whoever tells of
        that takes it out."""

    # --- what is known ---

    def has_heard_of(self, broker: str) -> bool:
        """Whether there is or was such a broker, as far as is known."""
        return broker in self._versions or broker in self._neighbours

    def hears(self, broker: str, filter: str) -> bool:
        """Whether a broker may hear all that a filter matches."""
        return self.vouching.hears(self.fact(broker, TOKEN), filter)

    def by_distance(self) -> Iterable[str]:
        """The brokers to which a way leads, the nearest first."""
        return self._shortest.hops

    @property
    def reached(self) -> KeysView[str]:
        """The brokers to which a way leads."""
        return self._shortest.hops.keys()

    def together(self, broker: str) -> KeysView[str]:
        """The brokers that another reaches by ways that do not lead through this one."""
        return ShortestWays(self.name, [broker], self.links).hops.keys()

    def next_hop(self, home: str) -> str | None:
        """The neighbour on the shortest way to a broker; None while there is no way."""
        return self._shortest.hops.get(home)

    def way(self, home: str) -> tuple[str, ...]:
        """The brokers on that way, the other one at its end."""
        return self._shortest.way(home)

    def reached_over(self, neighbours: Iterable[str]) -> KeysView[str]:
        """The brokers to which a way leads that begins with one of some neighbours."""
        known = [each for each in neighbours if self._neighbours[each].is_equal]
        return ShortestWays(self.name, known, self.links).hops.keys()

    @property
    def _shortest(self) -> ShortestWays:
        if self._found is None or self._found_at != self.ways:
            self._found_at = self.ways
            near = [name for name, state in self._neighbours.items() if state.is_equal]
            self._found = ShortestWays(self.name, near, self.links, self.is_leaving)
        return self._found

    @property
    def has_caught_up(self) -> bool:
        """Whether this broker knows what its first neighbour knew."""
        return self._lacking is not None and not self._lacking

    # --- what this broker says ---

    def settle(self, ticket: int, about: frozenset[str] = frozenset()) -> None:
        """Put the ticket into `settled` once all brokers know what was announced until now: of what
        could not be written, and is told once there is room, only that `about` these subjects.
        """
        self.catch_up()
        self._repeat(len(self._repeating))
        if not about.isdisjoint(self._untold.unwritten):
            self._put_off.append((ticket, about))
            return
        is_back = any(self.next_hop(each) is not None for each in self._unreached)
        if self._asked_at != self.ways or (is_back and self._may_ask_again):
            self._ask_all()
        question = PendingSettle(self._asked, self._newest_told, ticket, about)
        question.unreached |= self._unreached
        self._name_lost(question)
        self._echoes.ask(question)
        self._reply()

    def _ask_all(self) -> None:
        """Say something new, that all answer: who was behind a link that has come back may be cut
        off since, and who was cut off may have heard nothing of what was answered without it.
        Links keep order: whoever answers has told before what it knows of that.
        """
        links = self.fact(self.name, LINKS)
        if self._neighbours and (links is None or not self._untold.holds(links)):
            self._announce(LINKS, self.links(self.name))
        links = self.fact(self.name, LINKS)  # which are told also where a disk is full
        self._asked_at = self.ways
        self._asked = links.version if links is not None else self._version(self.name)
        self._unreached, self._may_ask_again = {}, False

    def tell(self, version: int, *, only: Collection[str] = ()) -> None:
        """What this broker has announced up to a version is on its disk: the others may know.

        Or it could not be written: then they know of some subjects only, and the others are said
        again (`again`). Who asked about one of these waits for that (`settle`).
        """
        if only:
            told, failed = self._untold.refuse(version, told_all_the_same=only)
        else:
            told, failed = self._untold.write(version), []
        if told:
            self._flood(told, None)
        self._echoes.told(version)
        for links in (fact.links for fact in told if fact.subject == LINKS):
            self._lost = {name: None for name in self._lost if name in links}
        for subject in failed:
            if subject not in self._repeating:
                self._repeating.append(subject)
            for question in self._echoes.call_off(subject, self._newest_told):
                self._put_off.append((question.ticket, question.about))
        self._reply()
        if self._put_off and not failed:
            put_off, self._put_off = self._put_off, []
            for ticket, about in put_off:
                self.settle(ticket, about)

    def again(self, at: Moment) -> None:
        """Time has passed: say again what was outdone, ask again for what was not believed."""
        self._may_ask_again = True
        if self._is_outdone:
            self._say_again()
        self._repeat(REPEATED_AT_ONCE)
        for name, state in self._neighbours.items():
            if state.unbelieved and at.now - state.asked_at >= ASK_AGAIN_S:
                state.unbelieved.clear()
                state.asked_at = at.now
                self.outbox.append((name, Known(dict(self._versions), self._life)))

    # --- neighbours ---

    def join(self, neighbour: str, at: Moment) -> None:
        """A link is up."""
        self._neighbours[neighbour] = KnownNeighbour(at.now)
        self._lost.pop(neighbour, None)
        known = dict(self._versions)
        if self.is_new and neighbour not in self._asked_back:
            known.pop(self.name, None)
            self._asked_back[neighbour] = None
        self.outbox.append((neighbour, Known(known, self._life)))
        self._links_changed()

    def leave(self, neighbour: str) -> None:
        """A link is down: it answers for nothing any more."""
        gone = self._neighbours.pop(neighbour)
        if self._lacking:
            self._lacking = None  # the next one is asked
        self._lost[neighbour] = None
        self.ways += 1
        self._echoes.leave(neighbour, gone, self._untold.first)
        self._reply()
        self._links_changed()

    def receive(self, neighbour: str, message: Known | Facts | Echo | Echoed, at: Moment) -> None:
        """A neighbour says something."""
        match message:
            case Known():
                self._synchronize(neighbour, message, at)
            case Facts(facts):
                if len(facts) > PORTION_FACTS:
                    reason = f"{len(facts)} facts at once; {PORTION_FACTS} are the most"
                    raise IllegalMessage(neighbour, f"{reason} (PORTION_FACTS)")
                if len(facts) > 1 and sum(len(each.filter) for each in facts) > PORTION_BYTES:
                    reason = f"facts whose filters have more than {PORTION_BYTES} characters"
                    raise IllegalMessage(neighbour, f"{reason} together (PORTION_BYTES)")
                self._learn(neighbour, facts, at)
            case Echo():
                self._echoed(neighbour, message)
            case Echoed(echoes):
                if sum(len(each.unreached) for each in echoes) > MAX_BROKERS:
                    raise IllegalMessage(
                        neighbour, f"Echoed without more than {MAX_BROKERS} (MAX_BROKERS)"
                    )
                for each in echoes:
                    self._echoed(neighbour, each)

    def _links_changed(self) -> None:
        self.ways += 1
        self.is_behind = self._neighbours.keys() != set(self.links(self.name))
        links = self.fact(self.name, LINKS)
        if not self.is_behind and (links is None or not self._untold.holds(links)):
            self._lost.clear()  # who came and went was never told of
        if not self._bides:
            self.catch_up()

    def bide(self) -> None:
        """From now on this broker tells of its links with `catch_up`, and not of each change."""
        self._bides = True

    def catch_up(self) -> None:
        """Tell of its links, if they are others."""
        if self.is_behind:
            self.is_behind = False
            self.say_links(LINKS, tuple(sorted(self._neighbours)))

    def _synchronize(self, neighbour: str, known: Known, at: Moment) -> None:
        """Send what a neighbour lacks; from now on it is sent what comes."""
        state, versions = self._neighbours[neighbour], known.versions
        if state.is_equal and at.now - state.known_at < KNOWN_AGAIN_S:
            raise IllegalMessage(neighbour, "Known again too soon (KNOWN_AGAIN_S)")
        if len(versions) > MAX_BROKERS:
            raise IllegalMessage(neighbour, f"Known of more than {MAX_BROKERS} (MAX_BROKERS)")
        state.is_equal, state.known_at = True, at.now
        self._note_life(neighbour, known.life)
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
            self._send(neighbour, lacking)
        self._echoes.linked(neighbour, versions, self.fact, self._untold.versions)
        self.ways += 1
        for origin in list(self._forgetful):
            if self.next_hop(origin) == neighbour:
                self._remind_of(origin, neighbour, at)
        self._reply()

    def _learn(self, neighbour: str, facts: Sequence[Fact], at: Moment) -> None:
        self._note_lost_log(facts, at)
        fresh, known = self._sift(neighbour, facts, at)
        for origin, versions in known.items():
            self._answer(neighbour, origin, versions)
        owed = self._echoes.owe(fresh, neighbour)
        if not fresh:
            return
        self.news += fresh
        self._flood(fresh, neighbour)
        self._echoes.look(owed.values())
        self._reply()
        for origin in owed.keys() & self._forgetful.keys():
            if at.now - self._forgetful[origin] >= ASK_AGAIN_S:
                self._remind_of(origin, neighbour, at)

    def _note_lost_log(self, facts: Sequence[Fact], at: Moment) -> None:
        """What a neighbour knows of an earlier life of this broker, and what is still lacking."""
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

    def _sift(
        self, neighbour: str, facts: Sequence[Fact], at: Moment
    ) -> tuple[list[Fact], dict[str, list[int]]]:
        """Take in what is new: that, and by origin the versions to answer for at once."""
        fresh: list[Fact] = []
        known: dict[str, list[int]] = {}
        reminders: dict[str, list[Fact]] = {}
        taken: set[tuple[str, int]] = set()
        for fact in facts:
            if (fact.origin, fact.version) in taken:
                continue  # twice in a message: it will be answered for
            if not self._is_news(fact):
                if not self._echoes.is_owed(neighbour, fact):
                    known.setdefault(fact.origin, []).append(fact.version)
                hop = self.next_hop(fact.origin) if self._is_forgotten(fact) else None
                if hop not in (None, neighbour) and not self._doubt(fact, at):
                    reminders.setdefault(hop, []).append(fact)
            elif self._is_believed(neighbour, fact, at):
                if fact.origin == self.name:
                    self._correct(fact)
                else:
                    self._take_in(fact)
                    fresh.append(fact)
                    taken.add((fact.origin, fact.version))
        self.outbox += [(hop, Facts(tuple(said))) for hop, said in reminders.items()]
        return fresh, known

    def _remind_of(self, origin: str, towards: str, at: Moment) -> None:
        """What an origin said before it lost its disk, and is held to here, goes towards it."""
        said = self._forgotten(origin)
        if said:
            self._forgetful[origin] = at.now
            self.outbox.append((towards, Facts(tuple(said))))

    def _doubt(self, fact: Fact, at: Moment) -> str:
        """Why a fact is not taken for its origin's; empty if it is."""
        token = next(iter(self.links(fact.origin, TOKEN)), "")
        return self.vouching.check(fact, token, at)

    def _is_believed(self, neighbour: str, fact: Fact, at: Moment) -> bool:
        """Whether a fact may be kept; if not, it is answered for."""
        state, origin = self._neighbours[neighbour], fact.origin
        # With too many of them no more is taken of anybody, until the neighbour is asked again.
        if origin not in state.unbelieved and len(state.unbelieved) < MAX_BROKERS:
            problem = self._beyond(fact) or self._doubt(fact, at)
            if not problem:
                return True
            self.unbelieved.append((neighbour, fact, problem))
            state.unbelieved[origin] = None
        self._answer(neighbour, origin, (fact.version,), (self.name,))
        return False

    def _flood(self, facts: Sequence[Fact], source: str | None) -> None:
        for name, state in self._neighbours.items():
            if name != source and state.is_equal:
                self._send(name, facts)

    def _send(self, neighbour: str, facts: Sequence[Fact]) -> None:
        self.outbox.append((neighbour, Facts(tuple(facts))))
        self._echoes.sent(neighbour, facts)

    # --- answers ---

    def _echoed(self, neighbour: str, echo: Echo) -> None:
        if len(echo.unreached) > MAX_BROKERS:
            raise IllegalMessage(neighbour, f"Echo without more than {MAX_BROKERS} (MAX_BROKERS)")
        unreached = dict.fromkeys(each for each in echo.unreached if each in self._versions)
        if len(unreached) < len(echo.unreached):  # some that nobody has heard of
            unreached[neighbour] = None
        unreached.pop(self.name, None)  # who had no way to this broker may say so
        if echo.origin != self.name:
            self._echoes.answered(neighbour, echo.origin, echo.versions, unreached)
        else:
            newest = self._echoes.answered_own(neighbour, echo.versions, unreached)
            if newest is not None and newest >= self._asked:
                self._unreached |= unreached
        self._reply()

    def _reply(self) -> None:
        """Answer for what all others have answered for."""
        for question in self._echoes.answers(self._untold.first):
            self._name_lost(question)
            self._unreached |= question.unreached
            self.settled.append((question.ticket, tuple(sorted(question.unreached))))
        for owed in self._echoes.take():
            besides = {owed.origin, *owed.to}
            owed.unreached |= dict.fromkeys(name for name in self._lost if name not in besides)
            for name, versions in owed.to.items():
                self._answer(name, owed.origin, versions, owed.unreached)

    def _answer(
        self, name: str, origin: str, versions: Sequence[int], unreached: Iterable[str] = ()
    ) -> None:
        names = tuple(sorted(unreached))
        for start in range(0, len(versions), PORTION_FACTS):
            part = tuple(versions[start : start + PORTION_FACTS])
            self.outbox.append((name, Echo(origin, part, names)))

    def _name_lost(self, question: PendingSettle) -> None:
        """Name the brokers to which no way leads: as it is asked, and as it is answered, since one
        that was lost before its neighbour heard the question is named by nobody else.
        """
        for broker in self.brokers:
            if broker != self.name and self.next_hop(broker) is None:
                question.unreached[broker] = None
