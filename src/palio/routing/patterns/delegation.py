"""`Delegation`: where the assembly of each pattern stands, and how it moves (siena 5.4).

Every pattern subscription has exactly one *assembly* in the whole network. It stands where the
paths of its events meet. A broker with one single provider for the whole pattern, a neighbour,
delegates it there. A broker with several, or with a client of its own among them, subscribes the
steps as plain filters and assembles here. A delegation brings back one composite notification an
occurrence, which is forwarded unchanged.

When the table of available patterns changes, the assembly moves by one link, and its state with it,
so that no occurrence is lost or doubled:

    down   subscribe the steps; `Recall`; collect the events; `Returned` states where to continue
    up     `SubscribePattern(running)`; the provider collects and sends `Ready`; `Resume` states
           where to continue; unsubscribe the steps

Since a link keeps order, the broker that takes over has collected, or is sent, each event that the
other one has not yet released. docs/concepts/routing-patterns.md has the proof, and why no shorter
part of a sequence is delegated.
"""

from __future__ import annotations

import msgspec

from palio.model.patterns import place_of
from palio.routing.patterns.assembly import Assembly, follows, is_occurrence
from palio.routing.patterns.legal import FromProvider, bound, check_room, check_turn
from palio.routing.patterns.messages import (
    AssemblyProgress,
    CancelPattern,
    Composite,
    HeldBack,
    Parts,
    PatternControl,
    Ready,
    Recall,
    Resume,
    Returned,
    SubscribePattern,
    TooLate,
    UnsubscribePattern,
)
from palio.routing.patterns.providers import Providers
from palio.routing.patterns.reading import Reading
from palio.routing.patterns.standing import AssemblyPlace, PatternSubscription, covers_subscription
from palio.routing.patterns.underlay import Underlay
from palio.routing.protocol import IllegalMessage, Peer, Send


