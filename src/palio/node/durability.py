"""`Durability`: durable subscriptions of the whole network, and custody of what they must get.

It answers three questions with the matching engine: which homes an event goes to, which durable
subscriptions of this broker an event that came home is for, and which of its numbers came before.
What it decides about the journal it returns as operations; the node writes and sends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from palio.errors import InvalidInput, LimitExceeded
from palio.language.parsing import parse_filter
from palio.matching.protocol import Matcher, RowMask
from palio.model.filters import TRUE, Filter
from palio.model.parcels import ONE_ROW
from palio.node.custody import Custody
from palio.node.effects import (
    AddNumbers,
    DropSubscription,
    Entry,
    Operation,
    PutFacts,
    PutSubscription,
    Store,
)
from palio.node.homes import NOWHERE, Homes, ends
from palio.node.notices import Notice
from palio.node.registry import Registry
from palio.node.sessions import Durable
from palio.node.vouching import RETIRED, Vouching, is_end, is_subscription, lives
from palio.protocol.limits import MAX_SUBJECTS
from palio.protocol.messages import NO_VISIT, Fact, Parcel, Visit, unpack_mask
from palio.protocol.seen_numbers import SeenNumbers
from palio.routing.protocol import routed

__all__ = ["Addressees", "Durability", "MatcherFactory", "Taken"]

MatcherFactory: TypeAlias = Callable[[], Matcher]


class Addressees(NamedTuple):
    """Who needs some events that a client published, and which of them."""

    homes: dict[str, RowMask]
    """Brokers, for their durable subscriptions."""
    here: dict[int, RowMask]
    """Durable subscriptions of this broker, by number."""

    def of(self, rows: RowMask) -> dict[int, RowMask]:
        """`here`, where of the events only some rows are left."""
        return {number: mask[rows] for number, mask in self.here.items()}


class Taken(NamedTuple):
    """Events that were taken into custody."""

    entry: int
    """0 if nobody needs them."""
    assigned: tuple[str, ...]
    """Durable subscriptions of this broker that they are for."""
    writes: list[Operation]
    """What to write for it."""
    has_known: bool
    """Whether some had come before to a durable subscription of this broker."""
    followers: Sequence[int] = ()
    """Entries that go after durable subscriptions which lived here once."""


class Durability:
    """Registry, custody and windows of one broker, and the engines over them."""

    def __init__(
        self, name: str, store: Store, matcher: MatcherFactory, vouching: Vouching
    ) -> None:
        stored = store.load()
        self.name = name
        self.epoch = stored.epoch
        self.last_time_us = stored.time_us
        """The time of the last publication of an earlier life, as far as the journal knows."""
        self.registry = Registry(name, stored.facts, vouching)
        self.homes = Homes(self.registry)
        self.custody = Custody(name, store, stored)
        for broker in self.registry.retired:
            self._redirect(broker)
            self.custody.give_up(broker)
        self.here: dict[str, Durable] = {}
        self.owned: Counter[str] = Counter()
        """How many of them each owner has."""
        self._windows = SeenNumbers(stored.windows)
        self._everywhere = matcher()
        self._local = matcher()
        self._numbers: dict[tuple[str, str], int] = {}
        self._places: list[tuple[str, str]] = []
        """By number, whose fact it is and about what."""
        self._goals: list[tuple[str, int]] = []
        """Destinations of `_everywhere`: a home, and which fact of ours is meant, or -1."""
        self._goal_numbers: dict[tuple[str, int], int] = {}
        self._subjects: dict[int, str] = {}
        """Durable subscriptions that `_local` matches for: those here, and those that moved on."""
        self._indexed: set[int] = set()
        self.unread: dict[str, str] = {}
        """By broker, a filter in what it says that cannot be read here. Whoever calls takes it out.
        """
        for each in stored.subscriptions:
            values = msgspec.msgpack.decode(each.values)
            filter = parse_filter(each.filter)
            durable = Durable(each.subscription, each.owner, filter, values, each.lease_s)
            durable.is_written = True
            self._enter(durable)
        for fact in self.registry.facts():
            self._index(fact)

    # --- the subscriptions of this broker ---

    def put(
        self,
        subject: str,
        filter: Filter,
        values: Mapping[str, Any],
        lease_s: float,
        wall_us: int,
        visit: Visit,
    ) -> tuple[Durable, list[Operation]]:
        """Register a durable subscription here, or change one, and tell the network.

        `wall_us` and `visit` are when its owner did that: of two brokers that claim it, the later
        one has it.
        """
        durable, owner = self.here.get(subject), subject.partition("/")[0]
        operations: list[Operation] = []
        if durable is None:
            durable = Durable(subject, owner, filter, values, lease_s)
            durable.has_returned = self._lives_elsewhere(subject)
            # What was passed on while it lived elsewhere may come back with it.
            operations.append(self._windows.forget(f"{subject}\n"))
        else:
            durable.filter, durable.values, durable.lease_s = filter, dict(values), lease_s
        self._enter(durable)
        durable.taken_us, durable.visit = wall_us, visit
        known = self.registry.fact(self.name, subject)
        if known is not None and is_end(known) and known.visit != NO_VISIT:
            durable.ended = known
        latest = self.homes.latest_claim(subject)
        if known is None or latest is not known or known.filter != str(durable.bound):
            self.homes.claim(durable, visit)
        else:  # it is known so, though perhaps not from the disk: that had refused the change
            self._place(known)
        packed = msgspec.msgpack.encode(durable.values)
        operations.append(PutSubscription(subject, owner, str(filter), packed, lease_s))
        return durable, [*operations, *self.said_of(subject)]

    def _lives_elsewhere(self, subject: str) -> bool:
        """As far as is known: a broker that one has gone to may not have spoken for itself yet."""
        home = self.homes.of(subject)
        claim = self.registry.fact(home, subject)
        return home not in (self.name, NOWHERE) and (claim is None or lives(claim))

    def end(self, subject: str) -> list[Operation]:
        """A durable subscription of this broker is over, by the word of its owner or as its lease
        is. It is at others where it was before: they hear after which visit that came.
        """
        return self._close(self.here[subject], visit=self.homes.visit(self.here[subject]))

    def drop(self, subject: str, *, moved_to: str = "") -> list[Operation]:
        """A durable subscription is at this broker no longer, or lives elsewhere now."""
        return self._close(self.here[subject], moved_to=moved_to)

    def lived_at(self, durable: Durable) -> str:
        """Where one lives that could not be written here; empty if nowhere."""
        claim = self.homes.claim_elsewhere(durable.subject)
        if claim is None or (durable.ended is not None and ends(durable.ended, claim)):
            return ""
        return claim.origin

    def undo(self, durable: Durable) -> list[Operation]:
        """A new one could not be written: what was said of an earlier one of its name still is."""
        ended = durable.ended
        return self._close(durable, visit=NO_VISIT if ended is None else ended.visit)

    def disclaim(self) -> None:
        """The broker starts: what it said to live here and is not on its disk lives elsewhere, or
        nowhere. It stopped between two writes, or one of them failed.
        """
        for fact in list(self.registry.facts()):
            if fact.origin == self.name and lives(fact) and fact.subject not in self.here:
                claim = self.homes.claim_elsewhere(fact.subject)
                if claim is None:
                    self.registry.announce(fact.subject)
                else:
                    self.registry.announce(
                        fact.subject,
                        filter=fact.filter,
                        claimed_us=_before(claim),
                        moved_to=claim.origin,
                    )

    def _close(
        self, durable: Durable, *, moved_to: str = "", visit: Visit = NO_VISIT
    ) -> list[Operation]:
        subject = durable.subject
        del self.here[subject]
        self.owned[durable.owner] -= 1
        if not self.owned[durable.owner]:
            del self.owned[durable.owner]
        lined_up = self.custody.close(subject)
        filter = str(durable.bound) if moved_to else ""
        claim = None if durable.is_written else self.homes.claim_elsewhere(subject)
        claimed_us = _before(claim) if moved_to and claim is not None else 0
        self.registry.announce(
            subject, filter=filter, claimed_us=claimed_us, moved_to=moved_to, visit=visit
        )
        return [
            *self.said_of(subject),
            DropSubscription(subject),
            *self.custody.drop(lined_up),
            self._windows.forget(f"{subject}\n"),
        ]

    def said_of(self, subject: str) -> list[Operation]:
        """Write what this broker says of a durable subscription with what it says: a broker that
        stops between must not take it for its own, and have nothing of it.
        """
        fact = self.registry.fact(self.name, subject)
        return [] if fact is None else [PutFacts((fact,))]

    def was_here(self, subject: str) -> bool:
        """Whether a durable subscription of this name lived here once and has ended."""
        fact = self.registry.fact(self.name, subject)
        return fact is not None and not fact.filter

    def _enter(self, durable: Durable) -> None:
        self.owned[durable.owner] += durable.subject not in self.here
        self.here[durable.subject] = durable
        self.custody.open(durable.subject)
        number = self._number((self.name, durable.subject))
        self._subjects[number] = durable.subject
        self._local.add(number, durable.bound)

    # --- events ---

    def addressees(self, parcel: Parcel) -> Addressees:
        """Who needs these events. One look at all durable subscriptions, those here among them."""
        homes: dict[str, RowMask] = {}
        here: dict[int, RowMask] = {}
        for goal, mask in sorted(routed(self._everywhere, parcel).items()):
            home, number = self._goals[goal]
            homes[home] = homes[home] | mask if home in homes else mask
            if number in self._subjects:
                here[number] = mask
        return Addressees(homes, here)

    def wanted_by(self, parcel: Parcel) -> list[Fact]:
        """The durable subscriptions of the network that some of these events match."""
        keys = dict.fromkeys(self._everywhere.match(parcel.batch).keys.tolist())
        facts = (self.registry.fact(*self._places[key]) for key in keys)
        return [fact for fact in facts if fact is not None and lives(fact)]

    def take(
        self,
        parcel: Parcel,
        homes: tuple[str, ...],
        wall_us: int,
        here: Mapping[int, RowMask] | None = None,
        subjects: tuple[str, ...] = (),
    ) -> Taken:
        """Take events into custody, for all that they match, or for some `subjects` alone. `here`
        is what `addressees` has found.
        """
        assigned: dict[str, RowMask] = {}
        writes: list[Operation] = []
        has_known = False
        followers: list[int] = []
        homes = tuple(home for home in homes if home not in self.registry.retired)
        if self.name in homes:
            here = self._here(parcel, subjects) if here is None else here
            assigned, followed, writes, has_known = self._assign(parcel, here)
            elsewhere = {home: gone for home, gone in followed.items() if home not in homes}
            followers = self._send_after(parcel, elsewhere, writes, wall_us)
        if not assigned and all(home == self.name for home in homes):
            return Taken(0, (), writes, has_known, followers)
        entry, puts = self.custody.take(parcel, homes, assigned, wall_us, subjects)
        return Taken(entry, tuple(assigned), [*puts, *writes], has_known, followers)

    def needs(self, subjects: Iterable[str]) -> tuple[int, ...]:
        """The appends without which nothing is to be written for these durable subscriptions of
        this broker. If a disk refused them and took the events, a broker that stops before it hears
        so would keep the events for nobody.
        """
        durables = (self.here[subject] for subject in subjects)
        return tuple(each.ticket for each in durables if not each.is_written)

    def take_back(self, taken: Taken) -> None:
        """What was taken could not be written: it may come again."""
        for entry in taken.followers:
            self.custody.abandon(entry, ())
        self.custody.abandon(taken.entry, taken.assigned)
        self._windows.take_back(each for each in taken.writes if isinstance(each, AddNumbers))

    def _assign(
        self, parcel: Parcel, here: Mapping[int, RowMask]
    ) -> tuple[dict[str, RowMask], dict[str, list[str]], list[Operation], bool]:
        """The rows that are new to each durable subscription here that they match, and those that
        lived here once, by where they have gone: whoever carried the events here may not have
        known. What to write, and whether some had come before.
        """
        numbers = parcel.numbers
        writes: list[Operation] = []
        has_known = False
        assigned: dict[str, RowMask] = {}
        followed: dict[str, list[str]] = {}
        for number, mask in sorted(here.items()):
            subject = self._subjects[number]
            line = f"{subject}\n{parcel.publisher}"
            fresh = self._windows.fresh(line, numbers)
            wanted = mask & fresh
            is_all_fresh = bool(fresh.all())
            has_known = has_known or not (is_all_fresh or np.array_equal(wanted, mask))
            if wanted.any():
                writes += self._windows.add(line, numbers if is_all_fresh else numbers[fresh])
                if subject in self.here:
                    assigned[subject] = wanted
                else:
                    followed.setdefault(self.homes.of(subject), []).append(subject)
        return assigned, followed, writes, has_known

    def _here(self, parcel: Parcel, subjects: tuple[str, ...]) -> dict[int, RowMask]:
        """The durable subscriptions that live here, or lived here once, and want some events: those
        that alone they are for, if that is said. A notice may be about any.
        """
        if Notice.of(parcel) is not None:
            here = dict.fromkeys(self._subjects, ONE_ROW)
        else:
            here = routed(self._local, parcel)
        named = set(subjects)
        if not named:
            return here
        return {number: mask for number, mask in here.items() if self._subjects[number] in named}

    def _send_after(
        self,
        parcel: Parcel,
        followed: Mapping[str, Sequence[str]],
        writes: list[Operation],
        wall_us: int,
    ) -> list[int]:
        """Take events into custody for durable subscriptions that have gone elsewhere, and for them
        alone: who has always been there hears its publishers in order.
        """
        entries: list[int] = []
        for home, subjects in followed.items():
            for first in range(0, len(subjects), MAX_SUBJECTS):
                named = tuple(subjects[first : first + MAX_SUBJECTS])
                entry, puts = self.custody.take(parcel, (home,), {}, wall_us, named)
                entries.append(entry)
                writes += puts
        return entries

    # --- news of the network ---

    def learn(self, facts: list[Fact]) -> tuple[list[Operation], list[tuple[str, str]]]:
        """Facts are new: what to write beside them, and durable subscriptions that have moved, with
        whereto.
        """
        operations: list[Operation] = []
        for fact in facts:
            if fact.subject.startswith(RETIRED):
                operations += self._give_up(fact.subject.removeprefix(RETIRED))
            elif fact.origin == self.name and fact.subject not in self.here and is_end(fact):
                # A disk that was full may not have taken it when it ended: then it is said again.
                # And one that stopped just then has assigned something to it since.
                lined_up = self.custody.close(fact.subject)
                operations += [DropSubscription(fact.subject), *self.custody.drop(lined_up)]
            self._index(fact)
        subjects = dict.fromkeys(fact.subject for fact in facts)
        return operations, self.moved(subjects)

    def moved(self, subjects: Iterable[str]) -> list[tuple[str, str]]:
        """Those durable subscriptions of this broker that have gone elsewhere: see `Homes`."""
        return self.homes.moved(self.here[each] for each in subjects if each in self.here)

    def _give_up(self, broker: str) -> list[Operation]:
        """A broker is retired: it is nobody's home, and nothing is kept for it."""
        if broker not in self.registry.retired:
            return []
        forgotten, self.registry.forgotten = self.registry.forgotten, []
        for fact in forgotten:
            self._take_out(self._number((fact.origin, fact.subject)))
        for fact in self.registry.facts():
            if fact.links and is_subscription(fact.subject):  # it may have moved there
                self._index(fact)
        redirected = self._redirect(broker)
        return [*redirected, *self.custody.drop(self.custody.give_up(broker))]

    def _redirect(self, broker: str) -> list[Operation]:
        """What is kept for durable subscriptions that have moved on from a retired broker goes
        where they live now.
        """
        operations: list[Operation] = []
        for entry, subjects in self.custody.named_at(broker):
            homes = dict.fromkeys(self.homes.of(subject) for subject in subjects)
            homes.pop(self.name, None)
            if homes:
                operations += self.custody.redirect(entry, broker, tuple(homes))
        return operations

    def hand_over(
        self, subject: str, home: str, wall_us: int
    ) -> tuple[list[int], list[Operation], list[int]]:
        """A durable subscription lives at `home` now: what waits for it here goes there. The new
        entries, what to write, and the old entries, which are held until that is on the disk.
        """
        entries: list[int] = []
        operations: list[Operation] = []
        held: list[int] = []
        for waiting in self.custody.waiting(subject):
            entry, puts = self.pass_on(subject, self.part(subject, waiting), home, wall_us)
            entries.append(entry)
            held.append(waiting.entry)
            operations += puts
        self.custody.hold(held)
        return entries, [*operations, *self.drop(subject, moved_to=home)], held

    def pass_on(
        self, subject: str, part: Parcel, home: str, wall_us: int
    ) -> tuple[int, list[Operation]]:
        """Take into custody for its new home what was held for a durable subscription."""
        return self.custody.take(part, (home,), {}, wall_us, (subject,))

    def keep(self, subject: str, part: Parcel, wall_us: int) -> tuple[int, list[Operation], bool]:
        """Take into custody anew what was held for a durable subscription that is back, but for
        what came again since: the entry, or 0 if that was all of it; what to write; and whether
        something had come again.
        """
        line, numbers = f"{subject}\n{part.publisher}", part.numbers
        fresh = self._windows.fresh(line, numbers)
        if not fresh.any():
            return 0, [], True
        part = part if fresh.all() else part.select(fresh)
        rows = np.ones(len(part), np.bool_)
        entry, puts = self.custody.take(part, (), {subject: rows}, wall_us)
        return entry, [*puts, *self._windows.add(line, numbers[fresh])], not fresh.all()

    def abandon_kept(self, kept: Mapping[str, int], writes: Iterable[Operation]) -> None:
        """What was to be kept could not be written."""
        for subject, entry in kept.items():
            self.custody.abandon(entry, (subject,))
        self._windows.take_back(each for each in writes if isinstance(each, AddNumbers))

    def part(self, subject: str, entry: Entry) -> Parcel:
        """What an entry holds for a durable subscription."""
        rows = unpack_mask(self.custody.rows(subject, entry.entry), len(entry.parcel))
        return entry.parcel.select(rows)

    def _index(self, fact: Fact) -> None:
        """Keep the engine that finds homes in step with what is known of a subject."""
        if not is_subscription(fact.subject):
            return
        said = self.registry.fact(self.name, fact.subject)
        if said is not None and fact.subject not in self.here:
            self._follow(said, is_news=fact is said)
        for known in self.registry.about(fact.subject):
            self._place(known)

    def _follow(self, said: Fact, *, is_news: bool) -> None:
        """Go on matching for a durable subscription that has moved away; not for one that ended."""
        number = self._number((self.name, said.subject))
        home = self.homes.of(said.subject)
        has_gone_on, was_followed = home != self.name, number in self._subjects
        if has_gone_on == was_followed and not is_news:
            return
        claim = self.registry.fact(home, said.subject)
        text = said.filter or ("" if claim is None else claim.filter)
        filter = self._read(said.origin, text) if has_gone_on else None
        if filter is not None:
            self._subjects[number] = said.subject
            _add(self._local, number, filter)
        elif was_followed:
            del self._subjects[number]
            self._local.remove(number)

    def _place(self, fact: Fact) -> None:
        """Enter a fact's filter with the home it stands for, or take it out.

        One that has moved stands for its new home until that speaks for itself.
        """
        number = self._number((fact.origin, fact.subject))
        is_own = fact.origin == self.name
        home, filter = fact.origin, self._read(fact.origin, fact.filter)
        if fact.links:
            home = fact.links[0]
            theirs = self.registry.fact(home, fact.subject)
            speaks_for_itself = theirs is not None and theirs.claimed_us > fact.claimed_us
            if speaks_for_itself or home in self.registry.retired:
                filter = None
        if is_own and filter is not None and fact.subject in self.here:
            filter = self.here[fact.subject].bound
        if filter is not None:
            goal = self._goal_number((home, number if is_own else -1))
            _add(self._everywhere, number, filter, destination=goal)
            self._indexed.add(number)
        else:
            self._take_out(number)

    def _read(self, origin: str, text: str) -> Filter | None:
        """A fact's filter. One that this broker cannot read matches everything: better too much."""
        if not text:
            return None
        try:
            filter = parse_filter(text)
        except InvalidInput:
            self.unread[origin] = text
            return TRUE
        return TRUE if filter.variables else filter

    def _take_out(self, number: int) -> None:
        if number in self._indexed:
            self._everywhere.remove(number)
            self._indexed.remove(number)

    def _number(self, place: tuple[str, str]) -> int:
        if place not in self._numbers:
            self._numbers[place] = len(self._places)
            self._places.append(place)
        return self._numbers[place]

    def _goal_number(self, goal: tuple[str, int]) -> int:
        if goal not in self._goal_numbers:
            self._goal_numbers[goal] = len(self._goals)
            self._goals.append(goal)
        return self._goal_numbers[goal]


def _before(claim: Fact) -> int:
    """When a broker claimed it that never had it: before whoever has it, who speaks for itself."""
    return max(1, claim.claimed_us - 1)


def _add(matcher: Matcher, number: int, filter: Filter, *, destination: int | None = None) -> None:
    """Look for a filter, or for everything where the engine takes no more of its kind."""
    try:
        matcher.add(number, filter, destination=destination)
    except LimitExceeded:
        matcher.add(number, TRUE, destination=destination)
