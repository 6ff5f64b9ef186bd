"""`LossReports`: reports that live events may have been lost somewhere.

A live event is lost where a broker drops it, where the broker that has it crashes, or where no path
leads to a subscriber. Nobody knows which events these were, so a loss report states only that some
may be missing. Each broker where that happened reports it to its own clients, and by a fact
(`LOSS_REPORT`) to all other brokers, which report it to theirs:

1. A broker notes a loss at once if it drops events, or if its session with a peer ends. Not if that
   ends in order (`Bye.in_order`): then paths avoided the peer, and the subscribers at a broker that
   stops know of that.
2. Where links that were in use enter or leave the tree of a graph, events went astray in between.
   That is noted at once. It is noted once more when waves through the routing tables are answered,
   since all subscriptions of this side are in force beyond by then.
3. Where a session with a peer begins, two partitions may have merged. Once such waves are answered,
   the broker finds those that it could not reach for a time though they were up (`Absences`), and
   notes a loss if there are any.

A noted loss is reported some sweeps after the waves are answered (`QUIET_SWEEPS`), so that one
break leads to one report: its ends detect it at different times, and other links take over later
still.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Final, TypeAlias

from palio.node.limits import SHOWN_CHARS

WAVES: Final = 2
"""With advertisements a subscription goes where an advertisement came from: the first wave is
answered when those of the other side are known here, the second when the subscriptions that they
attract are there."""

QUIET_SWEEPS: Final = 2
"""Sweeps between noting a loss and reporting it: the ends of a link detect its loss at most a sweep
apart, and a tree takes another link within one more."""

MAX_REASONS: Final = 3
"""Reasons given of those that come together: one break is reported by both of its ends."""

TIMEOUT_SWEEPS: Final = 10
"""Sweeps after which a loss is reported though waves are open: they may never be answered."""

SendWave: TypeAlias = Callable[[Callable[[], None]], None]
"""Send a wave, and call back once it is answered."""


class Affected(Enum):
    """The clients that may have missed events while brokers could not reach each other."""

    NONE = 0
    LOCAL = 1
    """Those of this broker alone: they connected before it had joined its network."""
    ALL = 2


class Absences:
    """Brokers that this one could not reach for a time though they were up: events published on
    either side did not reach the other. A broker that restarted meanwhile missed nothing.

    >>> absences = Absences(lambda broker: {broker})
    >>> absences.update({"b2", "b3"}), absences.update({"b2"}), absences.judge()
    (None, None, (<Affected.NONE: 0>, []))
    >>> absences.update({"b2", "b3"}), absences.judge(), absences.judge()
    (None, (<Affected.ALL: 2>, ['b3']), (<Affected.NONE: 0>, []))
    """

    def __init__(self, reached_without_self: Callable[[str], Collection[str]]) -> None:
        # The brokers that another one reaches without this one.
        self._reached_without_self = reached_without_self
        self._reached: frozenset[str] = frozenset()
        # Brokers that were reachable, and then not.
        self._lost: set[str] = set()
        # Brokers known from an earlier incarnation, and not reached in this one.
        self._not_yet_met: set[str] = set()
        # True until this broker has reached another.
        self._is_alone = True
        # True if it took events before that, which reached no other broker.
        self._took_alone = False

    def begin(self, brokers: Iterable[str]) -> None:
        """Start with the brokers that the disk knows."""
        self._not_yet_met.update(brokers)

    def forget(self, brokers: Collection[str]) -> None:
        """Forget brokers that restarted: they missed nothing."""
        self._reached = self._reached.difference(brokers)
        self._lost.difference_update(brokers)
        self._not_yet_met.difference_update(brokers)

    def update(self, reached: AbstractSet[str]) -> None:
        """Update the reachable brokers, since paths may have changed."""
        self._lost.update(self._reached - reached)
        self._reached = frozenset(reached)

    def tables_in_force(self, *, has_published: bool) -> None:
        """Note that brokers reached now receive what is published here from now on."""
        if self._is_alone and self._reached:
            self._is_alone, self._took_alone = False, has_published

    def judge(self) -> tuple[Affected, list[str]]:
        """Return the clients that missed events, and the brokers that were unreachable and are
        back.
        """
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
    """The losses that one broker has noted and not yet reported.

    >>> answers = []
    >>> loss_reports = LossReports("b1", answers.append, lambda: None, lambda: (Affected.NONE, []))
    >>> loss_reports.paths_changed("a link is gone")
    >>> answers.pop()(), answers.pop()()
    (None, None)
    >>> [loss_reports.take() for sweep in range(4)]
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
        # Called when all waves are answered.
        self._on_settled = on_settled
        self._judge = judge
        # Sweeps since a loss was noted that other brokers are to learn of, plus 1; 0 if there is
        # none...
        self._noted = 0
        self._why = ""
        # ...and the same for clients here...
        self._here = 0
        # ...who are given these reasons.
        self._reasons: dict[str, None] = {}
        # The same for a joined peer whose absence is yet to be judged. By the time it is, all
        # brokers know whether that peer restarted.
        self._joined = 0
        # True if events go astray until the waves are answered.
        self._is_astray = False
        # True if a wave is in flight.
        self._is_open = False
        # Waves yet to be sent after that one.
        self._waves = 0

    def note(self, why: str) -> None:
        """Note that events may have been lost at this broker."""
        if not self._noted:
            self._noted, self._why = 1, why

    def note_here(self, reason: str) -> None:
        """Note that clients here may have missed events."""
        self._here = self._here or 1
        if len(self._reasons) < MAX_REASONS:
            self._reasons[reason] = None

    def paths_changed(self, why: str) -> None:
        """Note that events take other paths from now on, while routing tables are in flight."""
        self.note(why)
        self._is_astray = True
        self.peer_joined()

    def peer_joined(self) -> None:
        """Send waves, after which the absence of a new peer is judged."""
        self._joined = 0
        self._waves = WAVES
        if not self._is_open:
            self._send()

    def take(self, *, may_report: bool = True) -> tuple[str, str]:
        """Return, once a sweep, the reason to report to other brokers, if one is due and
        `may_report`, and the reasons to report to clients here.
        """
        if self._joined > QUIET_SWEEPS:
            self._judge_absences()
        is_due = may_report and self._noted > (TIMEOUT_SWEEPS if self._is_open else QUIET_SWEEPS)
        is_due_here = self._here > QUIET_SWEEPS
        self._noted = 0 if is_due else self._noted + bool(self._noted)
        self._here = 0 if is_due_here else self._here + bool(self._here)
        self._joined += bool(self._joined)
        reasons = "; ".join(self._reasons) if is_due_here else ""
        if is_due_here:
            self._reasons = {}
        if is_due:
            self.note_here(f"{self._name}: {self._why}")
        return self._why if is_due else "", reasons

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
            self.note("events took other paths")
        self._is_astray = False

    def _judge_absences(self) -> None:
        """Note a loss for the clients that missed events. It is due at once: it has
        waited already.
        """
        self._joined = 0
        affected, back = self._judge()
        if affected is Affected.ALL:
            self.note(f"no path led to {', '.join(back)[:SHOWN_CHARS]}")
            self._noted = QUIET_SWEEPS + 1
        elif affected is Affected.LOCAL:
            self.note_here(f"{self._name}: it had not yet joined {', '.join(back)[:SHOWN_CHARS]}")
            self._here = QUIET_SWEEPS + 1
