"""Writes facts to the disk (`FactWriter`), and sends them to peers in batches (`FactBatcher`).

When the tree of a hundred brokers changes, each announces its links and a loss report. All of these
facts cross every link: with one message each, thousands of messages. So the first few are forwarded
at once (`FACTS_BURST`), and more of them in one message a peer every `FACTS_INTERVAL_S`, in order.
An overloaded broker waits longer (`throttle`).

Facts about durable subscriptions are never delayed. Only routing tables, which do not depend on
facts, may overtake a pending batch (`Neighbour.before`). Waves may not: they confirm facts, too.
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
    """Appends operations, then calls back on success or on failure (`Core.append`)."""

    def __call__(
        self,
        operations: Iterable[Operation],
        on_success: Callable[[], None],
        on_failure: Callable[[str], None],
    ) -> object: ...


class FactWriter:
    """Writes facts in the order of their arrival. The disk keeps a prefix of all appends (L1), so
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
        # The newest fact of each subject of other brokers that the disk has refused.
        self._refused: dict[tuple[str, str], Fact] = {}
        # Writes that the disk has neither taken nor refused.
        self._under_way = 0

    def __len__(self) -> int:
        return len(self._refused)

    def write(
        self,
        facts: Sequence[Fact],
        on_success: Callable[[], None],
        on_failure: Callable[[str], None],
    ) -> None:
        """Write new facts. Refused facts of this broker itself are left to `UnpublishedFacts`."""

        def written() -> None:
            self._under_way -= 1
            on_success()

        def refused(reason: str) -> None:
            self._under_way -= 1
            for fact in facts:
                if fact.origin != self._cluster_state.name:
                    self._refused.pop((fact.origin, fact.subject), None)
                    self._refused[fact.origin, fact.subject] = fact
            on_failure(reason)

        self._under_way += 1
        self._append((PutFacts(tuple(facts)),), written, refused)

    def retry(self) -> None:
        """Write the refused facts that are still the newest, once the disk takes writes."""
        refused, self._refused = self._refused, {}
        # By identity: a fact superseded since has its own write, which must stay the last.
        facts = [fact for key, fact in refused.items() if self._cluster_state.fact(*key) is fact]
        facts.sort(key=lambda fact: fact.version)
        for first in range(0, len(facts), PORTION_FACTS):
            some = facts[first : first + PORTION_FACTS]
            self.write(some, lambda: None, lambda _reason: None)

    @property
    def is_writing(self) -> bool:
        """True if the disk has yet to take or refuse a write."""
        return self._under_way > 0


class FactBatcher:
    """Pending facts for peers, sent in batches by calls of `send`."""

    def __init__(self, send: Callable[[Neighbour, Facts], None], lag: Lag) -> None:
        self._send = send
        # In the order in which they are to be sent.
        self._facts: dict[Neighbour, list[Fact]] = {}
        self._throttle = Throttle(FACTS_INTERVAL_S, MAX_INTERVAL_S, FACTS_BURST, lag)

    def put(self, neighbour: Neighbour, message: Facts) -> None:
        """Queue facts for a peer until the next `send_due` that is due."""
        pending = self._facts.setdefault(neighbour, [])
        # Sends that must not overtake these facts call `before` first.
        neighbour.before = partial(self.flush, neighbour)
        pending += message.facts
        is_urgent = any(is_subscription(fact.subject) for fact in message.facts)
        if is_urgent or len(pending) >= PORTION_FACTS:
            self.flush(neighbour)

    def flush(self, neighbour: Neighbour) -> None:
        """Send a peer its pending facts."""
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
