"""What must have come of a play: everything that is promised, held against what clients heard.

Safety, for all that happened:

- *outside*: whatever a client hears matches a filter that it had when it was published, or later,
  and what it was granted. What is over is over: a change that was answered counts for all that is
  published after the answer.
- *lost*: a durable event that was acknowledged is heard by every durable subscription that it
  matches; if it was on a disk that is gone, or a bit of it turned round, and it did not come, a gap
  tells that subscription of it. Who has lost its disk knows of no subscription until it is linked
  to another broker.
- *untold*: a live event that did not come was lost with a gap.
- *unsettled*: none is lost at all if nothing broke since it was asked whether all is in force.
- *doubled*: no durable subscription hears anything twice, and nobody hears a live event twice, but
  for what its publisher said again, and what was on its way as a client went elsewhere, or as its
  broker stopped, on a graph.
- *misanswered*: what is published is answered once, and durable is what is on a disk.
- *undone*: each job of a group is done, or is a dead letter, and no more often than it must be.
- *failed*, *taken down*: no broker fails on anything, and no link goes down, whatever clients say.
- *disordered*: each durable subscription hears each publisher in order, unless one of the two
  moves; live events do so on a tree, and on any graph while nothing breaks.

Liveness, after the last fault: the network converges (`CONVERGES_S`), every publication was
answered, nothing is left in custody, what is published then comes to all who want it, once, and to
nobody else, and where there are datagrams all brokers go by the newest plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import inf
from typing import Final

from palio.model.patterns import Occurrence
from palio.node.effects import ANYBODY
from palio.protocol.messages import Gap
from palio.routing.algorithms import GraphKind, find_algorithm
from tests.campaign.actors import Actor, Debt, HeardEvent, Interest
from tests.campaign.casting import out_of_use
from tests.campaign.faults import CLIENT_FAULTS
from tests.campaign.grants import MAY_HEAR, MAY_PUBLISH
from tests.campaign.hostile import HOSTILE
from tests.campaign.plays import Play, PublishedEvent
from tests.campaign.scripts import Breach

TELL_ALL: Final = frozenset({"acyclic", "general", "flooded"})
"""Algorithms by which a neighbour is told what is wanted, whatever it offers itself."""

LOSING: Final = frozenset({"wipe"})
"""Faults after which a disk may lack what others have heard."""

PROBES: Final = 6
"""Events that are published in the calm, to see that they come."""

ARRIVES_S: Final = 2.0
"""What is published where nothing is broken has come after so long."""

ASSEMBLED_S: Final = 3.0
"""Brokers have found what was published so long before: they hold it back for a second."""

CALMS_S: Final = 10.0
"""So long after the last fault ways do not change for it any more."""

RELINKED_S: Final = 1.0
"""Links that broke stand again so long after nothing keeps them from it."""

UNAWARES_S: Final = 5.0
"""A client has found out by then that its connection is dead: after 3 heartbeats of silence."""

ANSWERED_S: Final = 10.0
"""What was published so long before a broker stopped had been answered, or its publisher away."""

SMALL_BYTES: Final = 100_000
"""A queue that holds less may overflow though nothing is broken."""


def verdicts(play: Play) -> Iterator[Breach]:
    """Everything that is wrong with a play that was run, most important first."""
    verdict = _Verdict(play)
    for actor in play.actors.values():
        yield from verdict.of_actor(actor)
        yield from verdict.of_publications(actor)
    yield from verdict.of_work()
    for name, report in play.world.reports:
        if report.event == "internal_error":
            yield Breach("failed", f"{name} has failed on something: {report.details}")
        if report.event == "peer_down" and play.script.faults.issubset(CLIENT_FAULTS):
            yield Breach("taken down", f"{name} lost a neighbour through clients: {report.details}")
    if play.converged_s is None:
        yield Breach("unconverged", verdict.why_not())
        return
    yield from verdict.in_the_calm()


class _Verdict:
    def __init__(self, play: Play) -> None:
        self.play = play
        self.faults = play.script.faults
        self.places = {
            (each.publisher, each.seq): number for number, each in enumerate(play.published)
        }
        self.refused = self._refused()
        self.movers = {f"{name}/1" for name, actor in play.actors.items() if actor.moves_s}
        self.said_again = {
            (f"{name}/1", seq) for name, actor in play.actors.items() for seq in actor.said_again
        }
        gate = play.script.gate
        names = [play.script.routing, *([gate.routing] if gate is not None else [])]
        self.is_advertised = any(find_algorithm(name).is_advertised for name in names)
        self.tells_all = all(name in TELL_ALL for name in names)
        self.on_trees = all(find_algorithm(name).graph is not GraphKind.GRAPH for name in names)

    def _refused(self) -> set[tuple[str, int]]:
        """What publishers know to be refused."""
        return {
            (f"{actor.name}/1", seq)
            for actor in self.play.actors.values()
            for each in actor.publications
            for seq in range(each.first, each.last + 1)
            if each.error is not None
            or any(part.first_seq <= seq <= part.last_seq for part in each.refused)
        }

    def why_not(self) -> str:
        """What the network still waits for."""
        play = self.play
        away = [name for name, actor in play.actors.items() if not actor.is_connected]
        return (
            f"not connected {away}; not linked {play.unlinked}; "
            f"linked besides {play.surplus}; being done {play.faults.operators.under_way}; "
            f"not settled {play.unsettled}; in custody {play.waiting}; "
            f"not answered {play.unanswered} {play.unanswered_requests}"
        )

    def event(self, heard: HeardEvent) -> PublishedEvent | None:
        """What was published under this number; None if it was nobody whom the play knows."""
        number = self.places.get((heard.publisher, heard.seq))
        return None if number is None else self.play.published[number]

    # --- safety ---

    def of_actor(self, actor: Actor) -> Iterator[Breach]:
        """What is wrong with all that one client heard."""
        yield from self._outside(actor, actor.live, actor.all_interests)
        for interest in actor.all_interests:
            if interest.durable:
                same = [each for each in actor.all_interests if each.name == interest.name]
                heard = actor.durable.get(interest.key, [])
                # The word that one ended may be lost with a session; its successor takes it over.
                yield from self._outside(actor, heard, same)
                yield from self._doubled(heard, f"{actor.name} {interest.name}")
                since = [each for each in heard if self._is_since(interest, each)]
                yield from self._disordered(actor, since, interest.name)
                yield from self._lost(actor, interest)
            else:
                yield from self._unpublished(actor, interest)
        for key in sorted({each.key for each in actor.live}):
            heard = self._once(actor, [each for each in actor.live if each.key == key])
            yield from self._doubled(heard, f"{actor.name} live, key {key}")
            if not self.on_trees:
                heard = [each for each in heard if self._is_calm(each)]
            yield from self._disordered(actor, heard, f"live, key {key}")
        yield from self._astray(actor)
        yield from self._cancelled(actor)
        # What a publisher says again at another broker is kept there, too.
        doubled = [(k, p, n) for k, p, n in actor.doubled if (p, n) not in self.said_again]
        if doubled and not actor.moves_s and not self.faults & LOSING:
            yield Breach("sent twice", f"{actor.name} was sent twice {doubled}")

    def of_publications(self, actor: Actor) -> Iterator[Breach]:
        """What is wrong with the answers to all that one client published."""
        for each in actor.publications:
            level = "durable" if each.durable else "memory"
            if each.levels not in ([], [level if each.error is None else ""]):
                what = f"{each.first} to {each.last}, {level}, {each.error}"
                yield Breach("misanswered", f"{actor.name} was told {each.levels} of {what}")

    def _outside(
        self, actor: Actor, heard: list[HeardEvent], interests: list[Interest]
    ) -> Iterator[Breach]:
        for each in heard:
            event = self.event(each)
            if event is None and each.publisher.startswith(HOSTILE):
                continue  # it may publish as well
            if event is None or event.row != each.row:
                yield Breach("outside", f"{actor.name} heard {each}, which nobody published")
                continue
            wanted = any(
                version.matches(each.row)
                and version.asked_s <= each.at_s
                and (event.durable or version.over_s >= event.at_s)
                for interest in interests
                for version in interest.versions
            )
            if not wanted:
                had = [str(version) for one in interests for version in one.versions]
                yield Breach("outside", f"{actor.name} heard {each}, not wanted by {had}")
            if self.play.script.grants and not (
                MAY_HEAR.matches(each.row) and MAY_PUBLISH.matches(each.row)
            ):
                yield Breach("outside", f"{actor.name} heard {each}, which no grant admits")

    def _once(self, actor: Actor, heard: list[HeardEvent]) -> list[HeardEvent]:
        """What a session must not hear twice, of what it heard live. It may receive again what was
        published again, and at another broker what it had heard before it set out; on a graph also
        what it had heard before its broker stopped, which is known there by its number no more.
        """
        stops_s = [
            stop_s
            for broker, stop_s in self.play.faults.stops
            if not self.on_trees and _may_be_at(broker, actor)
        ]
        first_s: dict[tuple[str, int], float] = {}
        once: list[HeardEvent] = []
        for each in heard:
            event, key = self.event(each), (each.publisher, each.seq)
            was_s = first_s.setdefault(key, each.at_s)
            is_anew = any(was_s <= at_s <= each.at_s for at_s in (*actor.moves_s, *stops_s))
            if event is not None and key not in self.said_again and not is_anew:
                once.append(each)
        return once

    def _doubled(self, heard: list[HeardEvent], who: str) -> Iterator[Breach]:
        heard = [each for each in heard if not each.publisher.startswith(HOSTILE)]
        counts = Counter((each.publisher, each.seq) for each in heard)
        twice = [event for event, count in counts.items() if count > 1]
        if twice:
            yield Breach("doubled", f"{who} heard twice {twice}")

    def _disordered(self, actor: Actor, heard: list[HeardEvent], what: str) -> Iterator[Breach]:
        """Each hears each in order, as long as neither of the two goes elsewhere."""
        if actor.moves_s:
            return
        last: dict[str, int] = {}
        for each in heard:
            if each.publisher.startswith(HOSTILE) or each.publisher in self.movers:
                continue  # the numbers of the one jump
            if each.seq < last.get(each.publisher, 0):
                yield Breach("disordered", f"{actor.name} {what} heard {each} after {last}")
                return
            last[each.publisher] = each.seq

    def _is_calm(self, heard: HeardEvent) -> bool:
        """Whether an event came live, and nothing was broken on its way, nor shortly before."""
        event = self.event(heard)
        return (
            event is not None
            and not event.durable
            and not self.play.faults.broke(event.at_s - CALMS_S, heard.at_s)
        )

    def _owed(self, actor: Actor, interest: Interest) -> Iterator[tuple[PublishedEvent, Debt]]:
        """What must have come to a subscription, or its loss been told."""
        if interest.ended:
            return
        for number, debt in interest.owed.items():
            event = self.play.published[number]
            wanted = all(each.matches(event.row) for each in interest.versions[debt.version :])
            if wanted and not self._is_unheard_of(actor, event, debt) and self._is_owed(event):
                yield event, debt

    def _is_unheard_of(self, actor: Actor, event: PublishedEvent, debt: Debt) -> bool:
        """Whether it was published, or asked for, at a broker that had lost its disk, before that
        heard of any other.
        """
        publisher = self.play.actors[event.publisher.partition("/")[0]]
        return self._is_answered_in_ignorance(actor, debt.asked_s, debt.answered_s) or any(
            _may_be_at(each.broker, publisher)
            and each.from_s - ANSWERED_S <= event.at_s <= each.until_s + ARRIVES_S
            for each in self.play.faults.blanks
        )

    def _is_answered_in_ignorance(self, actor: Actor, asked_s: float, answered_s: float) -> bool:
        """Whether a client may have had its answer from a broker that had heard of no other. It
        may have asked before, and another broker.
        """
        return any(
            _may_be_at(each.broker, actor)
            and each.from_s <= answered_s
            and asked_s <= each.until_s + ARRIVES_S
            for each in self.play.faults.blanks
        )

    def _is_owed(self, event: PublishedEvent) -> bool:
        return (event.publisher, event.seq) not in self.refused and (
            not self.play.script.grants
            or (MAY_HEAR.matches(event.row) and MAY_PUBLISH.matches(event.row))
        )

    def _lost(self, actor: Actor, interest: Interest) -> Iterator[Breach]:
        heard = {(each.publisher, each.seq) for each in actor.durable.get(interest.key, [])}
        faults = self.play.faults
        told = [gap for gap in actor.gaps if gap.key == interest.key]
        lost = [
            each
            for each, _ in self._owed(actor, interest)
            if each.durable
            and (each.publisher, each.seq) not in heard
            and not (
                (each.publisher, each.seq) in faults.wiped | faults.flipped
                and any(_covers(gap, each) for gap in told)
            )
        ]
        if lost:
            had = [str(each) for each in interest.versions]
            yield Breach("lost", f"{actor.name} {interest.name} {had} did not hear {lost}")

    def _unpublished(self, actor: Actor, interest: Interest) -> Iterator[Breach]:
        """Live events that did not come, though no gap was told, or nothing broke meanwhile."""
        heard = {(each.publisher, each.seq) for each in actor.live}
        last_gap_s = max(actor.gaps_s, default=-inf)
        for each, debt in self._owed(actor, interest):
            if (each.publisher, each.seq) in heard or not self._is_announced(each):
                continue
            is_excused = (
                self._was_left_unawares(actor, each)
                or self._was_overtaken(each)
                or self._was_forgotten(each)
            )
            if last_gap_s < each.at_s and not is_excused:
                yield Breach("untold", f"{actor.name} {interest.name} did not hear {each}")
                return
            if not self._was_disturbed(actor, each, debt):
                what = f"{actor.name} {interest.name} did not hear {each} after settled: {debt}"
                yield Breach("unsettled", what)
                return

    def _was_left_unawares(self, actor: Actor, event: PublishedEvent) -> bool:
        """Whether its client went elsewhere before it could find out that its connection was dead,
        and with it what waited there.
        """
        return any(
            event.at_s - ARRIVES_S <= move_s <= event.at_s + UNAWARES_S
            and self.play.faults.broke(move_s - UNAWARES_S, move_s + ARRIVES_S)
            for move_s in actor.moves_s
        )

    def _was_forgotten(self, event: PublishedEvent) -> bool:
        """Whether its broker started and stopped dead again, and something was broken all the
        while: it may not have been linked to any other, and nobody knows what it had taken.
        """
        publisher, faults = self.play.actors[event.publisher.partition("/")[0]], self.play.faults
        for broker, again_s in faults.stops:
            before = [at_s for name, at_s in faults.stops if name == broker and at_s < again_s]
            if before and _may_be_at(broker, publisher) and before[-1] <= event.at_s <= again_s:
                broken_s = before[-1]
                for from_s, until_s in sorted(faults.breaks):
                    if from_s <= broken_s:
                        broken_s = max(broken_s, until_s)
                if broken_s >= again_s:
                    return True
        return False

    def _was_overtaken(self, event: PublishedEvent) -> bool:
        """Whether its publisher went elsewhere while it may have been held up on its way: on a
        graph a broker that has heard a later one of that publisher takes it for one that it knows.
        """
        moves_s = self.play.actors[event.publisher.partition("/")[0]].moves_s
        return not self.on_trees and any(
            event.at_s - ARRIVES_S <= move_s <= event.at_s + UNAWARES_S for move_s in moves_s
        )

    def _is_since(self, interest: Interest, heard: HeardEvent) -> bool:
        """Whether it was published since the subscription is in force everywhere. If that was
        changed, also whether the filter that was so then wanted it, and it was said once: a later
        filter may want what is said or carried again.
        """
        key = heard.publisher, heard.seq
        event, place = self.event(heard), self.places.get(key)
        debt = None if place is None else interest.owed.get(place)
        if event is None or debt is None:
            return False
        known = interest.versions[debt.version]
        was_wanted = known.matches(event.row) and event.at_s <= known.over_s
        return len(interest.versions) == 1 or (was_wanted and key not in self.said_again)

    def _is_announced(self, event: PublishedEvent) -> bool:
        """Where publishers advertise, nobody hears singly what was published before that is known
        everywhere: anew in each session.
        """
        key = event.publisher, event.seq
        return not self.is_advertised or (event.announced and key not in self.said_again)

    def _was_disturbed(self, actor: Actor, event: PublishedEvent, debt: Debt) -> bool:
        """Whether anything broke, or hearer or publisher moved, from when it was asked whether all
        is in force until an event had time to arrive. Its publisher may have had no connection yet.
        """
        publisher = self.play.actors[event.publisher.partition("/")[0]]
        from_s, to_s = debt.asked_s, _was_sent(publisher, event) + ARRIVES_S
        # By the others a broker says that all is in force without asking those it hears from.
        broke_s = from_s if self.tells_all else from_s - RELINKED_S
        moves_s = [*actor.moves_s, *publisher.moves_s]
        return (
            self.play.faults.broke(broke_s, to_s)
            or self.play.script.window_bytes < SMALL_BYTES
            or any(from_s - ARRIVES_S <= move_s <= to_s for move_s in moves_s)
        )

    def _astray(self, actor: Actor) -> Iterator[Breach]:
        """What brokers have found that is no occurrence, or did not find though nothing broke."""
        play = self.play
        published = {(each.publisher, each.seq): each.row for each in play.published}
        whole = not (play.faults.breaks or play.hostile or self.movers)
        for quest in actor.quests.values():
            what = f"{actor.name} {quest.name}, {quest.text}"
            yield from (
                Breach("astray", f"{what}: {fault}")
                for fault in quest.faults_of(
                    published, actor.gaps_s, actor.moves_s, actor.crossings_s
                )
                if "clock" not in self.faults  # order is by the clocks of brokers
            )
            found = [each.parts for each in quest.found]
            if whole and quest.asked_s < 2.0 + play.began_s and not actor.gaps_s:
                expected = quest.expected(actor.witnessed)
                if [_places(each) for each in found] != [_places(each) for each in expected]:
                    yield Breach("astray", f"{what}: {found} instead of {expected}")

    def _cancelled(self, actor: Actor) -> Iterator[Breach]:
        """Subscriptions that ended though nobody of the same identity had cancelled them."""
        for interest in actor.past:
            if interest.is_cancelled and not any(
                version.is_within(cancelled.text)
                for version in interest.versions
                for other in self.play.actors.values()
                if other is not actor and other.identity == actor.identity
                for cancelled in other.cancels
            ):
                what = [str(each) for each in interest.versions]
                yield Breach("cancelled", f"{actor.name} {interest.name} {what} was cancelled")

    def of_work(self) -> Iterator[Breach]:
        """What is wrong with the jobs of a group."""
        play = self.play
        if play.crew is None or play.converged_s is None or self.faults & {"wipe", "flip"}:
            return  # an open job is no fault yet, and a lost disk has lost the group
        owed = {
            (each.publisher, each.seq): each.row["x"]
            for each in play.published
            if each.durable and each.row.get("kind") == 9 and each.at_s > play.crew.settled_s
            if (each.publisher, each.seq) not in self.refused
        }
        is_calm = not (self.faults or play.hostile or self.movers)
        for fault in play.crew.faults_of(owed, is_calm=is_calm):
            yield Breach("undone", fault)

    # --- liveness ---

    def in_the_calm(self) -> Iterator[Breach]:
        """Publish some events that all can hear, and see who does."""
        play = self.play
        actors = list(play.actors.values())
        for actor in actors:
            actor.live.clear()
        first = len(play.published)
        for number in range(PROBES if actors else 0):
            row = {"kind": number % 2, "x": number % 4, "s": "ab"[number % 2]}
            play.publish(actors[number % len(actors)], (row,), durable=False)
            play.world.run(0.05)
        play.world.run(5.0)
        yield from self._found_in_the_calm()
        if play.script.multicast and (others := out_of_use(play.world.nodes)):
            yield Breach("out of use", f"not all go by the newest plan: {others}")
        probes = play.published[first:]
        self.places.update(
            ((each.publisher, each.seq), first + number) for number, each in enumerate(probes)
        )
        self.refused |= self._refused()
        for actor in actors:
            expected = self._expected(actor, probes)
            heard = Counter(
                (each.publisher, each.seq, each.key)
                for each in actor.live
                if not each.publisher.startswith(HOSTILE) and self._is_from(first, each)
            )
            if heard != expected:
                yield Breach(
                    "dull",
                    f"{actor.name} in the calm: too much {heard - expected}, "
                    f"too little {expected - heard}",
                )

    def _is_from(self, first: int, heard: HeardEvent) -> bool:
        """Whether an event is none that was published earlier: a small window brings those late."""
        return self.places.get((heard.publisher, heard.seq), first) >= first

    def _found_in_the_calm(self) -> Iterator[Breach]:
        """Publish what completes each pattern that brokers assemble, and see if it is found."""
        play = self.play
        admitted = MAY_HEAR & MAY_PUBLISH if play.script.grants else None
        for actor in play.actors.values():
            for quest in actor.quests.values():
                before, first = len(quest.found), len(play.published)
                rows = quest.example(admitted)
                for row in rows:
                    play.publish(actor, (dict(row),), durable=False)
                    play.world.run(0.1)
                play.world.run(ASSEMBLED_S)
                said = {(each.publisher, each.seq) for each in play.published[first:]}
                late = "clock" in self.faults  # who is ahead makes all others late
                if rows and not (late or said & self._refused() or len(quest.found) > before):
                    yield Breach("astray", f"{actor.name} {quest.text}: not found in the calm")

    def _expected(
        self, actor: Actor, probes: list[PublishedEvent]
    ) -> Counter[tuple[str, int, int]]:
        expected: Counter[tuple[str, int, int]] = Counter()
        interests = list(actor.interests.values())
        for each in probes:
            if not self._is_owed(each):
                continue
            wants = [one for one in interests if one.versions[-1].matches(each.row)]
            if any(not one.durable for one in wants):
                expected[each.publisher, each.seq, -1] += 1
            for one in wants:
                if one.durable:
                    expected[each.publisher, each.seq, one.key] += 1
        return expected


def _may_be_at(broker: str, actor: Actor) -> bool:
    """Whether a client was at a broker at some time: one that moves may have been anywhere."""
    return bool(actor.moves_s) or actor.broker == broker


def _covers(gap: Gap, event: PublishedEvent) -> bool:
    """Whether an event may be one of those that a gap tells of."""
    is_theirs = gap.publisher == event.publisher and gap.first_seq <= event.seq <= gap.last_seq
    return is_theirs or gap.publisher == ANYBODY


def _was_sent(publisher: Actor, event: PublishedEvent) -> float:
    """When its publisher's broker had it at the latest, as far as that was answered."""
    answers = (
        each.answered_s for each in publisher.publications if each.first <= event.seq <= each.last
    )
    answered_s = next(answers, inf)
    return event.at_s if answered_s == inf else answered_s


def _places(parts: tuple[Occurrence, ...]) -> list[tuple[str, int]]:
    return [(each.publisher, each.seq) for each in parts]
