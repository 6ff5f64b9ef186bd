"""`Crew`: workers that share one durable subscription, and whether their work was done.

Each job is a durable event that one of them handles. They reject some, are late, leave, die and
come back; a poison job is rejected by all. Held against what the user wrote (`Crew.faults_of`):

- each job was done, or became a dead letter, and a poison job did for certain;
- a job was begun again only if it was rejected, or its worker was late, left or died;
- its attempts are those that were rejected, late or left, and no more than `ATTEMPTS`;
- jobs of one customer were begun in order, one at a time.

All but the first is for networks where nothing else breaks: a broker that stops has forgotten who
has what.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from math import inf
from typing import Any, Final, NamedTuple

import msgspec

from palio.errors import GroupElsewhere, PalioError
from palio.model.events import rows
from palio.model.masks import unpack_mask
from palio.protocol.failures import error_of
from palio.protocol.messages import Deliver, Done, Failed, Subscribe
from palio.protocol.receipts import Receipt, Receipts
from palio.protocol.requests import Outcome
from palio.simulation.agenda import TIMER, US
from palio.simulation.member import ClientWorld, Member

JOB: Final = "kind = 9"
"""What the workers subscribe to."""

LETTERS: Final = "EXISTS dead_letter"

CREW: Final = "crew"
"""The name that all workers have at their broker."""

ATTEMPTS: Final = 4
DEADLINE_S: Final = 3.0
"""The deadline of an acknowledgement..."""
LATE_S: Final = 5.0
"""...and how long a late worker takes."""
LONGEST_S: Final = 0.2
"""What a job takes at most."""
ON_ITS_WAY_S: Final = 1.0
"""What a worker begins was sent to it no longer before, while nothing is broken."""
AGAIN_S: Final = 1.0
"""How long a worker waits before it subscribes again to what was refused or taken."""


def job(number: int, customer: int, *, is_poison: bool) -> dict[str, Any]:
    """The event of a job; others of the campaign have other kinds."""
    return {"kind": 9, "x": -1 - number, "customer": customer, "poison": is_poison}


class Try(msgspec.Struct, eq=False):
    """One worker with one job."""

    worker: str
    key: tuple[str, int]
    row: dict[str, Any]
    attempt: int
    begun_s: float
    ended_s: float = inf
    end: str = ""
    """done, rejected, late or gone."""


class Letter(NamedTuple):
    """A dead letter."""

    x: int
    attempts: int
    reason: str


class Seeker(Member):
    """A client of one durable subscription, which it asks for again until it has it."""

    def __init__(self, world: ClientWorld, name: str, broker: str) -> None:
        super().__init__(world, name, broker)
        self.key = 0
        self.is_alive = True
        self._is_seeking = False

    def seek(self) -> None:
        """Subscribe."""
        self._is_seeking = False
        if self.is_alive:
            self._next_key, self.key = self._next_key + 1, self._next_key
            self.receipts = {self.key: Receipts(self.core.table.report, self.key)}
            id = self._new_id()
            self.core.table.ask(self.request(id), partial(self.answered, id))

    def request(self, id: int) -> Subscribe:
        """Say what it subscribes to."""
        raise NotImplementedError

    def answered(self, id: int, outcome: Outcome) -> None:
        super().answered(id, outcome)
        if isinstance(outcome, Failed):
            self._again(error_of(outcome.failure))

    def withdrawn(self, ended: Subscribe, error: PalioError) -> None:
        super().withdrawn(ended, error)
        self._again(error)

    def _again(self, error: PalioError) -> None:
        """Subscribe again, as applications do, at the broker where the others are."""
        if isinstance(error, GroupElsewhere):
            self.move(self.world.broker_at(error.url) or error.broker)
        if not self._is_seeking:
            self._is_seeking = True
            self.later(AGAIN_S, self.seek)

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something after a while."""
        agenda = self.world.agenda
        agenda.at(agenda.now_us + round(seconds * US), TIMER, action)


