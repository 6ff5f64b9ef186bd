"""What must have come of a play: everything that is promised, held against what clients heard.

Safety, for all that happened:

- *outside*: whatever a client hears matches a filter that it had when it was published, or later,
  and what it was granted. What is over is over: a change that was answered counts for all that is
  published after the answer.
- *lost*: a durable event that was acknowledged is heard by every durable subscription that it
  matches, as long as disks survive; if one failed, it is heard, or a gap is told.
- *untold*: a live event that did not come was lost with a gap.
- *doubled*: no durable subscription hears anything twice, and nobody who stays at one broker hears
  a live event twice.
- *misanswered*: what is published is answered once, and durable is what is on a disk.
- *failed*, *taken down*: no broker fails on anything, and no link goes down, whatever clients say.
- *disordered*: on a tree each subscription hears each publisher in order, unless clients move.

Liveness, after the last fault: the network converges (`CONVERGES_S`), every publication was
answered, nothing is left in custody, and what is published then comes to all who want it, once, and
to nobody else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import inf
from typing import Final

from palio.routing.algorithms import GraphKind, find_algorithm
from palio.simulation.campaign.actors import Actor, HeardEvent, Interest
from palio.simulation.campaign.faults import CLIENT_FAULTS, DISK_FAULTS
from palio.simulation.campaign.grants import MAY_HEAR, MAY_PUBLISH
from palio.simulation.campaign.hostile import HOSTILE
from palio.simulation.campaign.plays import Play, PublishedEvent
from palio.simulation.campaign.scripts import Breach

__all__ = ["PROBES", "verdicts"]

PROBES: Final = 6
"""Events that are published in the calm, to see that they come."""


def verdicts(play: Play) -> Iterator[Breach]:
    """Everything that is wrong with a play that was run, most important first."""
    verdict = _Verdict(play)
    for actor in play.actors.values():
        yield from verdict.of_actor(actor)
        yield from verdict.of_publications(actor)
    for name, report in play.world.reports:
        if report.event == "failed":
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
        self.excused = self._refused() | play.faults.flipped
        moves = [each for each in play.script.steps if each.what in {"move", "move over"}]
        self.movers = {each.words[0] for each in moves}
        gate = play.script.gate
        names = [play.script.routing, *([gate.routing] if gate is not None else [])]
        on_trees = all(find_algorithm(name).graph is not GraphKind.GRAPH for name in names)
        self.is_in_order = on_trees and not moves and not self.faults & DISK_FAULTS

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
            f"not connected {away}; not settled {play.unsettled}; in custody {play.waiting}; "
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
                yield from self._disordered(heard, f"{actor.name} {interest.name}")
                yield from self._lost(actor, interest)
            else:
                yield from self._untold(actor, interest)
        for key in sorted({each.key for each in actor.live}):
            heard = self._once(actor, [each for each in actor.live if each.key == key])
            yield from self._doubled(heard, f"{actor.name} live, key {key}")
            yield from self._disordered(heard, f"{actor.name} live, key {key}")
        if actor.doubled and not self.movers and not self.faults & DISK_FAULTS:
            yield Breach("sent twice", f"{actor.name} was sent twice {actor.doubled}")

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
        """What a session must not hear twice: live events, unless the client moves, and an event
        that was on its way comes by its new broker, too. Durable events that were not acknowledged
        are published again, and live listeners hear both.
        """
        if actor.name in self.movers:
            return []
        return [each for each in heard if (event := self.event(each)) and not event.durable]

    def _doubled(self, heard: list[HeardEvent], who: str) -> Iterator[Breach]:
        heard = [each for each in heard if not each.publisher.startswith(HOSTILE)]
        counts = Counter((each.publisher, each.seq) for each in heard)
        twice = [event for event, count in counts.items() if count > 1]
        if twice:
            yield Breach("doubled", f"{who} heard twice {twice}")

    def _disordered(self, heard: list[HeardEvent], who: str) -> Iterator[Breach]:
        if not self.is_in_order:
            return
        last: dict[str, int] = {}
        for each in heard:
            if each.publisher.startswith(HOSTILE):
                continue  # its numbers jump
            if each.seq < last.get(each.publisher, 0):
                yield Breach("disordered", f"{who} heard {each} after {last}")
                return
            last[each.publisher] = each.seq

    def _owed(self, interest: Interest) -> list[PublishedEvent]:
        """What must have come to a subscription, or its loss been told."""
        if interest.ended:
            return []
        published = self.play.published
        return [
            published[number]
            for number, first in interest.owed_from.items()
            if all(version.matches(published[number].row) for version in interest.versions[first:])
            and self._is_owed(published[number])
        ]

    def _is_owed(self, event: PublishedEvent) -> bool:
        return (event.publisher, event.seq) not in self.excused and (
            not self.play.script.grants
            or (MAY_HEAR.matches(event.row) and MAY_PUBLISH.matches(event.row))
        )

    def _lost(self, actor: Actor, interest: Interest) -> Iterator[Breach]:
        heard = {(each.publisher, each.seq) for each in actor.durable.get(interest.key, [])}
        lost = [
            each
            for each in self._owed(interest)
            if each.durable and (each.publisher, each.seq) not in heard
        ]
        told = self.faults & DISK_FAULTS and actor.gaps_s
        if lost and not told and not self.play.faults.wiped:
            had = [str(each) for each in interest.versions]
            yield Breach("lost", f"{actor.name} {interest.name} {had} did not hear {lost}")

    def _untold(self, actor: Actor, interest: Interest) -> Iterator[Breach]:
        """Live events that did not come, though no gap was told."""
        heard = {(each.publisher, each.seq) for each in actor.live}
        for each in self._owed(interest):
            last_gap = max(actor.gaps_s, default=-inf)
            if (each.publisher, each.seq) not in heard and last_gap < each.at_s:
                yield Breach("untold", f"{actor.name} {interest.name} did not hear {each}")
                return

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
        probes = play.published[first:]
        self.places.update(
            ((each.publisher, each.seq), first + number) for number, each in enumerate(probes)
        )
        self.excused |= self._refused()
        for actor in actors:
            expected = self._expected(actor, probes)
            heard = Counter(
                (each.publisher, each.seq, each.key)
                for each in actor.live
                if not each.publisher.startswith(HOSTILE)
            )
            if heard != expected:
                yield Breach(
                    "dull",
                    f"{actor.name} in the calm: too much {heard - expected}, "
                    f"too little {expected - heard}",
                )

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
