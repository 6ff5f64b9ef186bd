"""`Delegation`: decides which broker assembles each pattern, and moves its assembly (siena 5.4).

Every pattern subscription has exactly one *assembly* in the whole network: where the paths of its
events meet. A broker whose only provider of the whole pattern is one neighbour delegates it there.
A broker with several providers, or with a client among them, subscribes the steps as plain filters
and assembles here. A provider returns one composite notification for each occurrence, which is
forwarded unchanged.

When the table of available patterns changes, the assembly moves by one link, and its state with it,
so that no occurrence is lost or doubled:

    down   subscribe the steps; `Recall`; collect the events; `Returned` states where to continue
    up     `SubscribePattern(running)`; the provider collects and sends `Ready`; `Resume` states
           where to continue; unsubscribe the steps

As a link keeps order, the broker that takes over has collected, or is sent, each event that the
other one has not yet released. docs/concepts/routing-patterns.md has the proof, and the reason why
no shorter part of a sequence is delegated.
"""

from __future__ import annotations

import msgspec

from palio.model.patterns import place_of
from palio.model.relations import covers_subscription
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
from palio.routing.patterns.reading import AssemblyScheduler
from palio.routing.patterns.subscriptions import (
    AssemblyPlace,
    PatternSubscription,
)
from palio.routing.patterns.underlay import Underlay
from palio.routing.protocol import IllegalMessage, Peer, Send


