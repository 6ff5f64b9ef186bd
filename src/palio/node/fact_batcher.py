"""Writers of facts to the disk (`FactWriter`) and to neighbours (`FactBatcher`).

When the tree of a hundred brokers changes, each announces its neighbours and that events may have
been lost. All of these facts cross every link: one message for each would be thousands. So the
first few are passed on at once (`FACTS_BURST`), and more of them in batches, one message a
neighbour every `FACTS_INTERVAL_S`, in order. A broker that is behind waits longer (`throttle`).

Facts about durable subscriptions go at once. Only routing tables, which do not depend on facts,
overtake a batch that waits (`Neighbour.before`). Waves do not: they ask about facts, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from typing import Protocol

from palio.node.cluster_state import ClusterState
from palio.node.fact_verifier import is_subscription
from palio.node.limits import FACTS_BURST, FACTS_INTERVAL_S, MAX_INTERVAL_S
from palio.node.operations import Operation, PutFacts
from palio.node.sessions import Neighbour
from palio.node.throttle import Lag, Throttle
from palio.protocol.limits import PORTION_FACTS
from palio.protocol.messages import Fact, Facts


class _Appending(Protocol):
    """Appends operations, on_success calls back on success or on failure (`Core.append`)."""

    def __call__(
        self,
        operations: Iterable[Operation],
        on_success: Callable[[], None],
        on_failure: Callable[[str], None],
    ) -> object: ...


class FactWriter:
    """Writes facts in the order in which they came. As a disk keeps a prefix of all appends (L1),
    it never has a newer fact of an origin without the older ones.

    A full disk delays nothing: callers continue after a refusal as after a write.

    >>> from palio.node.cluster_state import ClusterState
    >>> appended = []
    >>> writer = FactWriter(ClusterState("b1"), lambda operations, *_: appended.append(operations))
    >>> writer.write([Fact("b2", 4, "links")], lambda: None, lambda _reason: None)
    >>> [[fact.version for fact in put.facts] for (put,) in appended], len(writer)
    ([[4]], 0)
    """

    def __init__(self, cluster_state: ClusterState, append: _Appending) -> None:
        self._cluster_state = cluster_state
        self._append = append
        self._refused: dict[tuple[str, str], Fact] = {}
        """The newest fact of each subject of others that the disk did not take."""
        self._under_way = 0
        """Writes that the disk has neither taken nor refused."""

    def __len__(self) -> int:
        return len(self._refused)

    def write(
        self,
        news: Sequence[Fact],
        on_success: Callable[[], None],
        on_failure: Callable[[str], None],
    ) -> None:
        """Write new facts. `UnpublishedFacts` takes care of this broker's own facts that are
        refused.
        """

        def written() -> None:
            self._under_way -= 1
            on_success()

        def refused(reason: str) -> None:
            self._under_way -= 1
            for fact in news:
                if fact.origin != self._cluster_state.name:
                    self._refused.pop((fact.origin, fact.subject), None)
                    self._refused[fact.origin, fact.subject] = fact
            on_failure(reason)

        self._under_way += 1
        self._append((PutFacts(tuple(news)),), written, refused)

    def retry(self) -> None:
        """Write the refused facts that still count: the disk takes writes again."""
        refused, self._refused = self._refused, {}
        # By identity: a fact that was replaced since has its own write, and must not come after it.
        facts = [fact for key, fact in refused.items() if self._cluster_state.fact(*key) is fact]
        facts.sort(key=lambda fact: fact.version)
        for first in range(0, len(facts), PORTION_FACTS):
            some = facts[first : first + PORTION_FACTS]
            self.write(some, lambda: None, lambda _reason: None)

    @property
    def is_writing(self) -> bool:
        """True if the disk has yet to take or refuse something."""
        return self._under_way > 0


class FactBatcher:
    """Facts that wait to be passed on, in batches, by calls of `send`."""

    def __init__(self, send: Callable[[Neighbour, Facts], None], lag: Lag) -> None:
        self._send = send
        self._facts: dict[Neighbour, list[Fact]] = {}
        """In the order in which they are to be sent."""
        self._throttle = Throttle(FACTS_INTERVAL_S, MAX_INTERVAL_S, FACTS_BURST, lag)

    def put(self, neighbour: Neighbour, message: Facts) -> None:
        """Queue facts for a neighbour, until the next `send_due` that is due."""
        waiting = self._facts.setdefault(neighbour, [])
        # Whatever must not overtake these facts calls `before` first.
        neighbour.before = partial(self.flush, neighbour)
        waiting += message.facts
        is_urgent = any(is_subscription(fact.subject) for fact in message.facts)
        if is_urgent or len(waiting) >= PORTION_FACTS:
            self.flush(neighbour)

    def flush(self, neighbour: Neighbour) -> None:
        """Send a neighbour the facts that wait."""
        neighbour.before = None
        facts = self._facts.pop(neighbour, None)
        if facts:
            self._send(neighbour, Facts(tuple(facts)))

    @property
    def wake_at(self) -> float:
        """When `send_due` is next to be called."""
        return self._throttle.due_at if self._facts else inf

    def send_due(self, now: float) -> None:
        """Send the facts that are due; called after each input, and at `wake_at`."""
        if self.wake_at > now:
            return
        self._throttle.record(now)
        for neighbour in list(self._facts):
            self.flush(neighbour)