class Worker(Seeker):
    """A process: it handles the jobs that it has at the same time."""

    def __init__(self, crew: Crew, name: str, broker: str, incarnation: int) -> None:
        super().__init__(crew.world, name, broker)
        self.crew = crew
        self._hello = msgspec.structs.replace(
            self._hello, name=CREW, incarnation=f"{name}-{incarnation}"
        )
        self._connection.session.hello = self._hello
        self._random = crew.world.random.branch()
        self.late_until_s = 0.0
        self.tries: dict[Receipt, Try] = {}

    def request(self, id: int) -> Subscribe:
        return Subscribe(
            id,
            self.key,
            JOB,
            durable="jobs",
            ack_timeout_s=DEADLINE_S,
            max_attempts=ATTEMPTS,
            group=True,
            order_by="customer" if self.crew.is_ordered else "",
        )

    def seek(self) -> None:
        super().seek()
        self.crew.settles.add((self.name, self.settle()))

    def answered(self, id: int, outcome: Outcome) -> None:
        super().answered(id, outcome)
        if (self.name, id) in self.crew.settles and isinstance(outcome, Done):
            self.crew.settled_s = min(self.crew.settled_s, self.world.now)

    def withdrawn(self, ended: Subscribe, error: PalioError) -> None:
        super().withdrawn(ended, error)
        self.crew.disturb(self)

    # --- work ---

    def deliver_durable(self, message: Deliver) -> None:
        receipts = self.receipts.get(message.key)
        if receipts is None or not message.entry:
            return
        parcel = message.parcel
        mask = unpack_mask(message.rows, len(parcel))
        numbers = parcel.numbers[mask].tolist()
        entry = receipts.came(
            message.entry, parcel.publisher, numbers, message.attempt, is_part=message.part
        )
        mask = mask.copy()
        mask[mask] = entry.fresh
        fresh = list(rows(parcel.select(mask).batch))
        receipts.expect(entry, len(fresh))
        for row in fresh:
            seq = row.pop("$seq")
            row.pop("$time")
            self._begin(receipts.make(entry, 1, seq), (parcel.publisher, seq), row, message.attempt)

    def _begin(
        self, receipt: Receipt, key: tuple[str, int], row: dict[str, Any], attempt: int
    ) -> None:
        now = self.world.now
        one = self.tries[receipt] = Try(self.name, key, row, attempt, now)
        self.crew.tries.append(one)
        takes_s = LONGEST_S * self._random.uniform()
        if now < self.late_until_s:
            takes_s = LATE_S
            self.later(DEADLINE_S, partial(self.crew.disturb, self))
        self.later(takes_s, partial(self._end, receipt))

    def _end(self, receipt: Receipt) -> None:
        one = self.tries.pop(receipt, None)
        if one is None:
            return  # its process died
        one.ended_s = self.world.now
        if one.row["poison"] or (one.attempt == 1 and one.row["x"] % 7 == 0):
            one.end = "rejected"
            receipt.reject(0.5 if one.row["x"] % 2 else 0.0, "no")
        else:
            one.end = "done"
            receipt.give()

    def go(self, *, is_told: bool) -> None:
        """Leave, or die."""
        self.crew.disturb(self)
        self.is_alive = False
        for one in self.tries.values():
            one.end, one.ended_s = "gone", self.world.now
        self.tries.clear()
        if is_told:
            self.receipts[self.key].flush()
            self.unsubscribe(self.key)
            self.later(1.0, self.vanish)
        else:
            self.vanish()

    def renewed(self, *, may_have_missed: bool) -> None:
        """What a lost session had may be with others."""
        super().renewed(may_have_missed=may_have_missed)
        self.crew.disturb(self)


class Collector(Seeker):
    """A client of the dead letters."""

    def __init__(self, world: ClientWorld, name: str, broker: str) -> None:
        super().__init__(world, name, broker)
        self.letters: list[Letter] = []

    def request(self, id: int) -> Subscribe:
        return Subscribe(id, self.key, LETTERS, durable="letters")

    def record(self, message: Deliver, mask: Any) -> None:
        before = len(self.heard)
        super().record(message, mask)
        self.letters += [
            Letter(row["x"], row["dead_letter_attempts"], row["dead_letter_reason"])
            for _, _, row in self.heard[before:]
            if row["kind"] == 9
        ]


