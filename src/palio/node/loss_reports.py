"""`LossReports`: a loss report says that live events may have been lost somewhere.

A live event is lost where a broker drops it, where the broker that has it stops dead, and where no
way leads to whoever wants it. Nobody knows which events these were, so what is told is only that
some may be missing. It is told by the brokers where it happened, each to its own clients, and by a
fact (`LOSS_REPORT`) to all others, which tell theirs:

1. A broker that drops events, or whose session with a neighbour ends, notes that at once. Not if
   it ends in order (`Bye.in_order`): then ways led round it, and what wanted events at a broker
   that stops knows that it is gone.
2. Where links come into the tree of a graph that were in use before, or leave it, events went
   astray in between. That is noted at once, and again when waves through the routing tables are
   answered: what its side wants is in force beyond then.
3. Where a session with a neighbour begins, two parts of the network may have found each other
   again. Once such waves are answered the broker looks whom it could not reach for a time, though
   they lived (`Absences`): only if there are any, something is noted.

What is noted is informed when the waves are answered, and some looks later (`QUIET_SWEEPS`), so
that
one break is told once: its ends see it at different times, and other links take over later still.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Final, TypeAlias

from palio.node.limits import SHOWN_CHARS

WAVES: Final = 2
"""With advertisements a subscription goes where an advertisement has come from: the first wave is
answered when those on the other side are known here, the second when what they call for is there.
"""

QUIET_SWEEPS: Final = 2
"""Looks round between what is noted or heard and what is told of it: the ends of a link miss each
other one look apart at the most, and a tree goes over to another link within one more."""

MAX_REASONS: Final = 3
"""So many of several reasons that come together are told: one break is seen by both of
its ends."""

TIMEOUT_SWEEPS: Final = 10
"""Looks after which it is told though waves are open: they may never be answered."""

SendWave: TypeAlias = Callable[[Callable[[], None]], None]
"""Send a wave, and call back once it is answered."""


class Affected(Enum):
    """Brokers that may have missed something while they could not reach each other."""

    NONE = 0
    LOCAL = 1
    """Those of this broker alone: clients that came before it had met its network."""
    ALL = 2


class Absences:
    """Which brokers this one could not reach for a time though they lived on: what was published on
    either side did not come to the other. Of one that was restarted meanwhile nobody could have
    missed anything.

    >>> away = Absences(lambda broker: {broker})
    >>> away.update({"b2", "b3"}), away.update({"b2"}), away.judge()
    (None, None, (<Affected.NONE: 0>, []))
    >>> away.update({"b2", "b3"}), away.judge(), away.judge()
    (None, (<Affected.ALL: 2>, ['b3']), (<Affected.NONE: 0>, []))
    """

    def __init__(self, reached_without_self: Callable[[str], Collection[str]]) -> None:
        self._reached_without_self = reached_without_self
        """Whom a broker reaches by ways that do not lead through this one."""
        self._reached: frozenset[str] = frozenset()
        self._lost: set[str] = set()
        """Those that could be reached, and then not."""
        self._not_yet_met: set[str] = set()
        """Those that are known from an earlier incarnation of this broker, and were not reached in
        this one."""
        self._is_alone = True
        """True if this broker has met nobody yet."""
        self._took_alone = False
        """True if it took events by then, which went nowhere else."""

    def begin(self, known: Iterable[str]) -> None:
        """This broker starts, and knows these."""
        self._not_yet_met.update(known)

    def forget(self, brokers: Collection[str]) -> None:
        """Some were restarted."""
        self._reached = self._reached.difference(brokers)
        self._lost.difference_update(brokers)
        self._not_yet_met.difference_update(brokers)

    def update(self, reached: AbstractSet[str]) -> None:
        """Ways may be others: these can be reached now."""
        self._lost.update(self._reached - reached)
        self._reached = frozenset(reached)

    def tables_in_force(self, *, has_published: bool) -> None:
        """Tables are in force: who is reached gets what is published here from now on."""
        if self._is_alone and self._reached:
            self._is_alone, self._took_alone = False, has_published

    def judge(self) -> tuple[Affected, list[str]]:
        """Return those that missed something by the absence of those that are back, and these."""
        back, met = self._lost & self._reached, self._not_yet_met & self._reached
        self._lost -= back
        self._not_yet_met -= met
        took_alone, self._took_alone = self._took_alone, False
        if back or took_alone:
            return Affected.ALL, sorted(back or self._reached)
        if not met:
            return Affected.NONE, []
        one = min(met)
        is_one_part = met <= {one, *self._reached_without_self(one)}
        return Affected.LOCAL if is_one_part else Affected.ALL, sorted(met)


class LossReports:
    """Losses of events that one broker has yet to report.

    >>> answers = []
    >>> loss_reports = LossReports("b1", answers.append, lambda: None, lambda: (Affected.NONE, []))
    >>> loss_reports.paths_changed("a link is gone")
    >>> answers.pop()(), answers.pop()()
    (None, None)
    >>> [loss_reports.take() for look in range(4)]
    [('', ''), ('', ''), ('a link is gone', ''), ('', '')]
    """

    def __init__(
        self,
        name: str,
        send_wave: SendWave,
        on_settled: Callable[[], None],
        judge: Callable[[], tuple[Affected, list[str]]],
    ) -> None:
        self._name = name
        self._send_wave = send_wave
        self._on_settled = on_settled
        """Called when all waves are answered."""
        self._judge = judge
        self._noted = 0
        """The number of the look that is next since there is something that other brokers are to
        be told; 0 if there is nothing..."""
        self._why = ""
        self._here = 0
        """...and the same of clients here..."""
        self._reasons: dict[str, None] = {}
        """...who are told these."""
        self._joined = 0
        """The same of a neighbour that is there: whom it was missed by is yet to be found
        out. By then all have learned of it whether it was restarted."""
        self._is_astray = False
        """True if events go astray until the waves are answered."""
        self._is_open = False
        """True if a wave is on its way."""
        self._waves = 0
        """Waves yet to be sent after that."""

    def note(self, why: str) -> None:
        """Something may have been lost here."""
        if not self._noted:
            self._noted, self._why = 1, why

    def note_here(self, reason: str) -> None:
        """Clients here may have missed something."""
        self._here = self._here or 1
        if len(self._reasons) < MAX_REASONS:
            self._reasons[reason] = None

    def paths_changed(self, why: str) -> None:
        """Events take other ways from now on, and routing tables are on theirs."""
        self.note(why)
        self._is_astray = True
        self.peer_joined()

    def peer_joined(self) -> None:
        """A neighbour is there: it is found out who had missed it, once tables are in force."""
        self._joined = 0
        self._waves = WAVES
        if not self._is_open:
            self._send()

    def take(self, *, may_report: bool = True) -> tuple[str, str]:
        """At each look round: why other brokers are to be told now, if they are and that may be,
        and what clients here are told, if they are.
        """
        if self._joined > QUIET_SWEEPS:
            self._judge_absences()
        is_news = may_report and self._noted > (TIMEOUT_SWEEPS if self._is_open else QUIET_SWEEPS)
        is_told = self._here > QUIET_SWEEPS
        self._noted = 0 if is_news else self._noted + bool(self._noted)
        self._here = 0 if is_told else self._here + bool(self._here)
        self._joined += bool(self._joined)
        reasons = "; ".join(self._reasons) if is_told else ""
        if is_told:
            self._reasons = {}
        if is_news:
            self.note_here(f"{self._name} says: {self._why}")
        return self._why if is_news else "", reasons

    def _send(self) -> None:
        self._waves -= 1
        self._is_open = True
        self._send_wave(self._answered)

    def _answered(self) -> None:
        self._is_open = False
        if self._waves:
            self._send()
            return
        self._on_settled()
        self._joined = 1
        if self._is_astray:
            self.note("events took other ways")
        self._is_astray = False

    def _judge_absences(self) -> None:
        """Release those that have missed something: they have waited, and are informed now."""
        self._joined = 0
        missed, back = self._judge()
        if missed is Affected.ALL:
            self.note(f"no way led to {', '.join(back)[:SHOWN_CHARS]}")
            self._noted = QUIET_SWEEPS + 1
        elif missed is Affected.LOCAL:
            self.note_here(f"{self._name} says: it had not met {', '.join(back)[:SHOWN_CHARS]} yet")
            self._here = QUIET_SWEEPS + 1