class Delegation:
    """The pattern subscriptions of one broker, and its messages about them to peers."""

    def __init__(self, underlay: Underlay) -> None:
        self._underlay = underlay
        self.providers = Providers(underlay)
        self.subscriptions: dict[int, PatternSubscription] = {}
        """By number, in the order they came."""
        self.scheduler = AssemblyScheduler(self.subscriptions)
        """The events of assemblies here."""
        self._late_before = 0
        self._by_key: dict[Peer, dict[int, PatternSubscription]] = {}
        self._next_number = 0

    @property
    def late(self) -> int:
        """Events that came later than the reorder window, and took no part in a pattern here."""
        assemblies = [subscription.assembly for subscription in self.subscriptions.values()]
        return self._late_before + sum(assembly.late for assembly in assemblies if assembly)

    def check_room(self, subscriber: Peer, more: int) -> None:
        """Refuse `more` patterns of a subscriber if it would have too many."""
        check_room(subscriber, len(self._by_key.get(subscriber, {})) + more - 1)

    def receive(self, sender: Peer, message: PatternControl) -> list[Send]:
        """Act on a peer's message about a pattern. An illegal one raises `IllegalMessage`."""
        match message:
            case SubscribePattern():
                return self._subscribe(sender, message)
            case UnsubscribePattern(key):
                return self._end_subscription(self._by_key.get(sender, {}).get(key))
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

    def late_reports(self, subscription: PatternSubscription) -> list[Send]:
        """Report late events to the subscriber."""
        assembly = subscription.assembly
        reports = () if assembly is None else assembly.late_reports(subscription.key)
        return [Send(subscription.subscriber, report) for report in reports]

    def report(self, subscription: PatternSubscription, parts: Parts) -> list[Send]:
        """Send an occurrence one link towards the subscriber."""
        if subscription.subscriber.is_client:
            if (
                subscription.ends_after is not None
                and place_of(parts[0]) <= subscription.ends_after
            ):
                return []  # it began before the last one ended: a monitor was lost and restarted
            subscription.ends_after = place_of(parts[-1])
        return [Send(subscription.subscriber, Composite(subscription.key, parts))]

    # --- messages of subscribers ---

    def _subscribe(self, sender: Peer, message: SubscribePattern) -> list[Send]:
        if message.running and sender.is_client:
            raise IllegalMessage(sender, "only a broker has a running pattern to hand over")
        pattern = bound(sender, message)
        if message.key not in self._by_key.get(sender, {}):
            self.check_room(sender, 1)
        # All checks are over: an illegal message must not end the pattern that it would replace.
        sends = self._end_subscription(self._by_key.get(sender, {}).get(message.key))
        subscription = PatternSubscription(sender, message.key, pattern, self._next_number)
        self._next_number += 1
        self.subscriptions[subscription.number] = subscription
        self._by_key.setdefault(sender, {})[message.key] = subscription
        if not message.running:
            return sends + self.settle(subscription)
        subscription.stage = AssemblyPlace.AWAITED
        sends += self._assemble(subscription, is_waiting=True)
        return [*sends, Send(sender, Ready(message.key))]

    def _cancel(self, sender: Peer, message: CancelPattern) -> list[Send]:
        if not sender.is_client:
            raise IllegalMessage(sender, "CancelPattern is for clients; a broker names keys")
        pattern = bound(sender, message)
        sends: list[Send] = []
        for subscription in list(self._by_key.get(sender, {}).values()):
            if covers_subscription(pattern, subscription.pattern):
                sends += self._end_subscription(subscription)
        return sends

    def _resume(self, sender: Peer, message: Resume) -> list[Send]:
        subscription = self._awaited(sender, message)
        self._take_over(sender, subscription, message.progress)
        return self.settle(subscription)

    def _awaited(self, sender: Peer, message: Resume | HeldBack) -> PatternSubscription:
        subscription = self._by_key.get(sender, {}).get(message.key)
        if subscription is None or subscription.stage is not AssemblyPlace.AWAITED:
            kind = type(message).__name__
            raise IllegalMessage(sender, f"{kind} of pattern {message.key}, which is not awaited")
        return subscription

    def _hold(self, sender: Peer, message: HeldBack) -> list[Send]:
        """Collect events that a neighbour held back, ahead of the state that it hands over."""
        if message.is_back:
            return self._from_provider(sender, message)
        subscription = self._awaited(sender, message)
        self._collecting(subscription).push(message.events)
        return []

    def _collecting(self, subscription: PatternSubscription) -> Assembly:
        """Return the assembly that takes over; make one for a pattern that only passed through."""
        if subscription.assembly is None:
            subscription.assembly = Assembly(subscription.pattern, is_waiting=True)
        return subscription.assembly

    def _recall(self, sender: Peer, key: int) -> list[Send]:
        subscription = self._by_key.get(sender, {}).get(key)
        if subscription is None or sender.is_client:
            raise IllegalMessage(sender, f"Recall of pattern {key}, which is not delegated")
        if subscription.stage is AssemblyPlace.AWAITED or subscription.is_asked_back:
            raise IllegalMessage(sender, f"Recall of pattern {key} out of turn")
        if subscription.provider is None or subscription.stage is AssemblyPlace.MOVING:
            return self._return(subscription)
        subscription.is_asked_back = True
        if subscription.stage is AssemblyPlace.RECALLED:
            return []
        subscription.stage = AssemblyPlace.RECALLED
        return [Send(subscription.provider, Recall(subscription.number))]

    def _return(self, subscription: PatternSubscription) -> list[Send]:
        """Give the assembly back to the subscriber that recalled it."""
        self.scheduler.read_all(subscription)
        assembly, reports = subscription.assembly, self.late_reports(subscription)
        progress = AssemblyProgress() if assembly is None else assembly.stop()
        answer = Send(subscription.subscriber, Returned(subscription.key, progress))
        return [*reports, answer, *self._end_subscription(subscription)]

    # --- messages of providers ---

    def _from_provider(self, sender: Peer, message: FromProvider) -> list[Send]:
        # Numbers are never reused, so a late message cannot meet another pattern.
        number = message.key
        if sender.is_client or not 0 <= number < self._next_number:
            raise IllegalMessage(sender, f"pattern {number} was never delegated to it")
        subscription = self.subscriptions.get(number)
        if subscription is None:
            return []  # given up in the meantime
        check_turn(sender, message, subscription)
        match message:
            case Ready():
                return self._hand_over(subscription)
            case HeldBack(_, events):
                self._collecting(subscription).push(events)
                return []
            case Returned(_, progress):
                self._take_over(sender, subscription, progress)
                self.providers.set_provider(subscription, None)
                return (
                    self._return(subscription)
                    if subscription.is_asked_back
                    else self.settle(subscription)
                )
            case TooLate():
                passed = msgspec.structs.replace(message, key=subscription.key)
                return [Send(subscription.subscriber, passed)]
            case Composite(_, parts):
                # Checked at each hop: a broken or hostile broker reports nothing to clients.
                if not is_occurrence(subscription.pattern, parts):
                    raise IllegalMessage(sender, f"pattern {number} does not occur in its parts")
                return self.report(subscription, parts)

    def _hand_over(self, subscription: PatternSubscription) -> list[Send]:
        """Hand the assembly to a provider that is ready, unless it is not to be there any more."""
        assert subscription.provider is not None
        assert subscription.assembly is not None
        provider, assembly = subscription.provider, subscription.assembly
        # Offers changed while `Ready` was in flight: this monitor never stopped, so it continues.
        if self.providers.goal(subscription) != provider:
            subscription.stage = AssemblyPlace.HERE
            self.providers.set_provider(subscription, None)
            withdrawal = Send(provider, UnsubscribePattern(subscription.number))
            return [withdrawal, *self.settle(subscription)]
        subscription.stage = AssemblyPlace.THERE
        # Events that came before `Ready` are nowhere else, so the state has to include them.
        self.scheduler.read_all(subscription)
        reports = self.late_reports(subscription)
        resume = Send(provider, Resume(subscription.number, assembly.stop()))
        return [*reports, resume, *self._disassemble(subscription)]

    def _take_over(
        self, sender: Peer, subscription: PatternSubscription, progress: AssemblyProgress
    ) -> None:
        """Continue here from a neighbour's state."""
        if not follows(subscription.pattern, progress):
            raise IllegalMessage(sender, "no monitor of the pattern comes to such a state")
        subscription.stage = AssemblyPlace.HERE
        self.scheduler.read_all(subscription)
        self._collecting(subscription).resume(progress)
        self.scheduler.times.schedule(subscription)

    # --- moves of the assembly ---

    def settle(self, subscription: PatternSubscription) -> list[Send]:
        """Bring the assembly one step nearer to where the table wants it."""
        stage = subscription.stage
        if stage not in (AssemblyPlace.IDLE, AssemblyPlace.HERE, AssemblyPlace.THERE):
            return []  # a move is under way, and calls this again at its end
        if not any(factor.providers for factor in self.providers.factors(subscription)):
            return []  # without any offer no place is better than another
        goal = self.providers.goal(subscription)
        if stage is AssemblyPlace.THERE:
            if goal == subscription.provider:
                return []
            assert subscription.provider is not None
            subscription.stage = AssemblyPlace.RECALLED
            # The steps first: events from then on are collected here, others come with the state.
            steps = self._assemble(subscription, is_waiting=True)
            return [*steps, Send(subscription.provider, Recall(subscription.number))]
        if goal is not None:
            is_running = stage is AssemblyPlace.HERE
            subscription.stage = AssemblyPlace.MOVING if is_running else AssemblyPlace.THERE
            self.providers.set_provider(subscription, goal)
            request = SubscribePattern(
                subscription.number, subscription.pattern, running=is_running
            )
            self._underlay.tree.note_sent(goal)
            return [Send(goal, request)]
        if stage is AssemblyPlace.IDLE:
            subscription.stage = AssemblyPlace.HERE
            return self._assemble(subscription)
        return []

    def _assemble(
        self, subscription: PatternSubscription, *, is_waiting: bool = False
    ) -> list[Send]:
        """Begin to assemble here: subscribe the steps as plain filters."""
        subscription.assembly = Assembly(subscription.pattern, is_waiting=is_waiting)
        return self._underlay.subscribe(subscription.number, subscription.pattern.steps)

    def _disassemble(self, subscription: PatternSubscription) -> list[Send]:
        """Stop assembling here, and unsubscribe the steps."""
        self.scheduler.unread.take(subscription.number)
        if subscription.assembly is not None:
            self._late_before += subscription.assembly.late
            subscription.assembly = None
        return self._underlay.unsubscribe(subscription.number)

    def _end_subscription(self, subscription: PatternSubscription | None) -> list[Send]:
        """Remove a pattern, here and at its provider."""
        if subscription is None:
            return []
        del self.subscriptions[subscription.number]
        of_subscriber = self._by_key[subscription.subscriber]
        del of_subscriber[subscription.key]
        if not of_subscriber:
            del self._by_key[subscription.subscriber]
        sends = self._disassemble(subscription)
        if subscription.provider is not None:
            sends.append(Send(subscription.provider, UnsubscribePattern(subscription.number)))
            self.providers.set_provider(subscription, None)
        return sends

    # --- peers that disconnect ---

    def forget_peer(self, peer: Peer) -> list[Send]:
        """Remove the patterns of a peer that is gone, and restart those that it assembled."""
        sends: list[Send] = []
        for subscription in list(self._by_key.get(peer, {}).values()):
            sends += self._end_subscription(subscription)
        for subscription in list(self.subscriptions.values()):
            if subscription.provider == peer:
                sends += self._restart(subscription)
        return sends

    def _restart(self, subscription: PatternSubscription) -> list[Send]:
        """Continue here after the provider is gone: its state is lost, collected events are not."""
        self.providers.set_provider(subscription, None)
        if subscription.is_asked_back:
            return self._return(subscription)
        subscription.stage = (
            AssemblyPlace.IDLE if subscription.assembly is None else AssemblyPlace.HERE
        )
        if subscription.assembly is not None and subscription.assembly.is_waiting:
            self.scheduler.read_all(subscription)
            subscription.assembly.resume(AssemblyProgress())
            self.scheduler.times.schedule(subscription)
        return self.settle(subscription)