class Delegation:
    """The pattern subscriptions of one broker, and its messages about them to peers."""

    def __init__(self, underlay: Underlay) -> None:
        self._underlay = underlay
        self.providers = Providers(underlay)
        self.standing: dict[int, PatternSubscription] = {}
        """By number, in the order they came."""
        self.reading = Reading(self.standing)
        """Events that came for assemblies here."""
        self._late_before = 0
        self._by_key: dict[Peer, dict[int, PatternSubscription]] = {}
        self._next_number = 0

    @property
    def late(self) -> int:
        """Events that came later than the reorder window, and took no part in a pattern here."""
        now = sum(each.assembly.late for each in self.standing.values() if each.assembly)
        return self._late_before + now

    def check_room(self, subscriber: Peer, more: int) -> None:
        """Refuse so many patterns more of a subscriber that would have too many."""
        check_room(subscriber, len(self._by_key.get(subscriber, {})) + more - 1)

    def receive(self, sender: Peer, message: PatternControl) -> list[Send]:
        """Act on a peer's message about a pattern. An illegal one raises `IllegalMessage`."""
        match message:
            case SubscribePattern():
                return self._subscribe(sender, message)
            case UnsubscribePattern(key):
                return self._give_up(self._by_key.get(sender, {}).get(key))
            case CancelPattern():
                return self._cancel(sender, message)
            case Resume():
                return self._resume(sender, message)
            case HeldBack():
                return self._hold(sender, message)
            case Recall(key):
                return self._recall(sender, key)
            case Ready() | Returned() | Composite() | TooLate():
                return self._from_provider(sender, message)

    def missed(self, standing: PatternSubscription) -> list[Send]:
        """The subscriber is informed of events that were late."""
        assembly = standing.assembly
        reports = () if assembly is None else assembly.missed(standing.key)
        return [Send(standing.subscriber, report) for report in reports]

    def report(self, standing: PatternSubscription, parts: Parts) -> list[Send]:
        """One occurrence goes one link towards the subscriber."""
        if standing.subscriber.is_client:
            if standing.ends_after is not None and place_of(parts[0]) <= standing.ends_after:
                return []  # it began before the last one ended: a monitor was lost
            standing.ends_after = place_of(parts[-1])
        return [Send(standing.subscriber, Composite(standing.key, parts))]

    # --- messages of subscribers ---

    def _subscribe(self, sender: Peer, message: SubscribePattern) -> list[Send]:
        if message.running and sender.is_client:
            raise IllegalMessage(sender, "only a broker has a running pattern to hand over")
        pattern = bound(sender, message)
        if message.key not in self._by_key.get(sender, {}):
            self.check_room(sender, 1)
        sends = self._give_up(self._by_key.get(sender, {}).get(message.key))
        standing = PatternSubscription(sender, message.key, pattern, self._next_number)
        self._next_number += 1
        self.standing[standing.number] = standing
        self._by_key.setdefault(sender, {})[message.key] = standing
        if not message.running:
            return sends + self.settle(standing)
        standing.stage = AssemblyPlace.AWAITED
        sends += self._assemble(standing, is_waiting=True)
        return [*sends, Send(sender, Ready(message.key))]

    def _cancel(self, sender: Peer, message: CancelPattern) -> list[Send]:
        if not sender.is_client:
            raise IllegalMessage(sender, "CancelPattern is for clients; a broker names keys")
        pattern = bound(sender, message)
        sends: list[Send] = []
        for standing in list(self._by_key.get(sender, {}).values()):
            if covers_subscription(pattern, standing.pattern):
                sends += self._give_up(standing)
        return sends

    def _resume(self, sender: Peer, message: Resume) -> list[Send]:
        standing = self._awaited(sender, message)
        self._take_over(sender, standing, message.progress)
        return self.settle(standing)

    def _awaited(self, sender: Peer, message: Resume | HeldBack) -> PatternSubscription:
        standing = self._by_key.get(sender, {}).get(message.key)
        if standing is None or standing.stage is not AssemblyPlace.AWAITED:
            kind = type(message).__name__
            raise IllegalMessage(sender, f"{kind} of pattern {message.key}, which is not awaited")
        return standing

    def _hold(self, sender: Peer, message: HeldBack) -> list[Send]:
        """A part of what a neighbour knows that hands a monitor over, or gives it back."""
        if message.is_back:
            return self._from_provider(sender, message)
        standing = self._awaited(sender, message)
        self._collecting(standing).push(message.events)
        return []

    def _collecting(self, standing: PatternSubscription) -> Assembly:
        """Return the assembly that takes over; make one for a pattern that only passed through."""
        if standing.assembly is None:
            standing.assembly = Assembly(standing.pattern, is_waiting=True)
        return standing.assembly

    def _recall(self, sender: Peer, key: int) -> list[Send]:
        standing = self._by_key.get(sender, {}).get(key)
        if standing is None or sender.is_client:
            raise IllegalMessage(sender, f"Recall of pattern {key}, which is not delegated")
        if standing.stage is AssemblyPlace.AWAITED or standing.is_asked_back:
            raise IllegalMessage(sender, f"Recall of pattern {key} out of turn")
        if standing.provider is None or standing.stage is AssemblyPlace.MOVING:
            return self._return(standing)
        standing.is_asked_back = True
        if standing.stage is AssemblyPlace.RECALLED:
            return []
        standing.stage = AssemblyPlace.RECALLED
        return [Send(standing.provider, Recall(standing.number))]

    def _return(self, standing: PatternSubscription) -> list[Send]:
        """Give the assembly back to the subscriber that recalled it."""
        self.reading.read_up(standing)
        assembly, reports = standing.assembly, self.missed(standing)
        progress = AssemblyProgress() if assembly is None else assembly.stop()
        answer = Send(standing.subscriber, Returned(standing.key, progress))
        return [*reports, answer, *self._give_up(standing)]

    # --- messages of providers ---

    def _from_provider(self, sender: Peer, message: FromProvider) -> list[Send]:
        number = message.key
        if sender.is_client or not 0 <= number < self._next_number:
            raise IllegalMessage(sender, f"pattern {number} was never delegated to it")
        standing = self.standing.get(number)
        if standing is None:
            return []  # given up in the meantime
        check_turn(sender, message, standing)
        match message:
            case Ready():
                return self._hand_over(standing)
            case HeldBack(_, events):
                self._collecting(standing).push(events)
                return []
            case Returned(_, progress):
                self._take_over(sender, standing, progress)
                self.providers.entrust(standing, None)
                return self._return(standing) if standing.is_asked_back else self.settle(standing)
            case TooLate():
                passed = msgspec.structs.replace(message, key=standing.key)
                return [Send(standing.subscriber, passed)]
            case Composite(_, parts):
                if not is_occurrence(standing.pattern, parts):
                    raise IllegalMessage(sender, f"pattern {number} does not occur in its parts")
                return self.report(standing, parts)

    def _hand_over(self, standing: PatternSubscription) -> list[Send]:
        """The provider is ready: let it have the assembly, unless it is not wanted there now."""
        assert standing.provider is not None
        assert standing.assembly is not None
        provider, assembly = standing.provider, standing.assembly
        if self.providers.goal(standing) != provider:
            standing.stage = AssemblyPlace.HERE
            self.providers.entrust(standing, None)
            withdrawal = Send(provider, UnsubscribePattern(standing.number))
            return [withdrawal, *self.settle(standing)]
        standing.stage = AssemblyPlace.THERE
        self.reading.read_up(standing)
        reports = self.missed(standing)
        resume = Send(provider, Resume(standing.number, assembly.stop()))
        return [*reports, resume, *self._disassemble(standing)]

    def _take_over(
        self, sender: Peer, standing: PatternSubscription, progress: AssemblyProgress
    ) -> None:
        """Continue here from a neighbour's state."""
        if not follows(standing.pattern, progress):
            raise IllegalMessage(sender, "no monitor of the pattern comes to such a state")
        standing.stage = AssemblyPlace.HERE
        self.reading.read_up(standing)
        self._collecting(standing).resume(progress)
        self.reading.times.plan(standing)

    # --- where the assembly goes ---

    def settle(self, standing: PatternSubscription) -> list[Send]:
        """Bring the assembly one step nearer to where the table wants it."""
        stage = standing.stage
        if stage not in (AssemblyPlace.IDLE, AssemblyPlace.HERE, AssemblyPlace.THERE):
            return []  # what is under way comes first; its end leads back here
        if not any(each.providers for each in self.providers.factors(standing)):
            return []  # nobody offers anything: it is well where it is
        goal = self.providers.goal(standing)
        if stage is AssemblyPlace.THERE:
            if goal == standing.provider:
                return []
            assert standing.provider is not None
            standing.stage = AssemblyPlace.RECALLED
            asking = self._assemble(standing, is_waiting=True)
            return [*asking, Send(standing.provider, Recall(standing.number))]
        if goal is not None:
            is_running = stage is AssemblyPlace.HERE
            standing.stage = AssemblyPlace.MOVING if is_running else AssemblyPlace.THERE
            self.providers.entrust(standing, goal)
            request = SubscribePattern(standing.number, standing.pattern, running=is_running)
            self._underlay.tree.note_sent(goal)
            return [Send(goal, request)]
        if stage is AssemblyPlace.IDLE:
            standing.stage = AssemblyPlace.HERE
            return self._assemble(standing)
        return []

    def _assemble(self, standing: PatternSubscription, *, is_waiting: bool = False) -> list[Send]:
        """Begin to assemble here: subscribe the steps as plain filters."""
        standing.assembly = Assembly(standing.pattern, is_waiting=is_waiting)
        return self._underlay.subscribe(standing.number, standing.pattern.steps)

    def _disassemble(self, standing: PatternSubscription) -> list[Send]:
        """No longer assemble here."""
        self.reading.unread.take(standing.number)
        if standing.assembly is not None:
            self._late_before += standing.assembly.late
            standing.assembly = None
        return self._underlay.unsubscribe(standing.number)

    def _give_up(self, standing: PatternSubscription | None) -> list[Send]:
        """Forget a pattern, here and at its provider."""
        if standing is None:
            return []
        del self.standing[standing.number]
        mine = self._by_key[standing.subscriber]
        del mine[standing.key]
        if not mine:
            del self._by_key[standing.subscriber]
        sends = self._disassemble(standing)
        if standing.provider is not None:
            sends.append(Send(standing.provider, UnsubscribePattern(standing.number)))
            self.providers.entrust(standing, None)
        return sends

    # --- what follows when a peer goes ---

    def lose(self, peer: Peer) -> list[Send]:
        """A peer is gone: so is what it wanted, and what it assembled starts over."""
        sends: list[Send] = []
        for standing in list(self._by_key.get(peer, {}).values()):
            sends += self._give_up(standing)
        for standing in list(self.standing.values()):
            if standing.provider == peer:
                sends += self._restart(standing)
        return sends

    def _restart(self, standing: PatternSubscription) -> list[Send]:
        """Continue with the state of this broker, as the provider and its state are gone."""
        self.providers.entrust(standing, None)
        if standing.is_asked_back:
            return self._return(standing)
        standing.stage = AssemblyPlace.IDLE if standing.assembly is None else AssemblyPlace.HERE
        if standing.assembly is not None and standing.assembly.is_waiting:
            self.reading.read_up(standing)
            standing.assembly.resume(AssemblyProgress())
            self.reading.times.plan(standing)
        return self.settle(standing)