class Crew:
    """All workers of a play, and what they did."""

    def __init__(self, world: Any, broker: str, *, is_ordered: bool) -> None:
        self.world = world
        self.broker = broker
        self.is_ordered = is_ordered
        self.workers: dict[str, Worker] = {}
        self.tries: list[Try] = []
        self.disturbed_s: list[tuple[float, str]] = []
        """When a worker was late, left, died or lost its session, and which."""
        self.settles: set[tuple[str, int]] = set()
        self.settled_s = inf
        self._processes = 0
        self.collector = Collector(world, "collector", broker)
        world.clients["collector"] = self.collector
        self.collector.connect()
        self.collector.seek()

    def disturb(self, worker: Worker) -> None:
        """From now on others may have what a worker has."""
        self.disturbed_s.append((self.world.now, worker.name))

    # --- what happens ---

    def hire(self, name: str) -> None:
        """A process begins, unless it is there."""
        if name not in self.workers:
            self._processes += 1
            worker = Worker(self, name, self.broker, self._processes)
            self.workers[name] = self.world.clients[name] = worker
            worker.connect()
            worker.seek()

    def fire(self, name: str, seconds: float, *, is_told: bool) -> None:
        """A process leaves or dies, and another one begins after a while."""
        worker = self.workers.pop(name, None)
        if worker is not None:
            worker.go(is_told=is_told)
            agenda = self.world.agenda
            agenda.at(agenda.now_us + round((2.0 + seconds) * US), TIMER, partial(self.hire, name))

    def delay(self, name: str, seconds: float) -> None:
        """What a process begins for a while takes it too long."""
        worker = self.workers.get(name)
        if worker is not None:
            worker.late_until_s = self.world.now + seconds

    @property
    def is_idle(self) -> bool:
        """Whether everybody is back, and has nothing to do."""
        members = [self.collector, *self.workers.values()]
        return all(each.is_connected for each in members) and not any(
            each.tries for each in self.workers.values()
        )

    # --- what must have come of it ---

    def faults_of(self, owed: Mapping[tuple[str, int], int], *, is_calm: bool) -> Iterator[str]:
        """What is wrong with the work on the jobs: `owed` are the `x` of those that were accepted
        after the subscription was in force, and all else is as it was if nothing else broke.
        """
        by_job: dict[tuple[str, int], list[Try]] = {key: [] for key in owed}
        for one in self.tries:
            by_job.setdefault(one.key, []).append(one)
        letters = Counter(each.x for each in self.collector.letters)
        for key, x in owed.items():
            is_done = any(one.end == "done" for one in by_job[key])
            is_poison = any(one.row["poison"] for one in by_job[key])
            if x not in letters and (is_poison or not is_done):
                yield f"job {key} ({x}) is neither done nor a dead letter: {by_job[key]}"
        for tries in by_job.values():
            for one in tries:
                if not 1 <= one.attempt <= ATTEMPTS:
                    yield f"this is no attempt of {ATTEMPTS}: {one}"
        if is_calm:
            for tries in by_job.values():
                yield from self._repeated(tries)
            yield from self._buried(by_job, letters)
            if self.is_ordered:
                yield from self._unordered(by_job)

    def _failures(self, worker: str, from_s: float, until_s: float) -> int:
        """How often what a worker had may have been returned."""
        return sum(name == worker and from_s <= at_s <= until_s for at_s, name in self.disturbed_s)

    def _repeated(self, tries: list[Try]) -> Iterator[str]:
        for before, after in pairwise(tries):
            lost = self._failures(before.worker, before.begun_s - ON_ITS_WAY_S, after.begun_s)
            was_rejected = before.end == "rejected" and before.ended_s <= after.begun_s
            if not was_rejected and not lost:
                yield f"begun again without a reason: {before}, {after}"
            # What a late worker rejects counts once, or not if it had not begun it in time.
            if after.attempt < before.attempt + (was_rejected and not lost):
                yield f"an attempt was not counted: {before}, {after}"
        rejected = 0
        for one in tries:
            lost = sum(at_s <= one.begun_s for at_s, _ in self.disturbed_s)
            if one.attempt > 1 + rejected + lost:
                yield f"too many attempts were counted: {one} of {tries}"
            rejected += one.end == "rejected"

    def _buried(
        self, by_job: Mapping[tuple[str, int], list[Try]], letters: Counter[int]
    ) -> Iterator[str]:
        for letter in self.collector.letters:
            if letters[letter.x] > 1 or letter.attempts != ATTEMPTS:
                yield f"{letters[letter.x]} dead letters: {letter}"
        for tries in by_job.values():
            if not tries or tries[0].row["x"] not in letters:
                continue
            rejected = sum(one.end == "rejected" for one in tries)
            if rejected + len(self.disturbed_s) < ATTEMPTS:
                yield f"a dead letter of a job with too few failures: {tries}"

    def _unordered(self, by_job: Mapping[tuple[str, int], list[Try]]) -> Iterator[str]:
        """Jobs of one customer that were begun while an earlier one was open."""
        closed_s = {
            key: max(one.ended_s for one in tries) if tries else -inf
            for key, tries in by_job.items()
        }
        lines: dict[tuple[str, int], list[tuple[str, int]]] = {}
        for key, tries in sorted(by_job.items()):
            if tries:
                lines.setdefault((key[0], tries[0].row["customer"]), []).append(key)
        for line in lines.values():
            for earlier, later in pairwise(line):
                first, until_s = by_job[later][0], closed_s[earlier]
                had = by_job[earlier]
                if first.begun_s < until_s and not any(
                    self._failures(one.worker, one.begun_s, until_s) for one in had
                ):
                    yield f"begun before {had}: {first}"
