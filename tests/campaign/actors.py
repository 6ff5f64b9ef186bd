"""`Actor`: a client of the campaign, which notes what it asked for, when, and what it heard.

The filters are kept as the texts that a user writes, and read by the plain reference: the brokers'
own engines have no say in what was owed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from math import inf
from operator import or_
from typing import Any, Final, NamedTuple

import numpy as np

from palio.errors import NotStored, PalioError, SubscriptionEnded
from palio.language.parsing import parse, parse_filter
from palio.matching.protocol import RowMask
from palio.model.events import TIME, rows
from palio.model.filters import Filter
from palio.model.patterns import Occurrence
from palio.protocol.messages import (
    Advertise,
    Assembled,
    Cancel,
    Deliver,
    Done,
    Failed,
    Gap,
    Message,
    Replace,
    Subscribe,
    Withdraw,
)
from palio.protocol.requests import Outcome
from palio.simulation.agenda import TIMER, US
from palio.simulation.member import ClientWorld, Member
from palio.simulation.pipes import End
from tests.campaign.quests import EVERY_EVENT, FoundSequence, Quest

AGAIN_US: Final = US
"""How long an actor waits before it asks again for what was refused."""


class Cancelled(NamedTuple):
    """A client has cancelled what others of its identity hear within a filter."""

    at_s: float
    text: str


class HeardEvent(NamedTuple):
    """One event that an actor was given."""

    at_s: float
    publisher: str
    seq: int
    row: dict[str, Any]
    key: int
    """Of the durable subscription that it was for; -1 if it came for the whole session."""


class Question(NamedTuple):
    """A settle: its number, which filter it is about, and when it was asked."""

    id: int
    version: int
    asked_s: float


class Debt(NamedTuple):
    """What is owed of a publication: the first filter that counts, and when that was asked about
    and answered to be in force everywhere.
    """

    version: int
    asked_s: float
    answered_s: float


class InterestVersion:
    """One of the filters that an interest had: what was written, and when it was in force."""

    def __init__(self, text: str, values: Mapping[str, Any], request: int, asked_s: float) -> None:
        self.text = text
        self.values = dict(values)
        self.request = request
        self.asked_s = asked_s
        self.over_s = inf
        """When its broker said that another one is in its place, or none."""
        what = parse(text)
        self._steps = (what,) if isinstance(what, Filter) else what.steps

    def matches(self, row: Mapping[str, Any]) -> bool:
        """Whether an event was wanted: of a pattern that its client assembles, by any step."""
        return any(each.matches(row, self.values) for each in self._steps)

    @property
    def filter(self) -> Filter:
        """All that was wanted, of a pattern what any of its steps wants."""
        return reduce(or_, self._steps).bind(self.values)

    def is_within(self, text: str) -> bool:
        """Whether another filter matches all that it does, of the events that there are."""
        wide = parse_filter(text)
        return all(wide.matches(each) for each in EVERY_EVENT if self.matches(each))

    def __str__(self) -> str:
        return f"{self.text} {self.values}" if self.values else self.text


class Interest:
    """A subscription, and all the filters that it had until it was ended."""

    def __init__(self, name: str, key: int, version: InterestVersion, *, durable: bool) -> None:
        self.name = name
        self.key = key
        self.durable = durable
        self.versions = [version]
        self.settled: int | None = None
        """The newest filter that was answered to be in force everywhere."""
        self.question: Question | None = None
        """A settle that is open."""
        self.settled_s = self.answered_s = inf
        """When that was asked, and when it was seen to be answered."""
        self.ended = False
        self.end = 0
        """The request that ended it."""
        self.is_tried = False
        """Whether it is going to be asked for again."""
        self.is_out = False
        """Whether its broker refused it whole."""
        self.asked_anew = 0
        """The last request for it as it was then, whole, after a broker had refused it."""
        self.is_cancelled = False
        """Whether another client of its identity has ended it."""
        self.owed: dict[int, Debt] = {}
        """By number of a publication, since when it was wanted."""

    def forgive(self) -> None:
        """What was said of it is forgotten where it was kept: nothing is owed until it is asked
        about anew.
        """
        self.owed.clear()
        self.settled = self.question = None


class Actor(Member):
    """A client with several subscriptions, which notes what each of them heard."""

    def __init__(self, world: ClientWorld, name: str, broker: str, identity: str = "") -> None:
        super().__init__(world, name, broker, identity)
        self.identity = identity
        self.interests: dict[str, Interest] = {}
        self.past: list[Interest] = []
        """Those that were ended."""
        self.live: list[HeardEvent] = []
        self.durable: dict[int, list[HeardEvent]] = {}
        """By the key of the subscription."""
        self.doubled: list[tuple[int, str, int]] = []
        """What came in a second entry, though it was dealt with; a client lets it pass once."""
        self.gaps_s: list[float] = []
        """When it was told that something may be lost."""
        self.quests: dict[str, Quest] = {}
        self.witnessed: list[Occurrence] = []
        """All that it heard singly, with its place."""
        self.cancels: list[Cancelled] = []
        self.moves_s: list[float] = []
        """When it set out for another broker."""
        self.crossings_s: list[tuple[float, float]] = []
        """From when until when it was at two brokers."""
        self._sets_out_s = 0.0
        self.said_again: set[int] = set()
        """Numbers of durable events that it published again, in another session."""
        self._offers = 0
        self._announced: int | None = None
        """The number of the settle that says whether what it advertises is known everywhere."""
        self.has_withdrawn = False
        """Whether it has ended what clients of its identity advertise."""
        self._stalled_until_us = 0
        self._held: list[tuple[End, Message]] = []
        self._newest: dict[int, int] = {}

    @property
    def all_interests(self) -> list[Interest]:
        """Those that stand, and those that were ended."""
        return [*self.past, *self.interests.values()]

    # --- what it does ---

    def hear_of(
        self, name: str, text: str, values: Mapping[str, Any] | None = None, *, durable: bool
    ) -> None:
        """Subscribe under a name of its own, unless that is taken."""
        if name in self.interests:
            return
        key = self.subscribe(text, values, durable=name if durable else "")
        version = InterestVersion(
            text, values or {}, self.core.table.standing[key].id, self.world.now
        )
        self.interests[name] = Interest(name, key, version, durable=durable)
        self.ask_settled(self.interests[name])

    def change(self, name: str, text: str) -> None:
        """Put another filter under a subscription."""
        interest = self.interests.get(name)
        if interest is None:
            return
        key = interest.key
        request = self.ask(lambda id: Replace(id, key, text))
        self._changed(interest, InterestVersion(text, {}, request, self.world.now))

    def tune(self, name: str, **values: Any) -> None:
        """Change parameters of a subscription that has them."""
        interest = self.interests.get(name)
        if interest is None or not interest.versions[-1].values:
            return
        newest = interest.versions[-1]
        request = self.update(interest.key, **values)
        known = {**newest.values, **values}
        self._changed(interest, InterestVersion(newest.text, known, request, self.world.now))

    def _changed(self, interest: Interest, version: InterestVersion) -> None:
        interest.versions.append(version)
        self.ask_settled(interest)

    def end(self, name: str) -> None:
        """End a subscription for good."""
        interest = self.interests.pop(name, None)
        if interest is not None:
            interest.ended = True
            self.past.append(interest)
            interest.end = self.unsubscribe(interest.key, forget=interest.durable)

    def seek(self, name: str, text: str) -> None:
        """Have brokers assemble a pattern, and hear what any of its steps wants as well, to know
        what they should find.
        """
        if name in self.quests:
            return
        key = self.subscribe(text, assembled=True)
        quest = self.quests[name] = Quest(name, key, text, self.world.now)
        self.hear_of(f"{name} singly", str(quest.pattern.any_step), durable=False)

    def cancel(self, text: str) -> None:
        """End what others of its identity hear within a filter."""
        self.cancels.append(Cancelled(self.world.now, text))
        self.ask(lambda id: Cancel(id, text))

    def offer(self, text: str) -> None:
        """Advertise what it is going to publish."""
        self._offers += 1
        self.ask(partial(Advertise, key=self._offers, filter=text))
        self._announced = self.settle()

    @property
    def is_announced(self) -> bool:
        """Whether what it advertises, if anything, is known everywhere now."""
        id = self._announced
        return id is None or self.answers.get(id) == Done(id)

    @property
    def has_offered(self) -> bool:
        """Whether it advertises something, as far as it knows."""
        return self._announced is not None

    def withdraw(self, text: str) -> None:
        """End what clients of its identity have advertised within a filter."""
        self.has_withdrawn = True
        self.ask(lambda id: Withdraw(id, text))

    @property
    def unsettled(self) -> list[Interest]:
        """Those of which the newest filter was not said to be in force everywhere."""
        interests = self.interests.values()
        return [each for each in interests if each.settled != len(each.versions) - 1]

    @property
    def ended_untold(self) -> list[Interest]:
        """Durable subscriptions that it ended and that a broker may keep: cancelled by another
        client, which ends what is heard and no more; or a full disk did not take the end; or it had
        refused the subscription to a client that came from elsewhere, where that is still.
        """
        return [
            each
            for each in self.past
            if each.durable
            and (
                each.is_cancelled
                or each.is_out
                or not isinstance(self.answers.get(each.end), Done)
                or any(isinstance(self.answers.get(one.request), Failed) for one in each.versions)
            )
        ]

    def note_move(self) -> None:
        """From now on it, or what lives for it at its broker, may be elsewhere."""
        self.moves_s.append(self.world.now)

    def move(self, broker: str) -> None:
        """Note when it went elsewhere."""
        self.note_move()
        super().move(broker)

    def move_over(self, broker: str) -> None:
        """Likewise."""
        self.note_move()
        if not self.is_moving:
            self._sets_out_s = self.world.now
        super().move_over(broker)

    def moved(self) -> None:
        """Note how long that took."""
        if self.is_moving:
            self.crossings_s.append((self._sets_out_s, self.world.now))
        super().moved()

    def ask_settled(self, interest: Interest) -> None:
        """Ask whether its newest filter is in force everywhere."""
        newest = len(interest.versions) - 1
        interest.question = Question(self.settle(), newest, self.world.now)

    def look(self) -> None:
        """See what was answered of that."""
        for interest in self.interests.values():
            if interest.question is None:
                continue
            id, version, asked_s = interest.question
            newest = len(interest.versions) - 1
            request = interest.versions[version].request
            refused = interest.is_out or isinstance(self.answers.get(request), Failed)
            answer = self.answers.get(id)
            if answer == Done(id) and version == newest and not refused:
                interest.settled, interest.settled_s = version, asked_s
                interest.answered_s = self.world.now
                interest.question = None
            elif answer is not None and answer != Done(id):
                self.ask_settled(interest)

    def note_publication(self, number: int) -> None:
        """Something is published: from which filter on it is owed."""
        for interest in self.interests.values():
            if interest.settled is not None:
                interest.owed[number] = Debt(
                    interest.settled, interest.settled_s, interest.answered_s
                )

    def stall(self, seconds: float) -> None:
        """Read nothing for some time."""
        agenda = self.world.agenda
        until_us = agenda.now_us + round(seconds * US)
        self._stalled_until_us = max(self._stalled_until_us, until_us)
        agenda.at(until_us, TIMER, self._wake)

    def _wake(self) -> None:
        if self.world.agenda.now_us >= self._stalled_until_us:
            held, self._held = self._held, []
            for end, message in held:
                super().receive(end, message)

    def stay_away(self, seconds: float) -> None:
        """Break the connection and come back later."""
        self.vanish()
        until = self.world.agenda.now_us + round(seconds * US)
        self.world.agenda.at(until, TIMER, self.connect)

    # --- what it is told ---

    def receive(self, end: End, message: Message) -> None:
        """A stalled client reads nothing."""
        if self._held or self.world.agenda.now_us < self._stalled_until_us:
            self._held.append((end, message))
        else:
            super().receive(end, message)

    def answered(self, id: int, outcome: Outcome) -> None:
        """Note since when a filter is in force. What a full disk refused is asked for again."""
        super().answered(id, outcome)
        for interest in self.interests.values():
            for number, version in enumerate(interest.versions):
                if version.request != id:
                    continue
                if isinstance(outcome, Done):
                    for earlier in interest.versions[:number]:
                        earlier.over_s = min(earlier.over_s, self.world.now)
                elif isinstance(outcome, Failed) and outcome.failure.kind == NotStored.__name__:
                    is_whole = number == 0 or id == interest.asked_anew
                    interest.is_out = interest.is_out or is_whole
                    self._try_later(interest)

    def withdrawn(self, ended: Subscribe, error: PalioError) -> None:
        """Likewise when a session was renewed. What was cancelled is over."""
        super().withdrawn(ended, error)
        key = ended.key
        for interest in list(self.interests.values()):
            if interest.key == key and isinstance(error, SubscriptionEnded):
                assert "cancelled" in str(error), f"nobody else is called {self.name}: {error}"
                interest.ended = interest.is_cancelled = True
                self.past.append(self.interests.pop(interest.name))
                self.receipts.pop(key, None)
            elif interest.key == key:
                interest.is_out = True
                self._try_later(interest)

    def _try_later(self, interest: Interest) -> None:
        if not interest.is_tried:
            interest.is_tried = True
            at_us = self.world.agenda.now_us + AGAIN_US
            self.world.agenda.at(at_us, TIMER, partial(self._try, interest))

    def _try(self, interest: Interest) -> None:
        """Ask again for what was refused, as it is wanted now."""
        newest = interest.versions[-1]
        interest.is_tried = False
        if interest.ended:
            return
        if interest.is_out:
            interest.is_out = False
            id = newest.request = interest.asked_anew = interest.versions[0].request
            durable = interest.name if interest.durable else ""
            request = Subscribe(id, interest.key, newest.text, newest.values, durable)
            self.core.table.ask(request, partial(self.answered, id))
            self.ask_settled(interest)  # what was answered before was about nothing
        elif isinstance(self.answers.get(newest.request), Failed):
            if newest.values:
                self.tune(interest.name, **newest.values)
            else:
                self.change(interest.name, newest.text)

    def note_duplicates(self, message: Deliver, numbers: list[int]) -> None:
        """Note it, unless the entry itself came before in this session."""
        if message.entry > self._newest.get(message.key, 0):
            self._newest[message.key] = message.entry
            publisher = message.parcel.publisher
            self.doubled += [(message.key, publisher, seq) for seq in numbers]

    def record(self, message: Deliver, mask: RowMask) -> None:
        """Note when it came, and for what. The broker that is being left knows nothing of what was
        changed meanwhile: what it says is held against what is wanted, as all clients do.
        """
        if self._receives_from_old_broker and not message.entry:
            mask = mask & self._wanted(message)
        before = len(self.heard)
        super().record(message, mask)
        now = self.world.now
        if self.quests:
            times = message.parcel.select(mask).batch.column(TIME).to_pylist()
            for (publisher, seq, row), time in zip(self.heard[before:], times, strict=True):
                if time is not None:
                    self.witnessed.append(Occurrence(time, publisher, seq, row))
        for publisher, seq, row in self.heard[before:]:
            heard = HeardEvent(now, publisher, seq, row, message.key)
            if message.entry:
                self.durable.setdefault(message.key, []).append(heard)
            else:
                self.live.append(heard)

    def _wanted(self, message: Deliver) -> RowMask:
        """Which events of a message it wants now."""
        subscriptions = [
            each.versions[-1]
            for each in self.interests.values()
            if message.key == (each.key if each.durable else -1)
        ]
        wanted = [
            any(each.matches(row) for each in subscriptions) for row in rows(message.parcel.batch)
        ]
        return np.array(wanted, dtype=bool)

    def deliver_assembled(self, message: Assembled) -> None:
        """Note what brokers found."""
        super().deliver_assembled(message)
        for quest in self.quests.values():
            if quest.key == message.key:
                quest.found.append(FoundSequence(self.world.now, message.parts))

    def renewed(self, *, may_have_missed: bool) -> None:
        """A new session after a lost one is a gap, too."""
        if self._announced is not None:
            self._announced = self.settle()
        super().renewed(may_have_missed=may_have_missed)
        if may_have_missed:
            self.gaps_s.append(self.world.now)
        for each in self.publications:
            if each.durable and each.error is None and not each.levels:
                self.said_again.update(range(each.first, each.last + 1))
        for interest in self.interests.values():
            if may_have_missed and not interest.durable:  # it is subscribed anew
                interest.settled = interest.question = None
            if interest.is_out:
                interest.settled = interest.question = None
                if interest.key in self.core.table.unconfirmed:  # it was said in the new session
                    interest.is_out = False
                    interest.versions[-1].request = 0
            if interest.settled is None and interest.question is None:
                self.ask_settled(interest)

    def forget_home(self, broker: str) -> None:
        """A broker has lost its disk: durable subscriptions that may live there are gone."""
        if broker == self.broker or self.moves_s:
            for interest in self.all_interests:
                if interest.durable:
                    interest.forgive()

    def lose(self, gaps: Sequence[Gap]) -> None:
        """Note when it was told."""
        super().lose(gaps)
        self.gaps_s.append(self.world.now)
